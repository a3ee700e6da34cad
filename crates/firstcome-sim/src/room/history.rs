//! What the people of a room asked and what they were told.
//!
//! Every event has an instant of its own on the steady clock of the world, which no operator sets and no crash stops; so
//! "before" is a comparison of instants. An operation without a told answer may take effect until its store's life ends.

use firstcome_core::id::RoomName;
use firstcome_core::room::{Join, Rejection, RoomSettings, TicketNumber, TicketState};
use firstcome_core::time::{Now, Timestamp};
use firstcome_store::embedded::journal::PassSecret;
use firstcome_store::{Joining, PassCheck, Put, RoomSummary, TicketAnswer};
use std::collections::BTreeSet;

/// The place of an operation in the history.
pub type OperationId = usize;

/// What a client asks.
#[derive(Clone, Debug)]
pub enum Command {
    /// An operator makes a room, changes its settings, or opens it again.
    Put(RoomSettings),
    /// An operator closes a room.
    Close,
    /// Anybody looks at a room.
    View,
    /// A client takes a place in line.
    Join(Join),
    /// A holder asks about a ticket. The number is the one that was told with it; none for a forged one.
    Poll(Box<str>, Option<TicketNumber>),
    /// A holder gives up a ticket.
    Leave(Box<str>, Option<TicketNumber>),
    /// The shop gives up the slot of one admission.
    Release(TicketNumber, u64),
    /// The shop checks a pass.
    Check(TicketNumber, u64),
    /// The clockwork does what is due.
    Tick,
    /// An operator changes the secret of passes.
    Rotate,
    /// The edge reads the secrets of passes.
    Secrets,
}

impl Command {
    /// The kind of command, for tables.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Put(_) => "room put",
            Self::Close => "close",
            Self::View => "room",
            Self::Join(_) => "join",
            Self::Poll(..) => "poll",
            Self::Leave(..) => "leave",
            Self::Release(..) => "release",
            Self::Check(..) => "check",
            Self::Tick => "tick",
            Self::Rotate => "rotate",
            Self::Secrets => "secrets",
        }
    }
}

/// An answer that reached its client.
#[derive(Clone, Debug, PartialEq)]
pub enum RoomStepReply {
    /// The settings are in force.
    Put(Put),
    /// The room is closed.
    Closed,
    /// The room as everybody sees it.
    View(Box<RoomSummary>),
    /// The place that a join led to.
    Joined(Joining, TicketAnswer),
    /// Where a ticket stands.
    Ticket(TicketAnswer),
    /// The ticket is given up.
    Left,
    /// The slot is given up.
    Released,
    /// Whether a pass is valid.
    Pass(Option<PassCheck>),
    /// What was due is done.
    Ticked,
    /// The new secret.
    Rotated(PassSecret),
    /// All secrets.
    Secrets(Vec<PassSecret>),
    /// A rule refused.
    Refused(Rejection),
}

impl RoomStepReply {
    /// The answer in a word, for tables.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Put(Put::Created) => "created",
            Self::Put(Put::Replaced) => "replaced",
            Self::View(summary) => summary.view.state.as_str(),
            Self::Joined(Joining::New, _) => "new",
            Self::Joined(Joining::SameRequest, _) => "same request",
            Self::Joined(Joining::SameUser, _) => "same user",
            Self::Ticket(TicketAnswer { state: TicketState::Waiting { .. }, .. }) => "waiting",
            Self::Ticket(TicketAnswer { state: TicketState::Admitted { .. }, .. }) => "admitted",
            Self::Ticket(TicketAnswer { state: TicketState::Gone(_), .. }) => "gone",
            Self::Pass(Some(_)) => "valid",
            Self::Pass(None) => "not valid",
            Self::Closed | Self::Left | Self::Released | Self::Ticked | Self::Rotated(_) | Self::Secrets(_) => "done",
            Self::Refused(rejection) => rejection.code(),
        }
    }

    /// The ticket that the answer shows.
    pub const fn ticket(&self) -> Option<&TicketAnswer> {
        match self {
            Self::Joined(_, ticket) | Self::Ticket(ticket) => Some(ticket),
            _ => None,
        }
    }
}

/// What became of an operation, as far as its client knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// No answer yet.
    Pending,
    /// The store answered.
    Told(RoomStepReply),
    /// The store said that nothing was done.
    NotDone,
    /// It may have been done or not.
    Unknown,
}

/// One operation of one client. Instants are microseconds of the world's steady clock.
#[derive(Clone, Debug)]
pub struct Operation {
    /// In which room.
    pub room: RoomName,
    /// What was asked.
    pub command: Command,
    /// What came back.
    pub outcome: Outcome,
    /// When it was asked.
    pub asked: i64,
    /// After this it has no effect any more: its answer, or the end of the store's life.
    pub ended: Option<i64>,
    /// When the store judged it, if the answer says so; else when it was answered.
    pub judged: i64,
    /// In which life of the store.
    pub life: usize,
}

impl Operation {
    /// The answer, if one came.
    pub const fn told(&self) -> Option<&RoomStepReply> {
        match &self.outcome {
            Outcome::Told(told) => Some(told),
            _ => None,
        }
    }

    /// The ticket that was shown, if one was.
    pub fn ticket(&self) -> Option<&TicketAnswer> {
        self.told().and_then(RoomStepReply::ticket)
    }

    /// When it was answered, or could last have had an effect.
    pub fn end(&self) -> i64 {
        self.ended.unwrap_or(i64::MAX)
    }

    /// Whether it may have had an effect that no client knows of.
    pub fn is_unclear(&self) -> bool {
        matches!(self.outcome, Outcome::Pending | Outcome::Unknown)
    }
}

/// An operator set the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct WallStep {
    /// When.
    pub at: i64,
    /// How far it went ahead of the time that passed; negative where it stood still.
    pub by_us: i64,
}

/// All operations of one run, and what happened to the clocks.
#[derive(Default)]
pub struct History {
    operations: Vec<Operation>,
    instants: Vec<Now>,
    /// When each life of the store began.
    pub lives: Vec<i64>,
    /// Those of them that began without a restart, with these rooms read again: no clock of the store began anew.
    pub read_again: Vec<(i64, BTreeSet<RoomName>)>,
    /// When an operator set the wall clock.
    pub steps: Vec<WallStep>,
}

impl History {
    /// All operations, in the order in which they were asked.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Notes an instant, so that an answer's `as_of` leads back to it.
    pub fn pass(&mut self, now: Now) {
        if self.instants.last() != Some(&now) {
            self.instants.push(now);
        }
    }

    /// A life of the store begins.
    pub fn begin_life(&mut self, now: Now) {
        self.lives.push(now.steady.as_us());
    }

    /// The store goes on with rooms that it has read again, which is a life of its own except for the clocks and the other rooms.
    pub fn go_on(&mut self, rooms: BTreeSet<RoomName>, now: Now) {
        self.begin_life(now);
        self.read_again.push((now.steady.as_us(), rooms));
    }

    /// When this room was read from the disk.
    pub fn reads_of<'a>(&'a self, room: &'a RoomName) -> impl Iterator<Item = i64> + 'a {
        let is_other = move |life: i64| self.read_again.iter().any(|(at, rooms)| *at == life && !rooms.contains(room));
        self.lives.iter().copied().filter(move |life| !is_other(*life))
    }

    /// When each process began.
    pub fn starts(&self) -> Vec<i64> {
        self.lives.iter().copied().filter(|life| self.read_again.iter().all(|(at, _)| at != life)).collect()
    }

    /// A client asks.
    pub fn ask(&mut self, room: RoomName, command: Command, now: Now) -> OperationId {
        self.pass(now);
        let asked = now.steady.as_us();
        let life = self.lives.len();
        self.operations.push(Operation {
            room,
            command,
            outcome: Outcome::Pending,
            asked,
            ended: None,
            judged: asked,
            life,
        });
        self.operations.len() - 1
    }

    /// A client is answered, or goes away.
    pub fn answer(&mut self, id: OperationId, outcome: Outcome, now: Now) {
        self.pass(now);
        let judged = match &outcome {
            Outcome::Told(RoomStepReply::View(summary)) => Some(summary.as_of),
            Outcome::Told(told) => told.ticket().map(|ticket| ticket.as_of),
            _ => None,
        };
        let told = now.steady.as_us();
        let judged = judged.map_or(told, |as_of| self.instant(as_of).unwrap_or(told));
        let operation = &mut self.operations[id];
        operation.judged = judged;
        // Of an unclear one the end comes with the life.
        operation.ended = if matches!(outcome, Outcome::Unknown) { None } else { Some(told) };
        operation.outcome = outcome;
    }

    /// When the wall clock showed this.
    fn instant(&self, wall: Timestamp) -> Option<i64> {
        let found = self.instants.binary_search_by_key(&wall, |now| now.wall).ok()?;
        Some(self.instants[found].steady.as_us())
    }

    /// The process is gone: nothing of it takes effect any more.
    pub fn end_life(&mut self, now: Now) {
        self.pass(now);
        for operation in self.operations.iter_mut().rev().take_while(|it| it.life == self.lives.len()) {
            operation.ended.get_or_insert(now.steady.as_us());
        }
    }
}
