//! The rules by which rows come into any store: coupons and claims here, the rest beside it.

use super::auction::IncomingAuctionRows;
use super::room::{IncomingRooms, RoomsBefore};
use super::{ArchivedCoupon, ArchivedSecret, ImportError, Incoming, IncomingClaim};
use crate::edge::{draw_hasher, draw_secret};
use crate::embedded::StoredCoupon;
use crate::embedded::journal::{Change, CouponId, CouponPut};
use crate::voucher::VoucherKey;
use firstcome_core::coupon::{Claim, Coupon, CouponSettings, Issued, Redeemed, Serial};
use firstcome_core::id::CouponName;
use firstcome_core::time::Now;
use firstcome_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::RandomState;

/// Where the numbers of an import go on, and what there is already.
#[derive(Default)]
pub struct Before {
    /// Its coupons.
    pub coupons: Vec<StoredCoupon>,
    /// Its rooms.
    pub rooms: RoomsBefore,
    /// Whether it has a member or a listing.
    pub has_auctions: bool,
}

/// Takes rows by the rules, and says what they change. Keeps names and users of all that came: about 50 bytes a claim or
/// ticket and 100 a bid.
///
/// Ids are those of the directory that it goes into; elsewhere they count what came, from 1.
pub struct Intake {
    pub(super) now: Now,
    pub(super) hasher: RandomState,
    coupons: HashMap<CouponName, StoredCoupon, RandomState>,
    next_coupon: u32,
    /// Coupons whose codes are bound from another serial on than is written yet.
    rebound: BTreeSet<CouponId>,
    pub(super) rooms: IncomingRooms,
    pub(super) auctions: IncomingAuctionRows,
    secrets: BTreeMap<String, [u8; 32]>,
    changes: Vec<Change>,
}

impl Intake {
    /// Begins. Slots that come in end by the clocks that `now` shows.
    pub fn new(before: Before, now: Now) -> Self {
        let hasher = draw_hasher();
        let next_coupon = before.coupons.iter().map(|stored| stored.id.0 + 1).max().unwrap_or(1);
        let mut coupons = HashMap::with_hasher(hasher.clone());
        coupons.extend(before.coupons.into_iter().map(|stored| (stored.name.clone(), stored)));
        let rooms = IncomingRooms::new(before.rooms, &hasher);
        let auctions = IncomingAuctionRows::new(before.has_auctions, &hasher);
        let (rebound, secrets, changes) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
        Self { now, hasher, coupons, next_coupon, rebound, rooms, auctions, secrets, changes }
    }

    /// Takes one row.
    pub fn take(&mut self, row: Incoming) -> Result<(), ImportError> {
        match row {
            Incoming::Coupon(coupon) => self.coupon(*coupon),
            Incoming::Claim(claim) => self.claim(*claim),
            Incoming::Room(room) => self.room(*room),
            Incoming::Ticket(ticket) => self.ticket(*ticket),
            Incoming::PassSecret(secret) => self.pass_secret(secret),
            Incoming::Listing(listing) => self.listing(*listing),
            Incoming::Record(record) => self.record(*record),
            Incoming::Bid(bid) => self.bid(*bid),
            Incoming::Secret(secret) => self.secret(secret),
        }
    }

    /// What has changed since this was asked last.
    pub fn changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// How many changes wait to be written.
    pub const fn pending(&self) -> usize {
        self.changes.len()
    }

    /// Secrets of the service that came, by their names.
    pub const fn secrets(&self) -> &BTreeMap<String, [u8; 32]> {
        &self.secrets
    }

    /// Everything has come: checks what can be said only now. What is left to write is among [`Self::changes`] then.
    pub fn finish(&mut self) -> Result<(), ImportError> {
        self.finish_rooms()?;
        self.bind_codes();
        let balances: Vec<Change> = self.auctions.balances().collect();
        self.changes.extend(balances);
        Ok(())
    }

    /// Only the codes of claims that came can have been told: those of the next serials are bound to their claims.
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

    fn secret(&mut self, secret: ArchivedSecret) -> Result<(), ImportError> {
        let ArchivedSecret { name, bytes } = secret;
        match self.secrets.insert(name.clone(), bytes) {
            Some(known) if known != bytes => Err(ImportError::SecretDiffers(name)),
            _ => Ok(()),
        }
    }

    /// Takes a coupon. One of the same name may be there if it is the same and has no claims.
    fn coupon(&mut self, archived: ArchivedCoupon) -> Result<(), ImportError> {
        if let Some(known) = self.coupons.get_mut(&archived.name) {
            let same = *known.coupon.settings() == archived.settings
                && known.voucher_key.as_bytes() == archived.voucher_key.as_bytes()
                && known.coupon.is_deleted() == archived.deleted_at.is_some()
                && known.coupon.issued() == 0;
            if !same {
                return Err(ImportError::CouponDiffers(archived.name));
            }
            // No code of it was told here: which ones were told elsewhere is what came.
            known.voucher_key = archived.voucher_key;
            self.rebound.insert(known.id);
            return Ok(());
        }
        let id = CouponId(self.next_coupon);
        self.next_coupon += 1;
        let ArchivedCoupon { name, settings, voucher_key, deleted_at } = archived;
        let mut coupon = Coupon::new(settings.clone(), self.hasher.clone());
        let put = CouponPut { id, name: name.clone(), settings, voucher_key: voucher_key.clone(), at: self.now.wall };
        self.change(Change::CouponPut(Box::new(put)));
        if let Some(at) = deleted_at {
            coupon.delete();
            self.change(Change::CouponDeleted { id, at });
        }
        self.coupons.insert(name.clone(), StoredCoupon { id, name, voucher_key, coupon });
        Ok(())
    }

    /// Makes a coupon with a secret of its own, for claims that come without one.
    pub fn new_coupon(&mut self, name: CouponName, settings: CouponSettings) -> Result<(), ImportError> {
        let voucher_key = VoucherKey::new(draw_secret()?);
        self.coupon(ArchivedCoupon { name, settings, voucher_key, deleted_at: None })
    }

    /// Takes a claim. It must be the next of its coupon; every rule of a live claim but the window holds.
    fn claim(&mut self, incoming: IncomingClaim) -> Result<(), ImportError> {
        let IncomingClaim { coupon, serial, issued_at, user, attributes, request, redeemed, code } = incoming;
        let Some(stored) = self.coupons.get_mut(&coupon) else { return Err(ImportError::UnknownCoupon(coupon)) };
        let next = Serial::new(stored.coupon.issued() + 1).or(serial);
        let Some(serial) = serial.or(next) else { return Err(ImportError::UnknownCoupon(coupon)) };
        let broken = |damage| ImportError::Broken { coupon: coupon.clone(), serial, damage };
        let issued = Issued { serial, issued_at };
        if let Some(code) = code
            && !stored.voucher_key.is_code_of(&code, issued, user.as_str())
        {
            // A code from before codes were bound is taken while all before it are such.
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

    /// Of all coupons that have claims: the number, how many, and the instant of the last.
    pub fn last_claims(&self) -> impl Iterator<Item = (u32, u32, Timestamp)> {
        self.coupons.values().filter_map(|stored| {
            let last = Serial::new(stored.coupon.issued())?;
            let Issued { issued_at, .. } = stored.coupon.issued_as(last);
            Some((stored.id.0, last.get(), issued_at))
        })
    }

    /// What the clocks showed when it began.
    pub const fn now(&self) -> Now {
        self.now
    }
}
