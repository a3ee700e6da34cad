//! The erasure of a member with many records: what the file holds between its pages, and that a start goes on with them.

use crate::in_time;
use firstcome_sqlite::{self as sqlite, Archive, DATABASE_FILE};
use firstcome_store::archive::{ArchivedBid, ArchivedRecord};
use firstcome_store::conformance::manual_clock;
use firstcome_store::core::auction::ListingSettings;
use firstcome_store::core::coupon::Effect;
use firstcome_store::core::id::{ListingName, MemberName, RequestId, UserId};
use firstcome_store::core::points::{Amount, Wallet};
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::ManualClock;
use firstcome_store::{AuctionStore, Embedded, EraseStore, Fault, MovePoints, PlaceBid, Transfer};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

/// A name that no other bytes of the file can be.
const NAME: &str = "canary-of-an-erased-person";
const CHARGES: u64 = 300;
const BIDS: u64 = 1_100;
/// Each bid is a hold and a release.
const RECORDS: u64 = CHARGES + 2 * BIDS;
/// Stops an erasure after its first page and before its last one, as if the process had ended there; and how far it is then.
const CUTS: [(&str, i64); 2] = [
    ("CREATE TRIGGER cut BEFORE INSERT ON renaming WHEN 0 < NEW.done BEGIN SELECT RAISE(ABORT, 'cut'); END;", 0),
    ("CREATE TRIGGER cut BEFORE DELETE ON renaming BEGIN SELECT RAISE(ABORT, 'cut'); END;", 2_000),
];

fn open(directory: &Path, clock: &Arc<ManualClock>) -> Embedded {
    sqlite::open(directory, Arc::clone(clock) as _).expect("it opens")
}

fn file(directory: &Path) -> rusqlite::Connection {
    let file = rusqlite::Connection::open(directory.join(DATABASE_FILE)).expect("the file opens");
    file.busy_timeout(Duration::from_secs(5)).expect("it waits");
    file
}

/// How far the one erasure that is under way has come.
fn done(directory: &Path) -> Option<i64> {
    let query = "SELECT max(done) FROM renaming";
    file(directory).query_row(query, [], |row| row.get(0)).expect("the table is there")
}

fn member(name: &str) -> MemberName {
    MemberName::parse(name).expect("a name")
}

fn amount(points: u64) -> Amount {
    Amount::new(points).expect("an amount")
}

fn lamp() -> ListingName {
    ListingName::parse("lamp").expect("a name")
}

/// Whether the request is new.
async fn charge(store: &Embedded, name: &str, key: u64) -> bool {
    let request = Some(RequestId { key: key.into(), body: 5 });
    let movement = MovePoints { transfer: Transfer::Charge, amount: amount(20), request };
    let moved = store.move_points(&member(name), movement).await.expect("it answers").expect("no rule refuses it");
    matches!(moved, Effect::New(_))
}

/// Whether the request is new.
async fn bid(store: &Embedded, name: &str, price: u64, key: u64) -> bool {
    let request = Some(RequestId { key: key.into(), body: 5 });
    let bid = PlaceBid { bidder: member(name), price: amount(price), request };
    let placed = store.place_bid(&lamp(), bid).await.expect("it answers").expect("no rule refuses it");
    matches!(placed, Effect::New(_))
}

/// A store in which the person has [`RECORDS`] with keys, and nothing to settle.
async fn with_records(directory: &Path, clock: &Arc<ManualClock>) -> Embedded {
    let store = open(directory, clock);
    let settings = ListingSettings::auction(member("eve"), amount(1), Timestamp::clamped_us(i64::MAX / 2));
    store.put_listing(&lamp(), settings).await.expect("it answers").expect("no rule refuses it");
    let charges = async |keys: std::ops::Range<u64>| {
        for key in keys {
            assert!(charge(&store, NAME, key).await);
            assert!(charge(&store, "bob", 10_000 + key).await);
        }
    };
    charges(0..CHARGES / 2).await;
    for number in 1..=BIDS {
        assert!(bid(&store, NAME, 2 * number - 1, number).await);
        assert!(bid(&store, "bob", 2 * number, 10_000 + number).await);
    }
    charges(CHARGES / 2..CHARGES).await;
    store
}

fn person() -> UserId {
    UserId::parse(NAME).expect("a name")
}

/// The invariants that are broken, each with an example.
fn broken(directory: &Path) -> Vec<String> {
    let checks = sqlite::verify(directory).expect("the file can be read");
    let broken = checks.into_iter().filter(|check| 0 < check.breaches);
    broken.map(|check| format!("{}: {:?}", check.invariant, check.examples)).collect()
}

/// The records as an export has them are those of a member whose name is wholly erased.
fn assert_export(directory: &Path) {
    let archive = Archive::open(directory).expect("the directory can be read");
    let mut wallet = None;
    let visit = |archived: ArchivedRecord| {
        if archived.record.member == member("bob") {
            return Ok(());
        }
        assert_eq!(archived.request, None, "no key of an erased person");
        let wallet = wallet.get_or_insert_with(|| Wallet::empty(archived.record.member.clone()));
        assert_eq!(wallet.restore(&archived.record), Ok(()), "{:?}", archived.record);
        Ok::<_, Fault>(())
    };
    archive.for_each_record(visit).expect("all records can be read");
    let wallet = wallet.expect("there are records");
    assert!(wallet.member.as_str().starts_with("_erased:"), "{:?}", wallet.member);
    assert_eq!((wallet.records, wallet.balance.total()), (RECORDS, 20 * CHARGES));
    let mut keyed = Vec::new();
    let visit = |archived: ArchivedBid| {
        keyed.extend(archived.request.map(|_| archived.placed.bid.bidder));
        Ok::<_, Fault>(())
    };
    archive.for_each_bid(visit).expect("all bids can be read");
    assert_eq!(keyed, vec![member("bob"); BIDS as usize], "no key of an erased person");
}

/// How many idempotency keys the file has.
fn keys(directory: &Path) -> i64 {
    let query = "SELECT (SELECT count(request_key) FROM record) + (SELECT count(request_key) FROM bid)";
    file(directory).query_row(query, [], |row| row.get(0)).expect("the tables are there")
}

fn bytes(directory: &Path) -> Vec<u8> {
    let files = std::fs::read_dir(directory).expect("a directory");
    files.flat_map(|file| std::fs::read(file.expect("a file").path()).expect("it can be read")).collect()
}

fn chains(directory: &Path) -> Vec<Vec<u8>> {
    let file = file(directory);
    let mut statement = file.prepare("SELECT chain FROM record WHERE id >> 36 = 1").expect("a statement");
    let rows = statement.query_map([], |row| row.get(0)).expect("rows");
    rows.map(|row| row.expect("a chain")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_that_is_cut_short_goes_on_at_the_next_start() {
    for (cut, page) in CUTS {
        is_cut_short(cut, page).await;
    }
}

async fn is_cut_short(cut: &str, page: i64) {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let at = directory.path();
    let store = in_time(with_records(at, &clock)).await;
    let before = chains(at);
    file(at).execute_batch(cut).expect("the change is made");
    in_time(store.erase(&person())).await.expect_err("the last page cannot be stored");
    store.close();
    drop(store);

    assert_eq!(done(at), Some(page), "it was cut within");
    assert_eq!(broken(at), Vec::<String>::new(), "a check knows both chains");
    assert_export(at);
    for (what, change) in [
        ("a record that is chained again", "UPDATE record SET at = at + 1 WHERE id = (1 << 36) + 700"),
        ("a record that is not", "UPDATE record SET at = at + 1 WHERE id = (1 << 36) + 2200"),
        ("the mark", "UPDATE renaming SET done = done + 1"),
        ("the name before", "UPDATE renaming SET before = 'bob'"),
    ] {
        let other = tempfile::tempdir().expect("a directory for the test");
        let copy = other.path().join(DATABASE_FILE);
        file(at).execute("VACUUM INTO ?1", [copy.to_str().expect("a path of text")]).expect("a copy");
        file(other.path()).execute_batch(change).expect("the change is made");
        assert!(broken(other.path()).iter().any(|it| it.starts_with("records are a chain")), "{what}");
    }

    file(at).execute_batch("DROP TRIGGER cut").expect("the change is made");
    let store = open(at, &clock);
    for key in 0..CHARGES {
        assert!(charge(&store, NAME, key).await, "a new person, also while a page is left: key {key} is forgotten");
    }
    for (price, key) in [(3_000, 1), (3_200, BIDS)] {
        assert!(bid(&store, NAME, price, key).await, "the key of bid {key}");
        assert!(bid(&store, "bob", price + 100, 20_000 + key).await);
    }
    let erased = in_time(store.erase(&person())).await.expect("it answers").expect("nothing is due");
    assert_eq!((erased.members, erased.records), (1, CHARGES + 4), "the new person");
    assert_eq!(done(at), None, "it answers when nothing of the name is left");
    store.close();
    drop(store);
    assert_eq!(broken(at), Vec::<String>::new());
    assert_eq!(keys(at), (CHARGES + BIDS).cast_signed() + 2, "those of bob");
    let (left, known) = (bytes(at), before.iter().map(Vec::as_slice).collect::<std::collections::HashSet<_>>());
    assert_eq!(left.windows(NAME.len()).filter(|bytes| *bytes == NAME.as_bytes()).count(), 0, "the name is left");
    assert_eq!(left.windows(32).filter(|bytes| known.contains(bytes)).count(), 0, "chain values of the name are left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_goes_away_does_not_stop_an_erasure() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let store = in_time(with_records(directory.path(), &clock)).await;
    {
        let name = person();
        let mut erase = pin!(store.erase(&name));
        assert!(erase.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "the writer has it");
        let member = member(NAME);
        let first_turn = async {
            while store.balance(&member).await.expect("it answers").total() != 0 {
                tokio::task::yield_now().await;
            }
        };
        in_time(first_turn).await;
    }
    let rest = async {
        while done(directory.path()).is_some() {
            tokio::task::yield_now().await;
        }
    };
    in_time(rest).await;
    store.close();
    drop(store);
    assert_eq!(broken(directory.path()), Vec::<String>::new());
    assert_export(directory.path());
}

/// A mark that no erasure leaves is damage, which a start tells.
#[tokio::test]
async fn a_mark_beyond_the_records_is_refused_at_the_start() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let store = open(directory.path(), &clock);
    charge(&store, NAME, 1).await;
    store.close();
    drop(store);
    for (done, last) in [(0, 2), (1, 1), (3, 3)] {
        let mark = format!("INSERT INTO renaming VALUES (1, 'ann', {last}, {done}, zeroblob(32), zeroblob(32))");
        file(directory.path()).execute_batch(&mark).expect("the change is made");
        let fault = sqlite::open(directory.path(), Arc::clone(&clock) as _).expect_err("it is no mark of an erasure");
        assert!(fault.to_string().contains("what an erasure has left"), "{fault}");
        file(directory.path()).execute_batch("DELETE FROM renaming").expect("the change is made");
    }
    open(directory.path(), &clock).close();
}

/// A record is missing beyond the first pages: the erasure cannot go on, and holds up no other command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_whose_rows_are_damaged_fails_and_holds_up_nothing_else() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let at = directory.path();
    let store = in_time(with_records(at, &clock)).await;
    let remove = "DELETE FROM record WHERE id = (1 << 36) + 2200";
    file(at).execute_batch(remove).expect("the change is made");
    for opened in ["at once", "after a restart"] {
        let store = if opened == "at once" { store.clone() } else { open(at, &clock) };
        for _ in 0..2 {
            let error = in_time(store.erase(&person())).await.expect_err("the name is not wholly erased");
            assert!(error.to_string().contains("records are not exactly"), "{opened}: {error}");
        }
        assert!(store.fault().is_none(), "{opened}: {:?}", store.fault());
        let key = if opened == "at once" { 60_000 } else { 60_001 };
        assert!(charge(&store, "cid", key).await, "{opened}");
        let cid = UserId::parse("cid").expect("a name");
        let erased = in_time(store.erase(&cid)).await.expect("it answers").expect("nothing is due");
        assert_eq!((erased.members, erased.records), (1, 1), "{opened}");
        store.close();
    }
    assert_eq!(done(at), Some(2_000));
}
