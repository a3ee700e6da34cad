//! Finds and opens the store of locks that the caller named.

use super::place::{self, Absent};
use super::{Layout, Plan};
use crate::failure::Failure;
use anyhow::{bail, ensure};
use firstcome::lock::{Layout as Shared, LockAddress, OpenError, OpenLocksError, QuorumOptions, SqlError};
use firstcome::{Guard, LockError, LockRequest, Locks};
use std::time::Duration;

const ON_REDIS_ONLY: &str = "others keep locks of this layout on Redis only; write redis://…";
/// The shortest lease on etcd. It counts leases in whole seconds, and grants none that is shorter than a change of its
/// leader takes.
#[cfg(feature = "etcd")]
const ETCD_LEASE_MIN: Duration = Duration::from_secs(2);

/// Returns the given store, which must exist, or the default directory.
pub(super) fn chosen(given: &[String], layout: Layout, lease: Duration, absent: Absent) -> anyhow::Result<LockAddress> {
    let Some(address) = named(given)? else {
        ensure!(layout == Layout::Native, ON_REDIS_ONLY);
        return Ok(LockAddress::Directory(place::default_directory()?));
    };
    let address = with_layout(address, layout)?;
    check_lease(&address, lease)?;
    if let LockAddress::Directory(directory) = &address {
        place::check(directory, absent)?;
    }
    Ok(address)
}

/// Returns the store that the caller named. Several addresses make a quorum, whether each is a text of its own or all are
/// in one, as in the settings.
pub(super) fn named(given: &[String]) -> anyhow::Result<Option<LockAddress>> {
    match given {
        [] => Ok(None),
        [one] => Ok(Some(one.parse()?)),
        several => {
            let servers = several.iter().all(|text| text.contains("://"));
            ensure!(servers, "several stores are a quorum of servers; write each as redis://…");
            Ok(Some(several.join(" ").parse()?))
        }
    }
}

/// Returns the store that the caller named, for a command that checks stores of these commands: one that they take, and a directory
/// that is there.
pub(crate) fn existing(given: &[String]) -> anyhow::Result<Option<LockAddress>> {
    let Some(address) = named(given)? else { return Ok(None) };
    check_kind(&address)?;
    if let LockAddress::Directory(directory) = &address {
        place::check_there(directory)?;
    }
    Ok(Some(address))
}

fn with_layout(address: LockAddress, wanted: Layout) -> anyhow::Result<LockAddress> {
    let wanted = match wanted {
        // An address may name its layout itself.
        Layout::Native => return Ok(address),
        Layout::SingleKey => Shared::SingleKey,
        Layout::Redisson => Shared::Redisson,
    };
    match address {
        LockAddress::Quorum(_) => bail!("several stores cannot be used with this layout: leave --layout out"),
        LockAddress::Redis { layout, .. } if layout != Shared::Native && layout != wanted => {
            bail!("the address of the store and --layout name different layouts")
        }
        address => address.with_layout(wanted).ok_or_else(|| anyhow::anyhow!(ON_REDIS_ONLY)),
    }
}

/// Checks that the store excludes other processes, and tells when a hold ends.
fn check_kind(address: &LockAddress) -> anyhow::Result<()> {
    match address {
        LockAddress::Memory => {
            bail!("locks in memory exclude no other process; write a directory, redis://… or etcd://…")
        }
        LockAddress::Http { .. } => {
            bail!(
                "this program does not lock over http://; write the store of the service: a directory, redis://… or etcd://…"
            )
        }
        LockAddress::PostgresSession(_) | LockAddress::MysqlSession(_) => {
            bail!(
                "built-in locks of databases have no lease, so the command could outlive its lock; write postgres://… without a layout, redis://… or a directory"
            )
        }
        #[cfg(not(feature = "etcd"))]
        LockAddress::Etcd(_) => bail!("this program was built without etcd; build it with --features etcd"),
        _ => Ok(()),
    }
}

/// Checks that the store can keep a hold for this lease, and tells when it ends.
fn check_lease(address: &LockAddress, lease: Duration) -> anyhow::Result<()> {
    check_kind(address)?;
    match address {
        LockAddress::Quorum(_) => {
            let longest = QuorumOptions::default().rejoin_after;
            ensure!(lease <= longest, "lease must be at most {} s over several stores", longest.as_secs());
        }
        #[cfg(feature = "etcd")]
        LockAddress::Etcd(_) => {
            ensure!(ETCD_LEASE_MIN <= lease, "lease must be at least {} s on etcd", ETCD_LEASE_MIN.as_secs());
        }
        _ => {}
    }
    Ok(())
}

/// Opens the store.
pub(super) async fn open(plan: &Plan) -> Result<Locks, Failure> {
    let mut quorum = QuorumOptions::default();
    quorum.set = plan.set;
    let opening = Locks::connect_to(plan.store.clone()).quorum(quorum);
    #[cfg(feature = "etcd")]
    let opening = {
        let mut options = firstcome::lock::EtcdOptions::default();
        options.lease = plan.lease;
        opening.etcd(options)
    };
    opening.await.map_err(|error| match (&plan.store, error) {
        (LockAddress::Directory(directory), OpenLocksError::Directory(fault)) => place::not_opened(directory, fault),
        (_, error) => failure(error),
    })
}

/// Waits for the lock. Cancel-safe: see [`Locks::quiet`].
pub(super) async fn acquire(locks: &Locks, plan: &Plan) -> Result<Guard, LockError> {
    let request = locks.lock(&plan.name).owner(plan.owner.as_str()).lease(plan.lease).wait(plan.wait);
    plan.permits.into_iter().fold(request, LockRequest::permits).acquire().await
}

/// Returns the holder's name, if the store records it.
pub(super) async fn holder(locks: &Locks, plan: &Plan) -> Option<String> {
    let seen = locks.view(&plan.name).await.ok()?;
    seen.view.held.map(|(holder, ..)| holder.to_string())
}

/// Translates the error of a store that does not open to an exit code.
pub(super) fn failure(error: OpenLocksError) -> Failure {
    match error {
        OpenLocksError::Address(_) | OpenLocksError::Missing { .. } => Failure::Usage(error.into()),
        OpenLocksError::Redis(error) => redis_failure(error),
        #[cfg(feature = "etcd")]
        // An invalid address, or missing rights: the error says which.
        OpenLocksError::Etcd(firstcome::lock::EtcdError::Broken { .. }) => Failure::Usage(error.into()),
        OpenLocksError::Sql(SqlError::Broken { .. }) => Failure::Usage(error.into()),
        error => Failure::Unreachable(error.into()),
    }
}

/// Translates the error of a Redis that does not open to an exit code.
pub(super) fn redis_failure(error: OpenError) -> Failure {
    match error {
        OpenError::Address { .. } | OpenError::Quorum { .. } => Failure::Usage(error.into()),
        OpenError::Unreachable { .. }
        | OpenError::Tls { .. }
        | OpenError::NotRedis { .. }
        | OpenError::Denied { .. }
        | OpenError::NotReady { .. } => Failure::Unreachable(error.into()),
        // The server exists, but is unsuitable.
        _ => Failure::Refused(error.into()),
    }
}
