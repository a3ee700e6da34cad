//! Checks that releases check the arithmetic of the crates for which the documents promise it.

use crate::shell;
use std::fs;

/// The crates whose overflows panic in releases too.
const CHECKED: [&str; 2] = ["firstcome-core", "firstcome-store"];
/// The documents that promise it.
const PROMISED_IN: [&str; 2] = ["SECURITY.md", "docs/security.md"];

pub(super) fn check(findings: &mut Vec<String>) {
    let read = |name: &str| fs::read_to_string(shell::root().join(name)).unwrap_or_default();
    for name in unchecked(&read("Cargo.toml")) {
        findings.push(format!(
            "Cargo.toml: [profile.release.package] lacks {name} = {{ overflow-checks = true }}, which SECURITY.md promises"
        ));
    }
    for document in PROMISED_IN {
        for name in unnamed(&read(document)) {
            findings.push(format!("{document}: no text about overflows names {name}, whose arithmetic releases check"));
        }
    }
}

/// Returns the crates that the manifest builds without the checks.
fn unchecked(manifest: &str) -> Vec<&'static str> {
    let (_, section) = manifest.split_once("\n[profile.release.package]\n").unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    let is_checked = |name: &str| section.lines().any(|line| line == format!("{name} = {{ overflow-checks = true }}"));
    CHECKED.into_iter().filter(|name| !is_checked(name)).collect()
}

/// Returns the crates that are named in no item or row of a document that is about overflows.
fn unnamed(document: &str) -> Vec<&'static str> {
    let items: Vec<&str> = document.split("\n- ").flat_map(|item| item.split("\n|")).collect();
    let is_named =
        |name: &str| items.iter().any(|item| item.contains("overflow") && item.contains(&format!("`{name}`")));
    CHECKED.into_iter().filter(|name| !is_named(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: &str = "firstcome-core = { overflow-checks = true }";
    const STORE: &str = "firstcome-store = { overflow-checks = true }";

    #[test]
    fn a_crate_whose_arithmetic_is_not_checked_is_found() {
        let head = "[profile.release]\nlto = \"thin\"\n\n[profile.release.package]\n";
        assert_eq!(unchecked(&format!("{head}{CORE}\n{STORE}\n")), [""; 0]);
        assert_eq!(unchecked(&format!("{head}{CORE}\n# {STORE}\n")), ["firstcome-store"]);
        assert_eq!(unchecked(&format!("{head}{CORE}\n\n[profile.dev.package]\n{STORE}\n")), ["firstcome-store"]);
        assert_eq!(unchecked(&format!("[profile.dev.package]\n{CORE}\n{STORE}\n")), CHECKED);
    }

    #[test]
    fn a_promise_names_its_crates() {
        assert_eq!(unnamed("- of `firstcome-core` and\n  `firstcome-store`: overflows\n- other"), [""; 0]);
        assert_eq!(unnamed("| 1 | overflows of `firstcome-core` |\n| 2 | `firstcome-store` |"), ["firstcome-store"]);
    }
}
