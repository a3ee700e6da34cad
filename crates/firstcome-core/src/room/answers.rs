//! Requests, changes, refusals and views of rooms.

use super::draw::Draw;
use super::renewal::Renewal;
use super::slots::Slot;
use super::steer::RatePace;
use crate::id::{RequestId, TicketNumber, UserId};
use crate::time::{Steady, Timestamp};
use std::fmt;

/// How a ticket ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departure {
    /// Its visitor, or the shop on the visitor's behalf, gave it up.
    Left,
    /// Its time was over.
    Expired,
}

/// One request for a place in line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// The user who asks, with at most one living place. Without a user, possession of the ticket is the only proof.
    pub user: Option<UserId>,
    /// Present if the caller sent an idempotency key.
    pub request: Option<RequestId>,
}

/// One change of a room. Callers make it durable before they report it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A number was drawn. After a loss: its visitor came back ([`Room::readmit`](super::Room::readmit)).
    Joined {
        /// The number.
        number: TicketNumber,
        /// The user and the request.
        join: Join,
        /// When, by the wall clock.
        joined_at: Timestamp,
    },
    /// The room offered a slot to a visitor in line.
    Admitted {
        /// The visitor's number.
        number: TicketNumber,
        /// The slot.
        slot: Slot,
    },
    /// A visitor took a slot: its pass is valid from now on.
    Taken {
        /// The visitor's number.
        number: TicketNumber,
        /// When the slot ends (exclusive).
        until: Steady,
    },
    /// No visitor took the slot in time: its ticket waits again.
    Lapsed {
        /// The number of the ticket.
        number: TicketNumber,
    },
    /// A ticket ended.
    Gone {
        /// The number of the ticket.
        number: TicketNumber,
        /// How it ended.
        how: Departure,
    },
    /// The place has another ticket: the one before it is void.
    Renewed {
        /// The number of the place.
        number: TicketNumber,
        /// The generation of the new ticket, and the request.
        renewal: Renewal,
    },
    /// The line advanced: this is the lowest turn that it has not reached.
    Reached(u32),
    /// The room has opened: the draw fixed who takes part, and revealed the seed of their places.
    Drawn(Draw),
}

impl Change {
    /// Returns the ticket that the change is about.
    pub const fn number(&self) -> Option<TicketNumber> {
        match self {
            Self::Joined { number, .. }
            | Self::Admitted { number, .. }
            | Self::Taken { number, .. }
            | Self::Lapsed { number }
            | Self::Renewed { number, .. }
            | Self::Gone { number, .. } => Some(*number),
            Self::Reached(_) | Self::Drawn(_) => None,
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
    /// The ticket was renewed: the place has another ticket, which only the request that renewed it was given.
    TicketRenewed,
    /// The visitor has no slot, so there is nothing to hand off.
    NotAdmitted,
    /// The room did not make this hand-off code, or its time is over.
    InvalidHandoff,
    /// A site redeemed this hand-off code, or another device renewed its ticket.
    HandoffUsed,
    /// The idempotency key belongs to another request, which drew this number.
    KeyReused(TicketNumber),
    /// The settings have changed since they were read.
    SettingsChanged,
    /// The order of the room cannot change now: a ticket waits or has a slot, or the draw has taken place.
    DrawFixed,
    /// An operator closed the room.
    Closed,
    /// The line is full.
    Full {
        /// When to try again: about when there may be room.
        retry_after_ms: u64,
    },
}

impl Rejection {
    /// Returns the stable code in HTTP, CLI and metrics. Variants may be added; codes never change.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownRoom => "unknown_room",
            Self::UnknownTicket => "unknown_ticket",
            Self::TicketRenewed => "ticket_renewed",
            Self::NotAdmitted => "not_admitted",
            Self::InvalidHandoff => "invalid_handoff",
            Self::HandoffUsed => "handoff_used",
            Self::KeyReused(_) => "idempotency_key_reused",
            Self::SettingsChanged => "settings_changed",
            Self::DrawFixed => "draw_fixed",
            Self::Closed => "room_closed",
            Self::Full { .. } => "room_full",
        }
    }
}

/// For people: what the rule says. Programs match on the variants, or on [`Rejection::code`].
impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownRoom => f.write_str("no room has this name"),
            Self::UnknownTicket => f.write_str("the room has not signed this ticket"),
            Self::TicketRenewed => f.write_str("the place moved to another device, which has a new ticket for it"),
            Self::NotAdmitted => f.write_str("the visitor has no slot, so there is nothing to hand off"),
            Self::InvalidHandoff => f.write_str("the room did not make this hand-off code, or its time is over"),
            Self::HandoffUsed => f.write_str("the hand-off code was redeemed before, or its ticket was renewed"),
            Self::KeyReused(_) => f.write_str("the idempotency key came with another request before"),
            Self::SettingsChanged => f.write_str("the settings have changed since they were read"),
            Self::DrawFixed => {
                f.write_str("the order of the room cannot change while it has tickets, nor can it draw twice")
            }
            Self::Closed => f.write_str("the room is closed"),
            Self::Full { retry_after_ms } => write!(f, "the room is full; try again in {retry_after_ms} ms"),
        }
    }
}

impl std::error::Error for Rejection {}

/// The state of a room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoomState {
    /// It admits visitors.
    Open,
    /// It admits no visitor for now.
    Paused,
    /// It begins to admit later; visitors may join.
    Scheduled,
    /// No visitor can join; all tickets and passes are void.
    Closed,
}

impl RoomState {
    /// Returns the state as the HTTP API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Paused => "paused",
            Self::Scheduled => "scheduled",
            Self::Closed => "closed",
        }
    }
}

/// A visitor whose wait is at most this long is near the front.
const NEAR_MS: u64 = 60_000;
/// See [`TicketState::is_near`].
const NEAR_PEOPLE: u32 = 64;

/// A room's public view.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RoomView {
    /// The state of the room.
    pub state: RoomState,
    /// Visitors in line.
    pub waiting: u32,
    /// Slots that are offered or taken.
    pub active: u32,
    /// The number that the line has reached; after a draw, the place.
    pub serving: u32,
    /// Admissions per second lately.
    pub rate: f64,
    /// Why it is not another rate.
    pub pace: RatePace,
    /// How long a visitor who joins now will wait; `None` if the room has no estimate.
    pub wait_at_tail_ms: Option<u64>,
}

/// The state of a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TicketState {
    /// In the draw, which has not taken place: the visitor has no place in line yet.
    InDraw {
        /// How many tickets are in the draw.
        entrants: u32,
        /// How long the wait will be at the median place; `None` if the room has no estimate.
        wait_ms: Option<u64>,
    },
    /// In line.
    Waiting {
        /// How many tickets in line are ahead.
        position: u32,
        /// How long the wait will be; `None` if the room has no estimate.
        wait_ms: Option<u64>,
    },
    /// In a slot that its visitor has taken.
    Admitted {
        /// The slot.
        slot: Slot,
        /// When the slot ends if its visitor makes no contact until then (exclusive).
        until: Steady,
    },
    /// Ended.
    Gone(Departure),
}

impl TicketState {
    /// Returns whether the visitor may be admitted soon. Such a visitor should hear of a change at once, and any other at
    /// the next poll. Where the room has no estimate, the first [`NEAR_PEOPLE`] count as near.
    pub const fn is_near(self) -> bool {
        match self {
            Self::Waiting { wait_ms: Some(wait_ms), .. } => wait_ms <= NEAR_MS,
            Self::Waiting { position, wait_ms: None } => position < NEAR_PEOPLE,
            Self::InDraw { .. } | Self::Admitted { .. } | Self::Gone(_) => false,
        }
    }
}

/// A ticket as its visitor sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TicketView {
    /// Its number.
    pub number: TicketNumber,
    /// Its state.
    pub state: TicketState,
    /// When to poll again; 0 when the ticket is gone.
    pub poll_after_ms: u32,
}

/// The result of a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Poll {
    /// The answer.
    Answer(TicketView),
    /// The room needs a decision that must become durable: call [`Room::decide`](super::Room::decide), or
    /// [`Room::readmit`](super::Room::readmit) for a number that is unknown since a loss.
    Decide,
}

/// Whether a look at a ticket counts as a contact of its visitor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contact {
    /// It counts, as a poll does.
    Made,
    /// It changes nothing.
    None,
}

/// What a look at a ticket shows: see [`Room::sight`](super::Room::sight).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sight {
    /// The ticket is in line.
    Waiting(TicketView),
    /// A slot is offered. A poll before `until` takes it.
    Offered {
        /// The end of the claim window (exclusive).
        until: Steady,
    },
    /// A poll tells: the visitor is inside, the ticket is gone, or the room has to decide.
    Poll,
}

/// The place that a join led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joined {
    /// A new place.
    New(TicketView),
    /// The place of the same request, which came before.
    SameRequest(TicketView),
    /// The place that the user has already.
    SameUser(TicketView),
}

/// What is wrong with stored rows: see [`Room::restore_ticket`](super::Room::restore_ticket).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Damage {
    /// A number is missing, repeated or out of order, or a user or a request has two living tickets.
    Ticket,
    /// A slot without its ticket, a slot of a ticket that is gone, or an admission that was never counted.
    Slot,
    /// The line reached more numbers than were drawn, or a slot lies beyond the reached number.
    Reached,
    /// A draw among numbers that were not drawn or are void.
    Draw,
    /// A renewal of a ticket that was not drawn or is gone, or a second one of the same number.
    Renewal,
}

impl Damage {
    /// Describes the damage in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ticket => {
                "a number is missing or stands twice, or a user or an idempotency key has two living tickets"
            }
            Self::Slot => "a slot without its living ticket, or an admission that was never counted",
            Self::Reached => "the line has reached more than was drawn",
            Self::Draw => "the draw names numbers that the room does not have",
            Self::Renewal => "a renewal without its living ticket, or two renewals of one number",
        }
    }
}
