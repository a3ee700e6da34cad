//! Audits an auction by its rows and by the answers that the bidders got.

use super::hot::PlacedOnHot;
use firstcome::core::points::Kind;
use std::collections::BTreeMap;

/// The content of the store after a run. Numbers are signed, so that one below 0 is seen.
pub(super) struct Facts {
    /// The points of every bidder at first.
    pub(super) points: i64,
    /// How many bids were accepted by an answer.
    pub(super) accepted: u64,
    /// The accepted bids whose answers were kept.
    pub(super) told: Vec<PlacedOnHot>,
    /// How many bids had no answer.
    pub(super) may_be_done: u64,
    /// The listing's own number of bids, and its highest one.
    pub(super) bids: i64,
    pub(super) highest: Option<(usize, i64)>,
    /// All bids in the order of their numbers.
    pub(super) placed: Vec<PlacedOnHot>,
    /// The wallet of each bidder.
    pub(super) wallets: Vec<AuditedWallet>,
}

/// The points of one bidder, and all its records in order.
#[derive(Clone, Default)]
pub(super) struct AuditedWallet {
    pub(super) total: i64,
    pub(super) held: i64,
    pub(super) records: Vec<Entry>,
}

/// One record.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) number: i64,
    pub(super) kind: Option<Kind>,
    pub(super) amount: i64,
    pub(super) bid: Option<u32>,
    pub(super) total: i64,
    pub(super) held: i64,
}

/// Returns the first finding, if anything is wrong.
pub(super) fn finding(facts: &Facts) -> Option<String> {
    bids(facts).or_else(|| told(facts)).or_else(|| points(facts))
}

/// Checks that the bids are 1..count and rise, that no bidder outbids itself, and that the listing shows the last one.
fn bids(facts: &Facts) -> Option<String> {
    let placed = &facts.placed;
    if let Some((at, bid)) = placed.iter().enumerate().find(|(at, bid)| bid.number as usize != at + 1) {
        return Some(format!("bid {} is in place {}", bid.number, at + 1));
    }
    for pair in placed.windows(2) {
        if pair[1].price <= pair[0].price {
            return Some(format!("bid {} is not above the one before it", pair[1].number));
        }
        if pair[1].bidder == pair[0].bidder {
            return Some(format!("bid {} outbids its own bidder", pair[1].number));
        }
    }
    let last = placed.last().map(|bid| (bid.bidder, bid.price.cast_signed()));
    let differs = facts.highest != last || facts.bids != placed.len() as i64;
    differs.then(|| format!("the listing says {:?} after {} bids, its bids {last:?}", facts.highest, facts.bids))
}

/// Checks that every acknowledged bid is there once, unchanged, and no other bid except those without an answer.
fn told(facts: &Facts) -> Option<String> {
    let mut numbers = vec![false; facts.placed.len()];
    for told in &facts.told {
        let there = facts.placed.get((told.number as usize).wrapping_sub(1));
        if there != Some(told) {
            return Some(format!("bid {} was told and is lost", told.number));
        }
        if std::mem::replace(&mut numbers[told.number as usize - 1], true) {
            return Some(format!("bid {} was told twice", told.number));
        }
    }
    let there = facts.placed.len() as u64;
    let sound = (facts.accepted..=facts.accepted + facts.may_be_done).contains(&there);
    (!sound).then(|| format!("{there} bids are there, {} were told", facts.accepted))
}

/// Checks that each bid is held once and released once, except for the highest; balances follow from records, and none
/// is negative.
fn points(facts: &Facts) -> Option<String> {
    let mut holds: BTreeMap<u32, [u32; 2]> = BTreeMap::new();
    for (bidder, wallets) in facts.wallets.iter().enumerate() {
        if let Some(finding) = replay(facts, bidder, wallets, &mut holds) {
            return Some(format!("bidder {bidder}: {finding}"));
        }
    }
    for bid in &facts.placed {
        let ends = u32::from((bid.number as usize) < facts.placed.len());
        if holds.remove(&bid.number) != Some([1, ends]) {
            return Some(format!("bid {} is not held once and released once it was outbid", bid.number));
        }
    }
    holds.keys().next().map(|bid| format!("points were held for bid {bid}, which is not there"))
}

fn replay(
    facts: &Facts,
    bidder: usize,
    wallets: &AuditedWallet,
    holds: &mut BTreeMap<u32, [u32; 2]>,
) -> Option<String> {
    let (mut total, mut held) = (0, 0);
    for (at, entry) in wallets.records.iter().enumerate() {
        let bid = entry.bid.and_then(|bid| facts.placed.get((bid as usize).wrapping_sub(1)));
        let backs = bid.is_some_and(|bid| (bid.bidder, bid.price.cast_signed()) == (bidder, entry.amount));
        match entry.kind {
            Some(Kind::Charge) => total += entry.amount,
            Some(Kind::Hold) if backs => held += entry.amount,
            Some(Kind::Release) if backs => held -= entry.amount,
            _ => return Some(format!("record {} backs no bid of theirs", entry.number)),
        }
        if let Some(bid) = entry.bid {
            holds.entry(bid).or_default()[usize::from(entry.kind == Some(Kind::Release))] += 1;
        }
        if entry.number != at as i64 + 1 {
            return Some(format!("record {} is in place {}", entry.number, at + 1));
        }
        if (entry.total, entry.held) != (total, held) || held < 0 || total < held {
            return Some(format!("after record {} there are {} points, {} held", at + 1, entry.total, entry.held));
        }
    }
    let backed = facts.highest.map_or(0, |(highest, price)| if highest == bidder { price } else { 0 });
    if (wallets.total, wallets.held) != (total, held) || total != facts.points {
        return Some(format!("{} points and {} held are not the sum of the records", wallets.total, wallets.held));
    }
    (held != backed).then(|| format!("{held} are held for a bid of {backed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: i64, kind: Kind, amount: i64, bid: Option<u32>, held: i64) -> Entry {
        Entry { number, kind: Some(kind), amount, bid, total: 100, held }
    }

    /// Returns a correct auction of two bidders and three bids: 1, 2, 3 points, in turns.
    fn sound() -> Facts {
        let placed: Vec<PlacedOnHot> = (1..=3)
            .map(|number| PlacedOnHot { number, bidder: (number as usize - 1) % 2, price: number.into() })
            .collect();
        let ann = vec![
            entry(1, Kind::Charge, 100, None, 0),
            entry(2, Kind::Hold, 1, Some(1), 1),
            entry(3, Kind::Release, 1, Some(1), 0),
            entry(4, Kind::Hold, 3, Some(3), 3),
        ];
        let bob = vec![
            entry(1, Kind::Charge, 100, None, 0),
            entry(2, Kind::Hold, 2, Some(2), 2),
            entry(3, Kind::Release, 2, Some(2), 0),
        ];
        Facts {
            points: 100,
            accepted: 3,
            told: placed.clone(),
            may_be_done: 0,
            bids: 3,
            highest: Some((0, 3)),
            placed,
            wallets: vec![
                AuditedWallet { total: 100, held: 3, records: ann },
                AuditedWallet { total: 100, held: 0, records: bob },
            ],
        }
    }

    #[test]
    fn an_auction_that_went_right_has_no_finding() {
        assert_eq!(finding(&sound()), None);
        let silent = Facts { told: Vec::new(), accepted: 2, may_be_done: 1, ..sound() };
        assert_eq!(finding(&silent), None);
    }

    #[track_caller]
    fn finds(damage: impl FnOnce(&mut Facts), says: &str) {
        let mut facts = sound();
        damage(&mut facts);
        let found = finding(&facts).unwrap_or_else(|| panic!("not found: {says}"));
        assert!(found.contains(says), "{found}");
    }

    #[test]
    fn each_damage_is_found() {
        finds(|facts| facts.placed[1].number = 3, "is in place");
        finds(|facts| facts.placed[2].price = 2, "not above the one before");
        finds(|facts| facts.placed[1].bidder = 0, "outbids its own bidder");
        finds(|facts| facts.highest = Some((0, 2)), "the listing says");
        finds(|facts| facts.bids = 2, "the listing says");
        finds(|facts| facts.told[1].price = 7, "told and is lost");
        finds(|facts| facts.told[1].number = 4, "told and is lost");
        finds(|facts| facts.told[1] = facts.told[0], "told twice");
        finds(|facts| facts.accepted = 2, "were told");
        finds(|facts| facts.accepted = 4, "were told");
        finds(|facts| facts.wallets[1].records.truncate(2), "not the sum");
        finds(|facts| facts.wallets[0].records[3].held = 2, "after record 4");
        finds(|facts| facts.wallets[0].records[3].number = 5, "record 5 is in place 4");
        finds(|facts| facts.wallets[0].records[1].amount = 2, "backs no bid of theirs");
        finds(|facts| facts.wallets[0].records[1].kind = None, "backs no bid of theirs");
        finds(|facts| facts.wallets[1].held = 2, "not the sum");
        finds(|facts| facts.wallets[1].total = 99, "not the sum");
        finds(|facts| facts.points = 99, "not the sum");
    }

    #[test]
    fn a_hold_that_no_member_gave_back_and_one_given_back_twice_are_found() {
        finds(
            |facts| {
                facts.wallets[1].records.truncate(2);
                facts.wallets[1].held = 2;
            },
            "2 are held for a bid of 0",
        );
        finds(
            |facts| {
                facts.wallets[1].records.push(entry(4, Kind::Release, 2, Some(2), -2));
                facts.wallets[1].held = -2;
            },
            "after record 4",
        );
        finds(
            |facts| {
                facts.wallets[1]
                    .records
                    .extend([entry(4, Kind::Hold, 2, Some(2), 2), entry(5, Kind::Release, 2, Some(2), 0)]);
            },
            "not held once",
        );
    }
}
