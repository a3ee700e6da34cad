//! The library's locks over HTTP, against a real service.

use crate::proxy::{Proxy, until};
use crate::service::{SERVICE, Service, hasty, soon};
use firstcome::lock::{HttpOptions, LockAddress};
use firstcome::{Guarantees, InputError, LockError, Locks};
use firstcome_store::edge::Stopwatch;
use std::time::Duration;

/// Longer than a machine with other work on it stands still.
const LEASE: Duration = Duration::from_millis(1_500);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test]
async fn a_lock_is_handed_over_in_order_with_a_growing_fence() {
    let service = Service::start().await;
    let locks = Locks::http(&service.url(), SERVICE).expect("it can be opened");
    assert_eq!(locks.guarantees(), Guarantees::HTTP);
    let first = soon(locks.lock("report").ordered().fenced().owner("ann").try_acquire()).await.expect("it is free");
    let told = soon(locks.lock("report").try_acquire()).await;
    assert!(matches!(&told, Err(LockError::Contended { holder, .. }) if holder == "ann"), "{told:?}");
    let told = soon(locks.lock("report").wait(ms(50)).acquire()).await;
    assert!(matches!(told, Err(LockError::TimedOut { position: Some(0) })), "{told:?}");
    let waiting = tokio::spawn(locks.lock("report").wait(ms(20_000)).acquire());
    until(async || locks.view("report").await.expect("it is shown").view.waiters == 1).await;
    let fence = first.fence().expect("it has one");
    soon(first.release()).await.expect("it was held");
    let second = soon(waiting).await.expect("no panic").expect("it is handed over");
    assert!(fence < second.fence().expect("it has one"));
    let view = locks.view("report").await.expect("it is shown").view;
    assert_eq!(view.held.map(|(_, fence, _)| fence), second.fence().ok());
    soon(second.release()).await.expect("it was held");
    assert!(locks.view("report").await.expect("it is shown").view.held.is_none());
}

#[tokio::test]
async fn a_hold_is_renewed_past_its_lease_as_long_as_its_guard_lives() {
    let service = Service::start().await;
    let locks = Locks::http(&service.url(), SERVICE).expect("it can be opened");
    let guard = soon(locks.lock("long").lease(LEASE).try_acquire()).await.expect("it is free");
    let (watch, mut ticks) = (Stopwatch::start(), tokio::time::interval(ms(20)));
    while watch.elapsed() < LEASE * 3 {
        ticks.tick().await;
        assert!(!guard.is_lost(), "after {:?}", watch.elapsed());
        let told = soon(locks.lock("long").try_acquire()).await;
        assert!(matches!(told, Err(LockError::Contended { .. })), "{told:?}");
    }
    soon(guard.release()).await.expect("it was held all the time");
    // A fixed hold ends with its lease.
    let guard = soon(locks.lock("long").lease(LEASE).fixed().try_acquire()).await.expect("it is free");
    soon(guard.lost()).await;
    let told = soon(guard.release()).await;
    assert!(matches!(told, Ok(()) | Err(LockError::Lost)), "{told:?}");
}

#[tokio::test]
async fn a_grant_after_a_wait_longer_than_its_lease_is_held() {
    let service = Service::start().await;
    let locks = Locks::http(&service.url(), SERVICE).expect("it can be opened");
    let first = soon(locks.lock("slow").try_acquire()).await.expect("it is free");
    let mut waiting = tokio::spawn(locks.lock("slow").wait(ms(20_000)).lease(LEASE).acquire());
    let early = tokio::time::timeout(LEASE * 2, &mut waiting).await;
    assert!(early.is_err(), "the lock is held: {early:?}");
    soon(first.release()).await.expect("it was held");
    let second = soon(waiting).await.expect("no panic").expect("it is handed over");
    assert!(!second.is_lost());
    soon(second.release()).await.expect("it was held");
}

#[tokio::test]
async fn a_hold_is_lost_when_the_service_is_gone_for_a_lease() {
    let service = Service::start().await;
    let locks = Locks::http_with(&service.url(), SERVICE, hasty()).expect("it can be opened");
    let guard = soon(locks.lock("gone").lease(LEASE).try_acquire()).await.expect("it is free");
    let watch = Stopwatch::start();
    drop(service.stop().await);
    soon(guard.lost()).await;
    assert!(guard.is_lost() && watch.elapsed() < LEASE * 2 + ms(500), "{:?}", watch.elapsed());
    let told = soon(guard.release()).await;
    assert!(matches!(told, Err(LockError::Unavailable(_) | LockError::Unknown)), "{told:?}");
    let told = soon(locks.lock("gone").try_acquire()).await;
    assert!(matches!(told, Err(LockError::Unavailable(_))), "{told:?}");
}

#[tokio::test]
async fn dropping_a_guard_releases_the_lock_in_the_background() {
    let service = Service::start().await;
    let locks = Locks::http(&service.url(), SERVICE).expect("it can be opened");
    let guard = soon(locks.lock("drop").try_acquire()).await.expect("it is free");
    let again = soon(guard.reenter()).await.expect("it is held");
    drop(guard);
    soon(locks.quiet()).await;
    assert!(locks.view("drop").await.expect("it is shown").view.held.is_some(), "there is another guard");
    drop(again);
    soon(locks.quiet()).await;
    assert!(locks.view("drop").await.expect("it is shown").view.held.is_none());
}

#[tokio::test]
async fn a_run_over_http_keeps_its_slot_or_gives_it_back() {
    let service = Service::start().await;
    let locks = || Locks::http(&service.url(), SERVICE).expect("it can be opened");
    // It ends during the test only at midnight before a Thursday.
    let week = Duration::from_secs(7 * 86_400);
    let begin = async |owner: &str| soon(locks().once("weekly", week).owner(owner).begin()).await;
    let failed = begin("ann").await.expect("the slot is free");
    let told = begin("bob").await;
    assert!(matches!(&told, Err(LockError::SlotTaken { holder, .. }) if holder == "ann"), "{told:?}");
    let fence = failed.fence();
    soon(failed.retry()).await.expect("it was held");
    let again = begin("bob").await.expect("the slot was given back");
    assert!(fence < again.fence());
    let slot = again.slot() % 4;
    drop(again);
    // The run ends in the background, and its slot does not.
    until(async || locks().view("weekly").await.expect("it is shown").view.held.is_none()).await;
    let told = begin("cid").await;
    assert!(matches!(&told, Err(LockError::SlotTaken { holder, .. }) if holder == "bob"), "{told:?}");
    let kept = locks().view(&format!("weekly@{slot}")).await.expect("it is shown").view.held;
    assert_eq!(kept.map(|(owner, ..)| owner.to_string()), Some("bob".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_dropped_at_any_point_leaves_nothing_behind() {
    let service = Service::start().await;
    let locks = Locks::http(&service.url(), SERVICE).expect("it can be opened");
    for round in 0..60 {
        let request = locks.lock("given-up").wait(ms(20_000)).acquire();
        let _ = tokio::time::timeout(Duration::from_micros(round * 60), request).await;
    }
    soon(locks.quiet()).await;
    until(async || {
        let view = locks.view("given-up").await.expect("it is shown").view;
        view.held.is_none() && view.waiters == 0
    })
    .await;
}

#[tokio::test]
async fn a_grant_that_was_on_its_way_to_a_dropped_request_is_given_back() {
    let service = Service::start().await;
    let proxy = Proxy::before(service.address).await;
    let locks = Locks::http(&proxy.url(), SERVICE).expect("it can be opened");
    proxy.swallow(1);
    let told = tokio::time::timeout(ms(300), locks.lock("on-its-way").try_acquire()).await;
    assert!(told.is_err(), "the answer does not arrive");
    soon(locks.quiet()).await;
    assert!(locks.view("on-its-way").await.expect("it is shown").view.held.is_none());
}

#[tokio::test]
async fn a_grant_whose_answer_stays_lost_is_given_back() {
    let service = Service::start().await;
    let proxy = Proxy::before(service.address).await;
    let once = HttpOptions { retry_for: Duration::ZERO, ..HttpOptions::default() };
    let locks = Locks::http_with(&proxy.url(), SERVICE, once).expect("it can be opened");
    proxy.lose(1);
    let told = soon(locks.lock("lost").lease(Duration::from_secs(3_600)).try_acquire()).await;
    assert!(matches!(told, Err(LockError::Unknown)), "{told:?}");
    assert_eq!(proxy.lost(), 1);
    soon(locks.quiet()).await;
    assert!(locks.view("lost").await.expect("it is shown").view.held.is_none());
}

#[tokio::test]
async fn a_lost_answer_costs_no_lock() {
    let service = Service::start().await;
    let proxy = Proxy::before(service.address).await;
    let locks = Locks::http(&proxy.url(), SERVICE).expect("it can be opened");
    // The repeat under the same key is the same request.
    proxy.lose(1);
    let guard = soon(locks.lock("lossy").lease(LEASE).wait(ms(20_000)).acquire()).await.expect("it is free");
    assert_eq!(proxy.lost(), 1);
    // A renewal is repeated before the lease ends.
    proxy.lose(1);
    until(async || proxy.lost() == 2).await;
    let lost = tokio::time::timeout(LEASE, guard.lost()).await;
    assert!(lost.is_err() && !guard.is_lost());
    // A release whose answer is lost is a release.
    proxy.lose(1);
    soon(guard.release()).await.expect("it was held until the release");
    assert!(locks.view("lossy").await.expect("it is shown").view.held.is_none());
}

#[tokio::test]
async fn readers_share_a_lock_and_permits_are_counted() {
    let service = Service::start().await;
    let locks = Locks::http(&service.url(), SERVICE).expect("it can be opened");
    let first = soon(locks.lock("book").shared().owner("ann").try_acquire()).await.expect("it is free");
    let second = soon(locks.lock("book").shared().try_acquire()).await.expect("it is shared");
    assert_eq!(first.fence().expect("it has one"), second.fence().expect("it has one"));
    assert_eq!(first.token().expect("it has one"), second.token().expect("it has one"), "a check accepts both");
    assert_eq!(locks.view("book").await.expect("it is shown").view.holders, 2);
    let told = soon(locks.lock("book").try_acquire()).await;
    assert!(matches!(&told, Err(LockError::Contended { holder, .. }) if holder == "ann"), "{told:?}");
    let told = soon(locks.lock("book").permits(2).try_acquire()).await;
    assert!(matches!(&told, Err(LockError::Contended { .. })), "there are two already: {told:?}");
    soon(first.release()).await.expect("it was held");
    let third = soon(locks.lock("book").permits(2).try_acquire()).await.expect("there is room");
    soon(second.release()).await.expect("it was held");
    soon(third.release()).await.expect("it was held");
    let told = soon(locks.lock("book").permits(0).try_acquire()).await;
    assert!(matches!(told, Err(LockError::Input(InputError::Value { field: "permits", .. }))), "{told:?}");
}

#[tokio::test]
async fn an_address_and_its_key_open_the_same_locks() {
    let service = Service::start().await;
    let address: LockAddress = service.url().parse().expect("an address");
    let error = Locks::connect_to(address.clone()).await.expect_err("there is no key");
    assert!(error.to_string().contains("it is empty"), "{error}");
    let connect = Locks::connect_to(address).http_key(SERVICE).http(HttpOptions::default());
    assert!(!format!("{connect:?}").contains("canary"));
    let locks = connect.await.expect("it can be opened");
    let guard = soon(locks.lock("same").try_acquire()).await.expect("it is free");
    assert!(guard.token().is_ok());
    soon(guard.release()).await.expect("it was held");
    let stranger = Locks::http_with(&service.url(), "canary-stranger-0123456789", hasty()).expect("it can be opened");
    let error = soon(stranger.lock("same").try_acquire()).await.expect_err("the key is wrong");
    assert!(error.to_string().contains("unauthorized") && !error.to_string().contains("canary"), "{error}");
}
