//! Variables of the environment: unknown ones, wrong values, and what `config print` tells of them. And the problems of several
//! settings at once.

use super::printed;
use crate::support::program::{Ended, PROGRAM, command, firstcome, run};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn with(here: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Ended {
    let mut told = command(PROGRAM, here);
    run(told.envs(variables.iter().copied()).args(arguments))
}

#[test]
fn a_misspelt_variable_stops_a_service_and_is_told_with_the_one_that_was_meant() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let misspelt = [("FIRSTCOME_LISTN", "127.0.0.1:1"), ("FIRSTCOME_JOIN_PER_MINUTE", "5")];
    let gate = ["gate", "--dev", "--upstream", "http://127.0.0.1:3000", "--room", "sale"];
    let commands: [&[&str]; 4] = [&["serve", "--dev"], &gate, &["config", "check"], &["config", "print", "--json"]];
    for arguments in commands {
        let said = with(here, &misspelt, arguments).with(2);
        let lines: Vec<&str> = said.lines().collect();
        let wanted = [
            "firstcome: unknown variable FIRSTCOME_JOIN_PER_MINUTE: did you mean FIRSTCOME_JOINS_PER_MINUTE?",
            "firstcome: unknown variable FIRSTCOME_LISTN: did you mean FIRSTCOME_LISTEN?",
        ];
        assert_eq!(lines, wanted, "{arguments:?}");
    }
    // They are told together with the problems of the file.
    fs::write(here.join("wrong.toml"), "lisen = 1\n").expect("a file");
    let said = with(here, &misspelt, &["config", "check", "--config", "wrong.toml"]).with(2);
    assert!(said.lines().count() == 3 && said.contains("wrong.toml:1: unknown key lisen"), "{said}");
    // Other commands may run in the environment of another program.
    let lock = ["lock", "a", "--store", "locks", "--create", "--", "true"];
    with(here, &misspelt, &lock).well();
}

#[test]
fn every_variable_of_the_program_and_every_link_of_a_service_is_accepted() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md")).expect("a page");
    let words = page.split('`').filter(|word| word.starts_with("FIRSTCOME_"));
    let mut names: BTreeSet<&str> = words.filter(|word| !word.ends_with('…')).collect();
    assert!(60 < names.len(), "{names:?}");
    names.extend(["FIRSTCOME_LOCK", "FIRSTCOME_FENCE", "FIRSTCOME_URL", "FIRSTCOME_DRILL_SERVICE_KEY"]);
    names.extend(["FIRSTCOME_PORT", "FIRSTCOME_SERVICE_PORT_HTTP", "FIRSTCOME_PORT_8080_TCP_ADDR"]);
    names.extend(["FIRSTCOME_NODES_PORT", "FIRSTCOME_NODES_SERVICE_HOST"]);
    // The value is wrong for most settings, and no setting is unknown.
    for name in names {
        let said = with(directory.path(), &[(name, "no such value")], &["config", "check"]);
        assert!(!said.stderr.contains("unknown variable"), "{name}: {}", said.stderr);
    }
}

#[test]
fn a_wrong_value_of_a_variable_is_told_in_one_line_with_its_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    for (name, value, says) in [
        ("FIRSTCOME_JOINS_PER_MINUTE", "x", "'--joins-per-minute <N>'"),
        ("FIRSTCOME_DRAIN", "soon", "is not a duration"),
        ("FIRSTCOME_ON_LOSS", "wait", "close, open"),
    ] {
        for arguments in [&["config", "check"][..], &["serve", "--dev"]] {
            let said = with(here, &[(name, value)], arguments).with(2);
            let is_named = said.starts_with(&format!("firstcome: {name}: ")) && said.contains(says);
            assert!(is_named && said.lines().count() == 1, "{said}");
        }
    }
    // A flag takes precedence over the variable, so the flag is wrong here.
    let flag = ["config", "check", "--", "--drain", "later"];
    let said = with(here, &[("FIRSTCOME_DRAIN", "soon")], &flag).with(2);
    assert!(said.contains("later") && !said.contains("FIRSTCOME_DRAIN"), "{said}");
}

#[test]
fn print_shows_the_default_and_the_variable_of_each_setting() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("set.toml"), "drain = \"5s\"\n").expect("a file");
    let print = ["config", "print", "--json", "--config", "set.toml", "--", "--calls-per-minute", "7"];
    let settings = printed(firstcome(directory.path(), &print));
    let of = |name: &str| {
        let setting = settings.iter().find(|setting| setting["name"] == name).unwrap_or_else(|| panic!("no {name}"));
        json!([setting["value"], setting["default"], setting["variable"]])
    };
    for (name, expected) in [
        ("drain", json!(["5s", "9s", "FIRSTCOME_DRAIN"])),
        ("calls-per-minute", json!(["7", "6000", "FIRSTCOME_CALLS_PER_MINUTE"])),
        ("connections-per-address", json!(["1000", "1000", "FIRSTCOME_CONNECTIONS_PER_ADDRESS"])),
        ("retain-requests", json!(["30d", "30d", "FIRSTCOME_RETAIN_REQUESTS"])),
        ("redis", json!([null, null, "FIRSTCOME_REDIS"])),
        ("coupon", json!([null, null, null])),
        ("FIRSTCOME_ADMIN_KEY", json!([null, null, "FIRSTCOME_ADMIN_KEY"])),
    ] {
        assert_eq!(of(name), expected, "{name}");
    }
    let has_both = |setting: &Value| setting.get("default").is_some() && setting.get("variable").is_some();
    assert!(settings.iter().all(has_both), "{settings:?}");
}

#[test]
fn wrong_addresses_and_a_wrong_secret_have_a_line_each() {
    let directory = tempfile::tempdir().expect("a directory");
    let flags = ["--redis", "ftp://h", "--sql", "mongodb://h/x", "--secret-file", "nope"];
    let said = firstcome(directory.path(), &[&["config", "check", "--"][..], &flags].concat()).with(2);
    assert!(said.lines().count() == 3 && said.contains("cannot read the secret in nope"), "{said}");
    assert_eq!(firstcome(directory.path(), &[&["serve"][..], &flags].concat()).with(2).lines().count(), 3);
}

#[test]
fn a_misspelt_flag_is_told_with_the_one_that_was_meant() {
    let directory = tempfile::tempdir().expect("a directory");
    let said = firstcome(directory.path(), &["config", "check", "--", "--jions-per-minute", "3"]).with(2);
    assert!(said.contains("'--jions-per-minute'") && said.contains("'--joins-per-minute'"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_secret_in_the_settings_file_is_told_with_its_variables() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("a.toml"), "admin-key = \"s3cret\"\nview_keys_file = \"s3cret\"\n")
        .expect("a file");
    let said = firstcome(directory.path(), &["config", "check", "--config", "a.toml"]).with(2);
    for name in ["FIRSTCOME_ADMIN_KEY", "FIRSTCOME_VIEW_KEYS"] {
        let says = format!("secrets are no settings of the file: set {name} or {name}_FILE");
        assert_eq!(said.lines().filter(|line| line.ends_with(&says)).count(), 1, "{said}");
    }
    assert!(said.lines().count() == 2 && !said.contains("s3cret"), "{said}");
}
