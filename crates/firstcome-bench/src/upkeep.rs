//! `firstcome-bench upkeep`: how long claims wait beside the erasure of a member, a purge, and a backup, each of many rows.
//!
//! A few callers claim one after the other on a durable store, first alone, then beside each kind of upkeep until that has ended. Each
//! claim is a commit of its own or of a few, so a turn of the writer that takes long shows in the longest wait.

use super::conditions::{Conditions, micros};
use super::coupons::{Scratch, claim_by, name, put};
use super::report::{Latencies, Report, ReportRow, Target, latencies};
use crate::failure::{Failure, Outcome};
use crate::output::{progress, wants_table};
use anyhow::{Context, anyhow, bail};
use clap::Args;
use firstcome::core::id::{CouponName, MemberName, UserId};
use firstcome::core::points::Amount;
use firstcome::core::time::Timestamp;
use firstcome::edge::{Clock as _, ManualClock, Stopwatch, SystemClock};
use firstcome::purge::{PurgeRequest, PurgeStore, Retention};
use firstcome::sqlite::{Snapshot, StoreFile};
use firstcome::{AuctionStore, CouponStore, Embedded, EraseStore, MovePoints, Transfer, sqlite};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Callers that claim.
const CALLERS: u64 = 4;
/// Charges that are asked for at once while the store is filled.
const FILL_AT_ONCE: u64 = 1_000;
/// Claims of the coupon: more than any run makes.
const LIMIT: u32 = 100_000_000;
/// How long claims are made alone.
const ALONE: Duration = Duration::from_secs(3);
/// The longest wait of a claim beside each kind of upkeep.
const WAIT_MS_MAX: f64 = 100.0;
const TARGETS: [&str; 3] = [
    "longest wait of a claim beside an erasure, ms",
    "longest wait of a claim beside a purge, ms",
    "longest wait of a claim beside a backup, ms",
];
/// The member with many records that is erased, and the one whose records a purge removes.
const MEMBERS: [&str; 2] = ["ann", "bob"];

#[derive(Args)]
pub(crate) struct UpkeepArgs {
    /// Directory on a disk, in which a scratch directory is made and removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Records of the member that is erased, and of the one that a purge empties
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    records: u64,
    /// Print JSON also on a terminal
    #[arg(long, conflicts_with = "table")]
    json: bool,
    /// Print tables even if the output is not a terminal
    #[arg(long)]
    table: bool,
}

pub(crate) fn run(args: &UpkeepArgs) -> Outcome {
    let conditions = Conditions::measure(&args.data).map_err(Failure::Usage)?;
    let mut report = Report { conditions, rows: Vec::new(), targets: Vec::new() };
    let scratch = Scratch::new(&args.data, "upkeep")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(args, &scratch.0, &mut report))?;
    report.print(args.table || wants_table(args.json))?;
    if report.rows.iter().any(|row| row.correct == Some(false)) {
        return Err(Failure::Refused(anyhow!("the store did not keep what it acknowledged")));
    }
    Ok(())
}

async fn measure(args: &UpkeepArgs, scratch: &Path, report: &mut Report) -> anyhow::Result<()> {
    let directory = scratch.join("data");
    let clock = Arc::new(ManualClock::new(SystemClock::default().now()));
    let store = sqlite::open(&directory, Arc::clone(&clock) as _)?;
    fill(&store, args.records).await?;
    // The records are old, and the purge has something to remove.
    clock.set(Timestamp::clamped_us(clock.now().as_us() + 40 * 86_400_000_000));
    let coupon = name("launch")?;
    put(&store, &coupon, LIMIT).await?;
    let (asked, made) = (Arc::default(), Arc::default());
    let claims = Claims { store: store.clone(), coupon: coupon.clone(), asked, made };

    let bar = progress(4, "claims alone");
    let ((), alone) = claims.beside(tokio::time::sleep(ALONE)).await?;
    bar.set_message("an erasure");
    bar.inc(1);
    let person = UserId::parse(MEMBERS[0]).map_err(|error| anyhow!("{error}"))?;
    let (erased, erasure) = claims.beside(store.erase(&person)).await?;
    bar.set_message("a purge");
    bar.inc(1);
    let retention = Retention { records: Some(Duration::from_secs(31 * 86_400)), ..Retention::FOREVER };
    let (purged, purge) = claims.beside(store.purge(PurgeRequest::new(retention))).await?;
    bar.set_message("a backup");
    bar.inc(1);
    let (from, to) = (directory.clone(), scratch.join("backup"));
    let copy = tokio::task::spawn_blocking(move || copy_all(&from, &to));
    let (copied, backup) = claims.beside(copy).await?;
    bar.finish_and_clear();

    copied??;
    let erased = erased?.map_err(|rejection| anyhow!("{rejection}"))?.records;
    let removed = purged?.map_err(|rejection| anyhow!("{rejection}"))?.records;
    let shown = store.coupon(&coupon).await?.map_err(|refused| anyhow!("{}", refused.rejection.code()))?;
    let is_whole = u64::from(shown.issued) == claims.made.load(Ordering::Relaxed);
    store.close();
    drop((store, claims));
    let is_sound = sqlite::verify(&directory)?.iter().all(|check| check.breaches == 0);
    // A purge keeps the last record of each of the two members.
    let is_right = is_whole && is_sound && erased == args.records && removed == 2 * (args.records - 1);
    let rows = [
        ("claims alone".to_owned(), &alone),
        (format!("beside an erasure: {erased} records, {} ms", erasure.took_ms()), &erasure),
        (format!("beside a purge: {removed} records, {} ms", purge.took_ms()), &purge),
        (format!("beside a backup: {} ms", backup.took_ms()), &backup),
    ];
    for (strategy, figures) in rows {
        report.rows.push(figures.row(strategy).correct(is_right));
    }
    for (what, figures) in TARGETS.into_iter().zip([&erasure, &purge, &backup]) {
        report.targets.push(Target::at_most(what, figures.times.max() as f64 / 1e3, WAIT_MS_MAX));
    }
    Ok(())
}

/// Gives each of the members its records, many with each commit.
async fn fill(store: &Embedded, records: u64) -> anyhow::Result<()> {
    let bar = progress(2 * records, "filling the store");
    for member in MEMBERS {
        let member = MemberName::parse(member).map_err(|error| anyhow!("{error}"))?;
        let mut left = records;
        while 0 < left {
            let count = left.min(FILL_AT_ONCE);
            let mut charges = JoinSet::new();
            for _ in 0..count {
                let (store, member) = (store.clone(), member.clone());
                let amount = Amount::new(1).context("an amount")?;
                let movement = MovePoints { transfer: Transfer::Charge, amount, request: None };
                charges.spawn(async move { store.move_points(&member, movement).await });
            }
            while let Some(charged) = charges.join_next().await {
                if let Err(rejection) = charged?? {
                    bail!("{}", rejection.code());
                }
            }
            left -= count;
            bar.inc(count);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Copies what `firstcome backup` copies, as it stands at one moment.
fn copy_all(from: &Path, to: &Path) -> anyhow::Result<()> {
    let snapshot = Snapshot::open(from, StoreFile::Data)?.context("there is a file to copy")?;
    Ok(snapshot.copy_to(to, |_, _| {})?)
}

/// Callers that claim, each under fresh names.
struct Claims {
    store: Embedded,
    coupon: CouponName,
    /// How many claims were asked for, and how many were made.
    asked: Arc<AtomicU64>,
    made: Arc<AtomicU64>,
}

/// What claims took while something else went on.
struct Figures {
    times: Latencies,
    took: Duration,
}

impl Figures {
    const fn took_ms(&self) -> u128 {
        self.took.as_millis()
    }

    fn row(&self, strategy: String) -> ReportRow {
        ReportRow::new(strategy, self.times.len(), self.took).latencies(&self.times)
    }
}

impl Claims {
    /// Claims until the other work has ended. Returns what that came to, and what claims took beside it.
    async fn beside<T>(&self, other: impl Future<Output = T>) -> anyhow::Result<(T, Figures)> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        let watch = Stopwatch::start();
        for _ in 0..CALLERS {
            let (store, coupon, is_over) = (self.store.clone(), self.coupon.clone(), Arc::clone(&is_over));
            let (asked, made) = (Arc::clone(&self.asked), Arc::clone(&self.made));
            callers.spawn(async move {
                let mut times = latencies();
                while !is_over.load(Ordering::Relaxed) {
                    let claim = claim_by(&format!("user-{}", asked.fetch_add(1, Ordering::Relaxed)))?;
                    let one = Stopwatch::start();
                    if let Err(refused) = store.claim(&coupon, claim).await? {
                        bail!("{}", refused.rejection.code());
                    }
                    times.saturating_record(micros(one.elapsed()));
                    made.fetch_add(1, Ordering::Relaxed);
                }
                Ok(times)
            });
        }
        let outcome = other.await;
        is_over.store(true, Ordering::Relaxed);
        let mut times = latencies();
        while let Some(caller) = callers.join_next().await {
            times.add(caller??)?;
        }
        Ok((outcome, Figures { times, took: watch.elapsed() }))
    }
}
