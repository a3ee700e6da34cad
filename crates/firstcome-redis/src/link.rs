//! The link: connections for commands, each made again whenever it is lost.

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
use redis::{Cmd, Value};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How a link behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkOptions {
    /// How long one attempt to connect may take, and how long a command waits for a connection when there is none.
    pub connect_timeout: Duration,
    /// How long to wait for an answer. After it the outcome is unknown, and the command may still run.
    pub answer_timeout: Duration,
    /// How often the inbox asks whether its connection still works, and sentinels are asked for the primary. A dead
    /// connection is noticed after this and the answer's time-out at the latest.
    pub ping_interval: Duration,
    /// What to do with a server that throws keys away when its memory is full.
    pub allow_eviction: Eviction,
    /// How many replicas must have what a lock rests on before it is told; see [`ReplicaAck`] and
    /// [`Link::invoke_acknowledged`]. One connection more, in a cluster to each master that is asked. Without it nothing more is
    /// sent. Locks over several servers and coupons do not heed it.
    pub replica_ack: Option<ReplicaAck>,
}

impl Default for LinkOptions {
    /// A second for each time, and no eviction.
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

/// What a link has done so far. Figures for benchmarks and metrics: no rule rests on them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Commands handed over, with those that loaded a script, those that had to be given again after it or to another node,
    /// the second copies of what went [beside](Link::invoke_beside) them, and each question who has
    /// [what was written](Link::invoke_acknowledged). Without what keeps the connections: `INFO`,
    /// `SUBSCRIBE`, `PING`, `CLUSTER`, `SENTINEL`.
    pub requests: u64,
    /// Messages that came into the inbox.
    pub pushes: u64,
    /// How many times a connection for commands was made again.
    pub reconnects: u64,
    /// How many times the inbox was subscribed again.
    pub resubscriptions: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) pushes: AtomicU64,
    pub(crate) reconnects: AtomicU64,
    pub(crate) resubscriptions: AtomicU64,
}

/// A link to one server, to whichever of several is the primary, or to a cluster. Clones share it; when the last is dropped
/// its connections are closed.
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

/// Who has the keys.
enum Route {
    /// One server has all of them.
    One {
        line: Connection,
        beside: watch::Receiver<Option<Arc<CommandSocket>>>,
        /// What replicas must acknowledge goes this way.
        acknowledged: Option<Connection>,
    },
    Cluster(Cluster),
}

/// Which connection a command takes.
#[derive(Clone, Copy)]
enum CommandConnection<'a> {
    /// That for commands.
    Line(&'a Connection),
    /// That of the inbox, or the other one while there is none.
    Beside(&'a Connection),
    /// This one, to a node of a cluster.
    Node(&'a Arc<CommandSocket>, Put),
    /// The same, and replicas must have what it wrote.
    Acknowledged(&'a Arc<CommandSocket>, Put, Needs<'a>),
}

/// Without an answer for so long, or for a quarter of the time-out for an answer if that is shorter, what goes beside the
/// commands is also sent along with them: one of the two connections may be dead without a word, and what goes there must
/// not be late. A server that is slower than that gets twice the signs of life at most.
const HEDGE: Duration = Duration::from_millis(250);

impl Link {
    /// Connects, looks at the server, and subscribes the inbox to the channel of this name. The address is one of
    ///
    /// - `redis://[user:password@]host[:port][/database]`: this server.
    /// - `redis+sentinel://[user:password@]host[:port],…/primary[?db=database&sentinel_user=…&sentinel_password=…]`:
    ///   whichever server these sentinels name as the primary of this name. User and password are for that server. When
    ///   they name another, the connections to the one before end: within the interval of pings of when one of them knows.
    /// - `redis+cluster://[user:password@]host[:port],…`: a cluster, of which these are some nodes.
    ///
    /// Signs with a meaning in addresses are written as `%` and two hexadecimal digits.
    ///
    /// Takes at most twice the time-outs for connecting and for an answer, three times with sentinels; in a cluster three
    /// times, and once more for each node that does not answer. Must be called in a tokio runtime with IO and time, which
    /// keeps the connections up. A failure here is final; once open, a link comes back by itself, and looks at the server
    /// again each time.
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

    /// The same without an inbox; with where one may listen: at the one server, or at any node of a cluster.
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

    /// Which node of a cluster has a key, or the channel of that name, as far as is known; `None` of a single server.
    pub(crate) fn home_of(&self, key: &[u8]) -> Option<(Host, Endpoint)> {
        match &self.shared.route {
            Route::One { .. } => None,
            Route::Cluster(cluster) => cluster.home_of(key),
        }
    }

    /// What counts what this link does.
    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }

    /// [`Self::invoke`] with keys and arguments that are there already.
    pub async fn run(&self, script: &'static Script, keys: &[&[u8]], args: &[&[u8]]) -> Result<Value, LinkError> {
        let mut invocation = script.with_keys(keys.len());
        for part in keys.iter().chain(args) {
            invocation.add_bytes(part);
        }
        self.invoke(&invocation).await
    }

    /// Runs a script. One command; two more if the server does not know the script yet, and a last one if it has forgotten
    /// it again by then. In a cluster all keys must have the same slot, and the script runs where its first key is; again
    /// elsewhere, as many commands, for each node that says that it has that key no more.
    ///
    /// Answers within the time-out for an answer, or, if there is no connection, the one for connecting and that one
    /// (up to four times that one if the script must be loaded). In a cluster in which slots move or masters are replaced,
    /// the same for each of at most six nodes, and for each of at most six tries with pauses of 0.6 s in all. Dropping the
    /// future leaves the script run or not run.
    pub async fn invoke(&self, invocation: &Invocation) -> Result<Value, LinkError> {
        match &self.shared.route {
            Route::One { line, .. } => self.invoke_over(CommandConnection::Line(line), invocation).await,
            Route::Cluster(cluster) => {
                let run = async |up: Arc<CommandSocket>, put| {
                    self.invoke_over(CommandConnection::Node(&up, put), invocation).await
                };
                cluster.at(invocation.first_key(), Purpose::Commands, run).await
            }
        }
    }

    /// [`Self::invoke`], and of the answers that `which` names so many replicas must have what the script wrote as
    /// [`LinkOptions::replica_ack`] says; with fewer of them in time such an answer is [`LinkError::Unknown`]: it stands with
    /// the primary, and may be lost with it. Other answers do not wait for replicas, unless they stand behind one that does. Without
    /// that option it is
    /// [`Self::invoke`]. A script that answers what it found must write all the same: what waits is what it wrote.
    ///
    /// One command more, which those share that come at the same time. Takes longer than [`Self::invoke`] by twice the time
    /// that replicas have, and once that for an answer. Dropping the future leaves the script run or not run.
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

    /// Whether replicas must have what a lock rests on.
    pub(crate) fn needs_replicas(&self) -> bool {
        self.shared.replica_ack.is_some()
    }

    /// Runs a script that is made for the run of the server that gets it: it is told which one it speaks to, and cannot be
    /// carried to another. Fails at once while there is no connection. Not in a cluster.
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

    /// The same over the connection of the inbox, so that it does not stand behind everything that all the callers have sent; and
    /// over the ordinary one too if that breaks, or there is no answer within 250 ms or a quarter of the time-out for an
    /// answer, whichever is shorter. For scripts that must not be late, and may run twice. In a cluster, where the inbox may
    /// be at another node, it is [`Self::invoke`].
    ///
    /// Takes that much longer than [`Self::invoke`] at most, and twice its commands. Dropping the future leaves the script
    /// run, run twice or not run.
    pub async fn invoke_beside(&self, invocation: &Invocation) -> Result<Value, LinkError> {
        let Route::One { line, .. } = &self.shared.route else { return self.invoke(invocation).await };
        if self.beside().is_none() {
            return self.invoke(invocation).await;
        }
        let mut beside = pin!(self.invoke_over(CommandConnection::Beside(line), invocation));
        let early = timeout(HEDGE.min(self.shared.times.answer / 4), &mut beside).await;
        let mut line = pin!(self.invoke_over(CommandConnection::Line(line), invocation));
        match early {
            // It broke.
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

    /// The connection of the inbox, unless it leads to another server than commands go to. While these have none there is
    /// nothing to compare.
    fn beside(&self) -> Option<Arc<CommandSocket>> {
        let Route::One { line, beside, .. } = &self.shared.route else { return None };
        let beside = beside.borrow().clone().filter(|beside| beside.is_up())?;
        line.up().is_none_or(|line| line.run.is_same_run(&beside.run)).then_some(beside)
    }

    async fn invoke_over(&self, lane: CommandConnection<'_>, invocation: &Invocation) -> Result<Value, LinkError> {
        let Invocation { script, command } = invocation;
        match self.ask(lane, command).await {
            Err(error) if error.is_no_script() => {}
            answer => return answer,
        }
        // That a script is known is nothing that may not be lost.
        let plain = match lane {
            CommandConnection::Acknowledged(up, _, _) => CommandConnection::Node(up, Put::Plain),
            other => other,
        };
        match self.ask(plain, &script.loading()).await {
            // No matter what became of loading it: no process has asked to run it yet.
            Err(LinkError::Unknown { says }) => {
                return Err(LinkError::not_connected(format!("while the script was being loaded: {says}")));
            }
            loaded => loaded?,
        };
        match self.ask(lane, command).await {
            // Sent along it cannot be missed. Not in the first place: a server that is short of room forgets sooner what
            // came that way, and not every user may do that.
            Err(error) if error.is_no_script() => self.ask(lane, &invocation.sent_along()).await,
            answer => answer,
        }
    }

    /// Which run of which server serves a key now; `None` while there is no connection to it. As it was when that was
    /// made: a caller that keeps what was here when it last wrote finds out by the next answer that it is another.
    ///
    /// No round trip. An answer that came just now may have come from the one before: compare first, and again after it.
    pub fn run_of(&self, key: &[u8]) -> Option<Run> {
        let up = match &self.shared.route {
            Route::One { line, .. } => line.up(),
            Route::Cluster(cluster) => cluster.up(key),
        };
        up.map(|up| up.run.clone())
    }

    /// What each server says of itself to which this link sends commands: one, or all masters of a cluster. Asks them
    /// anew, in turn: `INFO`, and `CONFIG GET` where that is allowed.
    pub async fn servers(&self) -> Result<Vec<ServerFacts>, LinkError> {
        let lines = match &self.shared.route {
            Route::One { line, .. } => vec![line.clone()],
            Route::Cluster(cluster) => cluster.masters()?,
        };
        let mut facts = Vec::with_capacity(lines.len());
        // Not a command of any caller's.
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
                    // Not allowed, or renamed.
                    Err(_) => {}
                }
            }
            let [fsync, needed] =
                settings.map(|pairs| pairs.and_then(|pairs| pairs.into_iter().next()).map(|(_, is)| is));
            facts.push(ServerFacts::read(up.address.to_string(), &info, fsync.as_deref(), needed.as_deref()));
        }
        Ok(facts)
    }

    /// Shows the names of all keys that match a pattern, at each server to which this link sends commands. A thousand are
    /// looked at in one command. A key that is there all the time is shown at least once, any other perhaps.
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

    /// What this link has done so far.
    pub fn counts(&self) -> Counts {
        let Counters { requests, pushes, reconnects, resubscriptions } = &*self.shared.counters;
        Counts {
            requests: requests.load(Ordering::Relaxed),
            pushes: pushes.load(Ordering::Relaxed),
            reconnects: reconnects.load(Ordering::Relaxed),
            resubscriptions: resubscriptions.load(Ordering::Relaxed),
        }
    }

    /// Hands a command over once. Up to there nothing waits while there is a connection, so that commands go out in the
    /// order of the first polls.
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

/// A connection to a server that has all keys, and where that is.
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
            Address::Server(url) => Endpoint::Server(Arc::new(Connector::new(&url, times)?)),
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

/// Opens the inbox at the first node of a cluster that will do.
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
