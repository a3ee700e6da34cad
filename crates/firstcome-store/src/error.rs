//! Errors of stores that cannot reply. A refusal by a rule is not an error: see [`crate::Refused`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why the store could not reply.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Nothing was done, and nothing is broken: more work waits than can be done in time. Try again after this time.
    #[error("{says}; try again in {} ms", retry_after.as_millis())]
    Busy {
        /// What there is too much of, in words that any client may read.
        says: &'static str,
        /// When to try again. For a full queue: when the requests that wait now are done, by the measured rate.
        retry_after: Duration,
    },
    /// The claim has its place, and is not stored yet: the database is behind. It is neither a yes nor a no. Send the same
    /// request again after this time.
    #[error("the claim has its place and is not stored yet; ask again in {} ms", retry_after.as_millis())]
    NotStoredYet {
        /// When to ask again.
        retry_after: Duration,
    },
    /// Nothing was done because of a fault; its kind says whether it ends by itself. The caller may repeat the request
    /// later.
    #[error("the store cannot do it now: {0}")]
    Faulted(#[source] Arc<Fault>),
    /// The write may or may not have happened. Repeat the same request, never a new one.
    #[error("the outcome is unknown; repeat the same request")]
    Unknown,
}

/// Why a store does not open, or accepts no more writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// What happened, for the operator's log. May name files and causes, so HTTP clients never see it.
    pub detail: String,
}

/// The kinds of faults that an operator can meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultKind {
    /// Another process has this directory open.
    InUse,
    /// A later version wrote the file.
    Newer,
    /// The file is not a firstcome store.
    Foreign,
    /// The stored data contradicts itself, or the file is damaged.
    Damaged,
    /// The file or its directory cannot be written.
    ReadOnly,
    /// Another process writes to the file, and does not release it.
    Busy,
    /// No space is left.
    Full,
    /// A read, a write or a sync failed.
    Io,
    /// The server cannot be reached, or accepts no writes now.
    Unreachable,
    /// The server, its settings or its tables do not meet the requirements.
    Unfit,
    /// The writer stopped after a broken invariant.
    Stopped,
    /// The store lacks data that it acknowledged: it was restored from a backup, or failed over to a copy that was
    /// behind.
    WentBack,
}

impl FaultKind {
    /// All kinds of faults.
    pub const ALL: [Self; 12] = [
        Self::InUse,
        Self::Newer,
        Self::Foreign,
        Self::Damaged,
        Self::ReadOnly,
        Self::Busy,
        Self::Full,
        Self::Io,
        Self::Unreachable,
        Self::Unfit,
        Self::Stopped,
        Self::WentBack,
    ];

    /// What happened, in words that any client may read.
    pub const fn title(self) -> &'static str {
        match self {
            Self::InUse => "another process has the store open",
            Self::Newer => "a later version wrote the store",
            Self::Foreign => "the directory holds no firstcome store",
            Self::Damaged => "the stored data contradicts itself",
            Self::ReadOnly => "the store cannot be written",
            Self::Busy => "another process holds the store's file",
            Self::Full => "no space is left",
            Self::Io => "a read, a write or a sync failed",
            Self::Unreachable => "the server cannot be reached, takes no writes, or gave no answer in time",
            Self::Unfit => "the server does not keep what it acknowledges",
            Self::Stopped => "the writer stopped after a broken invariant",
            Self::WentBack => "the store lacks what it had acknowledged",
        }
    }

    /// What the operator should do.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::InUse => "stop the other process, or use another directory",
            Self::Newer => "use the version of firstcome that wrote it, or a later one",
            Self::Foreign => "name the directory of a firstcome store, or an empty one",
            Self::Damaged => "keep the files, restore a backup, and run `firstcome verify` on both",
            Self::ReadOnly => "make the directory and its files writable for this user",
            Self::Busy => {
                "end the other process or wait for it; a running service goes on by itself, and what was acknowledged is kept"
            }
            Self::Full => {
                "free some space; a running service goes on by itself, a stopped one must be started again; what was \
                 acknowledged is kept"
            }
            Self::Io => "check the disk and start again; what was acknowledged is kept",
            Self::Unreachable => {
                "check that the server runs, can be reached and has memory left; it is tried again by itself"
            }
            Self::Unfit => "change the server, its settings or the address as said, and start again",
            Self::Stopped => "start again; if it comes back, run `firstcome verify` and report it",
            Self::WentBack => {
                "list what is gone with `firstcome reconcile`; then bring the newer data back, or go on without it with \
                 `firstcome reconcile --accept-loss`"
            }
        }
    }

    /// A stable word for metrics and JSON.
    pub const fn code(self) -> &'static str {
        match self {
            Self::InUse => "in_use",
            Self::Newer => "newer",
            Self::Foreign => "foreign",
            Self::Damaged => "damaged",
            Self::ReadOnly => "read_only",
            Self::Busy => "busy",
            Self::Full => "full",
            Self::Io => "io",
            Self::Unreachable => "unreachable",
            Self::Unfit => "unfit",
            Self::Stopped => "stopped",
            Self::WentBack => "went_back",
        }
    }
}

impl StoreError {
    /// Makes the error of a queue that is full until this time has passed.
    pub const fn busy(retry_after: Duration) -> Self {
        Self::Busy { says: "too many requests wait", retry_after }
    }

    /// Makes the error of a request for which there was no time, for this reason.
    pub const fn busy_with(says: &'static str) -> Self {
        Self::Busy { says, retry_after: BUSY_RETRY }
    }
}

/// When to try a request again for which there was no time.
const BUSY_RETRY: Duration = Duration::from_secs(1);

impl Fault {
    /// Makes a fault. The detail says what happened and what to do.
    pub fn new(kind: FaultKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.kind.advice())
    }
}

impl std::error::Error for Fault {}
