//! A database that goes back while nodes run: it was restored from a backup, or failed over to a copy that was behind.

use super::*;
use crate::world::{Foreign, options, secret};
use firstcome_cluster::{Object, Repair, State, accept_loss};
use firstcome_store::{FaultKind, StoreError};

/// The tables of rooms whose rows come and go; that of the rooms themselves numbers its rows.
const TABLES: [&str; 3] = ["firstcome_ticket", "firstcome_slot", "firstcome_gone"];
/// What changes of a room.
const COLUMNS: [&str; 10] = [
    "closed",
    "first_number",
    "reached",
    "ceiling",
    "admissions",
    "clock_wall",
    "clock_steady",
    "generation",
    "position",
    "digest",
];

/// Keeps the database as it is now, under a name.
async fn keep(foreign: &mut Foreign, name: &str) {
    for table in TABLES.iter().chain(&["firstcome_room"]) {
        foreign.say(&format!("CREATE TABLE {name}_{table} AS SELECT * FROM {table}")).await;
    }
}

/// Goes back to what was kept, in one moment.
async fn put_back(foreign: &mut Foreign, name: &str) {
    let columns = COLUMNS.map(|column| format!("{column}=(SELECT {column} FROM {name}_firstcome_room)"));
    let mut text = format!("BEGIN; UPDATE firstcome_room SET {};", columns.join(","));
    for table in TABLES {
        text.push_str(&format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM {name}_{table};"));
    }
    foreign.say(&format!("{text} COMMIT")).await;
}

/// What a join is told that does not go through because of this.
async fn stopped(node: &Cluster, who: Join) {
    until("the node to stop", async || match node.join(&room(), who.clone()).await {
        Err(StoreError::Faulted(fault)) if fault.kind == FaultKind::WentBack => Some(()),
        // It had been appended before the node noticed.
        Err(StoreError::Unknown) => None,
        told => panic!("{told:?}"),
    })
    .await;
    let open = node.faults().open();
    let named: Vec<_> = open.iter().map(|open| (&*open.object, open.fault.kind)).collect();
    assert_eq!(named, [("room hall", FaultKind::WentBack)]);
}

async fn inside(node: &Cluster, ticket: &TicketAnswer) -> u64 {
    until("an admission", async || match poll(node, &ticket.ticket).await.state {
        TicketState::Admitted { slot, .. } => Some(slot.admission),
        _ => None,
    })
    .await
}

/// Waits until nothing waits for the database.
async fn at_rest(place: &TestDeployment, node: &Cluster) {
    let mut foreign = place.foreign().await;
    until("all to be written", async || {
        node.tick().await.ok()?;
        let position = foreign.number("SELECT position FROM firstcome_room").await;
        node.tick().await.ok()?;
        (position == foreign.number("SELECT position FROM firstcome_room").await).then_some(())
    })
    .await;
}

async fn stops(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    in_time(async {
        let (one, mut foreign) = (place.node().await, place.foreign().await);
        put(&one, RoomSettings::with_slots(2)).await;
        let (_, ann) = join(&one, of("ann")).await;
        assert_eq!(inside(&one, &ann).await, 1);
        at_rest(&place, &one).await;
        keep(&mut foreign, "before").await;
        let (_, bob) = join(&one, of("bob")).await;
        assert_eq!((bob.number.get(), inside(&one, &bob).await), (2, 2));
        at_rest(&place, &one).await;
        keep(&mut foreign, "after").await;
        put_back(&mut foreign, "before").await;

        stopped(&one, of("cid")).await;
        // No user gets a number, a slot or a pass; polls of what was durable go on.
        assert!(one.join(&room(), ANYBODY).await.is_err());
        assert!(one.tick().await.is_err());
        assert!(one.leave(&room(), &ann.ticket).await.is_err());
        assert_eq!(inside(&one, &bob).await, 2);
        // Nodes that know nothing by themselves know it by the log.
        let two = place.node().await;
        stopped(&two, of("dan")).await;
        // Nothing was changed: the log is there, and the database is as it was restored.
        let generation: i64 = place.keeper().await.ask(&["HGET", "fc:{r1}:log", "generation"]).await;
        assert_eq!((generation, foreign.number("SELECT generation FROM firstcome_room").await), (1, 1));
        assert_eq!(foreign.number("SELECT COUNT(*) FROM firstcome_ticket").await, 1);
        // Not even a Redis that forgets all makes the first one forget.
        let _: String = place.keeper().await.ask(&["FLUSHDB"]).await;
        stopped(&one, of("cid")).await;
        assert_eq!(foreign.number("SELECT generation FROM firstcome_room").await, 1);

        // The right database is back: everything goes on by itself.
        put_back(&mut foreign, "after").await;
        let eve = until("the room to go on", async || one.join(&room(), of("eve")).await.ok()).await;
        assert!(2 < eve.expect("there is room").1.number.get());
        assert!(one.faults().open().is_empty());
        assert_eq!(join(&one, of("bob")).await.1.ticket, bob.ticket);

        // That was a log rebuilt. If the database goes back to before it, the log alone tells a node that starts now.
        at_rest(&place, &one).await;
        drop((one, two));
        put_back(&mut foreign, "after").await;
        stopped(&place.node().await, of("fay")).await;
        let generation: i64 = place.keeper().await.ask(&["HGET", "fc:{r1}:log", "generation"]).await;
        assert_eq!((generation, foreign.number("SELECT generation FROM firstcome_room").await), (2, 1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_sees_the_database_behind_stops_the_room_until_it_is_rebuilt_on_postgres() {
    stops(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_sees_the_database_behind_stops_the_room_until_it_is_rebuilt_on_mariadb() {
    stops(Kind::MariaDb).await;
}

/// So many join, in some order; the highest number of them, 0 if there are none.
async fn crowd_joins(node: &Cluster, crowd: u32) -> u32 {
    let queues: Vec<_> = (0..crowd.min(500))
        .map(|queue| {
            let node = node.clone();
            tokio::spawn(async move {
                let mut last = 0;
                for _ in (queue..crowd).step_by(500) {
                    last = join(&node, ANYBODY).await.1.number.get();
                }
                last
            })
        })
        .collect();
    let mut highest = 0;
    for queue in queues {
        highest = highest.max(queue.await.expect("no task panics"));
    }
    highest
}

/// An operator goes on without what is gone: bob was told number 2, and was inside with admission 2. `crowd`: so many join after
/// the copy was made.
async fn goes_on(kind: Kind, crowd: u32) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    in_time(async {
        let (one, mut foreign) = (place.node().await, place.foreign().await);
        put(&one, RoomSettings::with_slots(2)).await;
        let (_, ann) = join(&one, of("ann")).await;
        assert_eq!(inside(&one, &ann).await, 1);
        at_rest(&place, &one).await;
        keep(&mut foreign, "before").await;
        let (_, bob) = join(&one, of("bob")).await;
        assert_eq!((bob.number.get(), inside(&one, &bob).await), (2, 2));
        let last = crowd_joins(&one, crowd).await.max(bob.number.get());
        at_rest(&place, &one).await;
        put_back(&mut foreign, "before").await;
        stopped(&one, of("cid")).await;

        let told = accept_loss(&place.redis, &place.sql, secret(), options()).await.expect("it is accepted");
        let hall = told.findings.iter().find(|finding| finding.object == Object::Room("hall".to_owned()));
        let hall = hall.unwrap_or_else(|| panic!("{told:?}"));
        assert_eq!(hall.state, State::WentBack);
        assert!(
            hall.says.contains("tickets are gone: 2 of bob") && hall.says.contains("admissions 2 to 2 are gone"),
            "{}",
            hall.says
        );
        assert!(matches!(hall.repair, Repair::Done(_)), "{hall:?}");
        let cid = until("the room to go on", async || one.join(&room(), of("cid")).await.ok()).await;
        let (_, cid) = cid.expect("there is room");
        assert!(last < cid.number.get(), "one number for two: {last} was told, and {} is", cid.number.get());
        assert_eq!(inside(&one, &cid).await, 3, "one admission for two passes");
        assert!(one.faults().open().is_empty());
        // Bob's ticket brings him back to the front of the line.
        let back = poll(&one, &bob.ticket).await;
        assert_eq!((position(&back), back.user.as_deref()), (Some(0), Some("bob")));
        // Ann keeps her place, and a node that starts now knows the same.
        let two = place.node().await;
        assert_eq!(inside(&two, &ann).await, 1);
        assert!(cid.number < join(&two, of("dan")).await.1.number);
        assert_eq!(join(&two, of("cid")).await.1.ticket, cid.ticket);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_goes_on_above_all_that_was_told_when_an_operator_accepts_the_loss_on_postgres() {
    // More than a row reserves at once: the copy has another ceiling.
    goes_on(Kind::Postgres, 66_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_goes_on_above_all_that_was_told_when_an_operator_accepts_the_loss_on_mariadb() {
    goes_on(Kind::MariaDb, 0).await;
}
