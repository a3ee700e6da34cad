//! Reads time and randomness from the machine. Nothing else in the library does.

pub mod rng;

use crate::error::{Fault, FaultKind};
use firstcome_core::time::{Now, Steady, Timestamp};
use std::hash::RandomState;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The clock of a store. It must never go back: otherwise a later answer could contradict a refusal like "expired".
pub trait Clock: Send + Sync {
    /// Returns the current instant by the wall clock; never earlier than an instant that was returned before.
    fn now(&self) -> Timestamp;

    /// Returns the current instant on a clock that cannot be set. It may begin anywhere in every process.
    fn steady(&self) -> Steady;

    /// Returns both instants.
    fn both(&self) -> Now {
        Now { wall: self.now(), steady: self.steady() }
    }
}

/// The machine's clocks. If the machine's wall clock is set back, this one stands still until the old time is reached
/// again.
pub struct SystemClock {
    last_us: AtomicI64,
    started: Instant,
}

firstcome_core::debug_by_name!(SystemClock);

impl Default for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
    fn default() -> Self {
        Self { last_us: AtomicI64::new(i64::MIN), started: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the edge where the wall clock comes in")]
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_us = i64::try_from(unix.as_micros()).unwrap_or(i64::MAX);
        let before_us = self.last_us.fetch_max(now_us, Ordering::Relaxed);
        Timestamp::clamped_us(now_us.max(before_us))
    }

    fn steady(&self) -> Steady {
        Steady::from_us(i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX))
    }
}

/// The machine's wall clock as it is, even after it was set back: several processes agree on it. For locks only, whose
/// rules allow that. (A clock that stands still, as [`SystemClock`] does, would make one process take holds for ended
/// that another has just granted.)
#[derive(Default)]
pub struct SharedClock {
    own: SystemClock,
}

firstcome_core::debug_by_name!(SharedClock);

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the edge where the wall clock comes in")]
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::clamped_us(i64::try_from(unix.as_micros()).unwrap_or(i64::MAX))
    }

    fn steady(&self) -> Steady {
        self.own.steady()
    }
}

/// A clock that tests and simulations set by hand.
pub struct ManualClock {
    now_us: AtomicI64,
    /// By how much the steady clock is behind the wall clock, which a test may have set.
    stepped_us: AtomicI64,
}

firstcome_core::debug_by_name!(ManualClock);

impl ManualClock {
    /// Makes a clock that shows this instant.
    pub const fn new(now: Timestamp) -> Self {
        Self { now_us: AtomicI64::new(now.as_us()), stepped_us: AtomicI64::new(0) }
    }

    /// Advances the clock to this instant; an earlier instant has no effect, as with every [`Clock`].
    pub fn set(&self, now: Timestamp) {
        self.now_us.fetch_max(now.as_us(), Ordering::SeqCst);
    }

    /// Advances the clock by this time.
    pub fn pass_ms(&self, ms: u64) {
        self.now_us.fetch_add(i64::try_from(ms * 1_000).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Sets the wall clock forward, while the steady clock stands still.
    pub fn step_forward_ms(&self, ms: u64) {
        self.pass_ms(ms);
        self.stepped_us.fetch_add(i64::try_from(ms * 1_000).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Acts like a wall clock that was set back: it stands still until the old time is reached again. Returns at that
    /// moment; only the steady clock shows the time that has passed.
    pub fn stand_ms(&self, ms: u64) {
        self.stepped_us.fetch_sub(i64::try_from(ms * 1_000).unwrap_or(i64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::clamped_us(self.now_us.load(Ordering::SeqCst))
    }

    fn steady(&self) -> Steady {
        Steady::from_us(self.now_us.load(Ordering::SeqCst) - self.stepped_us.load(Ordering::SeqCst))
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn steady(&self) -> Steady {
        (**self).steady()
    }
}

/// Measures how long something takes. For statistics only: no rule depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts to measure.
    #[expect(clippy::disallowed_methods, reason = "durations for statistics; no rule rests on them")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Draws a fresh secret seed for an index.
#[expect(clippy::disallowed_methods, reason = "this is the edge where hash seeds are drawn")]
pub fn draw_hasher() -> RandomState {
    RandomState::new()
}

/// Draws 64 random bits, for an id that no other process has.
pub fn draw_id() -> Result<u64, Fault> {
    let mut id = [0; 8];
    id.copy_from_slice(&draw_secret()?[..8]);
    Ok(u64::from_le_bytes(id))
}

/// Draws 32 secret random bytes from the operating system.
pub fn draw_secret() -> Result<[u8; 32], Fault> {
    let mut secret = [0; 32];
    match getrandom::fill(&mut secret) {
        Ok(()) => Ok(secret),
        Err(error) => Err(Fault::new(FaultKind::Io, format!("the system gives no random bytes: {error}"))),
    }
}

/// Gives a store its secrets: keys of codes and tickets, seeds of draws, secrets of passes.
///
/// Each call returns 32 bytes that the caller cannot tell from random ones, and no two calls return the same. A
/// [`Fault`] says that the source has none; the store then refuses the command, and has done nothing. A call costs one
/// system call with [`SystemSecrets`].
///
/// ```
/// use firstcome_store::edge::{SecretSource, SystemSecrets};
///
/// let secrets = SystemSecrets;
/// assert_ne!(secrets.draw()?, secrets.draw()?);
/// # Ok::<(), firstcome_store::Fault>(())
/// ```
pub trait SecretSource: Send + Sync {
    /// Draws 32 secret bytes.
    fn draw(&self) -> Result<[u8; 32], Fault>;
}

/// The random bytes of the operating system, as [`draw_secret`] returns them. The only source for a store that serves
/// people: secrets from another source can be guessed.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemSecrets;

impl SecretSource for SystemSecrets {
    fn draw(&self) -> Result<[u8; 32], Fault> {
        draw_secret()
    }
}

/// Draws a random number, to spread the pauses of different processes.
pub fn draw_chance() -> u32 {
    // Without randomness every pause is the longest: slower, and still correct.
    getrandom::u32().unwrap_or(u32::MAX)
}

/// Draws a random time from half of `longest` to all of it, so that many callers that failed at once do not return at
/// once.
pub fn draw_pause(longest: Duration) -> Duration {
    let half = longest / 2;
    half + half.mul_f64(f64::from(draw_chance()) / f64::from(u32::MAX))
}
