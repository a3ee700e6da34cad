//! Auctions' writer, turn by turn: what it closes in one, what readers see of one, and when it forgets keys.

use crate::room::{Under, now};
use crate::scripted::{JournalRequest, Script, Verdict, at, stepped};
use firstcome_store::core::auction::{ListingSettings, Terms};
use firstcome_store::core::coupon::Effect;
use firstcome_store::core::id::{ListingName, MemberName, RequestId};
use firstcome_store::core::limits::POINTS_KEY_MS;
use firstcome_store::core::points::Amount;
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::ManualClock;
use firstcome_store::embedded::Stepper;
use firstcome_store::embedded::journal::Outcome;
use firstcome_store::{AuctionStore, Embedded, MovePoints, PlaceBid, StoreError, Transfer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// As the store's own number: what one turn closes at most.
const CLOSINGS_PER_TURN: u64 = 256;
/// More than any test gives the writer at once.
const ALL: usize = 10_000;
const END_US: i64 = 1_000;

fn member(name: &str) -> MemberName {
    MemberName::parse(name).expect("a name")
}

fn amount(points: u64) -> Amount {
    Amount::new(points).expect("an amount")
}

fn charge(points: u64, key: Option<u128>) -> MovePoints {
    let request = key.map(|key| RequestId { key, body: points });
    MovePoints { transfer: Transfer::Charge, amount: amount(points), request }
}

fn bid(bidder: &str, price: u64) -> PlaceBid {
    PlaceBid { bidder: member(bidder), price: amount(price), request: None }
}

/// Auctions of one point each that end at one instant.
fn with_auctions(count: usize, settle_within_ms: Option<u64>) -> (Embedded, Stepper, Script, Vec<ListingName>) {
    let (store, mut stepper, script) = stepped();
    script.say(Verdict::CommitAll);
    let names: Vec<ListingName> =
        (0..count).map(|number| ListingName::parse(&format!("lot-{number}")).expect("a name")).collect();
    let mut settings = ListingSettings::auction(member("own"), amount(1), at(END_US));
    if let Terms::Auction(terms) = &mut settings.terms {
        terms.settle_within_ms = settle_within_ms;
    }
    let puts: Vec<_> = names.iter().map(|name| Under::waits(store.put_listing(name, settings.clone()))).collect();
    assert_eq!(stepper.step(ALL), count);
    for put in puts {
        put.told().expect("the store answers").expect("it is new");
    }
    (store, stepper, script, names)
}

#[test]
fn auctions_that_end_at_one_instant_are_closed_in_turns_and_others_get_theirs() {
    let (store, mut stepper, script, names) = with_auctions(1_000, None);
    assert!(matches!(script.asked(), JournalRequest::Commit(1_000)));
    script.clock.set(at(END_US + 1));
    // Several that want it, one of them only to look: they share what a turn closes.
    let mut closing = Under::waits(store.close_due());
    let mut another = Under::waits(store.close_due());
    let look = Under::waits(store.listing(&names[999]));
    let ann = member("ann");
    let paid = Under::waits(store.move_points(&ann, charge(5, None)));
    let (mut closed, mut turns) = (0, 0);
    while closed < 1_000 {
        assert!(closing.look().is_none(), "told before all are closed");
        assert!(another.look().is_none(), "told before all are closed");
        stepper.step(ALL);
        turns += 1;
        let now_closed = store.closings().closed;
        assert_eq!(now_closed - closed, CLOSINGS_PER_TURN.min(1_000 - closed), "turn {turns}");
        closed = now_closed;
    }
    assert_eq!(turns, 4);
    paid.told().expect("the store answers").expect("it is charged");
    let seen = look.told().expect("the store answers").expect("it is there");
    assert_eq!(seen.standing.state(seen.now).as_str(), "unsold", "whether or not it was closed when it was shown");
    for mut under in [closing, another] {
        let told = under.look().or_else(|| {
            stepper.step(ALL);
            under.look()
        });
        told.expect("all are closed").expect("the store answers");
    }
    let first = script.asked();
    assert!(matches!(first, JournalRequest::Commit(changes) if changes < 2 * CLOSINGS_PER_TURN as usize), "{first:?}");
}

#[test]
fn what_was_asked_meanwhile_is_answered_before_the_last_is_closed() {
    let (store, mut stepper, script, _) = with_auctions(600, None);
    script.clock.set(at(END_US + 1));
    let _closing = Under::waits(store.close_due());
    let ann = member("ann");
    let paid = Under::waits(store.move_points(&ann, charge(5, None)));
    stepper.step(ALL);
    paid.told().expect("the store answers").expect("it is charged");
    assert_eq!(store.closings().closed, CLOSINGS_PER_TURN);
}

#[test]
fn without_anybody_asking_all_are_closed_too() {
    let clock = Arc::new(ManualClock::new(at(0)));
    let store = Embedded::memory_with(clock.clone());
    for number in 0..1_000 {
        let name = ListingName::parse(&format!("lot-{number}")).expect("a name");
        let settings = ListingSettings::auction(member("own"), amount(1), at(END_US));
        now(store.put_listing(&name, settings)).expect("the store answers").expect("it is new");
    }
    clock.set(at(END_US + 1));
    crate::room::until("all to be closed", || (store.closings().closed == 1_000).then_some(()));
}

#[test]
fn how_it_ended_is_not_guessed_when_the_writer_cannot_be_asked() {
    let (store, mut stepper, script, names) = with_auctions(1, None);
    let ann = member("ann");
    let paid = Under::waits(store.move_points(&ann, charge(5, None)));
    stepper.step(ALL);
    paid.told().expect("the store answers").expect("it is charged");
    let placed = Under::waits(store.place_bid(&names[0], bid("ann", 1)));
    stepper.step(ALL);
    placed.told().expect("the store answers").expect("it came in time");
    let late = Under::waits(store.place_bid(&names[0], bid("bob", 2)));
    script.clock.set(at(END_US + 1));
    store.stats().queue_limit.store(1, Ordering::Relaxed);
    let told = now(store.listing(&names[0]));
    assert!(matches!(told, Err(StoreError::Busy { .. })), "{told:?}");
    store.stats().queue_limit.store(100, Ordering::Relaxed);
    let look = Under::waits(store.listing(&names[0]));
    stepper.step(ALL);
    late.told().expect("the store answers").expect_err("it was judged after the end");
    let seen = look.told().expect("the store answers").expect("it is there");
    assert_eq!((seen.standing.state(seen.now).as_str(), seen.standing.bids), ("ended", 1));
}

#[test]
fn how_it_ended_is_not_told_by_the_clock_while_a_bid_may_or_may_not_be_stored() {
    for outcome in [Outcome::Unknown, Outcome::Nothing, Outcome::Passing] {
        let (store, mut stepper, script, names) = with_auctions(1, None);
        let ann = member("ann");
        let paid = Under::waits(store.move_points(&ann, charge(5, None)));
        stepper.step(ALL);
        paid.told().expect("the store answers").expect("it is charged");
        script.say(Verdict::Fail(outcome));
        let placed = Under::waits(store.place_bid(&names[0], bid("ann", 1)));
        stepper.step(ALL);
        placed.told().expect_err("the commit failed");
        let seen = now(store.listing(&names[0])).expect("reads go on").expect("it is there");
        assert_eq!((seen.standing.state(seen.now).as_str(), seen.standing.bids), ("running", 0));
        script.clock.set(at(END_US + 1));
        let told = now(store.listing(&names[0]));
        if matches!(outcome, Outcome::Nothing) {
            let over = told.expect("nothing can be stored any more").expect("it is there");
            assert_eq!((over.standing.state(over.now).as_str(), over.standing.bids), ("unsold", 0));
        } else {
            assert!(matches!(told, Err(StoreError::Faulted(_))), "{outcome:?}: {told:?}");
        }
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn auctions_that_closing_leaves_due_do_not_hold_up_who_asked() {
    use firstcome_store::core::planted::{Bug, plant};
    let (store, mut stepper, script, names) = with_auctions(300, Some(1));
    let ann = member("ann");
    let paid = Under::waits(store.move_points(&ann, charge(300, None)));
    let bids: Vec<_> = names.iter().map(|name| Under::waits(store.place_bid(name, bid("ann", 1)))).collect();
    stepper.step(ALL);
    paid.told().expect("the store answers").expect("it is charged");
    for placed in bids {
        placed.told().expect("the store answers").expect("it counts");
    }
    script.clock.set(at(END_US + 10_000));
    plant(Some(Bug::ClosedTwice));
    let mut closing = Under::waits(store.close_due());
    let turns = (1..=10).find(|_| {
        stepper.step(ALL);
        closing.look().is_some()
    });
    plant(None);
    assert!(turns.is_some(), "it never ends");
    assert!(300 < store.closings().defaulted, "the bug was not there");
}

/// Who asks one thing after another must never see a part of a commit: here that a member has been outbid by a bid whose
/// points are not held, or that a hold goes on after the next one has begun.
#[test]
fn a_member_that_has_seen_a_part_of_a_commit_sees_all_of_it() {
    let (store, mut stepper, _script, names) = with_auctions(1, None);
    let people = ["ann", "bob"].map(member);
    let crowd: Vec<MemberName> = (0..500).map(|number| member(&format!("other-{number}"))).collect();
    let rich = people.each_ref().map(|person| Under::waits(store.move_points(person, charge(1_000_000, None))));
    stepper.step(ALL);
    for charged in rich {
        charged.told().expect("the store answers").expect("it is charged");
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let held = |person: &MemberName| now(store.balance(person)).expect("reads go on").held();
            let highest = || {
                let view = now(store.listing(&names[0])).expect("reads go on").expect("it is there");
                view.standing.highest.map_or(0, |bid| bid.price.get())
            };
            while !done.load(Ordering::Relaxed) {
                for [first, second] in [[0, 1], [1, 0]] {
                    let [first, second] = [held(&people[first]), held(&people[second])];
                    assert!(second == 0 || first <= second, "{first} are held, and then {second} still");
                    let shown = highest();
                    assert!(first.max(second) <= shown, "{first} and {second} are held for a bid of {shown}");
                }
            }
        });
        for round in 0..300 {
            // The new bidder's points are the first that change, the other's the last.
            let bidder = &people[round % 2];
            let mut all = vec![Under::waits(store.move_points(bidder, charge(1, None)))];
            all.extend(crowd.iter().map(|other| Under::waits(store.move_points(other, charge(1, None)))));
            let placed = Under::waits(store.place_bid(&names[0], bid(bidder.as_str(), round as u64 + 1)));
            stepper.step(ALL);
            placed.told().expect("the store answers").expect("it is higher");
            if reader.is_finished() {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Charges five points by the same request: what the store says, and how many are there.
#[track_caller]
fn charged_again(store: &Embedded) -> (&'static str, u64) {
    let ann = member("ann");
    let mut under = Under::new(store.move_points(&ann, charge(5, Some(7))));
    let told = crate::room::until("an answer", || under.look()).expect("the store answers").expect("it is charged");
    let word = if matches!(told, Effect::New(_)) { "new" } else { "again" };
    (word, told.into_inner().total())
}

#[test]
fn a_wall_clock_set_forward_makes_no_repeat_a_second_charge() {
    let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(1_800_000_000_000_000)));
    let store = Embedded::memory_with(clock.clone());
    assert_eq!(charged_again(&store), ("new", 5));
    clock.step_forward_ms(2 * POINTS_KEY_MS);
    assert_eq!(charged_again(&store), ("again", 5));
    clock.pass_ms(POINTS_KEY_MS);
    assert_eq!(charged_again(&store), ("again", 5));
    clock.pass_ms(1);
    assert_eq!(charged_again(&store), ("new", 10));
}
