//! Checks the points: never more held than there are, and none created or lost.

use super::super::CheckCounter;
use super::books::Books;
use super::{seconds, who};
use crate::drill::auction::record::Kind;
use crate::drill::facts::AuditCheck;

/// Checks that no member ever owes points, or has more held than in total.
pub(super) fn never_overdrawn(books: &Books<'_>) -> AuditCheck {
    let says = "at no time has a member less than nothing, or more held than there is, and the points held back the bids that stand";
    let mut counter = CheckCounter::new("never_overdrawn", says);
    let mut backs = vec![0_i64; books.history.records.len()];
    for (at, _, bids) in books.listings() {
        for bid in bids {
            let of_bid = |kind: Kind| books.about_bid(at, bid.number).iter().any(|owned| owned.record.kind == kind);
            if let Some(held) = backs.get_mut(bid.bidder as usize)
                && !of_bid(Kind::Release)
                && !of_bid(Kind::Capture)
            {
                *held += i64::try_from(bid.price).unwrap_or(i64::MAX);
            }
        }
    }
    for (member, backed) in (0..).zip(backs) {
        let wallets = books.wallets(member);
        for wallet in &wallets[1..] {
            let fine = 0 <= wallet.available && wallet.available <= wallet.total;
            counter.check(fine, || {
                format!(
                    "{} has {} and {} to spend at {}",
                    who(member),
                    wallet.total,
                    wallet.available,
                    seconds(wallet.at_us)
                )
            });
        }
        let held = wallets.last().map_or(0, |wallet| wallet.total - wallet.available);
        counter.check(held == backed, || format!("{} has {held} held for bids of {backed}", who(member)));
    }
    counter.done()
}

/// Checks that each balance is the sum of its records.
pub(super) fn balance_is_sum(books: &Books<'_>) -> AuditCheck {
    let mut counter =
        CheckCounter::new("balance_is_sum", "every balance at the end is the sum of the member's records");
    for (member, balance) in (0..).zip(&books.history.balances) {
        let sum = books.wallets(member).last().map_or((0, 0), |wallet| (wallet.total, wallet.available));
        counter.check((balance.total, balance.available) == sum, || {
            format!("{} has {balance:?}, and the records come to {sum:?}", who(member))
        });
    }
    counter.done()
}

/// Checks that the totals of all members are the charges less the refunds: a sale moves points between members.
pub(super) fn points_conserved(books: &Books<'_>) -> AuditCheck {
    let says =
        "all totals together are what was charged less what was refunded: a sale moves points from one to another";
    let mut counter = CheckCounter::new("points_conserved", says);
    let transfers =
        books.history.records.iter().flatten().filter(|record| matches!(record.kind, Kind::Charge | Kind::Refund));
    let charged: i128 = transfers.map(|record| i128::from(record.total_delta)).sum();
    let totals: i128 = books.history.balances.iter().map(|balance| i128::from(balance.total)).sum();
    counter.check(charged == totals, || format!("{charged} were charged and not refunded, and there are {totals}"));
    for (at, ..) in books.listings() {
        let moved: i64 = books.about(at).map(|owned| owned.record.total_delta).sum();
        counter.check(moved == 0, || format!("l{at} made {moved} points"));
    }
    counter.done()
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    #[test]
    fn points_are_neither_made_nor_lost() {
        let mut story = Story::new();
        story.charge(1, 100, 1).charge(2, 100, 1).bid(1, 10, 100).bid(2, 15, 200);
        story.balances();
        let breaches = |story: &Story| {
            let books = story.books();
            (never_overdrawn(&books).breaches, balance_is_sum(&books).breaches, points_conserved(&books).breaches)
        };
        assert_eq!(breaches(&story), (0, 0, 0));
        let mut poor = story.clone();
        poor.bid(1, 101, 300);
        poor.balances();
        assert_eq!(breaches(&poor), (1, 0, 0), "more is held than there is");
        let mut gone = story.clone();
        gone.history.balances[1].total -= 1;
        assert_eq!(breaches(&gone), (0, 1, 1));
        let mut made = story;
        made.record(0, Kind::Sold, 5, 300, 0);
        made.balances();
        assert_eq!(breaches(&made), (0, 0, 2));
    }
}
