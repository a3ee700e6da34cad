//! Purges of tickets that are gone, in a file and in memory.

use crate::in_time;
use crate::older::{file_of_version, put_sale};
use firstcome_sqlite as sqlite;
use firstcome_store::archive::{ArchivedLine, Incoming};
use firstcome_store::conformance::manual_clock;
use firstcome_store::core::id::{RequestId, RoomName, UserId};
use firstcome_store::core::room::{Departure, Join, RoomSettings, TicketState};
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::{Clock as _, ManualClock};
use firstcome_store::purge::PurgeMode;
use firstcome_store::{
    Embedded, Fault, Joining, PurgeRequest, PurgeStore, ReceiptStore, Retention, RoomStore, TicketAnswer,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const DAY_MS: u64 = 86_400_000;
const HOUR_MS: u64 = 3_600_000;

fn sale() -> RoomName {
    RoomName::parse("sale").expect("a name")
}

fn open(directory: &Path, clock: &Arc<ManualClock>) -> Embedded {
    sqlite::open(directory, Arc::clone(clock) as _).expect("it opens")
}

/// A store with a room that admits no visitor, and lets them be silent for a day.
async fn with_room(directory: &Path, clock: &Arc<ManualClock>) -> Embedded {
    let store = open(directory, clock);
    let settings = RoomSettings { paused: true, waiting_ttl_ms: DAY_MS, ..RoomSettings::with_slots(1) };
    store.put_room(&sale(), settings).await.expect("an answer").expect("it is put");
    store
}

async fn joined(store: &Embedded, user: Option<&str>, key: Option<u128>) -> (Joining, TicketAnswer) {
    let user = user.map(|user| UserId::parse(user).expect("a user"));
    let join = Join { user, request: key.map(|key| RequestId { key, body: 1 }) };
    store.join(&sale(), join).await.expect("an answer").expect("a place")
}

async fn left(store: &Embedded, ticket: &TicketAnswer) {
    store.leave(&sale(), &ticket.ticket).await.expect("an answer").expect("it left");
}

async fn state(store: &Embedded, ticket: &TicketAnswer) -> TicketState {
    store.poll(&sale(), &ticket.ticket).await.expect("an answer").expect("the ticket is known").state
}

fn after_days(days: u64) -> PurgeRequest {
    let kept = Some(Duration::from_millis(days * DAY_MS));
    PurgeRequest::new(Retention { tickets: kept, ..Retention::FOREVER })
}

async fn purged(store: &Embedded, request: PurgeRequest) -> u64 {
    store.purge(request).await.expect("an answer").expect("it is purged").tickets
}

fn rows(directory: &Path, table: &str) -> i64 {
    let file = rusqlite::Connection::open(directory.join(sqlite::DATABASE_FILE)).expect("the file opens");
    file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("a count")
}

fn assert_sound(directory: &Path) {
    let checks = sqlite::verify(directory).expect("the file can be read");
    assert!(checks.iter().all(|check| check.breaches == 0), "{checks:?}");
}

const EXPIRED: TicketState = TicketState::Gone(Departure::Expired);

#[tokio::test]
async fn tickets_that_are_gone_leave_the_file_when_their_time_is_over_and_stay_gone() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    in_time(async {
        let store = with_room(directory.path(), &clock).await;
        let (_, first) = joined(&store, Some("ann"), Some(7)).await;
        let (_, second) = joined(&store, Some("bob"), None).await;
        let (_, third) = joined(&store, None, None).await;
        left(&store, &first).await;
        clock.pass_ms(HOUR_MS);
        left(&store, &second).await;
        assert_eq!(state(&store, &first).await, TicketState::Gone(Departure::Left));
        clock.pass_ms(7 * DAY_MS - HOUR_MS);
        assert!(matches!(state(&store, &third).await, EXPIRED), "silent for a week");
        assert_eq!(purged(&store, after_days(7)).await, 0, "seven days, and not a moment more");
        clock.pass_ms(1);
        let counted = PurgeRequest { mode: PurgeMode::Count, ..after_days(7) };
        assert_eq!((purged(&store, counted).await, rows(directory.path(), "ticket")), (1, 3));
        assert_eq!((purged(&store, after_days(7)).await, rows(directory.path(), "ticket")), (1, 2));
        clock.pass_ms(8 * DAY_MS);
        assert_eq!((purged(&store, after_days(7)).await, rows(directory.path(), "ticket")), (2, 0));
        store.publish_heads().await.expect("heads are published");
        for ticket in [&first, &second, &third] {
            assert_eq!(state(&store, ticket).await, EXPIRED);
        }
        assert_sound(directory.path());
        store.close();
        drop(store);
        let store = open(directory.path(), &clock);
        for ticket in [&first, &second, &third] {
            assert_eq!(state(&store, ticket).await, EXPIRED, "also after a restart");
            store.leave(&sale(), &ticket.ticket).await.expect("an answer").expect("to leave again changes nothing");
        }
        let (joining, fourth) = joined(&store, Some("ann"), Some(7)).await;
        assert_eq!((joining, fourth.number.get()), (Joining::New, 4), "the same key and user get the next number");
        store.publish_heads().await.expect("heads are published");
        for ticket in [&first, &fourth] {
            store.ticket_receipt(&sale(), &ticket.ticket).await.expect("an answer").expect("there is a receipt");
        }
        assert_sound(directory.path());
        store.close();
    })
    .await;
}

#[tokio::test]
async fn a_ticket_that_lives_keeps_all_after_it() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    in_time(async {
        let store = with_room(directory.path(), &clock).await;
        let mut tickets = Vec::new();
        for _ in 0..1_300 {
            tickets.push(joined(&store, None, None).await.1);
        }
        for ticket in tickets.iter().filter(|ticket| ticket.number.get() != 1_200) {
            left(&store, ticket).await;
        }
        let living = &tickets[1_199];
        for _ in 0..8 {
            clock.pass_ms(DAY_MS - HOUR_MS);
            assert!(matches!(state(&store, living).await, TicketState::Waiting { position: 0, .. }));
        }
        assert_eq!(purged(&store, after_days(7)).await, 1_199, "in pages of a thousand");
        assert!(matches!(state(&store, living).await, TicketState::Waiting { position: 0, .. }));
        store.close();
        drop(store);
        let store = open(directory.path(), &clock);
        assert!(matches!(state(&store, living).await, TicketState::Waiting { position: 0, .. }));
        assert_eq!(state(&store, &tickets[1_198]).await, EXPIRED);
        assert_eq!(state(&store, &tickets[1_200]).await, TicketState::Gone(Departure::Left));
        assert_eq!(joined(&store, None, None).await.1.number.get(), 1_301);
        assert_sound(directory.path());
        store.close();
    })
    .await;
}

#[tokio::test]
async fn a_wall_clock_set_forward_ends_no_ticket_early_and_a_closed_room_has_none() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    in_time(async {
        let store = with_room(directory.path(), &clock).await;
        let (_, first) = joined(&store, None, None).await;
        left(&store, &first).await;
        clock.step_forward_ms(30 * DAY_MS);
        assert_eq!(purged(&store, after_days(7)).await, 0);
        joined(&store, None, None).await;
        store.close_room(&sale()).await.expect("an answer").expect("it is closed");
        assert_eq!((purged(&store, after_days(1)).await, rows(directory.path(), "ticket")), (0, 0));
        let settings = RoomSettings { paused: true, ..RoomSettings::with_slots(1) };
        store.put_room(&sale(), settings).await.expect("an answer").expect("it opens again");
        let (_, third) = joined(&store, None, None).await;
        assert_eq!(third.number.get(), 3);
        left(&store, &third).await;
        clock.pass_ms(2 * DAY_MS);
        assert_eq!(purged(&store, after_days(1)).await, 0, "it left at a time that the steady clock has not reached");
        clock.pass_ms(30 * DAY_MS);
        assert_eq!(purged(&store, after_days(1)).await, 1);
        store.close();
        drop(store);
        let store = open(directory.path(), &clock);
        assert_eq!((state(&store, &third).await, joined(&store, None, None).await.1.number.get()), (EXPIRED, 4));
        assert_sound(directory.path());
        store.close();
    })
    .await;
}

/// A file of version 11, with two tickets that are gone and one that waits.
fn old_directory(directory: &Path, at: i64) {
    let file = file_of_version(directory, 11);
    put_sale(&file, 86_400_000, at);
    for (number, gone) in [(1_i64, Some(1)), (2, Some(2)), (3, None)] {
        let ticket = "INSERT INTO ticket (id, joined_at, gone) VALUES (?1, ?2, ?3)";
        file.execute(ticket, (1_i64 << 32 | number, at, gone)).expect("a ticket");
    }
}

#[tokio::test]
async fn tickets_of_an_older_file_count_as_gone_since_it_was_opened() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    old_directory(directory.path(), clock.now().as_us() - 300 * 86_400_000_000);
    in_time(async {
        let store = open(directory.path(), &clock);
        assert_eq!(purged(&store, after_days(7)).await, 0, "no row says since when they are gone");
        store.close();
        drop(store);
        clock.pass_ms(7 * DAY_MS);
        let store = open(directory.path(), &clock);
        assert_eq!(purged(&store, after_days(7)).await, 0);
        clock.pass_ms(1);
        assert_eq!((purged(&store, after_days(7)).await, rows(directory.path(), "ticket")), (2, 1));
        store.close();
        assert_sound(directory.path());
    })
    .await;
}

#[tokio::test]
async fn an_archive_has_the_numbers_that_a_purge_removed() {
    let (clock, _) = manual_clock();
    let (from, to) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    in_time(async {
        let store = with_room(from.path(), &clock).await;
        let (_, first) = joined(&store, None, None).await;
        left(&store, &first).await;
        clock.pass_ms(8 * DAY_MS);
        let (_, second) = joined(&store, Some("ann"), None).await;
        assert_eq!(purged(&store, after_days(7)).await, 1);
        store.close();
        drop(store);
        let archive = sqlite::Archive::open(from.path()).expect("it can be read");
        let mut importer = sqlite::Importer::open(to.path(), clock.now()).expect("it opens");
        for secret in archive.pass_secrets().expect("it can be read") {
            importer.take(Incoming::PassSecret(secret)).expect("it is taken");
        }
        let taken = archive.for_each_ticket::<Fault>(|line| {
            let line = match line {
                ArchivedLine::Room(room) => Incoming::Room(room),
                ArchivedLine::Ticket(ticket) => Incoming::Ticket(ticket),
            };
            importer.take(line).expect("it is taken");
            Ok(())
        });
        taken.expect("it can be read");
        importer.check().expect("nothing is missing");
        importer.finish().expect("it is stored");
        let store = open(to.path(), &clock);
        assert_eq!(state(&store, &first).await, EXPIRED);
        assert!(matches!(state(&store, &second).await, TicketState::Waiting { position: 0, .. }));
        // What came in counts as gone since then.
        assert_eq!(purged(&store, after_days(7)).await, 0);
        clock.pass_ms(8 * DAY_MS);
        assert_eq!(purged(&store, after_days(7)).await, 1);
        store.close();
        assert_sound(to.path());
    })
    .await;
}

/// Damages the file, and says whether `verify` finds it.
fn finds(directory: &Path, damage: &str) -> bool {
    let file = rusqlite::Connection::open(directory.join(sqlite::DATABASE_FILE)).expect("the file opens");
    assert_eq!(file.execute(damage, []).expect("it can be damaged"), 1);
    sqlite::verify(directory).expect("the file can be read").iter().any(|check| 0 < check.breaches)
}

#[tokio::test]
async fn verify_finds_a_ticket_that_no_purge_removed() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    in_time(async {
        let store = with_room(directory.path(), &clock).await;
        for _ in 0..3 {
            let (_, ticket) = joined(&store, None, None).await;
            left(&store, &ticket).await;
        }
        store.close();
    })
    .await;
    assert_sound(directory.path());
    assert!(finds(directory.path(), "DELETE FROM ticket WHERE id = (SELECT min(id) FROM ticket)"));
    assert!(!finds(directory.path(), "UPDATE room SET gone_before = 2"), "now it counts as purged");
    assert!(finds(directory.path(), "UPDATE room SET gone_before = 3"), "a row below the mark");
    let now = Timestamp::clamped_us(1_900_000_000_000_000);
    let refused = sqlite::open(directory.path(), Arc::new(ManualClock::new(now)));
    assert!(refused.is_err(), "a service does not start with it");
}
