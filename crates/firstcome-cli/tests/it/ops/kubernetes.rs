//! The chart for Kubernetes, as Helm renders it with its default values.

use super::files::{ROOT, read, yaml};
use super::{DRAIN, seconds};
use crate::support::program::{command, firstcome, run};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const RENDERED: &str = "kubernetes/firstcome.yaml";

/// Returns the object of a kind.
#[track_caller]
fn object(kind: &str) -> Value {
    let found = yaml(RENDERED).into_iter().find(|object| object["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} is in {RENDERED}"))
}

/// Returns the only container of the pods of an object.
fn container(object: &Value) -> Value {
    let containers = object["spec"]["template"]["spec"]["containers"].as_array().expect("containers");
    assert_eq!(containers.len(), 1);
    containers[0].clone()
}

/// Returns the value of a variable.
fn variable<'a>(container: &'a Value, name: &str) -> &'a Value {
    let all = container["env"].as_array().expect("variables");
    all.iter().find(|variable| variable["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn the_manifests_are_those_of_the_chart() {
    let sum = "find . -type f | LC_ALL=C sort | xargs cat | sha256sum | cut -d ' ' -f 1";
    let chart = format!("{ROOT}/ops/helm/firstcome");
    let sum = run(command("sh", Path::new(&chart)).args(["-c", sum])).well();
    let text = read(RENDERED);
    let wanted = format!("# Chart: {}", sum.trim());
    assert!(
        text.lines().any(|line| line == wanted),
        "the chart has changed: `cargo xtask full package` renders it anew"
    );
}

#[test]
fn every_setting_of_the_program_can_be_set_by_the_chart() {
    let schema: Value = serde_json::from_str(&read("helm/firstcome/values.schema.json")).expect("a schema");
    let pattern = &schema["properties"]["settings"]["propertyNames"]["pattern"];
    assert_eq!(pattern, "^(FIRSTCOME|OTEL)_[A-Z_]+$", "the names below are judged by it");
    let page = std::fs::read_to_string(format!("{ROOT}/docs/configuration.md")).expect("the page is there");
    let mut seen = 0;
    // The second column of its tables.
    for cell in page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(1)) {
        let Some(name) = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`')) else { continue };
        let rest = name.strip_prefix("FIRSTCOME_").or_else(|| name.strip_prefix("OTEL_"));
        let is_let_in = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        assert!(rest.is_some_and(is_let_in), "the chart refuses {name}");
        seen += 1;
    }
    assert!(50 < seen, "{seen} settings were seen");
}

/// docs/deploy.md applies the Job by its label, and the rest without it.
#[test]
fn the_job_of_migrate_alone_has_its_label() {
    let page = std::fs::read_to_string(format!("{ROOT}/docs/deploy.md")).expect("the page is there");
    for selector in ["-l app.kubernetes.io/component=migrate", "-l 'app.kubernetes.io/component!=migrate'"] {
        assert!(page.contains(selector), "{selector}");
    }
    let name = object("Job")["metadata"]["name"].as_str().expect("a name").to_owned();
    assert!(page.contains(&format!("kubectl delete job {name} --ignore-not-found")), "{name}");
    let labelled = |object: &Value| object["metadata"]["labels"]["app.kubernetes.io/component"] == "migrate";
    let kinds: Vec<Value> = yaml(RENDERED).into_iter().filter(labelled).map(|object| object["kind"].clone()).collect();
    assert_eq!(kinds, ["Job"]);
}

#[test]
fn liveness_asks_the_process_and_readiness_the_node() {
    let container = container(&object("Deployment"));
    let admin = variable(&container, "FIRSTCOME_ADMIN_LISTEN")["value"].as_str().expect("an address").to_owned();
    let ports = container["ports"].as_array().expect("ports");
    let port = ports.iter().find(|port| port["name"] == "admin").expect("a port of operators");
    assert!(admin.ends_with(&format!(":{}", port["containerPort"])), "{admin}");
    for (probe, path) in [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!(container[probe]["httpGet"], json!({"path": path, "port": "admin"}), "{probe}");
    }
    // A pod that is busy for a moment is not ended, and one that says no is noticed within the grace of a stop.
    let lasts = |probe: &str| {
        let number = |name: &str| container[probe][name].as_u64().expect("a number");
        Duration::from_secs(number("periodSeconds") * number("failureThreshold") + number("timeoutSeconds"))
    };
    assert!(Duration::from_secs(30) <= lasts("livenessProbe"));
    assert!(lasts("readinessProbe") < seconds(&variable(&container, "FIRSTCOME_STOP_GRACE")["value"]));
}

#[test]
fn a_pod_has_the_time_to_stop_and_the_others_stay() {
    let deployment = object("Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    let container = container(&deployment);
    let [grace, drain] =
        ["FIRSTCOME_STOP_GRACE", "FIRSTCOME_DRAIN"].map(|name| seconds(&variable(&container, name)["value"]));
    let given = pod["terminationGracePeriodSeconds"].as_u64().map(Duration::from_secs).expect("seconds");
    assert!(DRAIN <= drain && grace + drain < given, "{grace:?}, {drain:?}, {given:?}");
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"], json!({"maxSurge": 1, "maxUnavailable": 0}));
    let budget = object("PodDisruptionBudget");
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    assert_eq!(budget["spec"]["selector"], deployment["spec"]["selector"], "the budget is that of the nodes");
    let service = object("Service");
    assert_eq!(service["spec"]["selector"], deployment["spec"]["selector"]["matchLabels"]);
    let labels = deployment["spec"]["template"]["metadata"]["labels"].as_object().expect("labels");
    for (name, value) in deployment["spec"]["selector"]["matchLabels"].as_object().expect("labels") {
        assert_eq!(labels.get(name), Some(value), "the pods have the labels by which they are found");
    }
    // The job of migrate is no node: no visitor may reach it, and no budget counts it.
    let job = object("Job");
    assert_ne!(job["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"], "node");
    assert_eq!(job["metadata"]["annotations"]["helm.sh/hook"], "pre-install,pre-upgrade");
    let ports = service["spec"]["ports"].as_array().expect("ports");
    assert_eq!((ports.len(), &ports[0]["targetPort"]), (1, &json!("http")), "metrics are not shown to visitors");
}

/// The keys of the Secret that a pod mounts, and the files in which they are.
fn mounted_keys(pod: &Value) -> Vec<(String, String)> {
    let items = pod["volumes"][0]["secret"]["items"].as_array().expect("keys");
    let text = |item: &Value, name: &str| item[name].as_str().expect("a text").to_owned();
    items.iter().map(|item| (text(item, "key"), text(item, "path"))).collect()
}

#[test]
fn pods_have_no_rights_and_no_secret_in_the_open() {
    let directory = tempfile::tempdir().expect("a directory");
    for kind in ["Deployment", "Job"] {
        let object = object(kind);
        let (pod, container) = (&object["spec"]["template"]["spec"], container(&object));
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{kind}");
        assert_eq!(pod["securityContext"]["runAsUser"], 10001, "{kind}: as in the Dockerfile");
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{kind}");
        assert_eq!(pod["automountServiceAccountToken"], false, "{kind}");
        let rights = json!({
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}
        });
        assert_eq!(container["securityContext"], rights, "{kind}");
        assert!(container["resources"]["limits"]["memory"].is_string(), "{kind}");
        for variable in container["env"].as_array().expect("variables") {
            let name = variable["name"].as_str().expect("a name");
            assert!(variable["valueFrom"].is_null(), "{kind}: {name} is in the environment");
            assert!(!["FIRSTCOME_REDIS", "FIRSTCOME_SQL", "FIRSTCOME_SECRET"].contains(&name), "{kind}: {name}");
            if name.ends_with("_FILE") {
                let mounted = container["volumeMounts"][0]["mountPath"].as_str().expect("a path");
                let path = variable["value"].as_str().expect("a path");
                let file = path.strip_prefix(mounted).and_then(|path| path.strip_prefix('/'));
                assert!(
                    file.is_some_and(|file| mounted_keys(pod).iter().any(|(_, path)| path == file)),
                    "{kind}: {path}"
                );
            }
        }
        // The image's entry point is the program.
        let words: Vec<&str> = container["args"].as_array().expect("words").iter().filter_map(Value::as_str).collect();
        firstcome(directory.path(), &[&words[..], &["--help"]].concat()).well();
    }
    let keys = |kind: &str| mounted_keys(&object(kind)["spec"]["template"]["spec"]);
    assert!(keys("Job").iter().all(|owner| !keys("Deployment").contains(owner)), "nodes do not own the tables");
}

#[test]
fn the_version_of_the_chart_is_that_of_the_program() {
    let directory = tempfile::tempdir().expect("a directory");
    let version = firstcome(directory.path(), &["--version"]).well();
    let chart = yaml("helm/firstcome/Chart.yaml").remove(0);
    for field in ["version", "appVersion"] {
        assert_eq!(
            Some(version.trim()),
            chart[field].as_str().map(|it| format!("firstcome {it}")).as_deref(),
            "{field}"
        );
    }
}
