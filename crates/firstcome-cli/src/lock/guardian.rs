//! The guardian ends the command's group before the lease can end, even if the holder is stopped or killed.
//!
//! It has a process group of its own, so that keys typed at the terminal and signals to the holder's group do not
//! reach it. It ignores signals that ask a process to end: a service manager sends them to all processes of a service.
//! It has no connection to the store. The holder sends it deadlines of a clock that all processes share, and it acts
//! on the last one. A holder that is gone sends no later deadline.
//!
//! # Limits
//! - A process that leaves the group (setsid, or the command of a nested lock) is not asked to end. If the command
//!   ends in time, such a process runs on. If the lock is lost, it is killed where the kernel has subreapers (Linux).
//!   There, with [`Rest::WaitFor`], the guardian waits for it, and passes signals on to it once the command has ended.
//! - If the guardian itself dies, the kernel kills the command (Linux). The holder and the keeper kill what the
//!   command started.

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

/// The longest sleep. A sleep pauses while the machine sleeps; the clock does not.
const LOOK: Duration = Duration::from_millis(100);
/// The longest sleep while the command has ended and a process of its group has not.
const LOOK_AT_REST: Duration = Duration::from_millis(10);
/// The longest sleep while it waits for what the command left behind, which may take hours. The holder polls as often.
const LOOK_AT_CHILDREN: Duration = Duration::from_millis(50);
/// How long processes that the command left behind may run on, and how long again after they were asked to end.
const REST_NS: u64 = 1_000 * MS_NS;

enum Event {
    Order(Order),
    /// Also sent after a line that is not an order: such a holder is unreliable.
    HolderGone,
    Leader(Leader),
}

/// Guards one command. Returns when no process of its group is left.
pub(crate) fn run(args: &GateArgs) -> Result<ExitCode, Failure> {
    adopt_orphans().context("cannot become the parent of orphaned processes")?;
    // Caught, not ignored: the command would inherit an ignored signal. They stay caught after the listener is
    // dropped.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async { Signals::listen().map(drop) }).context("cannot listen to signals")?;
    let holder = messages::socket_of_input()?;
    let gate = std::io::stdout().as_fd().try_clone_to_owned().context("no standard output")?;
    let own = i32::try_from(std::process::id()).context("a process id is out of range")?;
    // Started by this thread, which lives as long as the process: the gate dies with the thread that started it.
    let mut gate =
        program("lock-gate", &GateArgs { parent: Some(own), wait_children: false, command: args.command.clone() })
            .stdin(Stdio::from(gate))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start a process")?;
    let pid = i32::try_from(gate.id()).ok().and_then(Pid::from_raw).context("a process id is out of range")?;
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
    // The guardian saw its end by other means; this only updates `gate`.
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
    // Fails only if the guardian no longer receives events.
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

/// How to treat processes that the command leaves behind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// End the processes of its group after a moment; those that left the group run on.
    End,
    /// Keep the lock until they have ended, in any group.
    WaitFor,
}

/// Which processes a signal reaches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Under {
    /// The command runs: signals reach its group.
    Command,
    /// The command has ended: signals reach the rest of its group, and with [`Rest::WaitFor`] all other children too.
    Rest,
}

struct Guardian {
    group: Group,
    rest: Rest,
    under: Under,
    holder: UnixStream,
    ask_ns: u64,
    kill_ns: u64,
    /// Whether the holder has sent a deadline. Before that the gate is closed, and there is nothing to end.
    armed: bool,
    /// Whether the group was asked to end. This cannot be undone.
    asked: bool,
    killed: bool,
    /// The group that had the terminal before the command.
    before: Option<Pid>,
}

impl Guardian {
    fn new(group: Group, holder: UnixStream, rest: Rest) -> Self {
        let under = Under::Command;
        let (ask_ns, kill_ns, before) = (0, 0, None);
        Self { group, rest, under, holder, ask_ns, kill_ns, armed: false, asked: false, killed: false, before }
    }

    /// Signals the processes that run under the lock.
    fn signal(&self, signal: Signal) {
        // The leader is unreaped while the command runs. Later the kernel may reuse the group's number.
        if self.under == Under::Command || self.group.has_child() {
            self.group.signal(signal);
        }
        if self.under == Under::Rest && self.rest == Rest::WaitFor {
            family::signal_outside(self.group.0, signal);
        }
    }

    /// Asks the processes that run under the lock to end.
    fn ask(&self) {
        self.signal(Signal::TERM);
        // A stopped process handles SIGTERM only once it continues.
        self.signal(Signal::CONT);
    }

    fn report(&mut self, report: Report) {
        // Fails only if the holder is gone, which needs no report.
        let _ = write!(self.holder, "{report}");
    }

    /// Guards until the command has ended and no process of its group is left.
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
        // Late only if the lock was ending: processes left behind are also ended without that.
        Report::Ended { end, late: late || self.asked }
    }

    /// Waits for an order, a change of the leader, the next deadline, or `longest`.
    fn wait(&mut self, events: &Receiver<Event>, longest: Duration) -> Option<Leader> {
        let next_ns = if self.asked { self.kill_ns } else { self.ask_ns };
        let left = Duration::from_nanos(next_ns.saturating_sub(now_ns()));
        // After SIGKILL only the end is left to wait for. Otherwise a deadline that has passed must be handled at
        // once.
        let wait = if self.armed && !self.killed { left.min(longest) } else { longest };
        match events.recv_timeout(wait) {
            Ok(Event::Order(order)) => self.obey(order),
            Ok(Event::HolderGone) => {
                if !self.armed {
                    // The gate closes by itself, since the same holder controls it.
                    self.armed = true;
                }
            }
            Ok(Event::Leader(leader)) => return Some(leader),
            Err(RecvTimeoutError::Timeout) => {}
            // Both threads have ended.
            Err(RecvTimeoutError::Disconnected) => std::thread::park_timeout(wait),
        }
        None
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Until { ask_ns, kill_ns } => {
                // A group that was asked to end gets no later deadline, but an earlier one counts.
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

    /// Asks or kills if a deadline has passed. The group must have an unreaped child: the leader, or another member.
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

    /// Ends the rest of the group, since nothing may run without the lock. Processes that the command left behind
    /// (say, a `tee` behind a shell) first have a moment to end on their own.
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

    /// Keeps the lock until all processes that the command left behind have ended, or until the lock's end ends them.
    /// A process whose parent has ended becomes a child of the guardian (Linux), so without children nothing is left.
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
