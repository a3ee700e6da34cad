//! The writer thread of a process: it takes the steps that have arrived, and commits them in one transaction.

use super::notify::LockNotifier;
use super::table::SqliteLockTable;
use super::{Clock, TimedLockView, fault, io_fault, is_busy};
use firstcome_core::id::LockName;
use firstcome_core::lock::{Answer, Push, Step, bucket_of, take, view};
use firstcome_store::Faults;
use firstcome_store::{Fault, FaultKind, StoreError};
use rusqlite::{Connection, ErrorCode};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Steps in one transaction at most: other processes wait for its end.
const BATCH_MAX: usize = 256;

/// A request to the writer. The writer serves it even if its caller has gone.
pub(super) enum Job {
    Take(Step, oneshot::Sender<Result<Answer, StoreError>>),
    View(LockName, oneshot::Sender<Result<TimedLockView, StoreError>>),
}

/// A job in the queue.
pub(super) struct Queued {
    pub(super) job: Job,
    /// The permit of an acquire or a view. Dropped when the writer takes the job, whether or not the caller still waits.
    pub(super) _place: Option<OwnedSemaphorePermit>,
}

enum Outcome {
    Taken(Answer),
    Seen(TimedLockView),
}

impl Job {
    /// Sends the outcome to the caller. Does nothing if the caller has gone.
    fn tell(self, outcome: Result<Outcome, StoreError>) {
        match (self, outcome) {
            (Self::Take(_, told), Ok(Outcome::Taken(answer))) => drop(told.send(Ok(answer))),
            (Self::View(_, told), Ok(Outcome::Seen(seen))) => drop(told.send(Ok(seen))),
            (Self::Take(_, told), Err(error)) => drop(told.send(Err(error))),
            (Self::View(_, told), Err(error)) => drop(told.send(Err(error))),
            (Self::Take(..) | Self::View(..), Ok(_)) => unreachable!("another kind of answer than was asked for"),
        }
    }
}

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

    /// Serves until all senders of jobs are gone.
    pub(super) fn run(mut self, queue: &Receiver<Queued>) {
        while let Ok(first) = queue.recv() {
            let queued = std::iter::once(first).chain(queue.try_iter()).take(BATCH_MAX);
            self.serve(queued.map(|queued| queued.job).collect());
        }
    }

    fn serve(&mut self, batch: Vec<Job>) {
        let done = match &self.broken {
            Some(fault) => Err(StoreError::Unavailable(Arc::clone(fault))),
            None => self.transact(&batch).map_err(|failure| self.note(failure)),
        };
        match done {
            Ok((outcomes, pushes)) => {
                if std::mem::take(&mut self.is_faulty) {
                    self.faults.clear(FAULTY_FILE);
                }
                for (job, outcome) in batch.into_iter().zip(outcomes) {
                    job.tell(Ok(outcome));
                }
                self.post.send(pushes);
            }
            Err(error) => batch.into_iter().for_each(|job| job.tell(Err(error.clone()))),
        }
    }

    fn note(&mut self, failure: Failure) -> StoreError {
        self.is_faulty = true;
        let (fault, error): (_, fn(_) -> _) = match failure {
            Failure::Passing(fault) => return StoreError::Unavailable(self.faults.raise(FAULTY_FILE, fault)),
            Failure::Lasting(fault) => (fault, StoreError::Unavailable),
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
    fn transact(&self, batch: &[Job]) -> Result<(Vec<Outcome>, Vec<Push>), Failure> {
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

    fn take_all(&self, batch: &[Job]) -> rusqlite::Result<(Vec<Outcome>, Vec<Push>)> {
        let (mut outcomes, mut all_pushes) = (Vec::with_capacity(batch.len()), Vec::new());
        for job in batch {
            let bucket = match job {
                Job::Take(Step::Acquire { name, .. } | Step::Release { name, .. }, _) | Job::View(name, _) => {
                    bucket_of(name)
                }
                Job::Take(Step::Renew { bucket, .. } | Step::Beat { bucket, .. }, _) => *bucket,
            };
            let mut table = SqliteLockTable::new(&self.connection, bucket);
            // Read inside the transaction, so that no later step of any process reads an earlier clock, unless it is set back.
            let now_us = u64::try_from(self.clock.now().as_us()).unwrap_or(0);
            outcomes.push(match job {
                Job::Take(step, _) => {
                    let (answer, pushes) = take(&mut table, step, now_us);
                    all_pushes.extend(pushes);
                    Outcome::Taken(answer)
                }
                Job::View(name, _) => Outcome::Seen(TimedLockView { view: view(&table, name, now_us), now_us }),
            });
            table.finish()?;
        }
        Ok((outcomes, all_pushes))
    }
}
