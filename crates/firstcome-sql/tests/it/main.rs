//! Locks on databases of the tests' own.
#![cfg(unix)]

mod auction;
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod databases;
mod leases;
mod pooler;
mod server;
mod sessions;
mod tls;

use std::future::Future;
use std::time::Duration;

/// Stops a test that hangs.
async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(600), test).await.expect("the test hangs")
}
