//! What one claim, one poll and one join cost the servers of a deployment, counted on real ones.
//!
//! The one thread of Redis runs every call of all nodes, and the writer of a coupon sends one statement after another. So
//! these counts bound the rate of a deployment, as instructions bound that of one node (`cargo xtask perf`). A change that
//! needs one call more is a decision, and changes a number here.

use crate::claim_replies::{COUPON, by, coupon, limit, new, put, refusal};
use crate::in_time;
use crate::room::{join, of, poll, put as put_room, room};
use crate::world::{TestDeployment, World, wait_for};
use firstcome_cluster::Cluster;
use firstcome_store::core::coupon::Rejection;
use firstcome_store::core::room::RoomSettings;
use firstcome_store::edge::Stopwatch;
use firstcome_store::{CouponStore, RoomStore};
use firstcome_test_servers::Kind;
use std::collections::BTreeMap;
use std::time::Duration;

/// Operations of each kind that are counted.
const OPERATIONS: u32 = 200;

/// What servers did so far.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// Scripts and other commands that clients sent to Redis.
    commands: u64,
    /// Calls within scripts.
    calls: u64,
    /// Statements that clients sent to the database.
    statements: u64,
}

/// Commands that only clients send, and never a script of ours.
const OF_CLIENTS: [&str; 11] =
    ["evalsha", "eval", "script", "info", "ping", "hello", "client", "select", "subscribe", "config", "multi"];

async fn work(place: &TestDeployment) -> Work {
    let stats: String = place.keeper().await.ask(&["INFO", "commandstats"]).await;
    let mut kinds = BTreeMap::new();
    for (name, rest) in stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls=")) {
        let count: u64 = rest.split(',').next().and_then(|count| count.parse().ok()).expect("a count");
        *kinds.entry(name.split('|').next().unwrap_or_default()).or_default() += count;
    }
    let calls = kinds.iter().filter(|(name, _)| !OF_CLIENTS.contains(name)).map(|(_, count)| count).sum();
    let statements = place.foreign().await.number(STATEMENTS).await;
    Work { commands: kinds.get("evalsha").copied().unwrap_or_default(), calls, statements: statements as u64 }
}

/// MariaDB counts each statement at once; PostgreSQL's counters follow up to a second later.
const STATEMENTS: &str = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
                          WHERE variable_name='Questions'";

/// Work, and the time that it took.
#[derive(Clone, Copy, Debug)]
struct Span {
    commands: f64,
    calls: f64,
    statements: f64,
    took_s: f64,
}

/// Counts what is done meanwhile.
async fn counted(place: &TestDeployment, done: impl Future<Output = ()>) -> Span {
    let (before, started) = (work(place).await, Stopwatch::start());
    done.await;
    let took_s = started.elapsed().as_secs_f64();
    let after = work(place).await;
    let more = |now: u64, then: u64| (now - then) as f64;
    Span {
        commands: more(after.commands, before.commands),
        calls: more(after.calls, before.calls),
        statements: more(after.statements, before.statements),
        took_s,
    }
}

impl Span {
    /// Checks the work per operation against what it was: at most half an operation's call above, beside what idle nodes
    /// do in that time, and not so few that the number is stale.
    fn check(self, what: &str, known: [f64; 3], idle: Self) {
        let kinds = [
            ("scripts", self.commands, idle.commands),
            ("calls", self.calls, idle.calls),
            ("statements", self.statements, idle.statements),
        ];
        for ((kind, counted, beside), known) in kinds.into_iter().zip(known) {
            let beside = beside / idle.took_s * self.took_s;
            let most = (known + 0.5) * f64::from(OPERATIONS) + 1.5 * beside;
            assert!(
                counted <= most,
                "{what}: {counted} {kind} of {OPERATIONS}, {beside:.0} beside, {known} each before"
            );
            let least = (known - 1.0) * f64::from(OPERATIONS);
            assert!(least < counted, "{what}: {counted} {kind} of {OPERATIONS} are fewer than {known} each: lower it");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_of_nodes_make_no_more_calls_than_they_did() {
    let Some(world) = World::start(Kind::MariaDb).await else { return };
    let place = world.place().await;
    let nodes = place.nodes(2).await;
    put(&nodes[0], limit(OPERATIONS)).await;
    in_time(async {
        let idle = counted(&place, idle_nodes()).await;
        counted(&place, claims(&nodes)).await.check("a claim", CLAIM, idle);
        // Each node learns from its first refusal that all are gone.
        refused(&nodes[0], "early").await;
        refused(&nodes[1], "early").await;
        counted(&place, refusals(&nodes)).await.check("a claim that is sold out", SOLD_OUT, idle);

        put_room(&nodes[0], RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
        let (_, ann) = join(&nodes[0], of("ann")).await;
        wait_for("the other to know her", async || nodes[1].poll(&room(), &ann.ticket).await.ok()?.ok()).await;
        // The room's clock is written and read all the time.
        let idle = counted(&place, idle_nodes()).await;
        counted(&place, joins(&nodes)).await.check("a join", JOIN, idle);
        counted(&place, polls(&nodes, &ann.ticket)).await.check("a poll", POLL, idle);
    })
    .await;
}

/// How long idle nodes are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Lets the nodes be idle for so long.
async fn idle_nodes() {
    let idle = Stopwatch::start();
    wait_for("the window to pass", async || (WINDOW <= idle.elapsed()).then_some(())).await;
}

/// The node of an operation: both in turns.
fn of_turn(nodes: &[Cluster], number: u32) -> &Cluster {
    &nodes[number as usize % nodes.len()]
}

async fn claims(nodes: &[Cluster]) {
    for number in 0..OPERATIONS {
        new(of_turn(nodes, number).claim(&coupon(COUPON), by(&format!("user-{number}"))).await);
    }
}

async fn refused(node: &Cluster, user: &str) {
    assert_eq!(refusal(node.claim(&coupon(COUPON), by(user)).await), Rejection::SoldOut);
}

async fn refusals(nodes: &[Cluster]) {
    for number in 0..OPERATIONS {
        refused(of_turn(nodes, number), &format!("late-{number}")).await;
    }
}

async fn joins(nodes: &[Cluster]) {
    for number in 0..OPERATIONS {
        join(of_turn(nodes, number), of(&format!("user-{number}"))).await;
    }
}

/// Nodes answer from their copies of the line.
async fn polls(nodes: &[Cluster], ticket: &str) {
    for number in 0..OPERATIONS {
        poll(of_turn(nodes, number), ticket).await;
    }
}

/// Scripts of Redis, calls within them, and statements of the database for one operation of one caller, with nothing to share
/// a batch with. The writer of the coupon inserts the claim, which may be the other node.
const CLAIM: [f64; 3] = [4.0, 17.0, 6.0];
/// One script, and one transaction in which the claims of the user are looked up.
const SOLD_OUT: [f64; 3] = [1.0, 3.0, 4.0];
/// The join is appended to the log, both nodes read it, and the database has it before the answer.
const JOIN: [f64; 3] = [4.0, 24.0, 4.0];
/// Nothing at all.
const POLL: [f64; 3] = [0.0, 0.0, 0.0];
