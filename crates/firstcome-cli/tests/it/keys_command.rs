//! `firstcome keys`: keys that an operator creates, rotates and revokes while the service runs.

use crate::keys::{files_with, scope, serve};
use crate::support::program::{Ended, PROGRAM, command, firstcome, run};
use crate::support::server::Server;
use firstcome::edge::Stopwatch;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

const ADMIN: &str = "canary-admin-6f1d2c9b7a3e5084";

/// Runs `firstcome keys` against this service with an admin key.
#[track_caller]
fn keys(server: &Server, directory: &Path, admin: &str, arguments: &[&str]) -> Ended {
    let url = format!("http://{}", server.address());
    run(command(PROGRAM, directory).arg("keys").args(arguments).args(["--url", &url]).env("FIRSTCOME_ADMIN_KEY", admin))
}

/// The key that a command has printed, as its only line.
#[track_caller]
fn printed(ended: Ended) -> String {
    let output = ended.well();
    let key = output.trim_end().to_owned();
    assert_eq!(output, format!("{key}\n"));
    assert!(key.starts_with("fc_") && !key.contains(char::is_whitespace), "{key}");
    key
}

fn start(directory: &Path) -> Server {
    Server::spawn(serve(directory).env("FIRSTCOME_ADMIN_KEY", ADMIN).env("FIRSTCOME_LOG", "trace"))
}

#[test]
fn a_key_is_created_rotated_and_revoked_and_outlives_a_killed_service() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let mut server = start(here);
    let one = printed(keys(&server, here, ADMIN, &["create", "shop", "--scope", "service", "--expires", "90d"]));
    assert_eq!(scope(&server, &one), "service");
    server.kill();
    let told = server.output() + &server.errors();
    let mut server = start(here);
    assert_eq!(scope(&server, &one), "service", "what was printed is durable");
    let two = printed(keys(&server, here, ADMIN, &["rotate", "shop", "--old-valid-for", "1h"]));
    server.kill();
    let told = told + &server.output() + &server.errors();
    let mut server = start(here);
    assert_eq!((scope(&server, &one), scope(&server, &two)), ("service", "service"));
    let three = printed(keys(&server, here, ADMIN, &["rotate", "shop", "--old-valid-for", "0s"]));
    assert_eq!([&one, &two, &three].map(|key| scope(&server, key)), ["none", "none", "service"]);
    let list = keys(&server, here, ADMIN, &["list"]).well();
    assert!(list.contains("\"shop\"") && list.contains("\"active\"") && !list.contains("fc_"), "{list}");
    assert_eq!(keys(&server, here, ADMIN, &["revoke", "shop"]).well(), "");
    assert_eq!(scope(&server, &three), "none");
    server.kill();
    let told = told + &server.output() + &server.errors();
    let server = start(here);
    assert_eq!(scope(&server, &three), "none", "a revocation is durable");
    server.stop();
    for key in [&one, &two, &three] {
        assert!(!told.contains(key.as_str()), "the service tells a key");
        assert_eq!(files_with(here, key), Vec::<String>::new(), "a key is kept in clear");
    }
    assert!(!told.contains("canary-"), "the service tells a key");
}

#[test]
fn keys_of_the_first_start_are_left_in_a_file_and_can_be_rotated_for_good() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let mut server = Server::spawn(&mut serve(here));
    let (admin, service) = (server.first_key("admin"), server.first_key("service"));
    let file = here.join("data").join("first-keys.txt");
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    fs::remove_file(&file).expect("it is ours");
    let exported = firstcome(here, &["export", "--data", "data"]).well();
    assert!(exported.contains("api_key:admin") && exported.contains("api_key:service"), "{exported}");
    let new = printed(keys(&server, here, &admin, &["rotate", "admin", "--old-valid-for", "0s"]));
    keys(&server, here, &new, &["revoke", "service"]).well();
    server.terminate();
    server.wait();
    let told = server.output() + &server.errors();
    assert!(told.contains(&file.display().to_string()), "the path is told: {told}");
    assert!(!told.contains("fc_"), "a key is told: {told}");
    let server = Server::spawn(&mut serve(here));
    assert_eq!([&admin, &service, &new].map(|key| scope(&server, key)), ["none", "none", "admin"]);
    assert!(!file.exists(), "the file is left once");
    let exported = firstcome(here, &["export", "--data", "data"]).well();
    assert!(!exported.contains("api_key:"), "keys that have ended must not count where the data go: {exported}");
    // An operator who has lost the admin key lets the next start make others.
    server.stop();
    fs::remove_file(here.join("data").join("keys.toml")).expect("it is ours");
    let mut server = Server::spawn(&mut serve(here));
    let fresh = server.first_key("admin");
    assert_eq!((scope(&server, &fresh), scope(&server, &admin)), ("admin", "none"));
    let list = keys(&server, here, &fresh, &["list"]).well();
    assert!(list.contains("\"admin-2\""), "{list}");
    server.stop();
}

#[test]
fn a_wrong_call_says_what_is_wrong_by_its_exit_code() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = start(here);
    let said = keys(&server, here, ADMIN, &["revoke", "none"]).with(1);
    assert!(said.contains("unknown_api_key"), "{said}");
    let said = keys(&server, here, "canary-stranger-6f1d2c9b7a3e", &["list"]).with(1);
    assert!(said.contains("does not know this key") && said.contains("--key-file"), "{said}");
    assert!(!said.contains("canary"), "{said}");
    let service = printed(keys(&server, here, ADMIN, &["create", "till", "--scope", "service"]));
    let ask = |words: &[&str]| {
        let url = format!("http://{}", server.address());
        run(command(PROGRAM, here).args(words).args(["--url", &url]).env("FIRSTCOME_ADMIN_KEY", &service))
    };
    for words in [&["keys", "list"][..], &["pass-keys", "rotate"], &["erase", "--user", "ann"], &["purge"]] {
        let said = ask(words).with(1);
        assert!(said.contains("this needs an admin key") && !said.contains(&service), "{words:?}: {said}");
    }
    let said = run(command(PROGRAM, here).args(["keys", "list"])).with(2);
    assert!(said.contains("FIRSTCOME_ADMIN_KEY"), "{said}");
    keys(&server, here, ADMIN, &["create", "a b", "--scope", "view"]).with(2);
    keys(&server, here, ADMIN, &["create", "shop", "--scope", "view", "--expires", "1w"]).with(2);
    fs::write(here.join("key"), format!("{ADMIN}\n")).expect("a file");
    let url = format!("http://{}", server.address());
    run(command(PROGRAM, here).args(["keys", "list", "--key-file", "key", "--url", &url])).well();
    server.stop();
}

#[test]
fn a_service_that_is_not_there_is_told_soon_and_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let commands: [&[&str]; 6] = [
        &["keys", "list"],
        &["keys", "create", "shop", "--scope", "view"],
        &["pass-keys", "list"],
        &["pass-keys", "rotate"],
        &["erase", "--user", "ann"],
        &["purge"],
    ];
    for words in commands {
        let watch = Stopwatch::start();
        let mut ask = command(PROGRAM, directory.path());
        ask.args(words).args(["--url", "http://127.0.0.1:1"]).env("FIRSTCOME_ADMIN_KEY", ADMIN);
        let said = run(&mut ask).with(3);
        assert!(watch.elapsed() < Duration::from_secs(20), "{words:?} took {:?}", watch.elapsed());
        assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
        assert_eq!(said.matches("http://127.0.0.1:1").count(), 1, "{words:?}: {said}");
        assert!(said.contains("check that it runs, and the address") && !said.contains("tried again"), "{said}");
    }
}

#[test]
fn no_command_sends_an_admin_key_in_plain_text_to_another_machine() {
    let directory = tempfile::tempdir().expect("a directory");
    let commands: [&[&str]; 4] = [&["keys", "list"], &["pass-keys", "list"], &["erase", "--user", "ann"], &["purge"]];
    let ask = |words: &[&str]| {
        run(command(PROGRAM, directory.path()).args(words).env("FIRSTCOME_ADMIN_KEY", "s3cret-0123456789-0123456789"))
    };
    for words in commands {
        let said = ask(&[words, &["--url", "http://shop.invalid:8080"]].concat()).with(2);
        assert!(
            said.contains("shop.invalid") && said.contains("https://") && !said.contains("s3cret"),
            "{words:?}: {said}"
        );
    }
    // What is allowed is tried.
    ask(&["keys", "list", "--url", "http://shop.invalid:8080", "--allow-plaintext"]).with(3);
}
