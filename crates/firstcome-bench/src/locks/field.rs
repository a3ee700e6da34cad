//! Locks in the field: every library on one hot lock, and alone, in turns.

use super::hot::{self, Crowd, Until, Wants};
use super::peer::{Entrant, Peer};
use super::strategy::Strategy;
use super::{Bench, Server};
use crate::coupons::Scratch;
use crate::failure::Failure;
use crate::field::limits::Bare;
use crate::field::table::{Sample, Table, Way};
use crate::field::{FieldArgs, Progress, turns};
use crate::spread::Spread;
use crate::stop::unless_stopped;
use anyhow::{Context, anyhow, bail};
use firstcome_test_servers::{Durability, Kind, Options};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The longest start and end of an entrant: a virtual machine on a busy machine takes seconds.
const START: Duration = Duration::from_secs(90);
/// The time for one measurement of a limit.
const LIMIT_TIME: Duration = Duration::from_millis(200);

/// The server that a lock is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum On {
    Redis,
    Postgres,
    MariaDb,
    Etcd,
}

/// The program of a lock.
#[derive(Clone, Copy)]
enum Program {
    Ours(Strategy),
    /// A strategy of this program that is not firstcome's.
    Own(Strategy),
    /// A launcher of `bench/peers/install`, with its arguments, and the language that installs it.
    Installed(&'static str, &'static str),
    /// A program of `bench/`.
    Rust(&'static str),
}

struct Entry {
    name: &'static str,
    program: Program,
    on: On,
    note: Option<&'static str>,
}

const fn entry(name: &'static str, program: Program, on: On) -> Entry {
    Entry { name, program, on, note: None }
}

const POLLED: Option<&str> = Some("it has no wait: it tries again every 50 ms");
const TO_ITSELF: Option<&str> = Some("it mostly grants the lock to its last holder again");

/// Every lock of the field, in the order of the table.
const ENTRIES: [Entry; 21] = [
    entry("firstcome, FIFO", Program::Ours(Strategy::Fifo), On::Redis),
    entry("firstcome, cohorts of 32", Program::Ours(Strategy::Cohort), On::Redis),
    entry("Redisson RLock (Java)", Program::Installed("redisson bench", "java"), On::Redis),
    entry("Redisson RFairLock (Java)", Program::Installed("redisson-fair bench", "java"), On::Redis),
    entry("Redisson RSpinLock (Java)", Program::Installed("redisson-spin bench", "java"), On::Redis),
    entry("Redisson RFencedLock (Java)", Program::Installed("redisson-fenced bench", "java"), On::Redis),
    Entry { note: TO_ITSELF, ..entry("redsync (Go)", Program::Installed("redsync bench", "go"), On::Redis) },
    entry("bsm/redislock (Go)", Program::Installed("redislock bench", "go-field"), On::Redis),
    Entry { note: TO_ITSELF, ..entry("node-redlock (Node)", Program::Installed("redlock bench", "node"), On::Redis) },
    entry("redis-semaphore Mutex (Node)", Program::Installed("redis-semaphore bench", "node"), On::Redis),
    entry("redis-py Lock (Python)", Program::Installed("redis-py bench", "python"), On::Redis),
    entry("redis-py asyncio Lock (Python)", Program::Installed("redis-py-async bench", "python"), On::Redis),
    entry("python-redis-lock (Python)", Program::Installed("python-redis-lock bench", "python"), On::Redis),
    Entry { note: TO_ITSELF, ..entry("rslock (Rust)", Program::Rust("rslock"), On::Redis) },
    entry("rslock, its defaults (Rust)", Program::Rust("rslock 3 200"), On::Redis),
    Entry {
        note: POLLED,
        ..entry("ShedLock on PostgreSQL (Java)", Program::Installed("shedlock-jdbc bench", "java-field"), On::Postgres)
    },
    entry("PostgreSQL advisory lock", Program::Own(Strategy::Advisory), On::Postgres),
    entry("MariaDB GET_LOCK", Program::Own(Strategy::GetLock), On::MariaDb),
    entry("etcd concurrency.Mutex (Go)", Program::Installed("etcd-mutex bench", "go-field"), On::Etcd),
    entry("SET NX spin, 100 ms, by hand", Program::Own(Strategy::SpinConstant), On::Redis),
    entry("locks.db (firstcome, one machine)", Program::Ours(Strategy::File), On::Redis),
];

/// The bare transactions that a lock on etcd is compared with.
const ETCD_BARE: &str = "etcd-bare bench";

/// The servers of all locks, as far as they are installed.
struct Servers {
    redis: String,
    databases: BTreeMap<&'static str, (firstcome_test_servers::Server, Bare)>,
    etcd: Option<firstcome_test_servers::Server>,
    missing: BTreeMap<&'static str, String>,
}

impl On {
    const fn says(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::Postgres => "PostgreSQL",
            Self::MariaDb => "MariaDB",
            Self::Etcd => "etcd",
        }
    }

    const fn limit(self) -> &'static str {
        match self {
            Self::Redis => "one round trip to Redis",
            Self::Postgres => "one round trip to PostgreSQL",
            Self::MariaDb => "one round trip to MariaDB",
            Self::Etcd => "two bare transactions of etcd",
        }
    }
}

impl Servers {
    async fn start(args: &FieldArgs, redis: String, scratch: &Path) -> anyhow::Result<Self> {
        let mut servers = Self { redis, databases: BTreeMap::new(), etcd: None, missing: BTreeMap::new() };
        for (on, kind) in [(On::Postgres, Kind::Postgres), (On::MariaDb, Kind::MariaDb), (On::Etcd, Kind::Etcd)] {
            if args.no_databases {
                servers.missing.insert(on.says(), "left out by --no-databases".into());
                continue;
            }
            let mut options = Options::new(Durability::Durable).within(scratch);
            match kind {
                Kind::Postgres => options.settings.push("max_connections=200".into()),
                Kind::MariaDb => options.settings.push("max-connections=200".into()),
                Kind::Redis | Kind::Etcd => {}
            }
            match firstcome_test_servers::Server::start(kind, &options).await {
                Ok(server) if on == On::Etcd => servers.etcd = Some(server),
                Ok(server) => {
                    let bare = Bare::open(server.url()).await?;
                    servers.databases.insert(on.says(), (server, bare));
                }
                Err(error) => drop(servers.missing.insert(on.says(), error.to_string())),
            }
        }
        Ok(servers)
    }

    fn url(&self, on: On) -> Result<&str, String> {
        let there = match on {
            On::Redis => Some(self.redis.as_str()),
            On::Etcd => self.etcd.as_ref().map(firstcome_test_servers::Server::url),
            On::Postgres | On::MariaDb => self.databases.get(on.says()).map(|(server, _)| server.url()),
        };
        there.ok_or_else(|| self.missing.get(on.says()).cloned().unwrap_or_else(|| format!("no {}", on.says())))
    }
}

/// Finds the program of an entry, or says why there is none.
fn peer_of(args: &FieldArgs, entry: &Entry) -> Result<Option<Peer>, String> {
    let (command, hint) = match entry.program {
        Program::Ours(_) | Program::Own(_) => return Ok(None),
        Program::Installed(command, language) => (
            format!("{}/bin/{command}", args.peers.display()),
            format!("bench/peers/install {} {language}", args.peers.display()),
        ),
        Program::Rust(command) => (
            format!("{}/{command}", args.rust_peers.display()),
            "cargo build --release --manifest-path bench/Cargo.toml --target-dir target/bench".into(),
        ),
    };
    if args.no_peers {
        return Err("left out by --no-peers".into());
    }
    let parsed = Peer::parse(&format!("{}={command}", entry.name));
    parsed.map(Some).map_err(|_| format!("there is no {command}: run {hint}"))
}

/// One entrant with what was measured of it so far.
struct Line<'a> {
    entry: &'a Entry,
    peer: Option<Peer>,
    what: Option<String>,
    hot: Vec<Sample>,
    alone: Vec<Sample>,
    failure: Option<String>,
}

impl<'a> Line<'a> {
    fn new(args: &FieldArgs, servers: &Servers, entry: &'a Entry) -> Self {
        let (peer, mut failure) = match peer_of(args, entry) {
            Ok(peer) => (peer, None),
            Err(reason) => (None, Some(reason)),
        };
        if let Err(reason) = servers.url(entry.on) {
            failure.get_or_insert(reason);
        }
        Self { entry, peer, what: None, hot: Vec::new(), alone: Vec::new(), failure }
    }

    fn entrant(&self) -> Option<Entrant<'_>> {
        match (self.entry.program, &self.peer) {
            (Program::Ours(strategy) | Program::Own(strategy), _) => Some(Entrant::Ours(strategy)),
            (_, peer) => peer.as_ref().map(Entrant::Peer),
        }
    }

    fn way(&self) -> Way {
        Way {
            name: self.entry.name.to_owned(),
            ours: matches!(self.entry.program, Program::Ours(_)),
            limit: if matches!(self.entry.program, Program::Ours(Strategy::File)) {
                "–"
            } else {
                self.entry.on.limit()
            },
            durable: None,
            note: self.entry.note,
        }
    }
}

/// How many of the least operation each kind of server makes per second, in one round.
type Limits = BTreeMap<&'static str, f64>;

async fn limits(args: &FieldArgs, bench: &Bench, servers: &mut Servers) -> anyhow::Result<Limits> {
    let mut limits = Limits::new();
    let trip_us = Spread::of(bench.server.round_trips_us()?).context("no round trip")?.median;
    limits.insert(On::Redis.says(), 1e6 / trip_us);
    for (says, (_, bare)) in &mut servers.databases {
        limits.insert(says, bare.round_trips(LIMIT_TIME).await?);
    }
    let bare = Entry {
        program: Program::Installed(ETCD_BARE, "go-field"),
        ..entry("etcd, bare", ENTRIES[0].program, On::Etcd)
    };
    if let (Ok(url), Ok(Some(peer))) = (servers.url(On::Etcd), peer_of(args, &bare)) {
        let row = run(bench, url, Entrant::Peer(&peer), ALONE, args.time).await?;
        limits.insert(On::Etcd.says(), row.per_second);
    }
    Ok(limits)
}

const ALONE: Crowd = Crowd { processes: 1, tasks: 1, wants: Wants::One };

async fn run(
    bench: &Bench,
    url: &str,
    entrant: Entrant<'_>,
    crowd: Crowd,
    time: Duration,
) -> anyhow::Result<super::LockRow> {
    let run = hot::run_on(bench, url, entrant, crowd, Until::TimeMs(time.as_millis() as u64));
    match tokio::time::timeout(START + 2 * time, run).await {
        Ok(row) => row,
        Err(_) => bail!("it did not end within {} s", (START + 2 * time).as_secs()),
    }
}

/// Runs one entrant once with the crowd and once alone.
async fn round(
    args: &FieldArgs,
    bench: &Bench,
    servers: &Servers,
    limits: &Limits,
    line: &mut Line<'_>,
) -> anyhow::Result<()> {
    let url = servers.url(line.entry.on).map_err(|reason| anyhow!("{reason}"))?;
    let Some(entrant) = line.entrant() else { return Ok(()) };
    let crowd = Crowd { processes: args.processes, tasks: args.tasks, wants: Wants::One };
    bench.server.clear().await?;
    let crowded = run(bench, url, entrant, crowd, args.time).await?;
    bench.server.clear().await?;
    let alone = run(bench, url, entrant, ALONE, args.time / 2).await?;
    let limit = limits.get(line.entry.on.says()).copied();
    let limit = if matches!(line.entry.program, Program::Ours(Strategy::File)) { None } else { limit };
    // Acquire and release take two round trips one after the other. A pair of etcd's transactions is both already.
    let alone_limit = if line.entry.on == On::Etcd { limit } else { limit.map(|trips| trips / 2.0) };
    line.what = crowded.what.clone().or(line.what.take());
    line.hot.push(sample(&crowded, limit));
    line.alone.push(sample(&alone, alone_limit));
    Ok(())
}

fn sample(row: &super::LockRow, limit: Option<f64>) -> Sample {
    Sample {
        per_second: row.per_second,
        limit,
        p99_us: Some(row.wait_p99_us),
        overtaken: Some(row.greatest_overtaking as f64),
        exact: Some(row.lost_updates == 0),
        finding: (row.lost_updates != 0).then(|| format!("{} updates were lost under the lock", row.lost_updates)),
    }
}

/// Measures all locks. Fails if the counter loses nothing without a lock, since the run then proves nothing.
pub(crate) fn field(
    args: &FieldArgs,
    progress: &Progress,
    versions: &mut BTreeMap<String, String>,
) -> Result<Vec<Table>, Failure> {
    // One thread: the workers and the servers need the processors.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(unless_stopped(async { Ok(measure(args, progress, versions).await?) }))
}

async fn measure(
    args: &FieldArgs,
    progress: &Progress,
    versions: &mut BTreeMap<String, String>,
) -> anyhow::Result<Vec<Table>> {
    let scratch = Scratch::new(&args.data, "field-locks")?;
    let server = Server::start(&scratch.0).await?;
    versions.insert("Redis".into(), server.version().await?);
    let bench = bench(args.processes * args.tasks, args.time, server, &scratch.0);
    let mut servers = Servers::start(args, bench.url(), &scratch.0).await?;
    let mut lines: Vec<Line<'_>> = ENTRIES.iter().map(|entry| Line::new(args, &servers, entry)).collect();
    let measured = lines.iter().filter(|line| line.failure.is_none()).count();
    progress.expect(measured * args.rounds as usize + 1);
    progress.step("locks: no lock, the control");
    let crowd = Crowd { processes: args.processes, tasks: args.tasks, wants: Wants::One };
    let control =
        run(&bench, &bench.url(), Entrant::Ours(Strategy::Control), crowd, Duration::from_millis(300)).await?;
    if control.lost_updates == 0 && 1 < args.processes {
        bail!("the run is void: the counter loses nothing even without a lock");
    }
    for number in 0..args.rounds {
        let limits = limits(args, &bench, &mut servers).await?;
        for at in turns(lines.len(), number) {
            let line = &mut lines[at];
            if line.failure.is_some() {
                continue;
            }
            progress.step(&format!("locks: {}, round {}", line.entry.name, number + 1));
            if let Err(error) = round(args, &bench, &servers, &limits, line).await {
                line.failure = Some(format!("{error:#}"));
            }
        }
    }
    Ok(tables(args, lines))
}

/// Settings of the benchmark that only contends for a lock.
pub(super) fn bench(contenders: u32, time: Duration, server: Server, scratch: &Path) -> Bench {
    Bench {
        server,
        others: Vec::new(),
        scratch: scratch.to_owned(),
        processes: 1,
        tasks: contenders,
        time,
        waiters: Vec::new(),
        hand_overs: 0,
        names: 0,
        locks: 0,
        dead: 0,
        peers: Vec::new(),
        rows: Vec::new(),
        figures: Vec::new(),
        targets: Vec::new(),
    }
}

fn tables(args: &FieldArgs, lines: Vec<Line<'_>>) -> Vec<Table> {
    let waiters = args.processes * args.tasks;
    let crowd = format!("One hot lock, {waiters} contenders in {} processes", args.processes);
    let mut hot = Table::new("locks-hot", crowd, "acquisitions per second");
    let mut alone = Table::new("locks-alone", "One task alone", "acquire and release per second");
    for line in lines {
        let mut alone_way = line.way();
        if line.entry.on != On::Etcd && alone_way.limit != "–" {
            alone_way.limit = match line.entry.on {
                On::Postgres => "two round trips to PostgreSQL",
                On::MariaDb => "two round trips to MariaDB",
                On::Redis | On::Etcd => "two round trips to Redis",
            };
        }
        hot.add(line.way(), line.what.clone(), &line.hot, line.failure.clone());
        alone.add(alone_way, line.what, &line.alone, line.failure);
    }
    vec![hot, alone]
}
