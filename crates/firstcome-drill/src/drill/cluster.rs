//! The servers that a drill's nodes share: a Redis and a database, started or borrowed, and a secret.

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

/// The database that is started unless `--sql` names another one.
const DATABASE: &str = "postgres";

/// The servers of one drill. The drill owns the started ones until it hands them to the target, which may kill them.
pub(crate) struct Backing {
    redis: OwnRedis,
    database: OwnDatabase,
    secret: String,
    count: u32,
    /// The product and version of the database.
    version: String,
}

impl Backing {
    /// Starts the servers, or prepares databases on running ones, and creates the tables.
    pub(crate) async fn open(args: &EventArgs, scratch: &Path) -> Result<Self, Failure> {
        let named = Named::parse(args.sql.as_deref().unwrap_or(DATABASE)).map_err(Failure::Usage)?;
        let count = args.nodes.unwrap_or(1);
        let secret = format!("{}{}", draw_key()?, draw_key()?);
        let redis = OwnRedis::open(args.redis.as_deref(), scratch).await?;
        // Reports the first error; a failure to clean up would only hide it.
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

    /// Starts the nodes. From then on the target may kill the servers that the drill started.
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

    /// Returns the number of nodes, for the head of a report.
    pub(crate) fn nodes(&self) -> (String, String) {
        ("nodes".to_owned(), self.count.to_string())
    }

    /// Returns the stores of the nodes, for the head of a report.
    pub(crate) fn store(&self) -> String {
        let redis = if self.redis.is_borrowed { "a Redis that runs" } else { "a Redis of its own" };
        format!("{} and {redis}", self.version)
    }

    /// Runs the library's checks on the servers. Returns the checks, and what could not be checked.
    pub(crate) async fn sound(&self) -> Result<(Vec<Check>, Vec<(String, String)>), Failure> {
        let secret = DeploymentSecret::new(&self.secret);
        let Verified { mut checks, not_checked, .. } =
            verify(self.sql(), Some(&self.redis.url), secret).await.map_err(Failure::of_cluster)?;
        // A sale without members has no history of points to check.
        checks.retain(|check| 0 < check.checked || 0 < check.breaches);
        Ok((checks, not_checked.into_iter().map(|what| ("not checked".to_owned(), what)).collect()))
    }

    /// Drops the drill's databases on running servers.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        let emptied = self.redis.end().await;
        self.database.end().await?;
        emptied
    }
}

/// Checks the history of auctions in a database by playing it again.
pub(crate) async fn auctions_are_sound(sql: &str) -> Result<Vec<Check>, Failure> {
    verify_auctions(sql).await.map_err(|error| Failure::Unreachable(error.into()))
}
