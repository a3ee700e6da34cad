//! The hub: servers, processes, and what goes wrong with them.

use super::audit::{self, Found};
use super::network::{Cut, Lost, Network, Partition};
use super::*;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep, sleep_until};

/// A fence that a server is set ahead by: as many as an hour has µs, from which the first guess is made.
const HOUR_US: u64 = 3_600_000_000;
/// In so many seconds jumps must have let two in at once.
const LONG: u64 = 30;
/// A word to a server that lives is answered within this.
const ANSWER: Duration = Duration::from_millis(500);

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fault {
    CutFromMinority,
    CutFromMajority,
    ServersCutFromAll,
    TwoSides,
    ServerStopped,
    ClientStopped,
    ServerEmptied,
    ServerEmptiedClockBehind,
    ClientKilled,
    CounterAhead,
    MinorityJumps,
    MajorityJumps,
    ClockSetBack,
}

/// These come up once more in each turn: they last for a short while only.
const OFTEN: [Fault; 4] = [Fault::CutFromMinority, Fault::ServersCutFromAll, Fault::TwoSides, Fault::MajorityJumps];

impl Fault {
    const ALL: [(Self, &'static str); 13] = [
        (Self::CutFromMinority, "a process is cut off from a minority"),
        (Self::CutFromMajority, "a process is cut off from a majority"),
        (Self::ServersCutFromAll, "one or two servers are cut off from all"),
        (Self::TwoSides, "two sides, each with its processes and servers"),
        (Self::ServerStopped, "a server is stopped"),
        (Self::ClientStopped, "a process is stopped for longer than its lease"),
        (Self::ServerEmptied, "a server is killed, and comes back empty"),
        (Self::ServerEmptiedClockBehind, "the same, its clock an hour behind"),
        (Self::ClientKilled, "a process is killed"),
        (Self::CounterAhead, "a server counts an hour ahead of the others"),
        (Self::MinorityJumps, "clocks of one or two servers jump past a lease"),
        (Self::MajorityJumps, "clocks of three or more jump past a lease"),
        (Self::ClockSetBack, "a clock is set back by a second"),
    ];
}

/// A process, and the way to it.
struct Client {
    child: Child,
    orders: ChildStdin,
    told: Lines<BufReader<ChildStdout>>,
    place: Partition,
    stopped_until: Option<Instant>,
}

impl Client {
    fn signal(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        kill_process(id.expect("it was not waited for"), signal).expect("it can be told");
    }

    async fn report(&mut self, order: &str) {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.expect("it listens");
    }

    /// The next word of it.
    async fn says(&mut self) -> String {
        let next = async {
            while let Some(line) = self.told.next_line().await.expect("it can be read") {
                if let Some(word) = line.strip_prefix(MARK) {
                    return word.to_owned();
                }
            }
            panic!("a process has ended");
        };
        timeout(PATIENCE * 2, next).await.expect("a process says nothing")
    }
}

struct Storm<'a> {
    plan: &'a Plan,
    directory: &'a Path,
    chance: Chance,
    servers: Vec<Server>,
    stopped_until: Vec<Option<Instant>>,
    clients: Vec<Client>,
    network: Network,
    cuts: Vec<(Instant, Vec<Cut>)>,
    done: BTreeMap<Fault, u32>,
}

/// Starts everything, lets it go wrong for the time of the plan, and looks at what became of it.
pub(super) async fn run(plan: &Plan, directory: &Path) {
    let network = Network::begin().await;
    let mut servers = Vec::new();
    for _ in 0..plan.nodes {
        let server = Server::start(&["--bind", "0.0.0.0", "--protected-mode", "no"]).await;
        servers.push(server.expect("it was looked whether there is one"));
    }
    Locks::quorum_with(servers.iter().map(Server::url), options().new_set()).await.expect("a new set");
    let mut storm = Storm {
        plan,
        directory,
        chance: Chance(plan.seed),
        stopped_until: servers.iter().map(|_| None).collect(),
        servers,
        clients: Vec::new(),
        network,
        cuts: Vec::new(),
        done: BTreeMap::new(),
    };
    for _ in 0..plan.clients {
        let client = storm.start_client().await;
        storm.clients.push(client);
    }
    storm.rage().await;
    let settled = storm.settle().await;
    storm.report(&settled).await;
}

/// How it was after all faults had ended.
struct Settled {
    /// Until all servers voted again.
    voting: Duration,
    /// The longest that a process then needed to have all locks, one by one.
    waited_ms: u64,
}

impl Storm<'_> {
    async fn start_client(&mut self) -> Client {
        let mut child = once_more(&["--net"], "client").spawn().expect("this binary runs once more");
        let orders = child.stdin.take().expect("it is piped");
        let told = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let process = child.id().expect("it runs");
        let mut client = Client { child, orders, told, place: Partition::NOWHERE, stopped_until: None };
        assert_eq!(client.says().await, "here");
        client.place = self.network.join(process).await;
        let hub = client.place.hub();
        let urls: Vec<String> = self.servers.iter().map(|server| format!("redis://{hub}:{}", server.port())).collect();
        let (seed, directory) = (self.chance.draw() >> 8, self.directory.display());
        client.report(&format!("{seed} {directory} {} {}", self.plan.planted, urls.join(" "))).await;
        client
    }

    /// One fault after another, until the time is over. All kinds take turns.
    async fn rage(&mut self) {
        let end = Instant::now() + Duration::from_secs(self.plan.seconds);
        let mut kinds: Vec<Fault> = Vec::new();
        while Instant::now() < end {
            self.heal(Instant::now()).await;
            if kinds.is_empty() {
                kinds = Fault::ALL.map(|(fault, _)| fault).into_iter().chain(OFTEN).collect();
                self.chance.shuffle(&mut kinds);
            }
            // What cannot be done now is put off.
            for index in (0..kinds.len()).rev() {
                // Read when it fails.
                println!("{} {:?}", now_us(), kinds[index]);
                if self.strike(kinds[index]).await {
                    *self.done.entry(kinds.remove(index)).or_default() += 1;
                    break;
                }
            }
            // As often as anything else: where all count alike nothing has to be written back.
            if self.strike(Fault::CounterAhead).await {
                *self.done.entry(Fault::CounterAhead).or_default() += 1;
            }
            sleep_until(Instant::now() + self.chance.millis(20, 120)).await;
        }
    }

    /// Ends what is over by then.
    async fn heal(&mut self, then: Instant) {
        let is_over = |until: &mut Option<Instant>| until.take_if(|until| *until <= then).is_some();
        for (server, until) in self.servers.iter().zip(&mut self.stopped_until) {
            if is_over(until) {
                server.thaw();
            }
        }
        for client in &mut self.clients {
            if is_over(&mut client.stopped_until) {
                client.signal(Signal::CONT);
            }
        }
        let before = self.cuts.len();
        self.cuts.retain(|(until, _)| then < *until);
        if self.cuts.len() < before {
            self.apply().await;
        }
    }

    async fn apply(&self) {
        let all: Vec<Cut> = self.cuts.iter().flat_map(|(_, cuts)| cuts.iter().copied()).collect();
        self.network.cut(&all).await;
    }

    /// Does it, unless too much is wrong already.
    async fn strike(&mut self, fault: Fault) -> bool {
        let (nodes, majority) = (self.plan.nodes, self.plan.nodes / 2 + 1);
        match fault {
            Fault::CutFromMinority => {
                let count = self.chance.within(1, majority as u64) as usize;
                self.cut_off_one(count).await
            }
            Fault::CutFromMajority => {
                let count = self.chance.within(majority as u64, nodes as u64 + 1) as usize;
                self.cut_off_one(count).await
            }
            Fault::ServersCutFromAll => {
                let servers = self.some_servers(1, majority);
                let clients: Vec<usize> = (0..self.clients.len()).collect();
                self.cut(&[(clients, servers)]).await
            }
            Fault::TwoSides => {
                let mut servers = self.chance.some_of(nodes, nodes);
                let mut clients = self.chance.some_of(self.clients.len(), self.clients.len());
                let other_servers = servers.split_off(nodes / 2);
                let other_clients = clients.split_off(self.clients.len() / 2);
                self.cut(&[(clients, other_servers), (other_clients, servers)]).await
            }
            Fault::ServerStopped => self.stop_server(),
            Fault::ClientStopped => self.stop_client(),
            Fault::ServerEmptied => self.empty_server(None).await,
            Fault::ServerEmptiedClockBehind => self.empty_server(Some(HOUR_US)).await,
            Fault::ClientKilled => self.kill_client().await,
            Fault::CounterAhead => {
                let node = self.some_servers(1, 2)[0];
                self.set_ahead(node).await
            }
            Fault::MinorityJumps => {
                let servers = self.some_servers(1, majority);
                self.jump(&servers, -i64::from(u32::MAX)).await
            }
            Fault::MajorityJumps => {
                let servers = self.some_servers(majority, nodes + 1);
                self.jump(&servers, -i64::from(u32::MAX)).await
            }
            Fault::ClockSetBack => {
                let servers = self.some_servers(1, majority);
                self.jump(&servers, 1_000).await
            }
        }
    }

    fn some_servers(&mut self, least: usize, end: usize) -> Vec<usize> {
        let count = self.chance.within(least as u64, end as u64) as usize;
        self.chance.some_of(count, self.plan.nodes)
    }

    async fn cut_off_one(&mut self, count: usize) -> bool {
        let client = self.chance.within(0, self.clients.len() as u64) as usize;
        let servers = self.chance.some_of(count, self.plan.nodes);
        self.cut(&[(vec![client], servers)]).await
    }

    /// Cuts these processes off from those servers for a while, in one direction or in both.
    async fn cut(&mut self, sides: &[(Vec<usize>, Vec<usize>)]) -> bool {
        if 3 <= self.cuts.len() {
            return false;
        }
        let lost = [Lost::Both, Lost::Requests, Lost::Answers][self.chance.within(0, 3) as usize];
        let mut cuts = Vec::new();
        for (clients, servers) in sides {
            for client in clients {
                let place = self.clients[*client].place;
                cuts.extend(servers.iter().map(|server| Cut { place, port: self.servers[*server].port(), lost }));
            }
        }
        self.cuts.push((Instant::now() + self.chance.millis(100, 1_500), cuts));
        self.apply().await;
        true
    }

    fn stop_server(&mut self) -> bool {
        let stopped = self.stopped_until.iter().flatten().count();
        let node = self.chance.within(0, self.plan.nodes as u64) as usize;
        if self.stopped_until[node].is_some() || self.plan.nodes.div_ceil(2) <= stopped {
            return false;
        }
        self.servers[node].freeze();
        self.stopped_until[node] = Some(Instant::now() + self.chance.millis(50, 1_200));
        true
    }

    fn stop_client(&mut self) -> bool {
        let running: Vec<usize> =
            (0..self.clients.len()).filter(|index| self.clients[*index].stopped_until.is_none()).collect();
        if running.len() < 2 {
            return false;
        }
        let client = running[self.chance.within(0, running.len() as u64) as usize];
        self.clients[client].signal(Signal::STOP);
        self.clients[client].stopped_until = Some(Instant::now() + self.chance.millis(950, 1_600));
        true
    }

    async fn kill_client(&mut self) -> bool {
        let index = self.chance.within(0, self.clients.len() as u64) as usize;
        let killed = timeout(PATIENCE, self.clients[index].child.kill()).await;
        killed.expect("it ends").expect("it runs");
        self.clients[index] = self.start_client().await;
        true
    }

    /// Asks a server that is not stopped; nothing if it does not answer.
    async fn ask(&self, node: usize, command: &[&str]) -> Option<Value> {
        if self.stopped_until[node].is_some() {
            return None;
        }
        timeout(ANSWER, self.servers[node].try_ask(command)).await.ok()?.ok()
    }

    async fn votes(&self, node: usize) -> bool {
        let known = self.ask(node, &["GET", "fcq:node"]).await;
        matches!(known, Some(Value::BulkString(text)) if text.starts_with(b"1 "))
    }

    /// Kills a server and starts it again without anything. Of those that have forgotten there is mostly one, and never more
    /// than a minority; one that is stopped may have.
    async fn empty_server(&mut self, behind_us: Option<u64>) -> bool {
        let node = self.chance.within(0, self.plan.nodes as u64) as usize;
        let mut without_it = 1;
        for other in (0..self.plan.nodes).filter(|other| *other != node) {
            without_it += usize::from(!self.votes(other).await);
        }
        let most = if self.chance.within(0, 4) == 0 { self.plan.nodes.div_ceil(2) - 1 } else { 1 };
        if most < without_it {
            return false;
        }
        self.servers[node].restart().await;
        self.stopped_until[node] = None;
        if let Some(behind_us) = behind_us {
            self.guess_behind(node, behind_us).await;
        }
        true
    }

    /// As if its clock had been behind when it came back: its guess at a counter is far below what it had counted.
    async fn guess_behind(&self, node: usize, behind_us: u64) {
        let run = self.servers[node].text(&["INFO", "server"]).await;
        let run = run.lines().find_map(|line| line.strip_prefix("run_id:")).expect("it has one").trim().to_owned();
        let guess = "
            local time = redis.call('TIME')
            local now = time[1] * 1000000 + time[2]
            local known = redis.call('GET', KEYS[1])
            local birth = known and string.match(known, '^0 %S+ %d+ (%d+) ') or string.format('%.0f', now)
            local counter = string.format('%.0f', now - ARGV[3])
            redis.call('SET', KEYS[1], table.concat({'0', ARGV[1], ARGV[2], birth, counter}, ' '))";
        let rejoin_ms = REJOIN_AFTER.as_millis().to_string();
        let asked = ["EVAL", guess, "1", "fcq:node", &run, &rejoin_ms, &behind_us.to_string()];
        self.servers[node].ask(&asked).await;
    }

    /// As one that came back when its clock was ahead.
    async fn set_ahead(&self, node: usize) -> bool {
        let ahead = "
            local known = redis.call('GET', KEYS[1])
            if not known then return 0 end
            local front, counter = string.match(known, '^(1 .*) (%d+)$')
            if not front then return 0 end
            redis.call('SET', KEYS[1], front .. ' ' .. string.format('%.0f', counter + ARGV[1]))
            return 1";
        let asked = self.ask(node, &["EVAL", ahead, "1", "fcq:node", &HOUR_US.to_string()]).await;
        asked == Some(Value::Int(1))
    }

    /// Moves the end of what these servers have of one of the locks.
    async fn jump(&mut self, servers: &[usize], by_ms: i64) -> bool {
        let jump = "
            local left = redis.call('PTTL', KEYS[1])
            if left < 0 then return 0 end
            return redis.call('PEXPIRE', KEYS[1], math.max(1, left + ARGV[1]))";
        let key = format!("fcq:l:{}", JUMPED[self.chance.within(0, JUMPED.len() as u64) as usize]);
        let mut moved = 0;
        for node in servers {
            let asked = self.ask(*node, &["EVAL", jump, "1", &key, &by_ms.to_string()]).await;
            moved += usize::from(asked == Some(Value::Int(1)));
        }
        moved == servers.len()
    }

    /// Ends all faults, and waits until everything is as it was.
    async fn settle(&mut self) -> Settled {
        let begun = Instant::now();
        self.heal(begun + PATIENCE).await;
        while !self.all_vote().await {
            assert!(begun.elapsed() < PATIENCE, "a server does not come to vote");
            sleep(Duration::from_millis(20)).await;
        }
        let mut settled = Settled { voting: begun.elapsed(), waited_ms: 0 };
        for client in &mut self.clients {
            client.report("calm").await;
        }
        for client in &mut self.clients {
            let said = client.says().await;
            let waited_ms = said.strip_prefix("calm ").and_then(|waited_ms| waited_ms.parse().ok());
            settled.waited_ms = settled.waited_ms.max(waited_ms.unwrap_or_else(|| panic!("{said}")));
            assert!(timeout(PATIENCE, client.child.wait()).await.expect("it ends").expect("it ends").success());
        }
        settled
    }

    async fn all_vote(&self) -> bool {
        for node in 0..self.plan.nodes {
            if !self.votes(node).await {
                return false;
            }
        }
        true
    }

    /// Says what happened, and then whether all is well.
    async fn report(&self, settled: &Settled) {
        let version = self.servers[0].text(&["INFO", "server"]).await;
        let version = version.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("?").trim();
        let Plan { seconds, seed, nodes, clients, planted } = self.plan;
        say(&format!(
            "{seconds} s, seed {seed}; {nodes} servers of Redis {version}; {clients} processes, each in a network of its own; \
             planted: {planted}"
        ));
        let mut table = Table::default();
        for (fault, name) in Fault::ALL {
            table.row(name, &self.done.get(&fault).copied().unwrap_or(0));
        }
        let (requests, answers) = self.network.lost().await;
        table.row("packets to servers thrown away", &requests);
        table.row("packets from servers thrown away", &answers);
        let [written_back, undone_late, rejoined] = audit::counts(self.directory);
        table.row("grants that needed a fence written back", &written_back);
        table.row("late grants undone", &undone_late);
        table.row("servers that came to vote again", &rejoined);
        table.row("all vote again after the last fault, ms", &settled.voting.as_millis());
        table.row("then everybody has had all locks within, ms", &settled.waited_ms);
        let mut wrong = Vec::new();
        self.judge(&STEADY, Clocks::Alike, &mut table, &mut wrong);
        self.judge(&JUMPED, Clocks::Jump, &mut table, &mut wrong);
        table.0.lines().for_each(say);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(self.done.len() == Fault::ALL.len(), "not all went wrong that should: {:?}", self.done);
        assert!(0 < requests && 0 < answers, "nothing was cut off");
        assert!(settled.waited_ms < PATIENCE.as_millis() as u64);
    }

    /// What there was of these locks, all together, and what of it should not be.
    fn judge(&self, locks: &[&str], clocks: Clocks, table: &mut Table, wrong: &mut Vec<String>) {
        let (mut grants, mut refused, mut accepted) = (0, 0, 0);
        let mut found = Found::default();
        for lock in locks {
            let all = audit::read(self.directory, lock);
            grants += all.len();
            found.add(audit::audit(&all));
            match register::refusals(self.directory, lock) {
                Ok(count) => refused += count,
                Err(line) => {
                    accepted += 1;
                    wrong.push(format!("{lock}: the register took {line}"));
                }
            }
        }
        let (name, allowed) = match clocks {
            Clocks::Alike => ("clocks alike", ""),
            Clocks::Jump => ("clocks jump", ", which that allows"),
        };
        table.row(&format!("{name}: grants"), &grants);
        table.row(&format!("{name}: double grants{allowed}"), &found.overlaps.len());
        table.row(&format!("{name}: fences given twice"), &found.same_fence.len());
        table.row(&format!("{name}: fences below one told before"), &found.fell.len());
        table.row(&format!("{name}: writes refused"), &refused);
        table.row(&format!("{name}: stale writes accepted"), &accepted);
        let mut must_be_none = vec![("one fence twice", found.same_fence), ("a fence fell", found.fell)];
        if clocks == Clocks::Alike {
            must_be_none.extend([("two at a time", found.overlaps), ("told in another order", found.out_of_order)]);
        } else if found.overlaps.is_empty() && LONG <= self.plan.seconds {
            wrong.push(format!("{name}: no visitor was admitted twice: the jumps are none"));
        }
        for (what, breaches) in must_be_none {
            if let Some((first, second)) = breaches.first() {
                wrong.push(format!("{name}: {what}, {} times: {first:?}, {second:?}", breaches.len()));
            }
        }
        // Half of what there is while two others build; for the gate, where all tests run at once, far below it.
        let least = if self.plan.seconds < LONG { 1 } else { 3 };
        if (grants as u64) < least * self.plan.seconds {
            wrong.push(format!("{name}: only {grants} grants"));
        }
    }
}

/// What the clocks of servers do, as far as a lock is concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clocks {
    Alike,
    Jump,
}

/// Names and numbers, a line each.
#[derive(Default)]
struct Table(String);

impl Table {
    fn row(&mut self, name: &str, number: &impl ToString) {
        let _ = writeln!(self.0, "{name:<55} {:>8}", number.to_string());
    }
}
