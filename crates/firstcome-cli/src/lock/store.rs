//! Where the locks are.

use crate::Failure;
use anyhow::bail;
use firstcome::Locks;
use firstcome::lock::OpenError;

/// Whether this can be a store at all.
pub(super) fn check(store: &str) -> anyhow::Result<()> {
    match store.split_once("://") {
        Some((scheme, _)) if !scheme.starts_with("redis") => {
            bail!("no locks are reached by {scheme}://; write a directory or redis://…")
        }
        None if store.is_empty() => bail!("the store is empty; write a directory or redis://…"),
        _ => Ok(()),
    }
}

/// Opens the locks of a store.
pub(super) async fn open_locks(store: &str) -> Result<Locks, Failure> {
    if !store.contains("://") {
        return Locks::open(store).map_err(Failure::Store);
    }
    Locks::redis(store).await.map_err(|error| match error {
        OpenError::Address { .. } => Failure::Usage(error.into()),
        OpenError::Unreachable { .. }
        | OpenError::NotRedis { .. }
        | OpenError::Denied { .. }
        | OpenError::NotReady { .. } => Failure::Unreachable(error.into()),
        // There, and not fit.
        _ => Failure::Refused(error.into()),
    })
}
