//! Repairs, by the means of a node.

use super::Repair;
use crate::error::StoreError;
use crate::fleet::survey::{Found, GateSeen, LogSeen, State, Survey, Users};
use crate::fleet::truth::Held;
use crate::fleet::{Ears, FleetError, Node};
use crate::sql::snapshot::Snapshot;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Steps that one repair may take: each may bring to light what the one before has hidden.
const STEPS_MAX: u32 = 8;
/// Between two looks whether something was written.
const PAUSE: Duration = Duration::from_millis(20);

/// A node that repairs.
pub(super) struct Hands<D: Held> {
    pub(super) node: Arc<Node<D>>,
    pub(super) _ears: Ears,
}

/// What comes first, of what needs a repair.
fn worst(found: &[Found]) -> Option<State> {
    let order = |state: &State| match state {
        State::Missing | State::OtherGeneration | State::Behind => 0,
        State::Torn => 1,
        // What waits is not to be lost when a gate is made anew.
        State::Undrained | State::UnreadableEntry => 2,
        State::Miscounted | State::OtherSettings | State::Differs => 3,
        _ => 4,
    };
    found.iter().map(|found| found.state).filter(|state| state.needs_repair()).min_by_key(order)
}

/// Whether a claim may have been told that would be lost with the stream.
fn may_lose(seen: &GateSeen, state: State) -> bool {
    let breaks_off = matches!(state, State::Missing | State::OtherGeneration | State::Behind | State::Torn);
    seen.row.is_early && breaks_off && (seen.has_entries || state == State::OtherGeneration)
}

/// What was done, each once.
#[derive(Default)]
struct Done(Vec<String>);

impl Done {
    fn note(&mut self, what: impl Into<String>) {
        let what = what.into();
        if self.0.last() != Some(&what) {
            self.0.push(what);
        }
    }

    fn repair(self) -> Repair {
        let nothing = "a node has done it meanwhile".to_owned();
        Repair::Done(if self.0.is_empty() { nothing } else { self.0.join("; ") })
    }
}

impl<D: Held + Snapshot> Hands<D> {
    /// Repairs a gate, step by step, until all agrees.
    pub(super) async fn gate(&self, survey: &mut Survey<D>, mut seen: GateSeen) -> Result<Repair, FleetError> {
        let mut done = Done::default();
        let id = seen.row.id;
        let mut was_drained = false;
        for _ in 0..STEPS_MAX {
            let Some(state) = worst(&seen.found) else { return Ok(done.repair()) };
            if may_lose(&seen, state) {
                let advice = "its claims are told before the database has them, and those in this stream would be lost: bring back \
                              the Redis that had them if there is one; the next claim makes the gate anew without them";
                return Ok(Repair::Advice(advice.to_owned()));
            }
            match self.gate_step(&seen, state, &mut was_drained).await {
                Ok(what) => done.note(what),
                Err(error) => return Ok(Repair::Failed(error.to_string())),
            }
            match survey.gate(id, Users::OfBoth).await? {
                Some(again) => seen = again,
                None => break,
            }
        }
        let rest = seen.found.iter().map(|found| found.says.as_str()).collect::<Vec<_>>().join("; ");
        Ok(if worst(&seen.found).is_none() { done.repair() } else { Repair::Failed(rest) })
    }

    async fn gate_step(&self, seen: &GateSeen, state: State, was_drained: &mut bool) -> Result<String, StoreError> {
        let node = &self.node;
        let cell = node.keep(node.truth.coupon_again(seen.row.id).await?);
        let anew = || format!("made anew from the database, as generation {}", cell.position().0);
        match state {
            State::Missing | State::OtherGeneration | State::Behind => {
                node.mend(&cell).await?;
                Ok(anew())
            }
            // What still follows is written, as a node would.
            State::Torn if !std::mem::replace(was_drained, true) => {
                let drained = node.drain_all(&cell).await;
                Ok(if drained.is_ok() { "drained, as far as it could be".to_owned() } else { "looked at".to_owned() })
            }
            State::Undrained | State::UnreadableEntry => {
                node.drain_all(&cell).await?;
                Ok("drained".to_owned())
            }
            State::UserNotInGate => {
                node.refill(&cell).await?;
                Ok("who has a claim was brought in".to_owned())
            }
            State::UserNotInSql => {
                for stray in &seen.strays {
                    node.gate.forget(cell.keys, seen.row.generation, stray).await?;
                }
                Ok("who has no claim was forgotten".to_owned())
            }
            _ => {
                node.renew(&cell).await?;
                Ok(anew())
            }
        }
    }

    /// Repairs a log, step by step, until all agrees.
    pub(super) async fn log(&self, survey: &mut Survey<D>, id: i64, mut seen: LogSeen) -> Result<Repair, FleetError> {
        let mut done = Done::default();
        for _ in 0..STEPS_MAX {
            let Some(state) = worst(&seen.found) else { return Ok(done.repair()) };
            match self.log_step(id, state).await {
                Ok(what) => done.note(what),
                Err(error) => return Ok(Repair::Failed(error.to_string())),
            }
            let until = Instant::now() + self.node.options.patience;
            loop {
                match survey.log(id).await? {
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
        let rest = seen.found.iter().map(|found| found.says.as_str()).collect::<Vec<_>>().join("; ");
        Ok(if worst(&seen.found).is_none() { done.repair() } else { Repair::Failed(rest) })
    }

    async fn log_step(&self, id: i64, state: State) -> Result<String, StoreError> {
        let node = &self.node;
        let row = node.truth.room_again(id).await?;
        let generation = row.generation;
        let cell = node.keep_room(row);
        if state == State::Undrained {
            node.see(&cell).await?;
            return Ok("written to the database".to_owned());
        }
        if matches!(state, State::Torn | State::Differs) {
            cell.distrust(generation);
        }
        node.mend_room(&cell).await?;
        Ok("made anew from the database".to_owned())
    }
}
