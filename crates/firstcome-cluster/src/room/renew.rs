//! Renews the ticket of a place through the log of its room.

use super::{answer, tag};
use crate::node::Node;
use firstcome_core::id::{RoomName, UserId};
use firstcome_core::room::replica::{Entry, Outcome, Replica};
use firstcome_core::room::{Rejection, RenewalKey, TicketId, TicketState};
use firstcome_core::time::Now;
use firstcome_store::handoff::{self, Handoff};
use firstcome_store::{RoomAnswer, StoreError, TicketAnswer};
use std::sync::Arc;

impl Node {
    /// Makes a hand-off code: see [`RoomStore::hand_off`](firstcome_store::RoomStore::hand_off). A poll.
    pub(super) async fn hand_off(self: &Arc<Self>, name: &RoomName, ticket: &str) -> RoomAnswer<Handoff> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        let polled = self.poll(name, ticket).await?;
        Ok(polled.and_then(|polled| handoff::hand_off(&room_node.ticket_key, &polled)))
    }

    /// Redeems a hand-off code: see [`RoomStore::redeem_handoff`](firstcome_store::RoomStore::redeem_handoff). A renewal, which the
    /// log judges. The clock of the log judges the end of the code: one more read.
    pub(super) async fn redeem_handoff(
        self: &Arc<Self>,
        name: &RoomName,
        code: &str,
        key: RenewalKey,
    ) -> RoomAnswer<TicketAnswer> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        let opened = |_: &Replica, now: Now| handoff::ticket_of(&room_node.ticket_key, code, now.wall);
        match self.seen(name, opened).await?.flatten() {
            Ok(ticket) => Ok(self.renew_ticket(name, &ticket, key).await?.map_err(handoff::refusal)),
            Err(rejection) => Ok(Err(rejection)),
        }
    }

    /// Renews a ticket: see [`RoomStore::renew`](firstcome_store::RoomStore::renew). The log orders renewals of all nodes, and each
    /// node judges each ticket when its entry is applied, so one request gets the place.
    ///
    /// Two entries of the log where the place is unknown since a loss, else one.
    pub(super) async fn renew_ticket(
        self: &Arc<Self>,
        name: &RoomName,
        shown: &str,
        key: RenewalKey,
    ) -> RoomAnswer<TicketAnswer> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(Err(Rejection::UnknownRoom)) };
        let Some((ticket, user)) = room_node.ticket_key.open(shown) else { return Ok(Err(Rejection::UnknownTicket)) };
        loop {
            // A ticket of an unknown number brings its visitor back first.
            match self.poll(name, shown).await? {
                Ok(told) if matches!(told.state, TicketState::Gone(_)) => return Ok(Ok(told)),
                // Perhaps by an earlier copy of this request: the entry tells.
                Ok(_) | Err(Rejection::TicketRenewed) => {}
                Err(rejection) => return Ok(Err(rejection)),
            }
            let view = match self.settled(&room_node, Entry::Renew { ticket, key, tag: tag()? }).await? {
                Outcome::Renewed(Ok(view)) => view,
                // The log was lost just now, and the place with it.
                Outcome::Renewed(Err(Rejection::UnknownTicket)) => continue,
                Outcome::Renewed(Err(rejection)) => return Ok(Err(rejection)),
                _ => return Err(StoreError::Unknown),
            };
            let copy = room_node.copy.lock();
            let Some(copy) = &*copy else { return Err(StoreError::Unknown) };
            let now = copy.now(self.database.time.both());
            if matches!(view.state, TicketState::Gone(_)) {
                return Ok(Ok(answer(&room_node, copy, view, Some(shown), now)));
            }
            // Another request may have renewed the new ticket since the entry was applied.
            let next = TicketId { generation: ticket.generation + 1, ..ticket };
            let renewed = room_node.ticket_key.ticket(next, user.as_ref().map(UserId::as_str));
            return Ok(Ok(answer(&room_node, copy, view, Some(&renewed), now)));
        }
    }
}
