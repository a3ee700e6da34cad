//! `firstcome-bench coupons`: measures the speed and the correctness of every strategy.

pub(crate) mod cluster;
mod field;

pub(crate) use field::field;

use super::conditions::{Conditions, micros};
use super::report::{Latencies, Origin, Report, ReportRow, Target, latencies};
use super::{bare, http, redis_set};
use crate::arguments::duration;
use crate::database::Named;
use crate::failure::{Failure, Outcome};
use crate::output::{progress, wants_table};
use anyhow::{Context, anyhow, bail};
use clap::Args;
use firstcome::core::coupon::{Claim, CouponLimit, CouponSettings, Effect};
use firstcome::core::id::{CouponName, UserId};
use firstcome::edge::{Stopwatch, SystemClock};
use firstcome::{CouponStore, Embedded, Error, Store, StoreError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Coupons and claimants of a contest: half of the claimants must get nothing.
const CONTEST_LIMIT: u32 = 10_000;
const CONTEST_USERS: u32 = 20_000;

#[derive(Args)]
pub(crate) struct CouponsArgs {
    /// Directory on a disk, in which scratch directories are made and removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Also run the way of a Redis set on this local Redis
    #[arg(long, value_name = "redis://…")]
    store: Option<String>,
    /// Measure coupons over Redis and this database instead, as on a cluster: postgres or mariadb for a server that is
    /// started, or the address of one on this machine
    #[arg(long, value_name = "KIND|URL", conflicts_with = "store")]
    sql: Vec<String>,
    /// Time for each strategy
    #[arg(long, value_parser = duration, default_value = "3s")]
    time: Duration,
    /// Time at half load, for latencies and stalls
    #[arg(long, value_parser = duration, default_value = "10s")]
    half_load: Duration,
    /// Callers at once, in process
    #[arg(long, default_value_t = 512)]
    tasks: usize,
    /// Connections over HTTP; 0 leaves HTTP out
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Claims for the figures of memory and restart; 0 leaves them out
    #[arg(long, default_value_t = 1_000_000)]
    claims: u32,
    /// Print JSON also on a terminal
    #[arg(long, conflicts_with = "table")]
    json: bool,
    /// Print tables even if the output is not a terminal
    #[arg(long)]
    table: bool,
}

/// A scratch directory that is removed when its benchmark ends.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(parent: &Path, name: &str) -> anyhow::Result<Self> {
        let path = parent.join(format!("firstcome-bench-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that stays does no harm: its name holds the process id.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn name(text: &str) -> anyhow::Result<CouponName> {
    CouponName::parse(text).map_err(|error| anyhow!("{error}"))
}

/// Opens a store in a directory.
pub(crate) fn disk(directory: &Path) -> anyhow::Result<Embedded> {
    Ok(firstcome::sqlite::open(directory, Arc::new(SystemClock::default()))?)
}

pub(crate) async fn put(store: &impl CouponStore, coupon: &CouponName, limit: u32) -> anyhow::Result<()> {
    let limit = CouponLimit::new(limit).context("limit")?;
    let settings = CouponSettings::with_limit(limit);
    match patiently(|| store.put_coupon(coupon, settings.clone())).await?.0 {
        Ok(_) => Ok(()),
        Err(refused) => bail!("{}", refused.rejection.code()),
    }
}

pub(crate) fn claim_by(user: &str) -> anyhow::Result<Claim> {
    let user = UserId::parse(user).map_err(|error| anyhow!("{error}"))?;
    Ok(Claim { user, attributes: None, request: None })
}

/// Runs the strategies over Redis and databases.
fn run_many(args: &CouponsArgs) -> Outcome {
    let named: Vec<Named> =
        args.sql.iter().map(|sql| Named::parse(sql)).collect::<Result<_, _>>().map_err(Failure::Usage)?;
    let conditions = Conditions::measure(&args.data).map_err(Failure::Usage)?;
    let each = 5 + u64::from(0 < args.connections) + u64::from(0 < args.claims);
    let bar = progress(each * named.len() as u64, "");
    let mut report = Report { conditions, rows: Vec::new(), targets: Vec::new() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for named in &named {
        let done = |doing| {
            bar.set_message(doing);
            bar.inc(1);
        };
        runtime.block_on(cluster::measure(args, named, &mut report, done))?;
    }
    bar.finish_and_clear();
    report.print(args.table || wants_table(args.json))?;
    if report.rows.iter().any(|row| row.correct == Some(false)) {
        return Err(Failure::Refused(anyhow!("a strategy of ours was not exact")));
    }
    Ok(())
}

pub(crate) fn run(args: &CouponsArgs) -> Outcome {
    if !args.sql.is_empty() {
        return run_many(args);
    }
    let conditions = Conditions::measure(&args.data).map_err(Failure::Usage)?;
    let steps = 6 + u64::from(args.store.is_some()) + u64::from(0 < args.connections) + u64::from(0 < args.claims);
    let bar = progress(steps, "");
    let mut report = Report { conditions, rows: Vec::new(), targets: Vec::new() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    in_process(args, &runtime, &mut report, |doing| {
        bar.set_message(doing);
        bar.inc(1);
    })?;
    if let Some(url) = &args.store {
        bar.set_message("Redis set");
        report.rows.push(runtime.block_on(redis_set::run(url, args.tasks, args.time))?);
        bar.inc(1);
    }
    if 0 < args.connections {
        bar.set_message("HTTP");
        http::measure(&args.data, args.connections, args.time, &mut report)?;
        bar.inc(1);
    }
    if 0 < args.claims {
        bar.set_message("memory and restart");
        http::measure_size(&args.data, args.claims, &runtime, &mut report)?;
        bar.inc(1);
    }
    let megabytes = report.conditions.binary_bytes as f64 / 1e6;
    report.targets.push(Target::at_most("binary, MB", megabytes, 16.0));
    bar.finish_and_clear();
    report.print(args.table || wants_table(args.json))?;
    let wrong = report.rows.iter().any(|row| row.correct == Some(false) && row.origin == Origin::Firstcome);
    if wrong { Err(Failure::Refused(anyhow!("a strategy of ours was not exact"))) } else { Ok(()) }
}

fn in_process(
    args: &CouponsArgs,
    runtime: &Runtime,
    report: &mut Report,
    done: impl Fn(&'static str),
) -> anyhow::Result<()> {
    let group = {
        let scratch = Scratch::new(&args.data, "group")?;
        let store = disk(&scratch.0)?;
        let correct = runtime.block_on(contest(&store))?;
        let before = (store.stats().batch_changes.sum(), store.stats().batch_changes.count());
        let row = runtime.block_on(closed_loop(&store, "group commit", args.tasks, args.time))?;
        let after = (store.stats().batch_changes.sum(), store.stats().batch_changes.count());
        let per_commit = (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64;
        done("group commit");
        let (half, refused) = runtime.block_on(open_loop(&store, row.per_second / 2.0, args.half_load))?;
        done("half load");
        // A claim waits for the batch under way and for its own: more than a few of both are a stall of the writer.
        let batch_ms = per_commit / row.per_second * 1e3;
        let p99_max_ms = 5.0 * (report.conditions.fsync_p50_us as f64 / 1e3 + batch_ms);
        let p99_ms = half.value_at_quantile(0.99) as f64 / 1e3;
        report.targets.push(Target::at_most("half load: p99, ms", p99_ms, p99_max_ms));
        report.targets.push(Target::at_most("half load: longest stall, ms", half.max() as f64 / 1e3, 20.0));
        let half_row =
            ReportRow::new("group commit, half load", half.len(), args.half_load).latencies(&half).refused(refused);
        report.rows.push(row.per_commit(per_commit).correct(correct));
        report.rows.push(half_row);
        store.close();
        (report.rows[0].per_second, per_commit)
    };
    let batch = (group.1.round() as usize).max(1);
    let bare_row = bare_loop(&args.data, "bare insert loop, same batch", batch, args.time)?;
    let single = bare_loop(&args.data, "one commit per claim", 1, args.time)?;
    done("bare loops");
    report.targets.push(Target::at_least("durable claims ÷ bare insert loop", group.0 / bare_row.per_second, 0.75));
    report.targets.push(Target::at_least("durable claims per second", group.0, 120_000.0));
    report.targets.push(Target::at_least("durable claims ÷ one commit per claim", group.0 / single.per_second, 10.0));
    report.rows.extend([bare_row, single]);
    {
        let scratch = Scratch::new(&args.data, "lone")?;
        let store = disk(&scratch.0)?;
        runtime.block_on(put(&store, &name("lone")?, 100_000_000))?;
        let row = runtime.block_on(closed_loop(&store, "lone", 1, args.time.min(Duration::from_secs(2))))?;
        let over_ms = (row.p50_us.unwrap_or(0) as f64 - report.conditions.fsync_p50_us as f64) / 1e3;
        report.targets.push(Target::at_most("lone claim − one fsync, ms", over_ms, 0.5));
        report.rows.push(ReportRow { strategy: "group commit, one caller".into(), ..row });
        done("one caller");
    }
    let memory = Embedded::memory();
    let correct = runtime.block_on(contest(&memory))?;
    let row = runtime.block_on(closed_loop(&memory, "memory", args.tasks, args.time))?;
    let handles = Store::over(Embedded::memory().into());
    let through = runtime.block_on(through_handles(&handles, "memory, by handles", args.tasks, args.time))?;
    let share = through.per_second / row.per_second;
    report.targets.push(Target::at_least("claims in memory by handles ÷ on the store itself", share, 0.9));
    report.rows.extend([row.correct(correct), through]);
    done("memory");
    let row = sold_out(&args.data, args.time)?;
    report.targets.push(Target::at_least("sold-out answers per second", row.per_second, 3_000_000.0));
    report.rows.push(row);
    done("sold out");
    Ok(())
}

fn bare_loop(data: &Path, strategy: &str, batch: usize, time: Duration) -> anyhow::Result<ReportRow> {
    let scratch = Scratch::new(data, "bare")?;
    disk(&scratch.0)?.close();
    bare::insert(&scratch.0, strategy, batch, time)
}

/// How long the benchmark repeats a refused call that must succeed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pause after a refused call.
const REFUSED_PAUSE: Duration = Duration::from_millis(5);

/// Whether the store did nothing because it is overloaded, or cannot write for a while. That is a figure, not a
/// failure.
pub(crate) const fn is_refused(error: &StoreError) -> bool {
    matches!(error, StoreError::Busy { .. } | StoreError::NotStoredYet { .. } | StoreError::Faulted(_))
}

/// Repeats a call until it succeeds. Also returns how often it was refused.
pub(crate) async fn patiently<T, F: Future<Output = Result<T, StoreError>>>(
    ask: impl Fn() -> F,
) -> Result<(T, u64), StoreError> {
    let watch = Stopwatch::start();
    let mut refused = 0;
    loop {
        match ask().await {
            Ok(answer) => return Ok((answer, refused)),
            Err(error) if is_refused(&error) && watch.elapsed() < PATIENCE => refused += 1,
            Err(error) => return Err(error),
        }
        tokio::time::sleep(REFUSED_PAUSE).await;
    }
}

/// All users claim twice, all at once. Returns whether exactly N got one, each the same both times, with serials 1..N.
async fn contest(store: &(impl CouponStore + Clone + 'static)) -> anyhow::Result<bool> {
    let coupon = name("contest")?;
    put(store, &coupon, CONTEST_LIMIT).await?;
    let ask = |user: u32| {
        let (store, coupon) = (store.clone(), coupon.clone());
        tokio::spawn(async move {
            let claim = claim_by(&format!("user-{user}"))?;
            let (first, _) = patiently(|| store.claim(&coupon, claim.clone())).await?;
            let (second, _) = patiently(|| store.claim(&coupon, claim.clone())).await?;
            let first = first.ok().map(Effect::into_inner);
            let same = second.err().map(|refused| refused.claim) == Some(first.clone());
            anyhow::Ok(if same { Ok(first.map(|claim| claim.issued.serial.get())) } else { Err(()) })
        })
    };
    let asked: Vec<_> = (0..CONTEST_USERS).map(ask).collect();
    let mut serials = Vec::new();
    for answer in asked {
        match answer.await?? {
            Ok(serial) => serials.extend(serial),
            Err(()) => return Ok(false),
        }
    }
    serials.sort_unstable();
    Ok(serials == (1..=CONTEST_LIMIT).collect::<Vec<_>>())
}

/// Whether a store took a claim that must succeed.
enum Taken {
    Issued,
    /// It did nothing for now: see [`is_refused`].
    Busy,
}

/// Runs tasks that claim again after each answer.
async fn closed_loop(
    store: &(impl CouponStore + Clone + 'static),
    strategy: &str,
    tasks: usize,
    time: Duration,
) -> anyhow::Result<ReportRow> {
    let coupon = name("closed")?;
    put(store, &coupon, 100_000_000).await?;
    let asked = Arc::new((store.clone(), coupon.clone()));
    let claim = move |user: String| {
        let asked = Arc::clone(&asked);
        async move {
            match asked.0.claim(&asked.1, claim_by(&user)?).await {
                Ok(Ok(_)) => Ok(Taken::Issued),
                Ok(Err(refused)) => Err(anyhow!("{}", refused.rejection.code())),
                Err(error) if is_refused(&error) => Ok(Taken::Busy),
                Err(error) => Err(error.into()),
            }
        }
    };
    let (row, acknowledged) = closed_loop_of(claim, strategy, tasks, time).await?;
    let told = store.coupon(&coupon).await?.map_or(0, |view| u64::from(view.issued));
    if told != acknowledged {
        bail!("{told} are issued, {acknowledged} were acknowledged");
    }
    Ok(row)
}

/// Runs the same loop through the handles of the library, as a program does.
async fn through_handles(store: &Store, strategy: &str, tasks: usize, time: Duration) -> anyhow::Result<ReportRow> {
    let coupon = store.coupon("handles")?;
    coupon.put_limit(100_000_000).await?;
    let asked = coupon.clone();
    let claim = move |user: String| {
        let coupon = asked.clone();
        async move {
            match coupon.claim(&user)?.send().await {
                Ok(_) => Ok(Taken::Issued),
                Err(Error::Unavailable(_)) => Ok(Taken::Busy),
                Err(error) => Err(anyhow!(error)),
            }
        }
    };
    let (row, acknowledged) = closed_loop_of(claim, strategy, tasks, time).await?;
    let told = u64::from(coupon.view().await?.issued);
    if told != acknowledged {
        bail!("{told} are issued, {acknowledged} were acknowledged");
    }
    Ok(row)
}

/// Runs tasks that send a claim of another user after each answer. Also returns how many were issued.
async fn closed_loop_of<F, A>(
    claim: F,
    strategy: &str,
    tasks: usize,
    time: Duration,
) -> anyhow::Result<(ReportRow, u64)>
where
    F: Fn(String) -> A + Clone + Send + 'static,
    A: Future<Output = anyhow::Result<Taken>> + Send,
{
    let watch = Stopwatch::start();
    let callers = (0..tasks).map(|task| {
        let claim = claim.clone();
        tokio::spawn(async move {
            let (mut times, mut refused) = (latencies(), 0);
            let mut sent = watch.elapsed();
            for number in 0_u64.. {
                if time <= sent {
                    break;
                }
                if let Taken::Busy = claim(format!("user-{task:03}-{number:08}")).await? {
                    refused += 1;
                    tokio::time::sleep(REFUSED_PAUSE).await;
                    sent = watch.elapsed();
                    continue;
                }
                let answered = watch.elapsed();
                times.saturating_record(micros(answered.saturating_sub(sent)));
                sent = answered;
            }
            anyhow::Ok((times, refused))
        })
    });
    let (mut times, mut refused) = (latencies(), 0);
    for caller in callers.collect::<Vec<_>>() {
        let (own, turned_away) = caller.await??;
        times.add(own)?;
        refused += turned_away;
    }
    let row = ReportRow::new(strategy, times.len(), watch.elapsed()).latencies(&times).refused(refused);
    Ok((row, times.len()))
}

/// Sends claims at a fixed rate, whether or not earlier ones are answered. Each latency counts from the planned
/// instant. Also returns how many were refused.
async fn open_loop(
    store: &(impl CouponStore + Clone + 'static),
    per_second: f64,
    time: Duration,
) -> anyhow::Result<(Latencies, u64)> {
    let coupon = name("open")?;
    put(store, &coupon, 100_000_000).await?;
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let watch = Stopwatch::start();
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    let mut sent: u64 = 0;
    while watch.elapsed() < time {
        ticks.tick().await;
        let due = (watch.elapsed().as_secs_f64() * per_second) as u64;
        for number in sent..due {
            let (store, coupon, sender) = (store.clone(), coupon.clone(), sender.clone());
            let intended = Duration::from_secs_f64(number as f64 / per_second);
            tokio::spawn(async move {
                let claim = claim_by(&format!("user-{number:012}"))?;
                let answer = match store.claim(&coupon, claim).await {
                    Ok(Ok(_)) => Ok(Some(micros(watch.elapsed().saturating_sub(intended)))),
                    Ok(Err(refused)) => Err(anyhow!("{}", refused.rejection.code())),
                    Err(error) if is_refused(&error) => Ok(None),
                    Err(error) => Err(error.into()),
                };
                // The receiver lives until every sender is gone.
                let _ = sender.send(answer);
                anyhow::Ok(())
            });
        }
        sent = due;
    }
    drop(sender);
    let (mut times, mut refused) = (latencies(), 0);
    while let Some(answer) = receiver.recv().await {
        match answer? {
            Some(time_us) => times.saturating_record(time_us),
            None => refused += 1,
        }
    }
    if times.len() + refused != sent {
        bail!("{} of {sent} claims were answered", times.len() + refused);
    }
    Ok((times, refused))
}

/// Measures the answer "sold out", with one thread per processor.
fn sold_out(data: &Path, time: Duration) -> anyhow::Result<ReportRow> {
    let scratch = Scratch::new(data, "sold-out")?;
    let store = disk(&scratch.0)?;
    let coupon = name("gone")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        put(&store, &coupon, 1).await?;
        let claim = claim_by("first")?;
        patiently(|| store.claim(&coupon, claim.clone()))
            .await?
            .0
            .map_err(|refused| anyhow!("{}", refused.rejection.code()))
    })?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let watch = Stopwatch::start();
    let askers = (0..threads).map(|thread| {
        let (store, coupon) = (store.clone(), coupon.clone());
        std::thread::spawn(move || ask_in_vain(&store, &coupon, thread, time))
    });
    let mut answers = 0;
    for asker in askers.collect::<Vec<_>>() {
        answers += asker.join().map_err(|_| anyhow!("a thread panicked"))??;
    }
    let row = ReportRow::new("sold out", answers, watch.elapsed());
    store.close();
    Ok(row)
}

fn ask_in_vain(store: &Embedded, coupon: &CouponName, thread: usize, time: Duration) -> anyhow::Result<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let claims: Vec<Claim> =
        (0..1_024).map(|user| claim_by(&format!("user-{thread:03}-{user:08}"))).collect::<Result<_, _>>()?;
    let watch = Stopwatch::start();
    runtime.block_on(async {
        let mut answers = 0;
        while watch.elapsed() < time {
            for claim in &claims {
                if store.claim(coupon, claim.clone()).await?.is_ok() {
                    bail!("a sold-out coupon was issued");
                }
                answers += 1;
            }
        }
        Ok(answers)
    })
}
