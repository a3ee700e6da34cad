//! One node: its connections, and the coupons and rooms that it knows.

use crate::api_key::KnownKeys;
use crate::coupon_state::{CouponState, Unwritten};
use crate::database::{Database, Time};
use crate::fitness::Fitness;
use crate::outbox::Notice;
use crate::receipt::Published;
use crate::room::{Appearances, RoomNode, Secrets};
use crate::sequencer::Sequencer;
use crate::{ClusterError, ClusterOptions, DeploymentSecret, database, fitness, room, sequencer};
use firstcome_core::id::{CouponName, RoomName};
use firstcome_redis::{Inbox, InboxEvent, Link};
use firstcome_sql::Address;
use firstcome_store::Faults;
use firstcome_store::Shared;
use firstcome_store::edge::{draw_hasher, draw_id};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Coupons kept in memory at once. Beyond it all are forgotten, and asked for again.
const COUPONS_MAX: usize = 65_536;

/// Names of rooms that SQL was asked for, kept for a moment. Beyond it they are asked for again.
const NAMES_MAX: usize = 16_384;

pub(crate) struct EventListener(JoinHandle<()>);

impl Drop for EventListener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What this node has done since it started.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) written: AtomicU64,
    pub(crate) transactions: AtomicU64,
    pub(crate) dead_letters: AtomicU64,
    pub(crate) rebuilt: AtomicU64,
    pub(crate) resumed: AtomicU64,
}

/// What a node has done since it started. Figures for benchmarks and metrics: no rule rests on them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClusterCounts {
    /// Claims that this node has written to SQL, for whichever node.
    pub written: u64,
    /// Transactions in which it did so.
    pub transactions: u64,
    /// Entries that no caller could read, and that were put aside.
    pub dead_letters: u64,
    /// Sequencers, and logs of rooms, that this node has rebuilt from SQL.
    pub rebuilt: u64,
    /// Logs of rooms that went on after another server, or the same after a new start, may have forgotten their ends.
    pub resumed: u64,
    /// Claims of callers at this node that SQL does not hold now: those under way, and those that were told when they had a place.
    pub unwritten: u64,
    /// How long the oldest of them waits at least.
    pub unwritten_age: Duration,
}

/// One node over one kind of database. The modules beside this one add what it does with coupons and rooms.
pub(crate) struct Node {
    pub(crate) sequencer: Sequencer,
    pub(crate) database: Database,
    pub(crate) options: ClusterOptions,
    /// The number of the deployment.
    pub(crate) deployment: i64,
    pub(crate) by_name: Mutex<HashMap<CouponName, Arc<CouponState>, RandomState>>,
    pub(crate) by_id: Mutex<HashMap<i64, Weak<CouponState>, RandomState>>,
    pub(crate) rooms: Mutex<HashMap<RoomName, Arc<RoomNode>, RandomState>>,
    pub(crate) rooms_by_id: Mutex<HashMap<i64, Weak<RoomNode>, RandomState>>,
    /// What SQL said of names of rooms that this node did not know, for as long as a copy of a room may be old.
    pub(crate) rooms_asked: Shared<RoomName, Option<database::RoomRow>>,
    pub(crate) secrets: Secrets,
    pub(crate) api_keys: KnownKeys,
    pub(crate) appearances: Appearances,
    /// How many times a message may have been missed: a caller that was connected may have lost what it kept.
    pub(crate) doubts: AtomicU64,
    /// The number of the next call.
    pub(crate) tags: AtomicU64,
    pub(crate) counters: Counters,
    /// Whether Redis keeps what it acknowledges.
    pub(crate) fitness: Fitness,
    /// Heads that it knows to be published.
    pub(crate) published: Published,
    /// What of it stands still.
    pub(crate) faults: Faults,
    /// Closed rooms whose rows it deletes.
    pub(crate) sweeping: room::voided::Rooms,
    /// Whether a purge of this node runs.
    pub(crate) is_purging: AtomicBool,
}

/// A node over one kind of database, and what hears for it.
pub(crate) async fn open_node(
    redis: &str,
    address: Address,
    secret: DeploymentSecret,
    options: ClusterOptions,
    time: Time,
) -> Result<(Arc<Node>, EventListener), ClusterError> {
    let number = draw_id().map_err(ClusterError::Chance)?;
    let name = format!("{number:016x}");
    let (link, inbox) = Link::open(redis, &sequencer::channel(&name), options.link.clone()).await?;
    let database = Database::open(address, options.database.clone(), secret, time).await?;
    let node = Node::new(Sequencer { link, node: name }, database, options).await?;
    let listener = tokio::spawn(listen(inbox, Arc::downgrade(&node)));
    Ok((node, EventListener(listener)))
}

impl Node {
    async fn new(sequencer: Sequencer, database: Database, options: ClusterOptions) -> Result<Arc<Self>, ClusterError> {
        sequencer.rights().await?;
        let number = database.deployment().await?;
        let belongs = sequencer.belongs(number).await.map_err(sequencer::denied)?;
        if belongs != number {
            return Err(ClusterError::OtherDeployment);
        }
        let node = Arc::new(Self {
            sequencer,
            database,
            options,
            deployment: number,
            by_name: Mutex::new(HashMap::with_hasher(draw_hasher())),
            by_id: Mutex::new(HashMap::with_hasher(draw_hasher())),
            rooms: Mutex::new(HashMap::with_hasher(draw_hasher())),
            rooms_by_id: Mutex::new(HashMap::with_hasher(draw_hasher())),
            rooms_asked: Shared::new(room::FRESH_MAX, NAMES_MAX),
            secrets: Secrets::default(),
            api_keys: KnownKeys::default(),
            appearances: Appearances::default(),
            doubts: AtomicU64::new(0),
            tags: AtomicU64::new(draw_id().map_err(ClusterError::Chance)?),
            counters: Counters::default(),
            fitness: Fitness::default(),
            published: Published::default(),
            faults: Faults::default(),
            sweeping: room::voided::Rooms::default(),
            is_purging: AtomicBool::new(false),
        });
        // A caller that was let in by another node may come here first.
        node.database.pass_secrets().await.map(|secrets| node.secrets.begin(secrets))?;
        node.database.api_keys().await.map(|book| node.api_keys.begin(book))?;
        node.watch_secrets();
        node.check_redis().await;
        tokio::spawn(fitness::watch(Arc::downgrade(&node)));
        Ok(node)
    }

    pub(crate) fn counts(&self) -> ClusterCounts {
        let Counters { written, transactions, dead_letters, rebuilt, resumed } = &self.counters;
        let [written, transactions, dead_letters, rebuilt, resumed] =
            [written, transactions, dead_letters, rebuilt, resumed].map(|count| count.load(Ordering::Relaxed));
        let states: Vec<_> = self.by_name.lock().values().cloned().collect();
        let Unwritten { count: unwritten, age: unwritten_age } = states.iter().map(|state| state.unwritten()).sum();
        ClusterCounts { written, transactions, dead_letters, rebuilt, resumed, unwritten, unwritten_age }
    }

    /// How many times the server may have been another one: a sequencer that was seen to be whole before is looked at again.
    pub(crate) fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Relaxed) + self.sequencer.link.counts().reconnects
    }

    /// A coupon of this name that was seen before.
    pub(crate) fn kept(&self, name: &CouponName) -> Option<Arc<CouponState>> {
        self.by_name.lock().get(name).map(Arc::clone)
    }

    /// What this node knows of a coupon that was read.
    pub(crate) fn keep(&self, row: database::CouponRow) -> Arc<CouponState> {
        let mut by_name = self.by_name.lock();
        if let Some(state) = by_name.get(&row.name) {
            state.learn(&row);
            return Arc::clone(state);
        }
        let mut by_id = self.by_id.lock();
        if COUPONS_MAX <= by_name.len() {
            by_name.clear();
            by_id.retain(|_, state| state.strong_count() != 0);
        }
        let (id, name) = (row.id, row.name.clone());
        // One that is forgotten and still in use goes on: its waiters are known by it.
        let state = by_id.get(&id).and_then(Weak::upgrade).unwrap_or_else(|| Arc::new(CouponState::new(row)));
        by_id.insert(id, Arc::downgrade(&state));
        by_name.insert(name, Arc::clone(&state));
        state
    }
}

/// Hears what other nodes have written, while the node is there.
async fn listen(mut inbox: Inbox, node: Weak<Node>) {
    loop {
        let event = inbox.next().await;
        let Some(node) = node.upgrade() else { return };
        match event {
            InboxEvent::Message(message) => {
                if let Some(id) = room::log::Keys::of_message(&message) {
                    let room_node = node.rooms_by_id.lock().get(&id).and_then(Weak::upgrade);
                    if let Some(room_node) = room_node {
                        node.news(&room_node);
                    }
                    continue;
                }
                // What cannot be read helps no caller, and a caller that waits for it looks into SQL.
                if let Some(notice) = Notice::read(&message) {
                    let state = node.by_id.lock().get(&notice.coupon).and_then(Weak::upgrade);
                    if let Some(state) = state {
                        state.hear(&notice);
                    }
                }
            }
            InboxEvent::Connected | InboxEvent::Disconnected => {
                node.doubts.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
