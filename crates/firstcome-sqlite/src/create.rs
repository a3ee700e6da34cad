//! Creates a file whole: its tables are written beside it without a sync, then synced once and given its name.
//!
//! SQLite would sync the file eight times on the way to the same tables. Most of a first start would be these syncs.

use super::schema::Schema;
use crate::faults::{fault, io_fault};
use firstcome_store::Fault;
use firstcome_store::edge::draw_secret;
use rusqlite::{Connection, OpenFlags};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Creates the file if it is absent, with its tables and what `fill` adds. A crash leaves all of the file or none of it,
/// and at most a file `….part`. The caller syncs the directory before it relies on the file.
///
/// Does nothing where the file must be made in place: see [`is_vacant`].
pub(super) fn create(
    path: &Path,
    schema: &Schema,
    fill: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<(), Fault> {
    if !is_vacant(path) {
        return Ok(());
    }
    // A random name, since another process may create the same file at this moment.
    let drawn = draw_secret()?;
    let number: String = drawn[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let part = beside(path, &format!(".{number}.part"));
    let synced = write(&part, schema, fill).and_then(|()| {
        let sync = || File::open(&part)?.sync_all();
        sync().map_err(|error| io_fault(&error, format!("cannot sync {}", part.display())))
    });
    if synced.is_ok() {
        // Unlike a rename, a link replaces no file that another process has created meanwhile. On a file system without
        // links SQLite makes the file in place.
        let _ = fs::hard_link(&part, path);
    }
    // What is left of it does no harm.
    let _ = fs::remove_file(&part);
    synced
}

/// Whether neither the file is there nor a log of it. SQLite discards the log of an empty file, but would read it into a
/// file that has tables.
fn is_vacant(path: &Path) -> bool {
    ["", "-wal", "-journal"].iter().all(|suffix| !beside(path, suffix).exists())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn write(part: &Path, schema: &Schema, fill: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> Result<(), Fault> {
    let shown = part.display();
    super::make_private_file(part).map_err(|error| io_fault(&error, format!("cannot make {shown}")))?;
    let written = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(part, flags)?;
        // No other process knows the file, and after a crash it is not used.
        connection.pragma_update(None, "journal_mode", "OFF")?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        if let Err(fault) = schema.prepare(&mut connection)? {
            return Ok(Err(fault));
        }
        fill(&connection)?;
        // Stands in the file's header, and so holds for each later connection.
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.close().map_err(|(_, error)| error)?;
        Ok(Ok(()))
    };
    written().map_err(|error| fault(&error, format!("cannot make {shown}")))?
}

#[cfg(test)]
mod tests {
    use super::super::schema::LOCKS;
    use super::*;

    fn create_with(path: &Path, secret: [u8; 32]) {
        let fill = |connection: &Connection| {
            connection.execute("INSERT INTO secret (id, bytes) VALUES (1, ?1)", [&secret[..]]).map(drop)
        };
        create(path, &LOCKS, fill).unwrap();
    }

    #[test]
    fn of_files_that_are_created_at_once_one_stays_whole_and_nothing_beside_it() {
        for _ in 0..20 {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("locks.db");
            let together = std::sync::Barrier::new(8);
            std::thread::scope(|scope| {
                for number in 0..8 {
                    let (path, together) = (&path, &together);
                    scope.spawn(move || {
                        together.wait();
                        create_with(path, [number; 32]);
                        // From here on each sees the same file.
                        let first = secret(path);
                        together.wait();
                        assert_eq!(secret(path), first);
                    });
                }
            });
            let entries = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
            let entries: Vec<_> = entries.filter(|name| name.to_string_lossy().ends_with(".part")).collect();
            assert!(entries.is_empty(), "{entries:?}");
        }
    }

    fn secret(path: &Path) -> [u8; 32] {
        let connection = super::super::open_reader(path, &LOCKS).unwrap();
        let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
        connection.query_row("SELECT bytes FROM secret WHERE id = 1", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn beside_a_log_no_file_is_created() {
        for suffix in ["-wal", "-journal"] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("locks.db");
            fs::write(beside(&path, suffix), "of an earlier file").unwrap();
            create_with(&path, [1; 32]);
            assert!(!path.exists(), "SQLite would read the {suffix} into it");
        }
    }
}
