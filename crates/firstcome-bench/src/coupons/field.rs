//! Coupons in the field: nine ways to issue a limited number of them, in turns, each with a contest that shows whether
//! it issued exactly as many as there are.

mod by_sql;

use super::cluster::secret;
use super::{Scratch, Taken, claim_by, closed_loop_of, disk, is_refused, name, put};
use crate::bare;
use crate::database::{Named, OwnDatabase};
use crate::failure::Failure;
use crate::field::limits::{Bare, redis_sets};
use crate::field::table::{Sample, Table, Way};
use crate::field::{FieldArgs, Progress, turns};
use crate::stop::unless_stopped;
use anyhow::{Context, bail};
use by_sql::{BySql, SqlWay};
use firstcome::cluster::{Cluster, ClusterOptions};
use firstcome::core::coupon::Effect;
use firstcome::{CouponStore, Embedded};
use firstcome_test_servers::{Durability, Kind, Options, Server};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Script};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Coupons of a contest. Twice as many users claim twice each.
const CONTEST_STOCK: u32 = 400;
/// Coupons of the measured loop: more than any way can issue.
const STOCK: u32 = 100_000_000;
/// The time for one measurement of a limit.
const LIMIT_TIME: Duration = Duration::from_millis(200);

/// The answer to a claim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Issued,
    /// This user has one, or none is left.
    Refused,
    /// The store did nothing for now.
    Busy,
}

/// A way to issue coupons.
#[derive(Clone)]
enum CouponWay {
    Embedded(Embedded),
    Cluster(Box<Cluster>),
    Redis(RedisWay),
    ScriptThenInsert(RedisWay, BySql),
    Sql(BySql),
}

/// Coupons in Redis alone.
#[derive(Clone)]
struct RedisWay {
    connection: MultiplexedConnection,
    kind: RedisKind,
    script: Arc<Script>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RedisKind {
    /// Counts with one command, and adds with the next.
    TwoCommands,
    /// One script that counts and adds.
    Script,
}

/// Decides in one step, without a dummy member.
const SCRIPT: &str = "
if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 1 then return 0 end
if redis.call('SCARD', KEYS[1]) < tonumber(ARGV[2]) then return redis.call('SADD', KEYS[1], ARGV[1]) end
return 0";

impl RedisWay {
    async fn open(url: &str, kind: RedisKind) -> anyhow::Result<Self> {
        let client = redis::Client::open(url).context("cannot read the Redis address")?;
        let connection = client.get_multiplexed_async_connection().await?;
        Ok(Self { connection, kind, script: Arc::new(Script::new(SCRIPT)) })
    }

    async fn claim(&self, coupon: &str, stock: u32, user: &str) -> anyhow::Result<Answer> {
        let (mut connection, key) = (self.connection.clone(), format!("firstcome:bench:field:{coupon}"));
        let added: u32 = match self.kind {
            RedisKind::Script => self.script.key(key).arg(user).arg(stock).invoke_async(&mut connection).await?,
            RedisKind::TwoCommands => {
                let issued: u32 = connection.scard(&key).await?;
                if issued < stock { connection.sadd(&key, user).await? } else { 0 }
            }
        };
        Ok(if added == 1 { Answer::Issued } else { Answer::Refused })
    }

    async fn count(&self, coupon: &str) -> anyhow::Result<u64> {
        Ok(self.connection.clone().scard(format!("firstcome:bench:field:{coupon}")).await?)
    }
}

impl CouponWay {
    /// Creates a coupon with this stock.
    async fn put(&self, coupon: &str, stock: u32, numbers: u32) -> anyhow::Result<()> {
        match self {
            Self::Embedded(store) => put(store, &name(coupon)?, stock).await,
            Self::Cluster(store) => put(store.as_ref(), &name(coupon)?, stock).await,
            Self::Redis(_) => Ok(()),
            Self::ScriptThenInsert(_, sql) | Self::Sql(sql) => sql.put(coupon, stock, numbers).await,
        }
    }

    async fn claim(&self, coupon: &str, stock: u32, user: &str) -> anyhow::Result<Answer> {
        match self {
            Self::Embedded(store) => claim_from(store, coupon, user).await,
            Self::Cluster(store) => claim_from(store.as_ref(), coupon, user).await,
            Self::Redis(redis) => redis.claim(coupon, stock, user).await,
            Self::ScriptThenInsert(redis, sql) => match redis.claim(coupon, stock, user).await? {
                // A crash between the two leaves a coupon that Redis counts and SQL does not have.
                Answer::Issued => sql.claim(coupon, user).await,
                other => Ok(other),
            },
            Self::Sql(sql) => sql.claim(coupon, user).await,
        }
    }

    /// Returns how many the store says it has issued.
    async fn count(&self, coupon: &str) -> anyhow::Result<u64> {
        match self {
            Self::Embedded(store) => {
                let view = store.coupon(&name(coupon)?).await?;
                Ok(view.map_or(0, |view| u64::from(view.issued)))
            }
            Self::Cluster(store) => {
                let view = store.coupon(&name(coupon)?).await?;
                Ok(view.map_or(0, |view| u64::from(view.issued)))
            }
            Self::Redis(redis) => redis.count(coupon).await,
            Self::ScriptThenInsert(_, sql) | Self::Sql(sql) => sql.count(coupon).await,
        }
    }
}

async fn claim_from(store: &impl CouponStore, coupon: &str, user: &str) -> anyhow::Result<Answer> {
    match store.claim(&name(coupon)?, claim_by(user)?).await {
        Ok(Ok(effect)) => {
            let _ = Effect::into_inner(effect);
            Ok(Answer::Issued)
        }
        Ok(Err(_)) => Ok(Answer::Refused),
        Err(error) if is_refused(&error) => Ok(Answer::Busy),
        Err(error) => Err(error.into()),
    }
}

/// All users claim twice, all at once. Returns what was wrong: the answers or the rows are not exactly the stock.
async fn contest(way: &CouponWay, coupon: &str) -> anyhow::Result<Option<String>> {
    way.put(coupon, CONTEST_STOCK, CONTEST_STOCK).await?;
    let users = (0..2 * CONTEST_STOCK).map(|user| {
        let (way, coupon) = (way.clone(), coupon.to_owned());
        tokio::spawn(async move {
            let mut issued = 0_u64;
            for _ in 0..2 {
                loop {
                    match way.claim(&coupon, CONTEST_STOCK, &format!("user-{user}")).await? {
                        Answer::Busy => tokio::time::sleep(Duration::from_millis(5)).await,
                        answer => {
                            issued += u64::from(answer == Answer::Issued);
                            break;
                        }
                    }
                }
            }
            anyhow::Ok(issued)
        })
    });
    let (mut told, mut twice) = (0, 0);
    for user in users.collect::<Vec<_>>() {
        let issued = user.await??;
        told += issued;
        twice += issued.saturating_sub(1);
    }
    let stored = way.count(coupon).await?;
    let wanted = u64::from(CONTEST_STOCK);
    let exact = told == wanted && stored == wanted && twice == 0;
    let finding = format!("of {wanted} coupons it told {told} as issued and stored {stored}; {twice} users got two");
    Ok((!exact).then_some(finding))
}

/// One way with its measurements so far.
struct Line {
    way: Way,
    claims: Result<CouponWay, String>,
    limit: Limit,
    samples: Vec<Sample>,
    finding: Option<String>,
    exact: Option<bool>,
}

/// The limit that a way is compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    Insert,
    Sets,
    Commit,
}

impl Limit {
    const fn says(self) -> &'static str {
        match self {
            Self::Insert => "bare insert loop, same batch",
            Self::Sets => "bare SETs, same callers",
            Self::Commit => "one commit of PostgreSQL at a time",
        }
    }
}

const NOT_IN_ONE_STEP: Option<&str> = Some("others add between its count and its add");
const CRASH_BETWEEN: Option<&str> =
    Some("a crash between script and insert leaves a coupon that Redis counts and SQL lacks");
const NOT_IN_ORDER: Option<&str> = Some("numbers are not in the order of arrival");

fn line(name: &str, limit: Limit, durable: bool, claims: Result<CouponWay, String>) -> Line {
    let ours = name.starts_with("firstcome");
    let way = Way { name: name.to_owned(), ours, limit: limit.says(), durable: Some(durable), note: None };
    Line { way, claims, limit, samples: Vec::new(), finding: None, exact: None }
}

/// The servers of the ways, which end with this value.
struct Servers {
    redis: Server,
    /// A Redis that syncs, and a database: for the cluster and the ways by hand.
    durable: Result<(Server, OwnDatabase), String>,
}

impl Servers {
    async fn start(args: &FieldArgs, scratch: &Path) -> anyhow::Result<Self> {
        let redis = Server::start(Kind::Redis, &Options::new(Durability::Quick).within(scratch)).await?;
        if args.no_databases {
            return Ok(Self { redis, durable: Err("left out by --no-databases".into()) });
        }
        let database = match OwnDatabase::open(&Named::Started(Kind::Postgres), scratch).await {
            Ok(database) => database,
            Err(error) => return Ok(Self { redis, durable: Err(format!("{error:#}")) }),
        };
        let mut options = Options::new(Durability::Durable).within(scratch);
        options.settings.push("auto-aof-rewrite-percentage=0".to_owned());
        let synced = Server::start(Kind::Redis, &options).await?;
        Ok(Self { redis, durable: Ok((synced, database)) })
    }

    /// Opens all ways, as far as there are servers for them.
    async fn lines(&self, scratch: &Path) -> anyhow::Result<Vec<Line>> {
        let embedded = CouponWay::Embedded(disk(scratch)?);
        let quick = async |kind| anyhow::Ok(RedisWay::open(self.redis.url(), kind).await?);
        let script = quick(RedisKind::Script).await?;
        let mut lines = vec![
            line("firstcome, embedded", Limit::Insert, true, Ok(embedded)),
            line(
                "Redis set: SCARD, then SADD",
                Limit::Sets,
                false,
                Ok(CouponWay::Redis(quick(RedisKind::TwoCommands).await?)),
            ),
            line("Redis script", Limit::Sets, false, Ok(CouponWay::Redis(script.clone()))),
        ];
        lines[1].way.note = NOT_IN_ONE_STEP;
        let (cluster, sql) = match &self.durable {
            Err(reason) => (Err(reason.clone()), Err(reason.clone())),
            Ok((synced, database)) => {
                let node = Cluster::open(synced.url(), &database.url, secret()?, ClusterOptions::default()).await?;
                let sql = BySql::open(&database.url).await?;
                (Ok(CouponWay::Cluster(Box::new(node))), Ok(sql))
            }
        };
        let by_sql = |way| sql.clone().map(|sql: BySql| CouponWay::Sql(sql.by(way)));
        let insert = sql.clone().map(|sql| CouponWay::ScriptThenInsert(script, sql.by(SqlWay::Insert)));
        let mut after = vec![
            line("firstcome on Redis and PostgreSQL", Limit::Commit, true, cluster),
            line("Redis script, then one INSERT", Limit::Commit, true, insert),
            line("conditional UPDATE", Limit::Commit, true, by_sql(SqlWay::ConditionalUpdate)),
            line("table of numbers, SKIP LOCKED", Limit::Commit, true, by_sql(SqlWay::SkipLocked)),
            line("SELECT FOR UPDATE", Limit::Commit, true, by_sql(SqlWay::ForUpdate)),
        ];
        after[1].way.note = CRASH_BETWEEN;
        after[3].way.note = NOT_IN_ORDER;
        lines.extend(after);
        Ok(lines)
    }
}

/// Measures all ways.
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
    let scratch = Scratch::new(&args.data, "field-coupons")?;
    let servers = Servers::start(args, &scratch.0).await?;
    let mut database = None;
    if let Ok((_, own)) = &servers.durable {
        versions.insert("PostgreSQL".into(), own.version().await?);
        database = Some(Bare::open(&own.url).await?);
    }
    let directory = scratch.0.join("embedded");
    std::fs::create_dir(&directory)?;
    let mut lines = servers.lines(&directory).await?;
    progress.expect(lines.iter().filter(|line| line.claims.is_ok()).count() * (args.rounds as usize + 1));
    for (at, line) in lines.iter_mut().enumerate() {
        let Ok(way) = &line.claims else { continue };
        progress.step(&format!("coupons: contest, {}", line.way.name));
        line.finding = contest(way, &format!("contest-{at}")).await?;
        line.exact = Some(line.finding.is_none());
    }
    for number in 0..args.rounds {
        let limits = Limits::measure(args, &servers, database.as_mut(), &scratch.0).await?;
        for at in turns(lines.len(), number) {
            let line = &mut lines[at];
            if line.claims.is_ok() {
                progress.step(&format!("coupons: {}, round {}", line.way.name, number + 1));
                if let Err(error) = round(args, &limits, line, &format!("round-{number}-{at}")).await {
                    line.claims = Err(format!("{error:#}"));
                }
            }
        }
    }
    let mut table =
        Table::new("coupons", format!("One coupon, {} callers, in process", args.callers), "claims per second");
    for line in lines {
        table.add(line.way, None, &line.samples, line.claims.err());
    }
    Ok(table)
}

/// What the limits made in one round, per second.
struct Limits {
    insert: f64,
    sets: f64,
    commits: Option<f64>,
}

impl Limits {
    async fn measure(
        args: &FieldArgs,
        servers: &Servers,
        database: Option<&mut Bare>,
        scratch: &Path,
    ) -> anyhow::Result<Self> {
        let directory = scratch.join("bare");
        std::fs::create_dir_all(&directory)?;
        disk(&directory)?.close();
        // A batch is what arrives during a sync: at most one claim of each caller.
        let insert = bare::insert(&directory, "bare", args.callers as usize, LIMIT_TIME)?.per_second;
        std::fs::remove_dir_all(&directory)?;
        let commits = match database {
            Some(database) => Some(database.commits(LIMIT_TIME).await?),
            None => None,
        };
        Ok(Self { insert, sets: redis_sets(servers.redis.url(), args.callers as usize, LIMIT_TIME).await?, commits })
    }

    const fn of(&self, limit: Limit) -> Option<f64> {
        match limit {
            Limit::Insert => Some(self.insert),
            Limit::Sets => Some(self.sets),
            Limit::Commit => self.commits,
        }
    }
}

/// Lets all callers claim again and again for the time of a round.
async fn round(args: &FieldArgs, limits: &Limits, line: &mut Line, coupon: &str) -> anyhow::Result<()> {
    let Ok(way) = &line.claims else { return Ok(()) };
    way.put(coupon, STOCK, numbers(args.time)).await?;
    let (asked, of) = (way.clone(), coupon.to_owned());
    let claim = move |user: String| {
        let (way, coupon) = (asked.clone(), of.clone());
        async move {
            match way.claim(&coupon, STOCK, &user).await? {
                Answer::Issued => Ok(Taken::Issued),
                Answer::Busy => Ok(Taken::Busy),
                Answer::Refused => bail!("a claim was refused that must succeed"),
            }
        }
    };
    let (row, told) = closed_loop_of(claim, &line.way.name, args.callers as usize, args.time).await?;
    let stored = way.count(coupon).await?;
    let exact = stored == told && line.exact != Some(false);
    let lost = (stored != told).then(|| format!("it told {told} claims as issued and stored {stored}"));
    line.samples.push(Sample {
        per_second: row.per_second,
        limit: limits.of(line.limit),
        p99_us: row.p99_us.map(|us| us as f64),
        overtaken: None,
        exact: Some(exact),
        finding: line.finding.clone().or(lost),
    });
    Ok(())
}

/// How many numbers a table of numbers needs for a round: more than any database issues in that time.
fn numbers(time: Duration) -> u32 {
    (time.as_secs_f64() * 20_000.0) as u32 + 10_000
}
