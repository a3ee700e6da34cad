//! The model finds each planted bug, within as many schedules as find nothing without it.

use super::model::Setting;
use super::schedules::{CALM, all};
use crate::planted::{Bug, plant};

fn broken_by(bug: Bug, word: &str) -> usize {
    plant(Some(bug));
    let seen = all(Setting { crashes: true, ..CALM });
    plant(None);
    seen.broken.iter().filter(|broken| broken.contains(word)).count()
}

#[test]
fn half_of_an_even_number_lets_holds_overlap() {
    assert!(0 < broken_by(Bug::MajorityEvenSplit, "overlap"));
}

#[test]
fn a_validity_without_drift_lets_holds_overlap() {
    assert!(0 < broken_by(Bug::ValidityWithoutDrift, "overlap"));
}

#[test]
fn a_late_grant_that_is_not_undone_is_found() {
    assert!(0 < broken_by(Bug::LateGrantNotUndone, "not undone"));
}

#[test]
fn a_fence_that_one_node_alone_knows_falls() {
    assert!(0 < broken_by(Bug::FenceFromMinority, "fence"));
}
