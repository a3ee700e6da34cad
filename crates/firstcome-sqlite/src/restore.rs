//! Installs the files of a backup into a directory: all of them, or none that a service would start with.
//!
//! Files come in by a directory of their own, [`RESTORE_DIRECTORY`], within the data directory. While it stands, every open
//! of the data directory is refused. The files get their names one after the other, and the removal of that directory
//! makes them a store, in one step. So the data directory may be the root of a mount, which no rename could replace.
//!
//! Root installs files that belong to the owner of the data directory: a service of that user opens them.

use crate::faults::io_fault;
use crate::{lock, sync_directory};
use firstcome_store::{Fault, FaultKind};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The directory, within a data directory, of a restore that is under way or was cut off.
pub const RESTORE_DIRECTORY: &str = "restore.part";

/// What SQLite appends to the name of a file for its log, the index of the log, and its journal.
const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// Refuses a directory whose restore is not finished.
pub(super) fn refuse_unfinished(directory: &Path) -> Result<(), Fault> {
    if !directory.join(RESTORE_DIRECTORY).exists() {
        return Ok(());
    }
    let shown = directory.display();
    let detail = format!("a restore into {shown} is under way or was cut off: run `firstcome restore` again");
    Err(Fault::new(FaultKind::Foreign, detail))
}

/// The begin of a restore.
#[derive(Debug)]
pub enum Begun {
    /// The directory is locked for it.
    Restore(Restore),
    /// The directory has this file of a store already. Nothing was changed.
    Occupied(PathBuf),
}

/// A restore into a directory, which is locked and refused to every other process until [`Self::finish`].
///
/// A drop before that leaves the directory without a store. A process that is killed leaves a directory that is refused
/// until a restore into it is finished.
pub struct Restore {
    directory: PathBuf,
    names: &'static [&'static str],
    phase: Phase,
    lock: File,
}

firstcome_core::debug_by_name!(Restore);

#[derive(PartialEq, Eq)]
enum Phase {
    Staging,
    Installing,
}

impl Restore {
    /// Locks a directory for the restore of files with these names, and creates it if it is absent. Removes what a restore
    /// that was cut off has left. The [`Fault`] says what to do: another process may have the directory open.
    pub fn begin(directory: &Path, names: &'static [&'static str]) -> Result<Begun, Fault> {
        let staging = directory.join(RESTORE_DIRECTORY);
        // Before anything is made. A directory of a restore that was cut off holds no file but those of that restore.
        if let (false, Some(path)) = (staging.exists(), occupied(directory, names)) {
            return Ok(Begun::Occupied(path));
        }
        let lock = lock(directory)?;
        let failed = |error: std::io::Error| io_fault(&error, format!("cannot restore into {}", directory.display()));
        if staging.exists() {
            // The mark stays until all else is gone.
            for path in all(directory, names) {
                remove_file(&path).map_err(failed)?;
            }
            empty(&staging).map_err(failed)?;
        } else {
            private_directory(&staging).map_err(failed)?;
            // A process that opened the directory before the mark was made may have created a store.
            if let Some(path) = occupied(directory, names) {
                fs::remove_dir(&staging).map_err(failed)?;
                return Ok(Begun::Occupied(path));
            }
        }
        sync_directory(directory)?;
        Ok(Begun::Restore(Self { directory: directory.to_owned(), names, phase: Phase::Staging, lock }))
    }

    /// Returns the directory into which the caller writes the files, before [`Self::finish`].
    pub fn staging(&self) -> PathBuf {
        self.directory.join(RESTORE_DIRECTORY)
    }

    /// Syncs the files, gives them their names, and makes them a store. After an error the directory stays refused.
    pub fn finish(mut self) -> Result<(), Fault> {
        self.phase = Phase::Installing;
        let staging = self.staging();
        let install = || {
            let staged = || self.names.iter().map(|name| (staging.join(name), name)).filter(|(path, _)| path.exists());
            for (path, _) in staged() {
                let file = File::open(path)?;
                give_to_owner(&self.directory, &file)?;
                file.sync_all()?;
            }
            give_to_owner(&self.directory, &self.lock)?;
            for (path, name) in staged() {
                fs::rename(path, self.directory.join(name))?;
            }
            // Names before the mark goes: after a power cut no file may be missing.
            File::open(&self.directory)?.sync_all()?;
            fs::remove_dir_all(&staging)?;
            File::open(&self.directory)?.sync_all()
        };
        install().map_err(|error| io_fault(&error, format!("cannot install into {}", self.directory.display())))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        if self.phase == Phase::Staging {
            // If this fails, the directory stays refused, and the next restore removes it.
            let _ = fs::remove_dir_all(self.staging());
        }
    }
}

/// Returns the paths that a restore may have made, and those that SQLite keeps beside them.
fn all(directory: &Path, names: &[&str]) -> Vec<PathBuf> {
    let beside = |name: &&str| SUFFIXES.map(|suffix| directory.join(format!("{name}{suffix}")));
    names.iter().flat_map(beside).collect()
}

/// Returns a file of a store that the directory has.
fn occupied(directory: &Path, names: &[&str]) -> Option<PathBuf> {
    all(directory, names).into_iter().find(|path| path.symlink_metadata().is_ok())
}

/// Gives a file that root has made to the owner of its directory, as whom the service runs. A file of any other user stays.
fn give_to_owner(directory: &Path, file: &File) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        let (owner, made) = (fs::metadata(directory)?, file.metadata()?);
        if made.uid() == 0 && owner.uid() != 0 {
            fchown(file, Some(owner.uid()), Some(owner.gid()))?;
        }
    }
    Ok(())
}

fn remove_file(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn empty(directory: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        remove_file(&entry?.path())?;
    }
    Ok(())
}

fn private_directory(path: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}
