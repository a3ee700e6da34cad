//! Locks between the processes of one machine, in one SQLite file that all of them open.
//!
//! # Promises
//! - The rules of the core, step by step: a batch of steps is one `BEGIN IMMEDIATE`, and is answered after its commit.
//! - Durable before told ([`LockDurability::Durable`]): WAL with `synchronous=FULL`, one sync per batch that wrote.
//! - Killed at any point, a process leaves a sound file: its holds end with their leases, its places in line when it has
//!   missed a claim window.
//! - Nothing is left of a lock that no process has: no hold, no line. What stays is a counter per bucket, and for a minute
//!   who was heard of and what was given up.
//! - Fails closed: after a fault of the file, or when the file was moved away, this process takes no step any more, and
//!   its holds are over with their leases.
//!
//! # Not promised
//! - Progress while a process is stopped in the middle of a transaction: steps then fail as unavailable, nothing done.
//! - That a push arrives: it is a datagram, and no process waits for it. A heartbeat finds what it missed.
//! - Anything on file systems without the locks that SQLite needs, such as most network mounts.

mod notify;
mod standing;
mod table;
mod verify;
mod writer;

pub use standing::standing_locks;
pub use verify::verify_locks;

use super::{
    CHECKPOINT_PAGES, check_linked_version, io_fault, make_private, make_private_file, schema, sync_directory,
};
use crate::faults::fault;
use firstcome_core::id::LockName;
use firstcome_core::lock::{Answer, ClientId, Step};
use firstcome_store::edge::{Clock, SharedClock, Stopwatch, draw_secret};
use firstcome_store::{Fault, FaultKind, StoreError};
use firstcome_store::{LockInbox, LockStore, TimedLockView};
use notify::LockNotifier;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use writer::{Identity, Job, Queued, Writer};

/// The file of locks in its directory.
pub const LOCKS_FILE: &str = "locks.db";

/// Steps that wait for the writer at most; more are refused as overloaded.
const QUEUE_LENGTH: usize = 4_096;

/// Acquires and looks among them at most. Room is left for who holds a lock already: a lease does not wait, and what is
/// given back makes room.
const NEWCOMERS_MAX: usize = QUEUE_LENGTH / 4 * 3;

/// How long opening is tried again while another process opens, recovers or closes the file.
const OPEN_BUSY_MAX: Duration = Duration::from_secs(5);

/// What a grant survives.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum LockDurability {
    /// The process killed, the machine without power: it was synced to disk before it was told. A hand-over costs about
    /// one sync.
    #[default]
    Durable,
    /// The process killed. A machine without power may forget the last grants, whose holders it took along; the file
    /// stays sound, and fences grow on as long as the clock is not set back.
    Memory,
}

/// Locks in one file of a directory, for any number of processes on one machine.
///
/// Dropped, it finishes in the background what was asked of it.
pub struct SqliteLocks {
    jobs: SyncSender<Queued>,
    newcomers: Arc<Semaphore>,
    post: Arc<LockNotifier>,
    clock: Arc<dyn Clock>,
    secret: [u8; 32],
}

impl SqliteLocks {
    /// Opens the locks of a directory, which is made if it is absent. Blocks: a few syncs for a new file.
    ///
    /// Refused with a [`Fault`] that says what to do: the file is of a later version, of another program, damaged, or
    /// cannot be written.
    pub fn open(directory: &Path, durability: LockDurability) -> Result<Self, Fault> {
        Self::with_clock(directory, durability, Arc::new(SharedClock::default()))
    }

    /// With a clock of one's own, which all processes that open the directory must share.
    pub fn with_clock(directory: &Path, durability: LockDurability, clock: Arc<dyn Clock>) -> Result<Self, Fault> {
        let shown = directory.display();
        make_private(directory).map_err(|error| io_fault(&error, format!("cannot make {shown}")))?;
        // A process that changes the working directory must not change what is opened.
        let directory = directory.canonicalize();
        let directory = directory.map_err(|error| io_fault(&error, format!("cannot find {shown}")))?;
        let (connection, identity) = connect(&directory, durability)?;
        let secret = secret(&connection).map_err(|error| fault(&error, format!("cannot open {shown}")))??;
        let post = Arc::new(LockNotifier::new(&directory)?);
        let (jobs, queue) = sync_channel(QUEUE_LENGTH);
        let writer = Writer::new(connection, identity, Arc::clone(&clock), Arc::clone(&post));
        let thread = thread::Builder::new().name("firstcome-locks".into()).spawn(move || writer.run(&queue));
        thread.map_err(|error| io_fault(&error, "cannot start the writer"))?;
        Ok(Self { jobs, newcomers: Arc::new(Semaphore::new(NEWCOMERS_MAX)), post, clock, secret })
    }

    /// 32 random bytes that are kept with the locks, the same in every process: for handles of holds.
    pub const fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Job) -> Result<T, StoreError> {
        const OVERLOADED: StoreError = StoreError::Overloaded { retry_after: Duration::from_millis(100) };
        let (answer, told) = oneshot::channel();
        let job = job(answer);
        let place = match &job {
            Job::Take(Step::Acquire { .. }, _) | Job::View(..) => {
                Some(Arc::clone(&self.newcomers).try_acquire_owned().map_err(|_| OVERLOADED)?)
            }
            Job::Take(..) => None,
        };
        match self.jobs.try_send(Queued { job, _place: place }) {
            Ok(()) => told.await.unwrap_or(Err(StoreError::Unknown)),
            Err(TrySendError::Full(_)) => Err(OVERLOADED),
            Err(TrySendError::Disconnected(_)) => {
                let fault = Fault::new(FaultKind::Stopped, "the writer of locks has stopped");
                Err(StoreError::Unavailable(Arc::new(fault)))
            }
        }
    }
}

impl LockStore for SqliteLocks {
    async fn take(&self, step: Step) -> Result<Answer, StoreError> {
        self.ask(|answer| Job::Take(step, answer)).await
    }

    async fn view(&self, name: &LockName) -> Result<TimedLockView, StoreError> {
        let name = name.clone();
        self.ask(|answer| Job::View(name, answer)).await
    }

    fn attach(&self, client: ClientId, inbox: LockInbox) {
        self.post.attach(client, inbox, self.clock.now());
    }

    fn detach(&self, client: ClientId) {
        self.post.detach(client);
    }
}

impl Drop for SqliteLocks {
    fn drop(&mut self) {
        self.post.detach_all();
    }
}

/// Opens the file for writing and brings its schema up to date.
fn connect(directory: &Path, durability: LockDurability) -> Result<(Connection, Identity), Fault> {
    check_linked_version()?;
    let path = directory.join(LOCKS_FILE);
    make_private_file(&path).map_err(|error| io_fault(&error, format!("cannot make {}", path.display())))?;
    let before = Identity::of(&path)?;
    let tried = Stopwatch::start();
    let mut connection = loop {
        match try_connect(&path, durability) {
            // Not every step of opening asks the busy handler.
            Err(error) if is_busy(&error) && tried.elapsed() < OPEN_BUSY_MAX => {
                thread::park_timeout(Duration::from_millis(1));
            }
            connected => {
                break connected.map_err(|error| fault(&error, format!("cannot open {}", path.display())))??;
            }
        }
    };
    connection.set_prepared_statement_cache_capacity(64);
    let prepared = schema::LOCKS.prepare(&mut connection);
    prepared.map_err(|error| fault(&error, format!("cannot open {}", path.display())))??;
    sync_directory(directory)?;
    if before != Identity::of(&path)? {
        return Err(Fault::new(FaultKind::Io, format!("{} was replaced while it was opened", path.display())));
    }
    Ok((connection, before))
}

/// Draws the secret when the file is new.
fn secret(connection: &Connection) -> rusqlite::Result<Result<[u8; 32], Fault>> {
    let drawn = match draw_secret() {
        Ok(drawn) => drawn,
        Err(fault) => return Ok(Err(fault)),
    };
    // Two processes that open a new file at once have the same one: the first.
    connection.execute("INSERT INTO secret (id, bytes) VALUES (1, ?1) ON CONFLICT (id) DO NOTHING", [&drawn[..]])?;
    connection.query_row("SELECT bytes FROM secret WHERE id = 1", [], |row| row.get(0)).map(Ok)
}

/// The secret that is kept with the locks of a directory; `None` if there are no locks yet. Makes nothing.
pub fn handle_secret(directory: &Path) -> Result<Option<[u8; 32]>, Fault> {
    let path = directory.join(LOCKS_FILE);
    if !path.exists() {
        return Ok(None);
    }
    let connection = super::open_reader(&path, &schema::LOCKS)?;
    let read = connection.query_row("SELECT bytes FROM secret WHERE id = 1", [], |row| row.get(0)).optional();
    read.map_err(|error| fault(&error, format!("cannot read {}", path.display())))
}

/// Keeps a secret with the locks of a directory, unless there is one.
pub fn keep_handle_secret(directory: &Path, secret: &[u8; 32]) -> Result<(), Fault> {
    make_private(directory).map_err(|error| io_fault(&error, format!("cannot make {}", directory.display())))?;
    let (connection, _) = connect(directory, LockDurability::Durable)?;
    let keep = "INSERT INTO secret (id, bytes) VALUES (1, ?1) ON CONFLICT (id) DO NOTHING";
    let kept = connection.execute(keep, [&secret[..]]);
    kept.map(drop).map_err(|error| fault(&error, "cannot keep the secret of handles"))
}

fn try_connect(path: &Path, durability: LockDurability) -> rusqlite::Result<Result<Connection, Fault>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_handler(Some(wait_while_busy))?;
    if connection.is_readonly("main")? {
        return Ok(Err(Fault::new(FaultKind::ReadOnly, format!("{} cannot be written", path.display()))));
    }
    // Before anything is set: a file that is not ours stays as it is.
    // In one transaction: another process may be making the file at this moment.
    let look = connection.unchecked_transaction()?;
    let admitted = schema::LOCKS.admit(&look)?;
    look.finish()?;
    if let Err(fault) = admitted {
        return Ok(Err(fault));
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // NORMAL syncs when pages are moved from the log to the file: less would let a power cut damage the file.
    let synchronous = match durability {
        LockDurability::Durable => "FULL",
        LockDurability::Memory => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    // A process that has made the log long moves its pages: there is no one process that always lives.
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(Ok(connection))
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// How long to wait for another process that has the file: a transaction takes less than a millisecond, so the first
/// looks are close together. SQLite's own handler sleeps for up to 100 ms, and a hand-over would wait for that. Gives up
/// after about 3 s, more than a claim window.
fn wait_while_busy(looked_before: i32) -> bool {
    let pause_us = match looked_before {
        ..40 => 50,
        40..200 => 250,
        200..3_200 => 1_000,
        _ => return false,
    };
    thread::park_timeout(Duration::from_micros(pause_us));
    true
}
