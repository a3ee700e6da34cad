//! Several processes on one database: each is an adapter of its own here, with its own connections.

use super::{Base, amount, balance, bid, buy, charge, endless, listing, member};
use crate::in_time;
use crate::server::wait_for;
use firstcome_sql::SqlAuctions;
use firstcome_store::core::auction::{Bid, ListingSettings, ListingState, PlacedBid, Rejection};
use firstcome_store::core::coupon::Effect;
use firstcome_store::core::points::Wallet;
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::Stopwatch;
use firstcome_store::edge::rng::Rng;
use firstcome_store::{AuctionStore, Put};
use std::sync::Arc;

/// All bids of a listing.
pub(super) async fn all_bids(auctions: &SqlAuctions, name: &str) -> Vec<Bid> {
    let (mut bids, mut after) = (Vec::new(), None);
    loop {
        let page = auctions.bids(&listing(name), after, 500).await.unwrap().unwrap();
        bids.extend(page.items);
        after = page.next;
        if after.is_none() {
            return bids;
        }
    }
}

/// Plays the records of a member on the rules, and compares what comes out with what is told.
pub(super) async fn check_records(auctions: &SqlAuctions, name: &str) -> u64 {
    let mut wallet = Wallet::empty(member(name));
    let mut after = None;
    loop {
        let page = auctions.records(&member(name), after, 500).await.unwrap();
        for record in &page.items {
            wallet.restore(record).unwrap_or_else(|damage| panic!("{name}: {}: {record:?}", damage.as_str()));
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(wallet.balance, auctions.balance(&member(name)).await.unwrap(), "{name}");
    wallet.balance.total()
}

/// Checks that the bids of a listing are those that were told, in one order, and that only the last one is backed.
pub(super) async fn check_bids(auctions: &SqlAuctions, name: &str, mut told: Vec<PlacedBid>, bidders: &[String]) {
    let bids = all_bids(auctions, name).await;
    told.sort_by_key(|placed| placed.bid.number);
    let told: Vec<Bid> = told.into_iter().map(|placed| placed.bid).collect();
    assert_eq!(bids, told, "what was told is what there is");
    for (at, pair) in bids.windows(2).enumerate() {
        assert_eq!(pair[0].number as usize, at + 1);
        assert!(
            pair[0].price < pair[1].price && pair[0].at <= pair[1].at && pair[0].bidder != pair[1].bidder,
            "{pair:?}"
        );
    }
    for bidder in bidders {
        let (available, total) = balance(auctions, bidder).await;
        let highest = bids.last().filter(|highest| highest.bidder.as_str() == bidder);
        assert_eq!(total - available, highest.map_or(0, |highest| highest.price.get()), "{bidder}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_keep_one_order() {
    for base in Base::both().await {
        let nodes = [Arc::new(base.open().await), Arc::new(base.open().await)];
        let bidders: Vec<String> = (0..12).map(|number| format!("bidder-{number}")).collect();
        for bidder in &bidders {
            charge(&nodes[0], bidder, 100_000).await;
        }
        for name in ["lamp", "vase"] {
            nodes[0].put_listing(&listing(name), endless()).await.unwrap().unwrap();
        }
        let tasks: Vec<_> = bidders
            .iter()
            .enumerate()
            .map(|(at, bidder)| {
                let (node, bidder, mut rng) = (Arc::clone(&nodes[at % 2]), bidder.clone(), Rng::from_seed(at as u64));
                tokio::spawn(async move {
                    let mut told = [Vec::new(), Vec::new()];
                    for _ in 0..60 {
                        let which = rng.index(2);
                        let name = listing(["lamp", "vase"][which]);
                        let highest = node.listing(&name).await.unwrap().unwrap().standing.minimum();
                        match node.place_bid(&name, bid(&bidder, highest + rng.below(4))).await {
                            Ok(Ok(Effect::New(placed))) => told[which].push(placed),
                            Ok(Err(Rejection::BidTooLow(_) | Rejection::AlreadyHighestBidder)) => {}
                            other => panic!("{other:?}"),
                        }
                        if rng.once_in(8) {
                            charge(&node, &bidder, 1).await;
                        }
                    }
                    told
                })
            })
            .collect();
        let mut told = [Vec::new(), Vec::new()];
        for task in tasks {
            let [lamp, vase] = in_time(task).await.unwrap();
            told[0].extend(lamp);
            told[1].extend(vase);
        }
        assert!(20 < told[0].len());
        let bids: Vec<_> = [all_bids(&nodes[1], "lamp").await, all_bids(&nodes[1], "vase").await].concat();
        assert_eq!(bids.len(), told[0].len() + told[1].len());
        let mut totals = 0;
        for bidder in &bidders {
            totals += check_records(&nodes[1], bidder).await;
        }
        assert!(12 * 100_000 <= totals);
        for (name, mut told) in ["lamp", "vase"].into_iter().zip(told) {
            told.sort_by_key(|placed| placed.bid.number);
            let fences: Vec<u64> = told.iter().map(|placed| placed.fence).collect();
            assert!(fences.is_sorted_by(|first, second| first < second), "{fences:?}");
            assert_eq!(all_bids(&nodes[0], name).await, Vec::from_iter(told.into_iter().map(|placed| placed.bid)));
        }
        assert_eq!((nodes[0].repeated(), nodes[1].repeated()), (0, 0), "no deadlock, and nothing behind a lock");
    }
}

/// An end by which this machine can put so many auctions and place bids on them, however busy it is: an auction whose end
/// is over before it is put, or before its bid, is refused.
async fn soon_over(node: &SqlAuctions, auctions: u64) -> Timestamp {
    let watch = Stopwatch::start();
    for number in 0..auctions {
        node.put_listing(&listing(&format!("rehearsal-{number}")), endless()).await.unwrap().unwrap();
    }
    let took_ms = watch.elapsed().as_millis() as u64;
    node.listing(&listing("clock")).await.unwrap().unwrap().now.plus_ms(2_000 + 10 * took_ms)
}

/// Auctions that end soon, of which every second one has a bid, and two processes that close them: how many closings they
/// count, and how many defaults.
pub(super) async fn closings_by_two(base: &Base, auctions: u64) -> (u64, u64) {
    let nodes = [base.open().await, base.open().await];
    charge(&nodes[0], "ann", 1_000).await;
    nodes[0].put_listing(&listing("clock"), endless()).await.unwrap().unwrap();
    let ends_at = soon_over(&nodes[0], auctions).await;
    for number in 0..auctions {
        let mut settings = ListingSettings::auction(member("own"), amount(1), ends_at);
        if let firstcome_store::core::auction::Terms::Auction(terms) = &mut settings.terms {
            terms.settle_within_ms = Some(1);
        }
        let name = listing(&format!("auction-{number}"));
        nodes[0].put_listing(&name, settings).await.unwrap().unwrap();
        if number % 2 == 0 {
            nodes[0].place_bid(&name, bid("ann", 5)).await.unwrap().unwrap();
        }
    }
    let closed = async || {
        let (one, two) = tokio::join!(nodes[0].close_due(), nodes[1].close_due());
        one.and(two).expect("they answer");
        for number in 0..auctions {
            let view = nodes[0].listing(&listing(&format!("auction-{number}"))).await.unwrap().unwrap();
            let standing = &view.standing;
            if standing.phase == firstcome_store::core::auction::Phase::Open {
                return None;
            }
            assert_eq!(standing.state(view.now), ListingState::Unsold);
        }
        Some(())
    };
    wait_for("the auctions to close", closed).await;
    // One that has ended is unsold by the clock a moment before a caller has written that down, and is counted after that.
    let released = async || (balance(&nodes[1], "ann").await == (1_000, 1_000)).then_some(());
    wait_for("the holds to be released", released).await;
    let counted = async || (auctions <= nodes.iter().map(|node| node.closings().closed).sum()).then_some(());
    wait_for("the closings to be counted", counted).await;
    check_records(&nodes[1], "ann").await;
    let [one, two] = nodes.map(|node| node.closings());
    (one.closed + two.closed, one.defaulted + two.defaulted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_close_each_auction_once() {
    for base in Base::both().await {
        assert_eq!(in_time(closings_by_two(&base, 20)).await, (20, 10));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thing_is_bought_once_at_two_processes() {
    for base in Base::both().await {
        let nodes = [base.open().await, base.open().await];
        charge(&nodes[0], "ann", 1_000).await;
        charge(&nodes[0], "bob", 1_000).await;
        for round in 0..20 {
            let name = listing(&format!("thing-{round}"));
            nodes[0].put_listing(&name, ListingSettings::fixed_price(member("own"), amount(7))).await.unwrap().unwrap();
            let (one, two) = tokio::join!(nodes[0].purchase(&name, buy("ann")), nodes[1].purchase(&name, buy("bob")));
            let bought = [one.unwrap(), two.unwrap()];
            assert_eq!(bought.iter().filter(|bought| bought.is_ok()).count(), 1, "{bought:?}");
            assert!(bought.iter().any(|bought| matches!(bought, Err(Rejection::AlreadySold(_)))), "{bought:?}");
        }
        assert_eq!(balance(&nodes[0], "own").await, (140, 140));
        assert_eq!(check_records(&nodes[0], "ann").await + check_records(&nodes[0], "bob").await, 1_860);
        check_records(&nodes[1], "own").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_is_made_once_at_two_processes() {
    for base in Base::both().await {
        let nodes = [base.open().await, base.open().await];
        for round in 0..30 {
            let name = listing(&format!("lamp-{round}"));
            let (one, two) =
                tokio::join!(nodes[0].put_listing(&name, endless()), nodes[1].put_listing(&name, endless()));
            let mut puts = [one.unwrap().unwrap(), two.unwrap().unwrap()];
            puts.sort_by_key(|put| *put == Put::Replaced);
            assert_eq!(puts, [Put::Created, Put::Replaced]);
        }
        assert!(0 < nodes[0].repeated() + nodes[1].repeated(), "both were there at once");
    }
}
