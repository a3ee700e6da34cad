//! The erasure of persons behind its port.

use super::Backend;
use crate::auction::Auctions;
use firstcome::cluster::Cluster;
use firstcome::core::id::UserId;
use firstcome::{Embedded, EraseAnswer, EraseStore};

/// Where persons are erased.
pub(crate) enum Erasures {
    /// In this process: coupons, rooms, members and listings are in one store.
    Embedded(Embedded),
    /// Coupons and rooms on a cluster, members and listings in its database.
    Cluster(Cluster, Auctions),
    /// Members and listings alone.
    Auctions(Auctions),
}

impl Erasures {
    /// Returns the erasures of this backend.
    pub(crate) fn new(backend: &Backend, auctions: &Auctions, is_auctions_alone: bool) -> Self {
        match backend {
            Backend::Embedded(_) if is_auctions_alone => Self::Auctions(auctions.clone()),
            Backend::Embedded(store) => Self::Embedded(store.clone()),
            Backend::Cluster(cluster, _) => Self::Cluster(cluster.clone(), auctions.clone()),
        }
    }

    /// Erases a person.
    pub(crate) async fn erase(&self, user: &UserId) -> EraseAnswer {
        match self {
            Self::Embedded(store) => store.erase(user).await,
            Self::Auctions(auctions) => auctions.erase(user).await,
            Self::Cluster(cluster, auctions) => {
                // First what may refuse it.
                let mut erased = match auctions.erase(user).await? {
                    Ok(erased) => erased,
                    Err(rejection) => return Ok(Err(rejection)),
                };
                Ok(Box::pin(cluster.erase(user)).await?.map(|others| {
                    erased.add(others);
                    erased
                }))
            }
        }
    }
}
