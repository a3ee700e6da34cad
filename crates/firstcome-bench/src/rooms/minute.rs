//! Watches a real store with its own ticks while it admits.

use super::super::coupons::{Scratch, disk};
use super::super::report::{Report, ReportRow, Target};
use super::{name, put};
use anyhow::{Context, anyhow, bail};
use firstcome::core::id::RoomName;
use firstcome::core::room::{Join, RoomSettings, TicketNumber, TicketState};
use firstcome::core::time::Timestamp;
use firstcome::edge::Stopwatch;
use firstcome::{Embedded, RoomStore};
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;

const PER_SECOND: u32 = 500;
const SLICE: f64 = PER_SECOND as f64 * 0.25;
/// How many releases are timed.
const RELEASES: usize = 20;
/// The longest wait of any step.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn measure(data: &Path, watched: Duration, runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new(data, "minute")?;
    let store = disk(&scratch.0)?;
    let admitted_at = runtime.block_on(watch_admission(&store, watched))?;
    judge(&admitted_at, report)?;
    let slowest = runtime.block_on(time_releases(&store))?;
    report.targets.push(Target::at_most(
        "a released slot is offered again, slowest of 20, ms",
        slowest.as_secs_f64() * 1e3,
        1_000.0,
    ));
    store.close();
    Ok(())
}

async fn join(store: &Embedded, room: &RoomName) -> anyhow::Result<(TicketNumber, Box<str>)> {
    let joined = store.join(room, Join { user: None, request: None }).await?;
    let told = joined.map_err(|refused| anyhow!("{}", refused.code()))?.1;
    Ok((told.number, told.ticket))
}

/// Forms a line before a rate, and collects the instant of each admission.
async fn watch_admission(store: &Embedded, watched: Duration) -> anyhow::Result<Vec<Timestamp>> {
    let room = name("minute")?;
    let people = (watched.as_secs_f64() * f64::from(PER_SECOND) * 1.1) as usize + 1_000;
    let closed = RoomSettings { paused: true, ..RoomSettings::with_rate(PER_SECOND, 1_000) };
    put(store, &room, closed.clone()).await?;
    let mut tickets = Vec::with_capacity(people);
    let joining: Vec<_> = (0..64)
        .map(|_| {
            let (store, room) = (store.clone(), room.clone());
            tokio::spawn(async move {
                let mut tickets = Vec::new();
                for _ in 0..people / 64 {
                    tickets.push(join(&store, &room).await?);
                }
                anyhow::Ok(tickets)
            })
        })
        .collect();
    for joined in joining {
        tickets.extend(joined.await??);
    }
    tickets.sort_unstable_by_key(|(number, _)| *number);
    let tickets: Vec<Box<str>> = tickets.into_iter().map(|(_, ticket)| ticket).collect();
    // No ticket may count as absent, and none may lose its slot before the end.
    let claim_window_ms = watched.as_millis() as u64 + 60_000;
    put(store, &room, RoomSettings { paused: false, claim_window_ms, ..closed }).await?;
    let watch = Stopwatch::start();
    let (mut polled, mut come) = (tokio::time::Instant::now(), 0);
    for second in 1_u32.. {
        if watched <= watch.elapsed() {
            break;
        }
        tokio::time::sleep_until(polled + Duration::from_secs(1).min(watched)).await;
        polled = tokio::time::Instant::now();
        // Those whose turn it is come; else the room would admit others in their place. All poll now and then.
        let serving = store.room(&room).await?.map_err(|refused| anyhow!("{}", refused.code()))?.view.serving as usize;
        for ticket in &tickets[come..serving.min(tickets.len())] {
            let _ = store.poll(&room, ticket).await?;
        }
        come = serving.min(tickets.len());
        if second.is_multiple_of(10) {
            for ticket in &tickets[tickets.len() / 3..] {
                let _ = store.poll(&room, ticket).await?;
            }
        }
    }
    put(store, &room, RoomSettings { paused: true, claim_window_ms, ..RoomSettings::with_rate(PER_SECOND, 1_000) })
        .await?;
    let mut admitted_at = Vec::new();
    for ticket in &tickets {
        let told = store.poll(&room, ticket).await?.map_err(|refused| anyhow!("{}", refused.code()))?;
        if let TicketState::Admitted { slot, .. } = told.state {
            admitted_at.push(slot.admitted_at);
        }
    }
    admitted_at.sort_unstable();
    Ok(admitted_at)
}

fn judge(admitted_at: &[Timestamp], report: &mut Report) -> anyhow::Result<()> {
    let [Some(first), Some(last)] = [admitted_at.first(), admitted_at.last()] else { bail!("no visitor was admitted") };
    let seconds = |at: &Timestamp| (at.as_us() - first.as_us()) as f64 / 1e6;
    let elapsed = seconds(last);
    // The first slice was admitted at once; the rate is that of the others.
    let first_instant = admitted_at.iter().take_while(|at| *at == first).count();
    let rate = (admitted_at.len() - first_instant) as f64 / elapsed;
    // A bucket of one slice that leaks at the rate must never overflow, in any window.
    let (mut level, mut highest, mut before) = (0.0_f64, 0.0_f64, 0.0);
    for at in admitted_at {
        level = (level - (seconds(at) - before) * f64::from(PER_SECOND)).max(0.0) + 1.0;
        before = seconds(at);
        highest = highest.max(level);
    }
    let off = 100.0 * (rate / f64::from(PER_SECOND) - 1.0);
    report.targets.push(Target::at_most("admissions: off the rate, %", off.abs(), 1.0));
    report.targets.push(Target::at_most(
        "admissions: most above the rate in any window ÷ slice",
        highest / SLICE,
        1.001,
    ));
    let row =
        ReportRow::new("admissions at 500/s", admitted_at.len() as u64, Duration::from_secs_f64(elapsed.max(0.001)));
    report.rows.push(row.correct(highest <= SLICE * 1.001));
    Ok(())
}

/// Releases the only slot again and again, and times until the next in line has it.
async fn time_releases(store: &Embedded) -> anyhow::Result<Duration> {
    let room = name("release")?;
    put(store, &room, RoomSettings::with_slots(1)).await?;
    let mut slowest = Duration::ZERO;
    let (_, mut holder) = join(store, &room).await?;
    wait_for_slot(store, &room, &holder).await?;
    for _ in 0..RELEASES {
        let (_, next) = join(store, &room).await?;
        store.leave(&room, &holder).await?.map_err(|refused| anyhow!("{}", refused.code()))?;
        slowest = slowest.max(wait_for_slot(store, &room, &next).await?);
        holder = next;
    }
    Ok(slowest)
}

async fn wait_for_slot(store: &Embedded, room: &RoomName, ticket: &str) -> anyhow::Result<Duration> {
    let watch = Stopwatch::start();
    while watch.elapsed() < PATIENCE {
        let told = store.poll(room, ticket).await?.map_err(|refused| anyhow!("{}", refused.code()))?;
        if matches!(told.state, TicketState::Admitted { .. }) {
            return Ok(watch.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    None.context("no slot came")
}
