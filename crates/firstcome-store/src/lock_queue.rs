//! The bounded queue between the callers of a lock store and its one writer, which commits what waits in one transaction.
//!
//! # Invariants
//! - The writer takes jobs in the order of arrival, and each of them once.
//! - Newcomers, which are acquires and views, leave room for holders: a renewal or a release finds a place while they find none.
//! - A job is served even if its caller has gone.

use crate::error::{Fault, FaultKind, StoreError};
use crate::lock::TimedLockView;
use firstcome_core::id::LockName;
use firstcome_core::lock::{Answer, LockTable, Push, Step, bucket_of, take, view};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Jobs that wait for the writer at most; more are refused as overloaded.
const QUEUE_LENGTH: usize = 4_096;

/// Acquires and views among them at most.
const NEWCOMERS_MAX: usize = QUEUE_LENGTH / 4 * 3;

/// Jobs in one transaction at most: other processes wait for its end.
const BATCH_MAX: usize = 256;

/// The callers' end of the queue.
pub struct LockQueue {
    jobs: Sender<Queued>,
    newcomers: Arc<Semaphore>,
}

firstcome_core::debug_by_name!(LockQueue);

/// The writer's end of the queue.
pub struct LockJobs {
    queue: Receiver<Queued>,
    taken: Vec<Queued>,
}

firstcome_core::debug_by_name!(LockJobs);

/// A job in the queue.
struct Queued {
    job: LockJob,
    /// The permit of an acquire or a view. Dropped when the writer takes the job, whether or not the caller still waits.
    _place: Option<OwnedSemaphorePermit>,
}

/// A request to the writer, and where its caller waits for the answer.
pub enum LockJob {
    /// A step of the rules.
    Take(Step, oneshot::Sender<Result<Answer, StoreError>>),
    /// A look at one lock.
    View(LockName, oneshot::Sender<Result<TimedLockView, StoreError>>),
}

firstcome_core::debug_by_name!(LockJob);

/// What a job came to.
pub enum LockOutcome {
    /// Of [`LockJob::Take`].
    Taken(Answer),
    /// Of [`LockJob::View`].
    Viewed(TimedLockView),
}

firstcome_core::debug_by_name!(LockOutcome);

/// An empty queue, by its two ends.
pub fn lock_queue() -> (LockQueue, LockJobs) {
    let (jobs, queue) = channel(QUEUE_LENGTH);
    (LockQueue { jobs, newcomers: Arc::new(Semaphore::new(NEWCOMERS_MAX)) }, LockJobs { queue, taken: Vec::new() })
}

impl LockQueue {
    /// Takes a step: see [`LockStore::take`](crate::LockStore::take).
    pub async fn take(&self, step: Step) -> Result<Answer, StoreError> {
        self.ask(|reply| LockJob::Take(step, reply)).await
    }

    /// Looks at a lock: see [`LockStore::view`](crate::LockStore::view).
    pub async fn view(&self, name: &LockName) -> Result<TimedLockView, StoreError> {
        let name = name.clone();
        self.ask(|reply| LockJob::View(name, reply)).await
    }

    async fn ask<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> LockJob,
    ) -> Result<T, StoreError> {
        const OVERLOADED: StoreError = StoreError::busy(Duration::from_millis(100));
        let (reply, answered) = oneshot::channel();
        let job = job(reply);
        let place = match &job {
            LockJob::Take(Step::Acquire { .. }, _) | LockJob::View(..) => {
                Some(Arc::clone(&self.newcomers).try_acquire_owned().map_err(|_| OVERLOADED)?)
            }
            LockJob::Take(..) => None,
        };
        match self.jobs.try_send(Queued { job, _place: place }) {
            Ok(()) => answered.await.unwrap_or(Err(StoreError::Unknown)),
            Err(TrySendError::Full(_)) => Err(OVERLOADED),
            Err(TrySendError::Closed(_)) => {
                let fault = Fault::new(FaultKind::Stopped, "the writer of locks has stopped");
                Err(StoreError::Faulted(Arc::new(fault)))
            }
        }
    }
}

impl LockJobs {
    /// Waits for jobs, and takes all that wait, at most 256. `None` after the last caller's end is dropped. Cancel-safe.
    pub async fn next_batch(&mut self) -> Option<Vec<LockJob>> {
        self.queue.recv_many(&mut self.taken, BATCH_MAX).await;
        self.batch()
    }

    /// As [`Self::next_batch`], on a thread of its own.
    pub fn next_batch_blocking(&mut self) -> Option<Vec<LockJob>> {
        self.queue.blocking_recv_many(&mut self.taken, BATCH_MAX);
        self.batch()
    }

    fn batch(&mut self) -> Option<Vec<LockJob>> {
        let batch: Vec<LockJob> = self.taken.drain(..).map(|queued| queued.job).collect();
        if batch.is_empty() { None } else { Some(batch) }
    }
}

impl LockJob {
    /// The bucket whose rows the job needs.
    pub fn bucket(&self) -> u8 {
        match self {
            Self::Take(Step::Acquire { name, .. } | Step::Release { name, .. }, _) | Self::View(name, _) => {
                bucket_of(name)
            }
            Self::Take(Step::Renew { bucket, .. } | Step::Beat { bucket, .. }, _) => *bucket,
        }
    }

    /// Applies the rules to a table. The second part is what the step grants to others.
    pub fn run(&self, table: &mut impl LockTable, now_us: u64) -> (LockOutcome, Vec<Push>) {
        match self {
            Self::Take(step, _) => {
                let (answer, pushes) = take(table, step, now_us);
                (LockOutcome::Taken(answer), pushes)
            }
            Self::View(name, _) => {
                let view = view(table, name, now_us);
                (LockOutcome::Viewed(TimedLockView { view, now_us }), Vec::new())
            }
        }
    }

    fn reply(self, outcome: Result<LockOutcome, StoreError>) {
        // A caller that has gone hears nothing.
        match (self, outcome) {
            (Self::Take(_, reply), Ok(LockOutcome::Taken(answer))) => drop(reply.send(Ok(answer))),
            (Self::View(_, reply), Ok(LockOutcome::Viewed(view))) => drop(reply.send(Ok(view))),
            (Self::Take(_, reply), Err(error)) => drop(reply.send(Err(error))),
            (Self::View(_, reply), Err(error)) => drop(reply.send(Err(error))),
            (Self::Take(..) | Self::View(..), Ok(_)) => unreachable!("the outcome of another kind of job"),
        }
    }
}

/// Answers every job of a batch, after its commit. After an error none of them was done, or it is unknown.
pub fn reply_all(batch: Vec<LockJob>, outcomes: Result<Vec<LockOutcome>, StoreError>) {
    match outcomes {
        Ok(outcomes) => batch.into_iter().zip(outcomes).for_each(|(job, outcome)| job.reply(Ok(outcome))),
        Err(error) => batch.into_iter().for_each(|job| job.reply(Err(error.clone()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::draw_hasher;
    use firstcome_core::lock::MemoryLockTable;

    fn name(number: usize) -> LockName {
        LockName::parse(&format!("lock-{number}")).unwrap()
    }

    #[tokio::test]
    async fn a_holder_finds_a_place_while_newcomers_find_none() {
        let (queue, mut jobs) = lock_queue();
        let queue = Arc::new(queue);
        let mut views = tokio::task::JoinSet::new();
        for number in 0..=NEWCOMERS_MAX {
            let queue = Arc::clone(&queue);
            views.spawn(async move { queue.view(&name(number)).await.map(drop) });
        }
        // The others wait for a writer, so the first to end is the one that is refused.
        let refused = tokio::time::timeout(Duration::from_secs(30), views.join_next()).await;
        let refused = refused.expect("a newcomer too many is refused").unwrap().unwrap();
        assert!(matches!(refused, Err(StoreError::Busy { .. })), "{refused:?}");
        let renew = Step::Renew { bucket: 0, renewals: Vec::new() };
        let mut renewed = Box::pin(queue.take(renew));
        tokio::select! {
            biased;
            done = &mut renewed => panic!("the renewal found no place: {:?}", done.err()),
            () = std::future::ready(()) => {}
        }
        let mut table = MemoryLockTable::new(draw_hasher());
        let mut served = 0;
        while served <= NEWCOMERS_MAX {
            let batch = jobs.next_batch().await.unwrap();
            assert!(batch.len() <= BATCH_MAX);
            served += batch.len();
            let outcomes = batch.iter().map(|job| job.run(&mut table, 1).0).collect();
            reply_all(batch, Ok(outcomes));
        }
        renewed.await.unwrap();
        while let Some(view) = views.join_next().await {
            view.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn each_job_of_a_failed_batch_hears_the_error_and_the_end_of_the_queue_ends_the_writer() {
        let (queue, mut jobs) = lock_queue();
        let (lock, other) = (name(1), name(2));
        let serve = async {
            let batch = jobs.next_batch().await.unwrap();
            assert_eq!(batch.len(), 2, "what waits is one batch");
            reply_all(batch, Err(StoreError::Unknown));
        };
        let (one, two, ()) = tokio::join!(queue.view(&lock), queue.view(&other), serve);
        assert!(matches!((one, two), (Err(StoreError::Unknown), Err(StoreError::Unknown))));
        drop(queue);
        assert!(jobs.next_batch().await.is_none());
    }
}
