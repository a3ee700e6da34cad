//! Partitions, stops, kills, and clocks that jump, while processes contend for locks over several servers.
//!
//! A hub with the servers, and each process in a network of its own that is joined to it: rules in the hub cut any process
//! off from any server, in either direction. The hub and the processes are this test binary once more, with [`hub`] or
//! [`client`] as its only test. All that the hub has started ends with it.
//!
//! Several locks are contended for. The clocks of servers jump as far as some of them are concerned, and run alike for the others,
//! whose holds must never overlap. Those of the first may, and are counted.

mod audit;
mod client;
mod network;
mod register;
mod storm;

use super::server::{PATIENCE, Server, is_installed, wait_for};
use super::*;
use register::{Register, Written};
use rustix::time::{ClockId, clock_gettime};
use std::io::BufRead;
use std::path::PathBuf;
use std::process::Stdio;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// What the hub and the processes say begins so: the test harness says other things.
const MARK: &str = "> ";
/// Locks for which all clocks run alike, and those for which some jump.
const STEADY: [&str; 3] = ["steady-1", "steady-2", "steady-3"];
const JUMPED: [&str; 2] = ["jumped-1", "jumped-2"];
/// A server that has forgotten waits so long; no lease is longer.
const REJOIN_AFTER: Duration = Duration::from_secs(2);

/// How long and how large, from `FIRSTCOME_PARTITIONS`: words such as `seconds=60 seed=7 nodes=5 planted=half-is-a-majority`.
struct Plan {
    seconds: u64,
    seed: u64,
    nodes: usize,
    clients: usize,
    planted: String,
}

impl Plan {
    fn from_outside() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one place where this test is set from outside")]
        let words = std::env::var("FIRSTCOME_PARTITIONS").unwrap_or_default();
        let mut plan = Self { seconds: 12, seed: 1, nodes: 5, clients: 4, planted: "nothing".to_owned() };
        for word in words.split_whitespace() {
            let (name, value) = word.split_once('=').expect("words of FIRSTCOME_PARTITIONS are name=value");
            let number = || value.parse().expect("a number");
            match name {
                "seconds" => plan.seconds = number(),
                "seed" => plan.seed = number(),
                "nodes" => plan.nodes = value.parse().expect("a number"),
                "clients" => plan.clients = value.parse().expect("a number"),
                "planted" => value.clone_into(&mut plan.planted),
                other => panic!("FIRSTCOME_PARTITIONS has no {other}"),
            }
        }
        plan
    }

    /// Longer than all of it takes.
    fn limit(&self) -> Duration {
        Duration::from_secs(self.seconds) + PATIENCE * 3
    }
}

/// How all who use the servers behave.
fn options() -> QuorumOptions {
    let mut options = QuorumOptions::default();
    (options.node_timeout, options.rejoin_after) = (Duration::from_millis(100), REJOIN_AFTER);
    options.link.answer_timeout = Duration::from_millis(800);
    options.link.connect_timeout = Duration::from_millis(500);
    options.link.ping_interval = Duration::from_millis(500);
    options
}

/// By the clock that all processes of this machine read alike, and no operator sets.
fn now_us() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000
}

/// Chance that can be repeated.
struct Chance(u64);

impl Chance {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// At least the first, and less than the second.
    fn within(&mut self, least: u64, end: u64) -> u64 {
        least + self.draw() % (end - least)
    }

    fn millis(&mut self, least: u64, end: u64) -> Duration {
        Duration::from_millis(self.within(least, end))
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for index in (1..all.len()).rev() {
            all.swap(index, self.draw() as usize % (index + 1));
        }
    }

    /// So many of these numbers.
    fn some_of(&mut self, count: usize, of: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..of).collect();
        self.shuffle(&mut all);
        all.truncate(count);
        all
    }
}

/// Lines from the process that started this process. When they end it ends: no process is left to end it.
fn orders() -> Option<UnboundedReceiver<String>> {
    if !std::env::args().any(|argument| argument == "--exact") {
        return None;
    }
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
        std::process::exit(1);
    });
    Some(receiver)
}

fn say(word: &str) {
    // At the start of no line in particular: the harness has written there before.
    println!("\n{MARK}{word}");
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// Does something only as a process of its own: the servers, the network, and the faults.
#[test]
fn hub() {
    let Some(mut orders) = orders() else { return };
    block_on(async {
        let Some(directory) = orders.recv().await else { return };
        let plan = Plan::from_outside();
        let whole = storm::run(&plan, std::path::Path::new(&directory));
        // Sooner than a process that has started it gives up: then it says where it was.
        timeout(plan.limit(), whole).await.expect("it hangs");
    });
}

/// Does something only as a process of its own: wants the locks again and again.
#[test]
fn client() {
    let Some(mut orders) = orders() else { return };
    block_on(async {
        // Now it has a network, to which the hub can lead a way.
        say("here");
        let Some(order) = orders.recv().await else { return };
        client::run(&order, &mut orders).await;
    });
}

/// This binary once more, with one test of this file alone, started by `unshare` with these words.
fn once_more(unshare: &[&str], test: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(unshare).arg(std::env::current_exe().expect("this binary has a path"));
    command.args(["--exact", &format!("partitions::{test}"), "--nocapture"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    command
}

/// A network and processes that no other process sees, and that end when `unshare` does.
const APART: [&str; 5] = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// Whether this process may make networks, and the tools are there; a word about it if not.
async fn can_partition() -> bool {
    let rules = "unshare --net sh -c 'ip link set lo up && nft list ruleset && nsenter --version'";
    let tried = Command::new("sh").args(["-c", rules]).stdout(Stdio::null()).stderr(Stdio::null()).status().await;
    let can = tried.is_ok_and(|status| status.success());
    firstcome_test_servers::machine_has("the right to make networks (root, util-linux, iproute2, nftables)", can)
}

#[tokio::test]
async fn through_partitions_stops_kills_and_jumps_of_clocks_holds_are_apart_and_fences_grow() {
    if !is_installed() || !can_partition().await {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory for the test");
    // Into a file: it is there also when the hub hangs.
    let says = directory.path().join("hub");
    let out = std::fs::File::create(&says).expect("a file");
    let err = out.try_clone().expect("a second handle");
    let mut hub = once_more(&APART, "hub")
        .stdout(out)
        .stderr(err)
        // What servers leave that are killed with it is gone with the directory.
        .env("TMPDIR", directory.path())
        .spawn()
        .expect("this binary runs once more");
    // Kept: the hub ends when there is no process left to write to it.
    let mut orders = hub.stdin.take().expect("it is piped");
    orders.write_all(format!("{}\n", directory.path().display()).as_bytes()).await.expect("it listens");
    let limit = Plan::from_outside().limit() + PATIENCE;
    // Dropped when the time is over, and it is killed, with all that it has started.
    let ended = timeout(limit, hub.wait()).await;
    drop(orders);
    let said = std::fs::read_to_string(&says).expect("the file can be read");
    said.lines().filter_map(|line| line.strip_prefix(MARK)).for_each(|line| println!("{line}"));
    let ended = ended.unwrap_or_else(|_| panic!("the hub hangs:\n{said}")).expect("it can be waited for");
    assert!(ended.success(), "{said}");
}

#[tokio::test]
async fn a_jump_of_a_majority_makes_two_holders_and_what_the_lock_guards_refuses_the_first() {
    let Some(servers) = start(5).await else { return };
    let directory = tempfile::tempdir().expect("a directory for the test");
    let (one, other) = (open(&servers).await, open(&servers).await);
    let name = JUMPED[0];
    let register = Register::open(directory.path(), name);
    let key = format!("fcq:l:{name}");
    for round in 0..5 {
        let first = one.lock(name).acquire().await.unwrap();
        assert_eq!(register.write(first.fence().unwrap().get()), Written::Accepted);
        for server in &servers {
            wait_for("all to have it", async || (server.ask(&["EXISTS", &key]).await == Value::Int(1)).then_some(()))
                .await;
        }
        for node in 0..3 {
            let server = &servers[(round + node) % 5];
            server.ask(&["PEXPIRE", &key, "1"]).await;
            wait_for("its end", async || (server.ask(&["EXISTS", &key]).await == Value::Int(0)).then_some(())).await;
        }
        let second = other.lock(name).try_acquire().await.unwrap();
        assert!(!first.is_lost() && !second.is_lost(), "both believe it");
        assert!(first.fence().unwrap() < second.fence().unwrap());
        assert_eq!(register.write(second.fence().unwrap().get()), Written::Accepted);
        assert_eq!(register.write(first.fence().unwrap().get()), Written::Refused);
        assert!(matches!(first.release().await, Err(LockError::Lost)));
        second.release().await.unwrap();
        until_free(&servers, name).await;
    }
    assert_eq!(register::refusals(directory.path(), name), Ok(5));
}
