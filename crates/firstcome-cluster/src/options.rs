//! Settings of a node, and why a node does not open.

use firstcome_core::id::CouponName;
use firstcome_redis::{LinkError, LinkOptions, OpenError};
use firstcome_sql::{DatabaseOptions, SqlError};
use firstcome_store::Fault;
use std::time::Duration;

/// How a node of a cluster behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterOptions {
    /// Its connections to Redis.
    pub link: LinkOptions,
    /// Its connections to the database.
    pub database: DatabaseOptions,
    /// Tells claims early (durability `redis`) also while Redis may lose what it acknowledged. For tests and trials.
    pub allow_forgetful: bool,
    /// How long a claim waits for its outcome. Then it is unknown.
    pub patience: Duration,
    /// Tickets of one coupon that may wait for SQL. Beyond it claims are refused as unavailable.
    pub backlog_max: u64,
    /// Rows of a room that are written in one transaction, if they came one by one, or read in one query.
    pub rows_max: u32,
    /// Rows of one room that may wait for SQL. Beyond it a caller that wants anything new is told that it is unavailable.
    pub rows_waiting_max: usize,
    /// An image of a room is kept when the entries of its log since the last one have more bytes than this, and than that one.
    pub image_bytes_min: usize,
}

impl Default for ClusterOptions {
    /// 8 s of patience, 65 536 tickets that wait, and as many rows of a room, 4 096 at once; images after a MiB.
    fn default() -> Self {
        Self {
            link: LinkOptions::default(),
            database: DatabaseOptions::default(),
            allow_forgetful: false,
            patience: Duration::from_secs(8),
            backlog_max: 65_536,
            rows_max: 4_096,
            rows_waiting_max: 65_536,
            image_bytes_min: 1 << 20,
        }
    }
}

/// Why a node does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// Redis cannot be used.
    #[error(transparent)]
    Redis(#[from] OpenError),
    /// Redis was reached, and gave no answer then.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The database cannot be used.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The machine gives no random numbers.
    #[error(transparent)]
    Chance(Fault),
    /// The keys on Redis are those of another deployment, whose truth is in another database.
    #[error(
        "the keys on this Redis belong to another deployment, with another database: give each deployment a Redis or a \
         database number of its own, or name the database that belongs to it; if that one is gone for good, delete the key \
         fc:deployment and all others that begin with fc:"
    )]
    OtherDeployment,
    /// A coupon acknowledges claims at the sequencer, and the server may lose them.
    #[error(
        "coupon {coupon} tells claims when their place is certain (durability redis), and {why}: set appendonly yes and \
         appendfsync always there, or give the coupon the durability database"
    )]
    Forgets {
        /// The coupon.
        coupon: CouponName,
        /// What the server does instead.
        why: String,
    },
}
