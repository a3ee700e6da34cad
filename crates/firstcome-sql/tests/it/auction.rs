//! Auctions on databases of the tests' own.

mod closing;
mod conflicts;
mod conformance;
mod crashes;
mod flood;
mod keys;
mod nodes;
mod opening;
mod outcomes;
#[cfg(feature = "planted-bugs")]
mod planted;
mod proxy;
mod purge;
mod renamed;
mod verify;
mod went_back;

use crate::databases::{self, Running};
use crate::server::PATIENCE;
use firstcome_sql::{DatabaseOptions, SqlAuctions};
use firstcome_store::core::auction::ListingSettings;
use firstcome_store::core::coupon::Effect;
use firstcome_store::core::id::{ListingName, MemberName, RequestId};
use firstcome_store::core::points::{Amount, Balance};
use firstcome_store::core::time::Timestamp;
use firstcome_store::{AuctionAnswer, AuctionStore, MovePoints, PlaceBid, Purchase, Transfer};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

/// One of the two kinds of servers, and what the tests say to it behind auctions' back.
pub(crate) struct Base {
    pub(crate) server: Running,
    /// A database of a test's own on it.
    pub(crate) url: String,
}

/// Settings under which what is acknowledged outlives a kill.
const DURABLE: [&[&str]; 2] = [&["fsync=on", "full_page_writes=on"], &["innodb-flush-log-at-trx-commit=1"]];

impl Base {
    /// Both kinds, as fast as they are; those that this machine has not are left out.
    pub(crate) async fn both() -> Vec<Self> {
        Self::both_with([&[], &[]]).await
    }

    /// Both kinds, durable.
    pub(crate) async fn both_durable() -> Vec<Self> {
        Self::both_with(DURABLE).await
    }

    pub(crate) async fn both_with([postgres, mariadb]: [&[&str]; 2]) -> Vec<Self> {
        let servers = [databases::postgres_with(postgres).await, databases::mariadb_with(mariadb).await];
        servers.into_iter().flatten().map(|server| Self { url: server.url().to_owned(), server }).collect()
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.url.starts_with("postgres:")
    }

    /// An empty database of its own on the same server.
    pub(crate) async fn fresh(&self, number: usize) -> String {
        let name = format!("market_{number}");
        self.say(&format!("CREATE DATABASE {name}")).await;
        let (head, _) = self.url.rsplit_once('/').expect("a database");
        format!("{head}/{name}")
    }

    /// A connection of the test's own.
    pub(crate) async fn connect(&self) -> Foreign {
        Foreign::at(&self.url).await
    }

    /// Says one thing where nothing may go wrong.
    pub(crate) async fn say(&self, text: &str) {
        self.connect().await.say(text).await.expect("it is done");
    }

    /// A number that it says.
    pub(crate) async fn number(&self, text: &str) -> i64 {
        self.connect().await.number(text).await
    }

    pub(crate) async fn open(&self) -> SqlAuctions {
        SqlAuctions::open_with(&self.url, options()).await.expect("it opens")
    }
}

/// A connection that is not auctions'.
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

    pub(crate) async fn say(&mut self, text: &str) -> Result<(), sqlx::Error> {
        let text = AssertSqlSafe(text.to_owned());
        match self {
            Self::Postgres(connection) => sqlx::raw_sql(text).execute(connection).await.map(drop),
            Self::MySql(connection) => sqlx::raw_sql(text).execute(connection).await.map(drop),
        }
    }

    pub(crate) async fn number(&mut self, text: &str) -> i64 {
        let text = AssertSqlSafe(text.to_owned());
        match self {
            Self::Postgres(connection) => sqlx::query_scalar(text).fetch_one(connection).await.expect("a number"),
            Self::MySql(connection) => sqlx::query_scalar(text).fetch_one(connection).await.expect("a number"),
        }
    }
}

/// Options for servers that forget what a crash would lose, with times that only a hang can reach, except for the ping: a disk that
/// others keep busy for seconds is no fault of auctions.
pub(crate) fn options() -> DatabaseOptions {
    let mut options = DatabaseOptions::default();
    options.allow_volatile = true;
    options.connections.connect_timeout = PATIENCE;
    options.connections.answer_timeout = PATIENCE;
    options.patience = PATIENCE;
    options.idle_timeout = PATIENCE;
    options
}

pub(crate) fn member(name: &str) -> MemberName {
    MemberName::parse(name).expect("a name")
}

pub(crate) fn listing(name: &str) -> ListingName {
    ListingName::parse(name).expect("a name")
}

pub(crate) fn amount(points: u64) -> Amount {
    Amount::new(points).expect("an amount")
}

pub(crate) fn key(key: u128) -> Option<RequestId> {
    Some(RequestId { key, body: key as u64 })
}

/// Auction of `own` from 1 on, to the end of time.
pub(crate) fn endless() -> ListingSettings {
    ListingSettings::auction(member("own"), amount(1), Timestamp::MAX)
}

pub(crate) fn bid(bidder: &str, price: u64) -> PlaceBid {
    PlaceBid { bidder: member(bidder), price: amount(price), request: None }
}

pub(crate) fn buy(buyer: &str) -> Purchase {
    Purchase { buyer: member(buyer), request: None }
}

pub(crate) async fn try_charge(auctions: &SqlAuctions, name: &str, points: u64) -> AuctionAnswer<Effect<Balance>> {
    let movement = MovePoints { transfer: Transfer::Charge, amount: amount(points), request: None };
    auctions.move_points(&member(name), movement).await
}

pub(crate) async fn charge(auctions: &SqlAuctions, name: &str, points: u64) {
    try_charge(auctions, name, points).await.expect("it answers").expect("it is charged");
}

pub(crate) async fn balance(auctions: &SqlAuctions, name: &str) -> (u64, u64) {
    let balance: Balance = auctions.balance(&member(name)).await.expect("it answers");
    (balance.available(), balance.total())
}
