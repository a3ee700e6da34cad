//! Locks on etcd, from version 3.4 (feature `etcd`). A process has a lease, each place in line is a key, and the revision that
//! created the key is the fence.
//!
//! Not a `LockStore`: that port takes steps of the core's rules, which keep a line in one place and grant on release. Here
//! etcd itself keeps the line, in the order of its revisions, so each waiter sees for itself that it is first. Nor a
//! `KeyStore`, whose tries keep no place in between.
//!
//! # Promises
//! - Mutual exclusion among all processes that use the same cluster and prefix, in the order of arrival. A place is a key, and
//!   one transaction creates it. The place with the lowest revision has the lock. Places of processes that gave up or died
//!   are passed over.
//! - A fence with every grant, above every earlier fence of any lock of the cluster: the revision that created the key. A
//!   holder that writes to etcd lets its transaction compare that revision, as [`EtcdHold::write`] does.
//! - A hold is reported as lost before etcd can end its lease, as long as this process runs and no clock is wrong by more than
//!   one per cent: the lease counts from before the request for it. A hold that was reported as lost stays lost.
//! - Nothing stays behind, neither after a dropped future nor after a lost answer. A process without an answer moves a
//!   barrier: a key whose revision every transaction for a place compares. So a delayed transaction fails. The places and
//!   holds of a process that dies end with its lease.
//! - The end of a place wakes one waiter: each waiter watches the place before its own, all over one stream.
//!
//! # Not promised
//! - That a hold lasts. All holds of a process end with its lease, when the process stops or cannot reach etcd for that long. A
//!   hold also ends when an operator deletes its key; the process notices that at the next use.
//! - Fences after etcd was restored from an old backup, or emptied: then revisions begin again, and fences with them.
//!
//! # Cost
//! A grant of a free lock is one round trip and one commit, and so is its release. A hand-over is a commit, a message and a
//! read. For each of these the server searches the places of that lock in memory. A process has one connection, one lease
//! that it renews three times per length, and one stream for its watches, for any number of locks.
//!
//! `etcds://…` demands TLS, and certificate and name of each server are checked. `etcd://…` is plain text.

#![warn(missing_debug_implementations)]

mod address;
mod claim;
mod error;
mod link;
mod lock;
mod messages;
mod session;
mod watcher;

pub use address::destination;
pub use error::EtcdError;
pub use link::EtcdLink;
pub use lock::{EtcdHold, EtcdLockView, EtcdLocks, EtcdWrite, Taken};

use std::time::Duration;

/// The longest prefix of keys.
const PREFIX_BYTES_MAX: usize = 256;
/// The longest lease, the same as for all locks.
const LEASE_MAX: Duration = Duration::from_millis(firstcome_core::limits::LEASE_MS_MAX as u64);

/// Settings of locks on etcd.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EtcdOptions {
    /// How long this process's holds and places last without a renewal: 1 s to 8 days, rounded up to whole seconds. etcd extends a
    /// lease that is shorter than its servers need to elect a leader (2 s by default).
    pub lease: Duration,
    /// The prefix of all keys: 1 to 256 bytes. Processes that share locks use the same prefix.
    pub prefix: String,
    /// How long one attempt to connect may take.
    pub connect_timeout: Duration,
    /// How long to wait for an answer. After that the next request goes to another server.
    pub answer_timeout: Duration,
}

impl Default for EtcdOptions {
    /// A lease of 10 s, the prefix `firstcome/`, 2 s to connect, 2 s for an answer.
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            prefix: "firstcome/".to_owned(),
            connect_timeout: Duration::from_secs(2),
            answer_timeout: Duration::from_secs(2),
        }
    }
}

impl EtcdOptions {
    fn check(&self) -> Result<(), EtcdError> {
        if !(Duration::from_secs(1)..=LEASE_MAX).contains(&self.lease) {
            return Err(EtcdError::broken("the lease must be 1 s to 8 days"));
        }
        if !(1..=PREFIX_BYTES_MAX).contains(&self.prefix.len()) {
            return Err(EtcdError::broken("the prefix must have 1 to 256 bytes"));
        }
        Ok(())
    }
}

/// Counters for benchmarks and tests. No rule depends on them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Requests to etcd, with renewals and without requests to watch a key.
    pub requests: u64,
    /// Waiters that were woken.
    pub wakes: u64,
    /// Connections that were opened.
    pub connects: u64,
}
