//! Entries in the outbox that no caller of ours has written.

use crate::claim_replies::{self, COUPON, ClaimReplies, claim, coupon, limit, new, put};
use crate::in_time;
use crate::world::{Keeper, TestDeployment, World, options, wait_for};
use firstcome_cluster::Cluster;
use firstcome_store::core::coupon::Rejection;
use firstcome_store::{CouponStore, StoreError};
use firstcome_test_servers::Kind;
use std::time::Duration;

/// The record of a claim by a user, as a node writes it.
fn record(tag: u64, user: &str) -> Vec<u8> {
    let mut record = tag.to_le_bytes().to_vec();
    record.extend([0, user.len() as u8]);
    record.extend(user.as_bytes());
    record
}

/// Appends an entry that begins with this ticket, and has one claim of each user.
pub(crate) async fn append(keeper: &mut Keeper, outbox: &str, first: u64, users: &[&str]) {
    let records: Vec<u8> = users.iter().zip(70..).flat_map(|(user, tag)| record(tag, user)).collect();
    append_as(keeper, outbox, first + users.len() as u64 - 1, first, &records).await;
}

/// Appends an entry with these bytes for claims.
async fn append_as(keeper: &mut Keeper, outbox: &str, last: u64, first: u64, records: &[u8]) {
    let (id, first) = (format!("{last}-1"), first.to_string());
    let fields: [&[u8]; 13] = [
        b"XADD",
        outbox.as_bytes(),
        id.as_bytes(),
        b"first",
        first.as_bytes(),
        b"version",
        b"1",
        b"at",
        b"1",
        b"node",
        b"0",
        b"claims",
        records,
    ];
    let _: String = keeper.ask_bytes(&fields).await;
}

/// A coupon with room for five, and two claims.
async fn set_up(place: &TestDeployment) -> (Cluster, Keeper, String) {
    let (node, mut keeper) = (place.node().await, place.keeper().await);
    put(&node, limit(5)).await;
    new(claim(&node, "ann").await);
    new(claim(&node, "bob").await);
    wait_for("a sequencer that knows", async || {
        (keeper.sequencer("position").await.as_deref() == Some("2")).then_some(())
    })
    .await;
    let outbox = keeper.key("outbox").await.expect("an outbox");
    (node, keeper, outbox)
}

/// Three more find a place, and no fourth.
async fn fills_up(place: &TestDeployment, node: &Cluster) {
    fills_up_with(place, node, &[("cid", 3), ("dan", 4), ("eve", 5)]).await;
}

async fn fills_up_with(place: &TestDeployment, node: &Cluster, places: &[(&str, u32)]) {
    for &(user, serial) in places {
        assert_eq!(new(in_time(claim(node, user)).await).issued.serial.get(), serial, "{user}");
    }
    assert_eq!(claim_replies::refusal(claim(node, "fay").await), Rejection::SoldOut);
    claim_replies::check_rows(&mut place.foreign().await, COUPON, 5).await;
}

async fn is_put_aside(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    let cut = record(9, "mallory")[..12].to_vec();
    let strange = [record(9, "mallory"), vec![255; 40]].concat();
    let name = record(9, "a'; DROP TABLE firstcome_claim; --");
    let two = [record(8, "mallory"), record(9, "trudy")].concat();
    let rows: [(u64, u64, &[u8]); 7] =
        [(3, 3, b"garbage"), (3, 3, &cut), (4, 3, &strange), (3, 3, &name), (3, 3, &two), (6, 3, &two), (3, 9, &cut)];
    for (last, first, records) in rows {
        let place = world.place().await;
        let (node, mut keeper, outbox) = set_up(&place).await;
        append_as(&mut keeper, &outbox, last, first, records).await;
        keeper.set_gate(&["ticket", &last.to_string()]).await;
        fills_up(&place, &node).await;
        let mut foreign = place.foreign().await;
        assert_eq!(node.counts().dead_letters, 1, "{records:?}");
        assert_eq!(node.counts().rebuilt, 1, "others are not hindered");
        let last = i64::try_from(last).expect("a small number");
        assert_eq!(foreign.number("SELECT COUNT(*) FROM firstcome_dead_letter WHERE generation=1").await, 1);
        assert_eq!(foreign.number("SELECT position FROM firstcome_dead_letter").await, last);
        let record = node.claim_of(&coupon(COUPON), "mallory").await;
        assert_eq!(record.expect("it answers").expect("it is there"), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_caller_can_read_is_put_aside_in_postgres_and_its_place_given_back() {
    is_put_aside(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_caller_can_read_is_put_aside_in_mariadb_and_its_place_given_back() {
    is_put_aside(Kind::MariaDb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_without_fields_of_ours_is_put_aside() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (node, mut keeper, outbox) = set_up(&place).await;
    let _: String = keeper.ask(&["XADD", &outbox, "3-1", "what", "ever"]).await;
    let _: String = keeper.ask(&["XADD", &outbox, "7-1", "first", "minus one", "first", "4"]).await;
    keeper.set_gate(&["ticket", "7"]).await;
    fills_up(&place, &node).await;
    assert_eq!(node.counts().dead_letters, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_delivered_twice_has_one_row_and_gives_the_place_back() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    for users in [&["ann"] as &[&str], &["ann", "bob", "ann"], &["bob", "cid", "cid"]] {
        let place = world.place().await;
        let (node, mut keeper, outbox) = set_up(&place).await;
        append(&mut keeper, &outbox, 3, users).await;
        keeper.set_gate(&["ticket", &(2 + users.len()).to_string()]).await;
        let told = ClaimReplies::default();
        told.crowd(std::slice::from_ref(&node), 0..9).await;
        told.check(&place, std::slice::from_ref(&node), 5).await;
        assert_eq!(node.counts().dead_letters, 0, "{users:?}");
        assert_eq!(node.counts().rebuilt, 1, "{users:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_in_the_way_of_the_next_ticket_ends_that_sequencer() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    for id in ["3-1", "1000-1", "9-7"] {
        let place = world.place().await;
        let (node, mut keeper, outbox) = set_up(&place).await;
        // No ticket was drawn for it.
        let _: String = keeper.ask(&["XADD", &outbox, id, "what", "ever"]).await;
        fills_up(&place, &node).await;
    }
}

/// Claims are under way when it comes: they are written, and then that sequencer ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_in_the_way_behind_good_ones_ends_that_sequencer_when_these_are_written() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    for id in ["9-7", "9-1", "18446744073709551615-1"] {
        let place = world.place().await;
        let (node, mut keeper, outbox) = set_up(&place).await;
        let mut foreign = place.foreign().await;
        foreign.lock(COUPON).await;
        let late = ["cid", "dan"].map(|user| {
            let node = node.clone();
            tokio::spawn(async move { claim(&node, user).await })
        });
        wait_for("tickets", async || (keeper.sequencer("ticket").await.as_deref() == Some("4")).then_some(())).await;
        let _: String =
            keeper.ask(&["XADD", &outbox, id, "first", id, "version", "1", "at", "1", "node", "0", "claims", ""]).await;
        foreign.say("COMMIT").await;
        for claim in late {
            new(in_time(claim).await.expect("it ends"));
        }
        assert_eq!(new(in_time(claim(&node, "eve")).await).issued.serial.get(), 5, "{id}");
        assert_eq!(claim_replies::refusal(claim(&node, "fay").await), Rejection::SoldOut);
        claim_replies::check_rows(&mut foreign, COUPON, 5).await;
    }
}

/// Its key stays the key of any other caller that has it in the meantime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_an_entry_that_no_caller_can_read_is_free_again() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (node, mut keeper, outbox) = set_up(&place).await;
    append_as(&mut keeper, &outbox, 3, 3, b"garbage").await;
    let keys = keeper.key("keys").await.expect("it is there");
    let _: i64 = keeper.ask(&["HSET", &keys, &format!("{:032x}", 7), &format!("{:016x}:3", 1)]).await;
    keeper.set_gate(&["ticket", "3"]).await;
    let told = in_time(node.claim(&coupon(COUPON), claim_replies::keyed("cid", 7, 2))).await;
    assert_eq!(new(told).issued.serial.get(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_knows_what_became_of_a_script_that_failed_in_the_middle() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (admin, mut keeper, _) = set_up(&place).await;
    let _: String = keeper.ask(&["ACL", "SETUSER", "node", "on", ">word", "~*", "&*", "+@all"]).await;
    let mut hasty = options();
    hasty.patience = Duration::from_secs(1);
    hasty.database.connections.answer_timeout = Duration::from_millis(300);
    let node = place.as_redis_user("node", "word").node_with(hasty).await;
    assert!(matches!(claim_replies::refusal(claim(&node, "ann").await), Rejection::AlreadyIssued(_)));
    let _: String = keeper.ask(&["ACL", "SETUSER", "node", "-hset"]).await;
    // The entry comes first, and stands; and no caller can see now what becomes of it.
    let still = world.freeze_sql();
    let told = in_time(claim(&node, "cid")).await;
    drop(still);
    assert!(matches!(told, Err(StoreError::Unknown)), "{told:?}");
    let _: String = keeper.ask(&["ACL", "SETUSER", "node", "+hset"]).await;
    // Perhaps it is done, perhaps not; and once it is.
    let told = ClaimReplies::default();
    wait_for("an answer", async || told.once(&node, "cid").await.then_some(())).await;
    fills_up_with(&place, &node, &[("dan", 4), ("eve", 5)]).await;
    assert_eq!(claim_replies::refusal(claim(&admin, "gil").await), Rejection::SoldOut);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_in_the_tickets_ends_that_sequencer() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (node, mut keeper, outbox) = set_up(&place).await;
    append(&mut keeper, &outbox, 4, &["mallory"]).await;
    keeper.set_gate(&["ticket", "4"]).await;
    fills_up(&place, &node).await;
    assert_eq!(node.counts().rebuilt, 2);
    let record = node.claim_of(&coupon(COUPON), "mallory").await;
    assert_eq!(record.expect("it answers").expect("it is there"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tickets_that_are_gone_from_the_end_of_the_outbox_end_that_sequencer() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (node, mut keeper, _) = set_up(&place).await;
    // All places seem to be taken, and no caller has them.
    keeper.set_gate(&["ticket", "5"]).await;
    fills_up(&place, &node).await;
    assert_eq!(node.counts().rebuilt, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_had_a_ticket_in_an_entry_that_no_caller_can_read_gets_another() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (node, mut keeper, outbox) = set_up(&place).await;
    append_as(&mut keeper, &outbox, 3, 3, b"garbage").await;
    let users = keeper.key("users").await.expect("it is there");
    let _: i64 = keeper.ask(&["HSET", &users, "cid", "3"]).await;
    keeper.set_gate(&["ticket", "3"]).await;
    fills_up(&place, &node).await;
    assert_eq!((node.counts().dead_letters, node.counts().rebuilt), (1, 1));
}
