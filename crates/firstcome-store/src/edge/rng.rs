//! Pseudo-random numbers from a seed, for tests, simulations and plans: the same seed gives the same numbers on every
//! machine, for ever.

/// `SplitMix64`: one word of state, every seed equally good, no dependency that could change its stream.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Makes the generator of a seed.
    pub const fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// Makes a generator that depends on these values only, so that a person's choices do not depend on the draws of
    /// others.
    pub const fn of(seed: u64, person: u32, salt: u64) -> Self {
        Self(mix(seed ^ mix((person as u64) << 20 ^ salt)))
    }

    /// Draws the next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Makes an independent generator, so that one part of a simulation can draw more without changing the other parts.
    pub const fn fork(&mut self) -> Self {
        Self(self.bits())
    }

    /// Draws a number of `0..end`; `end` must not be 0. The bias of the remainder does not matter here.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// Draws a number of `first..=last`.
    pub const fn range(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Draws a number of `0.0..1.0`.
    pub const fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns true `per_mille` times out of a thousand, on average.
    pub const fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// Returns true once in `times`, on average.
    pub const fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Draws an index into a sequence of this length, which must not be zero.
    pub const fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Picks one item. There must be at least one.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// Picks one item, each as often as its weight says. The sum of the weights must not be zero.
    pub fn pick_by_weight<'a, T>(&mut self, items: &'a [(T, u64)]) -> &'a T {
        let drawn = self.below(items.iter().map(|(_, weight)| weight).sum());
        let mut end = 0;
        let before = items.iter().take_while(|(_, weight)| {
            end += weight;
            end <= drawn
        });
        &items[before.count()].0
    }
}

/// Spreads a word over all 64 bits (the finalizer of `SplitMix64`).
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_seed_never_changes() {
        let mut rng = Rng::from_seed(0);
        let stream = [rng.bits(), rng.bits(), rng.bits()];
        assert_eq!(stream, [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F]);
    }

    #[test]
    fn ranges_reach_both_ends_and_nothing_beyond() {
        let mut rng = Rng::from_seed(1);
        let drawn: std::collections::BTreeSet<u64> = (0..200).map(|_| rng.range(3, 6)).collect();
        assert_eq!(Vec::from_iter(drawn), [3, 4, 5, 6]);
    }

    #[test]
    fn what_has_more_weight_is_drawn_as_much_more_often_and_without_any_never() {
        let mut rng = Rng::from_seed(1);
        let mut counts = [0_u32; 4];
        for _ in 0..4_000 {
            counts[*rng.pick_by_weight(&[(0, 0), (1, 1), (2, 0), (3, 3)])] += 1;
        }
        assert_eq!([counts[0], counts[2]], [0, 0]);
        assert!((900..1_100).contains(&counts[1]) && (2_900..3_100).contains(&counts[3]), "{counts:?}");
    }
}
