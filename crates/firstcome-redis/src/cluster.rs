//! A cluster: which node has a key, and what to do when it no longer has it.
//!
//! A node that answers `MOVED`, `ASK`, `TRYAGAIN` or `CLUSTERDOWN` has not run the command, so only then is the command
//! sent again. The slot map is asked of several nodes at once, over separate connections. The newest map counts, among
//! those of nodes that are in touch with the cluster. So a node that was cut off never leads back to an old master.

use super::address::{Credentials, Host, host_named};
use super::connection::{CommandSocket, Connection, Put, text_of};
use super::error::{ASK, CLUSTER_DOWN, LinkError, MOVED, OpenError, READ_ONLY, TRY_AGAIN};
use super::link::Counters;
use super::preflight::Eviction;
use super::route::Endpoint;
use super::slots::{SlotMap, slot_of};
use super::socket::{Connector, Socket, Times};
use firstcome_store::edge::draw_pause;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How often one command is redirected to another node. Two suffice, unless slots move at that moment.
const REDIRECTS: usize = 6;
/// How often a command is retried after `TRYAGAIN` or `CLUSTERDOWN`, with pauses that double. The total suffices for a
/// key to move, not for a master to be replaced.
const RETRIES: usize = 6;
/// The first of these pauses.
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// How many nodes are asked for the slot map at once.
const ASKED: usize = 5;
/// How long to wait for the other nodes once one has sent its map.
const OTHERS: Duration = Duration::from_millis(100);
/// The pause between two requests for the slot map.
const MAP_PAUSE: Duration = Duration::from_millis(100);

/// The settings of all connections to a cluster.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) credentials: Credentials,
    pub(crate) times: Times,
    pub(crate) eviction: Eviction,
    pub(crate) counters: Arc<Counters>,
}

/// The purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Commands.
    Commands,
    /// Commands that replicas must acknowledge, which delay all commands behind them.
    Acknowledged,
}

/// A cluster, with a connection for commands to each of its masters.
pub(crate) struct Cluster {
    map: watch::Receiver<Arc<SlotMap>>,
    lines: Mutex<ClusterConnections>,
    outdated: Arc<Notify>,
    terms: Terms,
}

struct ClusterConnections {
    of: BTreeMap<(Purpose, Host), Connection>,
    /// The map at the last removal of unused connections.
    map: Arc<SlotMap>,
}

impl Cluster {
    /// Asks for the slot map, and connects to all masters. A master that cannot be reached is connected later. An unfit
    /// one is an error.
    pub(crate) async fn open(seeds: Vec<Host>, terms: Terms) -> Result<(Self, Arc<AnyNode>), OpenError> {
        let map = Arc::new(ask_for_map(&seeds, &terms, 0).await?);
        let mut opening = JoinSet::new();
        for host in map.masters() {
            let (place, host) = (Endpoint::Node(Arc::new(terms.connector(host)?)), host.clone());
            let (eviction, counters) = (terms.eviction, Arc::clone(&terms.counters));
            opening.spawn(async move {
                match Connection::open(place.clone(), eviction, Arc::clone(&counters)).await {
                    Err(error) if !error.is_verdict() => Ok(Connection::start(place, eviction, counters)),
                    opened => opened,
                }
                .map(|line| ((Purpose::Commands, host), line))
            });
        }
        let of = opening.join_all().await.into_iter().collect::<Result<_, _>>()?;
        let outdated = Arc::new(Notify::new());
        let (sender, shown) = watch::channel(Arc::clone(&map));
        tokio::spawn(keep_map(sender, seeds.clone(), Arc::clone(&outdated), terms.clone()));
        let nodes = AnyNode::new(shown.clone(), seeds, Arc::clone(&outdated), terms.clone());
        let lines = Mutex::new(ClusterConnections { of, map });
        Ok((Self { map: shown, lines, outdated, terms }, Arc::new(nodes)))
    }

    /// Runs `run` at the node that has the key, and again elsewhere if it certainly did not run. `run` gets the
    /// connection and the way to send the command.
    pub(crate) async fn at<T, F: Future<Output = Result<T, LinkError>>>(
        &self,
        key: Option<&[u8]>,
        purpose: Purpose,
        run: impl Fn(Arc<CommandSocket>, Put) -> F,
    ) -> Result<T, LinkError> {
        let slot = key.map_or(0, slot_of);
        let (mut redirects, mut retries) = (0, 0);
        let mut sent_on: Option<(Host, Put)> = None;
        loop {
            let (host, up, put) = match sent_on.take() {
                Some((host, put)) => {
                    let line = self.line(purpose, &host)?;
                    (host, line.wait(self.terms.times.connect).await?, put)
                }
                None => {
                    let (host, up) = self.at_slot(purpose, slot).await?;
                    (host, up, Put::Plain)
                }
            };
            let error = match run(up, put).await {
                Err(LinkError::Unavailable { code, says }) => (code, says),
                answer => return answer,
            };
            let elsewhere = match error.0.as_str() {
                MOVED => {
                    self.outdated.notify_one();
                    Some(Put::Plain)
                }
                ASK => Some(Put::Asking),
                CLUSTER_DOWN | READ_ONLY => {
                    self.outdated.notify_one();
                    None
                }
                _ => None,
            };
            if let Some(put) = elsewhere {
                // `SLOT HOST:PORT`.
                sent_on = error.1.split(' ').nth(1).and_then(|there| host_named(there, &host)).map(|host| (host, put));
                redirects += 1;
            } else if matches!(error.0.as_str(), TRY_AGAIN | CLUSTER_DOWN) && retries < RETRIES {
                sleep(draw_pause(RETRY_PAUSE * (1 << retries))).await;
                retries += 1;
                continue;
            }
            if sent_on.is_none() || REDIRECTS < redirects {
                return Err(LinkError::Unavailable { code: error.0, says: error.1 });
            }
        }
    }

    /// Returns the node that has a slot, and the connection to it. Does not wait if there is a connection. Otherwise a
    /// new map may name another node.
    async fn at_slot(&self, purpose: Purpose, slot: u16) -> Result<(Host, Arc<CommandSocket>), LinkError> {
        // Release the map before looking up a line: two reads of the map at a time in one thread can deadlock.
        let now = || {
            let map = Arc::clone(&self.map.borrow());
            let host = map.master(slot).cloned()?;
            let line = self.line(purpose, &host).ok()?;
            Some((host, line))
        };
        let found = now();
        if let Some((host, line)) = found
            && let Some(up) = line.up()
        {
            return Ok((host, up));
        }
        let mut map = self.map.clone();
        let found = async {
            loop {
                map.mark_unchanged();
                let found = now();
                self.outdated.notify_one();
                // Wait for a short pause only: the task that refreshes the map may ask before the cluster has a new
                // one.
                let up = async {
                    match found {
                        Some((host, line)) => line.wait(MAP_PAUSE * 2).await.ok().map(|up| (host, up)),
                        None => None,
                    }
                };
                tokio::select! {
                    Some(found) = up => return found,
                    Ok(()) = map.changed() => {}
                    () = sleep(MAP_PAUSE * 2) => {}
                }
            }
        };
        let found = timeout(self.terms.times.connect, found).await;
        found.map_err(|_| match now() {
            Some((_, line)) => line.why_down(),
            None => {
                let says = format!("no node of the cluster has slot {slot}");
                LinkError::Unavailable { code: CLUSTER_DOWN.to_owned(), says }
            }
        })
    }

    /// Returns the connection to a node, and starts one if there is none. Drops the connections to nodes that are no
    /// longer masters.
    fn line(&self, purpose: Purpose, host: &Host) -> Result<Connection, LinkError> {
        let mut lines = self.lines.lock();
        let map = self.map.borrow();
        if !Arc::ptr_eq(&lines.map, &map) {
            lines.map = Arc::clone(&map);
            lines.of.retain(|(_, host), _| map.masters().contains(host));
        }
        let key = (purpose, host.clone());
        if let Some(line) = lines.of.get(&key) {
            return Ok(line.clone());
        }
        let Terms { eviction, counters, .. } = &self.terms;
        let connector = self.terms.connector(host).map_err(OpenError::into_unavailable)?;
        let line = Connection::start(Endpoint::Node(Arc::new(connector)), *eviction, Arc::clone(counters));
        lines.of.insert(key, line.clone());
        Ok(line)
    }

    /// Returns the connection to the node that has a key, if it is up.
    pub(crate) fn up(&self, key: &[u8]) -> Option<Arc<CommandSocket>> {
        let host = self.map.borrow().master(slot_of(key)).cloned()?;
        self.line(Purpose::Commands, &host).ok()?.up()
    }

    /// Returns the node that has a key.
    pub(crate) fn home_of(&self, key: &[u8]) -> Option<(Host, Endpoint)> {
        let host = self.map.borrow().master(slot_of(key)).cloned()?;
        let connector = self.terms.connector(&host).ok()?;
        Some((host, Endpoint::Node(Arc::new(connector))))
    }

    /// Returns the connections to all masters.
    pub(crate) fn masters(&self) -> Result<Vec<Connection>, LinkError> {
        let hosts = self.map.borrow().masters().to_vec();
        hosts.iter().map(|host| self.line(Purpose::Commands, host)).collect()
    }
}

impl Terms {
    fn connector(&self, host: &Host) -> Result<Connector, OpenError> {
        Connector::to(host, &self.credentials, self.times)
    }
}

/// Hands out the nodes of a cluster in turn, for a connection that may go to any node.
pub(crate) struct AnyNode {
    map: watch::Receiver<Arc<SlotMap>>,
    seeds: Vec<Host>,
    outdated: Arc<Notify>,
    terms: Terms,
    turn: AtomicUsize,
}

impl AnyNode {
    fn new(map: watch::Receiver<Arc<SlotMap>>, seeds: Vec<Host>, outdated: Arc<Notify>, terms: Terms) -> Self {
        Self { map, seeds, outdated, terms, turn: AtomicUsize::new(0) }
    }

    /// Returns how many nodes are known.
    pub(crate) fn count(&self) -> usize {
        candidates(&self.map.borrow(), &self.seeds).len()
    }

    /// Returns a connector to the next node.
    pub(crate) fn connector(&self) -> Result<Connector, OpenError> {
        let nodes = candidates(&self.map.borrow(), &self.seeds);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % nodes.len().max(1);
        let none = || OpenError::Unreachable { address: "the cluster".to_owned(), says: "it has no nodes".to_owned() };
        self.terms.connector(nodes.get(turn).ok_or_else(none)?)
    }

    /// Reports that a node was lost, so that the map is refreshed.
    pub(crate) fn ask_again(&self) {
        self.outdated.notify_one();
    }
}

/// Returns all known nodes and the seeds. The seeds help when the nodes announce addresses of another network.
fn candidates(map: &SlotMap, seeds: &[Host]) -> Vec<Host> {
    let mut all: Vec<Host> = Vec::new();
    for host in map.nodes().chain(seeds) {
        if !all.contains(host) {
            all.push(host.clone());
        }
    }
    all
}

/// What a node reports about its cluster.
pub(crate) struct ClusterState {
    is_well: bool,
    epoch: u64,
}

impl ClusterState {
    /// Fails if the node is not in touch with the cluster.
    pub(crate) fn well(&self) -> Result<(), OpenError> {
        let says = || "the node says that the cluster is down, or it is cut off from the others".to_owned();
        if self.is_well { Ok(()) } else { Err(OpenError::NotReady { code: CLUSTER_DOWN.to_owned(), says: says() }) }
    }
}

/// Asks a node for the state of its cluster.
pub(crate) async fn state_of(connector: &Connector, socket: &Socket) -> Result<ClusterState, OpenError> {
    let told = connector.ask(socket, redis::cmd("CLUSTER").arg("INFO")).await.map_err(|error| match error {
        OpenError::NotReady { says, .. } if says.contains("cluster support disabled") => {
            OpenError::NotCluster { address: connector.address().to_owned() }
        }
        other => other,
    })?;
    let told = text_of(told).unwrap_or_default();
    let says = |name: &str| told.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'));
    let epoch = says("cluster_current_epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or_default();
    Ok(ClusterState { is_well: says("cluster_state") == Some("ok"), epoch })
}

/// Asks one node for the slot map.
async fn map_of(host: Host, connector: Connector) -> Result<SlotMap, OpenError> {
    let socket = connector.connect(|_, _| ()).await?;
    let state = state_of(&connector, &socket).await?;
    state.well()?;
    let told = connector.ask(&socket, redis::cmd("CLUSTER").arg("SLOTS")).await?;
    SlotMap::read(told, &host, state.epoch).ok_or_else(|| OpenError::NotRedis {
        address: connector.address().to_owned(),
        says: "its answer to CLUSTER SLOTS cannot be read".to_owned(),
    })
}

/// Asks these nodes for the slot map, all at once. Returns the newest map that is not older than `epoch`.
async fn ask_for_map(nodes: &[Host], terms: &Terms, epoch: u64) -> Result<SlotMap, OpenError> {
    let mut asked = JoinSet::new();
    for host in nodes {
        asked.spawn(map_of(host.clone(), terms.connector(host)?));
    }
    let (mut newest, mut failed) = (None::<SlotMap>, None::<OpenError>);
    loop {
        let patience = if newest.is_some() { OTHERS } else { terms.times.connect + terms.times.answer };
        match timeout(patience, asked.join_next()).await {
            Ok(Some(Ok(Ok(map)))) if is_newer(&map, newest.as_ref(), epoch) => newest = Some(map),
            // An error that a node reported tells more than a missing answer.
            Ok(Some(Ok(Err(error)))) => {
                if failed.as_ref().is_none_or(|failed| rank(failed) < rank(&error)) {
                    failed = Some(error);
                }
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    newest.ok_or_else(|| {
        failed.unwrap_or(OpenError::Unreachable {
            address: "the cluster".to_owned(),
            says: "no node told which keys are where in time".to_owned(),
        })
    })
}

/// Whether a map is newer than the newest so far, and not older than the known epoch.
fn is_newer(map: &SlotMap, than: Option<&SlotMap>, known_epoch: u64) -> bool {
    known_epoch <= map.epoch && than.is_none_or(|than| than.epoch < map.epoch)
}

/// Ranks errors by how much they tell.
const fn rank(error: &OpenError) -> u8 {
    match error {
        OpenError::Unreachable { .. } => 0,
        error if error.is_verdict() => 2,
        _ => 1,
    }
}

/// Refreshes the slot map whenever it is outdated, until the cluster is dropped.
async fn keep_map(state: watch::Sender<Arc<SlotMap>>, seeds: Vec<Host>, outdated: Arc<Notify>, terms: Terms) {
    let keep = async {
        let mut turn = 0;
        loop {
            outdated.notified().await;
            let known = Arc::clone(&state.borrow());
            let mut nodes = candidates(&known, &seeds);
            let count = nodes.len().max(1);
            nodes.rotate_left(turn % count);
            nodes.truncate(ASKED);
            turn = (turn + ASKED) % count;
            // The outcome does not matter: a caller that needs a newer map reports that again.
            if let Ok(map) = ask_for_map(&nodes, &terms, known.epoch).await
                && map != *known
            {
                state.send_replace(Arc::new(map));
            }
            sleep(draw_pause(MAP_PAUSE)).await;
        }
    };
    tokio::select! {
        () = state.closed() => {}
        () = keep => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Value;

    #[test]
    fn the_newest_map_is_taken_and_none_that_is_older_than_what_is_known() {
        let map = |epoch| SlotMap::read(Value::Array(Vec::new()), &Host::new("one", 1), epoch).expect("it is empty");
        for (epoch, than, known_epoch, taken) in [
            (3, None, 3, true),
            (2, None, 3, false),
            (3, Some(2), 0, true),
            (2, Some(2), 0, false),
            (2, Some(3), 0, false),
        ] {
            assert_eq!(
                is_newer(&map(epoch), than.map(map).as_ref(), known_epoch),
                taken,
                "{epoch} {than:?} {known_epoch}"
            );
        }
    }
}
