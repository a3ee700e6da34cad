//! What a server must be before anything is kept on it.

use super::error::OpenError;
use std::fmt;

/// The oldest version that works. Scripts ask for the time and then write, which is replicated by its effects since 5.0;
/// they draw numbers with `SET ... GET`, which came with 6.2. Valkey says 7.2 of itself.
pub const MINIMUM_VERSION: Version = Version { major: 6, minor: 2, patch: 0 };

/// A version of Redis, or the one that Valkey claims to be like.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third.
    pub patch: u32,
}

impl Version {
    /// Reads `7.0.15`, `7.2` or `8.0.0-rc1`.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('-').next()?.split('.').map(|part| part.parse().ok());
        let major = numbers.next()??;
        let mut next = || numbers.next().unwrap_or(Some(0));
        Some(Self { major, minor: next()?, patch: next()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What to do with a server that throws keys away when its memory is full.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Eviction {
    /// Do not use it: it could throw away a lock that somebody holds, and grant it again.
    #[default]
    Refuse,
    /// Use it all the same.
    Allow,
}

/// Judges a server by its answer to `INFO`; returns which run of which server it is.
///
/// That one answer has all there is to know, the eviction policy too (since 4.0), so `CONFIG` is not needed, which hosted
/// servers often forbid. In this order: version, cluster, loading, replica, eviction.
pub(crate) fn judge(info: &str, eviction: Eviction, address: &str) -> Result<Box<str>, OpenError> {
    let says = |name: &str| info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'));
    let Some(version) = says("redis_version").and_then(Version::parse) else {
        let says = "it does not name its version".to_owned();
        return Err(OpenError::NotRedis { address: address.to_owned(), says });
    };
    if version < MINIMUM_VERSION {
        return Err(OpenError::TooOld { version, minimum: MINIMUM_VERSION });
    }
    if says("cluster_enabled") == Some("1") {
        return Err(OpenError::Cluster);
    }
    if says("loading") == Some("1") {
        let says = "it reads its data from disk".to_owned();
        return Err(OpenError::NotReady { code: "LOADING".to_owned(), says });
    }
    if says("role") == Some("slave") {
        return Err(OpenError::ReadOnlyReplica);
    }
    // One that does not say could do anything.
    let policy = says("maxmemory_policy").unwrap_or("unknown");
    if policy != "noeviction" && eviction == Eviction::Refuse {
        return Err(OpenError::Eviction { policy: policy.to_owned() });
    }
    Ok(says("run_id").unwrap_or_default().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:0a1b\r\n# Memory\r\n\
        maxmemory_policy:noeviction\r\n# Persistence\r\nloading:0\r\nasync_loading:0\r\n# Replication\r\nrole:master\r\n\
        # Cluster\r\ncluster_enabled:0\r\n";

    fn judge_with(from: &str, to: &str) -> Result<(), OpenError> {
        assert!(GOOD.contains(from));
        judge(&GOOD.replace(from, to), Eviction::Refuse, "here:1").map(drop)
    }

    #[test]
    fn a_usable_server_passes() {
        assert_eq!(judge(GOOD, Eviction::Refuse, "here:1"), Ok("0a1b".into()));
    }

    #[test]
    fn valkey_passes_by_the_version_that_it_is_like() {
        assert_eq!(judge_with("7.0.15", "7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1"), Ok(()));
    }

    #[test]
    fn the_oldest_version_is_the_limit() {
        assert_eq!(judge_with("7.0.15", "6.2.0"), Ok(()));
        let version = Version { major: 6, minor: 0, patch: 16 };
        assert_eq!(judge_with("7.0.15", "6.0.16"), Err(OpenError::TooOld { version, minimum: MINIMUM_VERSION }));
        assert_eq!(judge_with("7.0.15", "10.0"), Ok(()), "numbers are compared as numbers");
    }

    #[test]
    fn versions_are_read_with_and_without_their_tails() {
        let version = |major, minor, patch| Some(Version { major, minor, patch });
        assert_eq!(Version::parse("7.0.15"), version(7, 0, 15));
        assert_eq!(Version::parse("7.2"), version(7, 2, 0));
        assert_eq!(Version::parse("8.0.0-rc1"), version(8, 0, 0));
        assert_eq!(Version::parse("255.255.255"), version(255, 255, 255));
        for wrong in ["", "seven", "7.x", "-7"] {
            assert_eq!(Version::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_names_no_version_is_not_redis() {
        assert!(matches!(judge_with("redis_version", "version"), Err(OpenError::NotRedis { .. })));
    }

    #[test]
    fn clusters_replicas_and_loading_servers_are_refused() {
        assert_eq!(judge_with("cluster_enabled:0", "cluster_enabled:1"), Err(OpenError::Cluster));
        assert_eq!(judge_with("role:master", "role:slave"), Err(OpenError::ReadOnlyReplica));
        let loading = judge_with("\nloading:0", "\nloading:1");
        assert!(matches!(loading, Err(OpenError::NotReady { code, .. }) if code == "LOADING"));
    }

    #[test]
    fn a_server_that_forgets_needs_a_word() {
        let policy = || "allkeys-lru".to_owned();
        assert_eq!(judge_with("noeviction", "allkeys-lru"), Err(OpenError::Eviction { policy: policy() }));
        assert!(matches!(judge_with("maxmemory_policy", "other"), Err(OpenError::Eviction { .. })));
        assert_eq!(judge(&GOOD.replace("noeviction", &policy()), Eviction::Allow, "here:1").map(drop), Ok(()));
    }
}
