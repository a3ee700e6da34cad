//! What a batch changes, as rows.

use super::dialect::RequestScope;
use crate::dialect::{maybe, number, quoted};
use crate::watch::{AcknowledgedCommit, CommittedRow};
use firstcome_core::auction::{Listing, Phase, PlacedBid, Terms};
use firstcome_core::points::{Record, Wallet};
use firstcome_core::time::Timestamp;

/// The columns of a listing that are written beside [`super::dialect::LISTING_COLUMNS`]: when time has something to do, and
/// [`Changes::writer`].
const UNREAD_COLUMNS: [&str; 2] = ["due_at", "writer"];

/// What a batch changes.
#[derive(Default)]
pub(super) struct Changes {
    /// A number that no other transaction has: a caller that finds it knows that this one was committed.
    pub(super) writer: i64,
    pub(super) listing: Option<ListingChange>,
    pub(super) wallets: Vec<WalletChange>,
    pub(super) records: Vec<RecordRow>,
    pub(super) bids: Vec<BidRow>,
    pub(super) requests: Vec<RequestRow>,
    /// Requests whose time is over, and whose keys are used again.
    pub(super) forgotten: Vec<(RequestScope, u128)>,
    /// Whether a row counts as changed only if it is as it was read. Always, except for planted bugs.
    pub(super) unguarded: bool,
}

/// A listing as it is after the batch.
pub(super) struct ListingChange {
    /// `None` of a new one.
    pub(super) before: Option<Before>,
    pub(super) listing: Listing,
    pub(super) owner: i64,
    pub(super) highest: Option<i64>,
}

/// A listing as it was read.
#[derive(Clone, Copy)]
pub(super) struct Before {
    pub(super) id: i64,
    pub(super) version: u64,
}

/// A wallet as it is after the batch.
pub(super) struct WalletChange {
    pub(super) id: i64,
    /// How many records there were when it was read.
    pub(super) before: u64,
    pub(super) wallet: Wallet,
}

/// A record that the batch adds.
pub(super) struct RecordRow {
    pub(super) member: i64,
    pub(super) listing: Option<i64>,
    pub(super) record: Record,
}

/// A bid that the batch adds.
pub(super) struct BidRow {
    pub(super) listing: i64,
    pub(super) member: i64,
    pub(super) placed: PlacedBid,
}

/// A request that had an effect.
pub(super) struct RequestRow {
    pub(super) scope: RequestScope,
    pub(super) key: u128,
    pub(super) body: u64,
    pub(super) number: i64,
    pub(super) at: Timestamp,
}

impl Changes {
    /// Whether there is nothing to write.
    pub(super) const fn is_empty(&self) -> bool {
        self.listing.is_none() && self.wallets.is_empty() && self.requests.is_empty()
    }

    /// The row that shows that it was committed.
    pub(super) fn told(&self) -> Option<AcknowledgedCommit> {
        let of = match (self.records.last(), &self.listing) {
            (Some(RecordRow { member: id, record, .. }), _) => {
                CommittedRow::Record { member: record.member.clone(), id: *id, number: record.number }
            }
            (None, Some(change)) => {
                let standing = change.listing.standing();
                CommittedRow::Listing { name: standing.name.clone(), version: standing.version }
            }
            (None, None) => return None,
        };
        Some(AcknowledgedCommit { of, writer: self.writer })
    }

    /// How many rows are written if all are as they were read.
    pub(super) fn rows(&self) -> u64 {
        let rows = [self.wallets.len(), self.records.len(), self.bids.len(), self.requests.len(), self.forgotten.len()];
        rows.iter().map(|rows| *rows as u64).sum::<u64>() + u64::from(self.listing.is_some())
    }
}

/// Numbers below 2^63 go into columns as they are.
pub(super) const fn stored(number: u64) -> i64 {
    number.cast_signed()
}

impl ListingChange {
    /// The values of [`super::dialect::LISTING_COLUMNS`], in their order, and then those of [`UNREAD_COLUMNS`].
    fn values(&self, writer: i64) -> [String; 26] {
        let standing = self.listing.standing();
        let text = |write: &dyn Fn(&mut String)| {
            let mut text = String::new();
            write(&mut text);
            text
        };
        let int = |value: i64| text(&|text| number(text, value));
        let opt = |value: Option<i64>| text(&|text| maybe(text, value));
        let name = |value: &str| text(&|text| quoted(text, value));
        let name_or_null = |value: Option<&str>| value.map_or_else(|| "NULL".to_owned(), name);
        let terms = standing.auction_terms();
        let extend = terms.and_then(|terms| terms.extend);
        let highest = standing.highest.as_ref();
        let (phase, phase_at, buyer) = match &standing.phase {
            Phase::Open => (0, None, None),
            Phase::Ended(at) => (1, Some(*at), None),
            Phase::Sold(sale) => (2, Some(sale.at), Some(sale.buyer.as_str())),
            Phase::Unsold(at) => (3, Some(*at), None),
        };
        [
            name(standing.name.as_str()),
            int(self.owner),
            name(standing.owner.as_str()),
            int(stored(standing.price.get())),
            int(standing.starts_at.as_us()),
            int(i64::from(standing.terms != Terms::FixedPrice)),
            opt(terms.map(|terms| terms.ends_at.as_us())),
            opt(terms.and_then(|terms| terms.min_increment).map(|step| stored(step.get()))),
            opt(extend.map(|extend| stored(extend.window_ms))),
            opt(extend.map(|extend| stored(extend.by_ms))),
            opt(extend.map(|extend| i64::from(extend.max_count))),
            opt(terms.and_then(|terms| terms.settle_within_ms).map(stored)),
            int(standing.effective_ends_at.as_us()),
            int(standing.extensions.into()),
            int(standing.bids.into()),
            opt(highest.and(self.highest)),
            name_or_null(highest.map(|bid| bid.bidder.as_str())),
            opt(highest.map(|bid| stored(bid.price.get()))),
            opt(highest.map(|bid| bid.at.as_us())),
            int(phase),
            opt(phase_at.map(Timestamp::as_us)),
            name_or_null(buyer),
            int(stored(standing.version)),
            int(standing.last_at.as_us()),
            opt(self.listing.due_at().map(Timestamp::as_us)),
            int(writer),
        ]
    }

    /// The statement that makes it, without its end: the same everywhere.
    pub(super) fn insert(&self, text: &mut String, writer: i64) {
        let columns = columns().collect::<Vec<_>>().join(",");
        let values = self.values(writer).join(",");
        text.push_str(&format!("INSERT INTO firstcome_listing ({columns}) VALUES ({values})"));
    }

    /// The statement that writes it: the same everywhere.
    pub(super) fn write(&self, text: &mut String, writer: i64, unguarded: bool) {
        if let Some(before) = self.before {
            let settings = columns().zip(self.values(writer)).map(|(column, value)| format!("{column}={value}"));
            let settings = settings.collect::<Vec<_>>().join(",");
            text.push_str(&format!("UPDATE firstcome_listing SET {settings} WHERE id={}", before.id));
            if !unguarded {
                text.push_str(&format!(" AND version={}", before.version));
            }
        } else {
            self.insert(text, writer);
        }
        text.push(';');
    }
}

fn columns() -> impl Iterator<Item = &'static str> {
    super::dialect::LISTING_COLUMNS.into_iter().chain(UNREAD_COLUMNS)
}
