//! Data out of a directory and into another one, row by row, with nothing lost and every rule kept.

use super::archive_market::IncomingMarket;
use super::coupon::{coupons, for_each_claim, for_each_redemption};
use super::faults::fault;
use super::{DATABASE_FILE, connect, coupon, lock, open_reader, schema};
use crate::edge::{draw_hasher, draw_secret};
use crate::embedded::StoredCoupon;
use crate::embedded::journal::{Change, CouponId, CouponPut};
use crate::error::Fault;
use crate::voucher::{VoucherCode, VoucherKey};
use firstcome_core::coupon::{Attributes, Claim, Coupon, CouponSettings, Damage, Issued, Redeemed, Serial};
use firstcome_core::id::{CouponName, ListingName, MemberName, RequestId, UserId};
use firstcome_core::points;
use firstcome_core::time::Timestamp;
use rusqlite::Connection;
use std::collections::HashMap;
use std::fs::File;
use std::hash::RandomState;
use std::path::Path;

/// Rows that are written with one call.
const CHANGES_PER_WRITE: usize = 1_024;

/// A coupon on its way out or in.
#[derive(Clone, Debug)]
pub struct ArchivedCoupon {
    /// Its name.
    pub name: CouponName,
    /// Its settings.
    pub settings: CouponSettings,
    /// The secret of its codes.
    pub voucher_key: VoucherKey,
    /// When it was deleted, if it was.
    pub deleted_at: Option<Timestamp>,
}

/// A claim on its way out or in.
#[derive(Clone, Debug)]
pub struct ArchivedClaim {
    /// Of which coupon.
    pub coupon: CouponName,
    /// Place and instant.
    pub issued: Issued,
    /// Whose.
    pub user: UserId,
    /// What it carries.
    pub attributes: Option<Attributes>,
    /// The request that made it, if it carried a key.
    pub request: Option<RequestId>,
    /// When it was redeemed, and by which request, if it was.
    pub redeemed: Option<(Timestamp, Option<RequestId>)>,
    /// Its code, as the coupon's key makes it.
    pub code: VoucherCode,
}

/// A consistent look at what is stored, also beside a running service.
pub struct Archive {
    pub(super) connection: Connection,
}

impl Archive {
    /// Opens the directory for reading.
    pub fn open(directory: &Path) -> Result<Self, Fault> {
        let connection = open_reader(&directory.join(DATABASE_FILE), &schema::STORE)?;
        connection.execute_batch("BEGIN").map_err(|error| fault(&error, "cannot read"))?;
        Ok(Self { connection })
    }

    /// All coupons in the order in which they were made, each with the number of its claims.
    pub fn coupons(&self) -> Result<Vec<(ArchivedCoupon, u64)>, Fault> {
        let rows = coupons(&self.connection)?;
        let count = |id: CouponId| {
            let query = "SELECT count(*) FROM claim WHERE id BETWEEN ?1 AND ?2";
            let range = coupon::range(id);
            let count = self.connection.query_row(query, range, |row| row.get(0));
            count.map(i64::cast_unsigned).map_err(|error| fault(&error, "cannot count the claims"))
        };
        rows.into_iter()
            .map(|row| {
                let claims = count(row.id)?;
                let (name, settings, voucher_key) = (row.name, row.settings, row.voucher_key);
                Ok((ArchivedCoupon { name, settings, voucher_key, deleted_at: row.deleted_at }, claims))
            })
            .collect()
    }

    /// Walks over all claims: coupons in the order of [`Self::coupons`], claims in serial order. Stops at the first
    /// error of the visitor.
    pub fn for_each_claim<E: From<Fault>>(
        &self,
        mut visit: impl FnMut(ArchivedClaim) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut redemptions: HashMap<(CouponId, Serial), (Timestamp, Option<RequestId>)> = HashMap::new();
        for_each_redemption(&self.connection, |row| {
            redemptions.insert((row.coupon, row.redeemed.serial), (row.redeemed.redeemed_at, row.request));
            Ok(())
        })?;
        for row in coupons(&self.connection)? {
            let mut stopped = None;
            let walked = for_each_claim(&self.connection, Some(row.id), |claim| {
                let user = UserId::restore(claim.user).map_err(|error| coupon::damaged(format!("user {error}")))?;
                let archived = ArchivedClaim {
                    coupon: row.name.clone(),
                    issued: claim.issued,
                    user,
                    attributes: claim.attributes.and_then(Attributes::new),
                    request: claim.request,
                    redeemed: redemptions.get(&(row.id, claim.issued.serial)).copied(),
                    code: row.voucher_key.code(claim.issued.serial),
                };
                visit(archived).map_err(|error| {
                    stopped = Some(error);
                    coupon::damaged("stopped by the visitor")
                })
            });
            if let Some(error) = stopped {
                return Err(error);
            }
            walked?;
        }
        Ok(())
    }
}

/// Why something cannot come in. Nothing of the whole import is kept then.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A coupon of that name is there already, with other settings, another secret, or claims.
    #[error("coupon {0} is there already and differs")]
    CouponDiffers(CouponName),
    /// A claim of a coupon that is neither there nor came before.
    #[error("there is no coupon {0}: put it first, or import the JSON lines that carry it")]
    UnknownCoupon(CouponName),
    /// The claim breaks a rule.
    #[error("coupon {coupon}, serial {}: {}", serial.get(), damage.as_str())]
    Broken {
        /// Which coupon.
        coupon: CouponName,
        /// Which claim.
        serial: Serial,
        /// Which rule.
        damage: Damage,
    },
    /// The claim's code was made with another secret: its holder could never redeem it here.
    #[error("coupon {coupon}, serial {}: the code was made with another secret; import the JSON lines, which carry it", serial.get())]
    OtherCode {
        /// Which coupon.
        coupon: CouponName,
        /// Which claim.
        serial: Serial,
    },
    /// The claim was redeemed before it was issued, or, without an instant of its own, before it came in.
    #[error("coupon {coupon}, serial {}: redeemed before it was issued", serial.get())]
    RedeemedTooEarly {
        /// Which coupon.
        coupon: CouponName,
        /// Which claim.
        serial: Serial,
    },
    /// The directory has members or listings, and theirs cannot be mixed with others.
    #[error("there are members or listings already: import into a directory without any")]
    MarketThere,
    /// A listing came twice.
    #[error("listing {0} comes twice")]
    ListingTwice(ListingName),
    /// A record or a bid of a listing that did not come before.
    #[error("there is no listing {0}: it must come before its bids and records")]
    UnknownListing(ListingName),
    /// A bid of a member of whom no record came before.
    #[error("there is no member {0}: records must come before bids")]
    UnknownMember(MemberName),
    /// The record is not one that follows those before it.
    #[error("member {member}, record {number}: {}", damage.as_str())]
    BrokenRecord {
        /// Of which member.
        member: MemberName,
        /// Which record.
        number: u64,
        /// What is wrong with it.
        damage: points::Damage,
    },
    /// All of it together breaks an invariant.
    #[error("{invariant}: {example}")]
    MarketBroken {
        /// Which invariant.
        invariant: &'static str,
        /// Where.
        example: String,
    },
    /// The directory cannot be written.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// A claim that comes in. What is left out is filled in: the next serial, the instant of the claim before.
#[derive(Clone, Debug)]
pub struct IncomingClaim {
    /// Of which coupon.
    pub coupon: CouponName,
    /// Its place, if the source knows it: it must then be the next one.
    pub serial: Option<Serial>,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// Whose.
    pub user: UserId,
    /// What it carries.
    pub attributes: Option<Attributes>,
    /// The request that made it.
    pub request: Option<RequestId>,
    /// When it was redeemed, and by which request.
    pub redeemed: Option<(Timestamp, Option<RequestId>)>,
    /// Its code, if the source knows it: it must then be ours.
    pub code: Option<String>,
}

/// Takes data into a directory in one transaction: all of it, or nothing.
pub struct Importer {
    pub(super) connection: Connection,
    pub(super) market: IncomingMarket,
    coupons: HashMap<CouponName, StoredCoupon>,
    hasher: RandomState,
    next_coupon: u32,
    changes: Vec<Change>,
    _lock: File,
}

impl Importer {
    /// Opens the directory for writing; no service may have it open.
    pub fn open(directory: &Path) -> Result<Self, Fault> {
        let lock = lock(directory)?;
        let connection = connect(directory)?;
        let hasher = draw_hasher();
        let stored = coupon::load(&connection, &hasher)?;
        let next_coupon = stored.iter().map(|stored| stored.id.0 + 1).max().unwrap_or(1);
        let coupons = stored.into_iter().map(|stored| (stored.name.clone(), stored)).collect();
        connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| fault(&error, "cannot write"))?;
        let (market, changes) = (IncomingMarket::default(), Vec::new());
        Ok(Self { connection, market, coupons, hasher, next_coupon, changes, _lock: lock })
    }

    /// Takes a coupon. One of the same name may be there if it is the same and has no claims.
    pub fn coupon(&mut self, archived: ArchivedCoupon, now: Timestamp) -> Result<(), ImportError> {
        if let Some(known) = self.coupons.get(&archived.name) {
            let same = *known.coupon.settings() == archived.settings
                && known.voucher_key == archived.voucher_key
                && known.coupon.is_deleted() == archived.deleted_at.is_some()
                && known.coupon.issued() == 0;
            return if same { Ok(()) } else { Err(ImportError::CouponDiffers(archived.name)) };
        }
        let id = CouponId(self.next_coupon);
        self.next_coupon += 1;
        let ArchivedCoupon { name, settings, voucher_key, deleted_at } = archived;
        let mut coupon = Coupon::new(settings.clone(), self.hasher.clone());
        let put = CouponPut { id, name: name.clone(), settings, voucher_key: voucher_key.clone(), at: now };
        self.change(Change::CouponPut(Box::new(put)))?;
        if let Some(at) = deleted_at {
            coupon.delete();
            self.change(Change::CouponDeleted { id, at })?;
        }
        self.coupons.insert(name.clone(), StoredCoupon { id, name, voucher_key, coupon });
        Ok(())
    }

    /// Makes a coupon with a secret of its own, for claims that come without one.
    pub fn new_coupon(
        &mut self,
        name: CouponName,
        settings: CouponSettings,
        now: Timestamp,
    ) -> Result<(), ImportError> {
        let voucher_key = VoucherKey::new(draw_secret()?);
        self.coupon(ArchivedCoupon { name, settings, voucher_key, deleted_at: None }, now)
    }

    /// Takes a claim. It must be the next of its coupon; every rule of a live claim but the window holds.
    pub fn claim(&mut self, incoming: IncomingClaim) -> Result<(), ImportError> {
        let IncomingClaim { coupon, serial, issued_at, user, attributes, request, redeemed, code } = incoming;
        let Some(stored) = self.coupons.get_mut(&coupon) else { return Err(ImportError::UnknownCoupon(coupon)) };
        let next = Serial::new(stored.coupon.issued() + 1).or(serial);
        let Some(serial) = serial.or(next) else { return Err(ImportError::UnknownCoupon(coupon)) };
        let broken = |damage| ImportError::Broken { coupon: coupon.clone(), serial, damage };
        if code.is_some_and(|code| stored.voucher_key.serial(&code) != Some(serial)) {
            return Err(ImportError::OtherCode { coupon, serial });
        }
        if redeemed.is_some_and(|(redeemed_at, _)| redeemed_at < issued_at) {
            return Err(ImportError::RedeemedTooEarly { coupon, serial });
        }
        let issued = Issued { serial, issued_at };
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
        self.change(Change::Claimed { id, issued, claim: Claim { user, attributes, request } })?;
        redemption.map_or(Ok(()), |change| self.change(change))
    }

    /// Makes all of it durable.
    pub fn finish(mut self) -> Result<(), ImportError> {
        self.changes.extend(self.market.balances());
        self.flush()?;
        self.market.check(&self.connection)?;
        self.connection.execute_batch("COMMIT").map_err(|error| fault(&error, "cannot commit the import"))?;
        Ok(())
    }

    pub(super) fn change(&mut self, change: Change) -> Result<(), ImportError> {
        self.changes.push(change);
        if CHANGES_PER_WRITE <= self.changes.len() { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        coupon::write(&self.connection, &self.changes).map_err(|error| fault(&error, "cannot write the import"))?;
        self.changes.clear();
        Ok(())
    }
}
