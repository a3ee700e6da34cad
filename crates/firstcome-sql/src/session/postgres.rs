//! Advisory locks of PostgreSQL, from version 14.

use super::super::address::postgres_server;
use super::super::{SqlError, SqlOptions, connect_to};
use firstcome_core::id::LockName;
use firstcome_core::lock::Fence;
use sha2::{Digest, Sha256};
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, PgConnection, Row, raw_sql};
use std::time::Duration;

/// The first version that notices while it waits that its client is gone.
const VERSION_MIN: i32 = 140_000;

/// What a session needs, as far as the server knows the setting: it waits as long as we say, it is not ended for doing
/// nothing while it holds a lock, it soon notices that we are gone (else a lock would stay with the dead for hours), and a
/// fence that was told is on disk.
const SETTINGS: &str = "
    SELECT set_config(s.name, wanted.setting, false) FROM pg_settings s JOIN (VALUES
        ('statement_timeout', '0'), ('transaction_timeout', '0'), ('idle_session_timeout', '0'),
        ('idle_in_transaction_session_timeout', '0'), ('client_connection_check_interval', '500'),
        ('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3')
    ) AS wanted (name, setting) ON wanted.name = s.name;
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

const LOOK: &str = "SELECT pg_backend_pid(), current_setting('server_version_num')::int";

/// Whether there is a sequence, and it will do: one that is cached per session gives later holders smaller numbers.
const SEQUENCE: &str = "
    SELECT seqcache = 1 AND NOT seqcycle AND 0 < seqincrement AND seqmax < 9007199254740992
    FROM pg_sequence WHERE seqrelid = to_regclass('firstcome_fence')";

const MAKE_SEQUENCE: &str =
    "CREATE SEQUENCE IF NOT EXISTS firstcome_fence AS bigint MAXVALUE 9007199254740991 CACHE 1 NO CYCLE";

/// A lock's number among all advisory locks of the database.
#[derive(Clone, Copy)]
pub(super) struct Key(i64);

impl Key {
    /// 64 bits of a digest: two of 2^32 names share one with a chance of one half, two given names with one of 2^64. They
    /// would exclude each other, and nothing worse.
    pub(super) fn of(name: &LockName) -> Self {
        let digest = Sha256::new().chain_update(b"firstcome/lock/").chain_update(name.as_str()).finalize();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        Self(i64::from_be_bytes(first))
    }
}

pub(super) struct PgSession {
    connection: PgConnection,
    /// Which process of the server serves us. Another one does not have our locks.
    backend: i32,
}

impl PgSession {
    pub(super) async fn open(options: &PgConnectOptions, times: &SqlOptions) -> Result<Self, SqlError> {
        let connection = connect_to(options, times, &postgres_server(options)).await?;
        let mut session = Self { connection, backend: 0 };
        let rows = session.ask(LOOK).await?;
        let (backend, version): (i32, i32) = (last(&rows, 0)?, last(&rows, 1)?);
        if version < VERSION_MIN {
            let (version, wanted) = (version / 10_000, VERSION_MIN / 10_000);
            return Err(SqlError::broken(format!("PostgreSQL {version}; from {wanted} on will do")));
        }
        session.backend = backend;
        session.ask(SETTINGS).await?;
        Ok(session)
    }

    /// Makes sure that there are fences to be drawn.
    pub(super) async fn prepare(&mut self) -> Result<(), SqlError> {
        if self.ask(SEQUENCE).await?.is_empty() {
            // Two that make it at once may collide: then it is there.
            if let Err(error) = raw_sql(MAKE_SEQUENCE).execute(&mut self.connection).await
                && !is_collision(&error)
            {
                return Err(SqlError::in_transaction(&error));
            }
        }
        let rows = self.ask(SEQUENCE).await?;
        if last(&rows, 0)? {
            return Ok(());
        }
        let wanted = "CACHE 1, NO CYCLE, a positive INCREMENT, and MAXVALUE below 2^53";
        Err(SqlError::broken(format!("the sequence firstcome_fence must have {wanted}")))
    }

    /// One round trip in either case. After an error the session may hold the lock: it must be closed.
    pub(super) async fn take(&mut self, key: Key, wait: Duration) -> Result<Option<Fence>, SqlError> {
        let Key(key) = key;
        let sql = if wait.is_zero() {
            format!(
                "SELECT CASE WHEN pg_try_advisory_lock({key}) THEN nextval('firstcome_fence') END, pg_backend_pid()"
            )
        } else {
            // Rounded up: 0 would be for ever.
            let wait_ms = wait.as_micros().div_ceil(1_000);
            format!(
                "SET lock_timeout = {wait_ms}; SELECT pg_advisory_lock({key}); \
                 SELECT nextval('firstcome_fence'), pg_backend_pid()"
            )
        };
        let rows = match self.ask(&sql).await {
            // Something else than the lock may have been waited for in vain: then the lock is ours, and no process knows.
            Err(SqlError::Serialization { .. }) => {
                self.ask("SELECT pg_advisory_unlock_all(), pg_backend_pid()").await?;
                return Ok(None);
            }
            told => told?,
        };
        self.check_backend(last(&rows, 1)?)?;
        let fence: Option<i64> = last(&rows, 0)?;
        fence.map(|fence| u64::try_from(fence).ok().and_then(Fence::new).ok_or_else(used_up)).transpose()
    }

    /// Whether it was held until now.
    pub(super) async fn give_back(&mut self, key: Key) -> Result<bool, SqlError> {
        let Key(key) = key;
        let rows = self.ask(&format!("SELECT pg_advisory_unlock({key})")).await?;
        last(&rows, 0)
    }

    /// Fails if the session is not the one that it was.
    pub(super) async fn ping(&mut self) -> Result<(), SqlError> {
        let rows = self.ask("SELECT pg_backend_pid()").await?;
        self.check_backend(last(&rows, 0)?)
    }

    pub(super) const fn id(&self) -> u64 {
        self.backend.cast_unsigned() as u64
    }

    fn check_backend(&self, backend: i32) -> Result<(), SqlError> {
        if backend == self.backend { Ok(()) } else { Err(super::pooled()) }
    }

    /// Sends as one message, so that a pooler gives it to one server. What stands in it is ours and numbers.
    async fn ask(&mut self, sql: &str) -> Result<Vec<PgRow>, SqlError> {
        let asked = raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all(&mut self.connection).await;
        asked.map_err(|error| SqlError::in_transaction(&error))
    }
}

fn is_collision(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| matches!(&*code, "23505" | "42P07"))
}

fn used_up() -> SqlError {
    SqlError::broken("the sequence firstcome_fence gives numbers out of range")
}

/// A column of the last row: those before are of statements that only do something.
fn last<'r, T>(rows: &'r [PgRow], column: usize) -> Result<T, SqlError>
where
    T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    let row = rows.last().ok_or(sqlx::Error::RowNotFound);
    row.and_then(|row| row.try_get(column)).map_err(|error| SqlError::in_transaction(&error))
}
