//! A Fenwick tree: counts the numbers below a number, while numbers are added and removed.

pub(crate) struct Fenwick(Vec<u32>);

impl Fenwick {
    /// Creates an empty tree for the numbers `1..=most`.
    pub(crate) fn new(most: usize) -> Self {
        Self(vec![0; most + 1])
    }

    pub(crate) fn add(&mut self, number: u32) {
        self.change(number, 1);
    }

    pub(crate) fn remove(&mut self, number: u32) {
        // Counts wrap modulo 2^32, so adding `u32::MAX` subtracts 1.
        self.change(number, u32::MAX);
    }

    fn change(&mut self, number: u32, by: u32) {
        let mut at = number as usize;
        while at < self.0.len() {
            self.0[at] = self.0[at].wrapping_add(by);
            at += at & at.wrapping_neg();
        }
    }

    /// Returns how many added numbers are lower than this one.
    pub(crate) fn below(&self, number: u32) -> u32 {
        let (mut at, mut sum) = ((number as usize).saturating_sub(1).min(self.0.len() - 1), 0_u32);
        while 0 < at {
            sum = sum.wrapping_add(self.0[at]);
            at &= at - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_like_a_list() {
        let mut tree = Fenwick::new(50);
        let mut list = Vec::new();
        for number in [7, 50, 1, 33, 8, 2, 49] {
            tree.add(number);
            list.push(number);
        }
        tree.remove(8);
        list.retain(|&number| number != 8);
        for number in 1..=51 {
            assert_eq!(tree.below(number) as usize, list.iter().filter(|&&other| other < number).count(), "{number}");
        }
    }
}
