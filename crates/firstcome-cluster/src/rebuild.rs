//! Makes sure that a sequencer is whole, and rebuilds it from SQL if it is not.
//!
//! A sequencer is whole if it is of the generation that SQL names, judges by no later settings than SQL has, has drawn at least as
//! many tickets as SQL has written, and still has the very entry that SQL has written last: then SQL holds a prefix of its stream. Anything else (a flush, an
//! empty restart, an old snapshot, a replica that was behind, keys that were evicted) is the same case: the next generation
//! begins in SQL, which ends all writing from the old stream, and one node brings in who has a claim, and opens.
//!
//! The other way round it is another matter: where SQL is behind what it acknowledged, nothing is rebuilt ([`super::back`]).

use super::back::Judged;
use super::coupon_state::CouponState;
use super::database::CouponRow;
use super::sequencer::{FILL_PAIRS_MAX, Probe};
use crate::node::Node;
use firstcome_store::StoreError;
use firstcome_store::edge::Stopwatch;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two looks at a sequencer that another node rebuilds.
const PAUSE: Duration = Duration::from_millis(10);
/// Users that are read at once.
const USERS_MAX: usize = 5 * FILL_PAIRS_MAX;

impl Node {
    /// Returns when the sequencer of a coupon is whole, and judges by the settings of SQL or later ones; or when nothing is left of it,
    /// if the coupon is over.
    ///
    /// Four round trips if it is; if not, as long as it takes to bring in all claims (a million in a few seconds).
    pub(super) async fn rebuild(&self, state: &Arc<CouponState>) -> Result<(), StoreError> {
        let doubts = self.doubts();
        let _one_at_a_time = state.mending.lock().await;
        let until = Instant::now() + self.options.patience;
        loop {
            let Judged { row, probe, is_whole } = self.judged(state).await?;
            if is_whole {
                if probe.version.is_some_and(|version| row.version <= version)
                    || self.sequencer.adjust(state.keys, &row).await?
                {
                    state.trusted.store(doubts, Ordering::Relaxed);
                    return Ok(());
                }
                continue;
            }
            if row.is_over() {
                self.end_broken(&row, &probe).await?;
                return Ok(());
            }
            // What was drained meanwhile is trimmed: then SQL is further than was read.
            if self.database.coupon_again(state.keys.coupon).await? == row
                && self.rebuild_under_lease(state, &row, &probe).await?
            {
                state.trusted.store(doubts, Ordering::Relaxed);
                return Ok(());
            }
            self.wait_for_lease(until).await?;
        }
    }

    /// Makes a sequencer anew that is not whole. False, and nothing is changed, if another node does or has just done it.
    async fn rebuild_under_lease(
        &self,
        state: &Arc<CouponState>,
        row: &CouponRow,
        probe: &Probe,
    ) -> Result<bool, StoreError> {
        if !self.sequencer.seize(state.keys).await? {
            return Ok(false);
        }
        // A caller that had the lease before may just have opened it.
        let again = self.judged(state).await;
        if !matches!(&again, Ok(again) if !again.is_whole && again.row == *row) {
            self.sequencer.unseize(state.keys).await?;
            return again.map(|_| false);
        }
        self.begin_anew(state, row, probe).await
    }

    /// Begins the next generation, under the lease. False, and nothing is open, if that is over or Redis was lost again.
    async fn begin_anew(&self, state: &Arc<CouponState>, row: &CouponRow, probe: &Probe) -> Result<bool, StoreError> {
        let before = row.generation;
        let watch = Stopwatch::start();
        // A new coupon has nothing that could be lost.
        let is_rebuilt = 0 < before;
        if is_rebuilt {
            let (coupon, node) = (&row.name, &self.sequencer.node);
            tracing::info!(%coupon, node, generation = before, "rebuilding what Redis knows of the coupon");
        }
        // Another node may have had the lease before, and be slow: everything that it brings in is of a generation that is over.
        let Some((row, now)) = self.database.next_generation(row).await? else { return Ok(false) };
        // Nothing of the old sequencer counts any more, and no caller must be let in there. What an attempt before this one has left
        // goes too, and what another history of this database had under the new number.
        let mut over = vec![before, row.generation];
        over.extend(probe.generation.filter(|old| !over.contains(old)));
        if !self.sequencer.clear(state.keys, &over).await? {
            return Ok(false);
        }
        let Some(users) = self.fill(state, &row).await? else { return Ok(false) };
        if !self.sequencer.open(state.keys, &row, now).await? {
            return Ok(false);
        }
        state.learn(&row);
        self.counters.rebuilt.fetch_add(1, Ordering::Relaxed);
        if is_rebuilt {
            let (coupon, node, generation) = (&row.name, &self.sequencer.node, row.generation);
            let lasted_ms = watch.elapsed().as_millis() as u64;
            tracing::info!(%coupon, node, generation, claims = users, lasted_ms, "Redis knows the coupon again");
        }
        Ok(true)
    }

    /// Brings in everybody who has a claim, and their keys, under the lease. Returns how many have one; `None` if the lease is over.
    async fn fill(&self, state: &CouponState, row: &CouponRow) -> Result<Option<u64>, StoreError> {
        let (mut after, mut count) = (0, 0);
        loop {
            let (users, last) = self.database.users(row.id, after, USERS_MAX).await?;
            if users.is_empty() {
                break;
            }
            for users in users.chunks(FILL_PAIRS_MAX) {
                if !self.sequencer.fill_users(state.keys, row.generation, users).await? {
                    return Ok(None);
                }
                count += users.len() as u64;
            }
            after = last;
        }
        let mut after = None;
        loop {
            let requests = self.database.requests(row.id, after, FILL_PAIRS_MAX).await?;
            let Some((last, _)) = requests.last() else { break };
            after = Some(*last);
            if !self.sequencer.fill_keys(state.keys, row.generation, &requests).await? {
                return Ok(None);
            }
        }
        Ok(Some(count))
    }

    /// Makes a sequencer anew even if it looks whole: a caller has seen that it is not.
    pub(super) async fn renew(&self, state: &Arc<CouponState>) -> Result<(), StoreError> {
        let _one_at_a_time = state.mending.lock().await;
        let until = Instant::now() + self.options.patience;
        loop {
            let Judged { row, probe, .. } = self.judged(state).await?;
            if row.is_over() {
                return self.end_broken(&row, &probe).await;
            }
            if self.sequencer.seize(state.keys).await? && self.begin_anew(state, &row, &probe).await? {
                return Ok(());
            }
            self.wait_for_lease(until).await?;
        }
    }

    /// Brings in everybody who has a claim into the sequencer as it is.
    pub(super) async fn refill(&self, state: &Arc<CouponState>) -> Result<(), StoreError> {
        let _one_at_a_time = state.mending.lock().await;
        let until = Instant::now() + self.options.patience;
        loop {
            if self.sequencer.seize(state.keys).await? {
                // No caller begins another generation without the lease.
                let judged = self.judged(state).await;
                if judged.is_err() {
                    self.sequencer.unseize(state.keys).await?;
                }
                let Judged { row, probe, .. } = judged?;
                let is_open = probe.generation == Some(row.generation);
                let is_filled = is_open && self.fill(state, &row).await?.is_some();
                self.sequencer.unseize(state.keys).await?;
                if is_filled || !is_open {
                    return Ok(());
                }
            }
            self.wait_for_lease(until).await?;
        }
    }

    /// Returns when no node is about to bring in users that it read before this call, and the sequencer is whole.
    ///
    /// Two round trips more than [`Self::rebuild`].
    pub(super) async fn refresh(&self, state: &Arc<CouponState>) -> Result<(), StoreError> {
        self.wait_for_rebuild(state).await?;
        self.rebuild(state).await
    }

    /// Returns when no node is about to bring in users that it read before this call. Two round trips.
    pub(super) async fn wait_for_rebuild(&self, state: &CouponState) -> Result<(), StoreError> {
        let _one_at_a_time = state.mending.lock().await;
        let until = Instant::now() + self.options.patience;
        while !self.sequencer.seize(state.keys).await? {
            self.wait_for_lease(until).await?;
        }
        Ok(self.sequencer.unseize(state.keys).await?)
    }

    async fn wait_for_lease(&self, until: Instant) -> Result<(), StoreError> {
        if until < Instant::now() {
            let says = "nothing was done: another node still rebuilds what Redis knows of it";
            return Err(StoreError::busy_with(says));
        }
        sleep(PAUSE).await;
        Ok(())
    }
}
