//! Invariant 2: fences strictly increase per lock, in the order of grants.
//!
//! Across ends, across a clock that is set back, and across a flush as long as the clock is not behind. Each grant
//! takes as many fences as it has passes, and none of them twice. Requests that share a lock have one fence together.

use super::{LockEvidence, Violation};
use crate::lock::history::Disturbance;
use std::collections::BTreeMap;

const NAME: &str = "fences_grow";

/// Looks for a fence that is not above the one before.
pub fn check(evidence: &LockEvidence<'_>) -> Result<(), Violation> {
    let disturbances = &evidence.history.disturbances;
    let happened = |what, until| disturbances.iter().any(|(at, disturbance)| *disturbance == what && *at <= until);
    let mut last = BTreeMap::new();
    for hold in &evidence.ledger.holds {
        let (first, passes) = (hold.fence.get(), u64::from(hold.waiter.mode.passes()));
        let is_shared = hold.waiter.mode.is_shared();
        let before = last.insert(&hold.name, (first + passes - 1, is_shared));
        // A store that forgot everything knows only its clock.
        if happened(Disturbance::Flush, hold.at) && happened(Disturbance::ClockBack, hold.at) {
            continue;
        }
        if let Some((before, was_shared)) = before
            && (first < before || first == before && !(was_shared && is_shared))
        {
            let detail = format!("{}: fence {first} was granted at {} after {before}", hold.name, hold.at);
            return Err(Violation::new(NAME, evidence.seed, detail));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::lock_story::Story;
    use super::check;

    #[test]
    fn a_fence_that_stands_or_falls_is_found() {
        for (first, second) in [(7, 7), (7, 6)] {
            let mut story = Story::new();
            story.granted(1, first).freed(1).granted(2, second);
            story.assert_found(check, "was granted");
        }
    }

    #[test]
    fn those_who_share_a_lock_have_one_fence_and_a_later_holder_has_another() {
        let mut story = Story::new();
        story.shared(&[1, 2], 7).shared(&[1, 2, 3], 7).freed(1).granted(4, 8);
        story.assert_clean(check);
        let mut story = Story::new();
        story.shared(&[1, 2], 7).freed(1).granted(4, 7);
        story.assert_found(check, "was granted");
    }

    #[test]
    fn fences_that_grow_are_clean_even_across_a_clock_that_was_set_back() {
        let mut story = Story::new();
        story.granted(1, 7).freed(1).clock_back().granted(2, 8);
        story.assert_clean(check);
        story.flush().granted(3, 5);
        story.assert_clean(check);
    }
}
