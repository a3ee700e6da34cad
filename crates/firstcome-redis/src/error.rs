//! The errors of a link, sorted by what a caller may conclude from them.

use super::preflight::{MINIMUM_VERSION, Version};
use firstcome_store::{Fault, FaultKind, StoreError};
use redis::{ErrorKind, RedisError};
use std::sync::Arc;

/// The code of [`LinkError::Unavailable`] while there is no connection.
pub(crate) const NOT_CONNECTED: &str = "NOTCONNECTED";
/// The code with which a server says that it does not know a script.
pub(crate) const NO_SCRIPT: &str = "NOSCRIPT";
/// The code with which a replica refuses writes.
pub(crate) const READ_ONLY: &str = "READONLY";

/// The code of a node that no longer has the slot of the keys.
pub(crate) const MOVED: &str = "MOVED";
/// The code of a node that is handing over the slot of the keys, and no longer has all of them.
pub(crate) const ASK: &str = "ASK";
/// The code of a multi-key command in a slot that is being migrated, while the keys are split between two nodes.
pub(crate) const TRY_AGAIN: &str = "TRYAGAIN";
/// The code of a node that cannot speak for its cluster.
pub(crate) const CLUSTER_DOWN: &str = "CLUSTERDOWN";

/// Codes with which a server refuses a whole command before it begins.
const TURNED_DOWN: [&str; 16] = [
    "OOM",
    READ_ONLY,
    "LOADING",
    "MASTERDOWN",
    "BUSY",
    "MISCONF",
    "NOREPLICAS",
    "NOAUTH",
    "NOPERM",
    "DENIED",
    CLUSTER_DOWN,
    MOVED,
    ASK,
    TRY_AGAIN,
    "CROSSSLOT",
    NO_SCRIPT,
];

/// Codes with which a server stops a running script at its first write, and never later: after a first write the script
/// may finish, or the condition cannot change while a script runs. `NOPERM` is not among them: it can hit any call.
const STOPPED_BEFORE_WRITING: [&str; 4] = ["OOM", READ_ONLY, "MISCONF", "NOREPLICAS"];

/// Why a script gave no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The script did nothing and will do nothing. The caller may try again later.
    #[error("the server takes no commands now ({code}): {says}")]
    Unavailable {
        /// `NOTCONNECTED`, or the code with which the server refused the command: `OOM`, `READONLY`, `LOADING`...
        code: String,
        /// What happened, for the operator's log.
        says: String,
    },
    /// The command was sent, and no answer came: it may have run, and it may still run. Repeat the same request, never
    /// a new one.
    #[error("the outcome is unknown ({says}); repeat the same request")]
    Unknown {
        /// What happened, for the operator's log.
        says: String,
    },
    /// The script ended in an error: one that it returned (`redis.error_reply`), or a bug. Its writes before the error
    /// stand.
    #[error("the script ended in an error ({code}): {says}")]
    Refused {
        /// The first word of the error.
        code: String,
        /// The rest of the error.
        says: String,
    },
}

impl LinkError {
    /// Combines the errors of a request that was sent over two connections.
    pub(crate) fn of_two(first: Self, second: Self) -> Self {
        // It was certainly not done only if neither connection did it.
        if matches!(first, Self::Unavailable { .. }) { second } else { first }
    }

    pub(crate) fn not_connected(says: impl Into<String>) -> Self {
        Self::Unavailable { code: NOT_CONNECTED.to_owned(), says: says.into() }
    }

    /// Whether the server does not know the script.
    pub(crate) fn is_no_script(&self) -> bool {
        matches!(self, Self::Unavailable { code, .. } if code == NO_SCRIPT)
    }
}

impl From<LinkError> for StoreError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Unavailable { code, says } => {
                Self::Faulted(Arc::new(Fault::new(FaultKind::Unreachable, format!("{code}: {says}"))))
            }
            // The script failed half way, and its earlier writes stand.
            LinkError::Unknown { .. } | LinkError::Refused { .. } => Self::Unknown,
        }
    }
}

/// Says what an error means after the command was sent.
impl From<RedisError> for LinkError {
    fn from(error: RedisError) -> Self {
        match answered(&error) {
            Some((code, says)) => judge(code, says),
            // The client cannot tell whether the connection broke before or after the command left.
            None => Self::Unknown { says: error.to_string() },
        }
    }
}

/// Returns the code and the text if the server answered with this error.
pub(crate) fn answered(error: &RedisError) -> Option<(&str, &str)> {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => Some((error.code()?, error.detail().unwrap_or_default())),
        _ => None,
    }
}

fn judge(code: &str, says: &str) -> LinkError {
    let (code, surely_not) = match inside(code, says) {
        Some(code) => (code, STOPPED_BEFORE_WRITING.contains(&code)),
        None => (code, TURNED_DOWN.contains(&code)),
    };
    let (code, says) = (code.to_owned(), says.to_owned());
    if surely_not { LinkError::Unavailable { code, says } } else { LinkError::Refused { code, says } }
}

/// Returns the code of an error that occurred inside a running script. Since 7.0 the server appends the place of the
/// error. Before, it wrapped the whole error, behind a `-`, in an error of its own.
fn inside<'a>(code: &'a str, says: &'a str) -> Option<&'a str> {
    if code == "ERR" && says.starts_with("Error running script (call to f_") {
        let inner = says.split_once(": -").map(|(_, inner)| inner.split(' ').next().unwrap_or_default());
        return Some(inner.unwrap_or(code));
    }
    (says.contains(" script: ") && says.contains(", on @")).then_some(code)
}

/// Why a link does not open.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL cannot be read.
    #[error(
        "the address of the server cannot be read ({says}); write it as redis://[user:password@]host[:port][/database], redis+sentinel://[user:password@]host[:port],…/primary[?db=database] or redis+cluster://[user:password@]host[:port],…, with rediss for TLS"
    )]
    Address {
        /// What is wrong with it.
        says: String,
    },
    /// No connection, or no answer in time.
    #[error("no server answers at {address} ({says}); check that it runs, and the address and the firewall between")]
    Unreachable {
        /// Host and port.
        address: String,
        /// What happened.
        says: String,
    },
    /// The TLS handshake failed. Nothing was sent in plain text.
    #[error("no TLS connection to {address}: {says}")]
    Tls {
        /// Host and port.
        address: String,
        /// What happened, and what to do.
        says: String,
    },
    /// Something other than Redis or Valkey answers.
    #[error("what answers at {address} is not Redis or Valkey ({says}); check the address")]
    NotRedis {
        /// Host and port.
        address: String,
        /// What it answered.
        says: String,
    },
    /// The user or the password is wrong, or the user lacks rights.
    #[error(
        "the server refused the login or a command ({code}: {says}); check user and password, and that it may use INFO, PING, SUBSCRIBE, SCRIPT, EVALSHA and EVAL, in a cluster CLUSTER, at a sentinel SENTINEL, and the commands of the scripts (+@read +@write +time +publish) on keys and channels that begin with fc:"
    )]
    Denied {
        /// The server's code: `NOAUTH`, `WRONGPASS`, `NOPERM`, `DENIED`.
        code: String,
        /// The server's text.
        says: String,
    },
    /// The server runs and is not ready: it loads data, is busy, or has too many clients.
    #[error("the server is not ready ({code}: {says}); try again later")]
    NotReady {
        /// The server's code.
        code: String,
        /// The server's text.
        says: String,
    },
    /// Its version lacks a feature that the scripts need.
    #[error("the server is version {version}, and {minimum} is the oldest that works; upgrade it")]
    TooOld {
        /// The version that it reports.
        version: Version,
        /// The oldest version that works.
        minimum: Version,
    },
    /// It evicts keys when its memory is full.
    #[error(
        "the server evicts keys when its memory is full (maxmemory-policy {policy}); set maxmemory-policy noeviction"
    )]
    Eviction {
        /// Its policy.
        policy: String,
    },
    /// It is a replica and accepts no writes.
    #[error("the server is a replica and takes no writes; name its primary")]
    ReadOnlyReplica,
    /// It is part of a cluster, but the address is of the form for one server.
    #[error("the server is part of a cluster; write its address as redis+cluster://host[:port],…")]
    Cluster,
    /// It is not part of a cluster, but the address is of the form for a cluster.
    #[error("the server at {address} is no part of a cluster; write its address as redis://host[:port]")]
    NotCluster {
        /// Host and port.
        address: String,
    },
    /// It is a sentinel, but the address is of the form for a server.
    #[error(
        "what answers is a sentinel, which keeps nothing; write its address as redis+sentinel://host[:port],…/primary"
    )]
    Sentinel,
    /// It is not a sentinel, but the address says so.
    #[error(
        "what answers at {address} is no sentinel; check the address, or write that of a server as redis://host[:port]"
    )]
    NotSentinel {
        /// Host and port.
        address: String,
    },
    /// The servers of a quorum are too few, too many, or not independent.
    #[error(
        "these servers cannot be a quorum ({says}); name 3 to 9 servers, each once, as redis://[user:password@]host[:port][/database]"
    )]
    Quorum {
        /// What is wrong with them.
        says: String,
    },
    /// The sentinels know no primary by this name.
    #[error("the sentinels know no primary by the name {name}; check the name against their \"sentinel monitor\"")]
    UnknownPrimary {
        /// The name.
        name: String,
    },
}

impl OpenError {
    /// Says what an error means while a connection is opened and checked.
    pub(crate) fn while_opening(error: &RedisError, address: &str) -> Self {
        if let Some((code, says)) = answered(error) {
            let (code, says) = (code.to_owned(), says.to_owned());
            return match code.as_str() {
                "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => Self::Denied { code, says },
                _ => Self::NotReady { code, says },
            };
        }
        if let Some(says) = firstcome_tls::explain(error) {
            return Self::Tls { address: address.to_owned(), says };
        }
        let says = error.to_string();
        match error.kind() {
            // HELLO came with 6.0.
            ErrorKind::RESP3NotSupported => {
                Self::TooOld { version: Version { major: 5, minor: 0, patch: 0 }, minimum: MINIMUM_VERSION }
            }
            ErrorKind::AuthenticationFailed => Self::Denied { code: "NOAUTH".to_owned(), says },
            ErrorKind::InvalidClientConfig => Self::Address { says },
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Self::NotRedis { address: address.to_owned(), says },
            _ => Self::Unreachable { address: address.to_owned(), says },
        }
    }

    /// Whether the error is about what the server is. Trying again later cannot help then.
    pub(crate) const fn is_verdict(&self) -> bool {
        // The operator may renew a certificate.
        !matches!(self, Self::Unreachable { .. } | Self::Tls { .. } | Self::NotReady { .. } | Self::ReadOnlyReplica)
    }

    /// Returns the error for callers while this error prevents a new connection.
    pub(crate) fn into_unavailable(self) -> LinkError {
        let says = self.to_string();
        let code = match self {
            Self::Denied { code, .. } | Self::NotReady { code, .. } => code,
            Self::ReadOnlyReplica => READ_ONLY.to_owned(),
            _ => NOT_CONNECTED.to_owned(),
        };
        LinkError::Unavailable { code, says }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error that a caller gets for an error line from the server.
    fn told(line: &str) -> LinkError {
        let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an error can be read");
        LinkError::from(reply.extract_error().expect_err("it is an error"))
    }

    #[track_caller]
    fn assert_unavailable(line: &str, expected: &str) {
        let LinkError::Unavailable { code, .. } = told(line) else { panic!("{:?}", told(line)) };
        assert_eq!(code, expected);
    }

    #[track_caller]
    fn assert_refused(line: &str, expected: &str) {
        let LinkError::Refused { code, .. } = told(line) else { panic!("{:?}", told(line)) };
        assert_eq!(code, expected);
    }

    #[test]
    fn what_a_server_turns_down_was_surely_not_done() {
        for code in TURNED_DOWN {
            assert_unavailable(&format!("{code} some reason"), code);
        }
        assert_unavailable("LOADING Redis is loading the dataset in memory", "LOADING");
        assert_unavailable("BUSY Redis is busy running a script. You can only call SCRIPT KILL.", "BUSY");
    }

    #[test]
    fn a_script_that_was_stopped_at_its_first_write_did_nothing() {
        let place = "script: 9b2bb7bc2eb5b8bd6a7b1b1ff2f2e5c0e1b0a3c4, on @user_script:1.";
        for code in STOPPED_BEFORE_WRITING {
            assert_unavailable(&format!("{code} not allowed {place}"), code);
            assert_unavailable(
                &format!(
                    "ERR Error running script (call to f_9b2b): @user_script:1: @user_script: 1: -{code} not allowed"
                ),
                code,
            );
        }
    }

    #[test]
    fn a_script_that_lacked_a_right_may_have_written_before() {
        assert_refused("NOPERM ACL failure in script: no channel script: 9b2b, on @user_script:2.", "NOPERM");
        assert_refused("ERR Error running script (call to f_9b2b): @user_script:2: -NOPERM no channel", "NOPERM");
    }

    #[test]
    fn errors_of_the_script_are_its_own() {
        assert_refused("FENCED an older number", "FENCED");
        assert_refused("WRONGTYPE Operation against a key holding the wrong kind of value", "WRONGTYPE");
        assert_refused("ERR user_script:1: Script attempted to access nonexistent global", "ERR");
        assert_refused("ERR Error running script (call to f_9b2b): @user_script:1: attempt to index nil", "ERR");
    }

    #[test]
    fn what_went_two_ways_was_surely_not_done_only_if_both_say_so() {
        let [unavailable, unknown, refused] = [
            LinkError::not_connected("one"),
            LinkError::Unknown { says: "two".to_owned() },
            LinkError::Refused { code: "ERR".to_owned(), says: "three".to_owned() },
        ];
        for sure in [&unknown, &refused] {
            for (first, second) in [(&unavailable, sure), (sure, &unavailable)] {
                assert_eq!(LinkError::of_two(first.clone(), second.clone()), *sure, "{first:?} and {second:?}");
            }
        }
        let both = LinkError::of_two(unavailable, LinkError::not_connected("other"));
        assert!(matches!(both, LinkError::Unavailable { .. }));
    }

    #[test]
    fn a_broken_connection_is_unknown() {
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(matches!(LinkError::from(RedisError::from(broken)), LinkError::Unknown { .. }));
    }
}
