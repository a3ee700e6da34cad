//! Random numbers from a seed.

pub(super) struct Random(pub(super) u64);

impl Random {
    /// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(super) fn in_100(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}
