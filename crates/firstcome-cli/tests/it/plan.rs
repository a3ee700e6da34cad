//! `firstcome plan`: figures for people and programs, and what the exit code says of them.

use crate::support::program::{Ended, firstcome};
use serde_json::{Value, json};

fn plan(arguments: &[&str]) -> Ended {
    let directory = tempfile::tempdir().expect("a directory");
    let ended = firstcome(directory.path(), &[&["plan"], arguments].concat());
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0, "a plan writes nothing");
    ended
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn the_plan_of_the_defaults_is_json_where_there_is_no_terminal() {
    let said = parsed(&plan(&[]).well());
    assert_eq!(said["visit"], json!({"queries": 24.0, "connection_ms": 116.0}));
    assert_eq!(said["binds"], "database_pool");
    assert_eq!(said["rate_per_second"], 103.448_276);
    assert_eq!(said["line_lasts_ms"], 58_000);
    assert_eq!(said["room"], json!({"admit": {"count": 12, "every_ms": 116}, "max_active": 37_242}));
    assert_eq!(said["check"], Value::Null);
    assert!(
        said["curl"].as_str().expect("a line").contains(r#"{"admit":{"count":12,"every_ms":116},"max_active":37242}"#)
    );
    assert_eq!(said, parsed(&plan(&["--json"]).well()));
}

#[test]
fn the_table_shows_formulas_limits_settings_and_assumptions() {
    let said = plan(&["--table"]).well();
    for words in [
        "15.5 reads × 2 ms + 8.5 writes × 10 ms",
        "116 ms",
        "20 connections × 60 %",
        "103.4 people/s",
        "600 people/s",
        "binds: database connection time",
        "58 s",
        "\"every_ms\": 116",
        "curl -X PUT",
        "Wrong when:",
        "37 242 slots",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let said = plan(&["--table", "--mau", "100"]).well();
    assert!(said.contains("binds: demand (12 people/s)") && said.contains("no line"), "{said}");
}

#[test]
fn long_stays_and_large_crowds_get_settings_that_fit() {
    let said = parsed(&plan(&["--stay", "1h", "--mau", "2000000"]).well());
    assert_eq!(said["room"]["active_ttl_ms"], 7_200_000);
    assert_eq!(said["room"]["max_waiting"], 2_400_000);
}

#[test]
fn a_check_that_holds_ends_with_0_and_says_the_same_for_the_same_seed() {
    let first = plan(&["--check", "--seed", "7"]).well();
    assert_eq!(first, plan(&["--check", "--seed", "7"]).well());
    assert_ne!(first, plan(&["--check", "--seed", "8"]).well());
    let said = parsed(&first);
    assert_eq!(said["check"]["holds"], true);
    let used = said["check"]["rows"][0]["utilisation"].as_f64().expect("a number");
    assert!((0.57..=0.63).contains(&used), "{used}");
    let table = plan(&["--check", "--table"]).well();
    assert!(table.contains("The plan holds"), "{table}");
}

#[test]
fn a_check_that_fails_ends_with_1_prints_its_figures_and_the_reason() {
    let ended = plan(&["--check", "--rate", "200"]);
    let said = parsed(&ended.stdout);
    assert_eq!(said["check"]["holds"], false);
    let reason = said["check"]["reason"].as_str().expect("a reason").to_owned();
    assert!(ended.with(1).contains(&reason));
    // Without a check nothing is judged.
    plan(&["--rate", "200"]).well();
}

#[test]
fn inputs_that_make_no_sense_end_with_2_and_name_the_flag() {
    let table = [
        ("--mau", "0", "1 to 1000000000"),
        ("--mau", "-1", "1 to"),
        ("--mau", "1.5", "whole number"),
        ("--mau", "99999999999999999999", "1 to"),
        ("--daily", "0%", "above 0%"),
        ("--daily", "101%", "at most 100%"),
        ("--daily", "-5%", "--daily"),
        ("--daily", "%", "not a number"),
        ("--peak", "0", "above 0"),
        ("--peak", "-2", "above 0"),
        ("--peak", "NaN", "finite"),
        ("--peak", "inf", "finite"),
        ("--peak", "1e999", "finite"),
        ("--reads", "-1", "0 to 10000"),
        ("--writes", "1e9", "0 to 10000"),
        ("--read-ms", "0", "0.001"),
        ("--write-ms", "nan", "finite"),
        ("--write-ms", "ten", "not a number"),
        ("--pool", "0", "connections"),
        ("--pool", "10001", "connections"),
        ("--utilisation", "100%", "without end"),
        ("--utilisation", "150%", "at most 100%"),
        ("--utilisation", "0", "above 0%"),
        ("--stay", "5", "not a duration"),
        ("--stay", "0s", "100ms to 24h"),
        ("--stay", "25h", "100ms to 24h"),
        ("--spike", "soon", "not a duration"),
        ("--max-active", "0", "people"),
        ("--rate", "0", "above 0"),
        ("--rate", "1e-9", "no room can be set"),
        ("--seed", "x", "--seed"),
        ("--stay", "116ms", "too short"),
    ];
    for (flag, value, words) in table {
        let said = plan(&[flag, value]).with(2);
        assert!(said.contains(words), "{flag} {value}: {said}");
    }
    for (arguments, words) in [
        (&["--reads", "0", "--writes", "0"][..], "too few"),
        (&["--rate", "5", "--max-active", "5"], "cannot be used"),
        (&["--check", "--pool", "10000", "--stay", "2m"], "--check would simulate"),
    ] {
        let said = plan(arguments).with(2);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
