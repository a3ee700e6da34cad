//! Reads and writes coupons: their settings, and the position up to which their outbox is written.

use super::{Database, tag};
use crate::outbox::first_anchor;
use firstcome_core::coupon::stream::{self, Known};
use firstcome_core::coupon::{Acknowledge, CouponLimit, CouponSettings, CouponStanding, Rejection, Title};
use firstcome_core::id::{CouponName, RoomName};
use firstcome_core::revision::Revision;
use firstcome_core::time::Timestamp;
use firstcome_sql::SqlError;
use firstcome_sql::base::ROLL_BACK;
use firstcome_sql::dialect::{Dialect, Row, quoted};
use firstcome_sql::reader::{Reader, wrong};
use firstcome_store::Put;
use firstcome_store::VoucherKey;
use firstcome_store::edge::draw_secret;
use std::fmt;
use tokio::time::Instant;

/// The columns of a coupon, in the order in which they are read.
const COLUMNS: &str = "id,name,limit_count,opens_at,expires_at,redeem_until,title,room,acknowledge,deleted_at,code_key,version,issued,\
    last_at,generation,position,anchor,codes_bound_from,loss_accepted,keys_gone,purged_at";

/// Generations that may have begun and be gone from both servers: a node that remembers one of them goes on only with a later one.
const GENERATIONS_LOST_MAX: i64 = 1_000_000;

/// A coupon as it stands in its table.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CouponRow {
    pub(crate) id: i64,
    pub(crate) name: CouponName,
    pub(crate) settings: CouponSettings,
    pub(crate) deleted_at: Option<Timestamp>,
    /// The secret of its codes, and from which serial on they are bound.
    pub(crate) voucher_key: VoucherKey,
    /// Of the settings.
    pub(crate) version: i64,
    pub(crate) issued: u32,
    /// Of the last claim.
    pub(crate) last_at: Timestamp,
    /// Of the sequencer whose stream counts.
    pub(crate) generation: i64,
    /// The last ticket of it that is written down, or was passed over.
    pub(crate) position: u64,
    /// The digest of the entry with that ticket.
    pub(crate) anchor: i64,
    /// The generation that began when an operator accepted that acknowledged rows are gone; 0 if none ever did.
    pub(crate) loss_accepted: i64,
    /// Whether a node has seen that Redis keeps nothing of it. Only of a coupon that is over.
    pub(crate) keys_gone: bool,
    /// When a purge began to remove its claims.
    pub(crate) purged_at: Option<Timestamp>,
}

impl CouponRow {
    /// Whether it was deleted, or its claims are purged: it never issues another claim, and its settings never change.
    pub(crate) const fn is_over(&self) -> bool {
        self.deleted_at.is_some() || self.purged_at.is_some()
    }

    /// Why a coupon that is over refuses a claim.
    pub(crate) fn refusal(&self, now: Timestamp) -> Rejection {
        self.standing().closed(now).unwrap_or(Rejection::Deleted)
    }

    pub(crate) const fn standing(&self) -> CouponStanding<'_> {
        let Self { settings, deleted_at, purged_at, issued, .. } = self;
        CouponStanding { settings, deleted: deleted_at.is_some(), purged_at: *purged_at, issued: *issued }
    }

    /// How far the database is, as the rule of [`stream`] judges it.
    pub(crate) const fn at(&self) -> stream::DatabaseMark {
        let Self { generation, position, issued, anchor, loss_accepted, .. } = *self;
        stream::DatabaseMark { at: Known { generation, position, issued, anchor }, loss_accepted }
    }

    /// Whether it is at least as new as another one. A later generation always is.
    pub(crate) fn is_since(&self, other: &Self) -> bool {
        let order = |row: &Self| (row.generation, row.position, row.version);
        let (one, two) = (order(self), order(other));
        two.0 < one.0 || (two.0 == one.0 && two.1 <= one.1 && two.2 <= one.2)
    }
}

/// For what the secret of its codes is wrapped.
pub(crate) fn place(name: impl fmt::Display) -> String {
    format!("coupon:{name}:code_key")
}

/// `SELECT` of a coupon, up to the condition.
pub(super) fn select() -> String {
    format!("SELECT {},{COLUMNS} FROM firstcome_coupon WHERE ", tag::COUPON)
}

/// The columns of the settings.
pub(super) const SETTINGS: [&str; 7] =
    ["limit_count", "opens_at", "expires_at", "redeem_until", "title", "room", "acknowledge"];

/// The values of [`SETTINGS`].
pub(super) fn values(dialect: Dialect, settings: &CouponSettings) -> [String; 7] {
    let instant = |instant: Option<Timestamp>| instant.map_or("NULL".to_owned(), |at| at.as_us().to_string());
    let [mut title, mut room] = [const { String::new() }; 2];
    match &settings.title {
        Some(stored) => dialect.bytes(&mut title, stored.as_str().as_bytes()),
        None => title.push_str("NULL"),
    }
    match &settings.room {
        Some(name) => quoted(&mut room, name.as_str()),
        None => room.push_str("NULL"),
    }
    let CouponSettings { limit, opens_at, expires_at, redeem_until, .. } = settings;
    let acknowledge = match settings.acknowledge {
        Acknowledge::Stored => "0",
        Acknowledge::Placed => "1",
    };
    [
        limit.get().to_string(),
        instant(*opens_at),
        instant(*expires_at),
        instant(*redeem_until),
        title,
        room,
        acknowledge.to_owned(),
    ]
}

/// The columns of the settings, as [`settings_of`] reads them.
pub(crate) fn settings_columns() -> String {
    SETTINGS.join(",")
}

/// Reads the settings.
pub(crate) fn settings_of(columns: &mut Reader<'_>) -> Result<CouponSettings, SqlError> {
    let limit = CouponLimit::new(columns.small()?).ok_or_else(|| wrong("a limit out of its range"))?;
    let (opens_at, expires_at) = (columns.maybe_instant()?, columns.maybe_instant()?);
    let redeem_until = columns.maybe_instant()?;
    let title = columns.maybe_blob()?.map(|title| String::from_utf8(title).ok().and_then(|title| Title::new(&title)));
    let title = title.map(|title| title.ok_or_else(|| wrong("an invalid title"))).transpose()?;
    let room = columns.maybe_text()?.map(|room| RoomName::parse(&room).map_err(|_| wrong("an invalid name of a room")));
    let acknowledge = match columns.integer()? {
        0 => Acknowledge::Stored,
        _ => Acknowledge::Placed,
    };
    let room = room.transpose()?;
    Ok(CouponSettings { limit, opens_at, expires_at, redeem_until, title, room, acknowledge })
}

impl Database {
    /// Reads a coupon from the columns after the tag.
    pub(super) fn coupon_of(&self, row: &Row) -> Result<CouponRow, SqlError> {
        let mut columns = Reader::at(row, 1);
        let id = columns.integer()?;
        let name = columns.maybe_text()?.unwrap_or_default();
        let name = CouponName::parse(&name).map_err(|_| wrong("an invalid name of a coupon"))?;
        let settings = settings_of(&mut columns)?;
        let deleted_at = columns.maybe_instant()?;
        let wrapped = columns.maybe_blob()?.unwrap_or_default();
        let secret = self.secret.unwrap(&wrapped, &place(&name));
        let voucher_key = VoucherKey::new(secret.ok_or_else(super::deployment::other_secret)?);
        let version = columns.integer()?;
        let issued = columns.small()?;
        let last_at = columns.instant()?;
        let (generation, position, anchor) = (columns.integer()?, columns.count()?, columns.integer()?);
        let voucher_key = voucher_key.bound_from(columns.small()?);
        let loss_accepted = columns.integer()?;
        let (keys_gone, purged_at) = (columns.integer()? == 1, columns.maybe_instant()?);
        if position < issued.into() || settings.limit.get() < issued {
            return Err(wrong("more claims than tickets, or than the limit"));
        }
        Ok(CouponRow {
            id,
            name,
            settings,
            deleted_at,
            voucher_key,
            version,
            issued,
            last_at,
            generation,
            position,
            anchor,
            loss_accepted,
            keys_gone,
            purged_at,
        })
    }

    /// The text that reads a coupon by its name.
    fn by_name(name: &CouponName) -> String {
        let mut text = select();
        text.push_str("name=");
        quoted(&mut text, name.as_str());
        text
    }

    /// The text that reads a coupon by its number.
    pub(super) fn by_id(id: i64) -> String {
        format!("{}id={id}", select())
    }

    /// A coupon, if there is one.
    pub(crate) async fn coupon(&self, name: &CouponName) -> Result<Option<CouponRow>, SqlError> {
        let rows = self.base.read(format!("{};", Self::by_name(name))).await?;
        rows.first().map(|row| self.coupon_of(row)).transpose()
    }

    /// The same coupon as it is now.
    pub(crate) async fn coupon_again(&self, id: i64) -> Result<CouponRow, SqlError> {
        let rows = self.base.read(format!("{};", Self::by_id(id))).await?;
        self.coupon_of(rows.first().ok_or_else(gone)?)
    }

    /// These coupons as they are now. One round trip.
    pub(crate) async fn coupons_again(&self, ids: &[i64]) -> Result<Vec<CouponRow>, SqlError> {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let text = format!("{}id IN ({});", select(), ids.join(","));
        self.base.read(text).await?.iter().map(|row| self.coupon_of(row)).collect()
    }

    /// Coupons that may still tell claims before they are here, after this number, at most so many.
    pub(crate) async fn early_coupons(&self, after: i64, count: u32) -> Result<Vec<CouponRow>, SqlError> {
        let text = format!(
            "{}id>{after} AND acknowledge=1 AND deleted_at IS NULL AND issued<limit_count ORDER BY id LIMIT {count};",
            select()
        );
        self.base.read(text).await?.iter().map(|row| self.coupon_of(row)).collect()
    }

    /// Creates a coupon or replaces its settings, by the rules; and the coupon as it is then.
    pub(crate) async fn put_coupon(
        &self,
        name: &CouponName,
        revision: &Revision<CouponSettings>,
    ) -> Result<Result<(Put, CouponRow), Rejection>, SqlError> {
        let mut attempts = self.attempts();
        loop {
            match self.try_put(name, revision, attempts.until).await {
                Err(error) if attempts.again(&error).await => {}
                done => return done,
            }
        }
    }

    async fn try_put(
        &self,
        name: &CouponName,
        revision: &Revision<CouponSettings>,
        until: Instant,
    ) -> Result<Result<(Put, CouponRow), Rejection>, SqlError> {
        let settings = &revision.settings;
        let mut session = self.base.session(until).await?;
        let rows = session.ask(format!("{}{} FOR UPDATE;", self.dialect().words().begin, Self::by_name(name))).await?;
        let (put, text) = match rows.first().map(|row| self.coupon_of(row)).transpose()? {
            None if revision.replaces.is_some() => {
                self.base.end(session, ROLL_BACK).await?;
                return Ok(Err(Rejection::UnknownCoupon));
            }
            None => (Put::Created, self.insertion(name, settings)?),
            Some(row) => {
                if let Err(rejection) = row.standing().judge_settings(revision) {
                    self.base.end(session, ROLL_BACK).await?;
                    return Ok(Err(rejection));
                }
                let assigned = SETTINGS
                    .iter()
                    .zip(values(self.dialect(), settings))
                    .map(|(name, value)| format!("{name}={value}"));
                let assigned: Vec<String> = assigned.collect();
                let text = format!(
                    "UPDATE firstcome_coupon SET {},version=version+1 WHERE id={};",
                    assigned.join(","),
                    row.id
                );
                (Put::Replaced, text)
            }
        };
        session.run(text).await?;
        let rows = session.ask(format!("{};", Self::by_name(name))).await?;
        let row = self.coupon_of(rows.first().ok_or_else(gone)?)?;
        self.commit(session).await?;
        Ok(Ok((put, row)))
    }

    fn insertion(&self, name: &CouponName, settings: &CouponSettings) -> Result<String, SqlError> {
        let broken = |fault: firstcome_store::Fault| SqlError::broken(fault.to_string());
        let wrapped = draw_secret().and_then(|secret| self.secret.wrap(&secret, &place(name))).map_err(broken)?;
        let mut text = format!("INSERT INTO firstcome_coupon ({},name,code_key,version) VALUES (", SETTINGS.join(","));
        text.push_str(&values(self.dialect(), settings).join(","));
        text.push(',');
        quoted(&mut text, name.as_str());
        text.push(',');
        self.dialect().bytes(&mut text, &wrapped);
        text.push_str(",1);");
        Ok(text)
    }

    /// Ends a coupon for good; the coupon as it is then, if there is one. A second time has no effect.
    pub(crate) async fn delete_coupon(&self, name: &CouponName) -> Result<Option<CouponRow>, SqlError> {
        let mut attempts = self.attempts();
        loop {
            match self.try_delete(name, attempts.until).await {
                Err(error) if attempts.again(&error).await => {}
                done => return done,
            }
        }
    }

    async fn try_delete(&self, name: &CouponName, until: Instant) -> Result<Option<CouponRow>, SqlError> {
        let mut session = self.base.session(until).await?;
        let mut text = format!(
            "{}UPDATE firstcome_coupon SET deleted_at={},version=version+1 WHERE name=",
            self.dialect().words().begin,
            self.clock()
        );
        quoted(&mut text, name.as_str());
        text.push_str(" AND deleted_at IS NULL;");
        session.run(text).await?;
        let rows = session.ask(format!("{};", Self::by_name(name))).await?;
        let row = rows.first().map(|row| self.coupon_of(row)).transpose()?;
        self.commit(session).await?;
        Ok(row)
    }

    /// Begins the next generation of a coupon's sequencer, if the one that was read still counts and the database has not gone back
    /// since. From now on nothing of the stream before it is written. The coupon as it is then, and the time; `None` if another node
    /// has begun one.
    pub(crate) async fn next_generation(&self, before: &CouponRow) -> Result<Option<(CouponRow, Timestamp)>, SqlError> {
        let (id, generation) = (before.id, before.generation);
        let mut session = self.base.session(Instant::now() + self.base.options.patience).await?;
        let (begin, by_id, clock) = (self.dialect().words().begin, Self::by_id(id), self.clock());
        let text = format!("{begin}{by_id} FOR UPDATE;SELECT {},{clock};", tag::CLOCK);
        let rows = session.ask(text).await?;
        let [row, clock] = rows.as_slice() else { return Err(gone()) };
        let (mut row, now) = (self.coupon_of(row)?, Reader::at(clock, 1).instant()?);
        if row.generation != generation || row.position < before.position {
            self.base.end(session, ROLL_BACK).await?;
            return Ok(None);
        }
        row.generation += 1;
        row.anchor = first_anchor(row.position, row.generation);
        let text = format!(
            "UPDATE firstcome_coupon SET generation={},anchor={} WHERE id={id} AND generation={generation};",
            row.generation, row.anchor
        );
        session.run(text).await?;
        self.commit(session).await?;
        Ok(Some((row, now)))
    }

    /// Begins a generation above the one that is named and above that of the database, and notes that an operator accepted with it
    /// that rows are gone. The coupon as it is then.
    pub(crate) async fn accept_loss(&self, id: i64, above: i64) -> Result<CouponRow, SqlError> {
        let mut session = self.base.session(Instant::now() + self.base.options.patience).await?;
        let rows = session.ask(format!("{}{} FOR UPDATE;", self.dialect().words().begin, Self::by_id(id))).await?;
        let mut row = self.coupon_of(rows.first().ok_or_else(gone)?)?;
        row.generation = row.generation.max(above) + GENERATIONS_LOST_MAX;
        row.loss_accepted = row.generation;
        row.anchor = first_anchor(row.position, row.generation);
        let (generation, anchor) = (row.generation, row.anchor);
        let text = format!(
            "UPDATE firstcome_coupon SET generation={generation},loss_accepted={generation},anchor={anchor} WHERE id={id};"
        );
        session.run(text).await?;
        self.commit(session).await?;
        Ok(row)
    }
}

/// A row that was read before and is not there any more: a caller has put other tables in the place of those.
pub(super) fn gone() -> SqlError {
    SqlError::Serialization { says: "a coupon is not there any more".to_owned() }
}
