//! Moves pages from the log into the file, on a thread and a connection of its own.
//!
//! A checkpoint of a long log writes its pages all over the file, and syncs them. On a disk that other processes use this
//! can take a hundred times as long as the sync of one batch. The writer appends to the log meanwhile. It moves only what
//! it has appended since, so that SQLite can use the log again from its start.

use firstcome_store::Fault;
use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// A rest of the log that is short enough for the writer, in pages.
const REST_PAGES: i64 = 64;

/// How often the thread moves what came meanwhile before it leaves the rest to the writer. Each time takes less than the
/// one before it, unless the disk writes the log faster than the file.
const ROUNDS: usize = 3;

/// What the thread does, or has done.
#[derive(Default)]
enum Phase {
    /// Nothing. The next checkpoint has not begun.
    #[default]
    Rest,
    /// Moves pages.
    Moving,
    /// Has moved and synced the pages that it found.
    Moved,
    /// Failed. It does nothing more before the writer has taken the error.
    Failed(rusqlite::Error),
    /// Ends.
    Stop,
}

#[derive(Default)]
struct Shared {
    phase: Mutex<Phase>,
    changed: Condvar,
}

/// How far a checkpoint is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// The thread moves pages.
    Underway,
    /// The writer must move the rest.
    Rest,
}

/// Whether the writer goes on while the thread moves pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Patience {
    GoOn,
    Wait,
}

/// The thread, which starts with the first checkpoint: a small store never has one.
pub(super) struct Checkpointer {
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, shared: Arc::default(), thread: None }
    }

    /// Begins a checkpoint, or returns how far it is. Without a thread the writer moves all pages.
    ///
    /// # Errors
    /// The checkpoint has failed. The log still has every page of it.
    pub(super) fn advance(&mut self, patience: Patience) -> rusqlite::Result<Progress> {
        if self.thread.is_none() && self.start().is_err() {
            return Ok(Progress::Rest);
        }
        let mut phase = self.shared.phase.lock();
        loop {
            match std::mem::replace(&mut *phase, Phase::Rest) {
                Phase::Rest => {
                    *phase = Phase::Moving;
                    self.shared.changed.notify_all();
                }
                Phase::Moving => *phase = Phase::Moving,
                Phase::Moved => return Ok(Progress::Rest),
                Phase::Failed(error) => return Err(error),
                Phase::Stop => {
                    *phase = Phase::Stop;
                    return Ok(Progress::Rest);
                }
            }
            if patience == Patience::GoOn {
                return Ok(Progress::Underway);
            }
            self.shared.changed.wait(&mut phase);
        }
    }

    fn start(&mut self) -> Result<(), Fault> {
        let connection = connect(&self.path).map_err(|error| crate::faults::fault(&error, "no second connection"))?;
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("firstcome-pages".into()).spawn(move || run(&connection, &shared));
        let thread = thread.map_err(|error| crate::faults::io_fault(&error, "no thread for checkpoints"))?;
        self.thread = Some(thread);
        Ok(())
    }

    /// Waits for the end of a checkpoint under way, and ends the thread.
    pub(super) fn stop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        *self.shared.phase.lock() = Phase::Stop;
        self.shared.changed.notify_all();
        // A thread that panicked has ended too.
        let _ = thread.join();
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    // A connection finds out that the file has a log when it first reads.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

/// Moves the pages of the log that no reader needs any more, and syncs the file. Returns how many pages stay.
pub(super) fn move_pages(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok(row.get::<_, i64>(1)? - row.get::<_, i64>(2)?))
}

fn run(connection: &Connection, shared: &Shared) {
    let mut phase = shared.phase.lock();
    loop {
        match *phase {
            Phase::Stop => return,
            Phase::Moving => {
                drop(phase);
                let moved = move_in_rounds(connection, shared);
                phase = shared.phase.lock();
                if matches!(*phase, Phase::Moving) {
                    *phase = moved.map_or_else(Phase::Failed, |()| Phase::Moved);
                    shared.changed.notify_all();
                }
            }
            _ => shared.changed.wait(&mut phase),
        }
    }
}

fn move_in_rounds(connection: &Connection, shared: &Shared) -> rusqlite::Result<()> {
    for _ in 0..ROUNDS {
        if move_pages(connection)? <= REST_PAGES || !matches!(*shared.phase.lock(), Phase::Moving) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOB: &str = "INSERT INTO blobs (bytes) VALUES (zeroblob(100000))";

    fn writer(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.pragma_update(None, "synchronous", "OFF").unwrap();
        connection.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        connection.execute_batch("CREATE TABLE blobs (id INTEGER PRIMARY KEY, bytes BLOB)").unwrap();
        connection
    }

    #[test]
    fn the_log_is_used_again_after_the_thread_and_the_writer_have_moved_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file.db");
        let connection = writer(&path);
        let mut checkpointer = Checkpointer::new(path);
        for _ in 0..20 {
            connection.execute_batch(BLOB).unwrap();
        }
        assert_eq!(checkpointer.advance(Patience::GoOn).unwrap(), Progress::Underway, "the writer goes on at once");
        for _ in 0..20 {
            connection.execute_batch(BLOB).unwrap();
        }
        assert_eq!(checkpointer.advance(Patience::Wait).unwrap(), Progress::Rest);
        assert_eq!(move_pages(&connection).unwrap(), 0);
        let log = directory.path().join("file.db-wal");
        let length = || std::fs::metadata(&log).unwrap().len();
        let before = length();
        for _ in 0..30 {
            connection.execute_batch(BLOB).unwrap();
        }
        assert_eq!(length(), before, "it begins at its start again");
        checkpointer.stop();
        let rows: i64 = connection.query_row("SELECT count(*) FROM blobs", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 70);
    }

    #[test]
    fn a_failed_checkpoint_is_told_to_the_writer() {
        let mut checkpointer = Checkpointer::new(PathBuf::new());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file.db");
        let connection = writer(&path);
        let broken = connect(&path).unwrap();
        // A checkpoint within a transaction is an error.
        broken.execute_batch("BEGIN; SELECT * FROM blobs").unwrap();
        let shared = Arc::clone(&checkpointer.shared);
        checkpointer.thread = Some(thread::spawn(move || run(&broken, &shared)));
        assert!(checkpointer.advance(Patience::Wait).is_err());
        assert_eq!(checkpointer.advance(Patience::GoOn).unwrap(), Progress::Underway, "the next one begins anew");
        drop(connection);
    }
}
