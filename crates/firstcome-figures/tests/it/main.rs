//! What the gate finds in a repository whose figures and reports differ.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn spread(median: f64) -> Value {
    json!({ "min": median, "median": median, "max": median })
}

fn field(rate: f64) -> Value {
    let row = json!({ "name": "firstcome", "ours": true, "per_second": spread(rate), "limit": "one sync",
        "share_of_limit": spread(0.5), "p99_us": spread(900.0), "exact": true, "durable": true });
    let machine = json!({ "cpus": 2, "cpu_model": "x", "file_system": "ext4", "fsync_p50_us": 100, "fsync_p99_us": 200,
        "binary_bytes": 9_000_000, "debug_build": false });
    json!({ "rounds": 3, "seconds": 1.0,
        "about": { "date": "2026-11-25", "commit": "abc1234", "versions": { "Redis": "7.0.15" }, "machine": machine },
        "tables": [{ "name": "coupons", "title": "One coupon", "unit": "claims per second", "rows": [row],
            "not_measured": [] }] })
}

fn curves(rate: f64) -> Value {
    let point = |x: f64, rate: f64| json!({ "x": x, "value": spread(rate) });
    let line = json!({ "name": "memory", "points": [point(1.0, rate), point(1_000.0, 2_000.0)] });
    let mut report = field(1.0);
    report["curves"] = json!([{ "name": "users", "title": "Users", "reading": "claims per second",
        "across_is": "users", "series": [line] }]);
    report
}

fn trend(ratio: f64) -> Value {
    let point = |commit: &str, ratio: f64| {
        json!({ "commit": commit, "date": "2026-11-25", "ratios": { "durable claims": spread(ratio) },
            "binary_bytes": 9_000_000, "start_ms": spread(5.0), "instructions": { "http-claim": 50_000 } })
    };
    let mut report = field(1.0);
    report["points"] = json!([point("aaaaaaa", ratio), point("bbbbbbb", 1.0)]);
    report
}

const PAGE: &str = "# Benchmarks\n\nProse.\n\n<!-- figures:field/coupons -->\n<!-- end -->\n\n\
    <!-- figures:curves/users -->\n<!-- end -->\n\n<!-- figures:perf/trend -->\n<!-- end -->\n";

fn put(root: &Path, report: &str, value: &Value) {
    fs::write(root.join("docs/full").join(report), value.to_string()).expect("it is written");
}

/// A repository whose figures are right.
fn repository() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(root.path().join("docs/full")).expect("it is made");
    put(root.path(), "field.json", &field(50_000.0));
    put(root.path(), "curves.json", &curves(1_000.0));
    put(root.path(), "perf.json", &trend(1.2));
    fs::write(root.path().join("docs/benchmarks.md"), PAGE).expect("it is written");
    let changed = firstcome_figures::write(root.path()).expect("it writes");
    assert_eq!(changed.len(), 4, "the page and three plots: {changed:?}");
    root
}

#[track_caller]
fn check(root: &Path, wanted: &[&str]) {
    let findings = firstcome_figures::check(root);
    assert_eq!(findings.len(), wanted.len(), "{findings:?}");
    for (finding, wanted) in findings.iter().zip(wanted) {
        assert!(finding.contains(wanted), "{wanted}: {findings:?}");
    }
}

#[test]
fn what_the_program_wrote_is_right() {
    let root = repository();
    check(root.path(), &[]);
    assert_eq!(firstcome_figures::write(root.path()), Ok(Vec::new()), "nothing is left to write");
}

#[test]
fn another_number_in_a_report_is_found_in_the_page_and_in_the_plot() {
    for (report, value, plot) in [
        ("field.json", field(50_001.0), "docs/plots/coupons.svg"),
        ("curves.json", curves(1_500.0), "docs/plots/curves.svg"),
        ("perf.json", trend(1.3), "docs/plots/trend.svg"),
    ] {
        let root = repository();
        put(root.path(), report, &value);
        check(root.path(), &["docs/benchmarks.md: differs", plot]);
    }
}

#[test]
fn a_number_typed_into_a_block_or_into_the_prose_is_found() {
    for (from, to, finding) in [("50 000", "60 000", "differs"), ("Prose.", "At least 50 000.", "typed by hand")] {
        let root = repository();
        let path = root.path().join("docs/benchmarks.md");
        let page = fs::read_to_string(&path).expect("a page");
        assert!(page.contains(from), "{page}");
        fs::write(&path, page.replacen(from, to, 1)).expect("it is written");
        check(root.path(), &[finding]);
    }
}

#[test]
fn a_missing_report_and_a_missing_plot_are_found() {
    let root = repository();
    fs::remove_file(root.path().join("docs/plots/trend.svg")).expect("it was there");
    check(root.path(), &["docs/plots/trend.svg"]);
    fs::remove_file(root.path().join("docs/full/perf.json")).expect("it was there");
    check(root.path(), &["there is no such report"]);
}
