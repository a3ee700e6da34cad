//! What clients asked and what they were told: all that the invariants know of the store's promises.
//!
//! Each event has a number, and later events have larger ones, so "before" is a comparison of two numbers. An operation
//! without a clear answer may take effect until its store's life ends.

use firstcome_core::time::{Now, Timestamp};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The number of an event.
pub type Event = i64;

/// The place of an operation in the history.
pub type OperationId = usize;

/// A command, and what it is about.
pub type Request<V> = (<V as Vocabulary>::Name, <V as Vocabulary>::Command);

/// Numbers events, those of clients and those of the disk.
#[derive(Clone, Default)]
pub struct Events(Arc<AtomicI64>);

impl Events {
    /// The number of an event that happens now.
    pub fn next(&self) -> Event {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Commands and replies that the tables of a report count by kind.
pub trait Kind {
    /// The kind, as the tables name it.
    fn kind(&self) -> &'static str;
}

/// What the clients of a primitive ask, and what they are told.
pub trait Vocabulary: Sized + 'static {
    /// What a command is about. `()` where each command says that itself.
    type Name: Clone + Send;
    /// What a client asks.
    type Command: Kind + Clone + Send;
    /// A reply of the store.
    type Reply: Kind + PartialEq + Debug + Send;
    /// What the history of a run notes beside its operations.
    type Marks: Default;

    /// The number of an event that happens now.
    fn event(events: &Events, _now: Now) -> Event {
        events.next()
    }

    /// When the store judged a command, if the reply says so.
    fn as_of(_reply: &Self::Reply) -> Option<Timestamp> {
        None
    }
}

/// What became of an operation, as far as its client knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<R> {
    /// No answer yet.
    Pending,
    /// The store answered.
    Answered(R),
    /// The store said that nothing was done.
    NotDone,
    /// It may have been done or not: the answer was lost, the caller went away, or the store did not know.
    Unknown,
}

/// One operation of one client.
pub struct Operation<V: Vocabulary> {
    /// What the command is about.
    pub name: V::Name,
    /// What was asked.
    pub command: V::Command,
    /// What came back.
    pub outcome: Outcome<V::Reply>,
    /// When it was asked.
    pub asked: Event,
    /// After this event it has no effect any more: its answer, or the end of the store's life. `None`: not yet.
    pub ended: Option<Event>,
    /// When the store judged it, if the reply says so; else when it was answered.
    pub judged: Event,
    /// The wall clock when it was asked.
    pub asked_at: Timestamp,
    /// The wall clock when it ended.
    pub ended_at: Timestamp,
    /// In which life of the store, counted from one.
    pub life: usize,
    /// How many claims of its coupon were durable when it was answered.
    pub durable: u32,
}

impl<V: Vocabulary> Operation<V> {
    /// The reply, if one came.
    pub const fn told(&self) -> Option<&V::Reply> {
        match &self.outcome {
            Outcome::Answered(told) => Some(told),
            _ => None,
        }
    }

    /// When it was answered, or could last have had an effect.
    pub fn end(&self) -> Event {
        self.ended.unwrap_or(Event::MAX)
    }

    /// Whether it may have had an effect that no client knows of.
    pub const fn is_unclear(&self) -> bool {
        matches!(self.outcome, Outcome::Pending | Outcome::Unknown)
    }

    /// Whether something that came into force in this event came between question and answer.
    pub fn spans(&self, event: Event) -> bool {
        self.asked < event && event < self.end()
    }

    /// Whether it was over before the other one began.
    pub fn precedes(&self, other: &Self) -> bool {
        self.end() < other.asked
    }
}

/// All operations of one run, and when the lives of the store began.
pub struct History<V: Vocabulary> {
    operations: Vec<Operation<V>>,
    events: Events,
    instants: Vec<Now>,
    /// When each life of the store began.
    pub lives: Vec<Event>,
    /// What the primitive notes.
    pub marks: V::Marks,
}

impl<V: Vocabulary> Default for History<V> {
    fn default() -> Self {
        let (operations, instants, lives) = (Vec::new(), Vec::new(), Vec::new());
        Self { operations, events: Events::default(), instants, lives, marks: V::Marks::default() }
    }
}

impl<V: Vocabulary> History<V> {
    /// The numbers of its events, which the disk shares.
    pub fn events(&self) -> Events {
        self.events.clone()
    }

    /// All operations, in the order in which they were asked.
    pub fn operations(&self) -> &[Operation<V>] {
        &self.operations
    }

    /// Notes an instant, so that a reply's `as_of` leads back to it.
    pub fn pass(&mut self, now: Now) {
        if self.instants.last() != Some(&now) {
            self.instants.push(now);
        }
    }

    /// Notes that a life of the store begins.
    pub fn begin_life(&mut self, now: Now) {
        self.lives.push(V::event(&self.events, now));
    }

    /// Notes that a client asks.
    pub fn ask(&mut self, name: V::Name, command: V::Command, now: Now) -> OperationId {
        self.pass(now);
        let asked = V::event(&self.events, now);
        self.operations.push(Operation {
            name,
            command,
            outcome: Outcome::Pending,
            asked,
            ended: None,
            judged: asked,
            asked_at: now.wall,
            ended_at: Timestamp::MAX,
            life: self.lives.len(),
            durable: 0,
        });
        self.operations.len() - 1
    }

    /// Notes what the client came to know. `durable`: the claims of its coupon on disk at that moment.
    pub fn answer(&mut self, id: OperationId, outcome: Outcome<V::Reply>, durable: u32, now: Now) {
        self.pass(now);
        let event = V::event(&self.events, now);
        let as_of = if let Outcome::Answered(reply) = &outcome { V::as_of(reply) } else { None };
        let judged = as_of.and_then(|as_of| self.instant(as_of)).unwrap_or(event);
        let operation = &mut self.operations[id];
        assert!(matches!(operation.outcome, Outcome::Pending), "an operation has one answer");
        // An unclear operation may take effect until this life of the store ends.
        if !matches!(outcome, Outcome::Unknown) {
            (operation.ended, operation.ended_at) = (Some(event), now.wall);
        }
        (operation.outcome, operation.judged, operation.durable) = (outcome, judged, durable);
    }

    /// When the wall clock showed this.
    fn instant(&self, wall: Timestamp) -> Option<Event> {
        let found = self.instants.binary_search_by_key(&wall, |now| now.wall).ok()?;
        Some(self.instants[found].steady.as_us())
    }

    /// Notes that the process is gone: no operation takes effect any more.
    pub fn end_life(&mut self, now: Now) {
        self.pass(now);
        let event = V::event(&self.events, now);
        for operation in self.operations.iter_mut().filter(|operation| operation.ended.is_none()) {
            (operation.ended, operation.ended_at) = (Some(event), now.wall);
        }
    }
}
