//! Settings: where they come from, what is wrong with them, and that no password is told.

mod secrets;
mod variables;

use crate::disk::can_mount;
use crate::support::program::{Ended, PROGRAM, command, firstcome, run};
use crate::support::server::Server;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The settings that `config print` shows.
fn printed(ended: Ended) -> Vec<Value> {
    let told: Value = serde_json::from_str(&ended.well()).expect("JSON");
    told["settings"].as_array().expect("settings").clone()
}

#[track_caller]
fn of<'a>(settings: &'a [Value], name: &str) -> [&'a str; 3] {
    let setting = settings.iter().find(|setting| setting["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    ["value", "source", "at"].map(|field| setting[field].as_str().unwrap_or("-"))
}

#[test]
fn a_share_is_set_as_a_number_or_as_a_text() {
    let directory = tempfile::tempdir().expect("a directory");
    let check = |text: &str| {
        std::fs::write(directory.path().join("set.toml"), text).expect("a file");
        firstcome(directory.path(), &["config", "check", "--config", "set.toml"])
    };
    for value in ["0.01", "1", "0", "\"0.5\""] {
        check(&format!("trace-sample = {value}\n")).well();
    }
    for value in ["1.5", "-1", "nan", "true"] {
        let said = check(&format!("trace-sample = {value}\n")).with(2);
        assert!(said.contains("trace-sample") && said.trim_end().lines().count() == 1, "{said}");
    }
}

#[test]
fn a_file_in_the_working_directory_is_not_read_and_the_operator_is_told_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    fs::write(here.join("firstcome.toml"), "data = \"of-the-file\"\nlisen = 1\n").expect("a file");
    let mut serve = command(PROGRAM, here);
    serve.args(["serve", "--dev", "--listen", "127.0.0.1:0"]);
    let mut server = Server::spawn(&mut serve);
    assert_eq!(server.line("data in "), "data in firstcome-data");
    server.wait_for_log("./firstcome.toml is not read");
    assert_eq!(server.errors().matches("is not read").count(), 1, "{}", server.errors());
    server.stop();
    let said = firstcome(here, &["lock", "a", "--store", "locks", "--create", "--", "true"]).with(0);
    assert!(said.contains("--config firstcome.toml"), "{said}");
    // It was named, so nothing is said of it.
    fs::write(here.join("firstcome.toml"), "").expect("a file");
    let said = firstcome(here, &["config", "check", "--config", "firstcome.toml"]).with(0);
    assert_eq!(said, "");
}

#[test]
fn the_file_of_the_machine_is_read_for_a_service_and_not_for_a_trial_or_a_lock() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    fs::write(here.join("firstcome.toml"), "data = \"no/data\"\nstore = \"misspelt\"\n").expect("a file");
    fs::write(here.join("named.toml"), "data = \"data\"\n").expect("a file");
    // In a mount namespace of its own this directory is /etc/firstcome.
    let script = "mount -t tmpfs none /etc && cp -r . /etc/firstcome && exec \"$@\"";
    let on_machine = |arguments: &[&str]| {
        let mut command = command("unshare", here);
        command.args(["--mount", "--propagation", "private", "/bin/sh", "-c", script, "sh", PROGRAM]);
        run(command.args(arguments))
    };
    let settings = printed(on_machine(&["config", "print"]));
    assert_eq!(of(&settings, "data"), ["no/data", "file", "/etc/firstcome/firstcome.toml:1"]);
    let said = on_machine(&["serve", "--listen", "127.0.0.1:0"]).with(2);
    assert!(said.contains("cannot make no/data"), "{said}");
    on_machine(&["config", "check"]).with(2);
    on_machine(&["config", "check", "--", "--dev"]).well();
    on_machine(&["config", "check", "--config", "named.toml"]).well();
    on_machine(&["lock", "a", "--store", "locks", "--create", "--", "true"]).well();
    let listed = on_machine(&["locks", "list", "--store", "locks"]).well();
    assert!(listed.contains("\"locks\""), "{listed}");
}

#[test]
fn each_wrong_setting_of_a_file_has_a_line_in_the_check_and_at_the_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let text = "listen = \"127.0.0.1:0\"\nlisen = \"127.0.0.1:1\"\nquorum-of-owls = 1\nconnections-max = \"5\"\n\
                drain = \"5 minutes\"\nlock-waits-max = 0\njoin-work = 27\non-loss = \"wait\"\ntrusted-proxy = [\"ten\"]\n\
                public-coupon = [5]\nlease = \"1ms\"\nallow-origin = [\"example.org\"]\nlisten = \"127.0.0.1:2\"\n";
    let wanted = [
        (2, "unknown key lisen: did you mean listen?"),
        (3, "unknown key quorum-of-owls: remove it"),
        (4, "connections-max is of the type string; write a whole number without quotes"),
        (5, "drain: \"5 minutes\" is not a duration; write 250ms, 5s, 30m or 1h"),
        (6, "lock-waits-max: must be 1 to 1000000, not 0"),
        (7, "join-work: must be 0 to 26, not 27"),
        (8, "on-loss: write one of: close, open"),
        (9, "trusted-proxy: "),
        (10, "public-coupon is of the type array; write an array of texts in quotes"),
        (11, "lease: lease must be 100ms to 192h"),
        (12, "allow-origin: \"example.org\" is not an origin"),
    ];
    // A key that is there twice is no TOML, which is said alone.
    fs::write(here.join("wrong.toml"), text).expect("a file");
    let said = firstcome(here, &["config", "check", "--config", "wrong.toml"]).with(2);
    assert!(said.starts_with("firstcome: wrong.toml:13: this is not TOML: duplicate key"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");

    fs::write(here.join("wrong.toml"), text.rsplit_once("listen").expect("a key").0).expect("a file");
    let said = firstcome(here, &["config", "check", "--config", "wrong.toml"]).with(2);
    assert_eq!(said.lines().count(), wanted.len(), "{said}");
    for (line, (number, says)) in said.lines().zip(wanted) {
        assert!(line.starts_with(&format!("firstcome: wrong.toml:{number}: {says}")), "{line}");
    }
    assert_eq!(firstcome(here, &["serve", "--dev", "--config", "wrong.toml"]).with(2), said);
    let gate = ["gate", "--dev", "--upstream", "http://127.0.0.1:3000", "--room", "sale", "--config", "wrong.toml"];
    assert_eq!(firstcome(here, &gate).with(2), said);
    // A key of another command is checked too, and does no harm if it is right.
    assert_eq!(firstcome(here, &["lock", "a", "--config", "wrong.toml", "--", "true"]).with(2), said);
    fs::write(here.join("right.toml"), "store = \"locks\"\nlease = \"1m\"\ngate-listen = \"127.0.0.1:0\"\n")
        .expect("a file");
    assert_eq!(firstcome(here, &["config", "check", "--config", "right.toml"]).well(), "the settings are right\n");
    assert_eq!(fs::read_dir(here).expect("a directory").count(), 2, "nothing was started");
}

#[test]
fn settings_that_contradict_each_other_are_told_together_and_as_a_start_tells_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    fs::write(here.join("both.toml"), "redis = \"redis://h\"\ntls-cert = \"cert.pem\"\ndata = \"data\"\n")
        .expect("a file");
    let said = |arguments: &[&str]| {
        let mut command = command(PROGRAM, here);
        command.args(arguments).env("FIRSTCOME_ADMIN_KEY", "short").env("FIRSTCOME_CONFIG", "both.toml");
        run(&mut command).with(2)
    };
    let checked = said(&["config", "check"]);
    for says in ["--redis needs --sql", "FIRSTCOME_ADMIN_KEY: a key must have", "--tls-cert needs --tls-key"] {
        assert_eq!(checked.lines().filter(|line| line.contains(says)).count(), 1, "{says}: {checked}");
    }
    assert_eq!(checked.lines().count(), 3, "{checked}");
    // The log of a service begins with its own problems.
    assert_eq!(said(&["serve", "--listen", "127.0.0.1:0"]), checked);
    let gate =
        said(&["config", "check", "--for", "gate", "--", "--upstream", "http://127.0.0.1:3000", "--room", "sale"]);
    assert_eq!(gate, checked);
    let gate = firstcome(here, &["config", "check", "--for", "gate"]).with(2);
    assert!(gate.contains("--upstream"), "a start needs it: {gate}");
    let dev =
        firstcome(here, &["config", "check", "--", "--dev", "--listen", "0.0.0.0:1", "--data", "no/data"]).with(2);
    assert!(dev.contains("loopback only") && dev.contains("cannot make no/data") && dev.lines().count() == 2, "{dev}");
    let flag = firstcome(here, &["config", "check", "--", "--drain", "soon"]).with(2);
    assert!(flag.contains("--drain") && flag.contains("not a duration") && flag.lines().count() == 1, "{flag}");
    assert_eq!(fs::read_dir(here).expect("a directory").count(), 1, "nothing was started");
}

#[test]
fn print_shows_each_setting_with_its_source_and_no_secret() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let text = "drain = \"5s\"\nlisten = \"127.0.0.1:1\"\n\ntrusted-proxy = [\"10.0.0.0/8\", \"::1\"]\n\
                sql = \"postgres://ann:s3cret@db/shop?password=s3cret\"\n";
    fs::write(here.join("set.toml"), text).expect("a file");
    let print = |flags: &[&str]| {
        let mut print = command(PROGRAM, here);
        print.env("FIRSTCOME_REDIS", "redis://:s3cret@cache:1/3").env("FIRSTCOME_LISTEN", "127.0.0.1:2");
        print.env("FIRSTCOME_ADMIN_KEY", "s3cret-s3cret-s3cret-s3cret").env("FIRSTCOME_SECRET_FILE", "secret");
        run(print.args(["config", "print", "--config", "set.toml"]).args(flags))
    };
    let ended = print(&["--json", "--", "--lock-waits-max", "7"]);
    assert!(!ended.stdout.contains("s3cret") && !ended.stderr.contains("s3cret"), "{ended:?}");
    let settings = printed(ended);
    for (name, expected) in [
        ("lock-waits-max", ["7", "flag", "--lock-waits-max"]),
        ("listen", ["127.0.0.1:2", "variable", "FIRSTCOME_LISTEN"]),
        ("redis", ["redis://***@cache:1/3", "variable", "FIRSTCOME_REDIS"]),
        ("secret-file", ["secret", "variable", "FIRSTCOME_SECRET_FILE"]),
        ("drain", ["5s", "file", "set.toml:1"]),
        ("trusted-proxy", ["10.0.0.0/8, ::1", "file", "set.toml:4"]),
        ("sql", ["postgres://***@db/shop", "file", "set.toml:5"]),
        ("connections-max", ["10000", "default", "-"]),
        ("network-joins-per-minute", ["10 times those of an address", "default", "-"]),
        ("FIRSTCOME_ADMIN_KEY", ["***", "variable", "FIRSTCOME_ADMIN_KEY"]),
        ("FIRSTCOME_VIEW_KEYS", ["-", "default", "-"]),
    ] {
        assert_eq!(of(&settings, name), expected, "{name}");
    }
    // Each has a help, and none is shown twice.
    let names: std::collections::BTreeSet<_> = settings.iter().map(|it| it["name"].as_str()).collect();
    assert_eq!(names.len(), settings.len());
    assert!(settings.iter().all(|setting| setting["help"].as_str().is_some_and(|help| !help.is_empty())));
    // The service's address has the same key in the file of a gate, whose own address has another one.
    let settings = printed(print(&["--for", "gate"]));
    assert_eq!(of(&settings, "listen"), ["127.0.0.1:2", "variable", "FIRSTCOME_LISTEN"]);
    assert_eq!(of(&settings, "gate-listen"), ["127.0.0.1:8000", "default", "-"]);
}

/// Returns the flags of a service that a variable sets and no key of the file does.
#[test]
fn every_variable_of_a_service_has_a_key_in_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md")).expect("a page");
    let rows: Vec<Vec<&str>> =
        page.lines().filter(|line| line.starts_with("| `--")).map(|line| line.split(" | ").collect()).collect();
    let without: std::collections::BTreeSet<&str> =
        rows.iter().filter(|row| !row[1].trim().is_empty() && row[2].trim().is_empty()).map(|row| row[1]).collect();
    let wanted = ["`FIRSTCOME_CONFIG`", "`FIRSTCOME_DEV`", "`FIRSTCOME_UPSTREAM`"];
    assert_eq!(without.into_iter().collect::<Vec<_>>(), wanted);
    // The page is that of the program: a key of it is known, and another one is not.
    let known = |text: &str| {
        fs::write(directory.path().join("a.toml"), text).expect("a file");
        firstcome(directory.path(), &["config", "check", "--config", "a.toml"])
    };
    known("sql-file = \"a.toml\"").with(2);
    known("streams-max = 5").well();
}

#[test]
fn a_settings_file_that_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    for place in ["absent.toml", "."] {
        let said = firstcome(directory.path(), &["serve", "--dev", "--config", place]).with(2);
        assert!(
            said.contains(&format!("cannot read the settings file {place}")) && said.contains("--config"),
            "{said}"
        );
    }
    assert!(!Path::new(&directory.path().join("firstcome-data")).exists());
}
