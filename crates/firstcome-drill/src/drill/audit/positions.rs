//! Checks the positions: they never rise, and fit the tickets that are known to be ahead.

use super::super::facts::AuditCheck;
use super::super::record::{Call, Record, Reply};
use super::fenwick::Fenwick;
use super::tickets::{NEVER, Tickets};
use super::{CheckCounter, seconds};

fn is_waiting(record: &&Record) -> bool {
    record.call == Call::Poll && record.reply == Reply::Waiting
}

/// Checks that the position of a ticket never rises, except after a loss of data. A position counts the departures of
/// other tickets before those are durable. An embedded server loses such departures when it is killed. Nodes of a
/// cluster share them in Redis. They survive the end of any node, of the database, and of a Redis that keeps its data:
/// none of these is an excuse.
pub(crate) fn position_falls(tickets: &Tickets<'_>) -> AuditCheck {
    let says = "the position that a ticket is told never rises, except across a restart of an embedded server or a loss of Redis";
    let mut counter = CheckCounter::new("position_falls", says);
    let stale_us = tickets.history.rules.stale_us;
    for (number, _) in tickets.lives() {
        let mut before: Option<&Record> = None;
        for record in tickets.records(number).filter(is_waiting) {
            // A node may answer from a copy that is older than the other node's answer.
            let is_later = |before: &&Record| before.received_us() + stale_us <= record.sent_us;
            if let Some(before) = before.filter(is_later)
                && !tickets.history.forgotten_within(before.about_us(), record.received_us())
            {
                counter.check(record.value <= before.value, || {
                    let (first, then) = (seconds(before.sent_us), seconds(record.sent_us));
                    format!("number {number} had {} at {first} and {} at {then}", before.value, record.value)
                });
            }
            before = Some(record);
        }
    }
    counter.done()
}

/// Checks that a position is at most the number of tickets ahead that could be in line, and at least the number of
/// those that certainly were.
pub(crate) fn position_true(tickets: &Tickets<'_>) -> AuditCheck {
    let says = "a position is at most the tickets ahead that could be in line, and at least those that certainly are";
    let mut counter = CheckCounter::new("position_true", says);
    let mut polls: Vec<&Record> =
        tickets.history.records.iter().filter(is_waiting).filter(|record| 0 < record.number).collect();
    not_too_high(tickets, &mut polls, &mut counter);
    not_too_low(tickets, &mut polls, &mut counter);
    counter.done()
}

fn not_too_high(tickets: &Tickets<'_>, polls: &mut [&Record], counter: &mut CheckCounter) {
    let mut gone: Vec<(u64, u32)> = tickets.lives().map(|(number, life)| (life.gone_us, number)).collect();
    gone.retain(|(gone_us, _)| *gone_us != NEVER);
    gone.sort_unstable();
    polls.sort_unstable_by_key(|record| record.about_us());
    let mut tree = Fenwick::new(tickets.highest() as usize);
    // A cluster may leave out numbers, but each person has at most one.
    let mut told = Fenwick::new(tickets.highest() as usize);
    tickets.lives().for_each(|(number, _)| told.add(number));
    let untold = tickets.untold();
    let mut at = 0;
    for record in polls.iter() {
        while at < gone.len() && gone[at].0 < record.about_us() {
            tree.add(gone[at].1);
            at += 1;
        }
        let most = (told.below(record.number) + untold).min(record.number - 1) - tree.below(record.number);
        counter.check(record.value <= most, || {
            let (number, told, at) = (record.number, record.value, seconds(record.sent_us));
            format!("number {number} was told position {told} at {at}, but at most {most} could be ahead")
        });
    }
}

fn not_too_low(tickets: &Tickets<'_>, polls: &mut [&Record], counter: &mut CheckCounter) {
    let mut steady: Vec<(u64, u32)> = tickets.lives().map(|(number, life)| (life.steady_until_us, number)).collect();
    steady.retain(|(until_us, _)| 0 < *until_us);
    steady.sort_unstable();
    polls.sort_unstable_by_key(|record| record.received_us());
    let mut tree = Fenwick::new(tickets.highest() as usize);
    steady.iter().for_each(|(_, number)| tree.add(*number));
    let mut at = 0;
    for record in polls.iter() {
        // Numbers are drawn in order: a ticket with a lower number was in line before this one asked.
        while at < steady.len() && steady[at].0 < record.received_us() {
            tree.remove(steady[at].1);
            at += 1;
        }
        let least = tree.below(record.number);
        counter.check(least <= record.value, || {
            let (number, told, at) = (record.number, record.value, seconds(record.sent_us));
            format!("number {number} was told position {told} at {at}, but at least {least} were ahead")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::record::Target;
    use super::super::story::Story;
    use super::*;

    #[test]
    fn a_position_falls_unless_a_restart_lies_between() {
        let mut story = Story::new();
        story.join(0, 9, 0, 10).waits(9, 100, 110, 8).waits(9, 200, 210, 8).waits(9, 300, 310, 3);
        assert_eq!(position_falls(&Tickets::of(&story.history)).breaches, 0);
        story.waits(9, 400, 410, 4);
        assert_eq!(position_falls(&Tickets::of(&story.history)).breaches, 1);
        story.restart(320, 390);
        assert_eq!(position_falls(&Tickets::of(&story.history)).breaches, 0);
    }

    #[test]
    fn over_many_nodes_only_a_loss_of_redis_is_an_excuse() {
        for (target, loses, breaches) in
            [(Target::Server, false, 1), (Target::Sql, false, 1), (Target::Redis, false, 1), (Target::Redis, true, 0)]
        {
            let mut story = Story::new();
            story.shared(50).join(0, 9, 0, 10).waits(9, 100, 110, 3).waits(9, 400, 410, 4);
            story.restart_of(target, loses, 200, 300);
            assert_eq!(position_falls(&Tickets::of(&story.history)).breaches, breaches, "{target:?} {loses}");
        }
        // The copy of another node may be older than the first answer.
        let mut story = Story::new();
        story.shared(50).join(0, 9, 0, 10).waits(9, 100, 110, 3).waits(9, 150, 160, 4);
        assert_eq!(position_falls(&Tickets::of(&story.history)).breaches, 0);
    }

    #[test]
    fn an_admission_that_was_lost_with_redis_was_there_when_others_were_told() {
        for (loses, breaches) in [(false, 1), (true, 0)] {
            let mut story = Story::new();
            story.shared(50).join(0, 1, 0, 1).join(1, 2, 2, 3);
            story.waits(1, 100, 110, 0).waits(2, 200, 210, 0).waits(1, 500, 510, 0);
            story.restart_of(Target::Redis, loses, 300, 400);
            assert_eq!(position_true(&Tickets::of(&story.history)).breaches, breaches, "{loses}");
        }
    }

    #[test]
    fn numbers_that_no_person_has_are_not_ahead() {
        let mut story = Story::new();
        story.join(0, 1, 0, 1).join(1, 90, 2, 3).waits(90, 100, 110, 2);
        assert_eq!(position_true(&Tickets::of(&story.history)).breaches, 1);
        // A person asked and got no answer: the number may be theirs.
        story.lost_join(2, 1);
        assert_eq!(position_true(&Tickets::of(&story.history)).breaches, 0);
    }

    #[test]
    fn a_position_is_not_higher_than_what_could_be_ahead() {
        let mut story = Story::new();
        story.join(0, 1, 0, 1).join(1, 2, 2, 3).join(2, 3, 4, 5);
        // One left, acknowledged before the third asked; the other left at the same time as the third asked.
        story.leaves(1, 10, 20).leaves(2, 25, 60).waits(3, 30, 40, 1);
        assert_eq!(position_true(&Tickets::of(&story.history)).breaches, 0);
        story.waits(3, 70, 80, 1);
        assert_eq!(position_true(&Tickets::of(&story.history)).breaches, 1);
    }

    #[test]
    fn a_position_is_not_lower_than_who_was_certainly_ahead() {
        let mut story = Story::new();
        story.join(0, 1, 0, 1).join(1, 2, 2, 3).join(2, 3, 4, 5);
        story.waits(1, 100, 110, 0).waits(2, 300, 310, 1).waits(3, 200, 210, 1);
        // At 200 the second ticket was certainly in line, and the first perhaps no longer.
        assert_eq!(position_true(&Tickets::of(&story.history)).breaches, 0);
        story.waits(3, 250, 260, 0);
        assert_eq!(position_true(&Tickets::of(&story.history)).breaches, 1);
    }
}
