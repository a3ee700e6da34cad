//! Locks between the processes of one machine, in one SQLite file that all of them open.
//!
//! # Promises
//! - The rules of the core, step by step: a batch of steps is one `BEGIN IMMEDIATE`. A step is answered after its commit.
//! - Durable before reported ([`LockDurability::Durable`]): WAL with `synchronous=FULL`, one sync per batch that wrote.
//! - A process that is killed at any point leaves a sound file. Its holds end with their leases, and its places in line once
//!   it has missed a claim window.
//! - A free lock leaves nothing behind: no hold, no line. A counter per bucket stays, and for a minute the heartbeats of
//!   processes and the requests that were released before they arrived.
//! - Fails closed: after a fault of the file, or when the file was moved away, this process takes no more steps, and its
//!   holds end with their leases.
//!
//! # Not promised
//! - Progress while a process is stopped in the middle of a transaction: steps then fail as unavailable, and do nothing.
//! - Arrival of a push: it is a datagram without a confirmation. The next heartbeat finds a lost grant.
//! - Operation on file systems without the locks that SQLite needs, such as most network mounts.

mod notify;
mod standing;
mod table;
mod verify;
mod writer;

pub use standing::standing_locks;
pub use verify::verify_locks;

use super::{
    CHECKPOINT_PAGES, check_linked_version, create, io_fault, make_private, make_private_file, restore, schema,
    sync_directory,
};
use crate::faults::fault;
use firstcome_core::id::LockName;
use firstcome_core::lock::{Answer, ClientId, Step};
use firstcome_store::edge::{Clock, SharedClock, Stopwatch, draw_secret};
use firstcome_store::lock_queue::{LockQueue, lock_queue};
use firstcome_store::{Fault, FaultKind, Guarantees, LockInbox, LockStore, StoreError, TimedLockView};
use notify::LockNotifier;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use writer::{Identity, Writer};

/// The name of the file of locks in its directory.
pub const LOCKS_FILE: &str = "locks.db";

/// How long an open is tried again while another process opens, recovers or closes the file.
const OPEN_BUSY_MAX: Duration = Duration::from_secs(5);

/// Which failures a grant survives.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum LockDurability {
    /// A killed process, and a power cut: the grant was synced to disk before it was reported. A hand-over costs about one
    /// sync.
    #[default]
    Durable,
    /// A killed process. A power cut may lose the last grants, but it also ends their holders. The file stays sound, and fences
    /// keep growing as long as the clock is not set back.
    Memory,
}

/// Locks in one file of a directory, for any number of processes on one machine.
///
/// After a drop, the writer finishes the steps that wait, in the background.
pub struct SqliteLocks {
    queue: LockQueue,
    post: Arc<LockNotifier>,
    clock: Arc<dyn Clock>,
    secret: [u8; 32],
}

firstcome_core::debug_by_name!(SqliteLocks);

impl SqliteLocks {
    /// Opens the locks of a directory. Creates the directory if it is absent. Blocks: a few syncs for a new file.
    ///
    /// The [`Fault`] says what to do: the file has a later version, belongs to another program, is damaged, or cannot be
    /// written.
    pub fn open(directory: &Path, durability: LockDurability) -> Result<Self, Fault> {
        Self::with_clock(directory, durability, Arc::new(SharedClock::default()))
    }

    /// Opens the locks with another clock, which all processes that open the directory must share.
    pub fn with_clock(directory: &Path, durability: LockDurability, clock: Arc<dyn Clock>) -> Result<Self, Fault> {
        let shown = directory.display();
        make_private(directory).map_err(|error| io_fault(&error, format!("cannot make {shown}")))?;
        // The path must stay valid when this process changes its working directory.
        let directory = directory.canonicalize();
        let directory = directory.map_err(|error| io_fault(&error, format!("cannot find {shown}")))?;
        let drawn = draw_secret()?;
        let (connection, identity) = connect(&directory, durability, &drawn)?;
        let secret = secret(&connection, &drawn).map_err(|error| fault(&error, format!("cannot open {shown}")))?;
        let post = Arc::new(LockNotifier::new(&directory)?);
        let (queue, jobs) = lock_queue();
        let writer = Writer::new(connection, identity, Arc::clone(&clock), Arc::clone(&post));
        let thread = thread::Builder::new().name("firstcome-locks".into()).spawn(move || writer.run(jobs));
        thread.map_err(|error| io_fault(&error, "cannot start the writer"))?;
        Ok(Self { queue, post, clock, secret })
    }

    /// Returns 32 random bytes that are stored with the locks, the same in every process. They sign the handles of holds.
    pub const fn secret(&self) -> &[u8; 32] {
        &self.secret
    }
}

impl LockStore for SqliteLocks {
    fn guarantees(&self) -> Guarantees {
        Guarantees::DIRECTORY
    }

    async fn take(&self, step: Step) -> Result<Answer, StoreError> {
        self.queue.take(step).await
    }

    async fn view(&self, name: &LockName) -> Result<TimedLockView, StoreError> {
        self.queue.view(name).await
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

const KEEP_SECRET: &str = "INSERT INTO secret (id, bytes) VALUES (1, ?1) ON CONFLICT (id) DO NOTHING";

/// Opens the file for writing and brings its schema up to date. A new file keeps this secret.
fn connect(directory: &Path, durability: LockDurability, secret: &[u8; 32]) -> Result<(Connection, Identity), Fault> {
    check_linked_version()?;
    restore::refuse_unfinished(directory)?;
    let path = directory.join(LOCKS_FILE);
    create::create(&path, &schema::LOCKS, |connection| connection.execute(KEEP_SECRET, [&secret[..]]).map(drop))?;
    make_private_file(&path).map_err(|error| io_fault(&error, format!("cannot make {}", path.display())))?;
    let before = Identity::of(&path)?;
    let tried = Stopwatch::start();
    let mut connection = loop {
        match try_connect(&path, durability) {
            // Some steps of opening fail without calling the busy handler.
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

/// Reads the secret, and stores the drawn one first if the file has none.
fn secret(connection: &Connection, drawn: &[u8; 32]) -> rusqlite::Result<[u8; 32]> {
    // If two processes open a new file at once, both get the secret that was written first.
    connection.execute(KEEP_SECRET, [&drawn[..]])?;
    connection.query_row("SELECT bytes FROM secret WHERE id = 1", [], |row| row.get(0))
}

/// Reads the secret that is stored with the locks of a directory; `None` without a file of locks. Creates nothing.
pub fn handle_secret(directory: &Path) -> Result<Option<[u8; 32]>, Fault> {
    let path = directory.join(LOCKS_FILE);
    if !path.exists() {
        return Ok(None);
    }
    let connection = super::open_reader(&path, &schema::LOCKS)?;
    let read = connection.query_row("SELECT bytes FROM secret WHERE id = 1", [], |row| row.get(0)).optional();
    read.map_err(|error| fault(&error, format!("cannot read {}", path.display())))
}

/// Stores a secret with the locks of a directory, unless it has one.
pub fn keep_handle_secret(directory: &Path, secret: &[u8; 32]) -> Result<(), Fault> {
    make_private(directory).map_err(|error| io_fault(&error, format!("cannot make {}", directory.display())))?;
    let (connection, _) = connect(directory, LockDurability::Durable, secret)?;
    let kept = connection.execute(KEEP_SECRET, [&secret[..]]);
    kept.map(drop).map_err(|error| fault(&error, "cannot keep the secret of handles"))
}

fn try_connect(path: &Path, durability: LockDurability) -> rusqlite::Result<Result<Connection, Fault>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_handler(Some(wait_while_busy))?;
    if connection.is_readonly("main")? {
        return Ok(Err(Fault::new(FaultKind::ReadOnly, format!("{} cannot be written", path.display()))));
    }
    // Before any pragma: another program's file stays unchanged.
    // In one transaction: another process may be creating the file at this moment.
    let look = connection.unchecked_transaction()?;
    let admitted = schema::LOCKS.admit(&look)?;
    look.finish()?;
    if let Err(fault) = admitted {
        return Ok(Err(fault));
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // NORMAL syncs when SQLite moves pages from the log to the file. With less, a power cut could damage the file.
    let synchronous = match durability {
        LockDurability::Durable => "FULL",
        LockDurability::Memory => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    // The process that makes the log too long moves its pages: no single process lives all the time.
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(Ok(connection))
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Pauses while another process has the file. A transaction takes less than a millisecond, so the first pauses are short.
/// SQLite's own handler sleeps for up to 100 ms, which would delay a hand-over. Gives up after about 3 s, which is more than
/// a claim window.
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
