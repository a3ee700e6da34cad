//! The writer's interface to each primitive, and the log into which all primitives write.
//!
//! A batch goes through four steps. Every primitive turns its commands into changes. The log commits the changes. Every
//! primitive publishes its state to readers. Every primitive replies. If a commit fails for a temporary reason, every
//! primitive takes its changes back. A new primitive is a separate file with its own state behind [`Primitive`].

use super::Shared;
use super::journal::{Change, Journal, JournalError, Outcome};
use crate::edge::Stopwatch;
use crate::error::{Fault, StoreError};
use crate::throttle::Throttle;
use crate::trace::{self, StageKind};
use firstcome_core::time::{Now, Steady};
use std::sync::Arc;
use std::time::Duration;

/// The clocks are stored at least this often while other changes are stored.
const CLOCK_US: u64 = 250_000;
/// A commit that takes longer is told in the log: callers wait for it, and clients give up after some seconds.
const SLOW_COMMIT: Duration = Duration::from_secs(1);

/// The writer's part of one primitive. Decisions are not part of this trait, because the commands of primitives differ.
pub(super) trait Primitive {
    /// Whether the changes of this batch depend on steady time, so that the clocks must be stored with them.
    fn needs_clocks(&self) -> bool {
        false
    }

    /// Adds the changes that follow from all decisions of the batch. Called once, just before the commit.
    fn seal(&self, _changes: &mut Vec<Change>) {}

    /// Publishes the committed state to readers.
    fn publish(&mut self, shared: &Shared, now: Now);

    /// Replies to every command of the batch. Called after the commit.
    fn reply(&mut self);

    /// Refuses every command of the batch after its commit failed.
    fn refuse(&mut self, error: &StoreError);

    /// Restores the state in memory from before these changes, none of which is stored.
    ///
    /// # Errors
    /// The state cannot be read again: no further write is allowed.
    fn take_back(&mut self, changes: &[Change], journal: &mut dyn Journal, now: Now) -> Result<(), Fault>;
}

/// Tells the log of a slow commit, once a second at most.
fn note_commit(lasted: Duration, changes: usize) {
    static SLOW: Throttle = Throttle::new();
    if lasted < SLOW_COMMIT {
        return;
    }
    if let Some(left_out) = SLOW.pass() {
        tracing::warn!(
            lasted_ms = lasted.as_millis() as u64,
            changes,
            left_out,
            "a commit was slow: look at the disk of the data directory"
        );
    }
}

/// No primitive, for a change that is committed on its own: none has any of it in its batch.
struct NoPrimitive;

impl Primitive for NoPrimitive {
    fn publish(&mut self, _: &Shared, _: Now) {}

    fn reply(&mut self) {}

    fn refuse(&mut self, _: &StoreError) {}

    fn take_back(&mut self, _: &[Change], _: &mut dyn Journal, _: Now) -> Result<(), Fault> {
        Ok(())
    }
}

/// The changes of a batch, and the journal that stores them.
pub(super) struct Log {
    pub(super) shared: Arc<Shared>,
    journal: Box<dyn Journal>,
    pub(super) changes: Vec<Change>,
    clock_stored: Option<Steady>,
}

impl Log {
    pub(super) fn new(shared: Arc<Shared>, journal: Box<dyn Journal>) -> Self {
        Self { shared, journal, changes: Vec::new(), clock_stored: None }
    }

    /// Fails while a fault is open: after a failed commit memory may hold claims that are not stored.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.shared.fault().map_or(Ok(()), |fault| Err(StoreError::Faulted(fault)))
    }

    /// Commits one change on its own. The batch before it has ended, so no primitive has changes to take back.
    pub(super) fn commit(&mut self, change: Change) -> Result<(), StoreError> {
        self.commit_all([change])
    }

    /// Commits changes together, like [`Self::commit`].
    pub(super) fn commit_all(&mut self, changes: impl IntoIterator<Item = Change>) -> Result<(), StoreError> {
        self.changes.extend(changes);
        self.write(&mut NoPrimitive)
    }

    /// Adds the clocks to the batch, unless they were stored recently: time-outs and keys of movements depend on steady
    /// time.
    pub(super) fn note_clocks(&mut self, now: Now) {
        if self.clock_stored.is_none_or(|stored| CLOCK_US <= now.steady.since_us(stored)) {
            self.clock_stored = Some(now.steady);
            self.changes.push(Change::Clock(now));
        }
    }

    /// Commits the changes of the batch. After a temporary failure the primitives have taken them back.
    pub(super) fn write(&mut self, primitives: &mut impl Primitive) -> Result<(), StoreError> {
        if let Err(error) = self.check() {
            self.changes.clear();
            return Err(error);
        }
        if self.changes.is_empty() {
            return Ok(());
        }
        let watch = Stopwatch::start();
        let result = self.journal.commit(&self.changes);
        let stats = &self.shared.stats;
        stats.batch_changes.record(self.changes.len() as u64);
        let lasted = watch.elapsed();
        stats.commit_us.record(lasted.as_micros() as u64);
        if result.is_ok() {
            stats.last_sync.note();
        }
        note_commit(lasted, self.changes.len());
        trace::note(StageKind::Commit, "", lasted, self.changes.len());
        let result = result.map_err(|error| match error.outcome {
            Outcome::Passing => match self.take_back(primitives) {
                Ok(()) => StoreError::Faulted(self.shared.pause(error.fault)),
                Err(fault) => StoreError::Faulted(self.shared.fail(fault)),
            },
            Outcome::Nothing => StoreError::Faulted(self.shared.fail(error.fault)),
            Outcome::Unknown => {
                self.shared.fail_unknown(error.fault);
                StoreError::Unknown
            }
        });
        self.changes.clear();
        result
    }

    fn take_back(&mut self, primitives: &mut impl Primitive) -> Result<(), Fault> {
        self.clock_stored = None;
        let now = self.shared.both();
        primitives.take_back(&self.changes, &mut *self.journal, now)
    }

    /// Tries a real write, to see whether the journal accepts writes again after a temporary fault.
    pub(super) fn probe(&mut self) {
        if self.shared.passing_fault().is_none() {
            return;
        }
        let now = self.shared.both();
        match self.journal.commit(&[Change::Clock(now)]) {
            Ok(()) => {
                self.clock_stored = Some(now.steady);
                self.shared.resume();
            }
            Err(JournalError { outcome: Outcome::Passing, fault }) => drop(self.shared.pause(fault)),
            Err(JournalError { fault, .. }) => drop(self.shared.fail(fault)),
        }
    }

    /// Closes the journal before a regular end.
    pub(super) fn close(&mut self) {
        if self.shared.fault().is_none() {
            self.journal.close();
        }
    }
}
