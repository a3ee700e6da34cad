//! What holds in every schedule, and what does not hold when a clock jumps.

use super::model::{ScheduleSummary, Setting, play};

pub(super) const SCHEDULES: u64 = 4_000;

pub(super) const CALM: Setting = Setting { nodes: 3, crashes: false, jumps: false, joins_by_time: false };

/// Plays so many schedules with 3, 4 and 5 nodes each.
pub(super) fn all(setting: Setting) -> ScheduleSummary {
    let mut sum = ScheduleSummary::default();
    for nodes in 3..=5 {
        for seed in 0..SCHEDULES {
            let seen = play(seed, Setting { nodes, ..setting });
            sum.grants += seen.grants;
            sum.overlaps += seen.overlaps;
            sum.behind += seen.behind;
            sum.written_back += seen.written_back;
            sum.renewed += seen.renewed;
            sum.lost_holds += seen.lost_holds;
            sum.undone_late += seen.undone_late;
            sum.too_late += seen.too_late;
            sum.joined += seen.joined;
            sum.broken.extend(seen.broken.into_iter().map(|broken| format!("{nodes} nodes, seed {seed}: {broken}")));
        }
    }
    sum
}

fn check(seen: &ScheduleSummary) {
    let first = &seen.broken[..seen.broken.len().min(5)];
    assert!(first.is_empty(), "{} broken, the first {first:?}", seen.broken.len());
    // A model in which nothing happens proves nothing.
    let often = [seen.grants, seen.written_back, seen.renewed, seen.undone_late].into_iter().min();
    assert!(often.is_some_and(|times| SCHEDULES as usize <= times), "{seen:?}");
    assert!(seen.too_late.min(seen.lost_holds) != 0, "{seen:?}");
}

#[test]
fn fences_grow_and_no_holds_overlap_over_a_bad_network() {
    let seen = all(CALM);
    check(&seen);
    assert_eq!((seen.overlaps, seen.joined), (0, 0));
}

#[test]
fn fences_grow_and_no_holds_overlap_while_nodes_crash_and_forget() {
    let seen = all(Setting { crashes: true, ..CALM });
    check(&seen);
    assert_eq!(seen.overlaps, 0);
    assert!(SCHEDULES as usize <= seen.joined, "{seen:?}");
}

#[test]
fn fences_grow_across_a_clock_that_jumps_though_holds_overlap() {
    let seen = all(Setting { crashes: true, jumps: true, ..CALM });
    check(&seen);
    // A store that checks the fence refuses the grants that are behind; nothing else would.
    assert!(0 < seen.overlaps && 0 < seen.behind, "{seen:?}");
}

#[test]
fn a_counter_made_from_the_clock_alone_is_found_to_fall() {
    let seen = all(Setting { crashes: true, joins_by_time: true, ..CALM });
    assert!(seen.broken.iter().any(|broken| broken.contains("fence")), "{seen:?}");
}
