//! What a store in memory keeps beside its rules: rows that a file would hold.

use super::journal::{
    Change, CouponId, Journal, JournalError, ListingId, MemberErased, MemberId, RecordsRemoved, Rows,
};
use crate::error::StoreError;
use crate::receipt::{HeadWanted, SignedHead};
use firstcome_core::auction::Bid;
use firstcome_core::coupon::{Attributes, Serial};
use firstcome_core::points::Record;
use firstcome_core::receipt::Object;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// The journal of a store in memory: keeps only the data that the rules do not keep.
#[derive(Clone, Default)]
pub(super) struct Memory {
    kept: Arc<parking_lot::RwLock<MemoryRows>>,
}

#[derive(Default)]
struct MemoryRows {
    attributes: BTreeMap<(CouponId, Serial), Attributes>,
    bids: BTreeMap<(ListingId, u32), Bid>,
    records: BTreeMap<(MemberId, u64), Record>,
    /// The heads of each object, in the order of their sequences.
    heads: BTreeMap<Object, VecDeque<SignedHead>>,
}

impl MemoryRows {
    fn erase_member(&mut self, erased: &MemberErased) {
        let name = &erased.wallet.member;
        if let Some(before) = &erased.before {
            self.bids.values_mut().filter(|bid| bid.bidder == *before).for_each(|bid| bid.bidder = name.clone());
        }
        for (number, chain) in (erased.first..).zip(&erased.chains) {
            if let Some(record) = self.records.get_mut(&(erased.id, number)) {
                (record.member, record.chain) = (name.clone(), *chain);
            }
        }
    }
}

impl Journal for Memory {
    fn commit(&mut self, changes: &[Change]) -> Result<(), JournalError> {
        for change in changes {
            match change {
                Change::Claimed { id, issued, claim } => {
                    if let Some(attributes) = &claim.attributes {
                        self.kept.write().attributes.insert((*id, issued.serial), attributes.clone());
                    }
                }
                Change::Bid { id, placed, .. } => {
                    self.kept.write().bids.insert((*id, placed.bid.number), placed.bid.clone());
                }
                Change::Moved { id, record, .. } => {
                    self.kept.write().records.insert((*id, record.number), record.clone());
                }
                Change::ClaimErased { id, serial, .. } => {
                    self.kept.write().attributes.remove(&(*id, *serial));
                }
                Change::MemberErased(erased) => self.kept.write().erase_member(erased),
                Change::RecordsRemoved(removed) => {
                    let RecordsRemoved { id, anchor, .. } = &**removed;
                    let mut kept = self.kept.write();
                    let gone = kept.records.range((*id, 0)..=(*id, anchor.number)).map(|(key, _)| *key);
                    for key in gone.collect::<Vec<_>>() {
                        kept.records.remove(&key);
                    }
                }
                Change::Headed(signed) => {
                    self.kept
                        .write()
                        .heads
                        .entry(signed.head.object.clone())
                        .or_default()
                        .push_back((**signed).clone());
                }
                Change::HeadsRemoved { object, to, .. } => {
                    if let Some(heads) = self.kept.write().heads.get_mut(object) {
                        heads.drain(..after(heads, *to));
                        if heads.len() < heads.capacity() / 4 {
                            heads.shrink_to_fit();
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The place of the first head after a sequence.
fn after(heads: &VecDeque<SignedHead>, sequence: u64) -> usize {
    heads.partition_point(|signed| signed.head.sequence <= sequence)
}

impl Rows for Memory {
    fn attributes(
        &self,
        coupon: CouponId,
        first: Serial,
        last: Serial,
    ) -> Result<BTreeMap<Serial, Attributes>, StoreError> {
        let kept = self.kept.read();
        let range = kept.attributes.range((coupon, first)..=(coupon, last));
        Ok(range.map(|((_, serial), value)| (*serial, value.clone())).collect())
    }

    fn heads(&self, object: &Object, sequence: u64, count: usize) -> Result<Vec<SignedHead>, StoreError> {
        let kept = self.kept.read();
        let Some(heads) = kept.heads.get(object) else { return Ok(Vec::new()) };
        Ok(heads.range(after(heads, sequence)..).take(count).cloned().collect())
    }

    fn first_head(&self, object: &Object, wanted: HeadWanted) -> Result<Option<SignedHead>, StoreError> {
        let kept = self.kept.read();
        let Some(heads) = kept.heads.get(object) else { return Ok(None) };
        Ok(heads.get(heads.partition_point(|signed| !wanted.is_reached(&signed.head))).cloned())
    }

    fn bids(&self, listing: ListingId, after: u32, count: usize) -> Result<Vec<Bid>, StoreError> {
        let range = (Bound::Excluded((listing, after)), Bound::Included((listing, u32::MAX)));
        Ok(self.kept.read().bids.range(range).take(count).map(|(_, bid)| bid.clone()).collect())
    }

    fn records(&self, member: MemberId, after: u64, count: usize) -> Result<Vec<Record>, StoreError> {
        let range = (Bound::Excluded((member, after)), Bound::Included((member, u64::MAX)));
        Ok(self.kept.read().records.range(range).take(count).map(|(_, record)| record.clone()).collect())
    }
}
