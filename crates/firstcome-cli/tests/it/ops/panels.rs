//! The queries of the dashboard, asked of a Prometheus that watches real services under load.
//!
//! `FIRSTCOME_PANELS` names a file for what the panels show; the load is longer then. `cargo xtask full dashboard` draws it.

use super::files::read;
use crate::support::http::Client;
use crate::support::machine_has;
use crate::support::program::{PROGRAM, command, is_installed, run, run_for};
use crate::support::server::Server;
use crate::support::world::World;
use crate::support::{Over, panels_file, wait_for};
use firstcome_test_servers::{Kind, free_port};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

const KEY: &str = "given-0123456789-0123456789";
/// Prometheus of this test asks each second, so rates need as many as this.
const RATE_INTERVAL: &str = "10s";
/// All people of a drill come from one address.
const UNLIMITED: [&str; 6] =
    ["--calls-per-minute", "0", "--joins-per-minute", "0", "--failed-authentications-per-minute", "0"];
/// The panels about what these services do not do, or that goes wrong: all others show something.
const EMPTY: [&str; 3] = ["How gates decide", "Requests at the gate", "Share that the origin leaves"];

/// A Prometheus that watches services, killed when it is dropped.
struct Prometheus {
    child: Child,
    url: String,
    directory: TempDir,
}

impl Prometheus {
    fn over(services: &[&Server]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let key = directory.path().join("key");
        std::fs::write(&key, KEY).expect("a file");
        let targets: Vec<String> = services.iter().map(|server| server.address().to_string()).collect();
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{
                "job_name": "firstcome",
                "authorization": {"credentials_file": key},
                "static_configs": [{"targets": targets}],
            }],
        });
        let file = directory.path().join("prometheus.yml");
        // JSON is YAML.
        std::fs::write(&file, config.to_string()).expect("a file");
        let address = format!("127.0.0.1:{}", free_port().expect("a port"));
        let child = command("prometheus", directory.path())
            .args(["--config.file", "prometheus.yml", "--storage.tsdb.path", "data", "--log.level", "error"])
            .args(["--web.listen-address", &address])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        Self { child, url: format!("http://{address}"), directory }
    }

    /// What a query gives now.
    fn ask(&self, query: &str) -> Result<Value, String> {
        let ended =
            run(command("promtool", self.directory.path()).args(["query", "instant", "-o", "json", &self.url, query]));
        if ended.code == Some(0) { Ok(serde_json::from_str(&ended.stdout).expect("JSON")) } else { Err(ended.stderr) }
    }

    /// What a query gives for each second since then.
    fn history(&self, query: &str, since_s: u64, now_s: u64) -> Value {
        let [start, end] = [since_s, now_s].map(|at| at.to_string());
        let range =
            ["query", "range", "-o", "json", "--step", "1s", "--start", &start, "--end", &end, &self.url, query];
        serde_json::from_str(&run(command("promtool", self.directory.path()).args(range)).well()).expect("JSON")
    }

    fn now_s(&self) -> u64 {
        self.ask("time()").ok().and_then(|told| told[0].as_f64()).expect("the time") as u64
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // An error means that it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The events whose figures the panels show, one after the other at each service, and a lock that is taken again and again.
fn play(embedded: SocketAddr, node: SocketAddr, seconds: &str, people: &str) {
    let over = AtomicBool::new(false);
    let drill = |service: SocketAddr, event: &str| {
        let url = format!("http://{service}");
        let directory = tempfile::tempdir().expect("a directory");
        let mut drill = command(PROGRAM, directory.path());
        drill.args([
            "drill",
            event,
            "--url",
            &url,
            "--people",
            people,
            "--stock",
            "50",
            "--seconds",
            seconds,
            "--json",
        ]);
        drill.env("FIRSTCOME_DRILL_ADMIN_KEY", KEY).env("FIRSTCOME_DRILL_SERVICE_KEY", KEY);
        // It is load here: the tests of drills judge what it finds.
        run_for(&mut drill, Duration::from_secs(600));
    };
    std::thread::scope(|scope| {
        for service in [embedded, node] {
            let over = &over;
            scope.spawn(move || {
                let mut client = Client::with_key(service, KEY);
                let acquire = json!({"owner": "ann", "wait_ms": 1_000, "lease_ms": 60_000});
                while !over.load(Ordering::Relaxed) {
                    let held = client.call("POST", "/v1/locks/door/acquire", Some(&acquire)).json();
                    let release = json!({"handle": held["handle"]});
                    client.call("POST", "/v1/locks/door/release", Some(&release));
                }
            });
        }
        // Also when a drill fails, or the scope would wait for ever.
        let _over = Over(&over);
        let at_node = scope.spawn(|| ["concert", "coupon"].map(|event| drill(node, event)));
        for event in ["concert", "auction"] {
            drill(embedded, event);
        }
        at_node.join().expect("the drills at the node end");
    });
}

/// Puts the variables of the dashboard into a query.
fn query_of(text: &str) -> String {
    text.replace("$__rate_interval", RATE_INTERVAL).replace("$instance", ".*")
}

/// The name of a series by the pattern of its legend, as Grafana makes it.
fn name_of(pattern: &str, labels: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    labels.fold(pattern.to_owned(), |name, (label, value)| {
        name.replace(&format!("{{{{{label}}}}}"), value.as_str().unwrap_or_default())
    })
}

#[test]
fn every_panel_of_the_dashboard_shows_something_beside_a_drill() {
    if !machine_has("prometheus", is_installed("prometheus")) {
        return;
    }
    let Some(world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    let mut nodes = [world.node(), world.node()]
        .map(|mut node| Server::spawn(node.args(UNLIMITED).env("FIRSTCOME_ADMIN_KEY", KEY)));
    let mut serve = command(PROGRAM, world.here());
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data", "data"]).args(UNLIMITED).env("FIRSTCOME_ADMIN_KEY", KEY);
    let embedded = Server::spawn(&mut serve);
    let prometheus = Prometheus::over(&[&embedded, &nodes[0], &nodes[1]]);
    wait_for("Prometheus to see all services", || {
        prometheus.ask("sum(up)").ok().filter(|told| told[0]["value"][1] == "3")
    });
    let since_s = prometheus.now_s();
    let file = panels_file();
    let (seconds, people) = if file.is_some() { ("60", "2000") } else { ("10", "200") };
    play(embedded.address(), nodes[0].address(), seconds, people);
    // A node that is killed and comes again: the panels must show a fault, too.
    nodes[1].kill();
    wait_for("Prometheus to miss a node", || prometheus.ask("sum(up)").ok().filter(|told| told[0]["value"][1] == "2"));
    let now_s = prometheus.now_s();
    let dashboard: Value = serde_json::from_str(&read("grafana/firstcome.json")).expect("JSON");
    let mut shown = Vec::new();
    let mut empty = BTreeMap::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        let mut series = Vec::new();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = query_of(target["expr"].as_str().expect("a query"));
            for line in prometheus.history(&query, since_s, now_s).as_array().into_iter().flatten() {
                let name = name_of(target["legendFormat"].as_str().unwrap_or_default(), &line["metric"]);
                series.push(json!({"name": name, "values": line["values"]}));
            }
        }
        let title = panel["title"].as_str().expect("a title");
        if panel["type"] != "row" && series.is_empty() {
            empty.insert(title.to_owned(), panel["targets"].clone());
        }
        let unit = &panel["fieldConfig"]["defaults"]["unit"];
        shown.push(
            json!({"title": title, "type": panel["type"], "unit": unit, "at": panel["gridPos"], "series": series}),
        );
    }
    let wanted: Vec<_> = empty.iter().filter(|(title, _)| !EMPTY.contains(&title.as_str())).collect();
    assert!(wanted.is_empty(), "these panels show nothing: {wanted:#?}");
    if let Some(file) = file {
        std::fs::write(file, json!({"since_s": since_s, "now_s": now_s, "panels": shown}).to_string()).expect("a file");
    }
}
