//! A cluster over Redis and databases, on servers of the tests' own.
#![cfg(unix)]

mod checks;
mod claim_replies;
mod clocks;
mod conformance;
mod copies;
mod costs;
mod crowds;
mod deployment;
mod drainers;
mod early;
mod erase;
mod late;
mod losses;
mod names;
mod opening;
mod poison;
mod proxy;
mod purge;
mod replies;
mod rewrap;
mod room;
mod scripts;
mod settings;
mod sql_faults;
mod topologies;
mod transfer;
mod unfit;
mod went_back;
mod world;

use std::future::Future;
use std::time::Duration;

/// Stops a test that hangs.
async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(600), test).await.expect("the test hangs")
}
