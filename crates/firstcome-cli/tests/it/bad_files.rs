//! Directories that are in use, foreign, of a later version, damaged, or contradict the rules: refused, and told why.

use crate::support::program::{firstcome, rows};
use crate::support::server::Server;
use crate::support::wait_for;
use rusqlite::Connection;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const SERVE: [&str; 6] = ["serve", "--dev", "--listen", "127.0.0.1:0", "--data", "data"];
/// More than anybody claims before the end, so that a test that fails ends too.
const CLAIMS_MAX: u32 = 10_000;
const VERIFY: [&str; 4] = ["verify", "--json", "--data", "data"];
const EXPORT: [&str; 3] = ["export", "--data", "data"];

fn database(directory: &Path) -> PathBuf {
    directory.join("data").join("firstcome.db")
}

/// A directory with two coupons: `launch` with so many claims, and `other` with one that is redeemed.
fn filled(claims: usize) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start_with(directory.path(), &["--coupon", "launch=1000", "--coupon", "other=1"]);
    let mut client = server.client();
    for number in 1..=claims {
        let key = format!("key-{number}");
        let answer = client.claim("launch", &format!("person-{number}"), Some(&key)).expect("it is answered");
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    let code = client.claim("other", "ann", None).expect("it is answered").json()["code"].clone();
    let redeemed = client.call("POST", "/v1/coupons/other/redemptions", Some(&serde_json::json!({"code": code})));
    assert_eq!(redeemed.status, 201, "{}", redeemed.text());
    server.stop();
    directory
}

/// The service does not start, and says so in these words.
#[track_caller]
fn refused(directory: &Path, words: &[&str]) {
    let ended = firstcome(directory, &SERVE);
    assert!(!ended.stdout.contains("listening"), "{}", ended.stdout);
    let said = ended.with(3);
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
}

#[test]
fn a_directory_in_use_is_refused_to_a_second_service_and_can_be_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start_with(directory.path(), &["--coupon", "launch=10"]);
    let mut client = server.client();
    assert_eq!(client.claim("launch", "ann", None).expect("it is answered").status, 201);
    refused(directory.path(), &["another process has data open", "stop the other process"]);
    let report = firstcome(directory.path(), &VERIFY).well();
    assert!(report.contains("\"breaches\": 0"), "{report}");
    let lines = firstcome(directory.path(), &EXPORT).well();
    assert_eq!(rows(&lines).len(), 2, "{lines}");
    // No caller was disturbed by that.
    assert_eq!(client.claim("launch", "bob", None).expect("it is answered").status, 201);
    server.stop();
    Server::start(directory.path()).stop();
}

#[test]
fn beside_a_busy_service_every_look_is_whole() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start_with(directory.path(), &["--coupon", "launch=1000000"]);
    let (told, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (mut client, told, done) = (server.client(), &told, &done);
            scope.spawn(move || {
                for number in (0..CLAIMS_MAX).take_while(|_| !done.load(Ordering::Relaxed)) {
                    let answer = client.claim("launch", &format!("person-{thread}-{number}"), None);
                    assert_eq!(answer.expect("it is answered").status, 201);
                    told.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for look in 1..=5 {
            let told = wait_for("more claims", || Some(told.load(Ordering::SeqCst)).filter(|told| look * 20 < *told));
            let (report, lines) = (firstcome(directory.path(), &VERIFY), firstcome(directory.path(), &EXPORT));
            done.store(look == 5 || report.code != Some(0) || lines.code != Some(0), Ordering::Relaxed);
            report.well();
            let serials: Vec<Value> = rows(&lines.well()).iter().skip(1).map(|row| serial(row)).collect();
            assert_eq!(serials, Vec::from_iter(1..=serials.len()));
            assert!(told <= serials.len(), "{told} were told, {} are there", serials.len());
        }
    });
    server.stop();
}

fn serial(line: &str) -> Value {
    let claim: Value = serde_json::from_str(line).expect("a line is JSON");
    claim["serial"].clone()
}

#[test]
fn a_killed_service_leaves_its_directory_free() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::start(directory.path());
    server.kill();
    Server::start(directory.path()).stop();
}

#[test]
fn a_file_of_a_later_version_is_refused_and_left_as_it_is() {
    let directory = filled(1);
    let connection = Connection::open(database(directory.path())).expect("a database");
    connection.pragma_update(None, "user_version", 99).expect("it can be changed");
    drop(connection);
    let before = fs::read(database(directory.path())).expect("a file");
    refused(directory.path(), &["schema version 99", "a later one"]);
    firstcome(directory.path(), &VERIFY).with(3);
    firstcome(directory.path(), &EXPORT).with(3);
    assert_eq!(fs::read(database(directory.path())).expect("a file"), before);
}

#[test]
fn a_file_of_another_program_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("data")).expect("a directory");
    let connection = Connection::open(database(directory.path())).expect("a database");
    connection.execute_batch("CREATE TABLE note (text TEXT); INSERT INTO note VALUES ('mine')").expect("a table");
    drop(connection);
    let before = fs::read(database(directory.path())).expect("a file");
    refused(directory.path(), &["another program"]);
    firstcome(directory.path(), &VERIFY).with(3);
    assert_eq!(fs::read(database(directory.path())).expect("a file"), before);
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("data")).expect("a directory");
    let garbage = b"This is a letter to my aunt, not a database. ".repeat(300);
    fs::write(database(directory.path()), &garbage).expect("a file");
    refused(directory.path(), &["not a database"]);
    firstcome(directory.path(), &VERIFY).with(3);
    assert_eq!(fs::read(database(directory.path())).expect("a file"), garbage);
}

#[test]
fn a_directory_without_a_store_cannot_be_verified_or_exported() {
    let directory = tempfile::tempdir().expect("a directory");
    for look in [&VERIFY[..], &EXPORT] {
        let said = firstcome(directory.path(), look).with(2);
        assert!(said.contains("no store at data: there is no such directory; check --data"), "{said}");
    }
    assert!(!directory.path().join("data").exists(), "looking makes nothing");
}

#[test]
fn a_truncated_file_is_damaged() {
    let directory = filled(400);
    let file = fs::File::options().write(true).open(database(directory.path())).expect("a file");
    let length = file.metadata().expect("it is there").len();
    file.set_len(length / 2 / 4096 * 4096).expect("it can be cut");
    drop(file);
    refused(directory.path(), &["restore a backup"]);
    let ended = firstcome(directory.path(), &VERIFY);
    assert!(matches!(ended.code, Some(1 | 3)), "{ended:?}");
}

#[test]
fn a_page_of_claims_with_flipped_bytes_is_damaged() {
    let directory = filled(400);
    let mut bytes = fs::read(database(directory.path())).expect("a file");
    let name = b"person-200";
    let at = bytes.windows(name.len()).position(|window| window == name).expect("the row is there");
    for byte in &mut bytes[at..at + 256] {
        *byte ^= 0xff;
    }
    fs::write(database(directory.path()), bytes).expect("it can be written");
    refused(directory.path(), &["restore a backup"]);
    let ended = firstcome(directory.path(), &VERIFY);
    assert!(matches!(ended.code, Some(1 | 3)), "{ended:?}");
}

#[test]
fn rows_that_contradict_the_rules_are_refused_and_the_broken_invariant_is_named() {
    let table = [
        ("DELETE FROM claim WHERE user = 'person-5'", "gapless", "serials are not exactly"),
        ("UPDATE claim SET user = 'person-1' WHERE user = 'person-7'", "one each", "holds two claims"),
        ("UPDATE coupon SET limit_count = 9 WHERE name = 'launch'", "no oversell", "more claims than the limit"),
        ("UPDATE claim SET issued_at = issued_at - 3600000000 WHERE user = 'person-8'", "in order", "earlier instant"),
        ("DELETE FROM coupon WHERE name = 'launch'", "every claim belongs", "does not exist"),
        ("UPDATE claim SET user = 'not a name' WHERE user = 'person-3'", "users and attributes", "serial 3: user"),
        (
            "UPDATE claim SET request_key = (SELECT request_key FROM claim WHERE user = 'person-1')
             WHERE user = 'person-2'",
            "an idempotency key",
            "made two claims",
        ),
        ("DELETE FROM claim WHERE user = 'ann'", "a redemption has its claim", "redemption without its claim"),
        ("UPDATE redemption SET redeemed_at = redeemed_at - 3600000000", "a redemption has its claim", ""),
    ];
    all_named(&filled(10), &table);
}

#[test]
fn rooms_that_contradict_the_rules_are_refused_and_the_broken_invariant_is_named() {
    let table = [
        ("DELETE FROM ticket WHERE user = 'user-4'", "a number is drawn once", "a number is missing"),
        ("UPDATE ticket SET user = 'user-5' WHERE user = 'user-6'", "one living place", "two living tickets"),
        (
            "UPDATE ticket SET request_key = zeroblob(16), request_body = 0 WHERE user IN ('user-5', 'user-6')",
            "one living place",
            "two living tickets",
        ),
        ("UPDATE ticket SET user = 'not a name' WHERE user = 'user-3'", "users of tickets", "number 3"),
        ("UPDATE ticket SET gone = 1 WHERE user = 'user-1'", "in line, in a slot or gone", "without its living ticket"),
        ("DELETE FROM room", "every ticket and slot belongs", "does not exist"),
        ("UPDATE room SET reached = 99", "the line has reached", "more than was drawn"),
        ("UPDATE room SET reached = 1", "the line has reached", "more than was drawn"),
        (
            "INSERT INTO slot SELECT id + 2, admission, admitted_at, taken, until_steady FROM slot",
            "an admission stands once",
            "more than was drawn",
        ),
        ("UPDATE ticket SET gone = 7 WHERE user = 'user-6'", "", "unknown departure 7"),
        ("UPDATE room SET max_active = 0", "", "max_active must be"),
    ];
    all_named(&with_a_line(), &table);
}

/// A directory with a room: `user-1` has taken its one slot, `user-2` to `user-6` wait.
fn with_a_line() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path());
    let mut client = server.client();
    let json = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    assert_eq!(client.call("PUT", "/v1/rooms/sale", Some(&json(r#"{"max_active":1}"#))).status, 201);
    let joined = (1..=6).map(|number| {
        let body = json(&format!(r#"{{"user":"user-{number}"}}"#));
        client.call("POST", "/v1/rooms/sale/tickets", Some(&body)).json()["ticket"]
            .as_str()
            .expect("a ticket")
            .to_owned()
    });
    let tickets: Vec<String> = joined.collect();
    wait_for("the first to be admitted", || {
        let place = client.get(&format!("/v1/rooms/sale/tickets/{}", tickets[0])).json();
        (place["state"] == "admitted").then_some(())
    });
    server.stop();
    directory
}

#[test]
fn a_changed_signature_of_a_head_is_named() {
    let directory = with_a_line();
    let server = Server::start(directory.path());
    wait_for("a second head", || {
        server.client().get("/v1/rooms/sale/heads").text().contains("sequence 2\n").then_some(())
    });
    server.stop();
    firstcome(directory.path(), &VERIFY).well();
    let connection = Connection::open(database(directory.path())).expect("a database");
    // The chain names the texts of heads, not their signatures, so the last one does not stand for those before.
    let change = "UPDATE head SET signature = zeroblob(64) WHERE sequence = 1";
    assert_eq!(connection.execute(change, []).expect(change), 1);
    drop(connection);
    let ended = firstcome(directory.path(), &VERIFY);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).expect("the report is JSON");
    let broken: Vec<&Value> =
        report["checks"].as_array().expect("checks").iter().filter(|check| check["breaches"] != 0).collect();
    assert!(broken.len() == 1 && broken[0]["examples"][0] == "room sale, head 1", "{broken:?}");
}

/// Each change of a copy must be named by the offline check (where it reaches that far), and refused at the start.
#[track_caller]
fn all_named(original: &tempfile::TempDir, table: &[(&str, &str, &str)]) {
    for &(change, invariant, words) in table {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("data")).expect("a directory");
        fs::copy(database(original.path()), database(directory.path())).expect("a copy");
        let connection = Connection::open(database(directory.path())).expect("a database");
        assert!(0 < connection.execute(change, []).expect(change), "{change}");
        drop(connection);
        refused(directory.path(), &[words, "restore a backup"]);
        let ended = firstcome(directory.path(), &VERIFY);
        if invariant.is_empty() {
            // What is no row at all ends the check.
            ended.with(3);
            continue;
        }
        assert_eq!(ended.code, Some(1), "{change}: {ended:?}");
        let report: Value = serde_json::from_str(&ended.stdout).expect("the report is JSON");
        let checks = report["checks"].as_array().expect("checks").iter();
        let broken: Vec<&str> = checks
            .filter(|check| check["breaches"] != 0)
            .map(|check| {
                assert!(!check["examples"].as_array().expect("examples").is_empty(), "{check}");
                check["invariant"].as_str().expect("a text")
            })
            .collect();
        assert!(broken.iter().any(|text| text.starts_with(invariant)), "{change}: {broken:?}");
    }
}
