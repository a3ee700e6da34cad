//! Coupons over Redis and a database, as on a cluster. Beside them: a bare script, and the usual way, a script and an
//! insert per claim.

use super::{CouponsArgs, Scratch, claim_by, closed_loop, contest, name, open_loop, put};
use crate::conditions::micros;
use crate::database::{Named, OwnDatabase, is_postgres};
use crate::failure::Failure;
use crate::http::{self, Service};
use crate::load::{Aim, Shot, fire};
use crate::redis_set;
use crate::report::{Latencies, Report, ReportRow, Target, latencies};
use crate::stop::{unless_stopped, when_ended};
use anyhow::{Context, anyhow, bail};
use firstcome::CouponStore;
use firstcome::cluster::{Cluster, ClusterOptions, DeploymentSecret, migrate};
use firstcome::core::coupon::{Acknowledge, CouponLimit, CouponSettings};
use firstcome::edge::Stopwatch;
use firstcome::sql::DatabaseOptions;
use firstcome_test_servers::{Durability, Kind, Options, Server};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::{MySqlPool, PgPool};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The connections of the usual way: as many as a node has at most.
const CONNECTIONS: u32 = 32;
/// The required rate with `durability: database` on PostgreSQL.
const POSTGRES_PER_SECOND: f64 = 20_000.0;
/// The required rate on MariaDB; see [`POSTGRES_PER_SECOND`].
const MARIADB_PER_SECOND: f64 = 15_000.0;
const HALF_LOAD_P99_MS: f64 = 25.0;
const BY_HAND_TIMES: f64 = 5.0;
/// As a share of the bare script's rate.
const GATE_SHARE: f64 = 0.7;
/// The most outbox entries while the sequencer alone is measured: enough for all of them.
const BACKLOG: u64 = 100_000_000;

/// The secret of the benchmark's deployment.
const SECRET: &str = "a benchmark's own, a benchmark's own, a benchmark's own";

pub(crate) fn secret() -> anyhow::Result<DeploymentSecret> {
    DeploymentSecret::new(SECRET).context("a secret")
}

/// The servers of one measurement.
struct ClusterServers<'a> {
    redis: &'a str,
    sql: &'a str,
    /// The product and version of the database.
    store: String,
    scratch: &'a Path,
}

impl ClusterServers<'_> {
    async fn node(&self) -> anyhow::Result<Cluster> {
        self.node_with(ClusterOptions::default()).await
    }

    async fn node_with(&self, options: ClusterOptions) -> anyhow::Result<Cluster> {
        Ok(Cluster::open(self.redis, self.sql, secret()?, options).await?)
    }
}

/// Measures the strategies on one database.
pub(super) async fn measure(
    args: &CouponsArgs,
    named: &Named,
    report: &mut Report,
    done: impl Fn(&'static str),
) -> Result<(), Failure> {
    let scratch = Scratch::new(&args.data, "many")?;
    let mut options = Options::new(Durability::Durable).within(&scratch.0);
    // Redis rewrites its log each time that it has doubled, which blocks all clients for a tenth of a second. That
    // would make one strategy look slow by chance.
    options.settings.push("auto-aof-rewrite-percentage=0".to_owned());
    let redis = Server::start(Kind::Redis, &options).await.map_err(|error| Failure::Unreachable(error.into()))?;
    let database = OwnDatabase::open(named, &scratch.0).await.map_err(Failure::Unreachable)?;
    let measured = unless_stopped(async {
        if matches!(named, Named::Started(Kind::Postgres)) {
            run_in(&database.url).await?;
        }
        let store = database.version().await?;
        let place = ClusterServers { redis: redis.url(), sql: &database.url, store, scratch: &scratch.0 };
        Ok(strategies(args, &place, report, &done).await?)
    });
    let measured = measured.await;
    when_ended(measured, database.end()).await?;
    if 0 == args.claims {
        return Ok(());
    }
    let database = OwnDatabase::open(named, &scratch.0).await.map_err(Failure::Unreachable)?;
    let open = unless_stopped(async { Ok(reopened(args, &database.url, &scratch.0).await?) }).await;
    let names = if is_postgres(&database.url) { POSTGRES } else { MARIADB };
    let open = when_ended(open, database.end()).await?;
    let wanted_s = REOPENED_S * (f64::from(args.claims) / 1e6).max(1.0);
    report.targets.push(Target::at_most(names[4], open.as_secs_f64(), wanted_s));
    done("an empty Redis");
    Ok(())
}

/// Gives a started PostgreSQL the log files of one that has run for a while. PostgreSQL creates files of 16 MB one by
/// one, and no transaction commits meanwhile. That takes a tenth of a second each time, and is not measured here.
async fn run_in(url: &str) -> anyhow::Result<()> {
    let pool = PgPoolOptions::new().max_connections(1).connect(url).await?;
    for _ in 0..LOG_FILES {
        for step in ["SELECT pg_logical_emit_message(false,'','')", "SELECT pg_switch_wal()"] {
            sqlx::query(step).execute(&pool).await?;
        }
    }
    // The checkpoint recycles the older files.
    sqlx::query("CHECKPOINT").execute(&pool).await?;
    pool.close().await;
    Ok(())
}

/// As many files as all strategies fill.
const LOG_FILES: u32 = 128;

async fn strategies(
    args: &CouponsArgs,
    place: &ClusterServers<'_>,
    report: &mut Report,
    done: &impl Fn(&'static str),
) -> anyhow::Result<()> {
    let store = &place.store;
    let bare = redis_set::bare(place.redis, args.tasks, args.time).await?;
    let bare = ReportRow { strategy: format!("{store}: beside it a bare script, set if below limit"), ..bare };
    done("bare script");
    let by_hand = by_hand(place, args.tasks, args.time).await?;
    done("script, then one insert per claim");
    let placed = placed(place, args.tasks, args.time).await?;
    let placed = ReportRow { strategy: format!("{store}: durability redis"), ..placed };
    done("durability redis");
    let node = place.node().await?;
    let correct = contest(&node).await?;
    let before = node.counts();
    let row = closed_loop(&node, &format!("{store}: durability database"), args.tasks, args.time).await?;
    let after = node.counts();
    let per_commit = (after.written - before.written) as f64 / (after.transactions - before.transactions).max(1) as f64;
    done("durability database");
    let (half, refused) = open_loop(&node, row.per_second / 2.0, args.half_load).await?;
    done("half load");
    let (wanted, names) =
        if is_postgres(place.sql) { (POSTGRES_PER_SECOND, POSTGRES) } else { (MARIADB_PER_SECOND, MARIADB) };
    report.targets.push(Target::at_least(names[3], placed.per_second / bare.per_second, GATE_SHARE));
    report.targets.push(Target::at_least(names[0], row.per_second, wanted));
    report.targets.push(Target::at_most(names[1], half.value_at_quantile(0.99) as f64 / 1e3, HALF_LOAD_P99_MS));
    report.targets.push(Target::at_least(names[2], row.per_second / by_hand.per_second, BY_HAND_TIMES));
    let half =
        ReportRow::new(format!("{store}: half load"), half.len(), args.half_load).latencies(&half).refused(refused);
    report.rows.extend([bare, placed, row.per_commit(per_commit).correct(correct), half]);
    report.rows.push(ReportRow { strategy: format!("{store}: {}", by_hand.strategy), ..by_hand });
    if 0 < args.connections {
        report.rows.extend(over_http(args, place).await?);
        done("HTTP");
    }
    Ok(())
}

const POSTGRES: [&str; 5] = [
    "PostgreSQL: durable claims per second",
    "PostgreSQL: half load, p99, ms",
    "PostgreSQL: ÷ script and insert",
    "PostgreSQL: durability redis ÷ bare script",
    "PostgreSQL: Redis killed and back empty, all claims in SQL: open again, s",
];
const MARIADB: [&str; 5] = [
    "MariaDB: durable claims per second",
    "MariaDB: half load, p99, ms",
    "MariaDB: ÷ script and insert",
    "MariaDB: durability redis ÷ bare script",
    "MariaDB: Redis killed and back empty, all claims in SQL: open again, s",
];
/// The longest time in which a sequencer with a million claims may be closed.
const REOPENED_S: f64 = 5.0;

/// Measures three services over HTTP: one that only runs the bare script, and a node with either durability.
async fn over_http(args: &CouponsArgs, place: &ClusterServers<'_>) -> anyhow::Result<Vec<ReportRow>> {
    let (store, secret) = (&place.store, place.scratch.join("secret"));
    // A service also serves members and listings.
    migrate(place.sql, DatabaseOptions::default()).await?;
    std::fs::write(&secret, SECRET)?;
    let secret = secret.to_str().context("the directory's name is not text")?;
    let node = place.node().await?;
    for (coupon, acknowledge) in [("http-redis", Acknowledge::Placed), ("http-database", Acknowledge::Stored)] {
        let limit = CouponLimit::new(100_000_000).context("limit")?;
        let settings = CouponSettings { acknowledge, ..CouponSettings::with_limit(limit) };
        node.put_coupon(&name(coupon)?, settings).await?.map_err(|refused| anyhow!("{}", refused.rejection.code()))?;
    }
    let bare = Service::start(&["empty-route", "--redis", place.redis])?;
    let servers = ["--redis", place.redis, "--sql", place.sql, "--secret-file", secret];
    let service = Service::start(&[&["serve", "--listen", "127.0.0.1:0"], &servers[..]].concat())?;
    let mut rows = Vec::new();
    for (what, address, path) in [
        ("bare script", bare.address, "/bare"),
        ("durability redis", service.address, "/v1/coupons/http-redis/claims"),
        ("durability database", service.address, "/v1/coupons/http-database/claims"),
    ] {
        let (aim, connections, time) = (Aim::One(path.to_owned()), args.connections, args.time);
        let shot = Shot { method: "POST", aim, key: Some(http::KEY.into()), pass: None, body: http::fresh_body };
        let load = tokio::task::spawn_blocking(move || fire(address, &shot, connections, time)).await??;
        load.expect(&format!("{what} over HTTP"), &[200, 201])?;
        rows.push(
            ReportRow::new(format!("{store}: HTTP: {what}"), load.times.len(), load.elapsed).latencies(&load.times),
        );
    }
    Ok(rows)
}

/// Measures how long a coupon with so many claims is closed when Redis is killed and comes back empty.
async fn reopened(args: &CouponsArgs, sql: &str, scratch: &Path) -> anyhow::Result<Duration> {
    // This Redis keeps its data in memory only.
    let options = Options::new(Durability::Quick).within(scratch);
    let mut server = Server::start(Kind::Redis, &options).await?;
    let node = Cluster::open(server.url(), sql, secret()?, ClusterOptions::default()).await?;
    let coupon = name("full")?;
    put(&node, &coupon, 100_000_000).await?;
    let (claims, tasks) = (args.claims, u32::try_from(args.tasks)?);
    let callers = (0..tasks).map(|task| {
        let (node, coupon) = (node.clone(), coupon.clone());
        tokio::spawn(async move {
            for number in (task..claims).step_by(tasks as usize) {
                let claimed = node.claim(&coupon, claim_by(&format!("user-{number:011}"))?).await?;
                claimed.map_err(|refused| anyhow!("{}", refused.rejection.code()))?;
            }
            anyhow::Ok(())
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await??;
    }
    server.kill();
    let watch = Stopwatch::start();
    server.restart().await?;
    for attempt in 0_u32.. {
        match node.claim(&coupon, claim_by(&format!("late-{attempt}"))?).await {
            Ok(claimed) => {
                let claimed = claimed.map_err(|refused| anyhow!("{}", refused.rejection.code()))?.into_inner();
                let took = watch.elapsed();
                if claimed.issued.serial.get() <= claims {
                    bail!("serial {} was issued twice", claimed.issued.serial.get());
                }
                if node.counts().rebuilt == 0 {
                    bail!("Redis came back with what it had");
                }
                return Ok(took);
            }
            Err(error) if PATIENCE < watch.elapsed() => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    bail!("it does not open again")
}

/// Measures claims that Redis acknowledges while SQL takes over what it can. Then waits until SQL has all of them.
async fn placed(place: &ClusterServers<'_>, tasks: usize, time: Duration) -> anyhow::Result<ReportRow> {
    let mut options = ClusterOptions::default();
    options.backlog_max = BACKLOG;
    // It measures what Redis costs, on any Redis that was named.
    options.allow_forgetful = true;
    let node = place.node_with(options).await?;
    let coupon = name("placed")?;
    let limit = CouponLimit::new(100_000_000).context("limit")?;
    let settings = CouponSettings { acknowledge: Acknowledge::Placed, ..CouponSettings::with_limit(limit) };
    node.put_coupon(&coupon, settings).await?.map_err(|refused| anyhow!("{}", refused.rejection.code()))?;
    let watch = Stopwatch::start();
    let callers = (0..tasks).map(|task| {
        let (node, coupon) = (node.clone(), coupon.clone());
        tokio::spawn(async move {
            let mut times = latencies();
            for number in 0_u64.. {
                let sent = watch.elapsed();
                if time <= sent {
                    break;
                }
                let claim = claim_by(&format!("user-{task:03}-{number:08}"))?;
                let given = node.claim_early(&coupon, claim).await?;
                given.map_err(|refused| anyhow!("{}", refused.rejection.code()))?;
                times.saturating_record(micros(watch.elapsed().saturating_sub(sent)));
            }
            anyhow::Ok(times)
        })
    });
    let mut times = latencies();
    for caller in callers.collect::<Vec<_>>() {
        times.add(caller.await??)?;
    }
    let row = ReportRow::new("durability redis", times.len(), watch.elapsed()).latencies(&times);
    let until = watch.elapsed() + PATIENCE;
    while node.coupon(&coupon).await?.map_or(0, |view| u64::from(view.issued)) < times.len() {
        if until < watch.elapsed() {
            bail!("SQL has not taken over what was acknowledged");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let issued = node.coupon(&coupon).await?.map_or(0, |view| u64::from(view.issued));
    Ok(row.correct(issued == times.len()))
}

/// The longest time for SQL to take over acknowledged claims.
const PATIENCE: Duration = Duration::from_secs(60);

/// The table of the usual way.
#[derive(Clone)]
enum Table {
    Postgres(PgPool),
    MySql(MySqlPool),
}

impl Table {
    async fn make(url: &str) -> anyhow::Result<Self> {
        let made = "CREATE TABLE issued (coupon bigint NOT NULL, name varchar(128) NOT NULL, at bigint NOT NULL, \
            PRIMARY KEY (coupon, name))";
        Ok(if is_postgres(url) {
            let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(url).await?;
            sqlx::query(made).execute(&pool).await?;
            Self::Postgres(pool)
        } else {
            let pool = MySqlPoolOptions::new().max_connections(CONNECTIONS).connect(url).await?;
            sqlx::query(made).execute(&pool).await?;
            Self::MySql(pool)
        })
    }

    async fn insert(&self, user: &str) -> anyhow::Result<()> {
        let rows = match self {
            Self::Postgres(pool) => {
                let insert = sqlx::query("INSERT INTO issued (coupon, name, at) VALUES (1, $1, $2)");
                insert.bind(user).bind(1_i64).execute(pool).await?.rows_affected()
            }
            Self::MySql(pool) => {
                let insert = sqlx::query("INSERT INTO issued (coupon, name, at) VALUES (1, ?, ?)");
                insert.bind(user).bind(1_i64).execute(pool).await?.rows_affected()
            }
        };
        if rows == 1 { Ok(()) } else { bail!("{rows} rows were inserted") }
    }
}

/// The usual way: the script decides, then the task inserts one row. A crash in between leaves a claim that SQL does
/// not have.
async fn by_hand(place: &ClusterServers<'_>, tasks: usize, time: Duration) -> anyhow::Result<ReportRow> {
    let table = Table::make(place.sql).await?;
    let set = Arc::new(redis_set::Set::open(place.redis, "firstcome:bench:o5").await?);
    let watch = Stopwatch::start();
    let claimants = (0..tasks).map(|task| {
        let (table, set) = (table.clone(), Arc::clone(&set));
        tokio::spawn(async move {
            let mut times: Latencies = latencies();
            for number in 0_u64.. {
                if time <= watch.elapsed() {
                    break;
                }
                let one = Stopwatch::start();
                let user = format!("user-{task:03}-{number:08}");
                if set.claim(&user, 100_000_000).await? {
                    table.insert(&user).await?;
                }
                times.saturating_record(micros(one.elapsed()));
            }
            anyhow::Ok(times)
        })
    });
    let mut times = latencies();
    for claimant in claimants.collect::<Vec<_>>() {
        times.add(claimant.await??)?;
    }
    Ok(ReportRow::new("script, then one insert per claim", times.len(), watch.elapsed())
        .latencies(&times)
        .into_comparison())
}
