//! What tasks want, and how bad the world is.

use super::network::Weather;
use crate::rng::Rng;
use firstcome_core::id::{LockName, OwnerName};
use firstcome_core::lock::{Ask, Mode, Watch, bucket_of};

/// The longest lease of a run. After so long a silence nothing is held any more.
pub const LEASE_MS_LONGEST: u32 = 30_000;

/// Something that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A process is gone, with all that it knew, and another one takes its place.
    Kill,
    /// A process stands still.
    Pause,
    /// No call gets through for a while.
    Cut,
    /// No push gets through for a while.
    CutInbox,
    /// The store restarts, empty.
    Flush,
    /// The store's clock is set back.
    ClockBack,
    /// The store's clock is set forward.
    ClockForward,
}

/// How one run is set up.
pub struct Plan {
    /// The network until the heal.
    pub weather: Weather,
    /// Processes.
    pub processes: usize,
    /// Connections per process: within one, calls arrive in their order.
    pub streams: usize,
    /// The locks.
    pub locks: Vec<LockName>,
    /// How long the run goes on before the heal.
    pub busy_us: i64,
    /// How much faster the store's clock runs, in parts of a million.
    pub store_rate_ppm: i64,
    ask_gap_ms: u64,
    fault_gap_ms: u64,
    leases_ms: &'static [u32],
    faults: Vec<Fault>,
}

impl Plan {
    /// Draws a plan.
    pub fn draw(rng: &mut Rng) -> Self {
        let mut faults = vec![Fault::Kill, Fault::Pause, Fault::Cut, Fault::CutInbox];
        faults.truncate(rng.range(0, 4) as usize);
        // In most runs the store's clock runs evenly: only then everything is promised.
        if rng.chance(250) {
            faults.extend([Fault::Flush, Fault::ClockBack, Fault::ClockForward]);
        } else if rng.chance(100) {
            faults.push(Fault::Flush);
        }
        Self {
            weather: Weather::draw(rng),
            processes: rng.range(1, 4) as usize,
            streams: rng.range(1, 3) as usize,
            locks: locks(rng),
            busy_us: rng.range(8_000, 40_000) as i64 * 1_000,
            store_rate_ppm: *rng.pick(&[0, 0, -5_000, 5_000]),
            ask_gap_ms: *rng.pick(&[100, 400, 1_500]),
            fault_gap_ms: *rng.pick(&[500, 2_000, 8_000]),
            leases_ms: rng.pick::<&[u32]>(&[&[100, 500, 2_000], &[1_000, 3_000], &[3_000, 10_000, 30_000]]),
            faults,
        }
    }

    /// Draws how long until the next task of a process wants something.
    pub fn ask_gap_us(&self, rng: &mut Rng) -> i64 {
        rng.range(1, self.ask_gap_ms * 2_000) as i64
    }

    /// Draws how long until something goes wrong, and what. `None` if nothing ever does.
    pub fn fault(&self, rng: &mut Rng) -> Option<(i64, Fault)> {
        let gap_us = rng.range(1, self.fault_gap_ms * 2_000) as i64;
        (!self.faults.is_empty()).then(|| (gap_us, *rng.pick(&self.faults)))
    }

    /// Draws a wish.
    pub fn ask(&self, rng: &mut Rng, owner: &OwnerName) -> Ask {
        let wait_ms = match rng.below(10) {
            0..2 => 0,
            2..4 => rng.range(1, 300) as u32,
            4..7 => rng.range(300, 6_000) as u32,
            _ => 120_000,
        };
        Ask {
            name: rng.pick(&self.locks).clone(),
            owner: owner.clone(),
            wait_ms,
            lease_ms: self.lease_ms(rng),
            mode: match rng.below(8) {
                0..=4 => Mode::Exclusive { passes: *rng.pick(&[1, 1, 1, 3]) },
                _ => Mode::Shared { permits: *rng.pick(&[1, 2, 2, 1_000]) },
            },
            watch: if rng.chance(600) { Watch::Renew } else { Watch::Fixed },
        }
    }

    /// Draws a lease.
    pub fn lease_ms(&self, rng: &mut Rng) -> u32 {
        *rng.pick(self.leases_ms)
    }
}

/// One to four locks, some of them in the bucket of the first.
fn locks(rng: &mut Rng) -> Vec<LockName> {
    let mut locks = vec![name(0)];
    let mut tried = 1;
    for _ in 1..rng.range(1, 4) {
        let beside = rng.chance(500);
        while beside && bucket_of(&name(tried)) != bucket_of(&locks[0]) {
            tried += 1;
        }
        locks.push(name(tried));
        tried += 1;
    }
    locks
}

fn name(number: u32) -> LockName {
    match LockName::parse(&format!("lock-{number}")) {
        Ok(name) => name,
        Err(error) => panic!("{number} {error}"),
    }
}
