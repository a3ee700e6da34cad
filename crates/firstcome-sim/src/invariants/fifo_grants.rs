//! Invariant 3: grants follow arrival, in the order in which the store got people in line.
//!
//! - The store grants the lock to the first waiter of its kind in line. A new waiter stands behind those of its kind that are
//!   there, and a waiter that lost its place comes back at its old one.
//! - Phases take turns: no request joins a shared hold while an exclusive request of a living process waits, and no exclusive
//!   hold follows another while a shared request of a living process waits.
//! - The store passes over only waiters whose process it did not hear of for a claim window. It never grants the lock to a
//!   waiter that counts as dead, and never passes over a process that runs and whose calls arrive.

use super::{LockEvidence, Violation};
use crate::lock::history::History;
use crate::lock::ledger::{Out, WaiterStory};
use firstcome_core::limits::CLAIM_WINDOW_MS;

const NAME: &str = "fifo_grants";
const WINDOW_US: u64 = CLAIM_WINDOW_MS as u64 * 1_000;
/// A process that had no trouble for so long is heard of in time.
const CALM_US: i64 = 4_000_000;

/// Looks for a client that was overtaken.
pub fn check(evidence: &LockEvidence<'_>) -> Result<(), Violation> {
    let found = |detail| Err(Violation::new(NAME, evidence.seed, detail));
    for hold in &evidence.ledger.holds {
        let request = hold.waiter.request;
        if let Some(first) = hold.overtook {
            return found(format!("{}: {request:?} was granted at {} before {first:?}", hold.name, hold.at));
        }
        if hold.from_line && is_dead(hold.silence_us) {
            return found(format!("{}: {request:?} was granted at {}, and counts as dead", hold.name, hold.at));
        }
    }
    for place in &evidence.ledger.places {
        if place.jumped && evidence.history.disturbances.is_empty() {
            return found(format!("{}: {:?} got in line before others", place.name, place.request));
        }
        let Some((at, Out::PassedOver(silence_us))) = place.out else { continue };
        if !is_dead(silence_us) {
            return found(format!("{}: {:?} was passed over at {at}, and lives", place.name, place.request));
        }
        if was_heard_of(evidence.history, place, at) {
            return found(format!("{}: {:?} was passed over at {at}, and was well", place.name, place.request));
        }
    }
    Ok(())
}

const fn is_dead(silence_us: Option<u64>) -> bool {
    match silence_us {
        Some(silence_us) => WINDOW_US < silence_us,
        None => true,
    }
}

fn was_heard_of(history: &History, place: &WaiterStory, at: i64) -> bool {
    history.is_wanted(place.request, at)
        && !history.is_troubled(place.request.client, at - CALM_US, at)
        && !history.is_disturbed(place.at, at)
}

#[cfg(test)]
mod tests {
    use super::super::lock_story::Story;
    use super::check;

    #[test]
    fn a_client_that_is_overtaken_is_found() {
        let mut story = Story::new();
        story.granted(1, 7).lives(2).in_line(2, 8).lives(3).in_line(3, 9).handed_to(3, 9, 10);
        story.assert_found(check, "before");
        let mut story = Story::new();
        story.granted(1, 7).lives(2).in_line(2, 8).lives(3).in_line(3, 9).handed_to(2, 8, 10);
        story.assert_clean(check);
    }

    #[test]
    fn a_reader_that_joins_before_a_waiting_writer_is_found() {
        let mut story = Story::new();
        story.shared(&[1], 7).lives(2).in_line(2, 8).shared(&[1, 3], 7);
        story.assert_found(check, "before");
        let mut story = Story::new();
        story.shared(&[1], 7).lives(2).in_line(2, 8).pass_ms(2_001).shared(&[1, 3], 7);
        story.assert_clean(check);
    }

    #[test]
    fn a_client_that_gets_in_line_before_others_is_found() {
        let mut story = Story::new();
        story.granted(1, 7).in_line(2, 9).in_line(3, 8);
        story.assert_found(check, "before others");
    }

    #[test]
    fn the_dead_who_are_served_and_the_living_who_are_not_are_found() {
        let mut story = Story::new();
        story.granted(1, 7).lives(2).in_line(2, 8).pass_ms(2_001).handed_to(2, 8, 9);
        story.assert_found(check, "counts as dead");
        let mut story = Story::new();
        story.granted(1, 7).lives(2).in_line(2, 8).pass_ms(2_000).passed_over(1, 8);
        story.assert_found(check, "and lives");
        let mut story = Story::new();
        story.asks(2).granted(1, 7).lives(2).in_line(2, 8).pass_ms(2_001).passed_over(1, 8);
        story.assert_found(check, "was well");
        let mut story = Story::new();
        story.asks(2).granted(1, 7).lives(2).in_line(2, 8).killed(2).pass_ms(2_001).passed_over(1, 8);
        story.assert_clean(check);
    }
}
