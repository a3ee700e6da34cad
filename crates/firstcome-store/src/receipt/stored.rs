//! Checks the heads that a store has, as its rows come. For adapters of stores.

use super::{HeadPublicKey, SignedHead};
use crate::check::Check;
use firstcome_core::receipt::{Figures, Head};
use firstcome_core::time::Timestamp;

/// What a room or a coupon has, to compare its heads with.
pub struct Standing {
    /// The public key of its heads, if the caller can make it.
    pub key: Option<HeadPublicKey>,
    /// The highest figures that its heads may have.
    pub figures: Figures,
    /// Up to which sequence a purge removed its heads; 0 if none did.
    pub removed_to: u64,
}

firstcome_core::debug_by_name!(Standing);

/// Returns up to which sequence a purge may remove the heads of a page, and how many these are. The page has sequences and
/// instants, in order. A head goes once the one after it is from before `since`. So each later head keeps the one before it, which its
/// receipts name, and the newest head of a chain stays.
pub fn removable_to(page: &[(u64, Timestamp)], since: Timestamp) -> Option<(u64, u64)> {
    let due = page.windows(2).take_while(|pair| pair[1].1 < since).count();
    page[..due].last().map(|(to, _)| (*to, due as u64))
}

/// The checks of stored heads. They must come chain by chain, each chain in its order.
///
/// Each signature is checked, since a receipt may show any of them: about 0.1 ms a head.
pub struct StoredHeads {
    chain: Check,
    kept: Check,
    signed: Check,
    before: Option<Head>,
}

firstcome_core::debug_by_name!(StoredHeads);

impl Default for StoredHeads {
    fn default() -> Self {
        Self {
            chain: Check::new("heads of a room or coupon are one chain"),
            kept: Check::new("the store has all that a head has published"),
            signed: Check::new("every head has a signature of the key of its room or coupon"),
            before: None,
        }
    }
}

impl StoredHeads {
    /// Takes the next head; `standing` is that of its room or coupon, if there is one. Without a key the signature counts as
    /// not checked.
    pub fn take(&mut self, signed: SignedHead, standing: Option<&Standing>) {
        let head = &signed.head;
        let here = || format!("{}, head {}", signed.head.object, signed.head.sequence);
        let before = self.before.take().filter(|before| before.object == head.object);
        let follows = match &before {
            Some(before) => head.follows(before),
            None => head.begins_after(standing.map_or(0, |standing| standing.removed_to)),
        };
        self.chain.check(follows.is_ok(), here);
        match standing {
            Some(Standing { key, figures, .. }) => {
                self.kept.check(is_kept(head.figures, *figures), here);
                if let Some(key) = key {
                    self.signed.check(signed.is_signed_by(key), here);
                }
            }
            None => self.stray(&here()),
        }
        self.before = Some(signed.head);
    }

    /// Counts a head of a room or coupon that is not there.
    pub fn stray(&mut self, head: &str) {
        self.kept.check(false, || format!("{head}: there is no such room or coupon"));
    }

    /// Returns the checks: of chains, of what the store has, and of signatures.
    pub fn checks(self) -> [Check; 3] {
        [self.chain, self.kept, self.signed]
    }
}

/// Whether a head promises no more than is stored. An operator may set the limit of a coupon lower.
const fn is_kept(head: Figures, stored: Figures) -> bool {
    match (head, stored) {
        (Figures::Room { first, given, front }, Figures::Room { first: void, given: drawn, front: reached }) => {
            first <= void && given <= drawn && front <= reached
        }
        (Figures::Coupon { issued, .. }, Figures::Coupon { issued: stored, .. }) => issued <= stored,
        _ => false,
    }
}
