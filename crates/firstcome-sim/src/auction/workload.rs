//! What members do in auctions: they charge, bid, outbid each other, come at the last instant, have too little, click
//! twice, settle late; sellers change their minds; and the clockwork closes what is due.

use super::history::{AuctionReply, Command, Operation};
use crate::rng::{Rng, mix};
use crate::workload::{Action, Plan, START_US, Workload, digest, draw_key, valid};
use firstcome_core::auction::{AuctionTerms, Extend, ListingSettings, ListingStanding, Rejection, Terms};
use firstcome_core::id::{ListingName, MemberName, RequestId};
use firstcome_core::points::Amount;
use firstcome_core::time::Timestamp;
use firstcome_store::{MovePoints, PlaceBid, Purchase, Transfer};

/// What happens in the world of auctions only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuctionAction {
    /// The clock stops at an instant that matters, or a microsecond beside it, and a client is there.
    Snipe,
    /// An operator sets the clock forward, or more time passes than keys are remembered.
    SetClock,
    /// The clockwork closes what is due.
    Tick,
}

/// How often clients do what, per thousand.
struct Rates {
    seller_per_mille: u64,
    repeat_per_mille: u64,
    key_per_mille: u64,
}

/// What members know of a listing from their requests and replies.
#[derive(Clone)]
struct Known {
    name: ListingName,
    settings: ListingSettings,
    end: Timestamp,
    minimum: u64,
    highest: Option<MemberName>,
}

/// The members of auctions and what they remember.
pub struct Auctions {
    rates: Rates,
    pub(super) members: Vec<MemberName>,
    /// The listings that sellers know.
    pub(super) listings: Vec<ListingName>,
    known: Vec<Known>,
    /// Requests that were made before, to be repeated or imitated.
    asked: Vec<Command>,
    unclear: Vec<Command>,
}

impl Workload for Auctions {
    type Action = AuctionAction;

    /// Draws a plan, 2 to 8 members and 1 to 5 listings.
    fn draw(rng: &mut Rng) -> (Plan<AuctionAction>, Self) {
        let plan = Plan {
            actions: rng.range(40, 200),
            commit_fault_per_mille: *rng.pick(&[0, 10, 40, 120]),
            lost_answer_per_mille: *rng.pick(&[0, 50, 200]),
            batch_max: *rng.pick(&[1, 2, 8, 64]),
            weights: vec![
                (Action::Ask, rng.range(30, 80)),
                (Action::Crowd, rng.range(0, 6)),
                (Action::Own(AuctionAction::Snipe), rng.range(0, 12)),
                (Action::Step, rng.range(10, 40)),
                (Action::Deliver, rng.range(5, 30)),
                (Action::GoAway, rng.range(0, 4)),
                (Action::Wait, rng.range(1, 12)),
                (Action::Own(AuctionAction::SetClock), rng.range(0, 1)),
                (Action::Own(AuctionAction::Tick), rng.range(0, 8)),
                (Action::Crash, rng.range(0, 3)),
                (Action::Restart, rng.range(0, 1)),
            ],
        };
        let rates = Rates {
            seller_per_mille: *rng.pick(&[20, 80, 200]),
            repeat_per_mille: *rng.pick(&[50, 150, 300]),
            key_per_mille: *rng.pick(&[100, 500, 900]),
        };
        let members = (1..=rng.range(2, 8)).map(|number| member(&format!("member-{number}"))).collect();
        let listings = (1..=rng.range(1, 5)).map(|number| listing(&format!("listing-{number}"))).collect();
        let (known, asked, unclear) = (Vec::new(), Vec::new(), Vec::new());
        (plan, Self { rates, members, listings, known, asked, unclear })
    }

    /// Most members have points, and each listing is put.
    fn opening(&mut self, rng: &mut Rng, now: Timestamp) -> Vec<((), Command)> {
        let mut opening = Vec::new();
        for member in &self.members {
            if rng.chance(800) {
                let amount = amount(*rng.pick(&[15, 60, 300]));
                let request = self.key(rng, amount.get());
                let movement = MovePoints { transfer: Transfer::Charge, amount, request };
                opening.push(((), Command::Move(member.clone(), movement)));
            }
        }
        for name in &self.listings {
            let settings = self.settings(rng, now);
            opening.push(((), Command::Put(name.clone(), Box::new(settings))));
        }
        opening
    }

    fn ask(&mut self, rng: &mut Rng, now: Timestamp) -> ((), Command) {
        ((), self.request(rng, now))
    }

    fn visit(&mut self, rng: &mut Rng, now: Timestamp) -> ((), Command) {
        ((), if rng.chance(700) { self.look(rng) } else { self.request(rng, now) })
    }

    /// Many bid on one listing, about half of them with the same price.
    fn crowd(&mut self, rng: &mut Rng) -> Vec<((), Command)> {
        let name = rng.pick(&self.listings).clone();
        let price = self.price(rng, &name);
        let bids = (0..rng.range(2, 8)).map(|_| match self.bid(rng, name.clone()) {
            Command::Bid(name, mut bid) if rng.chance(500) => {
                bid.price = price;
                bid.request = bid.request.map(|RequestId { key, .. }| RequestId { key, body: digest_bid(&bid) });
                ((), Command::Bid(name, bid))
            }
            other => ((), other),
        });
        bids.collect()
    }

    /// Mostly a moment, sometimes past an end.
    fn pause_us(rng: &mut Rng) -> u64 {
        if rng.chance(250) { rng.below(3_000_000) } else { rng.below(40_000) }
    }

    fn learn(&mut self, operation: &Operation) {
        let Some(told) = operation.told() else {
            let is_change = matches!(
                operation.command,
                Command::Put(..) | Command::Bid(..) | Command::Purchase(..) | Command::Move(..)
            );
            if is_change {
                self.unclear.push(operation.command.clone());
            }
            return;
        };
        match (&operation.command, told) {
            (Command::Put(name, settings), AuctionReply::Put(_)) => {
                let end = if let Terms::Auction(terms) = settings.terms { terms.ends_at } else { Timestamp::MAX };
                let minimum = settings.price.get();
                match self.known.iter_mut().find(|known| known.name == *name) {
                    Some(known) => (known.settings, known.end) = (settings.as_ref().clone(), known.end.max(end)),
                    None => self.known.push(Known {
                        name: name.clone(),
                        settings: settings.as_ref().clone(),
                        end,
                        minimum,
                        highest: None,
                    }),
                }
            }
            (_, AuctionReply::View(view)) => self.see(&view.standing),
            (Command::Bid(name, ask), AuctionReply::Placed(placed)) => {
                let placed = placed.clone().into_inner();
                if let Some(known) = self.known.iter_mut().find(|known| known.name == *name) {
                    known.end = placed.effective_ends_at;
                    known.minimum = known.minimum.max(ask.price.get() + 1);
                    known.highest = Some(ask.bidder.clone());
                }
            }
            (Command::Bid(name, _), AuctionReply::Refused(Rejection::BidTooLow(minimum))) => {
                if let Some(known) = self.known.iter_mut().find(|known| known.name == *name) {
                    known.minimum = *minimum;
                }
            }
            _ => {}
        }
    }
}

impl Auctions {
    /// Keyed requests without a clear answer, to be repeated in the end.
    pub fn unclear(&self) -> Vec<Command> {
        let has_key = |command: &&Command| request_of(command).is_some();
        self.unclear.iter().filter(has_key).cloned().collect()
    }

    fn request(&mut self, rng: &mut Rng, now: Timestamp) -> Command {
        if !self.unclear.is_empty() && rng.chance(self.rates.repeat_per_mille) {
            return self.unclear.swap_remove(rng.index(self.unclear.len()));
        }
        if !self.asked.is_empty() && rng.chance(self.rates.repeat_per_mille / 2) {
            let mut again = rng.pick(&self.asked).clone();
            if rng.chance(250) {
                imitate(&mut again);
            }
            return again;
        }
        if rng.chance(self.rates.seller_per_mille) {
            return self.sell(rng, now);
        }
        let command = match rng.below(100) {
            0..14 => self.look(rng),
            14..28 => self.transfer(rng),
            28..45 => self.buy(rng),
            _ => {
                let name = self.listing(rng);
                self.bid(rng, name)
            }
        };
        self.asked.push(command.clone());
        command
    }

    /// An instant that matters and is still to come, or beside one, and what is asked at it.
    pub fn snipe(&self, rng: &mut Rng, now: Timestamp) -> Option<(Timestamp, Vec<Command>)> {
        if self.known.is_empty() {
            return None;
        }
        let known = rng.pick(&self.known);
        let mut instants = vec![known.end.as_us()];
        instants.extend(known.settings.starts_at.map(Timestamp::as_us));
        if let Terms::Auction(terms) = known.settings.terms {
            instants.extend(terms.extend.map(|extend| known.end.as_us() - extend.window_ms as i64 * 1_000));
            instants.extend(terms.settle_within_ms.map(|ms| known.end.plus_ms(ms).as_us()));
        }
        let instant = *rng.pick(&instants) + rng.range(0, 2) as i64 - 1;
        // The end of a fixed price is the end of time.
        let soon = now.as_us() + 3_600_000_000;
        if instant <= now.as_us() || soon < instant {
            return None;
        }
        let count = rng.range(1, 4);
        let commands = (0..count).map(|_| match rng.below(10) {
            0..6 => self.bid(rng, known.name.clone()),
            6 => Command::View(known.name.clone()),
            _ => self.purchase(rng, known.name.clone()),
        });
        Some((Timestamp::clamped_us(instant), commands.collect()))
    }

    fn listing(&self, rng: &mut Rng) -> ListingName {
        // Now and then a name that no client has put.
        if rng.chance(15) { listing("no-such-listing") } else { rng.pick(&self.listings).clone() }
    }

    fn known(&self, name: &ListingName) -> Option<&Known> {
        self.known.iter().find(|known| known.name == *name)
    }

    fn key(&self, rng: &mut Rng, body: u64) -> Option<RequestId> {
        let key = draw_key(rng);
        rng.chance(self.rates.key_per_mille).then_some(RequestId { key, body: mix(body) })
    }

    fn price(&self, rng: &mut Rng, name: &ListingName) -> Amount {
        let minimum = self.known(name).map_or(5, |known| known.minimum);
        amount(match rng.below(20) {
            0 | 1 => minimum.saturating_sub(1),
            2 => 1_000_000,
            3..7 => minimum + rng.range(1, 12),
            _ => minimum,
        })
    }

    fn bid(&self, rng: &mut Rng, name: ListingName) -> Command {
        let known = self.known(&name);
        let bidder = match known {
            Some(known) if rng.chance(60) => known.settings.owner.clone(),
            Some(Known { highest: Some(highest), .. }) if rng.chance(60) => highest.clone(),
            _ => rng.pick(&self.members).clone(),
        };
        let mut bid = PlaceBid { bidder, price: self.price(rng, &name), request: None };
        bid.request = self.key(rng, digest_bid(&bid));
        Command::Bid(name, bid)
    }

    fn purchase(&self, rng: &mut Rng, name: ListingName) -> Command {
        let buyer = match self.known(&name) {
            Some(Known { highest: Some(highest), .. }) if rng.chance(700) => highest.clone(),
            _ => rng.pick(&self.members).clone(),
        };
        let request = self.key(rng, digest(buyer.as_str().bytes()));
        Command::Purchase(name, Purchase { buyer, request })
    }

    fn buy(&self, rng: &mut Rng) -> Command {
        let name = self.listing(rng);
        self.purchase(rng, name)
    }

    fn transfer(&self, rng: &mut Rng) -> Command {
        let transfer = if rng.chance(600) { Transfer::Charge } else { Transfer::Refund };
        let amount = amount(*rng.pick(&[1, 7, 20, 20, 150]));
        let request = self.key(rng, amount.get() << 1 | u64::from(transfer == Transfer::Charge));
        Command::Move(rng.pick(&self.members).clone(), MovePoints { transfer, amount, request })
    }

    fn look(&self, rng: &mut Rng) -> Command {
        let after = rng.chance(500).then(|| rng.range(0, 6));
        let count = rng.range(1, 12) as usize;
        match rng.below(8) {
            0..3 => Command::View(self.listing(rng)),
            3 | 4 => Command::Bids(self.listing(rng), after, count),
            5 => Command::Records(rng.pick(&self.members).clone(), after, count),
            _ => Command::Balance(rng.pick(&self.members).clone()),
        }
    }

    fn sell(&self, rng: &mut Rng, now: Timestamp) -> Command {
        let name = rng.pick(&self.listings).clone();
        let known = self.known(&name).map(|known| known.settings.clone());
        let Some(mut settings) = known.filter(|_| rng.chance(700)) else {
            return Command::Put(name, Box::new(self.settings(rng, now)));
        };
        // The same again, or one thing changed: what may be, and what may not.
        match (rng.below(5), &mut settings.terms) {
            (0..3, Terms::Auction(terms)) => terms.ends_at = later(terms.ends_at, rng.below(4_000_000)),
            (3, _) => settings.price = amount(settings.price.get() + 1),
            _ => {}
        }
        Command::Put(name, Box::new(settings))
    }

    /// Draws settings that a run can see begin and end.
    fn settings(&self, rng: &mut Rng, now: Timestamp) -> ListingSettings {
        let starts_at = if rng.chance(300) {
            let ahead_us = rng.below(4_000_000);
            Some(if rng.chance(200) { Timestamp::clamped_us(START_US) } else { later(now, ahead_us) })
        } else {
            None
        };
        let extend = Extend {
            window_ms: *rng.pick(&[1, 300, 2_000]),
            by_ms: *rng.pick(&[1, 500, 3_000]),
            max_count: *rng.pick(&[1, 2, 5]),
        };
        let terms = AuctionTerms {
            ends_at: later(now, rng.below(8_000_000)),
            min_increment: rng.chance(400).then(|| amount(rng.range(1, 9))),
            extend: rng.chance(600).then_some(extend),
            settle_within_ms: rng.chance(600).then(|| *rng.pick(&[1, 700, 5_000, 60_000])),
        };
        ListingSettings {
            owner: rng.pick(&self.members).clone(),
            price: amount(rng.range(1, 25)),
            starts_at,
            terms: if rng.chance(750) { Terms::Auction(terms) } else { Terms::FixedPrice },
        }
    }

    fn see(&mut self, standing: &ListingStanding) {
        if let Some(known) = self.known.iter_mut().find(|known| known.name == standing.name) {
            known.end = standing.effective_ends_at;
            known.minimum = standing.minimum();
            known.highest = standing.highest.as_ref().map(|bid| bid.bidder.clone());
        }
    }
}

/// The request of a command, if it carries a key.
pub const fn request_of(command: &Command) -> Option<RequestId> {
    match command {
        Command::Bid(_, bid) => bid.request,
        Command::Purchase(_, purchase) => purchase.request,
        Command::Move(_, movement) => movement.request,
        _ => None,
    }
}

/// Makes another request under the same key.
fn imitate(command: &mut Command) {
    let other = |request: &mut Option<RequestId>| {
        if let Some(request) = request {
            request.body = mix(request.body);
        }
    };
    match command {
        Command::Bid(_, bid) => {
            bid.price = amount(bid.price.get() + 1);
            other(&mut bid.request);
        }
        Command::Purchase(_, purchase) => other(&mut purchase.request),
        Command::Move(_, movement) => {
            movement.amount = amount(movement.amount.get() + 1);
            other(&mut movement.request);
        }
        _ => {}
    }
}

/// What a bid asks for, in 64 bits.
fn digest_bid(bid: &PlaceBid) -> u64 {
    digest(bid.bidder.as_str().bytes()) ^ bid.price.get()
}

fn later(at: Timestamp, by_us: u64) -> Timestamp {
    Timestamp::clamped_us(at.as_us() + by_us as i64)
}

fn amount(points: u64) -> Amount {
    match Amount::new(points.max(1)) {
        Some(amount) => amount,
        None => panic!("{points} is an amount"),
    }
}

fn listing(text: &str) -> ListingName {
    valid(ListingName::parse(text))
}

fn member(text: &str) -> MemberName {
    valid(MemberName::parse(text))
}
