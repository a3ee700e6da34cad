//! Every adapter against the conformance suite, and the embedded store over journals that wait, fail and panic.

mod auction;
mod auction_turns;
mod durable;
mod erasure_turns;
mod failing;
mod lock;
mod memory;
mod overload;
mod room;
mod scripted;
mod stepped;
mod threaded;

use std::future::Future;
use std::time::Duration;

/// Stops a test that hangs. Far above what any test needs, so that a slow machine does not fail it.
async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(300), test).await.expect("the test hangs")
}
