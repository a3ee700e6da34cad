//! The members: what they send, and how they react to answers.

use super::messages::{Body, Reader};
use super::plan::{Act, Aim, Plan};
use super::record::{
    DrillReply, History, Instant, ListingObservation, ListingRecord, Order, ReceivedReply, RequestKind, STRANGER, State,
};
use crate::drill::crowd::{Agenda, Players, Step};
use crate::drill::messages::Request;
use crate::drill::record::Restart;
use crate::rng::Rng;
use hdrhistogram::Histogram;

/// The most unexpected answers whose text is kept.
const STRANGE_MAX: usize = 20;
/// More points than any member has.
const FORTUNE: u64 = 1_000_000_000;

/// What the crowd knows of a listing from answers.
#[derive(Clone, Copy)]
struct Known {
    /// The least price of the next bid.
    minimum: u64,
}

/// All members, and the answers that they got.
pub(crate) struct Bidders {
    reader: Reader,
    seed: u64,
    key: String,
    pub(crate) history: History,
    aims: Vec<Aim>,
    /// The amount of each group of equal bids, once the first bid has chosen it.
    ties: Vec<Option<u64>>,
    known: Vec<Known>,
    /// Whether each order has been sent.
    sent: Vec<bool>,
    /// Steps that are planned or under way.
    open: usize,
    /// The latencies, by call.
    pub(crate) latencies: Vec<Histogram<u64>>,
    pub(crate) answers: u64,
    pub(crate) accepted: u64,
    pub(crate) sold: u64,
}

impl Bidders {
    /// Takes a plan, and puts its steps into the agenda.
    pub(crate) fn new(reader: Reader, seed: u64, key: String, plan: Plan) -> (Self, Agenda<Act>) {
        let Plan { listings, orders, aims, steps, ties } = plan;
        let known = listings.iter().map(|listing| Known { minimum: listing.price }).collect();
        let mut agenda = Agenda::default();
        for step in &steps {
            agenda.push(*step);
        }
        // The bounds are constants that the library accepts.
        let latencies = || Histogram::new_with_bounds(1, 600_000_000, 3).unwrap_or_else(|_| unreachable!());
        let bidders = Self {
            history: History::new(reader.names.clone(), reader.clock, listings, orders),
            reader,
            seed,
            key,
            sent: vec![false; aims.len()],
            aims,
            ties: vec![None; ties as usize],
            known,
            open: steps.len(),
            latencies: RequestKind::ALL.map(|_| latencies()).into(),
            answers: 0,
            accepted: 0,
            sold: 0,
        };
        (bidders, agenda)
    }

    /// Fixes the amount of an order when it is first sent. Repeats send the same amount.
    fn settle_amount(&mut self, at: u32) {
        let Order { what, listing, key, amount, .. } = self.history.orders[at as usize];
        if what != RequestKind::Bid || amount != 0 {
            return;
        }
        let minimum = self.known[listing as usize].minimum;
        let mut amount = match self.aims[at as usize] {
            Aim::Fixed => minimum,
            Aim::Raise(by) => minimum + by,
            Aim::Low(by) => minimum.saturating_sub(by).max(1),
            Aim::Tie(tie) => *self.ties[tie as usize].get_or_insert(minimum + Rng::of(self.seed, tie, 30).below(20)),
            Aim::Broke => FORTUNE + minimum,
        };
        // An order that shares its key with another one must have another body.
        let other = self.history.orders.get(if key == at { key + 1 } else { key } as usize);
        if other.is_some_and(|other| (other.key, other.amount) == (key, amount)) {
            amount += 1;
        }
        self.history.orders[at as usize].amount = amount;
    }

    fn write_order(&self, at: u32, out: &mut Vec<u8>) {
        let Order { what, member, listing, amount, key } = self.history.orders[at as usize];
        let names = &self.reader.names;
        let (member, amount) = (names.member(member), amount.to_string());
        let listing = if listing == STRANGER { String::new() } else { names.listing(listing) };
        let (path, body): ([&str; 3], [&str; 5]) = match what {
            RequestKind::Charge => {
                (["/v1/members/", &member, "/points/charge"], ["{\"amount\":", &amount, "}", "", ""])
            }
            RequestKind::Refund => {
                (["/v1/members/", &member, "/points/refund"], ["{\"amount\":", &amount, "}", "", ""])
            }
            RequestKind::Bid => {
                (["/v1/listings/", &listing, "/bids"], ["{\"bidder\":\"", &member, "\",\"price\":", &amount, "}"])
            }
            RequestKind::Purchase | RequestKind::View => {
                (["/v1/listings/", &listing, "/purchase"], ["{\"buyer\":\"", &member, "\"}", "", ""])
            }
        };
        let idempotency = Some((what.name(), self.seed, key));
        let (method, key) = ("POST", Some(self.key.as_str()));
        Request { method, path: &path, key, idempotency, body: &body, ..Request::default() }.write(out);
    }

    /// Whether this step goes on after the event's end.
    fn goes_on(&self, step: &Step<Act>) -> bool {
        step.act == Act::Ask && self.sent[step.person as usize]
    }

    const fn what(&self, step: &Step<Act>) -> RequestKind {
        match step.act {
            Act::Ask | Act::Twin => self.history.orders.as_slice()[step.person as usize].what,
            Act::View | Act::Settle => RequestKind::View,
        }
    }

    /// Records the least price of a listing's next bid, as an answer showed it to all members.
    fn learn(&mut self, listing: u32, minimum: u64) {
        let known = &mut self.known[listing as usize];
        known.minimum = known.minimum.max(minimum);
    }

    fn push(&mut self, agenda: &mut Agenda<Act>, step: Step<Act>) {
        self.open += 1;
        agenda.push(step);
    }

    /// Adds an order that the plan did not have.
    fn order(&mut self, what: RequestKind, member: u32, listing: u32, delay_us: i64, agenda: &mut Agenda<Act>) -> u32 {
        let number = self.history.orders.len() as u32;
        self.history.orders.push(Order { what, member, listing, amount: 0, key: number });
        self.aims.push(Aim::Fixed);
        self.sent.push(false);
        let due_us = agenda.now_us.saturating_add_signed(delay_us);
        self.push(agenda, Step::new(number, Act::Ask, due_us));
        number
    }

    /// Sends the order again a little later, since its outcome is unknown.
    fn again(&mut self, step: &Step<Act>, told: DrillReply, retry_after_ms: Option<u64>, agenda: &mut Agenda<Act>) {
        let mut rng = Rng::of(self.seed, step.person, agenda.now_us);
        let due_us = agenda.now_us + retry_after_ms.unwrap_or(50) * 1_000 + rng.range(20_000, 150_000);
        // An answer with a retry time is a measured answer; a lost request counts from its first instant.
        let intended_us = if told == DrillReply::Lost { step.intended_us } else { due_us };
        self.push(agenda, Step { due_us, intended_us, ..*step });
    }

    fn on_reply(&mut self, step: &Step<Act>, sent_us: u64, told: DrillReply, now_us: u64) {
        let (sent_us, received_us) = (sent_us.cast_signed(), now_us.cast_signed());
        self.history.on_reply.push(ReceivedReply { order: step.person, sent_us, received_us, told });
    }

    /// Reacts to an answer that decided an order.
    fn decided(&mut self, step: &Step<Act>, told: DrillReply, agenda: &mut Agenda<Act>) {
        let Order { what, listing, .. } = self.history.orders[step.person as usize];
        let mut rng = Rng::of(self.seed, step.person, 40);
        match told {
            DrillReply::Placed(placed) => {
                self.accepted += u64::from(step.act == Act::Ask);
                let least = placed.bid.price + self.history.listings[listing as usize].step();
                self.learn(listing, least);
            }
            DrillReply::TooLow(minimum) => self.learn(listing, minimum),
            DrillReply::Sold(_) => self.sold += u64::from(step.act == Act::Ask),
            _ => {}
        }
        // Some members repeat the decided request with the same key.
        let repeats = if told.is_effect() { 120 } else { 10 };
        if step.act == Act::Ask && rng.chance(repeats) {
            let later_us = rng.range(1_000, 3_000_000);
            let step = Step::new(step.person, Act::Twin, agenda.now_us + later_us);
            self.push(agenda, step);
        }
        if what == RequestKind::Bid && step.act == Act::Ask && rng.chance(150) {
            let look = Step::new(listing, Act::View, agenda.now_us);
            self.push(agenda, look);
        }
    }

    fn looked(&mut self, step: &Step<Act>, look: ListingObservation, agenda: &mut Agenda<Act>) {
        self.history.looks.push(look);
        let listing = self.history.listings[step.person as usize];
        if let Some(highest) = look.highest {
            self.learn(step.person, highest.price + listing.step());
        }
        if step.act == Act::Settle {
            self.settle(step.person, listing, &look, agenda);
        }
    }

    /// Tries to settle an auction that should be over: the winner in time, late or never, and other members too.
    fn settle(&mut self, at: u32, listing: ListingRecord, look: &ListingObservation, agenda: &mut Agenda<Act>) {
        let now_us = agenda.now_us.cast_signed();
        let mut rng = Rng::of(self.seed, at, 50);
        let Some(ends_us) = look.ends_us else { return };
        if look.state == State::Running {
            // A late bid has put the end off.
            let due_us = ends_us.max(now_us).cast_unsigned() + rng.range(2_000, 20_000);
            return self.push(agenda, Step::new(at, Act::Settle, due_us));
        }
        let loser = rng.below(u64::from(self.reader.names.members)) as u32;
        for other in [loser, listing.owner] {
            let delay_us = rng.below(100_000).cast_signed();
            self.order(RequestKind::Purchase, other, at, delay_us, agenda);
        }
        let Some(winner) = look.highest.map(|highest| highest.bidder).filter(|bidder| *bidder != STRANGER) else {
            return;
        };
        let until_us: Option<Instant> =
            listing.terms.and_then(|terms| terms.settle_us).map(|settle_us| ends_us + settle_us);
        let delay_us = match (until_us, rng.below(100)) {
            // At the very last moment, or just after it.
            (Some(until_us), 0..20) => until_us - now_us + rng.below(20_000).cast_signed() - 10_000,
            (Some(until_us), 20..50) => until_us - now_us + rng.range(10_000, 400_000).cast_signed(),
            (Some(_), 50..60) | (None, 0..15) => return,
            _ => rng.below(250_000).cast_signed(),
        };
        let order = self.order(RequestKind::Purchase, winner, at, delay_us, agenda);
        let due_us = agenda.now_us.saturating_add_signed(delay_us);
        if rng.chance(300) {
            self.push(agenda, Step::new(order, Act::Twin, due_us));
        }
        // The winner tries again with another key: a listing is sold only once.
        self.order(RequestKind::Purchase, winner, at, delay_us + rng.range(0, 200_000).cast_signed(), agenda);
    }
}

impl Players for Bidders {
    type Act = Act;

    fn hangs_up(_: Act) -> bool {
        false
    }

    fn all_home(&self) -> bool {
        self.open == 0
    }

    /// Repeats orders that were sent until they are decided, and begins nothing new.
    fn close(&mut self, steps: Vec<Step<Act>>) -> Vec<Step<Act>> {
        let goes_on = |step: &Step<Act>| self.goes_on(step);
        let left: Vec<Step<Act>> = steps.iter().copied().filter(goes_on).collect();
        self.open -= steps.len() - left.len();
        left
    }

    fn resolve(&self, step: Step<Act>) -> Step<Act> {
        step
    }

    fn write_request(&mut self, step: &Step<Act>, _: u64, over: bool, out: &mut Vec<u8>) -> bool {
        if over && !self.goes_on(step) {
            self.open -= 1;
            return false;
        }
        match step.act {
            Act::Ask | Act::Twin => {
                self.sent[step.person as usize] = true;
                self.settle_amount(step.person);
                self.write_order(step.person, out);
            }
            Act::View | Act::Settle => {
                let listing = self.reader.names.listing(step.person);
                let path = &["/v1/listings/", listing.as_str()];
                Request { method: "GET", path, key: Some(&self.key), ..Request::default() }.write(out);
            }
        }
        true
    }

    fn lost(&mut self, step: &Step<Act>, sent_us: u64, agenda: &mut Agenda<Act>) {
        self.open -= 1;
        if matches!(step.act, Act::Ask | Act::Twin) {
            self.on_reply(step, sent_us, DrillReply::Lost, agenda.now_us);
        }
        if step.act != Act::Twin {
            self.again(step, DrillReply::Lost, None, agenda);
        }
    }

    fn answered(&mut self, step: &Step<Act>, sent_us: u64, status: u16, bytes: &[u8], agenda: &mut Agenda<Act>) {
        self.open -= 1;
        self.answers += 1;
        let what = self.what(step);
        self.latencies[what as usize].saturating_record(agenda.now_us.saturating_sub(step.intended_us));
        let strange = |history: &mut History| {
            if history.strange.len() < STRANGE_MAX {
                let text = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]);
                history.strange.push(format!("{}: {status} {text}", what.name()));
            }
        };
        if what == RequestKind::View {
            let (sent_us, now_us) = (sent_us.cast_signed(), agenda.now_us.cast_signed());
            let look = self.reader.look(step.person, sent_us, now_us, bytes).filter(|_| status == 200);
            return match look {
                Some(look) => self.looked(step, look, agenda),
                None if status == 503 => self.again(step, DrillReply::Undecided, None, agenda),
                None => {
                    strange(&mut self.history);
                    self.history.strange_looks += 1;
                }
            };
        }
        let body = serde_json::from_slice::<Body<'_>>(bytes).ok();
        let told = body.as_ref().map_or(DrillReply::Unexpected, |body| self.reader.told(what, status, body));
        self.on_reply(step, sent_us, told, agenda.now_us);
        if told == DrillReply::Unexpected {
            strange(&mut self.history);
        }
        if !told.is_undecided() {
            self.decided(step, told, agenda);
        } else if step.act == Act::Ask {
            self.again(step, told, body.and_then(|body| body.retry_after_ms), agenda);
        }
    }

    fn restarted(&mut self, restart: Restart) {
        self.history.restarts.push(restart);
    }
}
