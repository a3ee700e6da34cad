//! Invariant 8: what was acknowledged is never lost, and a refusal is never contradicted later.
//!
//! - Everything that an answer names (a claim, its code, a redemption, a count, settings, a deletion) is on disk and says the
//!   same, after every crash.
//! - A later view shows everything that was replied before: no count falls, no redemption or setting is missing.
//! - A client asked for everything that is on disk, and the store did not reply that it was not done.
//! - After "sold out", "expired" or "not open yet" no claim that was asked for later contradicts, unless an operator
//!   may have changed the settings in between. Nothing ever contradicts "deleted".

use super::{CouponEvidence, Violation};
use crate::coupon::history::{Command, CouponReply, History, Operation};
use crate::coupon::rows::CouponRows;
use crate::history::Kind;
use firstcome_core::coupon::{CouponState, Effect, Issued, Redeemed, Rejection};

const NAME: &str = "acknowledged_stays";

/// Looks for a reply that did not stay true.
pub fn check(evidence: &CouponEvidence<'_>) -> Result<(), Violation> {
    let found = |detail| Violation::new(NAME, evidence.seed, detail);
    let history = evidence.history;
    for operation in history.operations() {
        let rows = evidence.stored.values().find(|rows| rows.name == operation.name);
        answer_is_stored(operation, rows).map_err(found)?;
        code_is_known(operation).map_err(found)?;
        operator_is_obeyed(history, operation, rows).map_err(found)?;
        refusal_stands(history, operation).map_err(found)?;
        look_is_fresh(history, operation).map_err(found)?;
    }
    for rows in evidence.stored.values() {
        stored_was_asked_for(history, rows).map_err(found)?;
    }
    Ok(())
}

/// The answer and the rows say the same.
fn answer_is_stored(operation: &Operation, rows: Option<&CouponRows>) -> Result<(), String> {
    let Some(told) = operation.told() else { return Ok(()) };
    let coupon = &operation.name;
    let stored = rows.map_or(0, |rows| rows.claims.len() as u32);
    let implied = operation.claims_implied();
    if stored < implied {
        let kind = told.kind();
        return Err(format!("{coupon}: an answer ({kind}) rests on {implied} claims, {stored} are stored"));
    }
    let Some(rows) = rows else { return Ok(()) };
    if let Some(issued) = operation.claim_told() {
        claim_is_stored(operation, issued, rows)?;
    }
    let redeemed = match told {
        CouponReply::Redeemed(Effect::New(redeemed) | Effect::Again(redeemed))
        | CouponReply::Refused(Rejection::AlreadyRedeemed(redeemed), _)
        | CouponReply::ClaimOf(Some((_, Some(redeemed)))) => Some(*redeemed),
        _ => None,
    };
    redeemed.map_or(Ok(()), |redeemed| redemption_is_stored(redeemed, rows))
}

fn claim_is_stored(operation: &Operation, issued: Issued, rows: &CouponRows) -> Result<(), String> {
    let (coupon, serial) = (&rows.name, issued.serial.get());
    let Some((found, claim)) = rows.claims.iter().find(|(found, _)| found.serial == issued.serial) else {
        return Err(format!("{coupon}: serial {serial} was told and is not stored"));
    };
    if *found != issued {
        return Err(format!("{coupon}: serial {serial} was told with another instant than the stored one"));
    }
    let same = match &operation.command {
        Command::Claim(asked) => match operation.told() {
            Some(CouponReply::Claimed(Effect::New(_), _)) => asked == claim,
            Some(CouponReply::Claimed(Effect::Again(_), _)) => asked.request == claim.request,
            _ => asked.user == claim.user,
        },
        Command::ClaimOf(user) => *user == claim.user,
        _ => true,
    };
    if !same {
        return Err(format!("{coupon}: serial {serial} is stored with something else than was asked for"));
    }
    let (Some(CouponReply::Claimed(_, code)) | Some(CouponReply::Refused(_, Some(code)))) = operation.told() else {
        return Ok(());
    };
    if !rows.voucher_key.is_code_of(code.as_str(), *found, claim.user.as_str()) {
        return Err(format!("{coupon}: the code that was told for serial {serial} does not lead to it any more"));
    }
    Ok(())
}

fn redemption_is_stored(redeemed: Redeemed, rows: &CouponRows) -> Result<(), String> {
    if rows.redemptions.iter().any(|(found, _)| *found == redeemed) {
        return Ok(());
    }
    let serial = redeemed.serial.get();
    Err(format!("{}: the redemption of serial {serial} was told and is not stored", rows.name))
}

/// A code that was told for a claim is never called unknown, nor its holder a stranger.
fn code_is_known(operation: &Operation) -> Result<(), String> {
    let Command::Redeem(redeem, Some((serial, holder))) = &operation.command else { return Ok(()) };
    let denied = match operation.refused() {
        Some(Rejection::UnknownCode) => true,
        Some(Rejection::WrongUser) => redeem.user.as_ref() == Some(holder),
        _ => false,
    };
    if !denied {
        return Ok(());
    }
    Err(format!("{}: the code of serial {} was told to {holder} and denied later", operation.name, serial.get()))
}

/// Settings and deletions that were acknowledged are in force.
fn operator_is_obeyed(history: &History, operation: &Operation, rows: Option<&CouponRows>) -> Result<(), String> {
    let coupon = &operation.name;
    match (&operation.command, operation.told()) {
        (Command::Put(settings), Some(CouponReply::Put(_))) => {
            let Some(rows) = rows else { return Err(format!("{coupon}: was put and is not stored")) };
            let changed_since = history.of(coupon).any(|other| {
                matches!(other.command, Command::Put(_)) && other.may_have_happened() && operation.asked < other.asked
            });
            if !changed_since && rows.settings != *settings && !earlier_put_is_open(history, operation) {
                return Err(format!("{coupon}: the settings that were put last are not the stored ones"));
            }
        }
        (Command::Delete, Some(CouponReply::Deleted)) if rows.is_none_or(|rows| !rows.deleted) => {
            return Err(format!("{coupon}: was deleted and is still there"));
        }
        (_, Some(CouponReply::Refused(Rejection::UnknownCoupon, _))) => {
            let put = history
                .of(coupon)
                .find(|put| matches!(put.told(), Some(CouponReply::Put(_))) && put.precedes(operation));
            if put.is_some() {
                return Err(format!("{coupon}: was put and called unknown later"));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Whether an earlier put was still under way when this one was, so that it may have come after it.
fn earlier_put_is_open(history: &History, operation: &Operation) -> bool {
    history.of(&operation.name).any(|other| {
        matches!(other.command, Command::Put(_))
            && other.may_have_happened()
            && other.asked < operation.asked
            && !other.precedes(operation)
    })
}

/// No answer to a question asked later contradicts this refusal.
fn refusal_stands(history: &History, refusal: &Operation) -> Result<(), String> {
    let (reason, before) = match refusal.told() {
        Some(CouponReply::Refused(Rejection::NotOpen(opens_at), _)) => ("not_open", Some(*opens_at)),
        Some(CouponReply::Refused(
            rejection @ (Rejection::SoldOut | Rejection::Expired(_) | Rejection::Deleted),
            _,
        )) => (rejection.code(), None),
        Some(CouponReply::View { state: CouponState::Deleted, .. } | CouponReply::Deleted) => ("deleted", None),
        _ => return Ok(()),
    };
    let later = history.of(&refusal.name).filter(|later| refusal.precedes(later));
    for later in later {
        let contradicts = match (&refusal.command, later.told()) {
            (_, Some(CouponReply::Put(_))) => reason == "deleted",
            (Command::Redeem(..), Some(CouponReply::Redeemed(Effect::New(_)))) => true,
            (Command::Redeem(..), _) => false,
            (_, Some(CouponReply::Claimed(Effect::New(issued), _))) => {
                before.is_none_or(|opens_at| issued.issued_at < opens_at)
            }
            _ => false,
        };
        if contradicts && (reason == "deleted" || !history.operator_between(refusal, later)) {
            let kind = later.command.kind();
            return Err(format!("{}: after {reason} a later {kind} was accepted", refusal.name));
        }
    }
    Ok(())
}

/// A view shows everything that was replied before it began.
fn look_is_fresh(history: &History, look: &Operation) -> Result<(), String> {
    let coupon = &look.name;
    let earlier = history.of(coupon).filter(|earlier| earlier.precedes(look));
    match (&look.command, look.told()) {
        (Command::View, Some(CouponReply::View { limit, issued, .. })) => {
            let known = earlier.map(Operation::claims_implied).max().unwrap_or(0);
            if *issued < known {
                return Err(format!("{coupon}: a look shows {issued} claims after {known} were known"));
            }
            if !history.settings_during(look).any(|settings| settings.limit.get() == *limit) {
                return Err(format!("{coupon}: a look shows the limit {limit}, which was not in force"));
            }
        }
        (Command::ClaimOf(user), Some(CouponReply::ClaimOf(Some((issued, None))))) => {
            let mut redeemed = earlier.filter_map(Operation::redeemed);
            if redeemed.any(|redeemed| redeemed.serial == issued.serial) {
                return Err(format!("{coupon}: the redemption of {user} was told and is not shown"));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Every row comes from a request to which the store did not reply that nothing was done.
fn stored_was_asked_for(history: &History, rows: &CouponRows) -> Result<(), String> {
    for (issued, claim) in &rows.claims {
        let asked = history.of(&rows.name).any(|operation| {
            let same = matches!(&operation.command, Command::Claim(asked) if asked == claim);
            same && (operation.is_unclear() || operation.accepted() == Some(*issued))
        });
        if !asked {
            let serial = issued.serial.get();
            return Err(format!("{}: serial {serial} of {} is stored without a claim", rows.name, claim.user));
        }
    }
    for (redeemed, request) in &rows.redemptions {
        let asked = history.of(&rows.name).any(|operation| {
            let same = matches!(&operation.command, Command::Redeem(asked, _) if asked.request == *request
                && rows.is_code_of(&asked.code, redeemed.serial));
            same && (operation.is_unclear() || operation.redeemed() == Some(*redeemed))
        });
        if !asked {
            let serial = redeemed.serial.get();
            return Err(format!("{}: serial {serial} is stored as redeemed without a redemption", rows.name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    #[test]
    fn a_lost_claim_is_found() {
        let mut story = Story::with_limit(2);
        story.claimed("a", 1);
        story.assert_found(check, "rests on 1 claims, 0 are stored");
    }

    #[test]
    fn a_claim_that_became_another_users_is_found() {
        let mut story = Story::with_limit(2);
        story.claimed("a", 1).unknown("b").row(1, "b");
        story.assert_found(check, "stored with something else");
    }

    #[test]
    fn a_changed_instant_is_found() {
        let mut story = Story::with_limit(2);
        story.claimed_and_stored("a", 1);
        story.rows_mut().claims[0].0.issued_at = firstcome_core::time::Timestamp::MAX;
        story.assert_found(check, "another instant");
    }

    #[test]
    fn a_lost_redemption_is_found() {
        let mut story = Story::with_limit(2);
        story.claimed_and_stored("a", 1).redeemed("a", 1);
        story.rows_mut().redemptions.clear();
        story.assert_found(check, "the redemption of serial 1 was told and is not stored");
    }

    #[test]
    fn a_claim_that_was_said_not_to_be_done_is_found() {
        let mut story = Story::with_limit(2);
        story.not_done("a").row(1, "a");
        story.assert_found(check, "without a claim");
    }

    #[test]
    fn a_claim_after_sold_out_is_found_unless_the_limit_was_raised() {
        let mut story = Story::with_limit(2);
        story.claimed_and_stored("a", 1).refused("b", Rejection::SoldOut).claimed_and_stored("c", 2);
        story.assert_found(check, "after sold_out a later claim was accepted");
        let mut story = Story::with_limit(1);
        story.claimed_and_stored("a", 1).refused("b", Rejection::SoldOut).put(2).claimed_and_stored("c", 2);
        story.assert_clean(check);
    }

    #[test]
    fn a_claim_after_deleted_is_found_even_if_an_operator_came_between() {
        let mut story = Story::with_limit(2);
        story.refused("b", Rejection::Deleted).put(2).claimed_and_stored("c", 1);
        story.assert_found(check, "after deleted");
    }

    #[test]
    fn settings_that_were_lost_are_found() {
        let mut story = Story::with_limit(2);
        story.put(5);
        story.rows_mut().settings.limit = Story::limit(2);
        story.assert_found(check, "the settings that were put last");
    }

    #[test]
    fn a_count_that_was_not_durable_is_found() {
        let mut story = Story::with_limit(3);
        story.view(2).claimed_and_stored("a", 1);
        story.assert_found(check, "rests on 2 claims, 1 are stored");
    }

    #[test]
    fn a_look_that_misses_what_was_told_is_found() {
        let mut story = Story::with_limit(3);
        story.claimed_and_stored("a", 1).view(0);
        story.assert_found(check, "shows 0 claims after 1 were known");
        let mut story = Story::with_limit(3);
        story.claimed_and_stored("a", 1).redeemed("a", 1).claim_of("a", Some(1));
        story.assert_found(check, "the redemption of a was told and is not shown");
    }

    #[test]
    fn an_unclear_answer_may_have_been_done_or_not() {
        let mut story = Story::with_limit(2);
        story.unknown("a").claimed_and_stored("b", 1).unknown("c").row(2, "c");
        story.assert_clean(check);
    }
}
