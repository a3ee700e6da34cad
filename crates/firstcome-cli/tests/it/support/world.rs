//! The servers of one deployment, for nodes of it.

use super::machine_has;
use super::program::{PROGRAM, command, firstcome};
use firstcome_test_servers::{Durability, Kind, Options, Server as Database};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The secret of the tests' deployments. No answer may repeat its first word.
pub(crate) const SECRET: &str = "s3cret of a deployment that nobody needs to guess";

/// A durable Redis and a durable database, and a directory in which nothing says anything about firstcome.
pub(crate) struct World {
    directory: TempDir,
    runtime: Runtime,
    pub(crate) redis: Database,
    pub(crate) sql: Database,
}

impl World {
    /// Starts both. `None`, and a word about it, where there is none; in CI they must be there.
    pub(crate) fn start(kind: Kind) -> Option<Self> {
        for kind in [Kind::Redis, kind] {
            if !machine_has(&kind.to_string(), Database::is_installed(kind)) {
                return None;
            }
        }
        let runtime = Runtime::new().expect("a runtime");
        let options = Options::new(Durability::Durable);
        let [redis, sql] = [Kind::Redis, kind].map(|kind| runtime.block_on(Database::start(kind, &options)));
        let directory = tempfile::tempdir().expect("a directory");
        Some(Self { directory, runtime, redis: redis.expect("it starts"), sql: sql.expect("it starts") })
    }

    /// The directory.
    pub(crate) fn here(&self) -> &Path {
        self.directory.path()
    }

    /// A node that is about to start at these servers.
    pub(crate) fn node_at(&self, redis: &str, sql: &str) -> Command {
        self.node_on("127.0.0.1:0", redis, sql)
    }

    /// [`Self::node_at`] that listens at this address.
    pub(crate) fn node_on(&self, listen: &str, redis: &str, sql: &str) -> Command {
        let mut serve = command(PROGRAM, self.here());
        serve.args(["serve", "--listen", listen, "--redis", redis, "--sql", sql]);
        serve.env("FIRSTCOME_SECRET", SECRET);
        serve
    }

    /// A node that is about to start.
    pub(crate) fn node(&self) -> Command {
        self.node_at(self.redis.url(), self.sql.url())
    }

    /// Stops the database, copies its files and starts it again.
    pub(crate) fn keep_sql(&mut self) -> firstcome_test_servers::ServerCopy {
        let kept = self.runtime.block_on(self.sql.keep_copy()).expect("a copy");
        self.runtime.block_on(self.sql.restart()).expect("it starts again");
        kept
    }

    /// Ends the database at once, puts a copy in the place of its files and starts it again.
    pub(crate) fn restore_sql(&mut self, kept: &firstcome_test_servers::ServerCopy) {
        self.runtime.block_on(self.sql.restore(kept)).expect("it starts again");
    }

    /// Starts the database again, after it was killed.
    pub(crate) fn restart_sql(&mut self) {
        self.runtime.block_on(self.sql.restart()).expect("it starts again");
    }

    /// Starts both servers again, after each was killed.
    pub(crate) fn restart(&mut self) {
        self.restart_sql();
        self.runtime.block_on(self.redis.restart()).expect("it starts again");
    }

    /// Makes the tables, and says what was done.
    pub(crate) fn migrate(&self, sql: &str) -> Value {
        let said = firstcome(self.here(), &["migrate", "--json", "--sql", sql]).well();
        serde_json::from_str(&said).expect("JSON")
    }

    /// Says something to Redis, past all nodes.
    pub(crate) fn redis(&self, words: &[&str]) {
        let client = redis::Client::open(self.redis.url()).expect("an address");
        let said = async {
            let mut connection = client.get_multiplexed_async_connection().await?;
            let mut command = redis::cmd(words[0]);
            command.arg(&words[1..]);
            command.exec_async(&mut connection).await
        };
        self.runtime.block_on(said).expect("it is done");
    }

    /// Asks Redis for a number, past all nodes.
    pub(crate) fn redis_number(&self, words: &[&str]) -> u64 {
        let client = redis::Client::open(self.redis.url()).expect("an address");
        let told = async {
            let mut connection = client.get_multiplexed_async_connection().await?;
            let mut command = redis::cmd(words[0]);
            command.arg(&words[1..]);
            command.query_async(&mut connection).await
        };
        self.runtime.block_on(told).expect("a number")
    }

    /// Says something to PostgreSQL.
    pub(crate) fn say(&self, url: &str, text: &str) {
        let said = async {
            let mut connection = PgConnection::connect(url).await?;
            sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut connection).await
        };
        self.runtime.block_on(said).expect("it is done");
    }
    /// Asks PostgreSQL for a number, past all nodes.
    pub(crate) fn sql_number(&self, text: &str) -> i64 {
        let told = async {
            let mut connection = PgConnection::connect(self.sql.url()).await?;
            sqlx::query_scalar(AssertSqlSafe(text.to_owned())).fetch_one(&mut connection).await
        };
        self.runtime.block_on(told).expect("a number")
    }
}
