//! Heads that a purge removed: the suite over a file and in memory, the file opened again, and rows that were changed by hand.

use crate::in_time;
use firstcome_sqlite as sqlite;
use firstcome_store::archive::{ArchivedClaim, ArchivedHead, Incoming, IncomingClaim};
use firstcome_store::conformance::{head_purges, manual_clock};
use firstcome_store::core::coupon::{Claim, CouponLimit, CouponSettings};
use firstcome_store::core::id::{CouponName, UserId};
use firstcome_store::edge::{Clock, ManualClock};
use firstcome_store::purge::{PurgeRequest, PurgeStore, Retention};
use firstcome_store::{CouponStore, Embedded, Fault, ReceiptReply, ReceiptStore};
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
async fn heads_that_a_purge_removed_leave_a_chain_that_verifies() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let new_store = async |clock: Arc<ManualClock>| open(directory.path(), &clock);
    let verify = async || assert_eq!(broken(directory.path()), Vec::<String>::new());
    in_time(head_purges(new_store, verify)).await;
}

#[tokio::test]
async fn heads_in_memory_go_too() {
    let new_store = async |clock: Arc<ManualClock>| Embedded::memory_with(clock);
    in_time(head_purges(new_store, async || {})).await;
}

fn sale() -> CouponName {
    CouponName::parse("sale").expect("a name")
}

async fn claim(store: &Embedded, user: &str) {
    let claim = Claim { user: UserId::parse(user).expect("a user"), attributes: None, request: None };
    store.claim(&sale(), claim).await.expect("an answer").expect("there is one left");
    store.publish_heads().await.expect("heads are published");
}

/// Makes a file with the heads 3 to 5 of a coupon, behind two that a purge removed.
async fn purged(directory: &Path, clock: &Arc<ManualClock>) {
    let store = open(directory, clock);
    let settings = CouponSettings::with_limit(CouponLimit::new(9).expect("a limit"));
    store.put_coupon(&sale(), settings).await.expect("an answer").expect("no rule refuses it");
    for user in ["ann", "bob", "cyd"] {
        claim(&store, user).await;
    }
    clock.pass_ms(2 * DAY_MS);
    for user in ["dan", "eve"] {
        claim(&store, user).await;
    }
    let heads = Some(Duration::from_secs(86_400));
    let request = PurgeRequest::new(Retention { heads, ..Retention::FOREVER });
    assert_eq!(store.purge(request).await.expect("an answer").expect("the clock is right").heads, 2);
    store.close();
}

#[tokio::test]
async fn every_change_behind_removed_heads_is_found() {
    let rows = [
        ("nothing", "", false),
        ("the first head that is left", "DELETE FROM head WHERE sequence = 3", true),
        ("a later one", "DELETE FROM head WHERE sequence = 4", true),
        ("the mark", "DELETE FROM head_removed", true),
        ("a lower mark", "UPDATE head_removed SET sequence = 1", true),
        ("a higher mark", "UPDATE head_removed SET sequence = 3", true),
        ("a first head that names none", "UPDATE head SET previous = zeroblob(32) WHERE sequence = 3", true),
    ];
    let (clock, _) = manual_clock();
    for (what, change, is_found) in rows {
        let directory = tempfile::tempdir().expect("a directory for the test");
        purged(directory.path(), &clock).await;
        let file = rusqlite::Connection::open(directory.path().join(sqlite::DATABASE_FILE)).expect("the file opens");
        file.execute_batch(change).expect("the change is made");
        drop(file);
        let broken = broken(directory.path());
        let names_it = broken.iter().any(|it| it.starts_with("heads of a room or coupon are one chain"));
        assert_eq!((names_it, broken.is_empty()), (is_found, !is_found), "{what}: {broken:?}");
    }
}

fn coming(claim: ArchivedClaim) -> IncomingClaim {
    let ArchivedClaim { coupon, issued, user, attributes, request, redeemed, code } = claim;
    let (serial, code) = (Some(issued.serial), Some(code.as_str().to_owned()));
    IncomingClaim { coupon, serial, issued_at: issued.issued_at, user, attributes, request, redeemed, code }
}

#[tokio::test]
async fn a_file_with_removed_heads_is_opened_again_and_copied() {
    let (clock, _) = manual_clock();
    let (from, to) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    purged(from.path(), &clock).await;
    let archive = sqlite::Archive::open(from.path()).expect("it can be read");
    let mut heads: Vec<ArchivedHead> = Vec::new();
    let each = archive.for_each_head::<Fault>(|head| {
        heads.push(head);
        Ok(())
    });
    each.expect("it can be read");
    let removed: Vec<(u64, u64)> = heads.iter().map(|head| (head.signed.head.sequence, head.removed_to)).collect();
    assert_eq!(removed, [(3, 2), (4, 0), (5, 0)]);
    // Each says what an import must not believe.
    let importer = || {
        let mut importer = sqlite::Importer::open(to.path(), clock.now()).expect("it opens");
        for (coupon, _) in archive.coupons().expect("it can be read") {
            importer.take(Incoming::Coupon(Box::new(coupon))).expect("it is taken");
        }
        let taken = archive.for_each_claim::<Fault>(|claim| {
            importer.take(Incoming::Claim(Box::new(coming(claim)))).expect("it is taken");
            Ok(())
        });
        taken.expect("it can be read");
        importer
    };
    for (first, removed_to) in [(0, 0), (0, 1), (0, 3), (1, 2)] {
        let head = ArchivedHead { removed_to, ..heads[first].clone() };
        let refused = importer().take(Incoming::Head(Box::new(head))).expect_err("it is refused").to_string();
        assert!(refused.contains("a head is missing"), "{refused}");
    }
    let mut importer = importer();
    for head in heads {
        importer.take(Incoming::Head(Box::new(head))).expect("it is taken");
    }
    importer.check().expect("nothing is missing");
    importer.finish().expect("it is stored");
    for directory in [from.path(), to.path()] {
        let store = open(directory, &clock);
        claim(&store, "fay").await;
        let page = store.coupon_heads(&sale(), 0, 9).await.expect("an answer").expect("it is known");
        page.verify().expect("one chain");
        assert_eq!((page.removed_to(0), page.heads.len()), (Some(2), 4));
        let fay = store.claim_receipt(&sale(), "fay").await.expect("an answer").expect("it is known");
        assert!(matches!(fay, ReceiptReply::Ready(_)), "{fay:?}");
        let ann = store.claim_receipt(&sale(), "ann").await.expect("an answer").expect("it is known");
        assert_eq!(ann, ReceiptReply::Removed);
        store.close();
        drop(store);
        assert_eq!(broken(directory), Vec::<String>::new());
    }
}
