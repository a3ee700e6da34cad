//! Locks by key, for which each client tries repeatedly: on layouts that other libraries share, and on several servers
//! that vote.

mod claim;
mod cohort;
mod reentry;

use super::demands::Demands;
use super::{COHORT_MAX, LockError, lease_ms};
use claim::{Claim, ReleaseReply, TimedGrant, deadline_of, give_back, lease_ms_until, lease_within, over_at};
use cohort::{Cohort, CohortLines, CohortTurn};
use firstcome_redis::{Counts, LinkOptions, OpenError, Redisson, SingleKey};
use firstcome_store::core::limits::WAIT_MS_MAX;
use firstcome_store::core::lock::Watch;
use firstcome_store::core::lock::spin::Pauses;
use firstcome_store::edge::{draw_chance, draw_secret};
use firstcome_store::key::{KeyStore, Notifications};
use firstcome_store::{Guarantees, StoreError};
use parking_lot::Mutex;
use reentry::{Left, Ownership};
use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout, timeout_at};

/// The lease of a request that sets none.
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
/// The base of the pauses unless the request sets others.
const BASE_MS: NonZeroU32 = NonZeroU32::new(100).unwrap();
/// The most bytes that a key can have.
const KEY_BYTES_MAX: usize = 1_024;
/// The pause between two tries of a release or a renewal that got no answer.
const REPEAT: Duration = Duration::from_millis(100);

/// Locks by key on a store that other programs may use too. Only the holder knows the word that it stored. Cheap to
/// clone. See [`SpinLocks`].
pub struct KeyLocks<S: KeyStore> {
    shared: Arc<Shared<S>>,
}

/// Locks of one key each, in the layout of redis-py, redsync, rslock, Spring and many others. All programs that use the
/// same key exclude each other.
///
/// Use these locks only to share a lock with such programs. Among programs that all use this library,
/// [`Locks`](super::Locks) grant in the order of arrival, wait without polling, and give a fence.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::SpinLocks;
/// use std::time::Duration;
///
/// let locks = SpinLocks::redis("redis://localhost").await?;
/// let guard = locks.lock("coupon:lock:{SPRING}").wait(Duration::from_secs(2)).acquire().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Promises
/// - The usual recipe: `SET key word NX PX lease`, with a fresh word of 160 random bits for every acquisition. Only a
///   script that finds this word renews or releases the lock.
/// - A try whose answer was lost is repeated with the same word, and recognises a lock that it has taken already.
/// - A hold is renewed as long as its guard lives, unless the request is [`fixed`](KeyRequest::fixed).
/// - Dropping a future or a guard releases the lock in the background. A lock that cannot be released ends with its
///   lease.
///
/// # Not promised
/// - An order: the client that tries at the right moment gets the lock, and a client may never get it.
/// - A fence: the layout has no place for one. Let the guarded store compare a version before it writes, or use
///   [`Locks`](super::Locks). Another holder may overlap with a holder that stood still for a lease, and neither
///   notices.
/// - That a hold lasts. It ends when the server loses the key: at the end of the lease, and possibly in a failover.
pub type SpinLocks = KeyLocks<SingleKey>;

/// A request for a lock of one key, before it is sent.
pub type SpinRequest = KeyRequest<SingleKey>;

/// A lock of one key that is held. There is no fence: see [`SpinLocks`].
pub type SpinGuard = KeyGuard<SingleKey>;

struct Shared<S: KeyStore> {
    store: S,
    /// The lines of the tasks of this process that share holds in cohorts.
    lines: CohortLines<S>,
    runtime: Handle,
    /// How many claims are being released in the background.
    leaving: watch::Sender<usize>,
}

impl<S: KeyStore> Clone for KeyLocks<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl KeyLocks<SingleKey> {
    /// Opens locks on a Redis or Valkey server; see [`Locks::redis`](super::Locks::redis). One connection.
    pub async fn redis(url: &str) -> Result<Self, OpenError> {
        Self::redis_with(url, LinkOptions::default()).await
    }

    /// Opens locks as [`Self::redis`] does, with custom time-outs, or on a server that may evict keys.
    pub async fn redis_with(url: &str, options: LinkOptions) -> Result<Self, OpenError> {
        Ok(Self::over(SingleKey::open(url, options).await?))
    }

    /// Returns what was sent so far.
    pub fn counts(&self) -> Counts {
        self.shared.store.link().counts()
    }
}

impl KeyLocks<Redisson> {
    /// Returns what was sent so far.
    pub fn counts(&self) -> Counts {
        self.shared.store.counts()
    }
}

impl<S: KeyStore> KeyLocks<S> {
    /// Returns the store that keeps the locks.
    pub(super) fn store(&self) -> &S {
        &self.shared.store
    }

    /// Opens locks on any such store. Call it within a Tokio runtime, which then runs renewals.
    pub fn over(store: S) -> Self {
        Self {
            shared: Arc::new(Shared {
                store,
                lines: CohortLines::default(),
                runtime: Handle::current(),
                leaving: watch::Sender::new(0),
            }),
        }
    }

    /// What the store promises for these locks. No request.
    pub fn guarantees(&self) -> Guarantees {
        self.shared.store.guarantees()
    }

    /// Returns a request for the lock of this key, which is used unchanged: any text of 1 to 1024 bytes. Sends nothing
    /// yet.
    pub fn lock(&self, key: &str) -> KeyRequest<S> {
        KeyRequest {
            shared: Arc::clone(&self.shared),
            key: key.into(),
            pauses: Pauses::ShrinkingJitter { base_ms: BASE_MS },
            tries: NonZeroU32::MAX,
            wait: Duration::from_millis(u64::from(WAIT_MS_MAX)),
            lease: LEASE_DEFAULT,
            watch: Watch::Renew,
            passes: NonZeroU32::MIN,
            demands: Demands::default(),
        }
    }

    /// Resolves when the client has released everything that was dropped or requested in vain. For the end of a
    /// program. Use a time-out: the client keeps trying to reach a server that does not answer until the lease is over.
    /// No request.
    pub async fn quiet(&self) {
        // The wait fails only if the sender is gone, which lives as long as `self.shared`.
        let _ = self.shared.leaving.subscribe().wait_for(|leaving| *leaving == 0).await;
        self.shared.store.quiet().await;
    }
}

/// A request for a lock, before it is sent.
#[must_use = "nothing is asked for before `acquire` or `try_acquire`"]
pub struct KeyRequest<S: KeyStore> {
    shared: Arc<Shared<S>>,
    key: Arc<str>,
    pauses: Pauses,
    tries: NonZeroU32,
    wait: Duration,
    lease: Duration,
    watch: Watch,
    passes: NonZeroU32,
    demands: Demands,
}

impl<S: KeyStore> Clone for KeyRequest<S> {
    fn clone(&self) -> Self {
        let Self { ref shared, ref key, pauses, tries, wait, lease, watch, passes, demands } = *self;
        Self { shared: Arc::clone(shared), key: Arc::clone(key), pauses, tries, wait, lease, watch, passes, demands }
    }
}

impl<S: KeyStore> KeyRequest<S> {
    /// Sets how long to pause between two tries; by default a jitter that shrinks from a base of 100 ms.
    pub const fn policy(mut self, pauses: Pauses) -> Self {
        self.pauses = pauses;
        self
    }

    /// Sets the maximum number of tries.
    pub const fn tries(mut self, tries: NonZeroU32) -> Self {
        self.tries = tries;
        self
    }

    /// Sets how long to keep trying: at most one hour, which is also the default.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets how long the hold lasts after its last renewal: 100 ms to 24 h, or up to the limit of the store; 30 s by
    /// default. The client renews it three times per lease as long as a guard of the hold lives.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Lets the hold end with its lease, without renewals.
    pub const fn fixed(mut self) -> Self {
        self.watch = Watch::Fixed;
        self
    }

    /// Lets one hold serve up to `passes` tasks of this process that ask for this lock in the same way. They have it
    /// one after the other, for at most one lease together. Each has its own fence, where the store has fences. This is
    /// much faster in a busy crowd, but up to a cohort of tasks may overtake tasks of other processes. Has no effect on
    /// [`Self::try_acquire`].
    ///
    /// Passing a hold on keeps its deadline, which is then at least half a lease away. A future of [`KeyGuard::lost`]
    /// goes on to watch the hold that was passed on.
    pub const fn cohort(mut self, passes: NonZeroU32) -> Self {
        self.passes = passes;
        self
    }

    /// Demands grants in the order of arrival: fails with [`LockError::NotGuaranteed`] if the store does not promise that.
    pub const fn ordered(mut self) -> Self {
        self.demands = self.demands.ordered();
        self
    }

    /// Demands a fence with every grant: fails with [`LockError::NotGuaranteed`] if the store does not promise that.
    pub const fn fenced(mut self) -> Self {
        self.demands = self.demands.fenced();
        self
    }

    fn claim(&self) -> Result<(Claim<S>, u32), LockError> {
        self.demands.check(self.shared.store.guarantees())?;
        if !(1..=KEY_BYTES_MAX).contains(&self.key.len()) {
            return Err(LockError::Invalid { field: "key", wanted: "1 to 1024 bytes" });
        }
        if Duration::from_millis(u64::from(WAIT_MS_MAX)) < self.wait {
            return Err(LockError::Invalid { field: "wait", wanted: "at most 1 h" });
        }
        if COHORT_MAX < self.passes.get() {
            return Err(LockError::Invalid { field: "cohort", wanted: "1 to 1000000" });
        }
        let lease_ms = lease_within(&self.shared.store, self.lease)?;
        let secret = draw_secret().map_err(|fault| LockError::Unavailable(StoreError::Unavailable(Arc::new(fault))))?;
        let word = secret[..20].iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
        let (shared, key) = (Arc::clone(&self.shared), Arc::clone(&self.key));
        Ok((Claim { shared, key, word, over_at: None }, lease_ms))
    }

    /// Tries repeatedly until it gets the lock. One request for each try.
    ///
    /// Dropping the future releases what a try may have taken.
    ///
    /// Fails with [`LockError::TimedOut`] when the tries or the time are used up. Otherwise it fails as
    /// [`Self::try_acquire`] does, but never with `Contended`; if the last try got no answer, it fails with the error
    /// of that try.
    #[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
    pub async fn acquire(self) -> Result<KeyGuard<S>, LockError> {
        let (claim, lease_ms) = self.claim()?;
        let until = Instant::now() + self.wait;
        if self.passes == NonZeroU32::MIN {
            let (claim, held) = self.ask(claim, lease_ms, until).await?;
            return Ok(KeyGuard::new(claim, held, (lease_ms, self.watch), None));
        }
        match CohortLines::turn(&self.shared, &self.key, until).await? {
            CohortTurn::Hold(guard) => Ok(guard),
            CohortTurn::Ask(asking) => {
                let (claim, held) = self.ask(claim, lease_ms, until).await?;
                let cohort = Cohort::new(asking, held.grant, self.passes, Instant::now() + self.lease);
                let held = TimedGrant { grant: S::pass(held.grant, self.passes.get() - 1), ..held };
                Ok(KeyGuard::new(claim, held, (lease_ms, self.watch), Some(cohort)))
            }
        }
    }

    /// Asks the store until the lock is taken or the time is over.
    #[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
    async fn ask(
        &self,
        mut claim: Claim<S>,
        lease_ms: u32,
        until: Instant,
    ) -> Result<(Claim<S>, TimedGrant<S::Grant>), LockError> {
        let store = &self.shared.store;
        let once = self.tries == NonZeroU32::MIN || self.wait.is_zero();
        let mut ear = if once { None } else { store.listen_by_trying(&self.key, &claim.word) };
        for tries in 1.. {
            let (refused, lasts) = match claim.attempt(lease_ms, self.passes).await {
                Ok(held) => return Ok((claim, held)),
                Err(LockError::Contended { ttl, .. }) => (LockError::TimedOut { position: None }, Some(ttl)),
                Err(error) => (error, None),
            };
            let left = until.saturating_duration_since(Instant::now());
            if self.tries.get() <= tries || left.is_zero() {
                return Err(refused);
            }
            if tries == 1 && ear.is_none() {
                ear = self.shared.store.listen(&self.key, &claim.word).await;
                if ear.is_some() {
                    // The lock may have become free before this process listened.
                    continue;
                }
            }
            let pause = Duration::from_micros(self.pauses.pause_us(tries, draw_chance()));
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

    /// Tries once. One request. Cancel-safe like [`Self::acquire`].
    ///
    /// Fails with [`LockError::Contended`] if another client has the lock. The layout tells neither the holder nor the
    /// number of waiters; a key without an expiry has the longest time there is. Fails with [`LockError::Unavailable`]
    /// or [`LockError::Unknown`] if the server does not answer. Fails with [`LockError::Invalid`] before anything is
    /// sent.
    pub async fn try_acquire(self) -> Result<KeyGuard<S>, LockError> {
        let (mut claim, lease_ms) = self.claim()?;
        let held = claim.attempt(lease_ms, NonZeroU32::MIN).await?;
        Ok(KeyGuard::new(claim, held, (lease_ms, self.watch), None))
    }
}

/// A lock that is held. It may move between tasks.
///
/// Dropping it releases the lock in the background; [`Self::release`] reports whether that succeeded.
pub struct KeyGuard<S: KeyStore> {
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

impl<S: KeyStore> fmt::Debug for KeyGuard<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the word, which lets any client that knows it release the lock.
        write!(f, "KeyGuard({})", self.hold.key)
    }
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

    /// The grant that came with the lock. No request.
    pub const fn grant(&self) -> S::Grant {
        self.grant
    }

    /// The key of the lock.
    pub fn key(&self) -> &str {
        &self.hold.key
    }

    /// Returns until when the lock is certainly held, by this process's clock, unless it is renewed before. It counts
    /// from when the try was sent, less one per cent and two milliseconds. In the past once the lock is lost. No
    /// request.
    pub fn deadline(&self) -> Instant {
        *self.hold.deadline.borrow()
    }

    /// Returns how long the lock is certainly held from now on. No request.
    #[expect(clippy::disallowed_methods, reason = "a time left is told in relation to the machine's clock")]
    pub fn remaining(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    /// Whether the lock is lost: its lease ended, or may have ended. No request.
    pub fn is_lost(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Resolves when the lock is lost, at the latest at its deadline. Never resolves once the lock was released.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<S> {
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

    /// Lets the hold last for `lease` from now on; it never ends earlier than before. If the hold is renewed at all,
    /// later renewals use `lease` too. One request.
    ///
    /// Fails with [`LockError::Lost`] if the hold is over. Fails with [`LockError::Unavailable`] or
    /// [`LockError::Unknown`] if the server does not answer: the deadline stays as before, and the caller may repeat
    /// the call.
    pub async fn renew(&self, lease: Duration) -> Result<(), LockError> {
        let lease_ms = lease_within(&self.hold.shared.store, lease)?;
        if self.is_lost() {
            return Err(LockError::Lost);
        }
        self.hold.lease_ms.store(lease_ms, Ordering::Relaxed);
        self.hold.renew().await
    }

    /// Releases the lock. One request, repeated until there is an answer or the lease is over; none if the hold is
    /// [passed on](KeyRequest::cohort) to another task. While there are [other guards](Self::reenter) of the same hold,
    /// only this guard ends, with one request where the layout counts guards.
    ///
    /// Fails with [`LockError::Lost`] if the hold was over before: another holder may have overlapped with the section.
    /// Fails with [`LockError::Unknown`] or [`LockError::Unavailable`] if there was no answer. Dropping the future
    /// releases the lock in the background.
    pub async fn release(mut self) -> Result<(), LockError> {
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
