//! Imports that must not be: the line is named, and nothing of the whole file comes in.

use crate::support::program::{firstcome, rows};
use crate::support::server::Server;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// A directory `data` with coupon `launch`, two claims of five, and its export.
fn filled() -> (tempfile::TempDir, Vec<String>) {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start_with(directory.path(), &["--coupon", "launch=5"]);
    for user in ["ann", "bob"] {
        assert_eq!(server.client().claim("launch", user, None).expect("it is answered").status, 201);
    }
    server.stop();
    let lines = firstcome(directory.path(), &["export", "--data", "data"]).well();
    (directory, rows(&lines))
}

/// A line with some of its members changed; `null` takes a member out.
fn changed(line: &str, changes: &Value) -> String {
    let mut line: Value = serde_json::from_str(line).expect("a line is JSON");
    for (name, value) in changes.as_object().expect("an object") {
        let members = line.as_object_mut().expect("a line is an object");
        members.remove(name);
        if !value.is_null() {
            members.insert(name.clone(), value.clone());
        }
    }
    line.to_string()
}

/// The file is refused with these words, and the directory stays as it was.
#[track_caller]
fn refused(here: &Path, data: &str, name: &str, text: &str, more: &[&str], words: &[&str]) {
    fs::write(here.join(name), text).expect("a file");
    let before = here.join(data).exists().then(|| rows(&firstcome(here, &["export", "--data", data]).well()));
    let arguments = [&["import", "--data", data][..], more, &[name]].concat();
    let said = firstcome(here, &arguments).with(1);
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
    let after = rows(&firstcome(here, &["export", "--data", data]).well());
    assert_eq!(after, before.unwrap_or_default(), "all or nothing");
}

#[test]
fn a_wrong_json_line_is_named_and_nothing_comes_in() {
    let (directory, lines) = filled();
    let [coupon, ann, bob] = lines.as_slice() else { panic!("{lines:?}") };
    let other_secret = changed(coupon, &json!({"voucher_key": "ab".repeat(32)}));
    let table: &[(&str, Vec<String>, &[&str])] = &[
        ("not JSON", vec![coupon.clone(), "{".into()], &["line 2", "nothing was imported"]),
        ("empty object", vec!["{}".into()], &["line 1", "kind"]),
        ("unknown kind", vec![changed(coupon, &json!({"kind": "auction"}))], &["line 1", "auction"]),
        ("misspelt", vec![changed(coupon, &json!({"expire_at": "2030-01-01T00:00:00Z"}))], &["line 1", "expire_at"]),
        ("time", vec![coupon.clone(), changed(ann, &json!({"issued_at": "yesterday"}))], &["line 2", "yesterday"]),
        ("name", vec![coupon.clone(), changed(ann, &json!({"user": "a b"}))], &["line 2", "user"]),
        ("limit", vec![changed(coupon, &json!({"limit": 0}))], &["line 1", "limit"]),
        ("short secret", vec![changed(coupon, &json!({"voucher_key": "ab"}))], &["line 1", "voucher_key"]),
        ("no coupon", vec![ann.clone()], &["line 1", "no coupon launch"]),
        ("gap", vec![coupon.clone(), bob.clone()], &["line 2", "serials are not exactly"]),
        ("twice", vec![coupon.clone(), ann.clone(), ann.clone()], &["line 3", "serials are not exactly"]),
        ("over the limit", vec![changed(coupon, &json!({"limit": 1})), ann.clone(), bob.clone()], &["line 3", "limit"]),
        ("other secret", vec![other_secret, ann.clone()], &["line 2", "another secret"]),
        ("differs", vec![coupon.clone(), changed(coupon, &json!({"limit": 6}))], &["line 2", "differs"]),
        (
            "redeemed before issued",
            vec![coupon.clone(), changed(ann, &json!({"redeemed_at": "2001-01-01T00:00:00Z"}))],
            &["line 2", "redeemed before it was issued"],
        ),
        (
            "attributes are no object",
            vec![coupon.clone(), changed(ann, &json!({"attributes": [1]}))],
            &["line 2", "attributes"],
        ),
        (
            "duplicate user",
            vec![coupon.clone(), ann.clone(), changed(bob, &json!({"user": "ann", "code": null}))],
            &["line 3", "holds two claims"],
        ),
        (
            "a code that is another user's",
            vec![coupon.clone(), ann.clone(), changed(bob, &json!({"user": "cid"}))],
            &["line 3", "serial 2", "the code was made"],
        ),
    ];
    for (at, (what, lines, words)) in table.iter().enumerate() {
        println!("{what}");
        refused(directory.path(), &format!("new-{at}"), "bad.jsonl", &lines.join("\n"), &[], words);
    }
}

#[test]
fn a_coupon_that_is_there_and_differs_or_has_claims_is_refused() {
    let (directory, lines) = filled();
    let mine = lines.join("\n");
    refused(directory.path(), "data", "mine.jsonl", &mine, &[], &["line 1", "coupon launch exists already"]);
    let longer = changed(&lines[0], &json!({"limit": 9}));
    refused(directory.path(), "data", "longer.jsonl", &longer, &[], &["line 1", "coupon launch exists already"]);
    let rows = "coupon,user\nlaunch,cid\n";
    refused(directory.path(), "data", "rows.csv", rows, &["--coupon", "launch=5"], &["launch exists already"]);
}

#[test]
fn a_wrong_row_of_winners_is_named_and_nothing_comes_in() {
    let (directory, lines) = filled();
    let claim: Value = serde_json::from_str(&lines[1]).expect("a line is JSON");
    let code = claim["code"].as_str().expect("a code");
    let table = [
        ("coupon,user\nlaunch,cid\nlaunch,ann\n", "line 3", "holds two claims"),
        ("coupon,user\nlaunch,c\nlaunch,d\nlaunch,e\nlaunch,f\n", "line 5", "more claims than the limit"),
        ("coupon,user\nlaunch,cid\nother,cid\n", "line 3", "no coupon other"),
        ("coupon,user\nlaunch,cid\nlaunch,c d\n", "line 3", "user"),
        ("coupon,user\nlaunch,cid\nlaunch\n", "line 3", "nothing was imported"),
        ("coupon,user,colour\nlaunch,cid,red\n", "line 2", "colour"),
        ("coupon,serial,user\nlaunch,4,cid\n", "line 2", "serials are not exactly"),
        ("coupon,serial,user\nlaunch,0,cid\n", "line 2", "serial"),
        ("coupon,user,issued_at\nlaunch,cid,2001-01-01T00:00:00Z\n", "line 2", "earlier instant"),
        ("coupon,user,redeemed_at\nlaunch,cid,2001-01-01T00:00:00Z\n", "line 2", "redeemed before"),
        ("coupon,user,attributes\nlaunch,cid,7\n", "line 2", "attributes"),
        ("coupon,user,code\nlaunch,cid,22229-HXKQ3-9WBRT-5MZCA\n", "line 2", "another secret"),
    ];
    for (text, line, words) in table {
        refused(directory.path(), "data", "bad.csv", text, &[], &[line, words, "nothing was imported"]);
    }
    // Another caller's code, though it is one of this very coupon.
    let stolen = format!("coupon,user,code\nlaunch,cid,{code}\n");
    refused(directory.path(), "data", "stolen.csv", &stolen, &[], &["line 2", "another secret"]);
}

#[test]
fn nothing_is_imported_into_a_directory_in_use() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start_with(directory.path(), &["--coupon", "launch=5"]);
    fs::write(directory.path().join("winners.csv"), "coupon,user\nlaunch,ann\n").expect("a file");
    let said = firstcome(directory.path(), &["import", "--data", "data", "winners.csv"]).with(3);
    assert!(said.contains("another process has data open"), "{said}");
    assert_eq!(server.client().claims("launch").len(), 0);
    server.stop();
    firstcome(directory.path(), &["import", "--data", "data", "winners.csv"]).well();
}

#[test]
fn a_file_that_is_not_there_makes_no_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let said = firstcome(directory.path(), &["import", "--data", "data", "absent.jsonl"]).with(2);
    assert!(said.contains("absent.jsonl"), "{said}");
    assert!(!directory.path().join("data").exists());
}
