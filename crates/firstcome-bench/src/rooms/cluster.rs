//! A room over Redis and a database, as on a cluster: the load on Redis with few and with very many waiting.

use super::super::coupons::Scratch;
use super::super::coupons::cluster::secret;
use super::super::report::{Report, ReportRow, Target};
use super::{RoomsArgs, name, user};
use crate::database::{Named, OwnDatabase};
use crate::failure::Failure;
use crate::output::progress;
use crate::own_redis::OwnRedis;
use crate::stop::{unless_stopped, when_ended};
use anyhow::{Context, anyhow, bail};
use firstcome::RoomStore;
use firstcome::cluster::{Cluster, ClusterOptions};
use firstcome::core::id::RoomName;
use firstcome::core::room::{Join, RoomSettings, TicketState};
use firstcome::edge::Stopwatch;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// The length of the short line.
const FEW: u32 = 10_000;
/// Admissions per second, in both lines; as many people join.
const PER_SECOND: u32 = 100;
/// The waiting TTL in lengths of the measured time, so that contacts are reported within that time. In the middle of a
/// line nodes report a contact every eighth of the TTL.
const WAITING_TTL_IN_WINDOWS: u64 = 8;
/// The least share of the possible admissions. Below it, nodes or Redis do not work.
const ADMITTED_SHARE: f64 = 0.8;
/// How long tasks of the nodes may take to end.
const ENDING: Duration = Duration::from_secs(10);
/// How many people join concurrently.
const JOINERS: u32 = 512;

/// The counters of Redis since its start.
#[derive(Clone, Copy, Debug)]
struct Done {
    commands: f64,
    bytes: f64,
    cpu_s: f64,
}

impl Done {
    async fn read(connection: &mut redis::aio::MultiplexedConnection) -> anyhow::Result<Self> {
        let info: redis::InfoDict = redis::cmd("INFO").arg("all").query_async(connection).await?;
        let figure = |name: &str| info.get::<f64>(name).with_context(|| format!("Redis does not say {name}"));
        Ok(Self {
            commands: figure("total_commands_processed")?,
            bytes: figure("total_net_input_bytes")? + figure("total_net_output_bytes")?,
            cpu_s: figure("used_cpu_sys")? + figure("used_cpu_user")?,
        })
    }

    /// Returns what was done since `before`, per second.
    fn since(self, before: Self, time: Duration) -> Self {
        let each = |after: f64, before: f64| (after - before) / time.as_secs_f64();
        Self {
            commands: each(self.commands, before.commands),
            bytes: each(self.bytes, before.bytes),
            cpu_s: each(self.cpu_s, before.cpu_s),
        }
    }
}

/// A line, and the nodes that serve it.
struct RoomLoad {
    nodes: Vec<Cluster>,
    room: RoomName,
    time: Duration,
    /// How long to wait before the measurement, so that each person has polled once and the burst of joins is over.
    warm_up: Duration,
}

/// A person that polls when told to.
#[derive(Clone)]
struct Person {
    ticket: Arc<str>,
    node: usize,
}

/// The result of a poll, or a new person.
enum VisitorReply {
    Again { person: u32, after_ms: u32 },
    Admitted { person: u32 },
    Failed(anyhow::Error),
    New { person: Person, after_ms: u32 },
}

/// The measurements.
struct Watched {
    redis: Done,
    polls: u64,
    admitted: u64,
    time: Duration,
}

pub(super) fn measure(args: &RoomsArgs, named: &Named, report: &mut Report) -> Result<(), Failure> {
    let scratch = Scratch::new(&args.data, "rooms-many")?;
    let few = one(args, named, &scratch.0, FEW.min(args.people), report)?;
    let many = one(args, named, &scratch.0, args.people, report)?;
    let share = |watched: &Watched| watched.admitted as f64 / watched.time.as_secs_f64() / f64::from(PER_SECOND);
    let (few, many, share) = (few.redis, many.redis, share(&few).min(share(&many)));
    report.targets.extend([
        Target::at_most("Redis: commands, many waiting ÷ few", many.commands / few.commands, 1.1),
        Target::at_most("Redis: bytes, many waiting ÷ few", many.bytes / few.bytes, 2.0),
        Target::at_most("Redis: CPU, many waiting ÷ few", many.cpu_s / few.cpu_s, 2.0),
        Target::at_least("let in meanwhile ÷ the room's rate", share, ADMITTED_SHARE),
    ]);
    Ok(())
}

/// Measures the load on own servers while so many wait.
fn one(args: &RoomsArgs, named: &Named, scratch: &Path, people: u32, report: &mut Report) -> Result<Watched, Failure> {
    let keeper = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let redis = keeper.block_on(OwnRedis::open(args.redis.as_deref(), scratch))?;
    let database = match keeper.block_on(OwnDatabase::open(named, scratch)) {
        Ok(database) => database,
        Err(error) => return keeper.block_on(when_ended(Err(Failure::Unreachable(error)), redis.end())),
    };
    // The nodes end before the servers that they use are emptied.
    let nodes = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let over = async { Ok(over(args, people, &redis.url, &database.url, report).await?) };
    let done = nodes.block_on(unless_stopped(over));
    nodes.shutdown_timeout(ENDING);
    keeper.block_on(async {
        let done = when_ended(done, redis.end()).await;
        when_ended(done, database.end()).await
    })
}

/// Opens nodes over these servers, and fills the line.
async fn over(args: &RoomsArgs, people: u32, redis: &str, sql: &str, report: &mut Report) -> anyhow::Result<Watched> {
    let mut nodes = Vec::new();
    for _ in 0..args.nodes {
        nodes.push(Cluster::open(redis, sql, secret()?, ClusterOptions::default()).await?);
    }
    let line = RoomLoad { nodes, room: name(&format!("line-{people}"))?, time: args.watched, warm_up: args.warm_up };
    let mut settings =
        RoomSettings { paused: true, max_waiting: 10_000_000, ..RoomSettings::with_rate(PER_SECOND, 1_000) };
    let window_ms = u64::try_from(args.watched.as_millis())?;
    settings.waiting_ttl_ms = (window_ms * WAITING_TTL_IN_WINDOWS).clamp(180_000, 86_400_000);
    put(&line, settings.clone()).await?;
    let watch = Stopwatch::start();
    let tickets = line.fill(people).await?;
    let row =
        ReportRow::new(format!("durable joins of {people}, {} nodes", args.nodes), u64::from(people), watch.elapsed());
    report.rows.push(row.correct(line.waiting().await? == people));
    settings.paused = false;
    put(&line, settings).await?;
    let mut redis = redis::Client::open(redis)?.get_multiplexed_async_connection().await?;
    let watched = line.watch(tickets, &mut redis).await?;
    let done = watched.redis;
    report.rows.extend([
        ReportRow::new(format!("polls of {people}"), watched.polls, watched.time),
        ReportRow::new(format!("let in of {people}"), watched.admitted, watched.time),
    ]);
    for (what, per_second) in [("commands", done.commands), ("bytes", done.bytes), ("CPU, µs", done.cpu_s * 1e6)] {
        let what = format!("Redis: {what}, {people} waiting");
        report.rows.push(ReportRow::new(what, per_second as u64, Duration::from_secs(1)));
    }
    Ok(watched)
}

async fn put(line: &RoomLoad, settings: RoomSettings) -> anyhow::Result<()> {
    let put = line.nodes[0].put_room(&line.room, settings).await?;
    put.map(drop).map_err(|refused| anyhow!("{}", refused.code()))
}

impl RoomLoad {
    async fn waiting(&self) -> anyhow::Result<u32> {
        let view = self.nodes[0].room(&self.room).await?.map_err(|refused| anyhow!("{}", refused.code()))?;
        Ok(view.view.waiting)
    }

    async fn fill(&self, people: u32) -> anyhow::Result<Vec<Person>> {
        let bar = progress(u64::from(people), "joining");
        let joiners = (0..JOINERS).map(|joiner| {
            let (nodes, room, bar) = (self.nodes.clone(), self.room.clone(), bar.clone());
            tokio::spawn(async move {
                let mut joined = Vec::new();
                for number in (joiner..people).step_by(JOINERS as usize) {
                    let node = number as usize % nodes.len();
                    joined.push(join(&nodes[node], &room, number, node).await?.0);
                    bar.inc(1);
                }
                anyhow::Ok(joined)
            })
        });
        let mut tickets = Vec::with_capacity(people as usize);
        for joiner in joiners.collect::<Vec<_>>() {
            tickets.extend(joiner.await??);
        }
        bar.finish_and_clear();
        Ok(tickets)
    }

    /// Polls for all people as told, open loop, while as many join as are admitted.
    async fn watch(
        &self,
        mut people: Vec<Person>,
        redis: &mut redis::aio::MultiplexedConnection,
    ) -> anyhow::Result<Watched> {
        let bar = progress((self.warm_up + self.time).as_secs(), "waiting");
        let watch = Stopwatch::start();
        let (tell, mut told) = mpsc::unbounded_channel();
        let from = u32::try_from(people.len())?;
        let _coming = Coming(tokio::spawn(come(self.nodes.clone(), self.room.clone(), from, tell.clone())));
        // The first polls are spread over the warm-up, as later polls are.
        let (count, spread_ms) = (people.len() as u64, u64::try_from(self.warm_up.as_millis())? * 12 / 13);
        let mut due: BinaryHeap<_> = (0..count).map(|at| Reverse((at * spread_ms / count, at as u32))).collect();
        let (mut before, mut polls, mut admitted) = (None, 0, 0);
        let mut ticks = interval(Duration::from_millis(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while watch.elapsed() < self.warm_up + self.time {
            ticks.tick().await;
            let now_ms = u64::try_from(watch.elapsed().as_millis())?;
            bar.set_position(now_ms / 1_000);
            if before.is_none() && self.warm_up <= watch.elapsed() {
                (before, polls, admitted) = (Some((Done::read(redis).await?, watch.elapsed())), 0, 0);
            }
            while let Some(&Reverse((_, at))) = due.peek().filter(|next| next.0.0 <= now_ms) {
                due.pop();
                polls += 1;
                self.ask(at, &people[at as usize], &tell);
            }
            while let Ok(told) = told.try_recv() {
                match told {
                    VisitorReply::Again { person, after_ms } => {
                        due.push(Reverse((now_ms + u64::from(after_ms), person)));
                    }
                    VisitorReply::Admitted { person } => {
                        people[person as usize].ticket = Arc::from("");
                        admitted += 1;
                    }
                    VisitorReply::Failed(error) => return Err(error.context("a visitor in line was not served")),
                    VisitorReply::New { person, after_ms } => {
                        due.push(Reverse((now_ms + u64::from(after_ms), u32::try_from(people.len())?)));
                        people.push(person);
                    }
                }
            }
        }
        let (before, since) = before.context("nothing was measured")?;
        let time = watch.elapsed().saturating_sub(since);
        let redis = Done::read(redis).await?.since(before, time);
        bar.finish_and_clear();
        Ok(Watched { redis, polls, admitted, time })
    }

    /// Polls for one person, at once if the node knows the answer. An admitted person leaves.
    fn ask(&self, person: u32, who: &Person, tell: &mpsc::UnboundedSender<VisitorReply>) {
        let (node, room) = (&self.nodes[who.node], &self.room);
        if let Some(Ok(answer)) = node.poll_settled(room.as_str(), &who.ticket)
            && let TicketState::Waiting { .. } = answer.state
        {
            // The receiver outlives all polls.
            let _ = tell.send(VisitorReply::Again { person, after_ms: answer.poll_after_ms });
            return;
        }
        let (node, room, tell, ticket) = (node.clone(), room.clone(), tell.clone(), Arc::clone(&who.ticket));
        tokio::spawn(async move {
            let told = match poll(&node, &room, &ticket).await {
                Ok(Some(after_ms)) => VisitorReply::Again { person, after_ms },
                Ok(None) => VisitorReply::Admitted { person },
                Err(error) => VisitorReply::Failed(error),
            };
            let _ = tell.send(told);
        });
    }
}

/// Polls once. Returns when to poll again, or `None` if the person was admitted and has left.
async fn poll(node: &Cluster, room: &RoomName, ticket: &str) -> anyhow::Result<Option<u32>> {
    let answer = node.poll(room, ticket).await?.map_err(|refused| anyhow!("{}", refused.code()))?;
    match answer.state {
        TicketState::Waiting { .. } => return Ok(Some(answer.poll_after_ms)),
        TicketState::Admitted { .. } => {}
        other => bail!("{other:?}"),
    }
    // Otherwise the slot ends by its time.
    let _ = node.leave(room, ticket).await;
    Ok(None)
}

/// A task that is aborted when this value is dropped.
struct Coming(tokio::task::JoinHandle<()>);

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Joins new people at the rate of admission.
async fn come(nodes: Vec<Cluster>, room: RoomName, from: u32, tell: mpsc::UnboundedSender<VisitorReply>) {
    for number in from.. {
        sleep(Duration::from_secs(1) / PER_SECOND).await;
        let node = number as usize % nodes.len();
        let (cluster, room, tell) = (nodes[node].clone(), room.clone(), tell.clone());
        tokio::spawn(async move {
            // A failed join is ignored: the line is long enough without it.
            if let Ok((person, after_ms)) = join(&cluster, &room, number, node).await {
                let _ = tell.send(VisitorReply::New { person, after_ms });
            }
        });
    }
}

/// Joins one person. Returns the person, and when to poll.
async fn join(cluster: &Cluster, room: &RoomName, number: u32, node: usize) -> anyhow::Result<(Person, u32)> {
    let join = Join { user: Some(user(number)?), request: None };
    let (_, answer) = cluster.join(room, join).await?.map_err(|refused| anyhow!("{}", refused.code()))?;
    Ok((Person { ticket: answer.ticket.into(), node }, answer.poll_after_ms))
}
