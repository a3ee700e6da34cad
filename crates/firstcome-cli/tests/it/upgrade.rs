//! Two versions side by side on one Redis and one database, under load: forward node by node, and back again.
//!
//! The version before is the program that `FIRSTCOME_PREVIOUS` names, as `cargo xtask full upgrade` sets it. Without it the program
//! under test takes both parts: this shows that the way of a roll loses no answer, and nothing about versions.

use crate::support::http::{Answer, Client, Lost};
use crate::support::program::{PROGRAM, command, run};
use crate::support::server::Server;
use crate::support::world::{SECRET, World};
use crate::support::{Over, previous_program, wait_for};
use firstcome_test_servers::Kind;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const ADMIN: &str = "admin-0123456789-0123456789";
/// Callers that claim, and as many that lock.
const CALLERS: usize = 4;
/// More than the callers claim in the time of the test.
const LIMIT: u64 = 1_000_000;
/// Answers of each kind of load between two steps of the roll.
const BETWEEN_STEPS: u64 = 20;

fn node(program: &str, world: &World, listen: SocketAddr) -> Server {
    let mut serve = command(program, world.here());
    serve.args(["serve", "--listen", &listen.to_string(), "--redis", world.redis.url(), "--sql", world.sql.url()]);
    serve.env("FIRSTCOME_SECRET", SECRET).env("FIRSTCOME_ADMIN_KEY", ADMIN);
    Server::spawn(&mut serve)
}

fn migrate(program: &str, world: &World) {
    run(command(program, world.here()).args(["migrate", "--json", "--sql", world.sql.url()])).well();
}

/// What runs all the time: claims, and a lock that all callers want.
struct Load {
    addresses: [SocketAddr; 2],
    over: AtomicBool,
    claims: AtomicU64,
    holds: AtomicU64,
}

impl Load {
    fn clients(&self) -> [Client; 2] {
        self.addresses.map(|address| Client::with_key(address, ADMIN))
    }

    /// Sends a request with a key to the nodes in turn until one answers it, as a back end behind a balancer does. `None` if the
    /// load is over and no node answers.
    fn ask(&self, clients: &mut [Client; 2], key: &str, path: &str, body: &Value) -> Option<Answer> {
        let mut place = key.len() % 2;
        wait_for("an answer of some node", || {
            place ^= 1;
            match clients[place].try_call("POST", path, Some(key), Some(body)) {
                Ok(answer) if answer.status != 503 => Some(Some(answer)),
                // The node is about to stop, or has just started. The key makes the repetition safe.
                Ok(_) | Err(Lost::Unsent(_) | Lost::Unanswered(_)) => self.over.load(Ordering::Relaxed).then_some(None),
                Err(Lost::Truncated(part)) => panic!("an answer broke off: {part}"),
            }
        })
    }

    /// Claims for one user after the other, and returns the serial that each was told.
    fn claim(&self, caller: usize) -> BTreeMap<String, u64> {
        let mut clients = self.clients();
        let mut told = BTreeMap::new();
        while !self.over.load(Ordering::Relaxed) {
            let user = format!("caller-{caller}-{}", told.len());
            let body = json!({"user": user});
            let Some(answer) = self.ask(&mut clients, &user, "/v1/coupons/launch/claims", &body) else { break };
            assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
            told.insert(user, answer.json()["serial"].as_u64().expect("a serial"));
            self.claims.fetch_add(1, Ordering::Relaxed);
        }
        told
    }

    /// Takes the lock and gives it back, and checks that no other caller has it meanwhile and that fences grow.
    fn hold(&self, caller: usize, inside: &AtomicU64, last_fence: &AtomicU64) {
        let mut clients = self.clients();
        for number in 0_u64.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let acquire = json!({"owner": format!("caller-{caller}"), "wait_ms": 2_000, "lease_ms": 60_000});
            let key = format!("lock-{caller}-{number}");
            let Some(held) = self.ask(&mut clients, &key, "/v1/locks/door/acquire", &acquire) else { return };
            if held.status == 409 {
                continue;
            }
            assert_eq!(held.status, 200, "{}", held.text());
            let (held, fence) = (held.json(), held.json()["fence"].as_u64().expect("a fence"));
            assert_eq!(inside.swap(1, Ordering::SeqCst), 0, "two hold the lock");
            let before = last_fence.swap(fence, Ordering::SeqCst);
            assert!(before < fence, "fence {fence} after {before}");
            inside.store(0, Ordering::SeqCst);
            let release = json!({"handle": held["handle"]});
            let key = format!("free-{caller}-{number}");
            let Some(released) = self.ask(&mut clients, &key, "/v1/locks/door/release", &release) else { return };
            assert_eq!(released.status, 200, "{}", released.text());
            self.holds.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until both kinds of load have had answers since now: the step before stopped neither.
    fn goes_on(&self) {
        let now = || [&self.claims, &self.holds].map(|count| count.load(Ordering::Relaxed));
        let [claims, holds] = now().map(|count| count + BETWEEN_STEPS);
        wait_for("answers beside the roll", || {
            let is_over = self.over.load(Ordering::Relaxed);
            let [claims_now, holds_now] = now();
            (is_over || (claims <= claims_now && holds <= holds_now)).then_some(())
        });
    }
}

/// What one node told is true at the other, whichever version it is: claims, codes, tickets, passes, locks.
fn tell_and_ask(told: SocketAddr, asked: SocketAddr, step: &str) {
    let [mut told, mut asked] = [told, asked].map(|address| Client::with_key(address, ADMIN));
    let user = format!("user-of-{step}");
    let claim = told.claim("launch", &user, None).expect("an answer").json();
    let seen = asked.get(&format!("/v1/coupons/launch/claims/{user}"));
    assert_eq!((seen.status, &seen.json()["serial"]), (200, &claim["serial"]), "{}", seen.text());
    let again = asked.claim("launch", &user, None).expect("an answer");
    assert_eq!((again.status, again.code().as_str()), (409, "already_issued"), "{}", again.text());
    let code = json!({"code": claim["code"]});
    let redeemed = asked.call("POST", "/v1/coupons/launch/redemptions", Some(&code));
    assert_eq!(redeemed.status, 201, "{}", redeemed.text());
    let twice = told.call("POST", "/v1/coupons/launch/redemptions", Some(&code));
    assert_eq!(twice.code(), "already_redeemed", "{}", twice.text());

    let joined = told.call("POST", "/v1/rooms/hall/tickets", Some(&json!({"user": user}))).json();
    let path = format!("/v1/rooms/hall/tickets/{}", joined["ticket"].as_str().expect("a ticket"));
    let pass = wait_for("a pass", || asked.get(&path).json()["pass"].as_str().map(str::to_owned));
    let checked = told.call("POST", "/v1/rooms/hall/passes/verify", Some(&json!({"pass": pass})));
    assert_eq!((checked.status, &checked.json()["valid"]), (200, &json!(true)), "{}", checked.text());
    assert_eq!(told.call("DELETE", &path, None).status, 204);

    let acquire = json!({"owner": user, "wait_ms": 0, "lease_ms": 60_000});
    let held = told.call("POST", &format!("/v1/locks/{step}/acquire"), Some(&acquire)).json();
    let release = json!({"handle": held["handle"]});
    let released = asked.call("POST", &format!("/v1/locks/{step}/release"), Some(&release));
    assert_eq!(released.status, 200, "{}", released.text());
}

fn ready(server: &Server) {
    wait_for("a node that is ready", || (server.client().get("/readyz").status == 200).then_some(()));
}

/// Rolls both nodes forward and one of them back, under load.
fn roll(world: &World, load: &Load, mut nodes: [Server; 2]) -> [Server; 2] {
    let previous = previous_program();
    let both_ways = |step: &str| {
        let [one, two] = load.addresses;
        tell_and_ask(one, two, &format!("{step}-there"));
        tell_and_ask(two, one, &format!("{step}-back"));
    };
    load.goes_on();
    both_ways("before");
    migrate(PROGRAM, world);
    load.goes_on();
    both_ways("migrated");
    for (step, place, program) in
        [("first", 0, PROGRAM), ("second", 1, PROGRAM), ("back", 0, &*previous), ("again", 0, PROGRAM)]
    {
        nodes[place].terminate();
        assert_eq!(nodes[place].wait().code(), Some(0), "{}", nodes[place].errors());
        load.goes_on();
        nodes[place] = node(program, world, load.addresses[place]);
        ready(&nodes[place]);
        load.goes_on();
        both_ways(step);
    }
    nodes
}

fn verified(directory: &Path, world: &World) {
    let mut verify = command(PROGRAM, directory);
    verify.args(["verify", "--redis", world.redis.url(), "--sql", world.sql.url()]).env("FIRSTCOME_SECRET", SECRET);
    run(&mut verify).well();
}

fn two_versions_serve_side_by_side(kind: Kind) {
    let Some(world) = World::start(kind) else { return };
    let previous = previous_program();
    migrate(&previous, &world);
    let free: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let nodes = [node(&previous, &world, free), node(&previous, &world, free)];
    let mut admin = Client::with_key(nodes[0].address(), ADMIN);
    admin.put_coupon("launch", LIMIT);
    assert_eq!(admin.put_status("/v1/rooms/hall", &json!({"max_active": 5})), 201);
    let addresses = [nodes[0].address(), nodes[1].address()];
    let load = Load { addresses, over: AtomicBool::new(false), claims: AtomicU64::new(0), holds: AtomicU64::new(0) };
    let (inside, last_fence) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut told = BTreeMap::new();
    let nodes = std::thread::scope(|scope| {
        let claimers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                scope.spawn({
                    let load = &load;
                    move || load.claim(caller)
                })
            })
            .collect();
        for caller in 0..CALLERS {
            let (load, inside, last_fence) = (&load, &inside, &last_fence);
            scope.spawn(move || load.hold(caller, inside, last_fence));
        }
        let _over = Over(&load.over);
        let nodes = roll(&world, &load, nodes);
        load.over.store(true, Ordering::Relaxed);
        for claimer in claimers {
            told.extend(claimer.join().expect("each claim is answered"));
        }
        nodes
    });
    let kept: BTreeMap<String, u64> = Client::with_key(nodes[1].address(), ADMIN)
        .claims("launch")
        .into_iter()
        .map(|claim| (claim["user"].as_str().expect("a user").to_owned(), claim["serial"].as_u64().expect("a serial")))
        .collect();
    let lost: Vec<_> = told.iter().filter(|(user, serial)| kept.get(*user) != Some(serial)).collect();
    assert!(lost.is_empty(), "told and not kept: {lost:?}");
    let mut serials: Vec<_> = kept.values().copied().collect();
    serials.sort_unstable();
    assert!(serials.iter().copied().eq(1..=kept.len() as u64), "serials have gaps or are given twice");
    for server in nodes {
        server.stop();
    }
    verified(world.here(), &world);
}

#[test]
fn two_versions_serve_side_by_side_on_redis_and_postgres() {
    two_versions_serve_side_by_side(Kind::Postgres);
}

#[test]
fn two_versions_serve_side_by_side_on_redis_and_mariadb() {
    two_versions_serve_side_by_side(Kind::MariaDb);
}
