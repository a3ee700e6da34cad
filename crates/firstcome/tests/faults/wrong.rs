//! What no caller should ask for.

use super::*;
use firstcome::InputError;
use firstcome::lock::{OpenError, Request};

#[tokio::test]
async fn what_is_not_held_is_neither_renewed_nor_given_back() {
    let Some(server) = Server::start(&[]).await else { return };
    let lease = Duration::from_secs(20);
    let [ours, other] = [open(&server.url()).await, open(&server.url()).await];
    let lost = |said: Result<(), LockError>| assert!(matches!(said, Err(LockError::Lost)), "{said:?}");
    let first = ours.lock("a").lease(lease).acquire().await.unwrap().hand_out().await.unwrap();
    let guard = ours.lock("b").acquire().await.unwrap();
    let waiting = queue(&other, "b", lease).await;
    let unknown = Request { number: first.request.number + 1_000, ..first.request };
    // Not this lock's, no caller's, of a lock that no caller has.
    for (name, request) in [("b", first.request), ("a", unknown), ("b", unknown), ("free", first.request)] {
        lost(other.renew_lease(name, request, lease).await.map(drop));
        lost(other.release_lease(name, request).await);
    }
    for (name, lease) in [("a", Duration::ZERO), ("a", Duration::MAX), ("", lease), ("a b", lease)] {
        let said = other.renew_lease(name, first.request, lease).await;
        assert!(matches!(said, Err(LockError::Input(_))), "{said:?}");
    }
    assert_eq!(held(&ours, "b").await, Some(guard.fence().unwrap().get()));
    assert_eq!((held(&ours, "a").await, waiters(&ours, "b").await), (Some(first.fence.get()), 1));
    assert!(other.renew_lease("a", first.request, lease).await.unwrap() <= lease);
    other.release_lease("a", first.request).await.unwrap();
    lost(other.release_lease("a", first.request).await);
    lost(other.renew_lease("a", first.request, lease).await.map(drop));
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert_nothing_left(&server, &[&ours, &other], &["a", "b", "free"]).await;
}

#[tokio::test]
async fn what_is_out_of_bounds_never_reaches_the_server() {
    let Some(server) = Server::start(&[]).await else { return };
    let locks = open(&server.url()).await;
    let hour = Duration::from_secs(3_600);
    let too_long = "a".repeat(10_000);
    for name in ["", "a b", "a\n", too_long.as_str()] {
        assert!(
            matches!(
                locks.lock(name).try_acquire().await,
                Err(LockError::Input(InputError::Name { field: "lock", .. }))
            ),
            "{name}"
        );
        assert!(
            matches!(locks.view(name).await, Err(LockError::Input(InputError::Name { field: "lock", .. }))),
            "{name}"
        );
    }
    let said = locks.lock("a").owner("").try_acquire().await;
    assert!(matches!(said, Err(LockError::Input(InputError::Name { field: "owner", .. }))), "{said:?}");
    let wrong = [
        ("wait", locks.lock("a").wait(hour + Duration::from_millis(1))),
        ("wait", locks.lock("a").wait(Duration::MAX)),
        ("lease", locks.lock("a").lease(Duration::from_millis(99))),
        ("lease", locks.lock("a").lease(hour * 24 * 8 + Duration::from_millis(1))),
        ("lease", locks.lock("a").lease(Duration::MAX)),
        ("permits", locks.lock("a").permits(0)),
        ("permits", locks.lock("a").permits(1_001)),
        ("cohort", locks.lock("a").cohort(0)),
        ("cohort", locks.lock("a").cohort(1_000_001)),
    ];
    for (wanted, request) in wrong {
        let said = request.acquire().await;
        assert!(
            matches!(said, Err(LockError::Input(InputError::Value { field, .. })) if field == wanted),
            "{wanted}: {said:?}"
        );
    }
    assert_eq!(server.calls("evalsha").await, 0);
}

#[tokio::test]
async fn a_server_that_may_forget_is_named_as_such() {
    let Some(server) = Server::start(&["--maxmemory-policy", "allkeys-lru"]).await else { return };
    let refused = Locks::redis(&server.url()).await.err().unwrap();
    assert!(matches!(&refused, OpenError::Eviction { policy } if policy == "allkeys-lru"), "{refused}");
}
