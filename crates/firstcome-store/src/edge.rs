//! Reads time and chance from the machine. Nothing else in the library does.

pub mod rng;

use crate::error::{Fault, FaultKind};
use firstcome_core::time::{Now, Steady, Timestamp};
use std::hash::RandomState;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What time it is for a store. Must never fall: a refusal like "expired" would else be contradicted later.
pub trait Clock: Send + Sync {
    /// The current instant by the wall; never earlier than one that was given before.
    fn now(&self) -> Timestamp;

    /// The current instant on a clock that no caller can set. It may begin anywhere in every process.
    fn steady(&self) -> Steady;

    /// Both.
    fn both(&self) -> Now {
        Now { wall: self.now(), steady: self.steady() }
    }
}

/// The machine's clocks. When an operator sets the wall clock back it stands still until the old time is reached again.
pub struct SystemClock {
    last_us: AtomicI64,
    started: Instant,
}

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

/// The machine's wall clock as it is, also after a caller has set it back: what several processes agree on. For locks
/// only, whose rules bear it. (A clock that stands still until the old time is reached again, as [`SystemClock`] does,
/// would in one process call holds over that another has just granted.)
#[derive(Default)]
pub struct SharedClock {
    own: SystemClock,
}

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

/// A clock that stands where it is put, for tests and simulations.
pub struct ManualClock {
    now_us: AtomicI64,
    /// What the steady clock shows less than the wall: a caller may have set the wall.
    stepped_us: AtomicI64,
}

impl ManualClock {
    /// A clock that shows this instant.
    pub const fn new(now: Timestamp) -> Self {
        Self { now_us: AtomicI64::new(now.as_us()), stepped_us: AtomicI64::new(0) }
    }

    /// Lets time pass until this instant; a move backwards has no effect, as with every [`Clock`].
    pub fn set(&self, now: Timestamp) {
        self.now_us.fetch_max(now.as_us(), Ordering::SeqCst);
    }

    /// Lets so much time pass.
    pub fn pass_ms(&self, ms: u64) {
        self.now_us.fetch_add(i64::try_from(ms * 1_000).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Sets the wall clock forward, while no time passes.
    pub fn step_forward_ms(&self, ms: u64) {
        self.pass_ms(ms);
        self.stepped_us.fetch_add(i64::try_from(ms * 1_000).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Sets the wall clock back: as with every [`Clock`] it stands still until the old time is reached again. Returns
    /// when so much time has passed, which the steady clock shows and the wall does not.
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

/// Measures how long something takes. For figures only: no rule rests on it.
#[derive(Clone, Copy)]
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

/// A fresh secret seed for an index.
#[expect(clippy::disallowed_methods, reason = "this is the edge where hash seeds are drawn")]
pub fn draw_hasher() -> RandomState {
    RandomState::new()
}

/// 64 random bits: for an id that no other process has.
pub fn draw_id() -> Result<u64, Fault> {
    let mut id = [0; 8];
    id.copy_from_slice(&draw_secret()?[..8]);
    Ok(u64::from_le_bytes(id))
}

/// 32 secret random bytes of the operating system.
pub fn draw_secret() -> Result<[u8; 32], Fault> {
    let mut secret = [0; 32];
    match getrandom::fill(&mut secret) {
        Ok(()) => Ok(secret),
        Err(error) => Err(Fault::new(FaultKind::Io, format!("the system gives no random bytes: {error}"))),
    }
}

/// A random number, for pauses that are to differ from those of others.
pub fn draw_chance() -> u32 {
    // Without chance everybody pauses the longest: slower, and still right.
    getrandom::u32().unwrap_or(u32::MAX)
}

/// A random time from half of this to all of it, so that many who failed at once do not come back at once.
pub fn draw_pause(longest: Duration) -> Duration {
    let half = longest / 2;
    half + half.mul_f64(f64::from(draw_chance()) / f64::from(u32::MAX))
}
