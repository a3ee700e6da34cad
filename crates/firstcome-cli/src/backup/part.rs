//! The place of a backup that is being written.

use super::NAMES;
use super::rest::{REST, REST_NEW};
use crate::failure::{Failure, Outcome};
use anyhow::{Context, anyhow};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The file within the directory that a living backup locks.
const LOCK: &str = "lock";
/// The backup, until it gets its name.
const WHOLE: &str = "backup.tar";

/// What SQLite appends to the name of a file.
const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// A directory `FILE.part` beside the file, on the same file system, locked for as long as this process lives.
///
/// A drop removes it, unless it still has what a killed backup left. The next backup to the same name resumes or removes that.
pub(super) struct Part {
    directory: PathBuf,
    target: PathBuf,
    /// Whether it has what a killed backup left.
    has_rest: bool,
    _lock: File,
}

impl Part {
    /// Makes the directory, or takes over that of a killed backup with what is in it. Refuses while another backup to the same
    /// name is under way.
    pub(super) fn beside(target: &Path) -> Result<Self, Failure> {
        let mut name = target.as_os_str().to_owned();
        name.push(".part");
        let directory = PathBuf::from(name);
        let made = || format!("cannot make {}", directory.display());
        match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => created.with_context(made)?,
        }
        let listed = fs::read_dir(&directory).and_then(Iterator::collect::<Result<Vec<_>, _>>).with_context(made)?;
        // Before anything in it is changed or removed.
        if let Some(other) = listed.iter().find(|entry| !is_ours(&entry.file_name().to_string_lossy())) {
            let (shown, other) = (directory.display(), other.path());
            let says = anyhow!("{shown} is no rest of a backup, it has {}: name another file", other.display());
            return Err(Failure::Refused(says));
        }
        let path = directory.join(LOCK);
        let lock = File::options().create(true).truncate(false).write(true).open(&path).with_context(made)?;
        // The backup before may have ended, and have removed its directory, between the open and the lock.
        let is_locked = lock.try_lock().is_ok();
        let is_here = path.metadata().is_ok_and(|here| lock.metadata().is_ok_and(|it| it.ino() == here.ino()));
        if !is_locked || !is_here {
            let shown = target.display();
            return Err(Failure::Refused(anyhow!("another backup to {shown} is under way: wait for its end")));
        }
        Ok(Self { directory, target: target.to_owned(), has_rest: !listed.is_empty(), _lock: lock })
    }

    /// Removes what a killed backup left, except the files of these names. From then on a drop removes the directory. To be
    /// called before anything is written.
    pub(super) fn clear_except(&mut self, kept: &[&str]) -> Outcome {
        self.has_rest = false;
        let listed = fs::read_dir(&self.directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let shown = self.directory.display();
        for entry in listed.with_context(|| format!("cannot read {shown}"))? {
            if !entry.file_name().to_str().is_some_and(|name| name == LOCK || kept.contains(&name)) {
                fs::remove_file(entry.path()).with_context(|| format!("cannot remove {}", entry.path().display()))?;
            }
        }
        Ok(())
    }

    /// Returns the directory, in which copies lie while they are checked.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the file to write.
    pub(super) fn file(&self) -> PathBuf {
        self.directory.join(WHOLE)
    }

    /// Gives the synced file its name, durably. Without `replace` it takes no name that a file has.
    pub(super) fn persist(self, replace: bool) -> Result<(), Failure> {
        let (file, shown) = (self.file(), self.target.display());
        let named = if replace { fs::rename(&file, &self.target) } else { link(&file, &self.target) };
        match named {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(Failure::Refused(anyhow!("{shown} is there already: name another file, or add --replace")));
            }
            named => named.with_context(|| format!("cannot make {shown}"))?,
        }
        let parent = self.target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let sync = || File::open(parent.unwrap_or(Path::new(".")))?.sync_all();
        Ok(sync().with_context(|| format!("cannot sync the directory of {shown}"))?)
    }
}

/// Whether a backup may have made a file of this name. SQLite keeps others beside those of the store.
fn is_ours(name: &str) -> bool {
    let of_store = || NAMES.iter().any(|file| name.strip_prefix(file).is_some_and(|rest| SUFFIXES.contains(&rest)));
    [LOCK, WHOLE, REST, REST_NEW].contains(&name) || of_store()
}

/// Renames a file, unless the name is taken. On a file system without links the look before it is all there is.
fn link(file: &Path, target: &Path) -> std::io::Result<()> {
    match fs::hard_link(file, target) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        Err(_) if target.symlink_metadata().is_ok() => Err(ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(file, target),
        Ok(()) => Ok(()),
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.has_rest {
            // What stays is resumed or removed by the next backup to this name.
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Makes a directory for the copies of a backup that goes to a stream. A killed process leaves it.
pub(super) fn temporary(parent: Option<&Path>) -> Result<tempfile::TempDir, Failure> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("firstcome-backup-").permissions(fs::Permissions::from_mode(0o700));
    let made = parent.map_or_else(|| builder.tempdir(), |parent| builder.tempdir_in(parent));
    Ok(made.context("cannot make a directory for the copies; name another place with --staging")?)
}
