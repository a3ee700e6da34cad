//! Tests that cannot run where they are.

use std::fs::OpenOptions;
use std::io::Write;

/// The variable that names the file to which each skipped test appends its line. `cargo xtask test` sets it, and counts the lines.
pub const SKIPPED_FILE: &str = "FIRSTCOME_SKIPPED";

/// Whether a test can run that needs something of the machine. With `CI=true` everything must be there.
///
/// A test that is skipped passes, so it says so: on standard error, around the test harness, and in [`SKIPPED_FILE`].
///
/// # Panics
/// If it is not there and `CI` is `true`.
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
    // The harness keeps what a test prints, and shows nothing of one that passes. A word that cannot be said is not worth a failure.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(file) = setting(SKIPPED_FILE) {
        let file = OpenOptions::new().create(true).append(true).open(file);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
    false
}
