//! Auctions that cannot be closed hold up no other caller.

use super::conflicts::{held_up_over_the_end, holds_listing, new, over_a_line, put_soon_over};
use super::proxy::Commits;
use super::{Base, amount, bid, buy, endless, listing, member, options};
use crate::in_time;
use crate::server::wait_for;
use firstcome_sql::SqlAuctions;
use firstcome_store::core::auction::ListingSettings;
use firstcome_store::core::time::Timestamp;
use firstcome_store::{AuctionStore, Closings};
use std::sync::Arc;
use std::time::Duration;

/// Puts auctions that are over, by the server's clock, once this returns or shortly after; each a little later than the one
/// before.
async fn put_short(auctions: &SqlAuctions, names: impl Iterator<Item = String>) {
    auctions.put_listing(&listing("clock"), endless()).await.unwrap().unwrap();
    let now = auctions.listing(&listing("clock")).await.unwrap().unwrap().now;
    for (at, name) in names.enumerate() {
        let ends_at = Timestamp::clamped_us(now.as_us() + 3_000_000 + at as i64);
        let settings =
            ListingSettings { starts_at: Some(now), ..ListingSettings::auction(member("own"), amount(1), ends_at) };
        auctions.put_listing(&listing(&name), settings).await.unwrap().unwrap();
    }
}

async fn wait_for_open(base: &Base, count: i64) {
    let open = async || {
        let open = base.number("SELECT count(*) FROM firstcome_listing WHERE name<>'clock' AND phase=0").await;
        (open == count).then_some(())
    };
    wait_for("the auctions to close", open).await;
}

/// A closing is counted after its commit, so the rows show it before.
async fn wait_for_closed(auctions: &SqlAuctions, count: u64) {
    wait_for("the closings to be counted", async || (auctions.closings().closed == count).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_that_a_member_has_locked_holds_up_no_other() {
    for base in Base::both().await {
        let mut patient = options();
        // Longer than the test waits.
        patient.patience = Duration::from_secs(60);
        patient.connections.answer_timeout = Duration::from_secs(60);
        let auctions = SqlAuctions::open_with(&base.url, patient).await.expect("it opens");
        put_short(&auctions, (0..100).map(|number| format!("early-{number}"))).await;
        let mut foreign = holds_listing(&base, "early-0").await;
        wait_for_open(&base, 1).await;
        // Of those that are due later, too.
        put_short(&auctions, (0..5).map(|number| format!("late-{number}"))).await;
        wait_for_open(&base, 1).await;
        foreign.say("COMMIT").await.unwrap();
        wait_for_open(&base, 0).await;
        in_time(auctions.close_due()).await.expect("nothing is in the way");
        wait_for_closed(&auctions, 105).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_listings_that_cannot_be_closed_hold_up_no_other() {
    for base in Base::both().await {
        let auctions = base.open().await;
        put_short(&auctions, (0..131).map(|number| format!("auction-{number}"))).await;
        // No outcome is without its instant.
        base.say("UPDATE firstcome_listing SET phase=1 WHERE name NOT IN ('clock','auction-130')").await;
        wait_for_open(&base, 0).await;
        wait_for_closed(&auctions, 1).await;
        in_time(auctions.close_due()).await.expect_err("the damage is told");
    }
}

#[tokio::test]
async fn a_closing_whose_commit_is_not_answered_counts_once() {
    for base in Base::both().await {
        let (mut line, auctions) = over_a_line(&base, options()).await;
        put_short(&auctions, std::iter::once("auction".to_owned())).await;
        line.set(Commits::CutAnswer);
        in_time(line.met(1)).await;
        line.set(Commits::Pass);
        wait_for("the closing to be told", async || (auctions.closings().closed == 1).then_some(())).await;
        assert_eq!(base.number("SELECT count(*) FROM firstcome_listing WHERE phase=3").await, 1);
    }
}

#[tokio::test]
async fn a_purchase_that_closes_the_auction_is_one_closing() {
    for base in Base::both().await {
        let auctions = Arc::new(base.open().await);
        let ends_at = put_soon_over(&auctions).await;
        new(auctions.place_bid(&listing("lamp"), bid("ann", 10)).await);
        // It waits for the row before the auction is due, so the clockwork comes after it.
        let buying = Arc::clone(&auctions);
        let command = async move { buying.purchase(&listing("lamp"), buy("ann")).await };
        held_up_over_the_end(&base, &auctions, ends_at, command).await.expect("it answers").expect("it is won");
        auctions.close_due().await.expect("nothing is in the way");
        assert_eq!(auctions.closings(), Closings { closed: 1, defaulted: 0 });
    }
}
