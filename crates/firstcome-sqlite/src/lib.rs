//! The embedded store in one SQLite file.
//!
//! # Promises
//! - Durable before reported: WAL with `synchronous=FULL`, and one transaction with one sync per batch. A caller gets its
//!   answer after `COMMIT` has returned. An acknowledged write survives `kill -9`. It survives a power cut if the disk keeps
//!   what it reports as synced.
//! - One process: it locks `firstcome.lock` for as long as the store is open. Other processes may read beside it
//!   ([`mod@verify`], [`Archive`], [`Snapshot`]).
//! - Recovers by itself from a fault before the commit that may pass: another process that holds the file, or a full disk.
//!   Nothing of that batch is stored, and none of it is kept in memory.
//! - Fails closed: after any other error of the file it writes nothing more. It never repeats a failed sync, because the
//!   kernel may have dropped the pages.
//!
//! # Not promised
//! No protection against a disk that lies about its sync, or against a user who edits the file. [`mod@verify`] and every
//! start check the invariants again.

#![warn(missing_debug_implementations)]

mod api_key;
mod archive;
mod archive_auction;
mod archive_room;
mod auction;
mod backup;
mod checkpoint;
mod coupon;
mod create;
mod erase;
mod faults;
mod lock;
mod purge;
mod receipt;
mod renewal;
mod restore;
mod room;
mod schema;
mod verify;
mod verify_auction;
mod verify_receipt;
mod verify_room;

pub use api_key::stored_api_keys;
pub use archive::{Archive, Importer};
pub use backup::{FileVersion, Snapshot, StoreFile, count_rows, raise_fences, verify_pages};
pub use lock::{
    LOCKS_FILE, LockDurability, SqliteLocks, handle_secret, keep_handle_secret, standing_locks, verify_locks,
};
pub use restore::{Begun, RESTORE_DIRECTORY, Restore};
pub use verify::verify;

use checkpoint::{Checkpointer, Patience, Progress, move_pages};
use faults::{fault, io_fault};
use firstcome_core::auction::Bid;
use firstcome_core::coupon::{Attributes, Serial};
use firstcome_core::id::UserId;
use firstcome_core::points::Record;
use firstcome_core::receipt::Object;
use firstcome_core::room::TicketNumber;
use firstcome_core::time::{Now, Timestamp};
use firstcome_store::Durability;
use firstcome_store::edge::{Clock, Stopwatch, SystemSecrets, draw_hasher};
use firstcome_store::embedded::journal::{
    Change, CouponId, CouponOver, Journal, JournalError, ListingId, MemberId, Outcome, RoomId, Rows,
};
use firstcome_store::embedded::{Backing, Embedded, StoredRoom, Timeline};
use firstcome_store::receipt::{HeadWanted, SignedHead};
use firstcome_store::{Fault, FaultKind, StoreError};
use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::RandomState;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The name of the store's file in its directory.
pub const DATABASE_FILE: &str = "firstcome.db";
/// The name of the file that the process with the open store locks.
pub const LOCK_FILE: &str = "firstcome.lock";

/// SQLite versions before this one can lose committed pages when a checkpoint meets a write.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// The length of the write-ahead log, in pages, after which it is moved into the file: 4 MB.
const CHECKPOINT_PAGES: i64 = 1_000;

/// The length of the write-ahead log, in pages, at which the writer waits until it is moved: 64 MB. Only a disk that takes
/// seconds for a checkpoint gets there.
const LOG_PAGES_MAX: i64 = 16 * CHECKPOINT_PAGES;

/// How long an open or a read waits for another process that holds the file for a moment.
const BUSY_MAX: Duration = Duration::from_secs(5);

/// How long a batch waits for another process that writes. Its callers wait as long, and then get an error: nothing was done.
const WRITE_BUSY_MAX: Duration = Duration::from_secs(1);

/// Opens the store in a directory and loads it. Creates the directory if it is absent.
///
/// Costs one pass over all claims (about half a second per million) and, for a new file, two syncs. The [`Fault`] says
/// what to do: another process has the store open, the file has a later version, belongs to another program, is damaged, or
/// cannot be written.
pub fn open(directory: &Path, clock: Arc<dyn Clock>) -> Result<Embedded, Fault> {
    let lock = lock(directory)?;
    let connection = connect(directory)?;
    let hasher = draw_hasher();
    let coupons = coupon::load(&connection, &hasher)?;
    let seen = room::clock(&connection)?;
    let timeline = Timeline::after(seen, clock.as_ref());
    purge::note_departures(&connection, clock.now())?;
    let rooms = room::load(&connection, &hasher, timeline.now(clock.as_ref()))?;
    let pass_secrets = room::secrets(&connection)?;
    let api_keys = api_key::load(&connection)?;
    let heads = receipt::last_heads(&connection)?;
    let auctions = auction::load(&connection, timeline.now(clock.as_ref()))?;
    let purged_at = purge::ended(&connection)?;
    let patient = connection.busy_timeout(WRITE_BUSY_MAX);
    patient.map_err(|error| fault(&error, "cannot set the time to wait"))?;
    let reader = open_reader(&directory.join(DATABASE_FILE), &schema::STORE)?;
    let backing = Backing {
        journal: Box::new(Sqlite {
            checkpointer: Checkpointer::new(directory.join(DATABASE_FILE)),
            connection,
            pages: 0,
            checkpoint_at: CHECKPOINT_PAGES,
            _lock: lock,
        }),
        rows: Arc::new(Reader { connection: Mutex::new(reader) }),
        durability: Durability::Disk,
        coupons,
        rooms,
        pass_secrets,
        api_keys,
        auctions,
        heads,
        timeline,
        purged_at,
        seen_at: seen.map(|seen| seen.wall),
        hasher,
        secrets: Arc::new(SystemSecrets),
    };
    Embedded::start(backing, clock).map_err(|error| io_fault(&error, "cannot start the writer"))
}

/// How long the directory may stay locked by a process that is about to end, or by a child that another thread of this
/// process has just started. A child keeps all files of its parent open until it executes its own program.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);
const LOOKS_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Locks the directory for this process, until the file is dropped. Blocks for [`LEAVES_WITHIN`] at most.
#[expect(clippy::disallowed_methods, reason = "no event tells that a lock of a file is left; there is a deadline")]
fn lock(directory: &Path) -> Result<File, Fault> {
    let shown = directory.display();
    make_private(directory).map_err(|error| io_fault(&error, format!("cannot make {shown}")))?;
    let path = directory.join(LOCK_FILE);
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| io_fault(&error, format!("cannot open {}", path.display())))?;
    let watch = Stopwatch::start();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) if watch.elapsed() < LEAVES_WITHIN => {
                std::thread::sleep(LOOKS_AGAIN_AFTER);
            }
            Err(fs::TryLockError::WouldBlock) => {
                return Err(Fault::new(FaultKind::InUse, format!("another process has {shown} open")));
            }
            Err(fs::TryLockError::Error(error)) => {
                return Err(io_fault(&error, format!("cannot lock {}", path.display())));
            }
        }
    }
}

/// Creates a directory that only its owner can read: it holds secrets, and names of users.
fn make_private(directory: &Path) -> std::io::Result<()> {
    let absent = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let made: Vec<&Path> = directory.ancestors().take_while(absent).collect();
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)?;
    // The name of a new directory is durable only once its parent is synced.
    for above in made.iter().filter_map(|path| path.parent()) {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        File::open(above)?.sync_all()?;
    }
    Ok(())
}

/// Opens the file for writing and brings its schema up to date.
fn connect(directory: &Path) -> Result<Connection, Fault> {
    check_linked_version()?;
    restore::refuse_unfinished(directory)?;
    let path = directory.join(DATABASE_FILE);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    create::create(&path, &schema::STORE, |_| Ok(()))?;
    make_private_file(&path).map_err(|error| io_fault(&error, format!("cannot make {}", path.display())))?;
    let open = || {
        let mut connection = Connection::open_with_flags(&path, flags)?;
        connection.busy_timeout(BUSY_MAX)?;
        if connection.is_readonly("main")? {
            return Ok(Err(Fault::new(FaultKind::ReadOnly, format!("{} cannot be written", path.display()))));
        }
        // Before any pragma: another program's file stays unchanged.
        if let Err(fault) = schema::STORE.admit(&connection)? {
            return Ok(Err(fault));
        }
        configure(&connection)?;
        if let Err(fault) = schema::STORE.prepare(&mut connection)? {
            return Ok(Err(fault));
        }
        settle(&connection)?;
        Ok(Ok(connection))
    };
    let connection = open().map_err(|error| fault(&error, format!("cannot open {}", path.display())))??;
    sync_directory(directory)?;
    Ok(connection)
}

fn check_linked_version() -> Result<(), Fault> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        let version = rusqlite::version();
        let detail = format!("SQLite {version} is linked, which can lose committed data; 3.51.3 or later is needed");
        return Err(Fault::new(FaultKind::Foreign, detail));
    }
    Ok(())
}

/// Creates the file if it is absent, readable by its owner only. SQLite gives its other files the same mode.
fn make_private_file(path: &Path) -> std::io::Result<()> {
    let mut options = File::options();
    // An existing file is not opened: closing it would drop the locks that SQLite may hold on it in this process.
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Moves the log of an earlier process into the file, and syncs it. After a failed sync the kernel may treat the log's pages
/// as clean though they never reached the disk. This copy writes them again before any caller gets an answer that rests on
/// them.
fn settle(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(32);
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // A thread moves pages: see `Sqlite::checkpoint`.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    erase::overwrite_freed(connection, false)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}

/// Makes the names of new files durable. SQLite syncs their contents.
fn sync_directory(directory: &Path) -> Result<(), Fault> {
    let sync = || File::open(directory)?.sync_all();
    sync().map_err(|error| io_fault(&error, format!("cannot sync {}", directory.display())))
}

/// Opens a file for reading beside a writer.
fn open_reader(path: &Path, schema: &schema::Schema) -> Result<Connection, Fault> {
    path.parent().map_or(Ok(()), restore::refuse_unfinished)?;
    let open = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_MAX)?;
        schema.check(connection)
    };
    open().map_err(|error| fault(&error, format!("cannot read {}", path.display())))?
}

/// The writing side. Owned by the writer thread.
struct Sqlite {
    /// Ends before the lock of the directory is left.
    checkpointer: Checkpointer,
    connection: Connection,
    /// Pages in the log, by estimate since the last checkpoint.
    pages: i64,
    /// The length of the log at which the next checkpoint begins.
    checkpoint_at: i64,
    _lock: File,
}

impl Sqlite {
    fn write(&self, changes: &[Change]) -> rusqlite::Result<()> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        coupon::write(&self.connection, changes)
    }

    /// Has the log's pages moved into the file once the log is long, so that SQLite can use it again from its start.
    fn checkpoint(&mut self) -> rusqlite::Result<()> {
        if self.pages < self.checkpoint_at {
            return Ok(());
        }
        let patience = if self.pages < LOG_PAGES_MAX { Patience::GoOn } else { Patience::Wait };
        match self.checkpointer.advance(patience) {
            Ok(Progress::Underway) => return Ok(()),
            Ok(Progress::Rest) => {}
            // What the log has is durable. It may grow while the cause passes.
            Err(error) if patience == Patience::GoOn && may_pass(&fault(&error, "")) => {
                self.checkpoint_at = self.pages + CHECKPOINT_PAGES;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        // Pages that stay are needed by a reader: the next checkpoint moves them.
        move_pages(&self.connection)?;
        (self.pages, self.checkpoint_at) = (0, CHECKPOINT_PAGES);
        Ok(())
    }

    /// Empties the log, which has the pages as they were before an erasure. If a reader needs them still, the log keeps them until
    /// it is written again from its start, at the latest when the store closes.
    fn forget_log(&mut self) {
        let _ = erase::overwrite_freed(&self.connection, false);
        // The first column is 1 if a reader, or the thread that moves pages, was in the way.
        let busy = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        if busy.is_ok_and(|busy| busy == 0) {
            (self.pages, self.checkpoint_at) = (0, CHECKPOINT_PAGES);
        }
    }

    /// Rolls back the transaction that failed with this error.
    fn rolled_back(&self, error: &rusqlite::Error, doing: &str, is_before_commit: bool) -> JournalError {
        if !self.connection.is_autocommit() {
            // If this fails too, the transaction ends with the connection, and nothing more is written.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        let fault = fault(error, doing);
        let outcome = match (is_before_commit, may_pass(&fault) && self.connection.is_autocommit()) {
            (true, true) => Outcome::Passing,
            (true, false) => Outcome::Nothing,
            (false, _) => Outcome::Unknown,
        };
        JournalError { outcome, fault }
    }
}

/// Whether the cause may pass by itself.
const fn may_pass(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::Busy | FaultKind::Full)
}

impl Journal for Sqlite {
    fn commit(&mut self, changes: &[Change]) -> Result<(), JournalError> {
        self.checkpoint().map_err(|error| self.rolled_back(&error, "checkpoint failed", true))?;
        let is_erasure = erase::is_erasure(changes);
        let overwrites = is_erasure || purge::removes_records(changes);
        if overwrites {
            let set = erase::overwrite_freed(&self.connection, true);
            set.map_err(|error| self.rolled_back(&error, "cannot have freed pages overwritten", true))?;
        }
        self.write(changes).map_err(|error| self.rolled_back(&error, "write failed", true))?;
        self.connection.execute_batch("COMMIT").map_err(|error| {
            // A full disk fails before the frame that seals the transaction; a failed sync comes after it.
            let is_full = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
            self.rolled_back(&error, "commit failed", is_full)
        })?;
        // Rows are dense, 40 to 100 per page, and each commit rewrites the last page of each tree.
        self.pages += 3 + changes.iter().map(purge::rows_of).sum::<i64>() / 40;
        if is_erasure && !erase::leaves_records(changes) {
            self.forget_log();
        } else if overwrites {
            let _ = erase::overwrite_freed(&self.connection, false);
        }
        Ok(())
    }

    fn room(&mut self, id: RoomId, hasher: &RandomState, now: Now) -> Result<StoredRoom, Fault> {
        room::load_one(&self.connection, id, hasher, now)
    }

    fn close(&mut self) {
        self.checkpointer.stop();
        // This only saves work at the next start: the log is durable already.
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }
}

/// The reading side: pages of claims, bids and records.
struct Reader {
    connection: Mutex<Connection>,
}

impl Rows for Reader {
    fn attributes(
        &self,
        coupon: CouponId,
        first: Serial,
        last: Serial,
    ) -> Result<BTreeMap<Serial, Attributes>, StoreError> {
        coupon::attributes(&self.connection.lock(), coupon, first, last)
            .map_err(|error| StoreError::Faulted(Arc::new(fault(&error, "cannot read attributes"))))
    }

    fn heads(&self, object: &Object, after: u64, count: usize) -> Result<Vec<SignedHead>, StoreError> {
        let heads = receipt::heads(&self.connection.lock(), object, after, count);
        heads.map_err(|fault| StoreError::Faulted(Arc::new(fault)))
    }

    fn first_head(&self, object: &Object, wanted: HeadWanted) -> Result<Option<SignedHead>, StoreError> {
        let head = receipt::first_head(&self.connection.lock(), object, wanted);
        head.map_err(|fault| StoreError::Faulted(Arc::new(fault)))
    }

    fn keyed_movements(&self, since: Timestamp, count: usize) -> Result<Vec<(MemberId, u64)>, StoreError> {
        let found = purge::keyed_movements(&self.connection.lock(), since, count);
        found.map_err(|error| StoreError::Faulted(Arc::new(fault(&error, "cannot read keys of movements"))))
    }

    fn coupons_over(&self) -> Result<Vec<CouponOver>, StoreError> {
        let found = purge::coupons_over(&self.connection.lock());
        found.map_err(|fault| StoreError::Faulted(Arc::new(fault)))
    }

    fn gone_before(&self, room: RoomId, from: u32, since: Timestamp, count: u32) -> Result<u32, StoreError> {
        let found = purge::gone_before(&self.connection.lock(), room, from, since, count);
        found.map_err(|error| StoreError::Faulted(Arc::new(fault(&error, "cannot read tickets that are gone"))))
    }

    fn bids(&self, listing: ListingId, after: u32, count: usize) -> Result<Vec<Bid>, StoreError> {
        let bids = auction::bids(&self.connection.lock(), listing, after, count);
        bids.map_err(|fault| StoreError::Faulted(Arc::new(fault)))
    }

    fn tickets_of(&self, user: &UserId) -> Result<Option<Vec<(RoomId, TicketNumber)>>, StoreError> {
        let tickets = erase::tickets_of(&self.connection.lock(), user);
        tickets.map(Some).map_err(|fault| StoreError::Faulted(Arc::new(fault)))
    }

    fn records(&self, member: MemberId, after: u64, count: usize) -> Result<Vec<Record>, StoreError> {
        let records = auction::records(&self.connection.lock(), member, after, count);
        records.map_err(|fault| StoreError::Faulted(Arc::new(fault)))
    }
}

/// Returns the path of the store's file.
pub fn database_path(directory: &Path) -> PathBuf {
    directory.join(DATABASE_FILE)
}
