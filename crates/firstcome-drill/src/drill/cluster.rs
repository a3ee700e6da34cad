//! What a cluster of a drill share: a Redis and a database, started for it or of its own on ones that run, and a secret.

use super::chaos::DrillTarget;
use super::server::{KeyPair, Server, Stores};
use super::{EventArgs, draw_key};
use crate::database::{Named, OwnDatabase};
use crate::failure::Failure;
use crate::own_redis::OwnRedis;
use firstcome::Check;
use firstcome::cluster::{DeploymentSecret, Verified, migrate, verify};
use firstcome::sql::{DatabaseOptions, verify_auctions};
use std::path::Path;

/// The database that is started unless another one is named.
const DATABASE: &str = "postgres";

/// The servers of one drill. They are the drill's own until the nodes run over them, and may kill those that were started.
pub(crate) struct Backing {
    redis: OwnRedis,
    database: OwnDatabase,
    secret: String,
    count: u32,
    /// What the database is.
    version: String,
}

impl Backing {
    /// Starts them, or finds room on those that run; and makes the tables.
    pub(crate) async fn open(args: &EventArgs, scratch: &Path) -> Result<Self, Failure> {
        let named = Named::parse(args.sql.as_deref().unwrap_or(DATABASE)).map_err(Failure::Usage)?;
        let count = args.nodes.unwrap_or(1);
        let secret = format!("{}{}", draw_key()?, draw_key()?);
        let redis = OwnRedis::open(args.redis.as_deref(), scratch).await?;
        // What goes wrong is told; that something is then left behind too would only hide it.
        let database = match OwnDatabase::open_for(&named, scratch, count).await {
            Ok(database) => database,
            Err(error) => {
                let _ = redis.end().await;
                return Err(Failure::Unreachable(error));
            }
        };
        let mut backing = Self { redis, database, secret, count, version: String::new() };
        match backing.prepare().await {
            Ok(()) => Ok(backing),
            Err(error) => {
                let _ = backing.end().await;
                Err(Failure::Unreachable(error))
            }
        }
    }

    async fn prepare(&mut self) -> anyhow::Result<()> {
        self.version = self.database.version().await?;
        migrate(self.sql(), DatabaseOptions::default()).await?;
        Ok(())
    }

    /// The address of the database.
    pub(crate) fn sql(&self) -> &str {
        &self.database.url
    }

    /// Starts the nodes. Those that were started for the drill may be killed from then on.
    pub(crate) fn start_nodes(&mut self, scratch: &Path, keys: &KeyPair, proxied: bool) -> anyhow::Result<DrillTarget> {
        let stores = Stores::Shared {
            redis: self.redis.url.clone(),
            sql: self.database.url.clone(),
            secret: self.secret.clone(),
        };
        let nodes: anyhow::Result<Vec<Server>> =
            (0..self.count).map(|_| Server::start(scratch, keys, proxied, &stores)).collect();
        Ok(DrillTarget::of_nodes(nodes?, self.redis.take_server(), self.database.take_server()))
    }

    /// How a cluster there are, for the head of a report.
    pub(crate) fn nodes(&self) -> (String, String) {
        ("nodes".to_owned(), self.count.to_string())
    }

    /// What they keep everything in, for the same.
    pub(crate) fn store(&self) -> String {
        let redis = if self.redis.is_borrowed { "a Redis that runs" } else { "a Redis of its own" };
        format!("{} and {redis}", self.version)
    }

    /// What the servers hold, looked at by the checks that the library has, and what these could not look at.
    pub(crate) async fn sound(&self) -> Result<(Vec<Check>, Vec<(String, String)>), Failure> {
        let secret = DeploymentSecret::new(&self.secret);
        let Verified { mut checks, not_checked, .. } =
            verify(self.sql(), Some(&self.redis.url), secret).await.map_err(Failure::of_cluster)?;
        // A sale without members has no history to play again.
        checks.retain(|check| 0 < check.checked || 0 < check.breaches);
        Ok((checks, not_checked.into_iter().map(|what| ("not checked".to_owned(), what)).collect()))
    }

    /// Drops what is the drill's own on servers that run.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        let emptied = self.redis.end().await;
        self.database.end().await?;
        emptied
    }
}

/// The history of auctions, played again.
pub(crate) async fn auctions_are_sound(sql: &str) -> Result<Vec<Check>, Failure> {
    verify_auctions(sql).await.map_err(|error| Failure::Unreachable(error.into()))
}
