//! The last ten minutes of figures, a sample a second, so that a chart has a past when it opens.
//!
//! Memory is bounded: [`SAMPLES_MAX`] samples of the service, and of [`ROOMS_MAX`] rooms. A node of a cluster samples the
//! rooms that an operator has looked at in the last ten minutes. A service over its own store samples its first rooms by
//! name as well, since a look at them costs no call.

use crate::backend::Backend;
use crate::metrics::Totals;
use crate::state::App;
use firstcome::core::id::RoomName;
use firstcome::core::room::RoomView;
use firstcome::core::time::Timestamp;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How many samples are kept: ten minutes.
const SAMPLES_MAX: usize = 600;
/// Of how many rooms samples are kept.
const ROOMS_MAX: usize = 32;
/// The time between two samples.
const PERIOD: Duration = Duration::from_secs(1);
/// A sample is due after so many microseconds: a little less than a period, since timers are late and never early.
const DUE_US: u64 = 950_000;
/// How long a room is sampled after a look at it.
const WATCHED_US: u64 = 600_000_000;

/// The columns of the service's samples.
const SERVICE: &[&str] = &[
    "arrivals",
    "admissions",
    "line",
    "inside",
    "issued",
    "grants",
    "answers",
    "refused",
    "errors",
    "p50_ms",
    "p99_ms",
];
/// The columns of a room's samples.
const ROOM: &[&str] = &["line", "inside", "rate", "serving"];

/// Samples of one thing, the oldest first. A value that is not known is NaN.
struct Track {
    columns: &'static [&'static str],
    samples: VecDeque<(i64, Box<[f32]>)>,
}

impl Track {
    const fn of(columns: &'static [&'static str]) -> Self {
        Self { columns, samples: VecDeque::new() }
    }

    fn push(&mut self, at: Timestamp, values: impl Into<Box<[f32]>>) {
        if SAMPLES_MAX <= self.samples.len() {
            self.samples.pop_front();
        }
        self.samples.push_back((at.as_us().div_euclid(1_000), values.into()));
    }

    /// Shows the samples after an instant, a column at a time.
    fn shown(&self, after_ms: i64) -> Value {
        let newer: Vec<_> = self.samples.iter().filter(|(at_ms, _)| after_ms < *at_ms).collect();
        let mut columns = Map::new();
        columns.insert("at_ms".into(), newer.iter().map(|(at_ms, _)| json!(at_ms)).collect());
        for (place, column) in self.columns.iter().enumerate() {
            // Three digits are enough for a chart. NaN has no JSON form and becomes null.
            let rounded = |value: f32| json!((f64::from(value) * 1_000.0).round() / 1_000.0);
            columns.insert((*column).into(), newer.iter().map(|(_, values)| rounded(values[place])).collect());
        }
        Value::Object(columns)
    }
}

struct RoomTrack {
    track: Track,
    watched_us: u64,
}

/// What was counted at the last sample.
struct Before {
    steady_us: u64,
    totals: Totals,
    flow: Flow,
}

/// The counters of rooms.
#[derive(Clone, Copy, Default)]
struct Flow {
    arrivals: u64,
    admissions: u64,
    waiting: u64,
    active: u64,
}

struct Kept {
    before: Option<Before>,
    service: Track,
    rooms: BTreeMap<RoomName, RoomTrack>,
}

/// The samples of this process.
pub(crate) struct History(Mutex<Kept>);

impl Default for History {
    fn default() -> Self {
        Self(Mutex::new(Kept { before: None, service: Track::of(SERVICE), rooms: BTreeMap::new() }))
    }
}

fn flow(app: &App) -> Flow {
    if app.is_auctions_alone {
        return Flow::default();
    }
    let totals = match &app.backend {
        Backend::Embedded(store) => store.room_totals(),
        Backend::Cluster(cluster, _) => cluster.room_totals(),
    };
    Flow { arrivals: totals.drawn, admissions: totals.admissions, waiting: totals.waiting, active: totals.active }
}

/// The latency, in milliseconds, that this share of the newest answers did not exceed. NaN without answers.
fn quantile_ms(before: &[(u64, u64)], now: &[(u64, u64)], share: f64) -> f32 {
    let newest =
        |((bound_us, count), (_, earlier)): (&(u64, u64), &(u64, u64))| (*bound_us, count.saturating_sub(*earlier));
    let buckets: Vec<(u64, u64)> = now.iter().zip(before).map(newest).collect();
    let total: u64 = buckets.iter().map(|(_, count)| count).sum();
    let wanted = (total as f64 * share).ceil() as u64;
    let mut seen = 0;
    for (bound_us, count) in &buckets {
        seen += count;
        if 0 < total && wanted <= seen {
            // The last bucket has no bound.
            return if *bound_us == u64::MAX { 10_000.0 } else { *bound_us as f32 / 1_000.0 };
        }
    }
    f32::NAN
}

impl Before {
    /// Returns the values of a sample: what happened per second since this one, and what is now.
    fn sample(&self, now: &Self) -> Box<[f32]> {
        let elapsed_s = now.steady_us.saturating_sub(self.steady_us) as f64 / 1e6;
        // A count falls when a node drops its copy of a room.
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / elapsed_s) as f32;
        let (before, totals) = (&self.totals, &now.totals);
        let latency = |share| quantile_ms(&before.latency_us, &totals.latency_us, share);
        Box::new([
            rate(now.flow.arrivals, self.flow.arrivals),
            rate(now.flow.admissions, self.flow.admissions),
            now.flow.waiting as f32,
            now.flow.active as f32,
            rate(totals.claims, before.claims),
            rate(totals.grants, before.grants),
            rate(totals.answers, before.answers),
            rate(totals.refusals, before.refusals),
            rate(totals.errors, before.errors),
            latency(0.5),
            latency(0.99),
        ])
    }
}

fn room_values(view: &RoomView) -> Box<[f32]> {
    Box::new([view.waiting as f32, view.active as f32, view.rate as f32, view.serving as f32])
}

impl History {
    /// Returns the service's samples after an instant.
    pub(super) fn shown(&self, after_ms: i64) -> Value {
        self.0.lock().service.shown(after_ms)
    }

    /// Returns the last value of a column of the service. `None` before the first sample, or if it is not known.
    pub(super) fn last(&self, column: &str) -> Option<f32> {
        let kept = self.0.lock();
        let place = SERVICE.iter().position(|name| *name == column)?;
        kept.service.samples.back().map(|(_, values)| values[place]).filter(|value| !value.is_nan())
    }

    /// Returns a room's samples after an instant, and samples the room from now on.
    pub(super) fn shown_room(&self, room: &RoomName, after_ms: i64, steady_us: u64) -> Value {
        let mut kept = self.0.lock();
        if let Some(known) = kept.rooms.get_mut(room) {
            known.watched_us = steady_us;
            return known.track.shown(after_ms);
        }
        if ROOMS_MAX <= kept.rooms.len() {
            let oldest = kept.rooms.iter().min_by_key(|(_, room)| room.watched_us).map(|(name, _)| name.clone());
            oldest.map(|name| kept.rooms.remove(&name));
        }
        let track = RoomTrack { track: Track::of(ROOM), watched_us: steady_us };
        let shown = track.track.shown(after_ms);
        kept.rooms.insert(room.clone(), track);
        shown
    }

    /// Takes a sample of the service if one is due.
    fn sample(&self, app: &App, at: Timestamp, steady_us: u64) -> bool {
        let is_due = |kept: &Kept| kept.before.as_ref().is_none_or(|before| before.steady_us + DUE_US <= steady_us);
        if !is_due(&self.0.lock()) {
            return false;
        }
        let now = Before { steady_us, totals: app.metrics.totals(), flow: flow(app) };
        let mut kept = self.0.lock();
        // Another port may just have taken it.
        if !is_due(&kept) {
            return false;
        }
        if let Some(before) = kept.before.take() {
            let values = before.sample(&now);
            kept.service.push(at, values);
        }
        kept.before = Some(now);
        true
    }

    /// Returns the rooms to sample, and forgets those that no operator looks at any more.
    fn rooms(&self, app: &App, steady_us: u64) -> Vec<RoomName> {
        let mut kept = self.0.lock();
        kept.rooms.retain(|_, room| steady_us < room.watched_us.saturating_add(WATCHED_US));
        if let (Backend::Embedded(store), false) = (&app.backend, app.is_auctions_alone) {
            for name in store.room_names(None, ROOMS_MAX).items {
                if kept.rooms.len() < ROOMS_MAX {
                    let fresh = || RoomTrack { track: Track::of(ROOM), watched_us: steady_us };
                    kept.rooms.entry(name).or_insert_with(fresh);
                }
            }
        }
        kept.rooms.keys().cloned().collect()
    }

    fn push_room(&self, room: &RoomName, at: Timestamp, view: &RoomView) {
        if let Some(known) = self.0.lock().rooms.get_mut(room) {
            known.track.push(at, room_values(view));
        }
    }
}

impl App {
    /// Takes a sample if one is due. A sample of rooms on a cluster costs a look at each.
    pub(crate) async fn observe(&self) {
        let (at, steady_us) = (self.backend.now(), self.backend.steady().as_us().unsigned_abs());
        let history = &self.dashboard.history;
        if !history.sample(self, at, steady_us) {
            return;
        }
        for room in history.rooms(self, steady_us) {
            // A room that cannot be read has a gap.
            if let Ok(Ok(summary)) = self.rooms.shown(&room).await {
                history.push_room(&room, at, &summary.view);
            }
        }
    }

    /// Takes a sample every second. Never returns.
    pub(crate) async fn keep_history(&self) {
        loop {
            self.observe().await;
            tokio::time::sleep(PERIOD).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_newest_answers_alone() {
        let before = [(100, 50), (200, 0), (u64::MAX, 0)];
        let now = [(100, 50), (200, 99), (u64::MAX, 1)];
        assert_eq!(quantile_ms(&before, &now, 0.5), 0.2);
        assert_eq!(quantile_ms(&before, &now, 0.99), 0.2);
        assert_eq!(quantile_ms(&before, &now, 1.0), 10_000.0);
        assert!(quantile_ms(&now, &now, 0.5).is_nan());
    }

    #[test]
    fn a_track_keeps_ten_minutes() {
        let mut track = Track::of(&["line"]);
        for second in 0..700_i64 {
            let at = Timestamp::from_us(second * 1_000_000).unwrap();
            track.push(at, [if second == 699 { f32::NAN } else { second as f32 }]);
        }
        let shown = track.shown(0);
        assert_eq!(shown["at_ms"].as_array().unwrap().len(), SAMPLES_MAX);
        assert_eq!(
            (&shown["at_ms"][0], &shown["line"][0], &shown["line"][599]),
            (&json!(100_000), &json!(100.0), &json!(null))
        );
        assert_eq!(track.shown(698_000)["at_ms"], json!([699_000]));
    }
}
