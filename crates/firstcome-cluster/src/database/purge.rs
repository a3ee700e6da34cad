//! Rows that nothing rests on any more: finds them, and removes them in pages. Each page is a short transaction.
//!
//! A page finds its rows by a primary key, so a purge needs no index that each claim would have to pay for.

use super::coupon::select;
use super::{CouponRow, Database, kind};
use firstcome_core::time::Timestamp;
use firstcome_sql::SqlError;
use firstcome_sql::dialect::{Dialect, list, number, quoted};
use firstcome_sql::reader::Reader;
use std::fmt::Write as _;
use std::time::Duration;
use tokio::time::Instant;

/// Rows that one page removes at most, or looks at.
pub(crate) const PAGE_ROWS: u32 = 1_000;

/// What a purge begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PurgeTurn {
    pub(crate) now: Timestamp,
    /// When the last purge came to its end.
    pub(crate) finished_at: Option<Timestamp>,
    /// The latest instant that the rows of coupons, rooms, members and listings bear.
    pub(crate) last_at: Option<Timestamp>,
}

/// A request with an idempotency key, and when it had its effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatedRequest {
    pub(crate) key: u128,
    /// `None` if its effect is not there.
    pub(crate) at: Option<i64>,
}

/// An admission that is over or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatedSlot {
    pub(crate) admission: u64,
    /// Its end at the latest, on the steady clock of the room, if it has ended.
    pub(crate) ended_before: Option<i64>,
}

/// How far the rows of tickets that are gone are removed.
#[derive(Clone, Debug)]
pub(crate) struct GoneRows {
    pub(crate) room: i64,
    pub(crate) name: String,
    pub(crate) gone_before: u32,
    /// A number below which all were gone at an instant.
    pub(crate) mark: Option<(u32, Timestamp)>,
    /// What the clocks of the room showed when it was last written.
    pub(crate) wall: Timestamp,
    pub(crate) steady_us: i64,
}

impl Database {
    pub(super) async fn purge_session(&self, text: String) -> Result<u64, SqlError> {
        let mut session = self.base.session(Instant::now() + self.base.options.patience).await?;
        let rows = session.run(format!("{}{text}", self.dialect().words().begin)).await?;
        self.commit(session).await?;
        Ok(rows)
    }

    /// Coupons that are over and may still have keys on Redis, after this number, at most so many.
    pub(crate) async fn coupons_with_keys(&self, after: i64, count: u32) -> Result<Vec<CouponRow>, SqlError> {
        let text = format!(
            "{}id>{after} AND keys_gone=0 AND (deleted_at IS NOT NULL OR purged_at IS NOT NULL) ORDER BY id LIMIT {count};",
            select()
        );
        self.base.read(text).await?.iter().map(|row| self.coupon_of(row)).collect()
    }

    /// Notes that Redis keeps nothing of a coupon that is over.
    pub(crate) async fn note_keys_gone(&self, id: i64) -> Result<(), SqlError> {
        self.purge_session(format!("UPDATE firstcome_coupon SET keys_gone=1 WHERE id={id};")).await.map(drop)
    }

    /// Takes the turn to purge for so long; `None` if another node has it. Reads what the clock is judged by, which is a
    /// pass over coupons, rooms, members and listings: [`Self::keep_turn`] keeps the turn without one.
    pub(crate) async fn take_turn(&self, node: &str, lease_us: i64) -> Result<Option<PurgeTurn>, SqlError> {
        let (clock, mut name) = (self.clock(), String::new());
        quoted(&mut name, node);
        // A turn that ends later than any can is one from before an operator set the clock back.
        let text = format!(
            "UPDATE firstcome_purge SET node={name},until_at={clock}+{lease_us} WHERE id=1 AND \
             (node={name} OR until_at<={clock} OR until_at>{clock}+{lease_us});"
        );
        if self.purge_session(text).await? == 0 {
            return Ok(None);
        }
        let text = format!(
            "SELECT finished_at,{clock},COALESCE((SELECT MAX(last_at) FROM firstcome_coupon),0),\
             COALESCE((SELECT MAX(clock_wall) FROM firstcome_room),0) FROM firstcome_purge WHERE id=1 AND node={name};"
        );
        let rows = self.base.read(text).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let mut columns = Reader::at(row, 0);
        let (finished_at, now) = (columns.maybe_instant()?, columns.instant()?);
        // A coupon without claims bears the first instant of all, a room without a log that of 1970.
        let last_at = columns.instant()?.max(columns.instant()?);
        let last_at = Some(last_at).max(self.last_of_auctions().await?).filter(|last| 0 < last.as_us());
        Ok(Some(PurgeTurn { now, finished_at, last_at }))
    }

    /// Keeps the turn for so long from now on. False if another node has taken it meanwhile, also if that node has given
    /// it back. One statement, on one row.
    pub(crate) async fn keep_turn(&self, node: &str, lease_us: i64) -> Result<bool, SqlError> {
        let mut text = format!("UPDATE firstcome_purge SET until_at={}+{lease_us} WHERE id=1 AND node=", self.clock());
        quoted(&mut text, node);
        text.push(';');
        Ok(self.purge_session(text).await? == 1)
    }

    /// How long ago the last purge came to its end.
    pub(crate) async fn last_purge_age(&self) -> Result<Option<Duration>, SqlError> {
        let text = format!("SELECT {}-finished_at FROM firstcome_purge WHERE id=1;", self.clock());
        let rows = self.base.read(text).await?;
        let age_us = rows.first().map(|row| Reader::at(row, 0).maybe_integer()).transpose()?.flatten();
        Ok(age_us.map(|us| Duration::from_micros(us.max(0).unsigned_abs())))
    }

    /// The latest instant that the rows of members and listings bear, if their tables are in this database.
    async fn last_of_auctions(&self) -> Result<Option<Timestamp>, SqlError> {
        let schema = match self.dialect() {
            Dialect::Postgres => "current_schema()",
            Dialect::MySql => "DATABASE()",
        };
        let text = format!(
            "SELECT 1 FROM information_schema.tables WHERE table_schema={schema} AND table_name='firstcome_listing';"
        );
        if self.base.read(text).await?.is_empty() {
            return Ok(None);
        }
        let text = "SELECT MAX(last_at) FROM firstcome_member;SELECT MAX(last_at) FROM firstcome_listing;";
        let mut last = None;
        for row in &self.base.read(text.to_owned()).await? {
            last = last.max(Reader::at(row, 0).maybe_instant()?);
        }
        Ok(last)
    }

    /// Gives the turn back; with an end if the purge came to its end.
    pub(crate) async fn end_purge(&self, node: &str, finished_at: Option<Timestamp>) -> Result<(), SqlError> {
        let mut text = String::from("UPDATE firstcome_purge SET node='',until_at=0");
        if let Some(at) = finished_at {
            let _ = write!(text, ",finished_at={}", at.as_us());
        }
        text.push_str(" WHERE id=1 AND node=");
        quoted(&mut text, node);
        text.push(';');
        self.purge_session(text).await.map(drop)
    }

    /// Coupons after this number whose claims are over since this instant or before, or whose purge has begun, at most so many.
    /// Without an instant: those whose purge has begun.
    ///
    /// Claims are over when the coupon can issue no other one and no code can be redeemed any more. The code of a coupon that was
    /// deleted and has no end of redemption can be redeemed until the purge: for such the deletion counts.
    pub(crate) async fn purgeable(
        &self,
        over_by: Option<Timestamp>,
        after: i64,
        count: u32,
    ) -> Result<Vec<(i64, u32, u32)>, SqlError> {
        let text = format!(
            "SELECT id,issued,purged_to FROM firstcome_coupon WHERE id>{after} AND purged_to<issued AND {} ORDER BY id LIMIT {count};",
            over(over_by)
        );
        let read = |row| {
            let mut columns = Reader::at(row, 0);
            Ok((columns.integer()?, columns.small()?, columns.small()?))
        };
        self.base.read(text).await?.iter().map(read).collect()
    }

    /// Marks a coupon as purged, if its claims are over. From now on it issues nothing, and its settings do not change. False if they
    /// are not over any more.
    pub(crate) async fn mark_purged(&self, id: i64, over_by: Option<Timestamp>) -> Result<bool, SqlError> {
        let (clock, over) = (self.clock(), over(over_by));
        let text = format!(
            "UPDATE firstcome_coupon SET version=CASE WHEN purged_at IS NULL THEN version+1 ELSE version END,\
             purged_at=COALESCE(purged_at,{clock}) WHERE id={id} AND {over};"
        );
        Ok(self.purge_session(text).await? == 1)
    }

    /// Removes some keys of requests of a purged coupon; how many.
    pub(crate) async fn remove_requests_of(&self, coupon: i64, kind: i64) -> Result<u64, SqlError> {
        let of = format!("firstcome_coupon_request WHERE coupon={coupon} AND kind={kind}");
        let rows = self.base.read(format!("SELECT request FROM {of} ORDER BY request LIMIT {PAGE_ROWS};")).await?;
        let Some(last) = rows.last() else { return Ok(0) };
        let mut text = format!("DELETE FROM {of} AND request<=");
        self.dialect().bytes(&mut text, &Reader::at(last, 0).key()?.to_be_bytes());
        text.push(';');
        self.purge_session(text).await
    }

    /// Removes the claims of a purged coupon with these serials, and their redemptions.
    pub(crate) async fn remove_claims(&self, coupon: i64, from: u32, to: u32) -> Result<(), SqlError> {
        let of = format!("WHERE coupon={coupon} AND serial BETWEEN {from} AND {to};");
        // Claims first: a redemption that is under way has the lock of its claim.
        let text = format!(
            "UPDATE firstcome_coupon SET purged_to={to} WHERE id={coupon} AND purged_at IS NOT NULL AND purged_to={};\
             DELETE FROM firstcome_claim {of}DELETE FROM firstcome_redemption {of}",
            from - 1
        );
        self.purge_session(text).await.map(drop)
    }

    /// The first coupon after this number with keys of requests.
    pub(crate) async fn coupon_with_requests(&self, after: i64) -> Result<Option<i64>, SqlError> {
        let text = format!("SELECT coupon FROM firstcome_coupon_request WHERE coupon>{after} ORDER BY coupon LIMIT 1;");
        self.base.read(text).await?.first().map(|row| Reader::at(row, 0).integer()).transpose()
    }

    /// Some keys of requests of a coupon after this one, in their order.
    pub(crate) async fn dated_requests(
        &self,
        coupon: i64,
        kind: i64,
        after: Option<u128>,
    ) -> Result<Vec<DatedRequest>, SqlError> {
        let (table, at) = if kind == kind::CLAIM {
            ("firstcome_claim", "issued_at")
        } else {
            ("firstcome_redemption", "redeemed_at")
        };
        let mut text = format!(
            "SELECT q.request,e.{at} FROM firstcome_coupon_request q LEFT JOIN {table} e ON e.coupon=q.coupon \
             AND e.serial=q.serial WHERE q.coupon={coupon} AND q.kind={kind}"
        );
        if let Some(after) = after {
            text.push_str(" AND q.request>");
            self.dialect().bytes(&mut text, &after.to_be_bytes());
        }
        let _ = write!(text, " ORDER BY q.request LIMIT {PAGE_ROWS};");
        let read = |row| {
            let mut columns = Reader::at(row, 0);
            Ok(DatedRequest { key: columns.key()?, at: columns.maybe_integer()? })
        };
        self.base.read(text).await?.iter().map(read).collect()
    }

    /// Removes these keys of requests.
    pub(crate) async fn remove_requests(&self, coupon: i64, kind: i64, keys: &[u128]) -> Result<u64, SqlError> {
        let keys = list(keys, |text, key| self.dialect().bytes(text, &key.to_be_bytes()));
        self.purge_session(format!(
            "DELETE FROM firstcome_coupon_request WHERE coupon={coupon} AND kind={kind} AND request IN ({keys});"
        ))
        .await
    }

    /// Removes some entries that no node could read and that were put aside at this instant or before; how many.
    pub(crate) async fn remove_dead_letters(&self, by: Timestamp) -> Result<u64, SqlError> {
        let text = format!(
            "SELECT coupon,generation,position FROM firstcome_dead_letter WHERE at<={} LIMIT {PAGE_ROWS};",
            by.as_us()
        );
        let rows = self.base.read(text).await?;
        if rows.is_empty() {
            return Ok(0);
        }
        let mut keys = Vec::with_capacity(rows.len());
        for row in &rows {
            let mut columns = Reader::at(row, 0);
            keys.push([columns.integer()?, columns.integer()?, columns.integer()?]);
        }
        let keys = list(keys, |text, [coupon, generation, position]| {
            let _ = write!(text, "({coupon},{generation},{position})");
        });
        self.purge_session(format!("DELETE FROM firstcome_dead_letter WHERE (coupon,generation,position) IN ({keys});"))
            .await
    }

    /// How many entries were put aside at this instant or before.
    pub(crate) async fn count_dead_letters(&self, by: Timestamp) -> Result<u64, SqlError> {
        self.count_rows(format!("firstcome_dead_letter WHERE at<={}", by.as_us())).await
    }

    /// How many rows say that tickets below this number are gone.
    pub(crate) async fn count_gone(&self, room: i64, before: u32) -> Result<u64, SqlError> {
        self.count_rows(format!("firstcome_gone WHERE room={room} AND number<{before}")).await
    }

    async fn count_rows(&self, of: String) -> Result<u64, SqlError> {
        let whole = super::whole(self.dialect());
        let rows = self.base.read(format!("SELECT CAST(COUNT(*) AS {whole}) FROM {of};")).await?;
        rows.first().map_or(Ok(0), |row| Reader::at(row, 0).count())
    }

    /// Rooms after this number, at most so many.
    pub(crate) async fn gone_rows(&self, after: i64, count: u32) -> Result<Vec<GoneRows>, SqlError> {
        let text = format!(
            "SELECT id,name,gone_before,gone_mark,gone_mark_at,clock_wall,clock_steady FROM firstcome_room \
             WHERE id>{after} ORDER BY id LIMIT {count};"
        );
        let read = |row| {
            let mut columns = Reader::at(row, 0);
            let (room, name) = (columns.integer()?, columns.maybe_text()?.unwrap_or_default());
            let gone_before = columns.small()?;
            let mark = columns.maybe_count()?.and_then(|mark| u32::try_from(mark).ok());
            let mark = mark.zip(columns.maybe_instant()?);
            let (wall, steady_us) = (columns.instant()?, columns.integer()?);
            Ok(GoneRows { room, name, gone_before, mark, wall, steady_us })
        };
        self.base.read(text).await?.iter().map(read).collect()
    }

    /// Some admissions of a room after this one, in their order.
    pub(crate) async fn dated_slots(&self, room: i64, after: u64) -> Result<Vec<DatedSlot>, SqlError> {
        let text = format!(
            "SELECT admission,ended,until_steady FROM firstcome_slot WHERE room={room} AND admission>{after} \
             ORDER BY admission LIMIT {PAGE_ROWS};"
        );
        let read = |row| {
            let mut columns = Reader::at(row, 0);
            let (admission, has_ended) = (columns.count()?, columns.integer()? == 1);
            let until = columns.integer()?;
            Ok(DatedSlot { admission, ended_before: has_ended.then_some(until) })
        };
        self.base.read(text).await?.iter().map(read).collect()
    }

    /// Removes these admissions, which have ended.
    pub(crate) async fn remove_slots(&self, room: i64, admissions: &[u64]) -> Result<u64, SqlError> {
        let admissions = list(admissions, |text, admission| number(text, *admission));
        self.purge_session(format!(
            "DELETE FROM firstcome_slot WHERE room={room} AND ended=1 AND admission IN ({admissions});"
        ))
        .await
    }

    /// The lowest number of a ticket of a room whose row says that it is gone.
    pub(crate) async fn lowest_gone(&self, room: i64) -> Result<Option<u32>, SqlError> {
        let text = format!("SELECT number FROM firstcome_gone WHERE room={room} ORDER BY number LIMIT 1;");
        self.base.read(text).await?.first().map(|row| Reader::at(row, 0).small()).transpose()
    }

    /// Notes that all numbers below this one are gone, and takes the mark away.
    pub(crate) async fn set_gone_before(&self, room: i64, before: u32) -> Result<(), SqlError> {
        self.purge_session(format!(
            "UPDATE firstcome_room SET gone_before={before},gone_mark=NULL,gone_mark_at=NULL WHERE id={room} AND gone_before<={before};"
        ))
        .await
        .map(drop)
    }

    /// Notes below which number all are gone now.
    pub(crate) async fn mark_gone(&self, room: i64, mark: u32, at: Timestamp) -> Result<(), SqlError> {
        self.purge_session(format!(
            "UPDATE firstcome_room SET gone_mark={mark},gone_mark_at={} WHERE id={room} AND gone_mark IS NULL;",
            at.as_us()
        ))
        .await
        .map(drop)
    }

    /// Removes the rows of tickets that are gone, of a range of numbers below `gone_before`; how many.
    pub(crate) async fn remove_gone(&self, room: i64, from: u32, before: u32) -> Result<u64, SqlError> {
        self.purge_session(format!(
            "DELETE FROM firstcome_gone WHERE room={room} AND number>={from} AND number<{before};"
        ))
        .await
    }
}

/// The condition on a coupon that its claims are over by this instant, or that its purge has begun. Without an instant:
/// that its purge has begun.
fn over(by: Option<Timestamp>) -> String {
    let Some(by) = by.map(Timestamp::as_us) else { return "purged_at IS NOT NULL".to_owned() };
    format!(
        "(purged_at IS NOT NULL OR (deleted_at IS NOT NULL AND deleted_at<={by} AND COALESCE(redeem_until,deleted_at)<={by}) \
         OR (deleted_at IS NULL AND expires_at<={by} AND redeem_until<={by}))"
    )
}
