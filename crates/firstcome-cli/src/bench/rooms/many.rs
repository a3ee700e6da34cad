//! A room over Redis and a database, as many nodes have it: what waiting costs Redis, at few and at very many waiting.

use super::super::coupons::Scratch;
use super::super::coupons::many::secret;
use super::super::report::{Report, Row, Target};
use super::{RoomsArgs, name, user};
use crate::database::{Named, OwnDatabase};
use crate::output::progress;
use anyhow::{Context, anyhow};
use firstcome::RoomStore;
use firstcome::core::id::RoomName;
use firstcome::core::room::{Join, RoomSettings, TicketState};
use firstcome::edge::Stopwatch;
use firstcome::fleet::{Fleet, FleetOptions};
use firstcome_servers::{Durability, Kind, Options, Server};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How many wait in the short line.
const FEW: u32 = 10_000;
/// Admitted in a second, in both lines; as many come.
const PER_SECOND: u32 = 100;
/// How often each of those who wait is told to be alive within the measured time, whatever time that is: in the midst of a line
/// nodes say so an eighth of this apart.
const WAITING_TTL_IN_WINDOWS: u64 = 8;
/// Everybody has asked once before anything is measured, and the burst of joins is over.
const WARM_UP: Duration = Duration::from_secs(65);
/// Who joins at once.
const JOINERS: u32 = 512;

/// What Redis says that it has done, ever.
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

    /// What was done since, in a second.
    fn since(self, before: Self, time: Duration) -> Self {
        let each = |after: f64, before: f64| (after - before) / time.as_secs_f64();
        Self {
            commands: each(self.commands, before.commands),
            bytes: each(self.bytes, before.bytes),
            cpu_s: each(self.cpu_s, before.cpu_s),
        }
    }
}

/// One line, and those who wait in it.
struct Line {
    nodes: Vec<Fleet>,
    room: RoomName,
    time: Duration,
}

/// Somebody who asks whenever told to.
#[derive(Clone)]
struct Person {
    ticket: Arc<str>,
    node: usize,
}

/// What came of a question: when to ask again, or that it is over. And who has come.
enum Told {
    Again { person: u32, after_ms: u32 },
    Over { person: u32 },
    New { person: Person, after_ms: u32 },
}

pub(super) async fn measure(args: &RoomsArgs, named: &Named, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new(&args.data, "rooms-many")?;
    let few = one(args, named, &scratch, FEW.min(args.people), report).await?;
    let many = one(args, named, &scratch, args.people, report).await?;
    report.targets.extend([
        Target::at_most("Redis: commands, many waiting ÷ few", many.commands / few.commands, 1.1),
        Target::at_most("Redis: bytes, many waiting ÷ few", many.bytes / few.bytes, 2.0),
        Target::at_most("Redis: CPU, many waiting ÷ few", many.cpu_s / few.cpu_s, 2.0),
    ]);
    Ok(())
}

/// Servers of its own, so many in line, and what Redis has to do while they wait.
async fn one(
    args: &RoomsArgs,
    named: &Named,
    scratch: &Scratch,
    people: u32,
    report: &mut Report,
) -> anyhow::Result<Done> {
    let started = match &args.redis {
        None => Some(Server::start(Kind::Redis, &Options::new(Durability::Durable).within(&scratch.0)).await?),
        Some(_) => None,
    };
    let url = started.as_ref().map(Server::url).or(args.redis.as_deref()).context("a Redis")?.to_owned();
    let database = OwnDatabase::open(named, &scratch.0).await?;
    let mut nodes = Vec::new();
    for _ in 0..args.nodes {
        nodes.push(Fleet::open(&url, &database.url, secret()?, FleetOptions::default()).await?);
    }
    let line = Line { nodes, room: name(&format!("line-{people}"))?, time: args.watched };
    let mut settings =
        RoomSettings { paused: true, max_waiting: 10_000_000, ..RoomSettings::with_rate(PER_SECOND, 1_000) };
    let window_ms = u64::try_from(args.watched.as_millis())?;
    settings.waiting_ttl_ms = (window_ms * WAITING_TTL_IN_WINDOWS).clamp(180_000, 86_400_000);
    put(&line, settings.clone()).await?;
    let watch = Stopwatch::start();
    let tickets = line.fill(people).await?;
    let row = Row::new(format!("durable joins of {people}, {} nodes", args.nodes), u64::from(people), watch.elapsed());
    report.rows.push(row.correct(line.waiting().await? == people));
    settings.paused = false;
    put(&line, settings).await?;
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let (done, polls) = line.watch(tickets, &mut redis).await?;
    report.rows.push(Row::new(format!("polls of {people}"), polls, args.watched));
    for (what, per_second) in [("commands", done.commands), ("bytes", done.bytes), ("CPU, µs", done.cpu_s * 1e6)] {
        let what = format!("Redis: {what}, {people} waiting");
        report.rows.push(Row::new(what, per_second as u64, Duration::from_secs(1)));
    }
    drop(line);
    if args.redis.is_some() {
        let _: () = redis::cmd("FLUSHDB").query_async(&mut redis).await?;
    }
    database.end().await?;
    Ok(done)
}

async fn put(line: &Line, settings: RoomSettings) -> anyhow::Result<()> {
    let put = line.nodes[0].put_room(&line.room, settings).await?;
    put.map(drop).map_err(|refused| anyhow!("{}", refused.code()))
}

impl Line {
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

    /// Everybody asks as told, open loop, while as many come as go; what Redis did in a second, and how many questions there
    /// were in the measured time.
    async fn watch(
        &self,
        mut people: Vec<Person>,
        redis: &mut redis::aio::MultiplexedConnection,
    ) -> anyhow::Result<(Done, u64)> {
        let bar = progress((WARM_UP + self.time).as_secs(), "waiting");
        let watch = Stopwatch::start();
        let (tell, mut told) = mpsc::unbounded_channel();
        let from = u32::try_from(people.len())?;
        let _coming = Coming(tokio::spawn(come(self.nodes.clone(), self.room.clone(), from, tell.clone())));
        // The first questions are spread over a minute, the longest time that anybody is told.
        let count = people.len() as u64;
        let mut due: BinaryHeap<_> = (0..count).map(|at| Reverse((at * 60_000 / count, at as u32))).collect();
        let (mut before, mut polls) = (None, 0);
        let mut ticks = interval(Duration::from_millis(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while watch.elapsed() < WARM_UP + self.time {
            ticks.tick().await;
            let now_ms = u64::try_from(watch.elapsed().as_millis())?;
            bar.set_position(now_ms / 1_000);
            if before.is_none() && WARM_UP <= watch.elapsed() {
                (before, polls) = (Some((Done::read(redis).await?, watch.elapsed())), 0);
            }
            while let Some(&Reverse((_, at))) = due.peek().filter(|next| next.0.0 <= now_ms) {
                due.pop();
                polls += 1;
                self.ask(at, &people[at as usize], &tell);
            }
            while let Ok(told) = told.try_recv() {
                match told {
                    Told::Again { person, after_ms } => due.push(Reverse((now_ms + u64::from(after_ms), person))),
                    Told::Over { person } => people[person as usize].ticket = Arc::from(""),
                    Told::New { person, after_ms } => {
                        due.push(Reverse((now_ms + u64::from(after_ms), u32::try_from(people.len())?)));
                        people.push(person);
                    }
                }
            }
        }
        let (before, since) = before.context("nothing was measured")?;
        let done = Done::read(redis).await?.since(before, watch.elapsed().saturating_sub(since));
        bar.finish_and_clear();
        Ok((done, polls))
    }

    /// Asks for one person: at once if the node knows the answer. Whoever is let in gives the slot up.
    fn ask(&self, person: u32, who: &Person, tell: &mpsc::UnboundedSender<Told>) {
        let (node, room) = (&self.nodes[who.node], &self.room);
        if let Some(Ok(answer)) = node.poll_settled(room.as_str(), &who.ticket)
            && let TicketState::Waiting { .. } = answer.state
        {
            // The receiver outlives all questions.
            let _ = tell.send(Told::Again { person, after_ms: answer.poll_after_ms });
            return;
        }
        let (node, room, tell, ticket) = (node.clone(), room.clone(), tell.clone(), Arc::clone(&who.ticket));
        tokio::spawn(async move {
            let told = match node.poll(&room, &ticket).await {
                Ok(Ok(answer)) if matches!(answer.state, TicketState::Waiting { .. }) => {
                    Told::Again { person, after_ms: answer.poll_after_ms }
                }
                Ok(Ok(_)) => {
                    // It ends by itself otherwise.
                    let _ = node.leave(&room, &ticket).await;
                    Told::Over { person }
                }
                Ok(Err(_)) => Told::Over { person },
                Err(_) => Told::Again { person, after_ms: 1_000 },
            };
            let _ = tell.send(told);
        });
    }
}

/// A task that ends with its owner.
struct Coming(tokio::task::JoinHandle<()>);

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// As many come as are let in, one at a time.
async fn come(nodes: Vec<Fleet>, room: RoomName, from: u32, tell: mpsc::UnboundedSender<Told>) {
    for number in from.. {
        sleep(Duration::from_secs(1) / PER_SECOND).await;
        let node = number as usize % nodes.len();
        let (fleet, room, tell) = (nodes[node].clone(), room.clone(), tell.clone());
        tokio::spawn(async move {
            // Whoever finds no room is missed by nobody: the line is as long as before.
            if let Ok((person, after_ms)) = join(&fleet, &room, number, node).await {
                let _ = tell.send(Told::New { person, after_ms });
            }
        });
    }
}

/// A place in the line, and when to ask for it.
async fn join(fleet: &Fleet, room: &RoomName, number: u32, node: usize) -> anyhow::Result<(Person, u32)> {
    let join = Join { user: Some(user(number)?), request: None };
    let (_, answer) = fleet.join(room, join).await?.map_err(|refused| anyhow!("{}", refused.code()))?;
    Ok((Person { ticket: answer.ticket.into(), node }, answer.poll_after_ms))
}
