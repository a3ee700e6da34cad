//! The record of each acquisition, six 64-bit words each.

use anyhow::Context;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// One acquisition, or a wait that ended without one.
#[derive(Clone, Copy)]
pub struct Pass {
    /// When the task asked for the lock, on the shared clock.
    pub asked_ns: u64,
    /// When the lock was granted, or the wait was given up.
    pub ended_ns: u64,
    /// Whether the lock was granted.
    pub served: bool,
    /// The time since the last holder began to release the lock; `u64::MAX` if this task did not wait at that moment.
    pub handed_over_ns: u64,
    /// The place in line that the store gave, or 0 if it has none.
    pub place: u64,
    /// The fence, or 0 if there is none.
    pub fence: u64,
}

impl Pass {
    const BYTES: usize = 48;

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let Self { asked_ns, ended_ns, served, handed_over_ns, place, fence } = *self;
        for word in [asked_ns, ended_ns, u64::from(served), handed_over_ns, place, fence] {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(())
    }

    /// Writes all records of a process.
    pub fn write_all(passes: &[Self], path: &Path) -> anyhow::Result<()> {
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut file = BufWriter::new(file);
        passes.iter().try_for_each(|pass| pass.write(&mut file))?;
        Ok(file.flush()?)
    }

    /// Reads all records of a process.
    pub fn read_all(path: &Path) -> anyhow::Result<Vec<Self>> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
        let pass = |bytes: &[u8]| Self {
            asked_ns: word(&bytes[..8]),
            ended_ns: word(&bytes[8..16]),
            served: word(&bytes[16..24]) == 1,
            handed_over_ns: word(&bytes[24..32]),
            place: word(&bytes[32..40]),
            fence: word(&bytes[40..]),
        };
        Ok(bytes.chunks_exact(Self::BYTES).map(pass).collect())
    }
}
