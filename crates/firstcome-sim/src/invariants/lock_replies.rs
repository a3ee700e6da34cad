//! Every request gets exactly one final reply, and the reply is true.
//!
//! - First perhaps granted, then perhaps renewed, then one final reply. None is missing except for clients that went away.
//! - A client that was told that it is over does not hold the lock any more: at once after "released" and "not held", and in
//!   any case once the network was quiet for longer than the lease. In the end nothing is left.
//! - A renewal lengthens the hold that it names, and never brings back one that had ended.

use super::{LockEvidence, Violation};
use crate::lock::history::{History, is_final};
use crate::lock::ledger::Ledger;
use firstcome_core::lock::{LockReply, Request};
use std::collections::BTreeMap;

const NAME: &str = "lock_replies";

/// Looks for a reply that is missing, or not true.
pub fn check(evidence: &LockEvidence<'_>) -> Result<(), Violation> {
    let found = |detail| Violation::new(NAME, evidence.seed, detail);
    let history = evidence.history;
    words_are_in_order(history).map_err(found)?;
    if let Some(hold) = evidence.ledger.holds.iter().find(|hold| hold.renewed_by_others) {
        let request = hold.waiter.request;
        return Err(found(format!("{}: the hold of {request:?} was renewed by another request", hold.name)));
    }
    over_is_over(history, evidence.ledger).map_err(found)?;
    match history.left.first() {
        Some(left) => Err(found(format!("in the end {left}"))),
        None => Ok(()),
    }
}

fn words_are_in_order(history: &History) -> Result<(), String> {
    let mut last: BTreeMap<Request, &LockReply> = BTreeMap::new();
    for word in &history.words {
        let (request, told) = (word.request, &word.told);
        let before = last.insert(request, told);
        let is_right = match (before, told) {
            (Some(before), _) if is_final(before) => false,
            (None, LockReply::Renewed { .. } | LockReply::Lost | LockReply::Released) => false,
            (Some(_), LockReply::Granted { .. } | LockReply::Contended { .. } | LockReply::TimedOut { .. }) => false,
            _ => true,
        };
        if !is_right {
            return Err(format!("{request:?} was told {told:?} at {} after {before:?}", word.at));
        }
    }
    // Judged once every client had time to get its reply.
    if history.healed_at.is_none_or(|healed_at| history.now < healed_at + 30_000_000) {
        return Ok(());
    }
    for (request, asked) in &history.asked {
        let has_word = last.get(request).is_some_and(|told| is_final(told));
        if !has_word && !asked.dropped && !history.killed.contains_key(&request.client) {
            return Err(format!("{request:?} got no final word: {asked:?}, {:?}", last.get(request)));
        }
    }
    Ok(())
}

fn over_is_over(history: &History, ledger: &Ledger) -> Result<(), String> {
    for word in history.words.iter().filter(|word| matches!(word.told, LockReply::Released | LockReply::NotHeld)) {
        let is_copied = history.asked.get(&word.request).is_some_and(|asked| asked.copied);
        // The network may have copied a request unnoticed, and the store may grant that copy a lock that no client wants.
        if is_copied || history.is_disturbed(0, history.now) {
            continue;
        }
        let held = ledger
            .holds
            .iter()
            .find(|hold| hold.waiter.request == word.request && hold.ended.is_none_or(|(ended, _)| word.at < ended));
        if let Some(hold) = held {
            let (at, told) = (word.at, &word.told);
            return Err(format!("{}: {:?} was told {told:?} at {at}, and holds the lock", hold.name, word.request));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::lock_story::Story;
    use super::check;
    use firstcome_core::lock::LockReply;

    #[test]
    fn a_second_final_word_and_a_word_out_of_order_are_found() {
        let rows = [[LockReply::NotHeld, LockReply::NotHeld], [LockReply::NotHeld, LockReply::Lost]];
        for [first, second] in rows {
            let mut story = Story::new();
            story.asks(1).told(1, first).told(1, second);
            story.assert_found(check, "was told");
        }
        let mut story = Story::new();
        story.asks(1).told(1, LockReply::Released);
        story.assert_found(check, "was told Released");
    }

    #[test]
    fn a_word_that_is_missing_is_found() {
        let mut story = Story::new();
        story.asks(1).healed().pass_ms(31_000);
        story.assert_found(check, "no final word");
        let mut story = Story::new();
        story.asks(1).told(1, LockReply::NotHeld).healed().pass_ms(31_000);
        story.assert_clean(check);
    }

    #[test]
    fn a_hold_after_its_release_is_found() {
        let mut story = Story::new();
        story.asks(1).granted(1, 7).replied_until(1, 7, 900_000).told(1, LockReply::Released);
        story.assert_found(check, "and holds the lock");
        let mut story = Story::new();
        story.asks(1).granted(1, 7).replied_until(1, 7, 900_000).freed(1).told(1, LockReply::Released);
        story.assert_clean(check);
    }

    #[test]
    fn a_renewal_by_another_client_and_what_is_left_are_found() {
        let mut story = Story::new();
        story.granted(1, 7).pass_ms(100).renewed_by(2, 1, 7, 1_000);
        story.assert_found(check, "by another request");
        let mut story = Story::new();
        story.left("bucket 1 is not empty");
        story.assert_found(check, "in the end bucket 1");
    }
}
