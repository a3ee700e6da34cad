//! Has the log of a room in Redis forget a person.
//!
//! Entries name the users of tickets, and so does the image before them. An image holds only the tickets that live, and the records
//! that SQL does not hold yet. So an image from after the end of a place, with all of it in SQL, names the user of that place no more,
//! and the entries before it go.
//!
//! The log of a room that stands still is evidence ([`super::went_back`]): it is searched, and stays as it is.

use super::log::{ITEMS_MAX, Keys, Part};
use super::replica::{RoomNode, Want};
use crate::node::Node;
use crate::sequencer::Sequencer;
use firstcome_core::id::{RoomName, UserId};
use firstcome_core::room::replica::{Entry, Record, Replica};
use firstcome_core::room::{Change, PlaceKey, TicketNumber};
use firstcome_redis::LinkError;
use firstcome_store::edge::{draw_hasher, draw_pause};
use firstcome_store::{Fault, StoreError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// What of a log counts as the name of a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mention {
    /// The bytes of the name: also within a longer name.
    Bytes,
    /// The user of a ticket.
    Ticket,
}

impl Mention {
    fn is_in_image(self, image: &[u8], user: &UserId) -> bool {
        // What cannot be read may have a ticket.
        let has_ticket =
            || Replica::from_image(image, draw_hasher()).map_or(true, |replica| has_ticket_of(&replica, user));
        has_bytes_of(image, user) && (self == Self::Bytes || has_ticket())
    }

    fn is_in_entry(self, entry: &Entry, user: &UserId) -> bool {
        match (self, entry) {
            (Self::Bytes, entry) => {
                let mut bytes = Vec::new();
                entry.encode(&mut bytes);
                has_bytes_of(&bytes, user)
            }
            (Self::Ticket, Entry::Join { join, .. }) => join.user.as_ref() == Some(user),
            (Self::Ticket, Entry::Readmit { user: of_ticket, .. }) => of_ticket.as_ref() == Some(user),
            (Self::Ticket, _) => false,
        }
    }
}

fn has_bytes_of(bytes: &[u8], user: &UserId) -> bool {
    bytes.windows(user.as_str().len()).any(|window| window == user.as_str().as_bytes())
}

/// Whether a copy of a room has a living ticket of a user, or a record of one that SQL does not hold yet.
fn has_ticket_of(replica: &Replica, user: &UserId) -> bool {
    let is_of_user = |record: &Record| match record {
        Record::Change(Change::Joined { join, .. }) => join.user.as_ref() == Some(user),
        _ => false,
    };
    replica.room().look_up(PlaceKey::User(user.as_str()), replica.now()).is_some()
        || replica.pending_changes_after(0).any(|(_, record)| is_of_user(record))
}

impl Node {
    /// Has the log of a room name a user no more whose place, if there was one, has ended. Reads the whole log: two round trips, and
    /// one more for each further [`ITEMS_MAX`] items. If it has the name, or a longer one with it, an image replaces it.
    ///
    /// # Errors
    /// As for any call; busy if other nodes replace the log all the time. The erasure may be repeated.
    pub(crate) async fn forget_in_log(
        self: &Arc<Self>,
        name: &RoomName,
        user: &UserId,
        place: Option<TicketNumber>,
    ) -> Result<(), StoreError> {
        let Some(room_node) = self.room_node(name).await? else { return Ok(()) };
        let until = Instant::now() + self.options.patience;
        loop {
            self.order(&room_node, Want::See).await?;
            if let Some(number) = place {
                self.settle(&room_node, number, until).await?;
            }
            room_node.goes_on()?;
            let generation = room_node.copy.lock().as_ref().map_or(0, |copy| copy.log.generation);
            match self.sequencer.log_mentions(room_node.keys, generation, user, Mention::Bytes).await? {
                Some(false) => return Ok(()),
                Some(true) if self.keep_image(&room_node).await? => return Ok(()),
                _ => {}
            }
            if until < Instant::now() {
                return Err(StoreError::busy_with("other nodes replaced the log of a room that names the user"));
            }
            sleep(draw_pause(PAUSE)).await;
        }
    }

    /// A room that stands still on this node, and why. `None` if the room goes on, or this node does not know it.
    pub(crate) fn standing_room(&self, name: &RoomName) -> Option<(Arc<RoomNode>, Arc<Fault>)> {
        let room_node = self.rooms.lock().get(name).map(Arc::clone)?;
        let fault = room_node.stopped()?;
        Some((room_node, fault))
    }

    /// The names of the rooms that stand still on this node, also of those that the database lacks.
    pub(crate) fn standing_rooms(&self) -> BTreeSet<RoomName> {
        let rooms = self.rooms.lock();
        let standing = rooms.iter().filter(|(_, room_node)| room_node.stopped().is_some());
        standing.map(|(name, _)| name.clone()).collect()
    }

    /// Whether a room that stands still has something of a user: a row of a ticket, a ticket in this node's copy, or one
    /// in the log on Redis. What cannot be told counts as something. Changes nothing.
    pub(crate) async fn room_mentions(&self, room_node: &RoomNode, user: &UserId) -> Result<bool, StoreError> {
        let keys = room_node.keys;
        let of_copy =
            room_node.copy.lock().as_ref().map(|copy| (copy.log.generation, has_ticket_of(&copy.replica, user)));
        if of_copy.is_some_and(|(_, has_ticket)| has_ticket) || self.database.has_ticket_of(keys.room, user).await? {
            return Ok(true);
        }
        let of_row = self.database.room_by_id(keys.room).await?.map(|row| row.generation);
        let open = self.sequencer.probe_log(keys, 0).await?.generation;
        let known = of_copy.map(|(generation, _)| generation).into_iter().chain(of_row);
        // No caller can read an image whose log is gone.
        for generation in known.filter(|generation| Some(*generation) != open).collect::<BTreeSet<_>>() {
            if self.sequencer.probe_log(keys, generation).await?.image.is_some() {
                return Ok(true);
            }
        }
        let Some(generation) = open else { return Ok(false) };
        let before = self.sequencer.probe_log(keys, generation).await?;
        let is_mentioned = self.sequencer.log_mentions(keys, generation, user, Mention::Ticket).await?;
        // A node that has not noticed yet may have replaced the image, or the log, between two parts of what was read.
        let after = self.sequencer.probe_log(keys, generation).await?;
        let is_same = (before.generation, before.image) == (after.generation, after.image);
        Ok(!is_same || is_mentioned != Some(false))
    }
}

impl Sequencer {
    /// Whether the image or an entry of a log names a user. `None` if there is no such log, or something of it is no entry
    /// of ours.
    async fn log_mentions(
        &self,
        keys: Keys,
        generation: i64,
        user: &UserId,
        mention: Mention,
    ) -> Result<Option<bool>, LinkError> {
        if mention.is_in_image(&self.load_image(keys, generation).await?.bytes, user) {
            return Ok(Some(true));
        }
        let mut seen = 0;
        loop {
            let Some(Part { items: Some(items), .. }) = self.read_log(keys, generation, seen).await? else {
                return Ok(None);
            };
            if items.iter().flat_map(|item| &item.entries).any(|entry| mention.is_in_entry(entry, user)) {
                return Ok(Some(true));
            }
            match items.last() {
                Some(last) if ITEMS_MAX <= items.len() => seen = last.first + last.entries.len() as u64 - 1,
                _ => return Ok(Some(false)),
            }
        }
    }
}
