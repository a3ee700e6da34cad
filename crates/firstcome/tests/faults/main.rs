//! What holds when the server forgets, dies, is full, follows another, has its clock set back, or throws people out; when
//! answers get lost; and when those who wait give up at the worst moment. Several `Locks` stand for several processes.

mod cancelling;
mod clock;
mod forgetting;
mod proxy;
mod replies;
#[path = "../../../firstcome-redis/tests/it/server.rs"]
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod server;
mod storm;
mod storms;
mod wrong;

use firstcome::lock::{Guard, LinkOptions};
use firstcome::{LockError, Locks};
use redis::Value;
use server::{PATIENCE, Server, wait_for};
use std::future::Future;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A process that is silent for so long is passed over, and a grant that no caller hears of ends.
const CLAIM_WINDOW: Duration = Duration::from_secs(2);

/// What a machine that is busy with other things may add to a promised time.
const SLACK: Duration = Duration::from_secs(10);

/// Stops a test that hangs.
async fn in_time<T>(test: impl Future<Output = T>) -> T {
    timeout(PATIENCE * 20, test).await.expect("the test hangs")
}

/// A process.
async fn open(url: &str) -> Locks {
    open_with(url, Duration::from_secs(1)).await
}

/// A process that waits for an answer no longer than this.
async fn open_with(url: &str, answer_timeout: Duration) -> Locks {
    let mut options = LinkOptions::default();
    options.answer_timeout = answer_timeout;
    Locks::redis_with(url, options).await.expect("the server can be used")
}

/// A task that waits for a lock with this lease; it is in line when this returns.
async fn queue(locks: &Locks, name: &str, lease: Duration) -> JoinHandle<Result<Guard, LockError>> {
    let before = waiters(locks, name).await;
    let waiting = tokio::spawn(locks.lock(name).lease(lease).wait(PATIENCE).acquire());
    wait_for("a place in line", async || (before < waiters(locks, name).await).then_some(())).await;
    waiting
}

/// How many are in line.
async fn waiters(locks: &Locks, name: &str) -> u32 {
    locks.view(name).await.expect("the server answers").view.waiters
}

/// The fence of the caller that has a lock.
async fn held(locks: &Locks, name: &str) -> Option<u64> {
    let view = locks.view(name).await.expect("the server answers").view;
    view.held.map(|(_, fence, _)| fence.get())
}

/// Waits until these processes want nothing any more; then the server knows nothing of these locks.
async fn assert_nothing_left(server: &Server, locks: &[&Locks], names: &[&str]) {
    for one in locks {
        timeout(PATIENCE, one.quiet()).await.expect("what was given up is undone in time");
    }
    for name in names {
        let view = locks[0].view(name).await.expect("the server answers").view;
        assert!(view.held.is_none() && view.waiters == 0, "{name}: {view:?}");
    }
    let keys: Vec<String> = redis::from_redis_value(server.ask(&["KEYS", "*"]).await).expect("keys are text");
    let left: Vec<&String> =
        keys.iter().filter(|key| names.iter().any(|name| key.ends_with(&format!(":{name}")))).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// No caller has a script any more.
async fn forget_scripts(server: &Server) {
    assert_eq!(server.ask(&["SCRIPT", "FLUSH"]).await, Value::Okay);
}
