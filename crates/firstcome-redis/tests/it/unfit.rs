//! A server that is told, while locks are held on it, to evict keys when its memory is full.

use super::server::{Server, wait_for};
use super::{in_time, patient};
use firstcome_redis::{RedisLocks, Redisson, SingleKey};
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::lock::Copies;
use firstcome_store::core::lock::{
    Acquired, ClientId, LockAnswer, Mode, Released, Renewal, Request, Step, Wait, Waiter, bucket_of,
};
use firstcome_store::key::{KeyStore, Tried};
use firstcome_store::{FaultKind, LockStore, StoreError};

const EVICT: [&str; 4] = ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"];
const KEEP: [&str; 4] = ["CONFIG", "SET", "maxmemory-policy", "noeviction"];

fn request(number: u64) -> Request {
    Request { client: ClientId(1), number }
}

fn name(lock: &str) -> LockName {
    LockName::parse(lock).expect("a name")
}

fn acquire(lock: &str, number: u64) -> Step {
    let owner = OwnerName::parse("ann").expect("an owner");
    let waiter = Waiter { request: request(number), owner, lease_ms: 60_000, mode: Mode::ALONE };
    Step::Acquire { name: name(lock), waiter, wait: Wait::No }
}

fn is_unfit<T>(told: &Result<T, StoreError>) -> bool {
    matches!(told, Err(StoreError::Faulted(fault)) if fault.kind == FaultKind::Unfit)
}

/// Tries with a new word each time until a try is refused because the server is unfit.
async fn until_refused<S: KeyStore>(locks: &S) {
    let mut number = 0;
    wait_for("a refusal", async || {
        number += 1;
        is_unfit(&locks.take(&format!("refused-{number}"), "word", 1_000).await).then_some(())
    })
    .await;
}

async fn until_taken<S: KeyStore>(locks: &S, key: &str) {
    wait_for("a grant", async || matches!(locks.take(key, "word", 60_000).await, Ok(Tried::Taken(_))).then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_not_granted_while_the_server_may_evict_them_and_holders_keep_theirs() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let locks = RedisLocks::open(&server.url(), ClientId(1), patient()).await.expect("it can be used");
        let granted = locks.take(acquire("held", 1)).await.expect("an answer");
        assert!(matches!(granted.said, LockAnswer::Acquired(Acquired::Granted(_))), "{granted:?}");
        server.ask(&EVICT).await;
        let mut number = 1;
        wait_for("a refusal", async || {
            number += 1;
            is_unfit(&locks.take(acquire(&format!("refused-{number}"), number)).await).then_some(())
        })
        .await;
        // A client that holds one keeps it, and can give it back.
        let renewal = Renewal { name: name("held"), request: request(1), lease_ms: 60_000 };
        let renewed = locks.take(Step::Renew { bucket: bucket_of(&name("held")), renewals: vec![renewal] }).await;
        let Ok(LockAnswer::Renewed(ends)) = renewed.map(|answer| answer.said) else { panic!("it is renewed") };
        assert!(ends.iter().all(Option::is_some));
        let release = Step::Release { name: name("held"), request: request(1), copies: Copies::One };
        let released = locks.take(release).await.expect("an answer");
        assert!(matches!(released.said, LockAnswer::Released(Released::Released)), "{released:?}");
        server.ask(&KEEP).await;
        wait_for("a grant", async || {
            number += 1;
            let told = locks.take(acquire("again", number)).await;
            matches!(told.map(|answer| answer.said), Ok(LockAnswer::Acquired(Acquired::Granted(_)))).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_in_the_layouts_of_others_are_not_granted_either() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let single = SingleKey::open(&server.url(), patient()).await.expect("it can be used");
        let redisson = Redisson::open(&server.url(), patient()).await.expect("it can be used");
        until_taken(&single, "held").await;
        server.ask(&EVICT).await;
        until_refused(&single).await;
        until_refused(&redisson).await;
        assert!(single.renew("held", "word", 60_000).await.expect("an answer"));
        server.ask(&KEEP).await;
        until_taken(&single, "again").await;
        until_taken(&redisson, "again-too").await;
    })
    .await;
}
