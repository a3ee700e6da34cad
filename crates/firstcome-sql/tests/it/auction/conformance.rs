//! The suite of auctions, on both kinds of databases.

use super::{Base, Foreign, options};
use crate::server::{PATIENCE, wait_for};
use firstcome_sql::{SqlAuctions, verify_auctions};
use firstcome_store::conformance::{self, AuctionSizes, LetPass};
use firstcome_store::core::id::{MemberName, UserId};
use firstcome_store::core::points::{Amount, Chain, Record};
use firstcome_store::core::time::Timestamp;
use firstcome_store::{AuctionStore, EraseStore, MovePoints, Numbered, Transfer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

/// Waits until the server's own clock has gone on by so much: it decides.
async fn let_pass(base: &Base) -> LetPass {
    let clock = if base.is_postgres() {
        "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT"
    } else {
        "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"
    };
    let connection = Arc::new(Mutex::new(base.connect().await));
    Arc::new(move |ms| {
        let connection = Arc::clone(&connection);
        Box::pin(async move {
            let from_us = connection.lock().await.number(clock).await;
            let until_us = from_us + i64::try_from(ms * 1_000).expect("no test waits so long");
            let mut look = tokio::time::interval(Duration::from_millis(2));
            let gone_on = async {
                while connection.lock().await.number(clock).await < until_us {
                    look.tick().await;
                }
            };
            tokio::time::timeout(PATIENCE, gone_on).await.expect("the server's clock goes on");
        })
    })
}

async fn holds(base: &Base) {
    let number = AtomicUsize::new(0);
    let new_store = async || {
        let url = base.fresh(number.fetch_add(1, Ordering::Relaxed)).await;
        (SqlAuctions::open_with(&url, options()).await.expect("it opens"), let_pass(base).await)
    };
    conformance::auctions(AuctionSizes::SMALL, new_store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_holds_on_postgres() {
    for base in Base::both_with([&[], &[]]).await.iter().filter(|base| base.is_postgres()) {
        holds(base).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_holds_on_mariadb() {
    for base in Base::both_with([&[], &[]]).await.iter().filter(|base| !base.is_postgres()) {
        holds(base).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_auction_store_that_is_opened_again_knows_all_that_it_told() {
    for base in Base::both().await {
        let open = async || (base.open().await, let_pass(&base).await);
        conformance::auction_reopens(AuctionSizes::SMALL, open).await;
    }
}

/// Nothing of these tests waits for time to pass, so the server's clock may decide.
async fn members_are_erased(base: &Base) {
    let number = AtomicUsize::new(0);
    let urls = Mutex::new(Vec::new());
    let new_store = async |_| {
        let url = base.fresh(number.fetch_add(1, Ordering::Relaxed)).await;
        urls.lock().await.push(url.clone());
        SqlAuctions::open_with(&url, options()).await.expect("it opens")
    };
    conformance::member_erasures(new_store).await;
    for url in urls.into_inner() {
        for check in verify_auctions(&url).await.expect("it can be read") {
            assert_eq!(check.breaches, 0, "{}: {:?}", check.invariant, check.examples);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_erased_on_postgres() {
    for base in Base::both_with([&[], &[]]).await.iter().filter(|base| base.is_postgres()) {
        members_are_erased(base).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_erased_on_mariadb() {
    for base in Base::both_with([&[], &[]]).await.iter().filter(|base| !base.is_postgres()) {
        members_are_erased(base).await;
    }
}

/// A node that has seen a member keeps its number in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_knew_an_erased_member_charges_a_new_one() {
    for base in Base::both_with([&[], &[]]).await {
        let url = base.fresh(0).await;
        let nodes = [SqlAuctions::open_with(&url, options()).await, SqlAuctions::open_with(&url, options()).await];
        let [one, two] = nodes.map(|node| node.expect("it opens"));
        let (ann, points) = (MemberName::parse("ann").expect("a name"), Amount::new(5).expect("an amount"));
        let charge = MovePoints { transfer: Transfer::Charge, amount: points, request: None };
        let charged = async |node: &SqlAuctions| {
            let moved = node.move_points(&ann, charge.clone()).await.expect("it answers").expect("it fits");
            moved.into_inner().total()
        };
        assert_eq!(charged(&two).await, 5);
        let erased = one.erase(&UserId::parse("ann").expect("a name")).await.expect("it answers");
        assert_eq!(erased.expect("nothing is held").members, 1);
        assert_eq!(charged(&two).await, 5, "the points of the erased member are not hers");
    }
}

/// Makes all records older: each is written anew with an earlier instant, and chained anew.
struct Aging<'a> {
    auctions: &'a SqlAuctions,
    connection: Foreign,
    /// The chain of each record as it was written last. An anchor has that of the record that it was made from.
    chains: BTreeMap<(MemberName, u64), Chain>,
}

impl Aging<'_> {
    async fn age(&mut self, days: u32) {
        let by_us = i64::from(days) * 86_400_000_000;
        let postgres = matches!(self.connection, Foreign::Postgres(_));
        let hex = |chain: Chain| if postgres { format!("'\\x{chain}'::bytea") } else { format!("x'{chain}'") };
        let names = self.auctions.member_names(None, 100).await.expect("it answers").expect("it lists members");
        for name in names.items {
            let Numbered { items, removed_to, .. } =
                self.auctions.records(&name, None, 5_000).await.expect("it answers");
            let anchored = (removed_to == 0).then(Chain::default);
            // The anchor of an erased member was made from no record: its records stay young.
            let anchored = anchored.or_else(|| self.chains.get(&(name.clone(), removed_to)).copied());
            let Some(mut chain) = anchored else { continue };
            let id = format!("(SELECT id FROM firstcome_member WHERE name='{name}')");
            let mut text = format!(
                "BEGIN;UPDATE firstcome_anchor SET at=at-{by_us} WHERE member={id};\
                 UPDATE firstcome_request SET at=at-{by_us} WHERE kind=2 AND scope={id};"
            );
            for record in items {
                let at = Timestamp::clamped_us(record.at.as_us() - by_us);
                let older = Record { at, ..record }.renamed(name.clone(), chain);
                chain = older.chain;
                self.chains.insert((name.clone(), older.number), chain);
                text.push_str(&format!(
                    "UPDATE firstcome_record SET at={},chain={} WHERE member={id} AND number={};",
                    at.as_us(),
                    hex(chain),
                    older.number
                ));
            }
            text.push_str(&format!(
                "UPDATE firstcome_member SET last_at=last_at-{by_us},chain={} WHERE name='{name}' AND 0<records;COMMIT;",
                hex(chain)
            ));
            self.connection.say(&text).await.expect("they are made older");
        }
    }
}

async fn records_go(base: &Base) {
    let auctions = base.open().await;
    let aging = Aging { auctions: &auctions, connection: base.connect().await, chains: BTreeMap::new() };
    let aging = Mutex::new(aging);
    let verify = async || {
        for check in verify_auctions(&base.url).await.expect("it can be read") {
            assert_eq!(check.breaches, 0, "{}: {:?}", check.invariant, check.examples);
        }
    };
    let readable_from = "SELECT version FROM firstcome_schema WHERE part='market:readable_from'";
    assert_eq!(base.number(readable_from).await, 2, "programs from before may use the tables");
    conformance::record_purges(&auctions, async |days| aging.lock().await.age(days).await, verify).await;
    assert_eq!(base.number(readable_from).await, 3, "and may not once records are gone");
    // A look at what was acknowledged takes place every two seconds: for a record that is gone the anchor answers.
    let_pass(base).await(5_000).await;
    assert_eq!(auctions.faults().raised(), 0, "{:?}", auctions.faults().open());
    let broken = async |change: &str| {
        base.say(change).await;
        let checks = verify_auctions(&base.url).await.expect("it can be read");
        checks.iter().map(|check| check.breaches).sum::<u64>()
    };
    let dan = "(SELECT id FROM firstcome_member WHERE name='dan')";
    assert_ne!(broken(&format!("UPDATE firstcome_anchor SET total=total+1 WHERE member={dan}")).await, 0);
    assert_eq!(broken(&format!("UPDATE firstcome_anchor SET total=total-1 WHERE member={dan}")).await, 0);
    assert_ne!(broken(&format!("UPDATE firstcome_anchor SET charged=charged+1 WHERE member={dan}")).await, 0);
    assert_eq!(broken(&format!("UPDATE firstcome_anchor SET charged=charged-1 WHERE member={dan}")).await, 0);
    assert_ne!(broken(&format!("DELETE FROM firstcome_anchor WHERE member={dan}")).await, 0);
    // Without it the acknowledged records are gone.
    wait_for("the fault", async || (!auctions.faults().open().is_empty()).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_go_from_postgres_and_leave_an_anchor() {
    for base in Base::both_with([&[], &[]]).await.iter().filter(|base| base.is_postgres()) {
        records_go(base).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_go_from_mariadb_and_leave_an_anchor() {
    for base in Base::both_with([&[], &[]]).await.iter().filter(|base| !base.is_postgres()) {
        records_go(base).await;
    }
}
