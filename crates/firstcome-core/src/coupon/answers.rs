//! Why a command is refused, and the state that a coupon shows.

use super::{Issued, Redeemed, Serial};
use crate::time::Timestamp;
use std::fmt;

/// Why a command was refused. An expected answer: not retried, not logged as an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Rejection {
    /// There is no such coupon.
    UnknownCoupon,
    /// The idempotency key belongs to another request, which made this claim.
    KeyReused(Serial),
    /// The user holds this coupon already.
    AlreadyIssued(Issued),
    /// An operator deleted the coupon.
    Deleted,
    /// The claims of the coupon were removed, beginning then.
    Purged(Timestamp),
    /// Issuing begins later.
    NotOpen(Timestamp),
    /// Issuing (or, for a redemption, redeeming) ended then.
    Expired(Timestamp),
    /// All coupons are issued.
    SoldOut,
    /// The settings have changed since they were read.
    SettingsChanged,
    /// The new limit is below the number of issued coupons, which it carries.
    LimitBelowIssued(u32),
    /// The room of a coupon with claims cannot change.
    RoomFixed,
    /// No claim of this coupon has that code.
    UnknownCode,
    /// The code belongs to another user.
    WrongUser,
    /// The code was redeemed before.
    AlreadyRedeemed(Redeemed),
}

impl Rejection {
    /// Returns the stable code in HTTP, CLI and metrics. Variants may be added; codes never change.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownCoupon => "unknown_coupon",
            Self::KeyReused(_) => "idempotency_key_reused",
            Self::AlreadyIssued(_) => "already_issued",
            Self::Deleted => "deleted",
            Self::Purged(_) => "purged",
            Self::NotOpen(_) => "not_open",
            Self::Expired(_) => "expired",
            Self::SoldOut => "sold_out",
            Self::SettingsChanged => "settings_changed",
            Self::LimitBelowIssued(_) => "limit_below_issued",
            Self::RoomFixed => "room_fixed",
            Self::UnknownCode => "unknown_code",
            Self::WrongUser => "wrong_user",
            Self::AlreadyRedeemed(_) => "already_redeemed",
        }
    }
}

/// For people: what the rule says. Programs match on the variants, or on [`Rejection::code`].
impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCoupon => f.write_str("no coupon has this name"),
            Self::KeyReused(_) => f.write_str("the idempotency key came with another request before"),
            Self::AlreadyIssued(_) => f.write_str("the user has a claim of this coupon already"),
            Self::Deleted => f.write_str("the coupon was deleted"),
            Self::Purged(_) => f.write_str("the claims of the coupon were kept for their time, and removed"),
            Self::NotOpen(_) => f.write_str("the coupon is not open yet"),
            Self::Expired(_) => f.write_str("the coupon has expired"),
            Self::SoldOut => f.write_str("all claims of the coupon are issued"),
            Self::SettingsChanged => f.write_str("the settings have changed since they were read"),
            Self::LimitBelowIssued(issued) => write!(f, "the limit would be below the {issued} claims that are issued"),
            Self::RoomFixed => f.write_str("the room of a coupon with claims cannot change"),
            Self::UnknownCode => f.write_str("no claim of this coupon has this code"),
            Self::WrongUser => f.write_str("the claim belongs to another user"),
            Self::AlreadyRedeemed(_) => f.write_str("the claim was redeemed before"),
        }
    }
}

impl std::error::Error for Rejection {}

/// The state of a coupon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CouponState {
    /// It opens later.
    Scheduled,
    /// It issues.
    Open,
    /// All coupons are issued.
    SoldOut,
    /// Issuing has ended by time.
    Expired,
    /// An operator deleted it for good.
    Deleted,
}

impl CouponState {
    /// Returns the state as the HTTP API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Open => "open",
            Self::SoldOut => "sold_out",
            Self::Expired => "expired",
            Self::Deleted => "deleted",
        }
    }
}
