//! Invariant 4: a free lock with a living waiter is granted, and that waiter learns of it.
//!
//! Judged wherever the waiter's process had no trouble of its own for a while: neither stood still nor lost a call. That
//! pushes are lost is no trouble: they only save time.
//!
//! - A hold that is over does not stand for longer than a heartbeat while such a waiter waits.
//! - A grant that lasts for longer than a heartbeat is told within one.
//! - A client that waits stands in line, or stands there again a heartbeat after it was passed over or its grant ended unknown
//!   to it. No client is stuck once faults have stopped.

use super::{LockEvidence, Violation};
use crate::lock::history::{History, LockMessage};
use crate::lock::ledger::{HoldStory, Ledger, Out};
use firstcome_core::lock::{LockReply, Request};

const NAME: &str = "no_lost_wake_up";
/// Half a claim window, and what a call usually takes, with room for the call before.
const SOON_US: i64 = 1_300_000;
/// A process that had no trouble for so long knows what the store knows.
const CALM_US: i64 = 4_000_000;

/// Looks for a client that waits in vain.
pub fn check(evidence: &LockEvidence<'_>) -> Result<(), Violation> {
    let found = |detail| Violation::new(NAME, evidence.seed, detail);
    let (history, ledger) = (evidence.history, evidence.ledger);
    for hold in &ledger.holds {
        over_is_noticed(history, ledger, hold).map_err(found)?;
        grant_is_told(history, hold).map_err(found)?;
        let until = hold.ended.map_or(i64::MAX, |(ended, _)| ended);
        if !is_told(history, hold, until) {
            stands_soon(history, ledger, hold.waiter.request, until).map_err(found)?;
        }
    }
    for place in &ledger.places {
        if let Some((at, Out::PassedOver(_))) = place.out {
            stands_soon(history, ledger, place.request, at).map_err(found)?;
        }
    }
    let Some(healed_at) = history.healed_at else { return Ok(()) };
    for request in history.asked.keys() {
        stands_soon(history, ledger, *request, healed_at + CALM_US - SOON_US).map_err(found)?;
    }
    Ok(())
}

/// Whether a process is well enough to be judged from one instant to another.
fn is_well(history: &History, request: Request, from: i64, until: i64) -> bool {
    until <= history.now
        && history.is_wanted(request, until)
        && !history.is_troubled(request.client, from - CALM_US, until)
        && !history.is_disturbed(from - CALM_US, until)
}

fn over_is_noticed(history: &History, ledger: &Ledger, hold: &HoldStory) -> Result<(), String> {
    let Some((set, end)) = hold.ends.last().copied() else { return Ok(()) };
    let late = end.max(set) + SOON_US;
    if hold.ended.is_some_and(|(ended, _)| ended <= late) || history.is_disturbed(hold.at, late) {
        return Ok(());
    }
    let waits = ledger.places.iter().find(|place| {
        place.name == hold.name
            && place.at <= end
            && place.out.is_none_or(|(out, _)| late < out)
            && is_well(history, place.request, end, late)
    });
    match waits {
        Some(place) => {
            let (name, request, holder) = (&hold.name, place.request, hold.waiter.request);
            Err(format!("{name}: {request:?} waits since {}, and no step ended {holder:?} at {end}", place.at))
        }
        None => Ok(()),
    }
}

fn is_told(history: &History, hold: &HoldStory, until: i64) -> bool {
    let is_of = |told: &LockReply| matches!(told, LockReply::Granted { fence, .. } if *fence == hold.fence);
    history.messages_of(hold.waiter.request).any(|word| word.at <= until && is_of(&word.told))
}

fn grant_is_told(history: &History, hold: &HoldStory) -> Result<(), String> {
    let late = hold.at + SOON_US;
    let lasts = hold.ended.is_none_or(|(ended, _)| late < ended);
    if !hold.from_line || !lasts || is_told(history, hold, late) {
        return Ok(());
    }
    let request = hold.waiter.request;
    // A copy that arrives after a flush gets in line again for a request that holds the lock, and needs no second reply.
    let holds = |word: &LockMessage| word.at <= hold.at && matches!(word.told, LockReply::Granted { .. });
    if history.messages_of(request).any(holds) || !is_well(history, request, hold.at, late) {
        return Ok(());
    }
    Err(format!("{}: {request:?} was granted the lock at {}, and was not told", hold.name, hold.at))
}

/// Whether a client that waits stands in line, or has the lock, soon after an instant.
fn stands_soon(history: &History, ledger: &Ledger, request: Request, from: i64) -> Result<(), String> {
    let late = from.saturating_add(SOON_US);
    let is_granted = |at: i64| {
        history.messages_of(request).any(|word| word.at <= at && matches!(word.told, LockReply::Granted { .. }))
    };
    let Some(asked) = history.asked.get(&request) else { return Ok(()) };
    if from <= asked.at || asked.ask.wait_ms == 0 || is_granted(late) || !is_well(history, request, from, late) {
        return Ok(());
    }
    let within = |begin: i64, end: Option<i64>| begin <= late && end.is_none_or(|end| from < end);
    let stands = ledger.places.iter().any(|it| it.request == request && within(it.at, it.out.map(|(at, _)| at)))
        || ledger.holds.iter().any(|it| it.waiter.request == request && within(it.at, it.ended.map(|(at, _)| at)));
    if stands { Ok(()) } else { Err(format!("{request:?} waits since {}, and is not in line at {late}", asked.at)) }
}

#[cfg(test)]
mod tests {
    use super::super::lock_story::Story;
    use super::check;
    use firstcome_core::lock::LockReply;

    #[test]
    fn a_hold_that_no_client_ends_is_found() {
        let mut story = Story::new();
        story.pass_ms(5_000).granted(1, 7).asks(2).in_line(2, 8).pass_ms(4_000);
        story.assert_found(check, "no step ended");
        let mut story = Story::new();
        story.pass_ms(5_000).granted(1, 7).asks(2).in_line(2, 8).pass_ms(1_100).handed_to(2, 8, 9).grants(2, 9);
        story.assert_clean(check);
    }

    #[test]
    fn a_grant_that_is_not_told_is_found() {
        let mut story = Story::new();
        story.pass_ms(5_000).granted(1, 7).asks(2).in_line(2, 8).handed_to(2, 8, 9).renewed(2, 9, 5_000).pass_ms(3_000);
        story.assert_found(check, "was not told");
    }

    #[test]
    fn a_client_that_is_not_in_line_any_more_and_does_not_know_is_found() {
        let mut story = Story::new();
        story.pass_ms(5_000).granted(1, 7).asks(2).in_line(2, 8).passed_over(1, 8).pass_ms(3_000);
        story.assert_found(check, "is not in line");
        let mut story = Story::new();
        story
            .pass_ms(5_000)
            .granted(1, 7)
            .asks(2)
            .in_line(2, 8)
            .passed_over(1, 8)
            .told(2, LockReply::NotHeld)
            .pass_ms(3_000);
        story.assert_clean(check);
    }
}
