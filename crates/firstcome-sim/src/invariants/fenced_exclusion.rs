//! Invariant 1: mutual exclusion, and where that cannot be had, under fencing.
//!
//! - What the lock guards never accepts a smaller fence after a larger one, and no two holders are told the same fence
//!   unless they share the lock.
//! - As long as the store is not disturbed, no two tasks believe at the same instant, each by its own deadline, that they
//!   have the lock, unless they share it and are no more than its permits, and no client that believes it is refused by what it guards. This needs no process to be on time: a
//!   deadline counts on whether or not its process does.
//! - No client ends the hold of another client before its time.

use super::{LockEvidence, Violation};
use crate::lock::history::{Belief, History};
use crate::lock::ledger::End;
use firstcome_core::lock::Mode;
use std::collections::BTreeMap;

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
    let mut fences = BTreeMap::new();
    for belief in &history.beliefs {
        let is_shared = permits(history, belief).is_some();
        let was_shared = fences.insert((&belief.name, belief.fence), is_shared);
        if was_shared.is_some_and(|was_shared| !(was_shared && is_shared)) && history.disturbances.is_empty() {
            return found(format!("{}: fence {} was told to two", belief.name, belief.fence));
        }
    }
    no_two_at_once(history).or_else(found)?;
    writes_are_in_order(history).or_else(found)
}

/// How many may share the lock; `None` for an exclusive hold.
fn permits(history: &History, belief: &Belief) -> Option<usize> {
    match history.asked.get(&belief.request)?.ask.mode {
        Mode::Exclusive { .. } => None,
        Mode::Shared { permits } => Some(permits as usize),
    }
}

fn no_two_at_once(history: &History) -> Result<(), String> {
    let mut at_once: BTreeMap<_, Vec<&Belief>> = BTreeMap::new();
    for belief in history.beliefs.iter().filter(|belief| belief.from < belief.until) {
        let others = at_once.entry(&belief.name).or_default();
        others.retain(|other| belief.from < other.until);
        let undisturbed: Vec<&&Belief> =
            others.iter().filter(|other| !history.is_disturbed(other.from - MEMORY_US, belief.from)).collect();
        let own = permits(history, belief);
        if let Some(other) = undisturbed.iter().find(|other| own.is_none() || permits(history, other).is_none()) {
            return Err(format!("two believe that they have the lock: {other:?} and {belief:?}"));
        }
        let most = undisturbed.iter().filter_map(|other| permits(history, other)).chain(own).max();
        if most.is_some_and(|most| most <= undisturbed.len()) {
            let count = undisturbed.len() + 1;
            return Err(format!("{count} believe that they share the lock, which is too many: {belief:?}"));
        }
        others.push(belief);
    }
    Ok(())
}

fn writes_are_in_order(history: &History) -> Result<(), String> {
    let mut highest = BTreeMap::new();
    for write in &history.writes {
        let before = highest.entry(&write.name).or_insert(0);
        if write.accepted && write.fence < *before {
            return Err(format!("{}: fence {} was accepted after {before}", write.name, write.fence));
        }
        let passes = history.asked.get(&write.request).map_or(1, |asked| u64::from(asked.ask.mode.passes()));
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
    fn more_than_the_permits_and_a_writer_among_readers_are_found() {
        let mut story = Story::new();
        story.asks_to_share(1).asks_to_share(2).asks_to_share(3);
        story.believes(1, 7, 100, 300).believes(2, 7, 120, 400).believes(3, 7, 300, 400);
        story.assert_clean(check);
        story.asks_to_share(4).believes(4, 7, 399, 500);
        story.assert_found(check, "too many");
        let mut story = Story::new();
        story.asks_to_share(1).asks(2).believes(1, 7, 100, 300).believes(2, 8, 299, 400);
        story.assert_found(check, "two believe");
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
