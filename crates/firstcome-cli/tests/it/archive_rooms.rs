//! Waiting rooms out and in again: everybody keeps the place, the pass and the key that they have.

use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, firstcome, rows, run};
use crate::support::server::Server;
use crate::support::wait_for;
use crate::support::world::SECRET;
use serde_json::{Value, json};
use std::path::Path;

/// The one who is inside, and those who wait: tickets, the pass, the keys of callers.
pub(crate) struct Hall {
    pub(crate) admin: String,
    pub(crate) service: String,
    pub(crate) tickets: Vec<Value>,
    pub(crate) pass: Value,
    /// The first ticket of a visitor whose ticket was renewed.
    pub(crate) void: Value,
    /// The public records of two draws: of one that is still to come, and of one that took place.
    pub(crate) draws: [Value; 2],
}

/// A service over a directory of its own keys.
pub(crate) fn serve(here: &Path, data: &str) -> Server {
    Server::spawn(command(PROGRAM, here).args(["serve", "--listen", "127.0.0.1:0", "--data", data]))
}

/// A key that a service has shown.
pub(crate) fn shown(server: &mut Server, name: &str) -> String {
    server.first_key(name)
}

fn path_of(ticket: &Value) -> String {
    format!("/v1/rooms/hall/tickets/{}", ticket.as_str().expect("a ticket"))
}

/// How the page of the room looks.
fn look() -> Value {
    json!({
        "texts": {"title": "Spring concert"},
        "translations": {"ko": {"title": "봄 콘서트"}},
        "colors": {"accent": "#0b6e5f", "background": "#ffffff", "text": "#16202c"},
        "style": "main { border-radius: 0 }",
        "logo": "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4=",
    })
}

impl Hall {
    /// Opens the room `hall` for one at a time. Ann is inside, a caller waits, bob has left, dan waits; and rooms that are
    /// closed, open again, and empty.
    pub(crate) fn fill(server: &mut Server) -> Self {
        let (admin, service) = (shown(server, "admin"), shown(server, "service"));
        let mut client = Client::with_key(server.address(), &admin);
        let settings = json!({
            "max_active": 1, "message": "Gleich, \"bald\"", "opens_at": "2020-01-01T00:00:00Z", "first_poll_ms": 3_600_000
        });
        assert_eq!(client.put_status("/v1/rooms/hall", &settings), 201);
        assert_eq!(client.put_status("/v1/rooms/hall/appearance", &look()), 200);
        let mut join = |room: &str, key: Option<&str>, body: Value| {
            let answer = client.try_call("POST", &format!("/v1/rooms/{room}/tickets"), key, Some(&body));
            let answer = answer.expect("it is answered");
            assert_eq!(answer.status, 201, "{}", answer.text());
            answer.json()["ticket"].clone()
        };
        let mut tickets = vec![
            join("hall", Some("ann-1"), json!({"user": "ann"})),
            join("hall", None, json!({})),
            join("hall", None, json!({"user": "bob"})),
            join("hall", None, json!({"user": "dan"})),
        ];
        let pass = wait_for("a pass", || {
            let seen = client.get(&path_of(&tickets[0])).json();
            seen.get("pass").cloned()
        });
        assert_eq!(client.call("DELETE", &path_of(&tickets[2]), None).status, 204);
        // The caller without a name went on with another device.
        let renewed = client.try_call("POST", &format!("{}/renew", path_of(&tickets[1])), Some("other-device"), None);
        let renewed = renewed.expect("it is answered");
        assert_eq!(renewed.status, 200, "{}", renewed.text());
        let void = std::mem::replace(&mut tickets[1], renewed.json()["ticket"].clone());
        for room in ["closed", "again", "empty"] {
            assert_eq!(client.put_status(&format!("/v1/rooms/{room}"), &json!({"max_active": 3, "paused": true})), 201);
        }
        for room in ["closed", "again"] {
            let body = json!({"user": "eve"});
            let joined = client.call("POST", &format!("/v1/rooms/{room}/tickets"), Some(&body));
            assert_eq!(joined.status, 201, "{}", joined.text());
            assert_eq!(client.call("DELETE", &format!("/v1/rooms/{room}"), None).status, 204);
        }
        assert_eq!(client.put_status("/v1/rooms/again", &json!({"max_active": 2, "paused": true})), 200);
        let draws = draws(&mut client);
        Self { admin, service, tickets, pass, void, draws }
    }

    /// All is as it was: at another service, which knows the same keys.
    pub(crate) fn judge(&self, server: &Server) {
        let mut client = Client::with_key(server.address(), &self.service);
        let seen: Vec<Value> = self.tickets.iter().map(|ticket| client.get(&path_of(ticket)).json()).collect();
        let states: Vec<_> = seen.iter().map(|seen| (seen["number"].as_u64(), seen["state"].as_str())).collect();
        let states: Vec<_> =
            states.into_iter().map(|(number, state)| (number.unwrap_or(0), state.unwrap_or(""))).collect();
        assert_eq!(states, [(1, "admitted"), (2, "waiting"), (3, "left"), (4, "waiting")], "{seen:?}");
        assert_eq!((&seen[1]["position"], &seen[3]["position"]), (&json!(0), &json!(1)));
        let void = client.get(&path_of(&self.void));
        assert_eq!((void.status, void.code().as_str()), (409, "ticket_renewed"), "{}", void.text());
        let checked = client.call("POST", "/v1/rooms/hall/passes/verify", Some(&json!({"pass": self.pass})));
        assert_eq!((checked.status, &checked.json()["valid"]), (200, &json!(true)), "{}", checked.text());
        let mut client = Client::with_key(server.address(), &self.admin);
        let ann = json!({"user": "ann"});
        let again = client.try_call("POST", "/v1/rooms/hall/tickets", Some("ann-1"), Some(&ann)).expect("an answer");
        assert_eq!((again.status, &again.json()["ticket"]), (201, &self.tickets[0]), "{}", again.text());
        let dan = client.call("POST", "/v1/rooms/hall/tickets", Some(&json!({"user": "dan"})));
        assert_eq!((dan.status, &dan.json()["number"]), (200, &json!(4)), "{}", dan.text());
        let message = client.get("/v1/rooms/hall").json();
        assert_eq!(message["settings"]["first_poll_ms"], 3_600_000, "{message}");
        assert_eq!((&message["waiting"], &message["active"]), (&json!(2), &json!(1)), "{message}");
        assert_eq!(client.get("/v1/rooms/hall/appearance").json(), look());
        let eve = json!({"user": "eve"});
        for (room, wanted) in ["lots", "drawn"].into_iter().zip(&self.draws) {
            assert_eq!(&client.get(&format!("/v1/rooms/{room}/draw")).json(), wanted, "{room}");
        }
        let closed = client.call("POST", "/v1/rooms/closed/tickets", Some(&eve));
        assert_eq!((closed.status, closed.code().as_str()), (410, "room_closed"), "{}", closed.text());
    }

    /// It goes on: new numbers follow the old ones, and a caller that is next is let in when a place is free.
    pub(crate) fn go_on(&self, server: &Server) {
        let mut client = Client::with_key(server.address(), &self.service);
        let eve = json!({"user": "eve"});
        for (room, number) in [("again", 2), ("hall", 5), ("empty", 1)] {
            let joined = client.call("POST", &format!("/v1/rooms/{room}/tickets"), Some(&eve));
            assert_eq!((joined.status, &joined.json()["number"]), (201, &json!(number)), "{room}: {}", joined.text());
        }
        let released = client.call("POST", "/v1/rooms/hall/passes/release", Some(&json!({"pass": self.pass})));
        assert_eq!(released.status, 204, "{}", released.text());
        wait_for("the next one inside", || {
            (client.get(&path_of(&self.tickets[1])).json()["state"] == "admitted").then_some(())
        });
        let late = client.get(&path_of(&self.tickets[3])).json();
        assert_eq!((&late["state"], &late["position"]), (&json!("waiting"), &json!(0)), "{late}");
    }
}

/// Makes two rooms with a draw. The second one opens once its visitors are there.
fn draws(client: &mut Client) -> [Value; 2] {
    ["lots", "drawn"].map(|room| {
        let path = format!("/v1/rooms/{room}");
        let settings = |opens_at: &str| json!({"max_active": 1, "paused": true, "order": "draw", "opens_at": opens_at});
        assert_eq!(client.put_status(&path, &settings("2099-01-01T00:00:00Z")), 201);
        for user in ["ann", "bob", "cid"] {
            let joined = client.call("POST", &format!("{path}/tickets"), Some(&json!({"user": user})));
            assert_eq!((joined.status, &joined.json()["state"]), (201, &json!("in_draw")), "{}", joined.text());
        }
        let wanted = if room == "lots" { "committed" } else { "drawn" };
        if wanted == "drawn" {
            assert_eq!(client.put_status(&path, &settings("2020-01-01T00:00:00Z")), 200);
        }
        wait_for("the draw", || {
            let record = client.get(&format!("{path}/draw")).json();
            (record["state"] == wanted).then_some(record)
        })
    })
}

/// A directory `old` with a hall, whose service has ended.
fn filled(here: &Path) -> Hall {
    let mut server = serve(here, "old");
    let hall = Hall::fill(&mut server);
    server.stop();
    hall
}

#[test]
fn rooms_that_are_exported_and_imported_are_the_same_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let hall = filled(here);
    firstcome(here, &["export", "--data", "old", "--output", "first.jsonl"]).well();
    firstcome(here, &["import", "--data", "new", "first.jsonl"]).well();
    firstcome(here, &["verify", "--data", "new"]).well();
    let first = std::fs::read_to_string(here.join("first.jsonl")).expect("a file");
    assert_eq!(first, firstcome(here, &["export", "--data", "new"]).well());
    let server = serve(here, "new");
    hall.judge(&server);
    hall.go_on(&server);
    server.stop();
}

#[test]
fn with_a_secret_nothing_secret_stands_in_the_file_and_only_that_secret_opens_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let mut server = serve(here, "old");
    let hall = Hall::fill(&mut server);
    let mut client = Client::with_key(server.address(), &hall.admin);
    client.put_coupon("launch", 5);
    let code = client.claim("launch", "ann", None).expect("it is answered").json()["code"].clone();
    server.stop();
    std::fs::write(here.join("secret"), SECRET).expect("a file");
    let with = |arguments: &[&str]| run(command(PROGRAM, here).args(arguments).args(["--secret-file", "secret"]));
    let wrapped = with(&["export", "--data", "old"]).well();
    let plain = firstcome(here, &["export", "--data", "old"]).well();
    let secrets: Vec<String> = plain
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .flat_map(|line| ["secret", "voucher_key", "ticket_key"].map(|name| line[name].as_str().map(str::to_owned)))
        .flatten()
        .collect();
    assert_eq!(secrets.len(), 3 + 1 + 1 + 6, "keys of callers and handles, codes, passes, rooms");
    for secret in secrets.iter().map(String::as_str).chain(code.as_str()) {
        assert!(plain.contains(secret) && !wrapped.contains(secret), "{secret}");
    }
    let write = |name: &str, text: &str| std::fs::write(here.join(name), text).expect("a file");
    write("wrapped.jsonl", &wrapped);
    write("plain.jsonl", &plain);
    with(&["import", "--data", "new", "wrapped.jsonl"]).well();
    assert_eq!(plain, firstcome(here, &["export", "--data", "new"]).well());

    // Neither the secret of one room for another, nor that of a coupon for a room.
    let of = |room: &str| {
        let line = wrapped.lines().find(|line| line.contains(&format!("\"room\":\"{room}\",\"max"))).expect("a room");
        serde_json::from_str::<Value>(line).expect("JSON")["ticket_key"].as_str().expect("a secret").to_owned()
    };
    write("moved.jsonl", &wrapped.replace(&of("hall"), &of("empty")));
    write("other", &SECRET.replace('a', "b"));
    let other = run(command(PROGRAM, here).args(["import", "--data", "x", "wrapped.jsonl", "--secret-file", "other"]));
    for (ended, words) in [
        (firstcome(here, &["import", "--data", "x", "wrapped.jsonl"]), ["line 2", "is wrapped: give the secret"]),
        (other, ["line 2", "cannot be unwrapped"]),
        (with(&["import", "--data", "x", "plain.jsonl"]), ["line 2", "is plain, and a secret was given"]),
        (with(&["import", "--data", "x", "moved.jsonl"]), ["ticket_key", "cannot be unwrapped"]),
    ] {
        let said = ended.with(1);
        assert!(words.iter().all(|word| said.contains(word)) && said.contains("nothing was imported"), "{said}");
    }
    assert!(rows(&firstcome(here, &["export", "--data", "x"]).well()).is_empty());
}

/// The file is refused with these words, and nothing of it comes in.
#[track_caller]
fn refused(here: &Path, name: &str, text: &str, words: &[&str]) {
    std::fs::write(here.join("bad.jsonl"), text).expect("a file");
    let said = firstcome(here, &["import", "--data", name, "bad.jsonl"]).with(1);
    for word in words.iter().chain(&["nothing was imported"]) {
        assert!(said.contains(word), "{name}: {word:?} is not in {said:?}");
    }
    assert!(rows(&firstcome(here, &["export", "--data", name]).well()).is_empty(), "{name}: nothing came in");
    assert!(!here.join(name).join("keys.toml").exists(), "{name}: no keys came in");
}

#[test]
fn a_file_that_is_not_whole_or_a_line_that_cannot_be_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    filled(here);
    let whole = firstcome(here, &["export", "--data", "old"]).well();
    let lines: Vec<&str> = whole.lines().collect();
    let count = lines.len();
    let joined = |lines: &[&str]| lines.iter().fold(String::new(), |all, line| all + line + "\n");
    let at = |part: &str| lines.iter().position(|line| line.contains(part)).expect(part);
    let twice = |part: &str| {
        let mut lines = lines.clone();
        lines.insert(at(part), lines[at(part)]);
        joined(&lines)
    };
    let without = |part: &str| joined(&lines.iter().filter(|line| !line.contains(part)).copied().collect::<Vec<_>>());
    let here_is = |part: &str, more: usize| format!("line {}", at(part) + 1 + more);
    let hall = "\"room\":\"hall\",\"max";
    let number = |number: u32| format!("\"room\":\"hall\",\"number\":{number}");
    let row = |name: &str, text: String, words: &[&str]| refused(here, name, &text, words);
    row("cut", joined(&lines[..count - 1]), &[&format!("line {}", count - 1), "breaks off here"]);
    row("cut-in-line", whole[..whole.len() - 9].to_owned(), &[&format!("line {count}")]);
    row("more", joined(&[&lines[..], &lines[count - 2..count - 1]].concat()), &["there is more after the last line"]);
    row("two-files", whole.clone() + &whole, &["more after the last line"]);
    row("newer", whole.replacen("\"version\":4", "\"version\":5", 1), &["line 1", "version 5", "use a later one"]);
    row("missing", without("\"room\":\"empty\""), &[&format!("line {}", count - 1), "lines between"]);
    row("ticket-twice", twice(&number(2)), &[&here_is(&number(2), 1), "number is missing or stands twice"]);
    row("room-twice", twice(hall), &[&here_is(hall, 1), "room hall exists already"]);
    row("no-room", without(hall), &["there is no room hall"]);
    row("gap", without(&number(2)), &[&here_is(&number(2), 0), "number is missing"]);
    let reached = whole.replacen("\"first\":1,\"reached\":2,\"drawn\":4", "\"first\":1,\"reached\":9,\"drawn\":4", 1);
    row("reached", reached, &[&here_is(hall, 0), "not a number that was drawn"]);
    let early = whole.replacen("\"first\":1,\"reached\":2", "\"first\":1,\"reached\":1", 1);
    row("slot-too-early", early, &[&here_is(&number(1), 0), "reached more than was drawn"]);
    row(
        "admission",
        whole.replacen("\"admission\":1,", "\"admission\":7,", 1),
        &[&here_is(&number(1), 0), "never counted"],
    );
    row(
        "two-places",
        whole.replacen("\"user\":\"dan\"", "\"user\":\"ann\"", 1),
        &[&here_is(&number(4), 0), "two living"],
    );
    let short = whole.replacen("\"drawn\":4", "\"drawn\":5", 1);
    row("short", short, &["room hall: tickets up to number 5 were drawn, and those from 5 on did not come"]);
    row(
        "no-pass",
        without("\"kind\":\"pass_secret\"")
            .replace(&format!("\"lines\":{}", count - 2), &format!("\"lines\":{}", count - 3)),
        &["no secret that signs passes"],
    );
    refused_where_others_are(here, &whole);
}

fn refused_where_others_are(here: &Path, whole: &str) {
    let keep = rows(whole).join("\n");
    std::fs::write(here.join("rows.jsonl"), &keep).expect("a file");
    let said = firstcome(here, &["import", "--data", "old", "rows.jsonl"]).with(1);
    assert!(said.contains("line 2") && said.contains("room hall exists already"), "{said}");
    // Rooms of another directory have passes of their own.
    let server = serve(here, "else");
    server.stop();
    std::fs::write(here.join("whole.jsonl"), whole).expect("a file");
    let said = firstcome(here, &["import", "--data", "else", "whole.jsonl"]).with(1);
    assert!(said.contains("line 2") && said.contains("another api_key:admin exists already"), "{said}");
    let mut dev = Server::start_with(here, &[]);
    assert_eq!(dev.client().put_status("/v1/rooms/mine", &json!({"max_active": 1})), 201);
    dev.terminate();
    dev.wait();
    let said = firstcome(here, &["import", "--data", "data", "rows.jsonl"]).with(1);
    assert!(said.contains("line 1") && said.contains("whose passes other secrets sign"), "{said}");
}
