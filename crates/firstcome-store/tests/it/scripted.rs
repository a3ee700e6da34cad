//! A journal that does what a test tells it, commit by commit, and the few words the tests share.

use firstcome_store::core::coupon::{Claim, CouponLimit, CouponSettings, Effect};
use firstcome_store::core::id::{CouponName, RequestId, UserId};
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::ManualClock;
use firstcome_store::embedded::journal::{Change, Journal, JournalError, Outcome};
use firstcome_store::embedded::{Backing, Stepper};
use firstcome_store::{Answer, Claimed, CouponStore, Embedded, Fault, FaultKind, RedeemRequest, StoreError};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long one side waits for the other before the test is taken for failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// What becomes of one commit.
#[derive(Clone, Copy)]
pub(crate) enum Verdict {
    Commit,
    /// This one, and all after it that have no verdict of their own.
    CommitAll,
    Fail(Outcome),
    Panic,
}

/// What the journal was asked to do.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum JournalRequest {
    /// A commit of so many changes has begun.
    Commit(usize),
    Close,
}

/// Waits in every commit for the test's verdict.
struct Scripted {
    inner: Box<dyn Journal>,
    asked: Sender<JournalRequest>,
    verdicts: Receiver<Verdict>,
    all: bool,
}

impl Journal for Scripted {
    fn commit(&mut self, changes: &[Change]) -> Result<(), JournalError> {
        // What a room remembers is stored at each tick; no verdict is about it alone.
        let count = changes.iter().filter(|change| !matches!(change, Change::Remembered { .. })).count();
        if count == 0 {
            return self.inner.commit(changes);
        }
        // A caller that gives the verdicts may be gone at the end of a test, or may not expect this commit at all.
        let _ = self.asked.send(JournalRequest::Commit(count));
        let gone = Verdict::Fail(Outcome::Unknown);
        let verdict = if self.all {
            self.verdicts.try_recv().unwrap_or(Verdict::Commit)
        } else {
            self.verdicts.recv_timeout(PATIENCE).unwrap_or(gone)
        };
        match verdict {
            Verdict::Commit => self.inner.commit(changes),
            Verdict::CommitAll => {
                self.all = true;
                self.inner.commit(changes)
            }
            Verdict::Fail(outcome) => {
                let fault = Fault { kind: FaultKind::Full, detail: "the test said so".to_owned() };
                Err(JournalError { outcome, fault })
            }
            Verdict::Panic => panic!("the test said so"),
        }
    }

    fn close(&mut self) {
        let _ = self.asked.send(JournalRequest::Close);
    }
}

/// The test's end of a [`Scripted`] journal. Dropped before the store, it lets the writer end.
pub(crate) struct Script {
    pub(crate) clock: Arc<ManualClock>,
    asked: Receiver<JournalRequest>,
    verdicts: Sender<Verdict>,
}

impl Script {
    /// Says what becomes of the next commit that has no verdict yet.
    pub(crate) fn say(&self, verdict: Verdict) {
        self.verdicts.send(verdict).expect("the journal lives");
    }

    /// What the journal was asked next, once it is.
    #[track_caller]
    pub(crate) fn asked(&self) -> JournalRequest {
        self.asked.recv_timeout(PATIENCE).expect("the journal is asked for something")
    }

    /// What the journal was asked and the test has not seen, if anything.
    pub(crate) fn asked_already(&self) -> Option<JournalRequest> {
        self.asked.try_recv().ok()
    }

    /// Lets the one commit through that the future leads to, and gives the answer.
    pub(crate) async fn commit<T>(&self, future: impl Future<Output = Answer<T>>) -> T {
        self.say(Verdict::Commit);
        let answer = future.await.expect("the store answers").expect("nothing is refused");
        assert_eq!(self.asked(), JournalRequest::Commit(1));
        answer
    }
}

fn scripted() -> (Backing, Script) {
    let (asked, asked_receiver) = channel();
    let (verdict_sender, verdicts) = channel();
    let backing = Backing::memory();
    let journal = Box::new(Scripted { inner: backing.journal, asked, verdicts, all: false });
    let clock = Arc::new(ManualClock::new(at(10)));
    (Backing { journal, ..backing }, Script { clock, asked: asked_receiver, verdicts: verdict_sender })
}

/// A store with a writer thread over a scripted journal.
pub(crate) fn threaded() -> (Embedded, Script) {
    let (backing, script) = scripted();
    let clock = Arc::clone(&script.clock);
    (Embedded::start(backing, clock).expect("threads can be started"), script)
}

/// A store whose writer is stepped by the test, over a scripted journal.
pub(crate) fn stepped() -> (Embedded, Stepper, Script) {
    let (backing, script) = scripted();
    let (store, stepper) = Embedded::stepped(backing, script.clock.clone());
    (store, stepper, script)
}

/// A command under way, which can be looked at without waiting.
pub(crate) struct Asking<'a, T>(Pin<Box<dyn Future<Output = Answer<T>> + Send + 'a>>);

impl<'a, T> Asking<'a, T> {
    /// Starts the command; it has reached the queue, or its answer is there, when this returns.
    pub(crate) fn start(future: impl Future<Output = Answer<T>> + Send + 'a) -> (Self, Option<Answer<T>>) {
        let mut asking = Self(Box::pin(future));
        let told = asking.look();
        (asking, told)
    }

    /// Starts a command that must wait.
    #[track_caller]
    pub(crate) fn waits(future: impl Future<Output = Answer<T>> + Send + 'a) -> Self {
        let (asking, told) = Self::start(future);
        assert!(told.is_none(), "told before it may be");
        asking
    }

    /// The answer, if it is there already.
    pub(crate) fn look(&mut self) -> Option<Answer<T>> {
        match self.0.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(told) => Some(told),
            Poll::Pending => None,
        }
    }

    #[track_caller]
    pub(crate) fn still_waits(&mut self) {
        assert!(self.look().is_none(), "told before it may be");
    }

    pub(crate) async fn told(self) -> Answer<T> {
        self.0.await
    }
}

/// The answer of a command that needs no other caller.
#[track_caller]
pub(crate) fn at_once<T>(future: impl Future<Output = Answer<T>> + Send) -> Answer<T> {
    Asking::start(future).1.expect("answered at once")
}

pub(crate) fn at(unix_us: i64) -> Timestamp {
    Timestamp::clamped_us(unix_us)
}

pub(crate) fn name(text: &str) -> CouponName {
    CouponName::parse(text).expect("a valid name")
}

pub(crate) fn limited(count: u32) -> CouponSettings {
    CouponSettings::with_limit(CouponLimit::new(count).expect("a valid limit"))
}

pub(crate) fn by(user: &str) -> Claim {
    Claim { user: UserId::parse(user).expect("a valid user"), attributes: None, request: None }
}

pub(crate) fn keyed(user: &str, key: u128) -> Claim {
    Claim { request: Some(RequestId { key, body: 1 }), ..by(user) }
}

pub(crate) fn of(code: &Claimed) -> RedeemRequest {
    RedeemRequest { code: code.code.as_str().to_owned(), user: None, request: None }
}

/// An answer to a claim in a few words.
#[track_caller]
pub(crate) fn words(answer: Answer<Effect<Claimed>>) -> String {
    match answer {
        Ok(Ok(Effect::New(claimed))) => format!("new {}", claimed.issued.serial.get()),
        Ok(Ok(Effect::Again(claimed))) => format!("again {}", claimed.issued.serial.get()),
        Ok(Err(refused)) => refused.rejection.code().to_owned(),
        Err(error) => error_words(&error),
    }
}

pub(crate) fn error_words(error: &StoreError) -> String {
    match error {
        StoreError::Busy { .. } => "overloaded".to_owned(),
        StoreError::Faulted(fault) => format!("unavailable: {}", fault.kind.code()),
        StoreError::Unknown => "unknown".to_owned(),
        other => format!("{other:?}"),
    }
}

/// The error of an answer that has none to give.
#[track_caller]
pub(crate) fn failed<T>(answer: Answer<T>) -> String {
    match answer {
        Ok(_) => panic!("an answer although the store cannot give one"),
        Err(error) => error_words(&error),
    }
}

/// How many everybody sees, and whether more can be had.
pub(crate) async fn seen(store: &Embedded, coupon: &CouponName) -> String {
    let view = store.coupon(coupon).await.expect("reads go on").expect("it exists");
    let page = store.claims(coupon, None, 100_000).await.expect("reads go on").expect("it exists");
    assert_eq!(page.items.len(), view.issued as usize, "the view and the list agree");
    format!("{} {}/{}", view.state.as_str(), view.issued, view.settings.limit.get())
}
