//! Plays seeds, and says which one breaks an invariant.

use firstcome_sim::{Report, Violation, run_seed};
use firstcome_store::edge::Stopwatch;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::ops::Range;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: firstcome-sim [planted] [--seeds A..B | --seed N] [--json]

Plays one simulated run per seed and checks the invariants. Exit code 1 if one is broken.

  planted       plants each deliberate bug in turn and shows which invariant catches it
                (needs a build with `--features planted-bugs`)
  --seeds A..B  the seeds from A up to, not including, B [default: 0..2500]
  --seed N      this seed alone: the way to replay a violation
  --json        one JSON object on standard output instead of tables
  --help        this text
";

/// Seeds between two signs of life on a terminal.
const PROGRESS_SEEDS: u64 = 100;

struct Arguments {
    planted: bool,
    seeds: Range<u64>,
    json: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match parse(&words) {
        Ok(arguments) if arguments.planted => planted(&arguments),
        Ok(arguments) => play(&arguments),
        Err(problem) => {
            eprint!("firstcome-sim: {problem}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(words: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments { planted: false, seeds: 0..2_500, json: false };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "planted" => arguments.planted = true,
            "--json" => arguments.json = true,
            "--seed" => {
                let seed = number(words.next().map_or("", String::as_str))?;
                let end = seed.checked_add(1).ok_or("the largest seed cannot be played")?;
                arguments.seeds = seed..end;
            }
            "--seeds" => {
                let range = words.next().map_or("", String::as_str);
                let (first, end) =
                    range.split_once("..").ok_or_else(|| format!("{range:?} is not of the form A..B"))?;
                arguments.seeds = number(first)?..number(end)?;
            }
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    if arguments.seeds.is_empty() { Err("there is no seed to play".into()) } else { Ok(arguments) }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a seed"))
}

fn play(arguments: &Arguments) -> ExitCode {
    let watch = Stopwatch::start();
    let progress = std::io::stderr().is_terminal() && !arguments.json;
    let mut total = Report::default();
    let mut violation = None;
    let mut played = 0;
    for seed in arguments.seeds.clone() {
        if progress && played % PROGRESS_SEEDS == 0 {
            eprint!("\rseed {seed} of {:?} ", arguments.seeds);
            // Progress that cannot be shown is no reason to stop.
            let _ = std::io::stderr().flush();
        }
        played += 1;
        match run_seed(seed) {
            Ok(report) => total.add(&report),
            Err(found) => {
                violation = Some(found);
                break;
            }
        }
    }
    if progress {
        eprint!("\r\x1b[K");
    }
    if arguments.json {
        println!("{}", as_json(played, &total, violation.as_ref()));
    } else {
        print!("{}", as_table(&total));
        println!("{played} seeds in {:.1} s, trace {:016x}", watch.elapsed().as_secs_f64(), total.trace_hash);
        println!("{}", violation.as_ref().map_or_else(|| "no invariant was broken".into(), Violation::to_string));
    }
    if violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn as_table(total: &Report) -> String {
    let mut table = String::new();
    for ((what, how), count) in &total.counts {
        // Writing to a string cannot fail.
        let _ = writeln!(table, "{what:<12} {how:<36} {count:>12}");
    }
    table
}

fn as_json(played: u64, total: &Report, violation: Option<&Violation>) -> String {
    let counts = total.counts.iter().map(|((what, how), count)| format!("\"{what}/{how}\":{count}"));
    let counts = counts.collect::<Vec<_>>().join(",");
    let violation = violation.map_or_else(
        || "null".into(),
        |found| {
            let detail = quoted(&found.detail);
            format!("{{\"invariant\":\"{}\",\"seed\":{},\"detail\":{detail}}}", found.invariant, found.seed)
        },
    );
    let hash = total.trace_hash;
    format!("{{\"seeds\":{played},\"trace\":\"{hash:016x}\",\"violation\":{violation},\"counts\":{{{counts}}}}}")
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            character if character.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(character))),
            character => quoted.push(character),
        }
    }
    quoted + "\""
}

#[cfg(not(feature = "planted-bugs"))]
fn planted(_: &Arguments) -> ExitCode {
    eprintln!("firstcome-sim: no bug can be planted in this build; build it with `--features planted-bugs`");
    ExitCode::from(2)
}

#[cfg(feature = "planted-bugs")]
fn planted(arguments: &Arguments) -> ExitCode {
    // A bug that runs into an assertion panics, which is expected here and shown in the table.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let hunts = firstcome_sim::planted::hunt_all(&arguments.seeds);
    std::panic::set_hook(hook);
    let right = hunts.iter().all(firstcome_sim::planted::Hunt::is_right);
    if arguments.json {
        let hunts: Vec<String> = hunts.iter().map(hunt_as_json).collect();
        println!("{{\"right\":{right},\"hunts\":[{}]}}", hunts.join(","));
    } else {
        println!("{:<27} | {:<20} | {:>6} | detail", "bug", "caught by", "seed");
        for hunt in &hunts {
            print!("{}", hunt_as_row(hunt));
        }
        println!("{}", if right { "every bug was named" } else { "a bug was missed, or named by the wrong invariant" });
    }
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(feature = "planted-bugs")]
fn hunt_as_row(hunt: &firstcome_sim::planted::Hunt) -> String {
    let (invariant, seed, detail) = match &hunt.found {
        Some(found) => (found.invariant, found.seed.to_string(), found.detail.clone()),
        None => ("nothing", "-".into(), format!("{} seeds", hunt.played)),
    };
    let wrong = if hunt.is_right() {
        String::new()
    } else {
        format!("  WRONG: expected {}", hunt.expected.unwrap_or("nothing"))
    };
    format!("{:<27} | {invariant:<20} | {seed:>6} | {detail}{wrong}\n", hunt.bug)
}

#[cfg(feature = "planted-bugs")]
fn hunt_as_json(hunt: &firstcome_sim::planted::Hunt) -> String {
    let found = hunt.found.as_ref();
    let invariant = found.map_or_else(|| "null".into(), |found| quoted(found.invariant));
    let seed = found.map_or_else(|| "null".into(), |found| found.seed.to_string());
    let (bug, right) = (quoted(hunt.bug), hunt.is_right());
    format!("{{\"bug\":{bug},\"caught_by\":{invariant},\"seed\":{seed},\"right\":{right}}}")
}
