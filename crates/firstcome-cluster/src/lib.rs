//! Many nodes: Redis (or Valkey) decides the order and refuses the flood, PostgreSQL, MySQL or MariaDB holds the database
//! (features `redis` and `sql`).
//!
//! # A claim's way
//! Claims that wait in one node for the same coupon go to its [`sequencer`] together, as one script: it judges them in their
//! order, draws a *ticket* for each that it lets in, and appends them to the coupon's outbox as one entry. Whichever node
//! finds that no caller drains the outbox does so: it writes entries to SQL, the claims and the position in one transaction,
//! reports the position to the sequencer and gets the next entries in the same round trip, until there are none. The serial is
//! SQL's. After the commit the nodes whose callers wait are told by one message each; a caller that hears nothing looks into SQL.
//!
//! # Invariants
//! - A claim exists if SQL holds it, and nothing that is told rests on anything else, except for the place of a claim on a
//!   coupon that tells claims early (durability `redis`), which says so: `already_issued` carries the row,
//!   `sold_out` is told after SQL was seen to be sold out. Refusals by time or deletion rest on settings, which are in SQL
//!   before they are in the sequencer.
//! - SQL holds a prefix of one stream, each entry once: a transaction begins where the last one ended, which generation,
//!   position and anchor say. Two nodes that drain at once cannot both write.
//! - A sequencer that is behind SQL, of another generation or without its anchor is not asked: it is rebuilt from SQL, under a
//!   lease, as the next generation. What the old one had let in and SQL does not hold was never told to anybody.
//! - A node that sees SQL behind what it knew to be acknowledged, or behind what the sequencer was told, issues nothing more of that
//!   coupon ([`back`]): the sequencer stays as it is, and `firstcome reconcile --accept-loss` alone goes on without what is gone.
//!
//! # Not promised
//! - That no caller is told `outcome_unknown` when Redis is lost with claims under way: the same request again tells.

mod archive;
mod back;
mod batcher;
mod coupon;
mod coupon_state;
mod database;
mod deployment;
mod examine;
mod fitness;
mod inspect;
mod options;
mod orphan_scan;
mod outbox;
mod outbox_writer;
mod read_batch;
mod rebuild;
mod reconcile;
mod room;
mod sequencer;
mod verify;
mod wrap;
mod writer_lease;

pub use archive::{ClusterArchive, ClusterImporter, TransferError};
pub use deployment::{DeadLetter, migrate};
pub use examine::{Deployment, Examined, examine};
pub use inspect::State;
pub use options::{ClusterError, ClusterOptions};
pub use reconcile::{Finding, Object, Reconciled, Repair, accept_loss, reconcile, repair};
pub use room::RoomFigures;
pub use verify::{Verified, verify};
pub use wrap::{DeploymentSecret, SECRET_BYTES_MIN};

use coupon_state::CouponState;
use database::{ClaimDatabase, Database, Time};
use firstcome_core::id::{CouponName, RoomName};
use firstcome_redis::{Inbox, InboxEvent, Link};
use firstcome_sql::Address;
use firstcome_sql::boxed::boxed;
use firstcome_store::Faults;
use firstcome_store::Shared;
#[cfg(feature = "conformance")]
use firstcome_store::edge::Clock;
use firstcome_store::edge::{draw_hasher, draw_id};
use fitness::Fitness;
use outbox::Notice;
use parking_lot::Mutex;
use room::{RoomNode, Secrets};
use sequencer::Sequencer;
use sqlx::{MySql, Postgres};
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::task::JoinHandle;

/// Coupons kept in memory at once. Beyond it all are forgotten, and asked for again.
const COUPONS_MAX: usize = 65_536;

/// Names of rooms that SQL was asked for, kept for a moment. Beyond it they are asked for again.
const NAMES_MAX: usize = 16_384;

/// Under which name the secret of lock handles is kept.
pub const HANDLES: &str = "lock_handles";

/// A node of many. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    kind: Kind,
    /// Hears what other nodes have written; ends with the last clone.
    _listener: Arc<EventListener>,
}

#[derive(Clone)]
enum Kind {
    Postgres(Arc<Node<Postgres>>),
    MySql(Arc<Node<MySql>>),
}

struct EventListener(JoinHandle<()>);

impl Drop for EventListener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The same on both kinds.
macro_rules! on {
    ($fleet:expr, $node:ident => $what:expr) => {
        match &$fleet.kind {
            $crate::Kind::Postgres($node) => $what,
            $crate::Kind::MySql($node) => $what,
        }
    };
}
pub(crate) use on;

/// The same for what is awaited, as a future of its own that callers know no more of: see [`firstcome_sql::boxed`].
macro_rules! boxed_on {
    ($fleet:expr, $node:ident => $what:expr) => {
        match &$fleet.kind {
            $crate::Kind::Postgres($node) => {
                let $node = ::std::sync::Arc::clone($node);
                firstcome_sql::boxed::boxed(async move { $what })
            }
            $crate::Kind::MySql($node) => {
                let $node = ::std::sync::Arc::clone($node);
                firstcome_sql::boxed::boxed(async move { $what })
            }
        }
    };
}
pub(crate) use boxed_on;

/// What this node has done since it started.
#[derive(Default)]
struct Counters {
    written: AtomicU64,
    transactions: AtomicU64,
    dead_letters: AtomicU64,
    rebuilt: AtomicU64,
    resumed: AtomicU64,
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
}

/// One node over one kind of database.
struct Node<D: ClaimDatabase> {
    sequencer: Sequencer,
    database: Database<D>,
    options: ClusterOptions,
    /// The number of the deployment.
    deployment: i64,
    by_name: Mutex<HashMap<CouponName, Arc<CouponState>, RandomState>>,
    by_id: Mutex<HashMap<i64, Weak<CouponState>, RandomState>>,
    rooms: Mutex<HashMap<RoomName, Arc<RoomNode>, RandomState>>,
    rooms_by_id: Mutex<HashMap<i64, Weak<RoomNode>, RandomState>>,
    /// What SQL said of names of rooms that this node did not know, for as long as a copy of a room may be old.
    rooms_asked: Shared<RoomName, Option<database::RoomRow>>,
    secrets: Secrets,
    /// How many times a message may have been missed: a caller that was connected may have lost what it kept.
    doubts: AtomicU64,
    /// The number of the next call.
    tags: AtomicU64,
    counters: Counters,
    /// Whether Redis keeps what it acknowledges.
    fitness: Fitness,
    /// What of it stands still.
    faults: Faults,
    /// Closed rooms whose rows it deletes.
    sweeping: room::voided::Rooms,
}

impl Cluster {
    /// Connects to both, makes sure that they keep what they acknowledge, brings the tables to this version or refuses others
    /// ([`firstcome_sql::Tables`]), and makes sure that both belong to the same deployment. Must be called in a runtime with IO and time.
    pub async fn open(
        redis: &str,
        sql: &str,
        secret: DeploymentSecret,
        options: ClusterOptions,
    ) -> Result<Self, ClusterError> {
        Self::open_at(redis, sql, secret, options, Time::Server).await
    }

    /// The same by a clock that is given, where otherwise the servers' clocks decide. For tests.
    #[cfg(feature = "conformance")]
    pub async fn open_by(
        redis: &str,
        sql: &str,
        secret: DeploymentSecret,
        options: ClusterOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ClusterError> {
        Self::open_at(redis, sql, secret, options, Time::Given(clock)).await
    }

    fn open_at<'a>(
        redis: &'a str,
        sql: &'a str,
        secret: DeploymentSecret,
        options: ClusterOptions,
        time: Time,
    ) -> impl Future<Output = Result<Self, ClusterError>> + Send + use<'a> {
        boxed(async move {
            let (kind, listener) = match Address::parse(sql)? {
                address @ Address::Postgres(_) => {
                    let (node, listener) = open_node(redis, address, secret, options, time).await?;
                    tokio::spawn(orphan_scan::scan_orphans(Arc::downgrade(&node)));
                    tokio::spawn(room::voided::look(Arc::downgrade(&node)));
                    tokio::spawn(back::watch(Arc::downgrade(&node)));
                    tokio::spawn(room::went_back::watch(Arc::downgrade(&node)));
                    (Kind::Postgres(node), listener)
                }
                address @ Address::MySql(_) => {
                    let (node, listener) = open_node(redis, address, secret, options, time).await?;
                    tokio::spawn(orphan_scan::scan_orphans(Arc::downgrade(&node)));
                    tokio::spawn(room::voided::look(Arc::downgrade(&node)));
                    tokio::spawn(back::watch(Arc::downgrade(&node)));
                    tokio::spawn(room::went_back::watch(Arc::downgrade(&node)));
                    (Kind::MySql(node), listener)
                }
            };
            Ok(Self { kind, _listener: Arc::new(listener) })
        })
    }

    /// What this node has done since it started.
    pub fn counts(&self) -> ClusterCounts {
        on!(self, node => node.counts())
    }

    /// The faults that stop a coupon, a room or a server, and are open now.
    pub fn faults(&self) -> Faults {
        on!(self, node => node.faults.clone())
    }

    /// The link to Redis, for figures.
    pub fn link(&self) -> &Link {
        on!(self, node => &node.sequencer.link)
    }
}

/// A node over one kind of database, and what hears for it.
async fn open_node<D: ClaimDatabase>(
    redis: &str,
    address: Address,
    secret: DeploymentSecret,
    options: ClusterOptions,
    time: Time,
) -> Result<(Arc<Node<D>>, EventListener), ClusterError> {
    let number = draw_id().map_err(ClusterError::Chance)?;
    let name = format!("{number:016x}");
    let (link, inbox) = Link::open(redis, &sequencer::channel(&name), options.link.clone()).await?;
    let database = Database::open(address, options.database.clone(), secret, time).await?;
    let node = Node::new(Sequencer { link, node: name }, database, options).await?;
    let listener = tokio::spawn(listen(inbox, Arc::downgrade(&node)));
    Ok((node, EventListener(listener)))
}

impl<D: ClaimDatabase> Node<D> {
    async fn new(
        sequencer: Sequencer,
        database: Database<D>,
        options: ClusterOptions,
    ) -> Result<Arc<Self>, ClusterError> {
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
            doubts: AtomicU64::new(0),
            tags: AtomicU64::new(draw_id().map_err(ClusterError::Chance)?),
            counters: Counters::default(),
            fitness: Fitness::default(),
            faults: Faults::default(),
            sweeping: room::voided::Rooms::default(),
        });
        // A caller that was let in by another node may come here first.
        node.database.pass_secrets().await.map(|secrets| node.secrets.begin(secrets))?;
        node.watch_secrets();
        node.check_redis().await;
        tokio::spawn(fitness::watch(Arc::downgrade(&node)));
        Ok(node)
    }

    fn counts(&self) -> ClusterCounts {
        let Counters { written, transactions, dead_letters, rebuilt, resumed } = &self.counters;
        let [written, transactions, dead_letters, rebuilt, resumed] =
            [written, transactions, dead_letters, rebuilt, resumed].map(|count| count.load(Ordering::Relaxed));
        ClusterCounts { written, transactions, dead_letters, rebuilt, resumed }
    }

    /// How many times the server may have been another one: a sequencer that was seen to be whole before is looked at again.
    fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Relaxed) + self.sequencer.link.counts().reconnects
    }

    /// A coupon of this name that was seen before.
    fn kept(&self, name: &CouponName) -> Option<Arc<CouponState>> {
        self.by_name.lock().get(name).map(Arc::clone)
    }

    /// The cell of a coupon that was read.
    fn keep(&self, row: database::CouponRow) -> Arc<CouponState> {
        let mut by_name = self.by_name.lock();
        if let Some(cell) = by_name.get(&row.name) {
            cell.learn(&row);
            return Arc::clone(cell);
        }
        let mut by_id = self.by_id.lock();
        if COUPONS_MAX <= by_name.len() {
            by_name.clear();
            by_id.retain(|_, cell| cell.strong_count() != 0);
        }
        let (id, name) = (row.id, row.name.clone());
        // One that is forgotten and still in use goes on: its waiters are known by it.
        let cell = by_id.get(&id).and_then(Weak::upgrade).unwrap_or_else(|| Arc::new(CouponState::new(row)));
        by_id.insert(id, Arc::downgrade(&cell));
        by_name.insert(name, Arc::clone(&cell));
        cell
    }
}

/// Hears what other nodes have written, while the node is there.
async fn listen<D: ClaimDatabase>(mut inbox: Inbox, node: Weak<Node<D>>) {
    loop {
        let event = inbox.next().await;
        let Some(node) = node.upgrade() else { return };
        match event {
            InboxEvent::Message(message) => {
                if let Some(id) = room::log::Keys::of_message(&message) {
                    let cell = node.rooms_by_id.lock().get(&id).and_then(Weak::upgrade);
                    if let Some(cell) = cell {
                        node.news(&cell);
                    }
                    continue;
                }
                // What cannot be read helps no caller, and a caller that waits for it looks into SQL.
                if let Some(notice) = Notice::read(&message) {
                    let cell = node.by_id.lock().get(&notice.coupon).and_then(Weak::upgrade);
                    if let Some(cell) = cell {
                        cell.hear(&notice);
                    }
                }
            }
            InboxEvent::Connected | InboxEvent::Disconnected => {
                node.doubts.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
