//! One node of a cluster: rooms, coupons and locks over Redis, and everything that lasts in a database.

use crate::failure::{Failure, Outcome};
use crate::keys::{self, KeysAndFile, ShownOn};
use crate::output::{table, wants_table, write_out};
use crate::store_address::SqlAddressArgs;
use crate::transport::TransportArgs;
use clap::Args;
use comfy_table::Cell;
use firstcome::cluster::{Cluster, ClusterOptions, DeploymentSecret, HANDLES, migrate};
use firstcome::sql::{Address, DatabaseOptions, SqlAuctions, Tables};
use firstcome::{HandleKey, Locks};
use firstcome_server::{App, Config};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long an export or import may be idle before the database ends it.
const TRANSFER_IDLE: Duration = Duration::from_secs(600);

/// The servers of a deployment.
pub(crate) struct Servers {
    pub(crate) redis: String,
    pub(crate) sql: String,
    pub(crate) secret: DeploymentSecret,
}

impl Servers {
    /// Opens a deployment for an export or import. Its tables must exist.
    pub(crate) fn open_for_transfer(&self, runtime: &Runtime) -> Result<Cluster, Failure> {
        let mut options = ClusterOptions::default();
        options.database.tables = Tables::Require;
        // The program at the other end of a pipe may be slow.
        options.database.idle_timeout = TRANSFER_IDLE;
        let cluster = runtime.block_on(Cluster::open(&self.redis, &self.sql, self.secret.clone(), options));
        cluster.map_err(Failure::of_cluster)
    }
}

/// An open node: the parts of an [`App`].
pub(crate) struct Node {
    pub(crate) cluster: Cluster,
    auctions: SqlAuctions,
    locks: Locks,
    handle_key: HandleKey,
    /// The addresses of the servers, without passwords.
    pub(crate) place: String,
}

impl Node {
    /// Opens a node. The tables of the database must exist.
    pub(crate) async fn open(servers: &Servers) -> Result<Self, Failure> {
        let Servers { redis, sql, secret } = servers;
        let mut options = ClusterOptions::default();
        options.database.tables = Tables::Require;
        let database = options.database.clone();
        let cluster = Cluster::open(redis, sql, secret.clone(), options).await.map_err(Failure::of_cluster)?;
        cluster.check_gates().await.map_err(Failure::of_cluster)?;
        let auctions =
            SqlAuctions::open_with(sql, database).await.map_err(|error| Failure::Unreachable(error.into()))?;
        let locks = Locks::redis(redis).await.map_err(|error| Failure::Unreachable(error.into()))?;
        let handle_key = HandleKey::new(cluster.secret(HANDLES).await.map_err(Failure::of_cluster)?);
        // For the start message only: one server may be down while the others serve.
        let known = cluster.link().servers().await.unwrap_or_default();
        let known: Vec<String> = known.iter().map(|facts| facts.address.clone()).collect();
        let place = format!("redis://{} and {:?}", known.join(","), Address::parse(sql)?);
        Ok(Self { cluster, auctions, locks, handle_key, place })
    }

    /// Returns the keys of the deployment's callers. Creates them if it has none; only the node that created them
    /// shows them, or leaves them in this directory.
    pub(crate) async fn keys(&self, data: &Path, shown_on: ShownOn) -> Result<KeysAndFile, Failure> {
        keys::of_deployment(&self.cluster, data, shown_on).await
    }

    /// Builds the service over this node.
    pub(crate) fn app(self, config: Config) -> App {
        App::of_cluster(self.cluster, self.auctions, config, self.locks, self.handle_key)
    }
}

#[derive(Args)]
pub(crate) struct MigrateArgs {
    /// The address of a user who may create tables
    #[command(flatten)]
    sql: SqlAddressArgs,
    #[command(flatten)]
    transport: TransportArgs,
    /// Print JSON also on a terminal
    #[arg(long)]
    json: bool,
}

/// Migrates all tables of a database to this version, and prints what changed.
pub(crate) fn run_migrate(args: &MigrateArgs) -> Outcome {
    let sql = args.transport.settled()?.sql(&args.sql.read_required()?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let migrated = runtime.block_on(migrate(&sql, DatabaseOptions::default()));
    let migrated = migrated.map_err(|error| Failure::Unreachable(error.into()))?;
    if wants_table(args.json) {
        let mut table = table(&["Tables of", ">Version before", ">Version now"]);
        for part in &migrated {
            table.add_row([Cell::new(part.part), Cell::new(part.from), Cell::new(part.to)]);
        }
        write_out(format!("{table}\n").as_bytes())?;
    } else {
        let parts: Vec<_> =
            migrated.iter().map(|part| json!({"part": part.part, "from": part.from, "to": part.to})).collect();
        write_out(format!("{:#}\n", json!({"parts": parts})).as_bytes())?;
    }
    Ok(())
}
