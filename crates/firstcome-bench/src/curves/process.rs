//! How claims in process change with the users who have one, and with the stock; and what a held lock takes.

use super::{Curve, CurvesArgs, order};
use crate::coupons::{claim_by, name, put};
use crate::failure::Failure;
use crate::field::Progress;
use anyhow::{Context, bail};
use firstcome::core::id::CouponName;
use firstcome::edge::Stopwatch;
use firstcome::{CouponStore, Embedded, Locks};
use std::time::Duration;

const USERS: [u32; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
const STOCK: [u32; 6] = [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];
/// Of a thousand, the runtime and the first places of tables are most.
const HELD: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Callers at once.
const CALLERS: u32 = 256;

const NEW: &str = "new user";
const AGAIN: &str = "again";

/// Measures the memory of locks that one process holds, with the guards that its program keeps.
pub(super) fn held(args: &CurvesArgs, progress: &Progress) -> Result<Vec<Curve>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let levels: Vec<u32> = HELD.into_iter().filter(|locks| *locks <= args.largest).collect();
    progress.expect(levels.len());
    let mut memory = Curve::new("held", "Memory of locks that are held", "bytes per lock", "locks", &["in memory"]);
    runtime.block_on(async {
        let (locks, empty) = (Locks::memory(), resident()?);
        let mut guards = Vec::new();
        // Nothing is freed in between, so one round tells.
        for level in levels {
            progress.step(&format!("{level} held locks"));
            for number in guards.len()..level as usize {
                guards.push(locks.lock(&format!("order-{number:08}")).acquire().await?);
            }
            memory.add("in memory", level, resident()?.saturating_sub(empty) as f64 / f64::from(level));
        }
        anyhow::Ok(())
    })?;
    Ok(vec![memory])
}

/// Measures claims while a coupon fills, and the memory that it takes.
pub(super) fn users(args: &CurvesArgs, progress: &Progress) -> Result<Vec<Curve>, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let levels: Vec<u32> = USERS.into_iter().filter(|users| *users <= args.largest).collect();
    progress.expect(levels.len() * args.rounds as usize);
    let mut rates = Curve::new(
        "users",
        "Claims of one coupon, in memory",
        "claims per second",
        "users who have one",
        &[NEW, AGAIN],
    );
    let mut memory = Curve::new("memory", "Memory of one coupon", "bytes per user", "users who have one", &["claims"]);
    for round in 0..args.rounds {
        // A coupon only fills, so that every round goes up, on a new store.
        let (store, coupon, empty) = (Embedded::memory(), name("users")?, resident()?);
        runtime.block_on(put(&store, &coupon, 100_000_000))?;
        // Users with numbers up to the level have one, and so many others.
        let (mut held, mut others, mut next) = (0, 0, 0);
        for &level in &levels {
            progress.step(&format!("{level} users, round {}", round + 1));
            runtime.block_on(all(&store, &coupon, held, level))?;
            held = level;
            let bytes = resident()?.saturating_sub(empty) as f64 / (f64::from(held) + others as f64);
            // Below that, the store itself is most of it. Later rounds use memory again that the first one has freed.
            if 100_000 <= level && round == 0 {
                memory.add("claims", level, bytes);
            }
            let timed = runtime.block_on(timed(&store, &coupon, next, args.time / 2))?;
            rates.add(NEW, level, timed.per_second);
            others += timed.issued;
            next = timed.next;
            rates.add(AGAIN, level, runtime.block_on(repeated(&store, &coupon, level, args.time / 2))?);
        }
        store.close();
    }
    Ok(vec![rates, memory])
}

/// Measures a coupon of each size from its first claim on, until it is sold out or the time is over.
pub(super) fn stock(args: &CurvesArgs, progress: &Progress) -> Result<Vec<Curve>, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let sizes: Vec<u32> = STOCK.into_iter().filter(|stock| *stock <= args.largest).collect();
    progress.expect(sizes.len() * args.rounds as usize);
    let mut curve =
        Curve::new("stock", "A coupon from the first claim on, in memory", "claims per second", "stock", &["claims"]);
    for round in 0..args.rounds {
        for stock in order(&sizes, round) {
            progress.step(&format!("stock of {stock}, round {}", round + 1));
            let store = Embedded::memory();
            curve.add("claims", stock, runtime.block_on(sell(&store, stock, args.time))?);
            store.close();
        }
    }
    Ok(vec![curve])
}

/// Sells coupons of this stock, one after the other, each to its end, until the time is over.
async fn sell(store: &Embedded, stock: u32, time: Duration) -> anyhow::Result<f64> {
    let (mut sold, mut spent) = (0_u64, Duration::ZERO);
    for number in 0_u32.. {
        if time <= spent {
            break;
        }
        let coupon = name(&format!("stock-{number}"))?;
        put(store, &coupon, stock).await?;
        let watch = Stopwatch::start();
        let callers = (0..CALLERS).map(|caller| {
            let (store, coupon) = (store.clone(), coupon.clone());
            tokio::spawn(async move {
                let mut mine = 0_u64;
                for user in (caller..stock).step_by(CALLERS as usize) {
                    if time <= watch.elapsed() {
                        break;
                    }
                    claim(&store, &coupon, &format!("user-{user:011}")).await?;
                    mine += 1;
                }
                anyhow::Ok(mine)
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            sold += caller.await??;
        }
        spent += watch.elapsed();
    }
    Ok(sold as f64 / spent.as_secs_f64())
}

async fn claim(store: &Embedded, coupon: &CouponName, user: &str) -> anyhow::Result<()> {
    match store.claim(coupon, claim_by(user)?).await? {
        Ok(_) => Ok(()),
        Err(refused) => bail!("{}", refused.rejection.code()),
    }
}

/// Lets the users from..until claim, as fast as possible.
async fn all(store: &Embedded, coupon: &CouponName, from: u32, until: u32) -> anyhow::Result<()> {
    let callers = (0..CALLERS).map(|caller| {
        let (store, coupon) = (store.clone(), coupon.clone());
        tokio::spawn(async move {
            for user in (from.saturating_add(caller)..until).step_by(CALLERS as usize) {
                claim(&store, &coupon, &format!("user-{user:011}")).await?;
            }
            anyhow::Ok(())
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await??;
    }
    Ok(())
}

/// What new users did.
struct Timed {
    per_second: f64,
    issued: u64,
    /// The first number that no user has had.
    next: u32,
}

/// Lets new users claim for the time, with names that no other claims have.
async fn timed(store: &Embedded, coupon: &CouponName, from: u32, time: Duration) -> anyhow::Result<Timed> {
    let watch = Stopwatch::start();
    let callers = (0..CALLERS).map(|caller| {
        let (store, coupon) = (store.clone(), coupon.clone());
        tokio::spawn(async move {
            let mut mine = 0;
            while watch.elapsed() < time {
                claim(&store, &coupon, &format!("more-{:011}", from + caller + mine * CALLERS)).await?;
                mine += 1;
            }
            anyhow::Ok(mine)
        })
    });
    let (mut issued, mut most) = (0_u64, 0);
    for caller in callers.collect::<Vec<_>>() {
        let mine = caller.await??;
        issued += u64::from(mine);
        most = most.max(mine);
    }
    let per_second = issued as f64 / watch.elapsed().as_secs_f64();
    Ok(Timed { per_second, issued, next: from + (most + 1) * CALLERS })
}

/// Lets users claim again who have one, spread over all of them. Returns the rate.
async fn repeated(store: &Embedded, coupon: &CouponName, users: u32, time: Duration) -> anyhow::Result<f64> {
    let watch = Stopwatch::start();
    let callers = (0..CALLERS).map(|caller| {
        let (store, coupon) = (store.clone(), coupon.clone());
        tokio::spawn(async move {
            let mut mine = 0_u32;
            while watch.elapsed() < time {
                // A large prime, so that consecutive claims are far apart.
                let user = (u64::from(caller + mine * CALLERS) * 15_485_863 % u64::from(users)) as u32;
                let claimed = store.claim(&coupon, claim_by(&format!("user-{user:011}"))?).await?;
                claimed.err().context("a second coupon was issued")?;
                mine = mine.wrapping_add(1);
            }
            anyhow::Ok(u64::from(mine))
        })
    });
    let mut done = 0;
    for caller in callers.collect::<Vec<_>>() {
        done += caller.await??;
    }
    Ok(done as f64 / watch.elapsed().as_secs_f64())
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
