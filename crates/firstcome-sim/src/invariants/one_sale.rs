//! Invariant 13, of sales: one winner, one sale, closed once, and nothing changes after it.
//!
//! - A listing goes from open over ended to sold or unsold, and never back. Once it is sold or unsold no row, no bid and
//!   no payment of it is written any more.
//! - An auction is closed after its effective end; the winner is the highest bidder, at the price of that bid. It is
//!   unsold if no client bid, or once the winner's time is over, and not before.
//! - What was sold was paid for once, by the buyer, to the owner, in the commit of the sale; nothing else was.

use super::{AuctionEvidence, Violation};
use crate::auction::ledger::Ledger;
use crate::journal::Commit;
use firstcome_core::auction::{ListingStanding, Phase, Sale};
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::Kind;
use firstcome_core::time::Timestamp;
use firstcome_store::embedded::journal::Change;
use std::collections::BTreeMap;

const NAME: &str = "one_sale";

type Payments<'a> = Vec<(Kind, &'a MemberName, u64)>;

/// Looks for a second sale, a wrong winner, and a change after the end.
pub fn check(evidence: &AuctionEvidence<'_>, ledger: &Ledger) -> Result<(), Violation> {
    let mut last: BTreeMap<&ListingName, &ListingStanding> = BTreeMap::new();
    for commit in evidence.log {
        take(commit, ledger, &mut last).map_err(|detail| Violation::new(NAME, evidence.seed, detail))?;
    }
    Ok(())
}

fn take<'a>(
    commit: &'a Commit,
    ledger: &'a Ledger,
    last: &mut BTreeMap<&'a ListingName, &'a ListingStanding>,
) -> Result<(), String> {
    let mut payments: BTreeMap<&ListingName, Payments<'_>> = BTreeMap::new();
    for change in &commit.changes {
        match change {
            Change::Bid { id, placed, .. } => {
                let Some(name) = ledger.names.get(id) else { continue };
                if last.get(name).is_some_and(|standing| standing.phase != Phase::Open) {
                    return Err(format!("{name}: bid {} was accepted after the close", placed.bid.number));
                }
            }
            Change::Moved { record, .. } if matches!(record.kind, Kind::Purchase | Kind::Sold) => {
                let Some(about) = &record.about else {
                    return Err(format!("{}: a payment for nothing", record.member));
                };
                let payment = (record.kind, &record.member, record.amount.get());
                payments.entry(&about.listing).or_default().push(payment);
            }
            Change::Listing { standing, .. } => {
                let before = last.insert(&standing.name, standing);
                let judged = follows(before, standing, commit.at.wall)
                    .and_then(|sale| paid(standing, sale, &payments.remove(&standing.name).unwrap_or_default()));
                judged.map_err(|detail| format!("{}: {detail}", standing.name))?;
            }
            _ => {}
        }
    }
    match payments.first_key_value() {
        Some((name, _)) => Err(format!("{name}: paid for without a sale")),
        None => Ok(()),
    }
}

/// Whether a row may follow another, and the sale if it is the one that says it.
fn follows<'a>(
    before: Option<&ListingStanding>,
    standing: &'a ListingStanding,
    now: Timestamp,
) -> Result<Option<&'a Sale>, String> {
    let phase = &standing.phase;
    match before.map(|before| &before.phase) {
        Some(Phase::Sold(_) | Phase::Unsold(_)) if before != Some(standing) => {
            return Err(format!("changed after its end: {before:?} became {standing:?}"));
        }
        Some(Phase::Sold(_) | Phase::Unsold(_)) => return Ok(None),
        Some(Phase::Ended(at))
            if !matches!(phase, Phase::Sold(_) | Phase::Unsold(_)) && *phase != Phase::Ended(*at) =>
        {
            return Err(format!("was closed at {}, and is {phase:?}", at.as_us()));
        }
        _ => {}
    }
    let end = standing.effective_ends_at;
    let is_auction = standing.auction_terms().is_some();
    let over = standing.settles_until().is_some_and(|until| until < now);
    match phase {
        Phase::Open => Ok(None),
        Phase::Ended(at) | Phase::Unsold(at) if !is_auction || *at <= end || now < *at => {
            Err(format!("closed at {}, and its end is {}", at.as_us(), end.as_us()))
        }
        Phase::Ended(_) if standing.highest.is_none() => Err("has a winner without a bid".into()),
        Phase::Ended(_) => Ok(None),
        Phase::Unsold(_) if standing.highest.is_some() && !over => {
            Err("unsold, and the winner has time to settle".into())
        }
        Phase::Unsold(_) => Ok(None),
        Phase::Sold(sale) => won(standing, sale, over).map(|()| Some(sale)),
    }
}

/// Whether this buyer may have bought, at that price and instant.
fn won(standing: &ListingStanding, sale: &Sale, over: bool) -> Result<(), String> {
    let Sale { buyer, price, at } = sale;
    if standing.auction_terms().is_none() {
        let right = *buyer != standing.owner && *price == standing.price && standing.starts_at <= *at;
        return if right { Ok(()) } else { Err(format!("sold as it is not for sale: {sale:?}")) };
    }
    let winner = standing.highest.as_ref().map(|bid| (&bid.bidder, bid.price));
    if winner != Some((buyer, *price)) {
        return Err(format!("sold to {buyer} for {}, and the highest bid is {winner:?}", price.get()));
    }
    if *at <= standing.effective_ends_at {
        return Err("sold before its end".into());
    }
    if over { Err("sold after the time to settle".into()) } else { Ok(()) }
}

fn paid(standing: &ListingStanding, sale: Option<&Sale>, payments: &Payments<'_>) -> Result<(), String> {
    let wanted: Payments<'_> = sale.map_or_else(Vec::new, |sale| {
        let price = sale.price.get();
        vec![(Kind::Purchase, &sale.buyer, price), (Kind::Sold, &standing.owner, price)]
    });
    if *payments == wanted { Ok(()) } else { Err(format!("payments were {payments:?}, and the sale is {sale:?}")) }
}

#[cfg(test)]
mod tests {
    use super::super::auction_story::Story;
    use super::check;
    use firstcome_core::auction::Phase;
    use firstcome_core::points::{Amount, Kind};
    use firstcome_core::time::Timestamp;

    fn won() -> Story {
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).outbid("bob", 20, 50).pass_ms(10_001);
        story
    }

    #[test]
    fn a_sale_with_and_without_a_close_before_it_is_clean() {
        let mut story = won();
        story.sold("bob");
        story.assert_clean(check);
        let mut story = won();
        story.ended().pass_ms(1).sold("bob").row(|_| ());
        story.assert_clean(check);
        let mut story = won();
        story.ended().pass_ms(5_000).defaulted();
        story.assert_clean(check);
    }

    #[test]
    fn a_wrong_winner_or_price_is_found() {
        let mut story = won();
        story.sold_for("ann", 20);
        story.assert_found(check, "sold to ann");
        let mut story = won();
        story.sold_for("bob", 10);
        story.assert_found(check, "for 10");
    }

    #[test]
    fn a_sale_before_the_end_or_after_the_time_to_settle_is_found() {
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).sold("ann");
        story.assert_found(check, "sold before its end");
        let mut story = won();
        story.pass_ms(5_000).sold("bob");
        story.assert_found(check, "after the time to settle");
    }

    #[test]
    fn a_change_after_the_end_is_found() {
        let mut story = won();
        story.sold("bob").row(|standing| standing.version += 1);
        story.assert_found(check, "changed after its end");
        let mut story = won();
        story.pass_ms(5_000).defaulted().row(|standing| standing.version += 1);
        story.assert_found(check, "changed after its end");
        let mut story = won();
        story.ended().row(|standing| standing.phase = Phase::Open);
        story.assert_found(check, "was closed at");
        let mut story = won();
        story.ended().charge("cid", 90).bid("cid", 30);
        story.assert_found(check, "accepted after the close");
    }

    #[test]
    fn a_close_before_the_end_is_found() {
        let mut story = Story::auction();
        story.charge("ann", 50).bid("ann", 10).ended();
        story.assert_found(check, "and its end is");
        let mut story = won();
        story.row(|standing| {
            standing.phase = Phase::Unsold(Timestamp::clamped_us(standing.last_at.as_us() + 20_000_000));
        });
        story.assert_found(check, "and its end is");
        let mut story = won();
        story.unsold();
        story.assert_found(check, "the winner has time to settle");
    }

    #[test]
    fn a_payment_that_is_missing_doubled_or_for_nothing_is_found() {
        let mut story = won();
        story.sold("bob").drop_records(Kind::Sold);
        story.assert_found(check, "payments were");
        let mut story = won();
        story.moved_for("bob", Kind::Purchase, 20, 0);
        story.assert_found(check, "without a sale");
        let mut story = won();
        story.sold("bob").edit_record_of(Kind::Purchase, |record| record.amount = Amount::new(1).unwrap());
        story.assert_found(check, "payments were");
    }

    #[test]
    fn a_payment_for_nothing_and_a_winner_without_a_bid_are_found() {
        let mut story = won();
        story.sold("bob").edit_record_of(Kind::Purchase, |record| record.about = None);
        story.assert_found(check, "a payment for nothing");
        let mut story = Story::auction();
        story.pass_ms(10_001).ended();
        story.assert_found(check, "a winner without a bid");
    }

    #[test]
    fn a_fixed_price_is_paid_by_another_client_than_the_owner() {
        let mut story = Story::fixed_price();
        story.charge("ann", 50).sold_for("ann", 10);
        story.assert_clean(check);
        let mut story = Story::fixed_price();
        story.charge("ann", 50).sold_for("ann", 11);
        story.assert_found(check, "as it is not for sale");
        let mut story = Story::fixed_price();
        story.charge("owner", 50).sold_for("owner", 10);
        story.assert_found(check, "as it is not for sale");
    }
}
