//! The source of an export: a directory, or a deployment.

use crate::cluster::Servers;
use crate::failure::Failure;
use crate::keys;
use crate::settings::{no_store, refuse_file};
use anyhow::Context;
use firstcome::ApiKeyStore;
use firstcome::archive::{
    ArchivedBid, ArchivedClaim, ArchivedCoupon, ArchivedHead, ArchivedLine, ArchivedListing, ArchivedRecord,
    ArchivedSecret,
};
use firstcome::cluster::{ClusterArchive, HANDLES, TransferError};
use firstcome::core::api_key::KeyBook;
use firstcome::embedded::journal::PassSecret;
use firstcome::sql::SqlError;
use firstcome::sqlite::{Archive, DATABASE_FILE, handle_secret};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Runtime;

/// A consistent view of all data.
pub(super) enum Source<'a> {
    Directory { archive: Archive, data: PathBuf },
    Deployment { archive: Box<ClusterArchive>, keys: Arc<KeyBook>, runtime: &'a Runtime },
}

/// Calls the same method of either archive: directly, or on the runtime.
macro_rules! from {
    ($source:expr, $archive:ident => $ask:expr) => {
        match $source {
            Source::Directory { archive: $archive, .. } => Ok($ask?),
            Source::Deployment { archive: $archive, runtime, .. } => Ok(runtime.block_on($ask)?),
        }
    };
}

impl<'a> Source<'a> {
    pub(super) fn directory(data: &Path) -> Result<Self, Failure> {
        refuse_file(data)?;
        if let Ok(false) = data.join(DATABASE_FILE).try_exists() {
            return Err(no_store(data, &[DATABASE_FILE]));
        }
        Ok(Self::Directory { archive: Archive::open(data).map_err(Failure::Store)?, data: data.to_owned() })
    }

    pub(super) fn deployment(servers: &Servers, runtime: &'a Runtime) -> Result<Self, Failure> {
        let cluster = servers.open_for_transfer(runtime)?;
        let archive = runtime.block_on(cluster.archive()).map_err(anyhow::Error::from)?;
        Ok(Self::Deployment { archive: Box::new(archive), keys: cluster.api_keys(), runtime })
    }

    pub(super) fn secrets(&mut self) -> anyhow::Result<Vec<ArchivedSecret>> {
        match self {
            Self::Directory { data, .. } => {
                let mut secrets = keys::archived(data)?;
                let handles = handle_secret(data).context("the secret of lock handles")?;
                secrets.extend(handles.map(|bytes| ArchivedSecret { name: HANDLES.to_owned(), bytes }));
                Ok(secrets)
            }
            Self::Deployment { archive, keys, runtime } => {
                let mut secrets = runtime.block_on(archive.secrets())?;
                keys::leave_out_ended(&mut secrets, keys);
                Ok(secrets)
            }
        }
    }

    pub(super) fn coupons(&mut self) -> anyhow::Result<Vec<(ArchivedCoupon, u64)>> {
        from!(self, archive => archive.coupons())
    }

    pub(super) fn for_each_claim(
        &mut self,
        visit: impl FnMut(ArchivedClaim) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        from!(self, archive => archive.for_each_claim(visit))
    }

    pub(super) fn pass_secrets(&mut self) -> anyhow::Result<Vec<PassSecret>> {
        from!(self, archive => archive.pass_secrets())
    }

    pub(super) fn for_each_ticket(
        &mut self,
        visit: impl FnMut(ArchivedLine) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        from!(self, archive => archive.for_each_ticket(visit))
    }

    pub(super) fn for_each_head(
        &mut self,
        visit: impl FnMut(ArchivedHead) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        from!(self, archive => archive.for_each_head(visit))
    }

    pub(super) fn listings(&mut self) -> anyhow::Result<Vec<ArchivedListing>> {
        from!(self, archive => archive.listings())
    }

    pub(super) fn for_each_record(
        &mut self,
        visit: impl FnMut(ArchivedRecord) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        from!(self, archive => archive.for_each_record(visit))
    }

    pub(super) fn for_each_bid(&mut self, visit: impl FnMut(ArchivedBid) -> anyhow::Result<()>) -> anyhow::Result<()> {
        from!(self, archive => archive.for_each_bid(visit))
    }
}

/// Whether the error leaves open if the import succeeded.
pub(super) fn is_unknown(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(TransferError::Sql(SqlError::Unknown { .. })))
}
