//! Renews a hold, and restores it on nodes that have lost it.

use super::attempt::Attempt;
use super::scripts::{Tell, Unclear};
use super::{Figures, Shared, elapsed_us, ending, now, surely_over};
use firstcome_core::lock::Fence;
use firstcome_core::lock::quorum::{Nodes, Renewal, RenewalStep, Renewed};
use firstcome_store::StoreError;
use parking_lot::Mutex;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// One renewal of one hold.
struct Renewing {
    shared: Arc<Shared>,
    attempt: Arc<Attempt>,
    number: u64,
    begun: Instant,
    lease_ms: u32,
    fence: Fence,
    told: Mutex<Option<oneshot::Sender<Result<bool, StoreError>>>>,
}

/// Renews a hold on all nodes. Returns whether the hold goes on; if not, it is given up.
pub(super) async fn renew(shared: &Arc<Shared>, attempt: &Arc<Attempt>, lease_ms: u32) -> Result<bool, StoreError> {
    let (told, answer) = oneshot::channel();
    let number = shared.attempts.fetch_add(1, Ordering::Relaxed);
    let (begun, fence) = {
        let mut course = attempt.course.lock();
        let (Some(fence), Some(until)) = (course.fence, course.until) else { return Ok(false) };
        let begun = now();
        let left_us = u64::try_from(until.saturating_duration_since(begun).as_micros()).unwrap_or(u64::MAX);
        let Some(renewal) = Renewal::new(shared.quorum, lease_ms, left_us) else { return Ok(false) };
        course.renewals.insert(number, renewal);
        course.over_at = course.over_at.max(surely_over(lease_ms));
        (begun, fence)
    };
    let renewing = Arc::new(Renewing {
        shared: Arc::clone(shared),
        attempt: Arc::clone(attempt),
        number,
        begun,
        lease_ms,
        fence,
        told: Mutex::new(Some(told)),
    });
    for node in shared.quorum.all().iter() {
        let renewing = Arc::clone(&renewing);
        tokio::spawn(async move { renewing.ask(node).await });
    }
    drop(renewing);
    answer.await.unwrap_or(Err(StoreError::Unknown))
}

impl Renewing {
    async fn ask(&self, node: usize) {
        let mut asked = pin!(self.shared.renew_on(node, &self.attempt, self.lease_ms, self.fence));
        let renewed = match timeout(self.shared.node_timeout, &mut asked).await {
            Ok(renewed) => renewed,
            Err(_) => {
                self.on_reply(node, Renewed::Silent);
                asked.await
            }
        };
        if matches!(renewed, Ok(Renewed::Yes) | Err(Unclear)) {
            let mut course = self.attempt.course.lock();
            course.may_have = course.may_have.and(Nodes::only(node));
        }
        self.on_reply(node, renewed.unwrap_or(Renewed::Silent));
    }

    fn on_reply(&self, node: usize, renewed: Renewed) {
        let Self { shared, attempt, .. } = self;
        let mut course = attempt.course.lock();
        let Some(renewal) = course.renewals.get_mut(&self.number) else { return };
        let answer = match renewal.on_reply(node, renewed, elapsed_us(self.begun)) {
            RenewalStep::Wait => return,
            RenewalStep::Renewed { left_us } => {
                let until = now() + Duration::from_micros(left_us);
                course.until = course.until.max(Some(until));
                Ok(true)
            }
            // The caller may try again until the hold ends.
            RenewalStep::Failed => Err(StoreError::Unknown),
            RenewalStep::Lost => {
                ending::give_up(shared, attempt, &mut course);
                Ok(false)
            }
            RenewalStep::Undo => {
                Figures::add(&shared.figures.undone_late);
                return ending::undo(shared, attempt, node, Tell::Nobody);
            }
        };
        self.told.lock().take().map(|told| told.send(answer));
    }
}

impl Drop for Renewing {
    /// Forgets the renewal once all nodes have answered.
    fn drop(&mut self) {
        self.attempt.course.lock().renewals.remove(&self.number);
    }
}
