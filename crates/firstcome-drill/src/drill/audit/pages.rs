//! Checks what real browsers showed against what the service told the other people.

use super::super::facts::AuditCheck;
use super::super::record::{Call, History, Holder, PageStory};
use super::{CheckCounter, seconds};
use std::collections::{HashMap, HashSet};

/// Checks that each page has a number of its own, in the order of arrival among all people.
pub(crate) fn own_number(history: &History) -> AuditCheck {
    let says = "a page keeps one number, which no other person has, and which fits the joins before and after it";
    let mut counter = CheckCounter::new("pages_own_number", says);
    let mut taken: HashSet<u32> =
        history.records.iter().filter(|record| record.call == Call::Join).map(|record| record.number).collect();
    for page in &history.pages {
        let mut numbers = page.observations.iter().filter_map(|shown| Some((shown.number?, shown.read_us)));
        let Some((number, read_us)) = numbers.next() else { continue };
        counter.check(taken.insert(number), || format!("a page shows number {number}, and another person has it"));
        for (other, at_us) in numbers {
            counter.check(other == number, || {
                format!("the page of number {number} shows number {other} at {}", seconds(at_us))
            });
        }
        fits(history, page, number, read_us, &mut counter);
    }
    counter.done()
}

/// Compares with the joins that were certainly before or after that of the page.
fn fits(history: &History, page: &PageStory, number: u32, read_us: u64, counter: &mut CheckCounter) {
    let opened_us = page.opened_us.unwrap_or(0);
    let mut first_sent: HashMap<u32, u64> = HashMap::new();
    for join in history.records.iter().filter(|record| record.call == Call::Join) {
        let sent_us = first_sent.entry(join.person).or_insert(join.sent_us);
        *sent_us = join.sent_us.min(*sent_us);
    }
    for join in history.records.iter().filter(|record| record.call == Call::Join && 0 < record.number) {
        if join.received_us() < opened_us {
            counter.check(join.number < number, || {
                format!("number {} was told before a page was opened that shows {number}", join.number)
            });
        }
        if first_sent.get(&join.person).is_some_and(|sent_us| read_us < *sent_us) {
            counter.check(number < join.number, || {
                format!("number {} was asked for after a page had shown {number}", join.number)
            });
        }
    }
}

/// Checks that a page never says that more people are ahead than before, except after a loss of data.
pub(crate) fn place_falls(history: &History) -> AuditCheck {
    let says = "the number of people ahead on a page never rises, except across a loss of what was not durable";
    let mut counter = CheckCounter::new("pages_place_falls", says);
    for page in &history.pages {
        let places: Vec<_> =
            page.observations.iter().filter_map(|shown| Some((shown.ahead?, shown.asked_us, shown.read_us))).collect();
        for pair in places.windows(2) {
            let ((before, asked_us, _), (after, _, read_us)) = (pair[0], pair[1]);
            if !history.forgotten_within(asked_us, read_us) {
                counter.check(after <= before, || {
                    format!("a page shows {before} people ahead, and {after} at {}", seconds(read_us))
                });
            }
        }
    }
    counter.done()
}

/// Checks that a page shows how the sale ended for it, and that this is true.
pub(crate) fn end_is_true(history: &History) -> AuditCheck {
    let says =
        "a page ends with its claim, which is in the list, or with sold out, which is true, or in line before that";
    let mut counter = CheckCounter::new("pages_end_is_true", says);
    let sold_out = history.listed.len() == history.rules.stock as usize;
    for page in &history.pages {
        let Some(last) = page.observations.last() else {
            counter.check(false, || "a page showed nothing at all".to_owned());
            continue;
        };
        let is_listed = || {
            history.listed.iter().any(|claim| {
                Some(claim.serial) == last.serial
                    && Some(claim.code_hash) == last.code_hash
                    && last.number.is_none_or(|number| claim.holder == Holder::Pass(number))
            })
        };
        let is_true = match page.phase() {
            "claimed" => is_listed(),
            "soldout" => sold_out,
            "waiting" | "almost" | "admitted" | "claim" => !sold_out,
            _ => false,
        };
        counter.check(is_true, || {
            let (issued, stock) = (history.listed.len(), history.rules.stock);
            format!("a page ends as {:?} with serial {:?}; {issued} of {stock} are issued", page.phase(), last.serial)
        });
    }
    counter.done()
}

#[cfg(test)]
mod tests {
    use super::super::super::record::PageObservation;
    use super::super::story::Story;
    use super::*;

    /// A page that was opened at this time, and showed these phases, numbers and people ahead, one per 10 µs.
    fn page(opened_us: u64, shown: &[(&str, u32, Option<u32>)]) -> PageStory {
        let mut story = PageStory { opened_us: Some(opened_us), ..PageStory::default() };
        for (&(phase, number, ahead), at) in shown.iter().zip(1..) {
            let (asked_us, read_us) = (opened_us + at * 10 - 1, opened_us + at * 10);
            let number = Some(number);
            let phase = phase.to_owned();
            story.add(PageObservation { asked_us, read_us, phase, number, ahead, serial: None, code_hash: None });
        }
        story
    }

    fn with(page: PageStory) -> Story {
        let mut story = Story::new();
        story.join(0, 1, 0, 10).join(2, 3, 200, 210);
        story.history.pages.push(page);
        story
    }

    #[test]
    fn a_page_has_its_own_number_in_order() {
        let breaches = |opened_us, shown: &[_]| own_number(&with(page(opened_us, shown)).history).breaches;
        assert_eq!(breaches(20, &[("waiting", 2, None)]), 0);
        assert_eq!(breaches(5, &[("waiting", 1, None)]), 1, "another person has it");
        assert_eq!(breaches(20, &[("waiting", 2, None), ("almost", 4, None)]), 1, "it changes");
        assert_eq!(breaches(220, &[("waiting", 2, None)]), 1, "it was opened after number 3 was told");
        assert_eq!(breaches(20, &[("waiting", 5, None)]), 1, "number 3 was asked for later");
    }

    #[test]
    fn people_ahead_only_get_fewer() {
        let shown = [("waiting", 2, Some(5)), ("waiting", 2, Some(3)), ("almost", 2, Some(0))];
        assert_eq!(place_falls(&with(page(20, &shown)).history).breaches, 0);
        let mut rises = with(page(20, &[("waiting", 2, Some(3)), ("waiting", 2, Some(4))]));
        assert_eq!(place_falls(&rises.history).breaches, 1);
        rises.restart(25, 35);
        assert_eq!(place_falls(&rises.history).breaches, 0, "the server was killed in between");
    }

    #[test]
    fn the_end_on_a_page_is_true() {
        let mut story = with(page(20, &[("soldout", 2, None)]));
        assert_eq!(end_is_true(&story.history).breaches, 1, "nothing was issued");
        story.listed(1, 1).listed(2, 2).listed(3, 3);
        assert_eq!(end_is_true(&story.history).breaches, 0);
        let mut claimed = with(page(20, &[("claimed", 2, None)]));
        claimed.listed(2, 1);
        assert_eq!(end_is_true(&claimed.history).breaches, 1, "its serial is not in the list");
        let claim = claimed.history.listed[0];
        let last = claimed.history.pages[0].observations.last_mut().unwrap();
        (last.serial, last.code_hash) = (Some(claim.serial), Some(claim.code_hash));
        assert_eq!(end_is_true(&claimed.history).breaches, 0);
        claimed.history.listed[0].holder = Holder::Pass(7);
        assert_eq!(end_is_true(&claimed.history).breaches, 1, "another person holds it");
        for phase in ["waiting", "lost", ""] {
            let story = with(page(20, &[(phase, 2, None)]));
            assert_eq!(end_is_true(&story.history).breaches, u64::from(phase != "waiting"), "{phase}");
        }
    }
}
