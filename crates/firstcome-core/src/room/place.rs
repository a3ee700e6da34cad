//! A place in a room as an operator sees it.

use super::line::TicketPlace;
use super::{Departure, Hold, Room, Slot, TicketId, TicketNumber};
use crate::receipt::Figures;
use crate::time::Now;

/// By what an operator looks for a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaceKey<'a> {
    /// The number of its ticket.
    Number(TicketNumber),
    /// The user for whom a back end joined.
    User(&'a str),
}

/// What has become of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PlaceState {
    /// In a draw that has not taken place.
    InDraw {
        /// Whether its visitor has polled lately.
        is_present: bool,
    },
    /// In line.
    Waiting {
        /// How many tickets in line are ahead.
        position: u32,
        /// Whether its visitor has polled lately.
        is_present: bool,
    },
    /// In a slot.
    Inside {
        /// The number of the admission.
        admission: u64,
        /// Whether its visitor has taken the slot.
        is_taken: bool,
    },
    /// Ended.
    Gone(Departure),
    /// Lost with Redis until its visitor polls.
    Unknown,
}

/// A place, looked up for an operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlaceView {
    /// The number of its ticket.
    pub number: TicketNumber,
    /// The user, while the place lives.
    pub user: Option<Box<str>>,
    /// Its state.
    pub state: PlaceState,
}

impl Room {
    /// Returns the slot of a ticket that is inside.
    pub fn slot(&self, number: TicketNumber) -> Option<Slot> {
        self.slots.get(number.0).map(|(slot, _)| slot)
    }

    /// Returns how far the room is, for its next head.
    pub const fn figures(&self) -> Figures {
        Figures::Room { first: self.first(), given: self.drawn(), front: self.reached() }
    }

    /// Returns what the present ticket of a living place says, and its user if the ticket names one. `None` once the place has
    /// ended or is lost: the room then no longer knows whom the ticket names.
    pub fn living_ticket(&self, number: TicketNumber) -> Option<(TicketId, Option<&str>)> {
        let lives = matches!(self.line.place(number.0)?, TicketPlace::Waiting | TicketPlace::Slot);
        lives.then(|| (self.ticket_of(number), self.user(number)))
    }

    /// Looks a place up. Changes nothing: it counts as no contact of the visitor, and takes no slot. `None` for a number
    /// that was never drawn, and for a user without a living place.
    pub fn look_up(&self, key: PlaceKey<'_>, now: Now) -> Option<PlaceView> {
        let number = match key {
            PlaceKey::Number(number) => number,
            PlaceKey::User(user) => TicketNumber(self.line.of_user(user)?),
        };
        let state = match self.line.place(number.0)? {
            TicketPlace::Waiting if self.is_before_draw() => {
                PlaceState::InDraw { is_present: self.line.is_present(number.0, now.steady) }
            }
            TicketPlace::Waiting => PlaceState::Waiting {
                position: self.line.ahead(number.0),
                is_present: self.line.is_present(number.0, now.steady),
            },
            TicketPlace::Slot => {
                let (slot, _) = self.slots.get(number.0)?;
                PlaceState::Inside { admission: slot.admission, is_taken: matches!(slot.hold, Hold::Taken { .. }) }
            }
            TicketPlace::Gone(how) => PlaceState::Gone(how),
            TicketPlace::Unknown => PlaceState::Unknown,
        };
        Some(PlaceView { number, user: self.user(number).map(Into::into), state })
    }
}
