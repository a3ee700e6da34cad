//! Invariant 5: no oversell, no undersell.
//!
//! - The store never keeps more claims than the limit allows, and accepts none that every limit or window that may have been
//!   in force forbids.
//! - No client is told "sold out" while fewer claims than the limit are durable, nor "not open yet" or "expired" while
//!   it was open.
//! - After the heal, once every claimant has asked again, a coupon that is open has issued exactly
//!   `min(limit, distinct claimants)`.

use super::{CouponEvidence, Violation};
use crate::coupon::history::{CouponReply, History, Operation};
use crate::coupon::rows::CouponRows;
use crate::history::Kind;
use firstcome_core::coupon::{CouponSettings, CouponState, Rejection};
use firstcome_core::time::Timestamp;

const NAME: &str = "no_oversell";

/// Looks for one claim too many and for one too few.
pub fn check(evidence: &CouponEvidence<'_>) -> Result<(), Violation> {
    let found = |detail| Violation::new(NAME, evidence.seed, detail);
    for rows in evidence.stored.values() {
        let (issued, limit) = (rows.claims.len(), rows.settings.limit.get());
        if (limit as usize) < issued {
            return Err(found(format!("{}: {issued} claims are stored, the limit is {limit}", rows.name)));
        }
    }
    for operation in evidence.history.operations() {
        accepted_within_settings(evidence.history, operation).map_err(found)?;
        window_is_true(operation).map_err(found)?;
        sold_out_is_true(evidence.history, operation).map_err(found)?;
    }
    if let Some(now) = evidence.healed_at {
        for rows in evidence.stored.values() {
            sold_exactly(evidence.history, rows, now).map_err(found)?;
        }
    }
    Ok(())
}

fn accepted_within_settings(history: &History, operation: &Operation) -> Result<(), String> {
    let Some(issued) = operation.accepted() else { return Ok(()) };
    let (coupon, serial) = (&operation.name, issued.serial.get());
    let highest = history.settings_during(operation).map(|settings| settings.limit.get()).max().unwrap_or(0);
    if highest < serial {
        return Err(format!("{coupon}: serial {serial} was told, the limit was {highest} at most"));
    }
    if !history.settings_during(operation).any(|settings| is_open(settings, issued.issued_at)) {
        return Err(format!("{coupon}: serial {serial} was issued while no settings were open"));
    }
    Ok(())
}

fn is_open(settings: &CouponSettings, now: Timestamp) -> bool {
    settings.opens_at.is_none_or(|opens_at| opens_at <= now)
        && settings.expires_at.is_none_or(|expires_at| now < expires_at)
}

fn window_is_true(operation: &Operation) -> Result<(), String> {
    let untrue = match operation.refused() {
        Some(Rejection::NotOpen(opens_at)) => opens_at <= operation.asked_at,
        Some(Rejection::Expired(expired_at)) => operation.ended_at < expired_at,
        _ => false,
    };
    if untrue {
        Err(format!("{}: a {} was refused while it was open", operation.name, operation.command.kind()))
    } else {
        Ok(())
    }
}

fn sold_out_is_true(history: &History, operation: &Operation) -> Result<(), String> {
    let told_sold_out = matches!(
        operation.told(),
        Some(CouponReply::Refused(Rejection::SoldOut, _) | CouponReply::View { state: CouponState::SoldOut, .. })
    );
    if !told_sold_out {
        return Ok(());
    }
    let lowest = history.settings_during(operation).map(|settings| settings.limit.get()).min().unwrap_or(0);
    if operation.durable < lowest {
        let durable = operation.durable;
        return Err(format!("{}: sold out was told while {durable} of {lowest} claims were durable", operation.name));
    }
    Ok(())
}

fn sold_exactly(history: &History, rows: &CouponRows, now: Timestamp) -> Result<(), String> {
    if rows.deleted || !is_open(&rows.settings, now) {
        return Ok(());
    }
    let claimants = history.claimants(&rows.name).len();
    let wanted = claimants.min(rows.settings.limit.get() as usize);
    let issued = rows.claims.len();
    if issued != wanted {
        let limit = rows.settings.limit.get();
        return Err(format!("{}: {issued} issued at the end; limit {limit}, {claimants} claimants", rows.name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    #[test]
    fn a_row_beyond_the_limit_is_found() {
        let mut story = Story::with_limit(1);
        story.row(1, "a").row(2, "b");
        story.assert_found(check, "2 claims are stored, the limit is 1");
    }

    #[test]
    fn a_told_serial_beyond_the_limit_is_found() {
        let mut story = Story::with_limit(1);
        story.claimed("a", 2).row(1, "b");
        story.assert_found(check, "serial 2 was told, the limit was 1 at most");
    }

    #[test]
    fn sold_out_before_the_last_claim_is_durable_is_found() {
        let mut story = Story::with_limit(2);
        story.row(1, "a").refused("b", Rejection::SoldOut);
        story.assert_found(check, "sold out was told while 1 of 2");
    }

    #[test]
    fn a_place_left_unsold_is_found_after_the_heal_only() {
        let mut story = Story::with_limit(2);
        story.claimed_and_stored("a", 1).unknown("b");
        story.assert_clean(check);
        story.heal();
        story.assert_found(check, "1 issued at the end; limit 2, 2 claimants");
    }

    #[test]
    fn a_claim_outside_its_window_and_a_refusal_inside_it_are_found() {
        let opens_at = Timestamp::clamped_us(10);
        let mut story = Story::with_limit(2);
        story.put_window(2, 10, 20).at(9).refused("a", Rejection::NotOpen(opens_at)).at(10).claimed_and_stored("a", 1);
        story.assert_clean(check);
        story.at(20).claimed_and_stored("b", 2);
        story.assert_found(check, "serial 2 was issued while no settings were open");
        let mut story = Story::with_limit(2);
        story.put_window(2, 10, 20).at(10).refused("a", Rejection::NotOpen(opens_at));
        story.assert_found(check, "refused while it was open");
    }

    #[test]
    fn the_whole_limit_sold_is_right() {
        let mut story = Story::with_limit(2);
        story.claimed_and_stored("a", 1).claimed_and_stored("b", 2).refused("c", Rejection::SoldOut).heal();
        story.assert_clean(check);
    }

    #[test]
    fn a_raised_limit_counts_from_when_it_was_asked() {
        let mut story = Story::with_limit(1);
        story.claimed_and_stored("a", 1).refused("b", Rejection::SoldOut).put(2).claimed_and_stored("b", 2).heal();
        story.assert_clean(check);
        story.put(3).refused("c", Rejection::SoldOut);
        story.assert_found(check, "sold out was told while 2 of 3");
    }
}
