//! Which clients receive pushes.

use super::*;
use crate::edge::Stopwatch;
use std::time::Duration;

/// The latest arrival of a push: a healthy store needs microseconds.
const PUSH_MAX: Duration = Duration::from_secs(10);

async fn arrives(inbox: &Inbox, count: usize) -> Vec<Push> {
    let waited = Stopwatch::start();
    loop {
        let pushes = inbox.pushes();
        if count <= pushes.len() {
            return pushes;
        }
        assert!(waited.elapsed() < PUSH_MAX, "no push arrives: {pushes:?}");
        tokio::task::yield_now().await;
    }
}

pub(super) async fn a_grant_reaches_the_client_that_waits_and_no_other<S: LockStore>(bench: Bench<S>) {
    let inboxes = [1, 2, 3].map(|client| bench.attach(client));
    bench.check(&[(0, ask(1, 1), "granted"), (0, ask(2, 1), "queued 0"), (0, ask(3, 1), "queued 1")]).await;
    bench.check(&[(0, release(1, 1), "released")]).await;
    let pushes = arrives(&inboxes[1], 1).await;
    assert_eq!(pushes, bench.oracle.lock().pushes);
    assert_eq!((pushes[0].name.clone(), pushes[0].grant.fence.get()), (door(), bench.fence(2, 1).await));
    bench.check(&[(0, release(2, 1), "released")]).await;
    arrives(&inboxes[2], 1).await;
    let told: Vec<Push> = inboxes.iter().flat_map(Inbox::pushes).collect();
    assert_eq!(told, bench.oracle.lock().pushes, "each once, and to its own");
    // A step of another process ends a hold that is over. The grant is pushed nevertheless.
    bench
        .check(&[(0, release(3, 1), "released"), (0, ask_for(100, 1, 2), "granted"), (0, ask(2, 2), "queued 0")])
        .await;
    bench.check(&[(110, attempt(3, 2), "held by owner-2, 0 wait")]).await;
    assert_eq!(arrives(&inboxes[1], 2).await[1].grant.request, request(2, 2));
}

pub(super) async fn a_detached_client_is_told_nothing<S: LockStore>(bench: Bench<S>) {
    let (gone, stays) = (bench.attach(2), bench.attach(3));
    bench.check(&[(0, ask(1, 1), "granted"), (0, ask(2, 1), "queued 0"), (0, ask(3, 1), "queued 1")]).await;
    bench.store.detach(ClientId(2));
    bench.check(&[(0, release(1, 1), "released"), (0, release(2, 1), "released")]).await;
    arrives(&stays, 1).await;
    assert_eq!(gone.pushes(), []);
    // The client may come back under the same id.
    let back = bench.attach(2);
    bench.check(&[(0, ask(2, 2), "queued 0"), (0, release(3, 1), "released")]).await;
    arrives(&back, 1).await;
    assert_eq!(gone.pushes(), []);
}
