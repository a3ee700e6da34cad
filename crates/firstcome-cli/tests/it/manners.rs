//! How the program behaves on a command line: help, exit codes, where settings come from.

use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, firstcome, run, wait};
use crate::support::server::Server;
use crate::support::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn help_is_there_on_every_level() {
    let directory = tempfile::tempdir().expect("a directory");
    let levels: [&[&str]; 17] = [
        &[],
        &["serve"],
        &["verify"],
        &["reconcile"],
        &["export"],
        &["import"],
        &["backup"],
        &["restore"],
        &["plan"],
        &["drill"],
        &["drill", "concert"],
        &["drill", "coupon"],
        &["lock"],
        &["locks"],
        &["locks", "release"],
        &["completions"],
        &["man"],
    ];
    for level in levels {
        let help = firstcome(directory.path(), &[level, &["--help"]].concat()).well();
        assert!(help.contains("Usage: firstcome"), "{level:?}: {help}");
    }
    assert!(firstcome(directory.path(), &["--version"]).well().starts_with("firstcome "));
    let bare = firstcome(directory.path(), &[]).with(2);
    assert!(bare.contains("Usage: firstcome"), "{bare}");
}

#[test]
fn completions_and_the_manual_are_there() {
    let directory = tempfile::tempdir().expect("a directory");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = firstcome(directory.path(), &["completions", shell]).well();
        assert!(script.contains("firstcome") && script.contains("admin-listen"), "{shell}: {script}");
    }
    let manual = firstcome(directory.path(), &["man"]).well();
    for part in [".TH firstcome", "firstcome\\-serve", "admin\\-listen", "Check every stored invariant again"] {
        assert!(manual.contains(part), "{part:?} is not in the manual");
    }
}

#[test]
fn each_command_has_a_manual_page_and_pages_name_only_pages_that_are_there() {
    let directory = tempfile::tempdir().expect("a directory");
    assert_eq!(firstcome(directory.path(), &["man", "pages/all"]).well(), "");
    let pages = directory.path().join("pages/all");
    let mut seen = 0;
    for entry in fs::read_dir(&pages).expect("a directory") {
        let path = entry.expect("a page").path();
        // A hyphen is spelt `\-`.
        let page = fs::read_to_string(&path).expect("a page").replace("\\-", "-");
        let named = page.lines().filter_map(|line| line.strip_suffix("(1)")).filter(|name| !name.contains(' '));
        for name in named {
            assert!(pages.join(format!("{name}.1")).exists(), "{} names {name}(1)", path.display());
            seen += 1;
        }
    }
    assert!(30 < seen, "{seen} pages are named");
    for (name, is_there) in [
        ("firstcome", true),
        ("firstcome-serve", true),
        ("firstcome-keys-create", true),
        ("firstcome-help", false),
        ("firstcome-keys-help", false),
        ("firstcome-lock-keeper", false),
    ] {
        assert_eq!(pages.join(format!("{name}.1")).exists(), is_there, "{name}");
    }
    let said = firstcome(directory.path(), &["man", "pages/all/firstcome.1"]).with(1);
    assert!(said.contains("into pages/all/firstcome.1") && said.trim_end().lines().count() == 1, "{said}");
}

#[test]
fn calls_that_make_no_sense_end_with_2_and_touch_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let table: [(&[&str], &str); 34] = [
        (&["serv"], "unrecognized subcommand"),
        (&["serve", "--prot", "80"], "--prot"),
        (&["serve", "--dev", "--listen", "0.0.0.0:0"], "loopback only"),
        (&["serve", "--dev", "--listen", "[::]:0"], "loopback only"),
        (&["serve", "--dev", "--admin-listen", "0.0.0.0:0"], "loopback only"),
        (&["serve", "--listen", "nowhere"], "nowhere"),
        (
            &[
                "gate",
                "--dev",
                "--upstream",
                "http://127.0.0.1:1",
                "--room",
                "sale",
                "--sql",
                "postgres://a@localhost/c",
            ],
            "give --redis too",
        ),
        (
            &["gate", "--dev", "--upstream", "http://127.0.0.1:1", "--room", "sale", "--listen", "0.0.0.0:0"],
            "loopback only",
        ),
        (&["gate", "--dev", "--room", "sale", "--max-active", "1"], "--upstream"),
        (&["gate", "--dev", "--upstream", "http://127.0.0.1:1", "--max-active", "1"], "--room"),
        (&["gate", "--upstream", "https://shop", "--room", "sale"], "must be http://"),
        (&["gate", "--upstream", "http://shop/path", "--room", "sale"], "and no path"),
        (&["gate", "--upstream", "http://127.0.0.1:1", "--room", "a b"], "--room"),
        (&["gate", "--upstream", "http://127.0.0.1:1", "--room", "sale", "--admit", "100"], "write 100/s"),
        (&["gate", "--upstream", "http://127.0.0.1:1", "--room", "sale", "--admit", "0/s"], "admit.count must be 1 to"),
        (
            &["gate", "--upstream", "http://127.0.0.1:1", "--room", "sale", "--max-active", "0"],
            "max-active must be 1 to",
        ),
        (&["gate", "--upstream", "http://127.0.0.1:1", "--room", "sale", "--path", "checkout"], "/checkout/*"),
        (&["serve", "--dev", "--coupon", "launch"], "NAME=LIMIT"),
        (&["serve", "--dev", "--coupon", "launch=0"], "1 to 100000000"),
        (&["serve", "--dev", "--coupon", "launch=100000001"], "1 to 100000000"),
        (&["serve", "--dev", "--coupon", "a b=5"], "the name"),
        (&["serve", "--dev", "--drain", "soon"], "not a duration"),
        (&["serve", "--dev", "--allow-origin", "example.org"], "not an origin"),
        (&["serve", "--dev", "--connections-max", "0"], "connections-max"),
        (&["serve", "--dev", "--connections-max", "18446744073709551615"], "connections-max"),
        (&["serve", "--dev", "--connections-per-address", "1000001"], "connections-per-address"),
        (&["serve", "--dev", "--stop-grace", "later"], "not a duration"),
        (&["serve", "--dev", "--lock-waits-max", "0"], "must be 1 to 1000000, not 0"),
        (&["serve", "--dev", "--lock-waits-max", "1000001"], "lock-waits-max"),
        (&["serve", "--dev", "--config", "absent.toml"], "absent.toml"),
        (&["import"], "<FILE>"),
        (&["import", "--coupon", "launch=x", "file.csv"], "1 to 100000000"),
        (&["export", "--format", "xml"], "xml"),
        (&["completions", "tcsh"], "tcsh"),
    ];
    for (arguments, words) in table {
        let said = firstcome(directory.path(), arguments).with(2);
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{arguments:?}: {said}");
    }
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);
}

#[test]
fn a_wrong_settings_file_is_a_usage_error_that_names_the_place() {
    let directory = tempfile::tempdir().expect("a directory");
    let table = [
        ("lisen = \"127.0.0.1:0\"", "lisen"),
        ("listen = 80", "listen"),
        ("listen = \"127.0.0.1:0\"\ndrain = \"soon\"", "not a duration"),
        ("connections-max = 0", "connections-max"),
        ("lock-waits-max = 0", "lock-waits-max"),
        ("listen = \"0.0.0.0:0\"", "loopback only"),
        ("not toml", "firstcome.toml"),
    ];
    for (text, words) in table {
        fs::write(directory.path().join("firstcome.toml"), text).expect("a file");
        let said = firstcome(directory.path(), &["serve", "--dev", "--config", "firstcome.toml"]).with(2);
        assert!(said.contains(words), "{text}: {said}");
    }
}

/// Where the service puts its data tells which setting won.
fn data_of(directory: &Path, flag: Option<&str>, environment: Option<&str>) -> String {
    let mut serve = command(PROGRAM, directory);
    serve.args(["serve", "--dev", "--listen", "127.0.0.1:0"]);
    if directory.join("firstcome.toml").exists() {
        serve.env("FIRSTCOME_CONFIG", "firstcome.toml");
    }
    serve.args(flag.iter().flat_map(|value| ["--data", value]));
    serve.envs(environment.map(|value| ("FIRSTCOME_DATA", value)));
    let mut server = Server::spawn(&mut serve);
    let line = server.line("data in ");
    server.stop();
    let shown = line.trim_start_matches("data in ").to_owned();
    assert!(directory.join(&shown).join("firstcome.db").exists(), "{shown}");
    shown
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    assert_eq!(data_of(here, None, None), "firstcome-data");
    fs::write(here.join("firstcome.toml"), "data = \"of-the-file\"\n").expect("a file");
    assert_eq!(data_of(here, None, None), "of-the-file");
    assert_eq!(data_of(here, None, Some("of-the-environment")), "of-the-environment");
    assert_eq!(data_of(here, Some("of-the-flag"), Some("of-the-environment")), "of-the-flag");
}

#[test]
fn the_address_comes_from_the_environment_and_from_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let serve = || {
        let mut serve = command(PROGRAM, directory.path());
        serve.args(["serve", "--dev", "--data", "data"]);
        serve
    };
    let server = Server::spawn(serve().env("FIRSTCOME_LISTEN", "127.0.0.2:0"));
    assert_eq!(server.address().ip().to_string(), "127.0.0.2");
    server.stop();
    let file = "listen = \"127.0.0.3:0\"\nadmin-listen = \"127.0.0.4:0\"\ndrain = \"1s\"\n";
    fs::write(directory.path().join("other.toml"), file).expect("a file");
    let mut server = Server::spawn(serve().args(["--config", "other.toml"]));
    assert_eq!(server.address().ip().to_string(), "127.0.0.3");
    let admin = server.line("admin on http://");
    let admin = admin.trim_start_matches("admin on http://").parse().expect("an address");
    let figures = Client::new(admin).get("/metrics");
    assert_eq!(figures.status, 200, "{}", figures.text());
    server.stop();
}

#[test]
fn no_more_wait_for_locks_than_the_setting_says_that_counts() {
    for (file, environment, flag) in [("1", None, None), ("9", Some("1"), None), ("9", Some("9"), Some("1"))] {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("firstcome.toml"), format!("lock-waits-max = {file}")).expect("a file");
        let mut serve = command(PROGRAM, directory.path());
        serve.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--drain", "1s", "--config", "firstcome.toml"]);
        serve.args(flag.iter().flat_map(|value| ["--lock-waits-max", value]));
        let server = Server::spawn(serve.envs(environment.map(|value| ("FIRSTCOME_LOCK_WAITS_MAX", value))));
        let acquire = |mut client: Client, wait_ms: u64, lease_ms: u64| {
            let body = json!({"owner": "ann", "wait_ms": wait_ms, "lease_ms": lease_ms});
            client.call("POST", "/v1/locks/door/acquire", Some(&body))
        };
        let held = acquire(server.client(), 0, 3_600_000).json();
        let client = server.client();
        let waiting = std::thread::spawn(move || acquire(client, 3_600_000, 1_000));
        wait_for("somebody in line", || (server.client().get("/v1/locks/door").json()["waiters"] == 1).then_some(()));
        let refused = acquire(server.client(), 1, 1_000);
        assert_eq!((refused.status, refused.code().as_str()), (503, "overloaded"));
        let handle = json!({"handle": held["handle"]});
        assert_eq!(server.client().call("POST", "/v1/locks/door/release", Some(&handle)).status, 200);
        assert_eq!(waiting.join().expect("it is answered").status, 200);
        server.stop();
    }
}

#[test]
fn the_report_of_verify_lists_every_invariant_with_its_counts() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start_with(directory.path(), &["--coupon", "launch=5"]);
    for user in ["ann", "bob", "cid"] {
        assert_eq!(server.client().claim("launch", user, Some(user)).expect("it is answered").status, 201);
    }
    server.stop();
    let report = firstcome(directory.path(), &["verify", "--data", "data"]).well();
    let report: Value = serde_json::from_str(&report).expect("JSON where there is no terminal");
    assert_eq!(report["breaches"], 0);
    let checks = report["checks"].as_array().expect("checks");
    let counts: Vec<(&str, u64)> = checks
        .iter()
        .map(|check| {
            assert_eq!((&check["breaches"], &check["examples"]), (&0.into(), &Value::Array(Vec::new())));
            (check["invariant"].as_str().expect("a text"), check["checked"].as_u64().expect("a count"))
        })
        .collect();
    assert!(counts[0].0.starts_with("the file is sound") && 0 < counts[0].1, "{counts:?}");
    let wanted = [
        ("no oversell", 1),
        ("one each", 3),
        ("gapless", 3),
        ("in order", 3),
        ("every claim belongs", 3),
        ("users and attributes", 3),
        ("an idempotency key", 3),
        ("a redemption", 0),
        ("a code names one claim", 1),
        ("every ticket and slot", 0),
        ("a number is drawn once", 0),
        ("users of tickets", 0),
        ("one living place", 0),
        ("in line, in a slot or gone", 0),
        ("an admission stands once", 0),
        ("the line has reached", 0),
        ("a draw has the seed", 0),
        ("a renewal is of a living ticket", 0),
        ("records are a chain", 0),
        ("a balance is the sum", 0),
        ("points are conserved", 1),
        ("what a member has held", 0),
        ("the highest bid of an open auction", 1),
        ("a hold ends once", 0),
        ("the bids of a listing", 0),
        ("bids rise", 0),
        ("every bid is within", 0),
        ("a listing stands", 0),
        ("what is sold was paid for", 0),
        ("an idempotency key has one bid", 0),
        ("heads of a room or coupon are one chain", 0),
        ("the store has all that a head", 0),
        ("every head has a signature", 0),
    ];
    // Those of locks come after them.
    assert!(counts[1 + wanted.len()].0.starts_with("the file of locks is sound"), "{counts:?}");
    assert_eq!(counts.len(), 1 + wanted.len() + 6);
    for ((text, count), (beginning, wanted)) in counts[1..].iter().zip(wanted) {
        assert!(text.starts_with(beginning), "{text}");
        // The time that passed says how many heads were published.
        assert!(*count == wanted || text.contains("head"), "{text}: {count}");
    }
}

#[test]
fn data_is_readable_by_its_owner_only_also_in_a_directory_that_is_open_to_all() {
    let directory = tempfile::tempdir().expect("a directory");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let made = directory.path().join("made");
    let mut server = Server::spawn(command(PROGRAM, directory.path()).args([
        "serve",
        "--dev",
        "--listen",
        "127.0.0.1:0",
        "--data",
        "made",
    ]));
    assert_eq!(mode(&made), 0o700);
    server.kill();
    let open = directory.path().join("data");
    fs::create_dir(&open).expect("a directory");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("its mode can be set");
    let server = Server::start_with(directory.path(), &["--coupon", "launch=5"]);
    for file in ["firstcome.db", "firstcome.db-wal", "firstcome.db-shm"] {
        assert_eq!(mode(&open.join(file)), 0o600, "{file} holds the secrets of codes");
    }
    server.stop();
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let directory = tempfile::tempdir().expect("a directory");
    Server::start_with(directory.path(), &["--coupon", "launch=5"]).stop();
    // An export or a backup that no caller took whole has failed, and says so; the others have said enough.
    let table: [(&str, &[i32]); 5] = [
        ("man", &[0]),
        ("completions bash", &[0]),
        ("verify --data data", &[0]),
        ("export --data data", &[0, 1]),
        ("backup --data data --to -", &[0, 1]),
    ];
    for (arguments, codes) in table {
        let line = format!("{PROGRAM} {arguments} | exec true; exit ${{PIPESTATUS[0]}}");
        let ended = run(command("/bin/bash", directory.path()).args(["-c", &line]));
        assert!(ended.code.is_some_and(|code| codes.contains(&code)), "{arguments}: {ended:?}");
        assert!(!ended.stderr.contains("panicked"), "{arguments}: {ended:?}");
    }
}

#[test]
fn no_matter_what_cannot_be_said_the_exit_code_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let (reader, nobody_reads) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut lock = command(PROGRAM, directory.path());
    let child = lock.args(["lock", "a b", "--", "true"]).stderr(nobody_reads).spawn();
    assert_eq!(wait(&mut child.expect("it starts")).code(), Some(2));
}
