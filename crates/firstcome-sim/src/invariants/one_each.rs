//! Invariant 6: one each.
//!
//! - A user holds at most one claim of a coupon. All replies show the same serial, none shows no claim after that, and one
//!   says "accepted".
//! - A serial belongs to one user.
//! - An idempotency key makes one claim, or one redemption, at most.
//! - A claim is redeemed at most once.

use super::{CouponEvidence, Violation};
use crate::coupon::history::{Command, CouponReply, History, Operation};
use crate::coupon::rows::CouponRows;
use crate::history::Kind;
use firstcome_core::coupon::Serial;
use firstcome_core::id::{CouponName, UserId};
use std::collections::{BTreeMap, BTreeSet, HashSet};

const NAME: &str = "one_each";

/// Looks for anything that happened twice.
pub fn check(evidence: &CouponEvidence<'_>) -> Result<(), Violation> {
    let found = |detail| Violation::new(NAME, evidence.seed, detail);
    for rows in evidence.stored.values() {
        claims_stored_once(rows).map_err(found)?;
        redemptions_stored_once(rows).map_err(found)?;
    }
    for coupon in evidence.history.coupons() {
        serials_told_once(evidence.history, coupon).map_err(found)?;
        told_claims_are_shown(evidence.history, coupon).map_err(found)?;
        effects_told_once(evidence.history, coupon).map_err(found)?;
    }
    Ok(())
}

fn claims_stored_once(rows: &CouponRows) -> Result<(), String> {
    let (mut users, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for (issued, claim) in &rows.claims {
        let serial = issued.serial.get();
        if !users.insert(&claim.user) {
            return Err(format!("{}: {} is stored with a second claim, serial {serial}", rows.name, claim.user));
        }
        if let Some(request) = claim.request
            && !keys.insert(request.key)
        {
            return Err(format!("{}: the idempotency key of serial {serial} is stored twice", rows.name));
        }
    }
    Ok(())
}

fn redemptions_stored_once(rows: &CouponRows) -> Result<(), String> {
    let (mut serials, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for (redeemed, request) in &rows.redemptions {
        let serial = redeemed.serial.get();
        if !serials.insert(redeemed.serial) {
            return Err(format!("{}: serial {serial} is stored as redeemed twice", rows.name));
        }
        if let Some(request) = request
            && !keys.insert(request.key)
        {
            return Err(format!("{}: the key that redeemed serial {serial} is stored twice", rows.name));
        }
    }
    Ok(())
}

/// The user whose claim an answer names: the asking one.
fn asking_user(operation: &Operation) -> Option<&UserId> {
    match &operation.command {
        Command::Claim(claim) => Some(&claim.user),
        Command::ClaimOf(user) => Some(user),
        _ => None,
    }
}

fn serials_told_once(history: &History, coupon: &CouponName) -> Result<(), String> {
    let mut serial_of: BTreeMap<&UserId, Serial> = BTreeMap::new();
    let mut user_of: BTreeMap<Serial, &UserId> = BTreeMap::new();
    for operation in history.of(coupon) {
        let (Some(user), Some(issued)) = (asking_user(operation), operation.claim_told()) else { continue };
        let serial = issued.serial;
        let first = *serial_of.entry(user).or_insert(serial);
        if first != serial {
            return Err(format!("{coupon}: {user} was told serials {} and {}", first.get(), serial.get()));
        }
        let owner = *user_of.entry(serial).or_insert(user);
        if owner != user {
            return Err(format!("{coupon}: {owner} and {user} were both told serial {}", serial.get()));
        }
    }
    Ok(())
}

/// A client that looks up a user after a claim was told finds that claim.
fn told_claims_are_shown(history: &History, coupon: &CouponName) -> Result<(), String> {
    let looks = history.of(coupon).filter(|look| matches!(look.told(), Some(CouponReply::ClaimOf(None))));
    for look in looks {
        let mut told = history.of(coupon).filter(|told| told.claim_told().is_some() && told.precedes(look));
        if let Some(user) = asking_user(look)
            && told.any(|told| asking_user(told) == Some(user))
        {
            return Err(format!("{coupon}: the claim of {user} was told and is not shown"));
        }
    }
    Ok(())
}

fn effects_told_once(history: &History, coupon: &CouponName) -> Result<(), String> {
    let mut users = BTreeSet::new();
    let mut redeemed = BTreeSet::new();
    let mut keys = HashSet::new();
    for operation in history.of(coupon) {
        let request = match &operation.command {
            Command::Claim(claim) if operation.accepted().is_some() => {
                if !users.insert(&claim.user) {
                    return Err(format!("{coupon}: {} was told twice that a claim is accepted", claim.user));
                }
                claim.request
            }
            Command::Redeem(redeem, _) => {
                let Some(effect) = operation.redeemed() else { continue };
                if !redeemed.insert(effect.serial) {
                    let serial = effect.serial.get();
                    return Err(format!("{coupon}: serial {serial} was redeemed twice with success"));
                }
                redeem.request
            }
            _ => continue,
        };
        if let Some(request) = request
            && !keys.insert((operation.command.kind(), request.key))
        {
            return Err(format!("{coupon}: one idempotency key had two effects ({})", operation.command.kind()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    #[test]
    fn a_user_with_two_rows_is_found() {
        let mut story = Story::with_limit(3);
        story.row(1, "a").row(2, "b").row(3, "a");
        story.assert_found(check, "a is stored with a second claim, serial 3");
    }

    #[test]
    fn a_user_who_was_told_two_serials_is_found() {
        let mut story = Story::with_limit(3);
        story.claimed("a", 1).already_issued("a", 2);
        story.assert_found(check, "a was told serials 1 and 2");
    }

    #[test]
    fn a_serial_that_two_users_were_told_is_found() {
        let mut story = Story::with_limit(3);
        story.claimed("a", 1).claimed("b", 1);
        story.assert_found(check, "a and b were both told serial 1");
    }

    #[test]
    fn a_claim_that_is_not_shown_any_more_is_found() {
        let mut story = Story::with_limit(3);
        story.claim_of("a", None).claimed_and_stored("a", 1).claim_of("b", None).claim_of("a", Some(1));
        story.assert_clean(check);
        story.claim_of("a", None);
        story.assert_found(check, "the claim of a was told and is not shown");
    }

    #[test]
    fn two_acceptances_for_one_user_are_found() {
        let mut story = Story::with_limit(3);
        story.claimed("a", 1).claimed("a", 1);
        story.assert_found(check, "a was told twice");
    }

    #[test]
    fn a_key_with_two_effects_is_found() {
        let mut story = Story::with_limit(3);
        story.claimed_with_key("a", 1, 7).claimed_with_key("b", 2, 7);
        story.assert_found(check, "one idempotency key had two effects");
    }

    #[test]
    fn a_second_redemption_is_found() {
        let mut story = Story::with_limit(3);
        story.claimed_and_stored("a", 1).redeemed("a", 1).redeemed("a", 1);
        story.assert_found(check, "serial 1 was redeemed twice");
    }

    #[test]
    fn repeats_with_the_same_answer_are_right() {
        let mut story = Story::with_limit(3);
        story.claimed_and_stored("a", 1).already_issued("a", 1).claimed_and_stored("b", 2).redeemed("a", 1);
        story.assert_clean(check);
    }
}
