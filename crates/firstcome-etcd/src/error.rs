//! Errors between this process and etcd, sorted by what a caller may conclude.

use firstcome_store::{Fault, FaultKind, StoreError};
use std::sync::Arc;
use tonic::{Code, Status};

/// Why a request to etcd failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// etcd certainly did nothing. Safe to repeat later.
    #[error("etcd cannot be used now, and nothing was done: {says}")]
    Unavailable {
        /// [`FaultKind::Unreachable`] or [`FaultKind::Full`].
        kind: FaultKind,
        /// What happened, for the operator's log.
        says: String,
    },
    /// The connection broke, or no answer came in time. etcd may have done the request, or may still do it.
    #[error("the outcome is unknown ({says}); repeat the same request")]
    Unknown {
        /// What happened, for the operator's log.
        says: String,
    },
    /// The address, the user, its rights or the server is wrong: a repeat fails too. etcd did nothing.
    #[error("etcd cannot be used: {says}")]
    Broken {
        /// What must change.
        says: String,
    },
    /// The lease of this process is over, and so are its holds and places. etcd did nothing.
    #[error("the lease of this process has ended, and nothing was done")]
    LeaseOver,
}

impl EtcdError {
    pub(crate) fn unreachable(says: impl Into<String>) -> Self {
        Self::Unavailable { kind: FaultKind::Unreachable, says: says.into() }
    }

    pub(crate) fn broken(says: impl Into<String>) -> Self {
        Self::Broken { says: says.into() }
    }

    /// Makes the error for an answer that did not come in time.
    pub(crate) fn late(sent: Sent) -> Self {
        sent.broken_off("no answer in time")
    }

    /// Returns whether the user lacks rights.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Self::Broken { says } if says == WITHOUT_RIGHTS)
    }

    /// Returns whether a repeat may succeed.
    pub(crate) const fn may_pass(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Unknown { .. })
    }
}

impl From<EtcdError> for StoreError {
    fn from(error: EtcdError) -> Self {
        let fault = |kind, says| Self::Faulted(Arc::new(Fault::new(kind, says)));
        match error {
            EtcdError::Unavailable { kind, says } => fault(kind, says),
            EtcdError::Unknown { .. } => Self::Unknown,
            EtcdError::Broken { says } => fault(FaultKind::Unfit, says),
            EtcdError::LeaseOver => fault(FaultKind::Unreachable, error.to_string()),
        }
    }
}

/// What an operator must do for a user who lacks rights.
const WITHOUT_RIGHTS: &str = "this user may not read and write the keys of locks: \
     `etcdctl role grant-permission ROLE readwrite --prefix=true firstcome/`, or the prefix that is set";

/// Whether a request can change anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    Read,
    Write,
}

impl Sent {
    /// Makes the error for a request that has no answer, and will get none.
    fn broken_off(self, says: impl Into<String>) -> EtcdError {
        let says = says.into();
        match self {
            Self::Read => EtcdError::unreachable(says),
            Self::Write => EtcdError::Unknown { says },
        }
    }
}

/// What the client does after an error from etcd.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Judged {
    /// Report it. The connection and its server are still good.
    Final(EtcdError),
    /// Try another server.
    Elsewhere(EtcdError),
    /// Get a new token. etcd did nothing.
    TokenOver,
}

/// Interprets an error. Its texts are part of etcd's interface: etcd's own clients distinguish errors by them.
pub(crate) fn judge(status: &Status, sent: Sent) -> Judged {
    let says = status.message().strip_prefix("etcdserver: ").unwrap_or(status.message());
    let begins = |starts: &[&str]| starts.iter().any(|start| says.starts_with(start));
    if begins(&["requested lease not found"]) {
        return Judged::Final(EtcdError::LeaseOver);
    }
    if begins(&["invalid auth token", "revision of auth store is old"]) {
        return Judged::TokenOver;
    }
    if let Some(wanted) = unfit(status.code(), says) {
        return Judged::Final(EtcdError::broken(wanted));
    }
    if begins(&["mvcc: database space exceeded", "no space"]) {
        let says = "its database is full: compact and defragment it, then `etcdctl alarm disarm`".to_owned();
        return Judged::Final(EtcdError::Unavailable { kind: FaultKind::Full, says });
    }
    // The server checks for a leader before it does anything, because `request` asks for that.
    if begins(&["no leader", "too many requests", "not capable", "rpc not supported for learner"]) {
        return Judged::Elsewhere(EtcdError::unreachable(says));
    }
    let says = format!("{:?}: {says}", status.code());
    match status.code() {
        Code::InvalidArgument | Code::OutOfRange | Code::Unimplemented => Judged::Final(EtcdError::broken(says)),
        _ => Judged::Elsewhere(sent.broken_off(says)),
    }
}

/// Returns what must change before a repeat can succeed.
fn unfit(code: Code, says: &str) -> Option<&'static str> {
    let begins = |start: &str| says.starts_with(start);
    if begins("authentication failed") {
        return Some("it does not know this user with this password: correct etcd://user:password@host:port");
    }
    if begins("user name is empty") || begins("user name not found") {
        return Some("it wants a user and a password: etcd://user:password@host:port");
    }
    (code == Code::PermissionDenied).then_some(WITHOUT_RIGHTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(judged: &Judged) -> &'static str {
        let (place, error) = match judged {
            Judged::TokenOver => return "token",
            Judged::Final(error) => ("final", error),
            Judged::Elsewhere(error) => ("elsewhere", error),
        };
        match (place, error) {
            ("final", EtcdError::LeaseOver) => "lease",
            ("final", EtcdError::Broken { .. }) => "broken",
            ("final", EtcdError::Unavailable { kind: FaultKind::Full, .. }) => "full",
            ("elsewhere", EtcdError::Unavailable { .. }) => "not done",
            ("elsewhere", EtcdError::Unknown { .. }) => "unknown",
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_may_have_been_done_is_never_called_undone() {
        for (code, says, read, write) in [
            (Code::Unavailable, "etcdserver: request timed out", "not done", "unknown"),
            (Code::Unavailable, "etcdserver: leader changed", "not done", "unknown"),
            (Code::Unavailable, "etcdserver: no leader", "not done", "not done"),
            (Code::Unavailable, "transport error", "not done", "unknown"),
            (Code::Unknown, "h2 protocol error", "not done", "unknown"),
            (Code::Cancelled, "", "not done", "unknown"),
            (Code::DeadlineExceeded, "context deadline exceeded", "not done", "unknown"),
            (Code::ResourceExhausted, "etcdserver: too many requests", "not done", "not done"),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "full", "full"),
            (Code::NotFound, "etcdserver: requested lease not found", "lease", "lease"),
            (Code::Unauthenticated, "etcdserver: invalid auth token", "token", "token"),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", "token", "token"),
            (Code::InvalidArgument, "etcdserver: user name is empty", "broken", "broken"),
            (Code::PermissionDenied, "etcdserver: permission denied", "broken", "broken"),
            (Code::InvalidArgument, "etcdserver: request is too large", "broken", "broken"),
            (Code::Unimplemented, "unknown service", "broken", "broken"),
        ] {
            let status = Status::new(code, says);
            assert_eq!(word(&judge(&status, Sent::Read)), read, "{says}");
            assert_eq!(word(&judge(&status, Sent::Write)), write, "{says}");
        }
    }
}
