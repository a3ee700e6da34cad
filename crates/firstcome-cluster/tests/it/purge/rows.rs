//! Rows that are older than their retention go, and what was told stays true.

use super::{DAY_MS, done, purge, retention};
use crate::claim_replies::{COUPON, by, claim, coupon, keyed, limit, new, put, refusal};
use crate::room;
use crate::world::{Foreign, TestDeployment, World, secret, wait_for};
use firstcome_cluster::{Cluster, Verified, verify};
use firstcome_store::core::coupon::{CouponSettings, CouponState, Effect, Rejection};
use firstcome_store::core::room::{Departure, RoomSettings, TicketState};
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::{Clock as _, ManualClock};
use firstcome_store::purge::{PurgeRejection, PurgeRequest, PurgeStore as _, Purged, Retention};
use firstcome_store::{CouponStore, Joining, ReceiptStore, RedeemRequest, RoomStore, StoreError};
use firstcome_test_servers::Kind;
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn verified(place: &TestDeployment) -> Verified {
    verify(&place.sql, Some(&place.redis), Some(secret())).await.unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn breaches(verified: &Verified) -> u64 {
    verified.checks.iter().map(|check| check.breaches).sum()
}

pub(super) async fn is_sound(place: &TestDeployment) {
    let verified = verified(place).await;
    assert_eq!(breaches(&verified), 0, "{verified:?}");
}

pub(super) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_us(1_700_000_000_000_000).expect("an instant")))
}

/// The rows of claims, redemptions and requests.
async fn rows(foreign: &mut Foreign) -> [i64; 3] {
    let mut counts = [0; 3];
    for (count, table) in counts.iter_mut().zip(["claim", "redemption", "coupon_request"]) {
        *count = foreign.number(&format!("SELECT COUNT(*) FROM firstcome_{table}")).await;
    }
    counts
}

/// A node says that it shows no claims of the coupon, rather than that there were none.
async fn says_purged(node: &Cluster) {
    let view = node.coupon(&coupon(COUPON)).await.expect("it answers").expect("it is there");
    let purged = Rejection::Purged(view.purged_at.expect("it is purged"));
    let of_ann = node.claim_of(&coupon(COUPON), "ann").await.expect("it answers");
    assert_eq!(of_ann.expect_err("none is kept").rejection, purged);
    let all = node.claims(&coupon(COUPON), None, 10).await.expect("it answers");
    assert_eq!(all.expect_err("none is kept").rejection, purged);
    let receipt = node.claim_receipt(&coupon(COUPON), "ann").await.expect("it answers");
    assert_eq!(receipt.expect_err("none is kept").rejection, purged);
}

async fn redeem(node: &Cluster, code: &str) -> Option<Rejection> {
    let redeem = RedeemRequest { code: code.to_owned(), user: None, request: keyed("ann", 90, 1).request };
    node.redeem(&coupon(COUPON), redeem).await.expect("it answers").err().map(|refused| refused.rejection)
}

fn claims_after(days: u64) -> Retention {
    let mut retention = retention(100_000);
    retention.claims = Some(Duration::from_secs(days * 86_400));
    retention
}

async fn claims_go(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let (place, clock) = (world.place().await, clock());
    let nodes = [place.node_by(Arc::clone(&clock)).await, place.node_by(Arc::clone(&clock)).await];
    let mut foreign = place.foreign().await;
    put(&nodes[0], limit(9)).await;
    let kept = coupon("kept");
    nodes[0].put_coupon(&kept, limit(9)).await.expect("it answers").expect("it may be");
    nodes[0].claim(&kept, keyed("ann", 1, 1)).await.expect("it answers").expect("it is one");
    let ann = new(nodes[0].claim(&coupon(COUPON), keyed("ann", 1, 1)).await);
    for user in ["bob", "cid"] {
        new(claim(&nodes[1], user).await);
    }
    assert_eq!(redeem(&nodes[0], ann.code.as_str()).await, None);
    assert_eq!(rows(&mut foreign).await, [4, 1, 3]);
    // What is not over stays.
    clock.pass_ms(50 * DAY_MS);
    assert_eq!(done(purge(&nodes[0], &claims_after(2)).await), Purged::default());
    nodes[0].delete_coupon(&coupon(COUPON)).await.expect("it answers").expect("it may be");
    clock.pass_ms(DAY_MS);
    assert_eq!(done(purge(&nodes[0], &claims_after(2)).await), Purged::default());
    clock.pass_ms(DAY_MS);
    let purged = done(purge(&nodes[0], &claims_after(2)).await);
    assert_eq!((purged.claims, purged.coupons, purged.requests), (3, 1, 2));
    assert_eq!(rows(&mut foreign).await, [1, 0, 1]);
    assert_eq!(done(purge(&nodes[1], &claims_after(2)).await), Purged::default());
    is_sound(&place).await;
    for node in &nodes {
        assert_eq!(refusal(claim(node, "ann").await), Rejection::Deleted);
        assert_eq!(refusal(claim(node, "new").await), Rejection::Deleted);
        assert_eq!(redeem(node, ann.code.as_str()).await, Some(Rejection::Deleted));
        says_purged(node).await;
        let again = node.put_coupon(&coupon(COUPON), limit(20)).await.expect("it answers");
        assert_eq!(again.expect_err("it is over").rejection, Rejection::Deleted);
        let view = node.coupon(&coupon(COUPON)).await.expect("it answers").expect("it is there");
        assert_eq!(view.issued, 3);
        let told = node.claim(&kept, keyed("ann", 1, 1)).await.expect("it answers");
        assert!(matches!(told, Ok(Effect::Again(_))), "{told:?}");
    }
    // Without the mark the missing claims are a breach.
    foreign.say(&format!("UPDATE firstcome_coupon SET purged_at=NULL WHERE name='{COUPON}'")).await;
    assert_ne!(breaches(&verified(&place).await), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_a_coupon_that_is_over_go_from_postgres() {
    claims_go(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_a_coupon_that_is_over_go_from_mariadb() {
    claims_go(Kind::MariaDb).await;
}

/// The end of claims and that of redemptions must both be over, and the database has the mark before a node knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_coupon_is_purged_once_no_code_can_be_redeemed() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let (place, clock) = (world.place().await, clock());
    let nodes = [place.node_by(Arc::clone(&clock)).await, place.node_by(Arc::clone(&clock)).await];
    let mut foreign = place.foreign().await;
    let after = |days: i64| Timestamp::from_us(clock.now().as_us() + days * 86_400_000_000);
    let (expires_at, redeem_until) = (after(1), after(4));
    put(&nodes[0], CouponSettings { expires_at, ..limit(2_500) }).await;
    for node in &nodes {
        claim(node, "ann").await.expect("it answers").ok();
    }
    clock.pass_ms(300 * DAY_MS);
    assert_eq!(done(purge(&nodes[0], &claims_after(1)).await), Purged::default(), "codes can be redeemed for good");
    let until = Timestamp::from_us(clock.now().as_us() + 3 * 86_400_000_000);
    put(&nodes[0], CouponSettings { expires_at, redeem_until: until, ..limit(2_500) }).await;
    assert!(redeem_until < until);
    clock.pass_ms(3 * DAY_MS);
    assert_eq!(done(purge(&nodes[0], &claims_after(1)).await), Purged::default());
    // A purge that was killed after it had marked the coupon: no claim is shown or redeemed any more, and the next one goes on.
    let code = nodes[0].claim_of(&coupon(COUPON), "ann").await.expect("it answers").expect("it may be");
    let code = code.expect("a claim").claimed.code;
    foreign.say("UPDATE firstcome_coupon SET purged_at=1,version=version+1").await;
    is_sound(&place).await;
    for node in &nodes {
        says_purged(node).await;
        assert_eq!(redeem(node, code.as_str()).await, Some(Rejection::Expired(until.expect("an end"))));
        assert_eq!(refusal(claim(node, "ann").await), Rejection::Expired(expires_at.expect("an end")));
    }
    let purged = done(purge(&nodes[0], &claims_after(1)).await);
    assert_eq!((purged.claims, purged.coupons), (1, 1));
    is_sound(&place).await;
    for node in &nodes {
        says_purged(node).await;
        assert_eq!(refusal(claim(node, "bob").await), Rejection::Expired(expires_at.expect("an end")));
        let view = node.coupon(&coupon(COUPON)).await.expect("it answers").expect("it is there");
        assert_eq!((view.state, view.issued), (CouponState::Expired, 1));
        assert!(node.put_coupon(&coupon(COUPON), limit(9)).await.expect("it answers").is_err());
    }
    assert_eq!(foreign.issued(COUPON).await, 0);
}

/// A purge by another setting was killed after its first page, and claims are kept for ever since then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_of_claims_that_was_cut_short_is_ended_though_claims_are_kept_for_ever() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let (place, clock) = (world.place().await, clock());
    let node = place.node_by(Arc::clone(&clock)).await;
    let mut foreign = place.foreign().await;
    put(&node, limit(9)).await;
    for user in ["ann", "bob", "cid"] {
        new(claim(&node, user).await);
    }
    let kept = coupon("kept");
    node.put_coupon(&kept, limit(9)).await.expect("it answers").expect("it may be");
    new(node.claim(&kept, by("ann")).await);
    node.delete_coupon(&kept).await.expect("it answers").expect("it may be");
    clock.pass_ms(50 * DAY_MS);
    let by_default = Retention::default();
    assert_eq!(done(purge(&node, &by_default).await), Purged::default());
    let of_coupon = format!("WHERE name='{COUPON}'");
    foreign.say(&format!("UPDATE firstcome_coupon SET purged_at=1,purged_to=1,version=version+1 {of_coupon}")).await;
    let id = format!("(SELECT id FROM firstcome_coupon {of_coupon})");
    foreign.say(&format!("DELETE FROM firstcome_claim WHERE serial=1 AND coupon={id}")).await;
    let purged = done(purge(&node, &by_default).await);
    assert_eq!((purged.claims, purged.coupons), (2, 1));
    assert_eq!((foreign.issued(COUPON).await, foreign.issued("kept").await), (0, 1));
    assert_eq!(done(purge(&node, &by_default).await), Purged::default());
    says_purged(&node).await;
    is_sound(&place).await;
}

async fn requests_end(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let (place, clock) = (world.place().await, clock());
    let nodes = [place.node_by(Arc::clone(&clock)).await, place.node_by(Arc::clone(&clock)).await];
    let (mut foreign, mut keeper) = (place.foreign().await, place.keeper().await);
    put(&nodes[0], limit(9)).await;
    let ann = new(nodes[0].claim(&coupon(COUPON), keyed("ann", 1, 1)).await);
    assert_eq!(redeem(&nodes[1], ann.code.as_str()).await, None);
    clock.pass_ms(20 * DAY_MS);
    let bob = new(nodes[1].claim(&coupon(COUPON), keyed("bob", 2, 1)).await);
    clock.pass_ms(10 * DAY_MS + 1);
    let purged = done(purge(&nodes[1], &retention(30)).await);
    assert_eq!((purged.requests, purged.claims), (2, 0));
    assert_eq!(rows(&mut foreign).await, [2, 1, 1]);
    is_sound(&place).await;
    let keys = keeper.key("keys").await.expect("keys of requests");
    let there: Vec<String> = keeper.ask(&["HKEYS", &keys]).await;
    assert_eq!(there.len(), 2, "that of bob, and the one that keeps the key: {there:?}");
    for node in &nodes {
        assert_eq!(
            node.claim(&coupon(COUPON), keyed("bob", 2, 1)).await.expect("it answers"),
            Ok(Effect::Again(bob.clone()))
        );
        // The same user with the same key has a claim, and not by this request.
        let told = node.claim(&coupon(COUPON), keyed("ann", 1, 1)).await.expect("it answers").expect_err("she has one");
        assert_eq!((told.rejection, told.claim), (Rejection::AlreadyIssued(ann.issued), Some(ann.clone())));
    }
    assert_eq!(new(nodes[0].claim(&coupon(COUPON), keyed("cid", 1, 1)).await).issued.serial.get(), 3);
    // Redis still knows a key that SQL does not hold any more.
    foreign.say("DELETE FROM firstcome_coupon_request WHERE kind=1").await;
    assert_eq!(new(nodes[1].claim(&coupon(COUPON), keyed("dan", 2, 1)).await).issued.serial.get(), 4);
    // And a sequencer that is made again knows neither.
    let sequencer = keeper.key("gate").await.expect("a sequencer");
    let _: i64 = keeper.ask(&["DEL", &sequencer]).await;
    assert_eq!(new(nodes[0].claim(&coupon(COUPON), keyed("eve", 1, 1)).await).issued.serial.get(), 5);
    assert_eq!(refusal(nodes[0].claim(&coupon(COUPON), by("ann")).await), Rejection::AlreadyIssued(ann.issued));
    is_sound(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_requests_end_with_their_days_beside_postgres() {
    requests_end(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_requests_end_with_their_days_beside_mariadb() {
    requests_end(Kind::MariaDb).await;
}

async fn tickets_go(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let (place, clock) = (world.place().await, clock());
    let nodes = [place.node_by(Arc::clone(&clock)).await, place.node_by(Arc::clone(&clock)).await];
    let (mut foreign, mut keeper) = (place.foreign().await, place.keeper().await);
    room::put(&nodes[0], RoomSettings::with_slots(1)).await;
    let (_, ann) = room::join(&nodes[0], room::of("ann")).await;
    room::until("ann to be inside", async || {
        clock.pass_ms(100);
        matches!(room::poll(&nodes[0], &ann.ticket).await.state, TicketState::Admitted { .. }).then_some(())
    })
    .await;
    let (_, bob) = room::join(&nodes[1], room::of("bob")).await;
    // Without a row, a ticket of no user might be one that a loss has made unknown.
    let (_, dan) = room::join(&nodes[1], room::ANYBODY).await;
    for ticket in [&ann.ticket, &bob.ticket, &dan.ticket] {
        nodes[0].leave(&room::room(), ticket).await.expect("it answers").expect("it is one");
    }
    let count = "SELECT (SELECT COUNT(*) FROM firstcome_gone)*10+(SELECT COUNT(*) FROM firstcome_slot)";
    wait_for("three tickets gone, one admission", async || (foreign.number(count).await == 31).then_some(())).await;
    let first = done(purge(&nodes[0], &retention(7)).await);
    assert_eq!(first, Purged::default(), "they have just left");
    clock.pass_ms(8 * DAY_MS);
    let (_, cid) = room::join(&nodes[1], room::of("cid")).await;
    let purged = done(purge(&nodes[1], &retention(7)).await);
    assert_eq!((purged.tickets, purged.admissions), (3, 1));
    is_sound(&place).await;
    // The log is lost, and made again from the rows.
    let log: Vec<String> = keeper.ask(&["KEYS", "fc:{r*"]).await;
    for key in &log {
        let _: i64 = keeper.ask(&["DEL", key]).await;
    }
    for node in &nodes {
        for ticket in [&ann.ticket, &bob.ticket, &dan.ticket] {
            let told = room::poll(node, ticket).await.state;
            assert!(matches!(told, TicketState::Gone(Departure::Left | Departure::Expired)), "{told:?}");
        }
        let told = room::poll(node, &cid.ticket).await.state;
        assert!(!matches!(told, TicketState::Gone(_)), "{told:?}");
    }
    assert_eq!(room::join(&nodes[0], room::of("ann")).await.0, Joining::New);
    is_sound(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_whose_row_was_removed_from_postgres_stays_gone() {
    tickets_go(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_whose_row_was_removed_from_mariadb_stays_gone() {
    tickets_go(Kind::MariaDb).await;
}

/// One node purges at a time, and none by a clock that is obviously wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_needs_the_turn_and_a_clock_that_can_be_right() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let (place, clock) = (world.place().await, clock());
    let node = place.node_by(Arc::clone(&clock)).await;
    let mut foreign = place.foreign().await;
    put(&node, limit(9)).await;
    new(node.claim(&coupon(COUPON), keyed("ann", 1, 1)).await);
    foreign.say("INSERT INTO firstcome_dead_letter VALUES (1,1,1,1,'none','')").await;
    assert_eq!(node.last_purge_age().await.expect("it answers"), None);
    let soon = clock.now().as_us() + 50_000_000;
    foreign.say(&format!("UPDATE firstcome_purge SET node='another',until_at={soon}")).await;
    assert_eq!(purge(&node, &retention(0)).await, Err(PurgeRejection::Running));
    // A node that died gives the turn up by its silence.
    clock.pass_ms(60_000);
    let last = clock.now().as_us() + 4_000_000_000;
    foreign.say(&format!("UPDATE firstcome_coupon SET last_at={last}")).await;
    assert!(matches!(purge(&node, &retention(0)).await, Err(PurgeRejection::ClockBehind(_))));
    foreign.say(&format!("UPDATE firstcome_coupon SET last_at={}", clock.now().as_us())).await;
    foreign
        .say(&format!("UPDATE firstcome_purge SET finished_at={}", clock.now().as_us() - 400 * 86_400_000_000))
        .await;
    assert!(matches!(purge(&node, &retention(0)).await, Err(PurgeRejection::ClockAhead(_))));
    assert_eq!(rows(&mut foreign).await, [1, 0, 1]);
    foreign.say("UPDATE firstcome_purge SET finished_at=NULL").await;
    let purged = done(purge(&node, &retention(0)).await);
    assert_eq!((purged.requests, purged.dead_letters), (1, 1));
    clock.pass_ms(5_000);
    assert_eq!(node.last_purge_age().await.expect("it answers"), Some(Duration::from_secs(5)));
}

/// The turn in the database tells nodes apart; a node tells its own purges apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_runs_one_purge_at_a_time_and_gives_the_turn_back() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let (place, clock) = (world.place().await, clock());
    let node = place.node_by(Arc::clone(&clock)).await;
    put(&node, limit(9)).await;
    new(node.claim(&coupon(COUPON), keyed("ann", 1, 1)).await);
    // Its row is locked by another program, so that the first purge waits in its page.
    let mut other = place.foreign().await;
    other.say("BEGIN").await;
    other.say("SELECT 1 FROM firstcome_coupon_request FOR UPDATE").await;
    let first = tokio::spawn({
        let node = node.clone();
        async move { node.purge(PurgeRequest::new(retention(0))).await }
    });
    let mut foreign = place.foreign().await;
    wait_for("the turn of the first", async || {
        (foreign.number("SELECT until_at FROM firstcome_purge").await != 0).then_some(())
    })
    .await;
    let second = node.purge(PurgeRequest::new(retention(0))).await.expect("it answers");
    assert_eq!(second, Err(PurgeRejection::Running));
    assert_ne!(foreign.number("SELECT until_at FROM firstcome_purge").await, 0, "the first still has the turn");
    other.say("COMMIT").await;
    let purged = done(first.await.expect("it ends").expect("it answers"));
    assert_eq!(purged.requests, 1);
    assert_eq!(done(purge(&node, &retention(0)).await), Purged::default());
}

/// Another node takes the turn of a purge that was not heard of for long, and perhaps gives it back soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_that_lost_the_turn_stops_after_its_page() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let (place, clock) = (world.place().await, clock());
    let node = place.node_by(Arc::clone(&clock)).await;
    let (mut foreign, mut other) = (place.foreign().await, place.foreign().await);
    put(&node, limit(9)).await;
    foreign.say("INSERT INTO firstcome_dead_letter VALUES (1,1,1,1,'none','')").await;
    let letters = "SELECT COUNT(*) FROM firstcome_dead_letter";
    for (number, turn) in [(1, "node='another'"), (2, "node='',until_at=0")] {
        new(node.claim(&coupon(COUPON), keyed(&format!("user-{number}"), number, 1)).await);
        // Its row is locked by another program, so that the purge waits in its page.
        other.say("BEGIN").await;
        other.say("SELECT 1 FROM firstcome_coupon_request FOR UPDATE").await;
        let purging = tokio::spawn({
            let node = node.clone();
            async move { node.purge(PurgeRequest::new(retention(0))).await }
        });
        wait_for("a page that waits", async || (0 < foreign.waiting().await).then_some(())).await;
        foreign.say(&format!("UPDATE firstcome_purge SET {turn}")).await;
        other.say("COMMIT").await;
        let told = purging.await.expect("it ends");
        assert!(matches!(told, Err(StoreError::Busy { .. })), "{turn}: {told:?}");
        assert_eq!(rows(&mut foreign).await[2], 0, "{turn}: its page is removed");
        assert_eq!(foreign.number(letters).await, 1, "{turn}: nothing after it is");
        foreign.say("UPDATE firstcome_purge SET node='',until_at=0").await;
    }
    assert_eq!(done(purge(&node, &retention(0)).await).dead_letters, 1);
}
