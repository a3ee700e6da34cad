//! What a killed backup had finished, so that `--resume` goes on from there.
//!
//! The copies are of one moment that no later process can see again. So only whole copies are of use, and a note beside them
//! says that they are whole. It is written after the copies are durable, and once more when their check has ended.

use super::manifest::Manifest;
use crate::failure::{Failure, Outcome};
use crate::keys::private_file;
use anyhow::{Context, anyhow};
use firstcome::core::time::Timestamp;
use firstcome_server::rfc3339;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The note.
pub(super) const REST: &str = "rest.json";
/// The note while it is written.
pub(super) const REST_NEW: &str = "rest.json.new";

/// Whole copies of the files of a store, of one moment.
#[derive(Serialize, Deserialize)]
pub(super) struct Copies {
    /// The version of the program that made them: another one may check more.
    program: String,
    /// The directory that was copied.
    data: PathBuf,
    pub(super) taken_at: String,
    /// What the check found; none if it has not ended.
    pub(super) manifest: Option<Manifest>,
}

impl Copies {
    pub(super) fn new(data: &Path, taken_at: Timestamp) -> Result<Self, Failure> {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Self { program, data: absolute(data)?, taken_at: rfc3339::format(taken_at), manifest: None })
    }

    /// Writes the note beside the copies, durably. The copies are synced.
    pub(super) fn note(&self, directory: &Path) -> Outcome {
        let (new, path) = (directory.join(REST_NEW), directory.join(REST));
        let write = || {
            let mut file = private_file(&new)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            // Makes the names of the copies durable too.
            File::open(directory)?.sync_all()
        };
        Ok(write().with_context(|| format!("cannot write {}", path.display()))?)
    }

    /// Reads what a killed backup left in the directory. `None` if its copies are not whole, or another version made them.
    ///
    /// # Errors
    /// They are copies of another directory.
    pub(super) fn left_in(directory: &Path, data: &Path) -> Result<Option<Self>, Failure> {
        let path = directory.join(REST);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let Ok(copies) = serde_json::from_slice::<Self>(&text) else { return Ok(None) };
        if copies.program != env!("CARGO_PKG_VERSION") {
            return Ok(None);
        }
        if copies.data != absolute(data)? {
            let (other, shown) = (copies.data.display(), directory.display());
            let says = "name that one with --data, or begin anew without --resume";
            return Err(Failure::Refused(anyhow!("{shown} has the rest of a backup of {other}: {says}")));
        }
        let is_as_noted = copies.manifest.as_ref().is_none_or(|manifest| manifest.fits(directory));
        Ok(is_as_noted.then_some(copies))
    }
}

/// The directory need not be there any more.
fn absolute(data: &Path) -> Result<PathBuf, Failure> {
    Ok(std::path::absolute(data).with_context(|| format!("cannot find {}", data.display()))?)
}
