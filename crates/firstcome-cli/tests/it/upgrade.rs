//! Two nodes on one Redis and one database are replaced one after the other, under load: forward, and one of them back again.
//!
//! The gate replaces nodes by nodes of the same program, which shows that no answer is lost on the way, and nothing about versions.
//! `cargo xtask full upgrade` names the program of the version before in `FIRSTCOME_PREVIOUS`.

mod load;
mod removal;
mod trade;

use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, run};
use crate::support::server::Server;
use crate::support::world::{SECRET, World};
use crate::support::{previous_program, wait_for};
use firstcome_test_servers::Kind;
use load::Load;
use removal::Person;
use serde_json::{Value, json};
use std::net::SocketAddr;
use trade::Auction;

const ADMIN: &str = "admin-0123456789-0123456789";

fn node(program: &str, world: &World, listen: SocketAddr) -> Server {
    let mut serve = command(program, world.here());
    serve.args(["serve", "--listen", &listen.to_string(), "--redis", world.redis.url(), "--sql", world.sql.url()]);
    if program == PROGRAM {
        // The version before may not know the setting.
        serve.args(removal::RETAIN_CLAIMS);
    }
    serve.env("FIRSTCOME_SECRET", SECRET).env("FIRSTCOME_ADMIN_KEY", ADMIN);
    Server::spawn(&mut serve)
}

fn migrate(program: &str, world: &World) {
    run(command(program, world.here()).args(["migrate", "--json", "--sql", world.sql.url()])).well();
}

/// Sends a request that must have its effect.
#[track_caller]
fn post(client: &mut Client, path: &str, body: &Value) -> Value {
    let answer = client.call("POST", path, Some(body));
    assert!(matches!(answer.status, 200 | 201), "{path}: {}", answer.text());
    answer.json()
}

/// What one node told is true at the other, whichever version it is: claims, codes, tickets, passes, locks.
fn tell_and_ask([told, asked]: &mut [Client; 2], step: &str) {
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

/// A roll under way.
struct Roll<'a> {
    world: &'a World,
    load: &'a Load,
    nodes: [Server; 2],
    /// Auctions that no node has settled yet.
    auctions: Vec<Auction>,
}

impl Roll<'_> {
    /// Each node knows what the other one told, and they settle the auctions of earlier steps that have ended.
    fn both_ways(&mut self, step: &str) {
        let mut clients = self.load.clients();
        for way in ["there", "back"] {
            let name = format!("{step}-{way}");
            tell_and_ask(&mut clients, &name);
            trade::tell_and_ask(&mut clients, &name);
            self.auctions.push(Auction::open(&mut clients, &name));
            clients.reverse();
        }
        self.auctions.retain(|auction| !auction.is_settled(&mut clients));
    }

    /// Stops a node, and starts this program in its place.
    fn replace(&mut self, place: usize, program: &str) {
        let node = &mut self.nodes[place];
        node.terminate();
        assert_eq!(node.wait().code(), Some(0), "{}", node.errors());
        self.load.goes_on();
        *node = self::node(program, self.world, self.load.addresses[place]);
        ready(node);
        self.load.goes_on();
    }

    /// Rolls both nodes forward, one of them back, and forward again.
    ///
    /// The new node purges and erases beside the old one: the version before knows purged coupons and pseudonyms, and no record of
    /// points is removed, which it would not know (docs/retention.md, docs/erasure.md).
    fn run(&mut self, previous: &str) {
        self.load.goes_on();
        self.both_ways("before");
        let ann = Person::new(&mut self.load.clients(), "ann");
        removal::end_coupon(&mut self.load.clients());
        migrate(PROGRAM, self.world);
        self.load.goes_on();
        self.both_ways("migrated");

        self.replace(0, PROGRAM);
        self.both_ways("first");
        let [mut new, mut old] = self.load.clients();
        removal::purge(&mut new, &mut old);
        ann.erase(&mut new, &mut old);
        self.load.goes_on();

        self.replace(1, PROGRAM);
        self.both_ways("second");
        self.replace(0, previous);
        self.both_ways("back");
        let bob = Person::new(&mut self.load.clients(), "bob");
        self.replace(0, PROGRAM);
        self.both_ways("again");
        let [mut one, mut two] = self.load.clients();
        bob.erase(&mut two, &mut one);
        self.load.goes_on();

        let mut clients = self.load.clients();
        wait_for("the end of all auctions", || {
            self.auctions.retain(|auction| !auction.is_settled(&mut clients));
            self.auctions.is_empty().then_some(())
        });
    }
}

fn verified(world: &World) {
    let mut verify = command(PROGRAM, world.here());
    verify.args(["verify", "--redis", world.redis.url(), "--sql", world.sql.url()]).env("FIRSTCOME_SECRET", SECRET);
    run(&mut verify).well();
}

/// Rolls from the program before to the one under test, and checks that all that was told is kept.
fn rolls(kind: Kind, previous: &str) {
    let Some(world) = World::start(kind) else { return };
    migrate(previous, &world);
    let free: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let nodes = [node(previous, &world, free), node(previous, &world, free)];
    let load = Load::prepare([nodes[0].address(), nodes[1].address()]);
    let (nodes, ledger) = load.beside(|| {
        let mut roll = Roll { world: &world, load: &load, nodes, auctions: Vec::new() };
        roll.run(previous);
        roll.nodes
    });
    let [one, two] = load.clients();
    for mut client in [one, two] {
        ledger.is_kept(&mut client);
    }
    for server in nodes {
        server.stop();
    }
    verified(&world);
}

#[test]
fn two_nodes_are_replaced_one_after_the_other_on_redis_and_postgres() {
    rolls(Kind::Postgres, &previous_program());
}

#[test]
fn two_nodes_are_replaced_one_after_the_other_on_redis_and_mariadb() {
    rolls(Kind::MariaDb, &previous_program());
}
