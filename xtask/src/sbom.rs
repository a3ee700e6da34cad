//! Writes the bill of materials of the program: every crate that is in it, and the C code that a crate brings, in CycloneDX.
//!
//! The same tree gives the same bytes: no time and no random number is in the file.

use crate::shell::{self, Outcome};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The package whose binary is described, with its default features.
const PACKAGE: &str = "firstcome-cli";
/// The file, unless another one is named.
pub(crate) const FILE: &str = "target/firstcome.cdx.json";

/// Writes the bill of materials into this file.
pub(crate) fn run(file: &str) -> Outcome {
    let text = bill()?;
    let path = shell::root().join(file);
    fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    println!("  written: {}", path.display());
    Ok(())
}

fn bill() -> Result<String, String> {
    let metadata = shell::output("cargo", &["metadata", "--format-version", "1", "--locked"])?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    // Metadata has the features of the whole workspace at once, with those that only tests use. The tree has those of the program.
    let tree = ["tree", "--locked", "-p", PACKAGE, "-e", "normal", "--prefix", "none", "--format", "{p}"];
    let built = built(&shell::output("cargo", &tree)?);
    let lock = fs::read_to_string(shell::root().join("Cargo.lock")).map_err(|error| error.to_string())?;
    let bill = compose(&metadata, &built, &checksums(&lock))?;
    serde_json::to_string_pretty(&bill).map(|text| text + "\n").map_err(|error| error.to_string())
}

/// A crate in the tree: its name and version, and whether only the compiler runs it.
type Built = BTreeMap<(String, String), Macro>;

/// Whether a crate is a macro: code that runs in the compiler, and is not in the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Macro {
    Yes,
    No,
}

/// Reads the lines `name v1.2.3 (proc-macro)` of a tree.
fn built(tree: &str) -> Built {
    let crate_of = |line: &str| {
        let mut words = line.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        let kind = if line.contains("(proc-macro)") { Macro::Yes } else { Macro::No };
        Some(((name.to_owned(), version.to_owned()), kind))
    };
    tree.lines().filter_map(crate_of).collect()
}

/// Reads the SHA-256 of each package from Cargo.lock.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |block: &str, name: &str| {
        let value = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""))?;
        value.strip_suffix('"').map(str::to_owned)
    };
    let packages = lock.split("[[package]]").skip(1);
    packages
        .filter_map(|block| Some(((field(block, "name")?, field(block, "version")?), field(block, "checksum")?)))
        .collect()
}

fn compose(metadata: &Value, built: &Built, checksums: &BTreeMap<(String, String), String>) -> Result<Value, String> {
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let key = |package: &Value| (text(&package["name"]), text(&package["version"]));
    let is_built = |package: &&Value| built.contains_key(&key(package));
    let known: BTreeMap<String, String> =
        packages.iter().filter(is_built).map(|package| (text(&package["id"]), reference(&key(package)))).collect();
    let found = known.values().collect::<BTreeSet<_>>().len();
    if found != built.len() {
        return Err(format!("{} crates are in the program, and metadata knows {found} of them", built.len()));
    }
    let needs = dependencies(metadata, &known);
    let inside = inside(&needs, built);
    let (mut components, mut root) = (Vec::new(), None);
    for package in packages.iter().filter(is_built) {
        let key = key(package);
        let scope = if inside.contains(&reference(&key)) { "required" } else { "excluded" };
        let component = component(package, scope, checksums.get(&key))?;
        if key.0 == PACKAGE {
            root = Some(component);
        } else {
            components.push(component);
        }
        components.extend(bundled(package)?);
    }
    let mut root = root.ok_or_else(|| format!("{PACKAGE} is not in its own tree"))?;
    root["type"] = json!("application");
    root["name"] = json!("firstcome");
    components.sort_by_key(|component| text(&component["bom-ref"]));
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": root},
        "components": components,
        "dependencies": needs.iter().map(|(of, needs)| json!({"ref": of, "dependsOn": needs})).collect::<Vec<_>>(),
    }))
}

fn reference((name, version): &(String, String)) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

fn component(package: &Value, scope: &str, checksum: Option<&String>) -> Result<Value, String> {
    let text = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
    let (name, version) = (text("name"), text("version"));
    // Older crates say MIT/Apache-2.0, which is no expression of SPDX.
    let licence = text("license").replace(" / ", " OR ").replace('/', " OR ");
    if licence.is_empty() {
        return Err(format!("{name} {version} names no licence"));
    }
    let purl = reference(&(name.clone(), version.clone()));
    let mut component = json!({
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "scope": scope,
        "licenses": [{"expression": licence}],
        "purl": purl,
    });
    if let Some(description) = package["description"].as_str() {
        component["description"] = json!(description.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    } else if package["source"].is_string() {
        return Err(format!("{name} {version} comes from elsewhere, and Cargo.lock has no checksum of it"));
    }
    if let Some(repository) = package["repository"].as_str() {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    Ok(component)
}

/// Returns the C library that a crate brings in its source, which no list of crates shows.
fn bundled(package: &Value) -> Result<Option<Value>, String> {
    if package["name"] != "libsqlite3-sys" {
        return Ok(None);
    }
    let manifest = package["manifest_path"].as_str().unwrap_or_default();
    let header = Path::new(manifest).with_file_name("sqlite3").join("sqlite3.h");
    let text = fs::read_to_string(&header).map_err(|error| format!("{}: {error}", header.display()))?;
    let version = sqlite_version(&text).ok_or_else(|| format!("{} names no version", header.display()))?;
    let reference = format!("pkg:generic/sqlite@{version}");
    Ok(Some(json!({
        "type": "library",
        "bom-ref": reference,
        "name": "sqlite",
        "version": version,
        "scope": "required",
        "description": "SQLite, compiled from the source in libsqlite3-sys",
        "licenses": [{"expression": "blessing"}],
        "purl": reference,
        "cpe": format!("cpe:2.3:a:sqlite:sqlite:{version}:*:*:*:*:*:*:*"),
    })))
}

fn sqlite_version(header: &str) -> Option<&str> {
    header
        .lines()
        .find_map(|line| line.strip_prefix("#define SQLITE_VERSION ")?.trim().strip_prefix('"')?.strip_suffix('"'))
}

/// Each crate of the program, with those that it needs.
type Needs = BTreeMap<String, BTreeSet<String>>;

/// Returns which crate needs which others, among the known ones.
fn dependencies(metadata: &Value, known: &BTreeMap<String, String>) -> Needs {
    let is_normal = |kind: &Value| kind["kind"].is_null();
    let has_normal = |kinds: &Value| kinds.as_array().is_some_and(|kinds| kinds.iter().any(is_normal));
    let nodes = metadata["resolve"]["nodes"].as_array().into_iter().flatten();
    let needs = nodes.filter_map(|node| {
        let of = known.get(node["id"].as_str()?)?;
        let needed = node["deps"].as_array()?.iter().filter(|needed| has_normal(&needed["dep_kinds"]));
        let mut needed: BTreeSet<String> =
            needed.filter_map(|needed| known.get(needed["pkg"].as_str()?).cloned()).collect();
        if of.starts_with("pkg:cargo/libsqlite3-sys@") {
            needed.extend(known_sqlite(metadata));
        }
        Some((of.clone(), needed))
    });
    needs.collect()
}

/// Returns the crates whose code is in the program: those that it reaches without a macro between, which runs in the compiler.
fn inside(needs: &Needs, built: &Built) -> BTreeSet<String> {
    let macros: BTreeSet<String> =
        built.iter().filter(|(_, kind)| **kind == Macro::Yes).map(|(key, _)| reference(key)).collect();
    let root = built.keys().find(|(name, _)| name == PACKAGE).map(reference);
    let (mut found, mut open) = (BTreeSet::new(), Vec::from_iter(root));
    while let Some(next) = open.pop() {
        if !macros.contains(&next) && found.insert(next.clone()) {
            open.extend(needs.get(&next).into_iter().flatten().cloned());
        }
    }
    found
}

fn known_sqlite(metadata: &Value) -> Option<String> {
    let packages = metadata["packages"].as_array()?;
    let bundled = packages.iter().find_map(|package| bundled(package).ok().flatten())?;
    bundled["bom-ref"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_and_the_lock_are_read() {
        let tree = "firstcome-cli v0.1.0 (/somewhere)\nserde v1.0.9\nserde_derive v1.0.9 (proc-macro) (*)\nserde v1.0.9 (*)\n\n";
        let built = built(tree);
        let named = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        assert_eq!(built.len(), 3);
        assert_eq!(built[&named("serde", "1.0.9")], Macro::No);
        assert_eq!(built[&named("serde_derive", "1.0.9")], Macro::Yes);
        let lock = "version = 4\n\n[[package]]\nname = \"serde\"\nversion = \"1.0.9\"\nsource = \"x\"\nchecksum = \"ab\"\n\n\
                    [[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n";
        assert_eq!(checksums(lock), BTreeMap::from([(named("serde", "1.0.9"), "ab".to_owned())]));
        assert_eq!(sqlite_version("x\n#define SQLITE_VERSION        \"3.51.3\"\n"), Some("3.51.3"));
    }

    fn package(name: &str, licence: &Value, source: &Value) -> Value {
        json!({"id": name, "name": name, "version": "1.0.0+a", "license": licence, "source": source})
    }

    #[test]
    fn a_crate_without_a_licence_or_a_checksum_is_refused() {
        let checksum = "ab".to_owned();
        let of = |licence: &Value, checksum: Option<&String>| {
            component(&package("x", licence, &json!("registry")), "required", checksum)
        };
        let right = of(&json!("MIT/Apache-2.0"), Some(&checksum)).expect("it is right");
        assert_eq!(right["licenses"], json!([{"expression": "MIT OR Apache-2.0"}]));
        assert_eq!(right["purl"], "pkg:cargo/x@1.0.0%2Ba");
        assert_eq!(right["hashes"], json!([{"alg": "SHA-256", "content": "ab"}]));
        assert!(of(&Value::Null, Some(&checksum)).is_err());
        assert!(of(&json!("MIT"), None).is_err());
        assert!(
            component(&package("x", &json!("MIT"), &Value::Null), "required", None).is_ok(),
            "ours has no checksum"
        );
    }

    #[test]
    fn what_only_a_macro_needs_is_not_in_the_program() {
        let key = |name: &str| (name.to_owned(), "1".to_owned());
        let built = [(PACKAGE, Macro::No), ("serde", Macro::No), ("serde_derive", Macro::Yes), ("syn", Macro::No)];
        let built: Built = built.map(|(name, kind)| (key(name), kind)).into();
        let needs = [(PACKAGE, "serde"), (PACKAGE, "serde_derive"), ("serde_derive", "syn")];
        let mut all = Needs::new();
        for (of, needed) in needs {
            all.entry(reference(&key(of))).or_default().insert(reference(&key(needed)));
        }
        assert_eq!(inside(&all, &built), [PACKAGE, "serde"].map(|name| reference(&key(name))).into());
    }

    #[test]
    fn a_crate_of_the_program_that_metadata_does_not_know_is_an_error() {
        let packages = vec![package(PACKAGE, &json!("MIT"), &Value::Null)];
        let metadata = json!({"packages": packages, "resolve": {"nodes": []}});
        let mut built = Built::from([((PACKAGE.to_owned(), "1.0.0+a".to_owned()), Macro::No)]);
        assert!(compose(&metadata, &built, &BTreeMap::new()).is_ok());
        built.insert(("serde".to_owned(), "1.0.9".to_owned()), Macro::No);
        assert!(compose(&metadata, &built, &BTreeMap::new()).is_err());
    }
}
