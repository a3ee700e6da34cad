//! `firstcome backup`: the files of a directory in one file or stream, as they stood at one moment, checked.
//!
//! A backup begins with a copy of each file ([`Snapshot`]), which is checked as `firstcome verify` checks a store. Only a
//! copy without a breach goes into the file. The file lies in a directory beside its name while it is written, is read back,
//! and gets its name when all of its digests fit.
//!
//! # What a repetition resumes
//! The state that a backup copies is gone with its process, so copies that are not whole are of no use. Whole ones lie beside
//! the file until it has its name: `--resume` goes on with their check, or with the file if they are checked ([`rest`]). The
//! backup then is of the earlier moment. Without `--resume` it begins anew, with a newer state.

pub(crate) mod bundle;
mod check;
pub(crate) mod manifest;
mod part;
mod rest;

pub(crate) use check::check_file;

use crate::failure::{Failure, Outcome};
use crate::keys::{KEYS_FILE, private_file};
use crate::output::progress;
use crate::settings::no_store;
use anyhow::{Context, anyhow};
use bundle::Bundle;
use clap::Args;
use firstcome::core::time::Timestamp;
use firstcome::edge::{Clock, SystemClock};
use firstcome::sqlite::{DATABASE_FILE, LOCKS_FILE, Snapshot, StoreFile};
use manifest::{Manifest, ManifestFile};
use part::Part;
use rest::{Copies, REST};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct BackupArgs {
    /// Directory of the embedded store; a service may be running on it
    #[arg(long, env = "FIRSTCOME_DATA", value_name = "DIR", default_value = "./firstcome-data")]
    data: PathBuf,
    /// New file to write, readable by you alone: it holds secrets; - for standard output
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Replace the file if it is there, once the new one is whole
    #[arg(long)]
    replace: bool,
    /// Go on from the whole copies that a killed backup to this file left, of its moment; without them begin anew
    #[arg(long)]
    resume: bool,
    /// Directory for the copies while they are checked, with --to - [default: that of temporary files]
    #[arg(long, value_name = "DIR")]
    staging: Option<PathBuf>,
}

/// The names that a backup may have besides those of its own, in the order in which it has them.
pub(crate) const NAMES: &[&str] = &[KEYS_FILE, DATABASE_FILE, LOCKS_FILE];

pub(crate) fn run(args: &BackupArgs) -> Outcome {
    if args.to == Path::new("-") {
        if args.resume {
            return Err(Failure::Usage(anyhow!("a stream cannot be resumed: name a file, and send that")));
        }
        return to_stream(args);
    }
    if args.staging.is_some() {
        return Err(Failure::Usage(anyhow!("--staging is for --to -: the copies lie beside the file otherwise")));
    }
    let shown = args.to.display();
    if args.to.is_dir() {
        return Err(Failure::Usage(anyhow!("{shown} is a directory: name a file in it")));
    }
    if !args.replace && args.to.symlink_metadata().is_ok() {
        return Err(Failure::Refused(anyhow!("{shown} is there already: name another file, or add --replace")));
    }
    let mut part = Part::beside(&args.to)?;
    let left = if args.resume { Copies::left_in(part.directory(), &args.data)? } else { None };
    let copies = match left {
        Some(copies) => {
            part.clear_except(&[NAMES, &[REST]].concat())?;
            tell(&format!("resuming the backup as of {}", copies.taken_at));
            copies
        }
        None => {
            // Before anything is removed: the directory may be misspelt.
            let snapshots = Snapshots::open(&args.data)?;
            part.clear_except(&[])?;
            let copies = snapshots.copy(&args.data, part.directory())?;
            copies.note(part.directory())?;
            copies
        }
    };
    let manifest = checked(copies, part.directory())?;
    let file = part.file();
    let out = private_file(&file).with_context(|| format!("cannot make {}", file.display()))?;
    write(BufWriter::new(&out), part.directory(), &manifest)?;
    out.sync_all().with_context(|| format!("cannot sync {}", file.display()))?;
    read_back(&file)?;
    part.persist(args.replace)?;
    tell(&format!("backed up {manifest} to {shown}"));
    Ok(())
}

/// Writes the backup to standard output. Its reader learns from the last entry that it is whole, and this process's exit
/// code says so too.
fn to_stream(args: &BackupArgs) -> Outcome {
    if io::stdout().is_terminal() {
        return Err(Failure::Usage(anyhow!(
            "a backup is no text for a terminal: name a file, or send it to a program"
        )));
    }
    let snapshots = Snapshots::open(&args.data)?;
    let staging = part::temporary(args.staging.as_deref())?;
    let manifest = check(staging.path(), &snapshots.copy(&args.data, staging.path())?)?;
    write(io::stdout().lock(), staging.path(), &manifest)?;
    tell(&format!("backed up {manifest} to standard output"));
    Ok(())
}

/// The files of a directory, as of one moment.
struct Snapshots {
    taken_at: Timestamp,
    files: Vec<Snapshot>,
}

impl Snapshots {
    /// Opens a snapshot of each file that the directory has. The moments of the files are microseconds apart; no row of one
    /// file refers to the other.
    fn open(data: &Path) -> Result<Self, Failure> {
        // Read first: what is answered while the files are opened may be missing in them.
        let taken_at = SystemClock::default().now();
        let mut files = Vec::new();
        for file in StoreFile::ALL {
            files.extend(Snapshot::open(data, file).map_err(Failure::Store)?);
        }
        if files.is_empty() {
            return Err(no_store(data, &[DATABASE_FILE, LOCKS_FILE]));
        }
        Ok(Self { taken_at, files })
    }

    /// Copies all files into an empty directory, and syncs them. Ends the snapshots: a reader keeps the log of the service from
    /// being used again.
    fn copy(self, data: &Path, staging: &Path) -> Result<Copies, Failure> {
        let mut names = Vec::new();
        // The keys are written once, whole. A store without them has its keys from the environment.
        match fs::read(data.join(KEYS_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            read => {
                let read = read.with_context(|| format!("cannot read {KEYS_FILE}"))?;
                let write = |mut file: File| file.write_all(&read).and_then(|()| file.sync_all());
                private_file(&staging.join(KEYS_FILE)).and_then(write).context("cannot copy the keys")?;
                names.push(KEYS_FILE);
            }
        }
        for snapshot in &self.files {
            let name = snapshot.file().name();
            let bar = progress(0, "copying bytes");
            let copied = snapshot.copy_to(&staging.join(name), |copied, of| {
                bar.set_length(of);
                bar.set_position(copied);
            });
            copied.map_err(Failure::Store)?;
            bar.finish_and_clear();
            names.push(name);
        }
        Copies::new(data, self.taken_at, staging, &names)
    }
}

/// Checks the copies, unless a backup before did, and notes what it found.
fn checked(mut copies: Copies, staging: &Path) -> Result<Manifest, Failure> {
    if let Some(manifest) = copies.manifest {
        return Ok(manifest);
    }
    let manifest = check(staging, &copies)?;
    copies.manifest = Some(manifest.clone());
    copies.note(staging)?;
    Ok(manifest)
}

/// Checks the copies, and describes them.
fn check(staging: &Path, copies: &Copies) -> Result<Manifest, Failure> {
    let mut files = Vec::new();
    if let Some(bytes) = copies.files.get(KEYS_FILE) {
        crate::keys::check_file(&staging.join(KEYS_FILE))?;
        files.push(ManifestFile::of_keys(*bytes));
    }
    for file in StoreFile::ALL {
        if copies.files.contains_key(file.name()) {
            files.push(check::describe(staging, file)?);
        }
    }
    let coupons = check::coupons(staging, &files)?;
    Ok(Manifest::new(&copies.taken_at, files, coupons))
}

/// Writes the backup from the staged files.
fn write(out: impl Write, staging: &Path, manifest: &Manifest) -> Outcome {
    let bar = progress(manifest.bytes(), "writing bytes");
    let mut bundle = Bundle::new(out, manifest)?;
    for file in &manifest.files {
        let path = staging.join(&file.name);
        let staged = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        bundle.add(&file.name, bar.wrap_read(BufReader::new(staged)), file.bytes)?;
    }
    bundle.finish()?;
    bar.finish_and_clear();
    Ok(())
}

/// Reads the file that was written, and compares its digests.
fn read_back(path: &Path) -> Outcome {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let bar = progress(file.metadata()?.len(), "reading bytes back");
    bundle::read(bar.wrap_read(BufReader::new(file)), path, |_, _| Ok(()), |_| Ok(Box::new(io::sink())))?;
    bar.finish_and_clear();
    Ok(())
}

/// Says on standard error what was done. A closed standard error does not change the exit code.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
