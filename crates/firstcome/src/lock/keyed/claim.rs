//! What one acquisition may have taken, how long it lasts, and its release.

use super::{LockError, REPEAT, Shared, lease_ms};
use firstcome_store::StoreError;
use firstcome_store::key::{KeyStore, Tried};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A server expires keys to the millisecond, and a clock may be read just before a millisecond ends.
const EXPIRY_GRAIN: Duration = Duration::from_millis(2);

/// What one acquisition may have taken. Dropping it releases that in the background.
pub(super) struct Claim<S: KeyStore> {
    pub(super) shared: Arc<Shared<S>>,
    pub(super) key: Arc<str>,
    pub(super) word: Box<str>,
    /// When the claim is surely over: one lease after the last try was sent. `None` while nothing can have been taken.
    pub(super) over_at: Option<Instant>,
}

/// Checks a lease against the limits of the store, and returns it in milliseconds.
pub(super) fn lease_within(store: &impl KeyStore, lease: Duration) -> Result<u32, LockError> {
    let wanted = "at most as long as the store lets a hold last";
    lease_ms(lease).and_then(
        |ms| {
            if ms <= store.lease_ms_max() { Ok(ms) } else { Err(LockError::value("lease", wanted)) }
        },
    )
}

/// Returns until when a lease requested at `sent` certainly lasts: one per cent less, because two clocks may differ so
/// much.
pub(super) fn deadline_of(sent: Instant, lease_ms: u32) -> Instant {
    let lease = Duration::from_millis(u64::from(lease_ms));
    sent + (lease - lease / 100).saturating_sub(EXPIRY_GRAIN)
}

/// Returns the shortest lease, requested at `sent`, whose [`deadline_of`] is not before this one.
pub(super) fn lease_ms_until(deadline: Instant, sent: Instant) -> u32 {
    let left = deadline.saturating_duration_since(sent);
    if left.is_zero() {
        return 0;
    }
    let lease_us = ((left + EXPIRY_GRAIN).as_micros() * 100).div_ceil(99);
    u32::try_from(lease_us.div_ceil(1_000)).unwrap_or(u32::MAX)
}

/// Returns when a lease requested at `sent` is surely over, even by a clock that is slower than the server's.
pub(super) fn over_at(sent: Instant, lease_ms: u32) -> Instant {
    let lease = Duration::from_millis(u64::from(lease_ms));
    sent + lease + lease / 100 + EXPIRY_GRAIN
}

/// What a try has taken, and until when.
#[derive(Clone, Copy)]
pub(super) struct TimedGrant<G> {
    pub(super) grant: G,
    pub(super) deadline: Instant,
}

impl<S: KeyStore> Claim<S> {
    /// Tries once.
    #[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
    pub(super) async fn attempt(
        &mut self,
        lease_ms: u32,
        passes: NonZeroU32,
    ) -> Result<TimedGrant<S::Grant>, LockError> {
        let sent = Instant::now();
        // An earlier try may still arrive. Then the end of this try is the end of both.
        let before = self.over_at.replace(over_at(sent, lease_ms));
        match self.shared.store.take_for(&self.key, &self.word, lease_ms, passes).await {
            Ok(Tried::Taken(grant)) => {
                let deadline = deadline_of(sent, lease_ms);
                // After so long a wait the answer proves nothing: the lease may be over.
                if Instant::now() < deadline { Ok(TimedGrant { grant, deadline }) } else { Err(LockError::Unknown) }
            }
            Ok(Tried::Held { lasts }) => {
                self.over_at = before;
                let (holder, ttl) = ("another client".to_owned(), lasts.unwrap_or(Duration::MAX));
                Err(LockError::Contended { holder, waiters: 0, ttl })
            }
            Err(StoreError::Unknown) => Err(LockError::Unknown),
            Err(error) => {
                self.over_at = before;
                Err(LockError::from(error))
            }
        }
    }
}

impl<S: KeyStore> Drop for Claim<S> {
    fn drop(&mut self) {
        if let Some(over_at) = self.over_at.take() {
            let (shared, key, word) = (Arc::clone(&self.shared), Arc::clone(&self.key), self.word.clone());
            shared.leaving.send_modify(|leaving| *leaving += 1);
            self.shared.runtime.spawn(async move {
                // The outcome does not matter: no caller waits for it.
                let _ = give_back(&shared, &key, &word, over_at).await;
                shared.leaving.send_modify(|leaving| *leaving -= 1);
            });
        }
    }
}

/// What became of a release.
#[derive(PartialEq, Eq)]
pub(super) enum ReleaseReply {
    /// The lock was held until the release.
    Held,
    /// The lock was not held, or an earlier try without an answer released it.
    Perhaps,
    /// The hold was over before the release.
    NotHeld,
}

/// Releases a lock, repeatedly until there is an answer or the lease is over.
#[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
pub(super) async fn give_back(
    shared: &Shared<impl KeyStore>,
    key: &str,
    word: &str,
    over_at: Instant,
) -> Result<ReleaseReply, LockError> {
    let mut perhaps_done = false;
    loop {
        let error = match shared.store.release(key, word).await {
            Ok(true) => return Ok(ReleaseReply::Held),
            Ok(false) => return Ok(if perhaps_done { ReleaseReply::Perhaps } else { ReleaseReply::NotHeld }),
            Err(error) => error,
        };
        perhaps_done |= matches!(error, StoreError::Unknown);
        if over_at <= Instant::now() {
            return Err(if perhaps_done { LockError::Unknown } else { LockError::from(error) });
        }
        sleep(REPEAT).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an instant to begin with")]
    fn a_lease_until_a_deadline_is_the_shortest_that_reaches_it() {
        let sent = Instant::now();
        assert_eq!(lease_ms_until(sent, sent), 0);
        for lease_ms in [100, 101, 999, 30_000, 691_200_000] {
            let deadline = deadline_of(sent, lease_ms);
            let shortest = lease_ms_until(deadline, sent);
            assert!(deadline <= deadline_of(sent, shortest) && shortest <= lease_ms, "{lease_ms}: {shortest}");
            assert!(deadline_of(sent, shortest - 1) < deadline, "{lease_ms}: {shortest}");
        }
    }
}
