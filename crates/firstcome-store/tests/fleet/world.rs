//! The servers of one deployment, and nodes over them.

use firstcome_servers::{Durability, Kind, Options, Server};
use firstcome_store::edge::ManualClock;
use firstcome_store::fleet::{DeploymentSecret, Fleet, FleetError, FleetOptions};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
pub(crate) struct Place {
    pub(crate) redis: String,
    pub(crate) sql: String,
}

/// Databases on one Redis.
const DATABASES: usize = 64;

impl World {
    /// Servers that are fast and forget what a crash of the machine would lose. `None`, and a word about it, where there is
    /// none; in CI they must be there.
    pub(crate) async fn start(sql: Kind) -> Option<Self> {
        #[expect(clippy::disallowed_methods, reason = "the one place where these tests are set up from outside")]
        let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
        for kind in [Kind::Redis, sql] {
            let there = Server::is_installed(kind);
            assert!(there || !in_ci, "CI needs {kind}");
            if !there {
                println!("skipped: this machine has no {kind}");
                return None;
            }
        }
        let mut options = Options::new(Durability::Quick);
        let sql = Server::start(sql, &options).await.unwrap_or_else(|error| panic!("{error}"));
        options.settings = vec![format!("databases={DATABASES}")];
        let redis = Server::start(Kind::Redis, &options).await.unwrap_or_else(|error| panic!("{error}"));
        Some(Self { redis, sql, drawn: AtomicUsize::new(0) })
    }

    /// Empties the Redis of a place.
    pub(crate) async fn flush(&self, place: &Place) {
        let client = redis::Client::open(place.redis.as_str()).expect("an address");
        let mut connection = client.get_multiplexed_async_connection().await.expect("it answers");
        redis::cmd("FLUSHDB").query_async::<()>(&mut connection).await.expect("it is emptied");
    }

    /// An empty place.
    pub(crate) async fn place(&self) -> Place {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        assert!(number < DATABASES, "too many places for one Redis");
        let name = format!("fleet_{number}");
        Foreign::at(self.sql.url()).await.say(&format!("CREATE DATABASE {name}")).await;
        let (head, _) = self.sql.url().rsplit_once('/').expect("a database");
        Place { redis: format!("{}/{number}", self.redis.url()), sql: format!("{head}/{name}") }
    }
}

impl Place {
    /// A node that goes by the servers' clocks.
    pub(crate) async fn try_node(&self) -> Result<Fleet, FleetError> {
        Fleet::open(&self.redis, &self.sql, secret(), options()).await
    }

    /// [`Self::try_node`] where nothing may go wrong.
    pub(crate) async fn node(&self) -> Fleet {
        self.try_node().await.expect("a node opens")
    }

    /// A node that goes by a clock of the test's own.
    pub(crate) async fn node_by(&self, clock: Arc<ManualClock>) -> Fleet {
        Fleet::open_by(&self.redis, &self.sql, secret(), options(), clock).await.expect("a node opens")
    }
}

pub(crate) fn secret() -> DeploymentSecret {
    DeploymentSecret::new(SECRET).expect("it is long enough")
}

/// Options for servers that forget what a crash would lose.
pub(crate) fn options() -> FleetOptions {
    let mut options = FleetOptions::default();
    options.database.allow_volatile = true;
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
}
