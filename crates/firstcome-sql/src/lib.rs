//! Databases: PostgreSQL, MySQL and MariaDB (feature `sql`).
//!
//! - [`SessionLocks`]: locks of the servers' own (`pg_advisory_lock`, `GET_LOCK`), held by a connection.
//! - [`PostgresLocks`]: locks as rows with leases, by the rules of the core, with pushes by `NOTIFY`.
//! - [`SqlAuctions`]: members, listings and bids, by the rules of the core, many bids in one transaction.
//!
//! Connections are without TLS unless the program that uses this switches on one of sqlx's features for it; then the address
//! decides (`sslmode`, `ssl-mode`). Accounts of MySQL 8 need it, or a socket: the exchange of passwords over plain TCP is not
//! built in.

#![warn(missing_debug_implementations)]

pub mod auction;
pub mod base;
pub mod boxed;
pub mod dialect;
mod error;
mod lock;
mod options;
pub mod reader;
mod replication;
pub mod schema;
mod session;
pub mod snapshot;
pub mod watch;

pub use auction::auction_part;
pub use auction::{SqlAuctions, accept_auction_loss, migrate_auction, verify_auctions};
pub use error::SqlError;
pub use lock::PostgresLocks;
pub use options::{DatabaseOptions, Tables};
pub use replication::Replication;
pub use schema::Migrated;
pub use session::{SessionHold, SessionLocks};

use sqlx::mysql::MySqlConnectOptions;
use sqlx::pool::PoolOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use tokio::time::timeout;

/// How connections to a database behave.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqlOptions {
    /// How long one attempt to connect may take, and how long a request waits for a free connection of a pool.
    pub connect_timeout: Duration,
    /// How long to wait for an answer. After it the connection is closed.
    pub answer_timeout: Duration,
    /// How often a connection on which something rests is asked whether it still works. A dead one is noticed after this and
    /// the answer's time-out at the latest.
    pub ping_interval: Duration,
    /// Connections at once at most. A lock of a session takes one while it is held or waited for.
    pub connections_max: u32,
}

impl Default for SqlOptions {
    /// 2 s to connect, 2 s for an answer, a ping every 500 ms, 32 connections.
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(2),
            answer_timeout: Duration::from_secs(2),
            ping_interval: Duration::from_millis(500),
            connections_max: 32,
        }
    }
}

impl SqlOptions {
    /// A pool with these times and this size. It opens nothing yet.
    ///
    /// A request that finds no free connection in time has sent nothing: [`SqlError::Unavailable`].
    pub fn pool<D: sqlx::Database>(&self) -> PoolOptions<D> {
        PoolOptions::new().max_connections(self.connections_max).acquire_timeout(self.connect_timeout)
    }
}

/// Which database an address names, and how to connect to it. Shown without user and password.
#[derive(Clone)]
pub enum Address {
    /// `postgres://[user[:password]@]host[:port]/database`.
    Postgres(PgConnectOptions),
    /// `mysql://[user[:password]@]host[:port]/database`: MySQL or MariaDB.
    MySql(MySqlConnectOptions),
}

impl Address {
    /// Reads an address. Nothing is sent, and nothing of it is repeated in an error: it may hold a password.
    ///
    /// What the address leaves out comes from where clients of PostgreSQL look: `PGHOST`, `PGPASSWORD` and so on.
    pub fn parse(url: &str) -> Result<Self, SqlError> {
        const WANTED: &str = "the address must be postgres://user:password@host:port/database or mysql://user:password@host:port/database";
        let wanted = |_| SqlError::broken(WANTED);
        match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("postgres" | "postgresql") => {
                let options = PgConnectOptions::from_str(url).map_err(wanted)?;
                // Otherwise every statement goes to the log of the program, with names of locks and bidders.
                Ok(Self::Postgres(options.application_name("firstcome").disable_statement_logging()))
            }
            Some("mysql" | "mariadb") => {
                let options = MySqlConnectOptions::from_str(url).map_err(wanted)?;
                Ok(Self::MySql(options.disable_statement_logging()))
            }
            _ => Err(SqlError::broken(WANTED)),
        }
    }

    /// The address if it is one of PostgreSQL.
    pub fn postgres(url: &str) -> Result<PgConnectOptions, SqlError> {
        match Self::parse(url)? {
            Self::Postgres(options) => Ok(options),
            Self::MySql(_) => Err(SqlError::broken("the address must begin with postgres://")),
        }
    }

    /// The address if it is one of MySQL or MariaDB.
    pub fn mysql(url: &str) -> Result<MySqlConnectOptions, SqlError> {
        match Self::parse(url)? {
            Self::MySql(options) => Ok(options),
            Self::Postgres(_) => Err(SqlError::broken("the address must begin with mysql://")),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(options) => {
                let database = options.get_database().unwrap_or_default();
                write!(f, "postgres://{}:{}/{database}", options.get_host(), options.get_port())
            }
            Self::MySql(options) => {
                let database = options.get_database().unwrap_or_default();
                write!(f, "mysql://{}:{}/{database}", options.get_host(), options.get_port())
            }
        }
    }
}

/// Opens one connection, in time or not at all. Without one nothing was sent.
pub async fn connect<C: Connection>(options: &C::Options, times: &SqlOptions) -> Result<C, SqlError> {
    match timeout(times.connect_timeout, C::connect_with(options)).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(SqlError::in_transaction(&error)),
        Err(_) => Err(SqlError::unreachable("no connection in time")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_one_of_two_kinds_and_keeps_its_password() {
        let postgres = Address::parse("postgres://ann:s3cret@db.example:6543/shop").unwrap();
        assert_eq!(format!("{postgres:?}"), "postgres://db.example:6543/shop");
        let mysql = Address::parse("mysql://ann:s3cret@db.example:3307/shop").unwrap();
        assert_eq!(format!("{mysql:?}"), "mysql://db.example:3307/shop");
        assert!(Address::postgres("mysql://ann@db/shop").is_err() && Address::mysql("postgres://ann@db/shop").is_err());
        for wrong in ["redis://ann:s3cret@db", "s3cret", "postgres://ann:s3cret@db:port/shop", "mysql://ann:s3cret@:x/"]
        {
            let SqlError::Broken { says } = Address::parse(wrong).unwrap_err() else { panic!("{wrong} is no address") };
            assert!(!says.contains("s3cret"), "{says}");
        }
    }
}
