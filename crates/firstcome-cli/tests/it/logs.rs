//! The log of a service: its form, its levels, and the record of what operators did.

use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, run};
use crate::support::server::Server;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

const ADMIN: &str = "fc_admin_of_the_tests_of_logs_0123456789";

fn serve(directory: &Path, more: &[&str]) -> Command {
    let mut serve = command(PROGRAM, directory);
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data", "data"]).args(more).env("FIRSTCOME_ADMIN_KEY", ADMIN);
    serve
}

/// Lets an operator do this much, and returns what the service logged.
fn log_of(directory: &Path, more: &[&str], changes: u32) -> String {
    let mut server = Server::spawn(&mut serve(directory, more));
    let mut client = Client::with_key(server.address(), ADMIN);
    for limit in 1..=changes {
        assert!([200, 201].contains(&client.put_status("/v1/coupons/launch", &json!({"limit": limit}))));
    }
    assert_eq!(client.put_status("/v1/coupons/no%1b[31m%0aname", &json!({"limit": 1})), 400);
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
    server.errors()
}

#[test]
fn lines_of_json_are_whole_and_name_what_happened() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = log_of(directory.path(), &["--log-format", "json"], 2);
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for event in &events {
        for name in ["timestamp", "level", "target", "message"] {
            assert!(event[name].is_string(), "{name}: {event}");
        }
    }
    let changes: Vec<&Value> = events.iter().filter(|event| event["target"] == "firstcome::audit").collect();
    assert_eq!(changes.len(), 3, "{log}");
    assert_eq!((&changes[0]["role"], &changes[0]["answer"]), (&json!("operate"), &json!("done")), "{log}");
    assert!(!log.contains('\u{1b}') && !log.contains(ADMIN), "{log}");
}

#[test]
fn levels_are_those_of_the_setting_and_a_wrong_one_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    assert_eq!(log_of(directory.path(), &["--log", "off"], 1), "");
    let only = log_of(directory.path(), &["--log", "off,firstcome::audit=info"], 1);
    assert!(only.lines().all(|line| line.contains("firstcome::audit")) && 2 <= only.lines().count(), "{only}");
    fs::write(directory.path().join("settings.toml"), "log = \"off\"\n").expect("written");
    assert_eq!(log_of(directory.path(), &["--config", "settings.toml"], 1), "");
    let said = run(&mut serve(directory.path(), &["--log", "info,firstcome=loud"])).with(2);
    assert!(said.contains("info,firstcome=loud") && said.contains("write info"), "{said}");
}

#[test]
fn a_misspelt_level_or_target_is_refused_by_a_start_and_by_a_check() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("settings.toml"), "log = \"infoo\"\n").expect("written");
    for (wrong, says) in [
        (&["--log", "infoo"] as &[&str], "did you mean info?"),
        (&["--log", "info,firstcom_redis=debug"], "did you mean firstcome_redis?"),
        (&["--config", "settings.toml"], "did you mean info?"),
    ] {
        let said = run(&mut serve(directory.path(), wrong)).with(2);
        assert!(said.contains(says), "{said}");
        let mut check = command(PROGRAM, directory.path());
        let said = run(check.args(["config", "check", "--"]).args(wrong)).with(2);
        assert!(said.contains(says), "{said}");
    }
    assert!(!directory.path().join("data").exists(), "nothing was started");
}

#[test]
fn the_record_of_operators_is_logged_at_each_level_unless_it_is_named_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let warn = log_of(directory.path(), &["--log", "warn"], 2);
    let entries = warn.lines().filter(|line| line.contains(" firstcome::audit: ")).count();
    assert!(entries == 3 && !warn.contains("firstcome has started"), "{warn}");
    let without = log_of(directory.path(), &["--log", "info,firstcome::audit=off"], 1);
    assert!(without.contains("firstcome has started") && !without.contains("firstcome::audit: "), "{without}");
}

/// The panic is planted: without the feature there is none.
#[cfg(feature = "planted-bugs")]
#[test]
fn a_panic_is_one_line_of_the_log_in_its_form() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut planted = serve(directory.path(), &["--log-format", "json"]);
    let mut server = Server::spawn(planted.env("FIRSTCOME_PLANTED", "panic").env("RUST_BACKTRACE", "1"));
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
    server.wait_for_log("the store is closed");
    let log = server.errors();
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let panics: Vec<&Value> = events.iter().filter(|event| event["panic"].is_string()).collect();
    assert_eq!(panics.len(), 1, "{log}");
    assert_eq!(panics[0]["panic"], "a bug that was planted\nin two lines");
    assert_eq!(panics[0]["level"], "ERROR");
    let place = panics[0]["place"].as_str().expect("a place");
    assert!(place.contains("serve.rs:") && panics[0]["left_out"] == 0, "{place}");
}

#[test]
fn an_entry_of_what_operators_did_that_was_changed_or_left_out_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut log = log_of(directory.path(), &["--log-format", "json"], 5);
    // Another process goes on in the same file.
    log += &log_of(directory.path(), &["--log-format", "json"], 2);
    let verify = |log: &str| {
        fs::write(directory.path().join("service.log"), log).expect("written");
        let mut verify = command(PROGRAM, directory.path());
        // The servers of the environment are not those of a log.
        verify
            .args(["verify", "--audit", "service.log", "--json"])
            .env("FIRSTCOME_SQL", "postgres://db.example.com/shop");
        run(&mut verify)
    };
    let told: Value = serde_json::from_str(&verify(&log).well()).expect("JSON");
    assert_eq!((&told["checks"][0]["checked"], &told["breaches"]), (&json!(9), &json!(0)), "{told}");

    let entry = log.lines().find(|line| line.contains("\"number\":2,")).expect("a second entry");
    let changed = log.replacen(entry, &entry.replace("operate", "view"), 1);
    let found = |log: &str| {
        let ended = verify(log);
        assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
        ended.stdout
    };
    assert!(found(&changed).contains("is not as it was written"));
    let left_out = log.replacen(&format!("{entry}\n"), "", 1);
    assert!(found(&left_out).contains("entry 3 of process"));
    let said = verify("{}\n").with(1);
    assert!(said.contains("--log-format json"), "{said}");
}
