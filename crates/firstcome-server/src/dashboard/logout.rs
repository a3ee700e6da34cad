//! Sessions that have logged out. No server keeps a session, so a logout needs a record: without one, a copy of the cookie would
//! count until its time is over.
//!
//! # What it promises
//! - The node of the logout refuses the session at once. The other nodes of a cluster refuse it within [`KNOWN_FOR`], while Redis
//!   answers; a node tells them as soon as Redis answers again.
//! - Memory is bounded: a session that has logged out is forgotten when no cookie of it can count any longer, and logins, without
//!   which there is no logout, are limited.
//!
//! # What it does not promise
//! - That the record outlives the process of an embedded store, or the data of Redis. A copy of the cookie then counts again until
//!   the session ends by itself.
//! - That nodes know of each other's logouts that share a database of members and listings, and no Redis.

use super::now_s;
use super::session::{LIFE_S, Session};
use crate::state::App;
use firstcome::Shared;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long a node believes what Redis has said of a session.
const KNOWN_FOR: Duration = Duration::from_secs(1);
/// How many sessions a node keeps that reply of.
const KNOWN_MAX: usize = 1_024;
/// How long an operator waits for Redis. Without an answer a node goes by what it knows: operators need the dashboard most while
/// a server is away.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);
/// How often a node tries to tell the others.
const AGAIN: Duration = Duration::from_secs(1);

/// What a node knows of logouts.
pub(crate) struct Logouts {
    /// The sessions that are known to have logged out, and until when that matters.
    ended: Mutex<HashMap<String, i64>>,
    /// What Redis has said.
    asked: Shared<String, bool>,
}

impl Default for Logouts {
    fn default() -> Self {
        Self { ended: Mutex::default(), asked: Shared::new(KNOWN_FOR, KNOWN_MAX) }
    }
}

impl Logouts {
    fn add(&self, session: &Session, now_s: i64) {
        let mut ended = self.ended.lock();
        ended.retain(|_, until_s| now_s < *until_s);
        ended.insert(session.id.clone(), now_s + LIFE_S);
    }
}

impl App {
    /// Whether a session has logged out, at this node or at another one. Costs nothing on an embedded store, and one round trip a
    /// second on a cluster.
    pub(crate) async fn has_logged_out(&self, session: &Session) -> bool {
        let logouts = &self.dashboard.logouts;
        if logouts.ended.lock().contains_key(&session.id) {
            return true;
        }
        let Some(cluster) = self.backend.as_cluster().filter(|_| !self.is_dev()) else { return false };
        let ask = || cluster.has_session_ended(&session.id);
        let has_ended = matches!(timeout(PATIENCE, logouts.asked.get(&session.id, ask)).await, Ok(Ok(true)));
        if has_ended {
            logouts.add(session, now_s(self));
        }
        has_ended
    }
}

/// Ends a session for all nodes. In development mode all operators share one session, which goes on.
pub(super) async fn end(app: &Arc<App>, session: &Session) {
    app.live.end_session(app, &session.id);
    if app.is_dev() {
        return;
    }
    app.dashboard.logouts.add(session, now_s(app));
    // A task of its own, which an operator who goes away does not end. An operator who waits finds the session ended at all nodes.
    let telling = tokio::spawn(tell(Arc::downgrade(app), session.clone(), now_s(app) + LIFE_S));
    let _ = timeout(PATIENCE, telling).await;
}

/// Tells the other nodes of a logout. Tries until they know, or until it does not matter any more.
async fn tell(app: Weak<App>, session: Session, until_s: i64) {
    let lasts = Duration::from_secs(LIFE_S.unsigned_abs());
    let mut is_late = false;
    while let Some(app) = app.upgrade().filter(|app| now_s(app) < until_s) {
        let Some(cluster) = app.backend.as_cluster() else { return };
        match cluster.end_session(&session.id, lasts).await {
            Ok(()) => return,
            Err(error) if !is_late => {
                tracing::warn!(session = session.id, %error, "other nodes do not know of a logout yet");
                is_late = true;
            }
            Err(_) => {}
        }
        drop(app);
        sleep(AGAIN).await;
    }
}
