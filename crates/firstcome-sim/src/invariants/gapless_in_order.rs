//! Invariant 7: serials are exactly `1..=issued`, in the order in which the sequencing step accepted.
//!
//! - On disk the n-th claim has serial n, and instants never fall.
//! - A client that was served before another one asked has the smaller serial: every claim, look or count that was told before a
//!   claim began stays below the serial which that claim gets.
//! - The way to the writer is first in, first out, so even among claims under way at the same time the one that was
//!   handed over first has the smaller serial.
//! - A claim is accepted while it is under way: its instant lies between its question and its answer.

use super::{CouponEvidence, Violation};
use crate::coupon::history::{History, Operation};
use crate::coupon::rows::CouponRows;
use firstcome_core::coupon::Issued;
use firstcome_core::id::CouponName;

const NAME: &str = "gapless_in_order";

/// Looks for a gap, and for a client that was overtaken.
pub fn check(evidence: &CouponEvidence<'_>) -> Result<(), Violation> {
    let found = |detail| Violation::new(NAME, evidence.seed, detail);
    for rows in evidence.stored.values() {
        stored_without_gaps(rows).map_err(found)?;
    }
    for coupon in evidence.history.coupons() {
        no_client_is_overtaken(evidence.history, coupon).map_err(found)?;
    }
    Ok(())
}

fn stored_without_gaps(rows: &CouponRows) -> Result<(), String> {
    let mut last_at = None;
    for (place, (issued, claim)) in (1..).zip(&rows.claims) {
        let serial = issued.serial.get();
        if serial != place {
            return Err(format!("{}: claim {place} ({}) is stored as serial {serial}", rows.name, claim.user));
        }
        if Some(issued.issued_at) < last_at {
            return Err(format!("{}: serial {serial} is earlier than the one before it", rows.name));
        }
        last_at = Some(issued.issued_at);
    }
    Ok(())
}

fn no_client_is_overtaken(history: &History, coupon: &CouponName) -> Result<(), String> {
    let accepted = history.of(coupon).filter_map(|operation| Some((operation, operation.accepted()?)));
    let mut handed_over_before: Option<Issued> = None;
    for (operation, issued) in accepted {
        let serial = issued.serial.get();
        if let Some(before) = handed_over_before
            && issued.serial <= before.serial
        {
            let before = before.serial.get();
            return Err(format!("{coupon}: serial {serial} was handed over after the claim that got serial {before}"));
        }
        if issued.issued_at < operation.asked_at || operation.ended_at < issued.issued_at {
            return Err(format!("{coupon}: serial {serial} was not accepted between its question and its answer"));
        }
        if let Some(known) = claims_told_before(history, operation)
            && serial <= known
        {
            return Err(format!(
                "{coupon}: serial {serial} was told {known} claims were known before it was asked for"
            ));
        }
        handed_over_before = Some(issued);
    }
    Ok(())
}

/// The most claims that any reply had shown before this operation began.
fn claims_told_before(history: &History, operation: &Operation) -> Option<u32> {
    let earlier = history.of(&operation.name).filter(|earlier| earlier.precedes(operation));
    earlier.map(Operation::claims_implied).max()
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    #[test]
    fn a_gap_on_disk_is_found() {
        let mut story = Story::with_limit(3);
        story.row(1, "a").row(3, "b");
        story.assert_found(check, "claim 2 (b) is stored as serial 3");
    }

    #[test]
    fn an_instant_that_falls_is_found() {
        let mut story = Story::with_limit(3);
        story.row(1, "a").row(2, "b");
        story.rows_mut().claims[1].0.issued_at = firstcome_core::time::Timestamp::MIN;
        story.assert_found(check, "serial 2 is earlier");
    }

    #[test]
    fn claims_that_swapped_places_in_the_queue_are_found() {
        let mut story = Story::with_limit(3);
        let first = story.ask("a");
        let second = story.ask("b");
        story.accept(first, 2).accept(second, 1);
        story.assert_found(check, "serial 1 was handed over after the claim that got serial 2");
    }

    #[test]
    fn a_claim_below_what_was_told_before_it_is_found() {
        let mut story = Story::with_limit(3);
        story.already_issued("a", 2).claimed("b", 1);
        story.assert_found(check, "serial 1");
    }

    #[test]
    fn claims_in_the_order_of_the_queue_are_right_a_client_that_hears_first() {
        let mut story = Story::with_limit(3);
        let first = story.ask("a");
        let second = story.ask("b");
        story.row(1, "a").row(2, "b").accept(second, 2).accept(first, 1);
        story.assert_clean(check);
    }
}
