//! The port for purges over the embedded store, and the writer's part of it.
//!
//! The caller's thread looks for what is over, a page at a time, under short read locks. The writer commits each page on its own,
//! between other batches, and then takes the page out of memory. What only the writer sees (keys of bids) it looks for itself.

mod heads;
mod records;

use super::auction::AuctionWriter;
use super::coupon::CouponCell;
use super::journal::{Change, CouponId, CouponOver, ForgottenRequest, RecordsRemoved};
use super::reply::Reply;
use super::room::RoomCell;
use super::writer::Log;
use super::{Command, Embedded, Shared, blocking, keys_kept_since};
use crate::error::StoreError;
use crate::purge::{
    ClockCheck, PAGE_ROWS_MAX, PurgeAnswer, PurgeMode, PurgeRejection, PurgeRequest, PurgeStore, Purged,
    RETAIN_HEADS_MIN, RETAIN_RECORDS_MIN, check_clock, kept_since,
};
use firstcome_core::coupon::{KeyPage, KeyWalk, KeyedRequest, PurgedClaims, Serial, is_over};
use firstcome_core::receipt::Object;
use firstcome_core::time::{Now, Timestamp};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many tickets one page looks at and removes at most.
const TICKETS_PER_PAGE: u32 = PAGE_ROWS_MAX as u32;
/// How many claims one page removes at most. Each may have a redemption, whose row goes too.
const CLAIMS_PER_PAGE: u32 = PAGE_ROWS_MAX as u32 / 2;

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
    /// Marks a coupon whose claims were over before an instant, and takes them out of memory.
    Over { cell: Arc<CouponCell>, deleted_at: Option<Timestamp>, before: Timestamp },
    /// Removes rows of claims of a purged coupon.
    Claims { id: CouponId, first: Serial, last: Serial },
    /// Forgets tickets of a room before this number.
    Tickets(Arc<RoomCell>, u32),
    /// Looks for keys of bids and purchases before this instant, from the listing at this place on, and forgets them or counts them.
    Listings { since: Timestamp, place: usize, mode: PurgeMode },
    /// Removes the first records of a member, which has the name and the anchor that the page was made for.
    Records { removed: RecordsRemoved, before: u64 },
    /// Removes the first heads of a room or coupon.
    Heads { object: Object, to: u64, count: u64 },
    /// Notes that the purge has ended.
    End(Timestamp),
}

/// What a page did.
#[derive(Default, Debug)]
pub(super) struct PageDone {
    purged: Purged,
    /// Claims that memory no longer needs: the caller drops them, because it takes time.
    claims: Option<PurgedClaims>,
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
            Ok(PageDone { purged: requests_of(requests.len()), ..PageDone::default() })
        }
        PurgePage::Over { cell, deleted_at, before } => {
            let issued = {
                let coupon = cell.coupon.read();
                // An operator may have made it longer since the caller looked.
                if coupon.is_purged() || !is_over(coupon.settings(), deleted_at, before) {
                    return Ok(PageDone::default());
                }
                coupon.issued()
            };
            log.commit(Change::CouponPurged { id: cell.id, at: now.wall, issued })?;
            let claims = Some(cell.coupon.write().purge(now.wall));
            Ok(PageDone { claims, ..PageDone::default() })
        }
        PurgePage::Claims { id, first, last } => {
            log.commit(Change::ClaimsPurged { id, first, last })?;
            Ok(PageDone { purged: claims_of(first, last), ..PageDone::default() })
        }
        PurgePage::Tickets(cell, before) => {
            // What was gone when the caller looked is gone still; the room may have been closed since.
            let Some(gone) = cell.kept.lock().room.judge_purge(before) else { return Ok(PageDone::default()) };
            log.commit(Change::TicketsPurged { id: cell.id, gone })?;
            cell.kept.lock().room.purge(gone);
            Ok(PageDone { purged: tickets_of(gone.count), ..PageDone::default() })
        }
        PurgePage::Movements(forgotten) => {
            let count = forgotten.len();
            log.commit(Change::RequestsForgotten(forgotten))?;
            auctions.forget_keys(now);
            Ok(PageDone { purged: requests_of(count), ..PageDone::default() })
        }
        PurgePage::Listings { since, place, mode } => {
            let (forgotten, next) = auctions.keys_before(since, place, mode);
            let purged = requests_of(forgotten.len());
            if mode == PurgeMode::Remove && !forgotten.is_empty() {
                log.commit(Change::RequestsForgotten(forgotten.clone()))?;
                auctions.forget_requests(&forgotten);
            }
            Ok(PageDone { purged, next, ..PageDone::default() })
        }
        PurgePage::Records { removed, before } => {
            if !auctions.may_remove(&removed, before) {
                return Ok(PageDone::default());
            }
            log.commit(Change::RecordsRemoved(Box::new(removed.clone())))?;
            auctions.remove_records(&removed);
            let purged = Purged { records: removed.anchor.number - before, ..Purged::default() };
            Ok(PageDone { purged, ..PageDone::default() })
        }
        PurgePage::Heads { object, to, count } => {
            log.commit(Change::HeadsRemoved { object, to, count })?;
            Ok(PageDone { purged: Purged { heads: count, ..NONE }, ..PageDone::default() })
        }
        PurgePage::End(at) => {
            log.commit(Change::PurgeEnded(at))?;
            *log.shared.purges.ended_at.lock() = Some(at);
            Ok(PageDone::default())
        }
    }
}

const NONE: Purged =
    Purged { requests: 0, tickets: 0, admissions: 0, claims: 0, coupons: 0, dead_letters: 0, records: 0, heads: 0 };

const fn requests_of(count: usize) -> Purged {
    Purged { requests: count as u64, ..NONE }
}

const fn claims_of(first: Serial, last: Serial) -> Purged {
    Purged { claims: (last.get() - first.get() + 1) as u64, ..NONE }
}

const fn tickets_of(count: u32) -> Purged {
    Purged { tickets: count as u64, ..NONE }
}

impl Shared {
    /// Judges the clock by what the store has seen.
    fn check_clock(&self, now: Timestamp) -> Result<(), PurgeRejection> {
        check_clock(now, self.last_record_at(), *self.purges.ended_at.lock())
    }

    /// Returns the latest instant of a claim, or of the clocks that were stored before the store was opened.
    fn last_record_at(&self) -> Option<Timestamp> {
        let newest = self.coupons.read().values().filter_map(|cell| cell.coupon.read().newest_claim_at()).max();
        newest.max(self.purges.seen_at)
    }
}

impl Embedded {
    /// Returns when the store was last written, as far as the data show it: the latest instant of a claim, of the end of a purge, or
    /// of the wall clock that was stored with a change of rooms or points before the opening. `None` without any of them. A wall
    /// clock that is earlier right after the opening is wrong now, or was ahead then. Costs a read lock for each coupon.
    pub fn last_write_at(&self) -> Option<Timestamp> {
        let shared = &self.inner.shared;
        let ended_at = *shared.purges.ended_at.lock();
        shared.last_record_at().max(ended_at)
    }

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

impl Embedded {
    /// Claims of coupons that were over before an instant. The mark of a coupon comes first, so a purge that was cut short goes on
    /// with the rows that are there.
    async fn purge_claims(&self, before: Timestamp, mode: PurgeMode, purged: &mut Purged) -> Result<(), StoreError> {
        let rows = Arc::clone(&self.inner.shared.rows);
        let found = blocking(move || rows.coupons_over()).await?;
        if found.is_empty() {
            return Ok(());
        }
        let cells: HashMap<CouponId, Arc<CouponCell>> = {
            let cells = self.inner.shared.coupons.read();
            cells.values().map(|cell| (cell.id, Arc::clone(cell))).collect()
        };
        for CouponOver { id, deleted_at, first } in found {
            let Some(cell) = cells.get(&id) else { continue };
            let (is_due, issued) = {
                let coupon = cell.coupon.read();
                (coupon.is_purged() || is_over(coupon.settings(), deleted_at, before), coupon.issued())
            };
            let Some(end) = Serial::new(issued).filter(|end| is_due && first <= *end) else { continue };
            if mode == PurgeMode::Count {
                *purged += Purged { coupons: 1, ..claims_of(first, end) };
                continue;
            }
            let done = self.purge_page(PurgePage::Over { cell: Arc::clone(cell), deleted_at, before }).await?;
            blocking(move || {
                drop(done.claims);
                Ok(())
            })
            .await?;
            // An operator may have made it longer meanwhile.
            if !cell.coupon.read().is_purged() {
                continue;
            }
            let mut next = Some(first);
            while let Some(first) = next {
                let last =
                    Serial::new(first.get().saturating_add(CLAIMS_PER_PAGE - 1)).map_or(end, |last| last.min(end));
                *purged += self.purge_page(PurgePage::Claims { id, first, last }).await?.purged;
                next = Serial::new(last.get() + 1).filter(|next| *next <= end);
            }
            purged.coupons += 1;
        }
        Ok(())
    }

    /// Tickets that are gone since before `since`, from the first number of each room up to one that is not.
    async fn purge_tickets(&self, since: Timestamp, mode: PurgeMode, purged: &mut Purged) -> Result<(), StoreError> {
        let cells: Vec<Arc<RoomCell>> = self.inner.shared.rooms.read().values().map(Arc::clone).collect();
        for cell in cells {
            let mut from = cell.kept.lock().room.gone_before();
            loop {
                let (rows, id) = (Arc::clone(&self.inner.shared.rows), cell.id);
                let before = blocking(move || rows.gone_before(id, from, since, TICKETS_PER_PAGE)).await?;
                let found = before.saturating_sub(from);
                if mode == PurgeMode::Count {
                    *purged += tickets_of(found);
                } else if found != 0 {
                    *purged += self.purge_page(PurgePage::Tickets(Arc::clone(&cell), before)).await?.purged;
                }
                if found < TICKETS_PER_PAGE {
                    break;
                }
                from = before;
            }
        }
        Ok(())
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
        // What an earlier purge has begun is ended in any case.
        let kept = request.retention.claims;
        let before = kept.map_or(Timestamp::MIN, |kept| kept_since(Timestamp::clamped_us(now_us), kept));
        self.purge_claims(before, request.mode, &mut purged).await?;
        if let Some(kept) = request.retention.requests {
            let since = kept_since(Timestamp::clamped_us(now_us), kept.max(crate::purge::RETAIN_REQUESTS_MIN));
            self.purge_requests(since, request.mode, &mut purged).await?;
        }
        if let Some(kept) = request.retention.tickets {
            let since = kept_since(Timestamp::clamped_us(now_us), kept);
            self.purge_tickets(since, request.mode, &mut purged).await?;
        }
        if let Some(kept) = request.retention.records {
            let since = kept_since(Timestamp::clamped_us(now_us), kept.max(RETAIN_RECORDS_MIN));
            self.purge_records(since, request.mode, &mut purged).await?;
        }
        if let Some(kept) = request.retention.heads {
            let since = kept_since(Timestamp::clamped_us(now_us), kept.max(RETAIN_HEADS_MIN));
            self.purge_heads(since, request.mode, &mut purged).await?;
        }
        if request.mode == PurgeMode::Remove {
            self.purge_page(PurgePage::End(now.wall)).await?;
        }
        Ok(Ok(purged))
    }
}
