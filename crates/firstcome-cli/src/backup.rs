//! `firstcome backup`: the files of a directory in one file or stream, as they stood at one moment, checked.
//!
//! A backup begins with a copy of each file ([`Snapshot`]), which is checked as `firstcome verify` checks a store. Only a
//! copy without a breach goes into the file. The file lies in a directory beside its name while it is written, is read back,
//! and gets its name when all of its digests fit.
//!
//! # What a repetition continues
//! Nothing: the state that a killed backup was copying is gone with its process. The next backup to the same name removes
//! what is left and begins anew, with a newer state.

pub(crate) mod bundle;
mod check;
pub(crate) mod manifest;
mod part;

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
    /// Directory for the copies while they are checked, with --to - [default: that of temporary files]
    #[arg(long, value_name = "DIR")]
    staging: Option<PathBuf>,
}

/// The names that a backup may have besides those of its own, in the order in which it has them.
pub(crate) const NAMES: &[&str] = &[KEYS_FILE, DATABASE_FILE, LOCKS_FILE];

pub(crate) fn run(args: &BackupArgs) -> Outcome {
    if args.to == Path::new("-") {
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
    let snapshots = snapshots(&args.data)?;
    let part = Part::beside(&args.to)?;
    let manifest = stage(&args.data, part.directory(), &snapshots)?;
    // A reader keeps the log of the service from being used again.
    drop(snapshots);
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
    let snapshots = snapshots(&args.data)?;
    let staging = part::temporary(args.staging.as_deref())?;
    let manifest = stage(&args.data, staging.path(), &snapshots)?;
    drop(snapshots);
    write(io::stdout().lock(), staging.path(), &manifest)?;
    tell(&format!("backed up {manifest} to standard output"));
    Ok(())
}

/// Opens a snapshot of each file that the directory has. The moments of the files are microseconds apart; no row of one file
/// refers to the other.
fn snapshots(data: &Path) -> Result<Vec<Snapshot>, Failure> {
    let mut snapshots = Vec::new();
    for file in StoreFile::ALL {
        snapshots.extend(Snapshot::open(data, file).map_err(Failure::Store)?);
    }
    if snapshots.is_empty() {
        return Err(no_store(data, &[DATABASE_FILE, LOCKS_FILE]));
    }
    Ok(snapshots)
}

/// Copies all files into a directory, checks the copies, and describes them.
fn stage(data: &Path, staging: &Path, snapshots: &[Snapshot]) -> Result<Manifest, Failure> {
    let taken_at: Timestamp = SystemClock::default().now();
    let mut files = Vec::new();
    // The keys are written once, whole. A store without them has its keys from the environment.
    match fs::read(data.join(KEYS_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => {
            let read = read.with_context(|| format!("cannot read {KEYS_FILE}"))?;
            let path = staging.join(KEYS_FILE);
            private_file(&path).and_then(|mut file| file.write_all(&read)).context("cannot copy the keys")?;
            crate::keys::check_file(&path)?;
            files.push(ManifestFile::of_keys(read.len() as u64));
        }
    }
    for snapshot in snapshots {
        let path = staging.join(snapshot.file().name());
        let bar = progress(0, "copying bytes");
        let copied = snapshot.copy_to(&path, |copied, of| {
            bar.set_length(of);
            bar.set_position(copied);
        });
        copied.map_err(Failure::Store)?;
        bar.finish_and_clear();
    }
    for snapshot in snapshots {
        files.push(check::describe(staging, snapshot.file())?);
    }
    Ok(Manifest::new(taken_at, files, check::coupons(staging, snapshots)?))
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
    bundle::read(bar.wrap_read(BufReader::new(file)), |_, _| Ok(()), |_| Ok(Box::new(io::sink())))?;
    bar.finish_and_clear();
    Ok(())
}

/// Says on standard error what was done. A closed standard error does not change the exit code.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
