//! The unit of systemd: systemd understands it, its sandbox is tight, and the service needs nothing that the sandbox denies.

use super::DRAIN;
use super::files::read;
use crate::support::machine_has;
use crate::support::program::{PROGRAM, command, is_installed, run};
use crate::support::server::Server;
use crate::support::trace::{Call, can_trace, read as read_trace, traced};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

const UNIT: &str = "systemd/firstcome.service";
/// What `systemd-analyze security` may say at most, in tenths: 0 is a service that can do nothing, 100 one without a sandbox.
const EXPOSURE_MAX: &str = "15";

fn has_systemd() -> bool {
    machine_has("systemd-analyze", is_installed("systemd-analyze"))
}

/// The values of a setting, in their order.
fn values(name: &str) -> Vec<String> {
    let unit = read(UNIT);
    let lines = unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    lines.map(str::to_owned).collect()
}

#[test]
fn systemd_understands_the_unit_and_finds_its_sandbox_tight() {
    if !has_systemd() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("firstcome.service");
    // systemd wants the program to be there.
    fs::write(&file, read(UNIT).replace("/usr/bin/firstcome", PROGRAM)).expect("a unit");
    let analyze = |arguments: &[&str]| run(command("systemd-analyze", directory.path()).args(arguments).arg(&file));
    let verified = analyze(&["verify", "--man=no"]);
    assert_eq!((verified.code, verified.stderr.as_str()), (Some(0), ""), "{}", verified.stdout);
    analyze(&["security", "--offline=true", "--no-pager", &format!("--threshold={EXPOSURE_MAX}")]).well();
}

#[test]
fn the_unit_waits_until_the_service_has_stopped() {
    let number = |name: &str| values(name)[0].parse().map(Duration::from_secs).expect("seconds");
    assert!(DRAIN < number("TimeoutStopSec"), "it is killed before it has stopped");
}

#[test]
fn a_reload_is_the_signal_that_renews_certificates() {
    assert_eq!(values("ExecReload"), ["/bin/kill -HUP $MAINPID"]);
}

#[test]
fn the_credentials_that_the_service_reads_are_those_that_the_unit_loads() {
    let environment = values("Environment");
    let read: BTreeSet<&str> = environment.iter().filter_map(|line| Some(line.split_once("=%d/")?.1)).collect();
    let loaded = values("LoadCredential");
    let loaded: BTreeSet<&str> = loaded.iter().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    assert_eq!(read, loaded);
    assert_eq!(read.len(), 4, "{read:?}");
}

/// The calls that the filters of the unit let through: the sets of systemd, without those that the unit takes out.
fn allowed(directory: &Path) -> BTreeSet<String> {
    let printed = run(command("systemd-analyze", directory).args(["syscall-filter", "--no-pager"])).well();
    let mut sets: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut name = String::new();
    for line in printed.lines() {
        let word = line.trim();
        if line.starts_with('@') {
            word.clone_into(&mut name);
        } else if !word.is_empty() && !word.starts_with('#') {
            sets.entry(name.clone()).or_default().push(word.to_owned());
        }
    }
    let expand = |set: &str| {
        let (mut calls, mut open) = (BTreeSet::new(), vec![set.to_owned()]);
        while let Some(set) = open.pop() {
            for member in sets.get(&set).unwrap_or_else(|| panic!("no set {set}")) {
                if member.starts_with('@') { open.push(member.clone()) } else { _ = calls.insert(member.clone()) }
            }
        }
        calls
    };
    // systemd lets these through without being asked.
    let mut calls = expand("@default");
    for filter in values("SystemCallFilter") {
        for set in filter.trim_start_matches('~').split(' ').map(expand) {
            if filter.starts_with('~') {
                calls.retain(|call| !set.contains(call));
            } else {
                calls.extend(set);
            }
        }
    }
    calls
}

/// Returns why the sandbox would deny this call.
fn denied(call: &Call, allowed: &BTreeSet<String>, families: &[&str]) -> Option<&'static str> {
    let has = |flag: &str| call.arguments.contains(flag);
    match call.name.as_str() {
        // The tracer's own start of the program.
        "execve" => None,
        // SQLite, if it is root, gives its new files to the owner of the database. The service is not root.
        "fchown" if has(", 0, 0") => None,
        name if !allowed.contains(name) => Some("SystemCallFilter"),
        "socket" => (!families.iter().any(|family| call.arguments.starts_with(&format!("{family},"))))
            .then_some("RestrictAddressFamilies"),
        "mmap" => (has("PROT_WRITE") && has("PROT_EXEC")).then_some("MemoryDenyWriteExecute"),
        "mprotect" => has("PROT_EXEC").then_some("MemoryDenyWriteExecute"),
        "openat" if has("O_WRONLY") || has("O_RDWR") || has("O_CREAT") => {
            (!has("/data/") && !has("\"data/") && !has("/dev/null")).then_some("ProtectSystem")
        }
        _ => None,
    }
}

#[test]
fn the_service_needs_nothing_that_the_sandbox_of_the_unit_denies() {
    if !has_systemd() || !can_trace() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server =
        Server::spawn(&mut traced(here, "trace", &[], &["--coupon", "launch=5", "--admin-listen", "127.0.0.1:0"]));
    let process = server.process();
    let mut client = server.client();
    assert_eq!(client.claim("launch", "ann", None).expect("an answer").status, 201);
    assert_eq!(client.put_status("/v1/rooms/sale", &json!({"max_active": 1})), 201);
    assert_eq!(client.call("POST", "/v1/rooms/sale/tickets", Some(&json!({}))).status, 201);
    let acquire = json!({"owner": "ann", "wait_ms": 0, "lease_ms": 60_000});
    assert_eq!(client.call("POST", "/v1/locks/door/acquire", Some(&acquire)).status, 200);
    assert_eq!((client.get("/metrics").status, client.get("/readyz").status), (200, 200));
    server.stop();
    let allowed = allowed(here);
    let families = values("RestrictAddressFamilies");
    let families: Vec<&str> = families[0].split(' ').collect();
    let calls = read_trace(&here.join("trace"), process);
    let names: BTreeSet<&str> = calls.iter().map(|call| call.name.as_str()).collect();
    assert!(
        ["socket", "mmap", "openat", "fdatasync", "prlimit64"].iter().all(|name| names.contains(name)),
        "{names:?}"
    );
    for call in &calls {
        let by = denied(call, &allowed, &families);
        assert!(by.is_none(), "{} denies {}({}", by.unwrap_or_default(), call.name, call.arguments);
    }
}
