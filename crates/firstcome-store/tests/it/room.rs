//! Rooms over a journal that waits and fails: no visitor is told what is not durable, and what is durable goes on.

use crate::in_time;
use crate::scripted::*;
use firstcome_store::core::id::{RoomName, UserId};
use firstcome_store::core::room::{Join, RoomOrder, RoomSettings, TicketNumber, TicketState};
use firstcome_store::core::time::Timestamp;
use firstcome_store::embedded::journal::Outcome;
use firstcome_store::embedded::{Embedded, Stepper};
use firstcome_store::{RoomAnswer, RoomStore, StoreError, TicketAnswer};
use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};

/// A command under way.
pub(crate) struct Under<'a, T>(Pin<Box<dyn Future<Output = Result<T, StoreError>> + 'a>>);

impl<'a, T> Under<'a, T> {
    pub(crate) fn look(&mut self) -> Option<Result<T, StoreError>> {
        match self.0.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(told) => Some(told),
            Poll::Pending => None,
        }
    }

    /// A command that may be answered already.
    pub(crate) fn new(future: impl Future<Output = Result<T, StoreError>> + 'a) -> Self {
        Self(Box::pin(future))
    }

    #[track_caller]
    pub(crate) fn waits(future: impl Future<Output = Result<T, StoreError>> + 'a) -> Self {
        let mut under = Self(Box::pin(future));
        assert!(under.look().is_none(), "told before it may be");
        under
    }

    #[track_caller]
    pub(crate) fn told(mut self) -> Result<T, StoreError> {
        self.look().expect("the writer has answered")
    }
}

#[track_caller]
pub(crate) fn now<'a, T>(future: impl Future<Output = Result<T, StoreError>> + 'a) -> Result<T, StoreError> {
    Under(Box::pin(future)).look().expect("answered at once")
}

fn lobby() -> &'static RoomName {
    static LOBBY: LazyLock<RoomName> = LazyLock::new(|| RoomName::parse("lobby").expect("a valid name"));
    &LOBBY
}

fn by_user(user: &str) -> Join {
    Join { user: Some(UserId::parse(user).expect("a valid user")), request: None }
}

fn shown(answer: RoomAnswer<TicketAnswer>) -> String {
    match answer {
        Ok(Ok(told)) => match told.state {
            TicketState::InDraw { entrants, .. } => format!("in the draw of {entrants}"),
            TicketState::Waiting { position, .. } => format!("waiting {position}"),
            TicketState::Admitted { slot, .. } => format!("admitted {}", slot.admission),
            TicketState::Gone(how) => format!("{how:?}"),
        },
        Ok(Err(rejection)) => rejection.code().to_owned(),
        Err(error) => error_words(&error),
    }
}

/// Runs one command to its end.
fn run<T>(stepper: &mut Stepper, script: &Script, command: Under<'_, RoomAnswerOf<T>>) -> T {
    script.say(Verdict::Commit);
    stepper.step(10);
    command.told().expect("the store answers").expect("nothing is refused")
}

type RoomAnswerOf<T> = Result<T, firstcome_store::core::room::Rejection>;

/// One slot; ann is in it, and bob waits.
fn ann_and_bob(store: &Embedded, stepper: &mut Stepper, script: &Script) -> [Box<str>; 2] {
    // The first room brings a secret along.
    script.say(Verdict::Commit);
    run(stepper, script, Under::waits(store.put_room(lobby(), RoomSettings::with_slots(1))));
    let ann = run(stepper, script, Under::waits(store.join(lobby(), by_user("ann")))).1.ticket;
    script.say(Verdict::Commit);
    let tick = Under::waits(store.tick());
    stepper.step(10);
    tick.told().expect("the store answers");
    assert_eq!(run(stepper, script, Under::waits(store.poll(lobby(), &ann))).number.get(), 1);
    let bob = run(stepper, script, Under::waits(store.join(lobby(), by_user("bob")))).1.ticket;
    while script.asked_already().is_some() {}
    [ann, bob]
}

fn number(number: u32) -> TicketNumber {
    TicketNumber::new(number).expect("a valid number")
}

#[tokio::test]
async fn a_settled_ticket_is_answered_at_once_and_one_that_is_being_decided_waits() {
    in_time(async {
        let (store, mut stepper, script) = stepped();
        let [ann, bob] = ann_and_bob(&store, &mut stepper, &script);
        assert_eq!(shown(now(store.poll(lobby(), &ann))), "admitted 1");
        assert_eq!(shown(now(store.poll(lobby(), &bob))), "waiting 0");
        assert!(now(store.check_pass(lobby(), number(1), 1)).expect("answered").expect("known").is_some());
        assert_eq!(script.asked_already(), None, "none of it is written");
    })
    .await;
}

#[tokio::test]
async fn after_a_failed_commit_no_visitor_is_told_what_may_be_lost_and_settled_tickets_go_on() {
    in_time(async {
        for (outcome, wanted) in [(Outcome::Nothing, "unavailable: full"), (Outcome::Unknown, "unknown")] {
            let (store, mut stepper, script) = stepped();
            let [ann, bob] = ann_and_bob(&store, &mut stepper, &script);
            // One batch: ann leaves, the slot goes to bob, cid comes. Its commit fails.
            script.say(Verdict::Fail(outcome));
            let leave = Under::waits(store.leave(lobby(), &ann));
            let tick = Under::waits(store.tick());
            let cid = Under::waits(store.join(lobby(), by_user("cid")));
            assert_eq!(stepper.step(10), 3);
            assert_eq!(error_words(&leave.told().expect_err("it may be lost")), wanted);
            assert_eq!(error_words(&tick.told().expect_err("it may be lost")), wanted);
            assert_eq!(error_words(&cid.told().expect_err("it may be lost")), wanted);

            let closed = "unavailable: full";
            assert_eq!(shown(now(store.poll(lobby(), &ann))), closed, "neither gone nor admitted");
            assert_eq!(shown(now(store.poll(lobby(), &bob))), closed, "neither waiting nor admitted");
            let pass = now(store.check_pass(lobby(), number(1), 1));
            assert_eq!(error_words(&pass.expect_err("it may be over or not")), closed);
            for again in [now(store.leave(lobby(), &ann)), now(store.close_room(lobby()))] {
                assert_eq!(error_words(&again.expect_err("nothing is written")), closed);
            }
            assert_eq!(error_words(&now(store.join(lobby(), by_user("bob"))).expect_err("nothing is written")), closed);
            assert_eq!(error_words(&now(store.rotate_pass_secret()).expect_err("nothing is written")), closed);
            assert!(now(store.room(lobby())).expect("reads go on").is_ok());
            assert_eq!(script.asked(), JournalRequest::Commit(4), "left, admitted, reached, joined");
        }
    })
    .await;
}

#[tokio::test]
async fn polls_of_settled_tickets_go_on_after_a_fault() {
    in_time(async {
        let (store, mut stepper, script) = stepped();
        let [ann, bob] = ann_and_bob(&store, &mut stepper, &script);
        script.say(Verdict::Fail(Outcome::Unknown));
        let cid = Under::waits(store.join(lobby(), by_user("cid")));
        stepper.step(10);
        assert_eq!(error_words(&cid.told().expect_err("it may be lost")), "unknown");
        assert_eq!(shown(now(store.poll(lobby(), &ann))), "admitted 1");
        assert_eq!(shown(now(store.poll(lobby(), &bob))), "waiting 0");
        assert!(now(store.check_pass(lobby(), number(1), 1)).expect("answered").expect("known").is_some());
    })
    .await;
}

#[tokio::test]
async fn a_join_whose_caller_went_away_before_its_turn_draws_no_number() {
    in_time(async {
        let (store, mut stepper, script) = stepped();
        ann_and_bob(&store, &mut stepper, &script);
        let gone = Under::waits(store.join(lobby(), by_user("cid")));
        drop(gone);
        let dan = run(&mut stepper, &script, Under::waits(store.join(lobby(), by_user("dan"))));
        assert_eq!(dan.1.number, number(3));
    })
    .await;
}

#[test]
fn a_visitor_that_joins_and_goes_away_at_once_is_admitted_all_the_same() {
    let (store, script) = threaded();
    script.say(Verdict::Commit);
    script.say(Verdict::Commit);
    let mut put = Under::new(store.put_room(lobby(), RoomSettings::with_slots(1)));
    until("the room to be there", || put.look()).expect("the store answers").expect("it is new");
    assert_eq!(
        (script.asked(), script.asked()),
        (JournalRequest::Commit(1), JournalRequest::Commit(1)),
        "a secret, and the room"
    );
    // No visitor is in, so nothing ticks. The writer has ann's place in its hands when she goes.
    let ann = Under::waits(store.join(lobby(), by_user("ann")));
    assert_eq!(script.asked(), JournalRequest::Commit(2));
    drop(ann);
    script.say(Verdict::CommitAll);
    until("ann to be admitted", || {
        let view = now(store.room(lobby())).expect("reads go on").expect("it exists").view;
        (view.active == 1).then_some(())
    });
}

/// Looks again and again until there is something to see.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let watch = firstcome_store::edge::Stopwatch::start();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(watch.elapsed() < std::time::Duration::from_secs(60), "timed out waiting for {what}");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn no_visitor_is_told_a_place_while_the_draw_may_be_lost() {
    in_time(async {
        let (store, mut stepper, script) = stepped();
        let drawing = |opens_at| {
            let opens_at = Some(opens_at);
            RoomSettings { paused: true, opens_at, order: RoomOrder::Draw, ..RoomSettings::with_slots(1) }
        };
        // The first room brings a secret along.
        script.say(Verdict::Commit);
        run(&mut stepper, &script, Under::waits(store.put_room(lobby(), drawing(Timestamp::MAX))));
        let [ann, bob] = ["ann", "bob"]
            .map(|user| run(&mut stepper, &script, Under::waits(store.join(lobby(), by_user(user)))).1.ticket);
        run(&mut stepper, &script, Under::waits(store.put_room(lobby(), drawing(Timestamp::MIN))));
        assert_eq!(shown(now(store.poll(lobby(), &ann))), "in the draw of 2");
        script.say(Verdict::Fail(Outcome::Unknown));
        let tick = Under::waits(store.tick());
        stepper.step(10);
        assert_eq!(error_words(&tick.told().expect_err("the draw may be lost")), "unknown");
        for ticket in [&ann, &bob] {
            assert!(now(store.poll(lobby(), ticket)).is_err(), "neither in the draw nor at a place");
        }
        let shown = now(store.room(lobby())).expect("reads go on").expect("it is there");
        assert!(shown.draw.is_some_and(|view| view.draw.is_none()), "{shown:?}");
    })
    .await;
}
