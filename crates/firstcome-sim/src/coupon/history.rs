//! What clients of coupons ask and what they are told.

use super::workload::Coupons;
use crate::history::{self, Kind, Outcome, Vocabulary};
use firstcome_core::coupon::{Claim, CouponSettings, CouponState, Effect, Issued, Redeemed, Rejection, Serial};
use firstcome_core::id::{CouponName, UserId};
use firstcome_store::{Put, RedeemRequest, VoucherCode};
use std::collections::BTreeSet;

/// One operation of one client.
pub type Operation = history::Operation<Coupons>;

/// All operations of a run.
pub type History = history::History<Coupons>;

/// What a client asks.
#[derive(Clone, Debug)]
pub enum Command {
    /// An operator creates a coupon or changes its settings.
    Put(CouponSettings),
    /// An operator deletes a coupon.
    Delete,
    /// Anybody looks at a coupon.
    View,
    /// A user claims.
    Claim(Claim),
    /// A client looks up the claim of a user.
    ClaimOf(UserId),
    /// A holder redeems a code. The claim beside it is the one that the code was told for, if it was told at all.
    Redeem(RedeemRequest, Option<(Serial, UserId)>),
}

impl Kind for Command {
    fn kind(&self) -> &'static str {
        match self {
            Self::Put(_) => "put",
            Self::Delete => "delete",
            Self::View => "view",
            Self::Claim(_) => "claim",
            Self::ClaimOf(_) => "claim_of",
            Self::Redeem(..) => "redeem",
        }
    }
}

impl Command {
    /// Whether an operator's command can change what others are told.
    pub const fn is_operator(&self) -> bool {
        matches!(self, Self::Put(_) | Self::Delete)
    }
}

/// An answer that reached its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CouponReply {
    /// The settings are in force.
    Put(Put),
    /// The coupon is deleted.
    Deleted,
    /// Where the coupon stands.
    View {
        /// How many there are.
        limit: u32,
        /// How many are issued.
        issued: u32,
        /// The state.
        state: CouponState,
    },
    /// The claim is accepted.
    Claimed(Effect<Issued>, VoucherCode),
    /// The claim that a user holds, if there is one, and its redemption.
    ClaimOf(Option<(Issued, Option<Redeemed>)>),
    /// The code is used up.
    Redeemed(Effect<Redeemed>),
    /// A rule refused; for `already_issued` with the code of the claim.
    Refused(Rejection, Option<VoucherCode>),
}

impl Kind for CouponReply {
    fn kind(&self) -> &'static str {
        match self {
            Self::Put(Put::Created) => "created",
            Self::Put(Put::Replaced) => "replaced",
            Self::Deleted => "deleted",
            Self::View { state, .. } => state.as_str(),
            Self::Claimed(Effect::New(_), _) | Self::Redeemed(Effect::New(_)) => "accepted",
            Self::Claimed(Effect::Again(_), _) | Self::Redeemed(Effect::Again(_)) => "repeated",
            Self::ClaimOf(Some(_)) => "found",
            Self::ClaimOf(None) => "none",
            Self::Refused(rejection, _) => rejection.code(),
        }
    }
}

impl Vocabulary for Coupons {
    type Name = CouponName;
    type Command = Command;
    type Reply = CouponReply;
    type Marks = ();
}

impl Operation {
    /// The refusal, if that was the answer.
    pub const fn refused(&self) -> Option<Rejection> {
        match self.told() {
            Some(CouponReply::Refused(rejection, _)) => Some(*rejection),
            _ => None,
        }
    }

    /// The claim that this operation itself made, if its client knows of it.
    pub const fn accepted(&self) -> Option<Issued> {
        match self.told() {
            Some(CouponReply::Claimed(Effect::New(issued), _)) => Some(*issued),
            _ => None,
        }
    }

    /// The redemption that this operation itself made, if its client knows of it.
    pub const fn redeemed(&self) -> Option<Redeemed> {
        match self.told() {
            Some(CouponReply::Redeemed(Effect::New(redeemed))) => Some(*redeemed),
            _ => None,
        }
    }

    /// The claim of this client's own user that the answer names, new or old.
    pub const fn claim_told(&self) -> Option<Issued> {
        match self.told() {
            Some(
                CouponReply::Claimed(Effect::New(issued) | Effect::Again(issued), _)
                | CouponReply::ClaimOf(Some((issued, _)))
                | CouponReply::Refused(Rejection::AlreadyIssued(issued), _),
            ) => Some(*issued),
            _ => None,
        }
    }

    /// How many claims there must be for the answer to be true.
    pub const fn claims_implied(&self) -> u32 {
        match self.told() {
            Some(CouponReply::View { issued, .. } | CouponReply::Refused(Rejection::LimitBelowIssued(issued), _)) => {
                *issued
            }
            Some(CouponReply::Refused(Rejection::KeyReused(serial), _))
                if matches!(self.command, Command::Claim(_)) =>
            {
                serial.get()
            }
            Some(CouponReply::Redeemed(Effect::New(redeemed) | Effect::Again(redeemed))) => redeemed.serial.get(),
            Some(CouponReply::Refused(Rejection::RoomFixed, _)) => 1,
            _ => match self.claim_told() {
                Some(issued) => issued.serial.get(),
                None => 0,
            },
        }
    }

    /// Whether it can have changed anything: accepted, or no client knows.
    pub const fn may_have_happened(&self) -> bool {
        match &self.outcome {
            Outcome::Pending | Outcome::Unknown => true,
            Outcome::NotDone => false,
            Outcome::Answered(told) => !matches!(
                told,
                CouponReply::Refused(..) | CouponReply::Claimed(Effect::Again(_), _) | CouponReply::View { .. }
            ),
        }
    }
}

impl History {
    /// The operations on one coupon, in the order in which they were asked.
    pub fn of<'a>(&'a self, coupon: &'a CouponName) -> impl Iterator<Item = &'a Operation> + Clone + 'a {
        self.operations().iter().filter(move |operation| operation.name == *coupon)
    }

    /// The coupons that anybody asked for.
    pub fn coupons(&self) -> BTreeSet<&CouponName> {
        self.operations().iter().map(|operation| &operation.name).collect()
    }

    /// Everybody who ever claimed this coupon.
    pub fn claimants<'a>(&'a self, coupon: &'a CouponName) -> BTreeSet<&'a UserId> {
        let claims = self.of(coupon).filter_map(|operation| match &operation.command {
            Command::Claim(claim) => Some(&claim.user),
            _ => None,
        });
        claims.collect()
    }

    /// The settings that may have been in force at some moment while `during` was under way.
    pub fn settings_during<'a>(&'a self, during: &'a Operation) -> impl Iterator<Item = &'a CouponSettings> + 'a {
        let puts = self.of(&during.name).filter(|put| put.may_have_happened());
        let puts =
            puts.filter_map(|put| if let Command::Put(settings) = &put.command { Some((put, settings)) } else { None });
        let begun = puts.clone().filter(move |(put, _)| during.ended.is_none_or(|ended| put.asked < ended));
        begun.filter_map(move |(put, settings)| {
            let mut later = puts.clone().filter(|(later, _)| matches!(later.told(), Some(CouponReply::Put(_))));
            let replaced = later.any(|(later, _)| put.precedes(later) && later.precedes(during));
            (!replaced).then_some(settings)
        })
    }

    /// Whether an operator may have changed the coupon between the start of one operation and the end of another.
    pub fn operator_between(&self, first: &Operation, last: &Operation) -> bool {
        self.of(&first.name).any(|operation| {
            operation.command.is_operator()
                && operation.may_have_happened()
                && !operation.precedes(first)
                && !last.precedes(operation)
        })
    }
}
