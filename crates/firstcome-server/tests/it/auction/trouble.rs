//! Stores of members and listings that fail or do not answer, and a service of them alone.

use super::{auction, bid, bids, charge, fixed_price, look, member, purchase, put, records, refund};
use crate::lock;
use crate::room;
use crate::service::{ADMIN, Ask, PATIENCE, Service, claim, config, send};
use crate::stores::{Verdict, scripted};
use axum::Router;
use firstcome::core::auction::{Bid, ListingSettings, PlacedBid, Sale};
use firstcome::core::coupon::Effect;
use firstcome::core::erase::Erased;
use firstcome::core::id::{ListingName, MemberName, UserId};
use firstcome::core::points::{Balance, Record};
use firstcome::core::revision::Revision;
use firstcome::embedded::journal::Outcome;
use firstcome::{
    AuctionAnswer, AuctionStore, Closings, Embedded, EraseAnswer, EraseStore, ListingView, MovePoints, Numbered,
    PlaceBid, Purchase, PurgeAnswer, PurgeRequest, PurgeStore, Put, StoreError,
};
use firstcome_server::{App, api};
use serde_json::json;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Every call of auctions.
fn every_row() -> [Ask; 9] {
    [
        member("ann"),
        records("ann", ""),
        look("lamp"),
        bids("lamp", ""),
        charge("ann", 1),
        refund("ann", 1),
        put("ring", &auction(10)),
        bid("lamp", "bob", 100),
        purchase("vase", "bob"),
    ]
}

pub(crate) async fn a_failed_store_sells_nothing_and_goes_on_showing() {
    for outcome in [Outcome::Nothing, Outcome::Unknown] {
        let (store, clock, script) = scripted();
        let service = Service::new(store, clock, config());
        for _ in 0..4 {
            script.say(Verdict::Commit);
        }
        service.fund(["ann", "bob"], 1_000).await;
        service.list("lamp", &auction(10)).await;
        service.list("vase", &fixed_price()).await;
        script.say(Verdict::Fail(outcome));
        let wanted = if outcome == Outcome::Nothing { "store_unavailable" } else { "outcome_unknown" };
        service.bid("lamp", "ann", 100).await.refused(503, wanted);
        for ask in every_row().into_iter().skip(4) {
            service.send(ask).await.refused(503, "store_unavailable");
        }
        assert_eq!((service.balance("ann").await, service.balance("bob").await), ((1_000, 1_000), (1_000, 1_000)));
        assert_eq!(service.listing("lamp").await["bids"], 0);
        assert_eq!(service.send(bids("lamp", "")).await.is(200).json(), json!({"items": []}));
        assert_eq!(service.movements("ann").await.len(), 1);
    }
}

pub(crate) async fn no_member_is_told_of_a_bid_that_is_not_durable() {
    let (store, clock, script) = scripted();
    let service = Service::new(store, clock, config());
    for _ in 0..2 {
        script.say(Verdict::Commit);
    }
    service.fund(["ann"], 1_000).await;
    service.list("lamp", &auction(10)).await;
    for _ in 0..2 {
        script.begun();
    }
    let placed = crate::trouble::waits(service.send(bid("lamp", "ann", 100))).await;
    script.begun();
    assert_eq!(service.listing("lamp").await["bids"], 0);
    assert_eq!(service.balance("ann").await, (1_000, 1_000));
    script.say(Verdict::CommitAll);
    placed.await.is(201);
    assert_eq!(service.balance("ann").await, (1_000, 900));
}

/// Auctions that do not answer; but some take what is put, say that they cannot show it, and count who asks what a member has.
/// An erasure ends when the test lets it go on.
#[derive(Clone, Default)]
struct Deaf {
    takes_puts: bool,
    asked: Arc<AtomicUsize>,
    go_on: Arc<Notify>,
    erased: Arc<Notify>,
}

impl AuctionStore for Deaf {
    async fn put_listing(&self, _: &ListingName, _: impl Into<Revision<ListingSettings>> + Send) -> AuctionAnswer<Put> {
        if self.takes_puts { Ok(Ok(Put::Created)) } else { pending().await }
    }

    async fn listing(&self, _: &ListingName) -> AuctionAnswer<ListingView> {
        let full = StoreError::busy(Duration::from_millis(1));
        if self.takes_puts { Err(full) } else { pending().await }
    }

    async fn bids(&self, _: &ListingName, _: Option<u64>, _: usize) -> AuctionAnswer<Numbered<Bid>> {
        pending().await
    }

    async fn place_bid(&self, _: &ListingName, _: PlaceBid) -> AuctionAnswer<Effect<PlacedBid>> {
        pending().await
    }

    async fn purchase(&self, _: &ListingName, _: Purchase) -> AuctionAnswer<Effect<Sale>> {
        pending().await
    }

    async fn move_points(&self, _: &MemberName, _: MovePoints) -> AuctionAnswer<Effect<Balance>> {
        pending().await
    }

    async fn balance(&self, _: &MemberName) -> Result<Balance, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if !self.takes_puts {
            pending::<()>().await;
        }
        // So that others come meanwhile.
        tokio::task::yield_now().await;
        Ok(Balance::default())
    }

    async fn records(&self, _: &MemberName, _: Option<u64>, _: usize) -> Result<Numbered<Record>, StoreError> {
        pending().await
    }

    async fn close_due(&self) -> Result<(), StoreError> {
        pending().await
    }

    fn closings(&self) -> Closings {
        Closings::default()
    }
}

impl EraseStore for Deaf {
    async fn erase(&self, _: &UserId) -> EraseAnswer {
        self.go_on.notified().await;
        self.erased.notify_one();
        Ok(Ok(Erased::default()))
    }
}

impl PurgeStore for Deaf {
    async fn purge(&self, _: PurgeRequest) -> PurgeAnswer {
        pending().await
    }
}

fn alone(auctions: impl AuctionStore + EraseStore + PurgeStore + 'static, answer: Duration) -> Router {
    let mut config = config();
    config.limits.answer = answer;
    api::router(Arc::new(App::of_auctions(auctions, config)))
}

pub(crate) async fn an_auction_store_that_does_not_answer_leaves_the_outcome_unknown() {
    let router = alone(Deaf::default(), Duration::from_millis(1));
    for ask in every_row() {
        send(router.clone(), ask).await.refused(503, "outcome_unknown");
    }
    let ready = send(router, Ask::get("/readyz")).await.is(503).json();
    assert_eq!(ready, json!({"ready": false, "reason": "store_unavailable"}));
}

pub(crate) async fn a_store_that_all_nodes_share_takes_no_node_away_while_it_gives_no_answer() {
    let app = Arc::new(App::of_auctions(Deaf::default(), config()));
    let router = api::router(Arc::clone(&app));
    let ask = async |query: &str| send(router.clone(), Ask::get(&format!("/readyz{query}"))).await;
    assert_eq!(ask("").await.is(503).json(), json!({"ready": false, "reason": "store_unavailable"}));
    assert_eq!(ask("?of=node").await.is(200).json(), json!({"ready": true}));
    for query in ["?of=", "?of=nodes", "?of=node&of=node", "?on=node"] {
        ask(query).await.refused(400, "invalid_query");
    }
    app.announce_stop();
    for query in ["", "?of=node"] {
        assert_eq!(ask(query).await.is(503).json(), json!({"ready": false, "reason": "draining"}));
    }
}

pub(crate) async fn an_erasure_goes_on_when_its_caller_has_left() {
    let auctions = Deaf::default();
    let router = alone(auctions.clone(), Duration::from_secs(60));
    let call = Ask::post("/v1/erasures").by(ADMIN).json(&json!({"user": "ann"}));
    drop(crate::trouble::waits(send(router, call)).await);
    auctions.go_on.notify_one();
    tokio::time::timeout(PATIENCE, auctions.erased.notified()).await.expect("it goes on without its caller");
}

pub(crate) async fn what_was_put_is_not_denied_when_it_cannot_be_shown() {
    let auctions = Deaf { takes_puts: true, ..Deaf::default() };
    let router = alone(auctions, Duration::from_secs(10));
    send(router.clone(), put("ring", &auction(10))).await.refused(503, "outcome_unknown");
    send(router, look("ring")).await.refused(503, "overloaded");
}

pub(crate) async fn many_who_ask_whether_it_is_ready_are_one_question_to_the_store() {
    let auctions = Deaf { takes_puts: true, ..Deaf::default() };
    let router = alone(auctions.clone(), Duration::from_secs(10));
    let asked: Vec<_> = (0..50).map(|_| tokio::spawn(send(router.clone(), Ask::get("/readyz")))).collect();
    for asked in asked {
        asked.await.expect("no task fails").is(200);
    }
    // Another one if the test stands still for longer than an answer counts.
    let questions = auctions.asked.load(Ordering::Relaxed);
    assert!((1..10).contains(&questions), "{questions} questions");
}

pub(crate) async fn a_service_of_members_and_listings_alone_serves_no_other_rows() {
    let router = alone(Embedded::memory(), Duration::from_secs(10));
    let ask = async |ask: Ask| send(router.clone(), ask).await;
    for row in [
        Ask::put("/v1/coupons/launch").by(ADMIN).json(&json!({"limit": 1})),
        Ask::get("/v1/coupons/launch"),
        claim("launch", "ann"),
        Ask::put("/v1/rooms/sale").by(ADMIN).json(&json!({"max_active": 1})),
        room::join("sale"),
        Ask::get(&room::place("sale", "x")),
        Ask::get("/v1/pass-keys"),
        lock::acquire("door", "ann", 0, 100),
        lock::look("door"),
    ] {
        ask(row).await.refused(404, "not_served");
    }
    ask(charge("ann", 500)).await.is(200);
    ask(put("vase", &fixed_price())).await.is(201);
    ask(purchase("vase", "ann")).await.is(201);
    ask(Ask::get("/readyz")).await.is(200);
    let metrics = ask(Ask::get("/metrics").by(ADMIN)).await.is(200).body();
    assert!(metrics.contains("firstcome_purchases_total 1") && !metrics.contains("firstcome_store_coupons"));
    let page = ask(Ask::get("/")).await.is(200).body();
    assert!(page.contains("<dd>members and listings</dd>") && !page.contains("in memory only"), "{page}");
}
