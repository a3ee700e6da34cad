//! Physical limits that the ways are compared with: what the servers do if a client asks for nothing else.

use crate::database::is_postgres;
use anyhow::Context;
use firstcome::edge::Stopwatch;
use firstcome::sql::Address;
use redis::aio::MultiplexedConnection;
use sqlx::{Connection, MySqlConnection, PgConnection};
use std::time::Duration;

/// A connection to a database, for one request after the other.
pub(crate) enum Bare {
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

const MAKE: &str = "CREATE TABLE IF NOT EXISTS field_bare (id bigint NOT NULL PRIMARY KEY, count bigint NOT NULL)";

impl Bare {
    /// Connects, and makes the table of the bare commits.
    pub(crate) async fn open(url: &str) -> anyhow::Result<Self> {
        let mut bare = if is_postgres(url) {
            Self::Postgres(PgConnection::connect_with(&Address::postgres(url)?).await?)
        } else {
            Self::MySql(MySqlConnection::connect_with(&Address::mysql(url)?).await?)
        };
        bare.run(MAKE).await?;
        bare.run("DELETE FROM field_bare").await?;
        bare.run("INSERT INTO field_bare VALUES (1, 0)").await?;
        Ok(bare)
    }

    async fn run(&mut self, statement: &'static str) -> anyhow::Result<()> {
        match self {
            Self::Postgres(connection) => {
                sqlx::query(statement).execute(connection).await?;
            }
            Self::MySql(connection) => {
                sqlx::query(statement).execute(connection).await?;
            }
        }
        Ok(())
    }

    async fn repeat(&mut self, statement: &'static str, time: Duration) -> anyhow::Result<f64> {
        let (watch, mut done) = (Stopwatch::start(), 0_u64);
        while watch.elapsed() < time {
            self.run(statement).await?;
            done += 1;
        }
        Ok(done as f64 / watch.elapsed().as_secs_f64())
    }

    /// Returns how many round trips one client makes per second, one after the other.
    pub(crate) async fn round_trips(&mut self, time: Duration) -> anyhow::Result<f64> {
        self.repeat("SELECT 1", time).await
    }

    /// Returns how many synced commits of one row one client makes per second, one after the other.
    pub(crate) async fn commits(&mut self, time: Duration) -> anyhow::Result<f64> {
        self.repeat("UPDATE field_bare SET count = count + 1 WHERE id = 1", time).await
    }
}

/// Returns how many SETs so many tasks make per second over one connection.
pub(crate) async fn redis_sets(url: &str, tasks: usize, time: Duration) -> anyhow::Result<f64> {
    let client = redis::Client::open(url).context("cannot read the Redis address")?;
    let connection = client.get_multiplexed_async_connection().await?;
    let watch = Stopwatch::start();
    let setters = (0..tasks).map(|task| tokio::spawn(set(connection.clone(), task, time)));
    let mut done = 0;
    for setter in setters.collect::<Vec<_>>() {
        done += setter.await??;
    }
    Ok(done as f64 / watch.elapsed().as_secs_f64())
}

async fn set(mut connection: MultiplexedConnection, task: usize, time: Duration) -> anyhow::Result<u64> {
    let key = format!("firstcome:bench:limit:{task}");
    let (watch, mut done) = (Stopwatch::start(), 0);
    while watch.elapsed() < time {
        redis::cmd("SET").arg(&key).arg(done).query_async::<()>(&mut connection).await?;
        done += 1;
    }
    Ok(done)
}
