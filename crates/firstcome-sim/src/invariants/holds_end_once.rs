//! Invariant 13, of holds: what is held is what the highest bids of unsettled auctions need, and each hold ends once.
//!
//! - Every bid has a hold of its price, by its bidder, from the same commit; there are no others.
//! - A hold is open as long as its bid is the highest of an auction that is not settled. Then it is released, or
//!   captured if it is the one that was paid for; with its own amount, and never again.
//! - What is held of a member is the sum of its open holds.

use super::{AuctionEvidence, Violation};
use crate::auction::ledger::Ledger;
use crate::journal::Commit;
use firstcome_core::auction::{ListingStanding, Phase};
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::{Kind, Record};
use firstcome_store::embedded::journal::Change;
use std::collections::BTreeMap;

const NAME: &str = "holds_end_once";

/// Looks for a hold that should not be, or is not where one should be.
pub fn check(evidence: &AuctionEvidence<'_>, ledger: &Ledger) -> Result<(), Violation> {
    let mut books = Books::default();
    for commit in evidence.log {
        let judged = books.take(commit, ledger).and_then(|()| books.audit());
        judged.map_err(|detail| Violation::new(NAME, evidence.seed, detail))?;
    }
    Ok(())
}

struct Hold {
    member: MemberName,
    amount: u64,
    ended: Option<Kind>,
}

#[derive(Default)]
struct Books {
    holds: BTreeMap<(ListingName, u32), Hold>,
    listings: BTreeMap<ListingName, ListingStanding>,
    held: BTreeMap<MemberName, u64>,
}

impl Books {
    fn take(&mut self, commit: &Commit, ledger: &Ledger) -> Result<(), String> {
        let mut bids = Vec::new();
        for change in &commit.changes {
            match change {
                Change::Bid { id, placed, .. } => {
                    let name = ledger.names.get(id).ok_or("a bid of a listing that is nowhere")?;
                    bids.push((name, &placed.bid));
                }
                Change::Moved { listing, record, .. } => {
                    if listing.and_then(|id| ledger.names.get(&id)) != record.about.as_ref().map(|about| &about.listing)
                    {
                        let Record { member, number, .. } = record;
                        return Err(format!("{member}, record {number}: stored with another listing than it is about"));
                    }
                    self.play(record)?;
                }
                Change::Member { wallet, .. } => {
                    self.held.insert(wallet.member.clone(), wallet.balance.held());
                }
                Change::Listing { standing, .. } => {
                    self.listings.insert(standing.name.clone(), standing.as_ref().clone());
                }
                _ => {}
            }
        }
        for (name, bid) in bids {
            let hold = self.holds.get(&(name.clone(), bid.number));
            if hold.is_none_or(|hold| (&hold.member, hold.amount) != (&bid.bidder, bid.price.get())) {
                return Err(format!("{name}: bid {} is not backed by a hold", bid.number));
            }
        }
        Ok(())
    }

    fn play(&mut self, record: &Record) -> Result<(), String> {
        let (kind, amount) = (record.kind, record.amount.get());
        if !matches!(kind, Kind::Hold | Kind::Release | Kind::Capture) {
            return Ok(());
        }
        let here = format!("{}, record {}", record.member, record.number);
        let about = record.about.as_ref().and_then(|about| Some((about.listing.clone(), about.bid?)));
        let Some(bid) = about else { return Err(format!("{here}: a hold of no bid")) };
        let (name, number) = bid.clone();
        if kind == Kind::Hold {
            let hold = Hold { member: record.member.clone(), amount, ended: None };
            return match self.holds.insert(bid, hold) {
                None => Ok(()),
                Some(_) => Err(format!("{here}: {name}, bid {number} is held for twice")),
            };
        }
        let Some(hold) = self.holds.get_mut(&bid) else {
            return Err(format!("{here}: the hold of {name}, bid {number} ends and never began"));
        };
        if (&hold.member, hold.amount) != (&record.member, amount) {
            return Err(format!("{here}: the hold of {name}, bid {number} was another one"));
        }
        match hold.ended.replace(kind) {
            None => Ok(()),
            Some(_) => Err(format!("{here}: the hold of {name}, bid {number} ends twice")),
        }
    }

    /// Compares the holds with how listings stand and what members have, after a commit.
    fn audit(&self) -> Result<(), String> {
        let mut open: BTreeMap<&MemberName, u64> = BTreeMap::new();
        for ((name, number), hold) in &self.holds {
            let standing = self.listings.get(name);
            let highest = standing.filter(|standing| standing.bids == *number);
            let ended = match highest.map(|standing| &standing.phase) {
                Some(Phase::Open | Phase::Ended(_)) => None,
                Some(Phase::Sold(_)) => Some(Kind::Capture),
                Some(Phase::Unsold(_)) | None => Some(Kind::Release),
            };
            if hold.ended != ended {
                let (found, wanted) = (hold.ended.map(Kind::as_str), ended.map(Kind::as_str));
                let so = standing.map(|standing| (&standing.phase, standing.bids));
                return Err(format!("{name}, bid {number}: the hold ended by {found:?}, not {wanted:?}: {so:?}"));
            }
            if hold.ended.is_none() {
                *open.entry(&hold.member).or_default() += hold.amount;
            }
        }
        for (member, held) in &self.held {
            let needed = open.get(member).copied().unwrap_or(0);
            if *held != needed {
                return Err(format!("{member}: {held} points are held, and open holds are {needed}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::auction_story::Story;
    use super::check;
    use firstcome_core::points::{Balance, Kind};

    #[test]
    fn holds_that_pass_on_and_end_are_clean() {
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).outbid("bob", 20, 50).outbid("ann", 30, 0).pass_ms(10_001);
        story.ended().sold("ann");
        story.assert_clean(check);
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).pass_ms(15_001).defaulted();
        story.assert_clean(check);
    }

    #[test]
    fn a_hold_that_is_released_twice_is_found() {
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).outbid("bob", 20, 50).moved_for("ann", Kind::Hold, 10, 9);
        story.moved_for("ann", Kind::Release, 10, 1);
        story.assert_found(check, "the hold ended by None");
        story.remove_commit(5);
        story.assert_found(check, "ends twice");
    }

    #[test]
    fn a_hold_that_is_not_released_is_found() {
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).outbid("bob", 20, 50).drop_records(Kind::Release);
        story.assert_found(check, "the hold ended by None, not Some(\"RELEASE\")");
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).pass_ms(15_001).defaulted().drop_records(Kind::Release);
        story.assert_found(check, "the hold ended by None, not Some(\"RELEASE\")");
    }

    #[test]
    fn a_hold_that_ends_while_its_bid_stands_is_found() {
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).moved_for("ann", Kind::Release, 10, 1);
        story.assert_found(check, "the hold ended by Some(\"RELEASE\"), not None");
    }

    #[test]
    fn a_bid_without_a_hold_is_found() {
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).drop_records(Kind::Hold);
        story.assert_found(check, "not backed by a hold");
    }

    #[test]
    fn a_hold_of_another_amount_or_member_is_found() {
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).outbid("bob", 20, 50).moved_for("bob", Kind::Release, 20, 1);
        story.assert_found(check, "was another one");
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).moved_for("ann", Kind::Release, 10, 4);
        story.assert_found(check, "never began");
    }

    #[test]
    fn more_held_than_bids_need_is_found() {
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).edit_member(|wallet| wallet.balance = Balance::new(50, 11).unwrap());
        story.assert_found(check, "11 points are held, and open holds are 10");
    }

    #[test]
    fn half_a_commit_is_found() {
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).outbid("bob", 20, 50).cut_commit(2);
        story.assert_found(check, "bid 2: the hold ended by None");
    }

    #[test]
    fn a_hold_of_nothing_or_of_another_listing_or_twice_is_found() {
        let mut story = Story::auction();
        story.charge("ann", 50).moved_for("ann", Kind::Hold, 10, 0);
        story.assert_found(check, "a hold of no bid");
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).moved_for("ann", Kind::Hold, 10, 1);
        story.assert_found(check, "is held for twice");
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).edit_record_of(Kind::Hold, |record| record.about = None);
        story.assert_found(check, "stored with another listing");
    }
}
