//! Forgets idempotency keys of requests that came long ago, and the claims of a coupon that is over for long.

use super::book::{Book, Keys};
use super::{Coupon, CouponSettings, Damage, Serial};
use crate::time::Timestamp;
use hashbrown::HashMap;
use std::hash::RandomState;

/// What a request with an idempotency key did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyedEffect {
    /// It claimed this serial.
    Claim(Serial),
    /// It redeemed this serial.
    Redemption(Serial),
}

/// An idempotency key of a coupon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyedRequest {
    /// The key.
    pub key: u128,
    /// What the request did.
    pub effect: KeyedEffect,
}

/// Where a walk over the keys of a coupon is. Begins with the default.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct KeyWalk {
    is_at_redemptions: bool,
    part: usize,
}

/// Keys of one step of a walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyPage {
    /// The keys found.
    pub requests: Vec<KeyedRequest>,
    /// Where the walk goes on; `None` at its end.
    pub next: Option<KeyWalk>,
}

/// The claims that a coupon no longer has, to give their memory back: tens of milliseconds per million.
pub struct PurgedClaims {
    _book: Book,
    _keys: [Keys; 2],
    _redemptions: HashMap<Serial, Timestamp, RandomState>,
}

crate::debug_by_name!(PurgedClaims);

/// Returns whether the claims of a coupon are over before an instant: it was deleted and `redeem_until` is over, if it has one; or
/// `expires_at` and `redeem_until` are both over.
pub fn is_over(settings: &CouponSettings, deleted_at: Option<Timestamp>, before: Timestamp) -> bool {
    let is_past = |at: Option<Timestamp>| at.is_some_and(|at| at < before);
    match deleted_at {
        Some(_) => is_past(deleted_at) && settings.redeem_until.is_none_or(|at| at < before),
        None => is_past(settings.expires_at) && is_past(settings.redeem_until),
    }
}

impl Coupon {
    /// Returns when a purge began to remove the claims.
    pub const fn purged_at(&self) -> Option<Timestamp> {
        self.purged_at
    }

    /// Returns whether the claims were purged: the coupon knows how many there were, and nothing else of them.
    pub const fn is_purged(&self) -> bool {
        self.purged_at.is_some()
    }

    /// Forgets all claims. From now on the coupon issues nothing, no code is one of its codes, and its settings stay as they are.
    /// The caller has made sure that the coupon is over: see [`is_over`].
    pub fn purge(&mut self, at: Timestamp) -> PurgedClaims {
        self.purged_at = Some(at);
        let empty = HashMap::with_hasher(self.redemptions.hasher().clone());
        let keys = [&mut self.claim_keys, &mut self.redemption_keys].map(|keys| std::mem::replace(keys, Keys::new()));
        let book = self.book.emptied();
        PurgedClaims {
            _book: std::mem::replace(&mut self.book, book),
            _keys: keys,
            _redemptions: std::mem::replace(&mut self.redemptions, empty),
        }
    }

    /// Restores that so many claims were purged, in place of restoring them.
    pub fn restore_purged(&mut self, at: Timestamp, issued: u32, hasher: RandomState) -> Result<(), Damage> {
        if self.settings.limit.get() < issued {
            return Err(Damage::Oversold);
        }
        self.book = Book::of_purged(hasher, issued);
        self.purged_at = Some(at);
        Ok(())
    }

    /// Whether the claim of a serial is kept.
    pub(super) const fn has_claim(&self, serial: Serial) -> bool {
        !self.is_purged() && serial.get() <= self.issued()
    }

    /// Returns keys of requests that came before `since`, from a place of a walk on. Looks at one part of the table, which is about
    /// a 256th of the keys. If the part has more than `count_max` such keys, the walk stays: forget these, and go on.
    pub fn keys_before(&self, since: Timestamp, walk: KeyWalk, count_max: usize) -> KeyPage {
        let keys = if walk.is_at_redemptions { &self.redemption_keys } else { &self.claim_keys };
        let Some(part) = keys.part(walk.part) else {
            let next = (!walk.is_at_redemptions).then_some(KeyWalk { is_at_redemptions: true, part: 0 });
            return KeyPage { requests: Vec::new(), next };
        };
        let is_old = |serial| {
            if walk.is_at_redemptions {
                self.redeemed(serial).is_some_and(|redeemed| redeemed.redeemed_at < since)
            } else {
                self.book.issued_at(serial) < since
            }
        };
        let effect = if walk.is_at_redemptions { KeyedEffect::Redemption } else { KeyedEffect::Claim };
        let request = |(key, serial)| KeyedRequest { key, effect: effect(serial) };
        let mut old = part.filter(|(_, serial)| is_old(*serial)).map(request);
        let requests: Vec<KeyedRequest> = old.by_ref().take(count_max).collect();
        let part = if old.next().is_some() { walk.part } else { walk.part + 1 };
        KeyPage { requests, next: Some(KeyWalk { part, ..walk }) }
    }

    /// Forgets keys that [`Self::keys_before`] found. From now on a request with such a key is a new one.
    pub fn forget_keys(&mut self, requests: &[KeyedRequest]) {
        for request in requests {
            let keys = match request.effect {
                KeyedEffect::Claim(_) => &mut self.claim_keys,
                KeyedEffect::Redemption(_) => &mut self.redemption_keys,
            };
            keys.remove(request.key);
        }
    }

    /// Gives memory back that forgotten keys took. Costs a copy of the keys of those parts of the table that are mostly empty.
    pub fn shrink_keys(&mut self) {
        self.claim_keys.shrink();
        self.redemption_keys.shrink();
    }

    /// Returns how many idempotency keys are remembered. Reads all of them: for tests and reports.
    pub fn key_count(&self) -> usize {
        let count = |keys: &super::Keys| (0..).map_while(|part| keys.part(part)).map(Iterator::count).sum::<usize>();
        count(&self.claim_keys) + count(&self.redemption_keys)
    }

    /// Returns when the newest claim was accepted; `None` if there is none, or the claims were purged.
    pub fn newest_claim_at(&self) -> Option<Timestamp> {
        (0 < self.book.issued() && !self.is_purged()).then(|| self.last_issued_at())
    }
}
