//! The critical section: reads a counter in a shared file, and writes it after a tiny pause.

use super::clock::MachineClock;
use anyhow::Context;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The counter, and when its last holder began to release the lock.
pub struct CriticalSection {
    file: File,
}

impl CriticalSection {
    /// Creates the counter if it is absent.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        if file.metadata()?.len() < 16 {
            file.write_all_at(&[0; 16], 0)?;
        }
        Ok(Self { file })
    }

    /// Returns the counter, and when the last holder began to release the lock.
    pub fn read(&self) -> anyhow::Result<(u64, u64)> {
        let mut bytes = [0; 16];
        self.file.read_exact_at(&mut bytes, 0)?;
        let (count, released) = bytes.split_at(8);
        Ok((u64::from_le_bytes(count.try_into()?), u64::from_le_bytes(released.try_into()?)))
    }

    /// Increments the counter without any protection of its own. Returns when the last holder began to release the
    /// lock.
    pub async fn pass(&self, clock: MachineClock) -> anyhow::Result<u64> {
        let (count, released_ns) = self.read()?;
        tokio::task::yield_now().await;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(count + 1).to_le_bytes());
        bytes[8..].copy_from_slice(&clock.now_ns().to_le_bytes());
        self.file.write_all_at(&bytes, 0)?;
        Ok(released_ns)
    }
}
