//! One plot as inline SVG: once wide and once narrow, so that its text is also readable on a phone.
//!
//! All text is escaped, and values that are not finite are left out.

use super::scale::{Scale, Tick, figure, sane, whole};
use crate::drill::facts::Kill;
use crate::markup::{escaped, put};

/// The most points of one line: a screen cannot show more.
const POINTS_MAX: usize = 600;
/// The number of colours in the style; further lines are not drawn.
pub(super) const LINES_MAX: usize = 8;
/// The approximate width of a digit beside an axis.
const DIGIT_WIDTH: f64 = 7.2;
/// The least distance of two kill numbers: closer ones would touch.
const MARK_GAP: f64 = 16.0;

/// The kinds of servers that can be killed, as the style names them.
const TARGETS: [&str; 3] = ["server", "sql", "redis"];

/// One plot.
pub(super) struct Plot {
    /// Unique on the page.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// One sentence on how to read it.
    pub(super) reading: String,
    /// What the vertical axis counts.
    pub(super) unit: &'static str,
    pub(super) x_title: &'static str,
    pub(super) x: Scale,
    pub(super) y: Scale,
    pub(super) lines: Vec<PlotLine>,
    /// Horizontal lines that should not be crossed.
    pub(super) limits: Vec<(String, f64)>,
    pub(super) kills: Vec<Mark>,
}

/// One line of a plot, in the units of its axes.
pub(super) struct PlotLine {
    pub(super) label: String,
    pub(super) points: Vec<(f64, f64)>,
    /// Points to mark with a dot.
    pub(super) dots: Vec<(f64, f64)>,
    /// Whether the area below is tinted.
    pub(super) filled: bool,
}

/// A kill, numbered as in the table of kills.
pub(super) struct Mark {
    number: usize,
    /// The kind of server; the style has a look for each.
    target: &'static str,
    from_s: f64,
    to_s: f64,
    says: String,
}

impl PlotLine {
    pub(super) fn new(label: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        let sane = |(x, y): (f64, f64)| Some((sane(x)?, sane(y)?));
        let points = points.into_iter().filter_map(sane).collect();
        Self { label: label.into(), points, dots: Vec::new(), filled: false }
    }

    pub(super) fn filled(mut self) -> Self {
        self.filled = true;
        self
    }

    /// Returns the highest value, or 0 for an empty line.
    pub(super) fn highest(&self) -> f64 {
        self.points.iter().map(|(_, y)| *y).fold(0.0, f64::max)
    }
}

/// Returns the kills as marks of a time axis.
pub(super) fn marks(kills: &[Kill]) -> Vec<Mark> {
    let mark = |(at, kill): (usize, &Kill)| {
        let from_s = sane(kill.at_s)?;
        let to_s = from_s + kill.down_ms as f64 / 1_000.0;
        let lost = if kill.loses { ", with its data" } else { "" };
        let says = format!("{} killed{lost}, {} requests in flight", kill.target, whole(kill.in_flight as f64));
        let target = TARGETS.into_iter().find(|target| *target == kill.target).unwrap_or(TARGETS[0]);
        Some(Mark { number: at + 1, target, from_s, to_s, says })
    };
    kills.iter().enumerate().filter_map(mark).collect()
}

/// Reduces the number of points, and keeps every peak and dip: the least and the most of each bucket, in their order.
pub(super) fn thinned(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    if points.len() <= most {
        return points.to_vec();
    }
    let buckets = (most / 2).saturating_sub(1).max(1);
    let inner = &points[1..points.len() - 1];
    let mut kept = vec![points[0]];
    for bucket in inner.chunks(inner.len().div_ceil(buckets)) {
        let by_value = |at: &usize, other: &usize| bucket[*at].1.total_cmp(&bucket[*other].1);
        let least = (0..bucket.len()).min_by(by_value).unwrap_or_default();
        let most = (0..bucket.len()).max_by(by_value).unwrap_or_default();
        kept.push(bucket[least.min(most)]);
        if least != most {
            kept.push(bucket[least.max(most)]);
        }
    }
    kept.push(points[points.len() - 1]);
    kept
}

/// The dimensions of one drawing, in its own units.
struct Frame {
    kind: &'static str,
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x_ticks: usize,
    points_max: usize,
}

impl Frame {
    fn wide(left: f64) -> Self {
        let (right, top, bottom) = (870.0, 36.0, 216.0);
        let (x_ticks, points_max) = (10, POINTS_MAX);
        Self { kind: "wide", width: 900.0, height: 262.0, left, right, top, bottom, x_ticks, points_max }
    }

    fn narrow(left: f64) -> Self {
        let (right, top, bottom) = (338.0, 36.0, 206.0);
        let (x_ticks, points_max) = (5, POINTS_MAX / 2);
        Self { kind: "narrow", width: 360.0, height: 252.0, left, right, top, bottom, x_ticks, points_max }
    }
}

impl Plot {
    fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.points.is_empty())
    }

    /// Returns the width of the numbers beside the vertical axis.
    pub(super) fn left(&self) -> f64 {
        let lengths = self.y.ticks(0).into_iter().map(|tick| tick.label.chars().count());
        14.0 + lengths.max().unwrap_or_default() as f64 * DIGIT_WIDTH
    }

    /// Renders the figure: title, legend, both drawings, and how to read it. Plots with the same `left` are aligned,
    /// so that a moment is at the same place in all of them.
    pub(super) fn figure(&self, left: f64) -> String {
        let mut html = format!("<figure id=\"{}\"><figcaption>{}</figcaption>", self.id, escaped(self.title));
        if self.is_empty() {
            html.push_str("<p class=\"none\">no data</p>");
        } else {
            self.legend(&mut html);
            let y_ticks = self.y.ticks(0);
            self.svg(&Frame::wide(left), &y_ticks, &mut html);
            self.svg(&Frame::narrow(left), &y_ticks, &mut html);
        }
        put(&mut html, format_args!("<p class=\"reading\">{}</p></figure>\n", escaped(&self.reading)));
        html
    }

    fn legend(&self, html: &mut String) {
        html.push_str("<ul class=\"legend\">");
        let mut entry = |class: &str, label: &str| {
            let label = escaped(label);
            let sample = format!(
                "<svg viewBox=\"0 0 28 10\" aria-hidden=\"true\"><path class=\"{class}\" d=\"M1 5H27\"/></svg>"
            );
            put(html, format_args!("<li>{sample}{label}</li>"));
        };
        for (at, line) in self.drawn() {
            entry(&format!("line c{}", at + 1), &line.label);
        }
        for (label, _) in &self.limits {
            entry("limit", label);
        }
        for target in TARGETS.into_iter().filter(|target| self.kills.iter().any(|mark| mark.target == *target)) {
            entry(&format!("kill {target}"), &format!("{target} killed (number as in the table), tinted while down"));
        }
        html.push_str("</ul>");
    }

    fn drawn(&self) -> impl Iterator<Item = (usize, &PlotLine)> {
        self.lines.iter().take(LINES_MAX).enumerate().filter(|(_, line)| !line.points.is_empty())
    }

    fn svg(&self, frame: &Frame, y_ticks: &[Tick], html: &mut String) {
        let (id, kind) = (self.id, frame.kind);
        put(
            html,
            format_args!(
                "<svg class=\"plot {kind}\" viewBox=\"0 0 {} {}\" role=\"img\" \
                 aria-labelledby=\"{id}-{kind}-title {id}-{kind}-desc\"><title id=\"{id}-{kind}-title\">{}</title>\
                 <desc id=\"{id}-{kind}-desc\">{}</desc>",
                frame.width,
                frame.height,
                escaped(self.title),
                escaped(&self.summary()),
            ),
        );
        self.axes(frame, y_ticks, html);
        self.kills(frame, html);
        for (_, value) in &self.limits {
            let y = self.y(frame, *value);
            put(html, format_args!("<path class=\"limit\" d=\"M{:.1} {y:.1}H{:.1}\"/>", frame.left, frame.right));
        }
        for (at, line) in self.drawn() {
            self.line(frame, at + 1, line, html);
        }
        html.push_str("</svg>");
    }

    fn axes(&self, frame: &Frame, y_ticks: &[Tick], html: &mut String) {
        let Frame { left, right, bottom, .. } = *frame;
        put(html, format_args!("<text x=\"2\" y=\"13\" class=\"unit\">{}</text>", escaped(self.unit)));
        for tick in y_ticks {
            let y = between(frame.bottom, frame.top, tick.place);
            put(html, format_args!("<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>"));
            let (x, label_y, label) = (left - 7.0, y + 4.0, escaped(&tick.label));
            put(html, format_args!("<text x=\"{x:.1}\" y=\"{label_y:.1}\" class=\"y\">{label}</text>"));
        }
        let mut free_from = f64::MIN;
        let ticks = self.x.ticks(frame.x_ticks);
        for (at, tick) in ticks.iter().enumerate() {
            let x = between(left, right, tick.place);
            put(html, format_args!("<path class=\"tick\" d=\"M{x:.1} {bottom:.1}v5\"/>"));
            let half = tick.label.chars().count() as f64 * DIGIT_WIDTH / 2.0;
            // Percentiles crowd on a narrow plot: the last label is kept, and those before it that fit.
            let last = ticks.last().filter(|_| at + 1 < ticks.len());
            let limit = last.map_or(f64::MAX, |last| {
                between(left, right, last.place) - last.label.chars().count() as f64 * DIGIT_WIDTH / 2.0 - 6.0
            });
            if free_from <= x - half && x + half <= limit {
                let (y, label) = (bottom + 19.0, escaped(&tick.label));
                put(html, format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"x\">{label}</text>"));
                free_from = x + half + 6.0;
            }
        }
        put(html, format_args!("<path class=\"axis\" d=\"M{left:.1} {bottom:.1}H{right:.1}\"/>"));
        let (y, title) = (bottom + 38.0, escaped(self.x_title));
        put(html, format_args!("<text x=\"{right:.1}\" y=\"{y:.1}\" class=\"unit end\">{title}</text>"));
    }

    fn kills(&self, frame: &Frame, html: &mut String) {
        let mut free_from = f64::MIN;
        for mark in &self.kills {
            let (from, to) = (self.x(frame, mark.from_s), self.x(frame, mark.to_s));
            let (top, height, target) = (frame.top, frame.bottom - frame.top, mark.target);
            put(html, format_args!("<g><title>{}: {}</title>", mark.number, escaped(&mark.says)));
            let width = (to - from).max(1.0);
            put(
                html,
                format_args!(
                    "<rect class=\"down {target}\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>\
                     <path class=\"kill {target}\" d=\"M{from:.1} {top:.1}V{:.1}\"/>",
                    frame.bottom
                ),
            );
            if free_from <= from {
                let y = top - 5.0;
                put(
                    html,
                    format_args!("<text x=\"{from:.1}\" y=\"{y:.1}\" class=\"mark {target}\">{}</text>", mark.number),
                );
                free_from = from + MARK_GAP;
            }
            html.push_str("</g>");
        }
    }

    fn line(&self, frame: &Frame, colour: usize, line: &PlotLine, html: &mut String) {
        let mut way = String::new();
        let points = thinned(&line.points, frame.points_max);
        for (at, (x, y)) in points.iter().enumerate() {
            let letter = if at == 0 { 'M' } else { 'L' };
            put(&mut way, format_args!("{letter}{:.1} {:.1}", self.x(frame, *x), self.y(frame, *y)));
        }
        if let ([first, .., last], true) = (&points[..], line.filled) {
            let (from, to, bottom) = (self.x(frame, first.0), self.x(frame, last.0), frame.bottom);
            let area = format!("{way}L{to:.1} {bottom:.1}L{from:.1} {bottom:.1}Z");
            put(html, format_args!("<path class=\"area c{colour}\" d=\"{area}\"/>"));
        }
        let label = escaped(&line.label);
        put(html, format_args!("<path class=\"line c{colour}\" d=\"{way}\"><title>{label}</title></path>"));
        // A single point makes no visible line.
        let lone = points.first().filter(|_| points.len() == 1);
        for (x, y) in line.dots.iter().chain(lone) {
            let (x, y) = (self.x(frame, *x), self.y(frame, *y));
            put(html, format_args!("<circle class=\"dot c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"));
        }
    }

    fn x(&self, frame: &Frame, value: f64) -> f64 {
        between(frame.left, frame.right, self.x.place(value))
    }

    fn y(&self, frame: &Frame, value: f64) -> f64 {
        between(frame.bottom, frame.top, self.y.place(value))
    }

    /// Describes the drawing for readers who cannot see it.
    fn summary(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        for (_, line) in self.drawn() {
            let last = line.points.last().map_or(0.0, |(_, y)| *y);
            parts.push(format!("{}: highest {}, last {}", line.label, figure(line.highest()), figure(last)));
        }
        parts.extend(self.limits.iter().map(|(label, _)| label.clone()));
        if !self.kills.is_empty() {
            parts.push(format!("{} kills", self.kills.len()));
        }
        format!("{} by {}. {}.", self.unit, self.x_title, parts.join("; "))
    }
}

fn between(from: f64, to: f64, share: f64) -> f64 {
    from + (to - from) * share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_ends_and_peaks_and_order() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|at| (f64::from(at), f64::from(at % 7))).collect();
        points[54_321].1 = 1e9;
        points[54_322].1 = -1.0;
        let kept = thinned(&points, POINTS_MAX);
        assert!(kept.len() <= POINTS_MAX, "{}", kept.len());
        assert!(kept.contains(&points[54_321]) && kept.contains(&points[54_322]));
        assert_eq!((kept[0], kept[kept.len() - 1]), (points[0], points[99_999]));
        assert!(kept.is_sorted_by(|one, next| one.0 < next.0));
        assert_eq!(thinned(&points[..600], 600), points[..600]);
        for few in 601..610 {
            assert!(thinned(&points[..few], 600).len() <= 600);
        }
    }
}
