//! Children, clients and data directories for the tests.

pub(crate) mod http;
pub(crate) mod program;
pub(crate) mod server;
pub(crate) mod stand;
pub(crate) mod trace;
pub(crate) mod world;

pub(crate) use firstcome_test_servers::machine_has;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longer than anything here takes on a slow machine; a test that waits so long has found a fault.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Looks again and again, at most [`PATIENCE`] long, until there is something to see.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let watch = firstcome::edge::Stopwatch::start();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(watch.elapsed() < PATIENCE, "timed out waiting for {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// What the environment says to the tests themselves.
fn setting(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the one place where the tests are set up from outside")]
    let value = std::env::var(name);
    value.ok()
}

/// How many times the service is killed: a few by default, `FIRSTCOME_KILL_ROUNDS` for a long run.
pub(crate) fn kill_rounds(default: u32) -> u32 {
    setting("FIRSTCOME_KILL_ROUNDS").map_or(default, |text| text.parse().expect("FIRSTCOME_KILL_ROUNDS is a number"))
}

/// The program that an upgrade begins with: that of the version before if `FIRSTCOME_PREVIOUS` names it, else the one under test.
pub(crate) fn previous_program() -> String {
    setting("FIRSTCOME_PREVIOUS").unwrap_or_else(|| program::PROGRAM.to_owned())
}

/// Where the test of the dashboard writes what its panels show, if `FIRSTCOME_PANELS` says so.
pub(crate) fn panels_file() -> Option<String> {
    setting("FIRSTCOME_PANELS")
}

/// Ends the load of a test, also when a step of it fails.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Numbers that look random and are the same in every run (xorshift).
pub(crate) struct Rng(u64);

impl Rng {
    /// A stream of its own for each seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`.
    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    /// Puts items into an order of its own.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}
