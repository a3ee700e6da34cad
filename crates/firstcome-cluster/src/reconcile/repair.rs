//! Repairs findings with the operations of a node.

use super::Repair;
use crate::ClusterError;
use crate::inspect::{Found, Inspection, LogSnapshot, SequencerSnapshot, State, Users};
use crate::node::{EventListener, Node};
use firstcome_store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Steps that one repair may take: each may bring to light what the one before has hidden.
const STEPS_MAX: u32 = 8;
/// Between two looks whether something was written.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a loss cannot be accepted.
const NO_LOG: &str = "the log of the room cannot be read to its end, so the numbers that it gave are unknown: bring back the newer \
                      database";

/// A node that repairs.
pub(super) struct RepairNode {
    pub(super) node: Arc<Node>,
    pub(super) _listener: EventListener,
}

/// What comes first, of what needs a repair.
fn worst(found: &[Found]) -> Option<State> {
    let order = |state: &State| match state {
        State::Missing | State::OtherGeneration | State::Behind => 0,
        State::Torn => 1,
        // What waits is not to be lost when a sequencer is rebuilt.
        State::Undrained | State::UnreadableEntry => 2,
        State::Miscounted | State::OtherSettings | State::Differs => 3,
        _ => 4,
    };
    found.iter().map(|found| found.state).filter(|state| state.needs_repair()).min_by_key(order)
}

/// What must be done instead, where a claim may have been told that a repair would lose.
fn instead(seen: &SequencerSnapshot, state: State) -> Option<&'static str> {
    let breaks_off = match state {
        State::OtherGeneration => true,
        State::Missing | State::Behind | State::Torn => seen.has_entries,
        _ => false,
    };
    // Beside nodes there is hardly a moment at which nothing is on its way.
    let is_made_anew = match state {
        State::Miscounted => true,
        State::OtherSettings => !seen.has_older_settings,
        _ => false,
    };
    if !seen.row.is_early {
        None
    } else if breaks_off {
        Some(
            "its claims are told before the database has them, and those in this stream would be lost: bring back the Redis that \
             had them if there is one; the next claim makes the sequencer anew without them",
        )
    } else if is_made_anew {
        Some(
            "its claims are told before the database has them, and those on their way would be lost with the sequencer: give the coupon \
             the durability database, run this again when nothing waits, and give it back",
        )
    } else {
        None
    }
}

/// What was done, each once.
#[derive(Default)]
struct Done(Vec<String>);

impl Done {
    fn note(&mut self, what: Option<String>) {
        if let Some(what) = what.filter(|what| self.0.last() != Some(what)) {
            self.0.push(what);
        }
    }

    fn repair(self) -> Repair {
        let nothing = "a node has done it meanwhile".to_owned();
        Repair::Done(if self.0.is_empty() { nothing } else { self.0.join("; ") })
    }
}

impl RepairNode {
    /// Goes on without what the database has lost: begins a generation above that of sequencer and database, and makes the sequencer anew from
    /// what the database has. Nodes at work go on with it by themselves.
    pub(super) async fn accept_loss(&self, seen: &SequencerSnapshot) -> Repair {
        let begun = async {
            let above = seen.sequencer_generation.unwrap_or_default();
            let coupon_state = self.node.keep(self.node.database.accept_loss(seen.row.id, above).await?);
            self.node.rebuild(&coupon_state).await?;
            Ok::<_, StoreError>(coupon_state.position().0)
        };
        match begun.await {
            Ok(generation) => Repair::Done(format!(
                "given up what is named here, and rebuilt from the database, as generation {generation}"
            )),
            Err(error) => Repair::Failed(error.to_string()),
        }
    }

    /// The same for a room: no number and no admission that its log gave is given again, and the log is rebuilt from what the
    /// database has.
    pub(super) async fn accept_room_loss(&self, id: i64, seen: &LogSnapshot) -> Repair {
        let Some(lost) = &seen.lost else { return Repair::Failed(NO_LOG.to_owned()) };
        let begun = async {
            let row = self.node.database.room_again(id).await?;
            let is_same = row.generation == seen.generation;
            if !is_same || !self.node.database.accept_room_loss(&row, &lost.floor).await? {
                return Ok(None);
            }
            let room_node = self.node.keep_room(self.node.database.room_again(id).await?);
            self.node.rebuild_room(&room_node).await?;
            Ok::<_, StoreError>(Some(self.node.database.room_again(id).await?.generation))
        };
        match begun.await {
            Ok(Some(generation)) => Repair::Done(format!(
                "given up what is named here, and rebuilt from the database, as generation {generation}"
            )),
            Ok(None) => Repair::Failed("the database has moved on since it was looked at: run it again".to_owned()),
            Err(error) => Repair::Failed(error.to_string()),
        }
    }

    /// Repairs a sequencer, step by step, until all agrees. What was found before may be long ago: it is looked at before each step.
    pub(super) async fn sequencer(&self, inspection: &mut Inspection, id: i64) -> Result<Repair, ClusterError> {
        let mut done = Done::default();
        let (mut was_drained, mut steps, mut strays) = (false, 0, u64::MAX);
        loop {
            let Some(seen) = inspection.sequencer(id, Users::OfBoth).await? else { return Ok(done.repair()) };
            let Some(state) = worst(&seen.found) else { return Ok(done.repair()) };
            if let Some(advice) = instead(&seen, state) {
                return Ok(Repair::Advice(advice.to_owned()));
            }
            // Each time some thousand are forgotten: that takes as long as there are fewer of them.
            let left =
                seen.found.iter().find(|found| found.state == State::UserNotInSql).map_or(0, |found| found.count);
            steps += u32::from(state != State::UserNotInSql || strays <= left);
            strays = left;
            if STEPS_MAX < steps {
                return Ok(Repair::Failed(says(&seen.found)));
            }
            match self.sequencer_step(&seen, state, &mut was_drained).await {
                Ok(what) => done.note(what),
                Err(error) => return Ok(Repair::Failed(error.to_string())),
            }
        }
    }

    /// Nothing if another generation has begun since it was looked at.
    async fn sequencer_step(
        &self,
        seen: &SequencerSnapshot,
        state: State,
        was_drained: &mut bool,
    ) -> Result<Option<String>, StoreError> {
        let node = &self.node;
        let row = node.database.coupon_again(seen.row.id).await?;
        if row.generation != seen.row.generation {
            return Ok(None);
        }
        let coupon_state = node.keep(row);
        let anew = || format!("rebuilt from the database, as generation {}", coupon_state.position().0);
        let done = match state {
            State::Missing | State::OtherGeneration | State::Behind => {
                node.rebuild(&coupon_state).await?;
                anew()
            }
            // What still follows is written, as a node would.
            State::Torn if !std::mem::replace(was_drained, true) => {
                let drained = node.write_whole_outbox(&coupon_state).await;
                if drained.is_ok() { "drained, as far as it could be".to_owned() } else { "looked at".to_owned() }
            }
            State::Undrained | State::UnreadableEntry => {
                node.write_whole_outbox(&coupon_state).await?;
                "drained".to_owned()
            }
            State::OtherSettings if seen.has_older_settings => {
                node.rebuild(&coupon_state).await?;
                "the settings of the database were put in force".to_owned()
            }
            State::OldGeneration => {
                node.end_keys(&coupon_state).await?;
                "its keys were deleted".to_owned()
            }
            State::UserNotInGate => {
                node.refill(&coupon_state).await?;
                "who has a claim was brought in".to_owned()
            }
            State::UserNotInSql => {
                for stray in &seen.strays {
                    node.sequencer.forget(coupon_state.keys, seen.row.generation, stray).await?;
                }
                "who has no claim was forgotten".to_owned()
            }
            _ => {
                node.renew(&coupon_state).await?;
                anew()
            }
        };
        Ok(Some(done))
    }

    /// Repairs a log, step by step, until all agrees. It is looked at before each step.
    pub(super) async fn log(&self, inspection: &mut Inspection, id: i64) -> Result<Repair, ClusterError> {
        let mut done = Done::default();
        let Some(mut seen) = inspection.log(id).await? else { return Ok(done.repair()) };
        for _ in 0..STEPS_MAX {
            let Some(state) = worst(&seen.found) else { return Ok(done.repair()) };
            match self.log_step(id, &seen, state).await {
                Ok(what) => done.note(what),
                Err(error) => return Ok(Repair::Failed(error.to_string())),
            }
            let until = Instant::now() + self.node.options.patience;
            loop {
                match inspection.log(id).await? {
                    Some(again) => seen = again,
                    None => return Ok(done.repair()),
                }
                let waits = seen.is(&[State::Undrained, State::UnderWay]);
                if !waits || state != State::Undrained || until < Instant::now() {
                    break;
                }
                sleep(PAUSE).await;
            }
        }
        Ok(if worst(&seen.found).is_none() { done.repair() } else { Repair::Failed(says(&seen.found)) })
    }

    /// Nothing if another generation has begun since it was looked at.
    async fn log_step(&self, id: i64, seen: &LogSnapshot, state: State) -> Result<Option<String>, StoreError> {
        let node = &self.node;
        let row = node.database.room_again(id).await?;
        if row.generation != seen.generation {
            return Ok(None);
        }
        let room_node = node.keep_room(row);
        if state == State::Undrained {
            node.see(&room_node).await?;
            return Ok(Some("written to the database".to_owned()));
        }
        if matches!(state, State::Torn | State::Differs) {
            room_node.distrust(seen.generation);
        }
        node.rebuild_room(&room_node).await?;
        Ok(Some("rebuilt from the database".to_owned()))
    }
}

fn says(found: &[Found]) -> String {
    found.iter().map(|found| found.says.as_str()).collect::<Vec<_>>().join("; ")
}
