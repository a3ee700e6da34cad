//! Compares the order of grants of a lock with the order of its requests.

/// How far the grants were out of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Disorder {
    /// The most later arrivals that were served before one waiter.
    pub(super) overtaking: u64,
    /// Waiters that were overtaken at all.
    pub(super) inversions: u64,
}

/// One request for the lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    pub(super) arrived: u64,
    /// When it was served, or given up.
    pub(super) ended: u64,
    pub(super) served: bool,
}

/// Judges which requests were served before which. A request that was given up was overtaken by later arrivals that
/// were served until then, and overtook none.
pub(super) fn judge(mut visits: Vec<Visit>) -> Disorder {
    visits.sort_unstable_by_key(|visit| visit.arrived);
    let mut by_end: Vec<(u64, usize)> = visits.iter().enumerate().map(|(rank, visit)| (visit.ended, rank)).collect();
    by_end.sort_unstable();
    // A Fenwick tree over ranks of arrival: counts the earlier arrivals that have been served.
    let mut tree = vec![0_u64; visits.len() + 1];
    let (mut found, mut served) = (Disorder::default(), 0);
    for (_, rank) in by_end {
        let mut earlier = 0;
        let mut at = rank + 1;
        while 0 < at {
            earlier += tree[at];
            at &= at - 1;
        }
        let overtaking = served - earlier;
        found.overtaking = found.overtaking.max(overtaking);
        found.inversions += u64::from(0 < overtaking);
        if !visits[rank].served {
            continue;
        }
        served += 1;
        at = rank + 1;
        while at < tree.len() {
            tree[at] += 1;
            at += at & at.wrapping_neg();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(arrived: u64, ended: u64) -> Visit {
        Visit { arrived, ended, served: true }
    }

    fn slowly(visits: &[Visit]) -> Disorder {
        let overtakes =
            |one: &Visit, other: &Visit| one.served && other.arrived < one.arrived && one.ended < other.ended;
        let overtaken = |visit: &Visit| visits.iter().filter(|other| overtakes(other, visit)).count() as u64;
        let counts: Vec<u64> = visits.iter().map(overtaken).collect();
        Disorder {
            overtaking: counts.iter().copied().max().unwrap_or(0),
            inversions: counts.iter().filter(|count| 0 < **count).count() as u64,
        }
    }

    #[test]
    fn a_line_has_no_disorder_and_a_stack_has_the_most() {
        assert_eq!(judge((0..100).map(|at| visit(at, at + 7)).collect()), Disorder::default());
        let stack = judge((0..100).map(|at| visit(at, 1_000 - at)).collect());
        assert_eq!(stack, Disorder { overtaking: 99, inversions: 99 });
        assert_eq!(judge(Vec::new()), Disorder::default());
        let gone = |ended| Visit { served: false, ..visit(1, ended) };
        assert_eq!(judge(vec![gone(9), visit(2, 5), visit(3, 6)]), Disorder { overtaking: 2, inversions: 1 });
        assert_eq!(judge(vec![gone(4), visit(2, 5), visit(3, 6)]), Disorder::default());
    }

    #[test]
    fn it_counts_as_the_definition_does() {
        let mut rng = firstcome::edge::rng::Rng::from_seed(7);
        for _ in 0..50 {
            let mut ends: Vec<u64> = (0..40).collect();
            for at in (1..ends.len()).rev() {
                ends.swap(at, rng.below(at as u64 + 1) as usize);
            }
            let served = |visit| Visit { served: rng.below(4) != 0, ..visit };
            let visits: Vec<Visit> = (0..40).zip(ends).map(|(at, end)| visit(at, end)).map(served).collect();
            assert_eq!(judge(visits.clone()), slowly(&visits));
        }
    }
}
