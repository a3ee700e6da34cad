//! Lists what the database has, by name, for operators.

use super::Database;
use firstcome_core::id::{CouponName, RoomName};
use firstcome_sql::SqlError;
use firstcome_sql::dialect::quoted;
use firstcome_sql::reader::{Reader, wrong};
use firstcome_store::Names;

impl Database {
    async fn names(&self, table: &str, after: Option<&str>, count: usize) -> Result<Vec<String>, SqlError> {
        let mut text = format!("SELECT name FROM {table} ");
        if let Some(after) = after {
            text.push_str("WHERE ");
            quoted(&mut text, after);
            text.push_str("<name ");
        }
        // One more than is wanted, to see whether there are more.
        text.push_str(&format!("ORDER BY name LIMIT {};", count.saturating_add(1)));
        let rows = self.base.read(text).await?;
        rows.iter().map(|row| Ok(Reader::at(row, 0).maybe_text()?.unwrap_or_default())).collect()
    }

    /// Coupons by name, deleted ones included.
    pub(crate) async fn coupon_names(
        &self,
        after: Option<&CouponName>,
        count: usize,
    ) -> Result<Names<CouponName>, SqlError> {
        let names = self.names("firstcome_coupon", after.map(CouponName::as_str), count).await?;
        let names = names.iter().map(|name| CouponName::parse(name).map_err(|_| wrong("an invalid name of a coupon")));
        Ok(Names::of_sorted(names.collect::<Result<_, _>>()?, count))
    }

    /// Rooms by name, closed ones included.
    pub(crate) async fn room_names(&self, after: Option<&RoomName>, count: usize) -> Result<Names<RoomName>, SqlError> {
        let names = self.names("firstcome_room", after.map(RoomName::as_str), count).await?;
        let names = names.iter().map(|name| RoomName::parse(name).map_err(|_| wrong("an invalid name of a room")));
        Ok(Names::of_sorted(names.collect::<Result<_, _>>()?, count))
    }
}
