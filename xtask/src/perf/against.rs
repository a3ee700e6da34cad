//! Compares the wall clock of this tree and another commit, on this machine, at the same time.
//!
//! It checks the other commit out under `target/against`, and builds it in its own directory, which stays for the next time.
//! `firstcome-bench beside` of this tree then puts both services under the same load, in alternate rounds. So the machine's
//! drift, its disk and the load generator are the same for both, and the result is only a ratio. Another process that uses a
//! processor would distort the ratio. So it refuses to measure on a busy machine, unless `--anyway` is given.

use crate::shell::{self, Outcome};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The directory where other commits are checked out and built. `git worktree prune` forgets trees that a user removed.
const DIRECTORY: &str = "target/against";
/// The percentage of the processors that may be in use before a measurement.
const BUSY_PERCENT_MAX: u64 = 20;
const ROUNDS: &str = "7";
const ROUNDS_MIN: u32 = 5;
const SECONDS: &str = "2";

const USAGE: &str = "usage: cargo xtask perf --against COMMIT [--rounds N] [--seconds N] [--anyway]";

/// What to do on a busy machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OnBusy {
    Refuse,
    GoOn,
}

#[derive(PartialEq, Eq, Debug)]
struct Options<'a> {
    rounds: &'a str,
    seconds: &'a str,
    on_busy: OnBusy,
}

impl<'a> Options<'a> {
    fn parse(mut arguments: &[&'a str]) -> Result<Self, String> {
        let mut options = Self { rounds: ROUNDS, seconds: SECONDS, on_busy: OnBusy::Refuse };
        loop {
            arguments = match arguments {
                [] => break,
                ["--anyway", rest @ ..] => {
                    options.on_busy = OnBusy::GoOn;
                    rest
                }
                ["--rounds", rounds, rest @ ..] => {
                    options.rounds = rounds;
                    rest
                }
                ["--seconds", seconds, rest @ ..] => {
                    options.seconds = seconds;
                    rest
                }
                _ => return Err(USAGE.into()),
            };
        }
        let number = |text: &str| text.parse::<u32>().ok();
        if number(options.rounds).is_none_or(|rounds| rounds < ROUNDS_MIN) {
            return Err(format!("--rounds {}: a number, {ROUNDS_MIN} or more", options.rounds));
        }
        if number(options.seconds).is_none_or(|seconds| seconds == 0) {
            return Err(format!("--seconds {}: a number, 1 or more", options.seconds));
        }
        Ok(options)
    }
}

pub(super) fn run(commit: &str, arguments: &[&str]) -> Outcome {
    let options = Options::parse(arguments)?;
    // Checked before the builds too, because they take minutes.
    refuse_if_busy(options.on_busy)?;
    let wanted = format!("{commit}^{{commit}}");
    let sha = shell::output("git", &["rev-parse", "--verify", "--short=12", &wanted])?.trim().to_owned();
    let other = build_other(&sha)?;
    shell::run("cargo", &["build", "--release", "--quiet", "-p", "firstcome-cli"])?;
    // Built alone: together with the benchmarks, the product could get features that only they need.
    shell::run("cargo", &["build", "--release", "--quiet", "-p", "firstcome-bench"])?;
    refuse_if_busy(options.on_busy)?;
    let seconds = format!("{}s", options.seconds);
    let load = ["--rounds", options.rounds, "--time", &seconds, "--data", "target"];
    let sides = ["beside", other.as_str(), "--ours", "target/release/firstcome"];
    shell::run("target/release/firstcome-bench", &[&sides[..], &load[..]].concat())?;
    println!("other build: commit {sha}; a ratio below 1 means that this tree is slower");
    Ok(())
}

/// Builds the program of a commit, and returns its path.
pub(super) fn build_other(sha: &str) -> Result<String, String> {
    let program = format!("{DIRECTORY}/firstcome-{sha}");
    if shell::root().join(&program).exists() {
        return Ok(program);
    }
    let tree = format!("{DIRECTORY}/tree");
    if shell::root().join(&tree).join(".git").exists() {
        shell::run("git", &["-C", &tree, "checkout", "--quiet", "--force", "--detach", sha])?;
    } else {
        // Git still lists a tree that a user removed.
        shell::run("git", &["worktree", "prune"])?;
        shell::run("git", &["worktree", "add", "--quiet", "--detach", &tree, sha])?;
    }
    build_in(&shell::root().join(&tree))?;
    let built = shell::root().join(DIRECTORY).join("build/release/firstcome");
    fs::copy(&built, shell::root().join(&program)).map_err(|error| format!("{}: {error}", built.display()))?;
    Ok(program)
}

/// Builds the commit from its own directory.
fn build_in(tree: &Path) -> Outcome {
    let build = ["build", "--release", "--quiet", "-p", "firstcome-cli", "--target-dir", "../build"];
    println!("\n— cargo {} (in {DIRECTORY}/tree)", build.join(" "));
    let status = shell::command("cargo", &build).current_dir(tree).status();
    let status = status.map_err(|error| format!("cannot run cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err("the other commit does not build".into()) }
}

fn refuse_if_busy(on_busy: OnBusy) -> Outcome {
    let before = processor_time()?;
    #[expect(
        clippy::disallowed_methods,
        reason = "how busy the machine is shows over a time, and nothing is waited for"
    )]
    std::thread::sleep(Duration::from_secs(1));
    let percent = busy_percent(before, processor_time()?);
    if percent <= BUSY_PERCENT_MAX {
        return Ok(());
    }
    let word =
        format!("the machine is busy: {percent} % of its processors are in use, at most {BUSY_PERCENT_MAX} % may be");
    match on_busy {
        OnBusy::Refuse => Err(format!("{word}; stop what runs, or measure all the same with --anyway")),
        OnBusy::GoOn => {
            println!("{word}; the ratios below say little");
            Ok(())
        }
    }
}

/// The processors' time since the boot, in ticks.
#[derive(Clone, Copy)]
struct ProcessorTime {
    idle: u64,
    all: u64,
}

fn processor_time() -> Result<ProcessorTime, String> {
    let stat = fs::read_to_string("/proc/stat").map_err(|error| format!("cannot read /proc/stat: {error}"))?;
    read_stat(&stat).ok_or("/proc/stat has no line cpu".into())
}

/// Reads the line `cpu user nice system idle iowait irq softirq steal …`. A processor that waits for a disk counts as idle;
/// one that another guest of the host uses does not.
fn read_stat(stat: &str) -> Option<ProcessorTime> {
    let ticks = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = ticks.split_whitespace().take(8).map(|tick| tick.parse().ok()).collect::<Option<_>>()?;
    Some(ProcessorTime { idle: ticks.get(3)? + ticks.get(4)?, all: ticks.iter().sum() })
}

fn busy_percent(before: ProcessorTime, after: ProcessorTime) -> u64 {
    let all = after.all.saturating_sub(before.all);
    let idle = after.idle.saturating_sub(before.idle).min(all);
    (100 * (all - idle)).checked_div(all).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_busy_the_processors_are_is_read_from_two_looks() {
        let look = |stat: &str| read_stat(stat).expect("a line cpu");
        let before = look("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 1 1 1\n");
        let after = look("cpu  150 10 60 910 70 0 0 0 0 0\n");
        assert_eq!(busy_percent(before, after), 35);
        assert_eq!(busy_percent(before, before), 0);
        assert!(read_stat("cpu0 1 2 3 4 5\n").is_none());
    }

    #[test]
    fn options_are_read_and_too_few_rounds_refused() {
        let options = Options::parse(&["--rounds", "9", "--anyway"]);
        assert_eq!(options, Ok(Options { rounds: "9", seconds: SECONDS, on_busy: OnBusy::GoOn }));
        assert_eq!(Options::parse(&[]).map(|options| options.on_busy), Ok(OnBusy::Refuse));
        assert!(Options::parse(&["--rounds", "4"]).is_err());
        assert!(Options::parse(&["--seconds", "0"]).is_err());
        assert_eq!(Options::parse(&["--often"]), Err(USAGE.into()));
    }
}
