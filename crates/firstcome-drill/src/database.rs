//! Databases for one benchmark or drill: a server that it starts, or a new database on a running server.

use anyhow::{Context, bail};
use firstcome::sql::Address;
use firstcome_test_servers::{Durability, Kind, Options, Server};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};
use std::path::Path;

/// The most connections of one node: for coupons and rooms, and for members and listings.
const CONNECTIONS: u32 = 64;

/// A database as `--sql` names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Named {
    /// A server of this kind, which the run starts and stops.
    Started(Kind),
    /// A running server, by its address.
    Running(String),
}

impl Named {
    /// Parses `postgres`, `mariadb`, or an address. The error does not repeat a wrong address, which may hold a
    /// password.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        match text {
            "postgres" => Ok(Self::Started(Kind::Postgres)),
            "mariadb" => Ok(Self::Started(Kind::MariaDb)),
            url => match Address::parse(url) {
                Ok(_) => Ok(Self::Running(url.to_owned())),
                Err(_) => bail!("--sql is postgres, mariadb, or an address like postgres://… or mysql://…"),
            },
        }
    }
}

/// An empty database that no other program uses. [`Self::end`] drops one that was created on a running server; a
/// started server ends with this value.
pub struct OwnDatabase {
    /// The address, as `postgres://…` or `mysql://…`.
    pub url: String,
    /// Kept alive until this value is dropped.
    server: Option<Server>,
    /// The address of the running server, and the name of the database that was created there.
    made: Option<(String, String)>,
}

impl OwnDatabase {
    /// Opens a database for one node. A started server has its files in `scratch`, and is durable.
    pub async fn open(named: &Named, scratch: &Path) -> anyhow::Result<Self> {
        Self::open_for(named, scratch, 1).await
    }

    /// Opens a database for a cluster. A started server allows each node its most connections.
    pub async fn open_for(named: &Named, scratch: &Path, nodes: u32) -> anyhow::Result<Self> {
        match named {
            Named::Started(kind) => {
                let mut options = Options::new(Durability::Durable).within(scratch);
                let setting = if *kind == Kind::Postgres { "max_connections" } else { "max-connections" };
                options.settings.push(format!("{setting}={}", nodes * CONNECTIONS + CONNECTIONS));
                if *kind == Kind::Postgres {
                    // A usual setting where much is written: checkpoints come by time, not in the middle of a run of
                    // some seconds. And PostgreSQL does not hand pages to the kernel before, whose write-back could
                    // delay a sync. MariaDB bypasses the page cache.
                    let settings = ["max_wal_size=8GB", "min_wal_size=4GB", "shared_buffers=1GB"];
                    options.settings.extend(settings.map(str::to_owned));
                }
                let server = Server::start(*kind, &options).await?;
                Ok(Self { url: server.url().to_owned(), server: Some(server), made: None })
            }
            Named::Running(url) => Self::beside(url, "drill").await,
        }
    }

    /// Creates a database on the running server at this address, with `what` and the process id in its name.
    pub async fn beside(at: &str, what: &str) -> anyhow::Result<Self> {
        let name = format!("firstcome_{what}_{}", std::process::id());
        let url = with_database(at, &name)?;
        say(at, format!("CREATE DATABASE {name}")).await?;
        Ok(Self { url, server: None, made: Some((at.to_owned(), name)) })
    }

    /// Hands over the started server, if there is one: the server ends with that value.
    pub const fn take_server(&mut self) -> Option<Server> {
        self.server.take()
    }

    /// Asks the server for its product and version: `PostgreSQL 15.9`.
    pub async fn version(&self) -> anyhow::Result<String> {
        let version = if is_postgres(&self.url) {
            let mut connection = PgConnection::connect_with(&Address::postgres(&self.url)?).await?;
            let version: String = sqlx::query_scalar("SHOW server_version").fetch_one(&mut connection).await?;
            format!("PostgreSQL {version}")
        } else {
            let mut connection = MySqlConnection::connect_with(&Address::mysql(&self.url)?).await?;
            let version: String = sqlx::query_scalar("SELECT VERSION()").fetch_one(&mut connection).await?;
            let name = if version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
            format!("{name} {version}")
        };
        Ok(version.split(['-', ' ']).take(2).collect::<Vec<_>>().join(" "))
    }

    /// Drops the database, if it was created on a running server.
    pub async fn end(self) -> anyhow::Result<()> {
        match &self.made {
            // A killed process may still seem to be connected to it.
            Some((at, name)) if is_postgres(at) => say(at, format!("DROP DATABASE {name} WITH (FORCE)")).await,
            Some((at, name)) => say(at, format!("DROP DATABASE {name}")).await,
            None => Ok(()),
        }
    }
}

/// Whether an address names a PostgreSQL server.
pub fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres")
}

/// Runs one statement.
async fn say(url: &str, statement: String) -> anyhow::Result<()> {
    let statement = AssertSqlSafe(statement);
    if is_postgres(url) {
        let mut connection = PgConnection::connect_with(&Address::postgres(url)?).await?;
        sqlx::raw_sql(statement).execute(&mut connection).await?;
    } else {
        let mut connection = MySqlConnection::connect_with(&Address::mysql(url)?).await?;
        sqlx::raw_sql(statement).execute(&mut connection).await?;
    }
    Ok(())
}

/// Replaces the database in an address.
fn with_database(url: &str, name: &str) -> anyhow::Result<String> {
    let (scheme, rest) = url.split_once("://").context("no address")?;
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    let host = place.split('/').next().unwrap_or_default();
    let query = query.map_or(String::new(), |query| format!("?{query}"));
    Ok(format!("{scheme}://{host}/{name}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_a_kind_to_start_or_an_address() {
        assert_eq!(Named::parse("postgres").unwrap(), Named::Started(Kind::Postgres));
        assert_eq!(Named::parse("mariadb").unwrap(), Named::Started(Kind::MariaDb));
        let url = "mysql://ann@localhost/shop";
        assert_eq!(Named::parse(url).unwrap(), Named::Running(url.into()));
        for wrong in ["redis", "mysql", "sqlite://s3cret", "postgres://ann:s3cret@host:port/shop"] {
            let said = Named::parse(wrong).unwrap_err().to_string();
            assert!(said.contains("mariadb") && !said.contains("s3cret"), "{said}");
        }
    }

    #[test]
    fn another_database_of_the_same_server() {
        for (url, own) in [
            (
                "postgres://ann:pw@localhost:5433/shop?sslmode=disable",
                "postgres://ann:pw@localhost:5433/own?sslmode=disable",
            ),
            ("mysql://root@127.0.0.1", "mysql://root@127.0.0.1/own"),
        ] {
            assert_eq!(with_database(url, "own").unwrap(), own);
        }
    }
}
