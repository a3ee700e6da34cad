//! The type of the file system under a directory, which shows whether a sync is durable there.

use anyhow::Context;
use std::fs;
use std::path::Path;

/// The types of file systems in memory.
const IN_MEMORY: [&str; 3] = ["tmpfs", "ramfs", "devtmpfs"];

/// Returns the type of the file system that holds a path, by the longest mount point above it; `unknown` if there is
/// none.
///
/// # Errors
/// If the path or `/proc/mounts` cannot be read.
pub fn type_at(path: &Path) -> anyhow::Result<String> {
    let path = path.canonicalize()?;
    let mounts = fs::read_to_string("/proc/mounts").context("cannot read the mounts")?;
    let above = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        path.starts_with(point).then_some((point.len(), kind))
    });
    Ok(above.max_by_key(|(length, _)| *length).map_or_else(|| "unknown".into(), |(_, kind)| kind.to_owned()))
}

/// Whether a file system of this type is in memory: a sync costs nothing there, and makes nothing durable.
pub fn is_in_memory(file_system: &str) -> bool {
    IN_MEMORY.contains(&file_system)
}
