//! The keys of callers. They come from the environment or files. Otherwise the first start makes them and shows them
//! once, on a terminal or in a file that only its owner can read; the data directory, or the database of a deployment, keeps
//! their digests.
//!
//! # Invariants
//! - No digest counts whose key no operator can read. The file is written before the digests are, under a name of its own, so a
//!   place where it cannot be written ends the start. From then on no error removes it, unless another process was faster. A
//!   start that finds the digests of such a file gives it its name.

pub(crate) mod command;

use crate::failure::{Failure, Outcome};
use crate::output::write_out;
use anyhow::{Context, anyhow, bail};
use firstcome::ApiKeyStore;
use firstcome::archive::{ArchivedSecret, ImportError};
use firstcome::cluster::Cluster;
use firstcome::core::api_key::{ApiKey, KeyBook, KeyCommand};
use firstcome::core::id::KeyName;
use firstcome_server::auth::{KEY_CHARS_MIN, KeyDigest, KeyScope, Keys, key_text};
use firstcome_server::{FirstKeys, Scope};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

/// The name of the file with the digests of the keys, in the directory of the embedded store.
pub(crate) const KEYS_FILE: &str = "keys.toml";
/// The file in which a first start without a terminal leaves its keys.
const FIRST_KEYS_FILE: &str = "first-keys.txt";
/// The begin and the end of the name that the file has at first.
const PART_PREFIX: &str = "first-keys.";
/// See [`PART_PREFIX`].
const PART_SUFFIX: &str = ".part";

/// The content of the key file: digests, from which the keys cannot be recovered.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    admin_sha256: String,
    service_sha256: Vec<String>,
}

/// Where a first start shows the keys that it has made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShownOn {
    Terminal,
    /// Output that is not a terminal is collected and kept, and so would be the keys.
    File,
}

impl ShownOn {
    /// As standard output demands.
    pub(crate) fn of_output() -> Self {
        if std::io::stdout().is_terminal() { Self::Terminal } else { Self::File }
    }
}

/// Keys that this process has just made, and shows once.
struct Fresh {
    admin: String,
    service: String,
    /// The file that has them, under a name that is not the last one; `None` for a terminal.
    part: Option<PathBuf>,
}

/// The variables of secrets, and what they contain. Each has a twin `…_FILE`, which names a file.
pub(crate) const SECRETS: [(&str, &str); 5] = [
    ("FIRSTCOME_ADMIN_KEY", "the admin key of callers"),
    ("FIRSTCOME_SERVICE_KEYS", "service keys, separated by commas"),
    ("FIRSTCOME_VIEW_KEYS", "keys that may only view, on the dashboard and over HTTP, separated by commas"),
    ("FIRSTCOME_SECRET", "the secret of a cluster: at least 32 random bytes in base64, the same on every node"),
    (
        "FIRSTCOME_SECRET_FALLBACK",
        "a second secret of a cluster, which opens what it has wrapped and wraps no more, while the secret is replaced",
    ),
];

/// Reads a variable of the environment.
pub(crate) fn variable(name: &str) -> anyhow::Result<Option<String>> {
    #[expect(clippy::disallowed_methods, reason = "secrets come in by the environment, never by the command line")]
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        // The error of the library repeats the value.
        Err(std::env::VarError::NotUnicode(_)) => Err(anyhow!("{name} is not UTF-8")),
    }
}

/// Reads a secret from the environment variable `name`, or from the file that `name_FILE` names.
pub(crate) fn from_environment(name: &str) -> anyhow::Result<Option<String>> {
    let file = format!("{name}_FILE");
    match (variable(name)?, variable(&file)?) {
        (Some(_), Some(_)) => bail!("set {name} or {file}, not both"),
        (Some(value), None) => Ok(Some(value)),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(&path).with_context(|| format!("{file}: cannot read {path}"))?;
            Ok(Some(text))
        }
        (None, None) => Ok(None),
    }
}

/// Parses keys, separated by newlines or commas.
fn parse(name: &str, text: &str) -> anyhow::Result<Vec<String>> {
    let keys: Vec<String> =
        text.split([',', '\n']).map(str::trim).filter(|key| !key.is_empty()).map(Into::into).collect();
    if keys.is_empty() {
        bail!("{name} holds no key");
    }
    for key in &keys {
        if key.len() < KEY_CHARS_MIN || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("{name}: a key must have at least {KEY_CHARS_MIN} visible ASCII characters");
        }
    }
    Ok(keys)
}

fn make(scope: KeyScope) -> anyhow::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("the system gives no random bytes: {error}"))?;
    Ok(key_text(scope, &bytes))
}

fn to_hex(digest: &KeyDigest) -> String {
    digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a SHA-256 digest; `None` if the text is none.
fn from_hex(text: &str) -> Option<KeyDigest> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(KeyDigest::from_bytes(bytes))
}

/// Returns the keys that the environment holds, or the files that it names.
pub(crate) fn given() -> Result<Option<Keys>, Failure> {
    let admin = from_environment("FIRSTCOME_ADMIN_KEY").map_err(Failure::Usage)?;
    let service = from_environment("FIRSTCOME_SERVICE_KEYS").map_err(Failure::Usage)?;
    if admin.is_none() && service.is_none() {
        return Ok(None);
    }
    let mut known = Vec::new();
    for (scope, name, text) in
        [(Scope::Admin, "FIRSTCOME_ADMIN_KEY", admin), (Scope::Service, "FIRSTCOME_SERVICE_KEYS", service)]
    {
        let keys = text.map_or(Ok(Vec::new()), |text| parse(name, &text)).map_err(Failure::Usage)?;
        known.extend(keys.iter().map(|key| (scope, KeyDigest::of(key))));
    }
    Ok(Some(Keys::Known(known)))
}

/// Returns the keys to view that the environment holds, or the files that it names: none unless an operator sets them.
pub(crate) fn view_keys() -> Result<Vec<KeyDigest>, Failure> {
    let name = "FIRSTCOME_VIEW_KEYS";
    let Some(text) = from_environment(name).map_err(Failure::Usage)? else { return Ok(Vec::new()) };
    let keys = parse(name, &text).map_err(Failure::Usage)?;
    Ok(keys.iter().map(|key| KeyDigest::of(key)).collect())
}

/// Refuses a damaged file of digests before a store is opened. A directory without the file is fine: the start makes keys.
pub(crate) fn check_directory(data: &Path) -> Outcome {
    stored(&data.join(KEYS_FILE)).map(drop).map_err(Failure::Usage)
}

/// Keys, and the file in which a first start has left them, if it is there.
pub(crate) type KeysAndFile = (Keys, Option<PathBuf>);

/// Returns the keys of the service over this directory. Makes and shows them if it has none. If several processes find none
/// at the same time, one makes them, and the others use those.
pub(crate) fn of_directory(data: &Path, shown_on: ShownOn) -> Result<KeysAndFile, Failure> {
    let path = data.join(KEYS_FILE);
    if let Some(keys) = stored(&path).map_err(Failure::Usage)? {
        let file = left(data, &keys);
        return Ok((keys, file));
    }
    // With a database the directory holds nothing but the keys, so nothing else has created it.
    private_directory(data).with_context(|| format!("cannot make {}", data.display()))?;
    let fresh = Fresh::make(data, shown_on)?;
    let [admin, service] = fresh.digests();
    let digests = Stored { admin_sha256: to_hex(&admin), service_sha256: vec![to_hex(&service)] };
    let is_first = write_private(data, &path, toml::to_string(&digests)?.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))?;
    // Another process was faster if it is not: the keys that were made here are discarded unseen.
    let keys = stored(&path)?.ok_or_else(|| anyhow!("{} was there and is gone", path.display()))?;
    if is_first {
        fresh.show()?;
    } else {
        fresh.discard();
    }
    let file = left(data, &keys);
    Ok((keys, file))
}

/// Returns the path of the file in which a first start has left these keys, if it is there. Gives it its name first: that start may
/// not have come so far.
fn left(directory: &Path, keys: &Keys) -> Option<PathBuf> {
    let path = std::path::absolute(directory.join(FIRST_KEYS_FILE)).ok()?;
    let is_part = |file: &PathBuf| {
        let name = file.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| name.starts_with(PART_PREFIX) && name.ends_with(PART_SUFFIX))
    };
    let mut files = std::fs::read_dir(directory).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    if !has_admin_key(&path, keys)
        && let Some(part) = files.find(|file| is_part(file) && has_admin_key(file, keys))
    {
        let named = std::fs::rename(&part, &path).and_then(|()| std::fs::File::open(directory)?.sync_all());
        // Another process may have done it just now.
        if named.is_err() && !has_admin_key(&path, keys) {
            return Some(part);
        }
    }
    has_admin_key(&path, keys).then_some(path)
}

/// Whether a file has the admin key among these.
fn has_admin_key(file: &Path, keys: &Keys) -> bool {
    let (Keys::Known(known), Ok(text)) = (keys, std::fs::read_to_string(file)) else { return false };
    let Some(key) = text.lines().find_map(|line| line.strip_prefix("admin ")) else { return false };
    let digest = KeyDigest::of(key);
    known.iter().any(|(scope, known)| *scope == Scope::Admin && known.as_bytes() == digest.as_bytes())
}

impl Fresh {
    /// Makes keys. For a file they are durable in the directory before this returns.
    fn make(directory: &Path, shown_on: ShownOn) -> Result<Self, Failure> {
        let (admin, service) = (make(KeyScope::Admin)?, make(KeyScope::Service)?);
        let part = || -> std::io::Result<PathBuf> {
            private_directory(directory)?;
            let mut part = tempfile::Builder::new().prefix(PART_PREFIX).suffix(PART_SUFFIX).tempfile_in(directory)?;
            part.write_all(format!("admin {admin}\nservice {service}\n").as_bytes())?;
            part.as_file().sync_all()?;
            std::fs::File::open(directory)?.sync_all()?;
            // No error from now on removes it: the digests may be durable.
            Ok(part.keep()?.1)
        };
        let part = match shown_on {
            ShownOn::Terminal => None,
            ShownOn::File => Some(part().map_err(|error| {
                let (directory, says) =
                    (directory.display(), "give keys by FIRSTCOME_ADMIN_KEY and FIRSTCOME_SERVICE_KEYS instead");
                Failure::Usage(anyhow!("cannot write the keys of this first start into {directory}: {error}; {says}"))
            })?),
        };
        Ok(Self { admin, service, part })
    }

    fn digests(&self) -> [KeyDigest; 2] {
        [&self.admin, &self.service].map(|key| KeyDigest::of(key))
    }

    /// Removes the keys, which are of no use.
    fn discard(self) {
        // A file that stays has keys that are none.
        let _ = self.part.map(std::fs::remove_file);
    }

    /// Shows the keys on a terminal, once their digests are durable.
    fn show(self) -> Outcome {
        let Self { admin, service, part } = self;
        if part.is_none() {
            let text =
                format!("keys, shown this once and kept only as digests:\n  admin   {admin}\n  service {service}\n");
            write_out(text.as_bytes())?;
        }
        Ok(())
    }
}

/// Has the store adopt the keys of the first start, unless the environment has given others. Returns the keys that stay outside
/// the store.
pub(crate) async fn adopted(
    given: Option<&Keys>,
    keys: Keys,
    store: &impl ApiKeyStore,
) -> Result<(Keys, FirstKeys), Failure> {
    if given.is_some() {
        return Ok((keys, FirstKeys::Replaced));
    }
    adopt(&keys, store).await?;
    Ok((Keys::Known(Vec::new()), FirstKeys::Accepted))
}

/// Has the store adopt the keys of the first start, so that they can be listed, rotated and revoked. Keys that it knows stay as
/// they are, the revoked ones too.
async fn adopt(keys: &Keys, store: &impl ApiKeyStore) -> Outcome {
    let Keys::Known(known) = keys else { return Ok(()) };
    for (scope, digest) in known {
        let is_same = |key: &ApiKey| (key.digest.as_bytes() == digest.as_bytes()).then_some(());
        if store.find_api_key(digest, is_same).is_some() {
            continue;
        }
        let scope = match scope {
            Scope::Admin => KeyScope::Admin,
            Scope::Service => KeyScope::Service,
            Scope::View | Scope::Public => KeyScope::View,
        };
        let name = KeyName::parse(scope.as_str())?;
        let adopted = store.change_api_keys(KeyCommand::Adopt { name, scope, digest: *digest }).await?;
        adopted.map_err(|rejection| anyhow!("the store does not take the keys of {KEYS_FILE}: {rejection:?}"))?;
    }
    Ok(())
}

/// The names of the digests in the secrets of a deployment.
const ADMIN: &str = "api_key:admin";
/// The name of the service key's digest; see [`ADMIN`].
const SERVICE: &str = "api_key:service";

/// Returns the keys of a service over a cluster. Makes them if it has none, and shows them as [`of_directory`] does. If several
/// nodes find none at the same time, one makes them, and the others use those.
pub(crate) async fn of_deployment(cluster: &Cluster, data: &Path, shown_on: ShownOn) -> Result<KeysAndFile, Failure> {
    // A node that finds keys needs no place for a file.
    let has_keys = cluster.keeps(ADMIN).await.map_err(Failure::of_cluster)?;
    let fresh = Fresh::make(data, if has_keys { ShownOn::Terminal } else { shown_on })?;
    let made = fresh.digests().map(|digest| *digest.as_bytes());
    let kept = cluster.keep(&[(ADMIN, made[0]), (SERVICE, made[1])]).await.map_err(Failure::of_cluster)?;
    // If the digests differ, another node was faster, now or long ago, and has shown its keys. Ours are discarded
    // unseen.
    if kept == made {
        fresh.show()?;
    } else {
        fresh.discard();
    }
    let digests = kept.iter().map(|digest| KeyDigest::from_bytes(*digest));
    let keys = Keys::Known([Scope::Admin, Scope::Service].into_iter().zip(digests).collect());
    let file = left(data, &keys);
    Ok((keys, file))
}

/// Returns the name, in exported data, of a further service key's digest, from the second one on.
fn further(number: usize) -> String {
    format!("{SERVICE}:{number}")
}

/// Whether this is the name of a further service key's digest in exported data. A deployment keeps only one service
/// key.
pub(crate) fn is_further(name: &str) -> bool {
    name.strip_prefix(SERVICE).is_some_and(|rest| rest.starts_with(':'))
}

/// Returns the digests of a directory as exported data holds them; none if it has none.
pub(crate) fn archived(data: &Path) -> anyhow::Result<Vec<ArchivedSecret>> {
    let Some(Keys::Known(known)) = stored(&data.join(KEYS_FILE))? else { return Ok(Vec::new()) };
    let mut services = 0;
    let name = |scope: Scope, services: &mut usize| {
        if scope == Scope::Admin {
            return ADMIN.to_owned();
        }
        *services += 1;
        if *services == 1 { SERVICE.to_owned() } else { further(*services) }
    };
    let secrets = known
        .into_iter()
        .map(|(scope, digest)| ArchivedSecret { name: name(scope, &mut services), bytes: *digest.as_bytes() });
    let mut secrets = secrets.collect();
    leave_out_ended(&mut secrets, &firstcome::sqlite::stored_api_keys(data)?);
    Ok(secrets)
}

/// Leaves the digests of the first start out if a key of them was rotated or revoked: it must not count again where the data go,
/// which then make keys of their own.
pub(crate) fn leave_out_ended(secrets: &mut Vec<ArchivedSecret>, book: &KeyBook) {
    let is_key = |secret: &ArchivedSecret| secret.name == ADMIN || secret.name == SERVICE || is_further(&secret.name);
    let has_ended = |secret: &ArchivedSecret| {
        let digest = KeyDigest::from_bytes(secret.bytes);
        let mut rows = book.candidates(&digest);
        rows.any(|key| *key.digest.as_bytes() == secret.bytes && (key.revoked_at.is_some() || key.expires_at.is_some()))
    };
    if secrets.iter().any(|secret| is_key(secret) && has_ended(secret)) {
        secrets.retain(|secret| !is_key(secret));
    }
}

/// Refuses a digest that differs from the directory's under the same name: idempotency keys are scoped by the digest.
pub(crate) fn check_archived(data: &Path, secret: &ArchivedSecret) -> anyhow::Result<()> {
    let there = archived(data)?;
    let is_key = secret.name == ADMIN || secret.name == SERVICE || is_further(&secret.name);
    if is_key && !there.is_empty() && !there.contains(secret) {
        return Err(ImportError::SecretDiffers(secret.name.clone()).into());
    }
    Ok(())
}

/// Writes the digests among these secrets into a directory that has none.
pub(crate) fn keep_archived(data: &Path, secrets: &BTreeMap<String, [u8; 32]>) -> anyhow::Result<()> {
    let digest = |name: &str| secrets.get(name).map(|bytes| to_hex(&KeyDigest::from_bytes(*bytes)));
    let (Some(admin_sha256), Some(first)) = (digest(ADMIN), digest(SERVICE)) else { return Ok(()) };
    let more = (2..).map_while(|number| digest(&further(number)));
    let service_sha256 = std::iter::once(first).chain(more).collect();
    let text = toml::to_string(&Stored { admin_sha256, service_sha256 })?;
    let path = data.join(KEYS_FILE);
    write_private(data, &path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

/// Checks that a file has digests of keys.
pub(crate) fn check_file(path: &Path) -> anyhow::Result<()> {
    stored(path).map(drop)
}

/// Reads the digests of this file, if it exists. An error is one line, and quotes nothing of the file.
fn stored(path: &Path) -> anyhow::Result<Option<Keys>> {
    let shown = path.display();
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => bail!("cannot read {shown}: {error}; make it readable for this user"),
        Ok(bytes) => bytes,
    };
    let damaged = |what: &str| {
        anyhow!("{shown} is damaged: {what}; take it from a backup, or move it away: a start without it makes new keys")
    };
    let text = String::from_utf8(bytes).map_err(|_| damaged("it is not UTF-8"))?;
    // The errors of the library quote the file.
    let stored: Stored = toml::from_str(&text).map_err(|error| {
        let before = text.get(..error.span().map_or(0, |span| span.start)).unwrap_or_default();
        damaged(&format!("line {} is not what firstcome wrote", before.matches('\n').count() + 1))
    })?;
    let digest = |field: &str, text: &str| {
        from_hex(text).ok_or_else(|| damaged(&format!("{field} is not 64 hexadecimal digits, a SHA-256 digest")))
    };
    let mut known = vec![(Scope::Admin, digest("admin_sha256", &stored.admin_sha256)?)];
    for text in &stored.service_sha256 {
        known.push((Scope::Service, digest("a key in service_sha256", text)?));
    }
    Ok(Some(Keys::Known(known)))
}

/// Writes a new file that only its owner can read, durably and atomically: a crash leaves all of it or nothing.
/// Returns `false`, and changes nothing, if a file of that name exists.
fn write_private(directory: &Path, path: &Path, bytes: &[u8]) -> std::io::Result<bool> {
    // A random name, since a process in another container may have the same process id.
    let mut part = tempfile::Builder::new().prefix("keys.").suffix(".part").tempfile_in(directory)?;
    part.write_all(bytes)?;
    part.as_file().sync_all()?;
    match part.persist_noclobber(path) {
        Err(refused) if refused.error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(false),
        persisted => persisted?,
    };
    std::fs::File::open(directory)?.sync_all()?;
    Ok(true)
}

/// Makes a directory that only its owner can enter, if it is absent.
fn private_directory(path: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Creates a file that only its owner can read.
pub(crate) fn private_file(path: &Path) -> std::io::Result<std::fs::File> {
    let mut options = std::fs::File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_empty_keys_are_refused() {
        assert!(parse("X", "").is_err());
        assert!(parse("X", " , \n").is_err());
        assert!(parse("X", &"k".repeat(21)).is_err());
        assert!(parse("X", &format!("{},{}", "k".repeat(22), "k".repeat(3))).is_err());
        assert!(parse("X", &format!("{} b", "k".repeat(22))).is_err());
        assert_eq!(parse("X", &format!("{}\n{},", "k".repeat(22), "l".repeat(30))).unwrap().len(), 2);
    }

    #[test]
    fn a_made_key_is_long_and_a_digest_comes_back_from_hex() {
        let key = make(KeyScope::Admin).unwrap();
        assert_eq!(key.len(), "fc_admin_".len() + 32);
        assert_ne!(key, make(KeyScope::Admin).unwrap());
        let digest = KeyDigest::of(&key);
        assert_eq!(from_hex(&to_hex(&digest)).unwrap().as_bytes(), digest.as_bytes());
        assert!(from_hex("00").is_none());
        assert!(from_hex(&"zz".repeat(32)).is_none());
        assert!(from_hex(&"+f".repeat(32)).is_none());
    }

    /// Returns the digests of keys, as they are stored.
    fn digests(keys: &Keys) -> Vec<String> {
        match keys {
            Keys::Known(known) => known.iter().map(|(_, digest)| to_hex(digest)).collect(),
            Keys::Dev => Vec::new(),
        }
    }

    #[test]
    fn first_starts_at_the_same_time_make_one_set_of_keys() {
        const STARTS: usize = 8;
        for _ in 0..20 {
            let directory = tempfile::tempdir().unwrap();
            let (data, together) = (directory.path().join("data"), std::sync::Barrier::new(STARTS));
            let start = || {
                together.wait();
                of_directory(&data, ShownOn::File).expect("each of them has keys")
            };
            let all: Vec<KeysAndFile> = std::thread::scope(|scope| {
                let starts: Vec<_> = (0..STARTS).map(|_| scope.spawn(start)).collect();
                starts.into_iter().map(|start| start.join().unwrap()).collect()
            });
            let left = std::fs::read_to_string(data.join(FIRST_KEYS_FILE)).expect("one of them has left its keys");
            let keys_left: Vec<&str> = left.split_whitespace().filter(|word| word.starts_with("fc_")).collect();
            let wanted: Vec<String> = keys_left.iter().map(|key| to_hex(&KeyDigest::of(key))).collect();
            for (keys, _) in &all {
                assert_eq!(digests(keys), wanted);
            }
            assert_eq!(std::fs::read_dir(&data).unwrap().count(), 2, "nothing is left beside them");
        }
    }

    #[test]
    fn a_first_start_on_a_terminal_makes_its_directory_and_names_no_file_of_other_keys() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("absent/data");
        let (first, file) = of_directory(&data, ShownOn::Terminal).expect("keys");
        assert_eq!(file, None);
        std::fs::write(data.join(FIRST_KEYS_FILE), "admin fc_admin_of_before\nservice x\n").unwrap();
        let (second, file) = of_directory(&data, ShownOn::File).expect("keys");
        assert_eq!((digests(&second), file), (digests(&first), None), "the keys in the file are none");
    }

    #[test]
    fn the_file_of_a_first_start_that_was_killed_gets_its_name_from_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let (keys, file) = of_directory(directory.path(), ShownOn::File).expect("keys");
        let file = file.expect("the keys were left");
        std::fs::write(directory.path().join("first-keys.Other1.part"), "admin fc_admin_of_a_loser\n").unwrap();
        std::fs::rename(&file, directory.path().join("first-keys.Ab12Cd.part")).unwrap();
        let (again, named) = of_directory(directory.path(), ShownOn::File).expect("keys");
        assert_eq!((digests(&again), named.as_ref()), (digests(&keys), Some(&file)));
        assert!(has_admin_key(&file, &keys));
    }

    #[test]
    fn keys_whose_file_cannot_get_its_name_are_found_where_they_are() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join(FIRST_KEYS_FILE)).unwrap();
        for _ in 0..2 {
            let (keys, file) = of_directory(directory.path(), ShownOn::File).expect("keys");
            assert!(file.is_some_and(|file| has_admin_key(&file, &keys)));
        }
    }
}
