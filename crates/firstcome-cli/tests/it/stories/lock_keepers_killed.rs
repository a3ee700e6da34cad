//! Two terminals, one lock, a lease of 2 s. In the first one the command writes to a log, and so do a process that it started in the
//! background, one in a session of its own, and one whose parent has ended. `kill -9` of the holder and the guardian together: the
//! command wrote on beside that of the second terminal, for good. The README said that it cannot.
//!
//! Now the command and all that it has started are gone before the second command starts, whichever keepers are killed. If all three are killed at
//! once, the command itself is gone; what it has started in the background is not (the README says so).

use crate::lock::{LockStores, Running, is_running, until_gone};
use crate::support::machine_has;
use crate::support::program::is_installed;
use crate::support::wait_for;
use std::fs;
use std::process::Command;

/// The command's own number comes last.
const FIRST: &str = "writes='echo $$ >> pids; trap \"\" TERM HUP; while :; do echo 1 >> log; sleep 0.05; done'; \
    sh -c \"$writes\" & setsid sh -c \"$writes\" & (sh -c \"$writes\" &) ; (setsid sh -c \"$writes\" &) ; \
    while [ \"$(cat pids 2>/dev/null | wc -l)\" -lt 4 ]; do sleep 0.01; done; \
    echo $$ >> pids; trap '' TERM; while :; do echo 1 >> log; sleep 0.05; done";
const WRITERS: usize = 5;

/// Says whether any of the first command runs, and writes until it is told to stop.
const SECOND: &str = "while read pid; do grep -q '^State:.[RSDT]' /proc/$pid/status 2>/dev/null && echo $pid >> alive; done < pids; \
    echo 2 >> log; sleep 0.5; echo 2 >> log";

/// Sends SIGKILL to several processes in one call.
fn kill_at_once(processes: &[u32]) {
    let numbers: Vec<String> = processes.iter().map(u32::to_string).collect();
    let line = format!("kill -KILL {}", numbers.join(" "));
    assert!(Command::new("/bin/sh").args(["-c", &line]).status().expect("a shell").success(), "{line}");
}

/// What stands between the command and a runaway.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Part {
    Holder,
    Keeper,
    Guardian,
}

use Part::{Guardian, Holder, Keeper};

struct Terminals {
    place: LockStores,
}

impl Terminals {
    fn new() -> Option<Self> {
        if !machine_has("setsid (util-linux)", is_installed("setsid")) {
            return None;
        }
        Some(Self { place: LockStores::new()? })
    }

    /// The first command writes, the second one waits, and these are killed. The writers' numbers, and the second terminal.
    fn play(&self, killed: &[Part]) -> (Vec<u32>, Running) {
        for file in ["pids", "log", "alive"] {
            let _ = fs::remove_file(self.place.path(file));
        }
        let first = self.place.start("report --lease 2s", FIRST);
        let writers = self.place.numbers("pids", WRITERS);
        let second = self.place.start("report --lease 2s --wait 1m", SECOND);
        wait_for("the second terminal to wait", || self.place.waiters("report").contains("1 waiting").then_some(()));
        let number = |part: &Part| match part {
            Holder => first.holder(),
            Keeper => first.keeper(),
            Guardian => first.guardian(),
        };
        kill_at_once(&killed.iter().map(number).collect::<Vec<_>>());
        // A process that is left over is left to itself.
        std::mem::forget(first);
        (writers, second)
    }

    /// What was written to the log.
    fn log(&self) -> String {
        fs::read_to_string(self.place.path("log")).expect("a log").replace('\n', "")
    }
}

#[test]
fn all_of_the_command_is_gone_before_the_next_one_starts_whichever_keepers_are_killed() {
    let Some(terminals) = Terminals::new() else { return };
    let table: [&[Part]; 5] =
        [&[Holder, Guardian], &[Guardian, Holder], &[Guardian], &[Holder, Keeper], &[Guardian, Keeper]];
    for killed in table {
        let (writers, second) = terminals.play(killed);
        assert_eq!(second.end(), (Some(0), String::new()), "{killed:?}");
        let alive = fs::read_to_string(terminals.place.path("alive")).unwrap_or_default();
        assert_eq!(alive, "", "{killed:?}: still there when the second command started, of {writers:?}");
        assert!(terminals.log().ends_with("122"), "{killed:?}: the first command wrote beside the second one");
    }
}

#[test]
fn when_all_three_are_killed_at_once_the_command_itself_is_gone() {
    let Some(terminals) = Terminals::new() else { return };
    let (writers, second) = terminals.play(&[Holder, Keeper, Guardian]);
    let (command, started) = writers.split_last().expect("five of them");
    until_gone(*command);
    let (code, said) = second.end();
    assert_eq!(code, Some(0), "{said}");
    let alive = fs::read_to_string(terminals.place.path("alive")).unwrap_or_default();
    assert!(alive.lines().all(|pid| pid != command.to_string()), "{alive}");
    for process in started.iter().filter(|process| is_running(**process)) {
        kill_at_once(&[*process]);
    }
}
