//! Rows of admissions that ended, and of tickets that are gone.

use super::{OBJECTS_AT_ONCE, Purge, PurgeMode};
use crate::back::is_of_object;
use crate::database::{GoneRows, PAGE_ROWS};
use crate::node::Node;
use firstcome_core::id::RoomName;
use firstcome_core::time::Timestamp;
use firstcome_store::StoreError;
use std::sync::Arc;
use std::time::Duration;

impl Purge<'_> {
    /// Admissions that ended at this instant or before, and tickets that were gone then.
    pub(super) async fn rooms(&mut self, gone_by: Timestamp, retain: Duration) -> Result<bool, StoreError> {
        let mut after = 0;
        loop {
            let page = self.node.database.gone_rows(after, OBJECTS_AT_ONCE).await?;
            let Some(last) = page.last() else { return Ok(true) };
            after = last.room;
            for room in page {
                if !self.slots(&room, retain).await? || !self.gone(&room, gone_by).await? {
                    return Ok(false);
                }
            }
        }
    }

    /// Admissions that ended long enough ago, by the steady clock of the room.
    async fn slots(&mut self, room: &GoneRows, retain: Duration) -> Result<bool, StoreError> {
        let elapsed_us = self.now.as_us().saturating_sub(room.wall.as_us()).max(0);
        let steady_us = room.steady_us.saturating_add(elapsed_us);
        let Some(by_us) = i64::try_from(retain.as_micros()).ok().and_then(|us| steady_us.checked_sub(us)) else {
            return Ok(true);
        };
        let mut after = 0;
        loop {
            let page = self.node.database.dated_slots(room.room, after).await?;
            let Some(last) = page.last() else { return Ok(true) };
            after = last.admission;
            let due = page.iter().filter(|slot| slot.ended_before.is_some_and(|until| until <= by_us));
            let due: Vec<u64> = due.map(|slot| slot.admission).collect();
            if due.is_empty() {
                // Later admissions end later. What ends before them stays until they end.
                return Ok(true);
            }
            if self.mode == PurgeMode::Count {
                self.purged.admissions += due.len() as u64;
                continue;
            }
            self.purged.admissions += self.node.database.remove_slots(room.room, &due).await?;
            if !self.pause().await? {
                return Ok(false);
            }
        }
    }

    /// Tickets that are gone. No row says since when, so a purge marks below which number all are gone, and a purge that comes long
    /// enough after it removes the rows below that mark. A room that stands still keeps them.
    async fn gone(&mut self, room: &GoneRows, gone_by: Timestamp) -> Result<bool, StoreError> {
        let node = self.node;
        if node.database.lowest_gone(room.room).await?.is_none() {
            return Ok(true);
        }
        let Ok(name) = RoomName::parse(&room.name) else { return Ok(true) };
        if node.standing_room(&name).is_some() {
            // Its log is ahead of the database, and says nothing of these rows.
            return Ok(true);
        }
        let mut before = room.gone_before;
        let mut is_marked = room.mark.is_some();
        if let Some((mark, at)) = room.mark
            && at <= gone_by
        {
            // A visitor of a number that was unknown since a loss may have come back.
            let Some(living) = node.first_living(&name).await? else { return Ok(true) };
            before = before.max(mark.min(living));
            if self.mode == PurgeMode::Count {
                self.purged.tickets += node.database.count_gone(room.room, before).await?;
                return Ok(true);
            }
            node.database.set_gone_before(room.room, before).await?;
            is_marked = false;
        }
        if self.mode == PurgeMode::Count {
            return Ok(true);
        }
        while let Some(lowest) = node.database.lowest_gone(room.room).await?.filter(|lowest| *lowest < before) {
            let end = lowest.saturating_add(PAGE_ROWS).min(before);
            self.purged.tickets += node.database.remove_gone(room.room, lowest, end).await?;
            if !self.pause().await? {
                return Ok(false);
            }
        }
        if !is_marked {
            let Some(living) = node.first_living(&name).await? else { return Ok(true) };
            if before < living {
                node.database.mark_gone(room.room, living, self.now).await?;
            }
        }
        Ok(true)
    }
}

impl Node {
    /// The number below which all tickets of a room are gone. `None` if the room stands still, or is not there.
    async fn first_living(self: &Arc<Self>, name: &RoomName) -> Result<Option<u32>, StoreError> {
        match self.seen(name, |replica, _| replica.room().first_living()).await {
            Ok(living) => Ok(living.ok()),
            Err(error) if is_of_object(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
