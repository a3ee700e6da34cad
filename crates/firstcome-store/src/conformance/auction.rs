//! The suite of [`AuctionStore`].
//!
//! Only [`Bench`] knows the port. Cases write commands as [`Step`]s and replies as texts: `new 2 fence 3` is the second
//! bid, `again 2 fence 3` a repeat of it, `bid_too_low 11` a refusal with its value. After each refusal the suite
//! checks that the listing and the sender's points are unchanged.
//!
//! The store may be a server with its own clock. So the suite computes instants from those that the store shows, and
//! lets time pass with [`LetPass`]. Commands before the end of an auction have [`AuctionSizes::open_ms`].
//! [`auction_by_the_clock`] tests boundaries to the microsecond.

mod audit;
mod by_the_clock;
mod cancelled;
mod closing;
mod concurrent;
mod keys;
mod names;
mod oracle;
mod reopened;
mod rows;

use super::LetPass;
use crate::auction::{AuctionAnswer, AuctionStore, ListingView, MovePoints, Numbered, PlaceBid, Purchase, Transfer};
use crate::edge::ManualClock;
use crate::port::Put;
use firstcome_core::auction::{AuctionTerms, Bid, ListingSettings, ListingStanding, PlacedBid, Rejection, Sale, Terms};
use firstcome_core::coupon::Effect;
use firstcome_core::id::{ListingName, MemberName, RequestId};
use firstcome_core::points::{Amount, Balance, Record};
use firstcome_core::revision::Revision;
use firstcome_core::time::Timestamp;
use std::future::Future;
use std::sync::Arc;

/// The size of the suite's work. A fast store can do more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuctionSizes {
    /// How long an auction runs whose end the suite waits for: enough time for a dozen commands.
    pub open_ms: u64,
    /// Tasks that send commands at once.
    pub tasks: usize,
    /// Commands of each task, one after the other.
    pub commands: usize,
    /// Listings that share wallets.
    pub listings: usize,
    /// Rounds of tests that fail only by chance.
    pub rounds: usize,
    /// Sequences of random commands, each of a few seconds by the store's clock.
    pub sequences: u64,
}

impl AuctionSizes {
    /// For a store in this process.
    pub const LARGE: Self = Self { open_ms: 2_000, tasks: 64, commands: 40, listings: 12, rounds: 20, sequences: 60 };

    /// For a server, where each command waits for a disk.
    pub const SMALL: Self = Self { open_ms: 2_000, tasks: 16, commands: 20, listings: 6, rounds: 5, sequences: 3 };
}

/// Tests a store: the order of all checks, effects and their repeats by key, names, settlement, default, closing
/// without a caller, exactness and conservation under concurrency, dropped futures, and random commands against the
/// rules.
///
/// `new_store` returns an empty store, and the function that lets time pass for it; it is called once per case. If the
/// store has its own clock, the suite lets about half a minute pass in total, and some seconds for each of
/// [`AuctionSizes::sequences`].
///
/// # Panics
/// At the first broken promise, with the command and the reply.
pub async fn auctions<S, F, Fut>(sizes: AuctionSizes, new_store: F)
where
    S: AuctionStore + 'static,
    F: Fn() -> Fut,
    Fut: Future<Output = (S, LetPass)>,
{
    macro_rules! run {
        ($($case:path),+ $(,)?) => { $($case(Bench::new(sizes, new_store().await).await).await;)+ };
    }
    run!(
        rows::an_unknown_listing_is_refused_everywhere,
        rows::bids_are_checked_in_the_documented_order,
        rows::purchases_are_checked_in_the_documented_order,
        rows::points_are_checked_in_the_documented_order,
        rows::settlements_are_checked_in_the_documented_order,
        rows::settings_change_before_the_start_and_the_end_while_it_runs,
        rows::a_revision_replaces_only_what_it_names,
        rows::a_listing_is_shown_as_it_was_put,
        rows::bids_and_records_come_in_pages,
        rows::points_move_as_the_rules_say,
        rows::the_largest_amounts_fit,
        keys::a_repeated_bid_is_told_the_very_same,
        keys::a_repeated_purchase_is_told_the_very_same,
        keys::a_repeated_movement_is_told_the_very_same,
        keys::a_key_is_looked_up_before_everything_else,
        keys::a_refused_request_leaves_no_key,
        names::names_differ_in_every_byte,
        names::the_longest_names_fit,
        closing::an_auction_closes_without_a_caller,
        closing::a_default_releases_its_hold_without_a_caller,
        concurrent::one_auction_takes_bids_from_all,
        concurrent::listings_share_wallets,
        concurrent::of_equal_bids_at_once_one_is_accepted,
        concurrent::a_double_click_has_one_effect,
        concurrent::a_purchase_at_once_has_one_buyer,
        concurrent::a_settlement_at_once_pays_once,
        concurrent::one_balance_backs_no_more_than_it_has,
        concurrent::charges_and_refunds_at_once_are_exact,
        concurrent::members_who_buy_from_each_other_do_not_block,
        concurrent::bids_until_the_end_are_all_in_time,
        cancelled::commands_that_were_dropped_are_done_or_not_done,
        oracle::random_commands_are_answered_as_by_the_rules,
    );
}

/// Tests first and last instants to the microsecond, and how long keys are remembered. For a store that uses the passed
/// [`ManualClock`].
///
/// # Panics
/// At the first broken promise, with the command and the reply.
pub async fn auction_by_the_clock<S, F, Fut>(new_store: F)
where
    S: AuctionStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    by_the_clock::run(&new_store).await;
}

/// Tests that a durable store, after it was closed and opened again, still knows everything that it replied.
///
/// `open` opens the same data each time. The suite drops every handle of a store before it opens the next one. The
/// clock of the next one may be behind.
///
/// # Panics
/// At the first broken promise, with the command and the reply.
pub async fn auction_reopens<S, F, Fut>(sizes: AuctionSizes, open: F)
where
    S: AuctionStore + 'static,
    F: Fn() -> Fut,
    Fut: Future<Output = (S, LetPass)>,
{
    reopened::everything_told_is_still_there(sizes, &open).await;
    reopened::a_busy_auction_comes_back_exactly(sizes, &open).await;
    reopened::what_came_due_meanwhile_is_done(sizes, &open).await;
}

/// One command of a row.
#[derive(Clone, Debug)]
enum Step {
    Put(ListingSettings),
    Bid(&'static str, u64),
    Buy(&'static str),
    Charge(&'static str, u64),
    Refund(&'static str, u64),
    Balance(&'static str),
    State,
    /// The command with an idempotency key, and the digest of its body.
    Keyed(u128, u64, Box<Step>),
}

/// A command, and the wanted reply.
type Row<'a> = (Step, &'a str);

/// A store under test.
struct Bench<S> {
    store: Arc<S>,
    pass: LetPass,
    sizes: AuctionSizes,
}

impl<S> Clone for Bench<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), pass: Arc::clone(&self.pass), sizes: self.sizes }
    }
}

impl<S: AuctionStore + 'static> Bench<S> {
    /// Makes a bench with a listing from which it reads the store's clock.
    async fn new(sizes: AuctionSizes, (store, pass): (S, LetPass)) -> Self {
        let bench = Self { store: Arc::new(store), pass, sizes };
        let settings = ListingSettings::fixed_price(member("clock"), amount(1));
        let put = answered(bench.store.put_listing(&listing("clock"), settings).await);
        assert!(put.is_ok(), "{put:?}");
        bench
    }

    async fn now(&self) -> Timestamp {
        self.view("clock").await.now
    }

    /// Lets this time pass, and lets the store do what is due then.
    async fn pass(&self, ms: u64) {
        (self.pass)(ms).await;
        self.store.close_due().await.expect("the store answers");
    }

    /// Lets time pass until after an instant.
    async fn pass_after(&self, instant: Timestamp) {
        loop {
            let left_us = instant.as_us() - self.now().await.as_us();
            if left_us < 0 {
                break;
            }
            (self.pass)(left_us.unsigned_abs() / 1_000 + 1).await;
            // Yield, so that a test can stop a store whose clock stands still.
            tokio::task::yield_now().await;
        }
        self.store.close_due().await.expect("the store answers");
    }

    /// Returns the instant `ms` after now.
    async fn after(&self, ms: u64) -> Timestamp {
        self.now().await.plus_ms(ms)
    }

    /// Returns an auction of the member `own` for at least 10, from now on for half a day.
    async fn auction(&self) -> ListingSettings {
        ListingSettings::auction(member("own"), amount(10), self.after(43_200_000).await)
    }

    /// Returns an auction whose end the suite waits for.
    async fn short_auction(&self, settle_within_ms: Option<u64>) -> ListingSettings {
        let settings = ListingSettings::auction(member("own"), amount(10), self.after(self.sizes.open_ms).await);
        with_terms(settings, |terms| terms.settle_within_ms = settle_within_ms)
    }

    async fn put(&self, name: &str, settings: ListingSettings) {
        assert_eq!(settings.check(), Ok(()));
        let put = answered(self.store.put_listing(&listing(name), settings).await);
        assert!(put.is_ok(), "{name}: {put:?}");
    }

    async fn charge(&self, names: &[&str], points: u64) {
        for name in names {
            let moved = self.transfer(Transfer::Charge, name, points, None).await;
            assert!(moved.is_ok(), "{name}: {moved:?}");
        }
    }

    async fn view(&self, name: &str) -> ListingView {
        let view = answered(self.store.listing(&listing(name)).await).expect("it exists");
        assert!(view.standing.last_at <= view.now, "{name} was changed later than it is seen");
        view
    }

    async fn standing(&self, name: &str) -> ListingStanding {
        self.view(name).await.standing
    }

    async fn balance(&self, name: &str) -> Balance {
        self.store.balance(&member(name)).await.expect("the store answers")
    }

    async fn transfer(
        &self,
        transfer: Transfer,
        name: &str,
        points: u64,
        request: Option<RequestId>,
    ) -> Result<Effect<Balance>, Rejection> {
        let movement = MovePoints { transfer, amount: amount(points), request };
        answered(self.store.move_points(&member(name), movement).await)
    }

    async fn bid(
        &self,
        name: &str,
        bidder: &str,
        price: u64,
        request: Option<RequestId>,
    ) -> Result<Effect<PlacedBid>, Rejection> {
        let bid = PlaceBid { bidder: member(bidder), price: amount(price), request };
        let placed = answered(self.store.place_bid(&listing(name), bid).await);
        if let Ok(Effect::New(placed)) = &placed {
            let told = (placed.bid.bidder.as_str(), placed.bid.price.get());
            assert_eq!(told, (bidder, price), "the bid of somebody else");
        }
        placed
    }

    async fn buy(&self, name: &str, buyer: &str, request: Option<RequestId>) -> Result<Effect<Sale>, Rejection> {
        answered(self.store.purchase(&listing(name), Purchase { buyer: member(buyer), request }).await)
    }

    async fn all_bids(&self, name: &str) -> Vec<Bid> {
        let (mut bids, mut after) = (Vec::new(), None);
        loop {
            let page = answered(self.store.bids(&listing(name), after, 97).await).expect("it exists");
            assert!(page.items.len() <= 97);
            assert_eq!(page.next, page.next.and(page.items.last()).map(|bid| bid.number.into()), "the last one shown");
            bids.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return bids,
            }
        }
    }

    async fn all_records(&self, name: &str) -> Vec<Record> {
        let (mut records, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.records(&member(name), after, 101).await.expect("the store answers");
            assert!(page.items.len() <= 101);
            assert_eq!(page.next, page.next.and(page.items.last()).map(|record| record.number), "the last one shown");
            records.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return records,
            }
        }
    }

    /// Runs the rows on one listing.
    async fn check(&self, name: &str, rows: &[Row<'_>]) {
        for (row, (step, wanted)) in rows.iter().enumerate() {
            let told = self.apply(name, step).await;
            assert_eq!(told, *wanted, "{name}, row {row}: {step:?}");
        }
    }

    /// Sends one command to the store, and returns its reply as a text.
    async fn apply(&self, name: &str, step: &Step) -> String {
        let (step, request) = match step {
            Step::Keyed(key, body, step) => (&**step, Some(RequestId { key: *key, body: *body })),
            step => (step, None),
        };
        let before = self.seen(name, step).await;
        let told = match step {
            Step::Put(settings) => match answered(self.store.put_listing(&listing(name), settings.clone()).await) {
                Ok(Put::Created) => Ok("created".to_owned()),
                Ok(Put::Replaced) => Ok("replaced".to_owned()),
                Err(rejection) => Err(rejection),
            },
            Step::Bid(bidder, price) => {
                self.bid(name, bidder, *price, request).await.map(|placed| tell(placed, bid_words))
            }
            Step::Buy(buyer) => self.buy(name, buyer, request).await.map(|sale| tell(sale, sale_words)),
            Step::Charge(who, points) => {
                self.transfer(Transfer::Charge, who, *points, request).await.map(|moved| tell(moved, balance_words))
            }
            Step::Refund(who, points) => {
                self.transfer(Transfer::Refund, who, *points, request).await.map(|moved| tell(moved, balance_words))
            }
            Step::Balance(who) => Ok(balance_words(self.balance(who).await)),
            Step::State => Ok(match answered(self.store.listing(&listing(name)).await) {
                Ok(ListingView { standing, now }) => {
                    format!("{} version {}", standing.state(now).as_str(), standing.version)
                }
                Err(rejection) => refused(&rejection),
            }),
            Step::Keyed(..) => unreachable!("a step has one key"),
        };
        if told.is_err() {
            let after = self.seen(name, step).await;
            let phase = |standing: &Option<ListingStanding>| standing.as_ref().map(|standing| standing.phase.clone());
            // The store may have closed the listing meanwhile, because it was due.
            let same = before == after || phase(&before.0) != phase(&after.0);
            assert!(same, "{name}: {step:?} was refused and changed {before:?} to {after:?}");
        }
        told.unwrap_or_else(|rejection| refused(&rejection))
    }

    /// Returns the state that a command may change.
    async fn seen(&self, name: &str, step: &Step) -> (Option<ListingStanding>, Option<Balance>) {
        let standing = answered(self.store.listing(&listing(name)).await).ok().map(|view| view.standing);
        let balance = match step {
            Step::Bid(who, _) | Step::Buy(who) | Step::Charge(who, _) | Step::Refund(who, _) => {
                Some(self.balance(who).await)
            }
            _ => None,
        };
        (standing, balance)
    }
}

/// Unwraps the reply of a store without a fault.
fn answered<T>(answer: AuctionAnswer<T>) -> Result<T, Rejection> {
    answer.expect("the store answers")
}

fn tell<T>(effect: Effect<T>, words: impl FnOnce(T) -> String) -> String {
    match effect {
        Effect::New(value) => format!("new {}", words(value)),
        Effect::Again(value) => format!("again {}", words(value)),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "tells an answer")]
fn bid_words(placed: PlacedBid) -> String {
    format!("{} fence {}", placed.bid.number, placed.fence)
}

#[expect(clippy::needless_pass_by_value, reason = "tells an answer")]
fn sale_words(sale: Sale) -> String {
    format!("{} for {}", sale.buyer, sale.price.get())
}

fn balance_words(balance: Balance) -> String {
    format!("{} of {}", balance.available(), balance.total())
}

/// Returns the code of a refusal, and the values that do not depend on the clock.
fn refused(rejection: &Rejection) -> String {
    let code = rejection.code();
    match rejection {
        Rejection::BidTooLow(points) | Rejection::InsufficientPoints(points) => format!("{code} {points}"),
        Rejection::AlreadySold(sale) => format!("{code} {}", sale_words(sale.clone())),
        _ => code.to_owned(),
    }
}

fn listing(text: &str) -> ListingName {
    ListingName::parse(text).expect("the suite's names are valid")
}

fn member(text: &str) -> MemberName {
    MemberName::parse(text).expect("the suite's names are valid")
}

fn amount(points: u64) -> Amount {
    Amount::new(points).expect("the suite's amounts are valid")
}

const fn key(key: u128, body: u64) -> Option<RequestId> {
    Some(RequestId { key, body })
}

fn keyed(key: u128, body: u64, step: Step) -> Step {
    Step::Keyed(key, body, Box::new(step))
}

fn with_terms(settings: ListingSettings, change: impl FnOnce(&mut AuctionTerms)) -> ListingSettings {
    let Terms::Auction(mut terms) = settings.terms else { unreachable!("the suite changes terms of auctions") };
    change(&mut terms);
    ListingSettings { terms: Terms::Auction(terms), ..settings }
}

/// Returns a listing of the member `own` at a fixed price of 10, from now on.
fn fixed_price() -> ListingSettings {
    ListingSettings::fixed_price(member("own"), amount(10))
}
