//! Checks that crates depend only on crates below them.

use crate::shell;
use std::collections::BTreeMap;

/// The project's own crates that each crate may depend on, apart from tests. The map of ARCHITECTURE.md shows the same.
const ARROWS: [(&str, &[&str]); 19] = [
    ("firstcome-core", &[]),
    ("firstcome-store", &["core"]),
    ("firstcome-tls", &[]),
    ("firstcome-sqlite", &["core", "store"]),
    ("firstcome-redis", &["core", "store", "tls"]),
    ("firstcome-sql", &["core", "store", "tls"]),
    ("firstcome-etcd", &["core", "store", "tls"]),
    ("firstcome-client", &["core", "store", "tls"]),
    ("firstcome-cluster", &["core", "store", "redis", "sql"]),
    ("firstcome-macros", &[]),
    ("firstcome", &["core", "store", "sqlite", "redis", "sql", "etcd", "client", "cluster", "macros"]),
    ("firstcome-server", &["core", "firstcome", "tls"]),
    ("firstcome-test-servers", &[]),
    ("firstcome-figures", &[]),
    ("firstcome-drill", &["core", "firstcome", "server", "test-servers", "figures"]),
    ("firstcome-cli", &["core", "firstcome", "server", "drill", "test-servers", "tls"]),
    ("firstcome-sim", &["core", "store", "firstcome"]),
    (
        "firstcome-bench",
        &["core", "store", "firstcome", "server", "drill", "test-servers", "cli", "figures", "redis", "sql", "etcd"],
    ),
    ("xtask", &["figures"]),
];

/// Finds dependencies that point up, and crates that are missing above.
pub(super) fn check(findings: &mut Vec<String>) -> shell::Outcome {
    for (name, dependencies) in workspace()? {
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            findings.push(format!("crate {name}: say in xtask/src/tidy/crates.rs which crates it may name"));
            continue;
        };
        for dependency in dependencies {
            let short = dependency.strip_prefix("firstcome-").unwrap_or(&dependency);
            if !allowed.contains(&short) {
                findings.push(format!("crate {name} depends on {dependency}, which is not below it"));
            }
        }
    }
    Ok(())
}

/// Returns the crates of this workspace, each with its dependencies in the project, without those of tests.
fn workspace() -> Result<BTreeMap<String, Vec<String>>, String> {
    let text = shell::output("cargo", &["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
    let items = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let packages = items(&metadata["packages"]);
    let ours = packages.iter().map(|package| {
        let named = items(&package["dependencies"]);
        let named = named.iter().filter(|one| one["kind"] != "dev" && one["path"].is_string());
        (text(&package["name"]), named.map(|one| text(&one["name"])).collect())
    });
    Ok(ours.collect())
}
