//! Facts about a server, from which an operator can judge whether acknowledged writes survive.

use super::preflight::{Info, Run, Version};

/// What a server reports about itself. These are not conditions: a link opens with any of them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ServerFacts {
    /// Host and port.
    pub address: String,
    /// Its version.
    pub version: Option<Version>,
    /// The current run of the server.
    pub run: Run,
    /// Whether it is a primary or a replica.
    pub role: Role,
    /// Whether it is part of a cluster.
    pub in_cluster: bool,
    /// Whether it appends every write to a file. Without this a restart loses all writes after the last snapshot.
    pub append_only: bool,
    /// When appended writes are synced to disk. `None` if the server forbids `CONFIG GET`.
    pub fsync: Option<Fsync>,
    /// Whether a restart finds all writes in the append-only file: no rewrite of the file is under way, and the last
    /// one succeeded. During a rewrite, a restart reads the old file.
    pub file_is_whole: bool,
    /// How much memory it may use, in bytes; 0 is without a limit.
    pub memory_bytes_max: Option<u64>,
    /// What it does when its memory is full: `noeviction`, or the name of an eviction policy.
    pub eviction_policy: Option<String>,
    /// How many replicas are connected.
    pub replicas: u64,
    /// How many replicas must be in step before it accepts writes; 0 is none. `None` if the server forbids `CONFIG
    /// GET`.
    pub replicas_needed: Option<u64>,
    /// How many replicas are in step by that measure. `None` if none are needed.
    pub replicas_in_step: Option<u64>,
}

/// The role of a server in replication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It takes writes.
    Primary,
    /// It follows a primary.
    Replica,
}

/// When an appended write is synced to disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fsync {
    /// Before the write is acknowledged.
    Always,
    /// Within about a second.
    EverySecond,
    /// When the operating system decides.
    Never,
}

impl ServerFacts {
    /// Reads the answers to `INFO`, and to `CONFIG GET` of `appendfsync` and `min-replicas-to-write`.
    pub fn read(address: String, info: &str, sync: Option<&str>, replicas_needed: Option<&str>) -> Self {
        let info = Info(info);
        Self {
            address,
            version: info.version(),
            run: info.run(),
            role: if info.says("role") == Some("slave") { Role::Replica } else { Role::Primary },
            in_cluster: info.says("cluster_enabled") == Some("1"),
            append_only: info.says("aof_enabled") == Some("1"),
            fsync: match sync {
                Some("always") => Some(Fsync::Always),
                Some("everysec") => Some(Fsync::EverySecond),
                Some("no") => Some(Fsync::Never),
                _ => None,
            },
            file_is_whole: info.figure("aof_rewrite_in_progress").unwrap_or_default() == 0
                && info.figure("aof_rewrite_scheduled").unwrap_or_default() == 0
                && info.says("aof_last_bgrewrite_status").unwrap_or("ok") == "ok",
            memory_bytes_max: info.figure("maxmemory"),
            eviction_policy: info.says("maxmemory_policy").map(str::to_owned),
            replicas: info.figure("connected_slaves").unwrap_or_default(),
            replicas_needed: replicas_needed.and_then(|needed| needed.parse().ok()),
            replicas_in_step: info.figure("min_slaves_good_slaves"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "redis_version:7.0.15\r\nrun_id:0a1b\r\nmaxmemory:1024\r\nmaxmemory_policy:noeviction\r\n\
        aof_enabled:1\r\nrole:master\r\nconnected_slaves:2\r\nmaster_replid:2c3d\r\ncluster_enabled:0\r\n";

    #[test]
    fn what_a_server_says_is_read() {
        let facts = ServerFacts::read("one:1".to_owned(), INFO, Some("always"), Some("1"));
        let expected = ServerFacts {
            address: "one:1".to_owned(),
            version: Some(Version { major: 7, minor: 0, patch: 15 }),
            run: Run { run_id: "0a1b".into(), replication_id: "2c3d".into() },
            role: Role::Primary,
            in_cluster: false,
            append_only: true,
            fsync: Some(Fsync::Always),
            file_is_whole: true,
            memory_bytes_max: Some(1_024),
            eviction_policy: Some("noeviction".to_owned()),
            replicas: 2,
            replicas_needed: Some(1),
            replicas_in_step: None,
        };
        assert_eq!(facts, expected);
    }

    #[test]
    fn what_a_server_does_not_say_is_unknown() {
        let facts = ServerFacts::read("one:1".to_owned(), "role:slave\r\nmin_slaves_good_slaves:1\r\n", None, None);
        assert_eq!((facts.role, facts.fsync, facts.replicas_needed), (Role::Replica, None, None));
        assert_eq!((facts.version, facts.memory_bytes_max, facts.eviction_policy), (None, None, None));
        assert_eq!((facts.append_only, facts.replicas, facts.replicas_in_step), (false, 0, Some(1)));
        for (text, fsync) in [("everysec", Some(Fsync::EverySecond)), ("no", Some(Fsync::Never)), ("other", None)] {
            assert_eq!(ServerFacts::read(String::new(), "", Some(text), None).fsync, fsync);
        }
    }
}
