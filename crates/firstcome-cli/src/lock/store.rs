//! A uniform interface to the locks of every kind of store.

use super::place::{self, Absent};
use super::{Layout, Plan};
use crate::failure::Failure;
use anyhow::{bail, ensure};
use firstcome::lock::{KeyStore, OpenError, QuorumOptions, layout};
use firstcome::redis::Redisson;
#[cfg(feature = "etcd")]
use firstcome::{EtcdGuard, EtcdLocks, etcd};
use firstcome::{
    Fence, Guarantees, Guard, KeyGuard, KeyLocks, LockError, Locks, QuorumGuard, QuorumLocks, SpinGuard, SpinLocks,
};
use std::path::Path;
use std::pin::Pin;
use std::time::{Duration, Instant};

const ON_REDIS_ONLY: &str = "others keep locks of this layout on Redis only; write redis://…";
#[cfg(feature = "etcd")]
const ETCD: &str = "etcd://";
/// The shortest lease on etcd. It counts leases in whole seconds, and grants none that is shorter than a change of its
/// leader takes.
#[cfg(feature = "etcd")]
const ETCD_LEASE_MIN: Duration = Duration::from_secs(2);

/// Splits the stores that the caller named; several make a quorum. One text may hold several addresses, separated by
/// spaces, as in the settings.
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

/// Returns the given store, which must exist, or the default directory.
pub(super) fn chosen(
    given: Vec<String>,
    layout: Layout,
    lease: Duration,
    absent: Absent,
) -> anyhow::Result<Vec<String>> {
    let given = named(given);
    if given.is_empty() {
        ensure!(layout == Layout::Native, ON_REDIS_ONLY);
        let directory = place::default_directory()?.into_os_string().into_string();
        return match directory {
            Ok(directory) => Ok(vec![directory]),
            Err(directory) => bail!("{} is not UTF-8; name a place for locks with --store", directory.display()),
        };
    }
    check(&given, layout, lease)?;
    given.iter().filter(|store| is_directory(store)).try_for_each(|store| place::check(Path::new(store), absent))?;
    Ok(given)
}

fn is_directory(store: &str) -> bool {
    !store.contains("://")
}

/// Checks that these stores support the layout and the lease.
fn check(stores: &[String], layout: Layout, lease: Duration) -> anyhow::Result<()> {
    for store in stores {
        match store.split_once("://") {
            Some(("etcd", _)) => check_etcd(lease)?,
            Some((scheme, _)) if !scheme.starts_with("redis") => {
                bail!("no locks are reached by {scheme}://; write a directory, redis://… or etcd://…")
            }
            None if store.is_empty() => bail!("the store is empty; write a directory, redis://… or etcd://…"),
            _ => {}
        }
    }
    let on_redis = stores.iter().all(|store| store.starts_with("redis"));
    match (stores, layout) {
        ([_], Layout::Native) => {}
        ([_], Layout::SingleKey | Layout::Redisson) => {
            ensure!(on_redis, ON_REDIS_ONLY);
        }
        (_, Layout::SingleKey | Layout::Redisson) => {
            bail!("several stores cannot be used with this layout: leave --layout out")
        }
        (_, Layout::Native) => {
            let servers = stores.iter().all(|store| store.starts_with("redis://"));
            ensure!(servers, "several stores are a quorum of servers; write each as redis://…");
            let longest = QuorumOptions::default().rejoin_after;
            ensure!(lease <= longest, "lease must be at most {} s over several stores", longest.as_secs());
        }
    }
    Ok(())
}

#[cfg(feature = "etcd")]
fn check_etcd(lease: Duration) -> anyhow::Result<()> {
    ensure!(ETCD_LEASE_MIN <= lease, "lease must be at least {} s on etcd", ETCD_LEASE_MIN.as_secs());
    Ok(())
}

#[cfg(not(feature = "etcd"))]
fn check_etcd(_lease: Duration) -> anyhow::Result<()> {
    bail!("this program was built without etcd; build it with --features etcd")
}

/// An open store of locks.
pub(super) enum Store {
    Native(Locks),
    Quorum(QuorumLocks),
    SingleKey(SpinLocks),
    Redisson(KeyLocks<Redisson>),
    #[cfg(feature = "etcd")]
    Etcd(EtcdLocks),
}

/// A held lock. It is renewed as long as this value lives.
pub(super) enum HeldLock {
    Native(Guard),
    Quorum(QuorumGuard),
    SingleKey(SpinGuard),
    Redisson(KeyGuard<Redisson>),
    #[cfg(feature = "etcd")]
    Etcd(EtcdGuard),
}

/// Calls the same method on every kind of guard.
macro_rules! each {
    ($held:expr, $guard:ident => $what:expr) => {
        match $held {
            HeldLock::Native($guard) => $what,
            HeldLock::Quorum($guard) => $what,
            HeldLock::SingleKey($guard) => $what,
            HeldLock::Redisson($guard) => $what,
            #[cfg(feature = "etcd")]
            HeldLock::Etcd($guard) => $what,
        }
    };
}

/// Translates the error of a store that does not open to an exit code.
pub(super) fn failure(error: OpenError) -> Failure {
    match error {
        OpenError::Address { .. } | OpenError::Quorum { .. } => Failure::Usage(error.into()),
        OpenError::Unreachable { .. }
        | OpenError::NotRedis { .. }
        | OpenError::Denied { .. }
        | OpenError::NotReady { .. } => Failure::Unreachable(error.into()),
        // The server exists, but is unsuitable.
        _ => Failure::Refused(error.into()),
    }
}

impl Store {
    pub(super) async fn open(plan: &Plan) -> Result<Self, Failure> {
        match (plan.stores.as_slice(), plan.layout) {
            #[cfg(feature = "etcd")]
            ([store], _) if store.starts_with(ETCD) => open_etcd(store, plan.lease).await,
            ([store], _) if is_directory(store) => {
                Locks::open(store).map(Self::Native).map_err(|fault| place::not_opened(Path::new(store), fault))
            }
            ([store], Layout::Native) => Locks::redis(store).await.map(Self::Native).map_err(failure),
            ([store], Layout::SingleKey) => {
                Locks::redis(store).layout(layout::SingleKey).await.map(Self::SingleKey).map_err(failure)
            }
            ([store], Layout::Redisson) => {
                Locks::redis(store).layout(layout::Redisson).await.map(Self::Redisson).map_err(failure)
            }
            (stores, _) => {
                let mut options = QuorumOptions::default();
                options.set = plan.set;
                Locks::quorum_with(stores, options).await.map(Self::Quorum).map_err(failure)
            }
        }
    }

    /// Returns what the store promises.
    pub(super) fn guarantees(&self) -> Guarantees {
        match self {
            Self::Native(locks) => locks.guarantees(),
            Self::Quorum(locks) => locks.guarantees(),
            Self::SingleKey(locks) => locks.guarantees(),
            Self::Redisson(locks) => locks.guarantees(),
            #[cfg(feature = "etcd")]
            Self::Etcd(locks) => locks.guarantees(),
        }
    }

    /// Waits for the lock. Cancel-safe: see [`Self::withdraw`].
    pub(super) async fn acquire(&self, plan: &Plan) -> Result<HeldLock, LockError> {
        match self {
            Self::Native(locks) => {
                let request = locks.lock(&plan.name).owner(plan.owner.as_str()).lease(plan.lease).wait(plan.wait);
                request.acquire().await.map(HeldLock::Native)
            }
            Self::Quorum(locks) => acquire_key(locks, plan).await.map(HeldLock::Quorum),
            Self::SingleKey(locks) => acquire_key(locks, plan).await.map(HeldLock::SingleKey),
            Self::Redisson(locks) => acquire_key(locks, plan).await.map(HeldLock::Redisson),
            #[cfg(feature = "etcd")]
            Self::Etcd(locks) => {
                locks.lock(&plan.name).owner(plan.owner.as_str()).wait(plan.wait).acquire().await.map(HeldLock::Etcd)
            }
        }
    }

    /// Waits until the store knows that this process waits for no lock and holds none.
    pub(super) async fn withdraw(&self) {
        match self {
            Self::Native(locks) => locks.quiet().await,
            Self::Quorum(locks) => locks.quiet().await,
            Self::SingleKey(locks) => locks.quiet().await,
            Self::Redisson(locks) => locks.quiet().await,
            // Closing revokes the lease, which covers this lock only.
            #[cfg(feature = "etcd")]
            Self::Etcd(locks) => drop(locks.close().await),
        }
    }

    /// Returns the holder's name, if the store records it.
    pub(super) async fn holder(&self, plan: &Plan) -> Option<String> {
        match self {
            Self::Native(locks) => {
                let seen = locks.view(&plan.name).await.ok()?;
                seen.view.held.map(|(holder, ..)| holder.to_string())
            }
            Self::Quorum(_) | Self::SingleKey(_) | Self::Redisson(_) => None,
            #[cfg(feature = "etcd")]
            Self::Etcd(locks) => locks.view(&plan.name).await.ok()?.holder.map(|(holder, _)| holder),
        }
    }
}

async fn acquire_key<S: KeyStore>(locks: &KeyLocks<S>, plan: &Plan) -> Result<KeyGuard<S>, LockError> {
    locks.lock(&plan.name).lease(plan.lease).wait(plan.wait).acquire().await
}

#[cfg(feature = "etcd")]
async fn open_etcd(url: &str, lease: Duration) -> Result<Store, Failure> {
    let mut options = etcd::EtcdOptions::default();
    options.lease = lease;
    EtcdLocks::open_with(url, options).await.map(Store::Etcd).map_err(|error| match error {
        // An invalid address, or missing rights: the error says which.
        etcd::EtcdError::Broken { .. } => Failure::Usage(error.into()),
        _ => Failure::Unreachable(error.into()),
    })
}

impl HeldLock {
    /// Returns the instant until which the lock is certainly held.
    pub(super) fn deadline(&self) -> Instant {
        each!(self, guard => guard.deadline())
    }

    pub(super) fn remaining(&self) -> Duration {
        each!(self, guard => guard.remaining())
    }

    pub(super) fn is_lost(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Waits until the lock is lost.
    pub(super) fn lost(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        each!(self, guard => Box::pin(guard.lost()))
    }

    pub(super) async fn renew(&self, lease: Duration) -> Result<(), LockError> {
        match self {
            Self::Native(guard) => guard.renew(lease).await,
            Self::Quorum(guard) => guard.renew(lease).await,
            Self::SingleKey(guard) => guard.renew(lease).await,
            Self::Redisson(guard) => guard.renew(lease).await,
            // The lease was set when the store was opened.
            #[cfg(feature = "etcd")]
            Self::Etcd(guard) => guard.renew().await,
        }
    }

    pub(super) async fn release(self) -> Result<(), LockError> {
        each!(self, guard => guard.release().await)
    }

    /// Returns the fence, if the store has fences.
    pub(super) fn fence(&self) -> Option<Fence> {
        match self {
            Self::Native(guard) => Some(guard.fence()),
            Self::Quorum(guard) => Some(guard.fence()),
            Self::SingleKey(_) | Self::Redisson(_) => None,
            #[cfg(feature = "etcd")]
            Self::Etcd(guard) => Some(guard.fence()),
        }
    }
}
