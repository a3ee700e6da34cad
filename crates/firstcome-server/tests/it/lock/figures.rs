//! The figures of locks.

use super::{DAY_MS, LONG_MS, acquire, renew, text};
use crate::service::Service;
use crate::trouble::waits;
use std::collections::BTreeMap;

async fn figures(service: &Service) -> BTreeMap<String, f64> {
    let metrics = service.metrics().await;
    let lines = metrics.lines().filter(|line| line.starts_with("firstcome_lock_"));
    lines.filter_map(|line| line.rsplit_once(' ')).map(|(name, value)| (name.into(), value.parse().unwrap())).collect()
}

fn figure(figures: &BTreeMap<String, f64>, name: &str) -> f64 {
    *figures.get(&format!("firstcome_lock_{name}")).unwrap_or_else(|| panic!("no {name} in {figures:?}"))
}

fn outcome(figures: &BTreeMap<String, f64>, outcome: &str) -> f64 {
    figure(figures, &format!("acquisitions_total{{outcome=\"{outcome}\"}}"))
}

pub(crate) async fn figures_count_what_happened_to_locks() {
    let service = Service::memory();
    let held = service.hold("figuredoor", "ann").await;
    service.send(acquire("figuredoor", "bob", 0, 100)).await.refused(409, "contended");
    service.send(acquire("figuredoor", "bob", 20, 100)).await.refused(409, "contended");
    let waiting = waits(service.send(acquire("figuredoor", "cid", LONG_MS, 100))).await;
    let gone = waits(service.send(acquire("figuredoor", "dan", LONG_MS, 100))).await;
    let mid = figures(&service).await;
    assert_eq!((figure(&mid, "waiting"), figure(&mid, "held"), figure(&mid, "lost_total")), (2.0, 1.0, 0.0));
    drop(gone);
    service.send(renew("figuredoor", text(&held, "handle"), DAY_MS)).await.is(200);
    service.give_back(&held).await.is(200);
    let lost = waiting.await.is(200).json();
    assert_eq!(figure(&figures(&service).await, "held"), 1.0);
    service.until_free("figuredoor").await;
    service.give_back(&lost).await.refused(410, "lock_lost");
    service.give_back(&held).await.refused(410, "lock_lost");
    // One that no process asks about again.
    service.send(acquire("gate", "eve", 0, 100)).await.is(200);
    crate::running::until(async || 2.0 <= figure(&figures(&service).await, "lost_total")).await;
    let after = figures(&service).await;
    for (name, count) in [
        ("granted", 3.0),
        ("contended", 1.0),
        ("timed_out", 1.0),
        ("abandoned", 1.0),
        ("overloaded", 0.0),
        ("failed", 0.0),
    ] {
        assert_eq!(outcome(&after, name), count, "{name}");
    }
    assert_eq!((figure(&after, "waiting"), figure(&after, "held"), figure(&after, "lost_total")), (0.0, 0.0, 2.0));
    assert_eq!((figure(&after, "wait_seconds_count"), figure(&after, "hold_seconds_count")), (6.0, 3.0));
    assert!(0.02 <= figure(&after, "wait_seconds_sum") && 0.2 <= figure(&after, "hold_seconds_sum"));
    let metrics = service.metrics().await;
    for name in ["ann", "bob", "figure", "gate", text(&held, "handle")] {
        assert!(!metrics.contains(&format!("\"{name}")), "{name}");
    }
}
