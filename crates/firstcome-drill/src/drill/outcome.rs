//! Turns the answers into the facts of the report: figures, series, latencies, the positions of some people.

use super::audit;
use super::event::{Played, Setting};
use super::facts::{Facts, Kill, Latency, SamplePerson, Series};
use super::people::{Fate, People};
use super::record::{Call, History, Reply};
use super::sampler::STEP_MS;
use crate::output::grouped;
use firstcome::Check;
use hdrhistogram::Histogram;

/// The most points of a series.
const POINTS_MAX: u64 = 600;
const QUANTILES: [f64; 8] = [0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0];

pub(crate) fn facts(setting: &Setting, played: &Played, stored: Vec<Check>) -> Facts {
    let history = &played.people.history;
    let mut checks = audit::all(history, setting.room.is_some());
    if !stored.is_empty() {
        checks.push(audit::stored(stored));
    }
    let seconds = played.took_us as f64 / 1e6;
    Facts {
        event: setting.event,
        started_at: played.started_at.clone(),
        seconds,
        people: u64::from(setting.people),
        stock: u64::from(setting.stock),
        issued: history.listed.len() as u64,
        conditions: conditions(setting),
        figures: figures(played, seconds),
        outcomes: outcomes(&played.people),
        checks,
        kills: history
            .restarts
            .iter()
            .map(|restart| Kill {
                target: restart.target.name(),
                loses: restart.loses,
                at_s: restart.killed_us as f64 / 1e6,
                in_flight: restart.in_flight,
                down_ms: (restart.ready_us - restart.killed_us) / 1_000,
            })
            .collect(),
        latencies: Call::ALL
            .iter()
            .zip(&played.people.latencies)
            .filter_map(|(call, times)| latency(call.name(), times))
            .collect(),
        series: series(setting, played),
        sample_people: sample_people(&played.people, &played.arrivals_us),
        auctions: None,
    }
}

fn conditions(setting: &Setting) -> Vec<(String, String)> {
    let mut rows = vec![
        ("seed", setting.seed.to_string()),
        ("connections", setting.connections.to_string()),
        ("opens after", format!("{:.1} s", setting.opens_us as f64 / 1e6)),
        ("kills planned", setting.kills.to_string()),
        ("processors", std::thread::available_parallelism().map_or(1, usize::from).to_string()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    if 0 < setting.browsers {
        rows.push(("browsers", setting.browsers.to_string()));
    }
    if setting.room.is_some() {
        rows.push(("admit", format!("{} per 1 s", setting.admit)));
        rows.push(("slots at once", setting.active_max.to_string()));
        rows.push(("claim window", format!("{} ms", setting.claim_window_ms)));
        rows.push(("slot lasts", format!("{} ms", setting.active_ttl_ms)));
    }
    if cfg!(debug_assertions) {
        rows.push(("build", "debug".to_owned()));
    }
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn figures(played: &Played, seconds: f64) -> Vec<(String, String)> {
    let history = &played.people.history;
    let mut rows = vec![
        ("answers", grouped(played.people.answers)),
        ("answers per second", grouped((played.people.answers as f64 / seconds) as u64)),
        ("slowest send of the drill itself", format!("{} ms", played.latest_us / 1_000)),
        (
            "answers cut off by a kill",
            grouped(history.records.iter().filter(|record| record.reply == Reply::Lost).count() as u64),
        ),
    ];
    if 0 < played.rss_max {
        rows.push(("server memory, highest", format!("{} MB", played.rss_max / 1_000_000)));
    }
    if let Some(speed) = audit::admission_speed(history) {
        rows.push(("admission rate, measured", format!("{:.1}/s", speed.per_s)));
        rows.push(("admission rate, measured / set", format!("{:.3}", speed.of_set)));
    }
    let mut told: Vec<f64> =
        history.rooms.iter().map(|seen| seen.rate_per_s).filter(|rate_per_s| 0.0 < *rate_per_s).collect();
    told.sort_unstable_by(f64::total_cmp);
    if let Some(median) = told.get(told.len() / 2) {
        rows.push(("admission rate, as the room tells it", format!("{median:.1}/s")));
    }
    let highest = history.rooms.iter().map(|seen| seen.waiting).max();
    if let Some(highest) = highest {
        rows.push(("waiting, highest", grouped(highest)));
    }
    if let Some(returned) = history.returned {
        rows.push(("slots back after", format!("{:.1} s", returned.took_us as f64 / 1e6)));
    }
    let oldest_ms = history.records.iter().map(|record| u64::from(record.age_ms)).max().unwrap_or(0);
    // Ages within the node's usual staleness are not reported.
    let oldest_ms = oldest_ms.saturating_sub(history.rules.stale_us / 1_000);
    if 0 < oldest_ms {
        rows.push(("oldest view that a node answered with", format!("{oldest_ms} ms")));
    }
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn outcomes(people: &People) -> Vec<(String, u64)> {
    let count = |fate| people.all.iter().filter(|person| person.fate == fate).count() as u64;
    let all = Fate::ALL.iter().map(|(fate, name)| ((*name).to_owned(), count(*fate)));
    let shows = |phase| people.history.pages.iter().filter(|page| page.phase() == phase).count() as u64;
    let ends = [("claimed", "a browser got one"), ("soldout", "a browser shows sold out")];
    let all = all.chain(ends.map(|(phase, name)| (name.to_owned(), shows(phase))));
    all.filter(|(_, count)| 0 < *count).collect()
}

pub(crate) fn latency(call: &str, times: &Histogram<u64>) -> Option<Latency> {
    let quantile = |quantile| (quantile, times.value_at_quantile(quantile) as f64 / 1e3);
    (!times.is_empty()).then(|| Latency {
        call: call.to_owned(),
        count: times.len(),
        quantiles_ms: QUANTILES.map(quantile).into(),
    })
}

/// Counts events per step, and returns rates per second.
pub(crate) fn rates(times_us: impl Iterator<Item = u64>, steps: usize, step_us: u64) -> Vec<f64> {
    let mut counts = vec![0_u64; steps];
    for at_us in times_us {
        if let Some(count) = counts.get_mut((at_us / step_us) as usize) {
            *count += 1;
        }
    }
    counts.iter().map(|&count| count as f64 * 1e6 / step_us as f64).collect()
}

/// Returns the last value at or before the end of every step.
pub(crate) fn levels(seen: &[(u64, f64)], steps: usize, step_us: u64) -> Vec<f64> {
    let (mut at, mut last) = (0, 0.0);
    let level = |step: usize| {
        while at < seen.len() && seen[at].0 <= (step as u64 + 1) * step_us {
            last = seen[at].1;
            at += 1;
        }
        last
    };
    (0..steps).map(level).collect()
}

/// Returns the instants of all admissions, each once.
fn admission_times(history: &History) -> Vec<u64> {
    let mut once: Vec<(u32, u64)> = history.admissions.iter().map(|seen| (seen.number, seen.admitted_us)).collect();
    once.sort_unstable();
    once.dedup();
    once.into_iter().map(|(_, at_us)| at_us).collect()
}

fn series(setting: &Setting, played: &Played) -> Series {
    let history = &played.people.history;
    let step_us = STEP_MS * 1_000 * (played.took_us / (STEP_MS * 1_000)).div_ceil(POINTS_MAX).max(1);
    let steps = (played.took_us / step_us + 1) as usize;
    let rooms = |value: fn(&super::record::RoomObservation) -> u64| {
        let seen: Vec<(u64, f64)> = history.rooms.iter().map(|room| (room.received_us, value(room) as f64)).collect();
        if seen.is_empty() { Vec::new() } else { levels(&seen, steps, step_us) }
    };
    let mut firsts: Vec<(u32, u64)> = history.told.iter().map(|told| (told.serial, told.received_us)).collect();
    firsts.sort_unstable();
    firsts.dedup_by_key(|(serial, _)| *serial);
    let mut issued_us: Vec<u64> = firsts.into_iter().map(|(_, at_us)| at_us).collect();
    issued_us.sort_unstable();
    let issued: Vec<(u64, f64)> = issued_us.iter().zip(1..).map(|(&at_us, count)| (at_us, f64::from(count))).collect();
    let in_room = setting.room.is_some();
    let answered = history.records.iter().filter(|record| record.reply != Reply::Lost);
    Series {
        step_s: step_us as f64 / 1e6,
        arrivals_per_s: rates(played.arrivals_us.iter().copied(), steps, step_us),
        admissions_per_s: if in_room {
            rates(admission_times(history).into_iter(), steps, step_us)
        } else {
            Vec::new()
        },
        admission_limit_per_s: in_room.then_some(f64::from(setting.admit)),
        waiting: rooms(|room| room.waiting),
        active: rooms(|room| room.active),
        active_cap: in_room.then_some(setting.active_max as f64),
        issued: levels(&issued, steps, step_us),
        requests_per_s: rates(answered.map(super::record::Record::received_us), steps, step_us),
    }
}

fn sample_people(people: &People, arrivals_us: &[u64]) -> Vec<SamplePerson> {
    let sample = |sample: &super::people::Sample| {
        let person = &people.all[sample.person as usize];
        let arrived_s = arrivals_us.get(sample.person as usize).copied().unwrap_or(0) as f64 / 1e6;
        let number =
            if 0 < person.number { format!(", number {}", grouped(u64::from(person.number))) } else { String::new() };
        let admitted = people.history.admissions.get(person.admission as usize);
        let outcome = Fate::ALL.iter().find(|(fate, _)| *fate == person.fate).map_or("", |(_, name)| name);
        SamplePerson {
            label: format!("came at {arrived_s:.1} s{number}"),
            positions: sample.positions.clone(),
            admitted_at_s: admitted.map(|seen| seen.admitted_us as f64 / 1e6),
            outcome: outcome.to_owned(),
        }
    };
    people.samples.iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_count_and_hold() {
        assert_eq!(rates([0, 10, 999_999, 1_500_000, 9_000_000].into_iter(), 3, 500_000), [4.0, 2.0, 0.0]);
        assert_eq!(levels(&[(100, 1.0), (400_000, 2.0), (1_200_000, 5.0)], 3, 500_000), [2.0, 2.0, 5.0]);
    }
}
