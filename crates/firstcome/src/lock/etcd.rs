//! Locks on etcd, and what only they can do.
//!
//! For operators who run etcd anyway, or who want its servers to agree on each grant: no failover forgets a grant. Each
//! grant and each release is a commit of the cluster. They differ from locks with the layout of this library in this:
//!
//! - *One lease for all.* All holds and places in line of a process rest on one lease, [`EtcdOptions::lease`], so they
//!   are lost together. The lease is renewed three times in its length. It has whole seconds, and mostly at least two. A
//!   request for another lease is refused.
//! - *Dead waiters stay.* The places of a dead process end with its lease, as its holds do.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use firstcome::Locks;
//! use firstcome::lock::etcd::{self, EtcdWrite};
//! use std::time::Duration;
//!
//! let locks = Locks::etcd("etcd://10.0.0.1,10.0.0.2,10.0.0.3").await?;
//! let guard = locks.lock("auction:7").wait(Duration::from_secs(5)).acquire().await?;
//! let sold = EtcdWrite::Put { key: b"auction/7".into(), value: b"sold".into() };
//! etcd::write(&guard, [sold]).await?; // only if the lock is still held when etcd applies it
//! guard.release().await?;
//! locks.quiet().await; // ends the lease, so that no other process waits for its end
//! # Ok(()) }
//! ```
//!
//! # Promises
//! - etcd grants a lock in the order in which it accepted the requests. It passes over waiters that gave up or died.
//! - Every grant has a fence above that of every grant before it, of any lock of the cluster: the revision that created
//!   the key of the lock. Let the guarded store refuse a smaller one; [`fence`](crate::fence) has ready-made checks.
//!   [`write()`] guards writes to etcd itself. Do not compare these fences with those of other kinds of locks.
//! - [`Guard::lost`] resolves before another holder can have the lock, as long as this process runs and no clock is
//!   wrong by more than one per cent.
//!
//! # Not promised
//! - That a hold lasts. It ends when this process cannot reach etcd for a lease, when it stands still for one, or when
//!   an operator deletes the key.
//! - Fences that grow after the restore of an old backup: revisions then continue from the backup.

use super::kind::{BoxFuture, OtherHold, OtherLocks, share};
use super::{Guard, LockError, Locks, Terms};
use crate::fence::FenceToken;
use firstcome_etcd::{EtcdHold, Taken};
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::lock::{ClientId, Fence, LockView, Request, Watch};
use firstcome_store::edge::draw_id;
use firstcome_store::{Guarantees, TimedLockView};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use firstcome_etcd::{Counts, EtcdError, EtcdLink, EtcdOptions, EtcdWrite};

const NOT_ETCD: LockError = LockError::Unsupported { operation: "do what only etcd can" };

/// Writes all of this to etcd, or nothing if the lock is no longer held when etcd applies the write. Neither pauses
/// nor clocks can break this. Returns the revision of the write. One request.
///
/// Fails with [`LockError::Lost`] if the hold is over. Fails with [`LockError::Unknown`] if the write may have happened.
/// Fails with [`LockError::Unsupported`] for a guard of another store.
pub async fn write(guard: &Guard, writes: impl IntoIterator<Item = EtcdWrite>) -> Result<u64, LockError> {
    let guard: &EtcdGuard = guard.as_other().ok_or(NOT_ETCD)?;
    Ok(guard.hold.write(writes.into_iter().collect()).await?)
}

/// Returns the key in etcd that holds the lock; `None` for a guard of another store. To guard a transaction of another
/// etcd client, compare that the key's `create_revision` equals the fence. No request.
pub fn key(guard: &Guard) -> Option<&[u8]> {
    guard.as_other().map(|guard: &EtcdGuard| guard.hold.key())
}

/// Returns the link to etcd, for custom requests; `None` for locks of another store. No request.
pub fn link(locks: &Locks) -> Option<&EtcdLink> {
    locks.as_other().map(|locks: &EtcdLocks| locks.store.link())
}

/// Returns how much work was done so far; `None` for locks of another store. No request.
pub fn counts(locks: &Locks) -> Option<Counts> {
    locks.as_other().map(|locks: &EtcdLocks| locks.store.counts())
}

/// Ends the lease, and with it every hold and every place of this process: guards that still live are lost. For the
/// end of a program, so that it leaves nothing behind. One request.
///
/// Fails if etcd cannot be reached: then the lease ends by itself. Fails with [`LockError::Unsupported`] for locks of
/// another store.
pub async fn close(locks: &Locks) -> Result<(), LockError> {
    let locks: &EtcdLocks = locks.as_other().ok_or(NOT_ETCD)?;
    Ok(locks.store.close().await?)
}

/// The locks on etcd, as this process sees them.
pub(super) struct EtcdLocks {
    store: firstcome_etcd::EtcdLocks,
    owner: OwnerName,
}

impl EtcdLocks {
    pub(super) async fn open(url: &str, options: EtcdOptions) -> Result<Self, EtcdError> {
        let broken = |says: String| EtcdError::Broken { says };
        let id = draw_id().map_err(|fault| broken(fault.to_string()))?;
        let owner = format!("process-{}-{id:016x}", std::process::id());
        let owner = OwnerName::parse(&owner).map_err(|error| broken(error.to_string()))?;
        Ok(Self { store: firstcome_etcd::EtcdLocks::open(url, options).await?, owner })
    }

    async fn get(&self, terms: &Terms) -> Result<EtcdGuard, LockError> {
        if terms.watch == Watch::Fixed {
            return Err(LockError::Unsupported { operation: "end a hold by itself while its process lives" });
        }
        let lease = self.store.lease();
        terms.lease.map_or(Ok(()), |wanted| check_lease(wanted, lease))?;
        let (name, owner) = (terms.lock_name()?, terms.owner_or(&self.owner)?);
        match self.store.take(&name, &owner, terms.wait).await? {
            Taken::Held(hold) => Ok(EtcdGuard { hold, name, owner, lease }),
            Taken::Contended { holder, lasts, waiters } => Err(LockError::Contended { holder, waiters, ttl: lasts }),
            Taken::TimedOut => Err(LockError::TimedOut { position: None }),
        }
    }

    async fn view(&self, name: LockName) -> Result<TimedLockView, LockError> {
        let seen = self.store.view(&name).await?;
        // Another program may have put anything under this prefix.
        let owner_of = |holder: &str| OwnerName::parse(holder).or_else(|_| OwnerName::parse("unknown")).ok();
        let held = seen.holder.and_then(|(holder, fence)| Some((owner_of(&holder)?, fence, u64::MAX)));
        Ok(TimedLockView {
            view: LockView { holders: u32::from(held.is_some()), held, waiters: seen.waiters },
            now_us: 0,
        })
    }
}

/// etcd counts leases in whole seconds.
fn check_lease(wanted: Duration, lease: Duration) -> Result<(), LockError> {
    let seconds = |lease: Duration| lease.as_millis().div_ceil(1_000);
    if seconds(wanted) == seconds(lease) {
        return Ok(());
    }
    Err(LockError::Unsupported { operation: "keep another lease than that of its process; set it in `EtcdOptions`" })
}

struct EtcdGuard {
    hold: EtcdHold,
    name: LockName,
    owner: OwnerName,
    lease: Duration,
}

impl OtherLocks for EtcdLocks {
    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    fn acquire<'a>(&'a self, terms: &'a Terms) -> BoxFuture<'a, Result<Arc<dyn OtherHold>, LockError>> {
        Box::pin(async move { Ok(Arc::new(self.get(terms).await?) as Arc<dyn OtherHold>) })
    }

    fn view(&self, name: LockName) -> BoxFuture<'_, Result<TimedLockView, LockError>> {
        Box::pin(self.view(name))
    }

    fn quiet(&self) -> BoxFuture<'_, ()> {
        // If etcd cannot be reached, the lease ends by itself.
        Box::pin(async move { drop(self.store.close().await) })
    }
}

impl OtherHold for EtcdGuard {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn fence(&self) -> Option<Fence> {
        Some(self.hold.fence())
    }

    fn token(&self, fence: Fence) -> Result<FenceToken, LockError> {
        let Self { hold, name, owner, .. } = self;
        // One revision creates at most one key of a lock, so the revision identifies the hold.
        let request = Request { client: ClientId(hold.lease().cast_unsigned()), number: fence.get() };
        Ok(FenceToken::of_hold(name, fence, owner, request))
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.hold.deadline())
    }

    fn is_lost(&self) -> bool {
        self.hold.is_lost()
    }

    fn lost(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.hold.lost())
    }

    fn reenter(self: Arc<Self>) -> BoxFuture<'static, Result<Arc<dyn OtherHold>, LockError>> {
        share(self)
    }

    fn renew(&self, lease: Duration) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            check_lease(lease, self.lease)?;
            Ok(self.hold.renew().await?)
        })
    }

    fn release(self: Arc<Self>) -> BoxFuture<'static, Result<(), LockError>> {
        Box::pin(async move {
            let Some(last) = Arc::into_inner(self) else { return Ok(()) };
            if last.hold.release().await? { Ok(()) } else { Err(LockError::Lost) }
        })
    }
}
