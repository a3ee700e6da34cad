//! Measures the cost of the operations on hot paths, and whether a change makes one cost more.
//!
//! Wall-clock time says little on a machine with other work on it. Instructions and allocations are the same on a busy machine
//! and on a quiet one. So `docs/perf.toml` stores them for each operation, and the gate fails when one costs more.
//!
//! # How it counts
//! The program with the operations is an example of firstcome-cli (`examples/perf`). It runs under Debian's callgrind with two
//! counts. The difference of the totals, divided by the operations between them, is the cost of one operation. That needs
//! neither markers in the program nor a runner. (gungraun, which was tried first, brings a macro crate, a library and a runner
//! binary of exactly its version, which each machine would have to install from a registry.) Allocations are the calls of
//! `malloc`, `calloc` and `realloc` that callgrind has seen. So no allocator of our own is needed, which would be `unsafe`.
//!
//! Two runs differ by a few instructions at most: they have one thread, and a library in front of the C library (`still.c`)
//! gives the same randomness and the same time in every run. `callgrind_annotate target/perf/http-claim.1700` shows where a
//! cost comes from.
//!
//! # What makes counts differ, apart from the code
//! The compiler, the C library, valgrind, and the instructions that valgrind finds. They are the [`Ground`], which the file
//! names. On another ground, [`Comparison`] fails only from [`counts::PERCENT_ELSEWHERE`] on, and says so. So another compiler
//! fails no change, and the gate still fails on gross changes. Accept the counts again to make the comparison exact.

mod against;
mod callgrind;
mod counts;
pub(crate) mod trend;

use crate::shell::{self, Outcome};
use callgrind::Benchmark;
use counts::{Comparison, Counts, Ground};
use std::fs;
use std::path::PathBuf;

/// The file with the accepted counts.
const FILE: &str = "docs/perf.toml";

pub(crate) fn run(arguments: &[&str]) -> Outcome {
    match arguments {
        [] => compare().map(drop),
        ["--accept", why] => accept(why),
        ["--against", commit, options @ ..] => against::run(commit, options),
        _ => {
            Err("usage: cargo xtask perf [--accept WHY | --against COMMIT [--rounds N] [--seconds N] [--anyway]]"
                .into())
        }
    }
}

/// Runs the gate on costs, and returns its result in one line. Without valgrind it counts nothing, which fails in CI.
pub(crate) fn gate() -> Result<String, String> {
    if shell::has("valgrind") {
        return compare();
    }
    if std::env::var_os("CI").is_some_and(|ci| ci == "true") {
        return Err("CI needs valgrind".into());
    }
    Ok("skipped: costs of operations, because valgrind is missing".into())
}

fn compare() -> Result<String, String> {
    let before = fs::read_to_string(path()).map_err(|error| format!("cannot read {FILE}: {error}"))?;
    let before = Counts::parse(&before).map_err(|error| format!("{FILE}: {error}"))?;
    let now = measure(String::new())?;
    let comparison = Comparison::of(&before, &now);
    println!("\n{}", comparison.table);
    for word in &comparison.words {
        println!("{word}");
    }
    if comparison.findings.is_empty() {
        return Ok(comparison.summary());
    }
    let findings = comparison.findings.join("\n  ");
    Err(format!(
        "perf:\n  {findings}\nMake it cheaper; or, if it is worth it, run `cargo xtask perf --accept WHY` and commit {FILE}"
    ))
}

fn accept(why: &str) -> Outcome {
    let why = counts::reason(why)?;
    let now = measure(why)?;
    if let Some(before) = fs::read_to_string(path()).ok().and_then(|text| Counts::parse(&text).ok()) {
        println!("\n{}", Comparison::of(&before, &now).table);
    }
    fs::write(path(), now.text()).map_err(|error| format!("cannot write {FILE}: {error}"))?;
    println!("{FILE}: written; commit it with the change");
    Ok(())
}

fn measure(why: String) -> Result<Counts, String> {
    if !shell::has("valgrind") {
        return Err("valgrind is missing: install it, or run `cargo xtask setup` as root on Debian".into());
    }
    // Keeps the names of functions, which a release build strips: `callgrind_annotate` needs them.
    let example = ["rustc", "--release", "--quiet", "-p", "firstcome-cli", "--example", "perf"];
    shell::run("cargo", &[&example[..], &["--", "-C", "strip=none"]].concat())?;
    Ok(Counts { why, ground: ground()?, costs: Benchmark::open()?.measure_all()? })
}

fn ground() -> Result<Ground, String> {
    let first_line = |program: &str, arguments: &[&str]| {
        let printed = shell::output(program, arguments)?;
        Ok::<_, String>(printed.lines().next().unwrap_or_default().trim().to_owned())
    };
    // Code that detects the processor's features takes other paths without AVX2. Valgrind reports no later features.
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let wide = if processor.split_whitespace().any(|flag| flag == "avx2") { " avx2" } else { "" };
    Ok(Ground {
        rustc: first_line("rustc", &["--version"])?,
        valgrind: first_line("valgrind", &["--version"])?,
        libc: first_line("getconf", &["GNU_LIBC_VERSION"])?,
        processor: format!("{}{wide}", first_line("uname", &["-m"])?),
    })
}

fn path() -> PathBuf {
    shell::root().join(FILE)
}
