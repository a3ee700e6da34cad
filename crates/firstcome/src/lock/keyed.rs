//! Locks by key, for which each client tries repeatedly: in layouts that other libraries share, and on several servers
//! that vote.

mod claim;
mod cohort;
mod reentry;

use super::kind::{BoxFuture, OtherHold, OtherLocks};
use super::{Fence, LEASE_DEFAULT, LockError, Terms, lease_ms, parse_name};
use crate::fence::FenceToken;
use claim::{Claim, ReleaseReply, TimedGrant, deadline_of, give_back, lease_ms_until, lease_within, over_at};
use cohort::{Cohort, CohortLines, CohortTurn};
use firstcome_store::core::id::OwnerName;
use firstcome_store::core::lock::{ClientId, Request, Watch};
use firstcome_store::edge::{draw_chance, draw_secret};
use firstcome_store::key::{KeyStore, Notifications};
use firstcome_store::{Guarantees, StoreError};
use parking_lot::Mutex;
use reentry::{Left, Ownership};
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout, timeout_at};

/// The most bytes that a key can have.
const KEY_BYTES_MAX: usize = 1_024;
/// The pause between two tries of a release or a renewal that got no answer.
const REPEAT: Duration = Duration::from_millis(100);
/// The owner in fence tokens: of these stores only those that vote have fences, and none has a place for a name.
const OWNER: &str = "quorum";

/// Locks by key on a store that other programs may use too. Only the holder knows the word that it stored. Cheap to
/// clone.
pub(super) struct KeyLocks<S: KeyStore> {
    shared: Arc<Shared<S>>,
}

struct Shared<S: KeyStore> {
    store: S,
    /// The lines of the tasks of this process that share holds in cohorts.
    lines: CohortLines<S>,
    runtime: Handle,
    /// How many claims are being released in the background.
    leaving: watch::Sender<usize>,
}

impl<S: KeyStore> KeyLocks<S> {
    /// Returns the store that keeps the locks.
    pub(super) fn store(&self) -> &S {
        &self.shared.store
    }

    /// Opens locks on any such store. Call it within a Tokio runtime, which then runs renewals.
    pub(super) fn over(store: S) -> Self {
        Self {
            shared: Arc::new(Shared {
                store,
                lines: CohortLines::default(),
                runtime: Handle::current(),
                leaving: watch::Sender::new(0),
            }),
        }
    }

    fn claim(&self, terms: &Terms) -> Result<(Claim<S>, u32), LockError> {
        if !(1..=KEY_BYTES_MAX).contains(&terms.name.len()) {
            return Err(LockError::value("key", "1 to 1024 bytes"));
        }
        let lease_ms = lease_within(&self.shared.store, terms.lease.unwrap_or(LEASE_DEFAULT))?;
        let secret = draw_secret().map_err(|fault| LockError::Unavailable(StoreError::Faulted(Arc::new(fault))))?;
        let word = secret[..20].iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
        let (shared, key) = (Arc::clone(&self.shared), Arc::from(&*terms.name));
        Ok((Claim { shared, key, word, over_at: None }, lease_ms))
    }

    /// Tries repeatedly until it gets the lock, one request for each try; without a wait, once.
    #[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
    async fn get(&self, terms: &Terms) -> Result<KeyGuard<S>, LockError> {
        let (mut claim, lease_ms) = self.claim(terms)?;
        if terms.wait.is_zero() {
            let held = claim.attempt(lease_ms, NonZeroU32::MIN).await?;
            return Ok(KeyGuard::new(claim, held, (lease_ms, terms.watch), None));
        }
        let until = Instant::now() + terms.wait;
        if terms.passes == NonZeroU32::MIN {
            let (claim, held) = self.ask(terms, claim, lease_ms, until).await?;
            return Ok(KeyGuard::new(claim, held, (lease_ms, terms.watch), None));
        }
        match CohortLines::turn(&self.shared, &claim.key, until).await? {
            CohortTurn::Hold(guard) => Ok(guard),
            CohortTurn::Ask(asking) => {
                let (claim, held) = self.ask(terms, claim, lease_ms, until).await?;
                let lease = Duration::from_millis(u64::from(lease_ms));
                let cohort = Cohort::new(asking, held.grant, terms.passes, Instant::now() + lease);
                let held = TimedGrant { grant: S::pass(held.grant, terms.passes.get() - 1), ..held };
                Ok(KeyGuard::new(claim, held, (lease_ms, terms.watch), Some(cohort)))
            }
        }
    }

    /// Asks the store until the lock is taken or the time is over.
    #[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
    async fn ask(
        &self,
        terms: &Terms,
        mut claim: Claim<S>,
        lease_ms: u32,
        until: Instant,
    ) -> Result<(Claim<S>, TimedGrant<S::Grant>), LockError> {
        let store = &self.shared.store;
        let once = terms.tries == NonZeroU32::MIN;
        let mut ear = if once { None } else { store.listen_by_trying(&claim.key, &claim.word) };
        for tries in 1.. {
            let (refused, lasts) = match claim.attempt(lease_ms, terms.passes).await {
                Ok(held) => return Ok((claim, held)),
                Err(LockError::Contended { ttl, .. }) => (LockError::TimedOut { position: None }, Some(ttl)),
                Err(error) => (error, None),
            };
            let left = until.saturating_duration_since(Instant::now());
            if terms.tries.get() <= tries || left.is_zero() {
                return Err(refused);
            }
            if tries == 1 && ear.is_none() {
                ear = store.listen(&claim.key, &claim.word).await;
                if ear.is_some() {
                    // The lock may have become free before this process listened.
                    continue;
                }
            }
            let pause = Duration::from_micros(terms.pauses.pause_us(tries, draw_chance()));
            // When the time is over, the loop tries once more.
            match &mut ear {
                // Try again whether or not a notification came.
                Some(ear) => {
                    let pause = lasts.map_or(pause, |lasts| ear.patience(pause, lasts));
                    drop(timeout(pause.min(left), ear.freed()).await);
                }
                None => sleep(pause.min(left)).await,
            }
        }
        Err(LockError::TimedOut { position: None })
    }
}

/// A lock that is held. Dropping it releases the lock in the background.
pub(super) struct KeyGuard<S: KeyStore> {
    hold: Arc<Hold<S>>,
    grant: S::Grant,
    /// Whether this guard still has its share in the hold.
    shares: bool,
}

struct Hold<S: KeyStore> {
    ownership: Mutex<Ownership<S>>,
    /// Held by the task that tells the store the number of guards. One task at a time, so that the last number is
    /// right.
    telling: tokio::sync::Mutex<()>,
    shared: Arc<Shared<S>>,
    key: Arc<str>,
    word: Box<str>,
    /// The lease that renewals ask for.
    lease_ms: AtomicU32,
    deadline: watch::Sender<Instant>,
    /// How the hold may be passed on; `None` outside of a cohort.
    cohort: Option<Cohort<S>>,
}

impl<S: KeyStore> KeyGuard<S> {
    fn new(
        claim: Claim<S>,
        held: TimedGrant<S::Grant>,
        (lease_ms, watch): (u32, Watch),
        cohort: Option<Cohort<S>>,
    ) -> Self {
        let (shared, key, word) = (Arc::clone(&claim.shared), Arc::clone(&claim.key), claim.word.clone());
        let deadline = watch::Sender::new(held.deadline);
        let (ownership, telling) = (Mutex::new(Ownership::first(claim)), tokio::sync::Mutex::default());
        let lease_ms = AtomicU32::new(lease_ms);
        let hold = Arc::new(Hold { ownership, telling, shared, key, word, lease_ms, deadline, cohort });
        if watch == Watch::Renew {
            let renewed = Arc::clone(&hold);
            let watchdog = hold.shared.runtime.spawn(async move { renewed.keep_renewing().await });
            hold.ownership.lock().watched_by(watchdog.abort_handle());
        }
        Self { hold, grant: held.grant, shares: true }
    }

    /// Until when the lock is certainly held, unless it is renewed before. It counts from when the try was sent, less one
    /// per cent and two milliseconds. In the past once the lock is lost.
    fn deadline(&self) -> Instant {
        *self.hold.deadline.borrow()
    }

    #[expect(clippy::disallowed_methods, reason = "a time left is told in relation to the machine's clock")]
    fn remaining(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    fn is_lost(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Resolves when the lock is lost, at the latest at its deadline. Never resolves once the lock was released. Of a hold
    /// that was passed on, it goes on to watch the hold.
    fn lost(&self) -> impl Future<Output = ()> + Send + use<S> {
        let mut deadline = self.hold.deadline.subscribe();
        async move {
            loop {
                let until = *deadline.borrow_and_update();
                match timeout_at(until.into(), deadline.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => std::future::pending().await,
                    Err(_) => return,
                }
            }
        }
    }

    async fn renew(&self, lease: Duration) -> Result<(), LockError> {
        let lease_ms = lease_within(&self.hold.shared.store, lease)?;
        if self.is_lost() {
            return Err(LockError::Lost);
        }
        self.hold.lease_ms.store(lease_ms, Ordering::Relaxed);
        self.hold.renew().await
    }

    /// Releases the lock; no request if the hold is passed on to another task of its cohort. While there are
    /// [other guards](Self::reenter) of the same hold, only this guard ends, with one request where the layout counts
    /// guards.
    async fn release(mut self) -> Result<(), LockError> {
        if self.pass_on() {
            return Ok(());
        }
        let mut claim = match self.leave() {
            Left::Last(claim) => claim,
            Left::Others => return self.leave_to_others().await,
        };
        let until = claim.over_at.unwrap_or_else(|| self.deadline());
        let was_lost = self.is_lost();
        // The claim still exists while this runs, so dropping the future releases the lock in the background.
        let given_back = give_back(&claim.shared, &claim.key, &claim.word, until).await?;
        claim.over_at = None;
        self.hold.let_the_next_ask();
        match given_back {
            ReleaseReply::Held => Ok(()),
            ReleaseReply::Perhaps if !was_lost => Ok(()),
            ReleaseReply::Perhaps | ReleaseReply::NotHeld => Err(LockError::Lost),
        }
    }
}

impl<S: KeyStore> Drop for KeyGuard<S> {
    fn drop(&mut self) {
        if self.shares && !self.pass_on() {
            match self.leave() {
                Left::Last(claim) => {
                    drop(claim);
                    self.hold.let_the_next_ask();
                }
                Left::Others => drop(self.hold.tell_in_background()),
            }
        }
    }
}

impl<S: KeyStore> Hold<S> {
    #[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
    async fn renew(&self) -> Result<(), LockError> {
        let sent = Instant::now();
        // Never for less than the guard counts on: a renewal whose answer is lost would end the hold before its deadline.
        let counted_on_ms = lease_ms_until(*self.deadline.borrow(), sent).min(self.shared.store.lease_ms_max());
        let lease_ms = self.lease_ms.load(Ordering::Relaxed).max(counted_on_ms);
        self.ownership.lock().lasts_until(over_at(sent, lease_ms));
        if self.shared.store.renew(&self.key, &self.word, lease_ms).await? {
            self.deadline.send_replace(deadline_of(sent, lease_ms));
            Ok(())
        } else {
            self.deadline.send_replace(sent);
            Err(LockError::Lost)
        }
    }

    /// Renews three times per lease until the hold is lost.
    async fn keep_renewing(&self) {
        let third = || Duration::from_millis(u64::from(self.lease_ms.load(Ordering::Relaxed))) / 3;
        let mut pause = third();
        loop {
            sleep(pause).await;
            pause = match self.renew().await {
                Ok(()) => third(),
                Err(LockError::Lost) => return,
                // Sooner than a third of the lease: perhaps there is time for only one more try.
                Err(_) => REPEAT.min(third() / 2),
            };
        }
    }
}

impl<S: KeyStore> OtherLocks for KeyLocks<S> {
    fn guarantees(&self) -> Guarantees {
        self.shared.store.guarantees()
    }

    fn acquire<'a>(&'a self, terms: &'a Terms) -> BoxFuture<'a, Result<Arc<dyn OtherHold>, LockError>> {
        Box::pin(async move { Ok(Arc::new(self.get(terms).await?) as Arc<dyn OtherHold>) })
    }

    fn quiet(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // The wait fails only if the sender is gone, which lives as long as `self.shared`.
            let _ = self.shared.leaving.subscribe().wait_for(|leaving| *leaving == 0).await;
            self.shared.store.quiet().await;
        })
    }
}

impl<S: KeyStore> OtherHold for KeyGuard<S> {
    fn name(&self) -> &str {
        &self.hold.key
    }

    fn fence(&self) -> Option<Fence> {
        S::fence(self.grant)
    }

    fn token(&self, fence: Fence) -> Result<FenceToken, LockError> {
        // Its first 64 bits tell the holds apart; a caller who guessed them would still lack the rest of the word.
        let client = self.hold.word.get(..16).and_then(|word| u64::from_str_radix(word, 16).ok()).unwrap_or(0);
        let request = Request { client: ClientId(client), number: fence.get() };
        let owner = OwnerName::parse(OWNER).map_err(|error| LockError::name("owner", error))?;
        Ok(FenceToken::of_hold(&parse_name(&self.hold.key)?, fence, &owner, request))
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.deadline())
    }

    fn is_lost(&self) -> bool {
        self.is_lost()
    }

    fn lost(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.lost())
    }

    fn reenter(self: Arc<Self>) -> BoxFuture<'static, Result<Arc<dyn OtherHold>, LockError>> {
        // Each guard has a share of its own, which the store may count.
        Box::pin(async move { Ok(Arc::new((*self).reenter().await?) as Arc<dyn OtherHold>) })
    }

    fn renew(&self, lease: Duration) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(self.renew(lease))
    }

    fn release(self: Arc<Self>) -> BoxFuture<'static, Result<(), LockError>> {
        Box::pin(async move {
            let Some(guard) = Arc::into_inner(self) else { return Ok(()) };
            guard.release().await
        })
    }
}
