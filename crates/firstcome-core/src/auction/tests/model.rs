//! Random commands on several listings with shared wallets, and on a model that is too simple to be wrong. Both must always
//! give the same answers.

use super::*;
use proptest::prelude::*;

const MEMBERS: [&str; 5] = ["ann", "bob", "cid", "dan", "eve"];
const LISTINGS: [&str; 4] = ["one", "two", "six", "ten"];

/// One listing, with everything that ever happened to it.
struct Thing {
    owner: &'static str,
    price: u64,
    starts: i64,
    terms: Option<AuctionTerms>,
    ends: i64,
    extensions: u32,
    bids: Vec<(&'static str, u64, i64)>,
    sold: Option<(&'static str, u64, i64)>,
    /// 0: open. 1: closed. 2: over without a sale.
    phase: u8,
    version: u64,
    last: i64,
}

impl Thing {
    fn highest(&self) -> Option<(&'static str, u64, i64)> {
        self.bids.last().copied()
    }

    fn settles_until(&self) -> Option<i64> {
        Some(self.ends + self.terms?.settle_within_ms? as i64 * 1_000)
    }

    fn state(&self, now: i64) -> &'static str {
        let expired = self.settles_until().is_some_and(|until| until < now);
        match () {
            () if self.sold.is_some() => "sold",
            () if now < self.starts => "scheduled",
            () if self.terms.is_none() || now <= self.ends => "running",
            () if self.bids.is_empty() || expired => "unsold",
            () => "ended",
        }
    }

    fn close(&mut self) {
        if self.phase == 0 {
            self.version += 1;
            self.phase = if self.bids.is_empty() { 2 } else { 1 };
        }
    }
}

struct Model {
    things: Vec<Thing>,
    outside: BTreeMap<&'static str, i128>,
}

impl Model {
    /// Computed again each time, from everything that ever happened.
    fn balance(&self, name: &str) -> (i128, i128) {
        let mut total = self.outside.get(name).copied().unwrap_or(0);
        let mut held = 0;
        for thing in &self.things {
            let points =
                |of: Option<(&str, u64, i64)>, who: &str| of.filter(|it| it.0 == who).map_or(0, |it| i128::from(it.1));
            total -= points(thing.sold, name);
            if thing.owner == name {
                total += thing.sold.map_or(0, |sold| i128::from(sold.1));
            }
            if thing.sold.is_none() && thing.phase != 2 {
                held += points(thing.highest(), name);
            }
        }
        (total, total - held)
    }

    fn bid(&mut self, place: usize, bidder: &'static str, price: u64, now: i64) -> String {
        let available = self.balance(bidder).1;
        let thing = &mut self.things[place];
        let least = match (thing.highest(), thing.terms) {
            (Some(highest), Some(terms)) => highest.1 + terms.min_increment.map_or(1, Amount::get),
            _ => thing.price,
        };
        if bidder == thing.owner {
            return "own_listing".to_owned();
        }
        let (Some(terms), "running") = (thing.terms, thing.state(now)) else { return "not_in_progress".to_owned() };
        if thing.highest().is_some_and(|highest| highest.0 == bidder) {
            return "already_highest_bidder".to_owned();
        }
        if price < least {
            return format!("bid_too_low {least}");
        }
        if available < i128::from(price) {
            return format!("insufficient_points {available}");
        }
        thing.bids.push((bidder, price, now));
        (thing.version, thing.last) = (thing.version + 1, now);
        if let Some(extend) = terms.extend
            && thing.ends - now <= extend.window_ms as i64 * 1_000
            && thing.extensions < extend.max_count
        {
            thing.extensions += 1;
            thing.ends += extend.by_ms as i64 * 1_000;
        }
        format!("bid {} ends {} fence {}", thing.bids.len(), thing.ends, thing.version)
    }

    fn buy(&mut self, place: usize, buyer: &'static str, now: i64) -> String {
        let available = self.balance(buyer).1;
        let thing = &mut self.things[place];
        let already = thing.sold.map(|sold| format!("already_sold to {} at {}", sold.0, sold.2));
        let price = if thing.terms.is_none() {
            match already {
                _ if buyer == thing.owner => return "own_listing".to_owned(),
                _ if now < thing.starts => return "not_in_progress".to_owned(),
                Some(already) => return already,
                None if available < i128::from(thing.price) => return format!("insufficient_points {available}"),
                None => thing.price,
            }
        } else {
            match (thing.highest(), already, thing.settles_until()) {
                _ if now <= thing.ends => return format!("auction_not_ended {}", thing.ends),
                (Some(highest), Some(already), _) if highest.0 == buyer => return already,
                (Some(highest), None, Some(until)) if highest.0 == buyer && until < now => {
                    return format!("settlement_expired {until}");
                }
                (Some(highest), None, _) if highest.0 == buyer => highest.1,
                _ => return "not_winner".to_owned(),
            }
        };
        if thing.terms.is_some() {
            thing.close();
        }
        thing.sold = Some((buyer, price, now));
        (thing.version, thing.last) = (thing.version + 1, now);
        format!("sold to {buyer} for {price} at {now}")
    }

    fn tick(&mut self, place: usize, now: i64) -> &'static str {
        let thing = &mut self.things[place];
        let over = thing.terms.is_some() && thing.ends < now && thing.sold.is_none();
        let expired = !thing.bids.is_empty() && thing.settles_until().is_some_and(|until| until < now);
        let told = match thing.phase {
            0 | 1 if over && expired => "defaulted",
            0 if over => "closed",
            _ => return "nothing",
        };
        thing.close();
        if told == "defaulted" {
            (thing.phase, thing.version) = (2, thing.version + 1);
        }
        thing.last = now;
        told
    }

    /// Puts a later end. `settings` differ in nothing else.
    fn put(&mut self, place: usize, ends: i64, now: i64) -> &'static str {
        let thing = &mut self.things[place];
        let state = thing.state(now);
        let Some(terms) = &mut thing.terms else { return "same" };
        match (ends - terms.ends_at.as_us(), state) {
            (0, _) => return "same",
            (1.., "scheduled" | "running") | (_, "scheduled") => {}
            (_, "running") => return "listing_running",
            _ => return "listing_ended",
        }
        terms.ends_at = at(ends);
        thing.ends = if state == "scheduled" { ends } else { thing.ends.max(ends) };
        (thing.version, thing.last) = (thing.version + 1, now);
        "changed"
    }

    fn transfer(&mut self, name: &'static str, points: i128) -> String {
        if self.balance(name).1 + points < 0 {
            return "Insufficient".to_owned();
        }
        *self.outside.entry(name).or_default() += points;
        let (total, available) = self.balance(name);
        format!("{available} of {total}")
    }

    fn apply(&mut self, place: usize, step: &Step, now: i64) -> String {
        let by_thing = now.max(self.things[place].last);
        match step {
            Step::Bid(bidder, price) => self.bid(place, bidder, *price, by_thing),
            Step::Buy(buyer) => self.buy(place, buyer, by_thing),
            Step::Put(settings) => {
                let ends = settings.auction_terms().map_or(0, |terms| terms.ends_at.as_us());
                self.put(place, ends, by_thing).to_owned()
            }
            Step::Advance => self.tick(place, by_thing).to_owned(),
            Step::State => format!("{} version {}", self.things[place].state(by_thing), self.things[place].version),
            Step::Charge(name, points) => self.transfer(name, i128::from(*points)),
            Step::Refund(name, points) => self.transfer(name, -i128::from(*points)),
            Step::Balance(name) => {
                let (total, available) = self.balance(name);
                format!("{available} of {total}")
            }
        }
    }
}

/// Random settings: owner, price, start, end, increment, extension, time to settle. A fixed price has no end.
fn any_settings() -> impl Strategy<Value = (&'static str, ListingSettings)> {
    let extend = (1..20_u64, 1..20_u64, 1..4_u32).prop_map(|(window_ms, by_ms, max_count)| Extend {
        window_ms,
        by_ms,
        max_count,
    });
    let terms =
        (20..60_i64, proptest::option::of(1..9_u64), proptest::option::of(extend), proptest::option::of(1..40_u64))
            .prop_map(|(ends, step, extend, settle_within_ms)| {
                let (ends_at, min_increment) = (at(ends * 1_000), step.map(amount));
                Terms::Auction(AuctionTerms { ends_at, min_increment, extend, settle_within_ms })
            });
    let terms = prop_oneof![4 => terms, 1 => Just(Terms::FixedPrice)];
    (0..MEMBERS.len(), 1..20_u64, 0..20_i64, terms).prop_map(|(owner, price, starts, terms)| {
        let (owner, starts_at) = (MEMBERS[owner], Some(at(starts * 1_000)));
        (owner, ListingSettings { owner: member(owner), price: amount(price), starts_at, terms })
    })
}

/// A command whose bids are near the lowest price, and whose ends are near the present end.
#[derive(Clone, Debug)]
enum Idea {
    Bid(usize, i64),
    Buy(usize),
    Later(i64),
    Charge(usize, u64),
    Refund(usize, u64),
    Balance(usize),
    Tick,
    State,
}

impl Idea {
    fn step(&self, settings: &ListingSettings, standing: &ListingStanding) -> Step {
        match self {
            Self::Bid(who, more) => {
                let price = standing.minimum().saturating_add_signed(*more).clamp(1, 1_000);
                Step::Bid(MEMBERS[*who], price)
            }
            Self::Buy(who) => Step::Buy(MEMBERS[*who]),
            Self::Later(by_us) => {
                let mut settings = ListingSettings { starts_at: Some(standing.starts_at), ..settings.clone() };
                if let Terms::Auction(terms) = &mut settings.terms {
                    let ends = standing.auction_terms().expect("it was one").ends_at.as_us() + by_us;
                    terms.ends_at = at(ends.max(standing.starts_at.as_us()));
                }
                Step::Put(settings)
            }
            Self::Charge(who, points) => Step::Charge(MEMBERS[*who], *points),
            Self::Refund(who, points) => Step::Refund(MEMBERS[*who], *points),
            Self::Balance(who) => Step::Balance(MEMBERS[*who]),
            Self::Tick => Step::Advance,
            Self::State => Step::State,
        }
    }
}

fn any_idea() -> impl Strategy<Value = Idea> {
    let who = 0..MEMBERS.len();
    prop_oneof![
        14 => (who.clone(), -2..6_i64).prop_map(|(who, more)| Idea::Bid(who, more)),
        6 => who.clone().prop_map(Idea::Buy),
        2 => (-3_000..9_000_i64).prop_map(|by| Idea::Later(by / 1_000 * 1_000)),
        3 => (who.clone(), 1..60_u64).prop_map(|(who, points)| Idea::Charge(who, points)),
        2 => (who.clone(), 1..60_u64).prop_map(|(who, points)| Idea::Refund(who, points)),
        1 => who.prop_map(Idea::Balance),
        4 => Just(Idea::Tick),
        2 => Just(Idea::State),
    ]
}

fn thing(owner: &'static str, settings: &ListingSettings) -> Thing {
    let terms = settings.auction_terms().copied();
    Thing {
        owner,
        price: settings.price.get(),
        starts: settings.starts_at.expect("the model names it").as_us(),
        terms,
        ends: terms.map_or(i64::MAX, |terms| terms.ends_at.as_us()),
        extensions: 0,
        bids: Vec::new(),
        sold: None,
        phase: 0,
        version: 1,
        last: 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn listings_and_wallets_say_what_a_naive_model_says(
        settings in proptest::collection::vec(any_settings(), LISTINGS.len()),
        commands in proptest::collection::vec((-1_000..4_000_i64, 0..LISTINGS.len(), any_idea()), 1..80),
    ) {
        let mut play = Play { listings: BTreeMap::new(), wallets: TestWallets::default(), records: Vec::new() };
        let mut model = Model { things: Vec::new(), outside: BTreeMap::new() };
        for (name, (owner, settings)) in LISTINGS.iter().zip(&settings) {
            play.list(name, settings.clone());
            model.things.push(thing(owner, settings));
        }
        for name in MEMBERS {
            let charge = Step::Charge(name, 60);
            prop_assert_eq!(play.apply(LISTINGS[0], &charge, 0), model.apply(0, &charge, 0));
        }
        let mut now = 0;
        for (passed, place, idea) in &commands {
            now += passed / 100 * 100;
            let step = idea.step(&settings[*place].1, play.listings[LISTINGS[*place]].standing());
            let wanted = model.apply(*place, &step, now);
            prop_assert_eq!(play.apply(LISTINGS[*place], &step, now), wanted, "{:?} of {} at {}", step, LISTINGS[*place], now);
        }
        for name in MEMBERS {
            let balance = Step::Balance(name);
            prop_assert_eq!(play.apply(LISTINGS[0], &balance, now), model.apply(0, &balance, now));
        }
        for (name, thing) in LISTINGS.iter().zip(&model.things) {
            let standing = play.listings[*name].standing();
            prop_assert_eq!(standing.bids as usize, thing.bids.len());
            prop_assert!(thing.bids.windows(2).all(|pair| pair[0].1 < pair[1].1 && pair[0].2 <= pair[1].2), "bids rise");
        }
    }
}
