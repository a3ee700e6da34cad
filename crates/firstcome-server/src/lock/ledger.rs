//! Remembers locks that this process granted over HTTP, for the metrics and for repeated requests.
//!
//! The store alone decides which client holds a lock. After a restart this process remembers no hold. Clients can
//! still renew and release by their handles, but a repeated request is then a new one.

#[cfg(test)]
mod tests;

use super::{Offer, Wait};
use crate::metrics::LockFigures;
use firstcome::Fence;
use firstcome::core::id::RequestId;
use firstcome::core::time::Timestamp;
use firstcome::edge::Stopwatch;
use firstcome::lock::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A hold that was granted over HTTP.
struct Hold {
    since: Duration,
    /// When the hold is certainly over, unless another process renewed it.
    until: Duration,
    expires_at: Timestamp,
    key: Option<u128>,
}

/// The state of an idempotency key.
enum Entry {
    /// Its request is under way.
    Waiting { number: u64, body: u64, wait: Weak<Wait> },
    /// Its request was granted.
    Granted { body: u64, kept: Kept },
}

/// A grant that was made under a key.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) request: Request,
    pub(super) fence: Fence,
    /// The offer, as long as a request may still deliver it.
    pub(super) offer: Weak<Offer>,
    /// Whether a client has received the grant.
    pub(super) told: Arc<AtomicBool>,
}

/// Whether the body of a request equals the first body under its key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    Same,
    Other,
}

/// The result of looking up a key.
pub(super) enum Found {
    Waiting(Arc<Wait>, Body),
    /// The grant is still on its way to an earlier request.
    Offered(Arc<Offer>, Body),
    Granted(Kept, Timestamp, Body),
    Nothing,
    Full,
}

/// Why the ledger forgets a hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Released,
    Lost,
    /// No client received the grant.
    TakenBack,
}

pub(super) struct Ledger {
    clock: Stopwatch,
    figures: LockFigures,
    holds_max: usize,
    holds: BTreeMap<Request, Hold>,
    ends: BTreeSet<(Duration, Request)>,
    keys: BTreeMap<u128, Entry>,
    drawn: u64,
}

impl Ledger {
    pub(super) fn new(figures: LockFigures, holds_max: usize) -> Self {
        let (holds, ends, keys) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { clock: Stopwatch::start(), figures, holds_max, holds, ends, keys, drawn: 0 }
    }

    /// Looks up a key. The caller must drop the result after it unlocks the ledger: dropping the last owner locks the
    /// ledger.
    pub(super) fn find(&mut self, id: RequestId) -> Found {
        self.sweep();
        let same = |body: u64| if body == id.body { Body::Same } else { Body::Other };
        let found = match self.keys.get(&id.key) {
            Some(Entry::Waiting { body, wait, .. }) => wait.upgrade().map(|wait| Found::Waiting(wait, same(*body))),
            Some(Entry::Granted { body, kept }) => match (kept.offer.upgrade(), self.holds.get(&kept.request)) {
                (Some(offer), _) => Some(Found::Offered(offer, same(*body))),
                (None, Some(hold)) if kept.told.load(Ordering::Acquire) => {
                    Some(Found::Granted(kept.clone(), hold.expires_at, same(*body)))
                }
                // The hold is about to be released, since no client received it.
                _ => None,
            },
            None => None,
        };
        match found {
            Some(found) => found,
            None if self.holds_max <= self.keys.len().max(self.holds.len()) => Found::Full,
            None => Found::Nothing,
        }
    }

    /// Records that a request begins under its key.
    pub(super) fn begin(&mut self, id: RequestId, wait: impl FnOnce(u64) -> Arc<Wait>) -> Arc<Wait> {
        self.drawn += 1;
        let (number, wait) = (self.drawn, wait(self.drawn));
        self.keys.insert(id.key, Entry::Waiting { number, body: id.body, wait: Arc::downgrade(&wait) });
        wait
    }

    /// Removes the key of a request that ended without a grant.
    pub(super) fn give_up(&mut self, key: u128, number: u64) {
        if self.is_waiting(key, number) {
            self.keys.remove(&key);
        }
    }

    fn is_waiting(&self, key: u128, number: u64) -> bool {
        matches!(self.keys.get(&key), Some(Entry::Waiting { number: known, .. }) if *known == number)
    }

    /// Records a granted hold, under the key of its request if it has one.
    pub(super) fn grant(
        &mut self,
        kept: &Kept,
        (lease, expires_at): (Duration, Timestamp),
        begun: Option<(RequestId, u64)>,
    ) {
        self.sweep();
        // Another request may have begun under the same key after the last client of this one went away.
        let begun = begun.filter(|(id, number)| self.is_waiting(id.key, *number)).map(|(id, _)| id);
        if let Some(id) = begun {
            self.keys.insert(id.key, Entry::Granted { body: id.body, kept: kept.clone() });
        } else if self.holds_max <= self.holds.len() {
            return;
        }
        let since = self.clock.elapsed();
        let until = since + lease;
        let hold = Hold { since, until, expires_at, key: begun.map(|id| id.key) };
        self.holds.insert(kept.request, hold);
        self.ends.insert((until, kept.request));
        self.figures.held.inc();
    }

    /// Extends a hold, but never shortens it. Without `expires_at` it is unknown whether the renewal happened: the
    /// ledger then remembers the hold for longer, and reports the old end.
    pub(super) fn renew(&mut self, request: Request, lease: Duration, expires_at: Option<Timestamp>) {
        let renewed = self.clock.elapsed() + lease;
        let Some(hold) = self.holds.get_mut(&request) else { return };
        let until = hold.until.max(renewed);
        self.ends.remove(&(hold.until, request));
        (hold.until, hold.expires_at) = (until, expires_at.unwrap_or(hold.expires_at));
        self.ends.insert((until, request));
    }

    /// Removes a hold that is over.
    pub(super) fn end(&mut self, request: Request, end: End) {
        let Some(hold) = self.holds.remove(&request) else { return };
        self.ends.remove(&(hold.until, request));
        if let Some(key) = hold.key
            && matches!(self.keys.get(&key), Some(Entry::Granted { kept, .. }) if kept.request == request)
        {
            self.keys.remove(&key);
        }
        self.figures.held.dec();
        let held_for = self.clock.elapsed().saturating_sub(hold.since);
        match end {
            End::Released => self.figures.released(held_for),
            End::Lost => self.figures.lost(held_for),
            End::TakenBack => {}
        }
    }

    /// Removes all holds whose lease has ended.
    pub(super) fn sweep(&mut self) {
        let now = self.clock.elapsed();
        while let Some(&(until, request)) = self.ends.first()
            && until < now
        {
            self.end(request, End::Lost);
        }
    }
}
