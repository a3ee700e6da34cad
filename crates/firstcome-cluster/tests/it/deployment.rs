//! What a deployment has beside coupons: its tables, its secrets, and what no caller could read.

use crate::world::{Foreign, SECRET, World, options, secret};
use crate::{claim_replies, in_time, room};
use firstcome_cluster::{Cluster, ClusterError, ClusterOptions, DeploymentSecret, migrate};
use firstcome_sql::{SqlAuctions, Tables};
use firstcome_store::core::coupon::{CouponLimit, CouponSettings};
use firstcome_store::core::id::CouponName;
use firstcome_store::core::room::RoomSettings;
use firstcome_store::{CouponStore, RedeemRequest};
use firstcome_test_servers::Kind;

/// Options of a node that makes no tables.
fn careful() -> ClusterOptions {
    let mut options = options();
    options.database.tables = Tables::Require;
    options
}

async fn tables_are_made_by_a_call_of_its_own(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    let open = || Cluster::open(&place.redis, &place.sql, secret(), careful());
    let stored = open().await.expect_err("there are no tables").to_string();
    assert!(stored.contains("version 0") && stored.contains("firstcome migrate"), "{stored}");
    let auctions = || SqlAuctions::open_with(&place.sql, careful().database);
    let stored = auctions().await.expect_err("there are no tables").to_string();
    assert!(stored.contains("firstcome migrate"), "{stored}");
    for (market, coupons) in [(0, 0), (4, 10)] {
        let migrated = migrate(&place.sql, options().database).await.expect("they are made");
        let versions: Vec<_> = migrated.iter().map(|part| (part.part, part.from, part.to)).collect();
        assert_eq!(versions, [("market", market, 4), ("coupons", coupons, 10)]);
    }
    drop(open().await.expect("the tables are there"));
    drop(auctions().await.expect("the tables are there"));
    Foreign::at(&place.sql).await.say("UPDATE firstcome_schema SET version=11").await;
    let stored = open().await.expect_err("they are of a later version").to_string();
    assert!(stored.contains("version 11"), "{stored}");
}

#[tokio::test]
async fn tables_are_made_by_a_call_of_its_own_in_postgres() {
    tables_are_made_by_a_call_of_its_own(Kind::Postgres).await;
}

#[tokio::test]
async fn tables_are_made_by_a_call_of_its_own_in_mariadb() {
    tables_are_made_by_a_call_of_its_own(Kind::MariaDb).await;
}

/// What the steps after the first one add: without it the tables are those of version 1.
const ADDED: [&str; 22] = [
    "DROP TABLE firstcome_appearance",
    "ALTER TABLE firstcome_coupon DROP COLUMN codes_bound_from",
    "ALTER TABLE firstcome_coupon DROP COLUMN loss_accepted",
    "ALTER TABLE firstcome_room DROP COLUMN loss_accepted",
    "ALTER TABLE firstcome_room DROP COLUMN draws",
    "ALTER TABLE firstcome_room DROP COLUMN draw_seed",
    "ALTER TABLE firstcome_room DROP COLUMN draw_first",
    "ALTER TABLE firstcome_room DROP COLUMN draw_entrants",
    "ALTER TABLE firstcome_room DROP COLUMN drawn_at",
    "DROP TABLE firstcome_renewal",
    "DROP TABLE firstcome_head",
    "DROP TABLE firstcome_head_removed",
    "DROP TABLE firstcome_api_key",
    "ALTER TABLE firstcome_coupon DROP COLUMN keys_gone",
    "ALTER TABLE firstcome_coupon DROP COLUMN purged_at",
    "ALTER TABLE firstcome_coupon DROP COLUMN purged_to",
    "ALTER TABLE firstcome_room DROP COLUMN gone_before",
    "ALTER TABLE firstcome_room DROP COLUMN gone_mark",
    "ALTER TABLE firstcome_room DROP COLUMN gone_mark_at",
    "DROP TABLE firstcome_purge",
    "ALTER TABLE firstcome_room DROP COLUMN first_poll_ms",
    "UPDATE firstcome_schema SET version=1 WHERE part='coupons'",
];

/// A deployment of the version before, in which ann was given a code of the old kind and has the first place of a room.
async fn tables_with_rows_are_brought_to_this_version(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    let mut foreign = {
        let node = place.node().await;
        claim_replies::put(&node, claim_replies::limit(5)).await;
        room::put(&node, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
        place.foreign().await
    };
    // No serial has a code of the new kind.
    foreign.say("UPDATE firstcome_coupon SET codes_bound_from=1000").await;
    let (code, ticket) = {
        let node = place.node().await;
        let code = claim_replies::new(claim_replies::claim(&node, "ann").await).code;
        (code, room::join(&node, room::of("ann")).await.1.ticket)
    };
    for text in ADDED {
        foreign.say(text).await;
    }
    let stored = Cluster::open(&place.redis, &place.sql, secret(), careful()).await.expect_err("the tables are old");
    assert!(stored.to_string().contains("version 1") && stored.to_string().contains("firstcome migrate"), "{stored}");
    let migrated = migrate(&place.sql, options().database).await.expect("they are brought to this version");
    let versions: Vec<_> = migrated.iter().map(|part| (part.part, part.from, part.to)).collect();
    assert_eq!(versions, [("market", 0, 4), ("coupons", 1, 10)]);

    assert_eq!(foreign.number("SELECT codes_bound_from FROM firstcome_coupon").await, 2);
    let node = place.node().await;
    let kept = node
        .claim_of(&claim_replies::coupon(claim_replies::COUPON), "ann")
        .await
        .expect("it answers")
        .expect("the coupon is there");
    assert_eq!(kept.expect("ann has a claim").claimed.code, code, "the code that ann was got");
    let bob = claim_replies::new(claim_replies::claim(&node, "bob").await);
    for code in [code, bob.code] {
        let redeem = RedeemRequest { code: code.as_str().to_owned(), user: None, request: None };
        node.redeem(&claim_replies::coupon(claim_replies::COUPON), redeem)
            .await
            .expect("it answers")
            .expect("the code is good");
    }
    assert_eq!(room::join(&node, room::of("ann")).await.1.ticket, ticket);
    assert_eq!(room::join(&node, room::of("bob")).await.1.number.get(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_with_rows_are_brought_to_this_version_in_postgres() {
    in_time(tables_with_rows_are_brought_to_this_version(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_with_rows_are_brought_to_this_version_in_mariadb() {
    in_time(tables_with_rows_are_brought_to_this_version(Kind::MariaDb)).await;
}

async fn of_nodes_that_keep_something_at_once_one_wins(kind: Kind) {
    const NODES: u8 = 8;
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    let first = place.try_node().await.expect("a node opens");
    for round in 0..10 {
        let (one, two) = (format!("one:{round}"), format!("two:{round}"));
        let mut nodes = Vec::new();
        for number in 1..=NODES {
            let (place, one, two) = (place.clone(), one.clone(), two.clone());
            // A node of its own in the first round, for its own connections; one for all later on.
            let shared = (0 < round).then(|| first.clone());
            nodes.push(tokio::spawn(async move {
                let fleet = match shared {
                    Some(fleet) => fleet,
                    None => place.try_node().await.expect("a node opens"),
                };
                fleet.keep(&[(&*one, [number; 32]), (&*two, [100 + number; 32])]).await.expect("it is kept")
            }));
        }
        let mut kept = Vec::new();
        for node in nodes {
            kept.push(node.await.expect("it ends"));
        }
        let winner = kept[0][0][0];
        assert!(kept.iter().all(|kept| *kept == [[winner; 32], [100 + winner; 32]]), "{kept:?}");
    }
    // What is there stays, and what is new is kept beside it.
    let before = first.keep(&[("one:0", [0; 32])]).await.expect("it is there");
    let both = first.keep(&[("one:0", [0; 32]), ("new", [2; 32])]).await.expect("they are kept");
    assert_eq!(both, [before[0], [2; 32]]);
    let drawn = first.secret("drawn").await.expect("it is drawn");
    let second = place.try_node().await.expect("a node opens");
    assert_eq!(second.secret("drawn").await.expect("it is there"), drawn);
    assert_ne!(second.secret("other").await.expect("it is drawn"), drawn);
    let other = DeploymentSecret::new(&SECRET.replace('a', "b")).expect("it is long enough");
    let refused = Cluster::open(&place.redis, &place.sql, other, options()).await.expect_err("it is another secret");
    assert!(refused.to_string().contains("FIRSTCOME_SECRET"), "{refused}");
}

#[tokio::test]
async fn of_nodes_that_keep_something_at_once_one_wins_in_postgres() {
    of_nodes_that_keep_something_at_once_one_wins(Kind::Postgres).await;
}

#[tokio::test]
async fn of_nodes_that_keep_something_at_once_one_wins_in_mariadb() {
    of_nodes_that_keep_something_at_once_one_wins(Kind::MariaDb).await;
}

#[tokio::test]
async fn a_user_who_may_not_write_is_refused() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    migrate(&place.sql, options().database).await.expect("the tables are made");
    let mut owner = Foreign::at(&place.sql).await;
    owner.say("CREATE ROLE poor LOGIN").await;
    let (_, at) = place.sql.rsplit_once('@').expect("an address with a user");
    let sql = format!("postgres://poor@{at}");
    let open = || Cluster::open(&place.redis, &sql, secret(), careful());
    for grant in ["SELECT 1", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO poor"] {
        owner.say(grant).await;
        let stored = open().await.expect_err("it may not write").to_string();
        assert!(stored.contains("permission denied") && stored.contains("SELECT, INSERT, UPDATE"), "{grant}: {stored}");
    }
    owner.say("GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO poor").await;
    // One table is enough.
    for table in ["firstcome_claim", "firstcome_dead_letter"] {
        owner.say(&format!("REVOKE INSERT ON {table} FROM poor")).await;
        let stored = open().await.expect_err("it may not write").to_string();
        assert!(stored.contains(table), "{stored}");
        owner.say(&format!("GRANT INSERT ON {table} TO poor")).await;
    }
    owner.say("REVOKE DELETE ON firstcome_ticket FROM poor").await;
    let stored = open().await.expect_err("it may not write").to_string();
    assert!(stored.contains("firstcome_ticket"), "{stored}");
    owner.say("GRANT DELETE ON firstcome_ticket TO poor").await;
    let fleet = open().await.expect("it may do what it needs");
    let coupon = CouponName::parse("launch").expect("a name");
    let settings = CouponSettings::with_limit(CouponLimit::new(1).expect("a limit"));
    fleet.put_coupon(&coupon, settings).await.expect("it answers").expect("it is made");
}

#[tokio::test]
async fn servers_that_answer_no_more_are_noticed() {
    let Some(mut world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let fleet = place.try_node().await.expect("a node opens");
    fleet.answers().await.expect("both are there");
    world.redis.kill();
    assert!(fleet.answers().await.is_err(), "Redis is gone");
    world.redis.restart().await.expect("it starts");
    fleet.answers().await.expect("both are there");
    // Another caller's keys.
    let client = redis::Client::open(&*place.redis).expect("an address");
    let mut redis = client.get_multiplexed_async_connection().await.expect("it answers");
    redis::cmd("SET").arg("fc:deployment").arg("7").exec_async(&mut redis).await.expect("it is done");
    let stored = format!("{:?}", fleet.answers().await.expect_err("the keys are another's"));
    assert!(stored.contains("another deployment"), "{stored}");
    let refused = place.try_node().await.expect_err("the keys are another's");
    assert!(matches!(refused, ClusterError::OtherDeployment), "{refused}");
    world.sql.kill();
    assert!(fleet.answers().await.is_err(), "the database is gone");
}
