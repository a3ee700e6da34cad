//! How each listing stood at each moment, by the rules of [`super::rules`]: between the rows of two commits too.
//!
//! A commit shows a listing once, at its end, and its bids one by one. Settings that came in between are
//! known from who asked for them; so each step leads from all standings that are possible to all that are possible
//! after it, and a row must be one of them.

use super::history::{AuctionReply, Command, History};
use super::ledger::Ledger;
use super::rules::ListingRules;
use crate::history::Event;
use crate::journal::Commit;
use firstcome_core::auction::{ListingSettings, ListingStanding, PlacedBid};
use firstcome_core::id::ListingName;
use firstcome_core::time::Timestamp;
use firstcome_store::embedded::journal::Change;
use std::collections::BTreeMap;

/// How a listing stood, or may have stood in the middle of a commit.
#[derive(Debug)]
pub struct Moment {
    /// Since when, by event and clock.
    pub since: (Event, Timestamp),
    /// How.
    pub listing: ListingRules,
}

/// The moments of all listings.
#[derive(Debug, Default)]
pub struct Replay {
    /// By name.
    pub moments: BTreeMap<ListingName, Vec<Moment>>,
    /// What in the log does not follow from what was before it.
    pub breaches: Vec<String>,
}

/// A listing within a commit.
struct Step<'a> {
    puts: Vec<&'a ListingSettings>,
    /// Nothing before it was made.
    possible: Vec<Option<ListingRules>>,
    /// How it was stored last, and its version then.
    before: Option<(ListingRules, u64)>,
    fence: u64,
}

impl Replay {
    /// Plays the log again.
    pub fn play(history: &History, log: &[Commit], ledger: &Ledger) -> Self {
        let mut replay = Self::default();
        let mut last: BTreeMap<ListingName, (ListingRules, u64)> = BTreeMap::new();
        for commit in log {
            let mut steps: BTreeMap<&ListingName, Step<'_>> = BTreeMap::new();
            for change in &commit.changes {
                let (Change::Bid { id, .. } | Change::Listing { id, .. }) = change else { continue };
                let Some(name) = ledger.names.get(id) else { continue };
                let step = steps.entry(name).or_insert_with(|| {
                    let before = last.get(name).cloned();
                    let (listing, fence) = before.clone().unzip();
                    let puts = puts_during(history, name, commit.in_force.0);
                    let mut step = Step { puts, possible: vec![listing], before, fence: fence.unwrap_or(0) };
                    step.close(commit.at.wall);
                    replay.note(name, commit, &step.possible);
                    step
                });
                let judged = match change {
                    Change::Bid { placed, .. } => step.bid(placed, commit.at.wall),
                    Change::Listing { standing, .. } => step.row(standing),
                    _ => Ok(()),
                };
                if let Err(breach) = judged {
                    replay.breaches.push(format!("{name}: {breach}"));
                }
                replay.note(name, commit, &step.possible);
                if let Change::Listing { standing, .. } = change
                    && let Some(step) = steps.remove(name)
                {
                    last.insert(name.clone(), (ListingRules::of(standing), step.fence));
                }
            }
            let rowless = steps.keys().map(|name| format!("{name}: a bid is stored, and how it stands is not"));
            replay.breaches.extend(rowless);
        }
        replay
    }

    fn note(&mut self, name: &ListingName, commit: &Commit, possible: &[Option<ListingRules>]) {
        let moments = self.moments.entry(name.clone()).or_default();
        for listing in possible.iter().flatten() {
            if moments.last().is_none_or(|last| last.listing != *listing) {
                moments.push(Moment { since: commit.in_force, listing: listing.clone() });
            }
        }
    }

    /// How a listing can have stood between two events, and between which instants.
    pub fn during(
        &self,
        name: &ListingName,
        (from, from_at): (Event, Timestamp),
        (to, to_at): (Event, Timestamp),
    ) -> impl Iterator<Item = (&ListingRules, Timestamp, Timestamp)> {
        let moments = self.moments.get(name).map_or(&[][..], Vec::as_slice);
        let first = moments.iter().rposition(|moment| moment.since.0 < from).unwrap_or(0);
        moments[first..].iter().enumerate().filter_map(move |(at, moment)| {
            let next_at = moments[first..].get(at + 1).map_or(Timestamp::MAX, |next| next.since.1);
            let (lo, hi) = (moment.since.1.max(from_at), next_at.min(to_at));
            (moment.since.0 < to && lo <= hi).then_some((&moment.listing, lo, hi))
        })
    }
}

/// The settings that may have come in between, in a commit that came into force in this event.
fn puts_during<'a>(history: &'a History, name: &ListingName, event: Event) -> Vec<&'a ListingSettings> {
    let puts = history.operations().iter().filter_map(|operation| match &operation.command {
        Command::Put(listing, settings) if listing == name => Some((operation, settings.as_ref())),
        _ => None,
    });
    let may_count = puts.filter(|(put, _)| {
        put.asked < event
            && event <= put.end()
            && (put.is_unclear() || matches!(put.told(), Some(AuctionReply::Put(_))))
    });
    may_count.map(|(_, settings)| settings).collect()
}

impl Step<'_> {
    /// Adds what any of the settings lead to.
    fn close(&mut self, now: Timestamp) {
        let mut at = 0;
        while at < self.possible.len() {
            for settings in &self.puts {
                let led = match &self.possible[at] {
                    Some(listing) => listing.put(settings, now),
                    None => ListingRules::new(settings, now),
                };
                if let Some(listing) = led.ok().map(Some).filter(|listing| !self.possible.contains(listing)) {
                    self.possible.push(listing);
                }
            }
            at += 1;
        }
    }

    fn bid(&mut self, placed: &PlacedBid, now: Timestamp) -> Result<(), String> {
        let bid = &placed.bid;
        let mut breach = format!("bid {} is of no listing", bid.number);
        let mut after: Vec<Option<ListingRules>> = Vec::new();
        for listing in self.possible.iter().flatten() {
            match listing.bid(bid) {
                Ok(led) if led.end == placed.effective_ends_at => after.push(Some(led)),
                Ok(led) => {
                    let (found, wanted) = (placed.effective_ends_at.as_us(), led.end.as_us());
                    breach = format!("bid {} led to the end {found}, and accepted bids lead to {wanted}", bid.number);
                }
                Err(refused) => breach = refused,
            }
        }
        let rises = std::mem::replace(&mut self.fence, placed.fence) < placed.fence;
        let found = if after.is_empty() { Err(breach) } else { Ok(()) };
        if after.is_empty() {
            // As if it had been right: one finding is enough.
            let forced = self.possible.iter().flatten().next().map(|listing| ListingRules {
                bids: bid.number,
                highest: Some(bid.clone()),
                end: placed.effective_ends_at,
                ..listing.clone()
            });
            after.push(forced);
        }
        self.possible = after;
        self.close(now);
        found?;
        if bid.at != now {
            return Err(format!("bid {} is of {}, and was judged at {}", bid.number, bid.at.as_us(), now.as_us()));
        }
        if rises { Ok(()) } else { Err(format!("the fence of bid {} does not rise", bid.number)) }
    }

    fn row(&mut self, standing: &ListingStanding) -> Result<(), String> {
        let row = ListingRules::of(standing);
        let is_changed = self.before.as_ref().is_none_or(|(before, _)| *before != row);
        let same_version = self.before.as_ref().is_some_and(|(_, version)| *version == standing.version);
        let is_led_to = self.possible.iter().flatten().any(|listing| listing.is_but_for_sale(&row));
        let fence = std::mem::replace(&mut self.fence, standing.version);
        let possible = std::mem::replace(&mut self.possible, vec![Some(row)]);
        if !is_led_to {
            let row = &self.possible;
            return Err(format!("it stands as {row:?}, and bids and settings lead to {possible:?}"));
        }
        let stands = standing.version < fence || (is_changed && same_version);
        if stands { Err(format!("it was changed, and its version is {}", standing.version)) } else { Ok(()) }
    }
}
