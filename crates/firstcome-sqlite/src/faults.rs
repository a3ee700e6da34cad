//! Turns errors of SQLite and the file system into faults.

use firstcome_store::{Fault, FaultKind};
use rusqlite::ErrorCode;
use std::io::ErrorKind;

/// Makes a fault from an error of SQLite.
pub(super) fn fault(error: &rusqlite::Error, doing: impl Into<String>) -> Fault {
    let extended = error.sqlite_error().map(|error| error.extended_code);
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => FaultKind::Full,
        // The index of the log has no room: it is on the same disk.
        _ if extended == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE) => FaultKind::Full,
        Some(ErrorCode::DatabaseCorrupt) => FaultKind::Damaged,
        Some(ErrorCode::NotADatabase) => FaultKind::Foreign,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => FaultKind::ReadOnly,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => FaultKind::Busy,
        // A value of the wrong type, or a missing column.
        None => FaultKind::Damaged,
        Some(_) => FaultKind::Io,
    };
    Fault::new(kind, format!("{}: {error}", doing.into()))
}

/// Makes a fault from an error of the file system.
pub(super) fn io_fault(error: &std::io::Error, doing: impl Into<String>) -> Fault {
    let kind = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FaultKind::Full,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => FaultKind::ReadOnly,
        _ => FaultKind::Io,
    };
    Fault::new(kind, format!("{}: {error}", doing.into()))
}
