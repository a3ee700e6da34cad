//! The copies of members and listings for readers, which the writer replaces after each commit.

use super::super::journal::{ListingId, MemberId};
use crate::auction::Closings;
use crate::error::StoreError;
use crate::names;
use firstcome_core::auction::ListingStanding;
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::{Anchor, Balance, Wallet};
use firstcome_core::time::Timestamp;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The published state of auctions. All of it is durable.
///
/// The writer publishes a whole commit at one instant: it holds the lock of the names while it replaces the copies. So
/// once any caller has seen a part of a commit, every later caller sees all of it. The copies have their own locks, so
/// that the writer can reach them without the names.
#[derive(Default)]
pub(in crate::embedded) struct PublishedAuctions {
    pub(super) names: RwLock<Names>,
    pub(super) closed: AtomicU64,
    pub(super) defaulted: AtomicU64,
    /// When the next auction must be closed, in µs; the largest number if none must.
    pub(super) next_due_us: AtomicI64,
    /// Everything that the writer decided up to this instant is published, in µs.
    pub(super) judged_us: AtomicI64,
    /// Names that are not wholly erased.
    pub(super) left: Mutex<Vec<LeftName>>,
}

/// An erased name that records are still chained under.
pub(super) struct LeftName {
    pub(super) name: MemberName,
    /// Why no page follows before the next start.
    pub(super) stuck: Option<StoreError>,
}

/// The copies by name.
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
    pub(super) shown: Mutex<ShownMember>,
}

/// What readers see of a member.
#[derive(Clone)]
pub(in crate::embedded) struct ShownMember {
    pub(in crate::embedded) balance: Balance,
    /// The number of the last record.
    pub(in crate::embedded) records: u64,
    pub(in crate::embedded) anchor: Option<Arc<Anchor>>,
    /// Whether records are chained under an erased name: none may be removed then.
    pub(in crate::embedded) is_renaming: bool,
}

impl ShownMember {
    pub(super) fn of(wallet: &Wallet) -> Self {
        let anchor = wallet.anchor.as_ref().map(Arc::clone);
        Self { balance: wallet.balance, records: wallet.records, anchor, is_renaming: wallet.renaming.is_some() }
    }
}

impl ListingCell {
    pub(in crate::embedded) fn standing(&self) -> ListingStanding {
        self.standing.read().clone()
    }
}

impl MemberCell {
    pub(in crate::embedded) fn balance(&self) -> Balance {
        self.shown.lock().balance
    }

    pub(in crate::embedded) fn records(&self) -> u64 {
        self.shown.lock().records
    }

    /// The number of the last record that a purge removed; 0 if it removed none.
    pub(in crate::embedded) fn removed_to(&self) -> u64 {
        self.shown.lock().anchor.as_ref().map_or(0, |anchor| anchor.number)
    }

    pub(in crate::embedded) fn shown(&self) -> ShownMember {
        self.shown.lock().clone()
    }
}

impl PublishedAuctions {
    pub(in crate::embedded) fn listing(&self, name: &str) -> Option<Arc<ListingCell>> {
        self.names.read().listings.get(name).map(Arc::clone)
    }

    pub(in crate::embedded) fn member(&self, name: &str) -> Option<Arc<MemberCell>> {
        self.names.read().members.get(name).map(Arc::clone)
    }

    pub(in crate::embedded) fn listing_names(
        &self,
        after: Option<&ListingName>,
        count: usize,
    ) -> names::Names<ListingName> {
        names::Names::select(self.names.read().listings.keys(), after, count)
    }

    pub(in crate::embedded) fn member_names(
        &self,
        after: Option<&MemberName>,
        count: usize,
    ) -> names::Names<MemberName> {
        names::Names::select(self.names.read().members.keys(), after, count)
    }

    /// Returns the names and copies of all members.
    pub(in crate::embedded) fn all_members(&self) -> Vec<(MemberName, Arc<MemberCell>)> {
        self.names.read().members.iter().map(|(name, cell)| (name.clone(), Arc::clone(cell))).collect()
    }

    /// Whether pages of an erasure are due.
    pub(in crate::embedded) fn has_renamed(&self) -> bool {
        self.left.lock().iter().any(|left| left.stuck.is_none())
    }

    /// Whether pages of an erasure of this name are due. Fails if it cannot go on.
    pub(in crate::embedded) fn is_left(&self, name: &str) -> Result<bool, StoreError> {
        let left = self.left.lock();
        let mut of_name = left.iter().filter(|left| left.name.as_str() == name).peekable();
        let is_left = of_name.peek().is_some();
        of_name.find_map(|left| left.stuck.clone()).map_or(Ok(is_left), Err)
    }

    pub(in crate::embedded) fn counts(&self) -> (usize, usize) {
        let names = self.names.read();
        (names.listings.len(), names.members.len())
    }

    pub(in crate::embedded) fn closings(&self) -> Closings {
        let [closed, defaulted] = [&self.closed, &self.defaulted].map(|count| count.load(Ordering::Relaxed));
        Closings { closed, defaulted }
    }

    /// Returns the instant up to which all decisions are published.
    pub(in crate::embedded) fn judged_at(&self) -> Timestamp {
        Timestamp::clamped_us(self.judged_us.load(Ordering::SeqCst))
    }

    /// Returns the microseconds until the next auction must be closed; 0 if it is due, `None` if there is none.
    pub(in crate::embedded) fn due_in_us(&self, now: Timestamp) -> Option<u64> {
        let due_us = self.next_due_us.load(Ordering::SeqCst);
        (due_us != i64::MAX).then(|| due_us.saturating_sub(now.as_us()).max(0).cast_unsigned())
    }
}
