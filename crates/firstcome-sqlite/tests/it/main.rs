//! The embedded store and locks in files of SQLite.

mod auction;
mod backup;
mod departed;
mod erase;
mod heads;
mod lock;
#[cfg(unix)]
mod lock_files;
mod old_codes;
mod old_rooms;
mod older;
mod over;
mod presence;
mod purge;
mod records;
mod renamed;
mod restarts;
mod sqlite;
mod year;

use std::future::Future;
use std::time::Duration;

/// Stops a test that hangs. Far above what any test needs, so that a slow machine does not fail it.
async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(300), test).await.expect("the test hangs")
}
