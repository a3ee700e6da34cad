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
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// The note.
pub(super) const REST: &str = "rest.json";
/// The note while it is written.
pub(super) const REST_NEW: &str = "rest.json.new";

/// Whole copies of the files of a store, of one moment.
#[derive(Serialize, Deserialize)]
pub(super) struct Copies {
    /// The version of the program that made them: another one may check more.
    program: String,
    /// The directory that was copied, quoted: no two directories are written alike, also of names that are no text.
    data: String,
    /// Every answer given before this moment is in them.
    pub(super) taken_at: String,
    /// Their lengths in bytes, by name.
    pub(super) files: BTreeMap<String, u64>,
    /// What the check found; none if it has not ended.
    pub(super) manifest: Option<Manifest>,
}

impl Copies {
    /// Describes copies of these names, which lie in the directory.
    pub(super) fn new(data: &Path, taken_at: Timestamp, directory: &Path, names: &[&str]) -> Result<Self, Failure> {
        let length = |name: &&str| Ok(((*name).to_owned(), directory.join(name).metadata()?.len()));
        let files = names.iter().map(length).collect::<io::Result<_>>();
        Ok(Self {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            data: quoted(data)?,
            taken_at: rfc3339::format(taken_at),
            files: files.with_context(|| format!("cannot read {}", directory.display()))?,
            manifest: None,
        })
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
        if copies.data != quoted(data)? {
            let (other, shown) = (copies.data, directory.display());
            let says = "name that one with --data, or begin anew without --resume";
            return Err(Failure::Refused(anyhow!("{shown} has the rest of a backup of {other}: {says}")));
        }
        let is_whole = copies.files.iter().all(|(name, bytes)| {
            directory.join(name).metadata().is_ok_and(|found| found.is_file() && found.len() == *bytes)
        });
        Ok(is_whole.then_some(copies))
    }
}

/// The absolute path of a directory, which need not be there any more.
fn quoted(data: &Path) -> Result<String, Failure> {
    let path = std::path::absolute(data).with_context(|| format!("cannot find {}", data.display()))?;
    Ok(format!("{path:?}"))
}
