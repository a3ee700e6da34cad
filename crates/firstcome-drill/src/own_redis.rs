//! A Redis that a benchmark or a drill has for itself: a server that it starts, or an empty database of one that runs.

use crate::failure::Failure;
use anyhow::{Context, anyhow};
use firstcome_test_servers::{Durability, Kind, Options, Server};
use redis::aio::MultiplexedConnection;
use std::path::Path;

/// The key that says that a database of Redis is taken.
const TAKEN: &str = "firstcome:taken";
/// How many databases a Redis has that does not say.
const DATABASES: u32 = 16;

/// An empty Redis that no other client uses. A database of one that runs is emptied by [`Self::end`]; a started server ends with
/// this value.
pub struct OwnRedis {
    /// The address, with the number of the database.
    pub url: String,
    /// Kept for its end.
    server: Option<Server>,
    /// Whether it is a database of a Redis that runs; if not, this value started the server.
    pub is_borrowed: bool,
}

impl OwnRedis {
    /// Finds one at this address, or starts one whose files are in `scratch`.
    ///
    /// What is started writes before it answers, so that a kill by itself loses nothing: one that syncs once a second puts
    /// writes off while it syncs.
    pub async fn open(running: Option<&str>, scratch: &Path) -> Result<Self, Failure> {
        if let Some(url) = running {
            return Ok(Self { url: borrow(url).await?, server: None, is_borrowed: true });
        }
        let options = Options::new(Durability::Durable).within(scratch);
        let server = Server::start(Kind::Redis, &options).await.map_err(|error| Failure::Unreachable(error.into()))?;
        Ok(Self { url: server.url().to_owned(), server: Some(server), is_borrowed: false })
    }

    /// Hands over the server that was started, if one was: the server ends with that value.
    pub const fn take_server(&mut self) -> Option<Server> {
        self.server.take()
    }

    /// Empties the database, if the Redis ran before.
    pub async fn end(self) -> anyhow::Result<()> {
        if self.is_borrowed {
            let mut connection = connect(&self.url).await?;
            redis::cmd("FLUSHDB").exec_async(&mut connection).await.context("the database of Redis that was used")?;
        }
        Ok(())
    }
}

async fn connect(url: &str) -> anyhow::Result<MultiplexedConnection> {
    let client = redis::Client::open(url).map_err(|_| anyhow!("--redis is an address like redis://127.0.0.1:6379"))?;
    client.get_multiplexed_async_connection().await.context("the Redis of --redis cannot be used")
}

/// Finds an empty database on a Redis that runs, and marks it as taken; returns its address.
async fn borrow(url: &str) -> Result<String, Failure> {
    let wrong =
        || anyhow!("--redis is an address of one Redis, like redis://127.0.0.1:6379, and names no database of it");
    let host = url.strip_prefix("redis://").ok_or_else(|| Failure::Usage(wrong()))?.trim_end_matches('/');
    if host.contains(['/', '?']) {
        return Err(Failure::Usage(wrong()));
    }
    let mut connection = connect(url).await.map_err(Failure::Unreachable)?;
    let told: Result<Vec<String>, _> =
        redis::cmd("CONFIG").arg("GET").arg("databases").query_async(&mut connection).await;
    let count = told.ok().and_then(|told| told.get(1)?.parse().ok()).unwrap_or(DATABASES);
    // From behind: a person that uses one without thinking uses the first.
    for database in (0..count).rev() {
        let url = format!("redis://{host}/{database}");
        let mut connection = connect(&url).await.map_err(Failure::Unreachable)?;
        let mut taking = redis::pipe();
        taking.atomic().cmd("DBSIZE").cmd("SET").arg(TAKEN).arg(1).arg("NX");
        let (keys, taken): (u64, Option<String>) =
            taking.query_async(&mut connection).await.context("a database of Redis").map_err(Failure::Unreachable)?;
        if keys == 0 {
            return Ok(url);
        }
        if taken.is_some() {
            // It is another person's: what was put there is taken away again.
            redis::cmd("DEL").arg(TAKEN).exec_async(&mut connection).await.context("a database of Redis")?;
        }
    }
    Err(Failure::Unreachable(anyhow!("no database of the Redis of --redis is empty")))
}
