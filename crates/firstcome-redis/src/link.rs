//! The link: connections for commands, which are reopened whenever they are lost.

use super::acknowledge::{Needs, ReplicaAck};
use super::address::{Address, Credentials, Host};
use super::cluster::{AnyNode, Cluster, Purpose, Terms};
use super::connection::{CommandSocket, Connection, Put, text_of};
use super::error::{LinkError, OpenError};
use super::facts::ServerFacts;
use super::inbox::Inbox;
use super::preflight::{Eviction, Run};
use super::route::Endpoint;
use super::script::{Invocation, Script};
use super::sentinel::Sentinels;
use super::socket::{Connector, Times};
use firstcome_store::stats::RoundTrips;
use redis::{Cmd, Value};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Settings of a link.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkOptions {
    /// How long one attempt to connect may take, and how long a command waits for a connection.
    pub connect_timeout: Duration,
    /// How long to wait for an answer. Afterwards the outcome is unknown, and the command may still run.
    pub answer_timeout: Duration,
    /// How often the inbox pings its connection, and sentinels are asked for the primary. A dead connection is detected
    /// within this interval plus the answer time-out.
    pub ping_interval: Duration,
    /// What to do with a server that evicts keys when its memory is full.
    pub allow_eviction: Eviction,
    /// How many replicas must have a grant or a renewal before it is reported; see [`ReplicaAck`] and
    /// [`Link::invoke_acknowledged`]. Uses one more connection, in a cluster one to each master that is asked. Quorum
    /// locks and coupons ignore it.
    pub replica_ack: Option<ReplicaAck>,
}

impl Default for LinkOptions {
    /// One second for each time, and no eviction.
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            connect_timeout: second,
            answer_timeout: second,
            ping_interval: second,
            allow_eviction: Eviction::default(),
            replica_ack: None,
        }
    }
}

/// How much work a link has done so far. For benchmarks and metrics: no rule depends on these numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Commands that were sent. This includes commands that loaded a script, commands that were sent again after that
    /// or to another node, second copies of requests [beside](Link::invoke_beside) the commands, and each `WAIT` for
    /// [replicas](Link::invoke_acknowledged). It excludes the upkeep of connections: `INFO`, `SUBSCRIBE`, `PING`,
    /// `CLUSTER`, `SENTINEL`.
    pub requests: u64,
    /// Messages that the inbox received.
    pub pushes: u64,
    /// How many times a connection for commands was reopened.
    pub reconnects: u64,
    /// How many times the inbox was resubscribed.
    pub resubscriptions: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) pushes: AtomicU64,
    pub(crate) reconnects: AtomicU64,
    pub(crate) resubscriptions: AtomicU64,
    pub(crate) round_trips: RoundTrips,
}

/// A link to one server, to a primary that sentinels name, or to a cluster. Clones share it. Dropping the last clone
/// closes the connections.
#[derive(Clone)]
pub struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    route: Route,
    counters: Arc<Counters>,
    times: Times,
    replica_ack: Option<ReplicaAck>,
}

/// Where the keys are.
enum Route {
    /// One server has all keys.
    One {
        line: Connection,
        beside: watch::Receiver<Option<Arc<CommandSocket>>>,
        /// Carries the commands that replicas must acknowledge.
        acknowledged: Option<Connection>,
    },
    Cluster(Cluster),
}

/// The connection that a command uses.
#[derive(Clone, Copy)]
enum CommandConnection<'a> {
    /// The connection for commands.
    Line(&'a Connection),
    /// The connection of the inbox, or the connection for commands while the inbox has none.
    Beside(&'a Connection),
    /// This connection to a node of a cluster.
    Node(&'a Arc<CommandSocket>, Put),
    /// This connection, and replicas must have what the command wrote.
    Acknowledged(&'a Arc<CommandSocket>, Put, Needs<'a>),
}

/// How long a request beside the commands waits for its answer before the link also sends it on the command connection;
/// at most a quarter of the answer time-out. One of the two connections may be dead without notice, and these requests
/// must not be late. A slower server gets these requests twice at most.
const HEDGE: Duration = Duration::from_millis(250);

impl Link {
    /// Connects, checks the server, and subscribes the inbox to the channel of this name. The address is one of
    ///
    /// - `redis://[user:password@]host[:port][/database]`: this server.
    /// - `redis+sentinel://[user:password@]host[:port],…/primary[?db=database&sentinel_user=…&sentinel_password=…]`:
    ///   the server that these sentinels name as the primary of this name. User and password are for that server. When
    ///   a sentinel names another primary, the link closes its connections to the old one within the ping interval.
    /// - `redis+cluster://[user:password@]host[:port],…`: a cluster; these are some of its nodes.
    ///
    /// With `rediss` instead of `redis` each connection is by TLS, and certificate and name of each server are checked.
    /// The parameters `cacert`, `cert` and `key` then name PEM files as the options of redis-cli do: the authorities that
    /// alone are trusted (without it, those of the platform), and the certificate of this client and its key.
    ///
    /// Write reserved characters as `%` and two hexadecimal digits.
    ///
    /// Takes at most twice the sum of the connect and answer time-outs, with sentinels three times. In a cluster it
    /// takes three times, plus once more for each node that does not answer. Must be called in a Tokio runtime with IO
    /// and time, which keeps the connections up. A failure here is final. An open link reconnects by itself, and checks
    /// the server each time.
    pub async fn open(url: &str, inbox: &str, options: LinkOptions) -> Result<(Self, Inbox), OpenError> {
        let times = times_of(&options);
        let address = Address::read(url)?;
        if let Address::Cluster { seeds, credentials } = address {
            let (link, nodes) = Self::open_cluster(seeds, credentials, &options).await?;
            let inbox = open_anywhere(nodes, inbox, &options, &link.shared.counters).await?;
            return Ok((link, inbox));
        }
        let Alone { line, acknowledged, place, counters } = Alone::open(address, &options).await?;
        let (inbox, beside) = Inbox::open(place, inbox, &options, Arc::clone(&counters)).await?;
        let route = Route::One { line, beside, acknowledged };
        let shared = Shared { route, counters, times, replica_ack: options.replica_ack };
        Ok((Self { shared: Arc::new(shared) }, inbox))
    }

    async fn open_cluster(
        seeds: Vec<Host>,
        credentials: Credentials,
        options: &LinkOptions,
    ) -> Result<(Self, Arc<AnyNode>), OpenError> {
        let (times, eviction, counters) = (times_of(options), options.allow_eviction, Arc::new(Counters::default()));
        let terms = Terms { credentials, times, eviction, counters: Arc::clone(&counters) };
        let (cluster, nodes) = Cluster::open(seeds, terms).await?;
        let shared = Shared { route: Route::Cluster(cluster), counters, times, replica_ack: options.replica_ack };
        Ok((Self { shared: Arc::new(shared) }, nodes))
    }

    /// Opens a link without an inbox. Returns it with the endpoint for listening: the one server, or any node of a
    /// cluster.
    pub(crate) async fn open_deaf(url: &str, options: &LinkOptions) -> Result<(Self, Endpoint), OpenError> {
        let address = Address::read(url)?;
        if let Address::Cluster { seeds, credentials } = address {
            let (link, nodes) = Self::open_cluster(seeds, credentials, options).await?;
            return Ok((link, Endpoint::AnyNode(nodes)));
        }
        let Alone { line, acknowledged, place, counters } = Alone::open(address, options).await?;
        let (_, beside) = watch::channel(None);
        let route = Route::One { line, beside, acknowledged };
        let shared = Shared { route, counters, times: times_of(options), replica_ack: options.replica_ack };
        Ok((Self { shared: Arc::new(shared) }, place))
    }

    /// Returns the node of a cluster that has a key, or the channel of that name, as far as is known; `None` for a
    /// single server.
    pub(crate) fn home_of(&self, key: &[u8]) -> Option<(Host, Endpoint)> {
        match &self.shared.route {
            Route::One { .. } => None,
            Route::Cluster(cluster) => cluster.home_of(key),
        }
    }

    /// Returns the counters of this link.
    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }

    /// Calls [`Self::invoke`] with these keys and arguments.
    pub async fn run(&self, script: &'static Script, keys: &[&[u8]], args: &[&[u8]]) -> Result<Value, LinkError> {
        let mut invocation = script.with_keys(keys.len());
        for part in keys.iter().chain(args) {
            invocation.add_bytes(part);
        }
        self.invoke(&invocation).await
    }

    /// Runs a script. One command; two more if the server does not know the script, and a last one if it has forgotten
    /// it again by then. In a cluster all keys must have the same slot, and the script runs at the node of its first
    /// key. Each node that no longer has that key costs the same number of commands again.
    ///
    /// Answers within the answer time-out. Without a connection it takes at most the connect time-out more; if the
    /// script must be loaded, up to four answer time-outs. In a cluster whose slots move or whose masters are replaced,
    /// the same applies to each of at most six nodes, and to each of at most six tries with pauses of 0.6 s in total.
    /// If the future is dropped, the script has run or not run.
    pub async fn invoke(&self, invocation: &Invocation) -> Result<Value, LinkError> {
        match &self.shared.route {
            Route::One { line, .. } => self.invoke_over(CommandConnection::Line(line), invocation).await,
            Route::Cluster(cluster) => {
                let run = async |up: Arc<CommandSocket>, put| {
                    self.invoke_over(CommandConnection::Node(&up, put), invocation).await
                };
                // On the heap, so that callers over one server do not carry it along.
                Box::pin(cluster.at(invocation.first_key(), Purpose::Commands, run)).await
            }
        }
    }

    /// Runs a script like [`Self::invoke`], and waits for replicas. For an answer that `which` selects,
    /// [`LinkOptions::replica_ack`] says how many replicas must have what the script wrote. If too few have it in time,
    /// the result is [`LinkError::Unknown`]: the write stands on the primary, and may be lost with it. Other answers do
    /// not wait for replicas, except behind a batch that does. Without the option this is [`Self::invoke`]. A script
    /// that only reports an existing state must write something too, because replicas acknowledge writes.
    ///
    /// Costs one more command, which simultaneous calls share. Takes longer than [`Self::invoke`] by at most twice the
    /// time for replicas plus one answer time-out. If the future is dropped, the script has run or not run.
    pub async fn invoke_acknowledged(
        &self,
        invocation: &Invocation,
        which: impl Fn(&Value) -> bool + Send + Sync,
    ) -> Result<Value, LinkError> {
        let Some(ack) = self.shared.replica_ack else { return self.invoke(invocation).await };
        let needs = Needs { ack, which: &which };
        match &self.shared.route {
            Route::One { acknowledged, line, .. } => {
                let line = acknowledged.as_ref().unwrap_or(line);
                let up = line.wait(self.shared.times.connect).await?;
                self.invoke_over(CommandConnection::Acknowledged(&up, Put::Plain, needs), invocation).await
            }
            Route::Cluster(cluster) => {
                let run = async |up: Arc<CommandSocket>, put| {
                    self.invoke_over(CommandConnection::Acknowledged(&up, put, needs), invocation).await
                };
                cluster.at(invocation.first_key(), Purpose::Acknowledged, run).await
            }
        }
    }

    /// Whether replicas must have a grant or a renewal before it is reported.
    pub(crate) fn needs_replicas(&self) -> bool {
        self.shared.replica_ack.is_some()
    }

    /// Runs a script that is built for the run of the server that receives it. The connection fixes that run, so the
    /// script never reaches another one. Fails at once without a connection. Not in a cluster.
    pub(crate) async fn invoke_for_run(&self, make: impl FnOnce(&Run) -> Invocation) -> Result<Value, LinkError> {
        let Route::One { line, .. } = &self.shared.route else {
            return Err(LinkError::not_connected("a cluster has more than one run"));
        };
        let Some(up) = line.up() else { return Err(line.why_down()) };
        if up.run.run_id.is_empty() {
            return Err(LinkError::not_connected("the server does not say which run of it this is"));
        }
        self.invoke_over(CommandConnection::Node(&up, Put::Plain), &make(&up.run)).await
    }

    /// Runs a script over the connection of the inbox, so that it does not wait behind the commands of other callers.
    /// It also goes over the command connection if the first one breaks, or does not answer within 250 ms or a quarter
    /// of the answer time-out, the shorter of the two. For scripts that must not be late, and may run twice. In a
    /// cluster, where the inbox may be at another node, this is [`Self::invoke`].
    ///
    /// Takes longer than [`Self::invoke`] by at most that wait, and at most twice its commands. If the future is
    /// dropped, the script has run once, twice or not at all.
    pub async fn invoke_beside(&self, invocation: &Invocation) -> Result<Value, LinkError> {
        let Route::One { line, .. } = &self.shared.route else { return self.invoke(invocation).await };
        if self.beside().is_none() {
            return self.invoke(invocation).await;
        }
        let mut beside = pin!(self.invoke_over(CommandConnection::Beside(line), invocation));
        let early = timeout(HEDGE.min(self.shared.times.answer / 4), &mut beside).await;
        let mut line = pin!(self.invoke_over(CommandConnection::Line(line), invocation));
        match early {
            // The connection broke.
            Ok(Err(error @ LinkError::Unknown { .. })) => {
                return line.await.map_err(|other| LinkError::of_two(error, other));
            }
            Ok(answer) => return answer,
            Err(_) => {}
        }
        tokio::select! {
            answer = &mut beside => match answer {
                Ok(value) => Ok(value),
                Err(error) => line.await.map_err(|other| LinkError::of_two(error, other)),
            },
            answer = &mut line => match answer {
                Ok(value) => Ok(value),
                Err(error) => beside.await.map_err(|other| LinkError::of_two(error, other)),
            },
        }
    }

    /// Returns the connection of the inbox, unless it leads to another server than the commands. Without a command
    /// connection there is nothing to compare it with.
    fn beside(&self) -> Option<Arc<CommandSocket>> {
        let Route::One { line, beside, .. } = &self.shared.route else { return None };
        let beside = beside.borrow().clone().filter(|beside| beside.is_up())?;
        line.up().is_none_or(|line| line.run.is_same_run(&beside.run)).then_some(beside)
    }

    async fn invoke_over(&self, lane: CommandConnection<'_>, invocation: &Invocation) -> Result<Value, LinkError> {
        match self.ask(lane, &invocation.command).await {
            // On the heap, because it is rare.
            Err(error) if error.is_no_script() => Box::pin(self.load_and_ask(lane, invocation)).await,
            answer => answer,
        }
    }

    /// Loads a script that the server does not know, and runs it.
    async fn load_and_ask(&self, lane: CommandConnection<'_>, invocation: &Invocation) -> Result<Value, LinkError> {
        let Invocation { script, command } = invocation;
        // Loading a script needs no acknowledgement by replicas.
        let plain = match lane {
            CommandConnection::Acknowledged(up, _, _) => CommandConnection::Node(up, Put::Plain),
            other => other,
        };
        match self.ask(plain, &script.loading()).await {
            // The outcome of loading does not matter, because the script itself was not sent yet.
            Err(LinkError::Unknown { says }) => {
                return Err(LinkError::not_connected(format!("while the script was being loaded: {says}")));
            }
            loaded => loaded?,
        };
        match self.ask(lane, command).await {
            // With its source the script cannot be unknown. This is not the first choice: a server that is short of
            // memory drops such scripts sooner, and not every user may use `EVAL`.
            Err(error) if error.is_no_script() => self.ask(lane, &invocation.sent_along()).await,
            answer => answer,
        }
    }

    /// Returns the run of the server that has a key; `None` while there is no connection to it. The run is that of the
    /// time of connecting. A caller compares it with the run of its last write to detect another server.
    ///
    /// No round trip. A recent answer may come from the server before: compare before a request, and again after its
    /// answer.
    pub fn run_of(&self, key: &[u8]) -> Option<Run> {
        let up = match &self.shared.route {
            Route::One { line, .. } => line.up(),
            Route::Cluster(cluster) => cluster.up(key),
        };
        up.map(|up| up.run.clone())
    }

    /// Asks each server that gets commands from this link for its facts: one server, or all masters of a cluster. Sends
    /// `INFO`, and `CONFIG GET` where it is allowed, to one server after the other.
    pub async fn servers(&self) -> Result<Vec<ServerFacts>, LinkError> {
        let lines = match &self.shared.route {
            Route::One { line, .. } => vec![line.clone()],
            Route::Cluster(cluster) => cluster.masters()?,
        };
        let mut facts = Vec::with_capacity(lines.len());
        // The counters of the link count commands of callers only.
        let uncounted = Counters::default();
        for line in lines {
            let up = line.wait(self.shared.times.connect).await?;
            let ask = async |command: &Cmd| up.ask(command, Put::Plain, self.shared.times.answer, &uncounted).await;
            let info = text_of(ask(&redis::cmd("INFO")).await?).unwrap_or_default();
            let mut settings = [None, None];
            for (setting, name) in settings.iter_mut().zip(["appendfsync", "min-replicas-to-write"]) {
                let mut asked = redis::cmd("CONFIG");
                asked.arg("GET").arg(name);
                match ask(&asked).await {
                    Ok(told) => *setting = redis::from_redis_value::<Vec<(String, String)>>(told).ok(),
                    Err(error @ LinkError::Unknown { .. }) => return Err(error),
                    // The command is forbidden or renamed.
                    Err(_) => {}
                }
            }
            let [fsync, needed] =
                settings.map(|pairs| pairs.and_then(|pairs| pairs.into_iter().next()).map(|(_, is)| is));
            facts.push(ServerFacts::read(up.address.to_string(), &info, fsync.as_deref(), needed.as_deref()));
        }
        Ok(facts)
    }

    /// Visits the names of all keys that match a pattern, at each server that gets commands from this link. One command
    /// scans a thousand keys. A key that exists all the time is visited at least once, other keys perhaps.
    pub async fn keys_like(&self, pattern: &str, mut visit: impl FnMut(&[u8])) -> Result<(), LinkError> {
        let lines = match &self.shared.route {
            Route::One { line, .. } => vec![line.clone()],
            Route::Cluster(cluster) => cluster.masters()?,
        };
        for line in lines {
            let up = line.wait(self.shared.times.connect).await?;
            let mut cursor = String::from("0");
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1_000);
                let told = self.ask(CommandConnection::Node(&up, Put::Plain), &scan).await?;
                let page = redis::from_redis_value::<(String, Vec<Vec<u8>>)>(told);
                let (next, keys) = page.map_err(|error| LinkError::Unknown { says: error.to_string() })?;
                keys.iter().for_each(|key| visit(key));
                cursor = next;
                if cursor == "0" {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns how much work this link has done so far.
    pub fn counts(&self) -> Counts {
        let Counters { requests, pushes, reconnects, resubscriptions, .. } = &*self.shared.counters;
        Counts {
            requests: requests.load(Ordering::Relaxed),
            pushes: pushes.load(Ordering::Relaxed),
            reconnects: reconnects.load(Ordering::Relaxed),
            resubscriptions: resubscriptions.load(Ordering::Relaxed),
        }
    }

    /// Returns how long commands took. Those that wait for [replicas](Self::invoke_acknowledged) do not count.
    pub fn round_trips(&self) -> &RoundTrips {
        &self.shared.counters.round_trips
    }

    /// Sends a command once. With a connection nothing waits before the sending, so commands go out in the order of
    /// their first polls.
    async fn ask(&self, lane: CommandConnection<'_>, command: &Cmd) -> Result<Value, LinkError> {
        let Shared { counters, times, .. } = &*self.shared;
        let line = match lane {
            CommandConnection::Node(up, put) => return up.ask(command, put, times.answer, counters).await,
            CommandConnection::Acknowledged(up, put, needs) => {
                return up.ask_acknowledged(command, put, needs, *times, counters).await;
            }
            CommandConnection::Beside(line) => match self.beside() {
                Some(up) => return up.ask(command, Put::Plain, times.answer, counters).await,
                None => line,
            },
            CommandConnection::Line(line) => line,
        };
        line.wait(times.connect).await?.ask(command, Put::Plain, times.answer, counters).await
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

const fn times_of(options: &LinkOptions) -> Times {
    Times { connect: options.connect_timeout, answer: options.answer_timeout }
}

/// A connection to one server that has all keys, and its endpoint.
struct Alone {
    line: Connection,
    acknowledged: Option<Connection>,
    place: Endpoint,
    counters: Arc<Counters>,
}

impl Alone {
    async fn open(address: Address, options: &LinkOptions) -> Result<Self, OpenError> {
        let times = times_of(options);
        let place = match address {
            Address::Server { url, tls } => Endpoint::Server(Arc::new(Connector::new(&url, tls.as_ref(), times)?)),
            Address::Primary { sentinels, name, to_sentinels, to_servers } => {
                let interval = options.ping_interval;
                Endpoint::Primary(Sentinels::open(&sentinels, &name, &to_sentinels, to_servers, times, interval).await?)
            }
            Address::Cluster { .. } => {
                return Err(OpenError::Address { says: "a cluster is more than one server".to_owned() });
            }
        };
        let counters = Arc::new(Counters::default());
        let open = || Connection::open(place.clone(), options.allow_eviction, Arc::clone(&counters));
        let line = open().await?;
        let acknowledged = match options.replica_ack {
            Some(_) => Some(open().await?),
            None => None,
        };
        Ok(Self { line, acknowledged, place, counters })
    }
}

/// Opens the inbox at the first node of a cluster that is fit.
async fn open_anywhere(
    nodes: Arc<AnyNode>,
    channel: &str,
    options: &LinkOptions,
    counters: &Arc<Counters>,
) -> Result<Inbox, OpenError> {
    let mut left = nodes.count();
    loop {
        left = left.saturating_sub(1);
        match Inbox::open(Endpoint::AnyNode(Arc::clone(&nodes)), channel, options, Arc::clone(counters)).await {
            Err(error) if 0 < left && !error.is_verdict() => {}
            opened => return opened.map(|(inbox, _)| inbox),
        }
    }
}
