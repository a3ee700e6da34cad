//! What a lock guards: a register on the disk that takes nothing with a smaller fence than it has seen.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What became of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Written {
    Accepted,
    /// A higher fence was there before.
    Refused,
}

/// The highest fence so far, in a file that all processes share; and beside it, in the order in which they came, all writes.
pub(super) struct Register {
    highest: File,
    journal: File,
}

fn journal_of(directory: &Path, lock: &str) -> PathBuf {
    directory.join(format!("journal-{lock}"))
}

impl Register {
    pub(super) fn open(directory: &Path, lock: &str) -> Self {
        let mut options = OpenOptions::new();
        let highest = options.read(true).write(true).create(true).truncate(false);
        let highest = highest.open(directory.join(format!("register-{lock}"))).expect("the register can be opened");
        let journal = OpenOptions::new().append(true).create(true).open(journal_of(directory, lock));
        Self { highest, journal: journal.expect("the journal can be opened") }
    }

    /// Looks at the fence and writes, while no other process does.
    pub(super) fn write(&self, fence: u64) -> Written {
        self.highest.lock().expect("it can be locked");
        let mut before = [0; 8];
        // Nothing is there before the first write.
        let there = self.highest.read_at(&mut before, 0).expect("it can be read");
        let refused = there == 8 && fence < u64::from_le_bytes(before);
        if !refused {
            self.highest.write_all_at(&fence.to_le_bytes(), 0).expect("it can be written");
        }
        // One call: who is killed has written all of it or nothing.
        let line = format!("{fence} {}\n", if refused { "refused" } else { "accepted" });
        (&self.journal).write_all(line.as_bytes()).expect("the journal can be written");
        self.highest.unlock().expect("it is locked");
        if refused { Written::Refused } else { Written::Accepted }
    }
}

/// How many writes were refused; or what was accepted that should not have been.
pub(super) fn refusals(directory: &Path, lock: &str) -> Result<usize, String> {
    let journal = std::fs::read_to_string(journal_of(directory, lock)).unwrap_or_default();
    let (mut highest, mut refused) = (0, 0);
    for line in journal.lines() {
        match line.split_once(' ').and_then(|(fence, what)| Some((fence.parse::<u64>().ok()?, what))) {
            Some((fence, "accepted")) if highest <= fence => highest = fence,
            Some((_, "refused")) => refused += 1,
            _ => return Err(format!("{line}, after {highest}")),
        }
    }
    Ok(refused)
}
