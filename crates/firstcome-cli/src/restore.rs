//! `firstcome restore`: makes a directory from a backup. All of it, or nothing that a service would start with.

use crate::backup::manifest::Manifest;
use crate::backup::{NAMES, bundle, check_file, tell};
use crate::failure::{Failure, Outcome};
use crate::keys::{KEYS_FILE, check_file as check_keys, private_file};
use crate::output::progress;
use crate::settings::{check_parent, refuse_file};
use anyhow::{Context, anyhow};
use clap::Args;
use firstcome::edge::{Clock, SystemClock};
use firstcome::sqlite::{Begun, Restore, StoreFile, raise_fences};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct RestoreArgs {
    /// The backup; - for standard input
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Directory to make, or one without a store; no service may be using it
    #[arg(long, env = "FIRSTCOME_DATA", value_name = "DIR", default_value = "./firstcome-data")]
    data: PathBuf,
}

pub(crate) fn run(args: &RestoreArgs) -> Outcome {
    let (input, length): (Box<dyn Read>, u64) = if args.from == Path::new("-") {
        (Box::new(io::stdin()), 0)
    } else {
        let unread = || format!("cannot read {}", args.from.display());
        let file = File::open(&args.from).with_context(unread).map_err(Failure::Usage)?;
        let length = file.metadata()?.len();
        (Box::new(file), length)
    };
    refuse_file(&args.data)?;
    check_parent(&args.data, "--data").map_err(Failure::Usage)?;
    let restore = match Restore::begin(&args.data, NAMES).map_err(Failure::Store)? {
        Begun::Restore(restore) => restore,
        Begun::Occupied(path) => {
            let shown = path.display();
            let says =
                anyhow!("{shown} is there already: restore into another directory, or move the store away first");
            return Err(Failure::Refused(says));
        }
    };
    let bar = progress(length, "restoring bytes");
    let manifest = unpack(bar.wrap_read(BufReader::new(input)), &args.from, &restore.staging())?;
    bar.finish_and_clear();
    check(&restore.staging())?;
    // A fence that was given after the backup must not be given again.
    raise_fences(&restore.staging(), SystemClock::default().now()).map_err(Failure::Store)?;
    restore.finish().map_err(Failure::Store)?;
    tell(&format!("restored {manifest}; every answer given after that is forgotten"));
    Ok(())
}

/// Writes the files of the backup into the directory, and compares their digests. Errors name the backup as `from`.
fn unpack(input: impl Read, from: &Path, staging: &Path) -> Result<Manifest, Failure> {
    let has_store = |_: &Manifest, names: &[String]| {
        let is_store = |name: &String| StoreFile::ALL.iter().any(|file| file.name() == name);
        if names.iter().any(is_store) { Ok(()) } else { Err(Failure::Refused(anyhow!("the backup holds no store"))) }
    };
    let place = |name: &str| {
        let path = staging.join(name);
        let file = private_file(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Box::new(BufWriter::new(file)) as Box<dyn io::Write>)
    };
    bundle::read(input, from, has_store, place)
}

/// Checks what will be installed, by the files alone.
fn check(staging: &Path) -> Outcome {
    check_keys(&staging.join(KEYS_FILE))?;
    for file in StoreFile::ALL {
        if staging.join(file.name()).exists() {
            check_file(staging, file)?;
        }
    }
    Ok(())
}
