//! The chart for Kubernetes, as Helm renders it: with its default values, and with others.

use super::files::{ROOT, read, yaml};
use super::{DRAIN, seconds, variables};
use crate::support::program::{command, firstcome, run};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

const RENDERED: &str = "kubernetes/firstcome.yaml";
/// With each key of the Secret that the chart can mount, and all else that it can switch on.
const EVERYTHING: &str = "../xtask/chart/rendered/everything.yaml";
/// With files from volumes of the operator, named by settings.
const FILES: &str = "../xtask/chart/rendered/files.yaml";

/// Returns the object of a kind.
#[track_caller]
fn object(kind: &str) -> Value {
    object_in(RENDERED, kind)
}

/// Returns the object of a kind in a rendering.
#[track_caller]
fn object_in(rendering: &str, kind: &str) -> Value {
    let found = yaml(rendering).into_iter().find(|object| object["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} is in {rendering}"))
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
    let chart = format!("{ROOT}/ops/helm/firstcome");
    for (rendering, directory, files) in [
        (RENDERED, &chart[..], "."),
        (EVERYTHING, ROOT, "ops/helm/firstcome xtask/chart/values"),
        (FILES, ROOT, "ops/helm/firstcome xtask/chart/values"),
    ] {
        let sum = format!("find {files} -type f | LC_ALL=C sort | xargs cat | sha256sum | cut -d ' ' -f 1");
        let sum = run(command("sh", Path::new(directory)).args(["-c", &sum])).well();
        let wanted = format!("# Chart: {}", sum.trim());
        assert!(
            read(rendering).lines().any(|line| line == wanted),
            "the chart has changed: `cargo xtask full package` renders {rendering} anew"
        );
    }
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

/// Returns the variables of `firstcome serve` that name a file, by docs/configuration.md.
fn variables_of_files() -> BTreeSet<String> {
    let page = std::fs::read_to_string(format!("{ROOT}/docs/configuration.md")).expect("the page is there");
    let (_, from_secrets) = page.split_once("\n## Secrets\n").expect("the secrets");
    let (tables, _) = from_secrets.split_once("\n## The gate").expect("the end of the settings of serve");
    let mut found = BTreeSet::new();
    for row in tables.lines().filter_map(|line| line.strip_prefix("| ")) {
        let mut cells = row.split(" | ").map(|cell| cell.trim_matches('`'));
        let (Some(first), Some(name)) = (cells.next(), cells.next()) else { continue };
        if name.ends_with("_FILE") || first.ends_with(" FILE") {
            found.insert(name.to_owned());
        }
    }
    assert_eq!(found.len(), 13, "{found:?}");
    found
}

/// Returns the values of the variables of an object's container. Fails if a variable is set twice.
fn environment(object: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for variable in container(object)["env"].as_array().expect("variables") {
        let before = found.insert(text(&variable["name"]), text(&variable["value"]));
        assert!(before.is_none(), "{variable} is set twice");
    }
    found
}

/// Returns the paths of the files that the container of an object sees: the items of its mounted volumes.
fn mounted_files(object: &Value) -> BTreeSet<String> {
    let volumes = object["spec"]["template"]["spec"]["volumes"].as_array().expect("volumes");
    let mut found = BTreeSet::new();
    for mount in container(object)["volumeMounts"].as_array().expect("mounts") {
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]);
        let volume = volume.unwrap_or_else(|| panic!("no volume is called {}", mount["name"]));
        let items = ["secret", "configMap"].into_iter().find_map(|kind| volume[kind]["items"].as_array());
        let directory = text(&mount["mountPath"]);
        found.extend(items.expect("items").iter().map(|item| format!("{directory}/{}", text(&item["path"]))));
    }
    found
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// The pods can mount each file that a setting names: by a key of the Secret, or by a volume of the operator.
#[test]
fn every_file_that_a_setting_names_can_be_mounted_by_the_chart() {
    let of_nodes = variables_of_files();
    let directory = tempfile::tempdir().expect("a directory");
    let help = firstcome(directory.path(), &["migrate", "--help"]).well();
    // The address of the owner has a password, so it comes from a file alone.
    let read_by_job: BTreeSet<&str> = variables(&help).into_iter().filter(|name| *name != "FIRSTCOME_SQL").collect();
    let of_job: BTreeSet<String> =
        of_nodes.iter().filter(|name| read_by_job.contains(name.as_str())).cloned().collect();
    assert_eq!(of_job.len(), 4, "{of_job:?}");
    // A settings file is no secret: it comes from a volume.
    let of_keys: BTreeSet<String> = of_nodes.iter().filter(|name| *name != "FIRSTCOME_CONFIG").cloned().collect();
    for (rendering, kind, wanted) in [
        (EVERYTHING, "Deployment", &of_keys),
        (EVERYTHING, "Job", &of_job),
        (FILES, "Deployment", &of_nodes),
        (FILES, "Job", &of_job),
    ] {
        let object = object_in(rendering, kind);
        let (environment, mounted) = (environment(&object), mounted_files(&object));
        let named: BTreeSet<String> = environment.keys().filter(|name| of_nodes.contains(*name)).cloned().collect();
        assert_eq!(&named, wanted, "{rendering}: {kind}");
        for name in &named {
            let path = &environment[name];
            assert!(mounted.contains(path), "{rendering}: {kind}: {name} is {path}, and mounted are {mounted:?}");
        }
        if kind == "Job" {
            let names: BTreeSet<&str> = environment.keys().map(String::as_str).collect();
            assert_eq!(names, read_by_job, "{rendering}: the Job gets each setting that it reads, and no other");
        }
    }
}

/// Returns the values of the label `job` that the queries of a file ask for.
fn jobs(file: &str) -> BTreeSet<String> {
    // In JSON the quotes are escaped.
    let queries = read(file).replace("\\\"", "\"");
    let values = queries.split("job=\"").skip(1).filter_map(|rest| rest.split('"').next());
    values.map(str::to_owned).collect()
}

#[test]
fn the_pod_monitor_gives_the_job_that_alerts_and_dashboard_ask_for() {
    let monitor = object_in(EVERYTHING, "PodMonitor");
    let nodes = object_in(EVERYTHING, "Deployment");
    assert_eq!(monitor["spec"]["selector"], nodes["spec"]["selector"]);
    let endpoints = monitor["spec"]["podMetricsEndpoints"].as_array().expect("endpoints");
    assert_eq!(endpoints.len(), 1);
    for file in ["prometheus/alerts.yml", "prometheus/alerts_test.yml", "grafana/firstcome.json"] {
        let jobs = jobs(file);
        assert_eq!(jobs.len(), 1, "{file}: {jobs:?}");
        for job in jobs {
            let named = json!([{"targetLabel": "job", "replacement": job}]);
            assert_eq!(endpoints[0]["relabelings"], named, "{file}");
            assert_eq!(yaml("prometheus/prometheus.yml")[0]["scrape_configs"][0]["job_name"], job, "{file}");
        }
    }
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
    // Redis and the database, which all pods share, make no pod unready: a Service has no fallback.
    let of_node = "/readyz?of=node";
    for (probe, path) in [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", of_node)] {
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
    items.iter().map(|item| (text(&item["key"]), text(&item["path"]))).collect()
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
