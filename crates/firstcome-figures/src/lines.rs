//! Draws how figures change: small panels with lines and their ranges, in a self-contained SVG.

use crate::STYLE;
use crate::markup::{escaped, put};

/// Widths and heights, in units of the drawing.
const WIDTH: f64 = 900.0;
const PANEL_WIDTH: f64 = 450.0;
const PANEL_HEIGHT: f64 = 286.0;
const HEAD: f64 = 62.0;
/// The part of a panel that holds the lines.
const LEFT: f64 = 66.0;
const RIGHT: f64 = 124.0;
const TOP: f64 = 58.0;
const BOTTOM: f64 = 62.0;

/// One measured point, with the lowest and the highest value of its rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Where the point is: a quantity, or a number from 0 on an axis of names.
    pub x: f64,
    /// The median.
    pub y: f64,
    /// The lowest value.
    pub min: f64,
    /// The highest value.
    pub max: f64,
}

/// One line.
pub struct Series {
    /// The name beside the end of the line; empty if there is one line only.
    pub name: String,
    /// Whether it is one of firstcome's.
    pub ours: bool,
    /// The points from left to right.
    pub points: Vec<Point>,
}

/// The axis from left to right.
pub enum Across {
    /// Quantities, powers apart.
    Quantities,
    /// Names, one for each whole number from 0.
    Names(Vec<String>),
}

/// One panel.
pub struct Panel {
    /// The title above the lines.
    pub title: String,
    /// What the values are: `acquisitions per second`.
    pub reading: String,
    /// What the axis from left to right is: `waiters`.
    pub across_is: String,
    /// The axis from left to right.
    pub across: Across,
    /// The lines.
    pub series: Vec<Series>,
    /// Whether the values are ratios, with a line at 1.
    pub ratio: bool,
}

/// A scale from values to a length.
struct Scale {
    low: f64,
    high: f64,
    powers: bool,
    from: f64,
    to: f64,
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        let share = if self.powers {
            (value.max(f64::MIN_POSITIVE).log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }
}

/// Renders all panels, two in a row.
pub fn svg(title: &str, head: &str, panels: &[Panel]) -> String {
    let rows = panels.len().div_ceil(2);
    let height = HEAD + rows as f64 * PANEL_HEIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">\
         <style>{STYLE}</style><text x=\"12\" y=\"26\" class=\"title\">{}</text>",
        escaped(title),
        escaped(title)
    );
    for (at, line) in head.lines().enumerate() {
        let y = 44.0 + at as f64 * 15.0;
        put(&mut svg, format_args!("<text x=\"12\" y=\"{y:.0}\" class=\"soft\">{}</text>", escaped(line)));
    }
    for (at, panel) in panels.iter().enumerate() {
        let (left, top) = ((at % 2) as f64 * PANEL_WIDTH, HEAD + (at / 2) as f64 * PANEL_HEIGHT);
        draw(panel, left, top, &mut svg);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(panel: &Panel, left: f64, top: f64, svg: &mut String) {
    let text = |svg: &mut String, x: f64, y: f64, class: &str, anchor: &str, words: &str| {
        let words = escaped(words);
        put(
            svg,
            format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{words}</text>"),
        );
    };
    text(svg, left + 12.0, top + 20.0, "title", "start", &panel.title);
    let (across, up) = (across(panel, left), up(panel, top));
    let reading = if up.powers { format!("{} · logarithmic", panel.reading) } else { panel.reading.clone() };
    text(svg, left + 12.0, top + 37.0, "soft", "start", &reading);
    let (bottom, end) = (top + PANEL_HEIGHT - BOTTOM, left + PANEL_WIDTH - RIGHT);
    let start = left + LEFT;
    put(svg, format_args!("<path class=\"axis\" d=\"M{start:.1} {:.1}V{bottom:.1}H{end:.1}\"/>", top + TOP));
    for tick in ticks(&up) {
        let y = up.at(tick);
        put(svg, format_args!("<path class=\"axis\" d=\"M{:.1} {y:.1}H{end:.1}\" opacity=\"0.5\"/>", start - 4.0));
        text(svg, start - 8.0, y + 4.0, "soft", "end", &short(tick));
    }
    let mut free = f64::NEG_INFINITY;
    for (x, name) in marks(panel) {
        let x = across.at(x);
        put(svg, format_args!("<path class=\"axis\" d=\"M{x:.1} {bottom:.1}V{:.1}\"/>", bottom + 4.0));
        // A name that would lie over the one before it is left out.
        let width = name.chars().count() as f64 * 6.5;
        if free < x - width / 2.0 {
            text(svg, x, bottom + 18.0, "soft", "middle", &name);
            free = x + width / 2.0 + 4.0;
        }
    }
    text(svg, f64::midpoint(start, end), bottom + 36.0, "soft", "middle", &panel.across_is);
    let alone = panel.series.len() == 1;
    let mut names: Vec<(f64, String, bool)> = Vec::new();
    for series in &panel.series {
        line(series, &across, &up, svg);
        if let Some(last) = series.points.last().filter(|_| !alone) {
            names.push((up.at(last.y), format!("{} {}", series.name, short(last.y)), series.ours));
        }
        // A line that is alone has its values beside its points, of several lines only the ends have them.
        let mut free = f64::NEG_INFINITY;
        for point in series.points.iter().take(if alone { usize::MAX } else { 1 }) {
            let (x, value) = (across.at(point.x), short(point.y));
            let half = value.chars().count() as f64 * 3.5;
            if free < x - half {
                text(svg, x, up.at(point.max) - 7.0, "value", "middle", &value);
                free = x + half + 4.0;
            }
        }
    }
    // Names that would lie over each other move down.
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = f64::NEG_INFINITY;
    for (y, name, ours) in names {
        let y = y.max(free);
        text(svg, end + 8.0, y + 4.0, if ours { "value ours" } else { "value" }, "start", &name);
        free = y + 15.0;
    }
}

fn line(series: &Series, across: &Scale, up: &Scale, svg: &mut String) {
    let place = |point: &Point| format!("{:.1} {:.1}", across.at(point.x), up.at(point.y));
    let path = series.points.iter().map(place).collect::<Vec<_>>().join("L");
    let (line, dot) = if series.ours { ("line mine", "ours") } else { ("line", "bar") };
    put(svg, format_args!("<path class=\"{line}\" d=\"M{path}\"/>"));
    for point in &series.points {
        let (x, y) = (across.at(point.x), up.at(point.y));
        let (min, max) = (up.at(point.min), up.at(point.max));
        put(
            svg,
            format_args!(
                "<path class=\"{line}\" d=\"M{x:.1} {min:.1}V{max:.1}\"/>\
                 <circle class=\"{dot}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"
            ),
        );
    }
}

fn points(panel: &Panel) -> impl Iterator<Item = &Point> {
    panel.series.iter().flat_map(|series| &series.points)
}

fn across(panel: &Panel, left: f64) -> Scale {
    let (from, to) = (left + LEFT + 10.0, left + PANEL_WIDTH - RIGHT - 10.0);
    match &panel.across {
        Across::Names(names) => {
            Scale { low: 0.0, high: names.len().saturating_sub(1).max(1) as f64, powers: false, from, to }
        }
        Across::Quantities => {
            let low = points(panel).map(|point| point.x).fold(f64::INFINITY, f64::min);
            let high = points(panel).map(|point| point.x).fold(low, f64::max);
            let high = if high <= low { low * 10.0 } else { high };
            Scale { low, high, powers: true, from, to }
        }
    }
}

fn up(panel: &Panel, top: f64) -> Scale {
    let (from, to) = (top + PANEL_HEIGHT - BOTTOM, top + TOP + 6.0);
    let low = points(panel).map(|point| point.min).filter(|low| 0.0 < *low).fold(f64::INFINITY, f64::min);
    let high = points(panel).map(|point| point.max).fold(0.0, f64::max);
    let high = if panel.ratio { high.max(1.0) } else { high };
    // Values of one order of magnitude begin at zero, so that lengths are ratios.
    if low.is_finite() && low * 8.0 < high {
        let powers = |value: f64, round: fn(f64) -> f64| 10_f64.powf(round(value.log10()));
        return Scale { low: powers(low, f64::floor), high: powers(high, f64::ceil), powers: true, from, to };
    }
    let step = step(high);
    Scale { low: 0.0, high: (high / step).ceil().max(1.0) * step, powers: false, from, to }
}

/// Returns the distance of about four ticks: 1, 2 or 5 times a power of ten.
fn step(high: f64) -> f64 {
    let rough = (high / 4.0).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| rough <= *step).unwrap_or(power)
}

fn ticks(scale: &Scale) -> Vec<f64> {
    if scale.powers {
        let (low, high) = (scale.low.log10().round() as i32, scale.high.log10().round() as i32);
        return (low..=high).map(|power| 10_f64.powi(power)).collect();
    }
    let step = step(scale.high);
    (0..=(scale.high / step).round() as u32).map(|tick| f64::from(tick) * step).collect()
}

/// The marks below the axis.
fn marks(panel: &Panel) -> Vec<(f64, String)> {
    match &panel.across {
        Across::Names(names) => names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect(),
        Across::Quantities => {
            let mut marks: Vec<f64> = points(panel).map(|point| point.x).collect();
            marks.sort_by(f64::total_cmp);
            marks.dedup();
            marks.into_iter().map(|mark| (mark, short(mark))).collect()
        }
    }
}

/// Formats a number in few letters: `950`, `3.2 k`, `44 k`, `1.5 M`.
pub fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        1e6.. => (value / 1e6, " M"),
        1e3.. => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        0.0 => 0,
        100.0.. => 0,
        10.0.. => usize::from(unit.is_empty() && value.fract() != 0.0),
        1.0.. => usize::from((value * 10.0).round() % 10.0 != 0.0),
        _ => 2,
    };
    format!("{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let all = [0.0, 0.25, 1.0, 3.24, 42.0, 950.0, 3_240.0, 44_300.0, 354_000.0, 1_500_000.0, 10_000_000.0];
        let short = all.map(short);
        assert_eq!(short, ["0", "0.25", "1", "3.2", "42", "950", "3.2 k", "44 k", "354 k", "1.5 M", "10 M"]);
    }

    #[test]
    fn ticks_are_few_and_round() {
        let scale = Scale { low: 0.0, high: 120.0, powers: false, from: 0.0, to: 1.0 };
        assert_eq!(ticks(&scale), [0.0, 50.0, 100.0]);
        let scale = Scale { low: 10.0, high: 10_000.0, powers: true, from: 0.0, to: 1.0 };
        assert_eq!(ticks(&scale), [10.0, 100.0, 1_000.0, 10_000.0]);
    }

    #[test]
    fn every_point_is_inside_its_panel() {
        let point = |x: f64, y: f64| Point { x, y, min: y * 0.9, max: y * 1.1 };
        let points = vec![point(1.0, 3.0), point(100.0, 250.0), point(10_000.0, 9_000.0)];
        let series = vec![Series { name: "Redis".into(), ours: true, points }];
        let panel = Panel {
            title: "t".into(),
            reading: "r".into(),
            across_is: "waiters".into(),
            across: Across::Quantities,
            series,
            ratio: false,
        };
        let drawn = svg("Curves", "head", &[panel]);
        for at in drawn.split("cx=\"").skip(1) {
            let x: f64 = at.split('"').next().and_then(|x| x.parse().ok()).expect("a number");
            assert!((LEFT..=PANEL_WIDTH - RIGHT).contains(&x), "{x}");
        }
        assert!([">3<", ">250<", ">9 k<"].iter().all(|value| drawn.contains(value)), "{drawn}");
    }
}
