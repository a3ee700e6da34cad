//! The names that a cluster has, for operators.

use crate::Cluster;
use firstcome_core::id::{CouponName, RoomName};
use firstcome_store::{Names, StoreError};

impl Cluster {
    /// Lists coupons by name, deleted ones included. One statement.
    pub async fn coupon_names(
        &self,
        after: Option<&CouponName>,
        count: usize,
    ) -> Result<Names<CouponName>, StoreError> {
        Ok(self.node.database.coupon_names(after, count).await?)
    }

    /// Lists rooms by name, closed ones included. One statement.
    pub async fn room_names(&self, after: Option<&RoomName>, count: usize) -> Result<Names<RoomName>, StoreError> {
        Ok(self.node.database.room_names(after, count).await?)
    }
}
