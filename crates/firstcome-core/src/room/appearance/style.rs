//! Which style sheets a page takes: those that load nothing from another site.
//!
//! The page's Content-Security-Policy forbids the same to the browser. This check tells the operator before a visitor
//! sees a page that lacks its pictures.

/// Words by which a style sheet loads something, and which it does not need for that.
const REFUSED: [&str; 4] = ["@import", "@charset", "src(", "image-set("];

/// Replaces escapes by the characters that they stand for, as a browser does when it reads a name.
fn unescaped(style: &str) -> String {
    let mut text = String::with_capacity(style.len());
    let mut rest = style.chars().peekable();
    while let Some(next) = rest.next() {
        if next != '\\' {
            text.push(next);
            continue;
        }
        let (mut code, mut digits) = (0, 0);
        while let Some(digit) = rest.peek().and_then(|next| next.to_digit(16)).filter(|_| digits < 6) {
            code = code << 4 | digit;
            digits += 1;
            rest.next();
        }
        if digits == 0 {
            text.extend(rest.next());
        } else {
            text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            rest.next_if(|next| next.is_ascii_whitespace());
        }
    }
    text
}

/// Whether the address that follows `url(` is a path of this site, or within the page.
fn is_own(address: &str) -> bool {
    let address = address.trim_start().trim_start_matches(['"', '\'']);
    // Browsers skip tabs and line ends within an address, so `/<tab>/` begins the address of another site.
    let is_path = address.strip_prefix('/').is_some_and(|rest| !rest.starts_with(['/', '\\', '\t', '\n', '\r']));
    is_path || address.starts_with('#')
}

/// Checks a style sheet. The error says what it must not have.
pub(super) fn check(style: &str) -> Result<(), String> {
    if style.chars().any(|letter| letter.is_control() && !matches!(letter, '\n' | '\r' | '\t')) {
        return Err("style must have no control characters".into());
    }
    // Both forms: a name may be written with escapes, and a text may have a backslash that is none.
    for text in [style.to_ascii_lowercase(), unescaped(style).to_ascii_lowercase()] {
        if let Some(word) = REFUSED.iter().find(|word| text.contains(**word)) {
            return Err(format!("style must not have {word}"));
        }
        let mut addresses = text.split("url(").skip(1);
        if !addresses.all(is_own) {
            return Err("style must not have url( but of a path of this site, such as url(/picture.png)".into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_style_that_loads_nothing_from_elsewhere_is_taken() {
        for style in [
            "",
            "main { border-radius: 0; }\n/* a > b */ h1::before { content: \"\\201c\" }",
            "body { background: url(/picture.png) }",
            "body { background: url( '/a/b.png' ) } p { fill: url(#gradient) }",
            "</style><script>alert(1)</script>",
        ] {
            assert_eq!(check(style), Ok(()), "{style}");
        }
    }

    #[test]
    fn a_style_that_loads_from_elsewhere_is_refused() {
        for style in [
            "@import 'https://evil.example/a.css';",
            "@IMPORT url(/a.css);",
            "@\\69mport 'a';",
            "@\\000069 mport 'a';",
            "a { background: url(https://evil.example/a.png) }",
            "a { background: URL(\"//evil.example/a.png\") }",
            "a { background: url(/\\evil.example/a.png) }",
            "a { background: u\\72l(//evil.example) }",
            "a { background: url(/ok.png), url(data:image/png;base64,AA) }",
            "a { background: url(relative.png) }",
            "a { background: url(\\68ttps://evil.example) }",
            "a { background: url(/\t/evil.example/a.png) }",
            "a { background: image-set('https://evil.example/a.png' 1x) }",
            "a { background: -webkit-image-set(url(/a.png) 1x) }",
            "a { background: src('https://evil.example') }",
            "a\0b { }",
        ] {
            assert!(check(style).is_err(), "{style}");
        }
    }
}
