//! Replays the history of auctions, and checks every stored invariant of members, listings and bids from the rows
//! alone.
//!
//! A store passes its rows in this order: each member after all of its records, then the listings, then all bids, in
//! the order of numbers within a listing. Keys may come at any time after their listing.
//!
//! The records of a member begin with its anchor: [`Replay::begin`]. What removed records would show, their anchor vouches for, up to
//! their number: that a bid of the member was backed, that its hold ended, that a price was paid or received. The sum of the balances
//! is exact nevertheless, since an anchor has the charges less the refunds of what was removed. The hold of a bid that may still
//! win is never removed.

use super::Check;
use firstcome_core::auction::{Bid, Listing, ListingStanding, Phase};
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::{Anchor, Kind, Record, Wallet};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The holds of one listing, by bid, and the payments for it.
#[derive(Default)]
struct Money {
    held: HashMap<u32, (MemberName, u64)>,
    ended: HashMap<u32, u32>,
    /// Ends whose hold was removed.
    ended_alone: HashMap<u32, (MemberName, u64)>,
    /// Bidders whose hold was removed.
    unbacked: HashMap<u32, MemberName>,
    paid: Vec<(MemberName, u64)>,
    got: Vec<(MemberName, u64)>,
}

/// What the removed records of members may have shown.
#[derive(Default)]
struct Gone(HashMap<MemberName, GoneRecords>);

struct GoneRecords {
    /// How many there are for which nothing else was found yet.
    count: u64,
    /// The points that were held after the last of them, and whose holds have not ended yet.
    held: u64,
}

impl Gone {
    /// Whether a record of the member may have been removed. It counts for no other one.
    fn takes(&mut self, member: &MemberName) -> bool {
        let rest = self.0.get_mut(member).map(|gone| &mut gone.count).filter(|count| 0 < **count);
        rest.map(|count| *count -= 1).is_some()
    }

    /// Whether so many points may have been held when the last removed record was written.
    fn takes_held(&mut self, member: &MemberName, points: u64) -> bool {
        let rest = self.0.get_mut(member).map(|gone| &mut gone.held).filter(|held| points <= **held);
        rest.map(|held| *held -= points).is_some()
    }
}

/// A stored listing, and its highest bid so far.
struct Played {
    standing: ListingStanding,
    highest: Option<Bid>,
}

struct Checks {
    chain: Check,
    balance: Check,
    conserved: Check,
    held: Check,
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
    const fn new() -> Self {
        Self {
            chain: Check::new("records are a chain: none was changed, left out or moved"),
            balance: Check::new("a balance is the sum of its records"),
            conserved: Check::new("points are conserved: all balances together are all charges less all refunds"),
            held: Check::new("what a member has held is what their highest bids of unsettled auctions need"),
            backed: Check::new("the highest bid of an open auction is backed by a hold, and nothing else is held"),
            ended_once: Check::new("a hold ends once, released or captured, with its own bid, member and amount"),
            contiguous: Check::new("the bids of a listing are exactly 1..count"),
            rise: Check::new("bids rise, by the increment at least, and their instants never fall"),
            in_time: Check::new("every bid is within the period"),
            sound: Check::new("a listing stands as its bids and its settings lead to"),
            sold_once: Check::new("what is sold was paid for once, to its owner"),
            keys: Check::new("an idempotency key has one bid"),
        }
    }

    fn all(self) -> Vec<Check> {
        let Self {
            chain,
            balance,
            conserved,
            held,
            backed,
            ended_once,
            contiguous,
            rise,
            in_time,
            sound,
            sold_once,
            keys,
        } = self;
        vec![chain, balance, conserved, held, backed, ended_once, contiguous, rise, in_time, sound, sold_once, keys]
    }
}

/// A replay of the history of auctions. Memory: about 100 bytes per bid, plus the members and listings.
pub struct Replay {
    checks: Checks,
    money: HashMap<ListingName, Money>,
    charged: u128,
    refunded: u128,
    totals: u128,
    gone: Gone,
    /// The points that each member has held, by its stored balance.
    held: BTreeMap<MemberName, u64>,
    listings: BTreeMap<i64, Played>,
    keys: HashSet<(i64, u128)>,
}

firstcome_core::debug_by_name!(Replay);

impl Default for Replay {
    fn default() -> Self {
        Self::new()
    }
}

impl Replay {
    /// Starts an empty replay.
    pub fn new() -> Self {
        Self {
            checks: Checks::new(),
            money: HashMap::new(),
            charged: 0,
            refunded: 0,
            totals: 0,
            gone: Gone::default(),
            held: BTreeMap::new(),
            listings: BTreeMap::new(),
            keys: HashSet::new(),
        }
    }

    /// Begins the replay of a member, and returns the wallet that its first record must fit.
    pub fn begin(&mut self, stored: &Wallet) -> Wallet {
        let Anchor { number, balance, charged, .. } = stored.begins_with();
        if 0 < number {
            let sum = if charged < 0 { &mut self.refunded } else { &mut self.charged };
            *sum += u128::from(charged.unsigned_abs());
            self.gone.0.insert(stored.member.clone(), GoneRecords { count: number, held: balance.held() });
        }
        stored.at_first()
    }

    /// Replays the next record of a member; `wallet` is what [`Self::begin`] returned.
    pub fn record(&mut self, wallet: &mut Wallet, record: &Record) {
        let restored = wallet.restore(record);
        self.checks.chain.check(restored.is_ok(), || {
            let what = restored.err().map_or("", |damage| damage.as_str());
            format!("member {}, record {}: {what}", record.member, record.number)
        });
        match record.kind {
            Kind::Charge => self.charged += u128::from(record.amount.get()),
            Kind::Refund => self.refunded += u128::from(record.amount.get()),
            _ => self.note(record),
        }
    }

    fn note(&mut self, record: &Record) {
        let checks = &mut self.checks;
        let here = || format!("member {}, record {}", record.member, record.number);
        let Some(about) = &record.about else {
            checks.ended_once.check(false, here);
            return;
        };
        let of = self.money.entry(about.listing.clone()).or_default();
        let amount = record.amount.get();
        let bid = about.bid.unwrap_or(0);
        match record.kind {
            Kind::Hold => {
                let fresh = of.held.insert(bid, (record.member.clone(), amount)).is_none();
                checks.ended_once.check(fresh, here);
            }
            Kind::Release | Kind::Capture => {
                // A member's hold comes before its end, so it is known here.
                let own = match of.held.get(&bid) {
                    Some(hold) => *hold == (record.member.clone(), amount),
                    None => {
                        of.ended_alone.insert(bid, (record.member.clone(), amount));
                        self.gone.takes_held(&record.member, amount)
                    }
                };
                checks.ended_once.check(own, here);
                *of.ended.entry(bid).or_default() += 1;
            }
            Kind::Purchase => of.paid.push((record.member.clone(), amount)),
            Kind::Sold => of.got.push((record.member.clone(), amount)),
            Kind::Charge | Kind::Refund => {}
        }
    }

    /// Compares a member's stored wallet with the one from its records, after all of them were replayed.
    pub fn member(&mut self, played: &Wallet, stored: &Wallet) {
        self.checks.balance.check(played == stored, || format!("member {}", stored.member));
        if let Some(anchor) = &stored.anchor {
            // A purge never removes the last record.
            let has_last = anchor.number < stored.records;
            self.checks.chain.check(has_last, || format!("member {}: the last record was removed", stored.member));
        }
        self.totals += u128::from(stored.balance.total());
        self.held.insert(stored.member.clone(), stored.balance.held());
    }

    /// Reports records without a member.
    pub fn ownerless_record(&mut self, what: impl FnOnce() -> String) {
        self.checks.balance.check(false, what);
    }

    /// Adds a listing. Its highest bid comes from its bids; copies of it that a store keeps go to [`Self::repeated`].
    pub fn listing(&mut self, id: i64, standing: ListingStanding) {
        self.listings.insert(id, Played { standing, highest: None });
    }

    /// Replays the next bid of a listing.
    pub fn bid(&mut self, listing: i64, bid: Bid) {
        let checks = &mut self.checks;
        let Some(Played { standing, highest }) = self.listings.get_mut(&listing) else {
            checks.contiguous.check(false, || format!("a bid of a listing {listing} that does not exist"));
            return;
        };
        check_bid(checks, standing, highest.as_ref(), &bid);
        let here = || format!("listing {}, bid {}", standing.name, bid.number);
        let own = (bid.bidder.clone(), bid.price.get());
        let money = self.money.entry(standing.name.clone()).or_default();
        let backed = match (money.held.get(&bid.number), money.ended_alone.get(&bid.number)) {
            (Some(hold), _) => *hold == own,
            (None, end) => {
                money.unbacked.insert(bid.number, bid.bidder.clone());
                end.is_none_or(|end| *end == own) && self.gone.takes(&bid.bidder)
            }
        };
        checks.backed.check(backed, here);
        *highest = Some(bid);
    }

    /// Reports a bid without a bidder.
    pub fn ownerless_bid(&mut self, what: impl FnOnce() -> String) {
        self.checks.contiguous.check(false, what);
    }

    /// Checks an idempotency key of a bid, or of the sale as number 0. `once` must be unique within a listing: the key,
    /// or the number if rows are keyed.
    pub fn key(&mut self, listing: i64, number: u32, once: u128) {
        let fresh = self.keys.insert((listing, once));
        let stands = self.listings.get(&listing).is_some_and(|Played { standing, .. }| match number {
            0 => matches!(standing.phase, Phase::Sold(_)),
            bid => bid <= standing.bids,
        });
        self.checks.keys.check(fresh && stands, || format!("listing number {listing}, bid {number}"));
    }

    /// Checks the copies that a store keeps of a listing beside its bids, after all bids: its highest bid, and whether
    /// the rest agrees.
    pub fn repeated(&mut self, listing: i64, highest: Option<&Bid>, agrees: bool) {
        let Some(played) = self.listings.get(&listing) else { return };
        let same = played.highest.as_ref() == highest && agrees;
        let here = || format!("listing {}: its highest bid or its owner is not who it should be", played.standing.name);
        self.checks.sound.check(same, here);
    }

    /// Ends the replay, with the checks that need all rows.
    pub fn finish(mut self) -> Vec<Check> {
        let (charged, refunded, totals) = (self.charged, self.refunded, self.totals);
        self.checks.conserved.check(totals + refunded == charged, || {
            format!("{totals} points in all balances, {charged} charged, {refunded} refunded")
        });
        let mut needed: BTreeMap<MemberName, u64> = BTreeMap::new();
        for Played { mut standing, highest } in self.listings.into_values() {
            if let (Some(bid), Phase::Open | Phase::Ended(_)) = (&highest, &standing.phase) {
                let of_bidder = needed.entry(bid.bidder.clone()).or_default();
                *of_bidder = of_bidder.saturating_add(bid.price.get());
            }
            standing.highest = highest;
            let money = self.money.remove(&standing.name).unwrap_or_default();
            check_listing(&mut self.checks, &mut self.gone, &standing, &money);
        }
        self.checks.backed.check(self.money.is_empty(), || "holds of listings that do not exist".into());
        for (member, held) in self.held {
            let needs = needed.remove(&member).unwrap_or(0);
            self.checks.held.check(held == needs, || format!("member {member}: {held} held, {needs} needed"));
        }
        for (member, needs) in needed {
            self.checks.held.check(false, || format!("member {member}, who does not exist: {needs} needed"));
        }
        self.checks.all()
    }
}

fn check_bid(checks: &mut Checks, standing: &ListingStanding, before: Option<&Bid>, bid: &Bid) {
    let here = || format!("listing {}, bid {}", standing.name, bid.number);
    checks.contiguous.check(bid.number == before.map_or(1, |before| before.number.saturating_add(1)), here);
    let step = standing.auction_terms().and_then(|terms| terms.min_increment).map_or(1, |step| step.get());
    let minimum = before.map_or(standing.price.get(), |before| before.price.get() + step);
    let in_order = before.is_none_or(|before| before.at <= bid.at && before.bidder != bid.bidder);
    checks.rise.check(minimum <= bid.price.get() && in_order && bid.bidder != standing.owner, here);
    checks.in_time.check((standing.starts_at..=standing.effective_ends_at).contains(&bid.at), here);
}

fn check_listing(checks: &mut Checks, gone: &mut Gone, standing: &ListingStanding, money: &Money) {
    let here = || format!("listing {}", standing.name);
    checks.sound.check(Listing::restore(standing.clone()).is_ok(), here);
    let settled = matches!(standing.phase, Phase::Sold(_) | Phase::Unsold(_));
    // If some bids are missing, skip the checks per bid, however high the stored count is.
    let known = money.held.len() as u64 + money.unbacked.len() as u64;
    let bids = if known == u64::from(standing.bids) { standing.bids } else { 0 };
    checks.ended_once.check(bids == standing.bids, here);
    for number in 1..=bids {
        let open = number == standing.bids && !settled;
        let ended = money.ended.get(&number).copied().unwrap_or(0);
        let as_it_should = match money.unbacked.get(&number) {
            // Its hold stays as long as it may win.
            Some(_) if open => false,
            Some(bidder) if ended == 0 => gone.takes(bidder),
            _ => ended == u32::from(!open),
        };
        checks.ended_once.check(as_it_should, || format!("{}, bid {number}: ended {ended} times", here()));
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
    let mut is_there = |found: &[(MemberName, u64)], wanted: &[(MemberName, u64)]| {
        // A purchase without its record, which may have been removed.
        let is_gone = found.is_empty() && wanted.iter().all(|(member, _)| gone.takes(member));
        found == wanted || is_gone
    };
    let is_paid = is_there(&money.paid, &paid) & is_there(&money.got, &got);
    checks.sold_once.check(is_paid, || {
        format!("{}: paid {:?}, got {:?}, where it should be {paid:?} and {got:?}", here(), money.paid, money.got)
    });
}
