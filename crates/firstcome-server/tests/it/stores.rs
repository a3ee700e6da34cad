//! The stores under the service: those of production, and journals that wait or fail as a test says.

use crate::service::{PATIENCE, Service, at, config};
use firstcome::core::coupon::{Attributes, Serial};
use firstcome::edge::ManualClock;
use firstcome::embedded::Backing;
use firstcome::embedded::journal::{Change, CouponId, Journal, JournalError, Outcome, Rows};
use firstcome::{Embedded, Fault, FaultKind, StoreError, sqlite};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A clock at the start.
pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(at(0)))
}

/// Opens the store of a directory.
pub(crate) fn open(directory: &Path, clock: &Arc<ManualClock>) -> Embedded {
    sqlite::open(directory, Arc::clone(clock) as _).expect("a fresh directory can be opened")
}

/// Runs a test over memory, and again over SQLite.
pub(crate) async fn on_each(test: impl AsyncFn(&Service)) {
    test(&Service::memory()).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock = clock();
    test(&Service::new(open(directory.path(), &clock), clock, config())).await;
}

/// What no answer may repeat: the words that a fault has for the operator.
pub(crate) const FAULT_DETAIL: &str = "canary: cannot write /srv/canary/firstcome.db";

fn fault() -> Fault {
    Fault { kind: FaultKind::Io, detail: FAULT_DETAIL.to_owned() }
}

/// What becomes of one commit.
#[derive(Clone, Copy)]
pub(crate) enum Verdict {
    Commit,
    /// This one and all after it.
    CommitAll,
    Fail(Outcome),
}

/// Waits in every commit for the test's verdict.
struct Scripted {
    inner: Box<dyn Journal>,
    begun: Sender<()>,
    verdicts: Receiver<Verdict>,
    all: bool,
}

impl Journal for Scripted {
    fn commit(&mut self, changes: &[Change]) -> Result<(), JournalError> {
        // What a room remembers is stored at each tick; no verdict is about it alone.
        if changes.iter().all(|change| matches!(change, Change::Remembered { .. })) {
            return self.inner.commit(changes);
        }
        // A client that gives the verdicts may be gone at the end of a test.
        let _ = self.begun.send(());
        let gone = Verdict::Fail(Outcome::Unknown);
        match if self.all { Verdict::Commit } else { self.verdicts.recv_timeout(PATIENCE).unwrap_or(gone) } {
            Verdict::Commit => self.inner.commit(changes),
            Verdict::CommitAll => {
                self.all = true;
                self.inner.commit(changes)
            }
            Verdict::Fail(outcome) => Err(JournalError { outcome, fault: fault() }),
        }
    }
}

/// The test's end of a scripted journal.
pub(crate) struct Script {
    begun: Receiver<()>,
    verdicts: Sender<Verdict>,
}

impl Script {
    /// Says what becomes of the next commit that has no verdict yet.
    pub(crate) fn say(&self, verdict: Verdict) {
        self.verdicts.send(verdict).expect("the journal lives");
    }

    /// Whether the next commit has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.try_recv().is_ok()
    }

    /// Returns once the next commit has begun.
    #[track_caller]
    pub(crate) fn begun(&self) {
        self.begun.recv_timeout(PATIENCE).expect("a commit begins");
    }
}

/// A store over a scripted journal.
pub(crate) fn scripted() -> (Embedded, Arc<ManualClock>, Script) {
    let (begun, begun_receiver) = channel();
    let (verdict_sender, verdicts) = channel();
    let backing = Backing::memory();
    let journal = Box::new(Scripted { inner: backing.journal, begun, verdicts, all: false });
    let clock = clock();
    let store = Embedded::start(Backing { journal, ..backing }, Arc::clone(&clock) as _).expect("a thread can start");
    (store, clock, Script { begun: begun_receiver, verdicts: verdict_sender })
}

/// Rows that cannot be read.
struct Unreadable;

impl Rows for Unreadable {
    fn attributes(&self, _: CouponId, _: Serial, _: Serial) -> Result<BTreeMap<Serial, Attributes>, StoreError> {
        Err(StoreError::Faulted(Arc::new(fault())))
    }
}

/// A store that writes and cannot read what it wrote.
pub(crate) fn unreadable() -> (Embedded, Arc<ManualClock>) {
    let clock = clock();
    let backing = Backing { rows: Arc::new(Unreadable), ..Backing::memory() };
    (Embedded::start(backing, Arc::clone(&clock) as _).expect("a thread can start"), clock)
}
