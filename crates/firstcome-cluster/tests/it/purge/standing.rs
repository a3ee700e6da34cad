//! A room that stands still holds up no purge.

use super::rows::clock;
use super::{DAY_MS, done, purge, retention};
use crate::world::{World, wait_for};
use crate::{in_time, room};
use firstcome_store::core::id::RoomName;
use firstcome_store::core::room::RoomSettings;
use firstcome_store::purge::Purged;
use firstcome_store::{FaultKind, RoomStore};
use firstcome_test_servers::Kind;
use std::sync::Arc;

async fn a_purge_passes_over(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let (place, clock) = (world.place().await, clock());
    let node = place.node_by(Arc::clone(&clock)).await;
    let mut foreign = place.foreign().await;
    // The one that will stand still comes first.
    for name in ["hall", "later"].map(|name| RoomName::parse(name).expect("a name")) {
        let settings = RoomSettings { paused: true, ..RoomSettings::with_slots(1) };
        node.put_room(&name, settings).await.expect("it answers").expect("it is put");
        let (_, told) = node.join(&name, room::of("ann")).await.expect("it answers").expect("there is room");
        node.leave(&name, &told.ticket).await.expect("it answers").expect("it is one");
    }
    let gone = "SELECT COUNT(*) FROM firstcome_gone";
    wait_for("two tickets gone", async || (foreign.number(gone).await == 2).then_some(())).await;
    assert_eq!(done(purge(&node, &retention(7)).await), Purged::default(), "they have just left");
    clock.pass_ms(8 * DAY_MS);
    foreign.say("INSERT INTO firstcome_dead_letter VALUES (1,1,1,1,'none','')").await;
    foreign.say("UPDATE firstcome_room SET generation=generation-1 WHERE name='hall'").await;
    // A node that finds out by its purge, and one that knows before.
    let fresh = place.node_by(Arc::clone(&clock)).await;
    let purged = done(purge(&fresh, &retention(7)).await);
    assert_eq!((purged.tickets, purged.dead_letters), (1, 1), "the other room, and what comes after rooms");
    assert!(fresh.faults().of("room hall").is_some_and(|fault| fault.kind == FaultKind::WentBack));
    wait_for("the other node to notice", async || node.faults().of("room hall").map(drop)).await;
    assert_eq!(done(purge(&node, &retention(7)).await), Purged::default());
    assert_eq!(foreign.number(gone).await, 1, "its rows stay");
    foreign.say("UPDATE firstcome_room SET generation=generation+1 WHERE name='hall'").await;
    wait_for("the room to go on", async || node.faults().open().is_empty().then_some(())).await;
    assert_eq!(done(purge(&node, &retention(7)).await).tickets, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_passes_over_a_room_that_stands_still_on_postgres() {
    in_time(a_purge_passes_over(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_passes_over_a_room_that_stands_still_on_mariadb() {
    in_time(a_purge_passes_over(Kind::MariaDb)).await;
}
