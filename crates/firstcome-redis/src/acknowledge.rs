//! Runs scripts whose answers count only when enough replicas have what they wrote.
//!
//! `WAIT` does not wait inside a script, so it follows the script on the same connection: it waits for the writes of
//! that connection. Meanwhile the server reads nothing more from it. So such scripts use a separate connection. One
//! `WAIT` serves all scripts before it: a script that comes while a `WAIT` is under way goes with the next one. That
//! costs one more command per batch, and under load far less than one per script.

use super::connection::{CommandSocket, Put};
use super::error::{LinkError, READ_ONLY};
use super::link::Counters;
use super::socket::Times;
use firstcome_store::batcher::{Batcher, Service};
use redis::{Cmd, Pipeline, Value};
use std::num::NonZeroU8;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::coop::unconstrained;
use tokio::time::timeout;

/// How many replicas must have a grant or a renewal before it counts.
///
/// # Promises
/// - A grant or a renewal was in the memory of that many replicas before it was reported. A primary that its replicas
///   left grants nothing and renews nothing, so its holders lose their locks within the lease.
/// - Bounded: without the replicas a grant or a renewal is unknown after the time-out, or twice that if another batch
///   was under way. The client then repeats the request, or releases what it may hold, as after any lost answer.
///
/// # Not promised
/// - That nothing is lost. A replica that has the write must be the one that is promoted. That is certain only if all
///   replicas have it, or if every replica that can be promoted has it. Sentinels prefer the most advanced replica
///   among those that they reach. A replica that has the write in memory may lose it in a restart. Use the fence where
///   the guarded store must be certain.
/// - Waiting for releases: a later grant follows them on the same connection, and a lost release ends with its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaAck {
    at_least: NonZeroU8,
    within: Duration,
}

impl ReplicaAck {
    /// Requires this many replicas, within 500 ms. If there are never that many replicas, nothing is granted.
    pub const fn by(at_least: NonZeroU8) -> Self {
        Self { at_least, within: Duration::from_millis(500) }
    }

    /// Sets how long the server waits for the replicas, in whole milliseconds, at least one. Renewals begin after a
    /// third of a lease, so set at most a quarter of the shortest lease.
    #[must_use]
    pub const fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// At least 1 ms, because 0 would wait for ever.
    fn within_ms(self) -> u64 {
        u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX).clamp(1, 3_600_000)
    }

    fn waiting(self) -> Cmd {
        let mut command = redis::cmd("WAIT");
        command.arg(self.at_least.get()).arg(self.within_ms());
        command
    }
}

/// Which answers of a script need which acknowledgement.
#[derive(Clone, Copy)]
pub(crate) struct Needs<'a> {
    pub(crate) ack: ReplicaAck,
    /// Selects the answers that need it. The others are reported at once.
    pub(crate) which: &'a (dyn Fn(&Value) -> bool + Sync),
}

/// How many replicas have a batch, once that is known.
type Acked = Option<Result<u64, String>>;

/// The answer to a script, which arrives before the acknowledgement of its batch.
struct Answered {
    value: Result<Value, LinkError>,
    acked: watch::Receiver<Acked>,
}

pub(crate) struct Job {
    command: Cmd,
    put: Put,
    told: oneshot::Sender<Answered>,
}

/// Scripts that wait for the end of the current batch. Their number is bounded by their callers, which each wait for
/// the answer.
pub(crate) type Batches = Batcher<Job>;

impl CommandSocket {
    /// Sends a command with the next batch and its `WAIT`. Too few replicas in time turn an answer that must be
    /// acknowledged into [`LinkError::Unknown`].
    pub(crate) async fn ask_acknowledged(
        self: &Arc<Self>,
        command: &Cmd,
        put: Put,
        needs: Needs<'_>,
        times: Times,
        counters: &Arc<Counters>,
    ) -> Result<Value, LinkError> {
        let (told, answered) = oneshot::channel();
        // A batcher without a bound accepts every job.
        if matches!(self.batches.push(Job { command: command.clone(), put, told }), Ok(Service::Wanted)) {
            tokio::spawn(Arc::clone(self).serve(needs.ack, times, Arc::clone(counters)));
        }
        // The channel closed without an answer: the runtime has ended, at an unknown time.
        let ended = || LinkError::Unknown { says: "the runtime that kept the link up has ended".to_owned() };
        let Answered { value, mut acked } = answered.await.map_err(|_| ended())?;
        let value = value?;
        if !(needs.which)(&value) {
            return Ok(value);
        }
        let acked = acked.wait_for(Option::is_some).await.map_err(|_| ended())?.clone();
        match acked {
            Some(Ok(replicas)) if u64::from(needs.ack.at_least.get()) <= replicas => Ok(value),
            Some(Ok(replicas)) => {
                let says = format!("{replicas} replicas have it, and {} are needed", needs.ack.at_least);
                Err(LinkError::Unknown { says })
            }
            Some(Err(says)) => Err(LinkError::Unknown { says }),
            None => Err(ended()),
        }
    }

    /// Sends batches until no job is left.
    async fn serve(self: Arc<Self>, ack: ReplicaAck, times: Times, counters: Arc<Counters>) {
        for mut jobs in self.batches.serve() {
            // Skip jobs whose callers dropped their futures.
            jobs.retain(|job| !job.told.is_closed());
            if jobs.is_empty() {
                continue;
            }
            let (shown, acked) = watch::channel(None);
            if !self.is_up() {
                let says = "the connection was lost before anything was sent";
                tell(jobs, &acked, |_| Err(LinkError::not_connected(says)));
                continue;
            }
            counters.requests.fetch_add(jobs.len() as u64 + 1, Ordering::Relaxed);
            // Unconstrained and in this order: the scripts are sent, then the `WAIT`, and nothing comes between.
            let scripts = self.run_batch(jobs, times, &acked);
            let replicas = self.count_replicas(ack, times);
            let ((), replicas) = unconstrained(async { tokio::join!(biased; scripts, replicas) }).await;
            shown.send_replace(Some(replicas));
        }
    }

    /// Runs the scripts of a batch, and sends their answers to the callers.
    async fn run_batch(&self, jobs: Vec<Job>, times: Times, acked: &watch::Receiver<Acked>) {
        let mut scripts = Pipeline::with_capacity(jobs.len());
        for job in &jobs {
            if job.put == Put::Asking {
                scripts.cmd("ASKING");
            }
            scripts.add_command(job.command.clone());
        }
        let count = scripts.len();
        let mut connection = self.socket.connection();
        match timeout(times.answer, connection.send_packed_commands(&scripts, 0, count)).await {
            Ok(Ok(answers)) => {
                let mut answers = answers.into_iter();
                tell(jobs, acked, |put| {
                    if put == Put::Asking {
                        answers.next();
                    }
                    self.judged(answers.next().unwrap_or(Value::Nil))
                });
            }
            Ok(Err(error)) => {
                self.socket.lost().declare();
                let error = LinkError::from(error);
                tell(jobs, acked, |_| Err(error.clone()));
            }
            Err(_) => {
                // Nothing else uses this connection, so no other command got an answer either.
                self.socket.lost().declare();
                tell(jobs, acked, |_| Err(LinkError::Unknown { says: "no answer in time".to_owned() }));
            }
        }
    }

    /// Returns how many replicas have the writes before it.
    async fn count_replicas(&self, ack: ReplicaAck, times: Times) -> Result<u64, String> {
        let mut connection = self.socket.connection();
        let (patience, waiting) = (times.answer + Duration::from_millis(ack.within_ms()), ack.waiting());
        let answer = timeout(patience, connection.send_packed_command(&waiting)).await;
        let Ok(answer) = answer else {
            self.socket.lost().declare();
            return Err("the replicas did not confirm in time".to_owned());
        };
        match answer.map_err(LinkError::from).and_then(|value| self.judged(value)) {
            Ok(Value::Int(replicas)) => Ok(u64::try_from(replicas).unwrap_or_default()),
            Ok(other) => Err(format!("the server answers {other:?} to WAIT")),
            Err(error) => {
                // The server has become a replica, or the connection is broken.
                self.socket.lost().declare();
                Err(error.to_string())
            }
        }
    }

    /// Interprets an answer that came over this connection.
    pub(crate) fn judged(&self, value: Value) -> Result<Value, LinkError> {
        let answer = value.extract_error().map_err(LinkError::from);
        // A primary that has become a replica keeps its connections, so reconnect to find the new primary. Callers that
        // still wait for an answer over the old connection get it.
        if matches!(&answer, Err(LinkError::Unavailable { code, .. }) if code == READ_ONLY) {
            self.socket.lost().declare();
        }
        if answer.is_ok() && self.socket.lost().is_left() {
            // The server may not know that it was replaced. The new primary does not have what it did.
            let says = "another server has taken the place of the one that answered".to_owned();
            return Err(LinkError::Unknown { says });
        }
        answer
    }
}

/// Sends each caller its answer.
fn tell(jobs: Vec<Job>, acked: &watch::Receiver<Acked>, mut answer: impl FnMut(Put) -> Result<Value, LinkError>) {
    for job in jobs {
        let value = answer(job.put);
        // The caller may have dropped its future.
        let _ = job.told.send(Answered { value, acked: acked.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_never_told_to_wait_for_ever() {
        let ack = ReplicaAck::by(NonZeroU8::MIN);
        assert_eq!(ack.within(Duration::ZERO).within_ms(), 1);
        assert_eq!(ack.within(Duration::from_micros(1_900)).within_ms(), 1);
        assert_eq!(ack.within(Duration::MAX).within_ms(), 3_600_000);
        assert_eq!(ack.within_ms(), 500);
    }
}
