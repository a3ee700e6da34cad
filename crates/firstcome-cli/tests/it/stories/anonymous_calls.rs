//! A node runs over Redis and PostgreSQL. A stranger without a key sends 200 GETs of an unknown coupon, of an unknown room, of
//! an unknown listing and its bids, and of a known coupon, and 200 DELETEs of one ticket that has left. Each GET was a statement in PostgreSQL, and each
//! DELETE an entry in the room's log.
//!
//! Now those who ask within 250 ms share one answer, and a DELETE that changes nothing appends nothing. What this node writes is
//! in its own answers at once.

use crate::support::http::Client;
use crate::support::server::Server;
use crate::support::world::World;
use firstcome::edge::Stopwatch;
use firstcome_test_servers::Kind;
use serde_json::json;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const ADMIN: &str = "admin-key-of-this-story";

const CALLS: u32 = 200;
/// How old an answer may be.
const SHOWN_MAX: Duration = Duration::from_millis(250);
/// What the node does besides, such as its looks at coupons every ten seconds: in a minute no more than this.
const BESIDES: u64 = 40;

/// Stands between a node and PostgreSQL, and counts the statements that go by.
struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Listens for a server; also the address by which a node reaches that server through it.
    fn before(url: &str) -> (Self, String) {
        let (head, tail) = url.rsplit_once(':').expect("a port");
        let (port, database) = tail.split_once('/').expect("a database");
        let target = SocketAddr::from(([127, 0, 0, 1], port.parse().expect("a port")));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let own = listener.local_addr().expect("it has an address").port();
        let count = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&count);
        std::thread::spawn(move || {
            for from in listener.incoming().map_while(Result::ok) {
                let Ok(to) = TcpStream::connect(target) else { continue };
                let _ = (from.set_nodelay(true), to.set_nodelay(true));
                let [mut back_from, mut back_to] = [&to, &from].map(|end| end.try_clone().expect("a second handle"));
                std::thread::spawn(move || {
                    let _ = io::copy(&mut back_from, &mut back_to);
                    let _ = back_to.shutdown(Shutdown::Both);
                });
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || {
                    // An error means that one of both has gone.
                    let _ = pass_on(&from, &to, &seen);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        });
        (Self(count), format!("{head}:{own}/{database}"))
    }

    fn seen(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Passes on what a client says, message by message, and counts those that are statements.
fn pass_on(mut from: &TcpStream, mut to: &TcpStream, seen: &AtomicU64) -> io::Result<()> {
    let mut has_started = false;
    loop {
        // The first messages have no letter: a wish for encryption, which these servers turn down, and the beginning.
        let mut head = vec![0; if has_started { 5 } else { 4 }];
        from.read_exact(&mut head)?;
        let length = head[head.len() - 4..].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        let mut message = vec![0; length - 4];
        from.read_exact(&mut message)?;
        // A simple query, or the run of a prepared one.
        if has_started && matches!(head[0], b'Q' | b'E') {
            seen.fetch_add(1, Ordering::SeqCst);
        }
        has_started |= message.starts_with(&[0, 3, 0, 0]);
        to.write_all(&[head, message].concat())?;
    }
}

/// Sends the same call again and again; how many statements or entries that took, which `count` says, and how many it may take.
#[track_caller]
fn cost(client: &mut Client, method: &str, path: &str, status: u16, mut count: impl FnMut() -> u64) -> (u64, u64) {
    let (before, watch) = (count(), Stopwatch::start());
    for _ in 0..CALLS {
        let answer = client.call(method, path, None);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
    }
    let slices = u64::try_from(watch.elapsed().as_millis() / SHOWN_MAX.as_millis()).expect("a short time");
    (count() - before, slices + 2)
}

#[test]
fn a_stranger_who_asks_the_same_costs_one_query_in_a_quarter_of_a_second() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    let (counter, sql) = Counter::before(world.sql.url());
    let unlimited = ["--calls-per-minute", "1000000"];
    let node = Server::spawn(world.node_at(world.redis.url(), &sql).env("FIRSTCOME_ADMIN_KEY", ADMIN).args(unlimited));
    // With a key that may change a coupon its settings are shown as they are now.
    let (stranger, client) = (&mut node.client(), &mut Client::with_key(node.address(), ADMIN));
    client.put_coupon("launch", 5);
    assert_eq!(client.put_status("/v1/rooms/hall", &json!({"max_active": 1})), 201);
    let statements = || counter.seen();
    for (path, status) in [
        ("/v1/coupons/nothing", 404),
        ("/v1/rooms/nothing", 404),
        ("/v1/rooms/nothing/tickets/x", 404),
        ("/v1/listings/nothing", 404),
        ("/v1/listings/nothing/bids", 404),
        ("/v1/coupons/launch", 200),
    ] {
        // Bids are shown to services alone.
        let caller = if path.ends_with("/bids") { &mut *client } else { &mut *stranger };
        let (took, may) = cost(caller, "GET", path, status, statements);
        assert!(took <= may + BESIDES, "{path}: {took} statements, not {may}");
    }

    // What this node does is seen at this node by the next call.
    client.put_coupon("nothing", 3);
    assert_eq!(stranger.get("/v1/coupons/nothing").json()["limit"], 3);
    assert_eq!(client.claim("nothing", "ann", None).expect("an answer").status, 201);
    assert_eq!(stranger.get("/v1/coupons/nothing").json()["issued"], 1);
    assert_eq!(client.put_status("/v1/rooms/nothing", &json!({"max_active": 1})), 201);
    assert_eq!(stranger.get("/v1/rooms/nothing").status, 200);
    // Asked for in the same quarter of a second.
    assert_eq!(stranger.get("/v1/listings/nothing").status, 404);
    let settings = json!({"owner": "own", "kind": "fixed_price", "price": 30});
    assert_eq!(client.put_status("/v1/listings/nothing", &settings), 201);
    assert_eq!(stranger.get("/v1/listings/nothing").json()["kind"], "fixed_price");

    let ticket = stranger.call("POST", "/v1/rooms/hall/tickets", Some(&json!({}))).json();
    let ticket = format!("/v1/rooms/hall/tickets/{}", ticket["ticket"].as_str().expect("a ticket"));
    assert_eq!(stranger.call("DELETE", &ticket, None).status, 204);
    // The first room of the deployment.
    let appended = || world.redis_number(&["HGET", "fc:{r1}:log", "position"]);
    let (took, _) = cost(stranger, "DELETE", &ticket, 204, appended);
    assert!(took <= BESIDES, "{took} entries for a ticket that has left");
    node.stop();
}
