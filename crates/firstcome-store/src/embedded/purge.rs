//! The port for purges over the embedded store, and the writer's part of it.
//!
//! The caller's thread looks for what is over, a page at a time, under short read locks. The writer commits each page on its own,
//! between other batches, and then takes the page out of memory. What only the writer sees (keys of bids) it looks for itself.

mod records;

use super::auction::AuctionWriter;
use super::coupon::CouponCell;
use super::journal::{Change, ForgottenRequest, RecordsRemoved};
use super::reply::Reply;
use super::writer::Log;
use super::{Command, Embedded, Shared, blocking, keys_kept_since};
use crate::error::StoreError;
use crate::purge::{
    ClockCheck, PAGE_ROWS_MAX, PurgeAnswer, PurgeMode, PurgeRejection, PurgeRequest, PurgeStore, Purged,
    RETAIN_RECORDS_MIN, check_clock, kept_since,
};
use firstcome_core::coupon::{KeyPage, KeyWalk, KeyedRequest};
use firstcome_core::time::{Now, Timestamp};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a store knows of its purges.
pub(super) struct PurgeState {
    is_running: AtomicBool,
    /// When the last purge ended.
    ended_at: Mutex<Option<Timestamp>>,
    /// What the wall clock showed at the last write before the store was opened.
    seen_at: Option<Timestamp>,
}

/// The one purge that runs. Ends when it is dropped.
struct Running<'a>(&'a PurgeState);

impl PurgeState {
    pub(super) fn new(ended_at: Option<Timestamp>, seen_at: Option<Timestamp>) -> Self {
        Self { is_running: AtomicBool::new(false), ended_at: Mutex::new(ended_at), seen_at }
    }

    fn begin(&self) -> Option<Running<'_>> {
        // Lazily: to drop the guard of another purge would end it.
        (!self.is_running.swap(true, Ordering::AcqRel)).then(|| Running(self))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Release);
    }
}

/// A page of a purge.
pub(super) enum PurgePage {
    /// Forgets keys of a coupon.
    Coupon(Arc<CouponCell>, Vec<KeyedRequest>),
    /// Forgets stored keys of charges and refunds. Memory forgets them by itself.
    Movements(Vec<ForgottenRequest>),
    /// Looks for keys of bids and purchases before this instant, from the listing at this place on, and forgets them or counts them.
    Listings { since: Timestamp, place: usize, mode: PurgeMode },
    /// Removes the first records of a member, which has the name and the anchor that the page was made for.
    Records { removed: RecordsRemoved, before: u64 },
    /// Notes that the purge has ended.
    End(Timestamp),
}

/// What a page did.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PageDone {
    purged: Purged,
    /// The place at which [`PurgePage::Listings`] goes on.
    next: Option<usize>,
}

/// A page for the writer.
pub(super) struct PurgeCommand {
    page: PurgePage,
    pub(super) reply: Reply<PageDone, PurgeRejection>,
}

impl PurgeCommand {
    /// Runs the page in the writer, in a separate commit.
    pub(super) fn run(self, auctions: &mut AuctionWriter, log: &mut Log, now: Now) {
        let done = log.check().and_then(|()| run(self.page, auctions, log, now));
        self.reply.send(done.map(Ok));
    }
}

fn run(page: PurgePage, auctions: &mut AuctionWriter, log: &mut Log, now: Now) -> Result<PageDone, StoreError> {
    match page {
        PurgePage::Coupon(cell, requests) => {
            let forgotten = requests.iter().map(|request| ForgottenRequest::Coupon(cell.id, request.effect)).collect();
            log.commit(Change::RequestsForgotten(forgotten))?;
            cell.coupon.write().forget_keys(&requests);
            Ok(PageDone { purged: requests_of(requests.len()), next: None })
        }
        PurgePage::Movements(forgotten) => {
            let count = forgotten.len();
            log.commit(Change::RequestsForgotten(forgotten))?;
            auctions.forget_keys(now);
            Ok(PageDone { purged: requests_of(count), next: None })
        }
        PurgePage::Listings { since, place, mode } => {
            let (forgotten, next) = auctions.keys_before(since, place, mode);
            let purged = requests_of(forgotten.len());
            if mode == PurgeMode::Remove && !forgotten.is_empty() {
                log.commit(Change::RequestsForgotten(forgotten.clone()))?;
                auctions.forget_requests(&forgotten);
            }
            Ok(PageDone { purged, next })
        }
        PurgePage::Records { removed, before } => {
            if !auctions.may_remove(&removed, before) {
                return Ok(PageDone::default());
            }
            log.commit(Change::RecordsRemoved(Box::new(removed.clone())))?;
            auctions.remove_records(&removed);
            let purged = Purged { records: removed.anchor.number - before, ..Purged::default() };
            Ok(PageDone { purged, next: None })
        }
        PurgePage::End(at) => {
            log.commit(Change::PurgeEnded(at))?;
            *log.shared.purges.ended_at.lock() = Some(at);
            Ok(PageDone::default())
        }
    }
}

const fn requests_of(count: usize) -> Purged {
    Purged { requests: count as u64, tickets: 0, admissions: 0, claims: 0, coupons: 0, dead_letters: 0, records: 0 }
}

impl Shared {
    /// Judges the clock by what the store has seen.
    fn check_clock(&self, now: Timestamp) -> Result<(), PurgeRejection> {
        let newest = self.coupons.read().values().filter_map(|cell| cell.coupon.read().newest_claim_at()).max();
        check_clock(now, newest.max(self.purges.seen_at), *self.purges.ended_at.lock())
    }
}

impl Embedded {
    async fn purge_page(&self, page: PurgePage) -> Result<PageDone, StoreError> {
        let (reply, answer) = Reply::pair();
        let done = self.ask(Command::Purge(Box::new(PurgeCommand { page, reply })), answer).await?;
        // No rule refuses a page.
        Ok(done.unwrap_or_default())
    }

    async fn purge_requests(&self, since: Timestamp, mode: PurgeMode, purged: &mut Purged) -> Result<(), StoreError> {
        let cells: Vec<Arc<CouponCell>> = self.inner.shared.coupons.read().values().map(Arc::clone).collect();
        for cell in cells {
            self.purge_coupon_keys(&cell, since, mode, purged).await?;
        }
        let mut place = Some(0);
        while let Some(from) = place {
            let done = self.purge_page(PurgePage::Listings { since, place: from, mode }).await?;
            *purged += done.purged;
            place = done.next;
        }
        self.purge_movement_keys(since, mode, purged).await
    }

    async fn purge_coupon_keys(
        &self,
        cell: &Arc<CouponCell>,
        since: Timestamp,
        mode: PurgeMode,
        purged: &mut Purged,
    ) -> Result<(), StoreError> {
        let before = purged.requests;
        let mut walk = Some(KeyWalk::default());
        while let Some(at) = walk {
            let count_max = if mode == PurgeMode::Remove { PAGE_ROWS_MAX } else { usize::MAX };
            let KeyPage { requests, next } = cell.coupon.read().keys_before(since, at, count_max);
            walk = next;
            if mode == PurgeMode::Count {
                *purged += requests_of(requests.len());
            } else if !requests.is_empty() {
                *purged += self.purge_page(PurgePage::Coupon(Arc::clone(cell), requests)).await?.purged;
            }
        }
        if before < purged.requests && mode == PurgeMode::Remove {
            cell.coupon.write().shrink_keys();
        }
        Ok(())
    }

    /// Keys of charges and refunds are kept for 30 days at least, and are found in what is stored alone.
    async fn purge_movement_keys(
        &self,
        since: Timestamp,
        mode: PurgeMode,
        purged: &mut Purged,
    ) -> Result<(), StoreError> {
        let since = since.min(keys_kept_since(self.inner.shared.both()));
        let count_max = if mode == PurgeMode::Remove { PAGE_ROWS_MAX } else { usize::MAX };
        loop {
            let rows = Arc::clone(&self.inner.shared.rows);
            let found = blocking(move || rows.keyed_movements(since, count_max)).await?;
            if mode == PurgeMode::Count {
                *purged += requests_of(found.len());
                return Ok(());
            }
            let is_last = found.len() < count_max;
            let forgotten =
                found.into_iter().map(|(member, number)| ForgottenRequest::Movement(member, number)).collect();
            *purged += self.purge_page(PurgePage::Movements(forgotten)).await?.purged;
            if is_last {
                return Ok(());
            }
        }
    }
}

impl PurgeStore for Embedded {
    async fn purge(&self, request: PurgeRequest) -> PurgeAnswer {
        let shared = &self.inner.shared;
        let Some(_running) = shared.purges.begin() else { return Ok(Err(PurgeRejection::Running)) };
        let now = shared.both();
        if request.clock == ClockCheck::Refuse
            && let Err(rejection) = shared.check_clock(now.wall)
        {
            return Ok(Err(rejection));
        }
        // A wall clock that was set forward while the store is open ends nothing early: steady time goes on as before.
        let now_us = now.wall.as_us().min(now.steady.as_us());
        let mut purged = Purged::default();
        if let Some(kept) = request.retention.requests {
            let since = kept_since(Timestamp::clamped_us(now_us), kept.max(crate::purge::RETAIN_REQUESTS_MIN));
            self.purge_requests(since, request.mode, &mut purged).await?;
        }
        if let Some(kept) = request.retention.records {
            let since = kept_since(Timestamp::clamped_us(now_us), kept.max(RETAIN_RECORDS_MIN));
            self.purge_records(since, request.mode, &mut purged).await?;
        }
        if request.mode == PurgeMode::Remove {
            self.purge_page(PurgePage::End(now.wall)).await?;
        }
        Ok(Ok(purged))
    }
}
