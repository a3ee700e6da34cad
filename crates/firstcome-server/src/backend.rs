//! The storage of a service: the embedded store, or one node of a cluster.
//!
//! Each primitive has an object that implements its port: [`Coupons`] and [`Rooms`] here, listings in [`crate::auction`].
//! [`Backend`] has what belongs to no primitive.

/// Calls a method of the port on the store that `$self` holds.
///
/// Over a cluster the future of a call takes some kilobytes. A box keeps it out of the handlers' futures, which would otherwise be
/// as large, and slower to move, over the embedded store too.
macro_rules! forward {
    ($self:ident.$method:ident($($argument:expr),*).await) => {
        match $self {
            Self::Embedded(store) => store.$method($($argument),*).await,
            Self::Cluster(store, _) => Box::pin(store.$method($($argument),*)).await,
        }
    };
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self {
            Self::Embedded(store) => store.$method($($argument),*),
            Self::Cluster(store, _) => store.$method($($argument),*),
        }
    };
}

mod api_key;
mod coupon;
mod erase;
mod purge;
mod room;

pub(crate) use api_key::ApiKeys;
pub(crate) use coupon::Coupons;
pub(crate) use erase::Erasures;
pub(crate) use purge::Purges;
pub(crate) use room::Rooms;

use firstcome::cluster::Cluster;
use firstcome::core::time::{Steady, Timestamp};
use firstcome::edge::{Clock, SystemClock};
use firstcome::{Embedded, Fault, Faults, ReceiptStore, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// How old a copy may be that a node shows to a caller without a key. Replicas of rooms have the same limit.
pub(crate) const SHOWN_MAX: Duration = Duration::from_millis(250);
/// How many copies a node keeps of one kind. Beyond it the node asks the cluster again.
pub(crate) const SHOWN_COUNT_MAX: usize = 16_384;

/// Where a service keeps its data. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Backend {
    /// In this process.
    Embedded(Embedded),
    /// Over Redis and a database, which other nodes share. The clock is this machine's: the node shows its time to clients, and the
    /// rules use the clocks of the servers.
    Cluster(Cluster, Arc<SystemClock>),
}

impl Backend {
    /// One node of a cluster.
    pub(crate) fn cluster(cluster: Cluster) -> Self {
        Self::Cluster(cluster, Arc::default())
    }

    pub(crate) const fn as_cluster(&self) -> Option<&Cluster> {
        match self {
            Self::Embedded(_) => None,
            Self::Cluster(cluster, _) => Some(cluster),
        }
    }

    /// The wall-clock time that clients see. Never falls.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Embedded(store) => store.now(),
            Self::Cluster(_, clock) => clock.now(),
        }
    }

    /// The time of a clock that no operator can set.
    pub(crate) fn steady(&self) -> Steady {
        match self {
            Self::Embedded(store) => store.steady(),
            Self::Cluster(_, clock) => clock.steady(),
        }
    }

    /// The fault that stopped writes, if this process has seen one. Does no I/O.
    pub(crate) fn fault(&self) -> Option<Arc<Fault>> {
        match self {
            Self::Embedded(store) => store.fault(),
            Self::Cluster(..) => None,
        }
    }

    /// Publishes the heads that are due. See [`ReceiptStore::publish_heads`].
    pub(crate) async fn publish_heads(&self) -> Result<(), StoreError> {
        forward!(self.publish_heads().await)
    }

    /// The open faults that stop a part of the storage.
    pub(crate) fn faults(&self) -> Faults {
        forward!(self.faults())
    }

    /// Asks the servers of a cluster whether they answer. The embedded store has none.
    pub(crate) async fn answers(&self) -> Result<(), StoreError> {
        match self {
            Self::Embedded(_) => Ok(()),
            Self::Cluster(cluster, _) => Box::pin(cluster.answers()).await,
        }
    }
}
