//! Keys of callers: made once, shown once, kept as digests; or brought along.

use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, firstcome, run};
use crate::support::server::Server;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

pub(crate) fn serve(directory: &Path) -> Command {
    let mut serve = command(PROGRAM, directory);
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data", "data"]);
    serve
}

/// What the key may do: nothing, claim, or make coupons.
pub(crate) fn scope(server: &Server, key: &str) -> &'static str {
    let mut client = Client::with_key(server.address(), key);
    let settings = serde_json::json!({"limit": 5});
    let put = client.call("PUT", "/v1/coupons/launch", Some(&settings)).status;
    let look = client.get("/v1/coupons/launch/claims/ann").status;
    match (put, look) {
        (200 | 201, 404) => "admin",
        (403, 404) => "service",
        (401, 401) => "none",
        other => panic!("{other:?}"),
    }
}

pub(crate) fn shown(server: &mut Server, name: &str) -> String {
    server.first_key(name)
}

/// Every file below a directory that holds this text.
pub(crate) fn files_with(directory: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if path.is_file() {
            // A service that was killed leaves a socket, which cannot be read.
            let bytes = fs::read(&path).expect("a file");
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[test]
fn keys_are_made_at_the_first_start_left_in_a_file_and_kept_as_digests() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::spawn(&mut serve(directory.path()));
    let (admin, service) = (shown(&mut server, "admin"), shown(&mut server, "service"));
    assert_ne!(admin, service);
    assert_eq!((scope(&server, &admin), scope(&server, &service)), ("admin", "service"));
    assert_eq!(scope(&server, "fc_admin_00000000000000000000000000000000"), "none");
    assert_eq!(Client::new(server.address()).get("/v1/coupons/launch/claims/ann").status, 401);
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
    let told = server.output() + &server.errors();
    assert!(!told.contains(&admin) && !told.contains(&service), "keys go to no output that may be collected: {told}");
    fs::remove_file(directory.path().join("data").join("first-keys.txt")).expect("the keys were left there");

    let file = directory.path().join("data").join("keys.toml");
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    for key in [&admin, &service] {
        assert_eq!(files_with(directory.path(), key), Vec::<String>::new(), "a key is kept in clear");
    }

    let mut server = Server::spawn(&mut serve(directory.path()));
    assert_eq!((scope(&server, &admin), scope(&server, &service)), ("admin", "service"), "the old ones are still good");
    server.terminate();
    server.wait();
    let output = server.output();
    assert!(!output.contains("fc_") && !output.contains("keys"), "told twice: {output}");
    assert!(!directory.path().join("data").join("first-keys.txt").exists(), "left twice");
}

#[test]
fn a_start_that_fails_makes_no_keys_that_no_caller_has_seen() {
    let directory = tempfile::tempdir().expect("a directory");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let rows: [(&[&str], &str, &str); 3] = [
        (&["--listen", &address], &address, "in use: stop the other program, or choose another --listen"),
        (&["--listen", "127.0.0.1:0", "--admin-listen", &address], &address, "choose another --admin-listen"),
        // An address of documentation, which no machine has.
        (&["--listen", "192.0.2.1:8080"], "192.0.2.1:8080", "no interface of this machine has the address"),
    ];
    for (arguments, address, says) in rows {
        let said = firstcome(directory.path(), &[&["serve", "--data", "data"], arguments].concat()).with(3);
        assert!(said.contains(&format!("cannot listen on {address}: ")) && said.contains(says), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!directory.path().join("data").exists(), "a start that fails makes no store");
    }
    let mut server = Server::spawn(&mut serve(directory.path()));
    let admin = shown(&mut server, "admin");
    assert_eq!(scope(&server, &admin), "admin");
}

#[test]
fn a_start_that_fails_late_has_left_its_keys_and_the_next_one_names_their_place() {
    let directory = tempfile::tempdir().expect("a directory");
    let gate = |more: &[&str]| {
        let mut gate = command(PROGRAM, directory.path());
        gate.args(["gate", "--listen", "127.0.0.1:0", "--service-listen", "127.0.0.1:0", "--data", "data"]);
        gate.args(["--upstream", "http://127.0.0.1:1", "--room", "sale"]).args(more);
        gate
    };
    let said = run(&mut gate(&[])).with(2);
    assert!(said.contains("there is no room sale"), "{said}");
    let mut server = Server::spawn(&mut gate(&["--max-active", "1"]));
    let admin = shown(&mut server, "admin");
    assert_eq!(scope(&server, &admin), "admin");
}

#[test]
fn what_a_crash_left_of_the_keys_does_not_hinder_the_next_start() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("data")).expect("a directory");
    fs::write(directory.path().join("data").join("keys.Ab12Cd.part"), "admin_sha").expect("a file");
    let mut server = Server::spawn(&mut serve(directory.path()));
    let admin = shown(&mut server, "admin");
    assert_eq!(scope(&server, &admin), "admin");
}

#[test]
fn a_file_of_keys_that_makes_no_sense_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    fs::create_dir(&data).expect("a directory");
    let no_hex = format!("admin_sha256 = \"{}\"\nservice_sha256 = []\n", "canary!!".repeat(8));
    let rows: [(&[u8], &str); 6] = [
        (b"", "line 1"),
        (b"admin_sha256 = \"00\"\nservice_sha256 = []\n", "admin_sha256 is not 64 hexadecimal digits"),
        (no_hex.as_bytes(), "admin_sha256 is not 64 hexadecimal digits"),
        (b"admin = \"canary\"", "line 1"),
        (b"\n\ncanary canary\n", "line 3"),
        (b"canary \xff", "it is not UTF-8"),
    ];
    for (text, says) in rows {
        fs::write(data.join("keys.toml"), text).expect("a file");
        let said = run(&mut serve(directory.path())).with(2);
        assert!(said.contains("data/keys.toml is damaged: ") && said.contains(says), "{said}");
        assert!(said.contains("take it from a backup"), "{said}");
        assert!(!said.contains("canary") && said.lines().count() == 1, "{said}");
        assert_eq!(fs::read_dir(&data).expect("a directory").count(), 1, "nothing is made beside the file");
    }
}

#[test]
fn a_file_as_data_is_a_usage_error() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("data"), "a letter").expect("a file");
    fs::write(directory.path().join("rows.jsonl"), "").expect("a file");
    let commands: [&[&str]; 6] = [
        &["serve", "--listen", "127.0.0.1:0"],
        &["config", "check", "--"],
        &["verify"],
        &["export"],
        &["import", "rows.jsonl"],
        &["restore", "--from", "rows.jsonl"],
    ];
    for words in commands {
        let said = firstcome(directory.path(), &[words, &["--data", "data"]].concat()).with(2);
        assert!(said.contains("--data is a directory: data is a file"), "{words:?}: {said}");
    }
    assert_eq!(fs::read(directory.path().join("data")).expect("a file"), b"a letter");
}

const ADMIN: &str = "canary-admin-6f1d2c9b7a3e5084";
const SERVICES: [&str; 2] = ["canary-service-a-91b4e7d2c6f0", "canary-service-b-05c8f3a1e97d"];

#[test]
fn keys_of_the_environment_are_used_and_never_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = serve(directory.path());
    command.env("FIRSTCOME_ADMIN_KEY", ADMIN).env("FIRSTCOME_SERVICE_KEYS", SERVICES.join(","));
    let mut server = Server::spawn(command.env("FIRSTCOME_LOG", "trace"));
    assert_eq!(scope(&server, ADMIN), "admin");
    assert_eq!(SERVICES.map(|key| scope(&server, key)), ["service", "service"]);
    let pages = ["/metrics", "/openapi.json", "/docs", "/", "/readyz"];
    let mut client = Client::with_key(server.address(), ADMIN);
    let told: String = pages.iter().map(|page| client.get(page).text()).collect();
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
    let told = told + &server.output() + &server.errors();
    assert!(told.contains("listening"), "{told}");
    assert!(!told.contains("canary-"), "a key is told: {told}");
    assert_eq!(files_with(directory.path(), "canary-"), Vec::<String>::new());
    assert!(!directory.path().join("data").join("keys.toml").exists(), "no others are made");
}

#[test]
fn keys_come_from_files_too() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("admin"), format!("{ADMIN}\n")).expect("a file");
    fs::write(directory.path().join("services"), SERVICES.join("\n")).expect("a file");
    let mut command = serve(directory.path());
    command.env("FIRSTCOME_ADMIN_KEY_FILE", "admin").env("FIRSTCOME_SERVICE_KEYS_FILE", "services");
    let server = Server::spawn(&mut command);
    assert_eq!(scope(&server, ADMIN), "admin");
    assert_eq!(SERVICES.map(|key| scope(&server, key)), ["service", "service"]);
    server.stop();
}

#[test]
fn bad_keys_are_a_usage_error_and_are_not_repeated() {
    let directory = tempfile::tempdir().expect("a directory");
    let tables: [&[(&str, &str)]; 5] = [
        &[("FIRSTCOME_ADMIN_KEY", "canary-short")],
        &[("FIRSTCOME_ADMIN_KEY", "")],
        &[("FIRSTCOME_SERVICE_KEYS", "canary-service-a-91b4e7d2c6f0,canary-short")],
        &[("FIRSTCOME_ADMIN_KEY_FILE", "absent")],
        &[("FIRSTCOME_ADMIN_KEY", ADMIN), ("FIRSTCOME_ADMIN_KEY_FILE", "absent")],
    ];
    for variables in tables {
        let ended = run(serve(directory.path()).envs(variables.iter().copied()));
        assert!(!ended.stdout.contains("canary-") && !ended.stderr.contains("canary-"), "{ended:?}");
        let said = ended.with(2);
        assert!(said.contains(variables[0].0), "{said}");
        assert!(!directory.path().join("data").exists(), "a wrong call makes nothing");
    }
}
