//! What was read was in force at some moment of the question, and all of it at the same one.

use crate::auction::history::Operation;
use crate::auction::ledger::{Ledger, ListingStory, MemberStory};
use crate::history::Event;
use firstcome_core::auction::{Bid, ListingStanding, ListingState, Phase};
use firstcome_core::points::{Balance, Record};
use firstcome_core::time::Timestamp;
use firstcome_store::{ListingView, Numbered};

pub(super) fn view_is_in_force(
    operation: &Operation,
    view: &ListingView,
    listing: Option<&ListingStory>,
) -> Result<(), String> {
    let Some(story) = listing else { return Err("it was shown, and is not stored".into()) };
    let before = story.row_before(operation.asked);
    let during = story.rows.iter().filter(|row| operation.spans(row.in_force.0));
    if !before.into_iter().chain(during).any(|row| row.standing == view.standing) {
        return Err(format!("it was shown as {:?}, and did not stand so while it was asked", view.standing));
    }
    // A view of a listing that is over shows the winner, so no bid may come out afterwards.
    let is_over = !matches!(view.standing.state(view.now), ListingState::Scheduled | ListingState::Running);
    let bids = story.bids.len();
    if is_over && bids != view.standing.bids as usize {
        return Err(format!("it was shown as over with {} bids, and has {bids}", view.standing.bids));
    }
    if operation.asked_at <= view.now && view.now <= operation.ended_at {
        return Ok(());
    }
    Err(format!("it was shown as of {}, when no request was under way", view.now.as_us()))
}

pub(super) fn balance_is_in_force(
    operation: &Operation,
    balance: Balance,
    member: Option<&MemberStory>,
) -> Result<(), String> {
    let rows = member.map_or(&[][..], |story| &story.rows);
    let before = rows.iter().rev().find(|(event, _)| *event < operation.asked);
    let before = before.map_or(Balance::default(), |(_, balance)| *balance);
    let mut during = rows.iter().filter(|(event, _)| operation.spans(*event)).map(|(_, balance)| *balance);
    if before == balance || during.any(|found| found == balance) {
        return Ok(());
    }
    Err(format!("{balance:?} was told, and was not so while it was asked"))
}

pub(super) fn bids_are_in_force(
    operation: &Operation,
    asked: (Option<u64>, usize),
    page: &Numbered<Bid>,
    listing: Option<&ListingStory>,
) -> Result<(), String> {
    let Some(story) = listing else { return Err("bids were told, and nothing is stored".into()) };
    let stored: Vec<(Event, &Bid)> = story.bids.iter().map(|stored| (stored.event, &stored.placed.bid)).collect();
    is_in_force(operation, asked, page, &stored, |bid| bid.number.into())
}

pub(super) fn records_are_in_force(
    operation: &Operation,
    asked: (Option<u64>, usize),
    page: &Numbered<Record>,
    member: Option<&MemberStory>,
) -> Result<(), String> {
    let records = member.map_or(&[][..], |story| &story.records);
    let stored: Vec<(Event, &Record)> = records.iter().map(|stored| (stored.event, &stored.record)).collect();
    is_in_force(operation, asked, page, &stored, |record| record.number)
}

/// A page must be what some moment of the question would have shown.
fn is_in_force<T: PartialEq + std::fmt::Debug>(
    operation: &Operation,
    (after, count): (Option<u64>, usize),
    page: &Numbered<T>,
    stored: &[(Event, &T)],
    number: impl Fn(&T) -> u64,
) -> Result<(), String> {
    let least = stored.iter().filter(|(event, _)| *event < operation.asked).count();
    let most = stored.iter().filter(|(event, _)| *event < operation.end()).count();
    let is_page_of = |known: usize| {
        let later = stored[..known].iter().filter(|(_, item)| after.is_none_or(|after| after < number(item)));
        let items: Vec<&T> = later.map(|(_, item)| *item).collect();
        let shown = &items[..count.min(items.len())];
        let next = shown.last().filter(|_| count < items.len()).map(|item| number(item));
        page.next == next && page.items.iter().eq(shown.iter().copied())
    };
    if (least..=most).any(is_page_of) {
        return Ok(());
    }
    Err(format!("{} items were told, which were never in force so while they were asked", page.items.len()))
}

/// After a tick nothing stands open that was due when it was asked for.
pub(super) fn due_is_closed(operation: &Operation, ledger: &Ledger) -> Result<(), String> {
    for (name, story) in &ledger.listings {
        let was_due = story.row_before(operation.asked).is_some_and(|row| is_due(&row.standing, operation.asked_at));
        let is_closed = || {
            let now = story.row_before(operation.end());
            now.is_some_and(|row| !is_due(&row.standing, operation.asked_at))
        };
        if was_due && !is_closed() {
            return Err(format!("{name} was due, and was not closed"));
        }
    }
    Ok(())
}

fn is_due(standing: &ListingStanding, now: Timestamp) -> bool {
    match standing.phase {
        Phase::Open => standing.auction_terms().is_some() && standing.effective_ends_at < now,
        Phase::Ended(_) => standing.settles_until().is_some_and(|until| until < now),
        Phase::Sold(_) | Phase::Unsold(_) => false,
    }
}
