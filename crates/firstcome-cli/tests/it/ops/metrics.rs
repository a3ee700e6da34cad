//! The metrics that the dashboard and the alerts ask for, beside those that services show.

use super::files::{read, yaml};
use super::{ALERT_TESTS, words};
use crate::support::http::Client;
use crate::support::server::Server;
use crate::support::world::World;
use firstcome_test_servers::{Authority, Flaw, Kind};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The labels that Prometheus adds.
const OF_PROMETHEUS: [&str; 3] = ["instance", "job", "le"];

/// The samples that services show, by the name of their metric.
#[derive(Default)]
struct Shown(BTreeMap<String, Vec<String>>);

impl Shown {
    /// Adds what a service shows at `/metrics`. Metrics without a sample count too: Prometheus knows them after the first one.
    fn add(&mut self, text: &str) {
        for line in text.lines() {
            if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                let endings: &[&str] = match kind {
                    "counter" => &["_total"],
                    "histogram" => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                for ending in endings {
                    self.0.entry(format!("{name}{ending}")).or_default();
                }
            } else if let Some(end) = line.find(['{', ' ']).filter(|_| !line.starts_with('#')) {
                self.0.entry(line[..end].to_owned()).or_default().push(line.to_owned());
            }
        }
    }

    /// Says what is wrong with the metrics and the labels that this text asks for. Counts the metrics.
    fn judge(&self, text: &str, seen: &mut usize) -> Option<String> {
        for name in words(text, "firstcome_", |letter| letter.is_ascii_alphanumeric() || letter == '_') {
            *seen += 1;
            let Some(samples) = self.0.get(name) else { return Some(format!("no service shows {name}")) };
            let begin = name.as_ptr() as usize - text.as_ptr() as usize + name.len();
            let Some(matchers) = text[begin..].strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
                continue;
            };
            for matcher in matchers.0.split(',') {
                let Some((label, values)) = matcher.split_once('=') else { continue };
                let label = label.trim().trim_end_matches('!');
                let values = values.trim_start_matches(['~', '"']).trim_end_matches('"');
                // A value that is no plain word is a pattern, or a variable of the dashboard.
                let plain = |value: &&str| value.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
                for value in values.split('|').filter(plain).filter(|_| !OF_PROMETHEUS.contains(&label)) {
                    let wanted = format!("{label}=\"{value}\"");
                    if !samples.iter().any(|sample| sample.contains(&wanted)) {
                        return Some(format!("no sample of {name} has {wanted}"));
                    }
                }
            }
        }
        None
    }
}

/// Returns what is shown by a service over a directory, by one with a certificate, and by a node of a cluster; `None` where there is
/// no cluster.
fn shown() -> Option<Shown> {
    let mut shown = Shown::default();
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path());
    shown.add(&server.client().get("/metrics").text());
    server.stop();
    shown.add(&shown_under_tls(directory.path()));
    let world = World::start(Kind::Postgres)?;
    world.migrate(world.sql.url());
    let key = "given-0123456789-0123456789";
    let node = Server::spawn(world.node().env("FIRSTCOME_ADMIN_KEY", key));
    shown.add(&Client::with_key(node.address(), key).get("/metrics").text());
    node.stop();
    Some(shown)
}

/// Returns what a service shows that has a certificate. Operators read it in plain text on loopback.
fn shown_under_tls(directory: &Path) -> String {
    let mut authority = Authority::new().expect("an authority");
    let files = authority.sign(Flaw::None).expect("signed");
    let [cert, key] = [&files.cert, &files.key].map(|path| path.to_str().expect("its path is text"));
    let arguments = ["--tls-cert", cert, "--tls-key", key, "--admin-listen", "127.0.0.1:0"];
    let mut server = Server::start_with(directory, &arguments);
    let line = server.line("admin on http://");
    let address = line.trim_start_matches("admin on http://").parse().expect("an address");
    let text = Client::new(address).get("/metrics").text();
    server.stop();
    text
}

/// All texts under these keys, at any depth.
fn texts<'a>(value: &'a Value, keys: &[&str], found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if keys.contains(&key.as_str()) => found.push(text),
                    _ => texts(value, keys, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, keys, found)),
        _ => {}
    }
}

#[test]
fn dashboard_and_alerts_ask_for_metrics_and_labels_that_services_show() {
    let Some(shown) = shown() else { return };
    let dashboard: Value = serde_json::from_str(&read("grafana/firstcome.json")).expect("JSON");
    let alerts = yaml("prometheus/alerts.yml").remove(0);
    let [tests, tests_of_days] = ALERT_TESTS.map(|name| yaml(&format!("prometheus/{name}")).remove(0));
    for (file, value, keys, least) in [
        ("grafana/firstcome.json", &dashboard, &["expr", "query", "definition"][..], 60),
        ("prometheus/alerts.yml", &alerts, &["expr", "action"], 20),
        // A test over a metric that no service shows would show nothing.
        ("prometheus/alerts_test.yml", &tests, &["series"], 20),
        ("prometheus/alerts_days_test.yml", &tests_of_days, &["series"], 4),
    ] {
        let (mut found, mut seen) = (Vec::new(), 0);
        texts(value, keys, &mut found);
        for text in found {
            let wrong = shown.judge(text, &mut seen);
            assert!(wrong.is_none(), "ops/{file}: {}: {text}", wrong.unwrap_or_default());
        }
        assert!(least <= seen, "ops/{file}: {seen} metrics were seen");
    }
}

#[test]
fn a_wrong_name_and_a_wrong_label_are_seen() {
    let mut shown = Shown::default();
    shown.add("# TYPE firstcome_bids counter\nfirstcome_bids_total{outcome=\"accepted\"} 0\n");
    shown.add("# TYPE firstcome_lock_wait_seconds histogram\n# TYPE firstcome_streams gauge\n");
    let judge = |text: &str| shown.judge(text, &mut 0).unwrap_or_default();
    let right = "rate(firstcome_bids_total{instance=~\"$instance\",outcome=\"accepted\"}[5m]) + firstcome_streams";
    assert_eq!((judge(right), judge("firstcome_lock_wait_seconds_bucket")), (String::new(), String::new()));
    assert_eq!(judge("sum(firstcome_bids)"), "no service shows firstcome_bids");
    assert_eq!(judge("x / firstcome_stream"), "no service shows firstcome_stream");
    let wrong = "no sample of firstcome_bids_total has outcome=\"refused\"";
    assert_eq!(judge("firstcome_bids_total{outcome=~\"accepted|refused\"}"), wrong);
    assert_eq!(judge("firstcome_bids_total{outcome!=\"refused\"}"), wrong);
}
