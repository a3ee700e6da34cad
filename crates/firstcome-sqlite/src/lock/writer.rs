//! The writer thread of a process: it takes the steps that have arrived, and commits them in one transaction.

use super::notify::LockNotifier;
use super::table::SqliteLockTable;
use super::{Clock, fault, io_fault, is_busy};
use firstcome_core::lock::Push;
use firstcome_store::Faults;
use firstcome_store::lock_queue::{LockJob, LockJobs, LockOutcome, reply_all};
use firstcome_store::{Fault, FaultKind, StoreError};
use rusqlite::{Connection, ErrorCode};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The identity of the file behind a path. If a user moves the file away, processes that open the path later use other locks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    path: PathBuf,
    #[cfg(unix)]
    device_and_inode: (u64, u64),
}

impl Identity {
    pub(super) fn of(path: &Path) -> Result<Self, Fault> {
        let found = path.metadata();
        let found = found.map_err(|error| io_fault(&error, format!("{} is gone", path.display())))?;
        #[cfg(not(unix))]
        drop(found);
        Ok(Self {
            path: path.to_owned(),
            #[cfg(unix)]
            device_and_inode: {
                use std::os::unix::fs::MetadataExt;
                (found.dev(), found.ino())
            },
        })
    }

    fn check(&self) -> Result<(), Fault> {
        if *self == Self::of(&self.path)? {
            return Ok(());
        }
        Err(Fault::new(FaultKind::Io, format!("{} was replaced while it was in use", self.path.display())))
    }
}

/// Why a batch failed.
enum Failure {
    /// The batch did nothing; the next one may succeed.
    Passing(Fault),
    /// The batch did nothing, and later batches cannot succeed.
    Lasting(Fault),
    /// The batch may have been committed; later batches cannot succeed.
    Unknown(Fault),
}

impl Failure {
    fn of(error: &rusqlite::Error, doing: &str) -> Self {
        let fault = fault(error, doing);
        // Another process releases the file, or an operator frees space. After any other error the state of the file is unknown.
        if is_busy(error) || fault.kind == FaultKind::Full { Self::Passing(fault) } else { Self::Lasting(fault) }
    }
}

pub(super) struct Writer {
    connection: Connection,
    identity: Identity,
    clock: Arc<dyn Clock>,
    post: Arc<LockNotifier>,
    /// The fault that stopped all steps.
    broken: Option<Arc<Fault>>,
    /// Logs each fault once, until it is over.
    faults: Faults,
    /// Whether the last batch failed.
    is_faulty: bool,
}

/// The name under which a fault of the file is logged.
const FAULTY_FILE: &str = "locks";

impl Writer {
    pub(super) fn new(
        connection: Connection,
        identity: Identity,
        clock: Arc<dyn Clock>,
        post: Arc<LockNotifier>,
    ) -> Self {
        Self { connection, identity, clock, post, broken: None, faults: Faults::default(), is_faulty: false }
    }

    /// Serves until the callers' end of the queue is gone.
    pub(super) fn run(mut self, mut jobs: LockJobs) {
        while let Some(batch) = jobs.next_batch_blocking() {
            self.serve(batch);
        }
    }

    fn serve(&mut self, batch: Vec<LockJob>) {
        let done = match &self.broken {
            Some(fault) => Err(StoreError::Faulted(Arc::clone(fault))),
            None => self.transact(&batch).map_err(|failure| self.note(failure)),
        };
        if done.is_ok() && std::mem::take(&mut self.is_faulty) {
            self.faults.clear(FAULTY_FILE);
        }
        let (outcomes, pushes) = done.map_or_else(|error| (Err(error), Vec::new()), |(out, pushes)| (Ok(out), pushes));
        reply_all(batch, outcomes);
        self.post.send(pushes);
    }

    fn note(&mut self, failure: Failure) -> StoreError {
        self.is_faulty = true;
        let (fault, error): (_, fn(_) -> _) = match failure {
            Failure::Passing(fault) => return StoreError::Faulted(self.faults.raise(FAULTY_FILE, fault)),
            Failure::Lasting(fault) => (fault, StoreError::Faulted),
            Failure::Unknown(fault) => (fault, |_| StoreError::Unknown),
        };
        let fault = self.faults.raise(FAULTY_FILE, fault);
        self.broken = Some(Arc::clone(&fault));
        error(fault)
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }

    /// Takes all steps in one transaction, or none.
    fn transact(&self, batch: &[LockJob]) -> Result<(Vec<LockOutcome>, Vec<Push>), Failure> {
        self.execute("BEGIN IMMEDIATE").map_err(|error| Failure::of(&error, "cannot begin a step"))?;
        let taken = self.take_all(batch).map_err(|error| Failure::of(&error, "a step failed"));
        // Checked inside the transaction, so that no caller learns of a grant in a file that other processes cannot see.
        let taken = taken.and_then(|taken| self.identity.check().map(|()| taken).map_err(Failure::Lasting));
        let committed = taken.and_then(|taken| match self.execute("COMMIT") {
            Ok(()) => Ok(taken),
            // A full disk fails before the frame that seals the transaction; a failed sync comes after it.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                Err(Failure::of(&error, "commit failed"))
            }
            Err(error) => Err(Failure::Unknown(fault(&error, "commit failed"))),
        });
        if committed.is_err() && !self.connection.is_autocommit() {
            // If this fails too, the next batch cannot begin, and nothing more is written.
            let _ = self.execute("ROLLBACK");
        }
        committed
    }

    fn take_all(&self, batch: &[LockJob]) -> rusqlite::Result<(Vec<LockOutcome>, Vec<Push>)> {
        let (mut outcomes, mut all_pushes) = (Vec::with_capacity(batch.len()), Vec::new());
        for job in batch {
            let mut table = SqliteLockTable::new(&self.connection, job.bucket());
            // Read inside the transaction, so that no later step of any process reads an earlier clock, unless it is set back.
            let now_us = u64::try_from(self.clock.now().as_us()).unwrap_or(0);
            let (outcome, pushes) = job.run(&mut table, now_us);
            outcomes.push(outcome);
            all_pushes.extend(pushes);
            table.finish()?;
        }
        Ok((outcomes, all_pushes))
    }
}
