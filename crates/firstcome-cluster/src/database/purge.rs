//! Rows that nothing rests on any more: what there is to remove, and its removal in pages.

use super::coupon::select;
use super::{CouponRow, Database};
use firstcome_sql::SqlError;
use tokio::time::Instant;

impl Database {
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
        let mut session = self.base.session(Instant::now() + self.base.options.patience).await?;
        let begin = self.dialect().words().begin;
        session.run(format!("{begin}UPDATE firstcome_coupon SET keys_gone=1 WHERE id={id};")).await?;
        self.commit(session).await
    }
}
