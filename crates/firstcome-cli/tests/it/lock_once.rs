//! A command that runs at most once per interval, over a directory.

use crate::lock::{Running, numbers, until_gone};
use crate::support::program::{Ended, PROGRAM, command, firstcome, run};
use crate::support::wait_for;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Machines that share a directory.
struct Machines(tempfile::TempDir);

impl Machines {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `firstcome once` with the rest of a line, which is split at spaces, and a script that a shell runs.
    fn once(&self, line: &str, script: &str) -> Command {
        let mut once = command(PROGRAM, self.0.path());
        once.arg("once").args(line.split_ascii_whitespace()).args(["--store", "locks", "--create"]);
        once.args(["--", "sh", "-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        once
    }

    fn start(&self, line: &str, script: &str) -> Running {
        Running::start(&mut self.once(line, script), self.0.path())
    }

    fn run(&self, line: &str, script: &str) -> Ended {
        run(&mut self.once(line, script))
    }

    /// How often the script that marks its run has run.
    fn runs(&self) -> usize {
        fs::read_to_string(self.path("runs")).unwrap_or_default().lines().count()
    }

    /// Waits until the lock of the job is free.
    fn until_over(&self, name: &str) {
        let line = ["lock", name, "--wait", "20s", "--store", "locks", "--", "true"];
        firstcome(self.0.path(), &line).well();
    }
}

/// The longest interval: it ends during a test only at midnight before a Thursday.
const WEEK: &str = "nightly --every 168h";
const MARK: &str = "echo $FIRSTCOME_LOCK $FIRSTCOME_FENCE >> runs";

#[test]
fn of_commands_that_start_at_once_one_runs_in_its_slot_and_the_others_end_well_without_a_word() {
    let machines = Machines::new();
    let started: Vec<Running> = (0..6).map(|_| machines.start(WEEK, MARK)).collect();
    for once in started {
        assert_eq!(once.end(), (Some(0), String::new()));
    }
    assert_eq!(machines.runs(), 1);
    let ran = fs::read_to_string(machines.path("runs")).expect("it ran");
    let fence = ran.trim().strip_prefix("nightly ").and_then(|fence| fence.parse::<u64>().ok());
    assert!(fence.is_some(), "{ran}");
    // The run is over, and the slot is still taken. Who wants to know is told.
    let said = machines.run(&format!("{WEEK} --conflict-exit-code 9"), MARK).with(9);
    assert!(said.contains("job nightly: this slot is taken by ") && said.contains("next slot begins in"), "{said}");
    assert_eq!(machines.runs(), 1);
    // Another job has slots of its own.
    machines.run("hourly --every 168h", MARK).well();
    assert_eq!(machines.runs(), 2);
}

#[test]
fn a_run_that_is_killed_keeps_its_slot() {
    for killed in ["the holder", "all but the command"] {
        let machines = Machines::new();
        let running =
            machines.start(&format!("{WEEK} --lease 1s --owner ann"), &format!("{MARK}; echo $$ > pid; exec sleep 60"));
        let process = numbers(&machines.path("pid"), 1)[0];
        if killed == "the holder" {
            running.signal("KILL");
        } else {
            for process in [running.guardian(), running.keeper(), running.holder()] {
                crate::support::program::signal(process, "KILL");
            }
        }
        until_gone(process);
        machines.until_over("nightly");
        let said = machines.run(&format!("{WEEK} --retry-failed --conflict-exit-code 9"), MARK).with(9);
        assert!(said.contains("taken by ann"), "{killed}: {said}");
        assert_eq!(machines.runs(), 1, "{killed}");
    }
}

#[test]
fn a_command_that_fails_runs_again_in_its_slot_if_that_is_asked_for() {
    let machines = Machines::new();
    for (script, code) in [("exit 7", 7), ("kill -9 $$", 137)] {
        let script = format!("{MARK}; {script}");
        machines.run(&format!("{WEEK} --retry-failed"), &script).with(code);
    }
    assert_eq!(machines.runs(), 2);
    // Without it a failure is the run of this slot too.
    machines.run(WEEK, &format!("{MARK}; exit 7")).with(7);
    machines.run(&format!("{WEEK} --retry-failed --conflict-exit-code 9"), MARK).with(9);
    assert_eq!(machines.runs(), 3);
    // A command that ends well keeps its slot.
    machines.run("other --every 168h --retry-failed", MARK).well();
    machines.run("other --every 168h --retry-failed --conflict-exit-code 9", MARK).with(9);
    assert_eq!(machines.runs(), 4);
}

#[test]
fn a_command_is_ended_after_its_longest_time() {
    let machines = Machines::new();
    for (more, next) in [("--retry-failed", 0), ("", 9)] {
        let running = machines.start(&format!("{WEEK} --longest 1s {more}"), "echo $$ > pid; exec sleep 60");
        let process = numbers(&machines.path("pid"), 1)[0];
        let (code, said) = running.end();
        assert!(code == Some(76) && said.contains("its lease was about to end"), "{code:?} {said}");
        until_gone(process);
        fs::remove_file(machines.path("pid")).expect("it is there");
        if next == 0 {
            // The slot was given back, and this run gives it back again.
            machines.until_over("nightly");
            machines.run(&format!("{WEEK} --retry-failed"), "exit 7").with(7);
        } else {
            machines.run(&format!("{WEEK} --conflict-exit-code 9"), MARK).with(next);
        }
    }
    assert_eq!(machines.runs(), 0);
}

#[test]
fn runs_of_two_slots_never_overlap_and_the_next_slot_runs_again() {
    let machines = Machines::new();
    let every = "often --every 1s --conflict-exit-code 9";
    let first = machines.start(every, &format!("{MARK}; echo $$ > pid; while ! [ -e go ]; do sleep 0.02; done"));
    numbers(&machines.path("pid"), 1);
    wait_for("the next slot", || {
        let said = machines.run(every, MARK).with(9);
        said.contains("the run of an earlier slot still goes on").then_some(())
    });
    assert_eq!(machines.runs(), 1);
    fs::write(machines.path("go"), "").expect("a file");
    assert_eq!(first.end(), (Some(0), String::new()));
    wait_for("the run of a later slot", || (machines.run(every, MARK).code == Some(0)).then_some(()));
    let ran = fs::read_to_string(machines.path("runs")).expect("they ran");
    let fences: Vec<u64> = ran.lines().filter_map(|line| line.strip_prefix("often ")?.parse().ok()).collect();
    assert!(fences.len() == 2 && fences[0] < fences[1], "{ran}");
}

#[test]
fn what_cannot_run_once_is_told_so_and_a_store_without_an_answer_is_no_taken_slot() {
    let machines = Machines::new();
    let table: [(&[&str], i32, &str); 8] = [
        (&["a", "--", "touch", "ran"], 2, "--every"),
        (&["a b", "--every", "1h", "--", "touch", "ran"], 2, "the job"),
        (&["a", "--every", "1d", "--", "touch", "ran"], 2, "not a duration"),
        (
            &["a", "--every", "999ms", "--create", "--store", "x", "--", "touch", "ran"],
            2,
            "every must be 1 s to 7 days",
        ),
        (&["a", "--every", "1h", "--longest", "193h", "--store", "x", "--", "touch", "ran"], 2, "longest must be"),
        (&["a", "--every", "1h", "--tolerance", "2h", "--store", "x", "--", "touch", "ran"], 2, "tolerance must be"),
        (&["a", "--every", "1h", "touch", "ran"], 2, "put -- before the command: firstcome once"),
        (&["a", "--every", "1h", "--store", "redis://127.0.0.1:1", "--", "touch", "ran"], 3, "127.0.0.1:1"),
    ];
    for (arguments, code, words) in table {
        let said = firstcome(machines.0.path(), &[&["once"], arguments].concat()).with(code);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    assert!(!machines.path("ran").exists());
}
