//! Requests, changes, refusals and views of rooms.

use super::slots::Slot;
use crate::id::{RequestId, TicketNumber, UserId};
use crate::time::{Steady, Timestamp};

/// How a ticket ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departure {
    /// Its holder, or the shop for them, gave it up.
    Left,
    /// Its time was over.
    Expired,
}

/// One request for a place in line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// Who asks: has at most one living place. Without it a visitor that has the ticket is its holder.
    pub user: Option<UserId>,
    /// Present if the caller sent an idempotency key.
    pub request: Option<RequestId>,
}

/// What became different, to be made durable before it is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A number was drawn; or, after a loss, its holder came back ([`Room::readmit`](super::Room::readmit)).
    Joined {
        /// Which.
        number: TicketNumber,
        /// For whom and by which request.
        join: Join,
        /// When that was, by the wall clock.
        joined_at: Timestamp,
    },
    /// A visitor in line was offered a slot.
    Admitted {
        /// Who.
        number: TicketNumber,
        /// Which slot.
        slot: Slot,
    },
    /// A slot was taken up: its pass is valid from now on.
    Taken {
        /// By whom.
        number: TicketNumber,
        /// Until when (exclusive).
        until: Steady,
    },
    /// A slot was not taken up: its ticket waits again.
    Lapsed {
        /// Whose.
        number: TicketNumber,
    },
    /// A ticket ended.
    Gone {
        /// Which.
        number: TicketNumber,
        /// How.
        how: Departure,
    },
    /// The line went on to this number, which is the lowest that it has not reached.
    Reached(u32),
}

impl Change {
    /// The ticket that it is about.
    pub const fn number(&self) -> Option<TicketNumber> {
        match self {
            Self::Joined { number, .. }
            | Self::Admitted { number, .. }
            | Self::Taken { number, .. }
            | Self::Lapsed { number }
            | Self::Gone { number, .. } => Some(*number),
            Self::Reached(_) => None,
        }
    }
}

/// Why a command was refused. An expected answer: not retried, not logged as an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Rejection {
    /// There is no such room.
    UnknownRoom,
    /// This room never drew that number.
    UnknownTicket,
    /// The idempotency key belongs to another request, which drew this number.
    KeyReused(TicketNumber),
    /// The settings have changed since they were read.
    SettingsChanged,
    /// An operator closed the room.
    Closed,
    /// The line is as long as it may be; in about this time there may be room.
    Full {
        /// When to try again.
        retry_after_ms: u64,
    },
}

impl Rejection {
    /// The stable code in HTTP, CLI and metrics. Variants may be added; codes never change.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownRoom => "unknown_room",
            Self::UnknownTicket => "unknown_ticket",
            Self::KeyReused(_) => "idempotency_key_reused",
            Self::SettingsChanged => "settings_changed",
            Self::Closed => "room_closed",
            Self::Full { .. } => "room_full",
        }
    }
}

/// Where a room stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoomState {
    /// It admits.
    Open,
    /// It admits no visitor for now.
    Paused,
    /// It begins to admit later; people may join.
    Scheduled,
    /// No visitor can join; all tickets and passes are void.
    Closed,
}

impl RoomState {
    /// The state as the HTTP API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Paused => "paused",
            Self::Scheduled => "scheduled",
            Self::Closed => "closed",
        }
    }
}

/// A room as everybody may see it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RoomView {
    /// Where it stands.
    pub state: RoomState,
    /// People in line.
    pub waiting: u32,
    /// Slots that are offered or taken.
    pub active: u32,
    /// The number that the line has reached.
    pub serving: u32,
    /// Admissions per second lately.
    pub rate: f64,
    /// How long a visitor that joins now is going to wait; `None` if no visitor can tell.
    pub wait_at_tail_ms: Option<u64>,
}

/// Where a ticket stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TicketState {
    /// In line.
    Waiting {
        /// How many are ahead.
        position: u32,
        /// How long it is going to take; `None` if no visitor can tell.
        wait_ms: Option<u64>,
    },
    /// In a slot that it has taken.
    Admitted {
        /// The slot.
        slot: Slot,
        /// When it ends if no visitor is heard of until then (exclusive).
        until: Steady,
    },
    /// Ended.
    Gone(Departure),
}

/// A ticket as its holder sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TicketView {
    /// Its number.
    pub number: TicketNumber,
    /// Where it stands.
    pub state: TicketState,
    /// When to ask again; 0 when there is nothing to ask for.
    pub poll_after_ms: u32,
}

/// What a poll finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Poll {
    /// The answer.
    Told(TicketView),
    /// Something has to be decided, and kept: [`Room::decide`](super::Room::decide), or
    /// [`Room::readmit`](super::Room::readmit) for a number that is unknown since a loss.
    Decide,
}

/// Which place a join led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joined {
    /// A new one.
    New(TicketView),
    /// That of the same request, which came before.
    SameRequest(TicketView),
    /// That which the user has already.
    SameUser(TicketView),
}

/// What is wrong with stored rows: see [`Room::restore_ticket`](super::Room::restore_ticket).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Damage {
    /// A number is missing, stands twice or out of order, or a user or a request has two living tickets.
    Ticket,
    /// A slot without its ticket, of a ticket that is gone, or an admission that was never counted.
    Slot,
    /// More was reached than drawn, or a slot beyond what was reached.
    Reached,
}

impl Damage {
    /// The finding in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ticket => {
                "a number is missing or stands twice, or a user or an idempotency key has two living tickets"
            }
            Self::Slot => "a slot without its living ticket, or an admission that was never counted",
            Self::Reached => "the line has reached more than was drawn",
        }
    }
}
