//! Every adapter against the conformance suite, and the embedded store over journals that wait, fail and panic.

mod durable;
mod failing;
#[cfg(all(unix, feature = "sqlite"))]
mod lock_files;
mod locks;
mod market;
mod market_turns;
mod memory;
#[cfg(feature = "sqlite")]
mod old_codes;
mod overload;
mod rooms;
mod scripted;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stepped;
mod threaded;

use std::future::Future;
use std::time::Duration;

/// Stops a test that hangs. Far above what any test needs, so that a slow machine does not fail it.
async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(300), test).await.expect("the test hangs")
}
