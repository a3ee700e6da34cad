//! What is answered, and what is told of a hold.

use super::server::{Etcd, LONG, PATIENCE, SHORT, in_time, key, open, until_free, wait_for};
use firstcome::lock::etcd::{self, EtcdOptions, EtcdWrite};
use firstcome::{InputError, LockError, Locks};
use std::time::Duration;

#[tokio::test]
async fn locks_on_etcd_have_the_words_of_the_others() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let (locks, other) = (server.open().await, server.open().await);
        let guard = locks.lock("a").owner("ann").wait(PATIENCE).acquire().await.expect("it is free");
        for (contended, wanted) in [
            (other.lock("a").try_acquire().await, "at once"),
            (other.lock("a").wait(Duration::ZERO).acquire().await, "without a wait"),
            (locks.lock("a").try_acquire().await, "by the same process"),
        ] {
            let Err(LockError::Contended { holder, waiters: 0, ttl }) = &contended else {
                panic!("{wanted}: {contended:?}")
            };
            assert_eq!((holder.as_str(), *ttl), ("ann", Duration::from_secs(300)), "{wanted}");
        }
        let late = other.lock("a").wait(Duration::from_millis(100)).acquire().await.unwrap_err();
        assert!(matches!(late, LockError::TimedOut { position: None }), "{late}");
        wait_for("the place to be given up", async || (server.places("a").len() == 1).then_some(())).await;
        for name in ["a b", "a/b", "", "/a"] {
            let named = locks.lock(name).try_acquire().await;
            assert!(
                matches!(named, Err(LockError::Input(InputError::Name { field: "lock", .. }))),
                "{name}: {named:?}"
            );
        }
        let owned = locks.lock("b").owner("a b").try_acquire().await;
        assert!(matches!(owned, Err(LockError::Input(InputError::Name { field: "owner", .. }))));
        let too_long = locks.lock("b").wait(Duration::from_secs(3_601)).acquire().await;
        assert!(matches!(too_long, Err(LockError::Input(InputError::Value { field: "wait", .. }))));
        let (first, token) = (guard.fence().unwrap(), guard.token().unwrap());
        assert_eq!((token.lock(), token.fence(), guard.name()), ("a", first, "a"));
        let held = locks.view("a").await.expect("it answers").view.held;
        assert_eq!(held.map(|(owner, fence, _)| (owner.to_string(), fence)), Some(("ann".to_owned(), first)));
        assert!(format!("{guard:?}").contains("Guard(a, fence "));
        let left = guard.remaining();
        assert!(Duration::from_secs(200) < left && left <= Duration::from_millis(297_000), "{left:?}");
        guard.release().await.expect("it was held to the end");
        let read = other
            .lock("a")
            .with(async |guard| (guard.fence().unwrap(), guard.token().unwrap()))
            .await
            .expect("held to the end");
        assert!(first < read.0 && read.1 != token);
        assert!(server.places("a").is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_lock_that_was_given_back_is_never_lost_and_a_dropped_one_is_given_back() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let locks = server.open().await;
        let guard = locks.lock("a").acquire().await.expect("it is free");
        let other = locks.lock("other").acquire().await.expect("it is free");
        let lost = guard.lost();
        guard.release().await.expect("held to the end");
        drop(locks.lock("b").acquire().await.expect("it is free"));
        until_free(&locks, "b").await;
        // The lease is over: everything that rests on it is lost.
        etcd::close(&locks).await.expect("it answers");
        other.lost().await;
        assert!(tokio::time::timeout(SHORT, lost).await.is_err(), "it was given back before");
    })
    .await;
}

#[tokio::test]
async fn a_hold_lasts_as_long_as_its_lease_is_renewed() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        // Long enough for a slow machine, which may miss a renewal or two.
        let lease = SHORT * 4;
        let locks = server.open_for(lease).await;
        let guard = locks.lock("a").acquire().await.expect("it is free");
        let lost = tokio::time::timeout(lease * 2, guard.lost()).await;
        assert!(lost.is_err() && !guard.is_lost() && guard.remaining() < lease);
        guard.renew(lease).await.expect("it is held");
        let other = guard.renew(LONG).await;
        assert!(matches!(other, Err(LockError::Unsupported { .. })), "{other:?}");
        guard.release().await.expect("held to the end");
    })
    .await;
}

#[tokio::test]
async fn what_is_written_under_a_lock_is_written_by_its_holder_or_not_at_all() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let (locks, other) = (server.open().await, server.open().await);
        let put = |value: &str| [EtcdWrite::Put { key: b"thing".into(), value: value.into() }];
        let guard = locks.lock("a").acquire().await.expect("it is free");
        let written = etcd::write(&guard, put("first")).await.expect("it is held");
        assert!(guard.fence().unwrap().get() < written && server.ask(&["get", "thing"]).contains("first"));
        // A caller takes the key away: it is noticed when it is used next.
        assert!(
            etcd::link(&other)
                .unwrap()
                .delete(etcd::key(&guard).unwrap(), guard.fence().unwrap().get().cast_signed())
                .await
                .expect("it answers")
        );
        let mut after = other.lock("a").acquire().await.expect("it is free");
        assert!(guard.fence().unwrap() < after.fence().unwrap() && !guard.is_lost());
        assert!(matches!(etcd::write(&guard, put("second")).await, Err(LockError::Lost)));
        guard.lost().await;
        assert!(guard.is_lost() && guard.remaining().is_zero());
        assert!(server.ask(&["get", "thing"]).contains("first"), "a former holder writes");
        assert!(matches!(guard.release().await, Err(LockError::Lost)));
        etcd::write(&after, [EtcdWrite::Delete { key: b"thing".into() }]).await.expect("it is held");
        assert!(server.ask(&["get", "thing"]).is_empty());
        // The same is noticed by a renewal.
        assert!(
            etcd::link(&locks)
                .unwrap()
                .delete(etcd::key(&after).unwrap(), after.fence().unwrap().get().cast_signed())
                .await
                .expect("it answers")
        );
        assert!(matches!(after.renew(LONG).await, Err(LockError::Lost)) && after.is_lost());
        after = other.lock("a").acquire().await.expect("it is free");
        after.renew(LONG).await.expect("it is held");
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_a_caller_ends_is_lost_and_the_next_lock_rests_on_another() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let locks = server.open().await;
        let guard = locks.lock("a").acquire().await.expect("it is free");
        let lease = key(&guard).rsplit('/').next().unwrap_or_default().to_owned();
        let lease = lease.split('-').next().unwrap_or_default().to_owned();
        server.ask(&["lease", "revoke", &lease]);
        assert!(matches!(guard.renew(LONG).await, Err(LockError::Lost)));
        guard.lost().await;
        assert!(matches!(guard.release().await, Err(LockError::Lost)));
        // A waiter whose place went with a lease gets in line again, too.
        let held = locks.lock("b").acquire().await.expect("by another lease");
        let other = server.open().await;
        let waiting = tokio::spawn(other.lock("b").acquire());
        super::server::until_waiting(&locks, "b", 1).await;
        let place = server.places("b").into_iter().max_by_key(|place| *place != key(&held));
        let place = place.expect("two are there");
        let lease = place.rsplit('/').next().and_then(|place| place.split('-').next()).expect("a lease").to_owned();
        server.ask(&["lease", "revoke", &lease]);
        super::server::until_waiting(&locks, "b", 0).await;
        held.release().await.expect("held to the end");
        let granted = waiting.await.expect("it ends").expect("its place went, its wish did not");
        assert!(!granted.is_lost() && server.places("b") == [key(&granted)]);
    })
    .await;
}

#[tokio::test]
async fn options_that_are_out_of_range_are_refused() {
    let mut options = EtcdOptions::default();
    options.lease = Duration::from_millis(999);
    let told = Locks::etcd_with("etcd://127.0.0.1:1", options.clone()).await.map(drop).unwrap_err();
    assert!(told.to_string().contains("1 s to 8 days"), "{told}");
    options.lease = SHORT;
    options.prefix = String::new();
    let told = Locks::etcd_with("etcd://127.0.0.1:1", options).await.map(drop).unwrap_err();
    assert!(told.to_string().contains("1 to 256 bytes"), "{told}");
}

#[tokio::test]
async fn what_is_closed_leaves_nothing_and_can_be_used_again() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let locks = open(server.url(), Duration::from_secs(300)).await;
        let guard = locks.lock("a").acquire().await.expect("it is free");
        assert_ne!(server.ask(&["get", "--prefix", "firstcome/"]), "");
        etcd::close(&locks).await.expect("it answers");
        assert!(guard.is_lost(), "others may have it now");
        assert_eq!(server.ask(&["get", "--prefix", "firstcome/"]), "");
        assert!(matches!(guard.release().await, Err(LockError::Lost)));
        locks.lock("a").acquire().await.expect("by another lease").release().await.expect("held to the end");
        drop(locks);
        wait_for("the lease to end with its owner", async || {
            server.ask(&["get", "--prefix", "firstcome/"]).is_empty().then_some(())
        })
        .await;
    })
    .await;
}
