//! What operators did: in the log, as a chain of hashes, and the last of it in memory for the dashboard.
//!
//! Strangers can fail to log in as often as they like. So at most one such entry is made in a second, which says how many were left
//! out, and these entries take no place of what operators did.

use super::session::Session;
use crate::audit::{AUDIT_TARGET, AuditHash};
use crate::rfc3339;
use firstcome::core::time::Timestamp;
use firstcome::edge::draw_id;
use firstcome::throttle::Throttle;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::net::IpAddr;

/// The most entries in memory. The log has all.
const ENTRIES_MAX: usize = 500;
/// The most entries of failed logins in memory, beside the others.
const FAILED_LOGINS_MAX: usize = 50;

/// One thing that an operator did or tried.
#[derive(Clone)]
pub(crate) struct AuditEntry {
    pub(crate) at: Timestamp,
    /// The role, or `none` before a login.
    pub(crate) role: &'static str,
    /// The name of the session; empty before a login.
    pub(crate) session: String,
    pub(crate) address: Option<IpAddr>,
    pub(crate) action: &'static str,
    /// The object, such as `room sale`.
    pub(crate) object: String,
    /// What was, and what is now.
    pub(crate) change: String,
    /// `done`, or the code of the refusal.
    pub(crate) answer: &'static str,
}

/// The entries of this process.
#[derive(Default)]
pub(crate) struct AuditLog {
    entries: Mutex<Entries>,
    failed_logins: Throttle,
}

/// Entries with their numbers, the newest last.
type Numbered = VecDeque<(u64, AuditEntry)>;

#[derive(Default)]
struct Entries {
    newest: Numbered,
    failed_logins: Numbered,
    /// Tells the processes apart whose entries are in one log. Drawn for the first entry.
    process: String,
    /// The number and the hash of the last entry.
    number: u64,
    hash: AuditHash,
}

impl AuditLog {
    /// Logs an entry and keeps it, in place of the oldest one if there are too many.
    pub(crate) fn add(&self, entry: AuditEntry) {
        let mut entries = self.entries.lock();
        let number = entries.log(&entry);
        keep(&mut entries.newest, ENTRIES_MAX, (number, entry));
    }

    /// Logs a failed login and keeps it, unless there was one within the last second: then it is counted for the next one.
    pub(crate) fn add_failed_login(&self, mut entry: AuditEntry) {
        let Some(left_out) = self.failed_logins.pass() else { return };
        if 0 < left_out {
            entry.change = format!("{left_out} more since the last entry");
        }
        let mut entries = self.entries.lock();
        let number = entries.log(&entry);
        keep(&mut entries.failed_logins, FAILED_LOGINS_MAX, (number, entry));
    }

    /// Returns the newest entries, the newest first.
    pub(crate) fn newest(&self, count: usize) -> Vec<AuditEntry> {
        let entries = self.entries.lock();
        let mut all: Vec<&(u64, AuditEntry)> = entries.newest.iter().chain(&entries.failed_logins).collect();
        all.sort_unstable_by_key(|(number, _)| Reverse(*number));
        all.into_iter().take(count).map(|(_, entry)| entry.clone()).collect()
    }
}

fn keep(entries: &mut Numbered, max: usize, entry: (u64, AuditEntry)) {
    if max <= entries.len() {
        entries.pop_front();
    }
    entries.push_back(entry);
}

impl Entries {
    /// Logs an entry as the next one of the chain, and returns its number. The caller holds the lock, so that the log has the order of
    /// the chain.
    fn log(&mut self, entry: &AuditEntry) -> u64 {
        let AuditEntry { role, session, address, action, object, change, answer, .. } = entry;
        let (at, address) = (rfc3339::format(entry.at), address.map(|it| it.to_string()).unwrap_or_default());
        if self.process.is_empty() {
            self.process = format!("{:016x}", draw_id().unwrap_or_default());
        }
        self.number += 1;
        let texts = [&self.process, &at, *role, session, &address, *action, object, change, *answer];
        self.hash = self.hash.next(self.number, &texts);
        let Self { process, number, hash, .. } = &*self;
        tracing::info!(
            target: AUDIT_TARGET,
            number, process, at, role, session, address, action, object, change, answer, %hash, "audit"
        );
        *number
    }
}

impl AuditEntry {
    /// An entry of this session.
    pub(crate) fn of(session: &Session, at: Timestamp, action: &'static str, object: String) -> Self {
        let role = session.role.as_str();
        let session = format!("{} {}", session.operator, session.id).trim_start().to_owned();
        Self { at, role, session, address: None, action, object, change: String::new(), answer: "done" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_entries_stay() {
        let log = AuditLog::default();
        for number in 0..ENTRIES_MAX + 3 {
            let session = Session::development(&[1; 32]);
            log.add(AuditEntry::of(&session, Timestamp::MIN, "pause", number.to_string()));
        }
        let kept = log.newest(usize::MAX);
        assert_eq!((kept.len(), kept[0].object.as_str()), (ENTRIES_MAX, "502"));
        assert_eq!(log.newest(2).len(), 2);
    }

    #[test]
    fn failed_logins_take_no_place_of_what_operators_did() {
        let log = AuditLog::default();
        let session = Session::development(&[1; 32]);
        log.add(AuditEntry::of(&session, Timestamp::MIN, "pause", "room sale".to_owned()));
        for _ in 0..ENTRIES_MAX {
            log.add_failed_login(AuditEntry::of(&session, Timestamp::MIN, "login", String::new()));
        }
        log.add(AuditEntry::of(&session, Timestamp::MIN, "resume", "room sale".to_owned()));
        let kept = log.newest(usize::MAX);
        assert_eq!((kept[0].action, kept[kept.len() - 1].action), ("resume", "pause"));
        let failed = kept.iter().filter(|entry| entry.action == "login").count();
        assert!((1..10).contains(&failed), "{failed} entries within a moment");
    }
}
