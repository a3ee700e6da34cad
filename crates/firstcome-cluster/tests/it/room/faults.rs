//! A request, or its answer, is lost at each step of a room's log.

use super::*;
use crate::proxy::{Point, ProxyFault};
use crate::scripts;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_is_lost_on_the_way_one_join_is_one_place() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    for what in [ProxyFault::CutRequest, ProxyFault::CutAnswer] {
        for (script, after) in
            [(scripts::LOG_OPEN, 0), (scripts::APPEND, 0), (scripts::APPEND, 1), (scripts::APPEND, 2)]
        {
            let place = world.place().await;
            in_time(async {
                put(&place.node().await, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
                let _: String = place.keeper().await.ask(&["FLUSHDB"]).await;
                let (by_line, line) = place.by_redis_line().await;
                // First: the node makes the log anew by itself.
                line.set(&Point::Script(script), after, what);
                let one = by_line.node().await;
                let ann = until("a place", async || one.join(&room(), of("ann")).await.ok()).await;
                let ann = ann.expect("there is room").1;
                line.met(1).await;
                let two = place.node().await;
                let (joining, same) = join(&two, of("ann")).await;
                assert_eq!((joining, same.ticket), (Joining::SameUser, ann.ticket), "{what:?} after {after}");
                let waiting = two.room(&room()).await.expect("it answers").expect("it is there").view.waiting;
                assert_eq!(waiting, 1);
                assert_eq!(place.foreign().await.number("SELECT COUNT(*) FROM firstcome_ticket").await, 1);
            })
            .await;
        }
    }
}

/// The same on the way to the database: to what begins a log anew, and to what is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_matter_what_the_database_does_not_hear_or_say_one_join_is_one_place() {
    let Some(world) = World::start(Kind::MariaDb).await else { return };
    for what in [ProxyFault::CutRequest, ProxyFault::CutAnswer] {
        for statement in ["SET generation=generation+1", "UPDATE firstcome_room SET position"] {
            let place = world.place().await;
            in_time(async {
                put(&place.node().await, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
                let _: String = place.keeper().await.ask(&["FLUSHDB"]).await;
                let (by_line, line) = place.by_sql_line().await;
                line.set(&Point::Text(statement), 0, what);
                let one = by_line.node().await;
                let ann = until("a place", async || one.join(&room(), of("ann")).await.ok()).await;
                let ann = ann.expect("there is room").1;
                line.met(1).await;
                let (_, same) = join(&place.node().await, of("ann")).await;
                assert_eq!(same.ticket, ann.ticket, "{what:?} at {statement}");
                assert_eq!(place.foreign().await.number("SELECT COUNT(*) FROM firstcome_ticket").await, 1);
            })
            .await;
        }
    }
}

/// A visitor that was to make a log anew does not reach the database: others need not wait until its lease is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_that_cannot_make_a_log_anew_gives_the_lease_back() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let (by_line, line) = place.by_sql_line().await;
        let one = by_line.node().await;
        put(&one, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
        let (_, ann) = join(&one, of("ann")).await;
        line.set(&Point::Text("SET generation=generation+1"), 0, ProxyFault::Hold);
        let mut keeper = place.keeper().await;
        let _: String = keeper.ask(&["FLUSHDB"]).await;
        line.met(1).await;
        let leases: i64 = keeper.ask(&["EXISTS", "fc:{r1}:lease"]).await;
        assert_eq!(leases, 1, "it is about to");
        until("the lease to be given back", async || {
            (keeper.ask::<i64>(&["EXISTS", "fc:{r1}:lease"]).await == 0).then_some(())
        })
        .await;
        line.pass();
        let same = until("a place", async || one.join(&room(), of("ann")).await.ok()).await;
        assert_eq!(same.expect("there is room").1.ticket, ann.ticket);
    })
    .await;
}

/// An image is lost on its way, or the word that it is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_is_lost_is_kept_later() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    for what in [ProxyFault::CutRequest, ProxyFault::CutAnswer] {
        let place = world.place().await;
        in_time(async {
            let (by_line, line) = place.by_redis_line().await;
            let mut options = crate::world::options();
            options.image_bytes_min = 256;
            let one = by_line.node_with(options).await;
            put(&one, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
            let (_, ann) = join(&one, of("ann")).await;
            line.set(&Point::Script(scripts::LOG_IMAGE), 0, what);
            let mut keeper = place.keeper().await;
            until("an image", async || {
                // One whose answer was lost may be told as unknown.
                let _ = one.join(&room(), ANYBODY).await;
                let at: Option<u64> = keeper.ask(&["HGET", "fc:{r1}:image:1", "position"]).await;
                at.filter(|at| 0 < *at)
            })
            .await;
            line.met(1).await;
            let two = place.node().await;
            assert_eq!(join(&two, of("ann")).await.1.ticket, ann.ticket);
            assert_eq!(one.counts().rebuilt + two.counts().rebuilt, 0);
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_knows_how_passes_are_signed() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let [one, two, _] = three_nodes(&place).await;
        put(&one, RoomSettings::with_slots(100)).await;
        let third = place.node().await;
        assert_eq!(
            third.pass_secret_set().map(|set| set.newest),
            Some(1),
            "a node knows how passes are signed before it is asked"
        );
        let fresh = one.rotate_pass_secret().await.expect("it answers");
        two.refresh_pass_secrets().await.expect("it answers");
        assert_eq!(two.pass_secret_set().map(|set| set.newest), Some(fresh.id));
    })
    .await;
}
