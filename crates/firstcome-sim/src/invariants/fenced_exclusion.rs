//! Invariant 1: mutual exclusion, and where that cannot be had, under fencing.
//!
//! - What the lock guards never accepts a smaller fence after a larger one, and no two holders are told the same fence.
//! - As long as the store is not disturbed, no two tasks believe at the same instant, each by its own deadline, that they
//!   have the lock, and no client that believes it is refused by what it guards. This needs no process to be on time: a
//!   deadline counts on whether or not its process does.
//! - No client ends the hold of another client before its time.

use super::{LockEvidence, Violation};
use crate::lock::history::{Belief, History};
use crate::lock::ledger::End;
use std::collections::{BTreeMap, BTreeSet};

const NAME: &str = "fenced_exclusion";
/// What a process knows of the store's clock is no older than this.
const MEMORY_US: i64 = 60_000_000;

/// Looks for two tasks that have the lock.
pub fn check(evidence: &LockEvidence<'_>) -> Result<(), Violation> {
    let found = |detail| Err(Violation::new(NAME, evidence.seed, detail));
    let history = evidence.history;
    for hold in &evidence.ledger.holds {
        if let Some((at, End::TakenAway)) = hold.ended {
            let request = hold.waiter.request;
            return found(format!("{}: the hold of {request:?} was taken away at {at}", hold.name));
        }
    }
    let mut fences = BTreeSet::new();
    for belief in &history.beliefs {
        if !fences.insert((&belief.name, belief.fence)) && history.disturbances.is_empty() {
            return found(format!("{}: fence {} was told to two", belief.name, belief.fence));
        }
    }
    let mut last: BTreeMap<_, &Belief> = BTreeMap::new();
    for belief in history.beliefs.iter().filter(|belief| belief.from < belief.until) {
        let before = last.get(&belief.name).copied();
        if let Some(before) = before.filter(|before| belief.from < before.until)
            && !history.is_disturbed(before.from - MEMORY_US, belief.from)
        {
            return found(format!("two believe that they have the lock: {before:?} and {belief:?}"));
        }
        if before.is_none_or(|before| before.until < belief.until) {
            last.insert(&belief.name, belief);
        }
    }
    writes_are_in_order(history).or_else(found)
}

fn writes_are_in_order(history: &History) -> Result<(), String> {
    let mut highest = BTreeMap::new();
    for write in &history.writes {
        let before = highest.entry(&write.name).or_insert(0);
        if write.accepted && write.fence < *before {
            return Err(format!("{}: fence {} was accepted after {before}", write.name, write.fence));
        }
        let passes = history.asked.get(&write.request).map_or(1, |asked| u64::from(asked.ask.passes));
        // Within a cohort the later pass is before the earlier one now and then.
        let believes =
            |belief: &Belief| (belief.from..belief.until).contains(&write.at) && belief.fence.get() + passes <= *before;
        if !write.accepted
            && history.belief_of(write.request).is_some_and(believes)
            && !history.is_disturbed(0, write.at)
        {
            return Err(format!("{}: fence {} of the holder was refused at {}", write.name, write.fence, write.at));
        }
        *before = write.fence.max(*before);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::lock_story::Story;
    use super::check;

    #[test]
    fn two_who_believe_at_once_are_found() {
        let mut story = Story::new();
        story.believes(1, 7, 100, 300).believes(2, 8, 299, 400);
        story.assert_found(check, "two believe");
        let mut story = Story::new();
        story.believes(1, 7, 100, 300).believes(2, 8, 300, 400);
        story.assert_clean(check);
    }

    #[test]
    fn one_fence_for_two_and_a_smaller_fence_that_is_accepted_are_found() {
        let mut story = Story::new();
        story.believes(1, 7, 100, 300).believes(2, 7, 300, 400);
        story.assert_found(check, "told to two");
        let mut story = Story::new();
        story.writes(1, 8, true).writes(2, 7, true);
        story.assert_found(check, "was accepted after");
    }

    #[test]
    fn a_holder_who_is_refused_is_found_and_a_stale_one_is_not() {
        let mut story = Story::new();
        story.believes(1, 7, 0, 300).writes(2, 8, true).writes(1, 7, false);
        story.assert_found(check, "of the holder was refused");
        let mut story = Story::new();
        story.believes(1, 7, -2, 0).writes(2, 8, true).writes(1, 7, false);
        story.assert_clean(check);
    }

    #[test]
    fn a_hold_that_is_taken_away_is_found_and_one_that_is_over_is_not() {
        let mut story = Story::new();
        story.granted(1, 7).granted(2, 8);
        story.assert_found(check, "taken away");
        let mut story = Story::new();
        story.granted(1, 7).pass_ms(1_000).granted(2, 8);
        story.assert_clean(check);
    }
}
