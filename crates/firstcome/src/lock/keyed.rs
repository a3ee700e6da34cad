//! Locks by key, which are asked for again and again: on layouts that other libraries share, and on several servers that vote.

mod cohort;
mod reentry;

use super::{COHORT_MAX, LockError, lease_ms};
use cohort::{Cohort, CohortLines, CohortTurn};
use firstcome_redis::{Counts, LinkOptions, OpenError, Redisson, SingleKey};
use firstcome_store::StoreError;
use firstcome_store::core::limits::WAIT_MS_MAX;
use firstcome_store::core::lock::spin::Pauses;
use firstcome_store::edge::{draw_chance, draw_secret};
use firstcome_store::key::{KeyStore, Notifications, Tried};
use parking_lot::Mutex;
use reentry::{Left, Ownership};
use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout, timeout_at};

/// How long a lock is asked for unless a lease is named.
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
/// The base of the pauses unless others are named.
const BASE_MS: NonZeroU32 = NonZeroU32::new(100).unwrap();
/// Bytes of a key at most.
const KEY_BYTES_MAX: usize = 1_024;
/// Between two tries of a release or a renewal that got no answer.
const REPEAT: Duration = Duration::from_millis(100);
/// A server expires keys to the millisecond, and clocks may be read just before one ends.
const EXPIRY_GRAIN: Duration = Duration::from_millis(2);

/// Locks by key on a store that others may use too: the holder knows its word. Cheap to clone. See [`SpinLocks`].
pub struct KeyLocks<S: KeyStore> {
    shared: Arc<Shared<S>>,
}

/// Locks of one key each, as redis-py, redsync, rslock, Spring and many others keep them: a process that uses the same key
/// excludes, and is excluded by, all of those.
///
/// For this company only: among programs that all use this library [`Locks`](super::Locks) grant in the order of arrival, wait without
/// asking, and give a fence.
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
/// - The recipe: `SET key word NX PX lease`, with a fresh word of 160 random bits for every acquisition; renewed and given
///   back only by a script that finds this word.
/// - A try whose answer was lost is repeated with the same word, and recognises a lock that it has taken already.
/// - Dropping a future or a guard gives the lock back in the background. What cannot be given back ends with its lease.
///
/// # Not promised
/// - An order: a process that asks at the right moment is served, and a process may never be.
/// - A fence: the layout has no place for one. Let the guarded store compare a version before it writes, or use
///   [`Locks`](super::Locks). A holder that stood still for a lease is not alone, and no process notices.
/// - That a hold lasts. It ends when the server loses the key: with its lease, and with a failover.
pub type SpinLocks = KeyLocks<SingleKey>;

/// A lock of one key that is about to be asked for.
pub type SpinRequest = KeyRequest<SingleKey>;

/// A lock of one key that is held. There is no fence: see [`SpinLocks`].
pub type SpinGuard = KeyGuard<SingleKey>;

struct Shared<S: KeyStore> {
    store: S,
    /// Who of this process wants which key in a cohort.
    lines: CohortLines<S>,
    runtime: Handle,
    /// How many claims are being given back in the background.
    leaving: watch::Sender<usize>,
}

impl<S: KeyStore> Clone for KeyLocks<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl KeyLocks<SingleKey> {
    /// Locks on a Redis or Valkey server; see [`Locks::redis`](super::Locks::redis). One connection.
    pub async fn redis(url: &str) -> Result<Self, OpenError> {
        Self::redis_with(url, LinkOptions::default()).await
    }

    /// The same with time-outs of one's own, or on a server that may forget keys.
    pub async fn redis_with(url: &str, options: LinkOptions) -> Result<Self, OpenError> {
        Ok(Self::over(SingleKey::open(url, options).await?))
    }

    /// What has been sent so far.
    pub fn counts(&self) -> Counts {
        self.shared.store.link().counts()
    }
}

impl KeyLocks<Redisson> {
    /// What has been sent so far.
    pub fn counts(&self) -> Counts {
        self.shared.store.counts()
    }
}

impl<S: KeyStore> KeyLocks<S> {
    /// What keeps them.
    pub(super) fn store(&self) -> &S {
        &self.shared.store
    }

    /// Locks of any such store. Call within a Tokio runtime, which then carries renewals.
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

    /// A lock by its key, which is used as it is: any text of 1 to 1024 bytes. Nothing is sent yet.
    pub fn lock(&self, key: &str) -> KeyRequest<S> {
        KeyRequest {
            shared: Arc::clone(&self.shared),
            key: key.into(),
            pauses: Pauses::ShrinkingJitter { base_ms: BASE_MS },
            tries: NonZeroU32::MAX,
            wait: Duration::from_millis(u64::from(WAIT_MS_MAX)),
            lease: LEASE_DEFAULT,
            watched: false,
            passes: NonZeroU32::MIN,
        }
    }

    /// Resolves when what was asked for in vain, or dropped, is given back. For the end of a program: with a time-out, since a
    /// server that does not answer is told until the lease is over. No request.
    pub async fn quiet(&self) {
        // An error would mean that the locks are gone.
        let _ = self.shared.leaving.subscribe().wait_for(|leaving| *leaving == 0).await;
        self.shared.store.quiet().await;
    }
}

/// A lock that is about to be asked for.
#[must_use = "nothing is asked for before `acquire` or `try_acquire`"]
pub struct KeyRequest<S: KeyStore> {
    shared: Arc<Shared<S>>,
    key: Arc<str>,
    pauses: Pauses,
    tries: NonZeroU32,
    wait: Duration,
    lease: Duration,
    watched: bool,
    passes: NonZeroU32,
}

impl<S: KeyStore> Clone for KeyRequest<S> {
    fn clone(&self) -> Self {
        let Self { ref shared, ref key, pauses, tries, wait, lease, watched, passes } = *self;
        Self { shared: Arc::clone(shared), key: Arc::clone(key), pauses, tries, wait, lease, watched, passes }
    }
}

/// What one acquisition may have taken. Dropped, that is given back in the background.
struct Claim<S: KeyStore> {
    shared: Arc<Shared<S>>,
    key: Arc<str>,
    word: Box<str>,
    /// When it is surely over: the lease after the last try was sent. `None` while nothing can have been taken.
    over_at: Option<Instant>,
}

impl<S: KeyStore> KeyRequest<S> {
    /// How long to pause between two tries: the jitter that shrinks from a base of 100 ms without this.
    pub const fn policy(mut self, pauses: Pauses) -> Self {
        self.pauses = pauses;
        self
    }

    /// How many tries at most.
    pub const fn tries(mut self, tries: NonZeroU32) -> Self {
        self.tries = tries;
        self
    }

    /// How long to keep trying: up to an hour, which is also the time without this.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How long the hold lasts: 100 ms to 24 h, or as long as the store lets it; 30 s without this.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The hold is renewed three times per lease as long as its guard lives. Without this it ends with its lease.
    pub const fn watched(mut self) -> Self {
        self.watched = true;
        self
    }

    /// Lets up to `passes` tasks of this process that ask for this lock in the same way be served by one hold, one after the
    /// other, each with a fence of its own where there are fences, for no longer than one lease. Much faster in a busy crowd;
    /// those of other processes may be overtaken by up to a cohort. Has no effect on [`Self::try_acquire`].
    ///
    /// The deadline of a hold that is passed on is as it was, but at least half a lease away. A future of
    /// [`KeyGuard::lost`] goes on to look after the hold that was passed on.
    pub const fn cohort(mut self, passes: NonZeroU32) -> Self {
        self.passes = passes;
        self
    }

    fn claim(&self) -> Result<(Claim<S>, u32), LockError> {
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

    /// Tries again and again. One request for each try.
    ///
    /// Dropping the future gives back what a try may have taken.
    ///
    /// Fails with [`LockError::TimedOut`] when the tries or the time are used up, or as [`Self::try_acquire`] does except for
    /// `Contended` if the last try had no answer.
    #[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
    pub async fn acquire(self) -> Result<KeyGuard<S>, LockError> {
        let (claim, lease_ms) = self.claim()?;
        let until = Instant::now() + self.wait;
        if self.passes == NonZeroU32::MIN {
            let (claim, held) = self.ask(claim, lease_ms, until).await?;
            return Ok(KeyGuard::new(claim, held, (lease_ms, self.watched), None));
        }
        match CohortLines::turn(&self.shared, &self.key, until).await? {
            CohortTurn::Hold(guard) => Ok(guard),
            CohortTurn::Ask(asking) => {
                let (claim, held) = self.ask(claim, lease_ms, until).await?;
                let cohort = Cohort::new(asking, held.grant, self.passes, Instant::now() + self.lease);
                let held = TimedGrant { grant: S::pass(held.grant, self.passes.get() - 1), ..held };
                Ok(KeyGuard::new(claim, held, (lease_ms, self.watched), Some(cohort)))
            }
        }
    }

    /// Asks the store until the lock is had, or the time is over.
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
                    // It may have become free while no process listened.
                    continue;
                }
            }
            let pause = Duration::from_micros(self.pauses.pause_us(tries, draw_chance()));
            // One last try when the time is over.
            match &mut ear {
                // Whether it was heard of or not: it is tried.
                Some(ear) => {
                    let pause = lasts.map_or(pause, |lasts| ear.patience(pause, lasts));
                    drop(timeout(pause.min(left), ear.freed()).await);
                }
                None => sleep(pause.min(left)).await,
            }
        }
        Err(LockError::TimedOut { position: None })
    }

    /// Tries once. One request. Cancel-safe as [`Self::acquire`].
    ///
    /// Fails with [`LockError::Contended`] if a process has it (the layout does not tell who, nor how many wait; a key
    /// without an end has the longest time there is), [`LockError::Unavailable`] and [`LockError::Unknown`] if the server
    /// gives no answer, [`LockError::Invalid`] before it is asked.
    pub async fn try_acquire(self) -> Result<KeyGuard<S>, LockError> {
        let (mut claim, lease_ms) = self.claim()?;
        let held = claim.attempt(lease_ms, NonZeroU32::MIN).await?;
        Ok(KeyGuard::new(claim, held, (lease_ms, self.watched), None))
    }
}

/// A lease that can be had in this store.
fn lease_within(store: &impl KeyStore, lease: Duration) -> Result<u32, LockError> {
    let wanted = "at most as long as the store lets a hold last";
    lease_ms(lease).and_then(|ms| {
        if ms <= store.lease_ms_max() { Ok(ms) } else { Err(LockError::Invalid { field: "lease", wanted }) }
    })
}

/// Until when a lease that was asked for now certainly lasts: one per cent less, as two clocks may disagree by.
fn deadline_of(sent: Instant, lease_ms: u32) -> Instant {
    let lease = Duration::from_millis(u64::from(lease_ms));
    sent + (lease - lease / 100).saturating_sub(EXPIRY_GRAIN)
}

/// When a lease that was asked for now is surely over, by a clock that is slower than the server's.
fn over_at(sent: Instant, lease_ms: u32) -> Instant {
    let lease = Duration::from_millis(u64::from(lease_ms));
    sent + lease + lease / 100 + EXPIRY_GRAIN
}

/// What a try has taken, and until when.
#[derive(Clone, Copy)]
struct TimedGrant<G> {
    grant: G,
    deadline: Instant,
}

impl<S: KeyStore> Claim<S> {
    /// One try.
    #[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
    async fn attempt(&mut self, lease_ms: u32, passes: NonZeroU32) -> Result<TimedGrant<S::Grant>, LockError> {
        let sent = Instant::now();
        // A try that may yet arrive counts as well: then the end of this one is the end of both.
        let before = self.over_at.replace(over_at(sent, lease_ms));
        match self.shared.store.take_for(&self.key, &self.word, lease_ms, passes).await {
            Ok(Tried::Taken(grant)) => {
                let deadline = deadline_of(sent, lease_ms);
                // An answer that took so long is none: what it says may be over.
                if Instant::now() < deadline { Ok(TimedGrant { grant, deadline }) } else { Err(LockError::Unknown) }
            }
            Ok(Tried::Held { lasts }) => {
                self.over_at = before;
                let (holder, ttl) = ("somebody".to_owned(), lasts.unwrap_or(Duration::MAX));
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
                // The outcome does not matter: no caller is left.
                let _ = give_back(&shared, &key, &word, over_at).await;
                shared.leaving.send_modify(|leaving| *leaving -= 1);
            });
        }
    }
}

/// What became of a lock that was to be given back.
#[derive(PartialEq, Eq)]
enum ReleaseReply {
    /// It was held until then.
    Held,
    /// Not held, or given back by a try that had no answer.
    Perhaps,
    /// Over before.
    NotHeld,
}

/// Gives a lock back, again and again until there is an answer or the lease is over.
#[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
async fn give_back(
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

/// A lock that is held. It may move between tasks.
///
/// Dropping it gives the lock back in the background; [`Self::release`] says how that went.
pub struct KeyGuard<S: KeyStore> {
    hold: Arc<Hold<S>>,
    grant: S::Grant,
    /// Whether it still has its share in the hold.
    shares: bool,
}

struct Hold<S: KeyStore> {
    ownership: Mutex<Ownership<S>>,
    /// A process that tells the store how many guards there are: one at a time, so that the last word is true.
    telling: tokio::sync::Mutex<()>,
    shared: Arc<Shared<S>>,
    key: Arc<str>,
    word: Box<str>,
    lease_ms: u32,
    deadline: watch::Sender<Instant>,
    /// Whom it may be passed on to.
    cohort: Option<Cohort<S>>,
}

impl<S: KeyStore> fmt::Debug for KeyGuard<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the word, which lets anybody give the lock back.
        write!(f, "KeyGuard({})", self.hold.key)
    }
}

impl<S: KeyStore> KeyGuard<S> {
    fn new(
        claim: Claim<S>,
        held: TimedGrant<S::Grant>,
        (lease_ms, watched): (u32, bool),
        cohort: Option<Cohort<S>>,
    ) -> Self {
        let (shared, key, word) = (Arc::clone(&claim.shared), Arc::clone(&claim.key), claim.word.clone());
        let deadline = watch::Sender::new(held.deadline);
        let (ownership, telling) = (Mutex::new(Ownership::first(claim)), tokio::sync::Mutex::default());
        let hold = Arc::new(Hold { ownership, telling, shared, key, word, lease_ms, deadline, cohort });
        if watched {
            let watched = Arc::clone(&hold);
            let watchdog = hold.shared.runtime.spawn(async move { watched.watch().await });
            hold.ownership.lock().watched_by(watchdog.abort_handle());
        }
        Self { hold, grant: held.grant, shares: true }
    }

    /// What came with the lock. No request.
    pub const fn grant(&self) -> S::Grant {
        self.grant
    }

    /// The key of the lock.
    pub fn key(&self) -> &str {
        &self.hold.key
    }

    /// Until when the lock is certainly held, by this process's clock, unless it is renewed before: counted from when the
    /// try was sent, less one per cent and two milliseconds. In the past once it is lost. No request.
    pub fn deadline(&self) -> Instant {
        *self.hold.deadline.borrow()
    }

    /// How long the lock is certainly held from now on. No request.
    #[expect(clippy::disallowed_methods, reason = "a time left is told in relation to the machine's clock")]
    pub fn remaining(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    /// Whether the lock is lost: its lease ended, or no process can say that it did not. No request.
    pub fn is_lost(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Resolves when the lock is lost, at the latest at its deadline; never once it was given back.
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

    /// Lets the hold last `lease` from now on. One request.
    ///
    /// Fails with [`LockError::Lost`] if it is over. With [`LockError::Unavailable`] or [`LockError::Unknown`] if the
    /// server gave no answer: the deadline stays as it was, and the call may be repeated.
    pub async fn renew(&self, lease: Duration) -> Result<(), LockError> {
        let lease_ms = lease_within(&self.hold.shared.store, lease)?;
        if self.is_lost() {
            return Err(LockError::Lost);
        }
        self.hold.renew(lease_ms).await
    }

    /// Gives the lock back. One request, repeated until there is an answer or the lease is over; none if it is
    /// [passed on](KeyRequest::cohort) to another task. While there are
    /// [other guards](Self::reenter) of the same hold only this one ends, with one request where the layout counts them.
    ///
    /// Fails with [`LockError::Lost`] if it was over before: the section was perhaps not alone to its end. With
    /// [`LockError::Unknown`] or [`LockError::Unavailable`] if there was no answer. Dropping the future gives the lock
    /// back in the background.
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
        // The claim still stands while this runs: a dropped future goes on in the background.
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
    async fn renew(&self, lease_ms: u32) -> Result<(), LockError> {
        let sent = Instant::now();
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
    async fn watch(&self) {
        let third = Duration::from_millis(u64::from(self.lease_ms)) / 3;
        let mut pause = third;
        loop {
            sleep(pause).await;
            pause = match self.renew(self.lease_ms).await {
                Ok(()) => third,
                Err(LockError::Lost) => return,
                // Sooner than in a third: there is perhaps only one more try.
                Err(_) => REPEAT.min(third / 2),
            };
        }
    }
}
