//! The one task of a process that writes: it takes what has arrived, and commits it in one transaction.

use super::super::{SqlError, SqlOptions, connect};
use super::notify::{LockNotifier, notify};
use super::page::{Page, Wants};
use super::rows::{self, Keep};
use firstcome_core::id::LockName;
use firstcome_core::lock::{Answer, Push, Renewal, Step, bucket_of, take, view};
use firstcome_store::StoreError;
use firstcome_store::{LockEvent, TimedLockView};
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, PgConnection, raw_sql};
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;

/// Steps in one transaction at most: others who need the same buckets wait as long as it takes.
const BATCH_MAX: usize = 256;

/// How often a batch is tried that others were preferred to, or whose connection had ended before.
const TRIES: u32 = 3;

/// What is asked of the writer. A process that asked may have gone: the step is taken all the same.
pub(super) enum Job {
    Take(Step, oneshot::Sender<Result<Answer, StoreError>>),
    View(LockName, oneshot::Sender<Result<TimedLockView, StoreError>>),
}

/// A job in the queue.
pub(super) struct Queued {
    pub(super) job: Job,
    /// Free again when the job is taken out, whether or not a process still waits for its answer.
    pub(super) _place: Option<OwnedSemaphorePermit>,
}

enum Outcome {
    Taken(Answer),
    Seen(TimedLockView),
}

impl Job {
    /// A process that asked may have gone: then no process is told.
    fn tell(self, outcome: Result<Outcome, StoreError>) {
        match (self, outcome) {
            (Self::Take(_, told), Ok(Outcome::Taken(answer))) => drop(told.send(Ok(answer))),
            (Self::View(_, told), Ok(Outcome::Seen(seen))) => drop(told.send(Ok(seen))),
            (Self::Take(_, told), Err(error)) => drop(told.send(Err(error))),
            (Self::View(_, told), Err(error)) => drop(told.send(Err(error))),
            (Self::Take(..) | Self::View(..), Ok(_)) => unreachable!("another kind of answer than was asked for"),
        }
    }

    fn bucket(&self) -> u8 {
        match self {
            Self::Take(Step::Acquire { name, .. } | Step::Release { name, .. }, _) | Self::View(name, _) => {
                bucket_of(name)
            }
            Self::Take(Step::Renew { bucket, .. } | Step::Beat { bucket, .. }, _) => *bucket,
        }
    }

    /// Adds what the rules usually ask for.
    fn want(&self, wants: &mut Wants) {
        let bucket = self.bucket();
        wants.buckets.insert(bucket);
        match self {
            Self::View(name, _) => wants.lock(bucket, name),
            Self::Take(Step::Acquire { name, waiter, .. }, _) => {
                wants.lock(bucket, name);
                wants.places.insert((name.clone(), waiter.request));
                wants.lives.insert((bucket, waiter.request.client));
                wants.voids.insert((bucket, waiter.request));
            }
            Self::Take(Step::Release { name, request, .. }, _) => {
                wants.lock(bucket, name);
                wants.places.insert((name.clone(), *request));
            }
            Self::Take(Step::Renew { renewals, .. }, _) => {
                renewals.iter().for_each(|Renewal { name, .. }| wants.lock(bucket, name));
            }
            Self::Take(Step::Beat { client, names, .. }, _) => {
                wants.lives.insert((bucket, *client));
                names.iter().for_each(|name| wants.lock(bucket, name));
            }
        }
    }
}

pub(super) struct Writer {
    pub(super) options: PgConnectOptions,
    pub(super) times: SqlOptions,
    pub(super) post: Arc<LockNotifier>,
    pub(super) connection: Option<PgConnection>,
}

/// Connects, with the settings that steps rely on as far as the server knows them: no process waits for ever for a bucket, no process
/// who stands still keeps one for ever, and what was told is on disk.
pub(super) async fn open(options: &PgConnectOptions, times: &SqlOptions) -> Result<PgConnection, SqlError> {
    let mut connection: PgConnection = connect(options, times).await?;
    let wait_ms = times.answer_timeout.as_millis().max(1);
    let settings = format!(
        "SELECT set_config(s.name, wanted.setting, false) FROM pg_settings s JOIN (VALUES \
         ('lock_timeout', '{wait_ms}'), ('idle_in_transaction_session_timeout', '{wait_ms}'), \
         ('statement_timeout', '0'), ('idle_session_timeout', '0'), \
         ('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3')) \
         AS wanted (name, setting) ON wanted.name = s.name; \
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    );
    ask(&mut connection, times, settings).await?;
    Ok(connection)
}

/// Sends what does not commit, as one message.
async fn ask(connection: &mut PgConnection, times: &SqlOptions, sql: String) -> Result<Vec<PgRow>, SqlError> {
    // The server may wait for a bucket as long as that, and answers then.
    match timeout(2 * times.answer_timeout, raw_sql(AssertSqlSafe(sql)).fetch_all(connection)).await {
        Ok(rows) => rows.map_err(|error| SqlError::in_transaction(&error)),
        Err(_) => Err(SqlError::late_in_transaction()),
    }
}

impl Writer {
    /// Serves until no process can ask any more.
    pub(super) async fn run(mut self, mut queue: Receiver<Queued>) {
        let mut queued = Vec::new();
        while 0 < queue.recv_many(&mut queued, BATCH_MAX).await {
            let batch: Vec<Job> = queued.drain(..).map(|queued| queued.job).collect();
            match self.serve(&batch).await {
                Ok((outcomes, pushes)) => {
                    for (job, outcome) in batch.into_iter().zip(outcomes) {
                        job.tell(Ok(outcome));
                    }
                    for push in pushes {
                        self.post.tell(push.grant.request.client, LockEvent::Push(push));
                    }
                }
                Err(error) => {
                    let error = StoreError::from(error);
                    batch.into_iter().for_each(|job| job.tell(Err(error.clone())));
                }
            }
        }
    }

    /// Takes all steps, or none. The pushes are those for this process.
    async fn serve(&mut self, batch: &[Job]) -> Result<(Vec<Outcome>, Vec<Push>), SqlError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let was_open = self.connection.is_some();
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => open(&self.options, &self.times).await?,
            };
            match self.transact(&mut connection, batch).await {
                Ok(done) => {
                    self.connection = Some(connection);
                    return Ok(done);
                }
                // The connection is closed, and the transaction with it. Nothing was done in either case.
                Err(SqlError::Serialization { .. }) if tries < TRIES => {}
                Err(SqlError::Unavailable { .. }) if was_open => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn transact(
        &self,
        connection: &mut PgConnection,
        batch: &[Job],
    ) -> Result<(Vec<Outcome>, Vec<Push>), SqlError> {
        let mut wants = Wants::default();
        batch.iter().for_each(|job| job.want(&mut wants));
        let only_looks = batch.iter().all(|job| matches!(job, Job::View(..)));
        // No matter what the server's default is: each statement must see what was committed before it began.
        let mut begin = if only_looks { "" } else { "BEGIN ISOLATION LEVEL READ COMMITTED; " };
        let keep = if only_looks { Keep::Free } else { Keep::Out };
        let (before, after, outcomes, pushes) = loop {
            let rows = ask(connection, &self.times, format!("{begin}{}", rows::read(&wants, keep))).await?;
            begin = "";
            let before = rows::page(&wants, &rows)?;
            let mut after = before.clone();
            let (outcomes, pushes) = take_all(&mut after, batch);
            if !after.has_missed(&mut wants) {
                break (before, after, outcomes, pushes);
            }
        };
        if only_looks {
            return Ok((outcomes, Vec::new()));
        }
        let (here, elsewhere): (Vec<Push>, Vec<Push>) =
            pushes.into_iter().partition(|push| self.post.is_here(push.grant.request.client));
        let mut sql = rows::write(&before, &after);
        elsewhere.iter().for_each(|push| sql.push_str(&notify(push)));
        sql.push_str("COMMIT");
        match timeout(self.times.answer_timeout, raw_sql(AssertSqlSafe(sql)).execute(connection)).await {
            Ok(Ok(_)) => Ok((outcomes, here)),
            Ok(Err(error)) => Err(SqlError::at_commit(&error)),
            Err(_) => Err(SqlError::late_at_commit()),
        }
    }
}

fn take_all(page: &mut Page, batch: &[Job]) -> (Vec<Outcome>, Vec<Push>) {
    let (mut outcomes, mut all_pushes) = (Vec::with_capacity(batch.len()), Vec::new());
    let now_us = page.now_us;
    for job in batch {
        let mut table = page.table(job.bucket());
        outcomes.push(match job {
            Job::Take(step, _) => {
                let (answer, pushes) = take(&mut table, step, now_us);
                all_pushes.extend(pushes);
                Outcome::Taken(answer)
            }
            Job::View(name, _) => Outcome::Seen(TimedLockView { view: view(&table, name, now_us), now_us }),
        });
    }
    (outcomes, all_pushes)
}
