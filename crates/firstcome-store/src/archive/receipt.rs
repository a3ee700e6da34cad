//! Imports published heads, so that the chains of rooms and coupons go on where they ended.
//!
//! Without them a store would sign a second chain with the same key.

use super::intake::Intake;
use super::{ArchivedHead, ImportError};
use crate::embedded::journal::Change;
use crate::receipt::HeadPublicKey;
use firstcome_core::receipt::Object;

impl Intake {
    /// Takes a head: the next of its room or coupon, which must have come before.
    pub(super) fn head(&mut self, ArchivedHead { signed, removed_to }: ArchivedHead) -> Result<(), ImportError> {
        let head = &signed.head;
        let broken = |says| ImportError::BrokenHead { object: head.object.clone(), sequence: head.sequence, says };
        let key = self.head_key(&head.object).ok_or_else(|| broken("it must come after its room or coupon"))?;
        if !signed.is_signed_by(&key) {
            return Err(broken("another key has signed it"));
        }
        let follows = match self.last_heads.get(&head.object) {
            Some(_) if removed_to != 0 => return Err(broken("only the first head of a room or coupon has removed_to")),
            Some(before) => head.follows(before),
            None => head.begins_after(removed_to),
        };
        follows.map_err(|breach| broken(breach.as_str()))?;
        self.last_heads.insert(head.object.clone(), head.clone());
        if removed_to != 0 {
            let object = signed.head.object.clone();
            self.change(Change::HeadsRemoved { object, to: removed_to, count: 0 });
        }
        self.change(Change::Headed(Box::new(signed)));
        Ok(())
    }

    fn head_key(&self, object: &Object) -> Option<HeadPublicKey> {
        let key = match object {
            Object::Room(name) => self.rooms.head_key(name)?,
            Object::Coupon(name) => self.coupon(name)?.voucher_key.head_key(),
        };
        Some(key.public())
    }
}
