//! The locks of databases: `pg_advisory_lock` of PostgreSQL, and `GET_LOCK` of MariaDB and MySQL.
//!
//! A wait blocks its connection, so each task has one.

use crate::database::is_postgres;
use anyhow::bail;
use firstcome::sql::Address;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Executor, MySql, MySqlPool, PgPool, Postgres};
use std::time::Duration;

/// The most connections of one process, so that four of them stay below the usual limit of a server.
const CONNECTIONS: u32 = 24;
/// The SQLSTATE of a wait that took longer than `lock_timeout`.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// A pool of connections to a database.
pub(super) enum DatabaseLocks {
    Postgres(PgPool),
    MySql(MySqlPool),
}

/// A held lock, which belongs to its connection.
pub(super) enum DatabaseHold {
    Postgres(PoolConnection<Postgres>, i64),
    MySql(PoolConnection<MySql>, String),
}

impl DatabaseLocks {
    /// Connects. A wait in PostgreSQL ends after ten seconds.
    pub(super) async fn open(url: &str) -> anyhow::Result<Self> {
        if !is_postgres(url) {
            let pool = MySqlPoolOptions::new().max_connections(CONNECTIONS);
            return Ok(Self::MySql(pool.connect_with(Address::mysql(url)?).await?));
        }
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).after_connect(|connection, _| {
            Box::pin(async move { connection.execute("SET lock_timeout = '10s'").await.map(drop) })
        });
        Ok(Self::Postgres(pool.connect_with(Address::postgres(url)?).await?))
    }

    /// Acquires the lock, or returns `None` when the time is over.
    pub(super) async fn acquire(&self, name: &str, wait: Duration) -> anyhow::Result<Option<DatabaseHold>> {
        match self {
            Self::Postgres(pool) => {
                let (mut connection, key) = (pool.acquire().await?, key_of(name));
                let locked = sqlx::query("SELECT pg_advisory_lock($1)").bind(key).execute(&mut *connection).await;
                match locked {
                    Ok(_) => Ok(Some(DatabaseHold::Postgres(connection, key))),
                    Err(error) => {
                        let code = error.as_database_error().and_then(|error| error.code());
                        if code.is_some_and(|code| code == LOCK_NOT_AVAILABLE) { Ok(None) } else { Err(error.into()) }
                    }
                }
            }
            Self::MySql(pool) => {
                let mut connection = pool.acquire().await?;
                let locked = sqlx::query_scalar("SELECT GET_LOCK(?, ?)").bind(name).bind(wait.as_secs_f64());
                let locked: Option<i64> = locked.fetch_one(&mut *connection).await?;
                Ok((locked == Some(1)).then(|| DatabaseHold::MySql(connection, name.to_owned())))
            }
        }
    }
}

impl DatabaseHold {
    pub(super) async fn release(self) -> anyhow::Result<()> {
        let released = match self {
            Self::Postgres(mut connection, key) => {
                let unlock = sqlx::query_scalar("SELECT pg_advisory_unlock($1)").bind(key);
                unlock.fetch_one(&mut *connection).await?
            }
            Self::MySql(mut connection, name) => {
                let unlock = sqlx::query_scalar("SELECT RELEASE_LOCK(?)").bind(name);
                let released: Option<i64> = unlock.fetch_one(&mut *connection).await?;
                released == Some(1)
            }
        };
        if released { Ok(()) } else { bail!("the database says that the lock was not held") }
    }
}

/// Returns the 64-bit key of a name: FNV-1a, which keeps the few names of a benchmark apart.
fn key_of(name: &str) -> i64 {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash.cast_signed()
}
