//! Marked blocks of a document, whose content is made from reports.
//!
//! A block begins with `<!-- figures:NAME -->` and ends with `<!-- end -->`, each on a line of its own.

const BEGIN: &str = "<!-- figures:";
const END: &str = "<!-- end -->";

/// Returns the name of the block that begins with this line.
fn name_of(line: &str) -> Option<&str> {
    line.trim().strip_prefix(BEGIN)?.strip_suffix("-->").map(str::trim)
}

/// Returns the document with the content of every block replaced by what `content` returns for its name.
pub fn filled(text: &str, mut content: impl FnMut(&str) -> Result<String, String>) -> Result<String, String> {
    let mut made = String::with_capacity(text.len());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        made.push_str(line);
        made.push('\n');
        let Some(name) = name_of(line) else { continue };
        if !lines.by_ref().any(|line| line.trim() == END) {
            return Err(format!("the block {name} has no line `{END}`"));
        }
        let content = content(name)?;
        // An empty line on both sides, so that a table is one.
        made.push_str(&format!("\n{}\n\n{END}\n", content.trim_end()));
    }
    Ok(made)
}

/// Finds digits that stand in the prose of a document: outside of blocks, code, links and headings' anchors.
pub fn typed(text: &str) -> Vec<String> {
    let (mut found, mut in_block, mut in_code) = (Vec::new(), false, false);
    for (at, line) in text.lines().enumerate() {
        if name_of(line).is_some() {
            in_block = true;
        } else if line.trim() == END {
            in_block = false;
        } else if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_block || in_code {
            continue;
        }
        let prose = prose_of(line);
        if prose.contains(|letter: char| letter.is_ascii_digit()) {
            found.push(format!("line {}: a number that was typed by hand: {}", at + 1, line.trim()));
        }
    }
    found
}

/// Returns a line without code spans and without the targets of links.
fn prose_of(line: &str) -> String {
    let outside_code: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let mut prose = String::new();
    let mut rest = outside_code.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        prose.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    prose.push_str(rest);
    prose
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Page\n<!-- figures:a -->\nold 1\n<!-- end -->\nrest\n";

    #[test]
    fn the_content_of_a_block_is_replaced_and_the_rest_stays() {
        let made = filled(PAGE, |name| Ok(format!("new {name} 2"))).expect("a page");
        assert_eq!(made, "# Page\n<!-- figures:a -->\n\nnew a 2\n\n<!-- end -->\nrest\n");
        let again = filled(&made, |name| Ok(format!("new {name} 2")));
        assert_eq!(again, Ok(made), "what was made is made again");
    }

    #[test]
    fn a_block_without_an_end_or_without_figures_is_refused() {
        assert!(filled("<!-- figures:a -->\nold\n", |_| Ok(String::new())).is_err());
        assert_eq!(filled(PAGE, |name| Err(format!("no {name}"))), Err("no a".into()));
    }

    #[test]
    fn a_number_in_prose_is_found_and_one_in_code_or_in_a_link_is_not() {
        assert_eq!(typed(PAGE), [""; 0]);
        assert_eq!(typed("fast: 354 000\n").len(), 1);
        assert_eq!(typed("see `wrk -c64` and [that](full/p99.md)\n```sh\nrun 7\n```\n"), [""; 0]);
    }
}
