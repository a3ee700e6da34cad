//! Purges behind their port.

use super::Backend;
use crate::auction::Auctions;
use firstcome::cluster::Cluster;
use firstcome::purge::{ClockCheck, PurgeRequest};
use firstcome::{Embedded, PurgeAnswer, PurgeStore, StoreError};
use std::time::Duration;

/// See [`Purges::look_every`].
const LOOKS_PER_PERIOD: u32 = 4;

/// What is purged.
pub(crate) enum Purges {
    /// In this process: coupons, rooms, members and listings are in one store.
    Embedded(Embedded),
    /// Coupons and rooms on a cluster, members and listings in its database.
    Cluster(Cluster, Auctions),
    /// Members and listings alone.
    Auctions(Auctions),
}

impl Purges {
    /// Returns the purges of this backend.
    pub(crate) fn new(backend: &Backend, auctions: &Auctions, is_auctions_alone: bool) -> Self {
        match backend {
            Backend::Embedded(_) if is_auctions_alone => Self::Auctions(auctions.clone()),
            Backend::Embedded(store) => Self::Embedded(store.clone()),
            Backend::Cluster(cluster, _) => Self::Cluster(cluster.clone(), auctions.clone()),
        }
    }

    /// Purges.
    pub(crate) async fn purge(&self, request: PurgeRequest) -> PurgeAnswer {
        match self {
            Self::Embedded(store) => store.purge(request).await,
            Self::Auctions(auctions) => auctions.purge(request).await,
            Self::Cluster(cluster, auctions) => {
                // The cluster has the turn of its nodes, and judges the clock by all rows of the database and its last purge.
                let mut purged = match Box::pin(cluster.purge(request)).await? {
                    Ok(purged) => purged,
                    Err(rejection) => return Ok(Err(rejection)),
                };
                let judged = PurgeRequest { clock: ClockCheck::Skip, ..request };
                Ok(auctions.purge(judged).await?.map(|others| {
                    purged += others;
                    purged
                }))
            }
        }
    }

    /// How often a service that purges in this period looks whether a purge is due. Nodes look more often: the one that purged last
    /// may have died.
    pub(crate) fn look_every(&self, period: Duration) -> Duration {
        match self {
            Self::Embedded(_) | Self::Auctions(_) => period,
            Self::Cluster(..) => period / LOOKS_PER_PERIOD,
        }
    }

    /// How long ago the last purge of another process ended, if one can be known of.
    pub(crate) async fn last_age(&self) -> Result<Option<Duration>, StoreError> {
        match self {
            Self::Embedded(_) | Self::Auctions(_) => Ok(None),
            Self::Cluster(cluster, _) => Box::pin(cluster.last_purge_age()).await,
        }
    }
}
