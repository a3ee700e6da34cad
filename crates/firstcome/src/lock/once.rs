//! Once per interval: at most one run of a job per slot of time, over every process that shares a store of locks.
//!
//! A slot is one interval of the wall clock, counted from the Unix epoch. Two locks guard a job:
//!
//! - `NAME@0` to `NAME@3`, one for each slot in turn. A run takes the one of its slot and leaves it behind: it ends with
//!   its lease, at the end of the slot plus the tolerance. Four names suffice, because the lock of a slot is over long
//!   before the fourth slot after it begins. So a job leaves at most four holds in the store, however long it is used.
//! - `NAME`, held while the run lasts. So runs of two slots never overlap, and each run has a fence.

use super::{Backing, Fence, Guard, LEASE_DEFAULT, LockError, Locks, lease_ms, parse_name};
use crate::InputError;
use crate::fence::FenceToken;
use firstcome_store::core::limits::{LEASE_MS_MAX, LEASE_MS_MIN, NAME_BYTES_MAX};
use firstcome_store::edge::{Clock, SharedClock, Stopwatch};
use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(test)]
mod tests;

/// The shortest interval. In a shorter one a store may need longer to answer than the slot lasts.
const EVERY_MS_MIN: u64 = 1_000;
/// The longest interval: a week.
const EVERY_MS_MAX: u64 = 7 * 86_400_000;
/// The largest tolerance, and the tolerance of a request that sets none is at most an hour.
const TOLERANCE_MS_MAX: u64 = 86_400_000;
const TOLERANCE_MS_DEFAULT: u64 = 3_600_000;
/// How many locks the slots of a job use in turn. With three slots between two uses of a lock, and a tolerance of at most
/// one, two machines whose clocks differ by the tolerance never use one lock for two slots.
const SLOT_LOCKS: u64 = 4;
/// The bytes of `@` and the number of a slot's lock.
const SUFFIX_BYTES: usize = 2;
/// How often a slot may end before the store has answered.
const TRIES: u32 = 3;

// The lock of the longest slot, with the largest tolerance, is a lock.
const _: () = assert!(EVERY_MS_MAX + TOLERANCE_MS_MAX <= LEASE_MS_MAX as u64);

/// A job that runs at most once per interval, before it is asked for. See [`Locks::once`](super::Locks::once).
#[derive(Clone)]
#[must_use = "nothing is asked for before `begin` or `with`"]
pub struct Once {
    locks: Locks,
    name: Box<str>,
    every: Duration,
    owner: Option<Box<str>>,
    lease: Duration,
    longest: Option<Duration>,
    tolerance: Option<Duration>,
}

firstcome_store::core::debug_by_name!(Once);

/// The run of a job in its slot.
///
/// Dropping it ends the run in the background and keeps the slot: no process runs the job again before the next slot.
/// [`Self::finish`] does the same and reports whether that succeeded; [`Self::retry`] gives the slot back.
#[derive(Debug)]
#[must_use = "the run ends when its guard is dropped"]
pub struct Run {
    guard: Guard,
    fence: Fence,
    slot: Slot,
    slot_hold: SlotHold,
}

/// One interval of the wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot {
    number: u64,
    ends_at_ms: u64,
}

impl Slot {
    /// Returns the slot of this instant, in milliseconds of Unix time.
    fn at(now_ms: u64, every_ms: u64) -> Self {
        let number = now_ms / every_ms;
        Self { number, ends_at_ms: (number + 1).saturating_mul(every_ms) }
    }

    /// The name of its lock.
    fn lock(self, name: &str) -> String {
        format!("{name}@{}", self.number % SLOT_LOCKS)
    }

    /// How long it lasts after this instant.
    const fn left(self, now_ms: u64) -> Duration {
        Duration::from_millis(self.ends_at_ms.saturating_sub(now_ms))
    }
}

/// The lock of a slot, which stays behind: it ends with its lease.
#[derive(Debug)]
struct SlotHold(Option<Guard>);

impl Drop for SlotHold {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            guard.leave();
        }
    }
}

/// The milliseconds of Unix time by the machine's wall clock, as it is: several machines agree on it.
fn unix_ms() -> u64 {
    u64::try_from(SharedClock::default().now().as_us() / 1_000).unwrap_or(0)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The values of a request, checked.
#[derive(Clone, Copy)]
struct Times {
    every_ms: u64,
    tolerance_ms: u64,
}

impl Once {
    pub(super) fn new(locks: &Locks, name: &str, every: Duration) -> Self {
        let (locks, name) = (locks.clone(), name.into());
        Self { locks, name, every, owner: None, lease: LEASE_DEFAULT, longest: None, tolerance: None }
    }

    /// Sets the name of the process that runs the job, as other clients see it; see
    /// [`LockRequest::owner`](super::LockRequest::owner).
    pub fn owner(self, owner: &str) -> Self {
        Self { owner: Some(owner.into()), ..self }
    }

    /// Sets how long a run lasts after its process was last heard of: 100 ms to 8 days, 30 s by default. The run is
    /// renewed three times per lease. A shorter lease lets the run of the next slot follow sooner on a crash.
    ///
    /// Has no effect with [`Self::longest`].
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Lets a run end after this long at the latest: 100 ms to 8 days. By default a run lasts as long as its process
    /// renews it.
    ///
    /// The store keeps this end: it is the lease of the run, which is not renewed. [`Run::over`] resolves before it, and
    /// [`Run::run`] drops the body. After a crash the run lasts until this end, too, so the run of the next slot may be
    /// refused meanwhile.
    pub const fn longest(mut self, longest: Duration) -> Self {
        self.longest = Some(longest);
        self
    }

    /// Sets by how much the clocks of two machines may differ without a second run in a slot: at most the interval, and
    /// 24 h. By default the interval, and at most an hour.
    ///
    /// The slot's lock lasts so much longer than the slot. The next slot has another lock and is not delayed, so a large
    /// tolerance costs nothing.
    pub const fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = Some(tolerance);
        self
    }

    /// Begins the run of the current slot, if no process has begun it.
    ///
    /// Two requests, or one if the slot is taken. Does not wait: the caller asks again in the next slot. Dropping the
    /// future begins no run: it gives back in the background what it took. If the process dies between the two requests,
    /// the slot passes without a run.
    ///
    /// Fails with [`LockError::SlotTaken`] if another process has taken the slot: its run goes on, is over, or is about to
    /// be refused. Fails with [`LockError::Contended`] if the run of an earlier slot still goes on; then the slot is given
    /// back in the background. Fails with [`LockError::TimedOut`] if the store answered only after the slot had ended, three times.
    /// In these cases no run has begun.
    ///
    /// Fails with [`LockError::Unavailable`] or [`LockError::Unknown`] if the store does not answer: this call begins no
    /// run, and the slot may pass without one. Fails with [`LockError::Unsupported`], [`LockError::NotGuaranteed`],
    /// [`LockError::Input`] before anything is sent.
    pub async fn begin(self) -> Result<Run, LockError> {
        self.begin_by(unix_ms).await
    }

    /// Begins a run by this wall clock, in milliseconds of Unix time.
    async fn begin_by(self, clock: impl Fn() -> u64) -> Result<Run, LockError> {
        let times = self.check()?;
        for _ in 0..TRIES {
            let (asked_ms, asked) = (clock(), Stopwatch::start());
            let slot = Slot::at(asked_ms, times.every_ms);
            let slot_guard = self.take_slot(slot, asked_ms, times).await?;
            // This process may have been stopped on the way. After the slot an earlier run may have left the slot's lock
            // already, so this grant proves nothing.
            if slot.ends_at_ms <= clock().max(asked_ms.saturating_add(millis(asked.elapsed()))) {
                continue;
            }
            // Dropped if there is no run: then the slot is given back.
            let guard = self.take_run().await?;
            let fence = guard.fence()?;
            return Ok(Run { guard, fence, slot, slot_hold: SlotHold(Some(slot_guard)) });
        }
        Err(LockError::TimedOut { position: None })
    }

    /// Takes the lock of a slot, for as long as any clock may be in the slot.
    async fn take_slot(&self, slot: Slot, now_ms: u64, times: Times) -> Result<Guard, LockError> {
        let lease = slot.left(now_ms) + Duration::from_millis(times.tolerance_ms);
        let lease = lease.max(Duration::from_millis(u64::from(LEASE_MS_MIN)));
        let request = self.locks.lock(&slot.lock(&self.name)).lease(lease).fixed().fenced();
        let request = if let Some(owner) = &self.owner { request.owner(owner) } else { request };
        request.try_acquire().await.map_err(|error| match error {
            LockError::Contended { holder, .. } => LockError::SlotTaken { holder, next_in: slot.left(now_ms) },
            error => error,
        })
    }

    /// Takes the lock of the run.
    async fn take_run(&self) -> Result<Guard, LockError> {
        let request = self.locks.lock(&self.name).fenced();
        let request = if let Some(owner) = &self.owner { request.owner(owner) } else { request };
        match self.longest {
            Some(longest) => request.lease(longest).fixed(),
            None => request.lease(self.lease),
        }
        .try_acquire()
        .await
    }

    /// Checks all values, before anything is sent.
    fn check(&self) -> Result<Times, LockError> {
        if let Backing::Other(locks) = &self.locks.backing
            && !locks.can_leave()
        {
            return Err(LockError::Unsupported { operation: "keep a slot after its run" });
        }
        parse_name(&self.name)?;
        if NAME_BYTES_MAX - SUFFIX_BYTES < self.name.len() {
            return Err(LockError::value("the name of a job", "at most 126 bytes long"));
        }
        let every_ms = millis(self.every);
        let is_whole = Duration::from_millis(every_ms) == self.every;
        if !is_whole || !(EVERY_MS_MIN..=EVERY_MS_MAX).contains(&every_ms) {
            return Err(LockError::value("every", "1 s to 7 days, in whole milliseconds"));
        }
        let tolerance_ms = self.tolerance.map_or(TOLERANCE_MS_DEFAULT.min(every_ms), millis);
        if TOLERANCE_MS_MAX.min(every_ms) < tolerance_ms {
            return Err(LockError::value("tolerance", "at most the interval, and at most 24 h"));
        }
        lease_ms(self.longest.unwrap_or(self.lease)).map_err(|error| match (self.longest, error) {
            (Some(_), LockError::Input(InputError::Value { wanted, .. })) => LockError::value("longest", wanted),
            (_, error) => error,
        })?;
        Ok(Times { every_ms, tolerance_ms })
    }

    /// Runs `body` in the current slot, if no process has begun to. The slot is kept also if the body fails; to let
    /// another process run it again, call [`Self::begin`] and [`Run::retry`].
    ///
    /// Costs what [`Self::begin`] and [`Run::finish`] cost. Dropping the future drops the body and ends the run. Fails as
    /// `begin` does, before the body begins. Fails with [`LockError::Lost`] when the run is over before the body is: then
    /// the body is dropped at its next await point.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use firstcome::{LockError, Locks};
    /// use std::time::Duration;
    ///
    /// let locks = Locks::memory();
    /// let report = locks.once("report", Duration::from_secs(86_400)); // a day, by UTC
    /// let rows = report.clone().with(async |run| run.fence().get()).await?;
    /// assert!(0 < rows);
    /// assert!(matches!(report.with(async |_| ()).await, Err(LockError::SlotTaken { .. })));
    /// # Ok(()) }
    /// ```
    pub async fn with<T>(self, body: impl AsyncFnOnce(&Run) -> T) -> Result<T, LockError> {
        let run = self.begin().await?;
        let value = run.run(body(&run)).await?;
        run.finish().await?;
        Ok(value)
    }
}

impl Run {
    /// The number of the slot: how many intervals lie between the Unix epoch and its beginning. No request.
    pub const fn slot(&self) -> u64 {
        self.slot.number
    }

    /// When the slot ends and the next one begins, by the wall clock. The run may last longer. No request.
    pub fn slot_ends_at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.slot.ends_at_ms)
    }

    /// The fence of the run: above that of every run of this job before. Write it with everything that the job writes,
    /// and refuse what a smaller fence writes: see [`fence`](crate::fence). No request.
    pub const fn fence(&self) -> Fence {
        self.fence
    }

    /// Returns what to show to a guarded store. Fails as [`Guard::token`] does. No request.
    pub fn token(&self) -> Result<FenceToken, LockError> {
        self.guard.token()
    }

    /// The guard of the lock that is held while the run lasts. No request.
    pub const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Whether the run of a later slot may begin by now. No request.
    pub fn is_over(&self) -> bool {
        self.guard.is_lost()
    }

    /// Resolves when the run of a later slot may begin; before one does, as [`Guard::lost`].
    pub fn over(&self) -> impl Future<Output = ()> + Send + use<> {
        self.guard.lost()
    }

    /// Runs a future until it is done or the run is over: then it is dropped, and the call fails with
    /// [`LockError::Lost`].
    pub async fn run<T>(&self, body: impl Future<Output = T>) -> Result<T, LockError> {
        self.guard.run(body).await
    }

    /// Ends the run and keeps the slot: the run of the next slot may begin when this returns. One request, as
    /// [`Guard::release`], and fails as that does. Dropping the future ends the run in the background.
    pub async fn finish(self) -> Result<(), LockError> {
        let Self { guard, slot_hold, .. } = self;
        drop(slot_hold);
        guard.release().await
    }

    /// Ends the run and gives the slot back: another process may run the job in the same slot when this returns. For a
    /// run that failed. Two requests, as [`Guard::release`]. Dropping the future does both in the background.
    ///
    /// Fails as `release` does. Without an answer to the first request, the slot is given back in the background.
    /// Fails with [`LockError::Lost`] if the run was over before; the slot is given back all the same.
    pub async fn retry(self) -> Result<(), LockError> {
        let Self { guard, mut slot_hold, .. } = self;
        // From here on, dropping this guard gives the slot back.
        let slot_guard = slot_hold.0.take();
        let ended = guard.release().await;
        if let (Some(slot_guard), Ok(()) | Err(LockError::Lost)) = (slot_guard, &ended) {
            match slot_guard.release().await {
                // The slot is over: there is nothing to give back.
                Ok(()) | Err(LockError::Lost) => {}
                Err(error) => return ended.and(Err(error)),
            }
        }
        ended
    }
}
