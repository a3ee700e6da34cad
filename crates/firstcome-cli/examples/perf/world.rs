//! The store in memory with a writer that is stepped by hand, and the operations on it.

use crate::COUNT_MAX;
use firstcome::core::auction::ListingSettings;
use firstcome::core::coupon::{Claim, CouponLimit, CouponSettings, Rejection};
use firstcome::core::id::{CouponName, ListingName, MemberName, RoomName, UserId};
use firstcome::core::points::Amount;
use firstcome::core::room::{Admit, Join, RoomSettings};
use firstcome::core::time::Timestamp;
use firstcome::edge::ManualClock;
use firstcome::embedded::{Backing, Stepper, Timeline};
use firstcome::{AuctionStore, CouponStore, Embedded, MovePoints, PlaceBid, RoomStore, Transfer};
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Where the clock stands at first: 2030-01-01T00:00:00Z, in microseconds.
pub(crate) const START_US: i64 = 1_893_456_000_000_000;
/// Commands that the writer may take at once: more than ever wait here.
const BATCH_COMMANDS: usize = 64;
/// Between two ticks of a room. All of them take less time than the room waits for a visitor before it admits another instead.
const TICK_MS: u64 = 4;
/// The price of the first bid.
const PRICE: u64 = 100_000;

pub(crate) struct World {
    pub(crate) store: Embedded,
    pub(crate) clock: Arc<ManualClock>,
    stepper: Stepper,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(START_US)));
        let backing = Backing { timeline: Timeline::after(None, clock.as_ref()), ..Backing::memory() };
        let (store, stepper) = Embedded::stepped(backing, Arc::clone(&clock) as _);
        Self { store, clock, stepper }
    }

    /// Lets the writer take what waits.
    pub(crate) fn step(&mut self) {
        self.stepper.step(BATCH_COMMANDS);
    }

    /// Asks the store, with a step of the writer where the answer waits for it.
    pub(crate) fn ask<T>(&mut self, question: impl Future<Output = T>) -> T {
        let mut question = pin!(question);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..8 {
            if let Poll::Ready(answer) = question.as_mut().poll(&mut context) {
                return answer;
            }
            self.stepper.step(BATCH_COMMANDS);
        }
        panic!("the writer took a command and did not answer it")
    }

    pub(crate) fn put_coupon(&mut self, coupon: &CouponName, limit: u32) {
        let settings = CouponSettings::with_limit(CouponLimit::new(limit).expect("a limit"));
        let store = self.store.clone();
        self.ask(store.put_coupon(coupon, settings)).expect("a store").expect("a coupon");
    }

    pub(crate) fn put_room(&mut self, room: &RoomName, settings: RoomSettings) {
        let store = self.store.clone();
        self.ask(store.put_room(room, settings)).expect("a store").expect("a room");
    }

    /// A room in which as many wait as there can be polls, and their tickets.
    pub(crate) fn put_line(&mut self, room: &RoomName, settings: RoomSettings) -> Vec<Box<str>> {
        self.put_room(room, settings);
        let store = self.store.clone();
        let joins = joins().into_iter();
        joins.map(|join| self.ask(store.join(room, join)).expect("a store").expect("a place").1.ticket).collect()
    }

    /// An auction, and two members who can pay for every bid.
    pub(crate) fn put_auction(&mut self, listing: &ListingName) {
        let store = self.store.clone();
        let ends_at = Timestamp::clamped_us(START_US).plus_ms(86_400_000);
        let price = Amount::new(PRICE).expect("a price");
        let settings = ListingSettings::auction(member("owner"), price, ends_at);
        self.ask(store.put_listing(listing, settings)).expect("a store").expect("a listing");
        for bidder in ["bidder-0", "bidder-1"] {
            let amount = Amount::new(1_000_000_000).expect("an amount");
            let charge = MovePoints { transfer: Transfer::Charge, amount, request: None };
            self.ask(store.move_points(&member(bidder), charge)).expect("a store").expect("points");
        }
    }
}

/// Who claims, by number: 16 bytes.
pub(crate) fn user(number: usize) -> UserId {
    UserId::parse(&format!("user-{number:011}")).expect("a user")
}

fn member(name: &str) -> MemberName {
    MemberName::parse(name).expect("a member")
}

pub(crate) fn coupon_name() -> CouponName {
    CouponName::parse("launch").expect("a name")
}

pub(crate) fn room_name() -> RoomName {
    RoomName::parse("sale").expect("a name")
}

pub(crate) fn listing_name() -> ListingName {
    ListingName::parse("lamp").expect("a name")
}

/// The price of a bid by its number: each is above the one before.
pub(crate) const fn price(number: usize) -> u64 {
    PRICE + 10 * number as u64
}

/// A room that admits no visitor.
pub(crate) fn closed_door() -> RoomSettings {
    RoomSettings { paused: true, ..RoomSettings::with_slots(1) }
}

fn claims(user_of: impl Fn(usize) -> UserId) -> Vec<Claim> {
    (0..COUNT_MAX).map(|number| Claim { user: user_of(number), attributes: None, request: None }).collect()
}

fn joins() -> Vec<Join> {
    (0..COUNT_MAX).map(|number| Join { user: Some(user(number)), request: None }).collect()
}

/// A claim that is issued: decided by the writer, committed to the journal in memory, answered.
pub(crate) fn claim(count: usize) {
    let mut world = World::new();
    let (store, coupon) = (world.store.clone(), coupon_name());
    world.put_coupon(&coupon, 1_000_000);
    for claim in claims(user).into_iter().take(count) {
        let answer = black_box(world.ask(store.claim(&coupon, claim)));
        assert!(matches!(answer, Ok(Ok(_))));
    }
}

/// A claim of a user who comes after the last coupon is gone.
pub(crate) fn sold_out(count: usize) {
    let mut world = World::new();
    let (store, coupon) = (world.store.clone(), coupon_name());
    world.put_coupon(&coupon, 1);
    let mut claims = claims(user).into_iter();
    let first = claims.next().expect("a claim");
    assert!(matches!(world.ask(store.claim(&coupon, first)), Ok(Ok(_))));
    for claim in claims.take(count) {
        let answer = black_box(world.ask(store.claim(&coupon, claim)));
        assert!(matches!(answer, Ok(Err(refused)) if refused.rejection == Rejection::SoldOut));
    }
}

/// A claim of a user who has a coupon already.
pub(crate) fn duplicate(count: usize) {
    let mut world = World::new();
    let (store, coupon) = (world.store.clone(), coupon_name());
    world.put_coupon(&coupon, 1_000_000);
    let mut claims = claims(|_| user(0)).into_iter();
    let first = claims.next().expect("a claim");
    assert!(matches!(world.ask(store.claim(&coupon, first)), Ok(Ok(_))));
    for claim in claims.take(count) {
        let answer = black_box(world.ask(store.claim(&coupon, claim)));
        assert!(matches!(answer, Ok(Err(refused)) if refused.claim.is_some()));
    }
}

/// A look of a waiting ticket's holder.
pub(crate) fn poll(count: usize) {
    let mut world = World::new();
    let (store, room) = (world.store.clone(), room_name());
    let tickets = world.put_line(&room, closed_door());
    for ticket in &tickets[..count] {
        let answer = black_box(world.ask(store.poll(&room, ticket)));
        assert!(matches!(answer, Ok(Ok(_))));
    }
}

/// A user gets in line.
pub(crate) fn join(count: usize) {
    let mut world = World::new();
    let (store, room) = (world.store.clone(), room_name());
    world.put_room(&room, closed_door());
    for join in joins().into_iter().take(count) {
        let answer = black_box(world.ask(store.join(&room, join)));
        assert!(matches!(answer, Ok(Ok(_))));
    }
}

/// A tick that admits one.
pub(crate) fn admit_tick(count: usize) {
    let mut world = World::new();
    let (store, room) = (world.store.clone(), room_name());
    let admit = Some(Admit { count: 10, every_ms: 10 * TICK_MS });
    let tickets = world.put_line(&room, RoomSettings { admit, ..RoomSettings::defaults() });
    for _ in 0..count {
        world.clock.pass_ms(TICK_MS);
        world.ask(store.tick()).expect("a store");
    }
    let view = world.ask(store.room(&room)).expect("a store").expect("a room").view;
    let admitted = tickets.len() - view.waiting as usize;
    assert!(admitted.abs_diff(count) <= 2 && admitted == view.active as usize, "{admitted} of {count}, {view:?}");
}

/// A bid on a hot auction, each above the one before, by two members in turn.
pub(crate) fn bid(count: usize) {
    let mut world = World::new();
    let (store, listing) = (world.store.clone(), listing_name());
    world.put_auction(&listing);
    let bids = (0..COUNT_MAX).map(|number| PlaceBid {
        bidder: member(["bidder-0", "bidder-1"][number % 2]),
        price: Amount::new(price(number)).expect("a price"),
        request: None,
    });
    for bid in bids.collect::<Vec<_>>().into_iter().take(count) {
        let answer = black_box(world.ask(store.place_bid(&listing, bid)));
        assert!(matches!(answer, Ok(Ok(_))));
    }
}
