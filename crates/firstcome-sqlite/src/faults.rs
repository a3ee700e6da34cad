//! What SQLite and the file system say, in the operator's words.

use firstcome_store::{Fault, FaultKind};
use rusqlite::ErrorCode;
use std::io::ErrorKind;

/// A fault of the database file.
pub(super) fn fault(error: &rusqlite::Error, doing: impl Into<String>) -> Fault {
    let extended = error.sqlite_error().map(|error| error.extended_code);
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => FaultKind::Full,
        // The index of the log finds no room: it is the same disk.
        _ if extended == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE) => FaultKind::Full,
        Some(ErrorCode::DatabaseCorrupt) => FaultKind::Damaged,
        Some(ErrorCode::NotADatabase) => FaultKind::Foreign,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => FaultKind::ReadOnly,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => FaultKind::Busy,
        // A row that does not have the type of its column, or a column that is not there.
        None => FaultKind::Damaged,
        Some(_) => FaultKind::Io,
    };
    Fault::new(kind, format!("{}: {error}", doing.into()))
}

/// A fault of the file system.
pub(super) fn io_fault(error: &std::io::Error, doing: impl Into<String>) -> Fault {
    let kind = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FaultKind::Full,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => FaultKind::ReadOnly,
        _ => FaultKind::Io,
    };
    Fault::new(kind, format!("{}: {error}", doing.into()))
}
