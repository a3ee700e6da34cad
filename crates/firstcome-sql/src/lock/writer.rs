//! The one task of a process that writes: it takes what has arrived, and commits it in one transaction.

use super::super::address::postgres_server;
use super::super::{SqlError, SqlOptions, connect_to};
use super::notify::{LockNotifier, notify};
use super::page::{Page, Wants};
use super::rows::{self, Keep};
use firstcome_core::lock::{Push, Renewal, Step};
use firstcome_store::lock_queue::{LockJob, LockJobs, LockOutcome, reply_all};
use firstcome_store::{LockEvent, StoreError};
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, PgConnection, raw_sql};
use std::sync::Arc;
use tokio::time::timeout;

/// How often a batch is tried that others were preferred to, or whose connection had ended before.
const TRIES: u32 = 3;

/// Adds the rows that the rules usually ask for.
fn want(job: &LockJob, wants: &mut Wants) {
    let bucket = job.bucket();
    wants.buckets.insert(bucket);
    match job {
        LockJob::View(name, _) => wants.lock(bucket, name),
        LockJob::Take(Step::Acquire { name, waiter, .. }, _) => {
            wants.lock(bucket, name);
            wants.places.insert((name.clone(), waiter.request));
            wants.lives.insert((bucket, waiter.request.client));
            wants.voids.insert((bucket, waiter.request));
        }
        LockJob::Take(Step::Release { name, request, .. }, _) => {
            wants.lock(bucket, name);
            wants.places.insert((name.clone(), *request));
        }
        LockJob::Take(Step::Renew { renewals, .. }, _) => {
            renewals.iter().for_each(|Renewal { name, .. }| wants.lock(bucket, name));
        }
        LockJob::Take(Step::Beat { client, names, .. }, _) => {
            wants.lives.insert((bucket, *client));
            names.iter().for_each(|name| wants.lock(bucket, name));
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
    let mut connection: PgConnection = connect_to(options, times, &postgres_server(options)).await?;
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
    /// Serves until the callers' end of the queue is gone.
    pub(super) async fn run(mut self, mut jobs: LockJobs) {
        while let Some(batch) = jobs.next_batch().await {
            let done = self.serve(&batch).await.map_err(StoreError::from);
            let (outcomes, pushes) =
                done.map_or_else(|error| (Err(error), Vec::new()), |(out, pushes)| (Ok(out), pushes));
            reply_all(batch, outcomes);
            for push in pushes {
                self.post.tell(push.grant.request.client, LockEvent::Push(push));
            }
        }
    }

    /// Takes all steps, or none. The pushes are those for this process.
    async fn serve(&mut self, batch: &[LockJob]) -> Result<(Vec<LockOutcome>, Vec<Push>), SqlError> {
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
        batch: &[LockJob],
    ) -> Result<(Vec<LockOutcome>, Vec<Push>), SqlError> {
        let mut wants = Wants::default();
        batch.iter().for_each(|job| want(job, &mut wants));
        let only_looks = batch.iter().all(|job| matches!(job, LockJob::View(..)));
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

fn take_all(page: &mut Page, batch: &[LockJob]) -> (Vec<LockOutcome>, Vec<Push>) {
    let (mut outcomes, mut all_pushes) = (Vec::with_capacity(batch.len()), Vec::new());
    let now_us = page.now_us;
    for job in batch {
        let (outcome, pushes) = job.run(&mut page.table(job.bucket()), now_us);
        outcomes.push(outcome);
        all_pushes.extend(pushes);
    }
    (outcomes, all_pushes)
}
