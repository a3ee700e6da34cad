//! Checks the project's own rules about its text.

mod arithmetic;
mod crates;
mod documents;
mod examples;
pub(crate) mod surface;
mod vocabulary;

use crate::shell::{self, Outcome};
use crate::stale::{self, Marks};
use std::collections::BTreeSet;
use std::fs;

/// The longest source file, in lines; tests may be longer.
const FILE_LINES_MAX: usize = 600;
/// The longest function, in lines.
const FUNCTION_LINES_MAX: usize = 70;
/// The comment lines in `src` that may lack an actor. This limit may only fall.
const RIDDLES_MAX: usize = 0;
/// The dependencies that the core may have: a hash table without keys of its own, and a hash function. Neither does IO.
const CORE_DEPENDENCIES: [&str; 3] = ["hashbrown", "hmac", "sha2"];

pub(crate) fn run(marks: Marks) -> Outcome {
    let (mut findings, mut riddles) = (Vec::new(), 0);
    let listed = shell::output("git", &["ls-files", "--cached", "--others", "--exclude-standard"])?;
    for name in listed.lines().filter(|name| name.ends_with(".rs")) {
        let Ok(text) = fs::read_to_string(shell::root().join(name)) else { continue };
        check_source(name, &text, &mut findings);
        vocabulary::check(name, &text, &mut findings);
        if name.contains("/src/") {
            riddles += vocabulary::riddles(&text);
        }
    }
    if RIDDLES_MAX < riddles {
        findings.push(format!(
            "{riddles} comment lines without an actor (whoever, nobody, is to be …), at most {RIDDLES_MAX}"
        ));
    }
    arithmetic::check(&mut findings);
    crates::check(&mut findings)?;
    surface::check(&mut findings)?;
    examples::check(&mut findings)?;
    documents::check(&listed, &mut findings);
    findings.extend(firstcome_figures::check(&shell::root()));
    core_is_pure(&mut findings)?;
    library_is_light(&mut findings)?;
    invariants_are_listed(&mut findings)?;
    for document in PROMISES {
        promises_are_shown(document, &mut findings)?;
    }
    // Only printed, not a finding: a change need not wait for hours of measurements.
    stale::look(marks)?;
    for finding in &findings {
        println!("  {finding}");
    }
    if findings.is_empty() { Ok(()) } else { Err(format!("tidy: {} findings", findings.len())) }
}

fn is_test(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("tests.rs") || name.contains("/conformance/")
}

fn check_source(name: &str, text: &str, findings: &mut Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    if FILE_LINES_MAX < lines.len() && !is_test(name) {
        findings
            .push(format!("{name}: {} lines, at most {FILE_LINES_MAX}: split it where two concerns meet", lines.len()));
    }
    // Joined here, so that this file does not find itself.
    let markers = [["TO", "DO"].concat(), ["FIX", "ME"].concat(), ["#[ig", "nore"].concat(), ["??", "?"].concat()];
    for (at, line) in lines.iter().enumerate() {
        if let Some(marker) = markers.iter().find(|marker| line.contains(marker.as_str())) {
            findings.push(format!("{name}:{}: {marker}", at + 1));
        }
    }
    // A scenario of a test may be one long table.
    if !is_test(name) {
        long_functions(name, &lines, findings);
    }
}

/// Finds functions by their indentation, which the formatter guarantees.
fn long_functions(name: &str, lines: &[&str], findings: &mut Vec<String>) {
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let words = line.trim_start();
        let head = ["fn ", "async fn ", "const fn "]
            .iter()
            .any(|head| words.starts_with(head) || (words.starts_with("pub") && words.contains(&format!(" {head}"))));
        if !head {
            continue;
        }
        // A declaration in a trait has no body.
        let opens =
            lines[start..].iter().find(|line| line.ends_with('{') || line.ends_with(';') || line.ends_with('}'));
        if opens.is_some_and(|line| line.ends_with(';')) {
            continue;
        }
        let close = format!("{}}}", " ".repeat(indent));
        let length = lines[start..].iter().position(|line| *line == close).map_or(0, |end| end + 1);
        if FUNCTION_LINES_MAX < length {
            findings.push(format!("{name}:{}: a function of {length} lines, at most {FUNCTION_LINES_MAX}", start + 1));
        }
    }
}

/// Checks that the core has no dependency through which IO, time or randomness could come in.
/// Fails if a program that uses the library as it is gets more crates than this with it.
fn library_is_light(findings: &mut Vec<String>) -> Outcome {
    const CRATES_MAX: usize = 60;
    let tree = shell::output("cargo", &["tree", "-p", "firstcome", "-e", "normal", "--prefix", "none"])?;
    let crates: BTreeSet<_> = tree.lines().filter_map(|line| line.split(" (").next()).collect();
    if CRATES_MAX < crates.len() {
        findings.push(format!("firstcome with its default features is {} crates; at most {CRATES_MAX}", crates.len()));
    }
    Ok(())
}

fn core_is_pure(findings: &mut Vec<String>) -> Outcome {
    let arguments = ["tree", "-p", "firstcome-core", "-e", "normal", "--depth", "1", "--prefix", "none"];
    for line in shell::output("cargo", &arguments)?.lines().skip(1) {
        let name = line.split(' ').next().unwrap_or_default();
        if !CORE_DEPENDENCIES.contains(&name) {
            findings.push(format!("firstcome-core depends on {name}"));
        }
    }
    Ok(())
}

/// Checks that ARCHITECTURE.md names every invariant of the simulator.
fn invariants_are_listed(findings: &mut Vec<String>) -> Outcome {
    let architecture = fs::read_to_string(shell::root().join("ARCHITECTURE.md")).unwrap_or_default();
    let directory = shell::root().join("crates/firstcome-sim/src/invariants");
    let entries = fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        let checks = fs::read_to_string(&path).is_ok_and(|text| text.contains("fn check("));
        if checks && name != "mod" && !architecture.contains(&format!("`{name}`")) {
            findings.push(format!("ARCHITECTURE.md does not name the invariant `{name}`"));
        }
    }
    Ok(())
}

/// The documents with promises, line by line.
const PROMISES: [&str; 2] = ["docs/guarantees.md", "docs/security.md"];

/// Checks that each promise of a document names tests, and that these exist, so that a renamed or removed test is found.
fn promises_are_shown(document: &str, findings: &mut Vec<String>) -> Outcome {
    let path = shell::root().join(document);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut promises = false;
    for (at, line) in text.lines().enumerate() {
        // Rows belong to the table of promises from its head to the next line without `|`.
        promises = line.starts_with('|') && (promises || line.ends_with("| shown by |"));
        let is_row = promises && !line.ends_with("| shown by |") && !line.starts_with("|---");
        if is_row && tests_of(line).next().is_none() {
            findings.push(format!("{document}:{}: no test shows it", at + 1));
        }
        for (test, file) in tests_of(line) {
            let source = fs::read_to_string(shell::root().join("docs").join(file)).unwrap_or_default();
            if !source.contains(&format!("fn {test}(")) {
                findings.push(format!("{document}:{}: no test {test} in {file}", at + 1));
            }
        }
    }
    Ok(())
}

/// Finds the links of a line that name a test and its file.
fn tests_of(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split("[`").skip(1).filter_map(|link| {
        let (test, rest) = link.split_once("`](")?;
        Some((test, rest.split_once(')')?.0))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn tests_are_read_from_their_links() {
        let line = "| a | b | [`one`](../a.rs), [`two`](../b.rs) |";
        assert_eq!(super::tests_of(line).collect::<Vec<_>>(), [("one", "../a.rs"), ("two", "../b.rs")]);
        assert_eq!(super::tests_of("| a | `b` |").count(), 0);
    }
}
