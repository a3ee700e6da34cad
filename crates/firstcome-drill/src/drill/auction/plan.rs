//! The plan of an auction event, made beforehand: the listings, and who wants what and when.

use super::record::{Extend, ListingRecord, Order, RequestKind, STRANGER, Terms};
use crate::drill::crowd::Step;
use crate::rng::Rng;

/// The listing that most members bid on.
pub(crate) const HOT: u32 = 0;
/// So many bids of a thousand are for the hot listing while it runs.
const HOT_PER_MILLE: u64 = 350;

/// The kind of a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Act {
    /// Sends an order, and repeats it until it is decided.
    Ask,
    /// Sends the order once more, at the same time or later, and ignores the answer.
    Twin,
    /// Reads a listing.
    View,
    /// Reads a listing, and settles it if it has ended.
    Settle,
}

/// The amount of an order, which depends on what the crowd knows when it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aim {
    /// The plan has fixed the amount; a bid with amount 0 offers the known minimum.
    Fixed,
    /// So much more than the known minimum.
    Raise(u64),
    /// So much less than the known minimum.
    Low(u64),
    /// The same amount as the other orders of this group.
    Tie(u32),
    /// More than the member has.
    Broke,
}

/// The plan of an event.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) listings: Vec<ListingRecord>,
    pub(crate) orders: Vec<Order>,
    /// The aim of each order.
    pub(crate) aims: Vec<Aim>,
    pub(crate) steps: Vec<Step<Act>>,
    pub(crate) ties: u32,
}

/// How large the event is.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) seed: u64,
    pub(crate) people: u32,
    pub(crate) stock: u32,
    /// Additional random bids on all auctions. If there are any, auctions take turns: each runs for a part of the
    /// event. So the running ones have many bids each, and ends and kills coincide all the time.
    pub(crate) bids: u32,
    pub(crate) seconds: u64,
}

impl Size {
    /// Returns the instant after this share of the event's time.
    fn at(self, share: f64) -> i64 {
        (self.seconds as f64 * share * 1e6) as i64
    }
}

/// The shortest auction if auctions take turns.
const TURN_MIN_US: i64 = 1_500_000;
/// When every member has been charged for the first time, as a share of the event.
pub(crate) const OPENS: f64 = 0.12;

impl Plan {
    pub(crate) fn of(size: Size) -> Self {
        let mut plan = Self { listings: (0..size.stock).map(|at| listing(size, at)).collect(), ..Self::default() };
        for member in 0..size.people {
            plan.wallet(size, member);
            plan.bids(size, member);
        }
        plan.random_bids(size);
        for at in 0..size.stock {
            let mut rng = Rng::of(size.seed, at, 20);
            plan.by_owner(size, at, &mut rng);
            if plan.listings[at as usize].terms.is_some() {
                plan.around_the_end(size, at, &mut rng);
                plan.tie(size, at, &mut rng);
            } else {
                plan.race(size, at, &mut rng);
            }
        }
        plan
    }

    /// Adds an order without a step that sends it.
    fn order(&mut self, what: RequestKind, member: u32, listing: u32, amount: u64, aim: Aim) -> u32 {
        let number = self.orders.len() as u32;
        self.orders.push(Order { what, member, listing, amount, key: number });
        self.aims.push(aim);
        number
    }

    fn ask(&mut self, order: u32, at_us: i64) {
        self.steps.push(Step::new(order, Act::Ask, at_us.max(0).cast_unsigned()));
    }

    /// Sends the order once, or twice at the same time.
    fn click(&mut self, order: u32, at_us: i64, twice: bool) {
        self.ask(order, at_us);
        if twice {
            self.steps.push(Step::new(order, Act::Twin, at_us.max(0).cast_unsigned()));
        }
    }

    /// Sends the same key with another body at the same time.
    fn with_key_of(&mut self, order: u32, amount: u64, aim: Aim, at_us: i64) {
        let Order { what, member, listing, key, .. } = self.orders[order as usize];
        let other = self.order(what, member, listing, amount, aim);
        self.orders[other as usize].key = key;
        self.ask(other, at_us);
    }

    /// Charges at the beginning, some later, and refunds in between. All amounts of a member differ, so that the audit
    /// can tell their records apart.
    fn wallet(&mut self, size: Size, member: u32) {
        let mut rng = Rng::of(size.seed, member, 10);
        // From little to much: the rich members decide the auctions, the others get `insufficient_points`.
        let funds = (300.0 * 3_000_f64.powf(rng.unit())) as u64;
        // Members who bid on many auctions at once have more.
        let funds = funds * if size.bids == 0 { 1 } else { 10 };
        let broke = rng.chance(80);
        let amount = |base: u64, place: u64| base.max(2) * 8 + place;
        let first = amount(if broke { 2 } else { funds / 8 }, 0);
        let at_us = size.at(0.01) + rng.below(size.at(OPENS - 0.02).cast_unsigned().max(1)).cast_signed();
        let order = self.order(RequestKind::Charge, member, STRANGER, first, Aim::Fixed);
        self.click(order, at_us, rng.chance(100));
        if rng.chance(30) {
            self.with_key_of(order, amount(funds / 8, 1), Aim::Fixed, at_us);
        }
        if rng.chance(200) && !broke {
            let order = self.order(RequestKind::Charge, member, STRANGER, amount(funds / 16, 2), Aim::Fixed);
            let at_us = size.at(0.2) + rng.below(size.at(0.6).cast_unsigned()).cast_signed();
            self.click(order, at_us, rng.chance(200));
        }
        if rng.chance(200) {
            let whole = if rng.chance(250) { funds } else { funds / (8 * rng.range(2, 12)) };
            let order = self.order(RequestKind::Refund, member, STRANGER, amount(whole, 3), Aim::Fixed);
            let at_us = size.at(0.2) + rng.below(size.at(0.75).cast_unsigned()).cast_signed();
            self.click(order, at_us, rng.chance(250));
        }
    }

    /// Bids of one wallet on several auctions.
    fn bids(&mut self, size: Size, member: u32) {
        let mut rng = Rng::of(size.seed, member, 11);
        for _ in 0..rng.range(1, 5) {
            let any = rng.below(u64::from(size.stock)) as u32;
            let at = if rng.chance(HOT_PER_MILLE) { HOT } else { any };
            self.wish(size, member, at, &mut rng);
        }
    }

    /// Random bids of any member on any auction.
    fn random_bids(&mut self, size: Size) {
        let is_auction = |at: &u32| self.listings[*at as usize].terms.is_some();
        let auctions: Vec<u32> = (0..size.stock).filter(is_auction).collect();
        let mut rng = Rng::of(size.seed, 0, 13);
        for _ in 0..size.bids {
            let member = rng.below(u64::from(size.people)) as u32;
            let at = auctions[rng.below(auctions.len() as u64) as usize];
            self.wish(size, member, at, &mut rng);
        }
    }

    /// Plans a bid, or a purchase at a fixed price.
    fn wish(&mut self, size: Size, member: u32, at: u32, rng: &mut Rng) {
        let ListingRecord { starts_us, terms, .. } = self.listings[at as usize];
        let last_us = terms.map_or(size.at(0.95), |terms| terms.ends_us.min(size.at(0.97)));
        let first_us = starts_us.max(size.at(OPENS));
        let mut at_us = first_us + rng.below((last_us - first_us).max(1).cast_unsigned()).cast_signed();
        if rng.chance(60) {
            // At any time, including before the start and after the end.
            at_us = size.at(OPENS) + rng.below(size.at(0.85).cast_unsigned()).cast_signed();
        }
        if terms.is_none() && !rng.chance(150) {
            let order = self.order(RequestKind::Purchase, member, at, 0, Aim::Fixed);
            self.click(order, at_us, rng.chance(100));
            return;
        }
        let aim = match rng.below(100) {
            0..8 => Aim::Low(rng.range(1, 10)),
            8..13 => Aim::Broke,
            13..16 => Aim::Raise(rng.range(100, 3_000)),
            _ => Aim::Raise(rng.below(20)),
        };
        let order = self.order(RequestKind::Bid, member, at, 0, aim);
        self.click(order, at_us, rng.chance(100));
        if rng.chance(40) {
            self.with_key_of(order, 0, Aim::Raise(rng.range(1, 30)), at_us);
        }
    }

    /// Owners try to bid for and to buy their own listings.
    fn by_owner(&mut self, size: Size, at: u32, rng: &mut Rng) {
        let ListingRecord { owner, starts_us, terms, .. } = self.listings[at as usize];
        let last_us = terms.map_or(size.at(0.9), |terms| terms.ends_us);
        for _ in 0..rng.range(1, 3) {
            let what = if rng.chance(700) { RequestKind::Bid } else { RequestKind::Purchase };
            let aim = if what == RequestKind::Bid { Aim::Raise(rng.below(50)) } else { Aim::Fixed };
            let order = self.order(what, owner, at, 0, aim);
            let at_us = starts_us + rng.below((last_us - starts_us).max(1).cast_unsigned()).cast_signed();
            self.ask(order, at_us.max(size.at(OPENS)).min(size.at(0.97)));
        }
    }

    /// Bids just before the end, at it and after it, and around the ends that late bids lead to. Also a settlement
    /// that comes too early.
    fn around_the_end(&mut self, size: Size, at: u32, rng: &mut Rng) {
        let Some(Terms { ends_us, extend, .. }) = self.listings[at as usize].terms else { return };
        if size.at(0.97) < ends_us {
            return;
        }
        let any = |rng: &mut Rng| rng.below(u64::from(size.people)) as u32;
        // Where late bids put the end off, there are many bids, so that refused ones come between accepted ones.
        let snipers = match (at, extend) {
            (HOT, _) => 60,
            (_, Some(_)) => rng.range(16, 30),
            (_, None) => rng.range(4, 12),
        };
        for _ in 0..snipers {
            let moved_us =
                extend.map_or(0, |extend| extend.by_us * rng.below(u64::from(extend.max_count) + 1).cast_signed());
            let off_us = if rng.chance(200) { 0 } else { rng.below(220_000).cast_signed() - 200_000 };
            // Some bids are too low: a refused bid must not put the end off.
            let aim = if rng.chance(300) { Aim::Low(rng.range(1, 5)) } else { Aim::Raise(rng.below(30)) };
            let member = any(rng);
            let order = self.order(RequestKind::Bid, member, at, 0, aim);
            self.click(order, ends_us + moved_us + off_us, rng.chance(100));
        }
        // Refused late bids, and then early settlements: their answers tell the end, which no refused bid may have put
        // off.
        for _ in 0..if extend.is_some() { 4 } else { 0 } {
            let (member, early_us) = (any(rng), rng.range(130_000, 190_000).cast_signed());
            let order = self.order(RequestKind::Bid, member, at, 0, Aim::Low(rng.range(1, 5)));
            self.ask(order, ends_us - early_us);
        }
        for _ in 0..if extend.is_some() { 5 } else { 1 } {
            let (member, early_us) = (any(rng), rng.range(5_000, 110_000).cast_signed());
            let order = self.order(RequestKind::Purchase, member, at, 0, Aim::Fixed);
            self.ask(order, ends_us - early_us);
        }
        let settle_us = (ends_us + rng.range(2_000, 60_000).cast_signed()).cast_unsigned();
        self.steps.push(Step::new(at, Act::Settle, settle_us));
    }

    /// Several members bid the same amount at the same instant.
    fn tie(&mut self, size: Size, at: u32, rng: &mut Rng) {
        if at != HOT && !rng.chance(400) {
            return;
        }
        let ListingRecord { starts_us, terms, .. } = self.listings[at as usize];
        let (first_us, last_us) =
            (starts_us.max(size.at(OPENS)), terms.map_or(0, |terms| terms.ends_us).min(size.at(0.9)));
        for _ in 0..rng.range(1, 3) {
            let at_us = first_us + rng.below((last_us - first_us).max(1).cast_unsigned()).cast_signed();
            for _ in 0..rng.range(3, 8) {
                let member = rng.below(u64::from(size.people)) as u32;
                let order = self.order(RequestKind::Bid, member, at, 0, Aim::Tie(self.ties));
                self.ask(order, at_us);
            }
            self.ties += 1;
        }
    }

    /// Many members try to buy the same listing at the same instant.
    fn race(&mut self, size: Size, at: u32, rng: &mut Rng) {
        let first_us = self.listings[at as usize].starts_us.max(size.at(OPENS));
        let at_us = first_us + rng.below((size.at(0.9) - first_us).max(1).cast_unsigned()).cast_signed();
        for _ in 0..rng.range(5, 25) {
            let member = rng.below(u64::from(size.people)) as u32;
            let order = self.order(RequestKind::Purchase, member, at, 0, Aim::Fixed);
            self.click(order, at_us, rng.chance(150));
        }
    }
}

/// Draws listing number `at`. Number 0 is the hot one.
fn listing(size: Size, at: u32) -> ListingRecord {
    let mut rng = Rng::of(size.seed, at, 12);
    let owner = rng.below(u64::from(size.people)) as u32;
    let hot = at == HOT;
    let kind = if hot { 0 } else { rng.below(100) };
    let share = |rng: &mut Rng, first: u64, last: u64| size.at(rng.range(first, last) as f64 / 1_000.0);
    let starts_us = if !hot && rng.chance(200) { share(&mut rng, 180, 350) } else { -1_000_000 };
    let price = if hot { 10 } else { rng.range(5, 400) };
    if (85..100).contains(&kind) || at == 1 {
        // Expensive enough that not every member can buy it.
        return ListingRecord { owner, price: price * 10, starts_us, terms: None };
    }
    let turns = 0 < size.bids && !hot;
    let ends_us = match rng.below(100) {
        _ if hot => size.at(0.75),
        0..96 if turns => share(&mut rng, 200, 930),
        0..80 => share(&mut rng, 450, 880),
        // Still runs when the drill is over.
        _ => size.at(3.0) + 60_000_000,
    };
    let runs_us = share(&mut rng, 15, 25).max(TURN_MIN_US);
    let starts_us = if turns { ends_us.min(size.at(0.93)) - runs_us } else { starts_us };
    let increment = (25..50).contains(&kind).then(|| rng.range(2, 40));
    let ms = |rng: &mut Rng, first: u64, last: u64| rng.range(first, last).cast_signed() * 1_000;
    let extend = (hot || (50..75).contains(&kind) || rng.chance(100)).then(|| Extend {
        window_us: ms(&mut rng, 200, 600),
        by_us: ms(&mut rng, 100, 400),
        max_count: rng.range(1, 5) as u32,
    });
    let settle_us = rng.chance(600).then(|| ms(&mut rng, 300, 900));
    ListingRecord { owner, price, starts_us, terms: Some(Terms { ends_us, increment, extend, settle_us }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SIZE: Size = Size { seed: 5, people: 2_000, stock: 60, bids: 0, seconds: 20 };

    #[test]
    fn a_seed_always_gives_the_same_plan() {
        let (plan, again) = (Plan::of(SIZE), Plan::of(SIZE));
        assert_eq!((&plan.listings, &plan.orders, &plan.steps), (&again.listings, &again.orders, &again.steps));
        assert_ne!(plan.orders, Plan::of(Size { seed: 6, ..SIZE }).orders);
    }

    #[test]
    fn everything_that_is_hard_is_there() {
        let plan = Plan::of(SIZE);
        let auctions: Vec<Terms> = plan.listings.iter().filter_map(|listing| listing.terms).collect();
        assert!(auctions.len() < plan.listings.len(), "something has a fixed price");
        assert!(
            auctions.iter().any(|terms| terms.increment.is_some())
                && auctions.iter().any(|terms| terms.settle_us.is_some())
        );
        assert!(
            auctions.iter().any(|terms| terms.extend.is_some()) && auctions.iter().any(|terms| terms.extend.is_none())
        );
        assert!(
            auctions.iter().any(|terms| SIZE.at(1.0) < terms.ends_us)
                && plan.listings.iter().any(|listing| 0 < listing.starts_us)
        );
        let at_the_end = plan.steps.iter().any(|step| {
            let ends = auctions.iter().any(|terms| terms.ends_us.cast_unsigned() == step.due_us);
            step.act == Act::Ask && ends
        });
        assert!(at_the_end, "somebody bids at the very end");
        assert!(
            plan.orders
                .iter()
                .any(|order| order.listing != STRANGER && order.member == plan.listings[order.listing as usize].owner)
        );
        assert!(plan.steps.iter().any(|step| step.act == Act::Twin) && 0 < plan.ties);
        assert!(plan.orders.iter().enumerate().any(|(at, order)| order.key as usize != at), "a key with two bodies");
    }

    #[test]
    fn as_many_random_bids_as_are_asked_for_are_on_all_auctions_by_all() {
        let size = Size { people: 30, stock: 50, bids: 9_000, ..SIZE };
        let plan = Plan::of(size);
        let bids: Vec<&Order> = plan.orders.iter().filter(|order| order.what == RequestKind::Bid).collect();
        assert!((9_000..10_500).contains(&bids.len()), "{}", bids.len());
        let (listings, members): (BTreeSet<u32>, BTreeSet<u32>) =
            bids.iter().map(|bid| (bid.listing, bid.member)).unzip();
        let auctions = plan.listings.iter().filter(|listing| listing.terms.is_some()).count();
        assert_eq!(members.len(), 30);
        assert!(auctions <= listings.len(), "{auctions} auctions, {} bid on", listings.len());
        // The auctions take turns.
        let running = |at_us: i64| {
            let runs = |listing: &&ListingRecord| {
                listing.terms.is_some_and(|terms| (listing.starts_us..terms.ends_us).contains(&at_us))
            };
            plan.listings.iter().filter(runs).count()
        };
        let most = (0..20).map(|second| running(second * 1_000_000)).max();
        assert!(most < Some(auctions / 3), "{most:?} of {auctions} at once");
    }

    #[test]
    fn no_two_charges_or_refunds_of_a_member_are_alike() {
        let plan = Plan::of(SIZE);
        let moves = plan.orders.iter().filter(|order| matches!(order.what, RequestKind::Charge | RequestKind::Refund));
        let alike: Vec<_> = moves.map(|order| (order.what, order.member, order.amount)).collect();
        assert_eq!(alike.iter().collect::<BTreeSet<_>>().len(), alike.len());
    }
}
