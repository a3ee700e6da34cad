//! Selects the plots of the page, and explains each.

use super::plot::{LINES_MAX, Plot, PlotLine, marks};
use super::scale::{Scale, duration, grouped_tight, sane, whole};
use crate::drill::facts::{AuctionFacts, Facts, SamplePerson};

const TIME: &str = "time since the start";

/// Returns the end of all time axes: they are equal, so that a moment is at the same place in each plot.
fn end_s(facts: &Facts) -> f64 {
    let series = &facts.series;
    let all = [&series.arrivals_per_s, &series.admissions_per_s, &series.waiting, &series.active, &series.issued];
    let longest = all.into_iter().chain([&series.requests_per_s]).map(Vec::len).max().unwrap_or_default();
    let sampled = sane(series.step_s).unwrap_or_default() * longest.saturating_sub(1) as f64;
    sane(facts.seconds).unwrap_or_default().max(sampled)
}

/// Draws a series as a line over time.
fn line(facts: &Facts, label: &str, values: &[f64]) -> PlotLine {
    let step_s = facts.series.step_s;
    PlotLine::new(label, values.iter().enumerate().map(|(at, value)| (at as f64 * step_s, *value)).collect())
}

fn over_time(facts: &Facts, id: &'static str, title: &'static str, unit: &'static str) -> Plot {
    Plot {
        id,
        title,
        unit,
        reading: String::new(),
        x_title: TIME,
        x: Scale::time(end_s(facts)),
        y: Scale::linear(0.0),
        lines: Vec::new(),
        limits: Vec::new(),
        kills: marks(&facts.kills),
    }
}

impl Plot {
    fn with(mut self, lines: Vec<PlotLine>, limit: Option<(String, f64)>, reading: impl Into<String>) -> Self {
        self.lines = lines;
        self.limits = limit.into_iter().filter_map(|(label, value)| Some((label, sane(value)?))).collect();
        let highest = self.lines.iter().map(PlotLine::highest);
        let highest = highest.chain(self.limits.iter().map(|(_, value)| *value)).fold(0.0, f64::max);
        self.y = Scale::linear(highest);
        self.reading = reading.into();
        self
    }
}

/// Returns the plots over time, from top to bottom.
pub(super) fn over_the_event(facts: &Facts) -> Vec<Plot> {
    if let Some(auctions) = &facts.auctions {
        return of_auctions(facts, auctions);
    }
    let series = &facts.series;
    let rate = series.admission_limit_per_s.and_then(sane).map(|rate| (format!("limit {}/s", whole(rate)), rate));
    let cap = series.active_cap.and_then(sane).map(|cap| (format!("at most {}", whole(cap)), cap));
    let load = over_time(facts, "load", "Arrivals and requests", "per second").with(
        vec![line(facts, "people arriving", &series.arrivals_per_s), line(facts, "requests", &series.requests_per_s)],
        None,
        "People come when they come, however slow the answers are; each sends several requests.",
    );
    let admitting = if rate.is_some() {
        "The line should lie on the limit while people wait; one slice (a quarter of a second's worth) may come on top."
    } else {
        "Whom the room let in; this room had no limit of the rate."
    };
    let inside = if cap.is_some() {
        "Who was admitted and is not done; this never crosses the dashed line."
    } else {
        "Who was admitted and is not done; this room had no cap."
    };
    let admissions = over_time(facts, "admissions", "Admissions", "people per second").with(
        vec![line(facts, "admitted", &series.admissions_per_s)],
        rate,
        admitting,
    );
    let waiting = over_time(facts, "waiting", "People in line", "people").with(
        vec![line(facts, "waiting", &series.waiting).filled()],
        None,
        "It rises while more people arrive than are let in, and a kill must not make it fall to nothing.",
    );
    let active = over_time(facts, "active", "People inside", "people").with(
        vec![line(facts, "inside", &series.active).filled()],
        cap,
        inside,
    );
    let issued = over_time(facts, "issued", "Handed out", "issued so far").with(
        vec![line(facts, "issued", &series.issued).filled()],
        Some((format!("stock {}", grouped_tight(facts.stock)), facts.stock as f64)),
        "It only ever rises, and stops at the stock.",
    );
    vec![load, admissions, waiting, active, positions(facts), issued]
}

/// Returns the plots over time of an auction event.
fn of_auctions(facts: &Facts, auctions: &AuctionFacts) -> Vec<Plot> {
    let load = over_time(facts, "load", "Requests", "per second").with(
        vec![line(facts, "answered", &facts.series.requests_per_s)],
        None,
        "Orders are sent when they are due, however slow the answers are; charges come first.",
    );
    let bids = over_time(facts, "bids", "Bids", "per second").with(
        vec![line(facts, "accepted", &auctions.accepted_per_s), line(facts, "refused", &auctions.refused_per_s)],
        None,
        "Most come while the hot auction runs; each end of an auction draws snipers, many of whom are refused.",
    );
    let sold = over_time(facts, "sold", "Sold", "sold so far").with(
        vec![line(facts, "sold", &auctions.sold).filled()],
        Some((format!("listings {}", grouped_tight(facts.stock)), facts.stock as f64)),
        "It only ever rises; some auctions run on, and some winners never settle.",
    );
    let held = over_time(facts, "held", "Points held for bids", "points").with(
        vec![line(facts, "held", &auctions.held).filled()],
        None,
        "It rises with every bid by what the bid is higher, and falls when an auction is settled or its winner is late.",
    );
    vec![load, bids, hot_price(facts, auctions), held, sold]
}

fn hot_price(facts: &Facts, auctions: &AuctionFacts) -> Plot {
    // A price holds until the next bid.
    let mut points: Vec<(f64, f64)> = Vec::with_capacity(auctions.hot_prices.len() * 2);
    for &(at_s, price) in &auctions.hot_prices {
        points.extend(points.last().map(|&(_, before)| (at_s, before)));
        points.push((at_s, price));
    }
    let mut highest = PlotLine::new("highest bid", points);
    let last = highest.points.last().copied();
    if let (Some(ends_s), Some((_, price))) = (auctions.hot_ends_s.and_then(sane), last) {
        highest.points.push((ends_s, price));
        highest.dots.push((ends_s, price));
    }
    let reading = "It only ever rises, and stands still while the server is down; the dot is the end of the auction, as late bids have put it off.";
    over_time(facts, "price", "The price of the hot auction", "points").with(vec![highest], None, reading)
}

fn positions(facts: &Facts) -> Plot {
    let lines: Vec<PlotLine> = chosen(&facts.sample_people).into_iter().map(way_through).collect();
    let shown = match facts.sample_people.len() {
        all if lines.len() < all => format!(" {} of the {all} who were followed are shown.", lines.len()),
        _ => String::new(),
    };
    let reading = format!(
        "How many stood ahead of one person; a line may rise only where that was lost with a kill, and its dot is \
        the admission.{shown}"
    );
    over_time(facts, "positions", "The way through the line", "people ahead").with(lines, None, reading)
}

/// Chooses as many people as there are colours, evenly spread.
fn chosen(people: &[SamplePerson]) -> Vec<&SamplePerson> {
    let count = people.len().min(LINES_MAX);
    (0..count).map(|at| &people[at * (people.len() - 1) / count.saturating_sub(1).max(1)]).collect()
}

fn way_through(person: &SamplePerson) -> PlotLine {
    let mut label = format!("{}: {}", person.label, person.outcome);
    let admitted_at_s = person.admitted_at_s.and_then(sane);
    if let Some(at_s) = admitted_at_s {
        label.push_str(&format!(", admitted after {}", duration(at_s)));
    }
    let mut line =
        PlotLine::new(label, person.positions.iter().map(|(at_s, ahead)| (*at_s, f64::from(*ahead))).collect());
    line.dots.extend(admitted_at_s.map(|at_s| (at_s, 0.0)));
    line
}

/// Returns the plot of latencies, with the rare slow calls spread out.
pub(super) fn latencies(facts: &Facts) -> Plot {
    let calls = facts.latencies.iter().map(|latency| PlotLine::new(&*latency.call, latency.quantiles_ms.clone()));
    // A call without answers must not use up a colour.
    let lines: Vec<PlotLine> = calls.filter(|line| !line.points.is_empty()).collect();
    let points = || lines.iter().flat_map(|line| line.points.iter());
    let (x, y) = (Scale::tail(points().map(|(x, _)| *x)), Scale::logarithmic(points().map(|(_, y)| *y)));
    let unshown = lines.len().saturating_sub(LINES_MAX);
    let mut reading = "At 99 % stands the time within which 99 of 100 answers came, counted from the moment at \
        which the request was due; each further mark is ten times rarer."
        .to_owned();
    if 0 < unshown {
        reading.push_str(&format!(" {unshown} more calls are in the table only."));
    }
    Plot {
        id: "latencies",
        title: "Latency",
        reading,
        unit: "milliseconds",
        x_title: "share of answers that came sooner",
        x,
        y,
        lines,
        limits: Vec::new(),
        kills: Vec::new(),
    }
}
