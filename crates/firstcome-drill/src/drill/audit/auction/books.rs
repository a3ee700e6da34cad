//! Reconstructs the states of every listing and wallet from the final bids and records.

use crate::drill::auction::record::{Bid, History, Instant, Kind, ListingRecord, Movement, ReceivedReply, STRANGER};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The points of a member from an instant on.
#[derive(Clone, Copy)]
pub(super) struct Wallet {
    pub(super) at_us: Instant,
    pub(super) total: i64,
    pub(super) available: i64,
}

/// A record and its member.
#[derive(Clone, Copy)]
pub(super) struct Owned<'a> {
    pub(super) member: u32,
    pub(super) record: &'a Movement,
}

pub(super) struct Books<'a> {
    pub(super) history: &'a History,
    /// For each listing the end after each number of bids; the first entry is the end that was set.
    ends: Vec<Vec<Instant>>,
    /// For each member the wallet after each number of records; the first entry is empty.
    wallets: Vec<Vec<Wallet>>,
    /// The records by listing and bid.
    about: BTreeMap<(u32, u32), Vec<Owned<'a>>>,
}

impl<'a> Books<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let ends = history.listings.iter().zip(&history.bids).map(|(listing, bids)| ends(listing, bids)).collect();
        let wallets = history.records.iter().map(|records| wallets(records)).collect();
        let mut about: BTreeMap<(u32, u32), Vec<Owned<'a>>> = BTreeMap::new();
        for (member, records) in (0..).zip(&history.records) {
            for record in records {
                let transfer = matches!(record.kind, Kind::Charge | Kind::Refund);
                if !transfer || record.listing != STRANGER {
                    about.entry((record.listing, record.bid)).or_default().push(Owned { member, record });
                }
            }
        }
        Self { history, ends, wallets, about }
    }

    /// Returns every listing with its number, settings and bids.
    pub(super) fn listings(&self) -> impl Iterator<Item = (u32, &'a ListingRecord, &'a [Bid])> {
        let (listings, bids) = (&self.history.listings, &self.history.bids);
        (0..).zip(listings).zip(bids).map(|((at, listing), bids)| (at, listing, bids.as_slice()))
    }

    pub(super) fn bids(&self, listing: u32) -> &'a [Bid] {
        &self.history.bids[listing as usize]
    }

    /// Returns the end of a listing after so many bids.
    pub(super) fn end_after(&self, listing: u32, bids: usize) -> Option<Instant> {
        self.ends[listing as usize].get(bids).copied()
    }

    /// Returns the end that all accepted bids lead to, or the largest instant at a fixed price.
    pub(super) fn end(&self, listing: u32) -> Instant {
        self.ends[listing as usize].last().copied().unwrap_or(Instant::MAX)
    }

    pub(super) fn wallets(&self, member: u32) -> &[Wallet] {
        &self.wallets[member as usize]
    }

    /// Returns the records about a listing. Records about no known listing are under [`STRANGER`].
    pub(super) fn about(&self, listing: u32) -> impl Iterator<Item = &Owned<'a>> {
        self.about.range((listing, 0)..=(listing, u32::MAX)).flat_map(|(_, owned)| owned)
    }

    /// Returns the records about one bid of a listing.
    pub(super) fn about_bid(&self, listing: u32, bid: u32) -> &[Owned<'a>] {
        self.about.get(&(listing, bid)).map_or(&[][..], Vec::as_slice)
    }

    /// Returns when the effect of a request can have happened, widened by the error of two clock readings.
    pub(super) const fn window(&self, on_reply: &ReceivedReply) -> (Instant, Instant) {
        (on_reply.sent_us - self.history.reading_us, on_reply.received_us + self.history.reading_us)
    }

    /// Returns the numbers of bids that a listing can have had in a window.
    pub(super) fn bid_states(&self, listing: u32, (from_us, to_us): (Instant, Instant)) -> RangeInclusive<usize> {
        let bids = self.bids(listing);
        bids.partition_point(|bid| bid.at_us < from_us)..=bids.partition_point(|bid| bid.at_us <= to_us)
    }

    /// Returns the part of a window in which a listing had so many bids, if there is one.
    pub(super) fn while_after(
        &self,
        listing: u32,
        count: usize,
        (from_us, to_us): (Instant, Instant),
    ) -> Option<(Instant, Instant)> {
        let bids = self.bids(listing);
        let first_us = if count == 0 { Instant::MIN } else { bids.get(count - 1)?.at_us };
        let last_us = bids.get(count).map_or(Instant::MAX, |bid| bid.at_us);
        let part = (from_us.max(first_us), to_us.min(last_us));
        (part.0 <= part.1).then_some(part)
    }

    /// Returns the part of a window in which an auction with so many bids took further ones.
    pub(super) fn live(&self, listing: u32, count: usize, window: (Instant, Instant)) -> Option<(Instant, Instant)> {
        let (from_us, to_us) = self.while_after(listing, count, window)?;
        let part = (
            from_us.max(self.history.listings[listing as usize].starts_us),
            to_us.min(self.end_after(listing, count)?),
        );
        (part.0 <= part.1).then_some(part)
    }

    /// Whether a member can have had exactly this much to spend at some time in a window.
    pub(super) fn had(&self, member: u32, available: u64, (from_us, to_us): (Instant, Instant)) -> bool {
        let wallets = self.wallets(member);
        let first = wallets.partition_point(|wallet| wallet.at_us < from_us).saturating_sub(1);
        let last = wallets.partition_point(|wallet| wallet.at_us <= to_us);
        wallets[first..last].iter().any(|wallet| u64::try_from(wallet.available) == Ok(available))
    }

    /// Returns the least price of the next bid after so many.
    pub(super) fn minimum_after(&self, listing: u32, count: usize) -> u64 {
        let settings = &self.history.listings[listing as usize];
        count.checked_sub(1).map_or(settings.price, |last| self.bids(listing)[last].price + settings.step())
    }
}

fn ends(listing: &ListingRecord, bids: &[Bid]) -> Vec<Instant> {
    let Some(terms) = listing.terms else { return Vec::new() };
    let (mut end_us, mut extensions) = (terms.ends_us, 0);
    let mut ends = vec![end_us];
    for bid in bids {
        if let Some(extend) = terms.extend
            && extensions < extend.max_count
            && end_us <= bid.at_us + extend.window_us
        {
            end_us += extend.by_us;
            extensions += 1;
        }
        ends.push(end_us);
    }
    ends
}

fn wallets(records: &[Movement]) -> Vec<Wallet> {
    let mut wallet = Wallet { at_us: Instant::MIN, total: 0, available: 0 };
    let mut wallets = vec![wallet];
    for record in records {
        wallet = Wallet {
            at_us: record.at_us,
            total: wallet.total.saturating_add(record.total_delta),
            available: wallet.available.saturating_add(record.available_delta),
        };
        wallets.push(wallet);
    }
    wallets
}
