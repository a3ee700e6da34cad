//! Removes idempotency keys of bids, sales and points that are older than they stay, in pages, beside nodes at work. Its part
//! [`records`] removes records of members.
//!
//! A page finds its rows by the primary key, so no bid pays for an index. Nodes hold no keys in memory: a key whose row is gone is a
//! new request. Any number of nodes may purge at once, since a page that another node has removed is empty.

mod records;

use super::database::AuctionDatabase;
use crate::SqlError;
use crate::dialect::list;
use crate::reader::Reader;
use crate::schema;
use firstcome_core::limits::POINTS_KEY_MS;
use firstcome_core::time::Timestamp;
use firstcome_store::edge::Stopwatch;
use firstcome_store::purge::{
    ClockCheck, PAGE_ROWS_MAX, PurgeAnswer, PurgeMode, PurgeRejection, PurgeRequest, PurgeStore, Purged,
    RETAIN_RECORDS_MIN, check_clock, kept_since,
};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Of a listing: keys of bids and sales.
const OF_LISTINGS: i64 = 1;
/// Of a member's points.
const OF_POINTS: i64 = 2;
/// The shortest and the longest time between two pages.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// See [`PAUSE_MIN`].
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// So far the clock that wrote a row may be ahead: another server had the database then.
const AHEAD_US: i64 = 3_600_000_000;

/// A key with its place in the order of the table.
#[derive(Clone, Copy)]
struct Key {
    scope: i64,
    request: u128,
    at: i64,
}

impl AuctionDatabase {
    pub(super) async fn purge(&self, request: PurgeRequest) -> PurgeAnswer {
        let now = schema::now(self).await?;
        if request.clock == ClockCheck::Refuse
            && let Err(rejection) = check_clock(now, self.last_record().await?, None)
        {
            // Nothing says when the last purge was. After a year without a bid no key is left, and the clock does no harm.
            let may_be_right = matches!(rejection, PurgeRejection::ClockAhead(_));
            let count = PurgeRequest { mode: PurgeMode::Count, ..request };
            if !may_be_right || !self.purge_all(count, now).await?.is_nothing() {
                return Ok(Err(rejection));
            }
        }
        Ok(Ok(self.purge_all(request, now).await?))
    }

    async fn purge_all(&self, request: PurgeRequest, now: Timestamp) -> Result<Purged, SqlError> {
        let mut purged = Purged::default();
        // What erasures have left whose processes have ended. One that cannot go on keeps nothing else from being removed.
        let erasures = if request.mode == PurgeMode::Remove { self.chain_again(None).await } else { Ok(()) };
        if let Some(kept) = request.retention.requests {
            for (kind, kept) in [(OF_LISTINGS, kept), (OF_POINTS, kept.max(Duration::from_millis(POINTS_KEY_MS)))] {
                purged.requests += self.purge_keys(kind, kept_since(now, kept), request.mode).await?;
            }
        }
        if let Some(kept) = request.retention.records {
            let since = kept_since(now, kept.max(RETAIN_RECORDS_MIN));
            purged.records += self.purge_records(since, request.mode).await?;
        }
        erasures?;
        Ok(purged)
    }

    /// The last instant of a record or a listing, less what clocks may differ.
    async fn last_record(&self) -> Result<Option<Timestamp>, SqlError> {
        let text = "SELECT MAX(last_at) FROM firstcome_member;SELECT MAX(last_at) FROM firstcome_listing;";
        let mut last = None;
        for row in &self.read(text.to_owned()).await? {
            last = last.max(Reader::at(row, 0).maybe_instant()?);
        }
        let earlier = |at: Timestamp| Timestamp::clamped_us(at.as_us().saturating_sub(AHEAD_US));
        Ok(last.filter(|at| Timestamp::MIN < *at).map(earlier))
    }

    async fn purge_keys(&self, kind: i64, by: Timestamp, mode: PurgeMode) -> Result<u64, SqlError> {
        let (mut count, mut scope, mut request) = (0, i64::MIN, 0_u128);
        loop {
            let begun = Stopwatch::start();
            let page = self.keys_after(kind, scope, request).await?;
            let Some(last) = page.last() else { return Ok(count) };
            (scope, request) = (last.scope, last.request);
            let due: Vec<&Key> = page.iter().filter(|key| key.at <= by.as_us()).collect();
            count += match mode {
                PurgeMode::Count => due.len() as u64,
                PurgeMode::Remove if due.is_empty() => 0,
                PurgeMode::Remove => self.remove_keys(kind, &due).await?,
            };
            sleep(begun.elapsed().clamp(PAUSE_MIN, PAUSE_MAX)).await;
        }
    }

    async fn keys_after(&self, kind: i64, scope: i64, request: u128) -> Result<Vec<Key>, SqlError> {
        let mut second = String::new();
        self.dialect.bytes(&mut second, &request.to_be_bytes());
        let after = self.dialect.after(["scope", "request"], scope, &second);
        let text = format!(
            "SELECT scope,request,at FROM firstcome_request WHERE kind={kind} AND {after} \
             ORDER BY kind,scope,request LIMIT {PAGE_ROWS_MAX};"
        );
        let read = |row| {
            let mut columns = Reader::at(row, 0);
            Ok(Key { scope: columns.integer()?, request: columns.key()?, at: columns.integer()? })
        };
        self.read(text).await?.iter().map(read).collect()
    }

    async fn remove_keys(&self, kind: i64, due: &[&Key]) -> Result<u64, SqlError> {
        // With the instant: a caller may have used a key anew since it was read.
        let keys = list(due, |text, key| {
            text.push_str(&format!("({},", key.scope));
            self.dialect.bytes(text, &key.request.to_be_bytes());
            text.push_str(&format!(",{})", key.at));
        });
        let mut session = self.session(Instant::now() + self.options.patience).await?;
        let begin = self.dialect.words().begin;
        let text =
            format!("{begin}DELETE FROM firstcome_request WHERE kind={kind} AND (scope,request,at) IN ({keys});");
        let rows = session.run(text).await?;
        session.commit(self.options.connections.answer_timeout).await?;
        Ok(rows)
    }
}

impl PurgeStore for super::SqlAuctions {
    /// Removes idempotency keys, and records of members; listings have nothing else that ends.
    async fn purge(&self, request: PurgeRequest) -> PurgeAnswer {
        crate::boxed::boxed(self.database.purge(request)).await
    }
}
