//! The rules by which any store takes the rows of an import: this module for coupons and claims, its siblings for the
//! rest.

use super::auction::IncomingAuctionRows;
use super::room::{IncomingRooms, RoomsBefore};
use super::{ArchivedCoupon, ArchivedPurge, ArchivedSecret, ImportError, Incoming, IncomingClaim};
use crate::edge::{draw_hasher, draw_secret};
use crate::embedded::StoredCoupon;
use crate::embedded::journal::{Change, CouponId, CouponPut};
use crate::voucher::VoucherKey;
use firstcome_core::coupon::{Claim, Coupon, CouponSettings, Issued, Redeemed, Serial};
use firstcome_core::id::CouponName;
use firstcome_core::receipt::{Head, Object};
use firstcome_core::time::Now;
use firstcome_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::RandomState;

/// What the store holds before the import, and where its numbers continue.
#[derive(Default)]
pub struct Before {
    /// Its coupons.
    pub coupons: Vec<StoredCoupon>,
    /// Its rooms.
    pub rooms: RoomsBefore,
    /// Whether it has a member or a listing.
    pub has_auctions: bool,
}

firstcome_core::debug_by_name!(Before);

/// Takes rows by the rules, and returns the changes that they make. Remembers the names and users of all rows: about 50
/// bytes for a claim or ticket and 100 for a bid.
///
/// Ids continue those of the target directory; for other targets they count from 1.
pub struct Intake {
    pub(super) now: Now,
    pub(super) hasher: RandomState,
    coupons: HashMap<CouponName, StoredCoupon, RandomState>,
    next_coupon: u32,
    /// Coupons whose first bound serial has changed and is not written yet.
    rebound: BTreeSet<CouponId>,
    pub(super) rooms: IncomingRooms,
    pub(super) auctions: IncomingAuctionRows,
    secrets: BTreeMap<String, [u8; 32]>,
    /// The last head of each room and coupon that came with one.
    pub(super) last_heads: HashMap<Object, Head, RandomState>,
    changes: Vec<Change>,
}

firstcome_core::debug_by_name!(Intake);

impl Intake {
    /// Begins an import. The ends of imported slots count by the clocks of `now`.
    pub fn new(before: Before, now: Now) -> Self {
        let hasher = draw_hasher();
        let next_coupon = before.coupons.iter().map(|stored| stored.id.0 + 1).max().unwrap_or(1);
        let mut coupons = HashMap::with_hasher(hasher.clone());
        coupons.extend(before.coupons.into_iter().map(|stored| (stored.name.clone(), stored)));
        let rooms = IncomingRooms::new(before.rooms, &hasher);
        let auctions = IncomingAuctionRows::new(before.has_auctions, &hasher);
        let (rebound, secrets, changes) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
        let last_heads = HashMap::with_hasher(hasher.clone());
        Self { now, hasher, coupons, next_coupon, rebound, rooms, auctions, secrets, last_heads, changes }
    }

    /// Takes one row.
    pub fn take(&mut self, row: Incoming) -> Result<(), ImportError> {
        match row {
            Incoming::Coupon(coupon) => self.take_coupon(*coupon),
            Incoming::Claim(claim) => self.claim(*claim),
            Incoming::Room(room) => self.room(*room),
            Incoming::Ticket(ticket) => self.ticket(*ticket),
            Incoming::PassSecret(secret) => self.pass_secret(secret),
            Incoming::Listing(listing) => self.listing(*listing),
            Incoming::Record(record) => self.record(*record),
            Incoming::Bid(bid) => self.bid(*bid),
            Incoming::Head(head) => self.head(*head),
            Incoming::Secret(secret) => self.secret(secret),
        }
    }

    /// Returns the changes since the last call.
    pub fn changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// How many changes wait to be written.
    pub const fn pending(&self) -> usize {
        self.changes.len()
    }

    /// Returns the imported secrets of the service, by name.
    pub const fn secrets(&self) -> &BTreeMap<String, [u8; 32]> {
        &self.secrets
    }

    /// Ends the import, with the checks that need all rows. [`Self::changes`] then returns the rest of the changes.
    pub fn finish(&mut self) -> Result<(), ImportError> {
        self.finish_rooms()?;
        self.bind_codes();
        let balances: Vec<Change> = self.auctions.balances().collect();
        self.changes.extend(balances);
        Ok(())
    }

    /// Binds the codes of all serials after the imported ones: only codes of imported claims can have been shown to
    /// users.
    fn bind_codes(&mut self) {
        for stored in self.coupons.values_mut() {
            let next = stored.coupon.issued() + 1;
            let from = stored.voucher_key.codes_bound_from().min(next);
            if from < stored.voucher_key.codes_bound_from() || self.rebound.contains(&stored.id) {
                stored.voucher_key = stored.voucher_key.clone().bound_from(from);
                self.changes.push(Change::CodesBound { id: stored.id, from });
            }
        }
    }

    pub(super) fn change(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Returns a coupon that exists or has come.
    pub(super) fn coupon(&self, name: &CouponName) -> Option<&StoredCoupon> {
        self.coupons.get(name)
    }

    fn secret(&mut self, secret: ArchivedSecret) -> Result<(), ImportError> {
        let ArchivedSecret { name, bytes } = secret;
        match self.secrets.insert(name.clone(), bytes) {
            Some(known) if known != bytes => Err(ImportError::SecretDiffers(name)),
            _ => Ok(()),
        }
    }

    /// Takes a coupon. A coupon of the same name may exist if it is equal and has no claims.
    fn take_coupon(&mut self, archived: ArchivedCoupon) -> Result<(), ImportError> {
        if let Some(known) = self.coupons.get_mut(&archived.name) {
            let same = *known.coupon.settings() == archived.settings
                && known.voucher_key.as_bytes() == archived.voucher_key.as_bytes()
                && known.coupon.is_deleted() == archived.deleted_at.is_some()
                && known.coupon.issued() == 0
                && archived.purged.is_none();
            if !same {
                return Err(ImportError::CouponDiffers(archived.name));
            }
            // This store has issued no code of the coupon. The import knows which codes were issued elsewhere.
            known.voucher_key = archived.voucher_key;
            self.rebound.insert(known.id);
            return Ok(());
        }
        let ArchivedCoupon { name, settings, voucher_key, deleted_at, purged } = archived;
        let id = CouponId(self.next_coupon);
        self.next_coupon += 1;
        let mut coupon = Coupon::new(settings.clone(), self.hasher.clone());
        let put = CouponPut { id, name: name.clone(), settings, voucher_key: voucher_key.clone(), at: self.now.wall };
        self.change(Change::CouponPut(Box::new(put)));
        if let Some(at) = deleted_at {
            coupon.delete();
            self.change(Change::CouponDeleted { id, at });
        }
        if let Some(ArchivedPurge { at, issued }) = purged {
            let restored = coupon.restore_purged(at, issued, self.hasher.clone());
            restored.map_err(|_| ImportError::PurgedTooMany(name.clone()))?;
            self.change(Change::CouponPurged { id, at, issued });
        }
        self.coupons.insert(name.clone(), StoredCoupon { id, name, voucher_key, coupon });
        Ok(())
    }

    /// Makes a coupon with a fresh secret, for claims that come without one.
    pub fn new_coupon(&mut self, name: CouponName, settings: CouponSettings) -> Result<(), ImportError> {
        let voucher_key = VoucherKey::new(draw_secret()?);
        self.take_coupon(ArchivedCoupon { name, settings, voucher_key, deleted_at: None, purged: None })
    }

    /// Takes a claim. It must be the next one of its coupon. Every rule of a live claim holds, except the window.
    fn claim(&mut self, incoming: IncomingClaim) -> Result<(), ImportError> {
        let IncomingClaim { coupon, serial, issued_at, user, attributes, request, redeemed, code } = incoming;
        let Some(stored) = self.coupons.get_mut(&coupon) else { return Err(ImportError::UnknownCoupon(coupon)) };
        if stored.coupon.is_purged() {
            return Err(ImportError::ClaimOfPurged(coupon));
        }
        let next = Serial::new(stored.coupon.issued() + 1).or(serial);
        let Some(serial) = serial.or(next) else { return Err(ImportError::UnknownCoupon(coupon)) };
        let broken = |damage| ImportError::Broken { coupon: coupon.clone(), serial, damage };
        let issued = Issued { serial, issued_at };
        if let Some(code) = code
            && !stored.voucher_key.is_code_of(&code, issued, user.as_str())
        {
            // Accept a code from before codes were bound, if all earlier claims have such codes too.
            let old = stored.voucher_key.clone().bound_from(serial.get() + 1);
            if serial.get() != stored.voucher_key.codes_bound_from() || !old.is_code_of(&code, issued, user.as_str()) {
                return Err(ImportError::OtherCode { coupon, serial });
            }
            stored.voucher_key = old;
            self.rebound.insert(stored.id);
        }
        if redeemed.is_some_and(|(redeemed_at, _)| redeemed_at < issued_at) {
            return Err(ImportError::RedeemedTooEarly { coupon, serial });
        }
        stored.coupon.restore_claim(issued, &user, request).map_err(broken)?;
        let id = stored.id;
        let redemption = match redeemed {
            None => None,
            Some((redeemed_at, request)) => {
                let redeemed = Redeemed { serial, redeemed_at };
                stored.coupon.restore_redemption(redeemed, request).map_err(broken)?;
                Some(Change::Redeemed { id, redeemed, request })
            }
        };
        self.change(Change::Claimed { id, issued, claim: Claim { user, attributes, request } });
        self.changes.extend(redemption);
        Ok(())
    }

    /// Returns the id, the number of claims and the instant of the last claim, for each coupon with claims.
    pub fn last_claims(&self) -> impl Iterator<Item = (u32, u32, Timestamp)> {
        self.coupons.values().filter_map(|stored| {
            let last = Serial::new(stored.coupon.issued()).filter(|_| !stored.coupon.is_purged())?;
            let Issued { issued_at, .. } = stored.coupon.issued_as(last);
            Some((stored.id.0, last.get(), issued_at))
        })
    }

    /// Returns the clocks at the beginning of the import.
    pub const fn now(&self) -> Now {
        self.now
    }
}
