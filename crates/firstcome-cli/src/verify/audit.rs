//! `firstcome verify --audit`: checks the chains of hashes in logs.

use super::text_of;
use crate::failure::Failure;
use anyhow::anyhow;
use firstcome::Check;
use firstcome_server::audit::{AUDIT_FIELDS, AUDIT_TARGET, AuditHash};
use serde_json::Value;
use std::collections::HashMap;

/// How many breaches are shown.
const EXAMPLES_MAX: usize = 10;

/// Checks that each entry follows the one before it of the same process. A log may begin within a chain: then its first entry
/// is taken as it is.
pub(super) fn check(files: &[String]) -> Result<Check, Failure> {
    let mut texts = Vec::with_capacity(files.len());
    for file in files {
        texts.push((file.as_str(), text_of(file)?));
    }
    let check = follow(&texts);
    if check.checked == 0 {
        let says = format!("{} has no entry of {AUDIT_TARGET}: is it a log with --log-format json?", files.join(", "));
        return Err(Failure::Refused(anyhow!(says)));
    }
    Ok(check)
}

fn follow(texts: &[(&str, String)]) -> Check {
    let mut check = Check { invariant: "operators_recorded", checked: 0, breaches: 0, examples: Vec::new() };
    let mut last: HashMap<String, (u64, String)> = HashMap::new();
    for (file, text) in texts {
        for (at, line) in text.lines().enumerate() {
            let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
            if entry["target"] != AUDIT_TARGET {
                continue;
            }
            check.checked += 1;
            if let Err(says) = follows(&entry, &mut last) {
                check.breaches += 1;
                if check.examples.len() < EXAMPLES_MAX {
                    check.examples.push(format!("{file}:{}: {says}", at + 1));
                }
            }
        }
    }
    check
}

/// Checks an entry after those of its process, and makes it the last of them.
fn follows(entry: &Value, last: &mut HashMap<String, (u64, String)>) -> Result<(), String> {
    let text = |name: &str| entry[name].as_str().ok_or_else(|| format!("an entry without {name:?}"));
    let texts = AUDIT_FIELDS.iter().map(|name| text(name)).collect::<Result<Vec<_>, _>>()?;
    let number = entry["number"].as_u64().ok_or("an entry without \"number\"")?;
    let (process, hash) = (text("process")?, text("hash")?);
    let before = last.insert(process.to_owned(), (number, hash.to_owned()));
    let expected = match before {
        None if number == 1 => AuditHash::default(),
        // The log begins here.
        None => return Ok(()),
        Some((before, _)) if before + 1 != number => {
            return Err(format!("entry {number} of process {process} comes after entry {before}"));
        }
        Some((_, hash)) => {
            hash.parse().map_err(|_| format!("entry {} of process {process} has no hash", number - 1))?
        }
    };
    if expected.next(number, &texts).to_string() == hash {
        return Ok(());
    }
    Err(format!("entry {number} of process {process} is not as it was written"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The log of one process with this many entries.
    fn log(process: &str, count: u64) -> Vec<Value> {
        let mut hash = AuditHash::default();
        let entry = |number: u64| {
            let mut entry = json!({"target": AUDIT_TARGET, "number": number});
            for name in AUDIT_FIELDS {
                entry[name] = format!("{name} {number}").into();
            }
            entry["process"] = process.into();
            let texts: Vec<&str> = AUDIT_FIELDS.iter().filter_map(|name| entry[name].as_str()).collect();
            hash = hash.next(number, &texts);
            entry["hash"] = hash.to_string().into();
            entry
        };
        (1..=count).map(entry).collect()
    }

    fn told(entries: &[Value]) -> (u64, u64) {
        let text = entries.iter().map(|entry| format!("{entry}\n")).collect::<String>();
        let check = follow(&[("log", format!("not JSON\n{{\"target\":\"other\"}}\n{text}"))]);
        (check.checked, check.breaches)
    }

    #[test]
    fn entries_of_several_processes_follow_each_other() {
        assert_eq!(told(&log("one", 9)), (9, 0));
        assert_eq!(told(&log("one", 9)[3..]), (6, 0), "an older file was removed");
        let mixed: Vec<Value> = log("one", 4).into_iter().zip(log("two", 4)).flat_map(|(a, b)| [a, b]).collect();
        assert_eq!(told(&mixed), (8, 0));
    }

    #[test]
    fn an_entry_that_was_changed_moved_or_left_out_is_found() {
        for name in AUDIT_FIELDS.iter().filter(|name| **name != "process") {
            let mut entries = log("one", 5);
            entries[2][*name] = "something else".into();
            assert_eq!(told(&entries), (5, 1), "{name}");
        }
        let mut entries = log("one", 5);
        entries.remove(2);
        assert_eq!(told(&entries), (4, 1));
        let mut entries = log("one", 5);
        entries.swap(1, 2);
        assert!(1 <= told(&entries).1);
    }
}
