//! Where the locks are, and what is held there: the same to who runs a command, whatever keeps it.

use super::Plan;
use crate::Failure;
use anyhow::{anyhow, bail};
use firstcome::lock::{NodeSet, OpenError, QuorumOptions};
use firstcome::{Fence, Guard, LockError, Locks, QuorumGuard, QuorumLocks};
use std::pin::Pin;
use std::time::{Duration, Instant};

/// The stores that somebody named: several make a quorum. In one text, as settings have them, addresses of servers may stand
/// one after the other.
pub(super) fn named(stores: Vec<String>) -> Vec<String> {
    let is_list = |text: &String| {
        1 < text.split_ascii_whitespace().count() && text.split_ascii_whitespace().all(|part| part.contains("://"))
    };
    let split = |text: String| match is_list(&text) {
        true => text.split_ascii_whitespace().map(str::to_owned).collect(),
        false => vec![text],
    };
    stores.into_iter().flat_map(split).collect()
}

/// Whether these can be a store at all.
pub(super) fn check(stores: &[String]) -> anyhow::Result<()> {
    if 1 < stores.len() && !stores.iter().all(|store| store.starts_with("redis://")) {
        bail!("several stores are a quorum of servers; write each as redis://…");
    }
    stores.iter().try_for_each(|store| match store.split_once("://") {
        Some((scheme, _)) if !scheme.starts_with("redis") => {
            bail!("no locks are reached by {scheme}://; write a directory or redis://…")
        }
        None if store.is_empty() => bail!("the store is empty; write a directory or redis://…"),
        _ => Ok(()),
    })
}

/// Locks of some kind.
pub(super) enum Store {
    Native(Locks),
    Quorum(QuorumLocks),
}

/// A lock of some kind that is held. It is renewed as long as this lives.
pub(super) enum Held {
    Native(Guard),
    Quorum(QuorumGuard),
}

/// What a store that does not open comes to.
fn failure(error: OpenError) -> Failure {
    match error {
        OpenError::Address { .. } | OpenError::Quorum { .. } => Failure::Usage(error.into()),
        OpenError::Unreachable { .. }
        | OpenError::NotRedis { .. }
        | OpenError::Denied { .. }
        | OpenError::NotReady { .. } => Failure::Unreachable(error.into()),
        // There, and not fit.
        _ => Failure::Refused(error.into()),
    }
}

impl Store {
    pub(super) async fn open(stores: &[String], set: NodeSet) -> Result<Self, Failure> {
        match stores {
            [store] if !store.contains("://") => Locks::open(store).map(Self::Native).map_err(Failure::Store),
            [store] => Locks::redis(store).await.map(Self::Native).map_err(failure),
            stores => {
                let mut options = QuorumOptions::default();
                options.set = set;
                Locks::quorum_with(stores, options).await.map(Self::Quorum).map_err(failure)
            }
        }
    }

    /// Waits for the lock. Cancel-safe: see [`Self::withdraw`].
    pub(super) async fn acquire(&self, plan: &Plan) -> Result<Held, LockError> {
        let name = plan.name.as_str();
        match self {
            Self::Native(locks) => {
                let request = locks.lock(name).owner(plan.owner.as_str()).lease(plan.lease).wait(plan.wait);
                request.acquire().await.map(Held::Native)
            }
            Self::Quorum(locks) => {
                let request = locks.lock(name).lease(plan.lease).wait(plan.wait).watched();
                request.acquire().await.map(Held::Quorum)
            }
        }
    }

    /// Resolves when the store has heard that nobody waits here any more.
    pub(super) async fn withdraw(&self) {
        match self {
            Self::Native(locks) => locks.quiet().await,
            Self::Quorum(locks) => locks.quiet().await,
        }
    }

    /// Who has a lock, where the store can tell.
    pub(super) async fn holder(&self, plan: &Plan) -> Option<String> {
        match self {
            Self::Native(locks) => {
                let seen = locks.view(plan.name.as_str()).await.ok()?;
                seen.view.held.map(|(holder, ..)| holder.to_string())
            }
            Self::Quorum(_) => None,
        }
    }

    /// Whether a lease is one that the store lets last.
    pub(super) fn check_lease(stores: &[String], lease: Duration) -> anyhow::Result<()> {
        let longest = QuorumOptions::default().rejoin_after;
        if 1 < stores.len() && longest < lease {
            return Err(anyhow!("lease must be at most {} s over several stores", longest.as_secs()));
        }
        Ok(())
    }
}

impl Held {
    /// Until when it is certainly held.
    pub(super) fn deadline(&self) -> Instant {
        match self {
            Self::Native(guard) => guard.deadline(),
            Self::Quorum(guard) => guard.deadline(),
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        match self {
            Self::Native(guard) => guard.remaining(),
            Self::Quorum(guard) => guard.remaining(),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Resolves when it is lost.
    pub(super) fn lost(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match self {
            Self::Native(guard) => Box::pin(guard.lost()),
            Self::Quorum(guard) => Box::pin(guard.lost()),
        }
    }

    pub(super) async fn renew(&self, lease: Duration) -> Result<(), LockError> {
        match self {
            Self::Native(guard) => guard.renew(lease).await,
            Self::Quorum(guard) => guard.renew(lease).await,
        }
    }

    pub(super) async fn release(self) -> Result<(), LockError> {
        match self {
            Self::Native(guard) => guard.release().await,
            Self::Quorum(guard) => guard.release().await,
        }
    }

    /// Where the store has such.
    pub(super) fn fence(&self) -> Option<Fence> {
        match self {
            Self::Native(guard) => Some(guard.fence()),
            Self::Quorum(guard) => Some(guard.fence()),
        }
    }
}
