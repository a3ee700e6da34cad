//! The port for API keys over the database that all nodes share.
//!
//! A node judges calls by a copy, which it reads every second and after each change of its own. While the database does not answer,
//! the copy stays as it is: a key that another node revokes meanwhile is accepted here until the database answers again.

use crate::Cluster;
use crate::node::Node;
use firstcome_core::api_key::{ApiKey, KeyBook, KeyCommand, KeyDigest, KeyRejection};
use firstcome_core::coupon::Effect;
use firstcome_sql::boxed::boxed;
use firstcome_store::edge::Stopwatch;
use firstcome_store::{ApiKeyStore, StoreError};
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;

/// The keys that a node knows.
pub(crate) struct KnownKeys {
    book: RwLock<Arc<KeyBook>>,
    /// Since when the copy may be older than the database.
    read_at: RwLock<Stopwatch>,
    /// Held while they are read: what was read earlier replaces nothing newer.
    reading: tokio::sync::Mutex<()>,
}

impl Default for KnownKeys {
    fn default() -> Self {
        Self {
            book: RwLock::default(),
            read_at: RwLock::new(Stopwatch::start()),
            reading: tokio::sync::Mutex::default(),
        }
    }
}

impl KnownKeys {
    /// Takes those that a node begins with.
    pub(crate) fn begin(&self, book: KeyBook) {
        *self.book.write() = Arc::new(book);
    }
}

impl Node {
    /// Reads the keys again.
    pub(crate) async fn refresh_api_keys(&self) -> Result<(), StoreError> {
        let _turn = self.api_keys.reading.lock().await;
        let asked_at = Stopwatch::start();
        let book = self.database.api_keys().await?;
        *self.api_keys.book.write() = Arc::new(book);
        *self.api_keys.read_at.write() = asked_at;
        Ok(())
    }
}

impl Cluster {
    /// How old the copy of the API keys may be by which this node judges calls.
    pub fn api_keys_age(&self) -> Duration {
        self.node.api_keys.read_at.read().elapsed()
    }
}

impl ApiKeyStore for Cluster {
    fn find_api_key<T>(&self, digest: &KeyDigest, judge: impl FnMut(&ApiKey) -> Option<T>) -> Option<T> {
        self.node.api_keys.book.read().candidates(digest).find_map(judge)
    }

    fn api_keys(&self) -> Arc<KeyBook> {
        Arc::clone(&self.node.api_keys.book.read())
    }

    /// The other nodes know of a change within about a second. [`StoreError::Unknown`] if this node could not read it back.
    async fn change_api_keys(&self, command: KeyCommand) -> Result<Result<Effect<ApiKey>, KeyRejection>, StoreError> {
        let changed = boxed(self.node.database.change_api_keys(&command)).await?;
        if changed.is_ok() {
            boxed(self.node.refresh_api_keys()).await.map_err(|_| StoreError::Unknown)?;
        }
        Ok(changed)
    }
}
