//! Copies the files of a store as they stand at one moment, also while a service writes to them.
//!
//! # Why pages, in one read transaction
//! SQLite's backup interface begins anew each time another process commits between two of its steps, so under load it
//! would never end. Here all steps share one read transaction, and in WAL mode a reader sees one state and blocks no
//! writer. Only the log grows meanwhile: its pages can be used again once the reader is gone. `VACUUM INTO` reads one state
//! as well, but sorts every table anew. That costs the processor of the service, and tells no progress.

use crate::faults::{fault, io_fault};
use crate::schema::{self, Schema};
use crate::verify::integrity;
use crate::{BUSY_MAX, DATABASE_FILE, LOCKS_FILE, make_private_file, restore};
use firstcome_core::lock::{BUCKETS, Fence};
use firstcome_core::time::Timestamp;
use firstcome_store::check::Check;
use firstcome_store::{Fault, FaultKind};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// Pages that one step copies: 4 MB, after which the progress is told.
const PAGES_PER_STEP: i32 = 1_000;

/// How far a restore lifts fences above its clock. A store draws fences by its clock, in microseconds. So no fence repeats
/// unless the clock of the restore is behind that of the earlier store by more than this.
const FENCE_MARGIN: Duration = Duration::from_secs(60 * 60);

/// A file of a data directory that a backup copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreFile {
    /// Coupons, rooms, auctions and points.
    Data,
    /// Locks.
    Locks,
}

impl StoreFile {
    /// All files, in the order in which a backup has them.
    pub const ALL: [Self; 2] = [Self::Data, Self::Locks];

    /// Returns the name of the file in its directory.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => DATABASE_FILE,
            Self::Locks => LOCKS_FILE,
        }
    }

    const fn schema(self) -> &'static Schema {
        match self {
            Self::Data => &schema::STORE,
            Self::Locks => &schema::LOCKS,
        }
    }

    /// Reads the version of a file's schema. Refuses a file of a later version, and one of another program.
    pub fn version(self, path: &Path) -> Result<FileVersion, Fault> {
        let looked = reader(path).and_then(|connection| self.look(&connection));
        looked.map_err(|error| fault(&error, format!("cannot read {}", path.display())))?
    }

    fn look(self, connection: &Connection) -> rusqlite::Result<Result<FileVersion, Fault>> {
        if let Err(fault) = self.schema().admit(connection)? {
            return Ok(Err(fault));
        }
        let number = schema::number(connection, "user_version")?;
        let known = self.schema().version();
        Ok(Ok(if number < known { FileVersion::Older(number) } else { FileVersion::Current(number) }))
    }
}

/// The version of a file's schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileVersion {
    /// The version that this program writes.
    Current(i32),
    /// An earlier one. The next start of the service brings the file to the current version.
    Older(i32),
}

impl FileVersion {
    /// Returns the number of the version.
    pub const fn number(self) -> i32 {
        match self {
            Self::Current(number) | Self::Older(number) => number,
        }
    }
}

/// A file as it was when the snapshot was opened, while other processes go on to write.
///
/// The log of the file grows for as long as the snapshot is open.
pub struct Snapshot {
    connection: Connection,
    file: StoreFile,
    version: FileVersion,
}

firstcome_core::debug_by_name!(Snapshot);

impl Snapshot {
    /// Opens a file of a directory; `None` if the directory does not have it. Changes nothing, and blocks no writer.
    pub fn open(directory: &Path, file: StoreFile) -> Result<Option<Self>, Fault> {
        restore::refuse_unfinished(directory)?;
        let path = directory.join(file.name());
        if let Ok(false) = path.try_exists() {
            return Ok(None);
        }
        let open = || {
            let connection = reader(&path)?;
            // The first read below fixes the state that all later reads of the transaction see.
            connection.execute_batch("BEGIN")?;
            Ok(file.look(&connection)?.map(|version| Self { connection, file, version }))
        };
        let opened = open().map_err(|error| fault(&error, format!("cannot read {}", path.display())))?;
        opened.map(Some)
    }

    /// Returns which file it is.
    pub const fn file(&self) -> StoreFile {
        self.file
    }

    /// Returns the version of its schema.
    pub const fn version(&self) -> FileVersion {
        self.version
    }

    /// Copies all pages into a file that only its owner can read, and syncs it. No file may have that name. `progress` hears
    /// how many bytes of how many are copied. After an error the new file is not a copy.
    pub fn copy_to(&self, path: &Path, mut progress: impl FnMut(u64, u64)) -> Result<(), Fault> {
        let shown = path.display();
        make_private_file(path).map_err(|error| io_fault(&error, format!("cannot make {shown}")))?;
        let mut copy = || {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let mut target = Connection::open_with_flags(path, flags)?;
            // No other process knows the copy, and after a crash it is not used.
            target.pragma_update(None, "journal_mode", "OFF")?;
            target.pragma_update(None, "synchronous", "OFF")?;
            let page_bytes: u32 = self.connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
            let backup = Backup::new(&self.connection, &mut target)?;
            loop {
                let step = backup.step(PAGES_PER_STEP)?;
                let pages = backup.progress();
                let bytes = |pages: i32| u64::try_from(pages).unwrap_or(0) * u64::from(page_bytes);
                progress(bytes(pages.pagecount - pages.remaining), bytes(pages.pagecount));
                match step {
                    StepResult::Done => break,
                    StepResult::More => {}
                    // The source has its transaction, and no other process uses the copy.
                    _ => return Ok(Err(Fault::new(FaultKind::Busy, format!("another process uses {shown}")))),
                }
            }
            drop(backup);
            target.close().map_err(|(_, error)| error)?;
            Ok(Ok(()))
        };
        copy().map_err(|error| fault(&error, format!("cannot copy {} to {shown}", self.file.name())))??;
        let sync = || File::open(path)?.sync_all();
        sync().map_err(|error| io_fault(&error, format!("cannot sync {shown}")))
    }
}

fn reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_MAX)?;
    Ok(connection)
}

/// Checks the pages of a file of any version, without its rows. [`crate::verify()`] and [`crate::verify_locks`] check the
/// rows too, of the current version alone.
pub fn verify_pages(path: &Path) -> Result<Check, Fault> {
    let connection = reader(path).map_err(|error| fault(&error, format!("cannot read {}", path.display())))?;
    let mut check = Check::new("the file is sound (pages, cells, indexes)");
    integrity(&connection, &mut check)?;
    Ok(check)
}

/// Counts the rows of each table of a file of any version. Costs one pass over the file.
pub fn count_rows(path: &Path) -> Result<BTreeMap<String, u64>, Fault> {
    let count = || {
        let connection = reader(path)?;
        let mut names = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
        let names = names.query_map([], |row| row.get::<_, String>(0))?;
        let count = |name: String| {
            let query = format!("SELECT count(*) FROM \"{}\"", name.replace('"', "\"\""));
            let rows = connection.query_row(&query, [], |row| row.get::<_, i64>(0))?;
            Ok((name, rows.cast_unsigned()))
        };
        names.map(|name| count(name?)).collect::<rusqlite::Result<_>>()
    };
    count().map_err(|error| fault(&error, format!("cannot count the rows of {}", path.display())))
}

/// Lifts all fences of the locks in a directory above each fence that its earlier store can have given by `now`, also after
/// the copy was taken. No process may use the locks. Does nothing if the directory has none.
///
/// Fences may repeat if the clock of `now` is behind that of the earlier store by more than an hour.
pub fn raise_fences(directory: &Path, now: Timestamp) -> Result<(), Fault> {
    let path = directory.join(LOCKS_FILE);
    if !path.exists() {
        return Ok(());
    }
    let margin_us = i64::try_from(FENCE_MARGIN.as_micros()).unwrap_or(i64::MAX);
    let floor = now.as_us().saturating_add(margin_us);
    if u64::try_from(floor).ok().and_then(Fence::new).is_none() {
        return Err(Fault::new(
            FaultKind::Unfit,
            format!("the clock of this machine is wrong: no fence can be {floor}"),
        ));
    }
    let raise = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&path, flags)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let transaction = connection.transaction()?;
        // Buckets without a row have drawn nothing before the copy, and may have drawn something after it.
        let query = "INSERT INTO bucket (id, last) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET last = max(last, ?2)";
        for bucket in 0..BUCKETS {
            transaction.execute(query, (bucket, floor))?;
        }
        transaction.commit()?;
        // The file alone is moved to its place, without its log.
        let is_busy: bool = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        connection.close().map_err(|(_, error)| error)?;
        Ok(is_busy)
    };
    let is_busy = raise().map_err(|error| fault(&error, format!("cannot raise the fences of {}", path.display())))?;
    if is_busy {
        return Err(Fault::new(FaultKind::Busy, format!("another process uses {}", path.display())));
    }
    Ok(())
}
