//! Removes what nothing rests on any more, in pages, beside nodes at work.
//!
//! # Invariants
//! - A coupon whose claims are removed is marked before the first one goes, and its keys leave Redis: from then on it issues nothing,
//!   and `verify` expects rows only of serials that no page has removed.
//! - A ticket whose row is removed stays gone: a log that is made again from the rows has all numbers below the room's
//!   `gone_before` as gone.
//! - What is removed is older than the retention by the clock of the database. A clock that is obviously wrong removes nothing.
//! - One purge runs at a time: one node has the turn in the database, and that node runs one.
//! - A coupon or a room that stands still holds up no other. Its claims stay, and its rows of tickets that are gone.
//! - Heads go from the first one of a chain on, and the newest one stays. A row says up to which sequence they went.
//!
//! The key of a request that drew a ticket goes with the ticket.

mod heads;
mod keys;
mod rooms;

pub(crate) use keys::end_deleted;

use crate::Cluster;
use crate::back::is_of_object;
use crate::database::{PurgeTurn, kind};
use crate::node::Node;
use firstcome_core::time::Timestamp;
use firstcome_sql::boxed::boxed;
use firstcome_store::StoreError;
use firstcome_store::edge::Stopwatch;
use firstcome_store::purge::{
    ClockCheck, PurgeAnswer, PurgeMode, PurgeRejection, PurgeRequest, PurgeStore, Purged, RETAIN_HEADS_MIN, Retention,
    check_clock, kept_since,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// How long a node has the turn to purge without being heard of.
const LEASE: Duration = Duration::from_secs(60);
/// The shortest and the longest time between two pages.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// See [`PAUSE_MIN`].
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// So far the clocks of Redis may be ahead of that of the database.
const AHEAD_OF_DATABASE_US: i64 = 3_600_000_000;
/// Objects that are read at once.
const OBJECTS_AT_ONCE: u32 = 256;

/// Refuses a clock that is obviously wrong. Rows bear instants of other servers too, whose clocks may be a little ahead.
fn judge_clock(turn: &PurgeTurn) -> Result<(), PurgeRejection> {
    let earlier = |at: Timestamp| Timestamp::clamped_us(at.as_us().saturating_sub(AHEAD_OF_DATABASE_US));
    check_clock(turn.now, turn.last_at.map(earlier), turn.finished_at)
}

/// The one purge of this node. Ends when it is dropped.
struct LocalTurn<'a>(&'a AtomicBool);

impl<'a> LocalTurn<'a> {
    /// `None` while another purge of this node runs: the turn in the database tells nodes apart, and not their purges.
    fn take(is_purging: &'a AtomicBool) -> Option<Self> {
        // Lazily: to drop the guard of another purge would end it.
        (!is_purging.swap(true, Ordering::AcqRel)).then(|| Self(is_purging))
    }
}

impl Drop for LocalTurn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Hears after each page what was removed up to now.
type Progress<'a> = &'a mut (dyn FnMut(&Purged) + Send);

/// A purge under way.
pub(crate) struct Purge<'a> {
    node: &'a Arc<Node>,
    now: Timestamp,
    mode: PurgeMode,
    purged: Purged,
    page: Stopwatch,
    progress: Progress<'a>,
}

impl Purge<'_> {
    /// After each page: as long as the page took others go first. Keeps the turn. False if another node has it by now.
    async fn pause(&mut self) -> Result<bool, StoreError> {
        (self.progress)(&self.purged);
        sleep(self.page.elapsed().clamp(PAUSE_MIN, PAUSE_MAX)).await;
        let is_kept = self.node.database.keep_turn(&self.node.sequencer.node, LEASE.as_micros() as i64).await?;
        self.page = Stopwatch::start();
        Ok(is_kept)
    }

    /// All of it. False if another node has taken the turn meanwhile.
    async fn run(&mut self, retention: &Retention) -> Result<bool, StoreError> {
        let of = |retain: Option<Duration>| retain.map(|retain| kept_since(self.now, retain));
        let (requests, tickets) = (of(retention.requests), of(retention.tickets));
        let (claims, letters) = (of(retention.claims), of(retention.dead_letters));
        // Also where claims stay for ever: a purge by another setting may have been cut short.
        if !self.claims(claims).await? {
            return Ok(false);
        }
        if let Some(by) = requests
            && !self.requests(by).await?
        {
            return Ok(false);
        }
        if let Some(by) = tickets
            && !self.rooms(by, retention.tickets.unwrap_or_default()).await?
        {
            return Ok(false);
        }
        if let Some(retain) = retention.heads
            && !self.heads(kept_since(self.now, retain.max(RETAIN_HEADS_MIN))).await?
        {
            return Ok(false);
        }
        let Some(by) = letters else { return Ok(true) };
        if self.mode == PurgeMode::Count {
            self.purged.dead_letters = self.node.database.count_dead_letters(by).await?;
            return Ok(true);
        }
        loop {
            let gone = self.node.database.remove_dead_letters(by).await?;
            self.purged.dead_letters += gone;
            if gone == 0 {
                return Ok(true);
            }
            if !self.pause().await? {
                return Ok(false);
            }
        }
    }

    /// Claims of coupons that are over by this instant, and of those whose purge was cut short.
    async fn claims(&mut self, over_by: Option<Timestamp>) -> Result<bool, StoreError> {
        let mut after = 0;
        loop {
            let page = self.node.database.purgeable(over_by, after, OBJECTS_AT_ONCE).await?;
            let Some((last, ..)) = page.last() else { return Ok(true) };
            after = *last;
            for (id, issued, purged_to) in page {
                if !self.claims_of(id, issued, purged_to, over_by).await? {
                    return Ok(false);
                }
            }
        }
    }

    async fn claims_of(
        &mut self,
        id: i64,
        issued: u32,
        purged_to: u32,
        by: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let node = self.node;
        if self.mode == PurgeMode::Count {
            self.purged.claims += u64::from(issued - purged_to);
            self.purged.coupons += 1;
            return Ok(true);
        }
        // Before the mark: where the database lacks what it acknowledged, its settings say nothing.
        match node.judged_again(id).await {
            Err(error) if is_of_object(&error) => return Ok(true),
            judged => judged?,
        }
        if !node.database.mark_purged(id, by).await? {
            return Ok(true);
        }
        // This node refuses claims from now on, and Redis forgets who has one.
        let state = node.keep(node.database.coupon_again(id).await?);
        match node.end_keys(&state).await {
            Err(error) if is_of_object(&error) => return Ok(true),
            done => done?,
        }
        let mut to = purged_to;
        loop {
            // Once more after the last claim: a redemption may have been under way.
            for kind in [kind::CLAIM, kind::REDEMPTION] {
                loop {
                    let gone = node.database.remove_requests_of(id, kind).await?;
                    self.purged.requests += gone;
                    if gone == 0 {
                        break;
                    }
                    if !self.pause().await? {
                        return Ok(false);
                    }
                }
            }
            if to == issued {
                self.purged.coupons += 1;
                return Ok(true);
            }
            while to < issued {
                let from = to + 1;
                to = to.saturating_add(crate::database::PAGE_ROWS).min(issued);
                node.database.remove_claims(id, from, to).await?;
                self.purged.claims += u64::from(to - from + 1);
                if !self.pause().await? {
                    return Ok(false);
                }
            }
        }
    }

    /// Keys of requests that had their effect at this instant or before.
    async fn requests(&mut self, by: Timestamp) -> Result<bool, StoreError> {
        let (node, mut after) = (self.node, i64::MIN);
        while let Some(coupon) = node.database.coupon_with_requests(after).await? {
            after = coupon;
            for kind in [kind::CLAIM, kind::REDEMPTION] {
                let mut last = None;
                loop {
                    let page = node.database.dated_requests(coupon, kind, last).await?;
                    let Some(end) = page.last() else { break };
                    last = Some(end.key);
                    let is_due = |at: i64| at <= by.as_us();
                    let due = page.iter().filter(|it| it.at.is_some_and(is_due)).map(|it| it.key);
                    let due: Vec<u128> = due.collect();
                    if self.mode == PurgeMode::Count {
                        self.purged.requests += due.len() as u64;
                    } else if !due.is_empty() {
                        self.purged.requests += node.database.remove_requests(coupon, kind, &due).await?;
                        if kind == kind::CLAIM {
                            node.forget_keys(coupon, &due).await?;
                        }
                    }
                    if !self.pause().await? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}

impl Node {
    /// Whether the database has of a coupon what it acknowledged: an error if it lacks something.
    async fn judged_again(&self, id: i64) -> Result<(), StoreError> {
        let state = self.keep(self.database.coupon_again(id).await?);
        self.judged(&state).await.map(drop)
    }

    /// See [`PurgeStore::purge`].
    async fn purge(self: &Arc<Self>, request: PurgeRequest, progress: Progress<'_>) -> PurgeAnswer {
        let Some(_turn) = LocalTurn::take(&self.is_purging) else { return Ok(Err(PurgeRejection::Running)) };
        let name = &self.sequencer.node;
        let Some(turn) = self.database.take_turn(name, LEASE.as_micros() as i64).await? else {
            return Ok(Err(PurgeRejection::Running));
        };
        if request.clock == ClockCheck::Refuse
            && let Err(rejection) = judge_clock(&turn)
        {
            self.database.end_purge(name, None).await?;
            return Ok(Err(rejection));
        }
        let (mode, purged, page) = (request.mode, Purged::default(), Stopwatch::start());
        let mut purge = Purge { node: self, now: turn.now, mode, purged, page, progress };
        let is_whole = match purge.run(&request.retention).await {
            Ok(is_whole) => is_whole,
            Err(error) => {
                // It hears of the page that failed too.
                (purge.progress)(&purge.purged);
                // The next one goes on. If this fails too, the turn ends by itself.
                let _ = self.database.end_purge(name, None).await;
                return Err(error);
            }
        };
        let purged = purge.purged;
        if !is_whole {
            // Another node took the turn, since this one was not heard of for long. Pages were removed.
            return Err(StoreError::busy_with("another node goes on with the purge: see what that one answers"));
        }
        self.database.end_purge(name, (mode == PurgeMode::Remove).then_some(turn.now)).await?;
        Ok(Ok(purged))
    }
}

impl PurgeStore for Cluster {
    async fn purge(&self, request: PurgeRequest) -> PurgeAnswer {
        self.purge_with(request, |_| {}).await
    }
}

impl Cluster {
    /// [`PurgeStore::purge`] that calls `progress` after each page with what was removed up to now, or counted.
    pub async fn purge_with(&self, request: PurgeRequest, mut progress: impl FnMut(&Purged) + Send) -> PurgeAnswer {
        boxed(self.node.purge(request, &mut progress)).await
    }

    /// Returns how long ago the last purge of any node came to its end, by the clock of the database. `None` if none ever did.
    pub async fn last_purge_age(&self) -> Result<Option<Duration>, StoreError> {
        Ok(boxed(self.node.database.last_purge_age()).await?)
    }
}
