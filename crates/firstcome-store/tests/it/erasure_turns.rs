//! The erasure of a member with many records, turn by turn: a page in each, others in between, and no caller is needed for the rest.

use crate::scripted::{Script, Verdict, error_words, stepped};
use firstcome_store::core::erase::{Erased, is_pseudonym};
use firstcome_store::core::id::{MemberName, RequestId, UserId};
use firstcome_store::core::points::{Amount, Wallet};
use firstcome_store::embedded::Stepper;
use firstcome_store::embedded::journal::Outcome;
use firstcome_store::purge::{PurgeRequest, PurgeStore, Retention};
use firstcome_store::{AuctionStore, Embedded, EraseAnswer, EraseStore, MovePoints, RoomStore, Transfer};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// More than any test gives the writer at once.
const ALL: usize = 10_000;
const RECORDS: u64 = 2_500;

/// A command under way, which the test looks at.
struct Running<'a, T>(Pin<Box<dyn Future<Output = T> + 'a>>);

impl<'a, T> Running<'a, T> {
    /// Starts the command; it is in the queue when this returns.
    fn start(future: impl Future<Output = T> + 'a) -> Self {
        let mut running = Self(Box::pin(future));
        assert!(running.look().is_none(), "answered before the writer has seen it");
        running
    }

    fn look(&mut self) -> Option<T> {
        match self.0.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(told) => Some(told),
            Poll::Pending => None,
        }
    }

    /// Steps the writer once, and looks. The answer may come by another thread, which reads tickets.
    fn step(&mut self, stepper: &mut Stepper) -> Option<T> {
        stepper.step(ALL);
        self.look()
    }
}

fn member(name: &str) -> MemberName {
    MemberName::parse(name).expect("a name")
}

fn ann() -> UserId {
    UserId::parse("ann").expect("a name")
}

fn charge(key: Option<u128>) -> MovePoints {
    let request = key.map(|key| RequestId { key, body: 5 });
    MovePoints { transfer: Transfer::Charge, amount: Amount::new(5).expect("an amount"), request }
}

/// A store in which ann has [`RECORDS`], each with a key.
fn with_records() -> (Embedded, Stepper, Script) {
    let (store, mut stepper, script) = stepped();
    script.say(Verdict::CommitAll);
    let name = member("ann");
    let mut charges: Vec<_> =
        (0..RECORDS).map(|key| Running::start(store.move_points(&name, charge(Some(key.into()))))).collect();
    assert_eq!(stepper.step(ALL), RECORDS as usize);
    for charge in &mut charges {
        charge.look().expect("it is stored").expect("the store answers").expect("no rule refuses it");
    }
    drop(charges);
    (store, stepper, script)
}

fn erase(store: &Embedded) -> Running<'_, EraseAnswer> {
    Running::start(async { store.erase(&ann()).await })
}

/// Checks that the member with a pseudonym has a sound chain of all records after so many that were removed.
async fn assert_renamed(store: &Embedded, removed: u64) {
    let names = store.member_names(None, 9).await.expect("the store answers").expect("it lists members").items;
    let name = names.into_iter().find(|name| is_pseudonym(name.as_str())).expect("a pseudonym");
    let mut page = store.records(&name, None, 1_000).await.expect("the store answers");
    assert_eq!(page.removed_to, removed);
    if removed != 0 {
        return;
    }
    let mut wallet = Wallet::empty(name.clone());
    while !page.items.is_empty() {
        for record in page.items {
            assert_eq!(wallet.restore(&record), Ok(()), "{record:?}");
        }
        page = store.records(&name, Some(wallet.records), 1_000).await.expect("the store answers");
    }
    assert_eq!((wallet.records, wallet.balance.total()), (RECORDS, 5 * RECORDS));
}

/// The end of an erasure: a thread reads tickets, so it comes a moment after the last turn.
async fn told(mut erase: Running<'_, EraseAnswer>, stepper: &mut Stepper) -> EraseAnswer {
    loop {
        if let Some(told) = erase.step(stepper) {
            return told;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_chained_again_a_page_in_each_turn_and_others_get_theirs() {
    let (store, mut stepper, _script) = with_records();
    let mut erase = erase(&store);
    let (bob, name) = (member("bob"), member("ann"));
    let mut early = Running::start(store.move_points(&bob, charge(None)));
    assert!(erase.step(&mut stepper).is_none(), "two pages are left");
    early.look().expect("it is stored").expect("the store answers").expect("no rule refuses it");
    let mut late = Running::start(store.move_points(&bob, charge(None)));
    let mut same = Running::start(store.move_points(&name, charge(Some(1))));
    assert!(erase.step(&mut stepper).is_none(), "a page is left");
    let charged = late.look().expect("it is stored").expect("the store answers").expect("no rule refuses it");
    assert_eq!(charged.into_inner().total(), 10, "between two pages");
    let charged = same.look().expect("it is stored").expect("the store answers").expect("no rule refuses it");
    assert_eq!(charged.into_inner().total(), 5, "a new person, with a key that is forgotten");
    let erased = told(erase, &mut stepper).await.expect("the store answers").expect("nothing is to be settled");
    assert_eq!(erased, Erased { members: 1, records: RECORDS, ..Erased::default() });
    assert_renamed(&store, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_goes_away_leaves_the_rest_to_the_ticks_and_a_repeat_waits_for_them() {
    let (store, mut stepper, _script) = with_records();
    let mut gone = erase(&store);
    assert!(gone.step(&mut stepper).is_none(), "two pages are left");
    drop(gone);
    stepper.step(ALL);
    let mut again = erase(&store);
    // The first turn finds nobody of this name; the tick after it makes the last page.
    assert!(again.step(&mut stepper).is_none(), "it answers when nothing of the name is left");
    let erased = told(again, &mut stepper).await.expect("the store answers").expect("nothing is to be settled");
    assert_eq!(erased, Erased::default(), "the first caller erased it");
    assert_renamed(&store, 0).await;
    let mut tick = Running::start(store.tick());
    assert_eq!(tick.step(&mut stepper), Some(Ok(())), "nothing is left to do");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_cannot_be_stored_changes_nothing_and_is_tried_again() {
    let (store, mut stepper, script) = with_records();
    let mut first = erase(&store);
    assert!(first.step(&mut stepper).is_none(), "two pages are left");
    script.say(Verdict::Fail(Outcome::Passing));
    let failed = told(first, &mut stepper).await.expect_err("the page is not stored");
    assert_eq!(error_words(&failed), "unavailable: full");
    // The writer tries a write, and accepts commands again.
    stepper.step(ALL);
    let erased = told(erase(&store), &mut stepper).await.expect("the store answers").expect("nothing is to be settled");
    assert_eq!(erased, Erased::default(), "the first caller erased it");
    assert_renamed(&store, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_cannot_be_stored_leaves_the_commands_before_it_stored() {
    let (store, mut stepper, script) = with_records();
    let mut gone = erase(&store);
    assert!(gone.step(&mut stepper).is_none(), "two pages are left");
    drop(gone);
    let bob = member("bob");
    let mut before = Running::start(store.move_points(&bob, charge(None)));
    let mut tick = Running::start(store.tick());
    script.say(Verdict::Commit);
    script.say(Verdict::Fail(Outcome::Passing));
    stepper.step(ALL);
    before.look().expect("it is stored").expect("the store answers").expect("no rule refuses it");
    let failed = tick.look().expect("the page is tried").expect_err("the page is not stored");
    assert_eq!(error_words(&failed), "unavailable: full");
    // The writer tries a write, and accepts commands again.
    stepper.step(ALL);
    told(erase(&store), &mut stepper).await.expect("the store answers").expect("nothing is to be settled");
    assert_renamed(&store, 0).await;
    let balance = store.balance(&bob).await.expect("the store answers");
    assert_eq!(balance.total(), 5);
}

/// How many records a purge removes.
async fn removed(store: &Embedded, stepper: &mut Stepper) -> u64 {
    let retention = Retention { records: Some(Duration::from_secs(31 * 86_400)), ..Retention::FOREVER };
    let mut purge = Running(Box::pin(store.purge(PurgeRequest::new(retention))));
    loop {
        if let Some(told) = purge.step(stepper) {
            return told.expect("the store answers").expect("the clock is right").records;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_between_pages_removes_no_record_of_the_member() {
    let (store, mut stepper, script) = with_records();
    script.clock.pass_ms(40 * 86_400_000);
    let mut erase = erase(&store);
    assert!(erase.step(&mut stepper).is_none(), "two pages are left");
    assert_eq!(removed(&store, &mut stepper).await, 0);
    told(erase, &mut stepper).await.expect("the store answers").expect("nothing is to be settled");
    assert_renamed(&store, 0).await;
    assert_eq!(removed(&store, &mut stepper).await, RECORDS - 1, "and all but the last one afterwards");
    assert_renamed(&store, RECORDS - 1).await;
}
