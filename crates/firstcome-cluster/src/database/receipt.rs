//! Rows of published heads.
//!
//! Several nodes may publish the next head of one object at once. The first row counts: the key of the others is taken.

use super::purge::PAGE_ROWS;
use super::{Database, PART_NAME};
use firstcome_core::receipt::{Digest, Figures, Head, Object};
use firstcome_core::time::Timestamp;
use firstcome_sql::SqlError;
use firstcome_sql::dialect::{Dialect, Row};
use firstcome_sql::reader::{Reader, wrong};
use firstcome_sql::schema::keep_out;
use firstcome_store::receipt::{HeadWanted, Signature, SignedHead};
use tokio::time::Instant;

/// The first version of the tables in which heads may be removed.
const REMOVED_SINCE: i64 = 10;

/// What has heads: the kind of its rows, and its table.
pub(crate) const CHAINS: [(u8, &str); 2] = [(1, "firstcome_room"), (2, "firstcome_coupon")];

/// Which rows are about an object: its kind, and its number in the table of that kind.
#[derive(Clone, Debug)]
pub(crate) struct HeadKeys {
    pub(crate) object: Object,
    pub(crate) id: i64,
}

impl HeadKeys {
    /// The columns of a head, as [`Self::read`] reads them.
    pub(crate) const COLUMNS: &str = "sequence,at,first_number,given,front,previous,signature";

    /// The condition on the rows of the object.
    fn rows(&self) -> String {
        format!("kind={} AND object={}", self.kind(), self.id)
    }

    const fn kind(&self) -> u8 {
        match self.object {
            Object::Room(_) => 1,
            Object::Coupon(_) => 2,
        }
    }

    pub(crate) fn read(&self, columns: &mut Reader<'_>) -> Result<SignedHead, SqlError> {
        let (sequence, at) = (columns.count()?, columns.instant()?);
        let (first, given, front) = (columns.small()?, columns.small()?, columns.maybe_count()?);
        let figures = match (&self.object, front) {
            (Object::Room(_), Some(front)) => {
                let front = u32::try_from(front).map_err(|_| wrong("a front out of its range"))?;
                Figures::Room { first, given, front }
            }
            (Object::Coupon(_), None) => Figures::Coupon { limit: first, issued: given },
            _ => return Err(wrong("a head of another kind")),
        };
        let (previous, signature) = (Digest::new(columns.bytes()?), Signature::new(columns.bytes()?));
        let head = Head { object: self.object.clone(), sequence, at, figures, previous };
        Ok(SignedHead { head, signature })
    }
}

/// What reads the heads of an object after a sequence, for an export.
pub(crate) fn heads_after(keys: &HeadKeys, after: u64, count: usize) -> String {
    let columns = HeadKeys::COLUMNS;
    format!(
        "SELECT {columns} FROM firstcome_head WHERE {} AND sequence>{after} ORDER BY sequence LIMIT {count};",
        keys.rows()
    )
}

/// Notes up to which sequence the heads of an object are removed. A node that was slow sets no earlier one in the place of a later one.
/// From then on no program that does not know of it opens the tables.
fn note_removed(dialect: Dialect, (kind, id): (u8, i64), to: u64) -> String {
    let mut text = format!("INSERT INTO firstcome_head_removed (kind,object,sequence) VALUES ({kind},{id},{to}) ");
    text.push_str(match dialect {
        Dialect::Postgres => {
            "ON CONFLICT (kind,object) DO UPDATE SET sequence=GREATEST(firstcome_head_removed.sequence,EXCLUDED.sequence);"
        }
        Dialect::MySql => "ON DUPLICATE KEY UPDATE sequence=GREATEST(sequence,VALUES(sequence));",
    });
    keep_out(&mut text, PART_NAME, REMOVED_SINCE);
    text
}

impl HeadKeys {
    /// What notes up to which sequence the heads are removed.
    pub(crate) fn note_removed(&self, dialect: Dialect, to: u64) -> String {
        note_removed(dialect, (self.kind(), self.id), to)
    }
}

impl Database {
    /// Objects of a chain kind after this number, at most so many, each with the instant of the second head that is left: the first
    /// one may go once that is old.
    pub(crate) async fn second_heads(
        &self,
        (kind, table): (u8, &str),
        after: i64,
        count: u32,
    ) -> Result<Vec<(i64, Option<Timestamp>)>, SqlError> {
        let text = format!(
            "SELECT o.id,(SELECT h.at FROM firstcome_head h WHERE h.kind={kind} AND h.object=o.id \
             ORDER BY h.sequence LIMIT 1 OFFSET 1) \
             FROM {table} o WHERE o.id>{after} ORDER BY o.id LIMIT {count};"
        );
        let read = |row: &Row| {
            let mut columns = Reader::at(row, 0);
            Ok((columns.integer()?, columns.maybe_instant()?))
        };
        self.base.read(text).await?.iter().map(read).collect()
    }

    /// The first heads of an object after a sequence, with their instants: one more than a page removes.
    pub(crate) async fn dated_heads(
        &self,
        (kind, id): (u8, i64),
        after: u64,
    ) -> Result<Vec<(u64, Timestamp)>, SqlError> {
        let text = format!(
            "SELECT sequence,at FROM firstcome_head WHERE kind={kind} AND object={id} AND sequence>{after} \
             ORDER BY sequence LIMIT {};",
            PAGE_ROWS + 1
        );
        let read = |row: &Row| {
            let mut columns = Reader::at(row, 0);
            Ok((columns.count()?, columns.instant()?))
        };
        self.base.read(text).await?.iter().map(read).collect()
    }

    /// Removes the heads of an object up to a sequence.
    pub(crate) async fn remove_heads(&self, (kind, id): (u8, i64), to: u64) -> Result<(), SqlError> {
        let note = note_removed(self.dialect(), (kind, id), to);
        let rows = format!("kind={kind} AND object={id} AND sequence<={to}");
        self.purge_session(format!("DELETE FROM firstcome_head WHERE {rows};{note}")).await.map(drop)
    }

    async fn select_heads(&self, keys: &HeadKeys, rest: &str) -> Result<Vec<SignedHead>, SqlError> {
        let columns = HeadKeys::COLUMNS;
        let rows =
            self.base.read(format!("SELECT {columns} FROM firstcome_head WHERE {} {rest};", keys.rows())).await?;
        rows.iter().map(|row| keys.read(&mut Reader::at(row, 0))).collect()
    }

    /// Reads the heads of an object after a sequence, at most `count`.
    pub(crate) async fn heads(&self, keys: &HeadKeys, after: u64, count: usize) -> Result<Vec<SignedHead>, SqlError> {
        let after = after.min(i64::MAX.unsigned_abs());
        self.select_heads(keys, &format!("AND sequence>{after} ORDER BY sequence LIMIT {count}")).await
    }

    /// Reads the last head of an object.
    pub(crate) async fn last_head(&self, keys: &HeadKeys) -> Result<Option<SignedHead>, SqlError> {
        Ok(self.select_heads(keys, "ORDER BY sequence DESC LIMIT 1").await?.pop())
    }

    /// Finds the first head that is the wanted one or a later one. No column falls along a chain, so an index leads to it.
    pub(crate) async fn first_head(&self, keys: &HeadKeys, wanted: HeadWanted) -> Result<Option<SignedHead>, SqlError> {
        let rest = match wanted {
            HeadWanted::Number(number) => format!("AND given>={number} ORDER BY given,sequence LIMIT 1"),
            HeadWanted::Admitted { turn, at } => {
                format!("AND at>{} AND front>{turn} ORDER BY at,sequence LIMIT 1", at.as_us())
            }
        };
        Ok(self.select_heads(keys, &rest).await?.pop())
    }

    /// Writes a head, unless its sequence is taken. It is on disk when this returns.
    pub(crate) async fn put_head(&self, keys: &HeadKeys, signed: &SignedHead) -> Result<(), SqlError> {
        let text = self.insert_head(keys, signed);
        let mut attempts = self.attempts();
        loop {
            match self.try_put_head(&text, attempts.until).await {
                Err(error) if attempts.again(&error).await => {}
                done => return done,
            }
        }
    }

    /// What writes a head, unless its sequence is taken.
    pub(crate) fn insert_head(&self, keys: &HeadKeys, signed: &SignedHead) -> String {
        let Head { sequence, at, figures, previous, .. } = &signed.head;
        let (first, given, front) = match figures {
            Figures::Room { first, given, front } => (first, given, front.to_string()),
            Figures::Coupon { limit, issued } => (limit, issued, "NULL".to_owned()),
        };
        let (kind, id, at_us, columns) = (keys.kind(), keys.id, at.as_us(), HeadKeys::COLUMNS);
        let mut text = format!(
            "INSERT INTO firstcome_head (kind,object,{columns}) VALUES ({kind},{id},{sequence},{at_us},{first},{given},{front},"
        );
        self.dialect().bytes(&mut text, previous.as_bytes());
        text.push(',');
        self.dialect().bytes(&mut text, signed.signature.as_bytes());
        text.push_str(match self.dialect() {
            Dialect::Postgres => ") ON CONFLICT DO NOTHING;",
            Dialect::MySql => ") ON DUPLICATE KEY UPDATE firstcome_head.sequence=firstcome_head.sequence;",
        });
        text
    }

    async fn try_put_head(&self, text: &str, until: Instant) -> Result<(), SqlError> {
        let mut session = self.base.session(until).await?;
        session.run(text.to_owned()).await?;
        session.done();
        drop(session);
        self.base.flush(until).await
    }
}
