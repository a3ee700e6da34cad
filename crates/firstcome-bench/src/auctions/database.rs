//! Auctions on databases: combining, and the hand-written strategies beside it.

use super::by_hand::{BidWay, ByMySql, ByPostgres, HandAuction, HandDatabase};
use super::engine::Auction;
use super::hot::{BidderTurns, Run, closed_loop, open_loop};
use super::{AuctionRow, Bench, HALF_LOAD_P99_MS};
use crate::database::{OwnDatabase, is_postgres};
use crate::locks::{patient, unreachable};
use crate::report::Target;
use anyhow::{Context, bail};
use firstcome::Locks;
use firstcome::lock::Layout;
use firstcome::sql::{Address, SqlAuctions};
use firstcome_test_servers::{Durability, Kind, Options, Server, ServerError};
use std::sync::Arc;

/// Refuses addresses that are neither a database nor a Redis, or are not on this machine: the benchmark would load
/// them.
pub(super) fn check(stores: &[String]) -> anyhow::Result<()> {
    for store in stores {
        let host = match store.split_once("://").map(|(scheme, _)| scheme) {
            Some("redis" | "redis+unix" | "unix") => redis_host(store)?,
            Some("postgres" | "postgresql") => Address::postgres(store)?.get_host().to_owned(),
            Some("mysql" | "mariadb") => Address::mysql(store)?.get_host().to_owned(),
            _ => bail!("a store is postgres://…, mysql://… or redis://…"),
        };
        if !["127.", "localhost", "[::1]", "::1", "/"].iter().any(|local| host.starts_with(local)) {
            bail!("a benchmark loads only a database on this machine, not {host}");
        }
    }
    Ok(())
}

fn is_redis(store: &str) -> bool {
    store.starts_with("redis") || store.starts_with("unix:")
}

fn redis_host(store: &str) -> anyhow::Result<String> {
    let client = redis::Client::open(store).context("cannot read the Redis address")?;
    Ok(client.get_connection_info().addr().to_string())
}

/// A database server: started by the benchmark, or named by the caller.
struct Database {
    url: String,
    /// The started server, which ends with this value.
    _server: Option<Server>,
}

/// Measures all databases, with the Redis for locks.
pub(super) async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (redis, databases): (Vec<&String>, Vec<&String>) = bench.args.stores.iter().partition(|store| is_redis(store));
    let redis = match redis.first() {
        Some(url) => Some(Database { url: (*url).clone(), _server: None }),
        None => start(bench, Kind::Redis, Durability::Quick).await?,
    };
    let redis = redis.as_ref().map(|redis| redis.url.as_str());
    if databases.is_empty() {
        for kind in [Kind::Postgres, Kind::MariaDb] {
            if let Some(database) = start(bench, kind, Durability::Durable).await? {
                of_kind(bench, &database.url, redis).await?;
            }
        }
        return Ok(());
    }
    for store in databases {
        let own = OwnDatabase::beside(store, "bench").await?;
        let measured = of_kind(bench, &own.url, redis).await;
        own.end().await?;
        measured?;
    }
    Ok(())
}

/// Starts a server. Adds a note if it is not installed.
async fn start(bench: &mut Bench<'_>, kind: Kind, durability: Durability) -> anyhow::Result<Option<Database>> {
    let options = Options::new(durability).within(&bench.scratch);
    match Server::start(kind, &options).await {
        Ok(server) => Ok(Some(Database { url: server.url().to_owned(), _server: Some(server) })),
        Err(ServerError::NotInstalled(kind)) => {
            let left_out = if kind == Kind::Redis { "its locks are" } else { "it is" };
            bench.notes.push(format!("{kind} is not installed: {left_out} left out."));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

async fn of_kind(bench: &mut Bench<'_>, url: &str, redis: Option<&str>) -> anyhow::Result<()> {
    let connections = bench.args.connections.max(2);
    if is_postgres(url) {
        all(bench, url, redis, || ByPostgres::new(url, connections)).await
    } else {
        all(bench, url, redis, || ByMySql::new(url, connections)).await
    }
}

/// Returns the names that depend on the database: the named lock, and the two targets.
fn words(version: &str) -> [&'static str; 3] {
    match version.split(' ').next() {
        Some("PostgreSQL") => [
            "advisory lock + transaction",
            "PostgreSQL: combining ÷ the best other strategy, ×",
            "PostgreSQL: p99 at half load, ms",
        ],
        Some("MariaDB") => [
            "GET_LOCK + transaction",
            "MariaDB: combining ÷ the best other strategy, ×",
            "MariaDB: p99 at half load, ms",
        ],
        _ => ["GET_LOCK + transaction", "MySQL: combining ÷ the best other strategy, ×", "MySQL: p99 at half load, ms"],
    }
}

async fn all<H: HandDatabase>(
    bench: &mut Bench<'_>,
    url: &str,
    redis: Option<&str>,
    hand: impl Fn() -> anyhow::Result<H>,
) -> anyhow::Result<()> {
    let observer = hand()?;
    let store = observer.version().await?;
    let [named, times, half] = words(&store);
    let mut ways = vec![("SELECT … FOR UPDATE", BidWay::Rows), (named, BidWay::Named)];
    if let Some(redis) = redis {
        let locks = Locks::redis_with(redis, patient()).await.map_err(|error| unreachable(&error))?;
        let spin = Locks::redis(redis)
            .options(patient())
            .layout(Layout::SingleKey)
            .await
            .map_err(|error| unreachable(&error))?;
        ways.push(("our lock + transaction, 3 retries", BidWay::Ours(locks)));
        ways.push(("spin lock, 100 ms, + the same", BidWay::Spin(spin)));
    }
    let mut best: f64 = 0.0;
    for (strategy, way) in ways {
        bench.step(&store, strategy);
        let row = by_hand(bench, &store, strategy, way, hand()?).await?;
        best = best.max(row.accepted_per_second);
        bench.rows.push(row);
    }
    bench.step(&store, "combining");
    let (full, row) = combining(bench, &store, url, &observer, "full", None).await?;
    bench.rows.push(row);
    bench.step(&store, "half load");
    let (_, row) = combining(bench, &store, url, &observer, "half", Some(full.per_second() / 2.0)).await?;
    let p99_ms = row.p99_us as f64 / 1e3;
    bench.rows.push(row);
    bench.targets.extend([
        Target::at_least(times, full.per_second() / best, 5.0),
        Target::at_most(half, p99_ms, HALF_LOAD_P99_MS),
    ]);
    Ok(())
}

pub(super) async fn by_hand<H: HandDatabase>(
    bench: &Bench<'_>,
    store: &str,
    strategy: &'static str,
    way: BidWay,
    hand: H,
) -> anyhow::Result<AuctionRow> {
    let bidders = bench.args.bidders as usize;
    hand.lay_out(bidders).await?;
    let (way, turns) = (Arc::new(HandAuction::new(hand, way, bidders)?), Arc::new(BidderTurns::new(bidders)));
    let run = closed_loop(&way, &turns, bench.args.tasks as usize, bench.args.time).await?;
    let facts = way.hand.facts(&run).await?;
    // Each accepted bid is one transaction.
    Ok(AuctionRow::new(store, strategy, false, &run).judged(&facts).commits(run.accepted))
}

/// Measures combining on a new listing, at full load, or at a rate.
pub(super) async fn combining<H: HandDatabase>(
    bench: &Bench<'_>,
    store: &str,
    url: &str,
    observer: &H,
    listing: &str,
    rate: Option<f64>,
) -> anyhow::Result<(Run, AuctionRow)> {
    let (bidders, time) = (bench.args.bidders as usize, bench.args.time);
    let strategy = if rate.is_none() { "combining (ours)" } else { "combining, half load" };
    let auctions = SqlAuctions::open(url).await.with_context(|| format!("{store} cannot be used"))?;
    let auction = Arc::new(Auction::open(auctions, listing, bidders).await?);
    let turns = Arc::new(BidderTurns::new(bidders));
    let before = observer.commits().await?;
    let run = match rate {
        None => closed_loop(&auction, &turns, bench.args.tasks as usize, time).await?,
        Some(rate) => open_loop(&auction, &turns, rate, time).await?,
    };
    let commits = observer.commits().await?.saturating_sub(before);
    let row = AuctionRow::new(store, strategy, true, &run).judged(&auction.facts(&run).await?).commits(commits);
    Ok((run, row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loaded() {
        let refused = |store: &str| check(&[store.to_owned()]).unwrap_err().to_string();
        assert!(refused("postgres://ann@db.example/shop").contains("on this machine, not db.example"));
        assert!(refused("mysql://ann@192.0.2.1/shop").contains("on this machine"));
        assert!(refused("sqlite://file").contains("a store is"));
        for fine in ["postgres://ann@localhost/shop", "mysql://root@127.0.0.1:3307/shop", "redis://localhost"] {
            check(&[fine.to_owned()]).unwrap();
        }
    }
}
