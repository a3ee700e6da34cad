//! A large room is closed: that is one small step, and its rows go page by page while everything else goes on.

use super::*;
use crate::world::Foreign;
use firstcome_cluster::verify;

/// More than one page of rows has.
const TICKETS: u32 = 30_000;
/// Rows that a closing makes void and that are still there.
const VOID: &str =
    "SELECT COUNT(*) FROM firstcome_ticket t JOIN firstcome_room r ON r.id=t.room WHERE t.number<r.first_number";

fn paused() -> RoomSettings {
    RoomSettings { paused: true, ..RoomSettings::with_slots(1) }
}

fn other() -> RoomName {
    RoomName::parse("other").expect("a name")
}

/// A room with so many named tickets, ann's first, as if they had joined, and another room beside it.
async fn fill(place: &TestDeployment, node: &Cluster) {
    put(node, paused()).await;
    join(node, of("ann")).await;
    node.put_room(&other(), paused()).await.expect("it answers").expect("it is put");
    let rows = match place.foreign().await {
        Foreign::Postgres(_) => format!("generate_series(2, {TICKETS}) AS n"),
        Foreign::MySql(_) => format!("(SELECT seq AS n FROM seq_2_to_{TICKETS}) AS numbers"),
    };
    let mut foreign = place.foreign().await;
    foreign
        .say(&format!(
            "INSERT INTO firstcome_ticket (room,number,name,joined_at) SELECT 1,n,CONCAT('user-',n),0 FROM {rows}; \
             INSERT INTO firstcome_gone (room,number,how) SELECT 1,number+{TICKETS},1 FROM firstcome_ticket WHERE room=1 \
             AND number<9000"
        ))
        .await;
    // The node that is asked next finds them.
    let _: String = place.keeper().await.ask(&["FLUSHDB"]).await;
    let waiting = async || node.room(&room()).await.expect("it answers").expect("it is there").view.waiting;
    until("a room of all of them", async || (waiting().await == TICKETS).then_some(())).await;
}

/// Makes pages wait: a transaction has one of their rows.
async fn hold_up(place: &TestDeployment) -> Foreign {
    let mut foreign = place.foreign().await;
    foreign.say("BEGIN; SELECT number FROM firstcome_ticket WHERE room=1 AND number=5000 FOR UPDATE").await;
    foreign
}

async fn nothing_is_left(place: &TestDeployment) {
    let mut foreign = place.foreign().await;
    until("all void rows to go", async || (foreign.number(VOID).await == 0).then_some(())).await;
    let gone =
        "SELECT COUNT(*) FROM firstcome_gone g JOIN firstcome_room r ON r.id=g.room WHERE g.number<r.first_number";
    until("those who were gone to go too", async || (foreign.number(gone).await == 0).then_some(())).await;
}

async fn sound(place: &TestDeployment) {
    let verified = verify(&place.sql, None, None).await.expect("it answers");
    let broken: Vec<_> = verified.checks.iter().filter(|check| 0 < check.breaches).collect();
    assert!(broken.is_empty(), "{broken:?}");
}

async fn closes_in_one_step(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    in_time(async {
        let node = place.node().await;
        fill(&place, &node).await;
        let mut held = hold_up(&place).await;
        // Told at once, though no page behind that row can go.
        node.close_room(&room()).await.expect("it answers").expect("it is closed");
        let mut foreign = place.foreign().await;
        until("a page to wait", async || (0 < foreign.waiting().await).then_some(())).await;
        assert_eq!(foreign.number("SELECT closed FROM firstcome_room WHERE id=1").await, 1);
        assert!(20_000 < foreign.number(VOID).await, "most rows are still there");
        sound(&place).await;
        // Everything else is durable meanwhile.
        node.join(&other(), of("ann")).await.expect("it answers").expect("there is room");
        assert_eq!(foreign.number("SELECT COUNT(*) FROM firstcome_ticket WHERE room=2").await, 1);
        // So is the room itself, opened again: what is void has no effect, also when a node is rebuilding it from the rows.
        put(&node, paused()).await;
        let (joining, again) = join(&node, of("ann")).await;
        assert_eq!(joining, Joining::New);
        let _: String = place.keeper().await.ask(&["FLUSHDB"]).await;
        let two = place.node().await;
        let (joining, same) = join(&two, of("ann")).await;
        assert_eq!((joining, same.ticket), (Joining::SameUser, again.ticket));
        let view = two.room(&room()).await.expect("it answers").expect("it is there").view;
        assert_eq!((view.waiting, view.active), (1, 0));
        assert_eq!(join(&two, of("user-7")).await.0, Joining::New);
        sound(&place).await;
        held.say("COMMIT").await;
        nothing_is_left(&place).await;
        assert_eq!(foreign.number("SELECT COUNT(*) FROM firstcome_ticket WHERE room=1").await, 2);
        sound(&place).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_room_is_closed_in_one_step_and_all_else_is_durable_meanwhile_on_postgres() {
    closes_in_one_step(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_room_is_closed_in_one_step_and_all_else_is_durable_meanwhile_on_mariadb() {
    closes_in_one_step(Kind::MariaDb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_starts_goes_on_with_the_rows_of_a_closed_room() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let node = place.node().await;
        fill(&place, &node).await;
        let mut held = hold_up(&place).await;
        node.close_room(&room()).await.expect("it answers").expect("it is closed");
        let mut foreign = place.foreign().await;
        until("a page to wait", async || (0 < foreign.waiting().await).then_some(())).await;
        drop(node);
        held.say("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type='Lock'").await;
        held.say("COMMIT").await;
        assert!(20_000 < foreign.number(VOID).await, "no node is there to delete them");
        let _two = place.node().await;
        nothing_is_left(&place).await;
    })
    .await;
}
