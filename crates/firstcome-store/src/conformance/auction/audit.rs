//! Checks auctions from outside while no command changes them: bids, records and balances must agree.

use super::*;
use firstcome_core::auction::{Listing, ListingState, Phase};
use firstcome_core::points::{Kind, Wallet};
use std::collections::BTreeMap;

/// Open holds: the member and the amount, by `listing#number` of the bid.
type Holds = BTreeMap<String, (MemberName, Amount)>;

/// Audits these listings and members, who must be all that took part.
pub(super) async fn audit<S: AuctionStore + 'static>(bench: &Bench<S>, listings: &[&str], members: &[&str]) {
    bench.store.close_due().await.expect("the store answers");
    let mut open = Holds::new();
    let mut sold: BTreeMap<String, (MemberName, MemberName, Amount)> = BTreeMap::new();
    for name in listings {
        let standing = bids_are_sound(bench, name).await;
        match (&standing.phase, &standing.highest) {
            (Phase::Open | Phase::Ended(_), Some(bid)) => {
                open.insert(format!("{name}#{}", bid.number), (bid.bidder.clone(), bid.price));
            }
            (Phase::Sold(sale), _) => {
                let of = (sale.buyer.clone(), standing.owner.clone(), sale.price);
                assert!(sold.insert((*name).to_owned(), of).is_none());
            }
            _ => {}
        }
    }
    let (mut total, mut outside) = (0_i128, 0_i128);
    let mut paid: Holds = Holds::new();
    let mut got: Holds = Holds::new();
    for name in members {
        let records = bench.all_records(name).await;
        let balance = records_are_sound(bench, name, &records).await;
        total += i128::from(balance.total());
        for record in &records {
            let points = i128::from(record.amount.get());
            let about = record.about.as_ref().map(ToString::to_string).unwrap_or_default();
            let of = (record.member.clone(), record.amount);
            match record.kind {
                Kind::Charge => outside += points,
                Kind::Refund => outside -= points,
                Kind::Purchase => assert_eq!(paid.insert(about.clone(), of), None, "{about} was paid twice"),
                Kind::Sold => assert_eq!(got.insert(about.clone(), of), None, "{about} was sold twice"),
                Kind::Hold | Kind::Release | Kind::Capture => {}
            }
        }
        let held: Holds = open
            .iter()
            .filter(|(_, (member, _))| member.as_str() == *name)
            .map(|(at, of)| (at.clone(), of.clone()))
            .collect();
        assert_eq!(holds_left(&records), held, "{name}: what is held is the highest bid of each open auction");
    }
    assert_eq!(total, outside, "points were made or lost");
    let buyers: Holds = sold.iter().map(|(at, (buyer, _, price))| (at.clone(), (buyer.clone(), *price))).collect();
    let owners: Holds = sold.iter().map(|(at, (_, owner, price))| (at.clone(), (owner.clone(), *price))).collect();
    assert_eq!((paid, got), (buyers, owners), "what one pays for a thing that is sold the other gets");
}

/// Checks that bids are contiguous, rise, and agree with the listing.
async fn bids_are_sound<S: AuctionStore + 'static>(bench: &Bench<S>, name: &str) -> ListingStanding {
    let bids = bench.all_bids(name).await;
    let ListingView { standing, now } = bench.view(name).await;
    let restored = Listing::restore(standing.clone());
    assert!(restored.is_ok(), "{name}: {restored:?} of {standing:?}");
    let numbers: Vec<u32> = bids.iter().map(|bid| bid.number).collect();
    assert_eq!(numbers, Vec::from_iter(1..=standing.bids), "{name}: the numbers of its bids");
    assert_eq!(bids.last(), standing.highest.as_ref(), "{name}: the last bid is the highest");
    let step = standing.auction_terms().and_then(|terms| terms.min_increment).map_or(1, Amount::get);
    for pair in bids.windows(2) {
        assert!(pair[0].price.get() + step <= pair[1].price.get(), "{name}: {pair:?} does not rise");
        assert!(pair[0].at <= pair[1].at, "{name}: {pair:?} goes back");
        assert_ne!(pair[0].bidder, pair[1].bidder, "{name}: outbid by oneself");
    }
    for bid in &bids {
        assert!(standing.price <= bid.price && bid.bidder != standing.owner, "{name}: {bid:?}");
        assert!(
            standing.starts_at <= bid.at && bid.at <= standing.effective_ends_at,
            "{name}: {bid:?} was not in time"
        );
    }
    let settled = !matches!(standing.phase, Phase::Open)
        || matches!(standing.state(now), ListingState::Scheduled | ListingState::Running);
    assert!(settled, "{name} is due, and open: {standing:?} at {now:?}");
    standing
}

/// Checks that the records are a chain that leads to the balance.
async fn records_are_sound<S: AuctionStore + 'static>(bench: &Bench<S>, name: &str, records: &[Record]) -> Balance {
    let mut wallet = Wallet::empty(member(name));
    for record in records {
        assert_eq!(wallet.restore(record), Ok(()), "{name}: {record:?}");
    }
    let balance = bench.balance(name).await;
    assert_eq!(wallet.balance, balance, "{name}: the records lead to the balance");
    balance
}

/// Checks that each hold has at most one end, and returns the holds without one.
fn holds_left(records: &[Record]) -> Holds {
    let mut open = Holds::new();
    for (place, record) in records.iter().enumerate() {
        let about = record.about.as_ref().map(ToString::to_string).unwrap_or_default();
        let of = (record.member.clone(), record.amount);
        match record.kind {
            Kind::Hold => assert_eq!(open.insert(about, of), None, "held twice: {record:?}"),
            Kind::Release => assert_eq!(open.remove(&about), Some(of), "released and not held: {record:?}"),
            Kind::Capture => {
                assert_eq!(open.remove(&about), Some(of), "captured and not held: {record:?}");
                let next = records.get(place + 1).map(|next| (next.kind, next.amount));
                assert_eq!(next, Some((Kind::Purchase, record.amount)), "captured and not paid: {record:?}");
            }
            _ => {}
        }
    }
    open
}
