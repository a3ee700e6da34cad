//! What the people of a room ask and what they are told.
//!
//! Every event has an instant of its own on the steady clock of the world, which no operator sets and no crash stops; so
//! its microseconds number the event.

use super::workload::Rooms;
use crate::history::{self, Event, Events, Kind, Vocabulary};
use firstcome_core::id::RoomName;
use firstcome_core::room::{Join, Rejection, RenewalKey, RoomSettings, TicketNumber, TicketState};
use firstcome_core::time::{Now, Timestamp};
use firstcome_store::embedded::journal::PassSecret;
use firstcome_store::{Joining, PassCheck, Put, RoomSummary, TicketAnswer};
use std::collections::BTreeSet;

/// One operation of one client.
pub type Operation = history::Operation<Rooms>;

/// All operations of one run, and what happened to the clocks.
pub type History = history::History<Rooms>;

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
    /// A holder wants another ticket for its place.
    Renew(Box<str>, Option<TicketNumber>, RenewalKey),
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

impl Kind for Command {
    fn kind(&self) -> &'static str {
        match self {
            Self::Put(_) => "room put",
            Self::Close => "close",
            Self::View => "room",
            Self::Join(_) => "join",
            Self::Poll(..) => "poll",
            Self::Renew(..) => "renew",
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
    /// The place has another ticket, unless it is gone.
    Renewed(TicketAnswer),
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

impl Kind for RoomStepReply {
    fn kind(&self) -> &'static str {
        match self {
            Self::Put(Put::Created) => "created",
            Self::Put(Put::Replaced) => "replaced",
            Self::View(summary) => summary.view.state.as_str(),
            Self::Joined(Joining::New, _) => "new",
            Self::Joined(Joining::SameRequest, _) => "same request",
            Self::Joined(Joining::SameUser, _) => "same user",
            Self::Ticket(TicketAnswer { state: TicketState::InDraw { .. }, .. }) => "in a draw",
            Self::Ticket(TicketAnswer { state: TicketState::Waiting { .. }, .. }) => "waiting",
            Self::Ticket(TicketAnswer { state: TicketState::Admitted { .. }, .. }) => "admitted",
            Self::Ticket(TicketAnswer { state: TicketState::Gone(_), .. }) => "gone",
            Self::Renewed(_) => "renewed",
            Self::Pass(Some(_)) => "valid",
            Self::Pass(None) => "not valid",
            Self::Closed | Self::Left | Self::Released | Self::Ticked | Self::Rotated(_) | Self::Secrets(_) => "done",
            Self::Refused(rejection) => rejection.code(),
        }
    }
}

impl RoomStepReply {
    /// The ticket that the answer shows.
    pub const fn ticket(&self) -> Option<&TicketAnswer> {
        match self {
            Self::Joined(_, ticket) | Self::Ticket(ticket) | Self::Renewed(ticket) => Some(ticket),
            _ => None,
        }
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

/// What happened to the clocks and to the lives of the store.
#[derive(Default)]
pub struct Marks {
    /// Lives that began without a restart, with these rooms read again: no clock of the store began anew.
    pub read_again: Vec<(i64, BTreeSet<RoomName>)>,
    /// When an operator set the wall clock.
    pub steps: Vec<WallStep>,
}

impl Vocabulary for Rooms {
    type Name = RoomName;
    type Command = Command;
    type Reply = RoomStepReply;
    type Marks = Marks;

    fn event(_: &Events, now: Now) -> Event {
        now.steady.as_us()
    }

    fn as_of(reply: &RoomStepReply) -> Option<Timestamp> {
        match reply {
            RoomStepReply::View(summary) => Some(summary.as_of),
            reply => reply.ticket().map(|ticket| ticket.as_of),
        }
    }
}

impl Operation {
    /// The ticket that was shown, if one was.
    pub fn ticket(&self) -> Option<&TicketAnswer> {
        self.told().and_then(RoomStepReply::ticket)
    }
}

impl History {
    /// The store goes on with rooms that it has read again, which is a life of its own except for the clocks and the other
    /// rooms.
    pub fn go_on(&mut self, rooms: BTreeSet<RoomName>, now: Now) {
        self.begin_life(now);
        self.marks.read_again.push((now.steady.as_us(), rooms));
    }

    /// When this room was read from the disk.
    pub fn reads_of<'a>(&'a self, room: &'a RoomName) -> impl Iterator<Item = i64> + 'a {
        let read_again = &self.marks.read_again;
        let is_other = move |life: i64| read_again.iter().any(|(at, rooms)| *at == life && !rooms.contains(room));
        self.lives.iter().copied().filter(move |life| !is_other(*life))
    }

    /// When each process began.
    pub fn starts(&self) -> Vec<i64> {
        let is_start = |life: &i64| self.marks.read_again.iter().all(|(at, _)| at != life);
        self.lives.iter().copied().filter(is_start).collect()
    }
}
