//! The erasure of a member with many records whose process ends between two pages: what the tables hold then, and who goes on.

use super::{Base, charge, options};
use firstcome_sql::{SqlAuctions, verify_auctions};
use firstcome_store::core::auction::ListingSettings;
use firstcome_store::core::id::{ListingName, MemberName, RequestId, UserId};
use firstcome_store::core::points::Amount;
use firstcome_store::purge::{PurgeMode, PurgeRequest, PurgeStore, Retention};
use firstcome_store::{AuctionStore, EraseStore, MovePoints, Purchase, Transfer};
use std::sync::Arc;
use std::time::Duration;

const RECORDS: i64 = 1_300;
/// Records of this age go by the purges of these tests.
const AGE_US: i64 = 40 * 86_400_000_000;

/// What ann sells at a fixed price.
const LISTINGS: [&str; 2] = ["lamp", "vase"];

fn member(text: &str) -> MemberName {
    MemberName::parse(text).expect("a name")
}

fn name(text: &str) -> ListingName {
    ListingName::parse(text).expect("a name")
}

/// Stops an erasure at its second page, as if the process had ended there.
const CUT: [&str; 2] = [
    "CREATE OR REPLACE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the test said so'; END $$;\
     CREATE TRIGGER cut BEFORE DELETE ON firstcome_renaming FOR EACH ROW EXECUTE FUNCTION cut()",
    "CREATE TRIGGER cut BEFORE DELETE ON firstcome_renaming FOR EACH ROW \
     SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the test said so'",
];
const MEND: [&str; 2] = ["DROP TRIGGER cut ON firstcome_renaming", "DROP TRIGGER cut"];

async fn breaches(base: &Base) -> Vec<String> {
    let checks = verify_auctions(&base.url).await.expect("it can be read").into_iter();
    checks
        .filter(|check| 0 < check.breaches)
        .map(|check| format!("{}: {:?}", check.invariant, check.examples))
        .collect()
}

fn ann() -> UserId {
    UserId::parse("ann").expect("a name")
}

/// A store in which ann has [`RECORDS`], and an erasure of ann has come as far as its first page.
async fn cut_short(base: &Base) -> Arc<SqlAuctions> {
    cut_short_of(base, RECORDS).await
}

async fn cut_short_of(base: &Base, records: i64) -> Arc<SqlAuctions> {
    let auctions = Arc::new(base.open().await);
    for listing in LISTINGS {
        let settings = ListingSettings::fixed_price(member("ann"), Amount::new(1).expect("an amount"));
        auctions.put_listing(&name(listing), settings).await.expect("it answers").expect("no rule refuses it");
    }
    let charges = (0..records).map(|key| {
        let auctions = Arc::clone(&auctions);
        let request = Some(RequestId { key: key.unsigned_abs().into(), body: 5 });
        let amount = Amount::new(1).expect("an amount");
        let movement = MovePoints { transfer: Transfer::Charge, amount, request };
        tokio::spawn(async move { auctions.move_points(&member("ann"), movement).await })
    });
    for charge in charges.collect::<Vec<_>>() {
        charge.await.expect("no panic").expect("it answers").expect("no rule refuses it");
    }
    let readable_from = "SELECT version FROM firstcome_schema WHERE part='market:readable_from'";
    assert_eq!(base.number(readable_from).await, 2, "programs from before may use the tables");
    base.say(CUT[usize::from(!base.is_postgres())]).await;
    auctions.erase(&ann()).await.expect_err("the second page cannot be stored");
    assert_eq!(base.number("SELECT done FROM firstcome_renaming").await, 500);
    assert_eq!(base.number(readable_from).await, 4, "they would take the rest for damage");
    assert_eq!(breaches(base).await, Vec::<String>::new(), "a check knows both chains");
    base.say(MEND[usize::from(!base.is_postgres())]).await;
    auctions
}

async fn assert_done(base: &Base, records: i64) {
    assert_eq!(base.number("SELECT count(*) FROM firstcome_renaming").await, 0);
    assert_eq!(base.number("SELECT count(*) FROM firstcome_record").await, records);
    assert_eq!(base.number("SELECT count(*) FROM firstcome_request").await, 0, "a key of the erased person");
    assert_eq!(breaches(base).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_that_is_cut_short_is_ended_by_the_same_one() {
    for base in Base::both().await {
        let auctions = cut_short(&base).await;
        // A new person of that name, meanwhile.
        charge(&auctions, "ann", 5).await;
        for change in [
            "UPDATE firstcome_record SET at=at+1 WHERE number=400",
            "UPDATE firstcome_record SET at=at-1 WHERE number=400",
            "UPDATE firstcome_record SET at=at+1 WHERE number=900",
            "UPDATE firstcome_record SET at=at-1 WHERE number=900",
            "UPDATE firstcome_renaming SET done=done-1",
            "UPDATE firstcome_renaming SET done=done+1",
        ] {
            base.say(change).await;
            let is_mended = change.contains("at-1") || change.contains("done+1");
            assert_eq!(breaches(&base).await.is_empty(), is_mended, "{change}");
        }
        // Another node, which knows nothing of the first one.
        let other = SqlAuctions::open_with(&base.url, options()).await.expect("it opens");
        let erased = other.erase(&ann()).await.expect("it answers").expect("nothing is held");
        assert_eq!((erased.members, erased.records), (1, 1), "the new person");
        assert_done(&base, RECORDS + 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_that_is_cut_short_is_ended_by_the_next_purge() {
    for base in Base::both().await {
        let auctions = cut_short(&base).await;
        charge(&auctions, "bob", 5).await;
        let retention = Retention { records: Some(Duration::from_secs(31 * 86_400)), ..Retention::FOREVER };
        base.say(&format!("UPDATE firstcome_record SET at=at-{AGE_US} WHERE number<900")).await;
        let count = PurgeRequest { mode: PurgeMode::Count, ..PurgeRequest::new(retention) };
        let counted = auctions.purge(count).await.expect("it answers").expect("the clock is right");
        assert_eq!(counted.records, 0, "no record goes before all are chained again");
        base.say(&format!("UPDATE firstcome_record SET at=at+{AGE_US} WHERE number<900")).await;
        assert_eq!(base.number("SELECT done FROM firstcome_renaming").await, 500, "a dry run changes nothing");
        auctions.purge(PurgeRequest::new(retention)).await.expect("it answers").expect("the clock is right");
        assert_done(&base, RECORDS + 1).await;
    }
}

/// Records that come between two pages lie beyond those of the name before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_erased_member_sells_between_two_pages_is_chained_too() {
    for base in Base::both().await {
        let auctions = cut_short_of(&base, 999).await;
        charge(&auctions, "bob", 5).await;
        for listing in LISTINGS {
            let purchase = Purchase { buyer: member("bob"), request: None };
            auctions.purchase(&name(listing), purchase).await.expect("it answers").expect("no rule refuses it");
        }
        assert_eq!(breaches(&base).await, Vec::<String>::new());
        auctions.erase(&ann()).await.expect("it answers").expect("nothing is held");
        assert_done(&base, 999 + 2 + 3).await;
    }
}

/// A program from before, which still runs, removes records beyond the mark.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_an_earlier_program_removed_beyond_the_mark_are_skipped() {
    for base in Base::both().await {
        let auctions = cut_short(&base).await;
        base.say(
            "INSERT INTO firstcome_anchor (member,number,total,held,at,charged,chain) \
             SELECT member,number,total,held,at,total,chain FROM firstcome_record WHERE number=700",
        )
        .await;
        base.say("DELETE FROM firstcome_record WHERE number<=700").await;
        assert_eq!(breaches(&base).await, Vec::<String>::new());
        auctions.erase(&ann()).await.expect("it answers").expect("nothing is held");
        assert_done(&base, RECORDS - 700).await;
    }
}

/// A member whose rows are damaged is named, and nothing else waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_that_cannot_go_on_holds_up_no_purge() {
    for base in Base::both().await {
        let auctions = cut_short(&base).await;
        base.say("DELETE FROM firstcome_record WHERE number=800").await;
        // Another one that was cut short, whose rows are whole.
        for _ in 0..600 {
            charge(&auctions, "zoe", 1).await;
        }
        base.say(CUT[usize::from(!base.is_postgres())]).await;
        let zoe = UserId::parse("zoe").expect("a name");
        auctions.erase(&zoe).await.expect_err("the second page cannot be stored");
        base.say(MEND[usize::from(!base.is_postgres())]).await;
        assert_eq!(base.number("SELECT count(*) FROM firstcome_renaming").await, 2);
        base.say("UPDATE firstcome_request SET at=0").await;
        let kept = Some(Duration::from_secs(31 * 86_400));
        let purge = PurgeRequest::new(Retention { requests: kept, ..Retention::FOREVER });
        let error = auctions.purge(purge).await.expect_err("it names what is damaged");
        assert!(error.to_string().contains("records after 500"), "{error}");
        assert_eq!(base.number("SELECT count(*) FROM firstcome_request").await, 0, "the keys are gone");
        assert_eq!(base.number("SELECT count(*) FROM firstcome_renaming").await, 1, "the other one is done");
        let error = auctions.erase(&ann()).await.expect_err("the name is not wholly erased");
        assert!(error.to_string().contains("records after 500"), "{error}");
    }
}
