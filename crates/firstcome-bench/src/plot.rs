//! The drawings of the benchmarks.

use anyhow::bail;
use std::path::Path;

pub(super) use firstcome_figures::bars::{Bar, Chart, Drawing, draw};

/// Refuses a file name without a known extension.
pub(super) fn check(path: &Path) -> anyhow::Result<()> {
    if firstcome_figures::bars::is_drawing(path) {
        return Ok(());
    }
    bail!("--plot wants a file that ends in .svg or .html")
}
