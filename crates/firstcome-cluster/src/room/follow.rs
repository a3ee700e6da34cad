//! Follows the log of a room without changing it, for exports and checks.

use super::log::{ITEMS_MAX, Item, Keys, Part};
use super::replica::Broken;
use crate::database::RoomRow;
use crate::node::Node;
use crate::sequencer::Sequencer;
use firstcome_core::room::Change;
use firstcome_core::room::replica::{Applied, Entry, Outcome, Replica};
use firstcome_redis::LinkError;
use firstcome_store::edge::{draw_hasher, draw_pause};
use std::time::Duration;
use tokio::time::sleep;

/// How often it is begun anew: when the log was trimmed meanwhile, or Redis gave no answer.
const TRIES: u32 = 5;
/// Before it is begun anew after an error, each time so much longer. A random part of it is taken.
const PAUSE: Duration = Duration::from_millis(100);

/// What a log says of a room.
pub(crate) struct Followed {
    pub(crate) replica: Replica,
    /// Whether the server that gave it may have forgotten its end, as after a start from a snapshot or a fail-over: numbers
    /// above those that are drawn here may have been told, up to the ceiling in SQL.
    pub(crate) lacks_end: bool,
}

/// Applies what came, and tells what each entry has led to. An error if it does not follow, or says that another room is in
/// SQL.
pub(super) fn play(
    replica: &mut Replica,
    items: Vec<Item>,
    changes: &mut Vec<Change>,
    mut tell: impl FnMut(&Entry, Applied),
) -> Result<(), Broken> {
    for Item { first, now, entries, .. } in items {
        for (position, entry) in (first..).zip(&entries) {
            if position <= replica.position() {
                continue;
            }
            changes.clear();
            let applied = replica.apply(position, now, entry, changes).map_err(|_| Broken)?;
            if applied.outcome == Outcome::Diverged {
                return Err(Broken);
            }
            tell(entry, applied);
        }
    }
    Ok(())
}

impl Node {
    /// The room as of the end of its log; `None` if the log is not that of SQL, or breaks off: then no node knows more than SQL
    /// does. Changes nothing.
    ///
    /// An error is that of a server that gives no answer, also when it was asked again: others would know then.
    pub(crate) async fn follow_log(&self, row: &RoomRow) -> Result<Option<Followed>, LinkError> {
        let keys = Keys { room: row.id };
        let mut failed = None;
        for again in 1..=TRIES {
            match self.sequencer.follow_once(keys, row.generation).await {
                Ok(Some(followed)) if row.position <= followed.replica.position() => return Ok(Some(followed)),
                // What is behind SQL does not come to it.
                Ok(Some(_)) => return Ok(None),
                Ok(None) => failed = None,
                Err(error) => {
                    failed = Some(error);
                    sleep(draw_pause(PAUSE * again)).await;
                }
            }
        }
        failed.map_or(Ok(None), Err)
    }
}

impl Sequencer {
    /// The room as of the end of a log of this generation. Nothing if an image or another log took the place of this one meanwhile,
    /// or something of it is gone.
    pub(crate) async fn follow_once(&self, keys: Keys, generation: i64) -> Result<Option<Followed>, LinkError> {
        let image = self.load_image(keys, generation).await?;
        let Ok(mut replica) = Replica::from_image(&image.bytes, draw_hasher()) else { return Ok(None) };
        let mut changes = Vec::new();
        loop {
            let Some(part) = self.read_log(keys, generation, replica.position()).await? else {
                return Ok(None);
            };
            let Part { position, branch, is_same_run, items } = part;
            let Some(items) = items.filter(|_| branch == image.branch) else { return Ok(None) };
            let is_all = items.len() < ITEMS_MAX;
            if play(&mut replica, items, &mut changes, |_, _| ()).is_err() {
                return Ok(None);
            }
            if !is_all {
                continue;
            }
            // A server that forgot the end while it was read gives less than was read before.
            let is_whole = position <= replica.position();
            return Ok(is_whole.then_some(Followed { replica, lacks_end: !is_same_run }));
        }
    }
}
