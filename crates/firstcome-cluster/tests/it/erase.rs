//! What Redis and the tables keep of an erased person.

use crate::world::{Foreign, Keeper, World, secret, wait_for};
use crate::{claim_replies, in_time};
use firstcome_cluster::{Cluster, verify};
use firstcome_store::core::coupon::Claim;
use firstcome_store::core::id::{CouponName, RoomName, UserId};
use firstcome_store::core::room::{Join, RoomSettings};
use firstcome_store::{CouponStore, EraseStore, FaultKind, RoomStore, StoreError};
use firstcome_test_servers::Kind;
use redis::Value;

/// A name that no other bytes are.
const NAME: &str = "canary-of-an-erased-person";
/// Another one.
const OTHER: &str = "canary-of-another-person";

fn user(name: &str) -> UserId {
    UserId::parse(name).expect("a name")
}

/// Whether a text occurs anywhere in an answer of Redis.
fn holds(value: &Value, text: &str) -> bool {
    match value {
        Value::BulkString(bytes) => bytes.windows(text.len()).any(|window| window == text.as_bytes()),
        Value::SimpleString(said) => said.contains(text),
        Value::Array(values) => values.iter().any(|value| holds(value, text)),
        Value::Map(pairs) => pairs.iter().any(|(key, value)| holds(key, text) || holds(value, text)),
        _ => false,
    }
}

/// The keys on Redis whose values hold a text.
async fn keys_with(keeper: &mut Keeper, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for key in keeper.ask::<Vec<String>>(&["KEYS", "fc:*"]).await {
        let value: Value = match keeper.ask::<String>(&["TYPE", &key]).await.as_str() {
            "hash" => keeper.ask(&["HGETALL", &key]).await,
            "stream" => keeper.ask(&["XRANGE", &key, "-", "+"]).await,
            _ => Value::Nil,
        };
        if holds(&value, text) {
            found.push(key);
        }
    }
    found
}

async fn claim(node: &Cluster, coupon: &CouponName, name: &str) {
    let claim = Claim { user: user(name), attributes: None, request: None };
    node.claim(coupon, claim).await.expect("it answers").expect("there is one left");
}

/// The ticket of a user.
async fn join(node: &Cluster, room: &RoomName, name: &str) -> Box<str> {
    let join = Join { user: Some(user(name)), request: None };
    node.join(room, join).await.expect("it answers").expect("it takes tickets").1.ticket
}

/// Claims and tickets that were erased.
async fn erased(node: &Cluster, name: &str) -> (u64, u64) {
    let erased = node.erase(&user(name)).await.expect("it answers").expect("no rule refuses it");
    (erased.claims, erased.tickets)
}

async fn erased_everywhere(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    let node = place.node().await;
    let (launch, sale) = (CouponName::parse("launch").expect("a name"), RoomName::parse("sale").expect("a name"));
    node.put_coupon(&launch, claim_replies::limit(9)).await.expect("it answers").expect("it is put");
    node.put_room(&sale, RoomSettings::with_slots(1)).await.expect("it answers").expect("it is put");
    for name in ["ann", "bob", NAME] {
        let claim = Claim { user: user(name), attributes: None, request: None };
        node.claim(&launch, claim).await.expect("it answers").expect("there is one left");
    }
    // A person who left before is named by the log of the room still; so is one whose place is alive.
    let early = RoomName::parse("early").expect("a name");
    node.put_room(&early, RoomSettings::with_slots(1)).await.expect("it answers").expect("it is put");
    for (room, name) in [(&sale, "bob"), (&sale, NAME), (&early, NAME)] {
        let join = Join { user: Some(user(name)), request: None };
        let (_, told) = node.join(room, join).await.expect("it answers").expect("it takes tickets");
        if *room == early {
            node.leave(room, &told.ticket).await.expect("it answers").expect("it is left");
        }
    }
    let mut keeper = place.keeper().await;
    assert_eq!(keys_with(&mut keeper, NAME).await.len(), 4, "the users, the last entry of the outbox, and two logs");
    let erased = node.erase(&user(NAME)).await.expect("it answers").expect("no rule refuses it");
    assert_eq!((erased.claims, erased.tickets), (1, 1));
    assert_eq!(keys_with(&mut keeper, NAME).await, Vec::<String>::new(), "Redis names the user no more");
    assert!(!keys_with(&mut keeper, "bob").await.is_empty(), "others stay");
    let mut foreign = place.foreign().await;
    for table in ["firstcome_claim", "firstcome_ticket"] {
        let rows = foreign.number(&format!("SELECT COUNT(*) FROM {table} WHERE name='{NAME}'")).await;
        assert_eq!(rows, 0, "{table}");
    }
    let claim = Claim { user: user(NAME), attributes: None, request: None };
    let claimed = node.claim(&launch, claim).await.expect("it answers").expect("there is one left").into_inner();
    assert_eq!(claimed.issued.serial.get(), 4, "a new person");
    assert!(node.erase(&user("nobody")).await.expect("it answers").expect("no rule refuses it").is_nothing());
    // A page of claims may have erased users alone.
    let alone = CouponName::parse("alone").expect("a name");
    node.put_coupon(&alone, claim_replies::limit(9)).await.expect("it answers").expect("it is put");
    let claim = Claim { user: user("ann"), attributes: None, request: None };
    node.claim(&alone, claim).await.expect("it answers").expect("there is one left");
    // The sequencer goes on without a rebuild, and knows no pseudonym of ann.
    assert_eq!(node.erase(&user("ann")).await.expect("it answers").expect("no rule refuses it").claims, 2);
    let verified = wait_for("a cluster at rest", async || {
        let verified = verify(&place.sql, Some(&place.redis), Some(secret())).await.expect("it answers");
        verified.not_checked.is_empty().then_some(verified)
    })
    .await;
    assert!(verified.checks.iter().all(|check| check.breaches == 0), "{verified:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_names_an_erased_user_beside_postgres() {
    in_time(erased_everywhere(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_names_an_erased_user_beside_mariadb() {
    in_time(erased_everywhere(Kind::MariaDb)).await;
}

/// A node that is slow with a rebuild: it has read who has a claim, and brings the name in after SQL has lost it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_under_way_brings_no_erased_name_back() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (node, mut keeper, mut foreign) = (place.node().await, place.keeper().await, place.foreign().await);
    let launch = CouponName::parse("launch").expect("a name");
    node.put_coupon(&launch, claim_replies::limit(9)).await.expect("it answers").expect("it is put");
    for name in [NAME, "bob"] {
        let claim = Claim { user: user(name), attributes: None, request: None };
        node.claim(&launch, claim).await.expect("it answers").expect("there is one left");
    }
    let lease = keeper.key("gate").await.expect("a sequencer").replace(":gate", ":lease");
    let users = keeper.key("users").await.expect("users");
    let ticket: String = keeper.ask(&["HGET", &users, NAME]).await;
    let hold = async |keeper: &mut Keeper| {
        let until_ms = ((keeper.now_us().await + 1_900_000) / 1_000).to_string();
        let _: i64 = keeper.ask(&["HSET", &lease, "node", "slow", "until", &until_ms]).await;
    };
    hold(&mut keeper).await;
    let erasing = tokio::spawn(async move { node.erase(&user(NAME)).await });
    let named = format!("SELECT COUNT(*) FROM firstcome_claim WHERE name='{NAME}'");
    wait_for("an erasure in SQL", async || {
        hold(&mut keeper).await;
        (foreign.number(&named).await == 0).then_some(())
    })
    .await;
    let _: i64 = keeper.ask(&["HSET", &users, NAME, &ticket]).await;
    let _: i64 = keeper.ask(&["DEL", &lease]).await;
    let erased = in_time(erasing).await.expect("it ends").expect("it answers").expect("no rule refuses it");
    assert_eq!(erased.claims, 1);
    assert_eq!(keeper.ask::<Option<String>>(&["HGET", &users, NAME]).await, None);
    assert!(keeper.ask::<Option<String>>(&["HGET", &users, "bob"]).await.is_some(), "others stay");
}

/// What becomes of the connections to Redis when the database goes back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Links {
    Stay,
    Break,
}

/// The database goes back: it lacks the generation that a node knows. Returns when the node stands still.
async fn goes_back(foreign: &mut Foreign, node: &Cluster, (table, name): (&str, &str)) {
    foreign.say(&format!("UPDATE firstcome_{table} SET generation=generation-1 WHERE name='{name}'")).await;
    wait_for("a node that notices", async || node.faults().of(&format!("{table} {name}")).map(drop)).await;
}

/// The newer rows are back. Returns when the nodes go on.
async fn comes_back(foreign: &mut Foreign, nodes: &[&Cluster], (table, name): (&str, &str)) {
    foreign.say(&format!("UPDATE firstcome_{table} SET generation=generation+1 WHERE name='{name}'")).await;
    for node in nodes {
        wait_for("a node that goes on", async || node.faults().open().is_empty().then_some(())).await;
    }
}

/// The erasure ends with the fault of this coupon or room.
async fn refused(node: &Cluster, name: &str, object: &str) {
    match node.erase(&user(name)).await {
        Err(StoreError::Faulted(fault)) => {
            assert_eq!(fault.kind, FaultKind::WentBack);
            assert!(fault.detail.starts_with(object), "{fault}");
        }
        told => panic!("{name}: {told:?}"),
    }
}

async fn rows_with(foreign: &mut Foreign, table: &str, name: &str) -> i64 {
    foreign.number(&format!("SELECT COUNT(*) FROM firstcome_{table} WHERE name='{name}'")).await
}

async fn past_a_room(kind: Kind, links: Links) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    let (node, mut keeper, mut foreign) = (place.node().await, place.keeper().await, place.foreign().await);
    let launch = CouponName::parse("launch").expect("a name");
    node.put_coupon(&launch, claim_replies::limit(9)).await.expect("it answers").expect("it is put");
    let [sale, zoo] = ["sale", "zoo"].map(|name| RoomName::parse(name).expect("a name"));
    for room in [&sale, &zoo] {
        let settings = RoomSettings { paused: true, ..RoomSettings::with_slots(1) };
        node.put_room(room, settings).await.expect("it answers").expect("it is put");
    }
    for name in [NAME, "bob"] {
        claim(&node, &launch, name).await;
        join(&node, &zoo, name).await;
    }
    join(&node, &sale, NAME).await;
    // A person who left is named by the log still.
    let left = join(&node, &sale, OTHER).await;
    node.leave(&sale, &left).await.expect("it answers").expect("it is left");
    goes_back(&mut foreign, &node, ("room", "sale")).await;
    if links == Links::Break {
        let _: i64 = keeper.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await;
        wait_for("both servers", async || node.answers().await.ok()).await;
    }
    for name in [NAME, OTHER] {
        refused(&node, name, "room sale").await;
        assert!(!keys_with(&mut keeper, name).await.is_empty(), "the log is evidence");
    }
    let rows = [rows_with(&mut foreign, "claim", NAME).await, rows_with(&mut foreign, "ticket", NAME).await];
    assert_eq!(rows, [0, 1], "all but the ticket in that room is erased");
    assert_eq!(erased(&node, "bob").await, (1, 1), "a person who was never there");
    assert_eq!(erased(&node, &NAME[..NAME.len() - 1]).await, (0, 0), "a name within a name");
    comes_back(&mut foreign, &[&node], ("room", "sale")).await;
    assert_eq!((erased(&node, NAME).await, erased(&node, OTHER).await), ((0, 1), (0, 0)));
    for name in [NAME, OTHER] {
        assert_eq!(keys_with(&mut keeper, name).await, Vec::<String>::new(), "{name}");
    }
    assert_eq!(rows_with(&mut foreign, "ticket", NAME).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_that_stands_still_on_postgres_refuses_the_erasure_of_its_own_people_alone() {
    in_time(past_a_room(Kind::Postgres, Links::Stay)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_that_stands_still_on_mariadb_refuses_the_erasure_of_its_own_people_alone() {
    in_time(past_a_room(Kind::MariaDb, Links::Stay)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_that_stands_still_refuses_its_own_people_alone_after_a_new_connection() {
    in_time(past_a_room(Kind::Postgres, Links::Break)).await;
}

async fn past_a_coupon(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    let (node, mut keeper, mut foreign) = (place.node().await, place.keeper().await, place.foreign().await);
    let [launch, spare] = ["launch", "spare"].map(|name| CouponName::parse(name).expect("a name"));
    let zoo = RoomName::parse("zoo").expect("a name");
    for coupon in [&launch, &spare] {
        node.put_coupon(coupon, claim_replies::limit(9)).await.expect("it answers").expect("it is put");
    }
    node.put_room(&zoo, RoomSettings::with_slots(9)).await.expect("it answers").expect("it is put");
    for name in [NAME, OTHER] {
        claim(&node, &launch, name).await;
    }
    for name in [NAME, "bob"] {
        claim(&node, &spare, name).await;
        join(&node, &zoo, name).await;
    }
    // What no node can read, and may name anyone.
    foreign.say("INSERT INTO firstcome_dead_letter VALUES (1,1,1,1,'none','bob')").await;
    goes_back(&mut foreign, &node, ("coupon", "launch")).await;
    refused(&node, NAME, "coupon launch").await;
    let rows = [rows_with(&mut foreign, "claim", NAME).await, rows_with(&mut foreign, "ticket", NAME).await];
    assert_eq!(rows, [1, 0], "all but the claim of that coupon is erased");
    assert_eq!(erased(&node, "bob").await, (1, 1), "a person who never claimed it");
    let letters = "SELECT COUNT(*) FROM firstcome_dead_letter WHERE entry='bob'";
    assert_eq!(foreign.number(letters).await, 0, "it is emptied");
    assert_eq!(erased(&node, &NAME[..NAME.len() - 1]).await, (0, 0), "a name within a name");
    // A node that starts now knows nothing by itself.
    let late = place.node().await;
    assert_eq!(erased(&late, "eve").await, (0, 0));
    refused(&late, OTHER, "coupon launch").await;
    assert!(!keys_with(&mut keeper, OTHER).await.is_empty(), "the sequencer is evidence");
    comes_back(&mut foreign, &[&node, &late], ("coupon", "launch")).await;
    assert_eq!(erased(&node, NAME).await, (1, 0));
    erased(&late, OTHER).await;
    for name in [NAME, OTHER] {
        assert_eq!(keys_with(&mut keeper, name).await, Vec::<String>::new(), "{name}");
        assert_eq!(rows_with(&mut foreign, "claim", name).await, 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coupon_that_stands_still_on_postgres_refuses_the_erasure_of_its_own_people_alone() {
    in_time(past_a_coupon(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coupon_that_stands_still_on_mariadb_refuses_the_erasure_of_its_own_people_alone() {
    in_time(past_a_coupon(Kind::MariaDb)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coupon_that_the_database_lacks_refuses_the_erasure_of_its_own_people_alone() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (node, mut foreign) = (place.node().await, place.foreign().await);
    let launch = CouponName::parse("launch").expect("a name");
    node.put_coupon(&launch, claim_replies::limit(9)).await.expect("it answers").expect("it is put");
    claim(&node, &launch, NAME).await;
    foreign.say("DELETE FROM firstcome_claim").await;
    foreign.say("DELETE FROM firstcome_coupon").await;
    refused(&node, NAME, "coupon launch").await;
    assert_eq!(erased(&node, "eve").await, (0, 0));
}
