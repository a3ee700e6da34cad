//! What the disk says happened: the rows of all listings and members in their order, read from the log of commits.

use crate::history::Event;
use crate::journal::Commit;
use firstcome_core::auction::{ListingStanding, PlacedBid};
use firstcome_core::id::{ListingName, MemberName, RequestId};
use firstcome_core::points::{Balance, Record};
use firstcome_core::time::Timestamp;
use firstcome_store::embedded::journal::{Change, ListingId};
use std::collections::BTreeMap;

/// A bid that is stored.
#[derive(Debug)]
pub struct StoredBid {
    /// Since when it is in force.
    pub event: Event,
    /// The bid.
    pub placed: PlacedBid,
    /// The request.
    pub request: Option<RequestId>,
}

/// A listing as it was stored once.
#[derive(Debug)]
pub struct StoredRow {
    /// Since when it is in force, by event and clock.
    pub in_force: (Event, Timestamp),
    /// When it was decided.
    pub at: Timestamp,
    /// How it stands.
    pub standing: ListingStanding,
    /// The request that bought it.
    pub sale_request: Option<RequestId>,
}

/// One listing.
#[derive(Debug, Default)]
pub struct ListingStory {
    /// How it stood, one row per commit that has changed it.
    pub rows: Vec<StoredRow>,
    /// Its bids in the order in which they were stored.
    pub bids: Vec<StoredBid>,
}

impl ListingStory {
    /// The row that was in force before an event.
    pub fn row_before(&self, event: Event) -> Option<&StoredRow> {
        self.rows.iter().rev().find(|row| row.in_force.0 < event)
    }
}

/// A movement that is stored.
#[derive(Debug)]
pub struct StoredRecord {
    /// Since when it is in force.
    pub event: Event,
    /// The movement.
    pub record: Record,
    /// The request.
    pub request: Option<RequestId>,
}

/// One member.
#[derive(Debug, Default)]
pub struct MemberStory {
    /// What the member had, one row per commit that has changed it.
    pub rows: Vec<(Event, Balance)>,
    /// All movements in the order in which they were stored.
    pub records: Vec<StoredRecord>,
}

impl MemberStory {
    /// What the member can have had at some moment between two events, movements within a commit among it.
    pub fn balances_within(&self, from: Event, to: Event) -> impl Iterator<Item = Balance> + '_ {
        let before = self.rows.iter().rev().find(|(event, _)| *event < from).map_or(Balance::default(), |row| row.1);
        let during = self.records.iter().filter(move |record| from < record.event && record.event < to);
        std::iter::once(before).chain(during.map(|record| record.record.balance))
    }
}

/// All stories.
#[derive(Debug, Default)]
pub struct Ledger {
    /// By name.
    pub listings: BTreeMap<ListingName, ListingStory>,
    /// By name.
    pub members: BTreeMap<MemberName, MemberStory>,
    /// The names of listings. A new listing's row stands behind its first bids.
    pub names: BTreeMap<ListingId, ListingName>,
    /// Numbers of the store that stand for two, or for nothing.
    pub breaches: Vec<String>,
}

impl Ledger {
    /// Reads the log.
    pub fn read(log: &[Commit]) -> Self {
        let mut ledger = Self::default();
        ledger.read_names(log);
        for commit in log {
            let event = commit.in_force.0;
            for change in &commit.changes {
                match change.clone() {
                    Change::Bid { id, placed, request, .. } => match ledger.names.get(&id) {
                        Some(name) => {
                            let story = ledger.listings.entry(name.clone()).or_default();
                            story.bids.push(StoredBid { event, placed, request });
                        }
                        None => ledger.breaches.push(format!("a bid of listing number {}, which is nowhere", id.0)),
                    },
                    Change::Moved { record, request, .. } => {
                        let story = ledger.members.entry(record.member.clone()).or_default();
                        story.records.push(StoredRecord { event, record, request });
                    }
                    Change::Member { wallet, .. } => {
                        let story = ledger.members.entry(wallet.member).or_default();
                        story.rows.push((event, wallet.balance));
                    }
                    Change::Listing { standing, sale_request, .. } => {
                        let story = ledger.listings.entry(standing.name.clone()).or_default();
                        let (in_force, at) = (commit.in_force, commit.at.wall);
                        story.rows.push(StoredRow { in_force, at, standing: *standing, sale_request });
                    }
                    _ => {}
                }
            }
        }
        ledger
    }

    fn read_names(&mut self, log: &[Commit]) {
        for change in log.iter().flat_map(|commit| &commit.changes) {
            let Change::Listing { id, standing, .. } = change else { continue };
            let known = self.names.entry(*id).or_insert_with(|| standing.name.clone());
            if *known != standing.name {
                self.breaches.push(format!("number {} stands for {known} and for {}", id.0, standing.name));
            }
        }
        let mut ids: BTreeMap<&ListingName, ListingId> = BTreeMap::new();
        for (id, name) in &self.names {
            if ids.insert(name, *id).is_some() {
                self.breaches.push(format!("{name} has two numbers"));
            }
        }
    }
}
