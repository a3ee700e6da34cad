//! Makes the figures of documents from the reports of benchmarks: tables in Markdown between two marks, and plots as SVG.
//!
//! Reports are JSON files in `docs/full`. [`generate`] reads them and returns every file as it must be; [`check`] compares
//! these with the files that are there. So a number in a document that no program measured is found.
//!
//! Pure apart from reading and writing these files: the same reports give the same bytes.

pub mod bars;
pub mod blocks;
pub mod lines;
pub mod markup;
mod pages;

use std::fs;
use std::path::{Path, PathBuf};

/// The style of all drawings. A drawing has its own background, since a page shows it on a light or on a dark one.
pub(crate) const STYLE: &str = "\
svg{font:13px system-ui,sans-serif;fill:#1d2430;background:#fff}\
.title{font-weight:600;font-size:15px}.soft{fill:#667085;font-size:12px}.value{font-variant-numeric:tabular-nums}\
.bar{fill:#8fa3bf}.ours{fill:#2563eb}.bad{fill:#d92d20}.none{fill:#98a2b3}.axis{stroke:#d0d5dd;stroke-width:1;fill:none}\
.range{stroke:#1d2430;stroke-width:2;fill:none}.line{stroke:#8fa3bf;stroke-width:2;fill:none}.line.mine{stroke:#2563eb}\
@media (prefers-color-scheme:dark){svg{fill:#e6e9ef;background:#12161c}.soft{fill:#98a2b3}.bar{fill:#5b6b83}\
.ours{fill:#5b8def}.bad{fill:#f97066}.axis{stroke:#344054}.range{stroke:#e6e9ef}.line{stroke:#5b6b83}\
.line.mine{stroke:#5b8def}}";

/// A file that is made from reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Made {
    /// The path below the root of the repository.
    pub path: PathBuf,
    /// The whole content.
    pub text: String,
}

/// Returns all files that are made from the reports below `root`.
///
/// Fails if a report cannot be read, or a document names figures that no report has.
pub fn generate(root: &Path) -> Result<Vec<Made>, String> {
    pages::all(root)
}

/// Writes all files, and returns the paths of those that have changed.
pub fn write(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut changed = Vec::new();
    for made in generate(root)? {
        let path = root.join(&made.path);
        if fs::read_to_string(&path).is_ok_and(|text| text == made.text) {
            continue;
        }
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        fs::write(&path, &made.text).map_err(|error| format!("{}: {error}", path.display()))?;
        changed.push(made.path);
    }
    Ok(changed)
}

/// Finds files that differ from what the reports say, and numbers that were typed by hand.
pub fn check(root: &Path) -> Vec<String> {
    let mades = match generate(root) {
        Ok(mades) => mades,
        Err(error) => return vec![error],
    };
    let mut findings = Vec::new();
    for made in mades {
        let text = fs::read_to_string(root.join(&made.path)).unwrap_or_default();
        if text != made.text {
            let path = made.path.display();
            findings.push(format!("{path}: differs from what the reports say; run `cargo xtask figures`"));
        }
        if made.path == Path::new(pages::BENCHMARKS) {
            findings.extend(blocks::typed(&text).iter().map(|found| format!("{}: {found}", pages::BENCHMARKS)));
        }
    }
    findings
}
