//! The reports that documents are made from: their form is a fact, their figures are for people.

use crate::support::{PROGRAM, bench, command, is_installed, run, run_for};
use firstcome_test_servers::machine_has;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

fn on_disk(directory: &Path) -> bool {
    let kind = run(command("stat", directory).args(["-f", "-c", "%T", "."])).well();
    machine_has("a build directory on a disk", kind.trim() != "tmpfs")
        && machine_has("Redis", is_installed("redis-server"))
}

fn spread(value: &Value) -> [f64; 3] {
    ["min", "median", "max"].map(|part| value[part].as_f64().unwrap_or_else(|| panic!("no {part}: {value}")))
}

/// The machine, the commit and the day stand in every report.
fn check_about(report: &Value) {
    let about = &report["about"];
    assert!(0 < about["machine"]["fsync_p50_us"].as_u64().expect("a sync"), "{about}");
    assert!(about["date"].is_string() && about["commit"].is_string() && about["versions"].is_object(), "{about}");
}

#[test]
fn the_field_without_peers_has_our_rows_and_names_all_others_with_the_reason() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    if !on_disk(directory.path()) {
        return;
    }
    let little =
        ["--rounds", "1", "--time", "100ms", "--callers", "16", "--people", "1000", "--processes", "2", "--tasks", "4"];
    let alone = ["field", "--no-peers", "--no-databases", "--out", "field.json", "--json"];
    let mut field = command(PROGRAM, directory.path());
    let said = run_for(field.args(alone).args(little), Duration::from_secs(120)).well();
    let report: Value = serde_json::from_str(&said).expect("a report");
    let written = std::fs::read_to_string(directory.path().join("field.json")).expect("a file");
    assert_eq!(serde_json::from_str::<Value>(&written).expect("a report"), report, "the file is what it prints");
    check_about(&report);
    let tables = report["tables"].as_array().expect("tables");
    let ways = |name: &str, list: &str| {
        let table = tables.iter().find(|table| table["name"] == name).unwrap_or_else(|| panic!("no {name}: {report}"));
        table[list].as_array().expect("a list").clone()
    };
    for (table, measured, left_out) in [
        ("locks-hot", 4, 17),
        ("locks-alone", 4, 17),
        ("coupons", 3, 5),
        ("rooms-polls", 2, 1),
        ("rooms-joins", 2, 1),
        ("auctions", 1, 10),
    ] {
        let (rows, left) = (ways(table, "rows"), ways(table, "not_measured"));
        assert_eq!((rows.len(), left.len()), (measured, left_out), "{table}: {rows:?} {left:?}");
        for row in &rows {
            let [min, median, max] = spread(&row["per_second"]);
            assert!(0.0 < min && min <= median && median <= max, "{row}");
            assert!(row["ours"] == false || row["exact"] != false, "{row}");
        }
        assert!(left.iter().all(|way| !way["reason"].as_str().expect("a reason").is_empty()), "{left:?}");
    }
}

#[test]
fn curves_have_a_point_for_each_size() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    if !on_disk(directory.path()) {
        return;
    }
    let little = ["--rounds", "1", "--time", "50ms", "--largest", "1000", "--connections", "16"];
    let only = ["--only", "waiters,connections,payload,users,stock,held,streams,nodes"];
    let said = bench(directory.path(), &[&["curves", "--json"], &little[..], &only].concat()).well();
    let report: Value = serde_json::from_str(&said).expect("a report");
    check_about(&report);
    let curves = report["curves"].as_array().expect("curves");
    assert_eq!(curves.len(), 8, "{report}");
    let sizes = [
        ("waiters", 4),
        ("connections", 1),
        ("payload", 4),
        ("users", 1),
        ("stock", 2),
        ("held", 1),
        ("streams", 1),
        ("nodes", 4),
    ];
    for (name, points) in sizes {
        let curve = curves.iter().find(|curve| curve["name"] == name).unwrap_or_else(|| panic!("no {name}: {report}"));
        for line in curve["series"].as_array().expect("lines") {
            let measured = line["points"].as_array().expect("points");
            assert_eq!(measured.len(), points, "{name}: {line}");
            assert!(measured.iter().all(|point| 0.0 < spread(&point["value"])[0]), "{name}: {line}");
        }
    }
}

#[test]
fn a_build_beside_itself_has_ratios_a_size_and_a_start() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    if !on_disk(directory.path()) {
        return;
    }
    let little = ["--json", "--rounds", "1", "--time", "50ms", "--connections", "4"];
    let said = bench(directory.path(), &[&["beside", PROGRAM], &little[..]].concat()).well();
    let report: Value = serde_json::from_str(&said).expect("a report");
    check_about(&report);
    for kind in ["durable claims", "sold out", "polls of a ticket", "healthz"] {
        assert!(0.0 < spread(&report["requests"][kind]["others_to_ours"])[0], "{kind}: {report}");
    }
    for build in report["builds"].as_array().expect("builds") {
        assert!(0 < build["binary_bytes"].as_u64().expect("a size") && 0.0 < spread(&build["start_ms"])[0], "{build}");
    }
}
