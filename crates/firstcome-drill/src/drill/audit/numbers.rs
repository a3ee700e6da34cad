//! Checks the numbers: each is drawn once, in order of arrival.

use super::super::facts::AuditCheck;
use super::super::record::{Call, History, Restart, Target};
use super::tickets::Tickets;
use super::{CheckCounter, seconds};
use std::collections::HashMap;

/// How many numbers a restart of Redis may leave out, with or without its data. The end of the log may be lost, and a
/// rebuild draws no number up to the ceiling in SQL again. The ceiling rises by 65 536 when fewer than 16 384 numbers
/// are left below it.
const LEFT_OUT_MAX: u32 = 65_536 + 16_384;
/// Numbers that nodes of a shared room may skip for each killed process. A node may raise the ceiling in SQL and die before it
/// appends the raise. Each of the three nodes that finds such a raise skips its numbers and raises once more.
const UNSAID_MAX: u32 = 3 * 65_536;

/// Returns the highest number that a person can have, since each person draws at most one.
pub(crate) fn highest(history: &History) -> u32 {
    let left_out = |restart: &Restart| match restart.target {
        Target::Redis => LEFT_OUT_MAX + UNSAID_MAX,
        _ if history.rules.is_shared => UNSAID_MAX,
        _ => 0,
    };
    history.restarts.iter().map(left_out).fold(history.rules.people, u32::saturating_add)
}

/// Checks that no two people share a number, no person has two, and no number exceeds the possible draws.
pub(crate) fn number_once(history: &History) -> AuditCheck {
    let mut counter = CheckCounter::new(
        "number_once",
        "no number is told to two people, and repeats of one person give the same number",
    );
    let most = highest(history);
    let mut people: HashMap<u32, u32> = HashMap::new();
    let mut numbers: HashMap<u32, u32> = HashMap::new();
    for record in history.records.iter().filter(|record| record.call == Call::Join && 0 < record.number) {
        let (number, person) = (record.number, record.person);
        let holder = *people.entry(number).or_insert(person);
        counter.check(holder == person, || format!("number {number} was told to person {holder} and to {person}"));
        let first = *numbers.entry(person).or_insert(number);
        counter.check(first == number, || format!("person {person} was told number {first} and then {number}"));
        counter.check(number <= most, || format!("number {number} was told, but {most} is the highest there can be"));
    }
    counter.done()
}

/// Checks that a join that was answered before another was sent has the lower number.
pub(crate) fn fifo_numbers(tickets: &Tickets<'_>) -> AuditCheck {
    let mut counter = CheckCounter::new("fifo_numbers", "a join answered before another was sent has the lower number");
    let lives = tickets.lives().map(|(number, life)| (life.first_sent_us, life.told_us, number));
    in_order(lives.collect(), |(number, told_us), (later, sent_us)| {
        counter.check(number < later, || {
            let (told, sent) = (seconds(told_us), seconds(sent_us));
            format!("number {number} was told by {told}, and {later} was asked for at {sent}")
        });
    });
    counter.done()
}

/// Compares each (first sent, answered, number) with the highest number that was answered before it was sent.
pub(crate) fn in_order(asked: Vec<(u64, u64, u32)>, mut compare: impl FnMut((u32, u64), (u32, u64))) {
    let mut by_sent = asked.clone();
    by_sent.sort_unstable();
    let mut by_told = asked;
    by_told.sort_unstable_by_key(|&(_, told_us, _)| told_us);
    let (mut at, mut highest) = (0, None);
    for (sent_us, _, number) in by_sent {
        while at < by_told.len() && by_told[at].1 < sent_us {
            let told = (by_told[at].2, by_told[at].1);
            highest = highest.max(Some(told));
            at += 1;
        }
        if let Some(highest) = highest {
            compare(highest, (number, sent_us));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    #[test]
    fn a_number_is_told_to_one_person_only() {
        let mut story = Story::new();
        story.join(0, 1, 0, 10).join(0, 1, 20, 30).join(1, 2, 5, 15);
        assert_eq!(number_once(&story.history).breaches, 0);
        story.join(2, 2, 40, 50);
        assert_eq!(number_once(&story.history).breaches, 1);
        let mut two = Story::new();
        two.join(0, 1, 0, 10).join(0, 2, 20, 30);
        assert_eq!(number_once(&two.history).breaches, 1);
        let mut far = Story::new();
        far.join(0, 4_000_000, 0, 10);
        assert_eq!(number_once(&far.history).breaches, 1);
    }

    #[test]
    fn only_joins_that_do_not_overlap_have_an_order() {
        let mut story = Story::new();
        // The first two overlap: either may be first. The third was sent after both were answered.
        story.join(0, 2, 0, 100).join(1, 1, 50, 120).join(2, 3, 130, 140);
        assert_eq!(fifo_numbers(&Tickets::of(&story.history)).breaches, 0);
        let mut bad = Story::new();
        bad.join(0, 2, 0, 100).join(1, 1, 101, 120);
        assert_eq!(fifo_numbers(&Tickets::of(&bad.history)).breaches, 1);
        // The same numbers, but the second person had asked before, without an answer.
        let mut retried = Story::new();
        retried.join(0, 2, 0, 100).lost_join(1, 50).join(1, 1, 101, 120);
        assert_eq!(fifo_numbers(&Tickets::of(&retried.history)).breaches, 0);
    }
}
