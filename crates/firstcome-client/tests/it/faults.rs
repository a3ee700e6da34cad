//! Lost answers, wrong keys, and services that are not there.

use crate::proxy::Proxy;
use crate::service::{ADMIN, SERVICE, Service, hasty, soon};
use firstcome_client::{HttpOptions, HttpStore};
use firstcome_store::core::coupon::{Claim, CouponLimit, CouponSettings, Effect, Rejection};
use firstcome_store::core::id::{CouponName, MemberName, RequestId, UserId};
use firstcome_store::core::points::Amount;
use firstcome_store::{AuctionStore, Claimed, CouponStore, FaultKind, MovePoints, Refused, StoreError, Transfer};
use std::sync::Arc;
use std::time::Duration;

fn launch() -> CouponName {
    CouponName::parse("launch").expect("a name")
}

fn limit(count: u32) -> CouponSettings {
    CouponSettings::with_limit(CouponLimit::new(count).expect("a limit"))
}

fn claim(user: &str, request: Option<RequestId>) -> Claim {
    Claim { user: UserId::parse(user).expect("a name"), attributes: None, request }
}

fn kind_of(error: &StoreError) -> FaultKind {
    let StoreError::Faulted(fault) = error else { panic!("{error:?}") };
    fault.kind
}

/// A service with a coupon behind a proxy, and a client of the proxy.
async fn lossy(count: u32, options: HttpOptions) -> (Service, Proxy, HttpStore) {
    let service = Service::start().await;
    service.client().put_coupon(&launch(), limit(count)).await.expect("an answer").expect("it is put");
    let proxy = Proxy::before(service.address).await;
    let client = HttpStore::with(&proxy.url(), ADMIN, options).expect("it can be made");
    (service, proxy, client)
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_issued_once_and_told_as_new() {
    let (_service, proxy, client) = lossy(3, HttpOptions::default()).await;
    proxy.lose(2);
    let told = soon(client.claim(&launch(), claim("ann", None))).await.expect("an answer").expect("there are three");
    let Effect::New(claimed) = told else { panic!("the key was drawn for this call: {told:?}") };
    assert_eq!((claimed.issued.serial.get(), proxy.lost()), (1, 2));
    let view = client.coupon(&launch()).await.expect("an answer").expect("it is there");
    assert_eq!(view.issued, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_under_load_issue_exactly_the_limit() {
    let (_service, proxy, client) = lossy(20, HttpOptions::default()).await;
    let client = Arc::new(client);
    proxy.lose(25);
    let tasks: Vec<_> = (0..40)
        .map(|number| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { client.claim(&launch(), claim(&format!("user{number}"), None)).await })
        })
        .collect();
    let mut serials = Vec::new();
    for task in tasks {
        let told: Result<Effect<Claimed>, Refused> = soon(task).await.expect("no panic").expect("an answer");
        match told {
            Ok(effect) => serials.push(effect.into_inner().issued.serial.get()),
            Err(refused) => assert_eq!(refused.rejection, Rejection::SoldOut),
        }
    }
    serials.sort_unstable();
    assert_eq!(serials, Vec::from_iter(1..=20), "each claim was told to one user");
    assert_eq!(proxy.lost(), 25);
    let page = client.claims(&launch(), None, 100).await.expect("an answer").expect("it is there");
    assert_eq!(page.items.len(), 20);
}

#[tokio::test]
async fn a_claim_without_any_answer_is_unknown_and_its_repeat_tells() {
    let (_service, proxy, client) = lossy(3, hasty()).await;
    let request = Some(RequestId { key: 7, body: 70 });
    proxy.lose(usize::MAX);
    let told = soon(client.claim(&launch(), claim("ann", request))).await;
    assert!(matches!(told, Err(StoreError::Unknown)), "{told:?}");
    assert!(1 < proxy.lost(), "it was repeated");
    proxy.lose(0);
    let told = soon(client.claim(&launch(), claim("ann", request))).await.expect("an answer").expect("it is hers");
    let Effect::Again(claimed) = told else { panic!("{told:?}") };
    assert_eq!(claimed.issued.serial.get(), 1);
}

#[tokio::test]
async fn a_charge_without_a_key_whose_answer_is_lost_is_made_once() {
    let (_service, proxy, client) = lossy(1, HttpOptions::default()).await;
    let ann = MemberName::parse("ann").expect("a name");
    let amount = Amount::new(100).expect("an amount");
    proxy.lose(1);
    let movement = MovePoints { transfer: Transfer::Charge, amount, request: None };
    let told = soon(client.move_points(&ann, movement)).await.expect("an answer").expect("it is taken");
    assert!(matches!(told, Effect::New(balance) if balance.total() == 100), "{told:?}");
    assert_eq!((client.balance(&ann).await.expect("an answer").total(), proxy.lost()), (100, 1));
}

#[tokio::test]
async fn settings_whose_answer_is_lost_are_unknown_and_not_put_again() {
    let (service, proxy, client) = lossy(3, HttpOptions::default()).await;
    proxy.lose(1);
    let told = soon(client.put_coupon(&launch(), limit(5))).await;
    assert!(matches!(told, Err(StoreError::Unknown)), "{told:?}");
    assert_eq!(proxy.lost(), 1, "a second copy could undo another operator's change");
    let view = service.client().coupon(&launch()).await.expect("an answer").expect("it is there");
    assert_eq!(view.settings, limit(5));
}

#[tokio::test]
async fn a_wrong_key_is_an_error_that_says_so_and_shows_no_key() {
    let (service, _, _) = lossy(3, hasty()).await;
    for (key, code) in [("canary-stranger-0123456789", "unauthorized"), (SERVICE, "forbidden")] {
        let client = HttpStore::with(&service.url(), key, hasty()).expect("it can be made");
        let error = soon(client.put_coupon(&launch(), limit(5))).await.expect_err("it may not");
        assert_eq!(kind_of(&error), FaultKind::Unfit);
        let text = format!("{error} {error:?} {client:?}");
        assert!(text.contains(code) && !text.contains("canary"), "{text}");
    }
    let stranger = HttpStore::with(&service.url(), "canary-stranger-0123456789", hasty()).expect("it can be made");
    let error = soon(stranger.claim(&launch(), claim("ann", None))).await.expect_err("it may not");
    assert_eq!(kind_of(&error), FaultKind::Unfit);
}

#[tokio::test]
async fn a_service_that_is_down_did_nothing() {
    let (service, _, _) = lossy(3, hasty()).await;
    let client = HttpStore::with(&service.url(), ADMIN, hasty()).expect("it can be made");
    let address = service.address;
    let store = service.stop().await;
    let error = soon(client.claim(&launch(), claim("ann", None))).await.expect_err("it is down");
    assert_eq!(kind_of(&error), FaultKind::Unreachable);
    let error = soon(client.coupon(&launch())).await.expect_err("it is down");
    assert_eq!(kind_of(&error), FaultKind::Unreachable);
    // The same client goes on when the service is back, also within one call.
    let client = HttpStore::new(&format!("http://{address}"), ADMIN).expect("it can be made");
    let coupon = launch();
    let mut claimed = std::pin::pin!(client.claim(&coupon, claim("ann", None)));
    let told = tokio::time::timeout(Duration::from_millis(100), claimed.as_mut()).await;
    assert!(told.is_err(), "it goes on trying: {told:?}");
    let _service = Service::at(address, store).await;
    let told = soon(claimed).await;
    assert!(matches!(told, Ok(Ok(Effect::New(_)))), "{told:?}");
}

#[tokio::test]
async fn a_service_that_goes_away_during_a_call_leaves_it_unknown() {
    let (service, proxy, client) = lossy(3, hasty()).await;
    proxy.lose(1);
    let claimed = tokio::spawn(async move { client.claim(&launch(), claim("ann", None)).await });
    crate::proxy::until(async || proxy.lost() == 1).await;
    let store = service.stop().await;
    let told = soon(claimed).await.expect("no panic");
    let record = store.claim_of(&launch(), "ann").await.expect("an answer").expect("it is there");
    match told {
        Err(StoreError::Unknown) => assert!(record.is_some(), "it was done, which the client cannot know"),
        // The repeat was quicker than the stop.
        Ok(Ok(Effect::New(_))) => {}
        told => panic!("{told:?}"),
    }
}

#[tokio::test]
async fn https_to_a_service_without_tls_did_nothing() {
    let service = Service::start().await;
    let client = HttpStore::with(&service.url().replace("http://", "https://"), ADMIN, hasty());
    // A machine without certificates cannot make a client for https.
    let Ok(client) = client else { return };
    let error = soon(client.claim(&launch(), claim("ann", None))).await.expect_err("there is no TLS");
    assert_eq!(kind_of(&error), FaultKind::Unreachable);
}
