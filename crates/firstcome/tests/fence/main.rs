//! Fence checks, against servers of the tests' own and against holders that are stopped and go on too late.

#[cfg(unix)]
#[path = "../../../firstcome-sql/tests/it/databases.rs"]
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod databases;
mod header;
#[cfg(unix)]
mod in_redis;
#[path = "../../../firstcome-redis/tests/it/server.rs"]
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod server;
#[cfg(unix)]
mod stops;
#[cfg(unix)]
mod stores;
#[cfg(unix)]
mod suite;
#[cfg(unix)]
mod transactions;
mod web;

use firstcome::{Fence, FenceToken};

/// A token whose parts are known to be good.
#[track_caller]
pub(crate) fn token(lock: &str, fence: u64, owner: &str) -> FenceToken {
    FenceToken::new(lock, Fence::new(fence).expect("a fence"), owner).expect("a token")
}
