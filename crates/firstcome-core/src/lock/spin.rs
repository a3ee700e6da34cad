//! Pauses between two tries, for locks without a line.
//!
//! Polling is worse than a line: it loads the store, grants in random order, and leaves the lock idle for half a pause on
//! average. It serves layouts that are shared with other libraries, and comparisons.

use std::num::NonZeroU32;

/// A policy of pauses. The caller supplies the randomness as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pauses {
    /// Grows by half a base with each try, while the jitter shrinks: pause n is base × (1 + 0.5 n), give or take
    /// 15 % ÷ (1 + 0.1 (n − 1)). A process that has waited for a long time asks seldom and at a predictable time.
    ///
    /// Source: a coupon service's answer to CSMA/CD; the table of its first four pauses is ×1.5 ±15 %, ×2.0 ±13.6 %,
    /// ×2.5 ±12.5 %, ×3.0 ±11.5 %.
    ShrinkingJitter {
        /// The base.
        base_ms: NonZeroU32,
    },
    /// A random pause from 0 to base × 2^n, but at most `most_ms`.
    ///
    /// Source: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015: full jitter.
    FullJitter {
        /// The base.
        base_ms: NonZeroU32,
        /// The longest pause.
        most_ms: NonZeroU32,
    },
    /// Always the same pause.
    Constant {
        /// The pause.
        every_ms: NonZeroU32,
    },
}

impl Pauses {
    /// Returns the shortest and the longest pause after try number `tries`, in µs. The first try has number 1.
    pub fn range_us(self, tries: u32) -> (u64, u64) {
        let tries = u64::from(tries.max(1));
        match self {
            Self::ShrinkingJitter { base_ms } => {
                // base × (2 + n) / 2, and of it 15 % ÷ (1 + 0.1 (n − 1)) = 1.5 ÷ (9 + n).
                let middle_us = u64::from(base_ms.get()) * 500 * (2 + tries.min(1_000_000));
                let band_us = (u128::from(middle_us) * 3 / (2 * (9 + u128::from(tries)))) as u64;
                (middle_us - band_us, middle_us + band_us)
            }
            Self::FullJitter { base_ms, most_ms } => {
                let grown_ms = u64::from(base_ms.get()) << tries.min(32);
                (0, grown_ms.min(u64::from(most_ms.get())) * 1_000)
            }
            Self::Constant { every_ms } => (u64::from(every_ms.get()) * 1_000, u64::from(every_ms.get()) * 1_000),
        }
    }

    /// Returns the pause after try number `tries`, in µs. The first try has number 1. `chance` is uniform over all 32-bit
    /// numbers.
    pub fn pause_us(self, tries: u32, chance: u32) -> u64 {
        let (shortest_us, longest_us) = self.range_us(tries);
        let spread_us = u128::from(longest_us - shortest_us) * u128::from(chance) / u128::from(u32::MAX);
        shortest_us + spread_us as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u32) -> NonZeroU32 {
        NonZeroU32::new(ms).unwrap()
    }

    #[test]
    fn the_jitter_shrinks_as_in_the_table() {
        let pauses = Pauses::ShrinkingJitter { base_ms: ms(100) };
        let rows =
            [(1, 150_000, 15.0), (2, 200_000, 13.636), (3, 250_000, 12.5), (4, 300_000, 11.538), (11, 650_000, 7.5)];
        for (tries, middle_us, per_cent) in rows {
            let (shortest_us, longest_us) = pauses.range_us(tries);
            assert_eq!((shortest_us + longest_us) / 2, middle_us, "{tries}");
            let band = (longest_us - shortest_us) as f64 / 2.0 / middle_us as f64 * 100.0;
            assert!((band - per_cent).abs() < 0.001, "{tries}: {band}");
        }
        assert_eq!(pauses.range_us(0), pauses.range_us(1));
    }

    #[test]
    fn full_jitter_doubles_up_to_the_most() {
        let pauses = Pauses::FullJitter { base_ms: ms(10), most_ms: ms(1_000) };
        let most: Vec<u64> = [1, 2, 3, 6, 7, 8, 40, u32::MAX].map(|tries| pauses.range_us(tries).1).to_vec();
        assert_eq!(most, [20_000, 40_000, 80_000, 640_000, 1_000_000, 1_000_000, 1_000_000, 1_000_000]);
        assert_eq!((pauses.pause_us(3, 0), pauses.pause_us(3, u32::MAX)), (0, 80_000));
        assert_eq!(pauses.pause_us(3, u32::MAX / 2 + 1), 40_000);
    }

    #[test]
    fn a_constant_pause_needs_no_chance() {
        let pauses = Pauses::Constant { every_ms: ms(64) };
        assert_eq!([0, 1, 99].map(|tries| pauses.pause_us(tries, tries * 7)), [64_000; 3]);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let longest = ms(u32::MAX);
        for pauses in [
            Pauses::ShrinkingJitter { base_ms: longest },
            Pauses::FullJitter { base_ms: longest, most_ms: longest },
            Pauses::Constant { every_ms: longest },
        ] {
            assert!(pauses.pause_us(1_000_000, u32::MAX) <= pauses.range_us(1_000_000).1);
            assert!(pauses.pause_us(u32::MAX, 7) <= pauses.range_us(u32::MAX).1);
        }
    }
}
