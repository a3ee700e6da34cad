//! `firstcome drill`: plays an event against a real service over HTTP, and audits every answer from the outside.
//!
//! All timing is open loop: a plan fixes beforehand who arrives when, and latencies count from the planned instant.

mod asking;
mod auction;
mod audit;
mod browsers;
mod chaos;
mod client;
mod clock;
mod cluster;
mod crowd;
mod event;
mod facts;
mod in_sql;
mod keys;
mod messages;
mod on_reply;
mod outcome;
mod people;
mod plan;
mod record;
mod report;
mod sampler;
mod server;
mod spread;

use crate::database::Named;
use crate::failure::{Failure, Outcome};
use crate::output::{wants_table, write_out};
use crate::plaintext::{PlaintextArgs, Protocol, service_destination};
use crate::stop::{unless_stopped, when_ended};
use anyhow::{Context, anyhow};
use chaos::DrillTarget;
use clap::{Args, Subcommand};
use cluster::Backing;
use event::Setting;
use facts::Facts;
use firstcome::sql::Address;
use serde_json::json;
use server::{Server, Stores};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// File descriptors besides those of the crowd's connections.
const DESCRIPTORS: usize = 64;
/// How long a running service may take to accept the first connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Slots for each admission in a second: enough that the rate, not the slots, limits admissions.
const SLOTS_PER_ADMISSION: u64 = 8;

/// The arguments of `firstcome drill`: the event to play.
#[derive(Subcommand)]
pub enum DrillCommand {
    /// A rush for few tickets through a waiting room, with people who double-click, walk away, come late and cheat
    Concert(EventArgs),
    /// A rush for limited coupons at the shop's back end, without a waiting room
    Coupon(EventArgs),
    /// Auctions and fixed prices, paid in points, with snipers, double clicks, shared wallets and winners who do not settle
    Auction(EventArgs),
}

/// How an event is played, and against which service.
#[derive(Args)]
pub struct EventArgs {
    /// A service that runs already, instead of one that is started for the drill
    #[arg(long, value_name = "URL", conflicts_with = "kill")]
    url: Option<String>,
    /// Its admin key, which other users of this machine can read in the list of processes: rather use the variable or the file
    #[arg(long, env = "FIRSTCOME_DRILL_ADMIN_KEY", value_name = "KEY", hide_env_values = true)]
    admin_key: Option<String>,
    /// File with its admin key
    #[arg(long, env = "FIRSTCOME_DRILL_ADMIN_KEY_FILE", value_name = "FILE")]
    admin_key_file: Option<PathBuf>,
    /// Its service key, as the admin key
    #[arg(long, env = "FIRSTCOME_DRILL_SERVICE_KEY", value_name = "KEY", hide_env_values = true)]
    service_key: Option<String>,
    /// File with its service key
    #[arg(long, env = "FIRSTCOME_DRILL_SERVICE_KEY_FILE", value_name = "FILE")]
    service_key_file: Option<PathBuf>,
    /// People who come
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    people: u32,
    /// Tickets or coupons that there are [default: 3000], or listings that are sold [default: 100]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    stock: Option<u32>,
    /// Additional random bids of all people on all auctions; only for an auction
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    bids: Option<u32>,
    /// How long the event takes at most [default: a minute, or a second for every 1800 people or bids if that is more]
    #[arg(long, value_parser = clap::value_parser!(u64).range(10..=3_600))]
    seconds: Option<u64>,
    /// The same seed gives the same people, who come at the same times
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often a server is killed under load and started again. With --nodes the nodes take turns with the Redis and
    /// the database that the drill has started. Every other time that Redis is killed it loses its data
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    kill: u32,
    /// Play against a cluster of this many nodes, over a Redis and a database that the drill starts; some people stay with one
    /// node and others change it at every request
    #[arg(long, value_name = "N", conflicts_with = "url", value_parser = clap::value_parser!(u32).range(1..=16))]
    nodes: Option<u32>,
    /// Address of a running Redis or Valkey for the nodes, as redis://…, instead of a started one. The drill uses an
    /// empty database of it, and empties that afterwards
    #[arg(long, env = "FIRSTCOME_DRILL_REDIS", value_name = "URL", requires = "nodes", hide_env_values = true)]
    redis: Option<String>,
    /// Database of the nodes [default: postgres]; for an auction without --nodes, database of the service. `postgres`
    /// or `mariadb` starts one; an address names a running server, on which a database is made and dropped
    #[arg(long, env = "FIRSTCOME_DRILL_SQL", value_name = "URL", conflicts_with = "url", hide_env_values = true)]
    sql: Option<String>,
    #[command(flatten)]
    plaintext: PlaintextArgs,
    /// Directory for report.html and report.json
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Directory on a disk, in which a scratch directory is made and removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Connections that the crowd shares
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4_000))]
    connections: u32,
    /// Admissions in a second [default: sells the stock in two fifths of the time]; only for a concert
    #[arg(long, value_name = "PER_SECOND", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// So many of the people are real Chromium browsers with the page of the coupon [default with the flag: 10]; only for a
    /// concert, and with Chromium and chromedriver on this machine
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "10", value_parser = clap::value_parser!(u32).range(1..=50))]
    browser: Option<u32>,
    /// Print JSON also on a terminal
    #[arg(long, conflicts_with = "table")]
    json: bool,
    /// Print tables even if the output is not a terminal
    #[arg(long)]
    table: bool,
}

impl EventArgs {
    /// The number of tickets or coupons.
    fn stock(&self) -> u32 {
        self.stock.unwrap_or(3_000)
    }

    /// The number of listings.
    fn auctions(&self) -> u32 {
        self.stock.unwrap_or(100)
    }

    /// Refuses servers of other machines that would be reached in plain text, unless that is allowed.
    fn check_plaintext(&self) -> Outcome {
        let rule = self.plaintext.rule();
        // `address_of` says what is wrong with another one.
        if let Some(found) = self.url.as_deref().and_then(service_destination) {
            rule.check(Protocol::Http, &found)?;
        }
        if let Some(url) = &self.redis {
            let found = firstcome::redis::destination(url).map_err(|error| Failure::Usage(error.into()))?;
            rule.check(Protocol::Redis, &found)?;
        }
        if let Some(Named::Running(url)) = self.sql.as_deref().map(Named::parse).transpose().map_err(Failure::Usage)? {
            let address = Address::parse(&url).map_err(|error| Failure::Usage(error.into()))?;
            rule.check(Protocol::of_database(&address), &address.destination())?;
        }
        Ok(())
    }

    /// The address of the service that `--url` names. Fails if no server accepts connections there.
    fn address(&self) -> Result<SocketAddr, Failure> {
        let address = address_of(self.url.as_deref().unwrap_or_default()).map_err(Failure::Usage)?;
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(_) => Ok(address),
            Err(error) => Err(Failure::Unreachable(anyhow!(
                "the service at {address} cannot be reached: {error}; check that it runs, and --url"
            ))),
        }
    }

    /// By default 1800 people per second: so many can two processors play beside the service.
    fn seconds(&self) -> u64 {
        self.seconds.unwrap_or_else(|| u64::from(self.people.max(self.bids.unwrap_or(0)) / 1_800).max(60))
    }
}

/// A scratch directory that is removed when its drill ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(parent: &Path) -> anyhow::Result<Self> {
        Self::named(parent, "drill")
    }

    fn named(parent: &Path, name: &str) -> anyhow::Result<Self> {
        let path = parent.join(format!("firstcome-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    /// Creates the directory, unless `--url` names a service. Call it before the servers start: they then end before
    /// their files.
    fn unless_elsewhere(args: &EventArgs) -> anyhow::Result<Option<Self>> {
        args.url.is_none().then(|| Self::new(&args.data)).transpose()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that stays does no harm: its name holds the process id.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Plays an event, audits it, and prints the result. Fails if a guarantee was broken.
///
/// Unless `--url` names a service, the drill starts `serve` of the running program, which must therefore be
/// `firstcome`.
pub fn run(command: &DrillCommand) -> Outcome {
    let (DrillCommand::Concert(args) | DrillCommand::Coupon(args) | DrillCommand::Auction(args)) = command;
    args.check_plaintext()?;
    enough_descriptors(args.connections as usize * args.nodes.unwrap_or(1) as usize).map_err(Failure::Usage)?;
    let facts = match command {
        DrillCommand::Concert(_) => play(args, &settle(args, "concert")?)?,
        DrillCommand::Coupon(_) => play(args, &settle(args, "coupon")?)?,
        DrillCommand::Auction(_) => auction::run(args)?,
    };
    if let Some(directory) = &args.report {
        report::write(&facts, directory)?;
    }
    if args.table || wants_table(args.json) {
        report::print(&facts)?;
    } else {
        print_json(&facts)?;
    }
    let broken: Vec<&str> =
        facts.checks.iter().filter(|check| 0 < check.breaches).map(|check| check.invariant).collect();
    if broken.is_empty() { Ok(()) } else { Err(Failure::Refused(anyhow!("broken: {}", broken.join(", ")))) }
}

/// Checks the soft limit of open files: with too few, some connections would fail and the drill would prove little.
fn enough_descriptors(connections: usize) -> anyhow::Result<()> {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    match soft {
        Some(soft) if soft < connections + DESCRIPTORS => Err(anyhow!(
            "{connections} connections need {} open files, and this process may open {soft}; raise `ulimit -n`",
            connections + DESCRIPTORS
        )),
        _ => Ok(()),
    }
}

fn no_browser() -> Failure {
    Failure::Usage(anyhow!("--browser is for drill concert: only there people go through the page of a room"))
}

fn settle(args: &EventArgs, event: &'static str) -> Result<Setting, Failure> {
    if args.sql.is_some() && args.nodes.is_none() {
        let says = "--sql is for drill auction, or with --nodes: coupons and rooms are not kept in a database alone";
        return Err(Failure::Usage(anyhow!(says)));
    }
    if event == "coupon" && args.rate.is_some() {
        return Err(Failure::Usage(anyhow!("--rate is for drill concert: a rush without a room admits all")));
    }
    if event == "coupon" && args.browser.is_some() {
        return Err(no_browser());
    }
    let browsers = args.browser.unwrap_or(0);
    if args.people <= browsers {
        return Err(Failure::Usage(anyhow!("--people counts the browsers too: give more than {browsers}")));
    }
    if args.bids.is_some() {
        return Err(Failure::Usage(anyhow!("--bids is for drill auction: tickets have no bids")));
    }
    let opens_s = (args.seconds() as f64 * 0.15).clamp(2.0, 60.0);
    let sale_s = (args.seconds() as f64 - opens_s) * 0.4;
    let room = event == "concert";
    let admit = args.rate.unwrap_or_else(|| (f64::from(args.stock()) / (plan::CLAIMING_SHARE * sale_s)).ceil() as u32);
    let admit = if room { admit.max(1) } else { 0 };
    let keys = args.keys()?;
    // The names get a random suffix, for a service that has seen drills before.
    let suffix = draw_key()?[..8].to_owned();
    Ok(Setting {
        event,
        people: args.people,
        browsers,
        profiles: args.data.clone(),
        stock: args.stock(),
        seconds: args.seconds(),
        seed: args.seed,
        kills: args.kill,
        connections: args.connections as usize,
        opens_us: (opens_s * 1e6) as u64,
        admit,
        active_max: (u64::from(admit) * SLOTS_PER_ADMISSION).max(10),
        claim_window_ms: (args.seconds() * 1_000 / 6).clamp(3_000, 15_000),
        active_ttl_ms: (args.seconds() * 1_000 / 4).clamp(6_000, 60_000),
        room: room.then(|| format!("drill-{suffix}")),
        coupon: format!("drill-{suffix}"),
        keys,
    })
}

fn draw_key() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("the system gives no random bytes: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn address_of(url: &str) -> anyhow::Result<SocketAddr> {
    let host = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    let host = host.with_context(|| format!("{url:?} is not an address like http://127.0.0.1:8080"))?;
    let mut addresses = host.to_socket_addrs().with_context(|| format!("{url:?} cannot be found"))?;
    addresses.next().with_context(|| format!("{url:?} has no address"))
}

fn play(args: &EventArgs, setting: &Setting) -> Result<Facts, Failure> {
    let scratch = Scratch::unless_elsewhere(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let Some(Scratch(directory)) = &scratch else {
        let place = Rc::new(DrillTarget::at(args.address()?));
        let played = local.block_on(&runtime, event::play(setting, place))?;
        return Ok(outcome::facts(setting, &played, Vec::new()));
    };
    if args.nodes.is_some() {
        return local.block_on(&runtime, on_nodes(args, setting, directory));
    }
    let server = Server::start(directory, &setting.keys, setting.room.is_some(), &Stores::Directory)?;
    let played = local.block_on(&runtime, event::play(setting, Rc::new(DrillTarget::alone(server))))?;
    let stored = firstcome::sqlite::verify(directory).map_err(Failure::Store)?;
    Ok(outcome::facts(setting, &played, stored))
}

/// Plays an event on the nodes of a cluster, which share their data.
async fn on_nodes(args: &EventArgs, setting: &Setting, scratch: &Path) -> Result<Facts, Failure> {
    let mut backing = Backing::open(args, scratch).await?;
    let playing = async {
        let place = Rc::new(backing.start_nodes(scratch, &setting.keys, setting.room.is_some())?);
        let played = event::play(setting, Rc::clone(&place)).await?;
        let (stored, not_checked) = backing.sound().await?;
        let mut facts = outcome::facts(setting, &played, stored);
        facts.conditions.extend(not_checked);
        facts.checks.extend(in_sql::all(backing.sql(), setting, &played.people.history).await?);
        facts.conditions.extend([backing.nodes(), ("store".to_owned(), backing.store())]);
        Ok(facts)
    };
    let facts = unless_stopped(playing).await;
    when_ended(facts, backing.end()).await
}

/// Prints the stable part of `report.json`, for programs.
fn print_json(facts: &Facts) -> Outcome {
    let broken = facts.checks.iter().filter(|check| 0 < check.breaches);
    let violations: Vec<_> = broken
        .map(|check| json!({"invariant": check.invariant, "breaches": check.breaches, "examples": check.examples}))
        .collect();
    let kills: Vec<_> =
        facts.kills.iter().map(|kill| json!({"target": kill.target, "in_flight": kill.in_flight})).collect();
    let mut report = json!({"people": facts.people, "issued": facts.issued, "violations": violations, "kills": kills});
    if let Some(auctions) = &facts.auctions {
        report["bids"] = auctions.bids.into();
        report["sales"] = auctions.sales.into();
    }
    write_out(format!("{report:#}\n").as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_from_a_url() {
        assert_eq!(address_of("http://127.0.0.1:81/").unwrap().port(), 81);
        for wrong in ["127.0.0.1:81", "https://127.0.0.1:81", "http://", "http://127.0.0.1"] {
            assert!(address_of(wrong).is_err(), "{wrong}");
        }
    }
}
