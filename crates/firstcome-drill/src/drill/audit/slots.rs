//! Checks slots and passes: a ticket is in one state at a time, and a pass ends with its slot.

use super::super::facts::AuditCheck;
use super::super::record::{Call, History, Record, Reply};
use super::tickets::{NEVER, TicketHistory, Tickets};
use super::{CheckCounter, seconds};

/// How long after the end in a pass the room may take to notice it.
const END_GRACE_US: u64 = 1_000_000;

/// Checks that a ticket is in one state at a time, and that the room's sums agree.
pub(crate) fn one_state(tickets: &Tickets<'_>) -> AuditCheck {
    let says = "a ticket with a pass neither waits nor is admitted again, and ends only by leave, release or time";
    let mut counter = CheckCounter::new("one_state", says);
    // A node answers from its copy, which may lag behind the answers of another node.
    let stale_us = tickets.history.rules.stale_us;
    for (number, life) in tickets.lives() {
        let mut admitted: Option<(u64, &Record)> = None;
        let mut ended = false;
        for record in tickets.records(number).filter(|record| record.call == Call::Poll) {
            // Overlapping answers have no order.
            let after = admitted.is_some_and(|(_, first)| first.received_us() + stale_us <= record.sent_us);
            let fine = match record.reply {
                Reply::Waiting => !after && !ended,
                Reply::Admitted => {
                    let seen = tickets.history.admissions.get(record.value as usize);
                    let at_us = seen.map_or(0, |seen| seen.admitted_us);
                    let same = admitted.is_none_or(|(first_us, _)| first_us == at_us);
                    admitted.get_or_insert((at_us, record));
                    same && !ended
                }
                Reply::Left => life.over_sent_us <= record.received_us(),
                Reply::Expired => {
                    let end_us = record.received_us().saturating_add(END_GRACE_US);
                    life.expires_first_us <= end_us || unheard_end_us(tickets, number, life) <= end_us
                }
                _ => continue,
            };
            ended |= matches!(record.reply, Reply::Left | Reply::Expired);
            counter.check(fine, || {
                format!("number {number} was told {:?} at {}", record.reply, seconds(record.received_us()))
            });
        }
    }
    room_sums(tickets, &mut counter);
    counter.done()
}

/// Returns when a slot may have ended unseen by its holder, since the poll that took it got no answer.
fn unheard_end_us(tickets: &Tickets<'_>, number: u32, life: &TicketHistory) -> u64 {
    if life.pass_us != NEVER {
        return NEVER;
    }
    let unheard = tickets.records(number).filter(|record| record.call == Call::Poll && record.reply.is_undecided());
    unheard.map(|record| record.sent_us + tickets.history.rules.active_ttl_us).min().unwrap_or(NEVER)
}

/// Checks that the room counts no ticket that cannot have joined yet or has gone.
fn room_sums(tickets: &Tickets<'_>, counter: &mut CheckCounter) {
    let mut joined_us: Vec<u64> = tickets.first_join_us.iter().copied().filter(|at_us| *at_us != NEVER).collect();
    joined_us.sort_unstable();
    let gone = tickets.lives().map(|(_, life)| life.over_us.min(life.ended_us));
    let mut gone_us: Vec<u64> = gone.filter(|at_us| *at_us != NEVER).collect();
    gone_us.sort_unstable();
    for seen in &tickets.history.rooms {
        let joined = joined_us.partition_point(|at_us| *at_us < seen.received_us);
        let gone = gone_us.partition_point(|at_us| *at_us < seen.about_us);
        let (told, most) = (seen.waiting + seen.active, joined.saturating_sub(gone) as u64);
        counter.check(told <= most, || {
            let at = seconds(seen.received_us);
            format!("at {at} the room counted {told} waiting or active, but at most {most} can be")
        });
    }
}

/// Returns whether the call treated the pass as valid, for calls that judge one.
fn judged(record: &Record) -> Option<bool> {
    match (record.call, record.reply) {
        (Call::Verify, Reply::Valid) => Some(true),
        (Call::Verify, Reply::Invalid) => Some(false),
        (Call::Claim, Reply::Issued | Reply::AlreadyIssued | Reply::SoldOut) => Some(true),
        (Call::Claim, Reply::InvalidPass) => Some(false),
        _ => None,
    }
}

fn check_passes(
    tickets: &Tickets<'_>,
    counter: &mut CheckCounter,
    wanted: impl Fn(&TicketHistory, &Record) -> Option<bool>,
) {
    for (number, life) in tickets.lives().filter(|(_, life)| life.pass_us != NEVER) {
        for record in tickets.records(number) {
            let (Some(valid), Some(wanted)) = (judged(record), wanted(life, record)) else { continue };
            counter.check(valid == wanted, || {
                let (call, at) = (record.call.name(), seconds(record.sent_us));
                format!("the pass of number {number} was judged {:?} by a {call} at {at}", record.reply)
            });
        }
    }
}

/// Checks that a pass is valid while its slot certainly lives.
pub(crate) fn pass_lives_with_slot(tickets: &Tickets<'_>) -> AuditCheck {
    let mut counter = CheckCounter::new("pass_lives_with_slot", "while a slot certainly lives its pass is valid");
    check_passes(tickets, &mut counter, |life, record| {
        let until_us = life.over_sent_us.min(life.expires_first_us.saturating_sub(END_GRACE_US)).min(life.ended_us);
        (life.pass_us <= record.sent_us && record.received_us() < until_us).then_some(true)
    });
    counter.done()
}

/// Checks that a pass is invalid after the end of its slot.
pub(crate) fn pass_dies_with_slot(tickets: &Tickets<'_>) -> AuditCheck {
    let says = "after release, leave or the slot's end its pass is invalid to verify and to claim";
    let mut counter = CheckCounter::new("pass_dies_with_slot", says);
    // Another node judges a pass by its copy of the room.
    let stale_us = tickets.history.rules.stale_us;
    check_passes(tickets, &mut counter, |life, record| {
        let dead_us = life.over_us.min(life.expires_last_us.saturating_add(END_GRACE_US)).min(life.ended_us);
        (dead_us.saturating_add(stale_us) < record.sent_us).then_some(false)
    });
    counter.done()
}

/// Checks that all slots return after the sale, while the line is paused.
pub(crate) fn slot_returns(history: &History) -> AuditCheck {
    let mut counter =
        CheckCounter::new("slot_returns", "after the sale the slots in use fall to those that are still alive");
    if let Some(returned) = history.returned {
        counter.check(returned.active <= returned.alive, || {
            let (active, alive, after) = (returned.active, returned.alive, seconds(returned.took_us));
            format!("{active} slots are in use {after} after the sale, {alive} can be")
        });
    }
    counter.done()
}

#[cfg(test)]
mod tests {
    use super::super::super::record::{RoomObservation, SlotReturn};
    use super::super::story::Story;
    use super::*;

    const END_US: u64 = 50_000_000;

    fn with_pass() -> Story {
        let mut story = Story::new();
        story.join(0, 1, 0, 1).waits(1, 10, 20, 0).admitted(1, 100, 110, 90, END_US);
        story
    }

    #[test]
    fn a_ticket_with_a_pass_does_not_wait_again() {
        let mut story = with_pass();
        story.admitted(1, 200, 210, 90, END_US);
        assert_eq!(one_state(&Tickets::of(&story.history)).breaches, 0);
        story.waits(1, 300, 310, 0);
        assert_eq!(one_state(&Tickets::of(&story.history)).breaches, 1);
        let mut anew = with_pass();
        anew.admitted(1, 200, 210, 180, END_US);
        assert_eq!(one_state(&Tickets::of(&anew.history)).breaches, 1);
    }

    #[test]
    fn a_slot_ends_by_its_holder_or_by_time_only() {
        for (reply, sent_us, leaves, breaches) in [
            (Reply::Expired, 300, false, 1),
            (Reply::Expired, END_US, false, 0),
            (Reply::Left, 300, false, 1),
            (Reply::Left, 300, true, 0),
        ] {
            let mut story = with_pass();
            if leaves {
                story.leaves(1, 200, 210);
            }
            story.says(Call::Poll, reply, 1, sent_us, sent_us + 5);
            assert_eq!(one_state(&Tickets::of(&story.history)).breaches, breaches, "{reply:?} {sent_us}");
        }
    }

    #[test]
    fn a_slot_of_which_no_person_was_told_ends_too() {
        for (reply, end_us, breaches) in [
            (Reply::Lost, 50_000_000, 0),
            (Reply::OutcomeUnknown, 50_000_000, 0),
            (Reply::Lost, 30_000_000, 1),
            (Reply::Waiting, 50_000_000, 1),
        ] {
            let mut story = Story::new();
            story.join(0, 1, 0, 1);
            story.says(Call::Poll, reply, 1, 9_000_000, 9_000_010);
            story.says(Call::Poll, Reply::Expired, 1, end_us, end_us + 5);
            assert_eq!(one_state(&Tickets::of(&story.history)).breaches, breaches, "{reply:?} {end_us}");
        }
    }

    #[test]
    fn the_room_counts_no_person_that_has_gone() {
        let mut story = Story::new();
        story.join(0, 1, 0, 1).join(1, 2, 2, 3).leaves(1, 10, 20);
        let seen = |at_us, waiting| RoomObservation {
            received_us: at_us + 1,
            about_us: at_us,
            waiting,
            ..RoomObservation::default()
        };
        story.history.rooms = vec![seen(5, 2), seen(15, 2), seen(25, 1)];
        assert_eq!(one_state(&Tickets::of(&story.history)).breaches, 0);
        story.history.rooms = vec![seen(25, 2), seen(1, 2)];
        assert_eq!(one_state(&Tickets::of(&story.history)).breaches, 2);
    }

    #[test]
    fn a_pass_lives_and_dies_with_its_slot() {
        let mut story = with_pass();
        story.says(Call::Verify, Reply::Valid, 1, 120, 130);
        story.says(Call::Release, Reply::Done, 1, 200, 220);
        // Sent while the release was under way: either answer is right.
        story.says(Call::Verify, Reply::Valid, 1, 205, 215);
        story.says(Call::Claim, Reply::InvalidPass, 1, 230, 240);
        let tickets = Tickets::of(&story.history);
        assert_eq!((pass_lives_with_slot(&tickets).breaches, pass_dies_with_slot(&tickets).breaches), (0, 0));
        assert_eq!((pass_lives_with_slot(&tickets).checked, pass_dies_with_slot(&tickets).checked), (1, 1));
        story.says(Call::Verify, Reply::Invalid, 1, 140, 150);
        story.says(Call::Claim, Reply::SoldOut, 1, 250, 260);
        story.says(Call::Verify, Reply::Valid, 1, 270, 280);
        let tickets = Tickets::of(&story.history);
        assert_eq!((pass_lives_with_slot(&tickets).breaches, pass_dies_with_slot(&tickets).breaches), (1, 2));
    }

    #[test]
    fn a_pass_dies_by_time_too() {
        let mut story = with_pass();
        story.says(Call::Claim, Reply::InvalidPass, 1, END_US + 2_000_000, END_US + 2_000_010);
        assert_eq!(pass_dies_with_slot(&Tickets::of(&story.history)).breaches, 0);
        story.says(Call::Verify, Reply::Valid, 1, END_US + 2_000_000, END_US + 2_000_010);
        assert_eq!(pass_dies_with_slot(&Tickets::of(&story.history)).breaches, 1);
    }

    #[test]
    fn slots_that_stay_are_a_breach() {
        let mut story = Story::new();
        story.history.returned = Some(SlotReturn { active: 0, alive: 0, took_us: 5 });
        assert_eq!(slot_returns(&story.history).breaches, 0);
        story.history.returned = Some(SlotReturn { active: 1, alive: 0, took_us: 5 });
        assert_eq!(slot_returns(&story.history).breaches, 1);
    }
}
