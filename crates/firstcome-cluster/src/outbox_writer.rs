//! Writes the outbox of a coupon to SQL while it has entries.

use super::coupon_state::CouponState;
use super::database::{Batch, CouponRow, Fresh, Written};
use super::outbox::{Entry, Notice, Tag, Verdict};
use super::sequencer::{GenerationReply, Report, Settled, Stray, channel};
use crate::node::Node;
use firstcome_store::StoreError;
use firstcome_store::edge::{Stopwatch, draw_pause};
use firstcome_store::throttle::Throttle;
use firstcome_store::trace::{self, StageKind};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The first pause after a failure, and the longest. A random part of it is taken.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// See [`PAUSE_MIN`].
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A write to SQL that takes longer is told in the log: the claims of its batch wait for it.
pub(crate) const SLOW_WRITE: Duration = Duration::from_secs(1);

/// How often is looked after what was told before SQL had it.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// What the sequencer and the other nodes are still to be told.
#[derive(Default)]
struct Outgoing {
    forget: Vec<Stray>,
    notices: Vec<(String, Vec<u8>)>,
}

/// Whether the outbox goes on where SQL is.
#[derive(PartialEq, Eq)]
enum Stream {
    Follows,
    /// It is of another sequencer, or a part of it is gone.
    Broken,
}

/// How a round ended.
enum Round {
    /// A batch was written, or the coupon is known better than before: on to the next.
    On,
    /// Nothing is left, or another node writes.
    Over,
    /// Something is left, which this node cannot write for now, and no other caller does.
    Left,
}

/// The entries that follow the position without a gap. What comes after a gap was drawn by another sequencer.
fn following(row: &CouponRow, entries: Vec<Entry>) -> Vec<Entry> {
    let mut last = row.position;
    let mut follows = |entry: &Entry| {
        let is_next = entry.claims.as_ref().map_or(true, |claims| claims.first == last + 1);
        last = entry.last;
        is_next
    };
    entries.into_iter().take_while(|entry| follows(entry)).collect()
}

/// Begins to drain, in a task of its own, if no caller does in this node.
pub(super) fn call(node: &Arc<Node>, state: &Arc<CouponState>) {
    if state.call() {
        let row = state.row();
        tracing::debug!(
            coupon = %row.name, node = node.sequencer.node, generation = row.generation, "this node has the writer lease"
        );
        tokio::spawn(write_outbox(Arc::downgrade(node), Arc::clone(state)));
    }
}

/// Sees to it that SQL gets a ticket that a caller was told of before: by one task for each coupon, as long as this takes.
pub(super) fn see_to(node: &Arc<Node>, state: &Arc<CouponState>, generation: i64, ticket: u64) {
    if state.place(generation, ticket) {
        tokio::spawn(follow(Arc::downgrade(node), Arc::clone(state)));
    }
}

/// The same where no caller knows whether there is such a ticket.
pub(super) fn ensure_writer(node: &Arc<Node>, state: &Arc<CouponState>) {
    if !state.is_draining() {
        call(node, state);
    }
}

async fn follow(node: Weak<Node>, state: Arc<CouponState>) {
    loop {
        sleep(FOLLOW_EVERY).await;
        let Some(node) = node.upgrade() else { return };
        // While SQL does not answer there is nothing that could be done.
        if node.look(&state, None, None).await.is_ok() {
            if state.is_all_written() {
                return;
            }
            ensure_writer(&node, &state);
        }
    }
}

/// A task that writes the outbox. If it ends in the middle, the next call for the coupon begins another one.
struct Writing<'a> {
    state: &'a CouponState,
    is_done: bool,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.state.abandon_draining();
        }
    }
}

async fn write_outbox(node: Weak<Node>, state: Arc<CouponState>) {
    let mut writing = Writing { state: &state, is_done: false };
    let mut outgoing = Outgoing::default();
    let mut pause = PAUSE_MIN;
    // It ends with the node: another one goes on.
    while let Some(node) = node.upgrade() {
        let calls = state.calls();
        match node.round(&state, &mut outgoing).await {
            Ok(Round::On) => pause = PAUSE_MIN,
            Ok(Round::Over) => {
                if state.rest(calls) {
                    writing.is_done = true;
                    return;
                }
            }
            Ok(Round::Left) | Err(_) => {
                drop(node);
                sleep(draw_pause(pause)).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Tells the log of a slow write, once a second at most.
fn note_write(row: &CouponRow, lasted: Duration, entries: usize) {
    static SLOW: Throttle = Throttle::new();
    if SLOW_WRITE <= lasted
        && let Some(left_out) = SLOW.pass()
    {
        let (coupon, lasted_ms) = (&row.name, lasted.as_millis() as u64);
        tracing::warn!(%coupon, lasted_ms, entries, left_out, "a write of the outbox to the database was slow");
    }
}

/// Tells the log of entries that were set aside, once a second at most. The reason of each is in the database.
fn note_dead_letters(row: &CouponRow, dead_letters: u64) {
    static BURIED: Throttle = Throttle::new();
    if let Some(left_out) = BURIED.pass() {
        let CouponRow { name: coupon, generation, position, .. } = row;
        tracing::error!(
            %coupon, generation, position, dead_letters, left_out,
            "entries of the outbox cannot be read and were set aside: see GET /v1/coupons/{coupon}/dead-letters"
        );
    }
}

impl Node {
    /// Drains until the database has every ticket that was drawn. False if that takes longer than a claim would wait: another
    /// node does so, or ever more are drawn.
    pub(super) async fn write_whole_outbox(&self, state: &Arc<CouponState>) -> Result<bool, StoreError> {
        let until = Instant::now() + self.options.patience;
        let mut outgoing = Outgoing::default();
        loop {
            if matches!(self.round(state, &mut outgoing).await?, Round::On) {
                if Instant::now() < until {
                    continue;
                }
                // Others are to hear what was written, and may go on at once.
                self.report(state, &mut outgoing, false).await?;
                return Ok(false);
            }
            let row = self.database.coupon_again(state.keys.coupon).await?;
            let probe = self.sequencer.probe(state.keys, row.generation, row.position).await?;
            if probe.ticket == Some(row.position) || (row.is_over() && probe.generation.is_none()) {
                return Ok(true);
            }
            if until < Instant::now() {
                return Ok(false);
            }
            sleep(PAUSE_MIN).await;
        }
    }

    /// Reports what was written, and writes what is next. Three round trips, in which up to some thousand claims are written.
    async fn round(&self, state: &Arc<CouponState>, outgoing: &mut Outgoing) -> Result<Round, StoreError> {
        // The sequencer stays as it is, and SQL gets nothing, while SQL lacks something.
        if state.is_stopped() {
            return Ok(Round::Over);
        }
        let (row, settled) = self.report(state, outgoing, state.may_write()).await?;
        match settled {
            GenerationReply::Answer(Settled::Done) => {
                if row.is_over() {
                    // If this fails, another look finds the keys.
                    let _ = self.end_drained(state).await;
                }
                return Ok(Round::Over);
            }
            GenerationReply::Answer(Settled::Other) => {
                tracing::debug!(
                    coupon = %row.name, node = self.sequencer.node, generation = row.generation,
                    "another node has the writer lease"
                );
                return Ok(Round::Over);
            }
            GenerationReply::Answer(Settled::Left) => return Ok(Round::Left),
            _ => {}
        }
        let writing = state.write();
        let stream = self.go_on(state, &row, settled, outgoing).await?;
        writing.taken();
        // SQL answers: however long the sequencer takes to be rebuilt, no other caller could write meanwhile.
        if stream == Stream::Broken {
            self.rebuild(state).await?;
            if state.is_over() {
                // There is no sequencer, and nothing to write.
                return Ok(Round::Over);
            }
        }
        Ok(Round::On)
    }

    /// Reports what was written, and asks what is next; and the coupon as it was reported.
    async fn report(
        &self,
        state: &CouponState,
        outgoing: &mut Outgoing,
        may_write: bool,
    ) -> Result<(CouponRow, GenerationReply<Settled>), StoreError> {
        let row = state.row();
        let report = Report {
            generation: row.generation,
            position: row.position,
            issued: row.issued,
            may_write,
            forget: &outgoing.forget,
            notices: &outgoing.notices,
        };
        let settled = self.sequencer.settle(state.keys, &report).await?;
        *outgoing = Outgoing::default();
        Ok((row, settled))
    }

    /// Writes what is next, or finds that it does not follow what SQL has. SQL has answered if this does.
    async fn go_on(
        &self,
        state: &Arc<CouponState>,
        row: &CouponRow,
        settled: GenerationReply<Settled>,
        outgoing: &mut Outgoing,
    ) -> Result<Stream, StoreError> {
        if let GenerationReply::Answer(Settled::Next { anchor, entries, ticket }) = settled {
            // What has a higher number than any ticket is another caller's.
            let entries = following(row, entries.into_iter().take_while(|entry| entry.last <= ticket).collect());
            let is_anchored = anchor.is_some_and(|anchor| anchor.anchor == row.anchor);
            if is_anchored && !entries.is_empty() {
                let (watch, count) = (Stopwatch::start(), entries.len());
                let written = self.database.write(row, &Batch { entries }).await;
                note_write(row, watch.elapsed(), count);
                trace::note(StageKind::Write, row.name.as_str(), watch.elapsed(), count);
                match written? {
                    Written::Done(fresh) => *outgoing = self.tell(state, *fresh),
                    Written::Moved(now) => self.take_in(state, &row.at().at, &now).await?,
                }
                return Ok(Stream::Follows);
            }
        }
        let now = self.database.coupon_again(row.id).await?;
        // Another node has written meanwhile; or no node has, and the sequencer has forgotten something.
        let is_further = row.position < now.position;
        self.take_in(state, &row.at().at, &now).await?;
        Ok(if is_further { Stream::Follows } else { Stream::Broken })
    }

    /// Tells those who wait here, and prepares what others must be told.
    fn tell(&self, state: &CouponState, fresh: Fresh) -> Outgoing {
        let Fresh { row, verdicts, refused, dead_letters } = fresh;
        state.learn(&row);
        let (counters, relaxed) = (&self.counters, Ordering::Relaxed);
        counters.transactions.fetch_add(1, relaxed);
        counters.dead_letters.fetch_add(dead_letters, relaxed);
        if 0 < dead_letters {
            note_dead_letters(&row, dead_letters);
        }
        let is_issued = |verdict: &&(Arc<str>, Tag, Verdict)| matches!(verdict.2, Verdict::Issued(_));
        counters.written.fetch_add(verdicts.iter().filter(is_issued).count() as u64, relaxed);
        let mut of_nodes: BTreeMap<Arc<str>, Vec<(Tag, Verdict)>> = BTreeMap::new();
        for (node, tag, verdict) in verdicts {
            of_nodes.entry(node).or_default().push((tag, verdict));
        }
        state.tell(of_nodes.remove(self.sequencer.node.as_str()).unwrap_or_default());
        let (coupon, generation, position) = (row.id, row.generation, row.position);
        let notice = |(node, verdicts): (Arc<str>, _)| {
            (channel(&node), Notice { coupon, generation, position, verdicts }.write())
        };
        Outgoing { forget: refused, notices: of_nodes.into_iter().map(notice).collect() }
    }
}
