//! Shares the secrets that sign passes: a visitor whom one node admitted may come to another.

use crate::Cluster;
use crate::node::Node;
use firstcome_store::StoreError;
use firstcome_store::embedded::journal::{PassSecret, PassSecretSet};
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// How often a node looks whether others have changed them.
const EVERY: Duration = Duration::from_secs(1);
/// A node that needs others looks at once, but no more often: anybody can show what names a secret that is none.
const EVERY_MIN: Duration = Duration::from_millis(100);

/// The secrets that a node knows.
#[derive(Default)]
pub(crate) struct Secrets {
    /// The newest last.
    pub(super) known: RwLock<Vec<PassSecret>>,
    /// When they were asked for last, and whether there was an answer; held while they are.
    last: tokio::sync::Mutex<Option<(Instant, Result<(), StoreError>)>>,
}

impl Secrets {
    /// Takes those that a node begins with.
    pub(crate) fn begin(&self, secrets: Vec<PassSecret>) {
        *self.known.write() = secrets;
    }
}

impl Node {
    /// Looks for others now and then, while the node is there.
    pub(crate) fn watch_secrets(self: &Arc<Self>) {
        let node = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                sleep(EVERY).await;
                let Some(node) = node.upgrade() else { return };
                // Those that are known, secrets and API keys, stay as they are while SQL does not answer.
                let _ = node.refresh_secrets().await;
                let _ = node.refresh_api_keys().await;
            }
        });
    }

    /// Reads them. One after the other: what was read earlier replaces nothing newer.
    pub(crate) async fn refresh_secrets(&self) -> Result<(), StoreError> {
        let mut last = self.secrets.last.lock().await;
        self.read_secrets(&mut last).await
    }

    async fn read_secrets(&self, last: &mut Option<(Instant, Result<(), StoreError>)>) -> Result<(), StoreError> {
        let begun_at = Instant::now();
        let read = self.database.pass_secrets().await.map(|secrets| *self.secrets.known.write() = secrets);
        let read = read.map_err(StoreError::from);
        *last = Some((begun_at, read.clone()));
        read
    }

    /// The same, but once for all who ask meanwhile.
    async fn refresh_secrets_soon(&self) -> Result<(), StoreError> {
        let asked_at = Instant::now();
        let mut last = self.secrets.last.lock().await;
        if let Some((begun_at, read)) = &*last {
            if asked_at <= *begun_at {
                return read.clone();
            }
            sleep_until(*begun_at + EVERY_MIN).await;
        }
        self.read_secrets(&mut last).await
    }
}

impl Cluster {
    /// Names the secrets of passes that this node knows. `None` before the first room.
    pub fn pass_secret_set(&self) -> Option<PassSecretSet> {
        PassSecretSet::of(&self.node.secrets.known.read())
    }

    /// Looks whether there are other secrets of passes than this node knows: for a pass whose secret is not known. An error
    /// says that this cannot be told now.
    pub async fn refresh_pass_secrets(&self) -> Result<(), StoreError> {
        self.node.refresh_secrets_soon().await
    }
}
