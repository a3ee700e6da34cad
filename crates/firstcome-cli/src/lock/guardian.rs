//! The process that ends the command's group before the lease can end, no matter what becomes of the holder.
//!
//! It is in a group of its own: what is typed at the terminal, and what is done to the holder's group, does not reach it.
//! Signals that ask a process to end change nothing here: a service manager sends them to all of a service's processes.
//! It knows no store. It is told instants of a clock that is the same in all processes, and acts on the last that it was
//! told. When the holder is gone no process tells it a later one.
//!
//! # Limits
//! - A process that leaves the group (setsid, or the command of a lock within this one) is not asked to end. If the command ends in time,
//!   it runs on; if the lock is lost, it is killed where the system has reapers of orphans (Linux). With [`Rest::WaitFor`] the guardian
//!   stays for it there, and passes signals on to it once the command has ended.
//! - If the guardian itself dies, the system kills the command (Linux), and holder and keeper what that has started.

use super::family;
use super::group::{Group, Leader, MS_NS, Terminal, adopt_orphans, now_ns};
use super::holder::program;
use super::messages::{self, Order, Report};
use super::process_gate::GateArgs;
use super::signals::Signals;
use crate::failure::Failure;
use anyhow::Context;
use rustix::process::{Pid, Signal};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How long it sleeps at most. A sleep stands still while the machine sleeps; the clock does not.
const LOOK: Duration = Duration::from_millis(100);
/// The same when the command has ended and a process of its group has not.
const LOOK_AT_REST: Duration = Duration::from_millis(10);
/// The same while it waits for what the command left behind, which may take hours: as often as the holder looks.
const LOOK_AT_CHILDREN: Duration = Duration::from_millis(50);
/// What the command leaves behind has so long to end by itself, and then as long again after it was asked to.
const REST_NS: u64 = 1_000 * MS_NS;

enum Event {
    Order(Order),
    /// Also after something that is not an order: a holder that speaks so cannot be relied on.
    HolderGone,
    Leader(Leader),
}

/// Guards one command, and stays until nothing is left of its group.
pub(crate) fn run(args: &GateArgs) -> Result<ExitCode, Failure> {
    adopt_orphans().context("cannot take care of orphans")?;
    // Caught, not ignored: a command would inherit that. They stay caught when no process listens any more.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async { Signals::listen().map(drop) }).context("cannot listen to signals")?;
    let holder = messages::socket_of_input()?;
    let gate = std::io::stdout().as_fd().try_clone_to_owned().context("no standard output")?;
    let own = i32::try_from(std::process::id()).context("a process without a number")?;
    // By this thread, which lives as long as the process: the gate dies with the thread that started it.
    let mut gate =
        program("lock-gate", &GateArgs { parent: Some(own), wait_children: false, command: args.command.clone() })
            .stdin(Stdio::from(gate))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start a process")?;
    let pid = i32::try_from(gate.id()).ok().and_then(Pid::from_raw).context("a process without a number")?;
    let group = Group(pid);
    let (sender, events) = channel();
    let reader = holder.try_clone().context("cannot copy a socket")?;
    std::thread::spawn({
        let sender = sender.clone();
        move || hear(reader, &sender)
    });
    std::thread::spawn(move || watch(group, &sender));
    let rest = if args.wait_children { Rest::WaitFor } else { Rest::End };
    let mut guardian = Guardian::new(group, holder, rest);
    guardian.report(Report::Ready(group));
    let ended = guardian.guard(&events);
    // Its end was seen by other means: this only takes note of it.
    let _ = gate.try_wait();
    if matches!(ended, Report::Ended { late: true, .. }) {
        while !family::end() {
            std::thread::park_timeout(LOOK_AT_REST);
        }
    }
    guardian.report(ended);
    Ok(ExitCode::SUCCESS)
}

fn hear(holder: UnixStream, events: &Sender<Event>) {
    for line in BufReader::new(holder).lines() {
        let order = line.ok().and_then(|line| line.parse().ok());
        let Some(order) = order else { break };
        if events.send(Event::Order(order)).is_err() {
            return;
        }
    }
    // If no process listens any more, no process needs to know.
    let _ = events.send(Event::HolderGone);
}

fn watch(group: Group, events: &Sender<Event>) {
    loop {
        let leader = group.watch();
        let ended = matches!(leader, Leader::Ended(_));
        if events.send(Event::Leader(leader)).is_err() || ended {
            return;
        }
    }
}

/// What to do with processes that the command leaves behind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Those of its group are ended after a moment; those that left it run on.
    End,
    /// The guardian keeps the lock until they have ended, in any group.
    WaitFor,
}

/// Which processes signals are for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Under {
    /// The command runs: its group.
    Command,
    /// The command has ended: the processes left in its group, and with [`Rest::WaitFor`] all other children too.
    Rest,
}

struct Guardian {
    group: Group,
    rest: Rest,
    under: Under,
    holder: UnixStream,
    ask_ns: u64,
    kill_ns: u64,
    /// Until it knows instants, the gate is closed and nothing needs to be ended.
    armed: bool,
    /// Whether the group was asked to end. From then on there is no way back.
    asked: bool,
    killed: bool,
    /// Who had the terminal before the command.
    before: Option<Pid>,
}

impl Guardian {
    fn new(group: Group, holder: UnixStream, rest: Rest) -> Self {
        let under = Under::Command;
        let (ask_ns, kill_ns, before) = (0, 0, None);
        Self { group, rest, under, holder, ask_ns, kill_ns, armed: false, asked: false, killed: false, before }
    }

    /// Signals what runs under the lock.
    fn signal(&self, signal: Signal) {
        // The leader is not waited for while the command runs. Later the system may give the group's number to another group.
        if self.under == Under::Command || self.group.has_child() {
            self.group.signal(signal);
        }
        if self.under == Under::Rest && self.rest == Rest::WaitFor {
            family::signal_outside(self.group.0, signal);
        }
    }

    /// Asks what runs under the lock to end.
    fn ask(&self) {
        self.signal(Signal::TERM);
        // A stopped process hears nothing else.
        self.signal(Signal::CONT);
    }

    fn report(&mut self, report: Report) {
        // A holder that is gone need not know.
        let _ = write!(self.holder, "{report}");
    }

    /// Returns when nothing is left of the group.
    fn guard(&mut self, events: &Receiver<Event>) -> Report {
        let end = loop {
            match self.wait(events, LOOK) {
                Some(Leader::Ended(end)) => break end,
                Some(Leader::Stopped) => self.report(Report::Stopped),
                None => {}
            }
            self.act();
        };
        if let (Some(before), Some(terminal)) = (self.before, Terminal::open()) {
            terminal.take_back(self.group, before);
        }
        let late = self.asked;
        self.under = Under::Rest;
        match self.rest {
            Rest::End => self.end_the_rest(events),
            Rest::WaitFor => self.wait_for_the_rest(events),
        }
        // What was left was ended for the lock's sake only if the lock was ending.
        Report::Ended { end, late: late || self.asked }
    }

    /// Waits for what happens first: an order, something about the leader, an instant, or some time.
    fn wait(&mut self, events: &Receiver<Event>, longest: Duration) -> Option<Leader> {
        let next_ns = if self.asked { self.kill_ns } else { self.ask_ns };
        let left = Duration::from_nanos(next_ns.saturating_sub(now_ns()));
        // Killed already: there is nothing to wait for but the end. What became due since the last act must be done now.
        let wait = if self.armed && !self.killed { left.min(longest) } else { longest };
        match events.recv_timeout(wait) {
            Ok(Event::Order(order)) => self.obey(order),
            Ok(Event::HolderGone) => {
                if !self.armed {
                    // The gate closes by itself: its holder is the same.
                    self.armed = true;
                }
            }
            Ok(Event::Leader(leader)) => return Some(leader),
            Err(RecvTimeoutError::Timeout) => {}
            // Both threads have said their last word.
            Err(RecvTimeoutError::Disconnected) => std::thread::park_timeout(wait),
        }
        None
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Until { ask_ns, kill_ns } => {
                // Later instants come too late for a group that was asked to end; earlier ones count.
                if !self.asked || kill_ns < self.kill_ns {
                    (self.ask_ns, self.kill_ns) = (ask_ns, kill_ns);
                }
                if !self.armed {
                    self.armed = true;
                    self.report(Report::Armed);
                }
            }
            Order::Signal(signal) => self.signal(signal),
            Order::Terminal(before) => self.before = Some(before),
        }
    }

    /// Does what is due now. The leader is a child that was not waited for, or another member is.
    fn act(&mut self) {
        if !self.armed {
            return;
        }
        let now_ns = now_ns();
        if self.ask_ns <= now_ns && !self.asked {
            self.asked = true;
            self.ask();
        }
        if self.kill_ns <= now_ns {
            self.killed = true;
            self.signal(Signal::KILL);
            family::kill_children();
        }
    }

    /// Nothing of the group runs without the lock: what the command left behind may end by itself for a moment (say, a
    /// `tee` behind a shell), and is ended then.
    fn end_the_rest(&mut self, events: &Receiver<Event>) {
        let ended_ns = now_ns();
        let mut asked = false;
        while !self.group.reap() {
            let rest_ns = now_ns().saturating_sub(ended_ns);
            if REST_NS <= rest_ns && !asked {
                asked = true;
                self.ask();
            }
            if 2 * REST_NS <= rest_ns {
                self.signal(Signal::KILL);
            }
            self.act();
            self.wait(events, LOOK_AT_REST);
        }
    }

    /// Waits under the lock until all that the command left behind has ended by itself, or the lock ends it. A process whose
    /// parent has ended is a child of this one then (Linux), so without children nothing is left.
    fn wait_for_the_rest(&mut self, events: &Receiver<Event>) {
        while !family::reap() {
            self.act();
            self.wait(events, LOOK_AT_CHILDREN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstcome::edge::Stopwatch;

    #[test]
    fn what_is_due_is_not_slept_over() {
        let (holder, _there) = UnixStream::pair().expect("a pair");
        let mut guardian = Guardian::new(Group(rustix::process::getpid()), holder, Rest::End);
        let (_sender, events) = channel();
        (guardian.armed, guardian.ask_ns, guardian.kill_ns) = (true, now_ns(), now_ns());
        let (watch, longest) = (Stopwatch::start(), Duration::from_secs(10));
        for asked in [false, true] {
            guardian.asked = asked;
            assert!(guardian.wait(&events, longest).is_none());
        }
        assert!(watch.elapsed() < longest, "{:?}", watch.elapsed());
    }
}
