//! Checks that documents name only files, items and places that exist.

use crate::shell;
use std::fs;
use std::path::Path;

/// Reports are history: they name the code of their day.
const HISTORY: [&str; 2] = ["docs/full/", "CHANGELOG.md"];
/// The longest README (lines), ARCHITECTURE.md (words) and glossary (entries).
const README_LINES_MAX: usize = 150;
const ARCHITECTURE_WORDS_MAX: usize = 2_500;
const GLOSSARY_WORDS_MAX: usize = 40;

/// Finds links and paths that lead nowhere, pages that are missing in the book, and documents that are too long.
pub(super) fn check(tracked: &str, findings: &mut Vec<String>) {
    let pages: Vec<&str> = tracked.lines().filter(|name| name.ends_with(".md")).collect();
    for name in pages.iter().filter(|name| !HISTORY.iter().any(|history| name.starts_with(history))) {
        let Ok(text) = fs::read_to_string(shell::root().join(name)) else { continue };
        let mut is_code = false;
        for (at, line) in text.lines().enumerate() {
            is_code ^= line.starts_with("```");
            if !is_code {
                links(line).filter(|link| !leads_somewhere(name, link)).for_each(|link| {
                    findings.push(format!("{name}:{}: {link} is not there", at + 1));
                });
            }
            paths(line).filter(|path| !shell::root().join(path).exists()).for_each(|path| {
                findings.push(format!("{name}:{}: {path} is not there", at + 1));
            });
        }
    }
    book_has_all_pages(&pages, findings);
    lengths(findings);
}

/// Returns the targets of the links of a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).filter(|link| !link.is_empty())
}

/// Returns the paths of this repository that a line names as code.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans.filter(|span| {
        let begins = ["crates/", "xtask/", "docs/", "bench/"].iter().any(|begin| span.starts_with(begin));
        begins && span.chars().all(|letter| letter.is_alphanumeric() || "/_.-".contains(letter))
    })
}

/// Returns whether a link of this page leads to a file, and to a heading if it names one.
fn leads_somewhere(page: &str, link: &str) -> bool {
    if link.starts_with("https://") || link.starts_with("http://") {
        return true;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let directory = Path::new(page).parent().unwrap_or(Path::new(""));
    let target = shell::root().join(if file.is_empty() { Path::new(page).to_owned() } else { directory.join(file) });
    let Ok(text) = fs::read_to_string(&target) else { return target.exists() && anchor.is_empty() };
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    anchor.is_empty() || headings.map(|line| anchor_of(line.trim_start_matches('#'))).any(|heading| heading == anchor)
}

/// Returns the anchor of a heading, as GitHub and mdbook make it.
fn anchor_of(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect()
}

/// Checks that every page of `docs/` is in the book.
fn book_has_all_pages(pages: &[&str], findings: &mut Vec<String>) {
    let summary = fs::read_to_string(shell::root().join("docs/SUMMARY.md")).unwrap_or_default();
    for page in pages.iter().filter_map(|name| name.strip_prefix("docs/")).filter(|page| *page != "SUMMARY.md") {
        if !summary.contains(&format!("]({page})")) {
            findings.push(format!("docs/SUMMARY.md does not name {page}"));
        }
    }
}

/// Checks the lengths of the documents that readers read at one time.
fn lengths(findings: &mut Vec<String>) {
    let read = |name: &str| fs::read_to_string(shell::root().join(name)).unwrap_or_default();
    let glossary = read("docs/glossary.md").lines().filter(|line| line.starts_with("| ")).count().saturating_sub(1);
    let measured = [
        ("README.md: lines", read("README.md").lines().count(), README_LINES_MAX),
        ("ARCHITECTURE.md: words", read("ARCHITECTURE.md").split_whitespace().count(), ARCHITECTURE_WORDS_MAX),
        ("docs/glossary.md: words", glossary, GLOSSARY_WORDS_MAX),
    ];
    for (what, count, max) in measured.into_iter().filter(|(_, count, max)| max < count) {
        findings.push(format!("{what}: {count}, at most {max}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_paths_are_read_from_a_line() {
        let line = "see [a](b.md#c), [d](e.md) and `crates/x/src/lib.rs`, not `let x = 1`";
        assert_eq!(links(line).collect::<Vec<_>>(), ["b.md#c", "e.md"]);
        assert_eq!(paths(line).collect::<Vec<_>>(), ["crates/x/src/lib.rs"]);
    }

    #[test]
    fn a_link_leads_to_a_file_and_to_a_heading() {
        assert!(leads_somewhere("README.md", "ARCHITECTURE.md#the-problem"));
        assert!(!leads_somewhere("README.md", "ARCHITECTURE.md#no-such-heading"));
        assert!(!leads_somewhere("README.md", "docs/no-such-page.md"));
        assert_eq!(anchor_of(" Yes, no, unknown"), "yes-no-unknown");
    }
}
