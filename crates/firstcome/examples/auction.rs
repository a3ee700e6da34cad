//! An auction by hand: each bid and purchase is a transaction within a lock, whose fence it checks. `firstcome::Auctions` needs none of it.
//! `cargo run -p firstcome --features sql,sqlx --example auction -- postgres://localhost/scratch`

use firstcome::{Locks, distributed_lock, lock::Retry};
use sqlx::{PgConnection, PgPool, query, query_as, raw_sql};
use std::error::Error;

struct No(Box<dyn Error + Send + Sync>);
impl<E: Error + Send + Sync + 'static> From<E> for No {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}
impl Retry for No {
    fn is_conflict(&self) -> bool {
        let rolled_back = self.0.downcast_ref::<sqlx::Error>().and_then(|error| error.as_database_error()?.code());
        rolled_back.is_some_and(|it| it.starts_with("40")) || self.0.to_string() == "somebody wrote without the lock"
    }
}

fn rule(holds: bool, says: &'static str) -> Result<(), No> {
    if holds { Ok(()) } else { Err(No(says.into())) }
}

struct House(Locks, PgPool);
impl House {
    #[distributed_lock(locks = self.0, key = "AUCTION:{id}", wait = "5s", lease = "3s", retry = 3, transaction(tx = self.1.begin()))]
    async fn bid(&self, id: i64, who: &'static str, price: i64) -> Result<(), No> {
        let seen = "SELECT owner, clock_timestamp() <= ends_at, bidder, bid, price, version FROM example_auction WHERE id = $1";
        let (owner, runs, before, bid, first, version): (String, bool, Option<String>, Option<i64>, i64, i64) =
            query_as(seen).bind(id).fetch_one(&mut **tx).await?;
        rule(owner != who, "the auction is one's own")?;
        rule(runs, "the auction is not in progress")?;
        rule(before.as_deref() != Some(who), "the highest bid is one's own")?;
        rule(bid.map_or(first, |bid| bid + 1) <= price, "the bid is too low")?;
        points(tx, "HOLD", who, [0, -price], id).await?;
        if let (Some(before), Some(bid)) = (before, bid) {
            points(tx, "RELEASE", &before, [0, bid], id).await?;
        }
        let write = "UPDATE example_auction SET bidder = $1, bid = $2, version = $4 + 1 WHERE id = $3 AND version = $4";
        let written = query(write).bind(who).bind(price).bind(id).bind(version).execute(&mut **tx).await?;
        rule(written.rows_affected() == 1, "somebody wrote without the lock")
    }

    #[distributed_lock(locks = self.0, key = "AUCTION:{id}", wait = "5s", lease = "3s", retry = 3, transaction(tx = self.1.begin()))]
    async fn purchase(&self, id: i64, who: &'static str) -> Result<(), No> {
        let sell = "UPDATE example_auction SET sold = true WHERE id = $1 AND bidder = $2 AND NOT sold
            AND ends_at < clock_timestamp() RETURNING owner, bid";
        let sold: Option<(String, i64)> = query_as(sell).bind(id).bind(who).fetch_optional(&mut **tx).await?;
        let (owner, bid) = sold.ok_or_else(|| No("not ended, not won, or sold already".into()))?;
        points(tx, "PURCHASE", who, [-bid, 0], id).await?;
        points(tx, "SOLD", &owner, [bid, bid], id).await
    }
}

async fn points(tx: &mut PgConnection, kind: &str, who: &str, [total, free]: [i64; 2], id: i64) -> Result<(), No> {
    let moved = "WITH moved AS (UPDATE example_member SET total = total + $1, available = available + $2
        WHERE id = $3 AND 0 <= available + $2 RETURNING id)
        INSERT INTO example_record SELECT $4, id, $1, $2, $5 FROM moved";
    let moved = query(moved).bind(total).bind(free).bind(who).bind(kind).bind(id).execute(tx).await?;
    rule(moved.rows_affected() == 1, "not enough points")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("name a database: postgres://…")?;
    let house = House(Locks::postgres_leases(&url).await?, PgPool::connect(&url).await?);
    raw_sql(include_str!("auction.sql")).execute(&house.1).await?;
    firstcome::fence::sqlx::create_table(&mut *house.1.acquire().await?).await?;
    let told = |said: Result<(), No>| said.map_or_else(|no| no.0.to_string(), |()| "yes".into());
    for (who, price) in [("olga", 100), ("cid", 100), ("ann", 100), ("ann", 110), ("bob", 100), ("bob", 150)] {
        println!("{who} bids {price}: {}", told(house.bid(7, who, price).await));
    }
    query("SELECT pg_sleep(1)").execute(&house.1).await?;
    for who in ["ann", "bob", "bob"] {
        println!("{who} buys: {}", told(house.purchase(7, who).await));
    }
    Ok(())
}
