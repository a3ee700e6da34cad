//! A holder's deadline is never after the store's own end of that hold, while the store's clock runs evenly.
//!
//! Nor does the store's end move before a deadline that was told already and still counts.

use super::{LockEvidence, Violation};
use crate::lock::history::Belief;
use crate::lock::ledger::HoldStory;

const NAME: &str = "hold_deadline";
/// What a process knows of the store's clock is no older than this.
const MEMORY_US: i64 = 60_000_000;

/// Looks for a deadline that is too late.
pub fn check(evidence: &LockEvidence<'_>) -> Result<(), Violation> {
    for word in &evidence.history.words {
        let Some((request, deadline)) = word.deadline() else { continue };
        let Some(belief) = evidence.history.belief_of(request) else { continue };
        // A task that gives up ends its belief: the deadline counts until then, or until the next reply.
        let next =
            evidence.history.messages_of(request).find(|next| word.at < next.at).map_or(i64::MAX, |next| next.at);
        let until = deadline.min(next);
        let until = if belief.until < deadline { until.min(belief.until) } else { until };
        let hold = evidence.ledger.holds.iter().rev().find(|hold| is_of(hold, belief) && hold.at <= word.at);
        let Some(hold) = hold else { continue };
        if evidence.history.is_disturbed(hold.at - MEMORY_US, word.at.max(until)) {
            continue;
        }
        let told_too_late = hold.ends.iter().rfind(|(at, _)| *at <= word.at).filter(|(_, end)| *end < deadline);
        let moved = hold.ends.iter().find(|(at, end)| word.at < *at && *at < until && *end < until);
        if let Some((at, end)) = told_too_late.or(moved) {
            let detail = format!("{}: {request:?} was told the deadline {deadline} at {}", hold.name, word.at);
            let detail = format!("{detail}, but the hold ends at {end}, as was set at {at}");
            return Err(Violation::new(NAME, evidence.seed, detail));
        }
    }
    Ok(())
}

fn is_of(hold: &HoldStory, belief: &Belief) -> bool {
    hold.waiter.request == belief.request && hold.fence == belief.fence
}

#[cfg(test)]
mod tests {
    use super::super::lock_story::Story;
    use super::check;

    #[test]
    fn a_deadline_after_the_end_is_found() {
        let mut story = Story::new();
        story.granted(1, 7).replied_until(1, 7, 1_000_001);
        story.assert_found(check, "was told the deadline");
        let mut story = Story::new();
        story.granted(1, 7).replied_until(1, 7, 1_000_000);
        story.assert_clean(check);
    }

    #[test]
    fn an_end_that_moves_before_a_deadline_is_found() {
        let mut story = Story::new();
        story.granted(1, 7).replied_until(1, 7, 900_000).pass_ms(100).renewed(1, 7, 500);
        story.assert_found(check, "but the hold ends");
        let mut story = Story::new();
        story.granted(1, 7).replied_until(1, 7, 900_000).pass_ms(100).renewed(1, 7, 1_000);
        story.assert_clean(check);
    }
}
