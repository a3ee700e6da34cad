//! The balancer of Compose before three nodes: while they restart one after the other, and while the database is away.

use super::files::read;
use super::services;
use crate::support::http::{Answer, Client};
use crate::support::program::{command, is_installed, wait};
use crate::support::server::Server;
use crate::support::world::World;
use crate::support::{machine_has, wait_for};
use firstcome_test_servers::{Kind, free_port};
use serde_json::json;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

const KEY: &str = "given-0123456789-0123456789";
const CLIENTS: u32 = 4;
/// The pause of a client between two claims: the nodes should be busy, and not this machine.
const PAUSE: Duration = Duration::from_millis(20);

/// HAProxy with the configuration of Compose; killed, by its id, when it is dropped.
struct Balancer(Child);

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        wait(&mut self.0);
    }
}

/// The ports, the same for each node: each has an address of its own.
#[derive(Clone, Copy)]
struct Ports {
    balancer: u16,
    service: u16,
    admin: u16,
}

/// The address of a node, in place of its name in Compose.
fn host(number: usize) -> String {
    format!("127.0.0.{}", 10 + number)
}

fn balancer(directory: &Path, ports: Ports) -> Balancer {
    let mut text = read("compose/haproxy.cfg").replace("bind :8000", &format!("bind 127.0.0.1:{}", ports.balancer));
    for number in 1..=3 {
        let (named, own) = (format!("node{number}:8080"), format!("{}:{}", host(number), ports.service));
        assert!(text.contains(&named), "{named} is not in the configuration");
        text = text.replace(&named, &own);
    }
    // So few claims would all find one node with the fewest connections. In turns they reach each of them.
    assert!(text.contains("balance leastconn"));
    let mut text = text.replace("balance leastconn", "balance roundrobin");
    // A second try hides a node that was asked too late. The grace and the checks have to do without it.
    for (line, without) in [("    retries 3\n", "    retries 0\n"), ("    option redispatch\n", "")] {
        assert!(text.contains(line), "{line:?} is not in the configuration");
        text = text.replace(line, without);
    }
    // Marks the answers that come by the fallback.
    let alive = "\nbackend alive\n";
    assert!(text.contains(alive), "the configuration has no fallback");
    let text = text.replace(alive, &format!("{alive}    http-response set-header X-Backend alive\n"));
    let text = text.replace("port 8081", &format!("port {}", ports.admin)).replace("maxconn 20000", "maxconn 100");
    let file = directory.join("haproxy.cfg");
    fs::write(&file, text).expect("a file");
    let mut haproxy = command("haproxy", directory);
    haproxy.arg("-db").arg("-f").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    Balancer(haproxy.spawn().expect("it starts"))
}

/// Starts a node with the settings of Compose, at an address of this machine.
fn node(world: &World, number: usize, ports: Ports) -> Server {
    let service = services()[&format!("node{number}")].clone();
    let grace = service["environment"]["FIRSTCOME_STOP_GRACE"].as_str().expect("a time").to_owned();
    let [listen, admin] = [ports.service, ports.admin].map(|port| format!("{}:{port}", host(number)));
    let mut node = world.node_on(&listen, world.redis.url(), world.sql.url());
    node.args(["--admin-listen", &admin, "--trusted-proxy", "127.0.0.1", "--stop-grace", &grace]);
    Server::spawn(node.env("FIRSTCOME_ADMIN_KEY", KEY))
}

/// Starts three nodes.
fn nodes(world: &World) -> (Ports, Vec<Server>) {
    world.migrate(world.sql.url());
    let [balancer, service, admin] = [(); 3].map(|()| free_port().expect("a free port"));
    let ports = Ports { balancer, service, admin };
    (ports, (1..=3).map(|number| node(world, number, ports)).collect())
}

/// Starts the balancer before nodes that are ready. Returns its address too.
fn balanced(world: &World, ports: Ports) -> (Balancer, SocketAddr) {
    let balancer = balancer(world.here(), ports);
    let address = SocketAddr::from(([127, 0, 0, 1], ports.balancer));
    wait_for("the balancer", || TcpStream::connect(address).ok());
    wait_for("a node behind it", || (Client::new(address).get("/readyz").status == 200).then_some(()));
    (balancer, address)
}

#[test]
fn a_rolling_restart_behind_the_balancer_of_compose_fails_no_claim() {
    if !machine_has("haproxy", is_installed("haproxy")) {
        return;
    }
    let Some(world) = World::start(Kind::Postgres) else { return };
    let (ports, mut nodes) = nodes(&world);
    Client::with_key(nodes[0].address(), KEY).put_coupon("launch", 1_000_000);
    let (_balancer, address) = balanced(&world, ports);
    let (claimed, failed) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let mut stops = Vec::new();
        for number in 0..CLIENTS {
            let (stop, stopped) = channel::<()>();
            stops.push(stop);
            let (claimed, failed) = (&claimed, &failed);
            scope.spawn(move || {
                let mut client = Client::with_key(address, KEY);
                for turn in 0_u32.. {
                    match client.claim("launch", &format!("user-{number}-{turn}"), None) {
                        Ok(answer) if answer.status == 201 => claimed.fetch_add(1, Ordering::Relaxed),
                        other => {
                            failed.store(true, Ordering::Relaxed);
                            panic!("claim {turn} of client {number}: {other:?}");
                        }
                    };
                    if stopped.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            });
        }
        let goes_on = |what: &str| {
            let before = claimed.load(Ordering::Relaxed);
            let more = || before + 50 < claimed.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
            wait_for(what, || more().then_some(()));
        };
        for number in 1..=3 {
            let mut old = nodes.remove(0);
            old.terminate();
            assert_eq!(old.wait().code(), Some(0), "{}", old.errors());
            goes_on("claims while the node is away");
            nodes.push(node(&world, number, ports));
            goes_on("claims after its restart");
        }
        drop(stops);
    });
    let claims = Client::with_key(nodes[0].address(), KEY).claims("launch");
    assert_eq!(claims.len(), claimed.load(Ordering::Relaxed) as usize, "each claim that was answered, and no other");
    for node in nodes {
        node.terminate();
    }
}

/// Whether the balancer sent the request to a node that was alive and not ready.
fn is_of_alive(answer: &Answer) -> bool {
    answer.headers("x-backend").any(|backend| backend == "alive")
}

#[test]
fn while_the_database_is_away_the_balancer_of_compose_leaves_visitors_to_the_nodes() {
    if !machine_has("haproxy", is_installed("haproxy")) {
        return;
    }
    let Some(mut world) = World::start(Kind::Postgres) else { return };
    let (ports, nodes) = nodes(&world);
    let mut visitor = Client::with_key(nodes[0].address(), KEY);
    assert_eq!(visitor.put_status("/v1/rooms/sale", &json!({"max_active": 1, "paused": true})), 201);
    let tickets = "/v1/rooms/sale/tickets";
    let joined = visitor.call("POST", tickets, Some(&json!({}))).json();
    let poll = format!("{tickets}/{}", joined["ticket"].as_str().expect("a ticket"));
    for node in &nodes {
        let mut client = Client::with_key(node.address(), KEY);
        wait_for("the place at each node", || (client.get(&poll).status == 200).then_some(()));
    }
    let (_balancer, address) = balanced(&world, ports);
    // With a key, which no limit of an address counts.
    let mut visitor = Client::with_key(address, KEY);
    wait_for("a node that is ready", || (!is_of_alive(&visitor.get(&poll))).then_some(()));
    world.sql.kill();
    wait_for("no node to be ready", || {
        let told = visitor.get(&poll);
        assert_eq!(told.status, 200, "{}", told.text());
        is_of_alive(&told).then_some(())
    });
    // The nodes answer each request themselves: what needs no database with yes, and the rest with a reason.
    assert_eq!(visitor.call("POST", tickets, Some(&json!({}))).status, 201);
    let ready = visitor.get("/readyz");
    assert_eq!((ready.status, &ready.json()["reason"]), (503, &json!("store_unavailable")));
    for number in 1..=3 {
        let of_node = Client::new(SocketAddr::from(([127, 0, 0, 10 + number], ports.admin))).get("/readyz?of=node");
        assert_eq!(of_node.status, 200, "{}", of_node.text());
    }
    world.restart_sql();
    wait_for("a node that is ready again", || {
        let told = visitor.get(&poll);
        (told.status == 200 && !is_of_alive(&told)).then_some(())
    });
}
