//! The circumstances of a run, as each committed report has them: machine, disk, build, commit, date, versions.

use crate::conditions::Conditions;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[derive(Serialize)]
pub(crate) struct About {
    /// The day of the run, in UTC: `2026-11-21`.
    pub(crate) date: String,
    /// The commit of the working tree, and whether the tree had changes.
    pub(crate) commit: String,
    pub(crate) machine: Conditions,
    /// The percentage of the processors that other programs used before the run.
    pub(crate) busy_percent: u64,
    /// Servers, tools and libraries by name.
    pub(crate) versions: BTreeMap<String, String>,
}

/// How long the processors are watched.
const BUSY_LOOK: Duration = Duration::from_millis(200);

/// The programs whose versions a report names, with the arguments that print it.
const TOOLS: [(&str, &[&str]); 5] = [
    ("rustc", &["--version"]),
    ("go", &["version"]),
    ("java", &["--version"]),
    ("node", &["--version"]),
    ("python3", &["--version"]),
];

impl About {
    /// Reads the circumstances, and times syncs in the directory. Refuses a directory in memory.
    pub(crate) fn measure(data: &Path) -> anyhow::Result<Self> {
        let machine = Conditions::measure(data)?;
        let versions = TOOLS.iter().filter_map(|(tool, arguments)| {
            let version = first_line(tool, arguments)?;
            Some(((*tool).to_owned(), version))
        });
        let changed = first_line("git", &["status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs"]);
        let commit = first_line("git", &["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "unknown".into());
        Ok(Self {
            date: first_line("date", &["-u", "+%Y-%m-%d"]).unwrap_or_else(|| "unknown".into()),
            commit: if changed.is_some() { format!("{commit}, with changes that are not committed") } else { commit },
            machine,
            busy_percent: busy_percent().unwrap_or(0),
            versions: versions.collect(),
        })
    }
}

/// Returns which percentage of the processors is in use now. A processor that waits for a disk counts as idle.
fn busy_percent() -> Option<u64> {
    let look = || {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let ticks = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = ticks.split_whitespace().take(8).map(|tick| tick.parse().ok()).collect::<Option<_>>()?;
        Some((ticks.get(3)? + ticks.get(4)?, ticks.iter().sum::<u64>()))
    };
    let (idle, all) = look()?;
    std::thread::park_timeout(BUSY_LOOK);
    let (idle_after, all_after) = look()?;
    let (idle, all) = (idle_after.saturating_sub(idle), all_after.saturating_sub(all));
    (100 * all.saturating_sub(idle)).checked_div(all)
}

/// Returns the first line that a program prints, or `None` if it is missing, fails or prints nothing.
fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}
