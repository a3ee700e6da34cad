//! The suite of markets, on both kinds of databases.

use super::{Base, options};
use firstcome_store::conformance::{self, LetPass, MarketSizes};
use firstcome_store::sql::SqlMarket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Lets time pass as it does.
fn let_pass() -> LetPass {
    Arc::new(|ms| Box::pin(tokio::time::sleep(Duration::from_millis(ms))))
}

async fn holds(base: &Base) {
    let number = AtomicUsize::new(0);
    let new_store = async || {
        let url = base.fresh(number.fetch_add(1, Ordering::Relaxed)).await;
        (SqlMarket::open_with(&url, options()).await.expect("it opens"), let_pass())
    };
    conformance::market(MarketSizes::SMALL, new_store).await;
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
async fn a_market_that_is_opened_again_knows_all_that_it_told() {
    for base in Base::both().await {
        let open = async || (base.open().await, let_pass());
        conformance::market_reopens(MarketSizes::SMALL, open).await;
    }
}
