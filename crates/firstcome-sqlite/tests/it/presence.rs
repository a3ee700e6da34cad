//! A file remembers who was present, through twenty kills.

use crate::older::file_of_version;
use firstcome_store::conformance::manual_clock;
use firstcome_store::core::id::RoomName;
use firstcome_store::core::room::{Join, RoomSettings, TicketState};
use firstcome_store::{Embedded, RoomStore};

fn sale() -> RoomName {
    RoomName::parse("sale").expect("a name")
}

async fn joined(store: &Embedded) -> String {
    let join = store.join(&sale(), Join { user: None, request: None }).await;
    join.expect("it answers").expect("it is open").1.ticket.into()
}

async fn is_admitted(store: &Embedded, ticket: &str) -> bool {
    let told = store.poll(&sale(), ticket).await.expect("it answers").expect("it knows the ticket");
    matches!(told.state, TicketState::Admitted { .. })
}

async fn put(store: &Embedded, paused: bool) {
    let settings = RoomSettings { paused, ..RoomSettings::with_slots(1) };
    store.put_room(&sale(), settings).await.expect("it answers").expect("it is put");
}

#[tokio::test]
async fn who_is_gone_stays_gone_through_twenty_kills_and_who_is_there_is_next() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let open = || firstcome_sqlite::open(directory.path(), clock.clone()).expect("it opens");
    let mut store = open();
    put(&store, true).await;
    let (gone, there) = (joined(&store).await, joined(&store).await);
    for _ in 0..20 {
        for _ in 0..3 {
            clock.pass_ms(1_200);
            assert!(!is_admitted(&store, &there).await);
            store.tick().await.expect("it ticks");
        }
        // Dropped without a close, as a killed process leaves it.
        drop(store);
        clock.pass_ms(600_000);
        store = open();
    }
    put(&store, false).await;
    store.tick().await.expect("it ticks");
    assert!(is_admitted(&store, &there).await, "72 s of silence, and hours in which nothing could be heard");
    assert!(!is_admitted(&store, &gone).await, "the place is kept");
    let broken = firstcome_sqlite::verify(directory.path()).expect("it can be read");
    assert!(broken.iter().all(|check| check.breaches == 0), "{broken:?}");
}

/// A file of version 6 has no memory of presence: all visitors count as present.
#[tokio::test]
async fn a_file_without_a_memory_opens_and_remembers_from_then_on() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let file = file_of_version(directory.path(), 6);
    let put_room =
        "INSERT INTO room (id, name, admit_count, admit_every_ms, max_waiting, waiting_ttl_ms, active_ttl_ms,
        claim_window_ms, paused, ticket_key, first, reached, created_at, changed_at)
        VALUES (1, 'sale', 10, 1000, 100, 3600000, 60000, 60000, 0, zeroblob(32), 1, 1, 5, 5)";
    file.execute(put_room, ()).expect("a room");
    file.execute("INSERT INTO ticket (id, joined_at) VALUES (4294967297, 5)", ()).expect("a ticket");
    drop(file);
    let (clock, _) = manual_clock();
    let store = firstcome_sqlite::open(directory.path(), clock.clone()).expect("it is brought up to date");
    let view = store.room(&sale()).await.expect("it answers").expect("it is there").view;
    assert_eq!(view.waiting, 1);
    clock.pass_ms(1_000);
    store.tick().await.expect("it ticks");
    let view = store.room(&sale()).await.expect("it answers").expect("it is there").view;
    assert_eq!((view.waiting, view.active), (0, 1), "it counts as present");
}
