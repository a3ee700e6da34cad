//! Checks the claims: no oversell, one per user, serials without gaps in order of arrival.

use super::super::facts::AuditCheck;
use super::super::record::{Call, History, Holder, Reply};
use super::numbers::in_order;
use super::tickets::NEVER;
use super::{CheckCounter, seconds};
use std::collections::HashMap;

/// Checks that no more than the stock is issued, and that "sold out" was said only if all is issued.
pub(crate) fn no_oversell(history: &History) -> AuditCheck {
    let says = "never more than the stock is issued, serials are 1..N without a gap, and sold out means all are gone";
    let mut counter = CheckCounter::new("no_oversell", says);
    let (issued, stock) = (history.listed.len(), history.rules.stock as usize);
    counter.check(issued <= stock, || format!("{issued} of {stock} are issued"));
    for (claim, serial) in history.listed.iter().zip(1..) {
        counter.check(claim.serial == serial, || format!("serial {} is listed where {serial} belongs", claim.serial));
    }
    let gone = |record: &&super::super::record::Record| matches!(record.reply, Reply::SoldOut | Reply::CouponSoldOut);
    for record in history.records.iter().filter(gone) {
        counter.check(issued == stock, || {
            format!("sold out was said at {}, and {issued} of {stock} are issued", seconds(record.received_us()))
        });
    }
    for told in &history.told {
        counter.check((told.serial as usize) <= stock, || format!("serial {} of {stock} was told", told.serial));
    }
    counter.done()
}

/// Checks that a pass or user has one claim, and that an answer shows the caller's own claim.
pub(crate) fn one_each(history: &History) -> AuditCheck {
    let mut counter =
        CheckCounter::new("one_each", "a pass or user has one claim, a claim has one holder, and it is the claimer");
    let mut serials: HashMap<Holder, u32> = HashMap::new();
    let mut holders: HashMap<u32, Holder> = HashMap::new();
    let claims = history.told.iter().map(|told| (told.holder, told.serial));
    for (holder, serial) in claims.chain(history.listed.iter().map(|listed| (listed.holder, listed.serial))) {
        let first = *serials.entry(holder).or_insert(serial);
        counter.check(first == serial, || format!("{holder:?} has serials {first} and {serial}"));
        let first = *holders.entry(serial).or_insert(holder);
        counter.check(first == holder, || format!("serial {serial} is held by {first:?} and by {holder:?}"));
    }
    for told in &history.told {
        counter.check(told.holder == told.expected, || {
            format!("{:?} was told a claim of {:?}", told.expected, told.holder)
        });
    }
    counter.done()
}

/// Checks that a claim that was answered before another was sent has the lower serial.
pub(crate) fn fifo_serials(history: &History) -> AuditCheck {
    let mut counter =
        CheckCounter::new("fifo_serials", "a claim answered before another was sent has the lower serial");
    let mut first_sent: HashMap<u32, u64> = HashMap::new();
    let mut told: HashMap<u32, (u32, u64)> = HashMap::new();
    let attempts = history.records.iter().filter(|record| matches!(record.call, Call::Claim | Call::Cheat));
    for record in attempts {
        // A refused cheat issues nothing, but a lost one may have: it counts as an attempt.
        let sent_us = first_sent.entry(record.person).or_insert(NEVER);
        *sent_us = record.sent_us.min(*sent_us);
        if matches!(record.reply, Reply::Issued | Reply::AlreadyIssued) {
            let seen = told.entry(record.value).or_insert((record.person, NEVER));
            if record.call == Call::Claim {
                seen.1 = record.received_us().min(seen.1);
            }
        }
    }
    let asked = told
        .into_iter()
        .map(|(serial, (person, told_us))| (first_sent.get(&person).copied().unwrap_or(0), told_us, serial));
    in_order(asked.filter(|(_, told_us, _)| *told_us != NEVER).collect(), |(serial, told_us), (later, sent_us)| {
        counter.check(serial < later, || {
            let (told, sent) = (seconds(told_us), seconds(sent_us));
            format!("serial {serial} was told by {told}, and {later} was asked for at {sent}")
        });
    });
    counter.done()
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    fn sold() -> Story {
        let mut story = Story::new();
        story.claims(1, 0, 10, 1).claims(2, 5, 12, 2).claims(3, 20, 30, 3).listed(1, 1).listed(2, 2).listed(3, 3);
        story
    }

    #[test]
    fn the_stock_is_the_stock() {
        let mut story = sold();
        story.says(Call::Claim, Reply::SoldOut, 4, 40, 50);
        assert_eq!(no_oversell(&story.history).breaches, 0);
        story.listed(4, 4);
        // One claim too many is listed: this breaks the stock and the answer "sold out".
        assert_eq!(no_oversell(&story.history).breaches, 2);
        let mut gap = sold();
        gap.history.listed.remove(1);
        assert_eq!(no_oversell(&gap.history).breaches, 1);
        gap.says(Call::View, Reply::CouponSoldOut, 4, 40, 50);
        assert_eq!(no_oversell(&gap.history).breaches, 2);
    }

    #[test]
    fn everybody_has_one() {
        assert_eq!(one_each(&sold().history).breaches, 0);
        let mut two = sold();
        two.claims(1, 40, 50, 4);
        assert_eq!(one_each(&two.history).breaches, 1);
        let mut shared = sold();
        shared.claims(9, 40, 50, 1);
        assert_eq!(one_each(&shared.history).breaches, 1);
        let mut strange = sold();
        strange.history.told[0].expected = Holder::User(7);
        assert_eq!(one_each(&strange.history).breaches, 1);
    }

    #[test]
    fn serials_follow_the_claims() {
        assert_eq!(fifo_serials(&sold().history).breaches, 0);
        let mut bad = Story::new();
        bad.claims(1, 0, 10, 2).claims(2, 20, 30, 1);
        assert_eq!(fifo_serials(&bad.history).breaches, 1);
        // The second had already asked before, without an answer.
        let mut lost = Story::new();
        lost.claims(1, 0, 10, 2);
        lost.says(Call::Claim, Reply::Lost, 2, 5, 6);
        lost.claims(2, 20, 30, 1);
        assert_eq!(fifo_serials(&lost.history).breaches, 0);
    }
}
