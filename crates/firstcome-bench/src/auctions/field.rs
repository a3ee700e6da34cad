//! Auctions in the field: five ways on each database, and the embedded store, in turns.

use super::by_hand::{BidWay, ByMySql, ByPostgres, HandDatabase};
use super::engine::Auction;
use super::hot::{BidderTurns, closed_loop};
use super::{AuctionRow, AuctionsArgs, Bench, database};
use crate::bare;
use crate::coupons::{Scratch, disk};
use crate::database::is_postgres;
use crate::failure::Failure;
use crate::field::limits::Bare;
use crate::field::table::{Sample, Table, Way};
use crate::field::{FieldArgs, Progress, turns};
use crate::locks::{patient, unreachable};
use crate::output::progress as bar;
use crate::stop::unless_stopped;
use anyhow::Context;
use firstcome::Locks;
use firstcome::lock::Layout;
use firstcome_test_servers::{Durability, Kind, Options, Server};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The time for one measurement of a limit.
const LIMIT_TIME: Duration = Duration::from_millis(200);
/// Connections to a database.
const CONNECTIONS: u32 = 64;
const BIDDERS: u32 = 512;

/// The five ways on a database.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AuctionWay {
    Combining,
    Rows,
    Named,
    Ours,
    Spin,
}

const WAYS: [AuctionWay; 5] =
    [AuctionWay::Combining, AuctionWay::Rows, AuctionWay::Named, AuctionWay::Ours, AuctionWay::Spin];

/// Where bids are placed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Embedded,
    Database(Kind, AuctionWay),
}

impl On {
    fn name(self) -> String {
        let Self::Database(kind, way) = self else { return "firstcome, embedded".into() };
        let named = if kind == Kind::Postgres { "advisory lock" } else { "GET_LOCK" };
        match way {
            AuctionWay::Combining => format!("firstcome on {kind}"),
            AuctionWay::Rows => format!("{kind}: SELECT FOR UPDATE"),
            AuctionWay::Named => format!("{kind}: {named} + transaction"),
            AuctionWay::Ours => format!("{kind}: our lock + transaction"),
            AuctionWay::Spin => format!("{kind}: spin lock, 100 ms, + transaction"),
        }
    }

    const fn limit(self) -> &'static str {
        match self {
            Self::Embedded => "bare insert loop, same batch",
            Self::Database(..) => "one commit of the database at a time",
        }
    }
}

struct Line {
    on: On,
    samples: Vec<Sample>,
    failure: Option<String>,
}

/// A database with the connection that measures its limit, or the reason why there is none.
type Started = Result<(Server, Bare), String>;

/// The servers, which end with this value.
struct Servers {
    redis: Server,
    databases: Vec<(Kind, Started)>,
}

impl Servers {
    async fn start(args: &FieldArgs, scratch: &Path) -> anyhow::Result<Self> {
        let redis = Server::start(Kind::Redis, &Options::new(Durability::Quick).within(scratch)).await?;
        let mut databases = Vec::new();
        for kind in [Kind::Postgres, Kind::MariaDb] {
            let started = if args.no_databases {
                Err("left out by --no-databases".to_owned())
            } else {
                match Server::start(kind, &Options::new(Durability::Durable).within(scratch)).await {
                    Ok(server) => {
                        let bare = Bare::open(server.url()).await?;
                        Ok((server, bare))
                    }
                    Err(error) => Err(error.to_string()),
                }
            };
            databases.push((kind, started));
        }
        Ok(Self { redis, databases })
    }

    fn of(&self, wanted: Kind) -> Result<&Server, String> {
        let found = self.databases.iter().find(|(kind, _)| *kind == wanted);
        match found {
            Some((_, Ok((server, _)))) => Ok(server),
            Some((_, Err(reason))) => Err(reason.clone()),
            None => Err(format!("no {wanted}")),
        }
    }
}

/// Measures all ways on all stores.
pub(crate) fn field(
    args: &FieldArgs,
    progress: &Progress,
    versions: &mut BTreeMap<String, String>,
) -> Result<Table, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(unless_stopped(async { Ok(measure(args, progress, versions).await?) }))
}

async fn measure(
    args: &FieldArgs,
    progress: &Progress,
    versions: &mut BTreeMap<String, String>,
) -> anyhow::Result<Table> {
    let scratch = Scratch::new(&args.data, "field-auctions")?;
    let mut servers = Servers::start(args, &scratch.0).await?;
    let on_databases =
        [Kind::Postgres, Kind::MariaDb].into_iter().flat_map(|kind| WAYS.map(|way| On::Database(kind, way)));
    let mut lines: Vec<Line> = std::iter::once(On::Embedded)
        .chain(on_databases)
        .map(|on| {
            let failure = match on {
                On::Embedded => None,
                On::Database(kind, _) => servers.of(kind).err(),
            };
            Line { on, samples: Vec::new(), failure }
        })
        .collect();
    for (kind, started) in &servers.databases {
        if let Ok((server, _)) = started {
            let version = if *kind == Kind::Postgres {
                ByPostgres::new(server.url(), 2)?.version().await?
            } else {
                ByMySql::new(server.url(), 2)?.version().await?
            };
            versions.insert(kind.to_string(), version);
        }
    }
    progress.expect(lines.iter().filter(|line| line.failure.is_none()).count() * args.rounds as usize);
    let settings = settings(args);
    let bench = Bench {
        args: &settings,
        scratch: scratch.0.clone(),
        bar: bar(0, ""),
        rows: Vec::new(),
        targets: Vec::new(),
        notes: Vec::new(),
    };
    for round in 0..args.rounds {
        let mut commits = BTreeMap::new();
        for (kind, started) in &mut servers.databases {
            if let Ok((_, bare)) = started {
                commits.insert(kind.to_string(), bare.commits(LIMIT_TIME).await?);
            }
        }
        for at in turns(lines.len(), round) {
            let line = &mut lines[at];
            if line.failure.is_none() {
                progress.step(&format!("auctions: {}, round {}", line.on.name(), round + 1));
                if let Err(error) = place(&bench, &servers, &commits, line, round).await {
                    line.failure = Some(format!("{error:#}"));
                }
            }
        }
    }
    let title = format!("One hot auction, {} callers, in process", args.callers);
    let mut table = Table::new("auctions", title, "accepted bids per second");
    for Line { on, samples, failure } in lines {
        let ours = matches!(on, On::Embedded | On::Database(_, AuctionWay::Combining));
        let way = Way { name: on.name(), ours, limit: on.limit(), durable: Some(true), note: None };
        table.add(way, None, &samples, failure);
    }
    Ok(table)
}

fn settings(args: &FieldArgs) -> AuctionsArgs {
    AuctionsArgs {
        stores: Vec::new(),
        data: args.data.clone(),
        time: args.time,
        tasks: args.callers,
        bidders: BIDDERS,
        connections: CONNECTIONS,
        plot: None,
        json: false,
        table: false,
    }
}

/// Places bids by one way for the time of a round.
async fn place(
    bench: &Bench<'_>,
    servers: &Servers,
    commits: &BTreeMap<String, f64>,
    line: &mut Line,
    round: u32,
) -> anyhow::Result<()> {
    let (row, limit) = match line.on {
        On::Embedded => embedded(bench, round).await?,
        On::Database(kind, way) => {
            let url = servers.of(kind).map_err(|reason| anyhow::anyhow!("{reason}"))?.url();
            let redis = servers.redis.url();
            let row = if is_postgres(url) {
                by(bench, url, redis, way, round, || ByPostgres::new(url, CONNECTIONS)).await?
            } else {
                by(bench, url, redis, way, round, || ByMySql::new(url, CONNECTIONS)).await?
            };
            (row, commits.get(&kind.to_string()).copied())
        }
    };
    line.samples.push(Sample {
        per_second: row.accepted_per_second,
        limit,
        p99_us: Some(row.p99_us as f64),
        overtaken: None,
        exact: row.correct,
        finding: row.finding.or_else(|| {
            row.failure.map(|says| {
                format!("{} of {} bids failed: {says}", row.failed, row.failed + row.accepted + row.refused)
            })
        }),
    });
    Ok(())
}

async fn embedded(bench: &Bench<'_>, round: u32) -> anyhow::Result<(AuctionRow, Option<f64>)> {
    let directory = bench.scratch.join(format!("embedded-{round}"));
    std::fs::create_dir(&directory)?;
    let store = disk(&directory)?;
    let bidders = bench.args.bidders as usize;
    let auction = Arc::new(Auction::open(store.clone(), "full", bidders).await?);
    let turns = Arc::new(BidderTurns::new(bidders));
    let run = closed_loop(&auction, &turns, bench.args.tasks as usize, bench.args.time).await?;
    let row = AuctionRow::new("embedded", "combining", true, &run).judged(&auction.facts(&run).await?);
    store.close();
    let plain = bench.scratch.join(format!("bare-{round}"));
    std::fs::create_dir(&plain)?;
    disk(&plain)?.close();
    let limit = bare::insert(&plain, "bare", bench.args.tasks as usize, LIMIT_TIME)?.per_second;
    Ok((row, Some(limit)))
}

async fn by<H: HandDatabase>(
    bench: &Bench<'_>,
    url: &str,
    redis: &str,
    way: AuctionWay,
    round: u32,
    hand: impl Fn() -> anyhow::Result<H>,
) -> anyhow::Result<AuctionRow> {
    let way = match way {
        AuctionWay::Combining => {
            let listing = format!("field-{round}");
            let (_, row) = database::combining(bench, "database", url, &hand()?, &listing, None).await?;
            return Ok(row);
        }
        AuctionWay::Rows => BidWay::Rows,
        AuctionWay::Named => BidWay::Named,
        AuctionWay::Ours => {
            BidWay::Ours(Locks::redis_with(redis, patient()).await.map_err(|error| unreachable(&error))?)
        }
        AuctionWay::Spin => {
            let open = Locks::redis(redis).options(patient()).layout(Layout::SingleKey);
            BidWay::Spin(open.await.map_err(|error| unreachable(&error))?)
        }
    };
    database::by_hand(bench, "database", "by hand", way, hand()?).await.context("by hand")
}
