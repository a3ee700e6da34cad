//! Databases: PostgreSQL, MySQL and MariaDB (feature `sql`).
//!
//! - [`SessionLocks`]: locks of the servers' own (`pg_advisory_lock`, `GET_LOCK`), held by a connection.
//! - [`PostgresLocks`]: locks as rows with leases, by the rules of the core, with pushes by `NOTIFY`.
//! - [`SqlAuctions`]: members, listings and bids, by the rules of the core, many bids in one transaction.
//!
//! The address decides about TLS (`sslmode`, `ssl-mode`); see [`Address::parse`]. Accounts of MySQL 8 need it, or a socket: the
//! exchange of passwords over plain TCP is not built in.

#![warn(missing_debug_implementations)]

mod address;
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

pub use address::Address;
pub use auction::auction_part;
pub use auction::{SqlAuctions, accept_auction_loss, migrate_auction, verify_auctions};
pub use error::SqlError;
pub use lock::PostgresLocks;
pub use options::{DatabaseOptions, Tables};
pub use replication::Replication;
pub use schema::Migrated;
pub use session::{SessionHold, SessionLocks};

use sqlx::Connection;
use sqlx::pool::PoolOptions;
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

/// Opens one connection, in time or not at all. Without one nothing was sent.
pub async fn connect<C: Connection>(options: &C::Options, times: &SqlOptions) -> Result<C, SqlError> {
    connect_in_time(options, times).await.map_err(|error| SqlError::in_transaction(&error))
}

/// Does the same as [`connect`]. The error names the server.
pub(crate) async fn connect_to<C: Connection>(
    options: &C::Options,
    times: &SqlOptions,
    server: &str,
) -> Result<C, SqlError> {
    connect_in_time(options, times).await.map_err(|error| SqlError::no_connection(&error, server))
}

async fn connect_in_time<C: Connection>(options: &C::Options, times: &SqlOptions) -> sqlx::Result<C> {
    timeout(times.connect_timeout, C::connect_with(options)).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}
