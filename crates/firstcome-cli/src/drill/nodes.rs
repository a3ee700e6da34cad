//! What many nodes of a drill share: a Redis and a database, started for it or of its own on ones that run, and a secret.

use super::chaos::Place;
use super::server::{KeyPair, Server, Stores};
use super::{EventArgs, draw_key};
use crate::database::{Named, OwnDatabase};
use crate::{Failure, fleet};
use anyhow::{Context, anyhow};
use firstcome::Check;
use firstcome::fleet::{DeploymentSecret, Verified, migrate, verify};
use firstcome::sql::{DatabaseOptions, verify_market};
use firstcome_servers::{Durability, Kind, Options, Server as StoreServer};
use redis::aio::MultiplexedConnection;
use std::path::Path;

/// The key that says that a database of Redis is taken by a drill.
const TAKEN: &str = "drill:taken";
/// The database that is started unless another one is named.
const DATABASE: &str = "postgres";
/// How many databases a Redis has that does not say.
const DATABASES: u32 = 16;

/// The servers of one drill.
pub(crate) struct Backing {
    redis: String,
    /// The address of the database.
    pub(crate) sql: String,
    secret: String,
    count: u32,
    /// What the database is.
    version: String,
    /// Until the nodes run over it, and may kill it.
    own_redis: Option<StoreServer>,
    database: OwnDatabase,
    /// The address of a database on a Redis that runs.
    borrowed: Option<String>,
}

impl Backing {
    /// Starts them, or finds room on those that run; and makes the tables.
    pub(crate) async fn open(args: &EventArgs, scratch: &Path) -> Result<Self, Failure> {
        let named = Named::parse(args.sql.as_deref().unwrap_or(DATABASE)).map_err(Failure::Usage)?;
        let count = args.nodes.unwrap_or(1);
        let (own_redis, borrowed) = match &args.redis {
            Some(url) => (None, Some(borrow(url).await?)),
            None => (Some(start_redis(scratch).await?), None),
        };
        let redis = own_redis.as_ref().map(StoreServer::url).or(borrowed.as_deref()).unwrap_or_default().to_owned();
        let database = OwnDatabase::open_for(&named, scratch, count).await.map_err(Failure::Unreachable)?;
        let sql = database.url.clone();
        let version = database.version().await?;
        let secret = format!("{}{}", draw_key()?, draw_key()?);
        let backing = Self { redis, sql, secret, count, version, own_redis, database, borrowed };
        match migrate(&backing.sql, DatabaseOptions::default()).await {
            Ok(_) => Ok(backing),
            Err(error) => {
                backing.end().await?;
                Err(Failure::Unreachable(error.into()))
            }
        }
    }

    /// Starts the nodes. Those that were started for the drill may be killed from then on.
    pub(crate) fn start_nodes(&mut self, scratch: &Path, keys: &KeyPair, proxied: bool) -> anyhow::Result<Place> {
        let stores = Stores::Shared { redis: self.redis.clone(), sql: self.sql.clone(), secret: self.secret.clone() };
        let nodes: anyhow::Result<Vec<Server>> =
            (0..self.count).map(|_| Server::start(scratch, keys, proxied, &stores)).collect();
        Ok(Place::of_nodes(nodes?, self.own_redis.take(), self.database.take_server()))
    }

    /// How many nodes there are, for the head of a report.
    pub(crate) fn nodes(&self) -> (String, String) {
        ("nodes".to_owned(), self.count.to_string())
    }

    /// What they keep everything in, for the same.
    pub(crate) fn store(&self) -> String {
        let redis = if self.borrowed.is_some() { "a Redis that runs" } else { "a Redis of its own" };
        format!("{} and {redis}", self.version)
    }

    /// What the servers hold, looked at by the checks that the library has, and what these could not look at.
    pub(crate) async fn sound(&self) -> Result<(Vec<Check>, Vec<(String, String)>), Failure> {
        let secret = DeploymentSecret::new(&self.secret);
        let Verified { mut checks, not_checked, .. } =
            verify(&self.sql, Some(&self.redis), secret).await.map_err(fleet::failure)?;
        // A sale without members has no history to play again.
        checks.retain(|check| 0 < check.checked || 0 < check.breaches);
        Ok((checks, not_checked.into_iter().map(|what| ("not checked".to_owned(), what)).collect()))
    }

    /// Drops what is the drill's own on servers that run.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        let emptied = match &self.borrowed {
            Some(url) => give_back(url).await,
            None => Ok(()),
        };
        self.database.end().await?;
        emptied
    }
}

/// The history of a market, played again.
pub(crate) async fn market_sound(sql: &str) -> Result<Vec<Check>, Failure> {
    verify_market(sql).await.map_err(|error| Failure::Unreachable(error.into()))
}

/// It writes before it answers, so that a kill by itself loses nothing: one that syncs once a second puts writes off while it
/// syncs. What is promised rests on the database, and other kills take all data away.
async fn start_redis(scratch: &Path) -> Result<StoreServer, Failure> {
    let options = Options::new(Durability::Durable).within(scratch);
    StoreServer::start(Kind::Redis, &options).await.map_err(|error| Failure::Unreachable(error.into()))
}

async fn connect(url: &str) -> anyhow::Result<MultiplexedConnection> {
    let client = redis::Client::open(url).map_err(|_| anyhow!("--redis is an address like redis://127.0.0.1:6379"))?;
    client.get_multiplexed_async_connection().await.context("the Redis of --redis cannot be used")
}

/// Finds an empty database on a Redis that runs, and marks it as taken; returns its address.
async fn borrow(url: &str) -> Result<String, Failure> {
    let wrong =
        || anyhow!("--redis is an address of one Redis, like redis://127.0.0.1:6379, and names no database of it");
    let (scheme, host) = url.split_once("://").ok_or_else(|| Failure::Usage(wrong()))?;
    let host = host.trim_end_matches('/');
    if !["redis", "rediss"].contains(&scheme) || host.contains(['/', '?']) {
        return Err(Failure::Usage(wrong()));
    }
    let mut connection = connect(url).await.map_err(Failure::Unreachable)?;
    let told: Result<Vec<String>, _> =
        redis::cmd("CONFIG").arg("GET").arg("databases").query_async(&mut connection).await;
    let count = told.ok().and_then(|told| told.get(1)?.parse().ok()).unwrap_or(DATABASES);
    // From behind: whoever uses one without thinking uses the first.
    for database in (0..count).rev() {
        let url = format!("{scheme}://{host}/{database}");
        let mut connection = connect(&url).await.map_err(Failure::Unreachable)?;
        let mut taking = redis::pipe();
        taking.atomic().cmd("DBSIZE").cmd("SET").arg(TAKEN).arg(1).arg("NX");
        let (keys, taken): (u64, Option<String>) =
            taking.query_async(&mut connection).await.context("a database of Redis").map_err(Failure::Unreachable)?;
        if keys == 0 {
            return Ok(url);
        }
        if taken.is_some() {
            // It is somebody else's: what was put there is taken away again.
            redis::cmd("DEL").arg(TAKEN).exec_async(&mut connection).await.context("a database of Redis")?;
        }
    }
    Err(Failure::Unreachable(anyhow!("no database of the Redis of --redis is empty")))
}

/// Empties it.
async fn give_back(url: &str) -> anyhow::Result<()> {
    let mut connection = connect(url).await?;
    redis::cmd("FLUSHDB").exec_async(&mut connection).await.context("the database of Redis that was used")
}
