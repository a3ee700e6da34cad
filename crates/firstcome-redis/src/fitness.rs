//! Repeats, while a link is open, the check that its servers evict no keys.
//!
//! A link checks a server when it connects. An operator may change the settings later (`CONFIG SET`), which ends no
//! connection.

use super::facts::ServerFacts;
use super::link::{Link, LinkOptions};
use super::preflight::Eviction;
use firstcome_store::{Fault, FaultKind, StoreError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The pause between two checks of the servers of a link.
pub const CHECK_EVERY: Duration = Duration::from_secs(2);

/// Names a server that may evict keys, and says what to do; `None` if no server may.
pub fn evicts(facts: &[ServerFacts], eviction: Eviction) -> Option<String> {
    if eviction == Eviction::Allow {
        return None;
    }
    facts.iter().find_map(|server| {
        let policy = server.eviction_policy.as_deref().unwrap_or("unknown");
        (policy != "noeviction").then(|| {
            format!(
                "the Redis at {} evicts keys when its memory is full (maxmemory-policy {policy}): set maxmemory-policy noeviction",
                server.address
            )
        })
    })
}

/// Checks the servers of a link every [`CHECK_EVERY`]. A lock store asks this before it grants.
///
/// After a change of the policy a lock may still be granted for [`CHECK_EVERY`] plus the time of an answer.
pub(crate) struct Watch {
    unfit: Arc<Mutex<Option<Arc<Fault>>>>,
    task: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to check, until it is dropped. Must be called in a Tokio runtime with time.
    pub(crate) fn over(link: &Link, options: &LinkOptions) -> Self {
        let unfit = Arc::new(Mutex::new(None));
        let eviction = options.allow_eviction;
        let task =
            (eviction == Eviction::Refuse).then(|| tokio::spawn(watch(link.clone(), eviction, Arc::clone(&unfit))));
        Self { unfit, task }
    }

    /// Whether a lock may be granted. Fails with the fault that the last check found. Does no I/O.
    pub(crate) fn may_grant(&self) -> Result<(), StoreError> {
        self.unfit.lock().as_ref().map_or(Ok(()), |fault| Err(StoreError::Faulted(Arc::clone(fault))))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn watch(link: Link, eviction: Eviction, unfit: Arc<Mutex<Option<Arc<Fault>>>>) {
    loop {
        sleep(CHECK_EVERY).await;
        // A server that does not answer grants nothing either. Its last verdict stays.
        let Ok(facts) = link.servers().await else { continue };
        let found = evicts(&facts, eviction);
        let mut unfit = unfit.lock();
        match (found, &*unfit) {
            (Some(detail), None) => {
                let fault = Fault::new(FaultKind::Unfit, detail);
                tracing::error!(code = fault.kind.code(), "no lock is granted: {fault}");
                *unfit = Some(Arc::new(fault));
            }
            (None, Some(_)) => {
                tracing::info!("locks are granted again: the server keeps its keys");
                *unfit = None;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_may_evict_is_named_unless_that_is_allowed() {
        let server = |address: &str, policy: &str| {
            ServerFacts::read(address.to_owned(), &format!("maxmemory_policy:{policy}\r\n"), None, None)
        };
        let rows = [
            ("noeviction", "noeviction", None),
            ("noeviction", "allkeys-lru", Some("two:2")),
            ("volatile-ttl", "noeviction", Some("one:1")),
        ];
        for (one, two, named) in rows {
            let facts = [server("one:1", one), server("two:2", two)];
            let said = evicts(&facts, Eviction::Refuse);
            assert_eq!(said.is_some(), named.is_some(), "{one} {two}: {said:?}");
            assert!(named.is_none_or(|named| said.is_some_and(|said| said.contains(named))), "{one} {two}");
            assert_eq!(evicts(&facts, Eviction::Allow), None);
        }
        // A server that does not report its policy may evict keys.
        let silent = [ServerFacts::read("one:1".to_owned(), "role:master\r\n", None, None)];
        assert!(evicts(&silent, Eviction::Refuse).is_some());
    }
}
