//! The service over HTTP: every call, every code, and everything that a hostile peer can send.
//!
//! All answers come through [`service::Answer`], which holds each to what all answers promise (see `promises`).

mod addresses;
mod api_keys;
mod auction;
mod bad_bodies;
mod bad_names;
mod claims;
mod cluster;
mod cluster_purges;
mod cors;
mod dashboard;
mod deadlines;
mod dev_gate;
mod erasures;
mod failures;
mod framing;
mod gate;
mod graceful_stop;
mod idempotency;
mod in_process;
mod lock;
mod model;
mod multiplexed;
mod operations;
mod pages;
mod panics;
mod promises;
mod purges;
mod redemptions;
mod revisions;
mod room;
mod running;
mod scopes;
mod secrets;
mod security_headers;
mod service;
mod settings;
mod stores;
mod trouble;
mod walker;

use std::future::Future;
use std::time::Duration;

/// Stops a test that hangs. Far above what any test needs, so that a slow machine does not fail it.
fn in_time<T>(test: impl Future<Output = T>) -> impl Future<Output = T> {
    let test = Box::pin(test);
    async { tokio::time::timeout(Duration::from_secs(120), test).await.expect("the test hangs") }
}
