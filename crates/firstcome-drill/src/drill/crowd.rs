//! The crowd: one queue of people's next steps by time, shared by the connections.

use super::clock::RunClock;
use super::people::People;
use super::record::{Call, History, Restart};
use super::spread::Spread;
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tokio::sync::Notify;

/// How long after the event's end steps with an effect are still finished.
const GRACE_US: u64 = 30_000_000;

/// The players of an event. Each step is one request, and the reaction to its answer.
pub(crate) trait Players {
    /// The kind of a step.
    type Act: Copy + Ord;

    /// Whether a person who does this disconnects before the answer.
    fn hangs_up(act: Self::Act) -> bool;

    /// Whether no step is left.
    fn all_home(&self) -> bool;

    /// Ends the event. Returns which of the planned steps are still made.
    fn close(&mut self, steps: Vec<Step<Self::Act>>) -> Vec<Step<Self::Act>>;

    /// Returns what a planned step has become by now.
    fn resolve(&self, step: Step<Self::Act>) -> Step<Self::Act>;

    /// Writes the step's request; `over` says that the event has ended. Returns false if there is none after all.
    fn write_request(&mut self, step: &Step<Self::Act>, now_us: u64, over: bool, out: &mut Vec<u8>) -> bool;

    /// Handles a request without an answer: the effect may have happened.
    fn lost(&mut self, step: &Step<Self::Act>, sent_us: u64, agenda: &mut Agenda<Self::Act>);

    /// Handles an answer.
    fn answered(
        &mut self,
        step: &Step<Self::Act>,
        sent_us: u64,
        status: u16,
        body: &[u8],
        agenda: &mut Agenda<Self::Act>,
    );

    /// Records that a server was killed and is back.
    fn restarted(&mut self, restart: Restart);
}

/// The next action of a person.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Act {
    Join,
    /// The second of two clicks.
    JoinTwin,
    /// Sends the request and disconnects before the answer.
    JoinHangUp,
    Poll,
    Leave,
    Claim,
    ClaimTwin,
    ClaimHangUp,
    Release,
    Verify,
    View,
    Cheat,
}

impl Act {
    pub(crate) const fn hangs_up(self) -> bool {
        matches!(self, Self::JoinHangUp | Self::ClaimHangUp)
    }

    pub(crate) const fn call(self) -> Call {
        match self {
            Self::Join | Self::JoinTwin | Self::JoinHangUp => Call::Join,
            Self::Poll => Call::Poll,
            Self::Leave => Call::Leave,
            Self::Claim | Self::ClaimTwin | Self::ClaimHangUp => Call::Claim,
            Self::Release => Call::Release,
            Self::Verify => Call::Verify,
            Self::View => Call::View,
            Self::Cheat => Call::Cheat,
        }
    }

    /// Whether the person does not wait for the answer.
    pub(crate) const fn is_side(self) -> bool {
        matches!(self, Self::JoinTwin | Self::ClaimTwin)
    }
}

/// One request to send. Ordered by when it is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Step<A = Act> {
    pub(crate) due_us: u64,
    /// When it was first planned to be sent: latencies count from here, over all repeats.
    pub(crate) intended_us: u64,
    pub(crate) person: u32,
    pub(crate) act: A,
}

impl<A: Copy> Step<A> {
    pub(crate) const fn new(person: u32, act: A, due_us: u64) -> Self {
        Self { due_us, intended_us: due_us, person, act }
    }
}

/// The planned steps, by time.
pub(crate) struct Agenda<A = Act> {
    later: BinaryHeap<Reverse<Step<A>>>,
    pub(crate) now_us: u64,
}

impl<A: Copy + Ord> Default for Agenda<A> {
    fn default() -> Self {
        Self { later: BinaryHeap::new(), now_us: 0 }
    }
}

impl<A: Copy + Ord> Agenda<A> {
    pub(crate) fn push(&mut self, step: Step<A>) {
        self.later.push(Reverse(step));
    }

    /// Plans an action of this person after so many microseconds.
    pub(crate) fn after(&mut self, person: u32, act: A, delay_us: u64) {
        self.push(Step::new(person, act, self.now_us + delay_us));
    }
}

/// State that all connections share, on one thread.
pub(crate) struct Crowd<P: Players = People> {
    pub(crate) clock: RunClock,
    ends_us: u64,
    people: RefCell<P>,
    agenda: RefCell<Agenda<P::Act>>,
    ready: RefCell<VecDeque<Step<P::Act>>>,
    wake: Notify,
    pub(crate) spread: Spread,
    /// Whether every server of the target is up.
    whole: Cell<bool>,
    late_us: Cell<u64>,
    /// Whether the people who only wait have been sent home.
    closed: Cell<bool>,
}

impl Crowd {
    pub(crate) fn history(&self) -> RefMut<'_, History> {
        RefMut::map(self.people.borrow_mut(), |people| &mut people.history)
    }
}

impl<P: Players> Crowd<P> {
    pub(crate) fn new(clock: RunClock, people: P, agenda: Agenda<P::Act>, ends_us: u64, spread: Spread) -> Self {
        Self {
            clock,
            ends_us,
            people: RefCell::new(people),
            agenda: RefCell::new(agenda),
            ready: RefCell::new(VecDeque::new()),
            wake: Notify::new(),
            spread,
            whole: Cell::new(true),
            late_us: Cell::new(0),
            closed: Cell::new(false),
        }
    }

    /// Records whether every server of the target is up. The event does not end while one is down.
    pub(crate) fn set_whole(&self, whole: bool) {
        self.whole.set(whole);
    }

    /// Returns how late a request was sent at worst.
    pub(crate) const fn latest_us(&self) -> u64 {
        self.late_us.get()
    }

    pub(crate) fn into_people(self) -> P {
        self.people.into_inner()
    }

    pub(crate) fn people(&self) -> Ref<'_, P> {
        self.people.borrow()
    }

    pub(crate) fn restarted(&self, restart: Restart) {
        self.people.borrow_mut().restarted(restart);
    }

    /// Whether everybody is home, or the event and its grace time have passed.
    pub(crate) fn is_over(&self) -> bool {
        self.whole.get() && (self.people.borrow().all_home() || self.ends_us + GRACE_US < self.clock.now_us())
    }

    pub(crate) fn take_due(&self) {
        let now_us = self.clock.now_us();
        let (mut agenda, mut ready) = (self.agenda.borrow_mut(), self.ready.borrow_mut());
        if self.ends_us <= now_us && !self.closed.replace(true) {
            let steps = std::mem::take(&mut agenda.later).into_iter().map(|Reverse(step)| step).collect();
            agenda.later = self.people.borrow_mut().close(steps).into_iter().map(Reverse).collect();
        }
        while let Some(Reverse(step)) = agenda.later.peek().copied() {
            if now_us < step.due_us {
                break;
            }
            agenda.later.pop();
            ready.push_back(step);
            self.wake.notify_one();
        }
    }

    pub(crate) fn next_step(&self) -> Option<Step<P::Act>> {
        let step = self.ready.borrow_mut().pop_front()?;
        Some(self.people.borrow().resolve(step))
    }

    pub(crate) async fn wait(&self) {
        self.wake.notified().await;
    }

    /// Writes the step's request. Returns false if its person has gone home instead.
    pub(crate) fn write_request(&self, step: &Step<P::Act>, out: &mut Vec<u8>) -> bool {
        let now_us = self.clock.now_us();
        self.people.borrow_mut().write_request(step, now_us, self.ends_us <= now_us, out)
    }

    /// Returns the node for this step now, if any is up.
    pub(crate) fn node_for(&self, step: &Step<P::Act>) -> Option<usize> {
        self.spread.node_for(step.person, self.clock.now_us())
    }

    pub(crate) fn not_sent(&self, step: Step<P::Act>) {
        let mut agenda = self.agenda.borrow_mut();
        agenda.now_us = self.clock.now_us();
        let due_us = agenda.now_us + 50_000 + u64::from(step.person % 200) * 1_000;
        agenda.push(Step { due_us, ..step });
    }

    pub(crate) fn lost(&self, step: &Step<P::Act>, sent_us: u64) {
        let mut agenda = self.agenda.borrow_mut();
        agenda.now_us = self.clock.now_us();
        self.people.borrow_mut().lost(step, sent_us, &mut agenda);
    }

    pub(crate) fn answered(&self, step: &Step<P::Act>, sent_us: u64, status: u16, body: &[u8]) {
        if step.due_us == step.intended_us {
            self.late_us.set(self.late_us.get().max(sent_us.saturating_sub(step.due_us)));
        }
        let mut agenda = self.agenda.borrow_mut();
        agenda.now_us = self.clock.now_us();
        self.people.borrow_mut().answered(step, sent_us, status, body, &mut agenda);
    }
}
