//! The caller's part of a purge of records: it looks for members whose first records are old, and makes the anchors.
//!
//! A page is made from what a reader sees, and the writer takes it only if the member still has the name and the anchor that it was
//! made for. Records are written once, and a hold that was open may only have ended since: so the page is as good as one that the
//! writer would make.

use super::{PurgePage, Purged};
use crate::embedded::auction::{MemberCell, ShownMember};
use crate::embedded::journal::RecordsRemoved;
use crate::embedded::{Embedded, Shared, blocking};
use crate::error::StoreError;
use crate::purge::{PAGE_ROWS_MAX, PurgeMode};
use firstcome_core::auction::Phase;
use firstcome_core::id::MemberName;
use firstcome_core::points::{Anchor, Reference};
use firstcome_core::time::Timestamp;
use std::sync::Arc;

/// How many members one turn of a thread looks at.
const MEMBERS_PER_LOOK: usize = 256;

type Known = (MemberName, Arc<MemberCell>);

impl Shared {
    /// Whether the hold of a bid may not have ended.
    fn holds(&self, about: &Reference) -> bool {
        let Some(cell) = self.auctions().listing(about.listing.as_str()) else { return true };
        let standing = cell.standing();
        matches!(standing.phase, Phase::Open | Phase::Ended(_)) && about.bid.is_none_or(|bid| standing.bids <= bid)
    }

    /// Returns those members whose first record is older than `since`, and not the last one.
    fn with_old_records(&self, members: &[Known], since: Timestamp) -> Result<Vec<Known>, StoreError> {
        let mut found = Vec::new();
        for (name, cell) in members {
            let first = self.rows.records(cell.id, cell.removed_to(), 1)?;
            if first.first().is_some_and(|first| first.at < since && first.number < cell.records()) {
                found.push((name.clone(), Arc::clone(cell)));
            }
        }
        Ok(found)
    }

    /// Returns the next anchor of a member, behind at most a page of records after `anchor`.
    fn next_anchor(&self, cell: &MemberCell, anchor: &Anchor, since: Timestamp) -> Result<Option<Anchor>, StoreError> {
        // Shown before the rows are read: a page of an erasure that comes in between is found by the writer.
        let ShownMember { records, is_renaming, .. } = cell.shown();
        if is_renaming {
            return Ok(None);
        }
        let page = self.rows.records(cell.id, anchor.number, PAGE_ROWS_MAX)?;
        Ok(anchor.advanced(records, &page, since, |about| self.holds(about)))
    }
}

impl Embedded {
    /// Removes records before `since`, or counts them.
    pub(super) async fn purge_records(
        &self,
        since: Timestamp,
        mode: PurgeMode,
        purged: &mut Purged,
    ) -> Result<(), StoreError> {
        let members = self.inner.shared.auctions().all_members();
        for part in members.chunks(MEMBERS_PER_LOOK) {
            let (shared, part) = (Arc::clone(&self.inner.shared), part.to_vec());
            for known in blocking(move || shared.with_old_records(&part, since)).await? {
                self.purge_records_of(known, since, mode, purged).await?;
            }
        }
        Ok(())
    }

    async fn purge_records_of(
        &self,
        (member, cell): Known,
        since: Timestamp,
        mode: PurgeMode,
        purged: &mut Purged,
    ) -> Result<(), StoreError> {
        let mut before = cell.shown().anchor.as_deref().copied().unwrap_or(Anchor::START);
        loop {
            let (shared, of) = (Arc::clone(&self.inner.shared), Arc::clone(&cell));
            let Some(anchor) = blocking(move || shared.next_anchor(&of, &before, since)).await? else {
                return Ok(());
            };
            if mode == PurgeMode::Count {
                purged.records += anchor.number - before.number;
            } else {
                let removed = RecordsRemoved { id: cell.id, member: member.clone(), anchor };
                let done = self.purge_page(PurgePage::Records { removed, before: before.number }).await?;
                if done.purged.records == 0 {
                    // The member was erased meanwhile: the next purge finds it under its pseudonym.
                    return Ok(());
                }
                *purged += done.purged;
            }
            before = anchor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auction::{AuctionStore, MovePoints, Transfer};
    use crate::erase::EraseStore;
    use firstcome_core::id::UserId;
    use firstcome_core::points::Amount;

    /// The member is erased between the look and the page: the anchor under the old name would break the chain under the new one.
    #[tokio::test]
    async fn no_page_is_taken_for_a_member_that_was_erased_meanwhile() {
        let store = Embedded::memory();
        let ann = MemberName::parse("ann").expect("a name");
        for _ in 0..3 {
            let amount = Amount::new(5).expect("an amount");
            let charge = MovePoints { transfer: Transfer::Charge, amount, request: None };
            store.move_points(&ann, charge).await.expect("it answers").expect("no rule refuses it");
        }
        let known = store.inner.shared.auctions().all_members();
        store.erase(&UserId::parse("ann").expect("a user")).await.expect("it answers").expect("no rule refuses it");
        let mut purged = Purged::default();
        for known in known {
            store.purge_records_of(known, Timestamp::MAX, PurgeMode::Remove, &mut purged).await.expect("it answers");
        }
        assert_eq!(purged, Purged::default());
        store.purge_records(Timestamp::MAX, PurgeMode::Remove, &mut purged).await.expect("it answers");
        assert_eq!(purged.records, 2, "the next purge finds it under its pseudonym");
    }
}
