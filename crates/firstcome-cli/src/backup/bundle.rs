//! The file of a backup: a tar with a manifest first, then the files, and the SHA-256 of all of them last.
//!
//! Without this program, `tar xf FILE && sha256sum -c SHA256SUMS` unpacks and checks it. The digests find damage and a cut,
//! not a forger, who can compute them too.

use super::NAMES;
use super::manifest::Manifest;
use crate::failure::{Failure, Outcome};
use anyhow::{Context, anyhow};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Read, Write};
use std::path::Path;
use tar::{Archive, Builder, EntryType, Header};

/// The first entry.
const MANIFEST: &str = "manifest.json";
/// The last entry, which lists the digest and the name of each other one, as `sha256sum` writes them.
const DIGESTS: &str = "SHA256SUMS";
/// The longest manifest and list of digests, in bytes: that of a hundred thousand coupons.
const TEXT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The longest detail of an error that quotes a file.
const DETAIL_CHARS_MAX: usize = 200;

/// Hashes what passes through it.
struct Hashing<T> {
    inner: T,
    hasher: Sha256,
    bytes: u64,
}

impl<T> Hashing<T> {
    fn new(inner: T) -> Self {
        Self { inner, hasher: Sha256::new(), bytes: 0 }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    fn digest(self) -> String {
        self.hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.note(&buffer[..count]);
        Ok(count)
    }
}

/// Writes a backup.
pub(super) struct Bundle<W: Write> {
    tar: Builder<W>,
    digests: String,
}

impl<W: Write> Bundle<W> {
    /// Begins with the manifest.
    pub(super) fn new(out: W, manifest: &Manifest) -> Result<Self, Failure> {
        let mut bundle = Self { tar: Builder::new(out), digests: String::new() };
        let mut text = serde_json::to_vec_pretty(manifest)?;
        text.push(b'\n');
        bundle.add(MANIFEST, &*text, text.len() as u64)?;
        Ok(bundle)
    }

    /// Adds an entry of so many bytes.
    pub(super) fn add(&mut self, name: &str, from: impl Read, bytes: u64) -> Outcome {
        let mut from = Hashing::new(from.take(bytes));
        self.append(name, &mut from, bytes)?;
        if from.bytes != bytes {
            return Err(Failure::Refused(anyhow!("{name} became shorter while it was written")));
        }
        self.digests.push_str(&format!("{}  {name}\n", from.digest()));
        Ok(())
    }

    /// Ends with the digests.
    pub(super) fn finish(mut self) -> Outcome {
        let digests = std::mem::take(&mut self.digests);
        self.append(DIGESTS, digests.as_bytes(), digests.len() as u64)?;
        let mut out = self.tar.into_inner().context("cannot write the backup")?;
        out.flush().context("cannot write the backup")?;
        Ok(())
    }

    fn append(&mut self, name: &str, from: impl Read, bytes: u64) -> Outcome {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o600);
        header.set_size(bytes);
        Ok(self.tar.append_data(&mut header, name, from).context("cannot write the backup")?)
    }
}

/// The words for a file that is not what a backup wrote.
fn damaged(detail: impl std::fmt::Display) -> Failure {
    // Names and words of the file come in here: an error is one line.
    let detail = detail.to_string().chars().take(DETAIL_CHARS_MAX).collect::<String>();
    let detail = detail.replace(char::is_control, " ");
    Failure::Refused(anyhow!("the backup is damaged, cut off, or no backup: {detail}; use another one"))
}

/// The failure of a file that does not begin as a backup.
fn no_backup(from: &Path, why: &str) -> Failure {
    let shown = if from == Path::new("-") { "the standard input".to_owned() } else { from.display().to_string() };
    Failure::Usage(anyhow!("{shown} is no backup: {why}; give a file that `firstcome backup` wrote"))
}

/// Says why a read failed. The errors of the library quote the header, and a wrong file may hold secrets.
fn told(error: &io::Error) -> String {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(found) = cause {
        if let Some(code) = found.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(code).to_string();
        }
        cause = found.source();
    }
    "it is no tar, or not a whole one".to_owned()
}

/// Reads the backup `from`. `admit` sees the manifest first, and `place` says where each file goes.
///
/// # Errors
/// The file does not begin as a backup, which is wrong usage. Or the backup is damaged or cut off, of a later format, or has an
/// entry that no backup has. What `place` took is then of no use.
pub(crate) fn read(
    input: impl Read,
    from: &Path,
    admit: impl FnOnce(&Manifest, &[String]) -> Outcome,
    place: impl FnMut(&str) -> anyhow::Result<Box<dyn Write>>,
) -> Result<Manifest, Failure> {
    let mut tar = Archive::new(input);
    let manifest = entries(&mut tar, from, admit, place)?;
    // The end of a tar says nothing more, but a program that writes it to a pipe must not lose its reader.
    io::copy(&mut tar.into_inner(), &mut io::sink()).map_err(|error| damaged(told(&error)))?;
    Ok(manifest)
}

fn entries(
    tar: &mut Archive<impl Read>,
    from: &Path,
    admit: impl FnOnce(&Manifest, &[String]) -> Outcome,
    mut place: impl FnMut(&str) -> anyhow::Result<Box<dyn Write>>,
) -> Result<Manifest, Failure> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let mut admitted: Option<Manifest> = None;
    let mut admit = Some(admit);
    for entry in tar.entries().map_err(|error| damaged(told(&error)))? {
        let entry = entry.map_err(|error| match &admitted {
            Some(_) => damaged(told(&error)),
            None => no_backup(from, &told(&error)),
        })?;
        let bytes = entry.size();
        let name = entry.path().map_err(|error| damaged(told(&error)))?.to_string_lossy().into_owned();
        if admitted.is_none() && name != MANIFEST {
            return Err(no_backup(from, &format!("its first entry is not {MANIFEST}")));
        }
        if entry.header().entry_type() != EntryType::Regular || found.contains_key(&name) {
            return Err(damaged(format!("{name} is no file, or is there twice")));
        }
        let mut entry = Hashing::new(entry);
        match (name.as_str(), &admitted) {
            (MANIFEST, None) => {
                let text = text(&mut entry)?;
                check_length(&name, entry.bytes, bytes)?;
                let manifest = Manifest::parse(&text)?.map_err(damaged)?;
                let names: Vec<String> = manifest.files.iter().map(|file| file.name.clone()).collect();
                admit.take().map_or(Ok(()), |admit| admit(&manifest, &names))?;
                admitted = Some(manifest);
            }
            (DIGESTS, Some(_)) => {
                let listed = text(&mut entry)?;
                compare(&String::from_utf8_lossy(&listed), &found)?;
                return Ok(admitted.take().expect("this arm has it"));
            }
            (file, Some(_)) if NAMES.contains(&file) => {
                let mut out = place(file)?;
                copy(&mut entry, &mut out)?;
            }
            _ => return Err(damaged(format!("it has an entry {name:?} where none belongs"))),
        }
        check_length(&name, entry.bytes, bytes)?;
        found.insert(name, entry.digest());
    }
    match admitted {
        Some(_) => Err(damaged(format!("its end, {DIGESTS}, is missing"))),
        None => Err(no_backup(from, "it has no entries")),
    }
}

fn check_length(name: &str, read: u64, of: u64) -> Outcome {
    if read == of { Ok(()) } else { Err(damaged(format!("{name} has {read} of {of} bytes"))) }
}

/// Copies a file. An error of the input is damage; an error of the output is that of the disk.
fn copy(from: &mut impl Read, to: &mut impl Write) -> Outcome {
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => to.write_all(&chunk[..count]).context("cannot write")?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(damaged(told(&error))),
        }
    }
    Ok(to.flush().context("cannot write")?)
}

fn text(from: &mut impl Read) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    from.take(TEXT_BYTES_MAX).read_to_end(&mut text).map_err(|error| damaged(told(&error)))?;
    Ok(text)
}

/// Compares the digests of the backup with those of what was read: the same names, each with the same digest.
fn compare(listed: &str, found: &BTreeMap<String, String>) -> Outcome {
    let lines = listed.lines().map(|line| line.split_once("  ").map(|(digest, name)| (name, digest)));
    let listed: Option<BTreeMap<&str, &str>> = lines.collect();
    let listed = listed.ok_or_else(|| damaged(format!("{DIGESTS} cannot be read")))?;
    for (name, digest) in found {
        if listed.get(name.as_str()) != Some(&digest.as_str()) {
            return Err(damaged(format!("{name} is not what was backed up: its digest differs")));
        }
    }
    match listed.keys().find(|name| !found.contains_key(**name)) {
        Some(name) => Err(damaged(format!("{name} is missing"))),
        None => Ok(()),
    }
}
