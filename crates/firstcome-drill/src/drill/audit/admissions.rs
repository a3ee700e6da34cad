//! Checks the rate of admissions, and the number of slots in use.

use super::super::facts::AuditCheck;
use super::super::record::{Admission, History, Record, Reply, RoomObservation, Rules};
use super::tickets::{NEVER, TicketHistory, Tickets};
use super::{CheckCounter, PRESENT_US, seconds};

/// With more slots in use than this share of the limit, slots may limit admissions instead of the rate.
const CAP_SHARE: f64 = 0.95;
/// A visitor who comes so soon after an admission, and within the claim window, was not missed.
const LATE_US: u64 = 7_400_000;
/// How much of a measured time may be due to reading two clocks.
const CLOCKS_S: f64 = 0.01;

/// Returns each admission once, by the room's instant, with the instant of its first answer.
fn once(history: &History) -> Vec<Admission> {
    let mut admissions = history.admissions.clone();
    admissions.sort_unstable_by_key(|seen| (seen.number, seen.admitted_us, seen.received_us));
    admissions.dedup_by_key(|seen| (seen.number, seen.admitted_us));
    admissions
}

/// The visitors whom the line had reached at some time, and for whom the room may have admitted others because they did not
/// come. An upper bound: it counts those who were passed over.
struct Missing {
    /// The reads of the room, each with the highest number that the line had reached by then.
    reached: Vec<RoomObservation>,
    /// How long after an admission its visitor is missed.
    late_us: u64,
    /// The numbers of those who came in time, and of those who had left before the line reached them.
    accounted: Vec<u32>,
    /// The numbers of the others who left, and since when they may be missed.
    left: Vec<(u32, u64)>,
}

impl Missing {
    fn of(tickets: &Tickets<'_>) -> Self {
        let mut highest = 0;
        let mut up_to = |seen: &RoomObservation| {
            highest = seen.serving.max(highest);
            RoomObservation { serving: highest, ..*seen }
        };
        let reached: Vec<_> = tickets.history.rooms.iter().map(&mut up_to).collect();
        let late_us = LATE_US.min(tickets.history.rules.claim_window_us);
        let (mut accounted, mut left) = (Vec::new(), Vec::new());
        for (number, life) in tickets.lives() {
            let at = reached.partition_point(|seen| seen.serving < u64::from(number));
            let before_us = at.checked_sub(1).map_or(0, |at| reached[at].about_us);
            // A visitor who comes after a slot was lost unnoticed has been missed once.
            let in_time = life.surely_first && life.pass_us <= life.admitted_us.saturating_add(late_us);
            let leaves = life.over_sent_us != NEVER;
            if in_time || (leaves && life.over_us < before_us) {
                accounted.push(number);
            } else if leaves {
                left.push((number, life.over_sent_us));
            }
        }
        Self { reached, late_us, accounted, left }
    }

    /// Returns how many others may have been admitted up to this time.
    fn by(&self, at_us: u64) -> f64 {
        let at = self.reached.partition_point(|seen| seen.received_us.saturating_add(self.late_us) <= at_us);
        let reached = at.checked_sub(1).map_or(0, |at| self.reached[at].serving);
        let accounted = self.accounted.partition_point(|number| u64::from(*number) <= reached);
        // A visitor who leaves with a slot that was not taken is missed at once.
        let later = self.left.partition_point(|(number, _)| u64::from(*number) <= reached);
        let left = self.left[later..].iter().filter(|(_, since_us)| *since_us <= at_us).count();
        (reached.saturating_sub(accounted as u64) + left as u64) as f64
    }
}

/// Checks in every window that admissions are at most rate x window plus one slice, plus one for each visitor who may have
/// been missing, by the room's instants and by our clock.
pub(crate) fn admission_rate(tickets: &Tickets<'_>) -> AuditCheck {
    let says = "admissions in any window are at most rate x window + one slice + those who did not come, by the room's clock \
        and by ours";
    let mut counter = CheckCounter::new("admission_rate", says);
    let history = tickets.history;
    let rules = &history.rules;
    let (rate, slice) = (rules.rate_per_s, rules.slice);
    let missing = Missing::of(tickets);
    let mut admissions = once(history);
    admissions.sort_unstable_by_key(|seen| seen.admitted_us);
    // The count so far less what the rate allows. A window has too many if this rises by more than a slice in it.
    let (mut lowest, mut from_us) = (f64::INFINITY, 0);
    let reading = rate * rules.reading_us as f64 / 1e6;
    for (at, seen) in admissions.iter().enumerate() {
        let ahead = at as f64 - rate * seen.admitted_us as f64 / 1e6;
        if ahead < lowest {
            (lowest, from_us) = (ahead, seen.admitted_us);
        }
        // The largest excess over all windows that end here.
        let excess = ahead + 1.0 - lowest - slice - reading;
        counter.check(excess <= missing.by(seen.admitted_us) + 1e-6, || {
            format!("{excess:.2} too many between {} and {}", seconds(from_us), seconds(seen.admitted_us))
        });
        counter.check(rules.opens_us <= seen.admitted_us + rules.reading_us, || {
            format!("number {} was admitted at {}, before the opening", seen.number, seconds(seen.admitted_us))
        });
    }
    passed_too_fast(tickets, &admissions, &missing, &mut counter);
    admissions.sort_unstable_by_key(|seen| seen.received_us);
    for (before, seen) in admissions.iter().enumerate() {
        let open_s = seen.received_us.saturating_sub(rules.opens_us) as f64 / 1e6 + CLOCKS_S;
        let (count, most) = (before as f64 + 1.0, rate * open_s + slice + missing.by(seen.received_us));
        counter.check(count <= most, || {
            format!("{count} admissions were known at {}, at most {most:.2} fit", seconds(seen.received_us))
        });
    }
    counter.done()
}

/// Checks the same between reads of the room, including visitors who were admitted and never polled: the line passed
/// them while they were present. `admissions` is in the order of the room's instants.
fn passed_too_fast(tickets: &Tickets<'_>, admissions: &[Admission], missing: &Missing, counter: &mut CheckCounter) {
    let Rules { rate_per_s: rate, slice, reading_us, .. } = tickets.history.rules;
    let at = |us: u64| rate * us as f64 / 1e6;
    // As above; a window begins with one read and ends with another, both taken at their outermost instants.
    let (mut lowest, mut from_us, mut silent) = (f64::INFINITY, 0, 0);
    // A rebuilt line may repeat a part of its way: a number that it reaches again is not another admission.
    let mut reached = 0;
    for (before, seen) in (0..).zip(&tickets.history.rooms) {
        if 0 < before {
            let last = &tickets.history.rooms[before - 1];
            reached = last.serving.max(reached);
            silent += silently_admitted(tickets, &RoomObservation { serving: reached, ..*last }, seen);
            let known = admissions.partition_point(|one| one.admitted_us <= seen.received_us);
            let excess = (known + silent) as f64 - at(seen.received_us) - lowest - slice - at(2 * reading_us);
            counter.check(excess <= missing.by(seen.received_us) + 1e-6, || {
                format!("{excess:.2} too many between {} and {}", seconds(from_us), seconds(seen.received_us))
            });
        }
        let known = admissions.partition_point(|one| one.admitted_us < seen.about_us);
        let ahead = (known + silent) as f64 - at(seen.about_us);
        if ahead < lowest {
            (lowest, from_us) = (ahead, seen.about_us);
        }
    }
}

/// Checks the slots in use: as the room shows them, and as they follow from the answers.
pub(crate) fn active_cap(tickets: &Tickets<'_>) -> AuditCheck {
    let mut counter =
        CheckCounter::new("active_cap", "slots in use never exceed max_active, as told and as counted from outside");
    let history = tickets.history;
    let most = history.rules.active_max;
    for seen in &history.rooms {
        counter.check(seen.active <= most, || {
            format!("{} of {most} slots in use at {}", seen.active, seconds(seen.received_us))
        });
    }
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for (_, life) in tickets.lives() {
        if let Some((from_us, to_us)) = certain_slot(life, history.rules.reading_us) {
            changes.extend([(from_us, 1), (to_us, -1)]);
        }
    }
    // At the same instant, ends come before beginnings.
    changes.sort_unstable();
    let mut alive = 0;
    for (at_us, change) in changes {
        alive += change;
        if 0 < change {
            counter.check(alive <= most as i64, || format!("{alive} slots are certainly in use at {}", seconds(at_us)));
        }
    }
    counter.done()
}

/// Returns the time during which a ticket certainly had a slot.
fn certain_slot(life: &TicketHistory, reading_us: u64) -> Option<(u64, u64)> {
    let from_us = (life.admitted_us != NEVER).then(|| life.admitted_us + reading_us)?;
    let to_us = life.over_sent_us.min(life.expires_first_us.saturating_sub(reading_us)).min(life.ended_us);
    (from_us < to_us).then_some((from_us, to_us))
}

/// How fast the line moved while only the rate limited it.
pub(crate) struct Speed {
    pub(crate) per_s: f64,
    pub(crate) of_set: f64,
}

/// Measures over the longest time in which people waited, slots were free and the server was up. Counts the visitors
/// who were seen admitted, and those whom the line passed while they were present but no longer polled.
pub(crate) fn admission_speed(history: &History) -> Option<Speed> {
    let rate = history.rules.rate_per_s;
    // Once people learn that the event is sold out they go home, and the room still counts them as waiting.
    let is_gone = |record: &&Record| matches!(record.reply, Reply::SoldOut | Reply::CouponSoldOut);
    let gone_us = history.records.iter().find(is_gone).map_or(u64::MAX, Record::received_us);
    let steady = |seen: &RoomObservation| {
        rate * 2.0 < seen.waiting as f64
            && seen.received_us < gone_us
            && (seen.active as f64) < CAP_SHARE * history.rules.active_max as f64
            && history.rules.opens_us + 1_000_000 < seen.about_us
    };
    let broken = |pair: &[RoomObservation]| history.restarted_within(pair[0].about_us, pair[1].received_us);
    let (mut best, mut start): (&[RoomObservation], usize) = (&[], 0);
    for (at, seen) in history.rooms.iter().enumerate() {
        if !steady(seen) || (0 < at && broken(&history.rooms[at - 1..=at])) {
            start = at + usize::from(!steady(seen));
        } else if best.len() < at + 1 - start {
            best = &history.rooms[start..=at];
        }
    }
    let (first, last) = (best.first()?, best.last()?);
    let window_s = last.received_us.checked_sub(first.received_us).filter(|window_us| 1_000_000 < *window_us)? as f64;
    let within = |at_us: u64| first.received_us < at_us && at_us <= last.received_us;
    let seen = once(history).iter().filter(|seen| within(seen.admitted_us)).count();
    let tickets = Tickets::of(history);
    let silent: usize = best.windows(2).map(|pair| silently_admitted(&tickets, &pair[0], &pair[1])).sum();
    let per_s = (seen + silent) as f64 / (window_s / 1e6);
    Some(Speed { per_s, of_set: per_s / rate })
}

/// Counts the numbers that the line reached between two reads, whose holders were certainly present and never seen
/// admitted.
fn silently_admitted(tickets: &Tickets<'_>, before: &RoomObservation, after: &RoomObservation) -> usize {
    if tickets.history.restarted_within(before.about_us, after.received_us) {
        return 0;
    }
    let reached = (before.serving + 1..=after.serving).filter_map(|number| u32::try_from(number).ok());
    let is_let_in = |number: &u32| {
        let life = tickets.life(*number);
        if !life.is_told() || life.admitted_us != NEVER || life.over_sent_us < after.received_us {
            return false;
        }
        let is_heard = |record: &Record| !tickets.history.may_be_unheard(record.sent_us, record.received_us());
        let known =
            |record: &&Record| record.is_contact() && record.received_us() <= before.about_us && is_heard(record);
        tickets.records(*number).filter(known).max_by_key(|record| record.sent_us).is_some_and(|contact| {
            let stays_us = PRESENT_US.max(3_000 * u64::from(contact.poll_after_ms));
            after.received_us < contact.sent_us + stays_us
        })
    };
    reached.filter(is_let_in).count()
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    /// Builds admissions at these milliseconds, each answered at once.
    fn at_ms(times_ms: &[u64]) -> History {
        let mut story = Story::new();
        for (number, &at_ms) in (1..).zip(times_ms) {
            story.admitted(number, at_ms * 1_000, at_ms * 1_000 + 500, at_ms * 1_000, 90_000_000);
        }
        story.history
    }

    fn rate_breaches(history: &History) -> u64 {
        admission_rate(&Tickets::of(history)).breaches
    }

    fn look(at_ms: u64, serving: u64) -> RoomObservation {
        let at_us = at_ms * 1_000;
        RoomObservation { received_us: at_us, about_us: at_us, waiting: 50, active: 0, serving, rate_per_s: 10.0 }
    }

    #[test]
    fn those_who_were_let_in_and_never_asked_count_too() {
        let mut story = Story::new();
        for number in 1..=40 {
            story.join(number - 1, number, 0, 1);
        }
        story.leaves(7, 10, 20);
        story.history.rooms = vec![look(1, 0), look(1_001, 12), look(2_001, 23)];
        // 22 in two seconds and a slice of 2.5 are allowed, since one of the 24 had left.
        assert_eq!(rate_breaches(&story.history), 0);
        story.history.rooms[2].serving = 24;
        assert_eq!(rate_breaches(&story.history), 1);
        // After half a minute of silence they may have been passed over; after a restart the service does not know.
        for seen in &mut story.history.rooms[1..] {
            (seen.received_us, seen.about_us) = (seen.received_us + 30_000_000, seen.about_us + 30_000_000);
        }
        story.history.rooms[0] = look(30_002, 0);
        assert_eq!(rate_breaches(&story.history), 0);
    }

    #[test]
    fn a_window_holds_what_the_rate_allows_and_one_slice() {
        // At 10 per second and a slice of 2.5, the fastest is two at once and then one every 100 ms.
        assert_eq!(rate_breaches(&at_ms(&[0, 0, 100, 200, 300, 400])), 0);
        assert!(0 < rate_breaches(&at_ms(&[0, 0, 0])));
        assert!(0 < rate_breaches(&at_ms(&[0, 5_000, 5_000, 5_040, 5_080])));
        assert_eq!(rate_breaches(&at_ms(&[0, 5_000, 5_000, 5_100, 5_200])), 0);
    }

    #[test]
    fn one_more_is_let_in_for_each_who_did_not_come_and_no_more() {
        let mut story = Story::new();
        for number in 1..=40 {
            story.join(number - 1, number, 0, 1);
        }
        // Two were reached and did not come; ten seconds later two more than the rate are let in.
        for (number, at_ms) in (3..).zip([9_000_u64, 9_000, 9_000, 9_000]) {
            story.admitted(number, at_ms * 1_000, at_ms * 1_000 + 500, at_ms * 1_000, 90_000_000);
        }
        story.history.rooms = vec![look(1_000, 2)];
        assert_eq!(rate_breaches(&story.history), 0);
        story.admitted(7, 9_000_000, 9_000_500, 9_000_000, 90_000_000);
        assert!(0 < rate_breaches(&story.history));
    }

    #[test]
    fn no_person_is_let_in_before_the_opening_and_our_clock_counts_too() {
        let mut early = at_ms(&[900]);
        early.rules.opens_us = 1_000_000;
        assert_eq!(rate_breaches(&early), 1);
        // A room that dates its admissions too far apart is caught by the instants of the answers.
        let mut lying = at_ms(&[0, 1, 2, 3, 4, 5]);
        lying.admissions.iter_mut().enumerate().for_each(|(at, seen)| seen.admitted_us = at as u64 * 1_000_000);
        assert!(0 < rate_breaches(&lying));
        // The same admission told twice counts once.
        let mut twice = at_ms(&[0, 0]);
        twice.admissions.extend(twice.admissions.clone());
        assert_eq!(rate_breaches(&twice), 0);
    }

    #[test]
    fn slots_are_counted_from_the_answers_too() {
        let mut story = Story::new();
        for number in 1..=3 {
            story.join(number - 1, number, 0, 1);
            story.admitted(number, 10, 20, 10 * u64::from(number), 9_000_000);
        }
        assert_eq!(active_cap(&Tickets::of(&story.history)).breaches, 1);
        // The first had left before the third came.
        story.leaves(1, 25, 40);
        assert_eq!(active_cap(&Tickets::of(&story.history)).breaches, 0);
        story.history.rooms.push(RoomObservation { active: 3, ..RoomObservation::default() });
        assert_eq!(active_cap(&Tickets::of(&story.history)).breaches, 1);
    }

    #[test]
    fn the_speed_counts_those_who_were_let_in_unseen() {
        let mut history = at_ms(&[2_000, 2_100, 2_200, 2_300, 2_400, 2_500, 2_600, 2_700, 2_800, 2_900]);
        history.rooms = vec![look(1_500, 0), look(2_000, 1), look(3_500, 15)];
        let mut story = Story { history };
        for number in 1..=15 {
            story.join(number - 1, number, 0, 1);
        }
        let speed = admission_speed(&story.history).unwrap();
        assert!((speed.per_s - 7.5).abs() < 1e-9, "{}", speed.per_s);
    }
}
