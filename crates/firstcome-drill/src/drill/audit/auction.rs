//! The audit of an auction drill judges every answer, and the state at the end, from the outside. Only certain facts
//! count: an effect happened between sent and received, and a lost request may or may not have had one. The state of
//! the store at an instant follows from its bids and records, each of which has an instant.

mod acknowledged;
mod bids;
mod books;
mod closings;
mod ends;
mod holds;
mod keys;
mod order;
mod points;
mod records;
mod refusals;
mod requests;
#[cfg(test)]
mod story;
mod views;

use super::CheckCounter;
use crate::drill::auction::record::{DrillReply, History, Instant, STRANGER};
use crate::drill::facts::AuditCheck;
use books::Books;

/// Every check of an auction event.
pub(crate) fn all(history: &History) -> Vec<AuditCheck> {
    let books = Books::of(history);
    vec![
        bids::bids_rise(&books),
        bids::bids_in_period(&books),
        order::bids_in_order(&books),
        ends::end_follows_bids(&books),
        refusals::refusals_true(&books),
        acknowledged::acknowledged_stays(&books),
        requests::nothing_unasked(&books),
        keys::one_effect_per_key(history),
        views::listing_true(&books),
        holds::hold_ends_once(&books),
        points::never_overdrawn(&books),
        points::balance_is_sum(&books),
        points::points_conserved(&books),
        records::records_chained(history),
        closings::closed_once(&books),
        closings::one_sale(&books),
        answers_known(history),
    ]
}

/// Checks that every answer is one that the API allows.
fn answers_known(history: &History) -> AuditCheck {
    let mut counter = CheckCounter::new("answers_known", "every answer is one that the call may give");
    // Only the first unexpected answers have a text.
    let mut words = history.strange.iter();
    let mut check = |known: bool| counter.check(known, || words.next().cloned().unwrap_or_default());
    for on_reply in &history.on_reply {
        check(on_reply.told != DrillReply::Unexpected);
    }
    for _ in &history.looks {
        check(true);
    }
    for _ in 0..history.strange_looks {
        check(false);
    }
    counter.done()
}

/// Formats an instant for an example.
fn seconds(at_us: Instant) -> String {
    format!("{:.6} s", at_us as f64 / 1e6)
}

/// Formats a member for an example.
fn who(member: u32) -> String {
    if member == STRANGER { "somebody else".into() } else { format!("m{member}") }
}

#[cfg(test)]
mod tests {
    use super::story::Story;
    use super::*;
    use crate::drill::auction::record::RequestKind;

    #[test]
    fn an_answer_that_the_call_may_not_give_is_seen() {
        let mut story = Story::new();
        story.asks(RequestKind::Bid, 1, 10, [90, 110], DrillReply::Lost);
        let known = answers_known(&story.history);
        assert_eq!((known.checked, known.breaches), (1, 0));
        for number in 0..7 {
            story.asks(RequestKind::Bid, 1, 10, [90, 110], DrillReply::Unexpected);
            story.history.strange.push(format!("bid: 418 {number}"));
        }
        story.history.strange_looks = 2;
        let strange = answers_known(&story.history);
        assert_eq!((strange.checked, strange.breaches), (10, 9));
        assert_eq!(strange.examples[0], "bid: 418 0");
    }
}
