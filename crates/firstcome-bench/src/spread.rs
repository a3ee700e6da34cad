//! The median and the extremes of a figure over the rounds of a run.

use serde::Serialize;

/// The lowest, the middle and the highest of some figures.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Returns `None` if there are no figures.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let middle = figures.len() / 2;
        let median = if figures.len().is_multiple_of(2) {
            f64::midpoint(figures[middle - 1], figures[middle])
        } else {
            figures[middle]
        };
        Some(Self { min, median, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends_are_found() {
        let spread = |figures: &[f64]| Spread::of(figures.iter().copied());
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[0.9, 0.7, 0.8]), Some(Spread { min: 0.7, median: 0.8, max: 0.9 }));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Some(Spread { min: 1.0, median: 2.5, max: 4.0 }));
    }
}
