//! Text for pages and drawings.

use std::fmt::{Arguments, Write};

/// Escapes text for HTML and SVG, in content and in attributes. A control character becomes a space.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Control characters are not allowed in a page.
            _ if letter.is_control() => safe.push(' '),
            _ => safe.push(letter),
        }
    }
    safe
}

/// Appends formatted text, unescaped.
pub fn put(markup: &mut String, text: Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = markup.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_text_is_escaped() {
        assert_eq!(escaped("<a href=\"x\">'&\u{7}"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp; ");
    }
}
