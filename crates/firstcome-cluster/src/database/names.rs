//! Lists what the database has, by name, for operators.

use super::Database;
use firstcome_core::id::{CouponName, RoomName};
use firstcome_sql::SqlError;
use firstcome_store::Names;

impl Database {
    /// Coupons by name, deleted ones included.
    pub(crate) async fn coupon_names(
        &self,
        after: Option<&CouponName>,
        count: usize,
    ) -> Result<Names<CouponName>, SqlError> {
        let parse = |name: &str| CouponName::parse(name).ok();
        self.base.names("firstcome_coupon", after.map(CouponName::as_str), count, parse).await
    }

    /// Rooms by name, closed ones included.
    pub(crate) async fn room_names(&self, after: Option<&RoomName>, count: usize) -> Result<Names<RoomName>, SqlError> {
        let parse = |name: &str| RoomName::parse(name).ok();
        self.base.names("firstcome_room", after.map(RoomName::as_str), count, parse).await
    }
}
