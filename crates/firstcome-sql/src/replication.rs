//! How servers that copy a database are kept: what a fail-over to one of them may lose.

/// Servers that copy a database, as far as the user of the connection may see them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replication {
    /// No server copies it now. Copies of files and archives of the log are not seen.
    None,
    /// A commit is acknowledged when a copy has it.
    Synchronous {
        /// Servers that copy it.
        replicas: u64,
    },
    /// A commit is acknowledged before a copy has it: a copy that takes over may lack the last ones.
    Asynchronous {
        /// Servers that copy it.
        replicas: u64,
    },
}

impl Replication {
    pub(super) const fn of(replicas: u64, waits: bool) -> Self {
        match (replicas, waits) {
            (0, false) => Self::None,
            (replicas, true) => Self::Synchronous { replicas },
            (replicas, false) => Self::Asynchronous { replicas },
        }
    }
}

pub(super) fn value<'a>(rows: &'a [(String, String)], name: &str) -> Option<&'a str> {
    rows.iter().find(|(named, _)| named.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// 0 where nothing is said.
pub(super) fn count(rows: &[(String, String)], name: &str) -> u64 {
    value(rows, name).and_then(|value| value.parse().ok()).unwrap_or(0)
}
