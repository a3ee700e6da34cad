//! Rows of published heads.
//!
//! Several nodes may publish the next head of one object at once. The first row counts: the key of the others is taken.

use super::Database;
use firstcome_core::receipt::{Digest, Figures, Head, Object};
use firstcome_sql::SqlError;
use firstcome_sql::dialect::Dialect;
use firstcome_sql::reader::{Reader, wrong};
use firstcome_store::receipt::{HeadWanted, Signature, SignedHead};
use tokio::time::Instant;

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

impl Database {
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
