//! What Redis and the tables keep of an erased person.

use crate::world::{Keeper, World, secret, wait_for};
use crate::{claim_replies, in_time};
use firstcome_cluster::verify;
use firstcome_store::core::coupon::Claim;
use firstcome_store::core::id::{CouponName, RoomName, UserId};
use firstcome_store::core::room::{Join, RoomSettings};
use firstcome_store::{CouponStore, EraseStore, RoomStore};
use firstcome_test_servers::Kind;
use redis::Value;

/// A name that no other bytes are.
const NAME: &str = "canary-of-an-erased-person";

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
    let found = async |keeper: &mut Keeper, text: &str| {
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
    };
    assert_eq!(found(&mut keeper, NAME).await.len(), 4, "the users, the last entry of the outbox, and two logs");
    let erased = node.erase(&user(NAME)).await.expect("it answers").expect("no rule refuses it");
    assert_eq!((erased.claims, erased.tickets), (1, 1));
    assert_eq!(found(&mut keeper, NAME).await, Vec::<String>::new(), "Redis names the user no more");
    assert!(!found(&mut keeper, "bob").await.is_empty(), "others stay");
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
