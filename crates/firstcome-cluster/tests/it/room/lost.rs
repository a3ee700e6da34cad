//! What becomes of a room when Redis has forgotten the end of its log, or all of it.

use super::*;
use crate::proxy::{Point, ProxyFault};
use crate::scripts;
use crate::world::{options, secret};
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::ManualClock;
use std::sync::Arc;

/// Joins until a visitor answers: a server that has just started is not reached at once.
async fn joins_in_time(node: &Cluster, who: Join) -> TicketAnswer {
    until("a place", async || match node.join(&room(), who.clone()).await {
        Ok(told) => Some(told.expect("there is room").1),
        Err(_) => None,
    })
    .await
}

async fn waits(node: &Cluster, ticket: &TicketAnswer) -> bool {
    until("a poll", async || match node.poll(&room(), &ticket.ticket).await {
        Ok(told) => Some(matches!(told.expect("it is one").state, TicketState::Waiting { .. })),
        Err(_) => None,
    })
    .await
}

/// Redis starts again with an old snapshot, whose log SQL has not passed.
async fn an_old_snapshot(mut world: World, is_one_alive: bool) {
    let place = world.place().await;
    let one = place.node().await;
    put(&one, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
    let (_, ann) = join(&one, of("ann")).await;
    for _ in 0..5 {
        join(&one, ANYBODY).await;
    }
    let _: String = place.keeper().await.ask(&["SAVE"]).await;
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(join(&one, ANYBODY).await.1);
    }
    let one = is_one_alive.then_some(one);
    world.restart_redis().await;
    let two = place.node().await;
    let fresh = joins_in_time(&two, ANYBODY).await;
    assert!(told.iter().all(|told| told.number < fresh.number), "{:?} is somebody else's", fresh.number);
    let nodes: Vec<&Cluster> = one.iter().chain([&two]).collect();
    for node in &nodes {
        for ticket in told.iter().chain([&ann, &fresh]) {
            assert!(waits(node, ticket).await, "{:?}", ticket.number);
        }
    }
    for node in &nodes {
        let next = joins_in_time(node, ANYBODY).await;
        assert!(fresh.number < next.number);
        assert_eq!(joins_in_time(node, of("ann")).await.number, ann.number);
        assert_eq!(position(&poll(node, &told[2].ticket).await), Some(8));
    }
    let counts: Vec<_> = nodes.iter().map(|node| node.counts()).collect();
    // A node whose answer was lost with the old connection does not count what its script has done.
    assert!(counts.iter().map(|counts| counts.resumed).sum::<u64>() <= 1, "once, by one of them");
    assert_eq!(counts.iter().map(|counts| counts.rebuilt).sum::<u64>(), 0, "all others keep their places");
    assert!(nodes.iter().all(|node| node.faults().open().is_empty()), "a Redis that forgets is no alarm");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_number_is_told_twice_after_an_old_snapshot() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    in_time(an_old_snapshot(world, false)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_that_saw_what_a_snapshot_lacks_finds_out() {
    let Some(world) = World::start(Kind::MariaDb).await else { return };
    in_time(an_old_snapshot(world, true)).await;
}

/// A copy that saw another end must neither append nor keep an image, however far the new one has gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_another_branch_is_rebuilt() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let [one, two, _] = three_nodes(&place).await;
        put(&one, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
        let (_, ann) = join(&one, ANYBODY).await;
        join(&two, ANYBODY).await;
        let mut keeper = place.keeper().await;
        let _: i64 = keeper.ask(&["HSET", "fc:{r1}:log", "run", "another"]).await;
        // Both have a copy from before; one of them goes on.
        let (_, next) = join(&one, ANYBODY).await;
        assert!(60_000 < next.number.get(), "whatever may have been drawn was");
        assert!(waits(&two, &ann).await);
        assert!(next.number < join(&two, ANYBODY).await.1.number);
        assert_eq!(one.counts().resumed + two.counts().resumed, 1);
        let wrong = "0000000000000001";
        let _: i64 = keeper.ask(&["HSET", "fc:{r1}:log", "branch", wrong]).await;
        assert!(waits(&two, &next).await && waits(&one, &next).await, "a branch is asked for again");
        assert_eq!(one.counts().rebuilt + two.counts().rebuilt, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_no_visitor_can_read_is_replaced() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let one = place.node().await;
        put(&one, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
        let (_, ann) = join(&one, of("ann")).await;
        drop(one);
        let mut keeper = place.keeper().await;
        let _: i64 = keeper.ask(&["HSET", "fc:{r1}:image:1", "1", "no image"]).await;
        let two = place.node().await;
        assert_eq!(join(&two, of("ann")).await.1.ticket, ann.ticket);
        assert_eq!(two.counts().rebuilt, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_inside_when_redis_is_lost_stays_there() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let mut options = options();
        options.rows_max = 2;
        let [one, two] = [place.node_with(options.clone()).await, place.node_with(options).await];
        put(&one, RoomSettings::with_slots(3)).await;
        let mut tickets = Vec::new();
        for user in ["ann", "bob", "cid", "dan", "eve", "fay", "gus"] {
            tickets.push(join(&one, of(user)).await.1);
        }
        let inside = async |node: &Cluster, ticket: &TicketAnswer| match poll(node, &ticket.ticket).await.state {
            TicketState::Admitted { slot, .. } => Some(slot.admission),
            _ => None,
        };
        let mut admissions = Vec::new();
        for ticket in &tickets[..3] {
            admissions.push(until("all to be inside", async || inside(&one, ticket).await).await);
        }
        let _: String = place.keeper().await.ask(&["FLUSHDB"]).await;
        // More rows of each sort than one page has.
        for (ticket, admission) in tickets.iter().zip(&admissions) {
            assert_eq!(inside(&two, ticket).await, Some(*admission));
            let check = two.check_pass(&room(), ticket.number, *admission).await;
            assert!(check.expect("it answers").expect("there is a room").is_some());
        }
        let view = two.room(&room()).await.expect("it answers").expect("it is there").view;
        assert_eq!((view.active, view.waiting), (3, 4), "no visitor was admitted above the cap, and nobody is gone");
        two.leave(&room(), &tickets[0].ticket).await.expect("it answers").expect("it is one");
        // Those in front have the time to come back first: then the next one is let in, and no other visitor.
        let lost_at = Instant::now();
        until("the next one", async || inside(&two, &tickets[3]).await).await;
        assert!(Duration::from_secs(2) < lost_at.elapsed(), "nobody is let in at once");
        assert_eq!(inside(&one, &tickets[4]).await, None);
        assert_eq!(one.counts().rebuilt + two.counts().rebuilt, 1);
    })
    .await;
}

/// Twice behind what is kept: that is no reason to throw a log away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_that_falls_behind_an_image_again_and_again_begins_with_the_image() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let mut options = options();
        options.image_bytes_min = 256;
        let [one, two] = [place.node_with(options.clone()).await, place.node_with(options).await];
        // No visitor is let in, so nothing has to be written to SQL meanwhile.
        put(&one, RoomSettings { paused: true, max_waiting: 100_000, ..RoomSettings::with_slots(1) }).await;
        let mut keeper = place.keeper().await;
        let mut kept: u64 = 0;
        let mut joined = 0;
        for round in 1..=4_u32 {
            let waiting = async || two.room(&room()).await.expect("it answers").expect("it is there").view.waiting;
            assert_eq!(waiting().await, joined, "round {round}");
            let image = async || -> u64 {
                let at: Option<u64> = place.keeper().await.ask(&["HGET", "fc:{r1}:image:1", "position"]).await;
                at.unwrap_or(0)
            };
            while image().await <= kept {
                join(&one, ANYBODY).await;
                joined += 1;
            }
            kept = keeper.ask(&["HGET", "fc:{r1}:log", "position"]).await;
            assert_eq!(waiting().await, joined, "round {round}");
        }
        assert_eq!(one.counts().rebuilt + two.counts().rebuilt, 0);
    })
    .await;
}

/// An image stands for all that came, and nothing follows it: that no entry comes does not say that nothing happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_with_nothing_after_its_image_is_not_taken_for_one_without_news() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        // Its time stands still, so no visitor ticks.
        let clock = Arc::new(ManualClock::new(Timestamp::from_us(1_800_000_000_000_000).expect("an instant")));
        let mut options = options();
        options.image_bytes_min = 256;
        let node = async |place: &TestDeployment| {
            let clock = Arc::clone(&clock);
            Cluster::open_by(&place.redis, &place.sql, secret(), options.clone(), clock).await.expect("a node opens")
        };
        let (by_line, line) = place.by_redis_line().await;
        let (one, two) = (node(&place).await, node(&by_line).await);
        put(&one, RoomSettings { paused: true, max_waiting: 100_000, ..RoomSettings::with_slots(1) }).await;
        join(&two, ANYBODY).await;
        line.set(&Point::Script(scripts::APPEND), 0, ProxyFault::Hold);
        line.met(1).await;
        let (mut keeper, mut joined) = (place.keeper().await, 1);
        let mut last = None;
        until("an image of all", async || {
            last = Some(join(&one, ANYBODY).await.1);
            joined += 1;
            for _ in 0..50 {
                if keeper.ask::<i64>(&["XLEN", "fc:{r1}:entries:1"]).await == 0 {
                    return Some(());
                }
            }
            None
        })
        .await;
        line.pass();
        let view = two.room(&room()).await.expect("it answers").expect("it is there").view;
        assert_eq!(view.waiting, joined);
        assert_eq!(position(&poll(&two, &last.expect("one joined").ticket).await), Some(joined - 1));
        assert_eq!(keeper.ask::<i64>(&["XLEN", "fc:{r1}:entries:1"]).await, 0, "nothing came after it");
        assert_eq!(one.counts().rebuilt + two.counts().rebuilt, 0);
    })
    .await;
}
