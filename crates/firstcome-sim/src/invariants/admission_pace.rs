//! Invariant 10: admissions in any window stay below the rate and one slice of it, slots never exceed the cap, no absent
//! client is admitted, the lowest number that is present is first, and a slot that no client takes comes back.
//!
//! Contacts show which clients were present: drawing a number, and asking about it. A request whose reply did not arrive may
//! have been a contact or not, so both are allowed for. After a start a client is present for as long as is stored, and for
//! 30 s if nothing is.

use super::{RoomEvidence, Violation};
use crate::room::history::{Command, Operation, RoomStepReply};
use crate::room::ledger::{Ledger, RoomStory, TicketStory, offer_until};
use firstcome_core::id::RoomName;
use firstcome_core::room::{Admit, Memory, TicketState};
use std::collections::BTreeMap;

const NAME: &str = "admission_pace";
/// A client that was seen so recently is present.
const PRESENT_US: i64 = 30_000_000;
/// No client is present longer than this after a contact: three times the longest interval that can be told.
const PRESENT_US_MAX: i64 = 216_300_000;
/// A client that is read as absent keeps its place for so long at least.
const PATIENCE_US: i64 = 90_000_000;
/// No visitor counts as missing sooner after the admission.
const LATE_US: i64 = 7_400_000;
/// Contacts are kept in milliseconds.
const ROUNDING_US: i64 = 2_000;

/// Looks for an admission that should not have been, and for one that never came.
pub fn check(evidence: &RoomEvidence<'_>, ledger: &Ledger) -> Result<(), Violation> {
    let found = |detail| Violation::new(NAME, evidence.seed, detail);
    let contacts = contacts(evidence, ledger);
    for (name, room) in &ledger.rooms {
        rate_is_kept(room, &evidence.history.lives).map_err(|detail| found(format!("{name}: {detail}")))?;
        for admission in &room.admissions {
            let (at, number, active) = (admission.at, admission.number, admission.active);
            if admission.cap.is_some_and(|cap| cap < active) {
                return Err(found(format!("{name}: {active} slots were given, at most {:?} may be", admission.cap)));
            }
            let of = |number| contacts.get(&(name, number)).map_or(&[][..], Vec::as_slice);
            if !may_be_present(of(number), at) {
                return Err(found(format!("{name}: number {number} was absent and was admitted")));
            }
            let turn = room.turn(number, at);
            let first = room.by_turn(0..turn, at).find(|(lower, ticket)| must_be_next(ticket, of(*lower), at));
            if let Some((lower, _)) = first {
                return Err(found(format!("{name}: number {number} was admitted while {lower} was present")));
            }
        }
        slots_come_back(evidence, ledger, name, room).map_err(|detail| found(format!("{name}: {detail}")))?;
    }
    Ok(())
}

fn slice(admit: Admit) -> f64 {
    (admit.per_second() * 0.25).max(1.0)
}

/// The instants from which a room may make up for each visitor who did not come: those who had not taken their slots when
/// they counted as missing at the earliest.
fn missed(room: &RoomStory, lives: &[i64]) -> Vec<i64> {
    let slots = room.tickets.values().flat_map(|ticket| &ticket.slots);
    let missed = slots.filter_map(|slot| {
        // The store's time may jump from one life to the next.
        let next_life = lives.iter().copied().find(|life| slot.offered < *life).unwrap_or(i64::MAX);
        let late = (slot.offered + LATE_US).min(next_life);
        let over = slot.ended.map_or(late, |ended| ended.min(late));
        slot.taken.is_none_or(|(taken, _)| over <= taken).then_some(over)
    });
    let mut missed: Vec<i64> = missed.collect();
    missed.sort_unstable();
    missed
}

/// With `earned` what the rate allows from the beginning, the window from the admission `i` to `j` holds at most
/// `own = slice(i) + earned(j) - earned(i)`, and in place of visitors who did not come at most as many again and a slice.
fn rate_is_kept(room: &RoomStory, lives: &[i64]) -> Result<(), String> {
    let mut in_force = 0;
    let mut admit: Option<Admit> = None;
    let (mut earned, mut since) = (0.0, 0);
    let missed = missed(room, lives);
    // For each admission that begins a window: the slice less what was earned before it.
    let mut begins: Vec<f64> = Vec::new();
    for admission in &room.admissions {
        for (changed, next) in &room.settings[in_force..admission.settings] {
            earned += admit.map_or(0.0, |admit| admit.per_second() * (changed - since) as f64 / 1e6);
            if admit.is_none() {
                // Without a rate nothing is bounded.
                begins.clear();
            }
            (admit, since) = (next.admit, *changed);
        }
        in_force = admission.settings;
        let Some(rate) = admit else { continue };
        earned += rate.per_second() * (admission.at - since) as f64 / 1e6;
        since = admission.at;
        begins.push(slice(rate) - earned);
        let may_make_up = missed.partition_point(|over| *over <= admission.at) as f64;
        let is_kept = |(first, begin): (usize, &f64)| {
            let own = begin + earned + 1e-6;
            (begins.len() - first) as f64 <= own + (own.floor() + slice(rate).floor()).min(may_make_up)
        };
        if !begins.iter().enumerate().all(is_kept) {
            return Err(format!("number {} was admitted faster than the rate allows", admission.number));
        }
    }
    Ok(())
}

/// A contact that is known, or one that may have been: at some instant up to `to`.
#[derive(Clone, Copy)]
struct Contact {
    to: i64,
    /// In which life, from 1 on. What a life has read stands in place of every contact of those before, also at the same instant.
    life: usize,
    /// How long it lasts, if it is known to have been.
    known_us: Option<i64>,
}

type Contacts<'a> = BTreeMap<(&'a RoomName, u32), Vec<Contact>>;

fn contacts<'a>(evidence: &RoomEvidence<'a>, ledger: &'a Ledger) -> Contacts<'a> {
    let mut contacts = Contacts::new();
    for (name, room) in &ledger.rooms {
        for (&number, ticket) in &room.tickets {
            let own = contacts.entry((name, number)).or_default();
            own.push(Contact { to: ticket.joined, life: 1, known_us: None });
            let reads = evidence.history.reads_of(name).filter(|&read| ticket.joined < read);
            own.extend(reads.map(|read| Contact {
                to: read,
                life: evidence.history.lives.partition_point(|life| *life <= read),
                known_us: Some(remembered_us(room, number, read)),
            }));
        }
    }
    for operation in evidence.history.operations() {
        let Some(room) = ledger.rooms.get_key_value(&operation.name) else { continue };
        if let Some(answer) = operation.ticket()
            && let TicketState::InDraw { .. } | TicketState::Waiting { .. } = answer.state
        {
            let known_us = Some(PRESENT_US.max(i64::from(answer.poll_after_ms) * 3_000));
            let contact = Contact { to: operation.judged, life: operation.life, known_us };
            contacts.entry((room.0, answer.number.get())).or_default().push(contact);
        } else if operation.is_unclear() {
            for number in may_be_about(operation, room.1) {
                let contact = Contact { to: operation.end(), life: operation.life, known_us: None };
                contacts.entry((room.0, number)).or_default().push(contact);
            }
        }
    }
    contacts
}

/// How long a client is present after the room was read at this instant. Negative if it is absent.
fn remembered_us(room: &RoomStory, number: u32, life: i64) -> i64 {
    let is_of = |memory: &Memory| memory.first_number <= number && number < memory.first_number + 4_096;
    let stored = room.memory.iter().rev().find(|(at, memory)| *at <= life && is_of(memory));
    let left_s = stored.and_then(|(_, memory)| memory.bytes.get((number - memory.first_number) as usize));
    let left_us = left_s.map_or(PRESENT_US, |left_s| i64::from(*left_s) * 1_000_000);
    let window_us = left_us.max(PRESENT_US);
    let silence_us = if left_us == 0 { PRESENT_US + 10 * ROUNDING_US } else { window_us - left_us };
    // No client is read as absent for longer than leaves time until its place expires.
    let settings = room.settings.iter().rev().find(|(since, _)| *since <= life);
    let ttl_us = settings.map_or(i64::MAX, |(_, settings)| settings.waiting_ttl_ms as i64 * 1_000);
    window_us - silence_us.min((ttl_us - PATIENCE_US).max(0))
}

/// The tickets that a request without an answer may have been about.
fn may_be_about(operation: &Operation, room: &RoomStory) -> Vec<u32> {
    match &operation.command {
        Command::Poll(_, number) | Command::Renew(_, number, _) => number.iter().map(|number| number.get()).collect(),
        Command::Join(join) => {
            let same = |ticket: &&TicketStory| {
                (join.user.is_some() && ticket.join.user == join.user)
                    || (join.request.is_some() && ticket.join.request == join.request)
            };
            room.tickets.iter().filter(|(_, ticket)| same(ticket)).map(|(&number, _)| number).collect()
        }
        _ => Vec::new(),
    }
}

/// The last contact that is known to have been before an instant, or in it.
fn last_known(contacts: &[Contact], before: i64) -> Option<(i64, i64)> {
    let known = contacts.iter().filter(|contact| contact.to <= before);
    let known = known.filter_map(|contact| Some((contact.to, contact.life, contact.known_us?))).max();
    known.map(|(seen, _, lasts_us)| (seen, lasts_us))
}

fn may_be_present(contacts: &[Contact], at: i64) -> bool {
    let known = last_known(contacts, at);
    if known.is_some_and(|(seen, lasts_us)| at - seen <= lasts_us + ROUNDING_US) {
        return true;
    }
    let seen = known.map_or(i64::MIN, |(seen, _)| seen);
    contacts.iter().any(|it| it.known_us.is_none() && seen < it.to && at - it.to.min(at) <= PRESENT_US_MAX)
}

/// Whether a client was in line and present, beyond doubt, and so had to be admitted before any higher number.
fn must_be_next(ticket: &TicketStory, contacts: &[Contact], at: i64) -> bool {
    if !ticket.waits_before(at) || ticket.changes_at(at) {
        return false;
    }
    // A client that let an offer lapse is next only once it has asked again.
    let back = ticket.slots.iter().filter_map(|slot| slot.ended).filter(|&ended| ended < at).max().unwrap_or(i64::MIN);
    let certain = |&(seen, lasts_us): &(i64, i64)| {
        let unclear = contacts.iter().any(|it| it.known_us.is_none() && seen < it.to);
        let lasts_us = if unclear { lasts_us.min(PRESENT_US) } else { lasts_us };
        back < seen && at - seen <= lasts_us - ROUNDING_US
    };
    certain(&last_known(contacts, at - 1).unwrap_or((ticket.joined, PRESENT_US)))
}

/// A tick that was acknowledged has given back every slot whose offer had ended, and no client takes one after that.
fn slots_come_back(
    evidence: &RoomEvidence<'_>,
    ledger: &Ledger,
    name: &RoomName,
    room: &RoomStory,
) -> Result<(), String> {
    let lives = &evidence.history.lives;
    for (life, &from) in lives.iter().enumerate() {
        let to = lives.get(life + 1).copied().unwrap_or(i64::MAX);
        let Some(ahead_us) = ledger.ahead_us(from, to) else { continue };
        let is_tick = |it: &&Operation| it.life == life + 1 && it.told() == Some(&RoomStepReply::Ticked);
        let ticks: Vec<&Operation> = evidence.history.operations().iter().filter(is_tick).collect();
        for (number, ticket) in &room.tickets {
            for slot in &ticket.slots {
                let until = offer_until(&slot.slot).as_us() - ahead_us;
                let settled = slot.taken.map(|(taken, _)| taken).or(slot.ended).unwrap_or(i64::MAX);
                let lost =
                    |tick: &&&Operation| slot.offered < tick.asked && until <= tick.asked && tick.end() < settled;
                if ticks.iter().find(lost).is_some() {
                    return Err(format!("the slot of number {number} was not taken up and is lost"));
                }
                let taken = slot.taken.filter(|(taken, _)| from <= *taken && *taken < to);
                if taken.is_some_and(|(taken, _)| until <= taken) {
                    return Err(format!("number {number} took a slot of {name} after its offer had ended"));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::room_story::Story;
    use super::{Contact, check, last_known};
    use firstcome_core::room::RoomSettings;

    #[test]
    fn a_burst_beyond_one_slice_is_found() {
        // Eight a second: two at once, and then one every 125 ms.
        let mut story = Story::with(RoomSettings::with_rate(8, 1_000));
        story.joined(1).joined(2).joined(3).pass_ms(1_000).admitted_together(&[1, 2]);
        story.assert_clean(check);
        story.admitted(3);
        story.assert_found(check, "number 3 was admitted faster");
    }

    #[test]
    fn a_rate_that_is_a_tenth_too_high_is_found_in_a_long_window() {
        let mut story = Story::with(RoomSettings::with_rate(10, 1_000));
        for number in 1..=40 {
            story.joined(number);
        }
        for number in 1..=20 {
            story.pass_ms(101).admitted(number);
        }
        story.assert_clean(check);
        for number in 21..=40 {
            story.pass_ms(90).admitted(number);
        }
        story.assert_found(check, "faster than the rate");
    }

    #[test]
    fn a_lower_rate_counts_from_its_first_instant() {
        let mut story = Story::with(RoomSettings::with_rate(100, 1_000));
        for number in 1..=3 {
            story.joined(number);
        }
        story.pass_ms(1_000).put(RoomSettings::with_rate(1, 1_000)).admitted(1).pass_ms(10).admitted(2);
        story.assert_found(check, "number 2 was admitted faster");
    }

    #[test]
    fn one_more_is_admitted_for_each_visitor_who_does_not_come_and_no_more() {
        let mut story = Story::with(RoomSettings::with_rate(1, 10_000));
        story.joined(1).joined(2).joined(3).joined(4).pass_ms(9_000).admitted(1).pass_ms(7_500).admitted(2);
        story.assert_clean(check);
        story.admitted(3);
        story.assert_found(check, "number 3 was admitted faster");
        let mut story = Story::with(RoomSettings::with_rate(1, 10_000));
        story.joined(1).joined(2).pass_ms(9_000).admitted(1).taken(1).pass_ms(7_500).admitted(2);
        story.assert_found(check, "number 2 was admitted faster");
    }

    #[test]
    fn a_slot_beyond_the_cap_is_found() {
        let mut story = Story::with_slots(1);
        story.joined(1).joined(2).admitted(1);
        story.assert_clean(check);
        story.admitted(2);
        story.assert_found(check, "2 slots were given");
    }

    #[test]
    fn an_absent_person_who_is_admitted_is_found() {
        let mut story = Story::with_slots(3);
        story.joined(1).replied_new(1).pass_ms(31_000).admitted(1);
        story.assert_found(check, "number 1 was absent");
        let mut story = Story::with_slots(3);
        story.joined(1).replied_new(1).pass_ms(29_000).waits(1, 0).pass_ms(29_000).admitted(1);
        story.assert_clean(check);
        let mut story = Story::with_slots(3);
        story.joined(1).replied_new(1).pass_ms(31_000).restart().pass_ms(10).admitted(1);
        story.assert_clean(check);
        let mut story = Story::with_slots(3);
        story.joined(1).replied_new(1).pass_ms(31_000).remembered(&[0]).restart().pass_ms(10).admitted(1);
        story.assert_found(check, "number 1 was absent");
        let mut story = Story::with_slots(3);
        story.joined(1).replied_new(1).remembered(&[5]).pass_ms(31_000).restart().pass_ms(6_000).admitted(1);
        story.assert_found(check, "number 1 was absent");
    }

    #[test]
    fn who_may_have_been_heard_of_is_no_finding() {
        let mut story = Story::with_slots(3);
        story.joined(1).replied_new(1).pass_ms(29_000).unclear_poll(1).pass_ms(29_000).admitted(1);
        story.assert_clean(check);
    }

    #[test]
    fn what_a_life_has_read_stands_in_place_of_a_contact_before_it_at_the_same_instant() {
        let of = |life, lasts_us| Contact { to: 5, life, known_us: Some(lasts_us) };
        let (poll, read, later) = (of(1, 30), of(2, -20), of(2, 40));
        assert_eq!(last_known(&[poll, read], 5), Some((5, -20)));
        assert_eq!(last_known(&[read, later, poll], 5), Some((5, 40)));
    }

    #[test]
    fn a_client_present_who_is_passed_over_is_found() {
        let mut story = Story::with_slots(3);
        story.joined(1).joined(2).pass_ms(1_000).admitted(2);
        story.assert_found(check, "number 2 was admitted while 1 was present");
        let mut story = Story::with_slots(3);
        story.joined(1).joined(2).pass_ms(31_000).waits(2, 1).admitted(2);
        story.assert_clean(check);
        let mut story = Story::with_slots(3);
        story.joined(1).joined(2).remembered(&[5, 5]).pass_ms(31_000).restart().pass_ms(4_000).admitted(2);
        story.assert_found(check, "number 2 was admitted while 1 was present");
    }

    #[test]
    fn who_let_an_offer_lapse_is_next_only_once_heard_of_again() {
        let mut story = Story::with_slots(3);
        story.joined(1).joined(2).admitted(1).pass_ms(1_000).lapsed(1).admitted(2);
        story.assert_clean(check);
        let mut story = Story::with_slots(3);
        story.joined(1).joined(2).admitted(1).pass_ms(1_000).lapsed(1).waits(1, 0).admitted(2);
        story.assert_found(check, "while 1 was present");
    }

    #[test]
    fn an_offer_that_is_never_taken_back_is_found() {
        let mut story = Story::with_slots(3);
        story.joined(1).admitted(1).pass_ms(59_000).ticked();
        story.assert_clean(check);
        story.pass_ms(1_000).ticked();
        story.assert_found(check, "is lost");
    }

    #[test]
    fn an_offer_that_is_taken_too_late_is_found() {
        let mut story = Story::with_slots(3);
        story.joined(1).admitted(1).pass_ms(60_000).taken(1);
        story.assert_found(check, "after its offer had ended");
    }
}
