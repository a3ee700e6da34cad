//! Notices that SQL went back: it lacks what it had acknowledged, as a restored backup or a copy that was behind does.
//!
//! Every row that a node reads is held against what the node knew before it began to read, and where the sequencer is looked at, against
//! what the sequencer was told. A row that lacks something is read again before the node says so. From then on the node issues nothing of
//! the coupon, refuses nothing because a row is missing, leaves the sequencer as it is, and raises a fault.

use super::coupon_state::{CouponState, Stop};
use super::database::CouponRow;
use super::outbox_writer;
use super::sequencer::Probe;
use crate::node::Node;
use firstcome_core::coupon::stream::{GoesOn, Known, SequencerMark, Stream, judge};
use firstcome_store::{Fault, FaultKind, StoreError};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// Between two looks at coupons that stand still.
const STOPPED_EVERY: Duration = Duration::from_secs(1);
/// Each so many of those looks take all coupons that this node remembers.
const ALL_EVERY: u32 = 5;
/// Coupons that are read at once.
const COUPONS_AT_ONCE: usize = 256;

/// A sequencer as it stands to SQL.
pub(super) struct Judged {
    /// Read after the sequencer if the two did not agree.
    pub(super) row: CouponRow,
    pub(super) probe: Probe,
    pub(super) is_whole: bool,
}

/// What the rule needs to know of a sequencer that was looked at with this row.
pub(super) fn mark(probe: &Probe, row: &CouponRow) -> SequencerMark {
    let Probe { generation, ticket, position, .. } = *probe;
    let is_of_settings = probe.version.is_some_and(|version| version <= row.version);
    let has_anchor = probe.anchor.as_ref().is_some_and(|anchor| anchor.anchor == row.anchor);
    let follows = match (&probe.next, ticket) {
        // An entry after the last ticket stands in the way of the next one.
        (Some(next), Some(ticket)) => {
            next.last <= ticket && next.claims.as_ref().map_or(true, |claims| claims.first == row.position + 1)
        }
        (None, Some(ticket)) => ticket == row.position && !probe.is_strange,
        (_, None) => false,
    };
    let goes_on = if is_of_settings && has_anchor && follows { GoesOn::Yes } else { GoesOn::No };
    SequencerMark { generation, ticket, position, goes_on }
}

/// Whether an error is that of one coupon or one room: its rows lack what the database acknowledged, or contradict
/// themselves. All others go on.
pub(super) fn is_of_object(error: &StoreError) -> bool {
    matches!(error, StoreError::Faulted(fault) if matches!(fault.kind, FaultKind::WentBack | FaultKind::Unfit))
}

/// The name of a coupon in the list of faults.
fn object(row: &CouponRow) -> String {
    format!("coupon {}", row.name)
}

impl Node {
    /// How sequencer and SQL stand to each other. Two round trips, one more if they do not agree.
    ///
    /// [`FaultKind::WentBack`]: SQL lacks what it had acknowledged. The coupon stands still in this node from now on, until this
    /// finds otherwise.
    pub(super) async fn judged(&self, state: &CouponState) -> Result<Judged, StoreError> {
        let known = state.known();
        let mut row = self.database.coupon_again(state.keys.coupon).await?;
        let probe = self.sequencer.probe(state.keys, row.generation, row.position).await?;
        let mut verdict = judge(&known, &mark(&probe, &row), &row.at());
        if verdict == Stream::WentBack {
            // Nodes have written meanwhile, and told the sequencer before it was looked at. This row is read after it.
            row = self.database.coupon_again(state.keys.coupon).await?;
            verdict = judge(&known, &mark(&probe, &row), &row.at());
        }
        if verdict == Stream::WentBack {
            return Err(self.stop(state, &known, &probe, &row));
        }
        if state.stop(Stop::GoesOn) {
            // Nothing of what was known before counts where an operator accepted the loss.
            state.trusted.store(u64::MAX, Ordering::Relaxed);
            self.faults.clear_kind(&object(&row), FaultKind::WentBack);
        }
        state.learn(&row);
        Ok(Judged { row, probe, is_whole: verdict == Stream::Whole })
    }

    fn stop(&self, state: &CouponState, known: &Known, probe: &Probe, row: &CouponRow) -> StoreError {
        state.stop(Stop::Stopped);
        let sequencer = match (probe.generation, probe.position) {
            (Some(generation), Some(position)) => format!("the sequencer generation {generation}, position {position}"),
            _ => "no sequencer is open".to_owned(),
        };
        let says = format!(
            "the database lacks claims that it acknowledged: it has generation {}, position {}, {} issued; this node knew \
             generation {}, position {}, {} issued; {sequencer}",
            row.generation, row.position, row.issued, known.generation, known.position, known.issued
        );
        StoreError::Faulted(self.faults.raise_single(&object(row), Fault::new(FaultKind::WentBack, says)))
    }

    /// The error of a coupon that stands still.
    pub(super) fn stopped(&self, state: &CouponState) -> Result<(), StoreError> {
        if !state.is_stopped() {
            return Ok(());
        }
        let fault = self.faults.of(&object(&state.row()));
        let stored = || Arc::new(Fault::new(FaultKind::WentBack, "the database lacks claims that it acknowledged"));
        Err(StoreError::Faulted(fault.unwrap_or_else(stored)))
    }

    /// Takes in a row that was read after this was known, or finds that SQL went back.
    pub(super) async fn take_in(&self, state: &CouponState, known: &Known, row: &CouponRow) -> Result<(), StoreError> {
        if row.at().lacks(known) {
            return self.judged(state).await.map(drop);
        }
        state.learn(row);
        Ok(())
    }

    /// Before a client is told that SQL has no row of this user: the sequencer may have been told of one.
    pub(super) async fn is_missing(&self, state: &CouponState, generation: i64, user: &str) -> Result<(), StoreError> {
        self.stopped(state)?;
        // Where Redis does not answer, what this node knows has to do.
        let Ok(probe) = self.sequencer.probe(state.keys, generation, 0).await else { return Ok(()) };
        let Some(of_gate) = probe.generation else { return Ok(()) };
        let is_held =
            self.sequencer.ticket_of(state.keys, of_gate, user).await.is_ok_and(|ticket| {
                ticket.is_some_and(|ticket| probe.position.is_some_and(|position| ticket <= position))
            });
        if is_held || generation < of_gate { self.judged(state).await.map(drop) } else { Ok(()) }
    }

    /// Reads these coupons again.
    async fn watch_page(self: &Arc<Self>, coupons: &[Arc<CouponState>]) -> Result<(), StoreError> {
        let known: Vec<(Arc<CouponState>, Known)> =
            coupons.iter().map(|state| (Arc::clone(state), state.known())).collect();
        let ids: Vec<i64> = coupons.iter().map(|state| state.keys.coupon).collect();
        let rows = self.database.coupons_again(&ids).await?;
        for (state, known) in known {
            let Some(row) = rows.iter().find(|row| row.id == state.keys.coupon) else { continue };
            if !state.is_stopped() {
                // The fault says it.
                let _ = self.take_in(&state, &known, row).await;
            } else if self.judged(&state).await.is_ok() {
                outbox_writer::ensure_writer(self, &state);
            }
        }
        Ok(())
    }
}

/// Looks at the coupons that this node remembers, while the node is there: a quiet node notices too, and goes on by itself when the
/// newer data are back or an operator accepted the loss.
pub(super) async fn watch(node: Weak<Node>) {
    for round in (0..ALL_EVERY).cycle() {
        sleep(STOPPED_EVERY).await;
        let Some(node) = node.upgrade() else { return };
        let mut coupons: Vec<Arc<CouponState>> = node.by_name.lock().values().map(Arc::clone).collect();
        coupons.retain(|state| round == 0 || state.is_stopped());
        for page in coupons.chunks(COUPONS_AT_ONCE) {
            // While SQL does not answer there is nothing to see.
            let _ = node.watch_page(page).await;
        }
    }
}
