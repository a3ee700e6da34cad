//! The way that many teams use today: a Redis set of winners, with a dummy member so that it can have a TTL, and one
//! script that counts and adds. The insert into SQL that usually follows is left out, in its favour.

use super::conditions::micros;
use super::report::{Latencies, ReportRow, latencies};
use anyhow::{Context, bail};
use firstcome::edge::Stopwatch;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Script};
use std::time::Duration;

/// Counts, then adds. `<=`, because the dummy is a member too, as in the published design.
const SCRIPT: &str = "
if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 1 then return 2 end
if redis.call('SCARD', KEYS[1]) <= tonumber(ARGV[2]) then redis.call('SADD', KEYS[1], ARGV[1]) return 1 end
return 0";

async fn connect(url: &str) -> anyhow::Result<MultiplexedConnection> {
    let client = redis::Client::open(url).context("cannot read the Redis address")?;
    let address = client.get_connection_info().addr().to_string();
    if !["127.", "localhost", "[::1]", "/"].iter().any(|local| address.starts_with(local)) {
        bail!("a benchmark loads only a Redis on this machine, not {address}");
    }
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let client = redis::Client::open(client.get_connection_info().clone().set_tcp_settings(tcp))?;
    client.get_multiplexed_async_connection().await.with_context(|| format!("cannot reach Redis at {address}"))
}

/// A set of winners, as many teams keep it.
pub(crate) struct Set {
    connection: MultiplexedConnection,
    key: &'static str,
    script: Script,
}

impl Set {
    /// Opens the set, and empties it.
    pub(crate) async fn open(url: &str, key: &'static str) -> anyhow::Result<Self> {
        let mut connection = connect(url).await?;
        let _: () = connection.del(key).await?;
        Ok(Self { connection, key, script: Script::new(SCRIPT) })
    }

    /// Adds a user if there are fewer than the limit. Returns whether the user is new.
    pub(crate) async fn claim(&self, user: &str, limit: u32) -> anyhow::Result<bool> {
        let mut connection = self.connection.clone();
        let answer: u32 = self.script.key(self.key).arg(user).arg(limit).invoke_async(&mut connection).await?;
        Ok(answer == 1)
    }
}

/// The simplest script that decides: adds a user to a set if that is below the limit.
const BARE: &str = "
if redis.call('SCARD', KEYS[1]) < tonumber(ARGV[2]) then return redis.call('SADD', KEYS[1], ARGV[1]) end
return 0";

/// The bare script, run once per call of another client.
#[derive(Clone)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    script: Script,
}

impl Bare {
    pub(crate) async fn open(url: &str) -> anyhow::Result<Self> {
        Ok(Self { connection: connect(url).await?, script: Script::new(BARE) })
    }

    /// Adds the body as a member, unparsed.
    pub(crate) async fn claim(&self, body: &str) -> anyhow::Result<u32> {
        let mut connection = self.connection.clone();
        let mut run = self.script.key("firstcome:bench:bare-http");
        Ok(run.arg(body).arg(100_000_000).invoke_async(&mut connection).await?)
    }
}

/// The key of a line of people, as many services keep it: a sorted set, with the place of arrival as the score.
pub(crate) const SORTED_SET: &str = "firstcome:bench:line";

/// Draws a place and adds the member.
const JOIN: &str = "return redis.call('ZADD', KEYS[1], 'NX', redis.call('INCR', KEYS[2]) + 100000000, ARGV[1])";

/// A line of people in a sorted set, which each poll asks for the rank.
#[derive(Clone)]
pub(crate) struct SortedSet {
    connection: MultiplexedConnection,
    join: Script,
}

impl SortedSet {
    pub(crate) async fn open(url: &str) -> anyhow::Result<Self> {
        Ok(Self { connection: connect(url).await?, join: Script::new(JOIN) })
    }

    /// Returns the number of members before this one.
    pub(crate) async fn rank(&self, member: &str) -> anyhow::Result<Option<u64>> {
        Ok(self.connection.clone().zrank(SORTED_SET, member).await?)
    }

    /// Adds the body as a member, unparsed, behind all others.
    pub(crate) async fn join(&self, body: &str) -> anyhow::Result<u64> {
        let mut connection = self.connection.clone();
        let mut run = self.join.key("firstcome:bench:joined");
        Ok(run.key("firstcome:bench:joined:count").arg(body).invoke_async(&mut connection).await?)
    }
}

/// Runs the bare script for `time` with `tasks` tasks on one connection.
pub(crate) async fn bare(url: &str, tasks: usize, time: Duration) -> anyhow::Result<ReportRow> {
    let key = "firstcome:bench:bare";
    let mut connection = connect(url).await?;
    let watch = Stopwatch::start();
    let claimants = (0..tasks).map(|task| tokio::spawn(claim(connection.clone(), key.to_owned(), BARE, task, time)));
    let mut times = latencies();
    for claimant in claimants.collect::<Vec<_>>() {
        times.add(claimant.await??)?;
    }
    let elapsed = watch.elapsed();
    let _: () = connection.del(key).await?;
    Ok(ReportRow::new("Redis: bare script, set if below limit", times.len(), elapsed).latencies(&times))
}

/// Runs a contest for `limit` coupons, then claims for `time` with `tasks` tasks on one connection.
pub(crate) async fn run(url: &str, tasks: usize, time: Duration) -> anyhow::Result<ReportRow> {
    let mut connection = connect(url).await?;
    let key = format!("firstcome:bench:{}", std::process::id());
    let correct = contest(&mut connection, &key, 1_000).await;
    let watch = Stopwatch::start();
    let claimants = (0..tasks).map(|task| tokio::spawn(claim(connection.clone(), key.clone(), SCRIPT, task, time)));
    let mut times = latencies();
    for claimant in claimants.collect::<Vec<_>>() {
        times.add(claimant.await??)?;
    }
    let elapsed = watch.elapsed();
    let _: () = connection.del(&key).await?;
    Ok(ReportRow::new("Redis set with a script, no SQL", times.len(), elapsed)
        .latencies(&times)
        .correct(correct?)
        .into_comparison())
}

/// Returns whether `limit` are issued with the dummy, and also without it, as after a reload.
async fn contest(connection: &mut MultiplexedConnection, key: &str, limit: u32) -> anyhow::Result<bool> {
    let script = Script::new(SCRIPT);
    let mut exact = true;
    for dummy in [true, false] {
        let _: () = connection.del(key).await?;
        if dummy {
            let _: () = connection.sadd(key, "dummy").await?;
        }
        let mut issued = 0;
        for user in 0..limit + 10 {
            let answer: u32 = script.key(key).arg(user).arg(limit).invoke_async(connection).await?;
            issued += u32::from(answer == 1);
        }
        exact &= issued == limit;
    }
    let _: () = connection.del(key).await?;
    Ok(exact)
}

async fn claim(
    mut connection: MultiplexedConnection,
    key: String,
    script: &'static str,
    task: usize,
    time: Duration,
) -> anyhow::Result<Latencies> {
    let script = Script::new(script);
    let mut times = latencies();
    let watch = Stopwatch::start();
    for number in 0.. {
        if time <= watch.elapsed() {
            break;
        }
        let one = Stopwatch::start();
        let user = format!("user-{task:03}-{number:08}");
        let _: u32 = script.key(&key).arg(user).arg(100_000_000).invoke_async(&mut connection).await?;
        times.saturating_record(micros(one.elapsed()));
    }
    Ok(times)
}
