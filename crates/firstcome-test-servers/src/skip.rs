//! Skips tests that this machine cannot run.

use std::fs::OpenOptions;
use std::io::Write;

/// The variable with the file to which each skipped test appends a line. `cargo xtask test` sets it, and counts the lines.
pub const SKIPPED_FILE: &str = "FIRSTCOME_SKIPPED";

/// Returns whether the machine has what a test needs. With `CI=true` it must have everything.
///
/// A skipped test passes. So this reports it, directly on standard error and in [`SKIPPED_FILE`].
///
/// # Panics
/// Panics if it is missing and `CI` is `true`.
#[track_caller]
pub fn machine_has(what: &str, there: bool) -> bool {
    if there {
        return true;
    }
    #[expect(clippy::disallowed_methods, reason = "the one place where tests are set up from outside")]
    let setting = |name| std::env::var(name).ok();
    assert!(setting("CI").as_deref() != Some("true"), "CI needs {what}");
    let thread = std::thread::current();
    let line = format!("skipped: {}, because {what} is missing\n", thread.name().unwrap_or("a test"));
    // The harness captures the output of a test, and hides it for one that passes. A failed write is not worth a failed test.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(file) = setting(SKIPPED_FILE) {
        let file = OpenOptions::new().create(true).append(true).open(file);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
    false
}
