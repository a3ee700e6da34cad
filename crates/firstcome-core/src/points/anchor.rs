//! The anchor of a member's records: what stands in the place of records that a purge removed.
//!
//! A purge removes the first records of a member, without a gap, and never the last one. The anchor has what a check of the rest
//! begins with: number, balance, instant and chain of the last removed record, and the charges less the refunds of all removed ones.
//! So a changed or missing record after the anchor is found as before, and the sum over all members still tells whether points were
//! made from nothing.
//!
//! # What it does not promise
//! - It proves nothing of the removed records: a caller that kept one can hold it against its own copies only.
//! - A chain covers amounts, not balances. A writer of the rows who changes the balance of the anchor must change all later
//!   balances, the wallet, and the charges of the anchor alike to stay unnoticed.

use super::{Balance, Chain, Kind, Record, Reference};
use crate::id::MemberName;
use crate::time::Timestamp;
use sha2::{Digest, Sha256};

/// What the chain value of an anchor under another name begins with, so that it is the value of no record.
const RENAMED: &[u8] = b"firstcome anchor 1";

/// What stands in the place of a member's first records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Anchor {
    /// The number of the last removed record; 0 if none was removed.
    pub number: u64,
    /// The balance after it.
    pub balance: Balance,
    /// Its instant.
    pub at: Timestamp,
    /// The charges less the refunds of all removed records.
    pub charged: i64,
    /// The chain up to it, or what [`Self::renamed`] put in its place.
    pub chain: Chain,
}

impl Anchor {
    /// The beginning of a member whose records are all there.
    pub const START: Self = Self {
        number: 0,
        balance: Balance { total: 0, held: 0 },
        at: Timestamp::MIN,
        charged: 0,
        chain: Chain([0; 32]),
    };

    /// Returns the anchor behind as many records of a page as a purge may remove; `None` if it may remove none.
    ///
    /// `page` begins with the record after this anchor. A record stays from `since` on, if it is the last one of `records`, or if it
    /// is a hold of a bid for which `is_open` says that the hold has not ended. All records after it stay too.
    #[must_use]
    pub fn advanced<'a>(
        &self,
        records: u64,
        page: impl IntoIterator<Item = &'a Record>,
        since: Timestamp,
        is_open: impl Fn(&Reference) -> bool,
    ) -> Option<Self> {
        let mut anchor = *self;
        for record in page {
            let holds = record.kind == Kind::Hold && record.about.as_ref().is_some_and(&is_open);
            if records <= record.number || since <= record.at || holds || record.number != anchor.number + 1 {
                break;
            }
            let points = record.amount.get().cast_signed();
            let charged = match record.kind {
                Kind::Charge => anchor.charged.checked_add(points),
                Kind::Refund => anchor.charged.checked_sub(points),
                _ => Some(anchor.charged),
            };
            // More charges than a number of 64 bits counts: nothing after it goes.
            let Some(charged) = charged else { break };
            let Record { number, balance, at, chain, .. } = *record;
            anchor = Self { number, balance, at, charged, chain };
        }
        (self.number < anchor.number).then_some(anchor)
    }

    /// Returns this anchor under another name of its member. Its chain value covered the old name; the new one covers what is left.
    ///
    /// SHA-256 over `firstcome anchor 1`, then number, total, held, instant and charges as big-endian integers, then the member
    /// after its length in one byte.
    #[must_use]
    pub fn renamed(&self, member: &MemberName) -> Self {
        let mut hash = Sha256::new();
        hash.update(RENAMED);
        hash.update(self.number.to_be_bytes());
        hash.update(self.balance.total().to_be_bytes());
        hash.update(self.balance.held().to_be_bytes());
        hash.update(self.at.as_us().to_be_bytes());
        hash.update(self.charged.to_be_bytes());
        // A name has 128 bytes at most.
        hash.update([member.as_str().len() as u8]);
        hash.update(member.as_str().as_bytes());
        Self { chain: Chain(hash.finalize().into()), ..*self }
    }
}
