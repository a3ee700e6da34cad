//! What clients asked and what they were told: all that the invariants know of the store's promises.
//!
//! Events are numbered in the order in which they happened, so "before" is a comparison of two numbers. An operation
//! without a told answer stays open until its store's life ends: up to then it may still take effect.

use firstcome_core::coupon::{Claim, CouponSettings, CouponState, Effect, Issued, Redeemed, Rejection, Serial};
use firstcome_core::id::{CouponName, UserId};
use firstcome_core::time::Timestamp;
use firstcome_store::{Put, RedeemRequest, VoucherCode};
use std::collections::BTreeSet;

/// The number of an event; later events have larger ones.
pub type Event = u64;

/// The place of an operation in the history.
pub type OperationId = usize;

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

impl Command {
    /// The kind of command, for tables.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Put(_) => "put",
            Self::Delete => "delete",
            Self::View => "view",
            Self::Claim(_) => "claim",
            Self::ClaimOf(_) => "claim_of",
            Self::Redeem(..) => "redeem",
        }
    }

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

impl CouponReply {
    /// The answer in a word, for tables.
    pub const fn kind(&self) -> &'static str {
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

/// What became of an operation, as far as its client knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No answer yet.
    Pending,
    /// The store answered.
    Told(CouponReply),
    /// The store said that nothing was done.
    NotDone,
    /// It may have been done or not: the answer was lost, the caller went away, or the store did not know.
    Unknown,
}

/// One operation of one client.
#[derive(Clone, Debug)]
pub struct Operation {
    /// On which coupon.
    pub coupon: CouponName,
    /// What was asked.
    pub command: Command,
    /// When it was asked.
    pub invoked: Event,
    /// After this event it has no effect any more: its answer, or the end of the store's life. `None`: not yet.
    pub ended: Option<Event>,
    /// What came back.
    pub outcome: Outcome,
    /// The clock when it was asked.
    pub asked_at: Timestamp,
    /// The clock when it was answered.
    pub replied_at: Timestamp,
    /// How many claims of the coupon were durable when it was answered.
    pub durable: u32,
}

impl Operation {
    /// The answer, if one came.
    pub const fn told(&self) -> Option<&CouponReply> {
        match &self.outcome {
            Outcome::Told(told) => Some(told),
            _ => None,
        }
    }

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
            Outcome::Told(told) => !matches!(
                told,
                CouponReply::Refused(..) | CouponReply::Claimed(Effect::Again(_), _) | CouponReply::View { .. }
            ),
        }
    }

    /// Whether it was over before the other one began.
    pub fn precedes(&self, other: &Self) -> bool {
        self.ended.is_some_and(|ended| ended < other.invoked)
    }
}

/// All operations of a run in the order in which they were asked.
#[derive(Clone, Debug, Default)]
pub struct History {
    operations: Vec<Operation>,
    events: Event,
}

impl History {
    /// Writes down that a client asked.
    pub fn invoke(&mut self, coupon: CouponName, command: Command, now: Timestamp) -> OperationId {
        let invoked = self.next_event();
        self.operations.push(Operation {
            coupon,
            command,
            invoked,
            ended: None,
            outcome: Outcome::Pending,
            asked_at: now,
            replied_at: now,
            durable: 0,
        });
        self.operations.len() - 1
    }

    /// Writes down what the client came to know. `durable`: the claims on disk at that moment.
    pub fn answer(&mut self, id: OperationId, outcome: Outcome, durable: u32, now: Timestamp) {
        let event = self.next_event();
        let operation = &mut self.operations[id];
        assert_eq!(operation.outcome, Outcome::Pending, "an operation has one answer");
        // Without a clear answer it may still take effect until this life of the store ends.
        operation.ended = matches!(outcome, Outcome::Told(_) | Outcome::NotDone).then_some(event);
        operation.outcome = outcome;
        operation.durable = durable;
        operation.replied_at = now;
    }

    /// Writes down that the store is gone: everything that had no effect up to here has none later.
    pub fn end_life(&mut self) {
        let event = self.next_event();
        for operation in self.operations.iter_mut().filter(|operation| operation.ended.is_none()) {
            operation.ended = Some(event);
            operation.outcome = Outcome::Unknown;
        }
    }

    /// All operations, in the order in which they were asked.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The operations on one coupon, in the order in which they were asked.
    pub fn of<'a>(&'a self, coupon: &'a CouponName) -> impl Iterator<Item = &'a Operation> + Clone + 'a {
        self.operations.iter().filter(move |operation| operation.coupon == *coupon)
    }

    /// The coupons that anybody asked for.
    pub fn coupons(&self) -> BTreeSet<&CouponName> {
        self.operations.iter().map(|operation| &operation.coupon).collect()
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
        let puts = self.of(&during.coupon).filter(|put| put.may_have_happened());
        let puts =
            puts.filter_map(|put| if let Command::Put(settings) = &put.command { Some((put, settings)) } else { None });
        let begun = puts.clone().filter(move |(put, _)| during.ended.is_none_or(|ended| put.invoked < ended));
        begun.filter_map(move |(put, settings)| {
            let mut later = puts.clone().filter(|(later, _)| matches!(later.told(), Some(CouponReply::Put(_))));
            let replaced = later.any(|(later, _)| put.precedes(later) && later.precedes(during));
            (!replaced).then_some(settings)
        })
    }

    /// Whether an operator may have changed the coupon between the start of one operation and the end of another.
    pub fn operator_between(&self, first: &Operation, last: &Operation) -> bool {
        self.of(&first.coupon).any(|operation| {
            operation.command.is_operator()
                && operation.may_have_happened()
                && !operation.precedes(first)
                && !last.precedes(operation)
        })
    }

    fn next_event(&mut self) -> Event {
        self.events += 1;
        self.events
    }
}
