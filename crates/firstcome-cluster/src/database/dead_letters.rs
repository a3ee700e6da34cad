//! Keeps outbox entries that no node could read.

use super::{Database, whole};
use crate::DeadLetter;
use firstcome_core::id::CouponName;
use firstcome_sql::SqlError;
use firstcome_sql::base::Base;
use firstcome_sql::reader::{Reader, wrong};

impl Database {
    /// Those of one coupon after this position, oldest first. Positions grow over all generations.
    pub(crate) async fn dead_letters(&self, coupon: i64, after: u64, count: u64) -> Result<Vec<DeadLetter>, SqlError> {
        let text = format!(
            "SELECT generation,position,at,reason,entry FROM firstcome_dead_letter \
             WHERE coupon={coupon} AND {after}<position ORDER BY position LIMIT {count};"
        );
        let rows = self.base.read(text).await?;
        let letter = |row| {
            let mut columns = Reader::at(row, 0);
            Ok(DeadLetter {
                generation: columns.integer()?,
                position: columns.count()?,
                at: columns.instant()?,
                reason: columns.maybe_text()?.unwrap_or_default(),
                entry: columns.maybe_blob()?.unwrap_or_default(),
            })
        };
        rows.iter().map(letter).collect()
    }
}

/// How many there are of each coupon that has any.
pub(crate) async fn dead_letter_counts(base: &Base) -> Result<Vec<(CouponName, u64)>, SqlError> {
    let text = "SELECT c.name,CAST(COUNT(*) AS {}) FROM firstcome_dead_letter d \
                JOIN firstcome_coupon c ON c.id=d.coupon GROUP BY c.name ORDER BY c.name;";
    let rows = base.read(text.replace("{}", whole(base.dialect))).await?;
    let count = |row| {
        let mut columns = Reader::at(row, 0);
        let name = columns.maybe_text()?.unwrap_or_default();
        let name = CouponName::parse(&name).map_err(|_| wrong("an invalid name of a coupon"))?;
        Ok((name, columns.count()?))
    };
    rows.iter().map(count).collect()
}

/// The name of a coupon that acknowledges claims before they are stored, if there is one.
pub(crate) async fn early_coupon(base: &Base) -> Result<Option<CouponName>, SqlError> {
    let text = "SELECT name FROM firstcome_coupon WHERE acknowledge=1 AND deleted_at IS NULL ORDER BY name LIMIT 1;";
    let rows = base.read(text.to_owned()).await?;
    let name = rows.first().map(|row| Reader::at(row, 0).maybe_text()).transpose()?.flatten();
    name.map(|name| CouponName::parse(&name).map_err(|_| wrong("an invalid name of a coupon"))).transpose()
}
