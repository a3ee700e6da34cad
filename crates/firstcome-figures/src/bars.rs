//! Draws ways side by side as horizontal bars, in a self-contained SVG.

use crate::STYLE;
use crate::markup::{escaped, put};
use std::path::Path;

/// Widths and heights, in units of the drawing.
const WIDTH: f64 = 900.0;
const NAMES: f64 = 350.0;
/// The least room for a value, and the width of a letter of a longer one.
const VALUES: f64 = 90.0;
const LETTER: f64 = 7.6;
const BAR: f64 = 16.0;
const GAP: f64 = 8.0;
const TITLE: f64 = 50.0;

/// The content of a drawing.
pub struct Drawing<'a> {
    /// The subject of the page.
    pub subject: &'a str,
    /// The title at the top.
    pub title: &'a str,
    /// The text under the title, at most two lines.
    pub head: String,
    /// The groups of bars, from top to bottom.
    pub charts: Vec<Chart<'a>>,
}

/// One group of bars.
pub struct Chart<'a> {
    /// The title above the bars.
    pub title: &'a str,
    /// An explanation of the values.
    pub reading: &'a str,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
}

/// One bar.
pub struct Bar {
    /// The text before the bar.
    pub name: String,
    /// The value, with the text beside the bar.
    pub value: Option<(f64, String)>,
    /// The lowest and the highest value of the rounds, drawn as a line over the end of the bar.
    pub range: Option<(f64, f64)>,
    /// Whether it is one of firstcome's.
    pub ours: bool,
}

/// Whether a file name ends in an extension that [`draw`] knows.
pub fn is_drawing(path: &Path) -> bool {
    matches!(path.extension().and_then(|extension| extension.to_str()), Some("svg" | "html"))
}

/// Renders the drawing, or a page with it.
pub fn draw(path: &Path, drawing: &Drawing<'_>) -> String {
    let svg = svg(drawing);
    if path.extension().is_some_and(|extension| extension == "svg") {
        return svg;
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{} · firstcome</title>\
         <style>body{{margin:24px auto;max-width:900px;padding:0 12px}}svg{{width:100%;height:auto}}\
         @media (prefers-color-scheme:dark){{body{{background:#12161c}}}}</style></head>\n<body>{svg}</body></html>\n",
        escaped(drawing.subject)
    )
}

/// Renders the drawing as SVG.
pub fn svg(drawing: &Drawing<'_>) -> String {
    let chart_height = |chart: &Chart<'_>| TITLE + chart.bars.len() as f64 * (BAR + GAP) + 14.0;
    let head_height = 62.0;
    let height = head_height + drawing.charts.iter().map(chart_height).sum::<f64>();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
         aria-label=\"{} under every strategy\"><style>{STYLE}</style>\
         <text x=\"12\" y=\"26\" class=\"title\">{}</text>",
        escaped(drawing.subject),
        escaped(drawing.title)
    );
    for (at, line) in drawing.head.lines().enumerate() {
        let y = 44.0 + at as f64 * 15.0;
        put(&mut svg, format_args!("<text x=\"12\" y=\"{y:.0}\" class=\"soft\">{}</text>", escaped(line)));
    }
    let mut top = head_height;
    for chart in &drawing.charts {
        draw_chart(chart, top, &mut svg);
        top += chart_height(chart);
    }
    svg.push_str("</svg>");
    svg
}

/// Draws a chart with logarithmic lengths: strategies are powers of ten apart.
fn draw_chart(chart: &Chart<'_>, top: f64, svg: &mut String) {
    let values = || chart.bars.iter().filter_map(|bar| bar.value.as_ref()).map(|(value, _)| *value);
    let ends = chart.bars.iter().filter_map(|bar| bar.range).map(|(_, highest)| highest);
    let most = values().chain(ends).fold(1.0, f64::max);
    let least = values().filter(|value| 0.0 < *value).fold(most, f64::min);
    // Leaves a visible length to the shortest bar. A power of ten has the same length in charts with the same span.
    let low = least.log10().floor() - 0.5;
    let letters = chart.bars.iter().filter_map(|bar| bar.value.as_ref()).map(|(_, written)| written.chars().count());
    let values = letters.max().map_or(VALUES, |letters| VALUES.max(letters as f64 * LETTER));
    let room = WIDTH - NAMES - values - 12.0;
    let span = most.log10() - low;
    let title = escaped(chart.title);
    put(svg, format_args!("<text x=\"12\" y=\"{:.0}\" class=\"title\">{title}</text>", top + 26.0));
    let reading = format!("{} · logarithmic", chart.reading);
    put(svg, format_args!("<text x=\"12\" y=\"{:.0}\" class=\"soft\">{}</text>", top + 42.0, escaped(&reading)));
    let (first, last) = (top + TITLE, top + TITLE + chart.bars.len() as f64 * (BAR + GAP));
    put(svg, format_args!("<path class=\"axis\" d=\"M{NAMES} {first:.0}V{last:.0}\"/>"));
    for (at, bar) in chart.bars.iter().enumerate() {
        let y = first + GAP / 2.0 + at as f64 * (BAR + GAP);
        let text_y = y + BAR - 3.5;
        let name = escaped(&bar.name);
        put(svg, format_args!("<text x=\"{:.0}\" y=\"{text_y:.1}\" text-anchor=\"end\">{name}</text>", NAMES - 10.0));
        let Some((value, written)) = &bar.value else {
            put(svg, format_args!("<text x=\"{:.0}\" y=\"{text_y:.1}\" class=\"none\">–</text>", NAMES + 8.0));
            continue;
        };
        let length_of =
            |value: f64| if value <= 0.0 { 0.0 } else { room * ((value.log10() - low) / span).clamp(0.0, 1.0) };
        let length = length_of(*value);
        let end = bar.range.map_or(length, |(_, highest)| length_of(highest).max(length));
        let class = if bar.ours { "bar ours" } else { "bar" };
        put(
            svg,
            format_args!(
                "<rect class=\"{class}\" x=\"{NAMES}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\"/>\
                 <text x=\"{:.1}\" y=\"{text_y:.1}\" class=\"value\">{}</text>",
                NAMES + end + 8.0,
                escaped(written)
            ),
        );
        if let Some((lowest, highest)) = bar.range {
            let (from, to, middle) = (NAMES + length_of(lowest), NAMES + length_of(highest), y + BAR / 2.0);
            put(svg, format_args!("<path class=\"range\" d=\"M{from:.1} {middle:.1}H{to:.1}\"/>"));
        }
    }
}
