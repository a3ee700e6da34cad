//! What a service logs of its life: the start with its settings, whom it refuses, the servers that come and go, and the stop.

use crate::support::http::Client;
use crate::support::program::{PROGRAM, command};
use crate::support::server::Server;
use crate::support::trace::{can_trace, traced};
use crate::support::wait_for;
use crate::support::world::World;
use firstcome_test_servers::Kind;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const ADMIN: &str = "fc_admin_of_the_tests_of_lines_0123456789";
const GUESS: &str = "fc_service_canary_of_a_guess_0123456789";

fn serve(here: &Path, more: &[&str]) -> Server {
    let mut serve = command(PROGRAM, here);
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data", "data"]).args(more).env("FIRSTCOME_ADMIN_KEY", ADMIN);
    Server::spawn(&mut serve)
}

/// The lines in JSON that have this message.
fn lines(log: &str, message: &str) -> Vec<Value> {
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|event| event["message"] == message).collect()
}

/// Waits until there is a line with this message, and returns the first one.
fn line(server: &Server, message: &str) -> Value {
    wait_for(message, || lines(&server.errors(), message).into_iter().next())
}

/// Sends a request with a body of JSON and an id, and returns the answer as text.
fn put_named(server: &Server, path: &str, id: &str, body: &Value) -> String {
    let body = body.to_string();
    let request = format!(
        "PUT {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {ADMIN}\r\nx-request-id: {id}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn a_service_logs_its_start_with_its_settings_and_the_phases_of_its_stop() {
    let here = tempfile::tempdir().expect("a directory");
    let more =
        ["--log-format", "json", "--calls-per-minute", "77", "--stop-grace", "1ms", "--admin-listen", "127.0.0.1:0"];
    let mut server = serve(here.path(), &more);
    let started = line(&server, "firstcome has started");
    assert_eq!(started["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        (&started["stores"], &started["listen"]),
        (&json!("data in data"), &json!(server.address().to_string()))
    );
    assert!(started["admin_listen"].is_string() && started["gate_listen"].is_null(), "{started}");
    let settings = started["settings"].as_str().expect("a text");
    for setting in ["calls-per-minute=77", "data=data", "stop-grace=1ms", "FIRSTCOME_ADMIN_KEY=***"] {
        assert!(settings.split(' ').any(|given| given == setting), "{setting}: {settings}");
    }
    assert!(!settings.contains("streams-max"), "only what is no default: {settings}");
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
    let phases = [
        "not ready any more, and serving until the grace is over",
        "stopping: no new connections, finishing what is under way",
        "stopped: no connection is served any more",
        "the store is closed",
    ];
    server.wait_for_log(phases[3]);
    let log = server.errors();
    let places: Vec<usize> = phases.iter().map(|phase| log.find(phase).expect(phase)).collect();
    assert!(places.is_sorted(), "{log}");
    assert_eq!(lines(&log, phases[1])[0]["signal"], "SIGTERM");
    assert!(lines(&log, phases[2])[0]["lasted_ms"].is_u64() && !log.contains(ADMIN), "{log}");
}

#[test]
fn a_line_has_the_id_of_the_request_that_caused_it_in_both_forms() {
    let here = tempfile::tempdir().expect("a directory");
    let server = serve(here.path(), &["--log-format", "json"]);
    assert!(put_named(&server, "/v1/coupons/launch", "shop:7", &json!({"limit": 1})).contains("201 Created"));
    assert_eq!(line(&server, "audit")["request_id"], "shop:7");
    // Without an id of its own the request gets one with its line, and the answer has the same.
    let answer =
        Client::with_key(server.address(), ADMIN).call("PUT", "/v1/coupons/launch", Some(&json!({"limit": 2})));
    let drawn = wait_for("a second line", || lines(&server.errors(), "audit").into_iter().nth(1));
    assert_eq!(drawn["request_id"].as_str(), answer.headers("x-request-id").next(), "{drawn}");
    assert!(drawn["request_id"].as_str().is_some_and(|id| id.len() == 16), "{drawn}");
    assert!(line(&server, "firstcome has started")["request_id"].is_null(), "no request caused it");
    server.stop();

    let server = serve(here.path(), &["--log-format", "text"]);
    put_named(&server, "/v1/coupons/launch", "shop:8", &json!({"limit": 3}));
    server.wait_for_log(" request_id=shop:8\n");
    server.stop();
}

#[test]
fn a_failed_authentication_is_a_line_with_its_address_and_without_its_credential() {
    let here = tempfile::tempdir().expect("a directory");
    let server = serve(here.path(), &["--log-format", "json", "--failed-authentications-per-minute", "8"]);
    let mut guesser = Client::with_key(server.address(), GUESS);
    for _ in 0..20 {
        assert!([401, 429].contains(&guesser.put_status("/v1/coupons/launch", &json!({"limit": 1}))));
    }
    let failed = line(&server, "an authentication failed");
    assert_eq!((&failed["credential"], &failed["address"]), (&json!("key"), &json!("127.0.0.1")), "{failed}");
    assert!(failed["request_id"].is_string() && failed["left_out"] == 0, "{failed}");
    let refused = line(&server, "refusing authentications unread: too many have failed");
    assert_eq!((&refused["limit"], &refused["address"]), (&json!("address"), &json!("127.0.0.1")), "{refused}");
    let log = server.errors();
    assert!(!log.contains("canary"), "{log}");
    // Twenty attempts within some milliseconds: at most one line of each kind per second.
    assert!(lines(&log, "an authentication failed").len() < 5, "{log}");
    server.stop();
}

#[test]
fn the_loss_and_the_return_of_redis_and_of_the_database_are_one_line_each() {
    let Some(mut world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    let mut node = world.node();
    node.args(["--log-format", "json", "--coupon", "launch=100"]).env("FIRSTCOME_ADMIN_KEY", ADMIN);
    let server = Server::spawn(&mut node);
    let mut client = Client::with_key(server.address(), ADMIN);
    let mut claim = |user: &str| client.claim("launch", user, Some(user)).expect("an answer").status;
    assert_eq!(claim("ann"), 201);
    world.redis.kill();
    world.sql.kill();
    let [lost_redis, lost_sql] = ["Redis is lost", "the database is lost"];
    // Many requests fail by it.
    wait_for("both losses", || {
        assert_ne!(claim("bob"), 201);
        let log = server.errors();
        [lost_redis, lost_sql].iter().all(|message| !lines(&log, message).is_empty()).then_some(())
    });
    for message in [lost_redis, lost_sql] {
        let lost = line(&server, message);
        assert!(lost["server"].as_str().is_some_and(|server| server.contains("127.0.0.1:")), "{lost}");
        assert!(lost["error"].as_str().is_some_and(|error| !error.is_empty()) && lost["level"] == "WARN", "{lost}");
    }
    assert_eq!(line(&server, lost_redis)["target"], "firstcome_redis");
    assert_eq!(line(&server, lost_sql)["target"], "firstcome_sql");
    let failed = line(&server, "a request failed");
    assert!(failed["request_id"].is_string() && failed["code"].is_string(), "{failed}");
    world.restart();
    wait_for("a claim that is served again", || (claim("bob") == 201).then_some(()));
    for message in ["Redis answers again", "the database answers again"] {
        let back = line(&server, message);
        assert!(back["lasted_ms"].as_u64().is_some_and(|lasted_ms| 0 < lasted_ms), "{back}");
    }
    let log = server.errors();
    for message in [lost_redis, lost_sql, "Redis answers again", "the database answers again"] {
        assert_eq!(lines(&log, message).len(), 1, "{message}: {log}");
    }
    // Redis lost nothing of it. A node makes it anew when it has.
    world.redis(&["FLUSHALL"]);
    wait_for("a claim after the flush", || (claim("cid") == 201).then_some(()));
    let begun = line(&server, "rebuilding what Redis knows of the coupon");
    let ended = line(&server, "Redis knows the coupon again");
    assert_eq!((&begun["coupon"], &ended["coupon"], &ended["claims"]), (&json!("launch"), &json!("launch"), &json!(2)));
    assert!(ended["lasted_ms"].is_u64() && ended["node"].is_string(), "{ended}");
    assert!(!log.contains("s3cret"), "{log}");
    server.stop();
}

/// The kernel is slow with each eighth sync of a thread: strace delays it.
#[test]
fn a_commit_that_waits_for_the_disk_is_a_line_with_its_time() {
    if !can_trace() {
        return;
    }
    let here = tempfile::tempdir().expect("a directory");
    let slow_disk = ["-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_enter=1200000:when=8+8"];
    let more = ["--coupon", "launch=1000", "--log-format", "json"];
    let mut server = Server::spawn(&mut traced(here.path(), "trace", &slow_disk, &more));
    let mut client = server.client();
    let mut users = 0..1000;
    let slow = wait_for("a slow commit", || {
        let user = format!("user-{}", users.next().expect("one of a thousand claims meets the slow disk"));
        let claimed = client.claim("launch", &user, None).expect("an answer");
        assert_eq!(claimed.status, 201, "{}", claimed.text());
        lines(&server.errors(), "a commit was slow: look at the disk of the data directory").into_iter().next()
    });
    assert!(slow["lasted_ms"].as_u64().is_some_and(|lasted_ms| 1_000 <= lasted_ms), "{slow}");
    assert!(slow["changes"].as_u64().is_some_and(|changes| 0 < changes) && slow["left_out"] == 0, "{slow}");
    assert!(slow["target"].as_str().is_some_and(|target| target.starts_with("firstcome_store")), "{slow}");
    assert_eq!(slow["level"], "WARN");
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
}

/// Locks the rows of coupons and rooms: longer than a quick write takes, and not so long that a node gives its write up.
const HOLD_ROWS: &str = "BEGIN; SELECT 1 FROM firstcome_coupon FOR UPDATE; SELECT 1 FROM firstcome_room FOR UPDATE; \
                         SELECT pg_sleep(1.5); ROLLBACK";
const TICKETS: &str = "/v1/rooms/sale/tickets";
const LEASE_OF_COUPON: &str = "this node has the writer lease";
const LEASE_OF_ROOM: &str = "the writer lease of the room has changed";

/// A node that tells of its leases.
fn telling_node(world: &World) -> Server {
    let mut node = world.node();
    node.args(["--log-format", "json", "--log", "info,firstcome_cluster=debug"]).env("FIRSTCOME_ADMIN_KEY", ADMIN);
    Server::spawn(&mut node)
}

#[test]
fn slow_writes_to_the_database_and_a_new_writer_lease_are_lines_of_a_coupon_and_of_a_room() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    let mut one = telling_node(&world);
    let address = one.address();
    let mut client = Client::with_key(address, ADMIN);
    client.put_coupon("launch", 1_000_000);
    assert_eq!(client.put_status("/v1/rooms/sale", &json!({"max_active": 1})), 201);
    assert_eq!(client.claim("launch", "ann", None).expect("an answer").status, 201);
    assert_eq!(client.call("POST", TICKETS, Some(&json!({}))).status, 201);
    assert_eq!(line(&one, LEASE_OF_COUPON)["coupon"], "launch");
    let lease = line(&one, LEASE_OF_ROOM);
    assert_eq!((&lease["room"], &lease["has_lease"]), (&json!("sale"), &json!(true)), "{lease}");

    let slow = ["a write of the outbox to the database was slow", "a write of the room to the database was slow"];
    let mut users = 0_u32..;
    wait_for("slow writes", || {
        let is_held = AtomicBool::new(true);
        // The first write that meets the held rows waits for as long as they are held.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                world.say(world.sql.url(), HOLD_ROWS);
                is_held.store(false, Ordering::Release);
            });
            scope.spawn(|| {
                let mut visitors = Client::with_key(address, ADMIN);
                while is_held.load(Ordering::Acquire) {
                    visitors.call("POST", TICKETS, Some(&json!({})));
                }
            });
            while is_held.load(Ordering::Acquire) {
                let user = format!("user-{}", users.next().expect("a number"));
                client.claim("launch", &user, None).expect("an answer");
            }
        });
        let log = one.errors();
        slow.iter().all(|message| !lines(&log, message).is_empty()).then_some(())
    });
    for (message, name, of, count) in [(slow[0], "coupon", "launch", "entries"), (slow[1], "room", "sale", "records")] {
        let slow = line(&one, message);
        assert_eq!((&slow[name], &slow["level"]), (&json!(of), &json!("WARN")), "{slow}");
        assert!(slow["lasted_ms"].as_u64().is_some_and(|lasted_ms| 1_000 <= lasted_ms), "{slow}");
        assert!(slow[count].is_u64() && slow["left_out"].is_u64(), "{slow}");
    }

    // Another node takes both leases over.
    let two = telling_node(&world);
    one.kill();
    let mut client = Client::with_key(two.address(), ADMIN);
    wait_for("both leases", || {
        let user = format!("user-{}", users.next().expect("a number"));
        client.claim("launch", &user, None).expect("an answer");
        client.call("POST", TICKETS, Some(&json!({})));
        let log = two.errors();
        let of_room = lines(&log, LEASE_OF_ROOM).iter().any(|lease| lease["has_lease"] == true);
        (of_room && !lines(&log, LEASE_OF_COUPON).is_empty()).then_some(())
    });
    assert_eq!(line(&two, LEASE_OF_COUPON)["coupon"], "launch");
    two.stop();
}
