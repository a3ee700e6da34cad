//! Locks over HTTP. Here is what their tests share.

pub(crate) mod bodies;
pub(crate) mod figures;
pub(crate) mod handles;
pub(crate) mod holds;
pub(crate) mod keys;
mod pipelines;
pub(crate) mod sharing;
pub(crate) mod trouble;
pub(crate) mod waits;

use crate::running::{Peer, Running, request, until};
use crate::service::{Answer, Ask, SERVICE, Service, config};
use crate::stores::clock;
use firstcome::{Embedded, HandleKey, Locks, MemoryLocks};
use firstcome_server::{App, Config};
use serde_json::{Value, json};

/// Longer than any test: who waits for so long waits for something else to happen.
pub(crate) const LONG_MS: u64 = 3_600_000;
/// A lease that no test sees the end of.
pub(crate) const DAY_MS: u64 = 86_400_000;

/// A back end's wish for a lock.
pub(crate) fn acquire(lock: &str, owner: &str, wait_ms: u64, lease_ms: u64) -> Ask {
    let body = json!({"owner": owner, "wait_ms": wait_ms, "lease_ms": lease_ms});
    Ask::post(&format!("/v1/locks/{lock}/acquire")).by(SERVICE).json(&body)
}

/// A holder's renewal.
pub(crate) fn renew(lock: &str, handle: &str, lease_ms: u64) -> Ask {
    let body = json!({"handle": handle, "lease_ms": lease_ms});
    Ask::post(&format!("/v1/locks/{lock}/renew")).by(SERVICE).json(&body)
}

/// A holder's release.
pub(crate) fn release(lock: &str, handle: &str) -> Ask {
    Ask::post(&format!("/v1/locks/{lock}/release")).by(SERVICE).json(&json!({"handle": handle}))
}

/// Anybody's look at a lock, who has a service key.
pub(crate) fn look(lock: &str) -> Ask {
    Ask::get(&format!("/v1/locks/{lock}")).by(SERVICE)
}

/// A wish for a lock, as bytes, with further headers.
pub(crate) fn acquire_bytes(lock: &str, owner: &str, wait_ms: u64, headers: &str) -> String {
    let headers = format!("authorization: Bearer {SERVICE}\r\ncontent-type: application/json\r\n{headers}");
    let body = json!({"owner": owner, "wait_ms": wait_ms, "lease_ms": DAY_MS}).to_string();
    request(&format!("POST /v1/locks/{lock}/acquire"), &headers, &body)
}

/// The header of an idempotency key.
pub(crate) fn key(key: &str) -> String {
    format!("idempotency-key: {key}\r\n")
}

/// Locks that go the way of a store that is somewhere else.
pub(crate) fn remote() -> Locks {
    Locks::over(MemoryLocks::default()).expect("chance")
}

/// Runs a test over locks in memory, and over locks that go the way of a store that is somewhere else.
pub(crate) async fn on_each(test: impl AsyncFn(Service)) {
    test(Service::memory()).await;
    test(Service::with_locks(remote(), config())).await;
}

impl Service {
    /// Over these locks.
    pub(crate) fn with_locks(locks: Locks, config: Config) -> Self {
        let clock = clock();
        let store = Embedded::memory_with(clock.clone());
        let app = App::with_locks(store.clone(), config, locks, HandleKey::new([7; 32]));
        Self::of(app, store, clock)
    }

    /// A lock that is free, for a day.
    pub(crate) async fn hold(&self, lock: &str, owner: &str) -> Value {
        self.send(acquire(lock, owner, 0, DAY_MS)).await.is(200).json()
    }

    /// Gives back what an acquire returned.
    pub(crate) async fn give_back(&self, held: &Value) -> Answer {
        self.send(release(text(held, "lock"), text(held, "handle"))).await
    }

    pub(crate) async fn lock(&self, lock: &str) -> Value {
        self.send(look(lock)).await.is(200).json()
    }

    /// Waits until so many wait.
    pub(crate) async fn until_waiting(&self, lock: &str, waiters: u64) {
        until(async || self.lock(lock).await["waiters"] == waiters).await;
    }

    /// Waits until a lock is free.
    pub(crate) async fn until_free(&self, lock: &str) {
        until(async || self.lock(lock).await["held"] == false).await;
    }
}

impl Running {
    /// A process that got in line behind `ahead` others.
    pub(crate) async fn waiter(&self, lock: &str, owner: &str, ahead: u64) -> Peer {
        let mut peer = self.connect().await;
        peer.send(acquire_bytes(lock, owner, LONG_MS, "")).await;
        self.service.until_waiting(lock, ahead + 1).await;
        peer
    }
}

#[track_caller]
pub(crate) fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_else(|| panic!("{member} of {value}"))
}

#[track_caller]
pub(crate) fn number(value: &Value, member: &str) -> u64 {
    value[member].as_u64().unwrap_or_else(|| panic!("{member} of {value}"))
}
