//! Records that a purge removed: the suite over a file and in memory, and rows that were changed by hand afterwards.

use crate::in_time;
use firstcome_sqlite as sqlite;
use firstcome_store::conformance::{manual_clock, record_purges};
use firstcome_store::core::id::{MemberName, UserId};
use firstcome_store::core::points::Amount;
use firstcome_store::edge::ManualClock;
use firstcome_store::purge::{PurgeMode, PurgeRequest, PurgeStore, Retention};
use firstcome_store::{AuctionStore, Embedded, EraseStore, MovePoints, Transfer};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const DAY_MS: u64 = 86_400_000;

fn open(directory: &Path, clock: &Arc<ManualClock>) -> Embedded {
    sqlite::open(directory, Arc::clone(clock) as _).expect("it opens")
}

/// The invariants that are broken, each with an example.
fn broken(directory: &Path) -> Vec<String> {
    let checks = sqlite::verify(directory).expect("the file can be read");
    let broken = checks.into_iter().filter(|check| 0 < check.breaches);
    broken.map(|check| format!("{}: {:?}", check.invariant, check.examples)).collect()
}

#[tokio::test]
async fn records_in_a_file_go_and_leave_an_anchor() {
    let (clock, pass) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let store = open(directory.path(), &clock);
    let age = async |days: u32| pass(u64::from(days) * DAY_MS).await;
    let verify = async || assert_eq!(broken(directory.path()), Vec::<String>::new());
    in_time(record_purges(&store, age, verify)).await;
    store.close();
    drop(store);
    let store = open(directory.path(), &clock);
    let dan = store.records(&member("dan"), None, 9).await.expect("an answer");
    assert_eq!((dan.items.len(), dan.removed_to), (1, 2_100), "it stays so over a restart");
    store.close();
}

#[tokio::test]
async fn records_in_memory_go_too() {
    let (clock, pass) = manual_clock();
    let store = Embedded::memory_with(Arc::clone(&clock) as _);
    let age = async |days: u32| pass(u64::from(days) * DAY_MS).await;
    in_time(record_purges(&store, age, async || {})).await;
}

fn member(name: &str) -> MemberName {
    MemberName::parse(name).expect("a name")
}

async fn charge(store: &Embedded, name: &str, points: u64) {
    let amount = Amount::new(points).expect("an amount");
    let movement = MovePoints { transfer: Transfer::Charge, amount, request: None };
    store.move_points(&member(name), movement).await.expect("an answer").expect("it is charged");
}

fn request() -> PurgeRequest {
    PurgeRequest::new(Retention { records: Some(Duration::from_secs(31 * 86_400)), ..Retention::FOREVER })
}

/// Makes a file in which two members have three records each behind an anchor at number 2.
async fn purged(directory: &Path, clock: &Arc<ManualClock>) {
    let store = open(directory, clock);
    for name in ["ann", "bob"] {
        charge(&store, name, 10).await;
        charge(&store, name, 20).await;
    }
    clock.pass_ms(40 * DAY_MS);
    for name in ["ann", "bob"] {
        for points in [1, 2, 3] {
            charge(&store, name, points).await;
        }
    }
    let counted = PurgeRequest { mode: PurgeMode::Count, ..request() };
    for request in [counted, request()] {
        assert_eq!(store.purge(request).await.expect("an answer").expect("the clock is right").records, 4);
    }
    store.close();
}

#[tokio::test]
async fn every_change_behind_a_purge_is_found() {
    let chain = "records are a chain";
    let sum = "a balance is the sum of its records";
    let conserved = "points are conserved";
    let rows = [
        ("nothing", "", None),
        ("the first record behind the anchor is gone", "DELETE FROM record WHERE id = (1 << 36) + 3", Some(chain)),
        ("a later one is gone", "DELETE FROM record WHERE id = (2 << 36) + 4", Some(chain)),
        ("the last one is gone", "DELETE FROM record WHERE id = (2 << 36) + 5", Some(sum)),
        ("the anchor is gone", "DELETE FROM anchor WHERE member = 2", Some(chain)),
        ("its number", "UPDATE anchor SET number = 1 WHERE member = 1", Some(chain)),
        ("its balance", "UPDATE anchor SET total = 31 WHERE member = 1", Some(chain)),
        ("its chain", "UPDATE anchor SET chain = zeroblob(32) WHERE member = 1", Some(chain)),
        ("its charges", "UPDATE anchor SET charged = 31 WHERE member = 1", Some(conserved)),
        (
            "all balances of a member, which a chain does not cover",
            "UPDATE anchor SET total = total + 1 WHERE member = 1;
             UPDATE record SET total = total + 1 WHERE id >> 36 = 1;
             UPDATE member SET total = total + 1 WHERE id = 1;",
            Some(conserved),
        ),
        ("an amount", "UPDATE record SET amount = 2 WHERE id = (1 << 36) + 3", Some(chain)),
        (
            "a record comes back",
            "INSERT INTO record SELECT id - 1, kind, amount, listing, bid, at, total, held, chain, request_key, request_body
             FROM record WHERE id = (1 << 36) + 3",
            Some(chain),
        ),
    ];
    let (clock, _) = manual_clock();
    for (what, change, found) in rows {
        let directory = tempfile::tempdir().expect("a directory for the test");
        purged(directory.path(), &clock).await;
        let file = rusqlite::Connection::open(directory.path().join(sqlite::DATABASE_FILE)).expect("the file opens");
        file.execute_batch(change).expect("the change is made");
        drop(file);
        let broken = broken(directory.path());
        match found {
            None => assert!(broken.is_empty(), "{what}: {broken:?}"),
            Some(invariant) => assert!(broken.iter().any(|it| it.starts_with(invariant)), "{what}: {broken:?}"),
        }
    }
}

/// The chain values of the first member in the file: each covers the name, so a reader who guesses the name can check the guess.
fn chains_of_ann(directory: &Path) -> Vec<Vec<u8>> {
    let file = rusqlite::Connection::open(directory.join(sqlite::DATABASE_FILE)).expect("the file opens");
    let query = "SELECT chain FROM record WHERE id >> 36 = 1 UNION ALL SELECT chain FROM anchor WHERE member = 1";
    let mut statement = file.prepare(query).expect("a statement");
    let rows = statement.query_map([], |row| row.get(0)).expect("rows");
    rows.map(|row| row.expect("a chain")).collect()
}

#[tokio::test]
async fn no_chain_value_of_an_erased_member_stays_in_the_files() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let store = open(directory.path(), &clock);
    for _ in 0..1_500 {
        charge(&store, "ann", 1).await;
    }
    clock.pass_ms(40 * DAY_MS);
    charge(&store, "ann", 1).await;
    let mut chains = chains_of_ann(directory.path());
    assert_eq!(chains.len(), 1_501);
    store.purge(request()).await.expect("an answer").expect("the clock is right");
    chains.extend(chains_of_ann(directory.path()));
    assert_eq!(chains.len(), 1_501 + 2, "the last one, and the anchor");
    store.erase(&UserId::parse("ann").expect("a name")).await.expect("an answer").expect("nothing is due");
    store.close();
    drop(store);
    let mut files = Vec::new();
    for file in std::fs::read_dir(directory.path()).expect("a directory") {
        files.extend(std::fs::read(file.expect("a file").path()).expect("it can be read"));
    }
    let known: std::collections::HashSet<&[u8]> = chains.iter().map(Vec::as_slice).collect();
    let left = files.windows(32).filter(|bytes| known.contains(bytes)).count();
    assert_eq!(left, 0, "chain values of the name are left");
    assert_eq!(broken(directory.path()), Vec::<String>::new());
}

#[tokio::test]
async fn records_stay_for_ever_unless_a_time_is_set() {
    let (clock, _) = manual_clock();
    let store = Embedded::memory_with(Arc::clone(&clock) as _);
    charge(&store, "ann", 1).await;
    clock.pass_ms(300 * DAY_MS);
    charge(&store, "ann", 1).await;
    let forgotten = store.purge(PurgeRequest::new(Retention::default())).await.expect("an answer");
    assert_eq!(forgotten.expect("the clock is right").records, 0);
    assert_eq!(store.records(&member("ann"), None, 9).await.expect("an answer").items.len(), 2);
}

#[tokio::test]
async fn a_purge_that_is_cut_short_leaves_an_anchor_and_the_next_one_goes_on() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let store = open(directory.path(), &clock);
    for _ in 0..2_500 {
        charge(&store, "ann", 1).await;
    }
    clock.pass_ms(40 * DAY_MS);
    charge(&store, "ann", 1).await;
    let first_page = async {
        while store.records(&member("ann"), None, 1).await.expect("an answer").removed_to == 0 {
            tokio::task::yield_now().await;
        }
    };
    in_time(async {
        tokio::select! {
            biased;
            _ = store.purge(request()) => panic!("the purge has ended"),
            () = first_page => {}
        }
    })
    .await;
    // What the purge gave the writer last is done, or skipped.
    charge(&store, "bob", 1).await;
    let removed_to = store.records(&member("ann"), None, 1).await.expect("an answer").removed_to;
    assert!([1_000, 2_000].contains(&removed_to), "whole pages: {removed_to}");
    assert_eq!(broken(directory.path()), Vec::<String>::new());
    store.close();
    drop(store);
    let store = open(directory.path(), &clock);
    let rest = store.purge(request()).await.expect("an answer").expect("the clock is right").records;
    assert_eq!(removed_to + rest, 2_500);
    assert_eq!(broken(directory.path()), Vec::<String>::new());
    store.close();
}
