//! Invariant 12: points are conserved and never negative, at every commit.
//!
//! The records on disk are played again. Each must follow from those before it, a balance must be the sum of its
//! records, and all balances together must be what was charged less what was refunded.

use super::{AuctionEvidence, Violation};
use crate::journal::Commit;
use firstcome_core::points::{Kind, Record, Wallet};
use firstcome_store::embedded::journal::{Change, MemberId};
use std::collections::{BTreeMap, BTreeSet};

const NAME: &str = "points_conserved";

/// Looks for points that came from nowhere, or went there.
pub fn check(evidence: &AuctionEvidence<'_>) -> Result<(), Violation> {
    let mut played = Played::default();
    for commit in evidence.log {
        played.take(commit).map_err(|detail| Violation::new(NAME, evidence.seed, detail))?;
    }
    Ok(())
}

/// What the records up to a commit lead to.
#[derive(Default)]
struct Played {
    wallets: BTreeMap<MemberId, Wallet>,
    /// Total and available of each, from the deltas alone.
    sums: BTreeMap<MemberId, (i128, i128)>,
    outside: i128,
}

impl Played {
    fn take(&mut self, commit: &Commit) -> Result<(), String> {
        let mut moved: BTreeSet<MemberId> = BTreeSet::new();
        for change in &commit.changes {
            match change {
                Change::Moved { id, record, .. } => {
                    self.play(*id, record)?;
                    moved.insert(*id);
                }
                Change::Member { id, wallet } => {
                    if self.wallets.get(id) != Some(wallet.as_ref()) {
                        return Err(format!("{}: what is stored is not what the records lead to", wallet.member));
                    }
                    moved.remove(id);
                }
                _ => {}
            }
        }
        if let Some(id) = moved.first() {
            return Err(format!("member number {}: points moved, and the balance was not stored", id.0));
        }
        let inside: i128 = self.sums.values().map(|(total, _)| total).sum();
        if inside == self.outside {
            return Ok(());
        }
        Err(format!("{inside} points in all balances, and {} came in and stayed", self.outside))
    }

    fn play(&mut self, id: MemberId, record: &Record) -> Result<(), String> {
        let here = || format!("{}, record {}", record.member, record.number);
        let wallet = self.wallets.entry(id).or_insert_with(|| Wallet::empty(record.member.clone()));
        if wallet.member != record.member {
            return Err(format!("{}: stored with those of {}", here(), wallet.member));
        }
        let (total_delta, available_delta) = record.kind.deltas(record.amount);
        let (total, available) = self.sums.entry(id).or_default();
        *total += i128::from(total_delta);
        *available += i128::from(available_delta);
        if *available < 0 || *total < *available {
            return Err(format!("{}: {available} of {total} points are available", here()));
        }
        let balance = (i128::from(record.balance.total()), i128::from(record.balance.available()));
        if balance != (*total, *available) {
            return Err(format!("{}: says {balance:?}, and the sums are {:?}", here(), (total, available)));
        }
        wallet.restore(record).map_err(|damage| format!("{}: {}", here(), damage.as_str()))?;
        if matches!(record.kind, Kind::Charge | Kind::Refund) {
            self.outside += i128::from(total_delta);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::auction_story::{Story, member};
    use super::{AuctionEvidence, Violation};
    use crate::auction::ledger::Ledger;
    use firstcome_core::points::{Balance, Kind};

    /// It reads the log alone.
    fn check(evidence: &AuctionEvidence<'_>, _: &Ledger) -> Result<(), Violation> {
        super::check(evidence)
    }

    #[test]
    fn charges_refunds_and_a_sale_are_clean() {
        let mut story = Story::auction();
        story.charge("ann", 50).refund("ann", 5).bid("ann", 10).outbid("bob", 20, 50).pass_ms(10_001).sold("bob");
        story.assert_clean(check);
    }

    #[test]
    fn points_that_come_from_nowhere_are_found() {
        let mut story = Story::auction();
        story.charge("ann", 50).moved("ann", Kind::Sold, 20);
        story.assert_found(check, "70 points in all balances, and 50 came in");
        let mut story = Story::auction();
        story.charge("ann", 50).moved("ann", Kind::Purchase, 20);
        story.assert_found(check, "30 points in all balances");
    }

    #[test]
    fn a_record_that_was_changed_left_out_or_told_twice_is_found() {
        let mut story = Story::auction();
        story.charge("ann", 50).charge("ann", 10).edit_record(1, |record| record.at = record.at.plus_ms(1));
        story.assert_found(check, "changed after it was written");
        let mut story = Story::auction();
        story.charge("ann", 50).charge("ann", 10).remove_commit(1);
        story.assert_found(check, "the sums are (10, 10)");
        let mut story = Story::auction();
        story.charge("ann", 50).repeat_commit();
        story.assert_found(check, "the sums are (100, 100)");
    }

    #[test]
    fn a_balance_that_is_not_the_sum_of_its_records_is_found() {
        let mut story = Story::auction();
        story.charge("ann", 50).edit_record(1, |record| record.balance = Balance::new(51, 0).unwrap());
        story.assert_found(check, "says (51, 51), and the sums are (50, 50)");
        let mut story = Story::auction();
        story.charge("ann", 50).edit_record(1, |record| record.kind = Kind::Refund);
        story.assert_found(check, "-50 of -50 points are available");
        let mut story = Story::auction();
        story.charge("ann", 50).charge("ann", 10).edit_record(2, |record| record.member = member("bob"));
        story.assert_found(check, "stored with those of ann");
        let mut story = Story::auction();
        story.charge("ann", 50).edit_member(|wallet| wallet.balance = Balance::new(51, 0).unwrap());
        story.assert_found(check, "not what the records lead to");
        let mut story = Story::auction();
        story.charge("ann", 50).edit_member(|wallet| wallet.chain.0[0] ^= 1);
        story.assert_found(check, "not what the records lead to");
    }

    #[test]
    fn half_a_commit_is_found() {
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).outbid("bob", 20, 50).pass_ms(10_001).sold("bob").cut_commit(2);
        story.assert_found(check, "the balance was not stored");
    }
}
