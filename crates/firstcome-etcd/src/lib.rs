//! Locks on etcd, from version 3.4 (feature `etcd`): a lease, a key for each place in line, and the revision that made it as the
//! fence.
//!
//! Not a `LockStore`: that port takes steps of the core's rules, which keep a line in one place and grant when
//! they release. Here the line is kept by etcd itself, in the order of its revisions, so that each waiter sees for itself that it is
//! first. Nor a `KeyStore`, whose tries keep no place in between.
//!
//! # Promises
//! - Mutual exclusion among all who name the same cluster and prefix, and the order of arrival: a place is a key, made by one
//!   transaction, and a process whose was made by the lowest revision has the lock. A process that gave up or died is passed over.
//! - A fence with every grant, above every one before it of any lock of the cluster: the revision that made the key. A process that
//!   writes to etcd under the lock lets its transaction compare it, as [`EtcdHold::write`] does.
//! - A hold is told to be lost before etcd can end its lease, as long as this process runs and no clock runs wrong by more
//!   than one per cent: the lease is counted from before it was asked for. What was told to be lost stays so.
//! - Nothing is left behind, neither by a future that is dropped nor by an answer that was lost. Who has no answer moves a barrier
//!   behind it (a key that each place names the revision of), so what may still be on its way comes in vain. What a process that
//!   dies has ends with its lease.
//! - One waiter is woken for each that goes: each watches the one before it, all over one stream.
//!
//! # Not promised
//! - That a hold lasts. All holds of a process end with its lease: when it stands still, or cannot reach etcd, for that long.
//!   And one ends when an operator deletes its key by hand, which is noticed when it is next used.
//! - Anything after etcd was given an old backup, or none: then revisions begin again, and fences with them.
//!
//! # Cost
//! A grant of a free lock is one round trip, and so is the end; each is one commit. A hand-over is a commit, a message and a read.
//! With each of these the server looks through the places of that lock in memory. A process has one connection, one lease, which is
//! renewed three times in its length, and one stream for what it waits for, however many locks.
//!
//! Connections are without TLS.

mod address;
mod claim;
mod error;
mod link;
mod lock;
mod messages;
mod session;
mod watcher;

pub use error::EtcdError;
pub use link::EtcdLink;
pub use lock::{EtcdHold, EtcdLockView, EtcdLocks, EtcdWrite, Taken};

use std::time::Duration;

/// Longest prefix of keys.
const PREFIX_BYTES_MAX: usize = 256;
/// Longest lease, as of all locks.
const LEASE_MAX: Duration = Duration::from_millis(firstcome_core::limits::LEASE_MS_MAX as u64);

/// How locks on etcd behave.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EtcdOptions {
    /// How long this process's holds and places last after its last sign of life: 1 s to 24 h, rounded up to whole seconds; etcd
    /// makes it longer if it is shorter than its servers need to agree on a leader (2 s, unless they are set otherwise).
    pub lease: Duration,
    /// What all keys begin with: 1 to 256 bytes. A process that shares locks names the same.
    pub prefix: String,
    /// How long one attempt to connect may take.
    pub connect_timeout: Duration,
    /// How long to wait for an answer. After it another server is asked.
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
            return Err(EtcdError::broken("the lease must be 1 s to 24 h"));
        }
        if !(1..=PREFIX_BYTES_MAX).contains(&self.prefix.len()) {
            return Err(EtcdError::broken("the prefix must have 1 to 256 bytes"));
        }
        Ok(())
    }
}

/// What has been done so far. Figures for benchmarks and tests: no rule rests on them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Questions to etcd, renewals included, and orders of watches left out.
    pub requests: u64,
    /// Waiters who were told to look.
    pub wakes: u64,
    /// Connections that were made.
    pub connects: u64,
}
