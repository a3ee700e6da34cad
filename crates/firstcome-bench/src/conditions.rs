//! The conditions under which a benchmark runs: a figure is meaningless without them.

use crate::file_system;
use anyhow::{Context, bail};
use firstcome::edge::Stopwatch;
use serde::Serialize;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// How many syncs are timed.
const SYNCS: usize = 200;

/// The machine, the disk and the build.
#[derive(Serialize)]
pub(crate) struct Conditions {
    pub(crate) version: &'static str,
    pub(crate) cpus: usize,
    pub(crate) cpu_model: String,
    pub(crate) file_system: String,
    pub(crate) fsync_p50_us: u64,
    pub(crate) fsync_p99_us: u64,
    pub(crate) binary_bytes: u64,
    pub(crate) debug_build: bool,
}

impl Conditions {
    /// Reads the properties of the machine, and times syncs in the directory. Refuses a directory in memory: a sync
    /// costs nothing there, so every figure would be wrong.
    pub(crate) fn measure(directory: &Path) -> anyhow::Result<Self> {
        let file_system = file_system::type_at(directory)?;
        if file_system::is_in_memory(&file_system) {
            bail!(
                "{} lies in memory ({file_system}): a sync costs nothing there; name a directory on a disk with --data",
                directory.display()
            );
        }
        let mut syncs_us = time_syncs(directory)?;
        syncs_us.sort_unstable();
        let binary = std::env::current_exe().and_then(fs::metadata);
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_model: cpu_model(),
            file_system,
            fsync_p50_us: syncs_us[SYNCS / 2],
            fsync_p99_us: syncs_us[SYNCS * 99 / 100],
            binary_bytes: binary.map_or(0, |file| file.len()),
            debug_build: cfg!(debug_assertions),
        })
    }

    /// Returns all conditions on one line.
    pub(crate) fn line(&self) -> String {
        format!(
            "firstcome {} ({:.1} MB{}) · {} CPUs ({}) · {} · fsync p50 {} µs, p99 {} µs\n",
            self.version,
            self.binary_bytes as f64 / 1e6,
            if self.debug_build { ", DEBUG BUILD" } else { "" },
            self.cpus,
            self.cpu_model,
            self.file_system,
            self.fsync_p50_us,
            self.fsync_p99_us,
        )
    }
}

/// Times an append of one page and its sync, as a commit does it.
fn time_syncs(directory: &Path) -> anyhow::Result<Vec<u64>> {
    let path = directory.join("sync-probe");
    let mut file = File::create(&path).with_context(|| format!("cannot write in {}", directory.display()))?;
    let mut times_us = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        file.write_all(&[7; 4096])?;
        let watch = Stopwatch::start();
        file.sync_data()?;
        times_us.push(micros(watch.elapsed()));
    }
    drop(file);
    fs::remove_file(path)?;
    Ok(times_us)
}

fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| "unknown".into(), |(_, model)| model.to_owned())
}

/// Converts a duration to whole microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
