//! The files in `ops/`.

use serde_json::Value;
use std::fs;
use std::path::Path;

/// The root of the repository.
pub(super) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns the text of a file in `ops/`.
#[track_caller]
pub(super) fn read(name: &str) -> String {
    fs::read_to_string(format!("{ROOT}/ops/{name}")).unwrap_or_else(|error| panic!("ops/{name}: {error}"))
}

/// Returns the names of all files in `ops/`, without secrets that somebody has made there.
pub(super) fn all() -> Vec<String> {
    let (mut found, mut directories) = (Vec::new(), vec![Path::new(ROOT).join("ops")]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("secrets") {
                directories.push(path);
            } else if path.is_file() {
                let name = path.strip_prefix(Path::new(ROOT).join("ops")).expect("it lies there");
                found.push(name.to_str().expect("a name").to_owned());
            }
        }
    }
    found.sort();
    assert!(15 < found.len(), "{found:?}");
    found
}

/// Returns the documents of a YAML file.
#[track_caller]
pub(super) fn yaml(name: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&read(name)).unwrap_or_else(|error| panic!("ops/{name}: {error}"))
}

#[test]
fn every_file_of_yaml_and_json_can_be_read() {
    let mut seen = 0;
    // The templates of the chart become YAML only when they are rendered.
    for name in all().iter().filter(|name| !name.contains("/templates/")) {
        if name.ends_with(".yml") || name.ends_with(".yaml") {
            assert!(!yaml(name).is_empty(), "{name}");
            seen += 1;
        } else if name.ends_with(".json") {
            let read: Result<Value, _> = serde_json::from_str(&read(name));
            assert!(read.is_ok_and(|value| value.is_object()), "{name}");
            seen += 1;
        }
    }
    assert!(7 < seen, "{seen} files were read");
}
