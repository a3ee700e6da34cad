//! Checks the order of admissions: by number among present visitors, and never an absent one.

use super::super::facts::AuditCheck;
use super::super::record::{Call, Record};
use super::tickets::{NEVER, Tickets};
use super::{CheckCounter, PRESENT_US, seconds};

/// How much longer than the rule an absence may be measured: clock readings, and the interval of the room's checks.
const GRACE_US: u64 = 1_000_000;

/// Checks that a ticket that was present all the time is not admitted after one with a higher number.
pub(crate) fn admitted_in_order(tickets: &Tickets<'_>) -> AuditCheck {
    let says = "a ticket that was present all the time is not admitted after one with a higher number";
    let mut counter = CheckCounter::new("admitted_in_order", says);
    let reading_us = tickets.history.rules.reading_us;
    // The earliest admission among higher numbers, and its number.
    let mut earliest = (NEVER, 0);
    for (number, life) in tickets.lives().rev() {
        // It was not admitted before this. If its first admission is uncertain, it was at least still in line.
        let not_before_us = if life.surely_first { life.admitted_us } else { life.steady_until_us };
        if 0 < not_before_us && earliest.0 != NEVER {
            counter.check(not_before_us <= earliest.0.saturating_add(reading_us), || {
                let (other_us, other) = earliest;
                let (own, others) = (seconds(not_before_us), seconds(other_us));
                format!("number {number} was there and not admitted before {own}, but {other} was at {others}")
            });
        }
        earliest = earliest.min((life.admitted_us, number));
    }
    counter.done()
}

/// Checks that no ticket is admitted that was silent for longer than a present one may be.
pub(crate) fn absent_not_admitted(tickets: &Tickets<'_>) -> AuditCheck {
    let says = "no visitor is admitted who was silent for longer than max(30 s, 3 x poll_after_ms)";
    let mut counter = CheckCounter::new("absent_not_admitted", says);
    let history = tickets.history;
    let mut before = None;
    let mut admissions: Vec<(u32, u64)> =
        history.admissions.iter().map(|seen| (seen.number, seen.admitted_us)).collect();
    admissions.sort_unstable();
    for (number, admitted_us) in admissions {
        if before.replace((number, admitted_us)) == Some((number, admitted_us)) || tickets.highest() < number {
            continue;
        }
        let asks = |record: &&Record| matches!(record.call, Call::Join | Call::Poll);
        let so_far = tickets.records(number).filter(asks).filter(|record| record.sent_us <= admitted_us);
        let Some(last) = so_far.max_by_key(|record| record.received_us()) else { continue };
        // A lost answer may have told another pause.
        if !last.is_contact() || history.forgotten_within(last.sent_us, admitted_us) {
            continue;
        }
        let silent_us = admitted_us.saturating_sub(last.received_us());
        let most_us = PRESENT_US.max(3_000 * u64::from(last.poll_after_ms)) + GRACE_US;
        let most_us = most_us + history.unheard_us(last.sent_us, admitted_us);
        counter.check(silent_us <= most_us, || {
            let (silent, at) = (seconds(silent_us), seconds(admitted_us));
            format!("number {number} was admitted at {at} after a silence of {silent}")
        });
    }
    counter.done()
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    #[test]
    fn who_is_there_is_admitted_before_higher_numbers() {
        let mut story = Story::new();
        story.join(0, 1, 0, 1).join(1, 2, 2, 3);
        story.waits(1, 1_000, 1_010, 0).admitted(1, 2_000, 2_010, 1_900, 9_000_000);
        story.admitted(2, 2_000, 2_010, 1_950, 9_000_000);
        assert_eq!(admitted_in_order(&Tickets::of(&story.history)).breaches, 0);
        story.history.admissions[1].admitted_us = 1_850;
        assert_eq!(admitted_in_order(&Tickets::of(&story.history)).breaches, 1);
    }

    #[test]
    fn who_still_waits_is_not_overtaken_either() {
        let mut story = Story::new();
        story.join(0, 1, 0, 1).join(1, 2, 2, 3).admitted(2, 2_000, 2_010, 1_500, 9_000_000);
        story.waits(1, 1_400, 1_410, 1);
        assert_eq!(admitted_in_order(&Tickets::of(&story.history)).breaches, 0);
        story.waits(1, 1_600, 1_610, 1);
        assert_eq!(admitted_in_order(&Tickets::of(&story.history)).breaches, 1);
    }

    #[test]
    fn who_was_away_may_be_overtaken() {
        let mut story = Story::new();
        story.join(0, 1, 0, 1).join(1, 2, 2, 3).admitted(2, 2_000, 2_010, 1_500, 90_000_000);
        // Silent for more than half a minute, and admitted after that.
        story.waits(1, 40_000_000, 40_000_010, 0).admitted(1, 41_000_000, 41_000_010, 40_500_000, 90_000_000);
        assert_eq!(admitted_in_order(&Tickets::of(&story.history)).breaches, 0);
    }

    #[test]
    fn the_silent_are_not_admitted() {
        let mut story = Story::new();
        story.join(0, 1, 0, 1).waits(1, 10_000_000, 10_000_010, 5);
        story.admitted(1, 60_000_000, 60_000_010, 40_000_000, 90_000_000);
        assert_eq!(absent_not_admitted(&Tickets::of(&story.history)).breaches, 0);
        story.history.admissions[0].admitted_us = 45_000_000;
        assert_eq!(absent_not_admitted(&Tickets::of(&story.history)).breaches, 1);
        story.restart(20_000_000, 21_000_000);
        assert_eq!(absent_not_admitted(&Tickets::of(&story.history)).breaches, 0);
    }
}
