//! What `verify` says of sound and of damaged deployments, and how `reconcile` sorts and repairs the damage.

mod heads;
mod repairs;

use crate::claim_replies::{self, COUPON, ClaimReplies, claim, coupon, keyed, limit, new, put};
use crate::in_time;
use crate::poison::append;
use crate::world::{Foreign, Keeper, SECRET, TestDeployment, World, options, secret, wait_for};
use firstcome_cluster::{
    Cluster, ClusterError, DeploymentSecret, Object, Reconciled, Repair, Verified, accept_loss, migrate, reconcile,
    repair, verify,
};
use firstcome_store::core::coupon::{Acknowledge, CouponSettings};
use firstcome_store::core::id::{RoomName, UserId};
use firstcome_store::core::room::{Join, RoomSettings, TicketState};
use firstcome_store::{CouponStore, ReceiptStore, RedeemRequest, RoomStore};
use firstcome_test_servers::Kind;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const ROOM: &str = "hall";

fn room() -> RoomName {
    RoomName::parse(ROOM).expect("a name")
}

async fn verified(place: &TestDeployment) -> Verified {
    verify(&place.sql, Some(&place.redis), Some(secret())).await.unwrap_or_else(|error| panic!("{error}"))
}

/// The invariants that are broken, with their examples.
fn broken(verified: &Verified) -> Vec<(&'static str, String)> {
    let broken = verified.checks.iter().filter(|check| 0 < check.breaches);
    broken.map(|check| (check.invariant, check.examples.join("; "))).collect()
}

#[track_caller]
fn is_sound(verified: &Verified) {
    assert_eq!(broken(verified), []);
}

fn checked(verified: &Verified, invariant: &str) -> u64 {
    let check = verified.checks.iter().find(|check| check.invariant.starts_with(invariant));
    check.unwrap_or_else(|| panic!("no invariant {invariant}")).checked
}

async fn reconciled(place: &TestDeployment) -> Reconciled {
    reconcile(&place.redis, &place.sql).await.unwrap_or_else(|error| panic!("{error}"))
}

async fn repaired(place: &TestDeployment) -> Reconciled {
    repair(&place.redis, &place.sql, secret(), options()).await.unwrap_or_else(|error| panic!("{error}"))
}

/// What was found that is not fine, as codes of one object.
fn states(reconciled: &Reconciled, of: &Object) -> Vec<&'static str> {
    let found = reconciled.findings.iter().filter(|finding| finding.object == *of);
    found.map(|finding| finding.state.code()).filter(|code| *code != "fine" && *code != "dead_letters").collect()
}

fn needs_repair(reconciled: &Reconciled) -> usize {
    reconciled.findings.iter().filter(|finding| finding.needs_repair()).count()
}

fn sequencer() -> Object {
    Object::Coupon(COUPON.to_owned())
}

fn log() -> Object {
    Object::Room(ROOM.to_owned())
}

/// Waits until both sides agree: what a node has told may not have been said everywhere yet.
async fn at_rest(place: &TestDeployment) {
    wait_for("rest", async || {
        let now = reconciled(place).await;
        now.findings.iter().all(|finding| ["fine", "dead_letters"].contains(&finding.state.code())).then_some(())
    })
    .await;
}

/// Claims, a redemption, a dead letter, and a room with people in line, inside and gone. The nodes have ended.
async fn set_up(place: &TestDeployment) {
    migrate(&place.sql, options().database).await.expect("the tables are made");
    let nodes = place.nodes(2).await;
    let mut keeper = place.keeper().await;
    put(&nodes[0], limit(9)).await;
    let ann = new(nodes[0].claim(&coupon(COUPON), keyed("ann", 7, 1)).await);
    for (node, user) in nodes.iter().zip(["bob", "cid"]) {
        new(claim(node, user).await);
    }
    wait_for("a sequencer that knows", async || {
        (keeper.sequencer("position").await.as_deref() == Some("3")).then_some(())
    })
    .await;
    let redeem = RedeemRequest { code: ann.code.as_str().to_owned(), user: None, request: None };
    nodes[1].redeem(&coupon(COUPON), redeem).await.expect("it answers").expect("it is redeemed");
    let outbox = keeper.key("outbox").await.expect("an outbox");
    let _: String = keeper.ask(&["XADD", &outbox, "4-1", "what", "ever"]).await;
    keeper.set_gate(&["ticket", "4"]).await;
    new(claim(&nodes[0], "dan").await);
    nodes[0].put_room(&room(), RoomSettings::with_slots(1)).await.expect("it answers").expect("it is put");
    let mut tickets = Vec::new();
    for user in ["ann", "bob", "cid"] {
        let join = Join { user: Some(UserId::parse(user).expect("a name")), request: None };
        tickets.push(nodes[0].join(&room(), join).await.expect("it answers").expect("there is room").1.ticket);
    }
    nodes[0].join(&room(), Join { user: None, request: None }).await.expect("it answers").expect("there is room");
    wait_for("a slot", async || {
        let told = nodes[1].poll(&room(), &tickets[0]).await.expect("it answers").expect("it is one");
        matches!(told.state, TicketState::Admitted { .. }).then_some(())
    })
    .await;
    nodes[1].leave(&room(), &tickets[2]).await.expect("it answers").expect("it is one");
    nodes[1].publish_heads().await.expect("it answers");
    at_rest(place).await;
    drop(nodes);
    // What they have begun ends with them.
    at_rest(place).await;
}

async fn a_sound_one_is_sound(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    set_up(&place).await;
    let all = verified(&place).await;
    is_sound(&all);
    assert_eq!(all.not_checked, Vec::<String>::new());
    for (invariant, count) in [
        ("no oversell", 1),
        ("one each", 4),
        ("gapless", 4),
        ("an idempotency key has one effect", 1),
        ("a redemption", 1),
        ("a dead letter", 1),
        ("a coupon stands", 1),
        ("in line, in a slot or gone", 3),
        ("an admission stands once", 1),
        ("heads of a room", 2),
        ("the store has all that a head", 2),
        ("every head has a signature", 2),
        ("every secret opens", 4),
        ("an open sequencer", 1),
        ("a sequencer goes on", 1),
        ("a sequencer knows", 5),
        ("what a sequencer counts", 1),
        ("an open log", 1),
        ("records are a chain", 0),
    ] {
        assert_eq!(checked(&all, invariant), count, "{invariant}");
    }
    assert!(4 < checked(&all, "a log leads to"), "tickets, slots and who is gone were compared");
    assert_eq!(needs_repair(&reconciled(&place).await), 0);
    // Without Redis and a secret it says less, and that it does.
    let some = verify(&place.sql, None, None).await.expect("it answers");
    is_sound(&some);
    assert_eq!(all.checks.len() - some.checks.len(), 11);
    let missing = &some.not_checked[0];
    assert!(missing.contains("the signatures of heads") && missing.contains("FIRSTCOME_SECRET"), "{missing}");
    let other = DeploymentSecret::new(&SECRET.replace('a', "b")).expect("it is long enough");
    let wrong = verify(&place.sql, None, Some(other)).await.expect("it answers");
    assert_eq!(
        broken(&wrong).iter().map(|it| it.0).collect::<Vec<_>>(),
        ["every secret opens with that of the deployment"]
    );
    // The keys of another deployment are not compared.
    for mark in ["7", "somebody's"] {
        let _: String = place.keeper().await.ask(&["SET", "fc:deployment", mark]).await;
        let refused = verify(&place.sql, Some(&place.redis), None).await;
        assert!(matches!(refused, Err(ClusterError::OtherDeployment)), "{mark}: {refused:?}");
        let refused = reconcile(&place.redis, &place.sql).await;
        assert!(matches!(refused, Err(ClusterError::OtherDeployment)), "{mark}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sound_deployment_on_postgres_has_no_breach() {
    in_time(a_sound_one_is_sound(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sound_deployment_on_mariadb_has_no_breach() {
    in_time(a_sound_one_is_sound(Kind::MariaDb)).await;
}

/// Damage to the tables, how it is undone, and the beginnings of the invariants that name it.
const ROWS: [(&str, &str, &[&str]); 23] = [
    (
        "UPDATE firstcome_claim SET serial=9 WHERE serial=4",
        "UPDATE firstcome_claim SET serial=4 WHERE serial=9",
        &["gapless"],
    ),
    ("UPDATE firstcome_claim SET issued_at=1 WHERE serial=2", "", &["in order"]),
    (
        "UPDATE firstcome_claim SET name='-' WHERE serial=2",
        "UPDATE firstcome_claim SET name='bob' WHERE serial=2",
        &["users and attributes"],
    ),
    (
        "INSERT INTO firstcome_claim (coupon,serial,name,issued_at,tag) VALUES (77,1,'eve',5,5)",
        "DELETE FROM firstcome_claim WHERE coupon=77",
        &["every claim belongs"],
    ),
    (
        "UPDATE firstcome_coupon SET issued=issued-1",
        "UPDATE firstcome_coupon SET issued=issued+1",
        &["a coupon stands"],
    ),
    (
        "UPDATE firstcome_coupon SET last_at=last_at+1",
        "UPDATE firstcome_coupon SET last_at=last_at-1",
        &["a coupon stands"],
    ),
    (
        "UPDATE firstcome_coupon SET limit_count=2000000000",
        "UPDATE firstcome_coupon SET limit_count=9",
        &["names and settings of coupons"],
    ),
    (
        "UPDATE firstcome_coupon SET limit_count=3,issued=3",
        "UPDATE firstcome_coupon SET limit_count=9,issued=4",
        &["no oversell"],
    ),
    ("UPDATE firstcome_redemption SET serial=8", "UPDATE firstcome_redemption SET serial=1", &["a redemption"]),
    ("UPDATE firstcome_redemption SET redeemed_at=5", "", &["a redemption"]),
    (
        "UPDATE firstcome_coupon_request SET serial=8",
        "UPDATE firstcome_coupon_request SET serial=1",
        &["an idempotency key"],
    ),
    ("UPDATE firstcome_dead_letter SET position=99", "UPDATE firstcome_dead_letter SET position=4", &["a dead letter"]),
    (
        "UPDATE firstcome_ticket SET room=77 WHERE number=2",
        "UPDATE firstcome_ticket SET room=1 WHERE number=2",
        &["every ticket and slot"],
    ),
    (
        "UPDATE firstcome_ticket SET name='ann' WHERE number=2",
        "UPDATE firstcome_ticket SET name='bob' WHERE number=2",
        &["one living place"],
    ),
    (
        "UPDATE firstcome_room SET ceiling=ceiling-65535",
        "UPDATE firstcome_room SET ceiling=ceiling+65535",
        &["no number is above the ceiling"],
    ),
    (
        "INSERT INTO firstcome_slot (room,admission,number,admitted_at,taken,until_steady,ended) \
         SELECT room,admission+1,number,admitted_at,taken,until_steady,ended FROM firstcome_slot; \
         UPDATE firstcome_room SET admissions=2",
        "DELETE FROM firstcome_slot WHERE admission=2; UPDATE firstcome_room SET admissions=1",
        &["an admission stands once"],
    ),
    ("UPDATE firstcome_gone SET number=1", "UPDATE firstcome_gone SET number=3", &["in line, in a slot or gone"]),
    (
        "INSERT INTO firstcome_renewal (room,number,generation,request) VALUES (1,3,1,'0123456789abcdef')",
        "DELETE FROM firstcome_renewal",
        &["a renewal is of a ticket"],
    ),
    (
        "UPDATE firstcome_head SET sequence=2 WHERE kind=1",
        "UPDATE firstcome_head SET sequence=1 WHERE kind=1",
        &["heads of a room"],
    ),
    (
        "UPDATE firstcome_head SET given=given+99999 WHERE kind=1",
        "UPDATE firstcome_head SET given=given-99999 WHERE kind=1",
        &["the store has all that a head"],
    ),
    ("UPDATE firstcome_room SET admissions=0", "UPDATE firstcome_room SET admissions=1", &["an admission stands once"]),
    ("UPDATE firstcome_room SET reached=1", "UPDATE firstcome_room SET reached=2", &["the line has reached"]),
    (
        "UPDATE firstcome_room SET waiting_ttl_ms=0",
        "UPDATE firstcome_room SET waiting_ttl_ms=3600000",
        &["names and settings of rooms"],
    ),
];

async fn damage_to_tables_is_named(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    set_up(&place).await;
    let mut foreign = place.foreign().await;
    for (damage, undone, names) in ROWS {
        // What is not undone by a number is undone by a copy.
        let table = damage.split_whitespace().nth(if damage.starts_with("INSERT") { 2 } else { 1 }).expect("a table");
        let back = format!("DELETE FROM {table};INSERT INTO {table} SELECT * FROM kept;DROP TABLE kept");
        if undone.is_empty() {
            foreign.say(&format!("CREATE TABLE kept AS SELECT * FROM {table}")).await;
        }
        foreign.say(damage).await;
        let found = verify(&place.sql, None, None).await.unwrap_or_else(|error| panic!("{damage}: {error}"));
        let named: Vec<_> = broken(&found);
        for name in names {
            assert!(named.iter().any(|(it, says)| it.starts_with(name) && !says.is_empty()), "{damage}: {named:?}");
        }
        foreign.say(if undone.is_empty() { &back } else { undone }).await;
        is_sound(&verify(&place.sql, None, None).await.expect("it answers"));
    }
    // Two of one user, where a caller has taken the index away.
    let drop_index = match kind {
        Kind::Postgres => "DROP INDEX firstcome_claim_name",
        _ => "ALTER TABLE firstcome_claim DROP INDEX firstcome_claim_name",
    };
    foreign.say(drop_index).await;
    foreign.say("UPDATE firstcome_claim SET name='ann' WHERE serial=2").await;
    let named = broken(&verify(&place.sql, None, None).await.expect("it answers"));
    assert!(named.iter().any(|(it, says)| it.starts_with("one each") && says.contains("ann")), "{named:?}");
    foreign.say("UPDATE firstcome_claim SET name='bob' WHERE serial=2").await;
    is_sound(&verified(&place).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_to_the_tables_is_named_in_postgres() {
    in_time(damage_to_tables_is_named(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_to_the_tables_is_named_in_mariadb() {
    in_time(damage_to_tables_is_named(Kind::MariaDb)).await;
}

/// What is done to one side.
enum Harm {
    Redis(&'static [&'static str]),
    Sql(&'static str),
    /// An entry with this first ticket is appended, whose last ticket is drawn, for one user.
    Entry(u64, &'static str),
}

use Harm::{Entry, Redis, Sql};

/// What is done, how it is sorted, and the beginning of the invariant that it breaks, if it does.
const HARMS: [(&str, Harm, &[&str], &str); 18] = [
    ("a sequencer that is gone", Redis(&["DEL", "fc:{c1}:gate"]), &["missing"], ""),
    ("all is gone", Redis(&["FLUSHDB"]), &["missing"], ""),
    (
        "another generation",
        Redis(&["HSET", "fc:{c1}:gate", "generation", "0"]),
        &["other_generation"],
        "an open sequencer",
    ),
    ("behind", Redis(&["HSET", "fc:{c1}:gate", "ticket", "2"]), &["behind"], "a sequencer goes on"),
    ("no counts", Redis(&["HSET", "fc:{c1}:gate", "ticket", "x"]), &["torn"], "a sequencer goes on"),
    ("no outbox", Redis(&["DEL", "fc:{c1}:outbox:1"]), &["torn"], "a sequencer goes on"),
    ("tickets in no entry", Redis(&["HSET", "fc:{c1}:gate", "ticket", "7"]), &["torn"], "a sequencer goes on"),
    ("a gap", Entry(7, "eve"), &["torn"], "a sequencer goes on"),
    ("a wrong count", Redis(&["HSET", "fc:{c1}:gate", "void", "3"]), &["miscounted"], "what a sequencer counts"),
    ("another limit", Redis(&["HSET", "fc:{c1}:gate", "limit", "99"]), &["other_settings"], "a sequencer judges"),
    ("a user is gone", Redis(&["HDEL", "fc:{c1}:users:1", "bob"]), &["user_not_in_gate"], "a sequencer knows"),
    ("all keys are gone", Redis(&["DEL", "fc:{c1}:keys:1"]), &["user_not_in_gate"], "a sequencer knows"),
    ("a user of nowhere", Redis(&["HSET", "fc:{c1}:users:1", "eve", "3"]), &["user_not_in_sql"], ""),
    ("an invalid user", Redis(&["HSET", "fc:{c1}:users:1", "'; --", "99"]), &["user_not_in_sql"], ""),
    ("a claim that waits", Entry(6, "eve"), &["undrained"], ""),
    ("what nobody can read", Entry(6, "-"), &["undrained", "unreadable_entry"], ""),
    ("the database went back", Sql("UPDATE firstcome_coupon SET anchor=anchor+1"), &["torn"], "a sequencer goes on"),
    ("keys of before", Redis(&["SET", "fc:{c1}:users:0", "1"]), &[], ""),
];

async fn harm(harm: &Harm, keeper: &mut Keeper, foreign: &mut Foreign) {
    match harm {
        Redis(command) => drop(keeper.ask::<redis::Value>(command).await),
        Sql(text) => foreign.say(text).await,
        Entry(first, user) => {
            append(keeper, "fc:{c1}:outbox:1", *first, &[user]).await;
            keeper.set_gate(&["ticket", &first.to_string()]).await;
        }
    }
}

/// Each kind of damage to a sequencer, at a place of its own: how it is sorted, which invariant names it, and that all agrees after the repair.
async fn damage_is_sorted_and_repaired(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    for (what, damage, wanted, invariant) in HARMS {
        let place = world.place().await;
        let node = place.node().await;
        let (mut keeper, mut foreign) = (place.keeper().await, place.foreign().await);
        put(&node, limit(9)).await;
        let told = ClaimReplies::default();
        told.note("ann", &node.claim(&coupon(COUPON), keyed("ann", 7, 1)).await);
        told.crowd(std::slice::from_ref(&node), 0..2).await;
        told.note("bob", &claim(&node, "bob").await);
        // One ticket that was given back.
        let outbox = "fc:{c1}:outbox:1";
        wait_for("a sequencer that knows", async || {
            (keeper.sequencer("position").await.as_deref() == Some("4")).then_some(())
        })
        .await;
        append(&mut keeper, outbox, 5, &["bob"]).await;
        keeper.set_gate(&["ticket", "5"]).await;
        drop(node);
        assert_eq!(states(&repaired(&place).await, &sequencer()), ["undrained"], "{what}");
        at_rest(&place).await;

        harm(&damage, &mut keeper, &mut foreign).await;
        let seen = reconciled(&place).await;
        assert_eq!(states(&seen, &sequencer()), *wanted, "{what}: {seen:?}");
        assert_ne!(needs_repair(&seen), 0, "{what}");
        let named = broken(&verified(&place).await);
        if invariant.is_empty() {
            assert_eq!(named, [], "{what}");
        } else {
            assert!(named.len() == 1 && named[0].0.starts_with(invariant), "{what}: {named:?}");
        }
        let done = repaired(&place).await;
        assert_eq!(needs_repair(&done), 0, "{what}: {done:?}");
        at_rest(&place).await;
        is_sound(&verified(&place).await);
        // Nothing that was told is contradicted, and a caller that comes now is served.
        let node = place.node().await;
        told.crowd(std::slice::from_ref(&node), 0..3).await;
        told.note("bob", &claim(&node, "bob").await);
        let waits = u64::from(what == "a claim that waits");
        told.check(&place, std::slice::from_ref(&node), 5 + usize::try_from(waits).expect("small")).await;
        assert_eq!(node.counts().rebuilt, 0, "{what}: the sequencer is whole");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_to_sequencer_is_sorted_and_repaired_on_postgres() {
    in_time(damage_is_sorted_and_repaired(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_to_sequencer_is_sorted_and_repaired_on_mariadb() {
    in_time(damage_is_sorted_and_repaired(Kind::MariaDb)).await;
}

/// The same of logs: what is done, how it is sorted, and the invariant.
const LOG_HARMS: [(&str, Harm, &[&str], &str); 10] = [
    ("a log that is gone", Redis(&["DEL", "fc:{r1}:log"]), &["missing"], ""),
    ("another generation", Redis(&["HSET", "fc:{r1}:log", "generation", "0"]), &["other_generation"], "an open log"),
    ("behind", Redis(&["HSET", "fc:{r1}:log", "position", "1"]), &["behind"], "an open log"),
    ("no image", Redis(&["DEL", "fc:{r1}:image:1"]), &["torn"], "the image of a log"),
    ("no image that can be read", Redis(&["HSET", "fc:{r1}:image:1", "1", "x"]), &["torn"], "the image of a log"),
    ("no entries", Redis(&["DEL", "fc:{r1}:entries:1"]), &["torn"], "the image of a log"),
    (
        "an entry of nobody",
        Redis(&["XADD", "fc:{r1}:entries:1", "999999-1", "what", "ever"]),
        &["torn"],
        "the image of a log",
    ),
    ("another digest", Sql("UPDATE firstcome_room SET digest=digest+1"), &["differs"], "a log leads to"),
    (
        "a renewal that the log lacks",
        Sql("INSERT INTO firstcome_renewal (room,number,generation,request) VALUES (1,1,1,'0123456789abcdef')"),
        &["differs"],
        "a log leads to",
    ),
    ("a slot is over", Sql("UPDATE firstcome_slot SET ended=1"), &["differs"], "a log leads to"),
];

async fn damage_to_logs_is_sorted_and_repaired(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    for (what, damage, wanted, invariant) in LOG_HARMS {
        let place = world.place().await;
        set_up(&place).await;
        let (mut keeper, mut foreign) = (place.keeper().await, place.foreign().await);
        harm(&damage, &mut keeper, &mut foreign).await;
        let seen = reconciled(&place).await;
        assert_eq!(states(&seen, &log()), *wanted, "{what}: {seen:?}");
        let named = broken(&verified(&place).await);
        if invariant.is_empty() {
            assert_eq!(named, [], "{what}");
        } else {
            assert!(named.len() == 1 && named[0].0.starts_with(invariant), "{what}: {named:?}");
        }
        let done = repaired(&place).await;
        assert_eq!(needs_repair(&done), 0, "{what}: {done:?}");
        is_sound(&verified(&place).await);
        let node = place.node().await;
        let join = Join { user: Some(UserId::parse("bob").expect("a name")), request: None };
        let (_, bob) = node.join(&room(), join).await.expect("it answers").expect("there is room");
        assert_eq!(bob.number.get(), 2, "{what}: bob still has his place");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_to_logs_is_sorted_and_repaired_on_postgres() {
    in_time(damage_to_logs_is_sorted_and_repaired(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_to_logs_is_sorted_and_repaired_on_mariadb() {
    in_time(damage_to_logs_is_sorted_and_repaired(Kind::MariaDb)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_safe_is_left_and_named() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let node = place.node().await;
    put(&node, CouponSettings { acknowledge: Acknowledge::Placed, ..limit(9) }).await;
    new(claim(&node, "ann").await);
    at_rest(&place).await;
    drop(node);
    let mut keeper = place.keeper().await;
    // One that may have been told waits in a stream that cannot be written.
    append(&mut keeper, "fc:{c1}:outbox:1", 3, &["eve"]).await;
    keeper.set_gate(&["ticket", "3"]).await;
    let _: i64 = keeper.ask(&["HSET", "fc:{c9}:gate", "generation", "1"]).await;
    let before: BTreeSet<String> = keeper.ask(&["KEYS", "fc:{*"]).await;
    let done = repaired(&place).await;
    let advice = |object: &Object| {
        let found = done.findings.iter().find(|finding| finding.object == *object).expect("it is found");
        assert!(found.needs_repair() && matches!(&found.repair, Repair::Advice(it) if !it.is_empty()), "{found:?}");
        found.state.code()
    };
    assert_eq!(advice(&sequencer()), "torn");
    assert_eq!(advice(&Object::Keys("fc:{c9}".to_owned())), "unknown_object");
    let after: BTreeSet<String> = keeper.ask(&["KEYS", "fc:{*"]).await;
    assert_eq!(after, before, "nothing was rebuilt or thrown away");
}

/// Claims, polls and changed settings go on all the while.
async fn nothing_under_way_is_a_breach(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    migrate(&place.sql, options().database).await.expect("the tables are made");
    let nodes = place.nodes(2).await;
    put(&nodes[0], limit(100_000)).await;
    nodes[0].put_room(&room(), RoomSettings::with_slots(3)).await.expect("it answers").expect("it is put");
    let (is_over, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut crowd = tokio::task::JoinSet::new();
    for at in 0..32 {
        let (node, is_over, next) = (nodes[at % 2].clone(), Arc::clone(&is_over), Arc::clone(&next));
        crowd.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                rush(&node, at, next.fetch_add(1, Ordering::Relaxed)).await;
            }
        });
    }
    let mut looks = 0;
    while looks < 6 || next.load(Ordering::Relaxed) < 2_000 {
        is_sound(&verified(&place).await);
        let now = reconciled(&place).await;
        assert_eq!(needs_repair(&now), 0, "{now:?}");
        looks += 1;
    }
    is_over.store(true, Ordering::Relaxed);
    while let Some(done) = crowd.join_next().await {
        done.expect("nobody fails");
    }
    at_rest(&place).await;
    is_sound(&verified(&place).await);
    let count = issued(&place).await;
    claim_replies::check_rows(&mut place.foreign().await, COUPON, count).await;
}

async fn issued(place: &TestDeployment) -> usize {
    usize::try_from(place.foreign().await.issued(COUPON).await).expect("a count")
}

/// What one visitor does.
async fn rush(node: &Cluster, at: usize, number: usize) {
    match at {
        0 => put(node, limit(100_000 + u32::try_from(number % 100).expect("small"))).await,
        1 | 2 => {
            let join = Join { user: UserId::parse(&format!("user-{number}")).ok(), request: None };
            let Ok(Ok((_, told))) = node.join(&room(), join).await else { return };
            let _ = node.poll(&room(), &told.ticket).await;
            if number.is_multiple_of(3) {
                let _ = node.leave(&room(), &told.ticket).await;
            }
        }
        _ => drop(node.claim(&coupon(COUPON), keyed(&format!("user-{number}"), number as u128, 1)).await),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_is_under_way_is_a_breach_on_postgres() {
    in_time(nothing_under_way_is_a_breach(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_is_under_way_is_a_breach_on_mariadb() {
    in_time(nothing_under_way_is_a_breach(Kind::MariaDb)).await;
}
