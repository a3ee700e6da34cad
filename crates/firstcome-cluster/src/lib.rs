//! A cluster: Redis (or Valkey) decides the order and refuses the flood, PostgreSQL, MySQL or MariaDB holds the database
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

#![warn(missing_debug_implementations)]

mod api_key;
mod archive;
mod back;
mod coupon;
mod coupon_state;
mod database;
mod deployment;
mod erase;
mod examine;
mod fitness;
mod inspect;
mod listed;
mod node;
mod options;
mod orphan_scan;
mod outbox;
mod outbox_writer;
mod purge;
mod read_batch;
mod rebuild;
mod receipt;
mod reconcile;
mod rewrap;
mod room;
mod sequencer;
mod session;
mod verify;
mod wrap;
mod writer_lease;

pub use archive::{ClusterArchive, ClusterImporter, TransferError};
pub use deployment::{DeadLetter, migrate};
pub use examine::{Deployment, Examined, PartVersions, examine};
pub use inspect::State;
pub use node::ClusterCounts;
pub use options::{ClusterError, ClusterOptions};
pub use reconcile::{Finding, Object, Reconciled, Repair, accept_loss, reconcile, repair};
pub use rewrap::{Rewrapped, rewrap};
pub use verify::{Verified, verify};
pub use wrap::{DeploymentSecret, SECRET_BYTES_MIN};

use database::Time;
use firstcome_core::time::Timestamp;
use firstcome_redis::Link;
use firstcome_sql::Address;
use firstcome_sql::boxed::boxed;
use firstcome_store::Faults;
#[cfg(feature = "conformance")]
use firstcome_store::edge::Clock;
use firstcome_store::stats::RoundTrips;
use node::{EventListener, Node, open_node};
use std::sync::Arc;

/// Under which name the secret of lock handles is kept.
pub const HANDLES: &str = "lock_handles";

/// A node of a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    node: Arc<Node>,
    /// Hears what other nodes have written; ends with the last clone.
    _listener: Arc<EventListener>,
}

firstcome_core::debug_by_name!(Cluster);

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
        Self::open_at(redis, sql, secret, options, Time::Clock(clock)).await
    }

    fn open_at<'a>(
        redis: &'a str,
        sql: &'a str,
        secret: DeploymentSecret,
        options: ClusterOptions,
        time: Time,
    ) -> impl Future<Output = Result<Self, ClusterError>> + Send + use<'a> {
        boxed(async move {
            let (node, listener) = open_node(redis, Address::parse(sql)?, secret, options, time).await?;
            tokio::spawn(orphan_scan::scan_orphans(Arc::downgrade(&node)));
            tokio::spawn(purge::end_deleted(Arc::downgrade(&node)));
            tokio::spawn(room::voided::look(Arc::downgrade(&node)));
            tokio::spawn(back::watch(Arc::downgrade(&node)));
            tokio::spawn(room::went_back::watch(Arc::downgrade(&node)));
            Ok(Self { node, _listener: Arc::new(listener) })
        })
    }

    /// What this node has done since it started.
    pub fn counts(&self) -> ClusterCounts {
        self.node.counts()
    }

    /// The faults that stop a coupon, a room or a server, and are open now.
    pub fn faults(&self) -> Faults {
        self.node.faults.clone()
    }

    /// How long the database takes to answer this node.
    pub fn database_round_trips(&self) -> &RoundTrips {
        self.node.database.base.round_trips()
    }

    /// When the database took a transaction of this node for the last time, by the clock of this machine.
    pub fn last_commit(&self) -> Option<Timestamp> {
        self.node.database.base.last_commit()
    }

    /// The link to Redis, for figures.
    pub fn link(&self) -> &Link {
        &self.node.sequencer.link
    }
}
