//! What becomes of a message: drawn when it is sent.

use crate::rng::Rng;
use firstcome_core::lock::Failed;

/// A message that takes longer than this one way is in trouble, as is a client that waits for it.
pub const USUAL_DELAY_US: i64 = 40_000;
/// After this a caller gives up on an answer.
const TIMEOUT_US: i64 = 700_000;
/// A call may still arrive so long after its caller gave it up.
const LATE_US_MAX: u64 = 8_000_000;

/// How bad the network is.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Calls and answers that are lost, per thousand.
    pub lost_per_mille: u64,
    /// Calls that arrive after their caller gave up, per thousand.
    pub late_per_mille: u64,
    /// Calls that arrive twice, per thousand.
    pub doubled_per_mille: u64,
    /// Pushes that are lost, per thousand.
    pub push_lost_per_mille: u64,
    /// Messages that are slow, per thousand.
    pub slow_per_mille: u64,
}

impl Weather {
    /// Everything arrives, soon and once.
    pub const FINE: Self =
        Self { lost_per_mille: 0, late_per_mille: 0, doubled_per_mille: 0, push_lost_per_mille: 0, slow_per_mille: 0 };

    /// Draws how bad it is.
    pub fn draw(rng: &mut Rng) -> Self {
        Self {
            lost_per_mille: *rng.pick(&[0, 0, 10, 80, 250]),
            late_per_mille: *rng.pick(&[0, 0, 5, 30]),
            doubled_per_mille: *rng.pick(&[0, 0, 20, 100]),
            push_lost_per_mille: *rng.pick(&[0, 30, 400, 1_000]),
            slow_per_mille: *rng.pick(&[0, 0, 10, 100]),
        }
    }

    /// Draws how long a message takes one way.
    pub fn delay_us(&self, rng: &mut Rng) -> i64 {
        if rng.chance(self.slow_per_mille) {
            return rng.range(USUAL_DELAY_US as u64, 600_000) as i64;
        }
        let usual_us = if rng.chance(800) { 2_000 } else { USUAL_DELAY_US as u64 };
        rng.range(50, usual_us) as i64
    }

    /// Draws what becomes of a call.
    pub fn fate(&self, rng: &mut Rng) -> Fate {
        let (there_us, back_us) = (self.delay_us(rng), self.delay_us(rng));
        let mut fate = Fate { arrives_us: Some(there_us), copy_us: None, back: Back::After(back_us) };
        if rng.chance(self.lost_per_mille) {
            fate.back = Back::Fails(rng.range(1_000, TIMEOUT_US as u64) as i64, Failed::Unknown);
            match rng.below(3) {
                // The answer is lost.
                0 => {}
                1 => fate.arrives_us = None,
                _ => {
                    fate.arrives_us = None;
                    fate.back = Back::Fails(rng.range(50, 5_000) as i64, Failed::Unavailable);
                }
            }
        } else if rng.chance(self.late_per_mille) {
            fate.back = Back::Fails(TIMEOUT_US, Failed::Unknown);
            fate.arrives_us = Some(TIMEOUT_US + rng.below(LATE_US_MAX) as i64);
        } else if rng.chance(self.doubled_per_mille) {
            fate.copy_us = Some(there_us + rng.below(LATE_US_MAX) as i64);
        }
        fate
    }
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// After how long it is at the store, if ever.
    pub arrives_us: Option<i64>,
    /// After how long a copy of it is there, whose answer no client hears.
    pub copy_us: Option<i64>,
    /// What the caller hears.
    pub back: Back,
}

/// What the caller hears.
#[derive(Clone, Copy, Debug)]
pub enum Back {
    /// The answer, so long after the call arrived.
    After(i64),
    /// After so long, that it failed.
    Fails(i64, Failed),
}
