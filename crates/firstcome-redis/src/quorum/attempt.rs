//! One attempt at a lock: a word that is used once, a task per node, and the outcome of their answers.

use super::scripts::{Keys, Taken, Tell, Unclear};
use super::waiting::Waiting;
use super::{Figures, Shared, elapsed_us, ending, joining, now, surely_over};
use firstcome_core::lock::Fence;
use firstcome_core::lock::quorum::{Answer, Lost, Nodes, Renewal, Step, Votes, Written};
use firstcome_store::Fault;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The outcome of an attempt.
pub(super) enum Outcome {
    Taken(Fence),
    Lost(Lost),
    /// Other clients use a node with other settings.
    Unfit(Fault),
}

/// One attempt at a lock.
pub(super) struct Attempt {
    /// The word of the acquisition that this attempt belongs to.
    pub(super) acquisition: Box<str>,
    /// The word of this attempt alone.
    pub(super) word: Box<str>,
    /// Identifies the end of this hold, so that a waiter can match the notifications of several nodes.
    pub(super) token: u64,
    pub(super) keys: Keys,
    pub(super) lease_ms: u32,
    /// How many fences come with the lock.
    pub(super) passes: NonZeroU32,
    pub(super) begun: Instant,
    /// The waiter to notify when the lock becomes free.
    pub(super) waiting: Option<Arc<Waiting>>,
    pub(super) course: Mutex<Course>,
}

/// The state of an attempt.
pub(super) struct Course {
    pub(super) votes: Votes,
    told: Option<oneshot::Sender<Outcome>>,
    /// The nodes that were asked for the lock and may yet answer.
    in_flight: Nodes,
    /// The nodes that may have granted the lock: all except those that are known not to have.
    pub(super) may_have: Nodes,
    /// The attempt failed. Nodes in flight are released once they have answered.
    lost: bool,
    /// The nodes with a release under way; the nodes that have released; and the nodes in `releasing` whose grant was
    /// reported only after the release was sent.
    pub(super) releasing: Nodes,
    pub(super) released: Nodes,
    pub(super) late: Nodes,
    pub(super) fence: Option<Fence>,
    pub(super) until: Option<Instant>,
    /// When no node can still have anything of this attempt.
    pub(super) over_at: Instant,
    pub(super) renewals: BTreeMap<u64, Renewal>,
}

impl Attempt {
    /// Returns how long the hold certainly lasts.
    pub(super) fn left(&self) -> Option<Duration> {
        self.course.lock().until.map(|until| until.saturating_duration_since(now()))
    }
}

impl Course {
    /// Ends the attempt, and returns the nodes to release. `votes` would name more nodes, because it does not know
    /// which ones were never reached.
    pub(super) fn close(&mut self) -> Nodes {
        (self.told, self.until, self.lost) = (None, None, false);
        self.renewals.values_mut().for_each(Renewal::close);
        let _ = self.votes.close();
        self.may_have
    }
}

/// A caller that waits for an attempt. Dropping it before there is an answer gives the attempt up.
pub(super) struct Asking<'a> {
    shared: &'a Arc<Shared>,
    attempt: Option<Arc<Attempt>>,
}

impl<'a> Asking<'a> {
    /// Asks all nodes at once.
    pub(super) fn begin(
        shared: &'a Arc<Shared>,
        (key, acquisition): (&str, &str),
        lease_ms: u32,
        passes: NonZeroU32,
        told: oneshot::Sender<Outcome>,
    ) -> Self {
        let number = shared.attempts.fetch_add(1, Ordering::Relaxed);
        let course = Course {
            votes: Votes::new(shared.quorum, lease_ms),
            told: Some(told),
            in_flight: shared.quorum.all(),
            may_have: shared.quorum.all(),
            lost: false,
            releasing: Nodes::NONE,
            released: Nodes::NONE,
            late: Nodes::NONE,
            fence: None,
            until: None,
            over_at: surely_over(lease_ms),
            renewals: BTreeMap::new(),
        };
        let attempt = Arc::new(Attempt {
            acquisition: acquisition.into(),
            word: format!("{acquisition}.{:x}.{number:x}", shared.client).into(),
            token: shared.client.wrapping_add(number),
            keys: Keys::of(key),
            lease_ms,
            passes,
            // Taken before the first message is sent.
            begun: now(),
            waiting: shared.waiters.of(acquisition),
            course: Mutex::new(course),
        });
        // An earlier try with the same word may have been granted. That grant is given up.
        if let Some(before) = shared.keep(acquisition, &attempt) {
            ending::give_up(shared, &before, &mut before.course.lock());
        }
        for node in shared.quorum.all().iter() {
            shared.runtime.spawn(take(Arc::clone(shared), Arc::clone(&attempt), node));
        }
        Self { shared, attempt: Some(attempt) }
    }

    /// Notes that the caller knows the outcome.
    pub(super) fn is_answered(&mut self) {
        self.attempt = None;
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            ending::give_up(self.shared, &attempt, &mut attempt.course.lock());
        }
    }
}

/// Asks one node, and handles its answer. A slow node counts as silent first, and its answer counts when it comes.
async fn take(shared: Arc<Shared>, attempt: Arc<Attempt>, node: usize) {
    let mut asked = pin!(shared.take_on(node, &attempt));
    let answer = match timeout(shared.node_timeout, &mut asked).await {
        Ok(answer) => answer,
        Err(_) => {
            on_reply(&shared, &attempt, &mut attempt.course.lock(), node, Answer::Silent);
            asked.await
        }
    };
    let mut course = attempt.course.lock();
    course.in_flight = course.in_flight.without(Nodes::only(node));
    match answer {
        Ok(Taken::Answer(answer)) => {
            if !matches!(answer, Answer::Granted(_)) {
                course.may_have = course.may_have.without(Nodes::only(node));
            }
            on_reply(&shared, &attempt, &mut course, node, answer);
            if let Some(waiting) = &attempt.waiting {
                waiting.is_answered(&shared, node, answer);
            }
            if let Answer::Young { birth_us, ripe: true } = answer {
                joining::introduce(&shared, node, birth_us);
            }
        }
        Ok(Taken::Unfit(fault)) => {
            course.may_have = course.may_have.without(Nodes::only(node));
            match course.told.take() {
                Some(told) => {
                    let _ = told.send(Outcome::Unfit(fault));
                    ending::give_up(&shared, &attempt, &mut course);
                }
                None => on_reply(&shared, &attempt, &mut course, node, Answer::Refused),
            }
        }
        Err(Unclear) => {
            // The take may still arrive, and no later answer will tell.
            if course.lost {
                ending::undo(&shared, &attempt, node, Tell::Nobody);
            }
            on_reply(&shared, &attempt, &mut course, node, Answer::Silent);
        }
    }
}

/// Counts an answer of a node.
fn on_reply(shared: &Arc<Shared>, attempt: &Arc<Attempt>, course: &mut Course, node: usize, answer: Answer) {
    let step = course.votes.on_reply(node, answer, elapsed_us(attempt.begun));
    obey(shared, attempt, course, node, step);
}

async fn write_back(shared: Arc<Shared>, attempt: Arc<Attempt>, node: usize, fence: Fence) {
    let on_reply = |written: Written| {
        let mut course = attempt.course.lock();
        let step = course.votes.written(node, written, elapsed_us(attempt.begun));
        obey(&shared, &attempt, &mut course, node, step);
    };
    let mut asked = pin!(shared.write_back_on(node, &attempt, fence));
    match timeout(shared.node_timeout, &mut asked).await {
        Ok(written) => on_reply(written),
        Err(_) => {
            on_reply(Written::Silent);
            on_reply(asked.await);
        }
    }
}

fn obey(shared: &Arc<Shared>, attempt: &Arc<Attempt>, course: &mut Course, node: usize, step: Step) {
    match step {
        Step::Wait => {}
        Step::WriteBack { fence, nodes } => {
            Figures::add(&shared.figures.written_back);
            for node in nodes.iter() {
                shared.runtime.spawn(write_back(Arc::clone(shared), Arc::clone(attempt), node, fence));
            }
        }
        Step::Granted { fence, left_us } => {
            Figures::add(&shared.figures.granted);
            shared.seen.fetch_max(fence.get(), Ordering::Relaxed);
            course.fence = Some(fence);
            course.until = Some(now() + Duration::from_micros(left_us));
            // Sending fails if the caller is gone, which has given the attempt up.
            course.told.take().map(|told| told.send(Outcome::Taken(fence)));
        }
        Step::Lost { why, undo } => {
            course.lost = true;
            shared.forget(attempt);
            course.told.take().map(|told| told.send(Outcome::Lost(why)));
            // The nodes in flight are handled when they answer. Most will report another holder.
            let settled = undo.without(course.in_flight);
            for node in settled.without(settled.without(course.may_have)).iter() {
                ending::undo(shared, attempt, node, Tell::Nobody);
            }
        }
        // The release normally follows the take on the same connection, so its answer will tell.
        Step::Undo if course.releasing.has(node) => course.late = course.late.and(Nodes::only(node)),
        Step::Undo if course.released.has(node) => {}
        Step::Undo => {
            Figures::add(&shared.figures.undone_late);
            ending::undo(shared, attempt, node, Tell::Nobody);
        }
    }
}
