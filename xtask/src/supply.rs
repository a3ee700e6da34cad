//! Checks the crates that the project is built from.

use crate::{setup, shell};

const CARGO_DENY: &str = "0.20.2";

/// Checks bans, licences and sources of all crates against deny.toml. Returns the verdict. The first run on a machine builds the tool
/// for a minute and a half.
pub(crate) fn deny() -> Result<String, String> {
    setup::cargo_tool("cargo-deny", CARGO_DENY)?;
    // It prints its verdict on standard error.
    shell::output("sh", &["-c", "cargo deny --locked check bans licenses sources 2>&1"])
}
