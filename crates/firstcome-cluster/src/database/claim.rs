//! Writes a batch of claims in one transaction, and reads claims.

use super::coupon::gone;
use super::inserts::{NewClaim, NewRequest, write_claims, write_requests};
use super::{CouponRow, Database, kind, tag};
use crate::coupon::ASK_MAX;
use crate::outbox::{Entrant, Entry, Tag, Verdict};
use crate::sequencer::{ENTRIES_MAX, Stray};
use firstcome_core::coupon::{Attributes, Claim, Issued, Serial};
use firstcome_core::limits::{ATTRIBUTES_BYTES_MAX, NAME_BYTES_MAX};
use firstcome_core::time::Timestamp;
use firstcome_sql::SqlError;
use firstcome_sql::base::{ROLL_BACK, Session};
use firstcome_sql::dialect::{Dialect, Row, list, quoted};
use firstcome_sql::reader::{Reader, wrong};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::time::Instant;

/// So much is kept of an entry that no caller can read.
const RAW_BYTES_MAX: usize = 64 << 10;
/// What one claim comes to at most in the statements that write it: bytes as two digits each, names, and numbers.
const CLAIM_BYTES_MAX: usize = 2 * ATTRIBUTES_BYTES_MAX + NAME_BYTES_MAX + 256;
/// What one entry comes to at most, whether it can be read or not.
const ENTRY_BYTES_MAX: usize = ASK_MAX * CLAIM_BYTES_MAX + 2 * RAW_BYTES_MAX;
/// The longest text that writes a batch.
pub(crate) const TEXT_BYTES_MAX: usize = ENTRIES_MAX as usize * ENTRY_BYTES_MAX + 4_096;
// What an operator that sets up a database is told to set, and what it has without any setting.
const _: () = assert!(TEXT_BYTES_MAX <= 16 << 20);

/// Entries of a stream that are written together.
pub(crate) struct Batch {
    pub(crate) entries: Vec<Entry>,
}

impl Batch {
    /// The last ticket, and the digest of its entry. A batch has at least one entry.
    fn end(&self) -> (u64, i64) {
        self.entries.last().map_or((0, 0), |entry| (entry.last, entry.anchor))
    }
}

/// What became of a batch.
pub(crate) enum Written {
    /// It is written.
    Done(Box<Fresh>),
    /// Nothing of it is: the coupon is not as it was thought to be. As it is now.
    Moved(Box<CouponRow>),
}

/// What was written.
pub(crate) struct Fresh {
    /// The coupon after it.
    pub(crate) row: CouponRow,
    /// What became of each claim, in order; and for which node.
    pub(crate) verdicts: Vec<(Arc<str>, Tag, Verdict)>,
    /// Tickets that were not accepted.
    pub(crate) refused: Vec<Stray>,
    /// Entries that no caller could read.
    pub(crate) dead_letters: u64,
}

/// A claim as it stands in its table.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ClaimRow {
    pub(crate) issued: Issued,
    pub(crate) user: Box<str>,
    pub(crate) attributes: Option<Attributes>,
    pub(crate) tag: Tag,
    pub(crate) redeemed_at: Option<Timestamp>,
}

/// What SQL knows of the users and keys that were asked for.
pub(crate) struct Known {
    pub(crate) row: CouponRow,
    /// By user.
    pub(crate) claims: BTreeMap<Box<str>, ClaimRow>,
    /// By key: the body, the claim, and whose it is.
    pub(crate) requests: BTreeMap<u128, (u64, Issued, Box<str>)>,
    pub(crate) now: Timestamp,
}

/// One claim to be written.
struct Insert<'a> {
    issued: Issued,
    entrant: &'a Entrant,
}

const CLAIM_COLUMNS: &str = "c.serial,c.name,c.issued_at,c.attributes,c.tag,r.redeemed_at";
const CLAIM_TABLES: &str =
    "firstcome_claim c LEFT JOIN firstcome_redemption r ON r.coupon=c.coupon AND r.serial=c.serial";

fn claim_of(row: &Row) -> Result<ClaimRow, SqlError> {
    let mut columns = Reader::at(row, 1);
    let serial = Serial::new(columns.small()?).ok_or_else(|| wrong("a serial out of its range"))?;
    let user = columns.maybe_text()?.unwrap_or_default().into();
    let issued_at = columns.instant()?;
    let attributes =
        columns.maybe_blob()?.map(|blob| String::from_utf8(blob).ok().and_then(|text| Attributes::new(&text)));
    let attributes = attributes.map(|text| text.ok_or_else(|| wrong("invalid attributes"))).transpose()?;
    let tag = Tag(columns.integer()?.cast_unsigned());
    let redeemed_at = columns.maybe_instant()?;
    Ok(ClaimRow { issued: Issued { serial, issued_at }, user, attributes, tag, redeemed_at })
}

impl Database {
    /// Writes a batch, if the coupon is as it is thought to be. Two round trips; up to five if not all of it is plain.
    ///
    /// [`SqlError::Unknown`]: it may be written. The same batch again tells.
    pub(crate) async fn write(&self, row: &CouponRow, batch: &Batch) -> Result<Written, SqlError> {
        let until = Instant::now() + self.base.options.patience;
        if let Some(fresh) = plain(row, batch) {
            match self.write_plain(row, batch, fresh, until).await {
                Err(SqlError::Serialization { .. }) => {}
                done => return done,
            }
        }
        self.write_judged(row, batch, until).await
    }

    /// Writes a batch all of whose claims are new. [`SqlError::Serialization`] if anything is not as it was read.
    async fn write_plain(
        &self,
        row: &CouponRow,
        batch: &Batch,
        fresh: Fresh,
        until: Instant,
    ) -> Result<Written, SqlError> {
        let mut session = self.base.session(until).await?;
        let inserts = inserts(batch, &fresh);
        let (text, rows) = writing(self.dialect(), row, &fresh.row, &inserts);
        if session.run(format!("{}{text}", self.dialect().words().begin)).await? != rows {
            return Err(SqlError::Serialization { says: "a coupon is not as it was read".to_owned() });
        }
        self.finish(session, batch, fresh).await
    }

    /// Commits, and finds out itself what became of a commit that is not answered.
    async fn finish(&self, session: Session, batch: &Batch, fresh: Fresh) -> Result<Written, SqlError> {
        match self.commit(session).await {
            Ok(()) => return Ok(Written::Done(Box::new(fresh))),
            Err(SqlError::Unknown { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut attempts = self.attempts();
        loop {
            match self.is_written(fresh.row.id, batch, attempts.until).await {
                Ok(true) => return Ok(Written::Done(Box::new(fresh))),
                Ok(false) => return Err(SqlError::Serialization { says: "it was not committed".to_owned() }),
                Err(error) if attempts.again(&error).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a batch is the last that was written. Waits for the lock of the coupon: a caller that has it knows that the
    /// transaction before is over.
    async fn is_written(&self, id: i64, batch: &Batch, until: Instant) -> Result<bool, SqlError> {
        let mut session = self.base.session(until).await?;
        let rows = session.ask(format!("{}{} FOR UPDATE;", self.dialect().words().begin, Self::by_id(id))).await?;
        let row = self.coupon_of(rows.first().ok_or_else(gone)?)?;
        let is_written = (row.position, row.anchor) == batch.end();
        // Told after a commit of our own: where commits wait for other servers this one waits too.
        self.base.end(session, if is_written { "COMMIT;" } else { ROLL_BACK }).await?;
        Ok(is_written)
    }

    /// Locks the coupon and judges each claim by what SQL holds.
    async fn write_judged(&self, row: &CouponRow, batch: &Batch, until: Instant) -> Result<Written, SqlError> {
        let mut session = self.base.session(until).await?;
        let rows = session.ask(format!("{}{} FOR UPDATE;", self.dialect().words().begin, Self::by_id(row.id))).await?;
        let now = self.coupon_of(rows.first().ok_or_else(gone)?)?;
        let as_thought = (now.generation, now.position, now.anchor) == (row.generation, row.position, row.anchor);
        if !as_thought {
            self.base.end(session, ROLL_BACK).await?;
            return Ok(Written::Moved(Box::new(now)));
        }
        let (users, keys) = named(batch);
        let (mut users, mut keys) = self.there(&mut session, row.id, &users, &keys).await?;
        let mut fresh = Fresh { row: now.clone(), verdicts: Vec::new(), refused: Vec::new(), dead_letters: 0 };
        let mut inserts = Vec::new();
        let mut dead = String::new();
        for entry in &batch.entries {
            match &entry.claims {
                Ok(stored) => {
                    for (entrant, ticket) in stored.entrants.iter().zip(stored.first..) {
                        let verdict = judge(&mut fresh.row, entrant, stored.at, &mut users, &mut keys);
                        match verdict {
                            Ok(issued) => {
                                inserts.push(Insert { issued, entrant });
                                fresh.verdicts.push((Arc::clone(&stored.node), entrant.tag, Verdict::Issued(issued)));
                            }
                            Err(holds) => {
                                if !holds {
                                    let Claim { user, request, .. } = &entrant.claim;
                                    fresh.refused.push(Stray { ticket, user: user.as_str().into(), request: *request });
                                }
                                fresh.verdicts.push((Arc::clone(&stored.node), entrant.tag, Verdict::ReadAgain));
                            }
                        }
                    }
                }
                Err(reason) => {
                    fresh.dead_letters += 1;
                    bury(self.dialect(), &mut dead, row, entry, reason, &self.clock());
                }
            }
        }
        (fresh.row.position, fresh.row.anchor) = batch.end();
        let (text, rows) = writing(self.dialect(), &now, &fresh.row, &inserts);
        let written = session.run(format!("{text}{dead}")).await?;
        if written != rows + fresh.dead_letters {
            return Err(SqlError::Serialization { says: "a row was changed behind its lock".to_owned() });
        }
        self.finish(session, batch, fresh).await
    }

    /// Who of these has a claim, and which of these keys made one.
    async fn there(
        &self,
        session: &mut Session,
        coupon: i64,
        users: &[&str],
        keys: &[u128],
    ) -> Result<(BTreeSet<String>, BTreeSet<u128>), SqlError> {
        let mut text = String::new();
        if !users.is_empty() {
            let names = list(users, |text, user| quoted(text, user));
            let _ = write!(
                text,
                "SELECT {},name FROM firstcome_claim WHERE coupon={coupon} AND name IN ({names});",
                tag::CLAIM
            );
        }
        if !keys.is_empty() {
            let keys = list(keys, |text, key| self.dialect().bytes(text, &key.to_be_bytes()));
            let _ = write!(
                text,
                "SELECT {},request FROM firstcome_coupon_request WHERE coupon={coupon} AND kind={} AND request IN ({keys});",
                tag::REQUEST,
                kind::CLAIM
            );
        }
        let (mut users, mut keys) = (BTreeSet::new(), BTreeSet::new());
        if text.is_empty() {
            return Ok((users, keys));
        }
        for row in &session.ask(text).await? {
            let mut columns = Reader::at(row, 0);
            if columns.integer()? == tag::CLAIM {
                users.insert(columns.maybe_text()?.unwrap_or_default());
            } else {
                keys.insert(columns.key()?);
            }
        }
        Ok((users, keys))
    }

    /// What there is of these users and keys. What is not there was not there when the coupon was as it says, or later. One
    /// round trip.
    pub(crate) async fn known(
        &self,
        coupon: i64,
        users: &BTreeSet<&str>,
        keys: &BTreeSet<u128>,
    ) -> Result<Known, SqlError> {
        // The coupon first: a claim that comes in between is found, and one that is not found was not there.
        let mut text = format!("{};", Self::by_id(coupon));
        if !users.is_empty() {
            let names = list(users, |text, user| quoted(text, user));
            let _ = write!(
                text,
                "SELECT {},{CLAIM_COLUMNS} FROM {CLAIM_TABLES} WHERE c.coupon={coupon} AND c.name IN ({names});",
                tag::CLAIM
            );
        }
        if !keys.is_empty() {
            let keys = list(keys, |text, key| self.dialect().bytes(text, &key.to_be_bytes()));
            let _ = write!(
                text,
                "SELECT {},q.request,q.body,c.serial,c.issued_at,c.name FROM firstcome_coupon_request q \
                 JOIN firstcome_claim c ON c.coupon=q.coupon AND c.serial=q.serial \
                 WHERE q.coupon={coupon} AND q.kind={} AND q.request IN ({keys});",
                tag::REQUEST,
                kind::CLAIM
            );
        }
        // The mark of a purge last: where there is none then, no claim was missing before.
        let (tag, clock) = (tag::CLOCK, self.clock());
        let _ = write!(text, "SELECT {tag},{clock},(SELECT purged_at FROM firstcome_coupon WHERE id={coupon});");
        let (mut found, mut purged_at) = (None, None);
        let (mut claims, mut requests, mut now) = (BTreeMap::new(), BTreeMap::new(), Timestamp::MIN);
        for row in &self.base.read(text).await? {
            let mut columns = Reader::at(row, 0);
            match columns.integer()? {
                tag::COUPON => found = Some(self.coupon_of(row)?),
                tag::CLAIM => {
                    let claim = claim_of(row)?;
                    claims.insert(claim.user.clone(), claim);
                }
                tag::REQUEST => {
                    let (key, body) = (columns.key()?, columns.integer()?.cast_unsigned());
                    let serial = Serial::new(columns.small()?).ok_or_else(|| wrong("a serial out of its range"))?;
                    let issued = Issued { serial, issued_at: columns.instant()? };
                    requests.insert(key, (body, issued, columns.maybe_text()?.unwrap_or_default().into()));
                }
                _ => (now, purged_at) = (columns.instant()?, columns.maybe_instant()?),
            }
        }
        let mut row = found.ok_or_else(gone)?;
        if purged_at.is_some() {
            // Some are removed already, and the others count no longer.
            (row.purged_at, claims, requests) = (purged_at, BTreeMap::new(), BTreeMap::new());
        }
        Ok(Known { row, claims, requests, now })
    }

    /// Claims in the order of their serials, after this one, at most so many. And when a purge of the coupon began, if one did: then
    /// some of them may be missing.
    pub(crate) async fn claims(
        &self,
        coupon: i64,
        after: u32,
        count: u64,
    ) -> Result<(Vec<ClaimRow>, Option<Timestamp>), SqlError> {
        // The mark last: where there is none then, no claim was missing before.
        let text = format!(
            "SELECT {},{CLAIM_COLUMNS} FROM {CLAIM_TABLES} WHERE c.coupon={coupon} AND c.serial>{after} \
             ORDER BY c.serial LIMIT {count};SELECT {},purged_at FROM firstcome_coupon WHERE id={coupon};",
            tag::CLAIM,
            tag::COUPON
        );
        let (mut claims, mut purged_at) = (Vec::new(), None);
        for row in &self.base.read(text).await? {
            let mut columns = Reader::at(row, 0);
            match columns.integer()? {
                tag::COUPON => purged_at = columns.maybe_instant()?,
                _ => claims.push(claim_of(row)?),
            }
        }
        Ok((claims, purged_at))
    }

    /// The users of claims after this serial, at most so many, with the last serial of them.
    pub(crate) async fn users(&self, coupon: i64, after: u32, count: usize) -> Result<(Vec<String>, u32), SqlError> {
        let text = format!(
            "SELECT serial,name FROM firstcome_claim WHERE coupon={coupon} AND serial>{after} ORDER BY serial LIMIT {count};"
        );
        let (mut users, mut last) = (Vec::with_capacity(count), after);
        for row in &self.base.read(text).await? {
            let mut columns = Reader::at(row, 0);
            last = columns.small()?;
            users.push(columns.maybe_text()?.unwrap_or_default());
        }
        Ok((users, last))
    }

    /// The keys of claims after this one, at most so many.
    pub(crate) async fn requests(
        &self,
        coupon: i64,
        after: Option<u128>,
        count: usize,
    ) -> Result<Vec<(u128, u64)>, SqlError> {
        let mut text =
            format!("SELECT request,body FROM firstcome_coupon_request WHERE coupon={coupon} AND kind={}", kind::CLAIM);
        if let Some(after) = after {
            text.push_str(" AND request>");
            self.dialect().bytes(&mut text, &after.to_be_bytes());
        }
        let _ = write!(text, " ORDER BY request LIMIT {count};");
        let rows = self.base.read(text).await?;
        let read = |row| {
            let mut columns = Reader::at(row, 0);
            Ok((columns.key()?, columns.integer()?.cast_unsigned()))
        };
        rows.iter().map(read).collect()
    }
}

/// What a batch comes to if all its claims are new and judged by the settings in force. `None` if that cannot be.
fn plain(row: &CouponRow, batch: &Batch) -> Option<Fresh> {
    let mut after = row.clone();
    let mut verdicts = Vec::new();
    for entry in &batch.entries {
        let stored = entry.claims.as_ref().ok()?;
        if stored.version != row.version || row.is_over() {
            return None;
        }
        for entrant in &stored.entrants {
            let issued = next(&mut after, stored.at)?;
            verdicts.push((Arc::clone(&stored.node), entrant.tag, Verdict::Issued(issued)));
        }
    }
    (after.position, after.anchor) = batch.end();
    Some(Fresh { row: after, verdicts, refused: Vec::new(), dead_letters: 0 })
}

/// The next claim of a coupon; `None` if all are issued.
fn next(row: &mut CouponRow, at: Timestamp) -> Option<Issued> {
    if row.settings.limit.get() <= row.issued {
        return None;
    }
    row.issued += 1;
    row.last_at = row.last_at.max(at);
    Some(Issued { serial: Serial::new(row.issued)?, issued_at: row.last_at })
}

/// Judges one claim under the lock. A refusal says whether the user, or the request, has one: then its ticket is right.
fn judge(
    row: &mut CouponRow,
    entrant: &Entrant,
    at: Timestamp,
    users: &mut BTreeSet<String>,
    keys: &mut BTreeSet<u128>,
) -> Result<Issued, bool> {
    let user = entrant.claim.user.as_str();
    let key = entrant.claim.request.map(|request| request.key);
    if users.contains(user) {
        return Err(true);
    }
    if key.is_some_and(|key| keys.contains(&key)) || row.standing().judge_newcomer(at).is_err() {
        return Err(false);
    }
    let issued = next(row, at).ok_or(false)?;
    users.insert(user.to_owned());
    keys.extend(key);
    Ok(issued)
}

fn named(batch: &Batch) -> (Vec<&str>, Vec<u128>) {
    let entrants =
        batch.entries.iter().filter_map(|entry| entry.claims.as_ref().ok()).flat_map(|stored| &stored.entrants);
    let users = entrants.clone().map(|entrant| entrant.claim.user.as_str()).collect();
    (users, entrants.filter_map(|entrant| Some(entrant.claim.request?.key)).collect())
}

/// The rows of a plain batch.
fn inserts<'a>(batch: &'a Batch, fresh: &Fresh) -> Vec<Insert<'a>> {
    let entrants =
        batch.entries.iter().filter_map(|entry| entry.claims.as_ref().ok()).flat_map(|stored| &stored.entrants);
    let issued = fresh.verdicts.iter().filter_map(|(_, _, verdict)| match verdict {
        Verdict::Issued(issued) => Some(*issued),
        Verdict::ReadAgain => None,
    });
    entrants.zip(issued).map(|(entrant, issued)| Insert { issued, entrant }).collect()
}

/// The text that writes claims and where the stream is now, and how many rows it writes if all is as it was read.
fn writing(dialect: Dialect, before: &CouponRow, after: &CouponRow, inserts: &[Insert<'_>]) -> (String, u64) {
    let id = before.id;
    let mut text = format!(
        "UPDATE firstcome_coupon SET issued={},last_at={},position={},anchor={} WHERE id={id} AND generation={} \
         AND position={} AND anchor={} AND issued={} AND version={};",
        after.issued,
        after.last_at.as_us(),
        after.position,
        after.anchor,
        before.generation,
        before.position,
        before.anchor,
        before.issued,
        before.version,
    );
    let claims = inserts.iter().map(|Insert { issued, entrant }| NewClaim {
        coupon: id,
        issued: *issued,
        claim: &entrant.claim,
        tag: entrant.tag,
    });
    let mut rows = 1 + inserts.len() as u64;
    if !inserts.is_empty() {
        text.push_str(&write_claims(dialect, claims.clone()));
    }
    let request = |NewClaim { coupon, issued, claim, .. }: NewClaim<'_>| {
        Some(NewRequest { coupon, kind: kind::CLAIM, request: claim.request?, serial: issued.serial })
    };
    let requests = claims.filter_map(request);
    let keyed = requests.clone().count();
    if 0 < keyed {
        rows += keyed as u64;
        text.push_str(&write_requests(dialect, requests));
    }
    (text, rows)
}

/// Writes down an entry that no caller can read, or its beginning: a server takes only so much at once.
fn bury(dialect: Dialect, text: &mut String, row: &CouponRow, entry: &Entry, reason: &str, clock: &str) {
    let columns = "coupon,generation,position,at,reason,entry";
    let _ = write!(
        text,
        "INSERT INTO firstcome_dead_letter ({columns}) VALUES ({},{},{},{clock},'{reason}',",
        row.id, row.generation, entry.last
    );
    dialect.bytes(text, &entry.raw[..entry.raw.len().min(RAW_BYTES_MAX)]);
    text.push_str(");");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::Entrants;
    use firstcome_core::coupon::{CouponLimit, CouponSettings};
    use firstcome_core::id::{CouponName, RequestId, UserId};
    use firstcome_store::VoucherKey;

    fn longest_entrant() -> Entrant {
        let user = UserId::restore(&"u".repeat(NAME_BYTES_MAX)).unwrap();
        let attributes = Attributes::new(&"a".repeat(ATTRIBUTES_BYTES_MAX));
        let request = Some(RequestId { key: u128::MAX, body: 1 << 63 });
        Entrant { tag: Tag(1 << 63), claim: Claim { user, attributes, request } }
    }

    #[test]
    fn no_batch_is_longer_than_a_server_must_take() {
        let settings = CouponSettings::with_limit(CouponLimit::new(100_000_000).unwrap());
        let row = CouponRow {
            id: i64::MAX,
            name: CouponName::parse("drop").unwrap(),
            settings,
            deleted_at: None,
            voucher_key: VoucherKey::new([7; 32]),
            version: i64::MAX,
            issued: 90_000_000,
            last_at: Timestamp::MIN,
            generation: i64::MAX,
            position: 1 << 62,
            anchor: i64::MAX,
            loss_accepted: 0,
            keys_gone: false,
            purged_at: None,
        };
        let entry = |number: u64| {
            let entrants = vec![longest_entrant(); ASK_MAX];
            let first = row.position + 1 + number * ASK_MAX as u64;
            let stored = Entrants { first, version: i64::MAX, at: Timestamp::MIN, node: "".into(), entrants };
            Entry { last: first + ASK_MAX as u64 - 1, anchor: i64::MAX, raw: Vec::new(), claims: Ok(stored) }
        };
        let batch = Batch { entries: (0..ENTRIES_MAX.into()).map(entry).collect() };
        let fresh = plain(&row, &batch).unwrap();
        let inserts = inserts(&batch, &fresh);
        for (text, _) in [Dialect::MySql, Dialect::Postgres].map(|dialect| writing(dialect, &row, &fresh.row, &inserts))
        {
            assert!(4 << 20 < text.len() && text.len() <= TEXT_BYTES_MAX, "{}", text.len());
        }
        let mut text = String::new();
        let entry = Entry { last: u64::MAX, anchor: 0, raw: vec![0; 1 << 20], claims: Err("of no use") };
        bury(Dialect::MySql, &mut text, &row, &entry, "of no use", &i64::MAX.to_string());
        assert!(text.len() <= ENTRY_BYTES_MAX, "{}", text.len());
    }
}
