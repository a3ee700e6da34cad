//! What can go wrong between here and a database, sorted by what a caller may conclude.

use firstcome_store::{Fault, FaultKind, StoreError};
use sqlx::mysql::MySqlDatabaseError;
use std::sync::Arc;
use std::time::Duration;

/// When to come back after a conflict, or after a wait for a connection: some of those before are through by then.
const CONFLICT_RETRY: Duration = Duration::from_millis(100);

/// What sqlx says of a server without TLS.
const NO_TLS: &str = "server does not support TLS";
/// What to do about it.
const TLS_DEMANDED: &str = "the server offers no TLS, and the address demands it: switch TLS on at the server (ssl=on, ssl-cert), or write sslmode=disable (ssl-mode=DISABLED) for a connection in plain text";

/// Why a database gave no answer.
///
/// Two functions sort an error of sqlx, since the same error means another thing in another place:
/// [`Self::in_transaction`] where nothing was sent that could commit, [`Self::at_commit`] where something was.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqlError {
    /// A conflict with others, who were served first: a serialization failure, a deadlock, or a lock that was waited for in
    /// vain. Nothing was done. Do all of the transaction again.
    #[error("the database aborted the transaction in favour of another, and nothing was written: {says}")]
    Serialization {
        /// What the server said, for the operator's log.
        says: String,
    },
    /// All connections were in use for too long. Nothing was done. Safe to do again later.
    #[error("too many requests wait for the database, and nothing was done: {says}")]
    Overloaded {
        /// What happened, for the operator's log.
        says: String,
    },
    /// Surely not done. Safe to do again later.
    #[error("the database cannot be used now, and nothing was done: {says}")]
    Unavailable {
        /// [`FaultKind::Unreachable`], [`FaultKind::ReadOnly`] or [`FaultKind::Full`].
        kind: FaultKind,
        /// What happened, for the operator's log.
        says: String,
    },
    /// The connection broke, or no answer came in time, after something was sent that may have been committed.
    #[error("the outcome is unknown ({says}); repeat the same request")]
    Unknown {
        /// What happened, for the operator's log.
        says: String,
    },
    /// The server, its settings or the tables are not what is needed: it will not go better the next time. Nothing was done.
    #[error("the database cannot be used: {says}")]
    Broken {
        /// What is wanted, for the operator's log.
        says: String,
    },
}

/// Whether something was sent that could commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    NoCommit,
    Commit,
}

impl SqlError {
    /// What an error means before a commit was sent: of a statement in a transaction, or of one that changes nothing.
    /// Never [`Self::Unknown`]: a transaction that no caller commits ends with its connection. So let that be closed, or rolled
    /// back, after any error.
    pub fn in_transaction(error: &sqlx::Error) -> Self {
        Self::of(error, Sent::NoCommit)
    }

    /// What an error means after a commit was sent, or a statement that commits by itself.
    pub fn at_commit(error: &sqlx::Error) -> Self {
        Self::of(error, Sent::Commit)
    }

    /// What an error means while a connection is made. If the server cannot be reached, the text names it and says what to do.
    pub(crate) fn no_connection(error: &sqlx::Error, server: &str) -> Self {
        match Self::in_transaction(error) {
            // The text about a handshake already says what to do.
            Self::Unavailable { kind: FaultKind::Unreachable, says } if firstcome_tls::explain(error).is_none() => {
                Self::unreachable(format!(
                    "the server at {server} gives no connection ({says}); check that it runs, and the address"
                ))
            }
            meant => meant,
        }
    }

    /// No answer in time, before a commit was sent. The connection must be closed.
    pub fn late_in_transaction() -> Self {
        Self::unreachable("no answer in time")
    }

    /// No answer in time, after a commit was sent. The connection must be closed.
    pub fn late_at_commit() -> Self {
        Self::Unknown { says: "no answer in time".to_owned() }
    }

    pub(crate) fn unreachable(says: impl Into<String>) -> Self {
        Self::Unavailable { kind: FaultKind::Unreachable, says: says.into() }
    }

    /// The database answered with something that the tables cannot hold.
    pub fn broken(says: impl Into<String>) -> Self {
        Self::Broken { says: says.into() }
    }

    fn of(error: &sqlx::Error, sent: Sent) -> Self {
        use sqlx::Error;
        let says = error.to_string();
        match error {
            Error::Database(said) => {
                let said = &**said;
                let meaning = match said.try_downcast_ref::<MySqlDatabaseError>() {
                    Some(mysql) => of_number(mysql.number()),
                    None => of_state(&said.code().unwrap_or_default()),
                };
                meaning.told(sent, says)
            }
            // A caller that waits in vain for a connection has sent nothing. Whether others have one is not known here.
            Error::PoolTimedOut => Self::unreachable("the database accepts no connection in time"),
            Error::PoolClosed => Self::unreachable(says),
            Error::Tls(_) if says.contains(NO_TLS) => Self::broken(TLS_DEMANDED),
            Error::Configuration(_) | Error::Tls(_) => Self::Broken { says },
            // Of a handshake, before anything was sent. The operator may renew a certificate while this runs.
            Error::Io(_) if let Some(why) = firstcome_tls::explain(error) => Self::unreachable(why),
            Error::Io(_) | Error::WorkerCrashed | Error::BeginFailed => Meaning::Ended.told(sent, says),
            // An answer that cannot be read is none. Before a commit it is a fault of the program or of its tables.
            _ if sent == Sent::Commit => Self::Unknown { says },
            _ => Self::Broken { says },
        }
    }
}

/// What a code of a server means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meaning {
    Conflict,
    Refused(FaultKind),
    /// The statement was given up, or the session is over: a commit that was under way may stand.
    Ended,
    Unfit,
}

impl Meaning {
    fn told(self, sent: Sent, says: String) -> SqlError {
        match (self, sent) {
            (Self::Conflict, _) => SqlError::Serialization { says },
            (Self::Refused(kind), _) => SqlError::Unavailable { kind, says },
            (Self::Ended, Sent::Commit) => SqlError::Unknown { says },
            (Self::Ended, Sent::NoCommit) => SqlError::unreachable(says),
            // A code that is not known here, at a commit: a proxy may have lost the server meanwhile.
            (Self::Unfit, Sent::Commit) => SqlError::Unknown { says },
            (Self::Unfit, Sent::NoCommit) => SqlError::Broken { says },
        }
    }
}

/// PostgreSQL. Source: its manual, appendix A.
fn of_state(state: &str) -> Meaning {
    match state {
        // serialization_failure, deadlock_detected, lock_not_available.
        "40001" | "40P01" | "55P03" => Meaning::Conflict,
        // statement_completion_unknown, query_canceled: what was cancelled may have been the wait after a commit.
        "40003" | "57014" => Meaning::Ended,
        // cannot_connect_now and too_many_connections come instead of a session.
        "57P03" | "53300" => Meaning::Refused(FaultKind::Unreachable),
        "25006" => Meaning::Refused(FaultKind::ReadOnly),
        "53100" => Meaning::Refused(FaultKind::Full),
        // Connections, resources, and what an operator does: the session may be over.
        _ if ["08", "53", "57", "58"].iter().any(|class| state.starts_with(class)) => Meaning::Ended,
        // Time-outs of idle sessions and transactions.
        "25P03" | "25P04" => Meaning::Ended,
        _ => Meaning::Unfit,
    }
}

/// MySQL and MariaDB. Source: their references of server errors; from 1900 on MariaDB has numbers of its own.
const fn of_number(number: u16) -> Meaning {
    match number {
        // ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK; ER_CHECKREAD is MariaDB's, under snapshot isolation.
        // ER_TRANSACTION_ROLLBACK_DURING_COMMIT is that of a group of servers.
        1020 | 1205 | 1213 | 3101 => Meaning::Conflict,
        // ER_CON_COUNT_ERROR, ER_HOST_IS_BLOCKED, ER_TOO_MANY_USER_CONNECTIONS, ER_USER_LIMIT_REACHED.
        1040 | 1129 | 1203 | 1226 => Meaning::Refused(FaultKind::Unreachable),
        // ER_DISK_FULL, ER_RECORD_FILE_FULL.
        1021 | 1114 => Meaning::Refused(FaultKind::Full),
        // ER_OPTION_PREVENTS_STATEMENT (read_only), ER_READ_ONLY_MODE, ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION.
        1290 | 1792 | 1836 => Meaning::Refused(FaultKind::ReadOnly),
        // ER_SERVER_SHUTDOWN, ER_FORCING_CLOSE, aborted connections, packets in trouble, ER_ERROR_DURING_COMMIT,
        // ER_QUERY_INTERRUPTED, ER_CONNECTION_KILLED, time-outs of statements and idle sessions.
        1053 | 1079 | 1080 | 1152 | 1158..=1161 | 1180 | 1184 | 1317 | 1927 | 1969 | 3024 | 4031 => Meaning::Ended,
        _ => Meaning::Unfit,
    }
}

impl From<SqlError> for StoreError {
    fn from(error: SqlError) -> Self {
        let fault = |kind, says| Self::Faulted(Arc::new(Fault::new(kind, says)));
        match error {
            SqlError::Serialization { .. } | SqlError::Overloaded { .. } => Self::busy(CONFLICT_RETRY),
            SqlError::Unavailable { kind, says } => fault(kind, says),
            SqlError::Unknown { .. } => Self::Unknown,
            SqlError::Broken { says } => fault(FaultKind::Unfit, says),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(meaning: Meaning, in_transaction: &str, at_commit: &str) {
        let word = |sent| match meaning.told(sent, String::new()) {
            SqlError::Serialization { .. } => "again".to_owned(),
            SqlError::Overloaded { .. } => "overloaded".to_owned(),
            SqlError::Unavailable { kind, .. } => kind.code().to_owned(),
            SqlError::Unknown { .. } => "unknown".to_owned(),
            SqlError::Broken { .. } => "broken".to_owned(),
        };
        assert_eq!((&*word(Sent::NoCommit), &*word(Sent::Commit)), (in_transaction, at_commit));
    }

    #[test]
    fn every_kind_of_code_is_sorted() {
        for state in ["40001", "40P01", "55P03"] {
            check(of_state(state), "again", "again");
        }
        for state in ["57P01", "57P02", "57014", "40003", "08006", "53200", "58030", "25P03", "57P05"] {
            check(of_state(state), "unreachable", "unknown");
        }
        check(of_state("57P03"), "unreachable", "unreachable");
        check(of_state("53100"), "full", "full");
        check(of_state("25006"), "read_only", "read_only");
        for state in ["42P01", "42501", "28P01", "3D000", ""] {
            check(of_state(state), "broken", "unknown");
        }
        for number in [1205, 1213] {
            check(of_number(number), "again", "again");
        }
        for number in [1053, 1160, 1180, 1317, 1927] {
            check(of_number(number), "unreachable", "unknown");
        }
        check(of_number(1040), "unreachable", "unreachable");
        check(of_number(1114), "full", "full");
        check(of_number(1290), "read_only", "read_only");
        for number in [1045, 1049, 1146, 1305] {
            check(of_number(number), "broken", "unknown");
        }
    }

    #[test]
    fn a_server_that_gives_no_connection_is_named_with_what_to_do() {
        let refused = sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        for error in [refused, sqlx::Error::PoolTimedOut] {
            let told = SqlError::no_connection(&error, "db.example:5432");
            assert!(matches!(told, SqlError::Unavailable { kind: FaultKind::Unreachable, .. }), "{told:?}");
            let says = told.to_string();
            assert!(says.contains("the server at db.example:5432 gives no connection ("), "{says}");
            assert!(says.ends_with("check that it runs, and the address") && !says.contains('\n'), "{says}");
        }
        let wrong = sqlx::Error::Configuration("an option".into());
        assert!(matches!(SqlError::no_connection(&wrong, "h:1"), SqlError::Broken { .. }));
    }

    #[test]
    fn a_broken_connection_is_unknown_only_after_a_commit_was_sent() {
        let broken = sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
        assert!(matches!(SqlError::in_transaction(&broken), SqlError::Unavailable { .. }));
        assert!(matches!(SqlError::at_commit(&broken), SqlError::Unknown { .. }));
        assert!(matches!(SqlError::at_commit(&sqlx::Error::PoolTimedOut), SqlError::Unavailable { .. }));
        let unreadable = sqlx::Error::Protocol("?".to_owned());
        assert!(matches!(SqlError::at_commit(&unreadable), SqlError::Unknown { .. }));
        assert!(matches!(StoreError::from(SqlError::at_commit(&broken)), StoreError::Unknown));
    }
}
