//! The levels of the log: which texts are settings of them, and what they switch on.
//!
//! `EnvFilter` reads an unknown word as a target. So a misspelt level would switch all other lines off, and a misspelt target
//! would switch nothing on. Both are refused here.

use anyhow::{anyhow, bail};
use firstcome::address::nearest;
use firstcome_server::audit::AUDIT_TARGET;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{Directive, LevelFilter};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The crates of this program, as targets.
const CRATES: [&str; 14] = [
    "firstcome",
    "firstcome_cli",
    "firstcome_client",
    "firstcome_cluster",
    "firstcome_core",
    "firstcome_drill",
    "firstcome_etcd",
    "firstcome_macros",
    "firstcome_redis",
    "firstcome_server",
    "firstcome_sql",
    "firstcome_sqlite",
    "firstcome_store",
    "firstcome_tls",
];

/// How many letters of a target may be wrong for it to be taken for one of this program.
const WRONG_LETTERS_MAX: usize = 2;

/// Returns the filter that a text means. The record of operators stays on unless the text names its target or is `off`.
pub(super) fn filter(text: &str) -> anyhow::Result<EnvFilter> {
    let directives: Vec<&str> = text.split(',').map(str::trim).filter(|directive| !directive.is_empty()).collect();
    for directive in &directives {
        check(directive)?;
    }
    let filter = EnvFilter::builder().parse(directives.join(","));
    let filter = filter.map_err(|error| anyhow!("{error}; write info, or info,firstcome_redis=debug"))?;
    let is_off = |directive: &&str| level(directive) == Some(LevelFilter::OFF);
    let is_all_off = !directives.is_empty() && directives.iter().all(is_off);
    if is_all_off || directives.iter().any(|directive| target(directive) == AUDIT_TARGET) {
        return Ok(filter);
    }
    let audit: Directive = format!("{AUDIT_TARGET}=info").parse()?;
    Ok(filter.add_directive(audit))
}

/// The level for all targets that a directive sets; `None` if it names a target.
fn level(directive: &str) -> Option<LevelFilter> {
    directive.parse().ok()
}

/// The part of a directive before its span and its level.
fn target(directive: &str) -> &str {
    directive.split(['=', '[']).next().unwrap_or_default()
}

fn check(directive: &str) -> anyhow::Result<()> {
    if level(directive).is_some() {
        return Ok(());
    }
    let target = target(directive);
    if target.len() < directive.len() {
        return check_target(target);
    }
    match nearest(target, &LEVELS, target.len() / 3) {
        Some(meant) => bail!("{target:?} is no level: did you mean {meant}?"),
        None => bail!(
            "{target:?} is no level: write {} or trace, or {target}=debug for the lines of that target",
            LEVELS[..5].join(", ")
        ),
    }
}

/// Refuses targets that are meant as ones of this program and name none. Those of other libraries are unknown here.
fn check_target(target: &str) -> anyhow::Result<()> {
    let (first, is_whole) = target.split_once("::").map_or((target, true), |(first, _)| (first, false));
    // The record is the only target below `firstcome` alone.
    let is_ours = CRATES.contains(&first) && (is_whole || first != "firstcome" || target == AUDIT_TARGET);
    if is_ours {
        return Ok(());
    }
    let meant = nearest(target, &[AUDIT_TARGET], WRONG_LETTERS_MAX);
    match meant.or_else(|| nearest(first, &CRATES, WRONG_LETTERS_MAX).filter(|meant| *meant != first)) {
        Some(meant) => bail!("{target:?} is no target of this program: did you mean {meant}?"),
        None if first.starts_with("firstcome") => {
            bail!("{target:?} is no target of this program: write {AUDIT_TARGET} or one of {}", CRATES.join(", "))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_targets_are_read_and_misspelt_ones_are_refused_with_what_was_meant() {
        for text in [
            "info",
            "OFF",
            "",
            "warn,firstcome_redis=debug",
            "hyper=warn",
            "info, firstcome_cluster::outbox_writer=trace",
            "off,firstcome::audit=info",
            "firstcome=debug",
            "info,[request]=debug",
        ] {
            assert!(filter(text).is_ok(), "{text}");
        }
        for (text, says) in [
            ("infoo", "did you mean info?"),
            ("warn,debgu", "write off, error, warn, info, debug or trace"),
            ("hyper", "hyper=debug for the lines of that target"),
            ("info,firstcome_redis", "firstcome_redis=debug"),
            ("firstcom_redis=debug", "did you mean firstcome_redis?"),
            ("info,fristcome_sql=debug", "did you mean firstcome_sql?"),
            ("firstcome-store=debug", "did you mean firstcome_store?"),
            ("firstcome::audti=info", "did you mean firstcome::audit?"),
            ("firstcome::lock=info", "write firstcome::audit or one of firstcome,"),
            ("firstcome_everything=info", "write firstcome::audit or one of firstcome,"),
            ("info,firstcome=loud", "write info"),
        ] {
            let error = filter(text).map(drop).expect_err(text).to_string();
            assert!(error.contains(says) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn the_record_of_operators_stays_on_unless_it_is_named_or_all_is_off() {
        for (text, has_record) in [
            ("warn", true),
            ("error,firstcome_redis=debug", true),
            ("off,firstcome_redis=debug", true),
            ("", true),
            ("off", false),
            ("OFF,", false),
            ("info,firstcome::audit=off", false),
        ] {
            let shown = filter(text).expect(text).to_string();
            assert_eq!(shown.contains("firstcome::audit=info"), has_record, "{text}: {shown}");
        }
    }

    #[test]
    fn every_crate_that_writes_lines_is_known_as_a_target() {
        let crates = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).expect("the crates");
        let mut seen = 0;
        for entry in crates.filter_map(Result::ok) {
            let manifest = std::fs::read_to_string(entry.path().join("Cargo.toml")).unwrap_or_default();
            if manifest.lines().any(|line| line.starts_with("tracing = ")) {
                let name = entry.file_name().to_string_lossy().replace('-', "_");
                assert!(CRATES.contains(&name.as_str()), "{name}");
                seen += 1;
            }
        }
        assert!(5 <= seen, "{seen} crates");
    }
}
