//! Many nodes over Redis and databases, on servers of the tests' own.
#![cfg(unix)]

mod conformance;
mod rooms;
mod world;

use std::future::Future;
use std::time::Duration;

/// Stops a test that hangs.
async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(180), test).await.expect("the test hangs")
}
