//! Exports the data of a directory, and imports it into another one, row by row. Loses nothing, and keeps every rule.

use super::coupon::{CouponPurge, coupons, for_each_claim, for_each_redemption};
use super::faults::fault;
use super::{DATABASE_FILE, auction, connect, coupon, lock, open_reader, receipt, room, schema, verify_auction};
use firstcome_core::coupon::{Attributes, CouponSettings, Serial};
use firstcome_core::id::{CouponName, RequestId, UserId};
use firstcome_core::receipt::Object;
use firstcome_core::time::{Now, Steady, Timestamp};
use firstcome_store::archive::{
    ArchivedClaim, ArchivedCoupon, ArchivedHead, ArchivedPurge, Before, ImportError, Incoming, Intake, RoomsBefore,
};
use firstcome_store::edge::draw_hasher;
use firstcome_store::embedded::journal::CouponId;
use firstcome_store::{Fault, FaultKind};
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;

/// Rows that one call writes.
const CHANGES_PER_WRITE: usize = 1_024;

/// A consistent snapshot of a store. Works beside a running service.
pub struct Archive {
    pub(super) connection: Connection,
}

firstcome_core::debug_by_name!(Archive);

impl Archive {
    /// Opens the directory for reading.
    pub fn open(directory: &Path) -> Result<Self, Fault> {
        let connection = open_reader(&directory.join(DATABASE_FILE), &schema::STORE)?;
        connection.execute_batch("BEGIN").map_err(|error| fault(&error, "cannot read"))?;
        Ok(Self { connection })
    }

    /// Returns all coupons in the order of their creation, each with the number of its claims.
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
                let claims = if row.purged.is_some() { 0 } else { count(row.id)? };
                let (name, settings, voucher_key) = (row.name, row.settings, row.voucher_key);
                let purged = row.purged.map(|CouponPurge { at, issued }| ArchivedPurge { at, issued });
                Ok((ArchivedCoupon { name, settings, voucher_key, deleted_at: row.deleted_at, purged }, claims))
            })
            .collect()
    }

    /// Visits all claims: coupons in the order of [`Self::coupons`], claims in serial order. Stops at the first error of
    /// `visit`.
    pub fn for_each_claim<E: From<Fault>>(
        &self,
        mut visit: impl FnMut(ArchivedClaim) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut redemptions: HashMap<(CouponId, Serial), (Timestamp, Option<RequestId>)> = HashMap::new();
        for_each_redemption(&self.connection, |row| {
            redemptions.insert((row.coupon, row.redeemed.serial), (row.redeemed.redeemed_at, row.request));
            Ok(())
        })?;
        // The claims that a purge has not removed yet are over like the others.
        for row in coupons(&self.connection)?.into_iter().filter(|row| row.purged.is_none()) {
            stoppable(&mut visit, |visit| {
                for_each_claim(&self.connection, Some(row.id), |claim| {
                    let user = UserId::restore(claim.user).map_err(|error| coupon::damaged(format!("user {error}")))?;
                    visit(ArchivedClaim {
                        coupon: row.name.clone(),
                        issued: claim.issued,
                        user,
                        attributes: claim.attributes.and_then(Attributes::new),
                        request: claim.request,
                        redeemed: redemptions.get(&(row.id, claim.issued.serial)).copied(),
                        code: row.voucher_key.code(claim.issued, claim.user),
                    })
                })
            })?;
        }
        Ok(())
    }

    /// Visits all published heads, chain by chain in their order. Stops at the first error of `visit`.
    pub fn for_each_head<E: From<Fault>>(&self, mut visit: impl FnMut(ArchivedHead) -> Result<(), E>) -> Result<(), E> {
        let (removed, mut before) = (receipt::removed_heads(&self.connection)?, None);
        stoppable(&mut visit, |visit| {
            receipt::for_each_head(&self.connection, |signed| {
                let removed_to = |object: &Object| removed.get(object).copied().unwrap_or_default();
                let head = ArchivedHead::next(before.as_ref(), signed, removed_to);
                before = Some(head.signed.head.object.clone());
                visit(head)
            })
        })
    }
}

/// Visits rows with a closure that has its own error type. Its first error stops the walk.
pub(super) fn stoppable<T, E: From<Fault>>(
    visit: &mut impl FnMut(T) -> Result<(), E>,
    walk: impl FnOnce(&mut dyn FnMut(T) -> Result<(), Fault>) -> Result<(), Fault>,
) -> Result<(), E> {
    let mut stopped = None;
    let walked = walk(&mut |row| {
        visit(row).map_err(|error| {
            stopped = Some(error);
            coupon::damaged("stopped by the visitor")
        })
    });
    match stopped {
        Some(error) => Err(error),
        None => Ok(walked?),
    }
}

/// Imports data into a directory in one transaction: all of it, or nothing.
pub struct Importer {
    connection: Connection,
    intake: Intake,
    _lock: File,
}

firstcome_core::debug_by_name!(Importer);

impl Importer {
    /// Opens the directory for writing; no service may have it open. `now` is the time of the import.
    pub fn open(directory: &Path, now: Timestamp) -> Result<Self, Fault> {
        let lock = lock(directory)?;
        let connection = connect(directory)?;
        let coupons = coupon::load(&connection, &draw_hasher())?;
        let rooms = room::rooms(&connection)?;
        let next = rooms.iter().map(|room| room.id.0 + 1).max().unwrap_or(1);
        let names = rooms.into_iter().map(|room| room.name).collect();
        let pass_secrets = room::secrets(&connection)?;
        let query = "SELECT EXISTS (SELECT 1 FROM member) OR EXISTS (SELECT 1 FROM listing)";
        let has_auctions = connection.query_row(query, [], |row| row.get::<_, bool>(0));
        let has_auctions = has_auctions.map_err(|error| fault(&error, "cannot read"))?;
        // Imported ends use the steady clock of the directory. A new directory's steady clock begins at the wall clock.
        let clock =
            room::clock(&connection)?.unwrap_or_else(|| Now { wall: now, steady: Steady::from_us(now.as_us()) });
        connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| fault(&error, "cannot write"))?;
        let rooms = RoomsBefore { names, has_rooms: false, next, pass_secrets, lost_wait: true };
        let intake = Intake::new(Before { coupons, rooms, has_auctions }, clock);
        Ok(Self { connection, intake, _lock: lock })
    }

    /// Imports a row. Everything that it refers to must exist or must have come before.
    pub fn take(&mut self, row: Incoming) -> Result<(), ImportError> {
        self.intake.take(row)?;
        if CHANGES_PER_WRITE <= self.intake.pending() { self.flush() } else { Ok(()) }
    }

    /// Creates a coupon with a new secret, for claims that come without a coupon.
    pub fn new_coupon(&mut self, name: CouponName, settings: CouponSettings) -> Result<(), ImportError> {
        self.intake.new_coupon(name, settings)
    }

    /// Returns the imported secrets of the service, by name. The caller stores them.
    pub const fn secrets(&self) -> &BTreeMap<String, [u8; 32]> {
        self.intake.secrets()
    }

    /// Runs the checks that need all of the data, before [`Self::finish`] makes it durable.
    pub fn check(&mut self) -> Result<(), ImportError> {
        self.intake.finish()?;
        self.flush()?;
        self.check_auctions()
    }

    /// Commits the import, after [`Self::check`].
    pub fn finish(self) -> Result<(), ImportError> {
        self.connection.execute_batch("COMMIT").map_err(|error| fault(&error, "cannot commit the import"))?;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        let changes = self.intake.changes();
        coupon::write(&self.connection, &changes).map_err(|error| fault(&error, "cannot write the import"))?;
        Ok(())
    }

    /// Checks all auctions, both like a start of the store and like `verify`.
    fn check_auctions(&self) -> Result<(), ImportError> {
        if self.intake.auctions().is_empty() {
            return Ok(());
        }
        let end_of_time = Now { wall: Timestamp::MAX, steady: Steady::from_us(Timestamp::MAX.as_us()) };
        // The load comes first: `verify` needs data that a start accepts.
        auction::load(&self.connection, end_of_time).map_err(|fault| match fault.kind {
            FaultKind::Damaged => {
                ImportError::AuctionsBroken { invariant: "what comes in can be opened again", example: fault.detail }
            }
            _ => fault.into(),
        })?;
        let broken = verify_auction::check(&self.connection)?.into_iter().find(|check| 0 < check.breaches);
        match broken {
            Some(check) => {
                let example = check.examples.into_iter().next().unwrap_or_default();
                Err(ImportError::AuctionsBroken { invariant: check.invariant, example })
            }
            None => Ok(()),
        }
    }
}
