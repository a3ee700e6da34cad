//! Tells the log when a server is lost and when it answers again.
//!
//! # Promises
//! - A line for each change, however many connections and calls notice it: all users of one server in this process share what is known
//!   of it.
//! - A line says how long the outage lasted.
//! - A server that comes and goes within a second costs two lines a second at most. The next line says how many outages were left out.
//!
//! # Cost
//! While no outage is known, [`Outage::over`] reads one number.

use crate::edge::Stopwatch;
use crate::throttle::PAUSE;
use parking_lot::Mutex;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What a server is to this process. Decides the target of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerKind {
    /// Redis or Valkey: `firstcome_redis`.
    Redis,
    /// A database: `firstcome_sql`.
    Database,
    /// A collector of traces: `firstcome_server::trace`.
    Collector,
}

/// Whether one server answers. Clones, and all that were made for the same server, share it.
#[derive(Clone, Debug)]
pub struct Outage(Arc<Server>);

#[derive(Debug)]
struct Server {
    kind: ServerKind,
    /// Without user and password.
    address: Box<str>,
    /// Whether it is lost, for calls that ask without a lock.
    is_lost: AtomicBool,
    /// How many outages are over.
    returns: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default, Debug)]
struct State {
    /// Runs since the outage began.
    lost: Option<Stopwatch>,
    /// Whether the log has the outage.
    is_told: bool,
    /// Runs since the last line about an outage.
    told: Option<Stopwatch>,
    left_out: u64,
}

impl State {
    /// Notes an outage. Returns how many were left out before it if the log must be told now.
    fn begin(&mut self) -> Option<u64> {
        let is_new = self.lost.is_none();
        self.lost.get_or_insert_with(Stopwatch::start);
        if self.is_told {
            return None;
        }
        if self.told.is_some_and(|told| told.elapsed() < PAUSE) {
            self.left_out += u64::from(is_new);
            return None;
        }
        (self.is_told, self.told) = (true, Some(Stopwatch::start()));
        // One that is told late was counted before.
        let left_out = std::mem::take(&mut self.left_out);
        Some(if is_new { left_out } else { left_out.saturating_sub(1) })
    }

    /// Notes that it is over. Returns how long it lasted if the log has its beginning.
    fn end(&mut self) -> Option<Duration> {
        let lasted = self.lost.take()?.elapsed();
        std::mem::take(&mut self.is_told).then_some(lasted)
    }
}

/// The servers that this process uses.
static SERVERS: Mutex<Vec<Weak<Server>>> = Mutex::new(Vec::new());

impl Outage {
    /// Returns what this process knows of a server. The address is logged: it must contain no password.
    pub fn of(kind: ServerKind, address: &str) -> Self {
        let mut servers = SERVERS.lock();
        servers.retain(|server| server.strong_count() != 0);
        let mut known = servers.iter().filter_map(Weak::upgrade);
        if let Some(server) = known.find(|server| server.kind == kind && *server.address == *address) {
            return Self(server);
        }
        let server = Arc::new(Server {
            kind,
            address: address.into(),
            is_lost: AtomicBool::new(false),
            returns: AtomicU64::new(0),
            state: Mutex::default(),
        });
        servers.push(Arc::downgrade(&server));
        Self(server)
    }

    /// How many outages are over, for [`Self::begin_since`].
    pub fn returns(&self) -> u64 {
        self.0.returns.load(Ordering::Relaxed)
    }

    /// Notes that the server gave no answer to something that began when this many outages were over. If it has answered since,
    /// that says nothing.
    pub fn begin_since(&self, error: &dyn Display, returns: u64) {
        if self.returns() == returns {
            self.begin(error);
        }
    }

    /// Notes that the server gives no answer, and why.
    pub fn begin(&self, error: &dyn Display) {
        let Server { kind, address, is_lost, state, .. } = &*self.0;
        let mut state = state.lock();
        is_lost.store(true, Ordering::Relaxed);
        let Some(left_out) = state.begin() else { return };
        drop(state);
        match kind {
            ServerKind::Redis => {
                tracing::warn!(target: "firstcome_redis", server = %address, %error, left_out, "Redis is lost");
            }
            ServerKind::Database => {
                tracing::warn!(target: "firstcome_sql", server = %address, %error, left_out, "the database is lost");
            }
            ServerKind::Collector => {
                tracing::warn!(
                    target: "firstcome_server::trace", server = %address, %error, left_out, "the collector of traces is lost"
                );
            }
        }
    }

    /// Notes that the server answers.
    pub fn over(&self) {
        if self.0.is_lost.load(Ordering::Relaxed) {
            self.over_at(&self.0.address);
        }
    }

    /// Notes that a server answers in its place: the new primary, after a fail-over.
    pub fn over_at(&self, address: &str) {
        let Server { kind, is_lost, returns, state, .. } = &*self.0;
        let mut state = state.lock();
        if is_lost.swap(false, Ordering::Relaxed) {
            returns.fetch_add(1, Ordering::Relaxed);
        }
        let Some(lasted) = state.end() else { return };
        drop(state);
        let lasted_ms = lasted.as_millis() as u64;
        match kind {
            ServerKind::Redis => {
                tracing::info!(target: "firstcome_redis", server = %address, lasted_ms, "Redis answers again");
            }
            ServerKind::Database => {
                tracing::info!(target: "firstcome_sql", server = %address, lasted_ms, "the database answers again");
            }
            ServerKind::Collector => {
                tracing::info!(
                    target: "firstcome_server::trace", server = %address, lasted_ms, "the collector of traces answers again"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once_and_a_flapping_server_is_counted() {
        let mut state = State::default();
        assert_eq!((state.begin(), state.begin()), (Some(0), None), "one line, however many notice");
        assert!(state.end().is_some() && state.end().is_none());
        for _ in 0..3 {
            assert_eq!((state.begin(), state.end()), (None, None), "within a second, and not told");
        }
        assert_eq!(state.begin(), None, "this one lasts");
        state.told = None;
        assert_eq!(state.begin(), Some(3), "it is told late, with those before it");
        assert!(state.end().is_some());
    }

    #[test]
    fn users_of_one_server_share_what_is_known() {
        let [first, second] = [Outage::of(ServerKind::Redis, "host:1"), Outage::of(ServerKind::Redis, "host:1")];
        first.begin(&"gone");
        assert!(second.0.is_lost.load(Ordering::Relaxed));
        let returns = first.returns();
        second.over();
        first.begin_since(&"a call from before", returns);
        assert!(!first.0.is_lost.load(Ordering::Relaxed));
        first.begin_since(&"a call from after", first.returns());
        assert!(first.0.is_lost.load(Ordering::Relaxed));
        assert!(!Arc::ptr_eq(&first.0, &Outage::of(ServerKind::Database, "host:1").0));
        assert!(!Arc::ptr_eq(&first.0, &Outage::of(ServerKind::Redis, "host:2").0));
    }
}
