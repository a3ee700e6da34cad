//! Checks the files of a backup, before it is written and before it is installed.

use super::manifest::{Checked, ManifestCoupon, ManifestFile};
use crate::failure::{Failure, Outcome};
use anyhow::{Context, anyhow};
use firstcome::Check;
use firstcome::sqlite::{Archive, FileVersion, StoreFile, count_rows, verify, verify_locks, verify_pages};
use std::path::Path;

/// Checks a file of a directory, and returns what the manifest says of it.
pub(super) fn describe(directory: &Path, file: StoreFile) -> Result<ManifestFile, Failure> {
    let path = directory.join(file.name());
    let version = check_file(directory, file)?;
    let checked = match version {
        FileVersion::Current(_) => Checked::Invariants,
        FileVersion::Older(_) => Checked::Pages,
    };
    let rows = count_rows(&path).map_err(Failure::Store)?;
    let bytes = path.metadata().with_context(|| format!("cannot read {}", path.display()))?.len();
    let schema = Some(version.number());
    Ok(ManifestFile { name: file.name().to_owned(), bytes, schema, checked: Some(checked), rows })
}

/// Checks every invariant of a file of the current version, and the pages of a file of an older one. Refuses a later one.
pub(crate) fn check_file(directory: &Path, file: StoreFile) -> Result<FileVersion, Failure> {
    let path = directory.join(file.name());
    let version = file.version(&path).map_err(Failure::Store)?;
    let checks = match (version, file) {
        (FileVersion::Older(_), _) => verify_pages(&path).map(|check| vec![check]),
        (FileVersion::Current(_), StoreFile::Data) => verify(directory),
        (FileVersion::Current(_), StoreFile::Locks) => verify_locks(directory),
    };
    refuse_breaches(file, &checks.map_err(Failure::Store)?)?;
    Ok(version)
}

fn refuse_breaches(file: StoreFile, checks: &[Check]) -> Outcome {
    let Some(broken) = checks.iter().find(|check| 0 < check.breaches) else { return Ok(()) };
    let (name, invariant) = (file.name(), broken.invariant);
    let example = broken.examples.first().map(String::as_str).unwrap_or_default();
    Err(Failure::Refused(anyhow!(
        "{name} breaks an invariant, {invariant}: {example}; run `firstcome verify` on the directory, and keep its earlier backups"
    )))
}

/// Lists the coupons with the number of their claims; none if the file is of an older version, or absent.
pub(super) fn coupons(staging: &Path, files: &[ManifestFile]) -> Result<Vec<ManifestCoupon>, Failure> {
    let is_readable =
        |file: &ManifestFile| file.name == StoreFile::Data.name() && file.checked == Some(Checked::Invariants);
    if !files.iter().any(is_readable) {
        return Ok(Vec::new());
    }
    let coupons = Archive::open(staging).and_then(|archive| archive.coupons()).map_err(Failure::Store)?;
    let described = coupons.into_iter().map(|(coupon, issued)| ManifestCoupon {
        name: coupon.name.to_string(),
        limit: coupon.settings.limit.get(),
        issued,
    });
    Ok(described.collect())
}
