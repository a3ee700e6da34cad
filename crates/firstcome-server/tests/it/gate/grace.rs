//! What the gate of a room does while the store gives no answer: before the grace has ended, after it, and when the store is
//! back. Over the embedded store and on a cluster.

use super::{Entrance, Gate, Site, received};
use crate::cluster::World;
use crate::in_time;
use crate::room::{join, place, release};
use crate::running::{patient, soon, until};
use crate::service::{ADMIN, Answer, Ask, Service, config, send};
use crate::stores::{Verdict, scripted};
use firstcome::core::id::RoomName;
use firstcome::edge::Stopwatch;
use firstcome::embedded::journal::Outcome;
use firstcome_server::{App, Config, GracePolicy, Limits, OnLoss, api};
use firstcome_test_servers::{Kind, Server};
use serde_json::json;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(100);
const CLOSING: Duration = Duration::from_secs(10);
const PATIENT: Duration = Duration::from_secs(600);
const JSON: &str = "accept: application/json\r\n";

fn with(grace: Duration, on_loss: OnLoss) -> Config {
    let limits = Limits { answer: Duration::from_secs(10), ..patient() };
    Config { limits, grace: GracePolicy { grace, on_loss }, ..config() }
}

fn cookie(pass: &str) -> String {
    format!("{JSON}cookie: firstcome_pass={pass}\r\n")
}

/// Asks as a proxy does.
fn asked(pass: &str) -> Ask {
    Ask::get("/v1/rooms/sale/gate").header("x-firstcome-pass", pass)
}

#[track_caller]
fn is_refused(answer: Answer) {
    assert_eq!(answer.refused(503, "store_unavailable").text("reason"), "store_silent");
}

/// A gate whose disk fails once a visitor is inside. Returns the pass.
async fn failed(grace: Duration, on_loss: OnLoss) -> (Entrance, String) {
    let (store, clock, script) = scripted();
    let site = Site::start().await;
    let address = site.address;
    // More than the room, the visitor and the pass need.
    (0..20).for_each(|_| script.say(Verdict::Commit));
    let service = Service::new(store, clock, with(grace, on_loss));
    let door = Entrance::over(site, address, service).await;
    let pass = door.service.pass("sale").await;
    received(&door.ask("GET /cart", &cookie(&pass)).await);
    script.say(Verdict::Fail(Outcome::Nothing));
    until(async || door.service.send(join("sale")).await.status == 503).await;
    (door, pass)
}

/// Waits until the gate decides so, and holds it to the figures.
async fn until_mode(app: &Arc<App>, mode: &str) {
    let line = format!("firstcome_gate_rooms{{mode=\"{mode}\"}} 1\n");
    let metrics = async || send(api::router(Arc::clone(app)), Ask::get("/metrics").by(ADMIN)).await.body();
    until(async || metrics().await.contains(&line)).await;
}

#[tokio::test]
async fn after_the_grace_a_gate_over_a_failed_disk_lets_in_whom_the_store_still_judges_and_no_other() {
    in_time(async {
        let (door, pass) = failed(SHORT, OnLoss::Close).await;
        until_mode(&door.service.app, "closed").await;
        is_refused(door.ask("GET /cart", JSON).await);
        is_refused(door.ask("GET /cart", &cookie(&pass[..pass.len() - 1])).await);
        is_refused(door.service.send(Ask::get("/v1/rooms/sale/gate")).await);
        let page = door.ask("GET /cart", "").await.is(503);
        assert!(page.body().contains("no visitor comes in"), "{}", page.body());
        assert_eq!(page.header("retry-after"), Some("5"));
        // The slots are in memory, so the store's judgement is as good as ever.
        assert!(received(&door.ask("GET /cart", &cookie(&pass)).await).contains("x-firstcome-number: 1\r\n"));
        door.service.send(asked(&pass)).await.is(204);
        let metrics = door.service.metrics().await;
        for line in ["gate_mode_changes_total{mode=\"closed\"} 1\n", "gate_requests_total{outcome=\"unjudged\"} 0\n"] {
            assert!(metrics.contains(&format!("firstcome_{line}")), "{line} in {metrics}");
        }
    })
    .await;
}

#[tokio::test]
async fn after_the_grace_an_open_gate_over_a_failed_disk_lets_all_visitors_in() {
    in_time(async {
        let (door, pass) = failed(SHORT, OnLoss::Open).await;
        until_mode(&door.service.app, "open").await;
        for headers in [JSON.to_owned(), cookie(&pass[..pass.len() - 1]), "x-firstcome-number: 1\r\n".to_owned()] {
            let head = received(&door.ask("GET /cart", &headers).await);
            assert!(!head.contains("x-firstcome"), "{head}");
        }
        assert!(received(&door.ask("GET /cart", &cookie(&pass)).await).contains("x-firstcome-number: 1\r\n"));
        let told = door.service.send(Ask::get("/v1/rooms/sale/gate")).await.is(204);
        assert_eq!(told.header("x-firstcome-number"), None);
        assert!(door.service.metrics().await.contains("firstcome_gate_requests_total{outcome=\"unjudged\"} 3\n"));
    })
    .await;
}

#[tokio::test]
async fn in_the_grace_a_pass_counts_no_longer_than_its_own_time() {
    in_time(async {
        let (door, pass) = failed(PATIENT, OnLoss::Close).await;
        until_mode(&door.service.app, "grace").await;
        received(&door.ask("GET /cart", &cookie(&pass)).await);
        // The slot is over, which the store cannot write any more: it gives no answer about this pass.
        door.service.clock.pass_ms(1_800_001);
        is_refused(door.ask("GET /cart", &cookie(&pass)).await);
        is_refused(door.service.send(asked(&pass)).await);
    })
    .await;
}

/// A server and its children.
fn processes(server: &Server) -> Vec<String> {
    let process = server.process();
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    std::iter::once(process.to_string()).chain(children.split_whitespace().map(str::to_owned)).collect()
}

fn signal(name: &str, processes: &[String]) {
    // One of them may have ended meanwhile.
    let _ = Command::new("kill").arg(name).args(processes).status().expect("it runs");
}

/// Servers that stand still until this is dropped.
struct Frozen(Vec<String>);

impl Frozen {
    fn of(world: &World) -> Self {
        let all = [processes(&world.redis), processes(&world.sql)].concat();
        signal("-STOP", &all);
        Self(all)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal("-CONT", &self.0);
    }
}

/// A node with a gate.
struct Node {
    app: Arc<App>,
    gate: Gate,
}

impl Node {
    async fn start(world: &World, site: &Site, grace: Duration, on_loss: OnLoss) -> Self {
        let app = world.app(with(grace, on_loss)).await;
        if app.room_settings(&RoomName::parse("sale").expect("a name")).await.expect("it answers").is_none() {
            for room in ["sale", "other"] {
                let room = Ask::put(&format!("/v1/rooms/{room}")).by(ADMIN).json(&json!({"max_active": 9}));
                send(api::router(Arc::clone(&app)), room).await.is(201);
            }
        }
        let gate = Gate::open(&app, site.address).await;
        Self { app, gate }
    }

    async fn send(&self, ask: Ask) -> Answer {
        send(api::router(Arc::clone(&self.app)), ask).await
    }

    /// The pass of a new visitor.
    async fn pass(&self, room: &str) -> String {
        let ticket = self.send(join(room)).await.is(201).text("ticket");
        let mut pass = None;
        until(async || {
            pass = self.send(Ask::get(&place(room, &ticket))).await.json()["pass"].as_str().map(str::to_owned);
            pass.is_some()
        })
        .await;
        pass.expect("a pass")
    }

    async fn status(&self, pass: &str) -> u16 {
        self.gate.ask("GET /cart", &cookie(pass)).await.status
    }
}

/// Three gates before one room: one whose grace does not end here, one that closes, and one that opens.
struct Gates {
    patient: Node,
    closing: Node,
    opening: Node,
    inside: String,
    left: String,
    /// A pass of another room, with the number of the visitor inside.
    elsewhere: String,
}

impl Gates {
    async fn start(world: &World, site: &Site) -> Self {
        let patient = Node::start(world, site, PATIENT, OnLoss::Close).await;
        let closing = Node::start(world, site, CLOSING, OnLoss::Close).await;
        let opening = Node::start(world, site, CLOSING, OnLoss::Open).await;
        let (inside, left) = (patient.pass("sale").await, patient.pass("sale").await);
        let elsewhere = patient.pass("other").await;
        for node in [&patient, &closing, &opening] {
            until(async || node.status(&inside).await == 200).await;
        }
        patient.send(release("sale", &left)).await.is(204);
        for node in [&patient, &closing, &opening] {
            until(async || node.status(&left).await == 401).await;
            node.send(asked(&left)).await.refused(403, "invalid_pass");
        }
        // The gates allow two seconds for the clocks of nodes, and look once a second.
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        for _ in 0..45 {
            ticks.tick().await;
            patient.gate.ask("GET /cart", &cookie(&left)).await.refused(401, "no_pass");
        }
        Self { patient, closing, opening, inside, left, elsewhere }
    }

    /// From the loss to the end of the grace, and beyond.
    async fn without_store(&self) {
        let Self { patient, closing, opening, inside, left, elsewhere } = self;
        // At once, before any gate knows: no visitor inside notices the loss.
        for node in [closing, opening, patient] {
            let head = received(&soon(node.gate.ask("GET /cart", &cookie(inside))).await);
            assert!(head.contains("x-firstcome-number: 1\r\n") && head.contains("x-firstcome-admission: "), "{head}");
        }
        until_mode(&closing.app, "closed").await;
        is_refused(closing.gate.ask("GET /cart", &cookie(inside)).await);
        is_refused(closing.gate.ask("GET /cart", JSON).await);
        is_refused(closing.send(asked(inside)).await);
        let page = closing.gate.ask("GET /cart", "").await.is(503);
        assert!(page.body().contains("no visitor comes in"), "{}", page.body());

        until_mode(&opening.app, "open").await;
        assert!(received(&opening.gate.ask("GET /cart", &cookie(inside)).await).contains("x-firstcome-number: 1\r\n"));
        for headers in [JSON, "x-firstcome-number: 9\r\n"] {
            let head = received(&opening.gate.ask("GET /cart", headers).await);
            assert!(!head.contains("x-firstcome-"), "{head}");
        }
        opening.send(Ask::get("/v1/rooms/sale/gate")).await.is(204);

        until_mode(&patient.app, "grace").await;
        let watch = Stopwatch::start();
        received(&patient.gate.ask("GET /cart", &cookie(inside)).await);
        assert!(watch.elapsed() < Duration::from_millis(1_900), "it waits for no store: {:?}", watch.elapsed());
        assert_eq!(patient.send(asked(inside)).await.is(204).header("x-firstcome-number"), Some("1"));
        // A slot that was given back before is known to be over, and a text is no pass.
        is_refused(patient.gate.ask("GET /cart", &cookie(left)).await);
        is_refused(patient.gate.ask("GET /cart", &cookie(elsewhere)).await);
        is_refused(patient.send(asked(left)).await);
        is_refused(patient.gate.ask("GET /cart", &cookie(&inside[..inside.len() - 1])).await);
        is_refused(patient.gate.ask("GET /cart", JSON).await);
        patient.send(Ask::get("/v1/rooms/sale/gate")).await.refused(401, "no_pass");
    }

    /// The store is back.
    async fn with_store(&self) {
        let Self { patient, closing, opening, inside, left, .. } = self;
        for node in [patient, closing, opening] {
            until_mode(&node.app, "judging").await;
            until(async || node.status(inside).await == 200).await;
            until(async || node.status(left).await == 401).await;
            until(async || node.send(asked(inside)).await.status == 204).await;
            until(async || node.send(asked(left)).await.status == 403).await;
        }
    }
}

#[tokio::test]
async fn gates_of_nodes_whose_stores_stand_still_or_die_go_on_for_the_grace_and_come_back() {
    let Some(mut world) = World::start(Kind::Postgres).await else { return };
    let site = Site::start().await;
    let gates = in_time(Gates::start(&world, &site)).await;
    let frozen = Frozen::of(&world);
    in_time(gates.without_store()).await;
    drop(frozen);
    in_time(gates.with_store()).await;
    world.redis.kill();
    world.sql.kill();
    in_time(gates.without_store()).await;
    world.sql.restart().await.expect("it starts");
    world.redis.restart().await.expect("it starts");
    in_time(gates.with_store()).await;
    let metrics = gates.closing.send(Ask::get("/metrics").by(ADMIN)).await.body();
    assert!(metrics.contains("firstcome_gate_mode_changes_total{mode=\"closed\"} 2\n"), "{metrics}");
}
