//! Made-up drills: a good one, a broken one, an empty one, one with absurd values.

use super::*;
use crate::drill::facts::{AuctionFacts, Kill, Latency, SamplePerson, Series};
use serde_json::Value;

const STEP_S: f64 = 0.25;
const LIMIT_PER_S: f64 = 800.0;
const CAP: f64 = 1_500.0;

/// Deterministic noise: the same on every run.
fn noise(at: usize) -> f64 {
    let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    mixed as f64 / (1u64 << 24) as f64 - 0.5
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

/// An event of 62 s with two kills: a rush, then a queue that is let in at a steady rate.
fn series() -> Series {
    let mut series = empty().series;
    (series.step_s, series.admission_limit_per_s, series.active_cap) = (STEP_S, Some(LIMIT_PER_S), Some(CAP));
    let (mut waiting, mut active, mut issued) = (0.0f64, 0.0f64, 0.0f64);
    for at in 0..248 {
        let at_s = at as f64 * STEP_S;
        let down = (18.0..19.2).contains(&at_s) || (40.0..40.9).contains(&at_s);
        let arrivals = 3_800.0 * (-(at_s - 4.0f64).powi(2) / 30.0).exp() + 120.0 * (1.0 - at_s / 62.0);
        let arrivals = (arrivals * (1.0 + 0.2 * noise(at))).max(0.0);
        let room = LIMIT_PER_S.min((waiting + arrivals * STEP_S) / STEP_S);
        let admitted = if down { 0.0 } else { room * (1.0 + 0.03 * noise(at + 999)) };
        waiting = (waiting + (arrivals - admitted) * STEP_S).max(0.0);
        active = (active + admitted * STEP_S - active * 0.14).clamp(0.0, CAP);
        issued = (issued + admitted * STEP_S * 0.9).min(30_000.0);
        series.arrivals_per_s.push(arrivals);
        series.admissions_per_s.push(admitted);
        series.waiting.push(waiting.round());
        series.active.push(active.round());
        series.issued.push(issued.round());
        let requests = if down { 0.0 } else { arrivals * 1.2 + waiting * 0.12 + admitted * 2.0 + 90.0 * noise(at + 7) };
        series.requests_per_s.push(requests.max(0.0));
    }
    series
}

fn latency(call: &str, count: u64, middle_ms: f64) -> Latency {
    let factors = [(0.5, 1.0), (0.75, 1.6), (0.9, 2.7), (0.95, 4.0), (0.99, 9.0), (0.999, 80.0), (0.9999, 700.0)];
    let quantiles = factors.into_iter().chain([(1.0, 900.0)]);
    Latency {
        call: call.into(),
        count,
        quantiles_ms: quantiles.map(|(quantile, by)| (quantile, middle_ms * by)).collect(),
    }
}

fn person(number: u32, arrives_s: f64, ahead: u32, outcome: &str) -> SamplePerson {
    let admitted_at_s = arrives_s + f64::from(ahead) / LIMIT_PER_S;
    let polls = (0..).map(|at| arrives_s + f64::from(at) * 1.5).take_while(|at_s| *at_s < admitted_at_s);
    let left = |at_s: f64| ((admitted_at_s - at_s) * LIMIT_PER_S) as u32;
    SamplePerson {
        label: format!("no. {}", crate::output::grouped(u64::from(number))),
        positions: polls.map(|at_s| (at_s, left(at_s))).chain([(admitted_at_s, 0)]).collect(),
        admitted_at_s: Some(admitted_at_s),
        outcome: outcome.into(),
    }
}

fn good() -> Facts {
    let check = |invariant, says, checked| AuditCheck { invariant, says, checked, breaches: 0, examples: Vec::new() };
    Facts {
        event: "concert",
        started_at: "2026-03-01T10:00:00Z".into(),
        seconds: 62.0,
        people: 34_512,
        stock: 30_000,
        issued: 30_000,
        conditions: owned(&[
            ("seed", "7"),
            ("admit", "800 per 1 s"),
            ("inside at most", "1 500"),
            ("kills", "2"),
            ("store", "embedded, on disk"),
            ("processors", "2"),
            ("processor", "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"),
            ("memory", "7.8 GB"),
            ("sync of the disk, p50", "0.9 ms"),
            ("version", "0.1.0"),
        ]),
        figures: owned(&[
            ("admission rate, measured", "798.6/s"),
            ("server memory, highest", "212 MB"),
            ("requests", "612 044"),
            ("lateness of the load, p99", "3.1 ms"),
        ]),
        outcomes: vec![
            ("got one".into(), 30_000),
            ("sold out".into(), 3_914),
            ("gave up in line".into(), 590),
            ("never heard back".into(), 8),
        ],
        checks: vec![
            check("stock_never_oversold", "No more are issued than there are", 30_000),
            check("one_each", "Nobody gets two", 33_914),
            check("position_never_rises", "A position never rises while the server lives", 489_120),
            check("rate_limit_kept", "No window admits more than the rate allows", 33_914),
            check("cap_kept", "Never more people inside than the cap", 33_914),
            check("acknowledged_survives", "What was acknowledged is there after a kill", 21_377),
            check("left_is_final", "Who left is never admitted", 0),
        ],
        kills: vec![
            Kill { target: "server", loses: false, at_s: 18.0, in_flight: 214, down_ms: 1_180 },
            Kill { target: "server", loses: false, at_s: 40.1, in_flight: 96, down_ms: 840 },
        ],
        latencies: vec![
            latency("join", 34_900, 1.1),
            latency("poll", 489_120, 0.6),
            latency("claim", 33_950, 2.4),
            latency("release", 31_204, 0.9),
        ],
        series: series(),
        sample_people: vec![
            person(1, 0.2, 0, "got one"),
            person(4_000, 2.1, 2_700, "got one"),
            person(12_000, 4.0, 9_600, "got one"),
            person(20_000, 6.2, 16_000, "got one"),
            person(33_800, 16.0, 22_900, "sold out"),
        ],
        auctions: None,
    }
}

fn broken_run() -> Facts {
    let mut facts = good();
    (facts.event, facts.issued) = ("coupon", 30_002);
    facts.checks[2].breaches = 3;
    facts.checks[2].examples = vec!["<script>alert('no. 7')</script> rose from 12 to 15 at 20.1 s".into()];
    facts.checks[0].breaches = 2;
    facts.checks[0].examples = vec!["serial 30001 of 30000 to user u31877".into(), "serial 30002 of 30000".into()];
    facts.conditions.push(("</dd><script>".into(), "\"quoted\" & 'more'".into()));
    facts.sample_people[1].label = "<script>".into();
    facts.latencies[0].call = "<script>join".into();
    facts.kills.push(Kill { target: "<script>", loses: false, at_s: 40.6, in_flight: 1, down_ms: 2 });
    facts.outcomes.push(("<script>".into(), 1));
    facts
}

fn empty() -> Facts {
    Facts {
        event: "coupon",
        started_at: String::new(),
        seconds: 0.0,
        people: 0,
        stock: 0,
        issued: 0,
        conditions: Vec::new(),
        figures: Vec::new(),
        outcomes: Vec::new(),
        checks: Vec::new(),
        kills: Vec::new(),
        latencies: Vec::new(),
        series: Series {
            step_s: 0.0,
            arrivals_per_s: Vec::new(),
            admissions_per_s: Vec::new(),
            admission_limit_per_s: None,
            waiting: Vec::new(),
            active: Vec::new(),
            active_cap: None,
            issued: Vec::new(),
            requests_per_s: Vec::new(),
        },
        sample_people: Vec::new(),
        auctions: None,
    }
}

/// Returns facts with absurd values: none of them may break the page.
fn monstrous() -> Facts {
    let mut facts = good();
    (facts.people, facts.stock, facts.issued, facts.seconds) = (u64::MAX, u64::MAX, u64::MAX, f64::MAX);
    facts.outcomes = vec![("all".into(), u64::MAX), ("all again".into(), u64::MAX), ("one".into(), 1)];
    facts.checks[0].checked = u64::MAX;
    facts.kills = vec![Kill { target: "sql", loses: false, at_s: f64::NAN, in_flight: u64::MAX, down_ms: u64::MAX }];
    let redis = |at| Kill { target: "redis", loses: true, at_s: f64::from(at) * 1e6, in_flight: 0, down_ms: 1 };
    facts.kills.extend((0..40).map(redis));
    facts.series.step_s = 1e300;
    facts.series.arrivals_per_s = vec![f64::NAN, f64::INFINITY, -1.0, f64::MAX, 0.0];
    facts.series.waiting = vec![1e9; 100_000];
    facts.series.active_cap = Some(f64::INFINITY);
    facts.series.admission_limit_per_s = Some(f64::NAN);
    facts.latencies = vec![latency("none", 0, 0.0), latency("odd", u64::MAX, f64::NAN), latency("long", 1, 1e300)];
    facts.latencies.extend((0..20).map(|at| latency(&format!("call {at}"), 1, 1.0)));
    facts.latencies[0].quantiles_ms.push((f64::NAN, 1.0));
    facts.sample_people.extend((0..50).map(|at| person(at, f64::from(at), 10, "got one")));
    facts.sample_people[0].positions = vec![(f64::NAN, u32::MAX), (f64::INFINITY, 0), (1.0, u32::MAX)];
    facts.sample_people[0].admitted_at_s = Some(f64::NEG_INFINITY);
    facts
}

/// An auction event, with some values that are not finite.
fn auction() -> Facts {
    let mut facts = good();
    (facts.event, facts.stock, facts.issued) = ("auction", 100, 71);
    facts.auctions = Some(AuctionFacts {
        bids: 12_345,
        sales: 71,
        accepted_per_s: (0..248).map(|at| 200.0 + 80.0 * noise(at)).collect(),
        refused_per_s: vec![f64::NAN, 100.0, f64::INFINITY],
        sold: (0..248).map(|at| f64::from(at).min(71.0)).collect(),
        held: vec![f64::MAX, -1.0, 5.0],
        hot_prices: vec![(9.0, 10.0), (12.5, f64::NAN), (20.0, 4_000.0), (46.0, 90_000.0)],
        hot_ends_s: Some(47.5),
    });
    facts
}

/// Every run, with its name.
fn runs() -> [(&'static str, Facts); 5] {
    let auction = ("auction", auction());
    [("good", good()), ("broken", broken_run()), ("empty", empty()), ("monstrous", monstrous()), auction]
}

/// Checks that every opened tag is closed, in order.
#[track_caller]
fn assert_balanced(name: &str, page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        assert!(open.last() == Some(&"style") || !text.contains('>'), "{name}: a stray > in {text:?}");
        let end = start + rest[start..].find('>').expect("every < has its >");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        let word = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        match tag {
            _ if tag.starts_with('!') || tag.ends_with('/') || ["meta", "br"].contains(&word) => {}
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(word), "{name}: before {:.80}", rest),
            _ => open.push(word),
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{name}: {tag}");
    }
    assert!(open.is_empty(), "{name}: never closed: {open:?}");
}

#[test]
fn the_page_is_well_formed_self_contained_and_free_of_what_is_no_number() {
    for (name, facts) in runs() {
        let page = html::page(&facts).expect("renders");
        assert_balanced(name, &page);
        for reference in ["http://", "https://", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(reference), "{name}: {reference}");
        }
        let odd = |word: &&str| ["nan", "inf", "infinity", "null"].contains(&word.to_ascii_lowercase().as_str());
        let found = page.split(|letter: char| !letter.is_ascii_alphabetic()).find(odd);
        assert_eq!(found, None, "{name}");
        assert!(page.len() < 600_000, "{name}: {} bytes", page.len());
    }
}

#[test]
fn text_from_outside_never_becomes_markup() {
    let page = html::page(&broken_run()).expect("renders");
    assert!(!page.contains("<script"));
    assert!(6 <= page.matches("&lt;script&gt;").count() + page.matches("&#60;script&#62;").count());
}

#[test]
fn the_head_says_what_broke_before_anything_else() {
    let page = html::page(&broken_run()).expect("renders");
    let head = page.find("2 promises broken</h1>").expect("verdict");
    let first = page.find("serial 30001 of 30000").expect("example");
    assert!(head < first && first < page.find("<figure").expect("plots"));
    assert!(html::page(&good()).expect("renders").contains("Every promise held</h1>"));
    let page = html::page(&empty()).expect("renders");
    assert!(page.contains("Nothing was checked</h1>") && !page.contains("promise held"));
}

#[test]
fn a_plot_without_points_says_so() {
    let page = html::page(&empty()).expect("renders");
    assert_eq!(page.matches("<figure").count(), 7);
    assert_eq!(page.matches("<p class=\"none\">no data</p></figcaption>").count(), 0);
    assert_eq!(page.matches("no data</p><p class=\"reading\">").count(), 7);
    assert!(!page.contains("class=\"plot"));
}

#[test]
fn a_sentence_names_a_limit_only_where_there_is_one() {
    let sentences = ["lie on the limit", "crosses the dashed line"];
    let page = html::page(&good()).expect("renders");
    assert!(sentences.iter().all(|sentence| page.contains(sentence)) && page.contains("limit 800/s"));
    let page = html::page(&monstrous()).expect("renders");
    assert!(!sentences.iter().any(|sentence| page.contains(sentence)));
}

#[test]
fn every_plot_over_time_shows_every_kill() {
    let page = html::page(&good()).expect("renders");
    // Six plots, each wide and narrow, two kills.
    assert_eq!(page.matches("class=\"down ").count(), 6 * 2 * 2);
    assert_eq!(page.matches("server killed (number as in the table)").count(), 6);
    let page = html::page(&empty()).expect("renders");
    assert!(page.contains("nothing was killed"));
}

#[test]
fn what_was_killed_shows_by_its_look_and_in_words() {
    let mut facts = good();
    facts.kills.push(Kill { target: "redis", loses: true, at_s: 30.0, in_flight: 9, down_ms: 400 });
    facts.kills.push(Kill { target: "redis", loses: false, at_s: 31.0, in_flight: 8, down_ms: 400 });
    facts.kills.push(Kill { target: "sql", loses: false, at_s: 50.0, in_flight: 7, down_ms: 2_400 });
    let page = html::page(&facts).expect("renders");
    // In six plots, each wide and narrow; and one sample of each in the legend of each plot.
    for (target, kills) in [("server", 2), ("redis", 2), ("sql", 1)] {
        assert_eq!(page.matches(&format!("class=\"kill {target}\"")).count(), 6 * (2 * kills + 1), "{target}");
        assert_eq!(page.matches(&format!("class=\"down {target}\"")).count(), 6 * 2 * kills, "{target}");
    }
    assert_eq!(page.matches("redis killed, with its data, 9 requests in flight").count(), 6 * 2);
    assert_eq!(page.matches("<td>redis, with its data</td>").count(), 1);
    assert_eq!(table::text(&facts).matches("redis, with its data").count(), 1);
    let report = json::report(&facts);
    let lost: Vec<_> = (0..5).map(|kill| report["kills"][kill]["data_lost"].as_bool()).collect();
    assert_eq!(lost, [false, false, true, false, false].map(Some));
}

#[test]
fn auctions_have_plots_and_fields_of_their_own() {
    let facts = auction();
    let page = html::page(&facts).expect("renders");
    for id in ["load", "bids", "price", "held", "sold", "latencies"] {
        assert!(page.contains(&format!("<figure id=\"{id}\"")), "{id}");
    }
    assert!(!page.contains("id=\"waiting\"") && page.contains("What became of orders"));
    // Five plots, each wide and narrow, two kills.
    assert_eq!(page.matches("class=\"down ").count(), 5 * 2 * 2);
    let report = json::report(&facts);
    assert_eq!(
        (report["bids"].as_u64(), report["sales"].as_u64(), report["issued"].as_u64()),
        (Some(12_345), Some(71), Some(71))
    );
    assert!(json::report(&good()).get("bids").is_none());
    let text = table::text(&facts);
    assert!(text.starts_with("auction drill: 34 512 people, 100 listings, 12 345 bids, 71 sold"), "{text}");
}

#[test]
fn programs_find_the_stable_fields() {
    for (name, facts) in runs() {
        let report = json::report(&facts);
        let fields = [
            ("event", Value::is_string as fn(&Value) -> bool),
            ("started_at", Value::is_string),
            ("people", Value::is_u64),
            ("stock", Value::is_u64),
            ("issued", Value::is_u64),
            ("seconds", Value::is_number),
            ("violations", Value::is_array),
            ("kills", Value::is_array),
            ("checks", Value::is_array),
            ("figures", Value::is_array),
            ("outcomes", Value::is_array),
            ("latencies", Value::is_array),
            ("conditions", Value::is_array),
            ("series", Value::is_object),
        ];
        for (field, is) in fields {
            assert!(is(&report[field]), "{name}: {field} is {}", report[field]);
        }
    }
    let report = json::report(&broken_run());
    let violations = report["violations"].as_array().expect("a list");
    assert_eq!(violations.len(), 2);
    assert_eq!(violations[0]["invariant"], "stock_never_oversold");
    assert_eq!(
        (&violations[0]["breaches"], &violations[0]["examples"][1]),
        (&2.into(), &"serial 30002 of 30000".into())
    );
    assert!(violations[0]["says"].is_string());
    let kill = &report["kills"][0];
    let expected =
        serde_json::json!({"target": "server", "data_lost": false, "at_s": 18.0, "in_flight": 214, "down_ms": 1_180});
    assert_eq!(*kill, expected);
}

#[test]
fn the_table_ends_with_the_verdict() {
    for (facts, last) in
        [(good(), "every promise held\n"), (broken_run(), "2 promises broken!\n"), (empty(), "nothing was checked!\n")]
    {
        let text = table::text(&facts);
        assert!(text.ends_with(last), "{text}");
    }
    let text = table::text(&broken_run());
    assert!(
        text.contains("broken: stock_never_oversold: No more are issued") && text.contains("  serial 30002 of 30000")
    );
    assert!(text.contains("30 000") && text.contains("p99.9"));
    table::text(&monstrous());
}

/// The variable that names a directory for copies of these pages, for a look at them.
const SAMPLE: &str = "FIRSTCOME_REPORT_SAMPLE";

#[test]
fn a_report_is_written_into_a_directory_that_is_made() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, facts) in runs() {
        let into = directory.path().join("reports").join(name);
        // Twice: a later run overwrites.
        for _ in 0..2 {
            write(&facts, &into).expect("written");
        }
        let json = fs::read(into.join("report.json")).expect("json");
        let report: Value = serde_json::from_slice(&json).expect("parses");
        assert_eq!(report["people"], facts.people);
        assert!(fs::read_to_string(into.join("report.html")).expect("page").starts_with("<!doctype html>"));
        if let Some(copies) = std::env::var_os(SAMPLE) {
            let copy = Path::new(&copies).join(name);
            write(&facts, &copy).expect("copied");
            fs::write(copy.join("table.txt"), table::text(&facts)).expect("copied");
        }
    }
}
