//! The results of a drill: a table on the terminal, `report.json` for programs, `report.html` for people.

mod charts;
mod html;
mod json;
mod plot;
mod scale;
mod table;
#[cfg(test)]
mod tests;

use super::facts::{AuditCheck, Facts};
use crate::failure::Outcome;
use anyhow::Context;
use std::fs;
use std::path::Path;

/// Writes `report.json` and `report.html` into the directory, which is created if it is absent.
pub(crate) fn write(facts: &Facts, directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let json = format!("{:#}\n", json::report(facts));
    let page = html::page(facts)?;
    for (name, text) in [("report.json", json), ("report.html", page)] {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Prints the tables. The caller decides whether a breach is a failure.
pub(crate) fn print(facts: &Facts) -> Outcome {
    crate::output::write_out(table::text(facts).as_bytes())?;
    Ok(())
}

/// Returns the invariants that did not hold.
fn broken(facts: &Facts) -> Vec<&AuditCheck> {
    facts.checks.iter().filter(|check| 0 < check.breaches).collect()
}

/// Returns the verdict. A drill without any check does not pass.
fn verdict(facts: &Facts) -> (Verdict, String) {
    let broken = broken(facts).len();
    if 0 < broken {
        let promises = if broken == 1 { "promise" } else { "promises" };
        return (Verdict::Broken, format!("{broken} {promises} broken"));
    }
    if facts.checks.iter().all(|check| check.checked == 0) {
        return (Verdict::Unchecked, "nothing was checked".into());
    }
    (Verdict::Held, "every promise held".into())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Held,
    Broken,
    Unchecked,
}
