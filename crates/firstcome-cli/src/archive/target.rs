//! The target of an import: a directory, or a deployment. An import takes all rows, or none.

use crate::cluster::Servers;
use crate::failure::Failure;
use crate::keys;
use crate::settings::refuse_file;
use anyhow::bail;
use firstcome::archive::Incoming;
use firstcome::cluster::{Cluster, ClusterImporter, HANDLES};
use firstcome::core::coupon::CouponSettings;
use firstcome::core::id::CouponName;
use firstcome::core::time::Timestamp;
use firstcome::sqlite::{Importer, keep_handle_secret};
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;

/// The store that takes the rows.
pub(super) enum Target<'a> {
    Directory { importer: Box<Importer>, data: PathBuf },
    Deployment { importer: Box<ClusterImporter>, runtime: &'a Runtime, _fleet: Cluster },
}

impl<'a> Target<'a> {
    pub(super) fn directory(data: &Path, now: Timestamp) -> Result<Self, Failure> {
        refuse_file(data)?;
        let importer = Importer::open(data, now).map_err(Failure::Store)?;
        Ok(Self::Directory { importer: Box::new(importer), data: data.to_owned() })
    }

    pub(super) fn deployment(servers: &Servers, runtime: &'a Runtime) -> Result<Self, Failure> {
        let cluster = servers.open_for_transfer(runtime)?;
        let importer = runtime.block_on(cluster.import()).map_err(anyhow::Error::from)?;
        Ok(Self::Deployment { importer: Box::new(importer), runtime, _fleet: cluster })
    }

    pub(super) fn new_coupon(&mut self, name: CouponName, settings: CouponSettings) -> anyhow::Result<()> {
        match self {
            Self::Directory { importer, .. } => Ok(importer.new_coupon(name, settings)?),
            Self::Deployment { importer, runtime, .. } => Ok(runtime.block_on(importer.new_coupon(name, settings))?),
        }
    }

    pub(super) fn take(&mut self, row: Incoming) -> anyhow::Result<()> {
        match self {
            Self::Directory { importer, data } => {
                if let Incoming::Secret(secret) = &row {
                    keys::check_archived(data, secret)?;
                }
                Ok(importer.take(row)?)
            }
            Self::Deployment { importer, runtime, .. } => {
                if let Incoming::Secret(secret) = &row
                    && keys::is_further(&secret.name)
                {
                    bail!(
                        "the keys of the directory have more than one for services, and a deployment keeps one: give all keys to each \
                         node (FIRSTCOME_ADMIN_KEY, FIRSTCOME_SERVICE_KEYS), and export without keys.toml"
                    );
                }
                Ok(runtime.block_on(importer.take(row))?)
            }
        }
    }

    /// Commits all rows. Writes the secrets that have files of their own just before. A process that is killed in
    /// between leaves only these files behind, and the same import can then run again.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Directory { mut importer, data } => {
                importer.check()?;
                keys::keep_archived(&data, importer.secrets())?;
                if let Some(secret) = importer.secrets().get(HANDLES) {
                    keep_handle_secret(&data, secret)?;
                }
                Ok(importer.finish()?)
            }
            Self::Deployment { importer, runtime, .. } => Ok(runtime.block_on(importer.finish())?),
        }
    }
}
