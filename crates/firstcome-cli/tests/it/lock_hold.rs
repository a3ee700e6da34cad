//! How long the lock of a command is kept: for what the command leaves behind, and for a time that was asked for.

use crate::lock::{LockStores, is_running, until_gone};
use crate::support::program::{firstcome, run, signal};
use crate::support::wait_for;
use firstcome::edge::Stopwatch;
use std::fs;
use std::time::Duration;

/// Longer than what a command leaves in its group may run without `--wait-children`: 2 s.
const LONGER_THAN_A_MOMENT: Duration = Duration::from_millis(2_500);

fn after(span: Duration) {
    let watch = Stopwatch::start();
    wait_for("some time to pass", || (span < watch.elapsed()).then_some(()));
}

/// Leaves a process behind that ends when the file `go` is there.
fn leaves_behind(session: &str) -> String {
    let child = "echo $$ > pids; while ! [ -e go ]; do sleep 0.02; done; touch done";
    format!("{session} sh -c '{child}' >/dev/null 2>&1 & while ! [ -s pids ]; do sleep 0.01; done; exit 7")
}

#[test]
fn with_wait_children_the_lock_is_kept_until_all_that_the_command_left_behind_has_ended() {
    for session in ["", "setsid"] {
        let Some(place) = LockStores::new() else { return };
        let running = place.start("a --lease 2s --wait-children", &leaves_behind(session));
        let left = place.numbers("pids", 1)[0];
        after(LONGER_THAN_A_MOMENT);
        assert!(is_running(left), "{session}");
        run(&mut place.lock("a --wait 0s", "true")).with(75);
        fs::write(place.path("go"), "").expect("a file");
        // The exit code is that of the command.
        assert_eq!(running.end(), (Some(7), String::new()), "{session}");
        assert!(place.path("done").exists(), "{session}");
        run(&mut place.lock("a --wait 0s", "true")).well();
    }
}

#[test]
fn without_wait_children_the_lock_is_given_back_when_the_command_has_ended() {
    let Some(place) = LockStores::new() else { return };
    let mut running = place.start("a", &leaves_behind("setsid"));
    let left = place.numbers("pids", 1)[0];
    assert_eq!(running.ended(), Some(7));
    assert!(is_running(left));
    run(&mut place.lock("a --wait 0s", "true")).well();
    signal(left, "KILL");
}

#[test]
fn a_signal_reaches_what_the_command_left_behind() {
    for session in ["", "setsid"] {
        let Some(place) = LockStores::new() else { return };
        let running = place.start("a --wait-children", &leaves_behind(session));
        let left = place.numbers("pids", 1)[0];
        // Before the command has ended the signal would be for its group alone.
        let guardian = running.guardian();
        wait_for("the end of the command", || (parent_of(left) == Some(guardian)).then_some(()));
        running.signal("TERM");
        assert_eq!(running.end().0, Some(7), "{session}");
        until_gone(left);
        assert!(!place.path("done").exists(), "{session}");
    }
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[test]
fn what_the_command_left_behind_ends_with_a_lock_that_is_lost() {
    for session in ["", "setsid"] {
        let Some(place) = LockStores::new() else { return };
        let running = place.start("a --lease 1s --wait-children", &leaves_behind(session));
        let left = place.numbers("pids", 1)[0];
        after(LONGER_THAN_A_MOMENT);
        place.stop_redis();
        assert_eq!(running.end().0, Some(76), "{session}");
        assert!(!is_running(left), "{session}");
    }
}

#[test]
fn a_short_command_keeps_its_lock_for_min_hold() {
    let Some(place) = LockStores::new() else { return };
    // Longer than its lease: it is renewed meanwhile.
    let watch = Stopwatch::start();
    let running = place.start("a --lease 1s --min-hold 3s", "echo $$ > pid; exit 7");
    until_gone(place.numbers("pid", 1)[0]);
    after(Duration::from_millis(1_500).saturating_sub(watch.elapsed()));
    run(&mut place.lock("a --wait 0s", "true")).with(75);
    assert_eq!(running.end(), (Some(7), String::new()));
    assert!(Duration::from_secs(3) <= watch.elapsed(), "{:?}", watch.elapsed());
    run(&mut place.lock("a --wait 0s", "true")).well();
    // A command that takes longer has no wait after it, also by the environment.
    let watch = Stopwatch::start();
    run(place.lock("a", "sleep 0.3").env("FIRSTCOME_MIN_HOLD", "200ms")).well();
    run(place.lock("a", "true").env("FIRSTCOME_MIN_HOLD", "200ms")).well();
    assert!(Duration::from_millis(500) <= watch.elapsed(), "{:?}", watch.elapsed());
}

#[test]
fn a_signal_during_min_hold_gives_the_lock_back_and_the_exit_code_stays() {
    let Some(place) = LockStores::new() else { return };
    for name in ["TERM", "INT", "HUP"] {
        let running = place.start("a --min-hold 1h", "echo $$ > pid; exit 7");
        until_gone(place.numbers("pid", 1)[0]);
        // A signal before would be for the command, which has ended: the guardian ends when nothing is left of it.
        wait_for("the keepers to end", || (!running.has_keeper()).then_some(()));
        run(&mut place.lock("a --wait 0s", "true")).with(75);
        running.signal(name);
        assert_eq!(running.end(), (Some(7), String::new()), "{name}");
        run(&mut place.lock("a --wait 0s", "true")).well();
        fs::remove_file(place.path("pid")).expect("it is there");
    }
}

#[test]
fn a_lock_that_is_lost_during_min_hold_is_told() {
    let Some(place) = LockStores::new() else { return };
    let running = place.start("a --lease 1s --min-hold 1h", "echo $$ > pid; exit 0");
    wait_for("the keepers to end", || (place.path("pid").exists() && !running.has_keeper()).then_some(()));
    place.stop_redis();
    let (code, said) = running.end();
    assert_eq!(code, Some(76), "{said}");
}

#[test]
fn a_missing_double_dash_is_named_with_the_line_to_write() {
    let directory = tempfile::tempdir().expect("a directory");
    let table: [(&[&str], Option<&str>); 8] = [
        (&["nightly", "backup.sh"], Some("firstcome lock nightly -- backup.sh")),
        (&["nightly", "backup.sh", "--full", "-v"], Some("firstcome lock nightly -- backup.sh --full -v")),
        (&["--wait", "0s", "nightly", "true"], Some("firstcome lock --wait 0s nightly -- true")),
        (&["true", "true"], Some("firstcome lock true -- true")),
        (&["nightly", "echo", "a b"], Some("firstcome lock NAME -- COMMAND")),
        (&["nightly"], None),
        (&["nightly", "--prot"], None),
        (&["nightly", "stray", "--", "true"], None),
    ];
    for (arguments, line) in table {
        let said = firstcome(directory.path(), &[&["lock"], arguments].concat()).with(2);
        let tip = said.trim_end().split_once("; put -- before the command: ").map(|(_, line)| line);
        assert_eq!((tip, said.trim_end().lines().count()), (line, 1), "{arguments:?}: {said}");
    }
    let said = firstcome(directory.path(), &["lock", "a", "--min-hold", "193h", "--", "true"]).with(2);
    assert!(said.contains("at most 192h"), "{said}");
}
