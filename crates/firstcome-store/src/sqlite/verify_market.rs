//! Re-checks every stored invariant of members, listings and bids from the rows alone: the history is played again.

use super::market::{for_each_bid, for_each_record, for_each_stray_record, listings, members};
use super::verify::Check;
use crate::embedded::journal::ListingId;
use crate::error::Fault;
use firstcome_core::auction::{Bid, Listing, Phase, Standing};
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::{Kind, Record, Wallet};
use rusqlite::Connection;
use std::collections::{HashMap, HashSet};

/// The holds of one listing, by its bids, and what was paid and got for it.
#[derive(Default)]
struct Money {
    held: HashMap<u32, (MemberName, u64)>,
    ended: HashMap<u32, u32>,
    paid: Vec<(MemberName, u64)>,
    got: Vec<(MemberName, u64)>,
}

struct Checks {
    chain: Check,
    balance: Check,
    conserved: Check,
    backed: Check,
    ended_once: Check,
    contiguous: Check,
    rise: Check,
    in_time: Check,
    sound: Check,
    sold_once: Check,
    keys: Check,
}

impl Checks {
    fn all(self) -> [Check; 11] {
        let Self { chain, balance, conserved, backed, ended_once, contiguous, rise, in_time, sound, sold_once, keys } =
            self;
        [chain, balance, conserved, backed, ended_once, contiguous, rise, in_time, sound, sold_once, keys]
    }
}

/// Checks the market of one snapshot. Memory: about 100 bytes per bid of listings.
pub(super) fn check(snapshot: &Connection) -> Result<[Check; 11], Fault> {
    let mut checks = Checks {
        chain: Check::new("records are a chain: none was changed, left out or moved"),
        balance: Check::new("a balance is the sum of its records"),
        conserved: Check::new("points are conserved: all balances together are all charges less all refunds"),
        backed: Check::new("the highest bid of an open auction is backed by a hold, and nothing else is held"),
        ended_once: Check::new("a hold ends once, released or captured, with its own bid, member and amount"),
        contiguous: Check::new("the bids of a listing are exactly 1..count"),
        rise: Check::new("bids rise, by the increment at least, and their instants never fall"),
        in_time: Check::new("every bid is within the period"),
        sound: Check::new("a listing stands as its bids and its settings lead to"),
        sold_once: Check::new("what is sold was paid for once, to its owner"),
        keys: Check::new("an idempotency key has one bid"),
    };
    let mut money: HashMap<ListingName, Money> = HashMap::new();
    play_records(snapshot, &mut checks, &mut money)?;
    let mut highest: HashMap<ListingId, Bid> = HashMap::new();
    let mut keys: HashSet<(ListingId, u128)> = HashSet::new();
    let mut standings: HashMap<ListingId, Standing> =
        listings(snapshot)?.into_iter().map(|row| (row.id, row.standing)).collect();
    for_each_bid(snapshot, |row| {
        let bid = row.placed.bid;
        if let Some(request) = row.request {
            let here = || format!("listing number {}, bid {}", row.listing.0, bid.number);
            checks.keys.check(keys.insert((row.listing, request.key)), here);
        }
        let Some(standing) = standings.get(&row.listing) else {
            checks.contiguous.check(false, || format!("a bid of a listing {} that does not exist", row.listing.0));
            return Ok(());
        };
        check_bid(&mut checks, standing, highest.get(&row.listing), &bid);
        let hold = money.get_mut(&standing.name).and_then(|money| money.held.get_mut(&bid.number));
        let here = || format!("listing {}, bid {}", standing.name, bid.number);
        checks.backed.check(hold.is_some_and(|hold| *hold == (bid.bidder.clone(), bid.price.get())), here);
        highest.insert(row.listing, bid);
        Ok(())
    })?;
    for (id, standing) in &mut standings {
        standing.highest = highest.remove(id);
        check_listing(&mut checks, standing, &money.remove(&standing.name).unwrap_or_default());
    }
    checks.backed.check(money.is_empty(), || "holds of listings that do not exist".into());
    Ok(checks.all())
}

/// Plays the records of all members again, and adds up what they say of listings.
fn play_records(
    snapshot: &Connection,
    checks: &mut Checks,
    money: &mut HashMap<ListingName, Money>,
) -> Result<(), Fault> {
    let (mut charged, mut refunded, mut totals) = (0_u128, 0_u128, 0_u128);
    for member in members(snapshot)? {
        let mut wallet = Wallet::empty(member.wallet.member.clone());
        for_each_record(snapshot, member.id, &member.wallet.member, |record, _| {
            let restored = wallet.restore(&record);
            checks.chain.check(restored.is_ok(), || {
                let what = restored.err().map_or("", |damage| damage.as_str());
                format!("member {}, record {}: {what}", record.member, record.number)
            });
            match record.kind {
                Kind::Charge => charged += u128::from(record.amount.get()),
                Kind::Refund => refunded += u128::from(record.amount.get()),
                _ => note(checks, money, &record),
            }
            Ok(())
        })?;
        checks.balance.check(wallet == member.wallet, || format!("member {}", member.wallet.member));
        totals += u128::from(member.wallet.balance.total());
    }
    for_each_stray_record(snapshot, |key| {
        checks.chain.check(false, || format!("record {key} of a member who does not exist"));
    })?;
    checks.conserved.check(totals + refunded == charged, || {
        format!("{totals} points in all balances, {charged} charged, {refunded} refunded")
    });
    Ok(())
}

fn note(checks: &mut Checks, money: &mut HashMap<ListingName, Money>, record: &Record) {
    let here = || format!("member {}, record {}", record.member, record.number);
    let Some(about) = &record.about else {
        checks.ended_once.check(false, here);
        return;
    };
    let of = money.entry(about.listing.clone()).or_default();
    let amount = record.amount.get();
    let bid = about.bid.unwrap_or(0);
    match record.kind {
        Kind::Hold => {
            let fresh = of.held.insert(bid, (record.member.clone(), amount)).is_none();
            checks.ended_once.check(fresh, here);
        }
        Kind::Release | Kind::Capture => {
            // Of one member the end comes after its hold, so that is known.
            let own = of.held.get(&bid).is_some_and(|hold| *hold == (record.member.clone(), amount));
            checks.ended_once.check(own, here);
            *of.ended.entry(bid).or_default() += 1;
        }
        Kind::Purchase => of.paid.push((record.member.clone(), amount)),
        Kind::Sold => of.got.push((record.member.clone(), amount)),
        Kind::Charge | Kind::Refund => {}
    }
}

fn check_bid(checks: &mut Checks, standing: &Standing, before: Option<&Bid>, bid: &Bid) {
    let here = || format!("listing {}, bid {}", standing.name, bid.number);
    checks.contiguous.check(bid.number == before.map_or(1, |before| before.number + 1), here);
    let step = standing.auction_terms().and_then(|terms| terms.min_increment).map_or(1, |step| step.get());
    let minimum = before.map_or(standing.price.get(), |before| before.price.get() + step);
    let in_order = before.is_none_or(|before| before.at <= bid.at && before.bidder != bid.bidder);
    checks.rise.check(minimum <= bid.price.get() && in_order && bid.bidder != standing.owner, here);
    checks.in_time.check((standing.starts_at..=standing.effective_ends_at).contains(&bid.at), here);
}

fn check_listing(checks: &mut Checks, standing: &Standing, money: &Money) {
    let here = || format!("listing {}", standing.name);
    checks.sound.check(Listing::restore(standing.clone()).is_ok(), here);
    let settled = matches!(standing.phase, Phase::Sold(_) | Phase::Unsold(_));
    // Of bids that are not there nothing can be said, however many there are said to be.
    let bids = if money.held.len() as u64 == u64::from(standing.bids) { standing.bids } else { 0 };
    checks.ended_once.check(bids == standing.bids, here);
    for number in 1..=bids {
        let open = number == standing.bids && !settled;
        let ended = money.ended.get(&number).copied().unwrap_or(0);
        checks.ended_once.check(ended == u32::from(!open), || format!("{}, bid {number}: ended {ended} times", here()));
    }
    let strays = money.held.keys().chain(money.ended.keys()).filter(|number| !(1..=standing.bids).contains(*number));
    checks.backed.check(strays.count() == 0, || format!("{}: holds of bids that do not exist", here()));
    let (paid, got) = match &standing.phase {
        Phase::Sold(sale) => {
            let price = sale.price.get();
            (vec![(sale.buyer.clone(), price)], vec![(standing.owner.clone(), price)])
        }
        _ => (Vec::new(), Vec::new()),
    };
    checks.sold_once.check((&money.paid, &money.got) == (&paid, &got), || {
        format!("{}: paid {:?}, got {:?}, where it should be {paid:?} and {got:?}", here(), money.paid, money.got)
    });
}
