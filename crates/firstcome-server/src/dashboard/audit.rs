//! What operators did: in the log, as a chain of hashes, and the last of it in memory for the dashboard.

use super::session::Session;
use crate::audit::{AUDIT_TARGET, AuditHash};
use crate::rfc3339;
use firstcome::core::time::Timestamp;
use firstcome::edge::draw_id;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::IpAddr;

/// The most entries in memory. The log has all.
const ENTRIES_MAX: usize = 500;

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
pub(crate) struct AuditLog(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    newest: VecDeque<AuditEntry>,
    /// Tells the processes apart whose entries are in one log. Drawn for the first entry.
    process: String,
    /// The number and the hash of the last entry.
    number: u64,
    hash: AuditHash,
}

impl AuditLog {
    /// Logs an entry and keeps it, in place of the oldest one if there are too many.
    pub(crate) fn add(&self, entry: AuditEntry) {
        let AuditEntry { role, session, address, action, object, change, answer, .. } = &entry;
        let (at, address) = (rfc3339::format(entry.at), address.map(|it| it.to_string()).unwrap_or_default());
        // Held while the entry is logged, so that the log has the order of the chain.
        let mut entries = self.0.lock();
        if entries.process.is_empty() {
            entries.process = format!("{:016x}", draw_id().unwrap_or_default());
        }
        entries.number += 1;
        let texts = [&entries.process, &at, *role, session, &address, *action, object, change, *answer];
        entries.hash = entries.hash.next(entries.number, &texts);
        let Entries { process, number, hash, .. } = &*entries;
        tracing::info!(
            target: AUDIT_TARGET,
            number, process, at, role, session, address, action, object, change, answer, %hash, "audit"
        );
        if ENTRIES_MAX <= entries.newest.len() {
            entries.newest.pop_front();
        }
        entries.newest.push_back(entry);
    }

    /// Returns the newest entries, the newest first.
    pub(crate) fn newest(&self, count: usize) -> Vec<AuditEntry> {
        self.0.lock().newest.iter().rev().take(count).cloned().collect()
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
}
