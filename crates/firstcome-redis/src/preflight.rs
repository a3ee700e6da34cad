//! Checks what a server is before anything is stored on it.

use super::error::OpenError;
use super::route::Among;
use std::fmt;

/// The oldest version that works. Scripts read the time and then write, which needs replication by effects (since 5.0).
/// They draw numbers with `SET ... GET` (since 6.2). Valkey reports itself as 7.2.
pub const MINIMUM_VERSION: Version = Version { major: 6, minor: 2, patch: 0 };

/// A version of Redis, or the one that Valkey reports itself as.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
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

/// What to do with a server that evicts keys when its memory is full.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Eviction {
    /// Do not use it: it could evict the key of a held lock, and grant the lock again.
    #[default]
    Refuse,
    /// Use it anyway.
    Allow,
}

/// Identifies one run of one server. A caller that remembers the run of its last write can tell that it now talks to
/// another server, or to the same one after a restart. Its write may then be lost.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Run {
    /// Changes with each start of a server. Empty if the server does not report it.
    pub run_id: Box<str>,
    /// Changes with each failover: it names the history of writes. Empty if the server does not report it.
    pub replication_id: Box<str>,
}

impl Run {
    /// Whether both are the same run of the same server. A run without an id equals no other.
    pub(crate) fn is_same_run(&self, other: &Self) -> bool {
        !self.run_id.is_empty() && self.run_id == other.run_id
    }
}

/// The answer to `INFO`.
pub(crate) struct Info<'a>(pub(crate) &'a str);

impl<'a> Info<'a> {
    pub(crate) fn says(&self, name: &str) -> Option<&'a str> {
        self.0.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
    }

    pub(crate) fn figure(&self, name: &str) -> Option<u64> {
        self.says(name)?.parse().ok()
    }

    pub(crate) fn version(&self) -> Option<Version> {
        self.says("redis_version").and_then(Version::parse)
    }

    pub(crate) fn run(&self) -> Run {
        let says = |name| self.says(name).unwrap_or_default().into();
        Run { run_id: says("run_id"), replication_id: says("master_replid") }
    }
}

/// Checks a server by its answer to `INFO`. Returns its run.
///
/// `INFO` reports everything needed, including the eviction policy (since 4.0). So `CONFIG`, which hosted servers often
/// forbid, is not needed. Checks in this order: version, sentinel, cluster, loading, replica, eviction.
pub(crate) fn judge(info: &str, eviction: Eviction, among: Among, address: &str) -> Result<Run, OpenError> {
    let info = Info(info);
    let Some(version) = info.version() else {
        let says = "it does not name its version".to_owned();
        return Err(OpenError::NotRedis { address: address.to_owned(), says });
    };
    if version < MINIMUM_VERSION {
        return Err(OpenError::TooOld { version, minimum: MINIMUM_VERSION });
    }
    // Valkey has another word for it since version 8.
    if ["redis_mode", "server_mode"].iter().any(|name| info.says(name) == Some("sentinel")) {
        return Err(OpenError::Sentinel);
    }
    match (info.says("cluster_enabled") == Some("1"), among) {
        (true, Among::None) => return Err(OpenError::Cluster),
        (false, Among::Cluster) => return Err(OpenError::NotCluster { address: address.to_owned() }),
        _ => {}
    }
    if info.says("loading") == Some("1") {
        let says = "it reads its data from disk".to_owned();
        return Err(OpenError::NotReady { code: "LOADING".to_owned(), says });
    }
    if info.says("role") == Some("slave") {
        return Err(OpenError::ReadOnlyReplica);
    }
    // A server that does not report its policy may evict keys.
    let policy = info.says("maxmemory_policy").unwrap_or("unknown");
    if policy != "noeviction" && eviction == Eviction::Refuse {
        return Err(OpenError::Eviction { policy: policy.to_owned() });
    }
    Ok(info.run())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:0a1b\r\n# Memory\r\n\
        maxmemory_policy:noeviction\r\n# Persistence\r\nloading:0\r\nasync_loading:0\r\n# Replication\r\nrole:master\r\n\
        master_replid:2c3d\r\n# Cluster\r\ncluster_enabled:0\r\n";

    fn judge_with(from: &str, to: &str) -> Result<(), OpenError> {
        assert!(GOOD.contains(from));
        judge(&GOOD.replace(from, to), Eviction::Refuse, Among::None, "here:1").map(drop)
    }

    #[test]
    fn a_usable_server_passes() {
        let run = Run { run_id: "0a1b".into(), replication_id: "2c3d".into() };
        assert_eq!(judge(GOOD, Eviction::Refuse, Among::None, "here:1"), Ok(run));
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
    fn a_node_is_for_the_address_of_a_cluster_and_for_no_other() {
        let node = GOOD.replace("cluster_enabled:0", "cluster_enabled:1");
        assert!(judge(&node, Eviction::Refuse, Among::Cluster, "here:1").is_ok());
        let not_cluster = Err(OpenError::NotCluster { address: "here:1".to_owned() });
        assert_eq!(judge(GOOD, Eviction::Refuse, Among::Cluster, "here:1").map(drop), not_cluster);
        assert_eq!(judge_with("redis_mode:standalone", "redis_mode:sentinel"), Err(OpenError::Sentinel));
        assert_eq!(judge_with("redis_mode:standalone", "server_mode:sentinel"), Err(OpenError::Sentinel));
    }

    #[test]
    fn only_a_run_that_is_named_is_the_same() {
        let is_same = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|run| Run { run_id: run.into(), replication_id: "2c3d".into() });
            one.is_same_run(&other)
        };
        assert!(is_same("0a1b", "0a1b"));
        for (one, other) in [("0a1b", "2c3d"), ("0a1b", ""), ("", "0a1b"), ("", "")] {
            assert!(!is_same(one, other), "{one:?} and {other:?}");
        }
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
        assert_eq!(
            judge(&GOOD.replace("noeviction", &policy()), Eviction::Allow, Among::None, "here:1").map(drop),
            Ok(())
        );
    }
}
