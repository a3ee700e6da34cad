//! The API keys of a service behind their port.

use super::Backend;
use firstcome::cluster::Cluster;
use firstcome::core::api_key::{ApiKey, KeyBook, KeyCommand, KeyDigest};
use firstcome::{ApiKeyStore, Embedded, Fault, FaultKind, KeyAnswer, StoreError};
use std::sync::Arc;

/// The store of API keys.
pub(crate) enum ApiKeys {
    /// In this process.
    Embedded(Embedded),
    /// In the database that all nodes share, with a copy at this node.
    Cluster(Cluster),
    /// None: the service knows the keys of its configuration alone.
    Absent,
}

impl ApiKeys {
    /// Returns the store of keys of this backend. A service of listings alone has none.
    pub(crate) fn new(backend: &Backend, is_auctions_alone: bool) -> Self {
        match backend {
            Backend::Embedded(store) if !is_auctions_alone => Self::Embedded(store.clone()),
            Backend::Embedded(_) => Self::Absent,
            Backend::Cluster(cluster, _) => Self::Cluster(cluster.clone()),
        }
    }

    /// Finds a key by its digest. See [`ApiKeyStore::find_api_key`].
    pub(crate) fn find<T>(&self, digest: &KeyDigest, judge: impl FnMut(&ApiKey) -> Option<T>) -> Option<T> {
        match self {
            Self::Embedded(store) => store.find_api_key(digest, judge),
            Self::Cluster(store) => store.find_api_key(digest, judge),
            Self::Absent => None,
        }
    }

    /// Returns all keys.
    pub(crate) fn book(&self) -> Arc<KeyBook> {
        match self {
            Self::Embedded(store) => store.api_keys(),
            Self::Cluster(store) => store.api_keys(),
            Self::Absent => Arc::default(),
        }
    }

    /// Changes the keys.
    pub(crate) async fn change(&self, command: KeyCommand) -> KeyAnswer {
        match self {
            Self::Embedded(store) => store.change_api_keys(command).await,
            Self::Cluster(store) => Box::pin(store.change_api_keys(command)).await,
            Self::Absent => {
                let fault = Fault::new(FaultKind::Unfit, "this service stores no API keys");
                Err(StoreError::Faulted(Arc::new(fault)))
            }
        }
    }
}
