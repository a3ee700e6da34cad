//! What readers see of members and listings: copies that the writer replaces after each commit.

use super::super::journal::{ListingId, MemberId};
use crate::auction::Closings;
use firstcome_core::auction::ListingStanding;
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::Balance;
use firstcome_core::time::Timestamp;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// What everybody may see. All of it is durable.
///
/// All that a commit has changed is shown at one instant: the writer holds the lock of the names while it replaces the copies,
/// so a caller that asks after a caller has seen a part of a commit sees all of it. The copies have locks of their own, so that
/// the writer needs no names to find them.
#[derive(Default)]
pub(in crate::embedded) struct PublishedAuctions {
    pub(super) names: RwLock<Names>,
    pub(super) closed: AtomicU64,
    pub(super) defaulted: AtomicU64,
    /// When the next auction must be closed, in µs; the largest number if none is.
    pub(super) next_due_us: AtomicI64,
    /// Everything that the writer judged until this instant is here, in µs.
    pub(super) judged_us: AtomicI64,
}

/// Where the copies are.
#[derive(Default)]
pub(super) struct Names {
    pub(super) listings: HashMap<ListingName, Arc<ListingCell>>,
    pub(super) members: HashMap<MemberName, Arc<MemberCell>>,
}

/// A listing as readers see it.
pub(in crate::embedded) struct ListingCell {
    pub(in crate::embedded) id: ListingId,
    pub(super) standing: RwLock<ListingStanding>,
}

/// A member as readers see it.
pub(in crate::embedded) struct MemberCell {
    pub(in crate::embedded) id: MemberId,
    /// What there is, and how many records there are.
    pub(super) shown: Mutex<(Balance, u64)>,
}

impl ListingCell {
    pub(in crate::embedded) fn standing(&self) -> ListingStanding {
        self.standing.read().clone()
    }
}

impl MemberCell {
    pub(in crate::embedded) fn balance(&self) -> Balance {
        self.shown.lock().0
    }

    pub(in crate::embedded) fn records(&self) -> u64 {
        self.shown.lock().1
    }
}

impl PublishedAuctions {
    pub(in crate::embedded) fn listing(&self, name: &str) -> Option<Arc<ListingCell>> {
        self.names.read().listings.get(name).map(Arc::clone)
    }

    pub(in crate::embedded) fn member(&self, name: &str) -> Option<Arc<MemberCell>> {
        self.names.read().members.get(name).map(Arc::clone)
    }

    pub(in crate::embedded) fn counts(&self) -> (usize, usize) {
        let names = self.names.read();
        (names.listings.len(), names.members.len())
    }

    pub(in crate::embedded) fn closings(&self) -> Closings {
        let [closed, defaulted] = [&self.closed, &self.defaulted].map(|count| count.load(Ordering::Relaxed));
        Closings { closed, defaulted }
    }

    /// Up to which instant all that was decided is here.
    pub(in crate::embedded) fn judged_at(&self) -> Timestamp {
        Timestamp::clamped_us(self.judged_us.load(Ordering::SeqCst))
    }

    /// Microseconds until an auction must be closed, if one is; 0 if it is time.
    pub(in crate::embedded) fn due_in_us(&self, now: Timestamp) -> Option<u64> {
        let due_us = self.next_due_us.load(Ordering::SeqCst);
        (due_us != i64::MAX).then(|| due_us.saturating_sub(now.as_us()).max(0).cast_unsigned())
    }
}
