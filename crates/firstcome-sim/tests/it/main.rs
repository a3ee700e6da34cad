//! The run of every CI: a fixed range of seeds, and proof that it reached what it is there for.

mod lock_model;

use firstcome_sim::{Report, run_seed};

const SEEDS: std::ops::Range<u64> = 0..5_000;

#[test]
fn no_seed_breaks_an_invariant_and_every_fault_and_refusal_is_reached() {
    let mut total = Report::default();
    for seed in SEEDS {
        match run_seed(seed) {
            Ok(report) => total.add(&report),
            Err(violation) => panic!("{violation}"),
        }
    }
    assert_eq!(total.missing(), [], "a kind of event was never reached: {:?}", total.counts);
}

#[test]
fn the_same_seed_gives_the_same_run_twice() {
    for seed in (0..100).chain(1_000..1_100) {
        assert_eq!(run_seed(seed), run_seed(seed), "SIM_SEED={seed}");
    }
}

#[test]
fn different_seeds_give_different_runs() {
    let hashes: std::collections::BTreeSet<u64> =
        (0..100).map(|seed| run_seed(seed).map_or(0, |report| report.trace_hash)).collect();
    assert_eq!(hashes.len(), 100);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn every_planted_bug_is_named_by_its_invariant() {
    for hunt in firstcome_sim::planted::hunt_all(&SEEDS) {
        assert!(hunt.is_right(), "{}: expected {:?}, found {:?}", hunt.bug, hunt.expected, hunt.found);
    }
}
