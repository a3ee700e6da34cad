//! Heads and receipts over HTTP: which callers see them, when they are there, and that a client can check them.

use super::place;
use crate::service::{ADMIN, Ask, SERVICE, STRANGER, Service, config};
use crate::stores::on_each;
use firstcome::core::receipt::Subject;
use firstcome::receipt::ReceiptError;
use firstcome::{HeadPage, Receipt, ReceiptStore};
use serde_json::json;
use std::time::Duration;

const DAY_MS: u64 = 86_400_000;

/// A service that keeps heads for a day.
fn forgetful() -> Service {
    let mut config = config();
    config.retention.heads = Some(Duration::from_millis(DAY_MS));
    Service::memory_with(config)
}

impl Service {
    /// Lets a second pass, and publishes heads.
    async fn publish(&self) {
        self.pass_ms(1_000).await;
        self.store.publish_heads().await.expect("the store answers");
    }

    async fn text_of(&self, path: &str) -> String {
        let answer = self.send(Ask::get(path)).await.is(200);
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
        answer.body()
    }

    async fn receipt(&self, room: &str, ticket: &str) -> Receipt {
        Receipt::parse(&self.text_of(&receipt_of(room, ticket)).await).expect("a receipt")
    }

    async fn heads(&self, path: &str) -> HeadPage {
        HeadPage::parse(&self.text_of(path).await).expect("a page of heads")
    }

    /// Has the service purge, and returns how many heads went.
    async fn purge_heads(&self) -> usize {
        let purged = self.send(Ask::post("/v1/purge").by(ADMIN).json(&json!({}))).await.is(200).json();
        usize::try_from(purged["heads"].as_u64().expect("a number")).expect("few heads")
    }

    /// Lets back ends claim, each one second before the next head.
    async fn publish_claims(&self, users: &[&str]) {
        for user in users {
            self.claim("launch", user).await.is(201);
            self.publish().await;
        }
    }

    /// Asks for the receipt of a claim, which a purge has made impossible.
    async fn has_no_receipt(&self, user: &str) {
        let path = format!("/v1/coupons/launch/claims/{user}/receipt");
        let refused = self.send(Ask::get(&path).by(SERVICE)).await.refused(410, "heads_removed");
        assert_eq!(refused.json().get("removed_to"), None, "no later call brings it");
        assert!(refused.text("detail").contains("can no longer be made"), "{}", refused.body());
    }
}

fn receipt_of(room: &str, ticket: &str) -> String {
    format!("{}/receipt", place(room, ticket))
}

pub(crate) async fn a_receipt_is_there_with_the_next_head_and_anyone_can_check_it() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1})).await;
        let (first, second) = (service.ticket("sale").await, service.ticket("sale").await);
        let pending = service.send(Ask::get(&receipt_of("sale", &first))).await.refused(409, "receipt_pending");
        assert_eq!(pending.header("retry-after"), Some("1"));
        service.publish().await;
        let receipt = service.receipt("sale", &second).await;
        receipt.verify().expect("it is genuine");
        assert_eq!((receipt.statement.subject.number(), receipt.statement.by.sequence), (2, 1));
        let heads = service.heads("/v1/rooms/sale/heads").await;
        heads.verify().expect("one chain");
        assert_eq!(heads.confirm(&receipt), Ok(1));
        // The first visitor takes the slot: a later head shows that the line had reached the turn.
        service.poll("sale", &first).await.is(200);
        service.publish().await;
        service.publish().await;
        let inside = service.receipt("sale", &first).await;
        inside.verify().expect("it is genuine");
        let Subject::Ticket { admission: Some(admission), .. } = &inside.statement.subject else {
            panic!("it names the admission: {}", inside.text())
        };
        assert_eq!(admission.turn, 1);
        let page = service.heads("/v1/rooms/sale/heads?after=1&limit=1").await;
        assert_eq!(page.heads.iter().map(|signed| signed.head.sequence).collect::<Vec<_>>(), [2]);
        service.send(Ask::get("/v1/rooms/sale/heads?before=1")).await.refused(400, "invalid_query");
    })
    .await;
}

pub(crate) async fn the_receipt_of_a_claim_is_for_back_ends_and_its_heads_for_all() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 3})).await;
        let path = "/v1/coupons/launch/claims/ann/receipt";
        let by_back_end = || Ask::get(path).by(SERVICE);
        service.send(by_back_end()).await.refused(404, "unknown_claim");
        service.claim("launch", "ann").await.is(201);
        service.send(by_back_end()).await.refused(409, "receipt_pending");
        service.publish().await;
        service.send(Ask::get(path)).await.refused(401, "unauthorized");
        service.send(Ask::get(path).by(STRANGER)).await.refused(401, "unauthorized");
        let receipt = Receipt::parse(&service.send(by_back_end()).await.is(200).body()).expect("a receipt");
        receipt.verify().expect("it is genuine");
        let heads = service.heads("/v1/coupons/launch/heads").await;
        assert_eq!(heads.confirm(&receipt), Ok(1));
        assert!(!heads.text().contains("ann"), "heads name no user");
        service.send(Ask::get("/v1/coupons/none/heads")).await.refused(404, "unknown_coupon");
        service.send(Ask::get("/v1/coupons/none/claims/ann/receipt").by(ADMIN)).await.refused(404, "unknown_coupon");
    })
    .await;
}

pub(crate) async fn a_receipt_that_was_changed_and_a_second_chain_are_told() {
    let service = Service::memory();
    service.make_room("sale", json!({"max_active": 1})).await;
    let ticket = service.ticket("sale").await;
    service.ticket("sale").await;
    service.publish().await;
    let receipt = service.receipt("sale", &ticket).await;
    let text = receipt.text();
    for (from, to) in
        [("number 1", "number 2"), ("given 2", "given 9"), ("sequence 1", "sequence 2"), ("room sale", "room fair")]
    {
        let changed =
            Receipt::parse(&text.replacen(from, to, 1)).map_err(ReceiptError::from).and_then(|it| it.verify());
        assert!(changed.is_err(), "{from} -> {to}");
    }
    let own = service.heads("/v1/rooms/sale/heads").await;
    let other = Service::memory().first_receipt("sale").await;
    let foreign = Receipt { key: other.key, ..receipt.clone() };
    assert_eq!(foreign.verify(), Err(ReceiptError::Forged), "the key of another service has not signed it");
    assert_eq!(own.confirm(&other), Err(ReceiptError::OtherKey));
    // A service that signs another head of the same sequence shows it by both.
    let mut forked = own.clone();
    forked.heads[0].head.at = firstcome::core::time::Timestamp::MIN;
    assert_eq!(forked.verify(), Err(ReceiptError::Forged));
    assert_eq!(forked.confirm(&receipt), Err(ReceiptError::TwoChains(1)));
    service.send(Ask::get(&receipt_of("sale", &ticket[1..]))).await.refused(404, "unknown_ticket");
    service.make_room("fair", json!({"max_active": 1})).await;
    service.send(Ask::get(&receipt_of("fair", &ticket))).await.refused(404, "unknown_ticket");
}

impl Service {
    /// The receipt of the first ticket of a new room.
    async fn first_receipt(&self, room: &str) -> Receipt {
        self.make_room(room, json!({"max_active": 1})).await;
        let ticket = self.ticket(room).await;
        self.publish().await;
        self.receipt(room, &ticket).await
    }
}

pub(crate) async fn a_visitor_saves_the_receipt_of_the_place_and_a_page_checks_it() {
    let service = Service::memory();
    service.make_room("sale", json!({"max_active": 1})).await;
    service.ticket("sale").await;
    let ticket = service.ticket("sale").await;
    let cookie = format!("firstcome_ticket_sale={ticket}~0");
    let html = |path: &str| Ask::get(path).header("accept", "text/html");
    service.send(html("/rooms/sale/receipt")).await.is(404);
    service.send(html("/rooms/sale/receipt").header("cookie", &cookie)).await.is(409);
    service.publish().await;
    let saved = service.send(html("/rooms/sale/receipt").header("cookie", &cookie)).await.is(200);
    assert_eq!(saved.header("content-disposition"), Some("attachment; filename=\"receipt-room-sale-2.txt\""));
    assert_eq!(saved.body(), service.receipt("sale", &ticket).await.text());
    let page = service.send(html("/rooms/sale").header("cookie", &cookie)).await.body();
    assert!(page.contains("href=\"/rooms/sale/receipt\""), "{page}");
    let checks = service.send(html("/receipts")).await.is(200);
    let policy = checks.header("content-security-policy").expect("a policy");
    assert!(policy.contains("script-src 'self'") && !policy.contains("connect-src"), "it can send nothing: {policy}");
    let checks = checks.body();
    assert_eq!(checks.matches("<script").count(), checks.matches("<script src=\"/assets/receipt.js").count());
    service.send(Ask::get("/assets/receipt.js")).await.is(200);
}

pub(crate) async fn heads_that_a_purge_removed_are_told_from_heads_that_never_were() {
    let service = forgetful();
    service.make_room("sale", json!({"max_active": 1})).await;
    let old = service.ticket("sale").await;
    service.ticket("sale").await;
    for _ in 0..3 {
        service.publish().await;
    }
    let saved = service.receipt("sale", &old).await;
    assert_eq!(service.purge_heads().await, 0, "they are young");
    service.pass_ms(2 * DAY_MS).await;
    service.ticket("sale").await;
    service.publish().await;
    let late = service.ticket("sale").await;
    service.publish().await;
    let before = service.heads("/v1/rooms/sale/heads").await;
    let removed = service.purge_heads().await;
    assert_eq!(removed, 2, "of those of two days ago one stays, since the next one is young");
    for query in ["", "?after=0", &format!("?after={removed}")] {
        let page = service.heads(&format!("/v1/rooms/sale/heads{query}")).await;
        assert_eq!(page.heads[..], before.heads[removed..], "{query}: what stays is as it was");
        page.verify().expect("one chain");
    }
    let refused = service.send(Ask::get("/v1/rooms/sale/heads?after=1")).await.refused(410, "heads_removed");
    assert_eq!(refused.json()["removed_to"], removed);
    assert!(service.heads("/v1/rooms/sale/heads?after=99").await.heads.is_empty());
    // A visitor who asks too late is told so. One who has saved the receipt needs no service.
    service.send(Ask::get(&receipt_of("sale", &old))).await.refused(410, "heads_removed");
    let html = Ask::get("/rooms/sale/receipt").header("accept", "text/html");
    let page = service.send(html.header("cookie", format!("firstcome_ticket_sale={old}~0"))).await.is(410).body();
    assert!(page.contains("can no longer be made"), "{page}");
    saved.verify().expect("it carries its heads");
    before.confirm(&saved).expect("one chain");
    let receipt = service.receipt("sale", &late).await;
    receipt.verify().expect("it is genuine");
    assert_eq!(service.heads("/v1/rooms/sale/heads").await.confirm(&receipt), Ok(2));
}

pub(crate) async fn a_claim_whose_heads_a_purge_removed_has_no_receipt_any_more() {
    let service = forgetful();
    service.make("launch", json!({"limit": 9})).await;
    service.publish_claims(&["ann", "bob", "cid"]).await;
    service.pass_ms(2 * DAY_MS).await;
    service.publish_claims(&["dan"]).await;
    let before = service.heads("/v1/coupons/launch/heads").await;
    let removed = service.purge_heads().await;
    assert_eq!(removed, 2, "of those of two days ago one stays, since the next one is young");
    let page = service.heads("/v1/coupons/launch/heads").await;
    assert_eq!(page.heads[..], before.heads[removed..], "what stays is as it was");
    let refused = service.send(Ask::get("/v1/coupons/launch/heads?after=1")).await.refused(410, "heads_removed");
    assert_eq!(refused.json()["removed_to"], removed);
    for user in ["ann", "bob", "cid"] {
        service.has_no_receipt(user).await;
    }
    let receipt = service.send(Ask::get("/v1/coupons/launch/claims/dan/receipt").by(SERVICE)).await.is(200);
    let receipt = Receipt::parse(&receipt.body()).expect("a receipt");
    receipt.verify().expect("it is genuine");
    assert_eq!(page.confirm(&receipt), Ok(2));
}
