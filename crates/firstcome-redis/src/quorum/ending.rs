//! Releases holds, and undoes what a failed attempt may have left.

use super::attempt::{Attempt, Course};
use super::scripts::Tell;
use super::{Figures, Leaving, Shared, now};
use firstcome_core::lock::quorum::{Ended, Ending, EndingStep, Nodes};
use firstcome_store::StoreError;
use parking_lot::Mutex;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// The first pause between two tries to release at a node that did not answer, or that may yet receive the take; it
/// doubles each time.
const REPEAT: Duration = Duration::from_millis(100);
/// The longest of these pauses: a node that was away is released within this time after its return.
const REPEAT_MOST: Duration = Duration::from_secs(2);

/// Sends a release to a node until it has answered, or nothing of the attempt can be left there. If the node has
/// nothing, it gets one more release: the take may have gone another way, and arrive later.
pub(super) fn undo(shared: &Arc<Shared>, attempt: &Arc<Attempt>, node: usize, tell: Tell) {
    let (leaving, attempt) = (Leaving::new(shared), Arc::clone(attempt));
    shared.runtime.spawn(async move {
        let (mut absent, mut pause) = (0, REPEAT);
        loop {
            match leaving.0.release_on(node, &attempt, tell).await {
                Ended::Released => return,
                Ended::Absent => absent += 1,
                Ended::Silent => absent = 0,
            }
            if 1 < absent || attempt.course.lock().over_at <= now() {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(REPEAT_MOST);
        }
    });
}

/// Gives an attempt up in any state.
pub(super) fn give_up(shared: &Arc<Shared>, attempt: &Arc<Attempt>, course: &mut Course) {
    shared.forget(attempt);
    for node in course.close().iter() {
        undo(shared, attempt, node, Tell::Next);
    }
}

/// One release, and its answers so far.
struct Release {
    ending: Ending,
    step: EndingStep,
    /// How many nodes may yet answer in time.
    open: usize,
    released: usize,
    absent: usize,
    told: Option<oneshot::Sender<Result<bool, StoreError>>>,
}

impl Release {
    fn on_reply(&mut self, shared: &Shared, attempt: &Attempt, node: usize, ended: Ended, was_had: bool) {
        self.open = self.open.saturating_sub(1);
        match ended {
            Ended::Released => self.released += 1,
            Ended::Absent => self.absent += 1,
            Ended::Silent => {}
        }
        let step = self.ending.on_reply(node, ended);
        if step != EndingStep::Wait {
            self.step = step;
        }
        let answer = match self.step {
            EndingStep::Wait => return,
            EndingStep::Unsure { .. } => Err(StoreError::Unknown),
            EndingStep::Gone if shared.quorum.majority() <= self.released => Ok(true),
            // No majority had the lock, regardless of the other answers.
            EndingStep::Gone if shared.quorum.knowing() <= self.absent => Ok(false),
            EndingStep::Gone if self.open == 0 => Ok(was_had),
            EndingStep::Gone => return,
        };
        if answer.is_ok() {
            shared.forget(attempt);
        }
        self.told.take().map(|told| told.send(answer));
    }
}

/// Releases a hold on all nodes. Returns whether a majority had it until now.
pub(super) async fn release(shared: &Arc<Shared>, attempt: &Arc<Attempt>) -> Result<bool, StoreError> {
    let was_had = attempt.left().is_some_and(|left| !left.is_zero());
    let may_have = {
        let mut course = attempt.course.lock();
        course.releasing = course.close();
        course.releasing
    };
    let (told, answer) = oneshot::channel();
    let release = Arc::new(Mutex::new(Release {
        ending: Ending::new(shared.quorum),
        step: EndingStep::Wait,
        open: shared.quorum.nodes(),
        released: 0,
        absent: 0,
        told: Some(told),
    }));
    for node in shared.quorum.all().without(may_have).iter() {
        release.lock().on_reply(shared, attempt, node, Ended::Absent, was_had);
    }
    for node in may_have.iter() {
        let (shared, attempt, release) = (Arc::clone(shared), Arc::clone(attempt), Arc::clone(&release));
        // The caller gets its answer from the fastest nodes. `quiet` waits for the others.
        let leaving = Leaving::new(&shared);
        tokio::spawn(async move {
            let _leaving = leaving;
            let mut asked = pin!(shared.release_on(node, &attempt, Tell::Next));
            let on_reply = |ended| release.lock().on_reply(&shared, &attempt, node, ended, was_had);
            let ended = match timeout(shared.node_timeout, &mut asked).await {
                Ok(ended) => {
                    on_reply(ended);
                    ended
                }
                Err(_) => {
                    on_reply(Ended::Silent);
                    asked.await
                }
            };
            let only = Nodes::only(node);
            let mut course = attempt.course.lock();
            course.releasing = course.releasing.without(only);
            match ended {
                Ended::Released => course.released = course.released.and(only),
                Ended::Absent if course.late.has(node) => {
                    Figures::add(&shared.figures.undone_late);
                    undo(&shared, &attempt, node, Tell::Next);
                }
                Ended::Absent => {}
                Ended::Silent => undo(&shared, &attempt, node, Tell::Next),
            }
        });
    }
    answer.await.unwrap_or(Err(StoreError::Unknown))
}
