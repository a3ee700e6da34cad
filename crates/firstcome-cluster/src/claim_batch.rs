//! Asks the sequencer about the claims that wait, a batch in one script, and tells their callers.
//!
//! A caller waits in one place, where it hears either that no ticket was drawn for it, or what became of its ticket. So a claim that
//! is issued wakes its caller once.

use super::coupon_state::CouponState;
use super::node::Node;
use super::outbox::{Entrant, Verdict};
use super::outbox_writer;
use super::sequencer::{GenerationReply, Judged, Question, SequencerReply};
use firstcome_core::coupon::Acknowledge;
use firstcome_core::time::Timestamp;
use firstcome_redis::LinkError;
use firstcome_store::StoreError;
use firstcome_store::batcher::Service;
use firstcome_store::reply;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::{Instant, sleep};

/// Claims that go to the sequencer in one script.
pub(super) const ASK_MAX: usize = 256;
/// How often a sequencer that is lost is rebuilt for one batch before its callers are told.
const MENDS_MAX: u32 = 3;

/// A claim that waits for the sequencer.
pub(super) struct Asking {
    pub(super) entrant: Entrant,
    /// When its caller may be told at the earliest.
    pub(super) earliest: Acknowledge,
    pub(super) reply: Reply,
}

/// The place where a caller is told.
pub(super) type Reply = reply::Reply<ClaimProgress, Infallible>;

/// What a caller waits for.
pub(super) type Awaited = reply::Awaited<ClaimProgress, Infallible>;

/// What a caller hears of its claim.
#[derive(Clone, Copy, Debug)]
pub(super) enum ClaimProgress {
    /// What became of its ticket.
    Verdict(Verdict),
    /// Its place is certain since this instant, and the coupon lets it be told so before SQL holds it.
    Placed(Timestamp),
    /// It has this ticket, and has to look into SQL for what became of it.
    Late(Drawn),
    /// No ticket was drawn for it.
    Refused(Refusal),
    /// The sequencer had not heard of settings that SQL has, and has heard of them now.
    OtherSettings,
}

/// A ticket that was drawn for a claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    pub(super) generation: i64,
    pub(super) ticket: u64,
    /// When this node heard of it.
    pub(super) since: Instant,
}

/// Why no ticket was drawn, and by which sequencer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub(super) reply: SequencerReply,
    pub(super) generation: i64,
}

/// Asks the sequencer about one claim. One round trip, shared with others.
pub(super) fn push(node: &Arc<Node>, state: &Arc<CouponState>, asking: Asking) -> Result<(), StoreError> {
    if state.asking.push(asking)? == Service::Wanted {
        node.spawn(serve(Arc::clone(node), Arc::clone(state)));
    }
    Ok(())
}

async fn serve(node: Arc<Node>, state: Arc<CouponState>) {
    for mut batch in state.asking.serve() {
        // A caller that has gone away finds nothing changed.
        batch.retain(|asking| !asking.reply.is_closed());
        if batch.is_empty() {
            continue;
        }
        // Before the sequencer is asked: another node may write a ticket before its number is heard here.
        let entrants = state.expect(batch);
        match node.ask_all(&state, &entrants).await {
            Ok((judged, generation)) => node.tell_words(&state, &entrants, judged, generation).await,
            Err(error) => state.fail(&entrants, &error),
        }
    }
}

/// Wakes the callers that were told. See [`reply::wake_callers`].
pub(super) fn wake_callers() {
    reply::wake_callers();
    if reply::is_left_over() {
        tokio::spawn(async {
            sleep(reply::LEFT_OVER_MAX).await;
            reply::wake_left_over();
        });
    }
}

impl Node {
    /// Asks the sequencer about several claims. It is looked at, and rebuilt, before it is asked, if it may be another one.
    async fn ask_all(
        self: &Arc<Self>,
        state: &Arc<CouponState>,
        entrants: &[Entrant],
    ) -> Result<(Judged, i64), StoreError> {
        let mut is_begun = false;
        for _ in 0..MENDS_MAX {
            self.stopped(state).map_err(|error| if is_begun { StoreError::Unknown } else { error })?;
            if state.trusted.load(Ordering::Relaxed) != self.doubts() {
                self.rebuild(state).await.map_err(|error| if is_begun { StoreError::Unknown } else { error })?;
            }
            let (generation, position) = state.position();
            let (now, backlog_max) = (self.database.time.given(), self.options.backlog_max);
            let may_write = state.may_write();
            let question = Question { generation, position, now, backlog_max, may_write, entrants };
            match self.sequencer.claim(state.keys, &question).await {
                Ok(GenerationReply::Answer(judged)) => {
                    if judged.drains {
                        outbox_writer::call(self, state);
                    }
                    // Another connection meanwhile may be one to another server, whose sequencer no caller has looked at.
                    if state.trusted.load(Ordering::Relaxed) == self.doubts() {
                        return Ok((judged, generation));
                    }
                    is_begun |= judged.words.iter().any(|word| matches!(word, SequencerReply::Drawn(_)));
                }
                Ok(GenerationReply::Lost) => state.trusted.store(u64::MAX, Ordering::Relaxed),
                // A script that fails in the middle has met what is no sequencer of ours. Its entry may stand.
                Err(LinkError::Refused { .. }) => {
                    is_begun = true;
                    state.trusted.store(u64::MAX, Ordering::Relaxed);
                }
                Err(_) if is_begun => return Err(StoreError::Unknown),
                Err(error) => return Err(error.into()),
            }
        }
        if is_begun {
            return Err(StoreError::Unknown);
        }
        Err(StoreError::busy_with("nothing was done: what Redis knows of the coupon was rebuilt several times"))
    }

    /// Tells the callers of a batch what the sequencer said, except those whose tickets SQL decides about.
    async fn tell_words(
        self: &Arc<Self>,
        state: &Arc<CouponState>,
        entrants: &[Entrant],
        judged: Judged,
        generation: i64,
    ) {
        let Judged { words, version, last, .. } = judged;
        let other_settings = if version < state.version() {
            // A caller that put settings is about to tell the sequencer, or has died.
            let row = state.row();
            Some(self.sequencer.adjust(state.keys, &row).await.map(drop).map_err(StoreError::from))
        } else {
            None
        };
        let mut drawn = words.iter().filter_map(|word| match word {
            SequencerReply::Drawn(ticket) => Some(*ticket),
            _ => None,
        });
        let placed = match drawn.next_back() {
            Some(ticket) if state.is_early_wanted(entrants) && self.is_answered_early(state, version).await => {
                outbox_writer::see_to(self, state, generation, ticket);
                Some(last)
            }
            _ => None,
        };
        let since = Instant::now();
        let heard = |word: SequencerReply, earliest: Acknowledge| match (word, placed, &other_settings) {
            (SequencerReply::Drawn(_), Some(since), _) if earliest == Acknowledge::Placed => {
                AfterScript::Answered(Ok(ClaimProgress::Placed(since)))
            }
            (SequencerReply::Drawn(ticket), _, _) => AfterScript::Waits(Drawn { generation, ticket, since }),
            (_, _, Some(Ok(()))) => AfterScript::Answered(Ok(ClaimProgress::OtherSettings)),
            (_, _, Some(Err(error))) => AfterScript::Answered(Err(error.clone())),
            (reply, _, None) => AfterScript::Answered(Ok(ClaimProgress::Refused(Refusal { reply, generation }))),
        };
        state.answer(entrants.iter().map(|entrant| entrant.tag).zip(words), heard);
    }

    /// Whether a coupon whose sequencer judges by this version of its settings tells claims before SQL holds them. By
    /// other settings than the newest it tells none: SQL may refuse what those let in. Nor does it while Redis may lose the place.
    async fn is_answered_early(self: &Arc<Self>, state: &Arc<CouponState>, version: i64) -> bool {
        if !self.redis_keeps() || (state.version() < version && self.look(state, None, None).await.is_err()) {
            return false;
        }
        state.tells_early(version)
    }
}

/// What the sequencer's word means for its caller.
pub(super) enum AfterScript {
    Answered(Result<ClaimProgress, StoreError>),
    /// The caller goes on to wait for what becomes of its ticket.
    Waits(Drawn),
}
