//! The servers of an etcd: each is asked for a lease, since every lock needs one.

use super::STORE;
use crate::doctor::{Findings, UNREACHED, Verdict, encryption};
use crate::failure::{Failure, Outcome};
use firstcome::address::Host;
use firstcome::etcd::{EtcdError, EtcdLocks, EtcdOptions, destination};
use std::time::Duration;

/// The lease that is asked for: short, since etcd keeps it until its end if doctor is killed.
const LEASE: Duration = Duration::from_secs(2);

/// Checks each server by itself, and how it is reached.
pub(super) async fn check(url: &str, findings: &mut Findings) -> Outcome {
    let found = destination(url).map_err(|error| Failure::Usage(error.into()))?;
    for host in &found.hosts {
        let (is, verdict) = match ask_for_lease(&address_of(url, host)).await {
            Ok(()) => ("grants a lease".to_owned(), Verdict::Fine),
            Err(error @ EtcdError::Broken { .. }) => (error.to_string(), Verdict::Unsafe("correct what it names")),
            Err(error) => (error.to_string(), UNREACHED),
        };
        findings.say(STORE, format!("answer of {host}"), is, verdict);
    }
    // Blocks this runtime, which has nothing else to do.
    encryption::of_destination(STORE, &found, findings);
    Ok(())
}

/// Gets a lease, as a process that locks does, and gives it back.
async fn ask_for_lease(url: &str) -> Result<(), EtcdError> {
    let mut options = EtcdOptions::default();
    options.lease = LEASE;
    let locks = EtcdLocks::open(url, options).await?;
    locks.close().await
}

/// Returns the address of one server of the cluster, with the user and the files of all.
fn address_of(url: &str, host: &Host) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let (authority, files) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
    let user = authority.rsplit_once('@').map_or_else(String::new, |(user, _)| format!("{user}@"));
    format!("{scheme}://{user}{host}{files}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_an_address_with_the_user_and_the_files_of_all() {
        for (url, expected) in [
            ("etcd://a,b", "etcd://b:2379"),
            ("etcd://ann:s%40cret@a:1,b:2/", "etcd://ann:s%40cret@b:2379/"),
            ("etcds://a:1,[::1]:2?cacert=/ca.pem&cert=/c.pem", "etcds://b:2379?cacert=/ca.pem&cert=/c.pem"),
        ] {
            assert_eq!(address_of(url, &Host::new("b", 2379)), expected, "{url}");
        }
        assert_eq!(address_of("etcds://a,[::1]:2/?key=/k", &Host::new("::1", 2)), "etcds://[::1]:2/?key=/k");
    }
}
