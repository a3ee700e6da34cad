//! Scripts that count only when so many replicas have what they wrote.
//!
//! Within a script `WAIT` does not wait, so it follows the script, on the same connection: it waits for what that connection
//! has written. Meanwhile the server reads nothing more from there. So such scripts have a connection of their own, which
//! nothing else stands behind, and one `WAIT` does for all that went before it: a process that comes while one is under way goes
//! with the next. That is one command more for each batch, and under load far less than one for each script.

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
/// - What is told as granted or renewed was in the memory of so many replicas before it was told. A primary that was left by
///   its replicas grants nothing and renews nothing, so the holder there loses it within the lease.
/// - Bounded: without the replicas a grant or a renewal is unknown after the time-out, twice that if another batch was under
///   way. The request is repeated, or what it may hold is given back, as after any answer that was lost.
///
/// # Not promised
/// - That nothing is lost. A replica that has it must be the one that takes the primary's place: sure only if all have it, or
///   if every replica that can be promoted has it. Sentinels prefer the one that is furthest, among those that they reach. And a replica
///   that has it in memory may lose it with a restart. Use the fence where the guarded store must be sure.
/// - Releases are not waited for: a later grant is behind them, and one that is lost ends with its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaAck {
    at_least: NonZeroU8,
    within: Duration,
}

impl ReplicaAck {
    /// So many replicas, within 500 ms. More than there are is more than there will ever be: nothing is granted.
    pub const fn by(at_least: NonZeroU8) -> Self {
        Self { at_least, within: Duration::from_millis(500) }
    }

    /// How long the server waits for them; at least a millisecond, whole ones. Renewals begin after a third of a lease, so a
    /// quarter of the shortest lease is long.
    #[must_use]
    pub const fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// 0 would be for ever.
    fn within_ms(self) -> u64 {
        u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX).clamp(1, 3_600_000)
    }

    fn waiting(self) -> Cmd {
        let mut command = redis::cmd("WAIT");
        command.arg(self.at_least.get()).arg(self.within_ms());
        command
    }
}

/// How a script must be acknowledged.
#[derive(Clone, Copy)]
pub(crate) struct Needs<'a> {
    pub(crate) ack: ReplicaAck,
    /// Which answers must be. The others are told at once.
    pub(crate) which: &'a (dyn Fn(&Value) -> bool + Sync),
}

/// How many replicas have a batch, once that is known.
type Acked = Option<Result<u64, String>>;

/// The answer to a script, which comes before it is known who has it.
struct Answered {
    value: Result<Value, LinkError>,
    acked: watch::Receiver<Acked>,
}

pub(crate) struct Job {
    command: Cmd,
    put: Put,
    told: oneshot::Sender<Answered>,
}

/// Scripts that wait until the batch that is under way is acknowledged. Their callers bound them: each waits for its answer.
pub(crate) type Batches = Batcher<Job>;

impl CommandSocket {
    /// Hands a command over, with all that came while the last batch was under way, and a `WAIT` behind them. Without enough
    /// replicas in time an answer that must be acknowledged is unknown.
    pub(crate) async fn ask_acknowledged(
        self: &Arc<Self>,
        command: &Cmd,
        put: Put,
        needs: Needs<'_>,
        times: Times,
        counters: &Arc<Counters>,
    ) -> Result<Value, LinkError> {
        let (told, answered) = oneshot::channel();
        // A batcher without a bound takes every job.
        if matches!(self.batches.push(Job { command: command.clone(), put, told }), Ok(Service::Wanted)) {
            tokio::spawn(Arc::clone(self).serve(needs.ack, times, Arc::clone(counters)));
        }
        // Without a word: the runtime has ended, which may have been at any time.
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

    /// Sends batches until no process waits.
    async fn serve(self: Arc<Self>, ack: ReplicaAck, times: Times, counters: Arc<Counters>) {
        for mut jobs in self.batches.serve() {
            // A process that has gone away before its turn need not be asked for.
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
            // Unconstrained and in this order: the scripts are handed over, then the `WAIT`, and nothing comes between.
            let scripts = self.run_batch(jobs, times, &acked);
            let replicas = self.count_replicas(ack, times);
            let ((), replicas) = unconstrained(async { tokio::join!(biased; scripts, replicas) }).await;
            shown.send_replace(Some(replicas));
        }
    }

    /// Runs scripts, and tells what they answer.
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
                // Nothing else goes this way, so no process was answered.
                self.socket.lost().declare();
                tell(jobs, acked, |_| Err(LinkError::Unknown { says: "no answer in time".to_owned() }));
            }
        }
    }

    /// How many replicas have what went before.
    async fn count_replicas(&self, ack: ReplicaAck, times: Times) -> Result<u64, String> {
        let mut connection = self.socket.connection();
        let (patience, waiting) = (times.answer + Duration::from_millis(ack.within_ms()), ack.waiting());
        let answer = timeout(patience, connection.send_packed_command(&waiting)).await;
        let Ok(answer) = answer else {
            self.socket.lost().declare();
            return Err("no word of the replicas in time".to_owned());
        };
        match answer.map_err(LinkError::from).and_then(|value| self.judged(value)) {
            Ok(Value::Int(replicas)) => Ok(u64::try_from(replicas).unwrap_or_default()),
            Ok(other) => Err(format!("the server answers {other:?} to WAIT")),
            Err(error) => {
                // It is a replica itself by now, or the connection is broken.
                self.socket.lost().declare();
                Err(error.to_string())
            }
        }
    }

    /// What an answer means that came over this connection.
    pub(crate) fn judged(&self, value: Value) -> Result<Value, LinkError> {
        let answer = value.extract_error().map_err(LinkError::from);
        // A primary that has become a replica keeps its connections. A new one finds out, and where the name of the server
        // leads by now. Who still waits for an answer over the old one gets it.
        if matches!(&answer, Err(LinkError::Unavailable { code, .. }) if code == READ_ONLY) {
            self.socket.lost().declare();
        }
        if answer.is_ok() && self.socket.lost().is_left() {
            // It may not know that it was replaced: what it did is nothing to the process that stands in its place.
            let says = "another server has taken the place of the one that answered".to_owned();
            return Err(LinkError::Unknown { says });
        }
        answer
    }
}

/// Tells each job what came of it.
fn tell(jobs: Vec<Job>, acked: &watch::Receiver<Acked>, mut answer: impl FnMut(Put) -> Result<Value, LinkError>) {
    for job in jobs {
        let value = answer(job.put);
        // A process that asked may have gone.
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
