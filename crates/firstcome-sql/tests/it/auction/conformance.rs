//! The suite of auctions, on both kinds of databases.

use super::{Base, options};
use crate::server::PATIENCE;
use firstcome_sql::{SqlAuctions, verify_auctions};
use firstcome_store::conformance::{self, AuctionSizes, LetPass};
use firstcome_store::core::id::{MemberName, UserId};
use firstcome_store::core::points::Amount;
use firstcome_store::{AuctionStore, EraseStore, MovePoints, Transfer};
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
