//! The database is killed, stands still, or its answers are lost: what is told is there, and what was let in comes there.

use crate::claim_replies::{self, COUPON, ClaimReplies, claim, limit, new, put, refusal};
use crate::in_time;
use crate::proxy::{Point, ProxyFault};
use crate::world::{Keeper, World, options, wait_for};
use firstcome_cluster::{Cluster, ClusterOptions};
use firstcome_store::core::coupon::Rejection;
use firstcome_store::{CouponStore, StoreError};
use firstcome_test_servers::Kind;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A node that does not wait for long.
fn hasty() -> ClusterOptions {
    let mut options = options();
    options.patience = Duration::from_secs(1);
    options.database.patience = Duration::from_secs(1);
    options.database.connections.answer_timeout = Duration::from_millis(300);
    options.database.connections.connect_timeout = Duration::from_millis(300);
    options
}

async fn tickets(keeper: &mut Keeper) -> i64 {
    keeper.sequencer("ticket").await.and_then(|ticket| ticket.parse().ok()).expect("a number")
}

/// The database is killed while many claim.
async fn killed(world: &mut World) {
    let place = world.place().await;
    let (mut nodes, told) = (Vec::new(), ClaimReplies::default());
    for _ in 0..3 {
        nodes.push(place.node_with(hasty()).await);
    }
    put(&nodes[0], limit(60)).await;
    told.crowd(&nodes, 0..20).await;
    for round in 1..=2 {
        let (told_before, users) = (told.count(), 20 * round..20 + 20 * round);
        let under_way = tokio::spawn({
            let (told, nodes) = (told.clone(), nodes.clone());
            async move { told.crowd(&nodes, users).await }
        });
        wait_for("a claim", async || (told_before < told.count()).then_some(())).await;
        world.sql.kill();
        world.sql.restart().await.unwrap_or_else(|error| panic!("{error}"));
        under_way.await.expect("it ends");
    }
    told.crowd(&nodes, 0..90).await;
    told.check(&place, &nodes, 60).await;
    assert_eq!(told.count(), 60);
    assert_eq!(nodes.iter().map(|node| node.counts().rebuilt).sum::<u64>(), 1, "the sequencer was never lost");
}

/// Each claims once, all at the same time, while the database stands still. Which of them were told that nothing was done.
async fn all_without_answer(node: &Cluster, users: std::ops::Range<usize>) -> Vec<String> {
    let claims = users.map(|number| {
        let (node, user) = (node.clone(), format!("user-{number}"));
        tokio::spawn(async move { (claim(&node, &user).await, user) })
    });
    let mut refused = Vec::new();
    for claim in claims.collect::<Vec<_>>() {
        match claim.await.expect("it ends") {
            (Err(StoreError::Unknown), _) => {}
            (Err(_), user) => refused.push(user),
            (told, user) => panic!("{user}: {told:?}"),
        }
    }
    refused
}

/// The database stands still for longer than anybody waits.
async fn frozen(world: &World) {
    let place = world.place().await;
    let (node, told, mut keeper) = (place.node_with(hasty()).await, ClaimReplies::default(), place.keeper().await);
    put(&node, limit(60)).await;
    told.crowd(std::slice::from_ref(&node), 0..5).await;
    let still = world.freeze_sql();
    let refused = all_without_answer(&node, 5..25).await;
    let accepted = tickets(&mut keeper).await;
    assert!(refused.is_empty() && accepted == 25, "{refused:?} {accepted}");
    // A caller that has one is told nothing that no caller can see now.
    assert!(claim(&node, "user-0").await.is_err());
    drop(still);
    let mut foreign = place.foreign().await;
    wait_for("all that was let in", async || (foreign.issued(COUPON).await == accepted).then_some(())).await;
    told.crowd(std::slice::from_ref(&node), 0..25).await;
    told.check(&place, &[node], 25).await;
    assert_eq!(told.new_count(), 5, "those who had no answer hold theirs already");
}

/// More than may wait are told at once that nothing was done.
async fn backlogged(world: &World) {
    let place = world.place().await;
    let mut narrow = hasty();
    narrow.backlog_max = 5;
    let (node, told, mut keeper) = (place.node_with(narrow).await, ClaimReplies::default(), place.keeper().await);
    put(&node, limit(60)).await;
    told.crowd(std::slice::from_ref(&node), 0..3).await;
    let still = world.freeze_sql();
    let refused = all_without_answer(&node, 3..40).await;
    assert_eq!((refused.len(), tickets(&mut keeper).await), (32, 8));
    drop(still);
    let mut foreign = place.foreign().await;
    wait_for("all that was let in", async || (foreign.issued(COUPON).await == 8).then_some(())).await;
    for user in &refused {
        let row = format!("SELECT COUNT(*) FROM firstcome_claim WHERE name='{user}'");
        assert_eq!(foreign.number(&row).await, 0, "{user} was told that nothing was done");
    }
    told.crowd(std::slice::from_ref(&node), 0..40).await;
    told.check(&place, &[node], 40).await;
}

async fn fails_in_all_ways(sql: Kind) {
    let Some(mut world) = World::start(sql).await else { return };
    in_time(frozen(&world)).await;
    in_time(backlogged(&world)).await;
    in_time(killed(&mut world)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_let_in_comes_to_a_postgres_that_fails_once() {
    fails_in_all_ways(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_let_in_comes_to_a_mariadb_that_fails_once() {
    fails_in_all_ways(Kind::MariaDb).await;
}

/// No caller says what became of a commit.
async fn commit_is_lost(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    for what in [ProxyFault::CutAnswer, ProxyFault::CutRequest] {
        let place = world.place().await;
        let (lined, line) = place.by_sql_line().await;
        let nodes = [lined.node().await, place.node().await];
        put(&nodes[1], limit(2)).await;
        line.set(&Point::Commit, 0, what);
        assert_eq!(new(in_time(claim(&nodes[0], "ann")).await).issued.serial.get(), 1, "{what:?}");
        in_time(line.met(1)).await;
        assert_eq!(new(in_time(claim(&nodes[1], "bob")).await).issued.serial.get(), 2, "{what:?}");
        assert_eq!(refusal(claim(&nodes[0], "cid").await), Rejection::SoldOut);
        claim_replies::check_rows(&mut place.foreign().await, COUPON, 2).await;
        assert_eq!(nodes.iter().map(|node| node.counts().written).sum::<u64>(), 2, "{what:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_on_postgres_whose_answer_is_lost_is_told_once() {
    commit_is_lost(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_on_mariadb_whose_answer_is_lost_is_told_once() {
    commit_is_lost(Kind::MariaDb).await;
}

/// All tickets are drawn, and the database holds none of them yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_is_refused_for_claims_that_are_not_in_the_database() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (nodes, mut foreign, mut keeper) = (place.nodes(2).await, place.foreign().await, place.keeper().await);
    put(&nodes[0], limit(2)).await;
    foreign.lock(COUPON).await;
    let ask = |user: &'static str| {
        let node = nodes[1].clone();
        tokio::spawn(async move { claim(&node, user).await })
    };
    let (ann, bob) = (ask("ann"), ask("bob"));
    wait_for("all tickets", async || (tickets(&mut keeper).await == 2).then_some(())).await;
    let (mut cid, mut again) = (ask("cid"), ask("ann"));
    let early = async {
        tokio::select! { told = &mut cid => told, told = &mut again => told }
    };
    let early = timeout(Duration::from_millis(1_200), early).await;
    assert!(early.is_err(), "{early:?}");
    foreign.say("COMMIT").await;
    let mut serials = Vec::new();
    for claim in [ann, bob] {
        serials.push(new(in_time(claim).await.expect("it ends")).issued.serial.get());
    }
    serials.sort_unstable();
    assert_eq!(serials, [1, 2]);
    assert_eq!(refusal(in_time(cid).await.expect("it ends")), Rejection::SoldOut);
    assert!(matches!(refusal(in_time(again).await.expect("it ends")), Rejection::AlreadyIssued(_)));
}

/// For longer than one answer may take, and not for as long as a reader waits. On a busy machine a read was an error after two seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_outlasts_a_database_that_stands_still_for_a_moment() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    in_time(async {
        let place = world.place().await;
        let node = place.node().await;
        put(&node, limit(3)).await;
        let database = options().database;
        let still_for = database.connections.answer_timeout + Duration::from_secs(1);
        assert!(still_for + Duration::from_secs(3) < database.patience);
        let still = world.freeze_sql();
        let coupon = claim_replies::coupon(COUPON);
        let (letters, view, ()) = tokio::join!(node.dead_letters(&coupon, None, 10), node.coupon(&coupon), async {
            sleep(still_for).await;
            drop(still);
        });
        assert!(letters.expect("an answer").expect("it is there").items.is_empty());
        assert_eq!(view.expect("an answer").expect("it is there").issued, 0);
    })
    .await;
}
