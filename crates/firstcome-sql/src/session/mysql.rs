//! Named locks of MySQL (from 5.7) and MariaDB (from 10.0.2).
//!
//! Before those versions a session had one lock, and asking for another one gave the first one up; since then it may have
//! many, and one several times. Here each session has one at most, so both come to the same.

use super::super::address::mysql_server;
use super::super::{SqlError, SqlOptions, connect_to};
use firstcome_core::id::LockName;
use firstcome_core::lock::Fence;
use sha2::{Digest, Sha256};
use sqlx::mysql::{MySqlConnectOptions, MySqlRow};
use sqlx::{AssertSqlSafe, MySqlConnection, Row, raw_sql};
use std::fmt::Write as _;
use std::time::Duration;

const LOOK: &str = "SELECT CAST(CONNECTION_ID() AS SIGNED), VERSION()";

const MAKE_TABLE: &str = "CREATE TABLE IF NOT EXISTS firstcome_fence (\
     id tinyint NOT NULL PRIMARY KEY, last bigint NOT NULL) ENGINE=InnoDB";

const HAS_ROW: &str = "SELECT CAST(count(*) AS SIGNED) FROM firstcome_fence WHERE id = 1";

/// A number of its own for an operator that runs it, in one statement: the row is locked from the reading to the commit.
const DRAW: &str = "UPDATE firstcome_fence SET last = LAST_INSERT_ID(last + 1) WHERE id = 1";

/// What the server calls a lock. Names there have at most 64 characters (MySQL; 192 bytes in MariaDB), and upper and lower
/// case are the same: so it is a digest, of 120 bits.
#[derive(Clone)]
pub(super) struct Key(String);

impl Key {
    pub(super) fn of(name: &LockName) -> Self {
        let digest = Sha256::new().chain_update(b"firstcome/lock/").chain_update(name.as_str()).finalize();
        let mut key = "fc:".to_owned();
        for byte in &digest[..DIGEST_BYTES] {
            // Writing to a `String` cannot fail.
            let _ = write!(key, "{byte:02x}");
        }
        Self(key)
    }
}

const DIGEST_BYTES: usize = 30;
const _: () = assert!("fc:".len() + 2 * DIGEST_BYTES <= 64);

pub(super) struct MySqlSession {
    connection: MySqlConnection,
    /// Which session of the server we are. Another one does not have our locks.
    id: i64,
    is_mariadb: bool,
}

impl MySqlSession {
    pub(super) async fn open(options: &MySqlConnectOptions, times: &SqlOptions) -> Result<Self, SqlError> {
        let connection = connect_to(options, times, &mysql_server(options)).await?;
        let mut session = Self { connection, id: 0, is_mariadb: false };
        let rows = session.ask(LOOK).await?;
        session.id = first(&rows, 0)?;
        session.is_mariadb = first::<String>(&rows, 1)?.contains("MariaDB");
        // What is cut off after a time is called otherwise in either; in MariaDB it is every statement.
        let limit = if session.is_mariadb { "max_statement_time" } else { "max_execution_time" };
        session.ask(&format!("SET SESSION autocommit = 1, innodb_lock_wait_timeout = 5, {limit} = 0")).await?;
        Ok(session)
    }

    /// Makes sure that there are fences to be drawn.
    pub(super) async fn prepare(&mut self) -> Result<(), SqlError> {
        // Only made if need be: most programs may not.
        let is_there = match self.ask(HAS_ROW).await {
            Ok(rows) => first::<i64>(&rows, 0)? == 1,
            Err(SqlError::Broken { .. }) => {
                self.ask(MAKE_TABLE).await?;
                false
            }
            Err(error) => return Err(error),
        };
        if !is_there {
            self.ask("INSERT IGNORE INTO firstcome_fence (id, last) VALUES (1, 0)").await?;
        }
        Ok(())
    }

    /// Two round trips if it is granted, else one. After an error the session may hold the lock: it must be closed.
    pub(super) async fn take(&mut self, key: &Key, wait: Duration) -> Result<Option<Fence>, SqlError> {
        let Key(key) = key;
        // MariaDB takes fractions; MySQL would round them, to nothing even. There our own clock ends the wait.
        let seconds = if self.is_mariadb {
            format!("{}.{:06}", wait.as_secs(), wait.subsec_micros())
        } else {
            (wait.as_secs() + u64::from(0 < wait.subsec_nanos())).to_string()
        };
        let sql = format!("SELECT CAST(GET_LOCK('{key}', {seconds}) AS SIGNED), CAST(CONNECTION_ID() AS SIGNED)");
        let rows = self.ask(&sql).await?;
        match first::<Option<i64>>(&rows, 0)? {
            Some(1) => {}
            Some(_) => return Ok(None),
            // Out of memory, or the thread was killed.
            None => return Err(SqlError::unreachable("GET_LOCK was given up")),
        }
        self.check_id(first(&rows, 1)?)?;
        // On its own: within one statement the row of the counter would be locked while the lock is waited for.
        let drawn = raw_sql(DRAW).execute(&mut self.connection).await;
        let drawn = drawn.map_err(|error| SqlError::in_transaction(&error))?.last_insert_id();
        // 0 if the row is gone.
        let fence = Fence::new(drawn).ok_or_else(|| SqlError::broken("the table firstcome_fence gives no number"))?;
        Ok(Some(fence))
    }

    /// Whether it was held until now.
    pub(super) async fn give_back(&mut self, key: &Key) -> Result<bool, SqlError> {
        let rows = self.ask(&format!("SELECT CAST(RELEASE_LOCK('{}') AS SIGNED)", key.0)).await?;
        // 0 if it is another session's, NULL if it is no process's.
        Ok(first::<Option<i64>>(&rows, 0)? == Some(1))
    }

    /// Fails if the session is not the one that it was.
    pub(super) async fn ping(&mut self) -> Result<(), SqlError> {
        let rows = self.ask("SELECT CAST(CONNECTION_ID() AS SIGNED)").await?;
        self.check_id(first(&rows, 0)?)
    }

    pub(super) const fn id(&self) -> u64 {
        self.id.cast_unsigned()
    }

    /// Whether the server would wait longer than this: MySQL knows whole seconds only.
    pub(super) const fn rounds(&self, wait: Duration) -> bool {
        !self.is_mariadb && 0 < wait.subsec_nanos()
    }

    fn check_id(&self, id: i64) -> Result<(), SqlError> {
        if id == self.id { Ok(()) } else { Err(super::pooled()) }
    }

    /// What stands in it is ours, numbers and digests.
    async fn ask(&mut self, sql: &str) -> Result<Vec<MySqlRow>, SqlError> {
        let asked = raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all(&mut self.connection).await;
        asked.map_err(|error| SqlError::in_transaction(&error))
    }
}

fn first<'r, T>(rows: &'r [MySqlRow], column: usize) -> Result<T, SqlError>
where
    T: sqlx::Decode<'r, sqlx::MySql> + sqlx::Type<sqlx::MySql>,
{
    let row = rows.first().ok_or(sqlx::Error::RowNotFound);
    row.and_then(|row| row.try_get(column)).map_err(|error| SqlError::in_transaction(&error))
}
