//! A store of locks, as `firstcome lock --store` names it: whether each server answers, how it is reached, and what it keeps.
//!
//! Compares no clocks: only that of the store counts a lease.

#[cfg(feature = "etcd")]
mod etcd;

use super::{Findings, RedisUse, UNREACHED, Verdict, encryption, of_disk, of_link, of_settings};
use crate::failure::{Failure, Outcome};
use crate::lock::existing_store;
use crate::store_address::LockStoreArgs;
use crate::transport::Transport;
use firstcome::cluster::examine;
use firstcome::core::lock::quorum::Quorum;
use firstcome::lock::LockAddress;
use firstcome::redis::OpenError;
use firstcome::sqlite::standing_locks;
use std::path::Path;

/// The word for the store in the report.
const STORE: &str = "store";

/// The advice about replicas that may lack acknowledged commits.
const ASYNCHRONOUS: &str =
    "a copy that takes over may lack the last grants of locks: set synchronous_standby_names on PostgreSQL";

/// Reads the addresses that are named. Returns `None` without any. Refuses what `firstcome lock` refuses, and plain text that is not
/// allowed.
pub(super) fn read(args: &LockStoreArgs, transport: &Transport) -> Result<Option<LockAddress>, Failure> {
    let Some(store) = existing_store(&args.read()?).map_err(Failure::Usage)? else { return Ok(None) };
    if let LockAddress::Quorum(urls) = &store
        && Quorum::of(urls.len()).is_none()
    {
        let says = format!("they are {}", urls.len());
        return Err(Failure::Usage(OpenError::Quorum { says }.into()));
    }
    transport.locks(store).map(Some)
}

/// Checks the store.
pub(super) async fn check(store: &LockAddress, findings: &mut Findings) -> Outcome {
    if !matches!(store, LockAddress::Directory(_)) {
        findings.say(STORE, "address", store.to_string(), Verdict::Fine);
    }
    match store {
        LockAddress::Directory(directory) => {
            of_directory(directory, findings);
            Ok(())
        }
        LockAddress::Redis { url, .. } => of_link(STORE, url, RedisUse::Locks, findings).await.map(drop),
        LockAddress::Quorum(urls) => of_quorum(urls, findings).await,
        LockAddress::Postgres(url) => of_postgres(url, findings).await,
        #[cfg(feature = "etcd")]
        LockAddress::Etcd(url) => etcd::check(url, findings).await,
        // `read` refuses all others.
        _ => Ok(()),
    }
}

/// Checks the disk, and whether the locks can be read. Other users may have rights to a directory that they share.
fn of_directory(directory: &Path, findings: &mut Findings) {
    of_disk(STORE, directory, findings);
    match standing_locks(directory) {
        Ok(held) => findings.say(STORE, "locks", format!("{} held", held.len()), Verdict::Fine),
        Err(fault) => {
            let verdict =
                Verdict::Unsafe("see that this user may read it; `firstcome verify --data DIR` checks its file");
            findings.say(STORE, "locks", fault.to_string(), verdict);
        }
    }
}

/// Checks each server by itself, and names it in each finding.
async fn of_quorum(urls: &[String], findings: &mut Findings) -> Outcome {
    for url in urls {
        let found = firstcome::redis::destination(url).map_err(|error| Failure::Usage(error.into()))?;
        let of = match found.hosts.first() {
            Some(host) => format!("{STORE} {host}"),
            None => STORE.to_owned(),
        };
        of_link(&of, url, RedisUse::Quorum, findings).await?;
    }
    Ok(())
}

async fn of_postgres(url: &str, findings: &mut Findings) -> Outcome {
    match examine(url, None).await {
        Ok(found) => {
            of_settings(STORE, &found, ASYNCHRONOUS, findings);
            encryption::of_database(STORE, url, Some(found.tls_version.as_deref()), findings)
        }
        Err(error) => {
            findings.say(STORE, "reached", error.to_string(), UNREACHED);
            encryption::of_database(STORE, url, None, findings)
        }
    }
}
