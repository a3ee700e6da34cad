//! Purges behind their port.

use super::Backend;
use crate::auction::Auctions;
use firstcome::cluster::Cluster;
use firstcome::purge::{ClockCheck, PurgeRequest};
use firstcome::{Embedded, PurgeAnswer, PurgeStore, Purged, StoreError};
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

    /// Purges. `removed` has what went, also after an error, as far as the store tells that.
    pub(crate) async fn purge(&self, request: PurgeRequest, removed: &mut Purged) -> PurgeAnswer {
        let answer = match self {
            Self::Embedded(store) => store.purge(request).await,
            Self::Auctions(auctions) => auctions.purge(request).await,
            Self::Cluster(cluster, auctions) => return purge_both(cluster, auctions, request, removed).await,
        };
        if let Ok(Ok(purged)) = &answer {
            *removed = *purged;
        }
        answer
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

/// Purges a cluster, and then members and listings in its database, also if the cluster's part fails. Answers with the
/// first error.
async fn purge_both(
    cluster: &Cluster,
    auctions: &Auctions,
    request: PurgeRequest,
    removed: &mut Purged,
) -> PurgeAnswer {
    // The cluster has the turn of its nodes, and judges the clock by all rows of the database and its last purge.
    let of_cluster = Box::pin(cluster.purge_with(request, |purged| *removed = *purged)).await;
    let clock = match &of_cluster {
        Ok(Ok(purged)) => {
            *removed = *purged;
            ClockCheck::Skip
        }
        Ok(Err(_)) => return of_cluster,
        // It may have failed before it judged the clock.
        Err(_) => request.clock,
    };
    let of_auctions = auctions.purge(PurgeRequest { clock, ..request }).await;
    if let Ok(Ok(others)) = &of_auctions {
        *removed += *others;
    }
    match (of_cluster, of_auctions) {
        (Err(error), _) | (_, Err(error)) => Err(error),
        (Ok(_), Ok(others)) => Ok(others.map(|_| *removed)),
    }
}
