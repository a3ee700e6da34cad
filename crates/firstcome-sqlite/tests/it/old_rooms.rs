//! Rooms of a file from before rooms had draws.

use crate::in_time;
use crate::older::{file_of_version, put_sale};
use firstcome_sqlite as sqlite;
use firstcome_store::RoomStore;
use firstcome_store::core::id::RoomName;
use firstcome_store::core::room::{Join, RoomOrder, RoomSettings, TicketState};
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::ManualClock;
use std::path::Path;
use std::sync::Arc;

const AT: i64 = 1_790_000_000_123_456;

/// A directory of version 4, with a paused room of two visitors.
fn old_directory(directory: &Path) {
    let file = file_of_version(directory, 4);
    put_sale(&file, 60_000, AT);
    for (number, user) in [(1_i64, "ann"), (2, "bob")] {
        let ticket = "INSERT INTO ticket (id, user, joined_at) VALUES (?1, ?2, ?3)";
        file.execute(ticket, (1_i64 << 32 | number, user, AT)).expect("a ticket");
    }
}

#[tokio::test]
async fn rooms_of_an_older_file_serve_in_the_order_of_arrival_and_may_draw_later() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    old_directory(directory.path());
    in_time(async {
        let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(AT + 10)));
        let store = sqlite::open(directory.path(), Arc::clone(&clock) as _).expect("it is brought up to date");
        let sale = RoomName::parse("sale").expect("a valid name");
        let shown = store.room(&sale).await.expect("it answers").expect("there is one");
        assert_eq!((shown.settings.order, shown.draw, shown.view.waiting), (RoomOrder::FirstCome, None, 2));
        assert_eq!(shown.settings.first_poll_ms, None, "no place ends early unasked");
        let anyone = || Join { user: None, request: None };
        let (_, third) = store.join(&sale, anyone()).await.expect("it answers").expect("it is open");
        assert!(matches!(third.state, TicketState::Waiting { position: 2, .. }), "{third:?}");
        let opens_at = Some(Timestamp::clamped_us(AT + 60_000_000));
        let drawing = RoomSettings { opens_at, order: RoomOrder::Draw, ..RoomSettings::with_slots(1) };
        store.close_room(&sale).await.expect("it answers").expect("there is one");
        store.put_room(&sale, drawing).await.expect("it answers").expect("it opens again");
        let (_, fourth) = store.join(&sale, anyone()).await.expect("it answers").expect("it is open");
        assert!(matches!(fourth.state, TicketState::InDraw { entrants: 1, .. }), "{fourth:?}");
    })
    .await;
}
