//! What a node may answer from its own copy of a room, and what it must ask for first.

use crate::in_time;
use crate::proxy::{Point, ProxyFault};
use crate::room::{join, of, poll, position, put, room, until};
use crate::scripts::{APPEND, LOG_OPEN};
use crate::world::{TestDeployment, World, options};
use firstcome_cluster::Cluster;
use firstcome_store::RoomStore;
use firstcome_store::core::room::appearance::{Appearance, Texts};
use firstcome_store::core::room::{RoomSettings, TicketState};
use firstcome_store::edge::Stopwatch;
use firstcome_test_servers::Kind;
use std::time::Duration;

/// A room whose log begins with an image in which three people wait, the third being told of: the first has left since then.
async fn line_that_moved_on(place: &TestDeployment) -> (Cluster, String) {
    let node = place.node().await;
    put(&node, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
    let (_, first) = join(&node, of("ann")).await;
    join(&node, of("bob")).await;
    let (_, third) = join(&node, of("cid")).await;
    let _: String = place.keeper().await.ask(&["FLUSHDB"]).await;
    let back = async || (node.poll(&room(), &third.ticket).await.is_ok_and(|told| told.is_ok())).then_some(());
    until("the room to be there again", back).await;
    node.leave(&room(), &first.ticket).await.expect("it answers").expect("it is one");
    assert_eq!(position(&poll(&node, &third.ticket).await), Some(1));
    (node, third.ticket.to_string())
}

/// Positions would rise, and who is inside would be told to wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_answered_from_an_image_alone() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let (_one, ticket) = line_that_moved_on(&place).await;
        let (lined, line) = place.by_redis_line().await;
        let two = lined.node().await;
        line.set(&Point::Script(APPEND), 0, ProxyFault::Hold);
        let asked = tokio::spawn({
            let (two, ticket) = (two.clone(), ticket.clone());
            async move { poll(&two, &ticket).await }
        });
        // It has the image, and asks for what came after it.
        line.met(1).await;
        assert!(two.poll_settled(room().as_str(), &ticket).is_none(), "an image is no answer");
        line.pass();
        assert_eq!(position(&asked.await.expect("it ends")), Some(1));
        assert_eq!(position(&poll(&two, &ticket).await), Some(1));
    })
    .await;
}

/// An image says nothing of the time since then, which must go on all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_late_does_not_set_the_time_back() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let (one, ticket) = line_that_moved_on(&place).await;
        drop(one);
        let mut keeper = place.keeper().await;
        let log = keeper.ask::<Vec<String>>(&["KEYS", "fc:{r*}:log"]).await.pop().expect("there is a log");
        // As if seven seconds had passed in which there was no node.
        let offset: i64 = keeper.ask(&["HINCRBY", &log, "offset", "-7000000"]).await;
        let two = place.node().await;
        assert_eq!(position(&poll(&two, &ticket).await), Some(1));
        let now: i64 = keeper.ask::<String>(&["HGET", &log, "offset"]).await.parse().expect("a number");
        assert_eq!(now, offset, "seven seconds are gone");
    })
    .await;
}

/// Slots would outlive the end that their holders were told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_goes_on_while_a_log_is_rebuilt() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let (lined, line) = place.by_redis_line().await;
        let mut patient = options();
        patient.link.answer_timeout = Duration::from_secs(6);
        patient.link.ping_interval = Duration::from_secs(6);
        let node = lined.node_with(patient).await;
        put(&node, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
        let (_, ann) = join(&node, of("ann")).await;
        let mut keeper = place.keeper().await;
        let log = keeper.ask::<Vec<String>>(&["KEYS", "fc:{r*}:log"]).await.pop().expect("there is a log");
        let before: i64 = keeper.ask::<String>(&["HGET", &log, "offset"]).await.parse().expect("a number");
        line.set(&Point::Script(LOG_OPEN), 0, ProxyFault::Hold);
        let _: String = keeper.ask(&["FLUSHDB"]).await;
        let asked = tokio::spawn({
            let (node, ticket) = (node.clone(), ann.ticket.clone());
            async move { node.poll(&room(), &ticket).await }
        });
        line.met(1).await;
        let held_us = keeper.now_us().await;
        let later = async || (held_us + 1_000_000 < place.keeper().await.now_us().await).then_some(());
        until("a second to pass", later).await;
        line.pass();
        // It may have been told that no caller can say now.
        let _ = asked.await.expect("it ends");
        let back = async || node.poll(&room(), &ann.ticket).await.is_ok_and(|told| told.is_ok()).then_some(());
        until("the room to be there again", back).await;
        let after: i64 = keeper.ask::<String>(&["HGET", &log, "offset"]).await.parse().expect("a number");
        assert!((after - before).abs() < 500_000, "{} µs are gone", after - before);
    })
    .await;
}

/// A caller that has it from another node may be ahead of this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_is_good_at_a_node_that_has_not_heard_of_it() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let (lined, line) = place.by_redis_line().await;
        let (one, two) = (place.node().await, lined.node().await);
        put(&one, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
        let mut tries = 0;
        // On a busy machine the second node's copy may be too old: then it asks in any case, which shows nothing.
        until("a copy that is fresh and knows nothing of it", async || {
            tries += 1;
            put(&one, RoomSettings { paused: true, ..RoomSettings::with_slots(1_000) }).await;
            let (_, ann) = join(&one, of(&format!("ann-{tries}"))).await;
            assert_eq!(position(&poll(&two, &ann.ticket).await), Some(0));
            line.set(&Point::Script(APPEND), 0, ProxyFault::Hold);
            line.met(tries).await;
            put(&one, RoomSettings::with_slots(1_000)).await;
            let admission = until("Ann to be let in", async || match poll(&one, &ann.ticket).await.state {
                TicketState::Admitted { slot, .. } => Some(slot.admission),
                _ => None,
            })
            .await;
            let hall = room();
            let checking = two.check_pass(&hall, ann.number, admission);
            tokio::pin!(checking);
            let early = tokio::select! {
                biased;
                check = &mut checking => Some(check),
                () = std::future::ready(()) => None,
            };
            let is_fresh = two.poll_settled(hall.as_str(), &ann.ticket).is_some();
            line.pass();
            let check = match early {
                Some(check) => check,
                None => checking.await,
            };
            let check = check.expect("it answers").expect("the room is there");
            assert!(check.is_some(), "the pass of somebody who is inside was refused");
            is_fresh.then_some(())
        })
        .await;
    })
    .await;
}

/// The look of a room is in the database alone, and its page must be there without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_reaches_every_node_and_stays_while_the_database_is_away() {
    let Some(world) = World::start(Kind::MariaDb).await else { return };
    let place = world.place().await;
    in_time(async {
        let nodes = place.nodes(2).await;
        put(&nodes[0], RoomSettings::with_slots(1)).await;
        let look = |title: &str| {
            let texts = Texts { title: Some(title.into()), ..Texts::default() };
            Appearance { texts, ..Appearance::default() }
        };
        let shown = async |node: &Cluster| node.shown_appearance(&room()).await.expect("an answer").expect("a room");
        for title in ["one", "two"] {
            nodes[0].put_appearance(&room(), look(title)).await.expect("it answers").expect("there is a room");
            assert_eq!(*shown(&nodes[0]).await, look(title), "the node that has put it shows it at once");
            until("the other node to show it", async || (*shown(&nodes[1]).await == look(title)).then_some(())).await;
        }
        let frozen = world.freeze_sql();
        // Longer than a look is shown without asking for another one.
        let frozen_for = Stopwatch::start();
        until("copies to be older than they may be", async || {
            for node in &nodes {
                assert_eq!(*shown(node).await, look("two"));
            }
            (Duration::from_millis(600) <= frozen_for.elapsed()).then_some(())
        })
        .await;
        drop(frozen);
        nodes[1].put_appearance(&room(), look("three")).await.expect("it answers").expect("there is a room");
        until("the first node to show it", async || (*shown(&nodes[0]).await == look("three")).then_some(())).await;
    })
    .await;
}
