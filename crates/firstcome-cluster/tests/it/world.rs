//! The servers of one deployment, and nodes over them.

use crate::proxy::Proxy;
use crate::scripts;
use firstcome_cluster::{Cluster, ClusterError, ClusterOptions, DeploymentSecret};
use firstcome_store::edge::ManualClock;
use firstcome_test_servers::{Durability, Kind, Options, Server, machine_has};
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The secret of the tests' deployments.
pub(crate) const SECRET: &str = "a secret of the tests that nobody needs to guess";

/// A Redis and a database.
pub(crate) struct World {
    pub(crate) redis: Server,
    pub(crate) sql: Server,
    drawn: AtomicUsize,
}

/// One deployment: a database of its own on both.
#[derive(Clone, Debug)]
pub(crate) struct TestDeployment {
    pub(crate) redis: String,
    pub(crate) sql: String,
}

/// Longer than anything here takes on a slow machine; a test that waits so long has found a fault.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Looks again and again, at most [`PATIENCE`] long, until there is something to see.
pub(crate) async fn wait_for<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < until, "timed out waiting for {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Databases on one Redis.
const DATABASES: usize = 96;

impl World {
    /// Servers that are fast and forget what a crash of the machine would lose. `None`, and a word about it, where there is
    /// none; in CI they must be there.
    pub(crate) async fn start(sql: Kind) -> Option<Self> {
        Self::start_with(sql, &[]).await
    }

    /// The same with settings of Redis, such as `appendonly=yes`.
    pub(crate) async fn start_with(sql: Kind, settings: &[&str]) -> Option<Self> {
        for kind in [Kind::Redis, sql] {
            if !machine_has(&kind.to_string(), Server::is_installed(kind)) {
                return None;
            }
        }
        let mut options = Options::new(Durability::Quick);
        if sql == Kind::MariaDb {
            // It loses nothing that it has acknowledged when it is killed.
            options.settings.push("innodb-flush-log-at-trx-commit=2".to_owned());
        }
        let sql = Server::start(sql, &options).await.unwrap_or_else(|error| panic!("{error}"));
        options.settings = settings.iter().map(ToString::to_string).collect();
        options.settings.push(format!("databases={DATABASES}"));
        let redis = Server::start(Kind::Redis, &options).await.unwrap_or_else(|error| panic!("{error}"));
        let world = Self { redis, sql, drawn: AtomicUsize::new(0) };
        world.load_scripts().await;
        Some(world)
    }

    /// So that each script runs at its first call: lines count the calls.
    async fn load_scripts(&self) {
        let mut keeper = Keeper::at(self.redis.url()).await;
        for script in scripts::ALL {
            let _: String = keeper.ask(&["SCRIPT", "LOAD", script]).await;
        }
    }

    /// Kills Redis and starts it again at the same port, with what it has on disk.
    pub(crate) async fn restart_redis(&mut self) {
        self.redis.restart().await.unwrap_or_else(|error| panic!("{error}"));
        self.load_scripts().await;
    }

    /// Makes the database stand still until this is dropped: connections stay open, no caller answers.
    pub(crate) fn freeze_sql(&self) -> Frozen {
        freeze(&self.sql)
    }

    /// The same of Redis.
    pub(crate) fn freeze_redis(&self) -> Frozen {
        freeze(&self.redis)
    }

    /// An empty place.
    pub(crate) async fn place(&self) -> TestDeployment {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        assert!(number < DATABASES, "too many places for one Redis");
        let name = format!("fleet_{number}");
        Foreign::at(self.sql.url()).await.say(&format!("CREATE DATABASE {name}")).await;
        let (head, _) = self.sql.url().rsplit_once('/').expect("a database");
        TestDeployment { redis: format!("{}/{number}", self.redis.url()), sql: format!("{head}/{name}") }
    }
}

/// A server that stands still. It goes on when this is dropped: no caller could end it before.
pub(crate) struct Frozen(Vec<String>);

impl Drop for Frozen {
    fn drop(&mut self) {
        signal("-CONT", &self.0);
    }
}

fn freeze(server: &Server) -> Frozen {
    let processes = processes(server);
    signal("-STOP", &processes);
    Frozen(processes)
}

/// A server and its children.
fn processes(server: &Server) -> Vec<String> {
    let process = server.process();
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let mut all = vec![process.to_string()];
    all.extend(children.split_whitespace().map(str::to_owned));
    all
}

fn signal(name: &str, processes: &[String]) {
    // One of them may have ended meanwhile.
    let _ = Command::new("kill").arg(name).args(processes).status();
}

/// An address with another port.
fn with_port(url: &str, port: u16) -> String {
    let (head, tail) = url.rsplit_once(':').expect("a port");
    let (_, path) = tail.split_once('/').expect("a database");
    format!("{head}:{port}/{path}")
}

fn port_of(url: &str) -> u16 {
    let (_, tail) = url.rsplit_once(':').expect("a port");
    tail.split('/').next().and_then(|port| port.parse().ok()).expect("a port")
}

impl TestDeployment {
    /// A node that goes by the servers' clocks.
    pub(crate) async fn try_node(&self) -> Result<Cluster, ClusterError> {
        Cluster::open(&self.redis, &self.sql, secret(), options()).await
    }

    /// The same where nothing may go wrong.
    pub(crate) async fn node(&self) -> Cluster {
        self.node_with(options()).await
    }

    /// Several of them.
    pub(crate) async fn nodes(&self, count: usize) -> Vec<Cluster> {
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.push(self.node().await);
        }
        nodes
    }

    /// A node with options of its own.
    pub(crate) async fn node_with(&self, options: ClusterOptions) -> Cluster {
        Cluster::open(&self.redis, &self.sql, secret(), options).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same place, where Redis is reached over a line.
    pub(crate) async fn by_redis_line(&self) -> (Self, Proxy) {
        let line = Proxy::to(port_of(&self.redis)).await;
        (Self { redis: with_port(&self.redis, line.port), ..self.clone() }, line)
    }

    /// The same place, where the database is reached over a line, in plain text: the line reads what passes, and a MariaDB from 11.4
    /// on offers TLS by itself.
    pub(crate) async fn by_sql_line(&self) -> (Self, Proxy) {
        let line = Proxy::to(port_of(&self.sql)).await;
        let plain = if self.sql.starts_with("mysql:") { "?ssl-mode=DISABLED" } else { "?sslmode=disable" };
        (Self { sql: with_port(&self.sql, line.port) + plain, ..self.clone() }, line)
    }

    /// The same place, where Redis knows us as this user.
    pub(crate) fn as_redis_user(&self, user: &str, password: &str) -> Self {
        let redis = self.redis.replace("redis://", &format!("redis://{user}:{password}@"));
        Self { redis, ..self.clone() }
    }

    /// A connection to its Redis that is no node's.
    pub(crate) async fn keeper(&self) -> Keeper {
        Keeper::at(&self.redis).await
    }

    /// A connection to its database that is no node's.
    pub(crate) async fn foreign(&self) -> Foreign {
        Foreign::at(&self.sql).await
    }

    /// A node that goes by a clock of the test's own.
    pub(crate) async fn node_by(&self, clock: Arc<ManualClock>) -> Cluster {
        Cluster::open_by(&self.redis, &self.sql, secret(), patient(), clock).await.expect("a node opens")
    }
}

pub(crate) fn secret() -> DeploymentSecret {
    DeploymentSecret::new(SECRET).expect("it is long enough")
}

/// Options for servers that forget what a crash would lose.
pub(crate) fn options() -> ClusterOptions {
    let mut options = ClusterOptions::default();
    options.database.allow_volatile = true;
    options.allow_forgetful = true;
    options
}

/// The same with times that only a hang can reach, where a server that others keep busy for seconds is no part of the test.
fn patient() -> ClusterOptions {
    let mut options = options();
    options.link.connect_timeout = PATIENCE;
    options.link.answer_timeout = PATIENCE;
    options.database.connections.connect_timeout = PATIENCE;
    options.database.connections.answer_timeout = PATIENCE;
    options.database.patience = PATIENCE;
    options.database.idle_timeout = PATIENCE;
    options.patience = PATIENCE;
    options
}

/// A connection that is no node's.
pub(crate) enum Foreign {
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

impl Foreign {
    /// A connection to a database.
    pub(crate) async fn at(url: &str) -> Self {
        if url.starts_with("postgres:") {
            Self::Postgres(PgConnection::connect(url).await.expect("it answers"))
        } else {
            Self::MySql(MySqlConnection::connect(url).await.expect("it answers"))
        }
    }

    /// Says one thing where nothing may go wrong.
    pub(crate) async fn say(&mut self, text: &str) {
        let text = AssertSqlSafe(text.to_owned());
        match self {
            Self::Postgres(connection) => sqlx::raw_sql(text).execute(connection).await.map(drop),
            Self::MySql(connection) => sqlx::raw_sql(text).execute(connection).await.map(drop),
        }
        .expect("it is done");
    }

    /// The one number that a question is answered with.
    pub(crate) async fn number(&mut self, text: &str) -> i64 {
        let text = AssertSqlSafe(text.to_owned());
        match self {
            Self::Postgres(connection) => sqlx::query_scalar(text).fetch_one(connection).await,
            Self::MySql(connection) => sqlx::query_scalar(text).fetch_one(connection).await,
        }
        .expect("a number")
    }

    /// Begins a transaction in which the row of a coupon is locked.
    pub(crate) async fn lock(&mut self, coupon: &str) {
        self.say(&format!("BEGIN; SELECT id FROM firstcome_coupon WHERE name='{coupon}' FOR UPDATE")).await;
    }

    /// How many sessions wait for a row.
    pub(crate) async fn waiting(&mut self) -> i64 {
        self.number(match self {
            Self::Postgres(_) => "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type='Lock'",
            // Not from the table of transactions, which stands still while it is asked again and again.
            Self::MySql(_) => {
                "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
                 WHERE variable_name='Innodb_row_lock_current_waits'"
            }
        })
        .await
    }

    /// Claims of a coupon in the database.
    pub(crate) async fn issued(&mut self, coupon: &str) -> i64 {
        self.number(&format!(
            "SELECT COUNT(*) FROM firstcome_claim WHERE coupon=(SELECT id FROM firstcome_coupon WHERE name='{coupon}')"
        ))
        .await
    }
}

/// A connection to Redis that is no node's.
pub(crate) struct Keeper(MultiplexedConnection);

impl Keeper {
    /// A connection to a server.
    pub(crate) async fn at(url: &str) -> Self {
        let client = redis::Client::open(url).expect("an address");
        Self(client.get_multiplexed_async_connection().await.expect("it answers"))
    }

    /// Sends one command where nothing may go wrong.
    pub(crate) async fn ask<T: FromRedisValue>(&mut self, command: &[&str]) -> T {
        let parts: Vec<&[u8]> = command.iter().map(|part| part.as_bytes()).collect();
        self.ask_bytes(&parts).await
    }

    /// Sends one command whose answer does not matter.
    pub(crate) async fn try_ask(&mut self, command: &[&str]) {
        let mut packed = redis::cmd(command[0]);
        packed.arg(&command[1..]);
        let _: redis::RedisResult<redis::Value> = packed.query_async(&mut self.0).await;
    }

    /// The same, of bytes.
    pub(crate) async fn ask_bytes<T: FromRedisValue>(&mut self, command: &[&[u8]]) -> T {
        let mut packed = redis::Cmd::new();
        command.iter().for_each(|part| {
            packed.arg(*part);
        });
        packed.query_async(&mut self.0).await.unwrap_or_else(|error| panic!("{:?}: {error}", command[0]))
    }

    /// One field of the sequencer.
    pub(crate) async fn sequencer(&mut self, field: &str) -> Option<String> {
        let key = self.key("gate").await?;
        self.ask(&["HGET", &key, field]).await
    }

    /// Sets fields of the sequencer.
    pub(crate) async fn set_gate(&mut self, pairs: &[&str]) {
        let key = self.key("gate").await.expect("there is a sequencer");
        let mut command = vec!["HSET", key.as_str()];
        command.extend(pairs);
        let _: i64 = self.ask(&command).await;
    }

    /// The key of this sort: where there is one coupon there is at most one.
    pub(crate) async fn key(&mut self, sort: &str) -> Option<String> {
        let mut keys: Vec<String> = self.ask(&["KEYS", &format!("fc:{{c*}}:{sort}*")]).await;
        assert!(keys.len() <= 1, "{keys:?}");
        keys.pop()
    }

    /// The microseconds of Unix time by its clock.
    pub(crate) async fn now_us(&mut self) -> i64 {
        let (seconds, micros): (i64, i64) = self.ask(&["TIME"]).await;
        seconds * 1_000_000 + micros
    }
}
