//! Tickets that never poll, at several nodes: dropped by all of them alike, and no visitor who polls at any node is.

use super::*;
use crate::room::pace::clock;
use firstcome_cluster::verify;
use firstcome_store::edge::ManualClock;
use std::sync::Arc;

const TWO_MINUTES_MS: u64 = 120_000;
const FAR: u32 = 300;

fn asking() -> RoomSettings {
    RoomSettings { paused: true, first_poll_ms: Some(TWO_MINUTES_MS), ..RoomSettings::with_slots(1) }
}

async fn waiting(node: &Cluster) -> u32 {
    node.room(&room()).await.expect("it answers").expect("it is there").view.waiting
}

/// Lets a little time pass in many ticks, with which the nodes tell the log of contacts.
async fn ticks(clock: &ManualClock) {
    for _ in 0..30 {
        sleep(Duration::from_millis(50)).await;
        clock.pass_ms(25);
    }
}

async fn tickets_that_never_poll_are_dropped(sql: Kind) {
    let Some(world) = World::start(sql).await else { return };
    let place = world.place().await;
    in_time(async {
        let clock = clock();
        let nodes = [place.node_by(Arc::clone(&clock)).await, place.node_by(Arc::clone(&clock)).await];
        let [one, two] = &nodes;
        put(one, asking()).await;
        let mut silent = vec![join(two, of("bob")).await.1];
        // So many that the one behind them is not near the front: contacts of those far back reach the log late.
        for _ in 0..FAR {
            silent.push(join(one, ANYBODY).await.1);
        }
        let (_, asks) = join(one, of("ann")).await;
        // The first tick after a join plans when the line is looked at.
        ticks(&clock).await;
        clock.pass_ms(TWO_MINUTES_MS - 3_000);
        // At the node that did not take the join, shortly before the end.
        assert_eq!(position(&poll(two, &asks.ticket).await), Some(FAR + 1));
        // A first poll goes out with the next ticks of its node.
        ticks(&clock).await;
        until("the silent ones to be dropped", async || {
            clock.pass_ms(1_000);
            (waiting(one).await == 1 && waiting(two).await == 1).then_some(())
        })
        .await;
        for node in &nodes {
            for ticket in silent.iter().take(20) {
                assert_eq!(poll(node, &ticket.ticket).await.state, TicketState::Gone(Departure::Expired));
            }
            assert_eq!(node.room_totals().unpolled, silent.len() as u64);
            assert_eq!(position(&poll(node, &asks.ticket).await), Some(0));
        }
        let (joining, again) = join(two, of("bob")).await;
        assert_eq!((joining, position(&again)), (Joining::New, Some(1)), "a dropped user may join again");
        let told = two.room(&room()).await.expect("it answers").expect("it is there").settings;
        assert_eq!(told.first_poll_ms, Some(TWO_MINUTES_MS));
        // A node that starts now knows from the image of the log who has polled.
        let late = place.node_by(Arc::clone(&clock)).await;
        assert_eq!(waiting(&late).await, 2);
        let verified = verify(&place.sql, None, None).await.expect("it answers");
        assert!(verified.checks.iter().all(|check| check.breaches == 0), "{:?}", verified.checks);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tickets_that_never_poll_are_dropped_on_postgres() {
    tickets_that_never_poll_are_dropped(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tickets_that_never_poll_are_dropped_on_mariadb() {
    tickets_that_never_poll_are_dropped(Kind::MariaDb).await;
}

/// The rows of SQL do not say who has polled, so every visitor in line has the time afresh.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_of_redis_gives_the_time_afresh() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let clock = clock();
        let one = place.node_by(Arc::clone(&clock)).await;
        put(&one, asking()).await;
        let (_, ann) = join(&one, of("ann")).await;
        let (_, bob) = join(&one, of("bob")).await;
        assert_eq!(position(&poll(&one, &ann.ticket).await), Some(0));
        clock.pass_ms(TWO_MINUTES_MS - 1_000);
        let _: String = place.keeper().await.ask(&["FLUSHDB"]).await;
        until("the room to be rebuilt", async || {
            waiting(&one).await;
            (0 < one.counts().rebuilt).then_some(())
        })
        .await;
        clock.pass_ms(TWO_MINUTES_MS - 10_000);
        assert_eq!(position(&poll(&one, &bob.ticket).await), Some(1));
        ticks(&clock).await;
        clock.pass_ms(60_000);
        assert_eq!(poll(&one, &ann.ticket).await.state, TicketState::Gone(Departure::Expired));
        assert_eq!(position(&poll(&one, &bob.ticket).await), Some(0));
    })
    .await;
}
