//! Opens the locks at an address.

use super::Locks;
use super::address::{AddressError, LockAddress};
#[cfg(feature = "etcd")]
use super::etcd::{EtcdError, EtcdOptions};
#[cfg(feature = "http")]
use super::{HttpOptions, OpenHttpError};
#[cfg(feature = "redis")]
use super::{LinkOptions, OpenError, QuorumOptions};
#[cfg(feature = "sql")]
use super::{SqlError, SqlOptions};
#[cfg(feature = "sqlite")]
use firstcome_store::Fault;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

/// Why locks could not be opened by [`Locks::connect`](super::Locks::connect).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenLocksError {
    /// The text is no address of a store of locks.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// This build cannot reach such a store.
    #[error("this build reaches no such store of locks; build it with the feature {feature}")]
    Missing {
        /// The feature of this library.
        feature: &'static str,
    },
    /// The directory could not be opened.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Directory(#[from] Fault),
    /// Redis or Valkey could not be opened.
    #[cfg(feature = "redis")]
    #[error(transparent)]
    Redis(#[from] OpenError),
    /// etcd could not be opened.
    #[cfg(feature = "etcd")]
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The database could not be opened.
    #[cfg(feature = "sql")]
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The client of the service could not be made.
    #[cfg(feature = "http")]
    #[error(transparent)]
    Http(#[from] OpenHttpError),
}

/// Locks that are about to be opened: await it to get them. See [`Locks::connect`].
///
/// Dropping the future leaves no connection behind.
#[must_use = "nothing is opened before it is awaited"]
pub struct Connect {
    address: Result<LockAddress, AddressError>,
    #[cfg(feature = "redis")]
    redis: LinkOptions,
    #[cfg(feature = "redis")]
    quorum: QuorumOptions,
    #[cfg(feature = "etcd")]
    etcd: EtcdOptions,
    #[cfg(feature = "sql")]
    sql: SqlOptions,
    #[cfg(feature = "http")]
    http: HttpOptions,
    #[cfg(feature = "http")]
    http_key: String,
}

impl Connect {
    pub(super) fn new(address: Result<LockAddress, AddressError>) -> Self {
        Self {
            address,
            #[cfg(feature = "redis")]
            redis: LinkOptions::default(),
            #[cfg(feature = "redis")]
            quorum: QuorumOptions::default(),
            #[cfg(feature = "etcd")]
            etcd: EtcdOptions::default(),
            #[cfg(feature = "sql")]
            sql: SqlOptions::default(),
            #[cfg(feature = "http")]
            http: HttpOptions::default(),
            #[cfg(feature = "http")]
            http_key: String::new(),
        }
    }

    /// Sets the options that count if the locks are on one Redis, Sentinel or Cluster.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, options: LinkOptions) -> Self {
        self.redis = options;
        self
    }

    /// Sets the options that count if the locks are on several servers that vote.
    #[cfg(feature = "redis")]
    pub fn quorum(mut self, options: QuorumOptions) -> Self {
        self.quorum = options;
        self
    }

    /// Sets the options that count if the locks are on etcd.
    #[cfg(feature = "etcd")]
    pub fn etcd(mut self, options: EtcdOptions) -> Self {
        self.etcd = options;
        self
    }

    /// Sets the options that count if the locks are in a database.
    #[cfg(feature = "sql")]
    pub fn sql(mut self, options: SqlOptions) -> Self {
        self.sql = options;
        self
    }

    /// Sets the options that count if the locks are those of a service.
    #[cfg(feature = "http")]
    pub const fn http(mut self, options: HttpOptions) -> Self {
        self.http = options;
        self
    }

    /// Sets the key that a service asks for. It stands in no address, so that it stands in no log of addresses either.
    #[cfg(feature = "http")]
    pub fn http_key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.http_key);
        self
    }

    async fn open(self) -> Result<Locks, OpenLocksError> {
        match self.address? {
            LockAddress::Memory => Ok(Locks::memory()),
            #[cfg(feature = "sqlite")]
            LockAddress::Directory(directory) => Ok(Locks::open(directory)?),
            #[cfg(feature = "redis")]
            LockAddress::Redis { url, layout } => Ok(Locks::redis(&url).options(self.redis).layout(layout).await?),
            #[cfg(feature = "redis")]
            LockAddress::Quorum(urls) => Ok(Locks::quorum_with(urls, self.quorum).await?),
            #[cfg(feature = "etcd")]
            LockAddress::Etcd(url) => Ok(Locks::etcd_with(&url, self.etcd).await?),
            #[cfg(feature = "sql")]
            LockAddress::Postgres(url) => Ok(Locks::postgres_leases_with(&url, self.sql).await?),
            #[cfg(feature = "sql")]
            LockAddress::PostgresSession(url) => Ok(Locks::postgres_with(&url, self.sql).await?),
            #[cfg(feature = "sql")]
            LockAddress::MysqlSession(url) => Ok(Locks::mysql_with(&url, self.sql).await?),
            #[cfg(feature = "http")]
            LockAddress::Http { url } => Ok(Locks::http_with(&url, &self.http_key, self.http)?),
            #[cfg(not(feature = "http"))]
            LockAddress::Http { .. } => Err(OpenLocksError::Missing { feature: "http" }),
            #[cfg(not(feature = "sqlite"))]
            LockAddress::Directory(_) => Err(OpenLocksError::Missing { feature: "sqlite" }),
            #[cfg(not(feature = "redis"))]
            LockAddress::Redis { .. } | LockAddress::Quorum(_) => Err(OpenLocksError::Missing { feature: "redis" }),
            #[cfg(not(feature = "etcd"))]
            LockAddress::Etcd(_) => Err(OpenLocksError::Missing { feature: "etcd" }),
            #[cfg(not(feature = "sql"))]
            LockAddress::Postgres(_) | LockAddress::PostgresSession(_) | LockAddress::MysqlSession(_) => {
                Err(OpenLocksError::Missing { feature: "sql" })
            }
        }
    }
}

impl IntoFuture for Connect {
    type Output = Result<Locks, OpenLocksError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the options, which may hold passwords.
        f.debug_struct("Connect").field("address", &self.address).finish_non_exhaustive()
    }
}
