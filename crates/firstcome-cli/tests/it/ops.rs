//! The files in `ops/`, with which operators deploy and watch the service: they name only settings, flags and metrics that there are,
//! and the tools that read them accept them.

mod files;
mod kubernetes;
mod metrics;
mod panels;
mod rolling;
mod unit;

use crate::support::http::Client;
use crate::support::machine_has;
use crate::support::program::{command, firstcome, is_installed, run};
use crate::support::server::Server;
use crate::support::world::World;
use files::{ROOT, all, read, yaml};
use firstcome_test_servers::Kind;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// The commands that operators run from these files or beside them.
const COMMANDS: [&str; 21] = [
    "serve",
    "gate",
    "migrate",
    "health",
    "verify",
    "reconcile",
    "rewrap",
    "doctor",
    "config check",
    "config print",
    "export",
    "import",
    "backup",
    "restore",
    "keys create",
    "keys rotate",
    "keys revoke",
    "pass-keys rotate",
    "pass-keys revoke",
    "erase",
    "purge",
];
/// The flags of other programs in these files.
const FOREIGN_FLAGS: [&str; 19] = [
    // adduser and rmdir
    "--gecos",
    "--group",
    "--home",
    "--ignore-fail-on-non-empty",
    "--no-create-home",
    "--system",
    // docker compose
    "--build",
    "--profile",
    // redis-server
    "--appendfsync",
    "--appendonly",
    "--dir",
    "--maxmemory-policy",
    // pg_isready and psql
    "--dbname",
    "--host",
    "--quiet",
    "--set",
    "--username",
    // kubectl
    "--namespace",
    // helm
    "--kube-version",
];
/// The files that play the alerts.
const ALERT_TESTS: [&str; 2] = ["alerts_test.yml", "alerts_days_test.yml"];
/// The time that a service takes to stop beyond its grace: the drain, unless it is set.
const DRAIN: Duration = Duration::from_secs(9);

/// Returns the words of a text that begin like this and go on with these letters.
fn words<'a>(text: &'a str, begin: &'a str, goes_on: fn(char) -> bool) -> impl Iterator<Item = &'a str> {
    text.match_indices(begin).filter_map(move |(at, _)| {
        let before = text[..at].chars().next_back();
        let rest = &text[at + begin.len()..];
        let end = rest.find(|letter| !goes_on(letter)).unwrap_or(rest.len());
        let stands_alone = !before.is_some_and(|letter| letter == '-' || goes_on(letter));
        stands_alone.then(|| &text[at..at + begin.len() + end])
    })
}

/// Returns what `--help` of each command says, with its variables.
fn helps() -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let help = |name: &str| {
        let words: Vec<&str> = name.split(' ').chain(["--help"]).collect();
        firstcome(directory.path(), &words).well()
    };
    COMMANDS.map(help).concat()
}

fn variables(text: &str) -> BTreeSet<&str> {
    let names = words(text, "FIRSTCOME_", |letter| letter.is_ascii_uppercase() || letter == '_');
    names.filter(|name| !name.ends_with('_')).collect()
}

fn flags(text: &str) -> BTreeSet<&str> {
    let flags = words(text, "--", |letter| letter.is_ascii_lowercase() || letter == '-');
    // A line of dashes parts the documents of a file.
    flags.filter(|flag| !flag.trim_matches('-').is_empty()).collect()
}

#[test]
fn every_variable_is_one_of_the_program() {
    // A test compares this page with the program. It alone names the variables of secrets, which have no flag.
    let known = helps() + &fs::read_to_string(format!("{ROOT}/docs/configuration.md")).expect("the page is there");
    let known = variables(&known);
    let mut seen = 0;
    for file in all().iter().chain([&"../Dockerfile".to_owned()]) {
        for name in variables(&read(file)) {
            assert!(known.contains(name), "ops/{file}: the program has no {name}");
            seen += 1;
        }
    }
    assert!(30 < seen, "{seen} variables were seen");
}

#[test]
fn every_flag_is_one_of_the_program() {
    let known = helps();
    let known = flags(&known);
    let mut seen = 0;
    for file in all() {
        for flag in flags(&read(&file)).into_iter().filter(|flag| !FOREIGN_FLAGS.contains(flag)) {
            assert!(known.contains(flag), "ops/{file}: the program has no {flag}");
            seen += 1;
        }
    }
    assert!(8 < seen, "{seen} flags were seen");
}

#[test]
fn the_settings_file_of_the_package_is_understood_also_without_its_comment_signs() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = read("systemd/firstcome.toml");
    // Settings that are switched off are spelt `# name = value`.
    let is_off = |line: &&str| line.starts_with("# ") && line.contains(" = ");
    assert_eq!(text.lines().filter(is_off).count(), 4, "{text}");
    let on: Vec<&str> =
        text.lines().map(|line| if is_off(&line) { line.trim_start_matches("# ") } else { line }).collect();
    for (name, text) in [("off.toml", text.clone()), ("on.toml", on.join("\n"))] {
        fs::write(directory.path().join(name), text).expect("a file");
        // A secret that is missing, or a server: the settings before it are right. `--dev` with a free port shows the first file.
        let mut serve = command(crate::support::program::PROGRAM, directory.path());
        serve.args(["serve", "--config", name, "--listen", "127.0.0.1:0"]);
        if name == "off.toml" {
            let server = Server::spawn(serve.args(["--dev", "--data", "data"]));
            server.stop();
        } else {
            let said = run(&mut serve).with(2);
            assert!(said.contains("need the secret of the deployment"), "{said}");
        }
    }
}

/// The services of the file for Compose.
fn services() -> serde_json::Map<String, Value> {
    let file = yaml("compose/docker-compose.yml").remove(0);
    file["services"].as_object().expect("services").clone()
}

fn seconds(text: &Value) -> Duration {
    let text = text.as_str().and_then(|text| text.strip_suffix('s')).expect("a time in seconds");
    Duration::from_secs(text.parse().expect("a number"))
}

#[test]
fn compose_hardens_every_container_and_gives_nodes_time_to_stop() {
    let services = services();
    let mut nodes = 0;
    for (name, service) in &services {
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(
            (&service["cap_drop"], &service["security_opt"]),
            (&json!(["ALL"]), &json!(["no-new-privileges:true"]))
        );
        let image = service["image"].as_str().expect("an image");
        assert!(image == "firstcome" || image.contains(':') && !image.ends_with("latest"), "{name}: {image}");
        if name.starts_with("node") {
            let grace = seconds(&service["environment"]["FIRSTCOME_STOP_GRACE"]);
            assert!(grace + DRAIN < seconds(&service["stop_grace_period"]), "{name} is killed before it has stopped");
            assert_eq!(service["depends_on"]["migrate"]["condition"], "service_completed_successfully", "{name}");
            assert!(service["healthcheck"]["test"].is_array(), "{name}");
            nodes += 1;
        }
    }
    assert_eq!(nodes, 3);
    // Prometheus scrapes with the key to view that the nodes take: /metrics needs one on an address that is not loopback.
    let credentials = "/run/secrets/view-keys";
    assert_eq!(services["node1"]["environment"]["FIRSTCOME_VIEW_KEYS_FILE"], credentials);
    assert!(services["prometheus"]["secrets"].as_array().is_some_and(|secrets| secrets.contains(&json!("view-keys"))));
    let scrape = &yaml("prometheus/prometheus.yml").remove(0)["scrape_configs"][0];
    assert_eq!(scrape["authorization"]["credentials_file"], credentials);
    // What a node needs of Redis, or it grants no lock and confirms no early answer.
    let redis = services["redis"]["command"].to_string();
    for words in ["\"--appendfsync\",\"always\"", "\"--maxmemory-policy\",\"noeviction\"", "\"--appendonly\",\"yes\""] {
        assert!(redis.contains(words), "{words}: {redis}");
    }
    // The proxy that counts is the one that is there.
    let proxy = &services["haproxy"]["networks"]["default"]["ipv4_address"];
    assert_eq!(&services["node1"]["environment"]["FIRSTCOME_TRUSTED_PROXY"], proxy);
}

#[test]
fn compose_has_every_file_that_it_names_and_the_script_makes_every_secret() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("make-secrets.sh");
    fs::write(&script, read("compose/make-secrets.sh")).expect("a script");
    let make = || run(command("sh", directory.path()).arg(&script)).well();
    make();
    let file = yaml("compose/docker-compose.yml").remove(0);
    let secrets = file["secrets"].as_object().expect("secrets");
    let content = |name: &str| fs::read_to_string(directory.path().join("secrets").join(name)).expect("a secret");
    for (name, secret) in secrets {
        assert_eq!(secret["file"], format!("secrets/{name}"));
        assert!(20 < content(name).trim().len(), "{name} is too short");
    }
    for (name, service) in services() {
        for secret in service["secrets"].as_array().into_iter().flatten() {
            assert!(secrets.contains_key(secret.as_str().expect("a name")), "{name} needs {secret}");
        }
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let from = volume.as_str().and_then(|volume| volume.split(':').next()).expect("a volume");
            let is_there = if from.starts_with('.') {
                std::path::Path::new(&format!("{ROOT}/ops/compose/{from}")).exists()
            } else {
                file["volumes"].as_object().is_some_and(|known| known.contains_key(from))
            };
            assert!(is_there, "{name}: {from} is not there");
        }
    }
    // The addresses contain the passwords that the servers know, and a second run changes none.
    let before: Vec<String> = secrets.keys().map(|name| content(name)).collect();
    assert!(content("sql-url").contains(content("node-password").trim()));
    assert!(content("redis-url").contains(content("redis.conf").split(' ').nth(1).expect("a password").trim()));
    assert!(content("owner-url").contains(content("owner-password").trim()));
    assert_eq!(content("redis.conf").split(' ').nth(1).map(str::len), Some(44), "a password and the end of its line");
    make();
    assert_eq!(before, secrets.keys().map(|name| content(name)).collect::<Vec<_>>());
}

#[test]
fn the_balancer_understands_its_configuration() {
    if !machine_has("haproxy", is_installed("haproxy")) {
        return;
    }
    let file = format!("{ROOT}/ops/compose/haproxy.cfg");
    run(command("haproxy", std::path::Path::new("/")).args(["-c", "-f", &file])).well();
}

/// Plays what Compose does with PostgreSQL: the owner makes the tables, and a node has a role that may read and write rows.
#[test]
fn a_node_serves_with_the_role_that_compose_makes() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    let script = read("compose/roles.sh");
    let (_, statements) = script.split_once("<<'SQL'\n").expect("statements");
    let statements = statements.trim_end().strip_suffix("SQL").expect("their end").replace(":'password'", "'1234'");
    // The superuser of the tests has that name already.
    world.say(world.sql.url(), &statements.replace("firstcome", "node"));
    world.migrate(world.sql.url());
    let (_, place) = world.sql.url().split_once('@').expect("an address with a user");
    let weak = format!("postgres://node@{place}");
    let mut node = world.node_at(world.redis.url(), &weak);
    node.args(["--coupon", "launch=5"]).env("FIRSTCOME_ADMIN_KEY", "given-0123456789-0123456789");
    let node = Server::spawn(&mut node);
    let mut client = Client::with_key(node.address(), "given-0123456789-0123456789");
    assert_eq!(client.claim("launch", "ann", None).expect("an answer").status, 201);
    assert_eq!(client.put_status("/v1/rooms/sale", &json!({"max_active": 1})), 201);
    assert_eq!(client.call("POST", "/v1/members/ann/points/charge", Some(&json!({"amount": 5}))).status, 200);
    node.stop();
    let told = world.sql_number("SELECT count(*) FROM pg_tables WHERE tableowner = 'node'");
    assert_eq!(told, 0, "the role of the nodes owns no table");
}

#[test]
fn prometheus_accepts_the_rules_and_every_alert_is_raised_by_its_trouble() {
    if !machine_has("promtool", is_installed("promtool")) {
        return;
    }
    let here = format!("{ROOT}/ops/prometheus");
    let promtool = |arguments: &[&str]| run(command("promtool", here.as_ref()).args(arguments)).well();
    promtool(&["check", "rules", "alerts.yml"]);
    // promtool looks for the file of the key, which is in the container alone.
    let directory = tempfile::tempdir().expect("a directory");
    let key = directory.path().join("view-keys");
    let config = read("prometheus/prometheus.yml").replace("/run/secrets/view-keys", &key.display().to_string());
    for (name, text) in
        [("view-keys", "a-key"), ("alerts.yml", &read("prometheus/alerts.yml")), ("prometheus.yml", &config)]
    {
        fs::write(directory.path().join(name), text).expect("a file");
    }
    run(command("promtool", directory.path()).args(["check", "config", "prometheus.yml"])).well();
    promtool(&[&["test", "rules"], &ALERT_TESTS[..]].concat());
    // promtool says nothing about an alert that no test plays.
    let played = ALERT_TESTS.map(|name| read(&format!("prometheus/{name}"))).concat();
    let file = yaml("prometheus/alerts.yml").remove(0);
    let rules = file["groups"][0]["rules"].as_array().expect("rules");
    for rule in rules {
        let name = rule["alert"].as_str().expect("an alert");
        assert!(played.contains(&format!("alertname=\"{name}\", instance=\"{name}\"")), "no test plays {name}");
        for text in ["summary", "action"] {
            assert!(rule["annotations"][text].is_string(), "{name} has no {text}");
        }
        let severity = rule["labels"]["severity"].as_str();
        assert!(matches!(severity, Some("critical" | "warning")), "{name}: {severity:?}");
    }
    assert!(15 < rules.len());
}
