//! An own Redis for one benchmark or drill: a server that it starts, or an empty database of a running one.

use crate::failure::Failure;
use anyhow::{Context, anyhow};
use firstcome_test_servers::{Durability, Kind, Options, Server};
use redis::aio::MultiplexedConnection;
use std::path::Path;

/// The key that marks a database of Redis as taken.
const TAKEN: &str = "firstcome:taken";
/// The assumed number of databases of a Redis that does not report it.
const DATABASES: u32 = 16;

/// An empty Redis that no other client uses. [`Self::end`] empties a borrowed database; a started server ends with
/// this value.
pub struct OwnRedis {
    /// The address, with the number of the database.
    pub url: String,
    /// Kept alive until this value is dropped.
    server: Option<Server>,
    /// Whether it is a database of a running Redis; otherwise this value started the server.
    pub is_borrowed: bool,
}

impl OwnRedis {
    /// Borrows a database of the Redis at this address, or starts a Redis with its files in `scratch`.
    ///
    /// A started Redis syncs each write before it answers, so that a kill alone loses nothing. A Redis that syncs once
    /// a second delays writes while it syncs.
    pub async fn open(running: Option<&str>, scratch: &Path) -> Result<Self, Failure> {
        if let Some(url) = running {
            return Ok(Self { url: borrow(url).await?, server: None, is_borrowed: true });
        }
        let options = Options::new(Durability::Durable).within(scratch);
        let server = Server::start(Kind::Redis, &options).await.map_err(|error| Failure::Unreachable(error.into()))?;
        Ok(Self { url: server.url().to_owned(), server: Some(server), is_borrowed: false })
    }

    /// Hands over the started server, if there is one: the server ends with that value.
    pub const fn take_server(&mut self) -> Option<Server> {
        self.server.take()
    }

    /// Empties the database, if it is borrowed.
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

/// Finds an empty database of a running Redis, marks it as taken, and returns its address.
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
    // Starts from the last database: an application that does not choose uses the first.
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
            // It is in use: removes the mark again.
            redis::cmd("DEL").arg(TAKEN).exec_async(&mut connection).await.context("a database of Redis")?;
        }
    }
    Err(Failure::Unreachable(anyhow!("no database of the Redis of --redis is empty")))
}
