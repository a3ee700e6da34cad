//! Axes: the place of a value between 0 and 1, round ticks, and the format of numbers.

use crate::output::grouped;

/// The largest plotted value. Larger ones are unreadable, and this keeps the arithmetic finite.
const VALUE_MAX: f64 = 1e18;
/// The shortest latency that a plot distinguishes from none.
const LATENCY_LEAST_MS: f64 = 0.001;
/// Usual steps of a time axis.
const TIME_STEPS_S: [f64; 21] = [
    0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0,
    14_400.0, 21_600.0, 43_200.0, 86_400.0,
];
/// The distance of the highest value to the right of the last percentile, in powers of ten.
const HIGHEST_GAP: f64 = 0.5;

/// One axis.
pub(super) enum Scale {
    /// Seconds since the start.
    Time { end_s: f64 },
    /// Counts and rates, from 0.
    Linear { top: f64, step: f64 },
    /// Milliseconds, in powers of ten.
    Logarithmic { low: f64, high: f64 },
    /// Percentiles by the rarity of the rest: 90 %, 99 %, 99.9 % are evenly spaced, 100 % is at the end.
    Tail { start: f64, last: f64 },
}

/// One tick: its place and label.
pub(super) struct Tick {
    pub(super) place: f64,
    pub(super) label: String,
}

/// Returns a finite value that is not negative; `None` for NaN and infinities, which are not plotted.
pub(super) fn sane(value: f64) -> Option<f64> {
    value.is_finite().then(|| value.clamp(0.0, VALUE_MAX))
}

impl Scale {
    pub(super) fn time(end_s: f64) -> Self {
        let end_s = sane(end_s).unwrap_or_default();
        Self::Time { end_s: if end_s <= 0.0 { 1.0 } else { end_s } }
    }

    /// Leaves a margin above the highest value.
    pub(super) fn linear(highest: f64) -> Self {
        let highest = sane(highest).unwrap_or_default().max(1.0) * 1.03;
        let step = round_step(highest / 4.5).max(1.0);
        Self::Linear { top: (highest / step).ceil() * step, step }
    }

    pub(super) fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let (mut least, mut most) = (VALUE_MAX, LATENCY_LEAST_MS);
        for value in values.filter_map(sane) {
            let value = value.max(LATENCY_LEAST_MS);
            (least, most) = (least.min(value), most.max(value));
        }
        let low = 10f64.powf(least.min(most).log10().floor());
        let high = 10f64.powf(most.log10().ceil());
        Self::Logarithmic { low, high: high.max(low * 10.0) }
    }

    pub(super) fn tail(quantiles: impl Iterator<Item = f64>) -> Self {
        let (mut start, mut last) = (nines(0.5), nines(0.9));
        for quantile in quantiles.filter(|quantile| (0.0..1.0).contains(quantile)) {
            (start, last) = (start.min(nines(quantile)), last.max(nines(quantile)));
        }
        Self::Tail { start, last }
    }

    /// Returns the place of a value, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = match *self {
            Self::Time { end_s } => value / end_s,
            Self::Linear { top, .. } => value / top,
            Self::Logarithmic { low, high } => {
                (value.max(LATENCY_LEAST_MS).log10() - low.log10()) / (high.log10() - low.log10())
            }
            Self::Tail { .. } if 1.0 <= value => 1.0,
            Self::Tail { start, last } => (nines(value) - start) / (last + HIGHEST_GAP - start),
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Returns about `wanted` round ticks at most.
    pub(super) fn ticks(&self, wanted: usize) -> Vec<Tick> {
        let tick = |value: f64, label: String| Tick { place: self.place(value), label };
        match *self {
            Self::Time { end_s } => {
                let step = time_step(end_s, wanted);
                let count = (end_s / step * (1.0 + 1e-9)).floor() as usize;
                (0..=count).map(|at| at as f64 * step).map(|at| tick(at, time_label(at, step))).collect()
            }
            Self::Linear { top, step } => {
                let count = (top / step).round() as usize;
                (0..=count).map(|at| at as f64 * step).map(|value| tick(value, axis_number(value, top))).collect()
            }
            Self::Logarithmic { low, high } => {
                let decades = (high / low).log10().round() as i32;
                let parts: &[f64] = if decades <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let every = (decades / 7 + 1) as usize;
                let values = (0..=decades).step_by(every).flat_map(|at| parts.iter().map(move |part| (at, part)));
                let values = values.map(|(at, part)| low * 10f64.powi(at) * part);
                values.filter(|value| *value <= high * 1.001).map(|value| tick(value, figure(value))).collect()
            }
            Self::Tail { start, last } => {
                let marks = [(0.0, "0 %"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %")];
                let rare = [(0.9999, "99.99 %"), (0.99999, "99.999 %"), (0.999_999, "99.9999 %")];
                let marks = marks.into_iter().chain(rare);
                let shown = marks.filter(|(mark, _)| (start - 1e-6..=last + 1e-6).contains(&nines(*mark)));
                shown.chain([(1.0, "max")]).map(|(mark, label)| tick(mark, label.into())).collect()
            }
        }
    }
}

/// Returns the number of nines: 0.9 gives 1, 0.99 gives 2, 0.999 gives 3.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile.clamp(0.0, 1.0 - 1e-9)).log10()
}

/// Returns the next of 1, 2, 5, 10, 20 …
fn round_step(least: f64) -> f64 {
    let unit = 10f64.powf(least.max(1e-9).log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| least <= unit * factor).unwrap_or(10.0);
    unit * factor
}

fn time_step(end_s: f64, wanted: usize) -> f64 {
    let least = end_s / wanted.max(1) as f64;
    let known = TIME_STEPS_S.into_iter().find(|step| least <= *step);
    known.unwrap_or_else(|| round_step(least / 86_400.0) * 86_400.0)
}

fn time_label(at_s: f64, step: f64) -> String {
    let units = [(86_400.0, "d"), (3_600.0, "h"), (60.0, "min")];
    match units.into_iter().find(|(unit, _)| step % unit == 0.0) {
        Some((unit, name)) => format!("{} {name}", whole(at_s / unit)),
        None if step < 1.0 => format!("{at_s:.1} s"),
        None => format!("{} s", whole(at_s)),
    }
}

/// Formats a number beside an axis, short to save space.
fn axis_number(value: f64, top: f64) -> String {
    let units = [(1e15, ""), (1e12, " T"), (1e9, " G"), (1e6, " M")];
    match units.into_iter().find(|(unit, _)| unit * 10.0 <= top) {
        Some((_, "")) if 0.0 < value => format!("{value:.1e}"),
        Some((unit, name)) if 0.0 < value => format!("{}{name}", plain(value / unit)),
        _ => whole(value),
    }
}

/// Formats a whole number in groups without line breaks.
pub(super) fn whole(value: f64) -> String {
    match sane(value) {
        Some(value) if value < 1e15 => grouped_tight(value.round() as u64),
        Some(value) => format!("{value:.1e}"),
        None => "–".into(),
    }
}

/// Groups a number as on the terminal, with a narrow space that does not break.
pub(super) fn grouped_tight(number: u64) -> String {
    grouped(number).replace(' ', "\u{202f}")
}

/// Formats a number with up to three digits and as many decimals as it needs.
fn plain(value: f64) -> String {
    if 100.0 <= value {
        return whole(value);
    }
    let decimals = if 10.0 <= value {
        1
    } else if 1.0 <= value {
        2
    } else {
        3
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// Formats a number of any size, with at least three digits if it has them.
pub(super) fn figure(value: f64) -> String {
    sane(value).map_or_else(|| "–".into(), plain)
}

/// Formats the measured value of one quantile, or a dash.
pub(super) fn quantile_ms(quantiles_ms: &[(f64, f64)], wanted: f64) -> String {
    let found = quantiles_ms.iter().find(|(quantile, _)| (quantile - wanted).abs() < 1e-9);
    found.map_or_else(|| "–".into(), |(_, ms)| figure(*ms))
}

/// Formats a duration for people.
pub(super) fn duration(seconds: f64) -> String {
    let Some(seconds) = sane(seconds) else { return "–".into() };
    if seconds < 60.0 {
        return format!("{} s", plain((seconds * 10.0).round() / 10.0));
    }
    let all = seconds.round() as u64;
    match (all / 3_600, all / 60 % 60, all % 60) {
        (0, minutes, 0) => format!("{minutes} min"),
        (0, minutes, rest) => format!("{minutes} min {rest} s"),
        (hours, minutes, _) => format!("{} h {minutes} min", grouped_tight(hours)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale, wanted: usize) -> Vec<String> {
        scale.ticks(wanted).into_iter().map(|tick| tick.label.replace('\u{202f}', " ")).collect()
    }

    #[test]
    fn ticks_are_round_and_carry_their_unit() {
        let rows = [
            (Scale::time(62.0), 7, "0 s|10 s|20 s|30 s|40 s|50 s|60 s"),
            (Scale::time(0.4), 5, "0.0 s|0.1 s|0.2 s|0.3 s|0.4 s"),
            (Scale::time(650.0), 6, "0 min|2 min|4 min|6 min|8 min|10 min"),
            (Scale::time(7_200.0), 5, "0 min|30 min|60 min|90 min|120 min"),
            (Scale::linear(990.0), 0, "0|500|1 000|1 500"),
            (Scale::linear(0.0), 0, "0|1|2"),
            (Scale::linear(44_000_000.0), 0, "0|20 M|40 M|60 M"),
            (Scale::logarithmic([0.4, 30_000.0].into_iter()), 0, "0.1|1|10|100|1 000|10 000|100 000"),
            (Scale::logarithmic([3.0].into_iter()), 0, "1|2|5|10"),
            (Scale::tail([0.5, 0.999].into_iter()), 0, "50 %|90 %|99 %|99.9 %|max"),
        ];
        for (scale, wanted, expected) in rows {
            assert_eq!(labels(&scale, wanted).join("|"), expected);
        }
    }

    #[test]
    fn every_place_is_between_0_and_1_no_matter_what_the_value() {
        let scales = [Scale::time(f64::NAN), Scale::linear(f64::INFINITY), Scale::logarithmic([].into_iter())];
        for scale in scales.iter().chain([&Scale::tail([f64::NAN, 2.0].into_iter()), &Scale::time(1e300)]) {
            for value in [0.0, -5.0, 1.0, 1e300, f64::MAX, f64::INFINITY, f64::NAN] {
                assert!((0.0..=1.0).contains(&scale.place(value)), "{value}");
            }
            assert!(scale.ticks(8).len() < 30);
        }
    }

    #[test]
    fn durations_read_like_speech() {
        let rows = [(0.0, "0 s"), (12.34, "12.3 s"), (60.0, "1 min"), (63.2, "1 min 3 s"), (7_380.0, "2 h 3 min")];
        for (seconds, text) in rows {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!(duration(f64::NAN), "–");
    }
}
