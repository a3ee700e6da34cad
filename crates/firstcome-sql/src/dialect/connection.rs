//! Connections and rows of either kind of database.

use super::{Dialect, mysql};
use crate::{Address, DatabaseOptions, SqlError, SqlOptions};
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, MySql, Postgres, Row as _};

/// The connections of a process to one database.
pub enum Pool {
    /// To PostgreSQL.
    Postgres(sqlx::Pool<Postgres>),
    /// To MySQL or MariaDB.
    MySql(sqlx::Pool<MySql>),
}

firstcome_core::debug_by_name!(Pool);

impl Pool {
    /// The dialect of its server.
    pub const fn dialect(&self) -> Dialect {
        match self {
            Self::Postgres(_) => Dialect::Postgres,
            Self::MySql(_) => Dialect::MySql,
        }
    }

    /// Takes a connection, or waits for one as long as the pool's options say.
    pub async fn acquire(&self) -> Result<Connection, sqlx::Error> {
        match self {
            Self::Postgres(pool) => Ok(Connection::PooledPostgres(pool.acquire().await?)),
            Self::MySql(pool) => Ok(Connection::PooledMySql(pool.acquire().await?)),
        }
    }

    /// Connects once, beside the pool, begins a session as the pool does, and closes the connection: for the error.
    pub async fn try_connect(&self, options: &DatabaseOptions) -> Result<(), sqlx::Error> {
        match self {
            Self::Postgres(pool) => pool.connect_options().connect().await.map(drop),
            Self::MySql(pool) => {
                let mut connection = pool.connect_options().connect().await?;
                mysql::Session::of(options).begin(&mut connection).await
            }
        }
    }
}

/// One connection. One of a pool goes back to it when it is dropped.
pub enum Connection {
    /// To PostgreSQL, of a pool.
    PooledPostgres(PoolConnection<Postgres>),
    /// To MySQL or MariaDB, of a pool.
    PooledMySql(PoolConnection<MySql>),
    /// To PostgreSQL.
    Postgres(Box<PgConnection>),
    /// To MySQL or MariaDB.
    MySql(Box<MySqlConnection>),
}

firstcome_core::debug_by_name!(Connection);

impl Connection {
    /// Opens one connection, in time or not at all. Without one nothing was sent.
    pub async fn open(address: &Address, times: &SqlOptions) -> Result<Self, SqlError> {
        let server = address.server();
        Ok(match address {
            Address::Postgres(options) => Self::Postgres(Box::new(crate::connect_to(options, times, &server).await?)),
            Address::MySql(options) => Self::MySql(Box::new(crate::connect_to(options, times, &server).await?)),
        })
    }

    /// The dialect of its server.
    pub const fn dialect(&self) -> Dialect {
        match self {
            Self::PooledPostgres(_) | Self::Postgres(_) => Dialect::Postgres,
            Self::PooledMySql(_) | Self::MySql(_) => Dialect::MySql,
        }
    }

    /// This connection, lent.
    pub fn lent(&mut self) -> LentConnection<'_> {
        match self {
            Self::PooledPostgres(connection) => LentConnection::Postgres(connection),
            Self::Postgres(connection) => LentConnection::Postgres(connection),
            Self::PooledMySql(connection) => LentConnection::MySql(connection),
            Self::MySql(connection) => LentConnection::MySql(connection),
        }
    }

    /// Lets the pool close the connection instead of lending it again.
    pub fn close_on_drop(&mut self) {
        match self {
            Self::PooledPostgres(connection) => connection.close_on_drop(),
            Self::PooledMySql(connection) => connection.close_on_drop(),
            Self::Postgres(_) | Self::MySql(_) => {}
        }
    }

    /// Says goodbye to the server.
    pub async fn close(self) -> Result<(), sqlx::Error> {
        match self {
            Self::PooledPostgres(connection) => connection.close().await,
            Self::PooledMySql(connection) => connection.close().await,
            Self::Postgres(connection) => connection.close().await,
            Self::MySql(connection) => connection.close().await,
        }
    }
}

/// A connection that its owner lends for some statements.
pub enum LentConnection<'a> {
    /// To PostgreSQL.
    Postgres(&'a mut PgConnection),
    /// To MySQL or MariaDB.
    MySql(&'a mut MySqlConnection),
}

firstcome_core::debug_by_name!(['a] LentConnection<'a>);

impl LentConnection<'_> {
    /// Runs a text, and gives all rows of all its statements.
    pub async fn ask(&mut self, text: String) -> Result<Vec<Row>, sqlx::Error> {
        let text = sqlx::raw_sql(AssertSqlSafe(text));
        Ok(match self {
            Self::Postgres(connection) => {
                text.fetch_all(&mut **connection).await?.into_iter().map(Row::Postgres).collect()
            }
            Self::MySql(connection) => text.fetch_all(&mut **connection).await?.into_iter().map(Row::MySql).collect(),
        })
    }

    /// Runs a text, and says how many rows its statements have written, or found to be written.
    pub async fn run(&mut self, text: String) -> Result<u64, sqlx::Error> {
        let text = sqlx::raw_sql(AssertSqlSafe(text));
        Ok(match self {
            Self::Postgres(connection) => text.execute(&mut **connection).await?.rows_affected(),
            Self::MySql(connection) => text.execute(&mut **connection).await?.rows_affected(),
        })
    }
}

/// One row of an answer.
pub enum Row {
    /// Of PostgreSQL.
    Postgres(PgRow),
    /// Of MySQL or MariaDB.
    MySql(MySqlRow),
}

firstcome_core::debug_by_name!(Row);

impl Row {
    /// A number.
    pub fn integer(&self, at: usize) -> Result<i64, sqlx::Error> {
        match self {
            // A number that stands in a statement is of the smaller kind.
            Self::Postgres(row) => row.try_get(at).or_else(|_| row.try_get::<i32, _>(at).map(i64::from)),
            Self::MySql(row) => row.try_get(at),
        }
    }

    /// A number, if there is one.
    pub fn maybe_integer(&self, at: usize) -> Result<Option<i64>, sqlx::Error> {
        match self {
            Self::Postgres(row) => row.try_get(at),
            Self::MySql(row) => row.try_get(at),
        }
    }

    /// A name, if there is one.
    pub fn maybe_text(&self, at: usize) -> Result<Option<String>, sqlx::Error> {
        let bytes: Option<Vec<u8>> = match self {
            Self::Postgres(row) => return row.try_get(at),
            Self::MySql(row) => row.try_get_unchecked(at)?,
        };
        bytes.map(|bytes| String::from_utf8(bytes).map_err(|error| sqlx::Error::Decode(error.into()))).transpose()
    }

    /// Bytes.
    pub fn bytes(&self, at: usize) -> Result<Vec<u8>, sqlx::Error> {
        match self {
            Self::Postgres(row) => row.try_get(at),
            Self::MySql(row) => row.try_get(at),
        }
    }

    /// Bytes, if there are any.
    pub fn maybe_bytes(&self, at: usize) -> Result<Option<Vec<u8>>, sqlx::Error> {
        match self {
            Self::Postgres(row) => row.try_get(at),
            Self::MySql(row) => row.try_get(at),
        }
    }
}
