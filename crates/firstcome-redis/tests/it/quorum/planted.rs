//! Deliberate bugs of the rules: each does the damage that the other tests look for. A bug is planted in one thread, so these
//! tests have no other.

use super::clocks::{overlap_of_fast_clocks, overlaps};
use super::exclusion::halves_of_four;
use super::faults::frozen_majority;
use super::*;
use firstcome_store::core::planted::{Bug, plant};

/// Forgets the bug at the end, however the test ends: threads are used again.
struct Planted;

impl Planted {
    fn new(bug: Bug) -> Self {
        plant(Some(bug));
        Self
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        plant(None);
    }
}

#[tokio::test]
async fn half_of_four_nodes_gives_the_lock_to_two() {
    let Some(set) = Set::start(4).await else { return };
    let _planted = Planted::new(Bug::MajorityEvenSplit);
    assert!(in_time(halves_of_four(&set)).await);
}

#[tokio::test]
async fn a_validity_without_drift_makes_two_holders() {
    let Some(set) = Set::start(3).await else { return };
    let _planted = Planted::new(Bug::ValidityWithoutDrift);
    in_time(async {
        let mut round = 0;
        // A busy machine may let the other one come too late to see it.
        while !overlap_of_fast_clocks(&set, round).await {
            round += 1;
            assert!(round < 10, "never two");
        }
        let (set, mut seen) = (std::sync::Arc::new(set), 0);
        while overlaps(&set, 12, 4).await.is_empty() {
            seen += 1;
            assert!(seen < 3, "never two by their time stamps");
        }
    })
    .await;
}

#[tokio::test]
async fn a_late_grant_that_is_not_undone_stays() {
    let Some(set) = Set::start(3).await else { return };
    let _planted = Planted::new(Bug::LateGrantNotUndone);
    in_time(async {
        assert_eq!(frozen_majority(&set).await, 0);
        assert_eq!(set.holders(0..3).await, 2);
    })
    .await;
}

/// Grants the lock while one node is ahead, then without that node; whether the fence fell.
async fn falls_without_the_one_that_is_ahead(set: &Set) -> bool {
    let locks = set.open(brisk()).await;
    take(&locks, "first").await;
    locks.release(KEY, "first").await.unwrap();
    set.until_free().await;
    let knows = set.knows(0).await;
    let (front, counter) = knows.rsplit_once(' ').unwrap();
    let ahead = counter.parse::<u64>().unwrap() + 1_000_000;
    set.0[0].ask(&["SET", "fcq:node", &format!("{front} {ahead}")]).await;
    // The one that is ahead answers, and only one more.
    set.0[2].freeze();
    let high = take(&locks, "high").await;
    set.0[2].thaw();
    assert!(ahead < high);
    locks.release(KEY, "high").await.unwrap();
    set.until_free().await;
    set.0[0].freeze();
    // One that has not seen it.
    let other = locks_of(set).await;
    let low = take(&other, "low").await;
    other.release(KEY, "low").await.unwrap();
    set.0[0].thaw();
    set.until_free().await;
    low < high
}

/// A client that need not reach all.
async fn locks_of(set: &Set) -> QuorumStore {
    let mut options = brisk();
    options.set = firstcome_redis::NodeSet::Known;
    options.link.answer_timeout = Duration::from_millis(500);
    options.link.connect_timeout = Duration::from_millis(500);
    set.open(options).await
}

#[tokio::test]
async fn a_fence_that_one_node_alone_knows_falls() {
    let Some(set) = Set::start(3).await else { return };
    in_time(async {
        assert!(!falls_without_the_one_that_is_ahead(&set).await);
        let _planted = Planted::new(Bug::FenceFromMinority);
        assert!(falls_without_the_one_that_is_ahead(&set).await);
    })
    .await;
}
