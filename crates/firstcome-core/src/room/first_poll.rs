//! The first poll of a visitor: a ticket whose visitor never polls ends long before
//! [`RoomSettings::waiting_ttl_ms`](super::RoomSettings::waiting_ttl_ms).
//!
//! A script that only joins would otherwise fill a line for as long as silence may last. The setting is
//! [`RoomSettings::first_poll_ms`](super::RoomSettings::first_poll_ms). Such a ticket expires in the same way as a ticket after a
//! long silence: the sweep of the line ends it, or its own next poll.

use super::line::TicketPlace;
use super::{Departure, Room, TicketNumber, TicketView};
use crate::time::Now;

/// How many polls fit into the time for the first one, at least, if the visitor polls as told.
const POLLS_PER_TIME: u64 = 2;

impl Room {
    /// Returns whether the visitor of a ticket in line must still poll for the first time. Always false without
    /// [`RoomSettings::first_poll_ms`](super::RoomSettings::first_poll_ms).
    pub fn awaits_first_poll(&self, number: TicketNumber) -> bool {
        self.settings.first_poll_ms.is_some()
            && self.line.place(number.0) == Some(TicketPlace::Waiting)
            && self.line.awaits_first_poll(number.0)
    }

    /// Returns how many tickets ended because their visitors never polled, since this copy of the room was made.
    pub const fn unpolled_count(&self) -> u64 {
        self.unpolled_count
    }

    /// Returns the view of a visitor who joins now. It asks for the first poll well within the time for it.
    pub(super) fn joined_view(&mut self, number: u32, now: Now) -> TicketView {
        let mut view = self.waiting_view(number, now);
        if let Some(first_poll_ms) = self.settings.first_poll_ms {
            let poll_ms_max = u32::try_from(first_poll_ms / POLLS_PER_TIME).unwrap_or(u32::MAX);
            view.poll_after_ms = view.poll_after_ms.min(poll_ms_max);
            self.line.touch(number, now.steady, view.poll_after_ms);
            self.line.await_first_poll(number);
        }
        view
    }

    /// Counts a ticket that ends, if it ends because its visitor never polled.
    pub(super) fn count_unpolled(&mut self, number: u32, how: Departure, now: Now) {
        let is_unpolled = how == Departure::Expired && self.line.is_overdue(number, now.steady);
        self.unpolled_count += u64::from(is_unpolled && self.line.place(number) == Some(TicketPlace::Waiting));
    }
}
