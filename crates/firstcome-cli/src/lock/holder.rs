//! The holder acquires and renews the lock, sends deadlines to the guardian, and forwards signals.

use super::group::{End, Group, MS_NS, Terminal, adopt_orphans, now_ns};
use super::messages::{self, Order, Report};
use super::process_gate::GateArgs;
use super::signals::{Signals, stop_this_process};
use super::store;
use super::{Plan, failure};
use super::{family, keeper};
use crate::failure::Failure;
use crate::output::say;
use anyhow::{Context, anyhow, bail};
use firstcome::edge::Stopwatch;
use firstcome::{Guard, LockError, Locks};
use rustix::process::{Signal, getpgrp};
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{interval, sleep, timeout};

/// The longest time for optional calls to the store: releasing, and reading the holder's name.
pub(super) const COURTESY: Duration = Duration::from_secs(2);
/// How long to wait for quorum servers that are slower than the majority: twice the timeout of one server.
pub(super) const REST: Duration = Duration::from_millis(100);
/// The longest time for guardian and gate to start. They usually take a few milliseconds.
const START: Duration = Duration::from_secs(30);
/// The pause between two checks of a group that is being killed.
const LOOK: Duration = Duration::from_millis(5);
/// If the guardian has not ended the group so long after the lock was lost, the holder ends it.
const LOST_NS: u64 = 100 * MS_NS;
/// If the keeper has not killed the command so long after it was told to, the holder kills it.
const KEEPER_NS: u64 = 500 * MS_NS;

/// Builds a command that runs this program again, in another role. The file on disk may have been replaced since the
/// start.
pub(super) fn program(part: &str, args: &GateArgs) -> Command {
    let running = Path::new("/proc/self/exe");
    let path = if running.exists() { running.to_owned() } else { std::env::current_exe().unwrap_or_default() };
    let mut program = Command::new(path);
    // The keeper has a name of its own, so that `pkill firstcome` spares it. It then ends the command.
    program.arg0(if part == "lock-keeper" { part } else { "firstcome" }).arg(part);
    if let Some(parent) = args.parent {
        program.arg("--parent").arg(parent.to_string());
    }
    if args.wait_children {
        program.arg("--wait-children");
    }
    program.arg("--").args(&args.command);
    program
}

/// The processes around the command: keeper, guardian and gate.
pub(super) struct Guarded {
    keeper: Child,
    lifeline: Option<UnixStream>,
    control: UnixStream,
    gate: UnixStream,
    group: Group,
}

fn prepare(args: &GateArgs) -> anyhow::Result<Guarded> {
    adopt_orphans().context("cannot become the parent of orphaned processes")?;
    let ((control, of_guardian), (gate, of_gate)) = (UnixStream::pair()?, UnixStream::pair()?);
    let (keeper, lifeline) = keeper::start(args, OwnedFd::from(of_guardian), OwnedFd::from(of_gate))?;
    control.set_read_timeout(Some(START))?;
    let mut line = String::new();
    BufReader::new(control.try_clone()?).read_line(&mut line).context("the guardian does not answer")?;
    let Ok(Report::Ready(group)) = line.parse() else { bail!("the guardian did not start") };
    control.set_nonblocking(true)?;
    Ok(Guarded { keeper, lifeline, control, gate, group })
}

/// Runs the command under the lock.
pub(super) fn run(plan: &Plan, args: &GateArgs) -> Result<ExitCode, Failure> {
    with_guardian(args, async |guarded| hold(plan, guarded).await)
}

/// Starts the processes around the command, and then runs `hold`, which takes the lock and lets the command begin.
pub(super) fn with_guardian(
    args: &GateArgs,
    hold: impl AsyncFnOnce(Guarded) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    // Before this process listens to signals: its children inherit the signals that it was started to ignore.
    let guarded = prepare(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let outcome = runtime.block_on(hold(guarded));
    // A call that is under way may hang in name resolution; do not wait for it.
    runtime.shutdown_background();
    outcome
}

/// Returns the exit code of a process that a signal ends, as a shell reports it.
pub(super) fn by_signal(signal: Signal) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX))
}

async fn hold(plan: &Plan, guarded: Guarded) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen()?;
    let locks = tokio::select! {
        locks = store::open(plan) => locks?,
        signal = signals.next_end() => return Ok(by_signal(signal)),
    };
    if let Some(demand) = plan.require.iter().find(|demand| !locks.guarantees().meets(**demand)) {
        return Err(failure(&plan.name, LockError::NotGuaranteed { demand: *demand }));
    }
    let acquired = tokio::select! {
        acquired = store::acquire(&locks, plan) => acquired,
        signal = signals.next_end() => {
            withdraw(&locks).await;
            return Ok(by_signal(signal));
        }
    };
    let guard = match acquired {
        Ok(guard) => guard,
        Err(error) => {
            let failure = not_obtained(&locks, plan, error).await;
            let _ = timeout(REST, locks.quiet()).await;
            return Err(failure);
        }
    };
    // The store granted the lock earlier, so counting `min_hold` from now never shortens it.
    let held = Stopwatch::start();
    let outcome = Holder::new(plan, guarded, &guard)?.guard_command(plan, &guard, &mut signals).await;
    if outcome.is_ok() {
        let left = plan.min_hold.saturating_sub(held.elapsed());
        keep(&plan.name, &guard, left, &mut signals).await;
    }
    let released = timeout(COURTESY, guard.release()).await;
    // A majority has processed the release. A server that has not could keep the next holder out if one of the
    // majority fails.
    let _ = timeout(REST, locks.quiet()).await;
    let end = outcome?;
    match released {
        Ok(Ok(())) => {}
        // Another process may have had the lock while the command was still running.
        Ok(Err(LockError::Lost)) => return Err(failure(&plan.name, LockError::Lost)),
        Ok(Err(error)) => say(&format!("lock {}: not given back, it ends with its lease: {error}", plan.name)),
        Err(_) => say(&format!("lock {}: not given back, it ends with its lease: no answer", plan.name)),
    }
    Ok(ExitCode::from(end))
}

/// Keeps the lock for `left` after the command has ended, unless it is lost or a signal asks this process to end.
async fn keep(name: &str, guard: &Guard, left: Duration, signals: &mut Signals) {
    if left.is_zero() {
        return;
    }
    if std::io::stderr().is_terminal() {
        say(&format!(
            "lock {name}: the command has ended; --min-hold keeps the lock for {left:.1?}, and Ctrl-C gives it back"
        ));
    }
    tokio::select! {
        () = sleep(left) => {}
        // The release that follows reports the loss.
        () = guard.lost() => {}
        _ = signals.next_end() => {}
    }
}

/// Waits until the store knows that this process waits no more.
pub(super) async fn withdraw(locks: &Locks) {
    // A store that does not answer skips this waiter anyway, a little later.
    let _ = timeout(COURTESY, locks.quiet()).await;
}

async fn not_obtained(locks: &Locks, plan: &Plan, error: LockError) -> Failure {
    let LockError::TimedOut { .. } = error else { return failure(&plan.name, error) };
    match timeout(COURTESY, store::holder(locks, plan)).await {
        Ok(Some(holder)) => Failure::NotObtained(anyhow!("lock {}: {error}; held by {holder}", plan.name)),
        _ => failure(&plan.name, error),
    }
}

/// When guardian, keeper and holder act, in ns of [`now_ns`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Instants {
    ask_ns: u64,
    kill_ns: u64,
    /// When holder and keeper act if the guardian has not: either of them may be stopped.
    own_ns: u64,
    /// Until then the holder waits for the keeper.
    last_ns: u64,
}

impl Instants {
    /// Computes the instants for a lease that ends at the deadline. The guardian asks the command to end a quarter of
    /// the lease earlier (at most 2 s), and kills it a tenth earlier (10 to 250 ms). If it does not, holder and keeper
    /// kill the command a twentieth of the lease earlier.
    fn before(deadline_ns: u64, lease_ms: u64) -> Self {
        let ask = (lease_ms / 4).min(2_000) * MS_NS;
        let kill = (lease_ms / 10).clamp(10, 250) * MS_NS;
        let before = |span: u64| deadline_ns.saturating_sub(span);
        Self { ask_ns: before(ask), kill_ns: before(kill), own_ns: before(kill / 2), last_ns: before(kill / 4) }
    }
}

/// Translates the deadlines of a guard to a clock that goes on while the machine sleeps.
struct Deadlines {
    lease_ms: u64,
    told: Option<Instant>,
    watch: Stopwatch,
    started_ns: u64,
    slept_ns: u64,
}

impl Deadlines {
    fn new(lease: Duration) -> Self {
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        Self { lease_ms, told: None, watch: Stopwatch::start(), started_ns: now_ns(), slept_ns: 0 }
    }

    /// Returns the instants of the guard's deadline, if it has changed since the last call.
    fn next(&mut self, guard: &Guard) -> Option<Instants> {
        let deadline = guard.deadline()?;
        if self.told == Some(deadline) || guard.is_lost() {
            return None;
        }
        self.told = Some(deadline);
        // How long the machine has slept since the start. A deadline counts from a call that may have been sent before
        // the last sleep, on a clock that stops while the machine sleeps.
        let awake_ns = u64::try_from(self.watch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let slept_ns = now_ns().saturating_sub(self.started_ns).saturating_sub(awake_ns);
        let left_ns = u64::try_from(guard.remaining().as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = now_ns().saturating_add(left_ns).saturating_sub(slept_ns.saturating_sub(self.slept_ns));
        self.slept_ns = slept_ns;
        Some(Instants::before(deadline_ns, self.lease_ms))
    }
}

/// One command under one lock.
pub(super) struct Holder {
    /// The guardian on systems without a keeper.
    keeper: Child,
    lifeline: Option<UnixStream>,
    reports: Lines<tokio::io::BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
    gate: Option<UnixStream>,
    group: Group,
    deadlines: Deadlines,
    instants: Instants,
    /// The terminal, if the command may have it; `given` says whether it has.
    terminal: Option<Terminal>,
    given: bool,
}

impl Holder {
    pub(super) fn new(plan: &Plan, guarded: Guarded, guard: &Guard) -> Result<Self, Failure> {
        let Guarded { keeper, lifeline, control, gate, group } = guarded;
        let (read, orders) = tokio::net::UnixStream::from_std(control)?.into_split();
        let reports = tokio::io::BufReader::new(read).lines();
        let mut deadlines = Deadlines::new(plan.lease);
        let nothing = Instants { ask_ns: 0, kill_ns: 0, own_ns: 0, last_ns: 0 };
        let instants = deadlines.next(guard).unwrap_or(nothing);
        // Other processes of a pipeline may want the terminal too.
        let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let terminal = interactive.then(Terminal::open).flatten();
        let gate = Some(gate);
        Ok(Self { keeper, lifeline, reports, orders, gate, group, deadlines, instants, terminal, given: false })
    }

    /// Sends an order to the guardian without waiting. Returns false if the guardian does not read.
    fn order(&self, order: Order) -> bool {
        let line = order.to_string();
        self.orders.try_write(line.as_bytes()).is_ok_and(|written| written == line.len())
    }

    fn tell_keeper(&self, last_ns: u64) {
        if let Some(mut lifeline) = self.lifeline.as_ref() {
            // A keeper that does not read keeps its last deadline, or is gone: then the guardian alone guards.
            let _ = write!(lifeline, "{}", Order::Until { ask_ns: last_ns, kill_ns: last_ns });
        }
    }

    fn arm(&self) -> bool {
        self.tell_keeper(self.instants.own_ns);
        self.order(Order::Until { ask_ns: self.instants.ask_ns, kill_ns: self.instants.kill_ns })
    }

    async fn report(&mut self) -> Option<Report> {
        self.reports.next_line().await.ok().flatten().and_then(|line| line.parse().ok())
    }

    /// Runs the command to its end, and returns its exit code.
    pub(super) async fn guard_command(
        mut self,
        plan: &Plan,
        guard: &Guard,
        signals: &mut Signals,
    ) -> Result<u8, Failure> {
        let lost = |why: &str| Failure::Lost(anyhow!("lock {}: {why}: the command was stopped", plan.name));
        // A grant to a waiter is short until the waiter confirms it by a renewal.
        if guard.remaining() < plan.lease / 2 {
            guard.renew(plan.lease).await.map_err(|error| failure(&plan.name, error))?;
            self.instants = self.deadlines.next(guard).unwrap_or(self.instants);
        }
        // `try_write` fails until the runtime has seen once that the socket is writable.
        let armed = timeout(guard.remaining(), self.orders.writable()).await.is_ok()
            && self.arm()
            && timeout(guard.remaining(), self.report()).await == Ok(Some(Report::Armed));
        if !armed {
            return Err(Failure::Refused(anyhow!("the guardian is gone: the command was not started")));
        }
        self.give_terminal();
        self.open_gate(plan, guard)?;
        match self.watch(guard, signals).await {
            Watched::Ended { late: true, .. } => Err(lost("its lease was about to end")),
            Watched::Ended { end, late: false } => Ok(end.code()),
            Watched::GuardianGone => {
                self.end_by_itself().await;
                Err(lost("the guardian is gone"))
            }
            Watched::GuardianLate => {
                self.end_by_itself().await;
                Err(lost("the guardian did not act"))
            }
        }
    }

    fn open_gate(&mut self, plan: &Plan, guard: &Guard) -> Result<(), Failure> {
        let Some(gate) = self.gate.take() else { return Ok(()) };
        let fence = guard.fence().map(|fence| fence.to_string()).unwrap_or_default();
        let words = format!("{} {fence}", plan.name);
        messages::send_with_files(&gate, words.as_bytes(), [std::io::stdin().as_fd(), std::io::stdout().as_fd()])?;
        Ok(())
    }

    fn give_terminal(&mut self) {
        let given = self.terminal.as_ref().is_some_and(|terminal| terminal.give(self.group));
        if given && !self.given {
            self.given = self.order(Order::Terminal(getpgrp()));
        }
    }

    async fn watch(&mut self, guard: &Guard, signals: &mut Signals) -> Watched {
        let mut lost = guard.lost();
        let mut is_lost = false;
        let step = Duration::from_millis((self.deadlines.lease_ms / 32).clamp(2, 50));
        let mut looks = interval(step);
        loop {
            let listens = tokio::select! {
                report = self.report() => match report {
                    Some(Report::Ended { end, late }) => return Watched::Ended { end, late },
                    Some(Report::Stopped) => {
                        self.stop_too();
                        true
                    }
                    Some(_) => true,
                    None => return Watched::GuardianGone,
                },
                signal = signals.next() => self.pass_on(signal),
                () = &mut lost, if !is_lost => {
                    is_lost = true;
                    let own_ns = now_ns() + LOST_NS;
                    self.instants = Instants { ask_ns: 0, kill_ns: 0, own_ns, last_ns: own_ns + KEEPER_NS };
                    self.arm()
                }
                _ = looks.tick() => match self.deadlines.next(guard) {
                    Some(instants) if !is_lost => {
                        self.instants = instants;
                        self.arm()
                    }
                    _ => true,
                }
            };
            if !listens {
                return Watched::GuardianGone;
            }
            if self.instants.own_ns <= now_ns() {
                return Watched::GuardianLate;
            }
        }
    }

    fn pass_on(&mut self, signal: Signal) -> bool {
        if signal == Signal::CONT {
            self.give_terminal();
        }
        let listens = self.order(Order::Signal(signal));
        if signal == Signal::TSTP {
            stop_this_process();
        }
        listens
    }

    /// Stops this process with the command, which was stopped from its terminal: the shell that started this waits for
    /// the terminal.
    fn stop_too(&self) {
        if self.given {
            say("stopped with the command; what is stopped does not keep a lock for longer than its lease");
            // Fails only if the signal does not exist.
            let _ = rustix::process::kill_current_process_group(Signal::STOP);
        }
    }

    /// Kills the rest of the command without the guardian. The keeper kills first, since it goes on if this process is
    /// killed meanwhile; this process kills what is left.
    async fn end_by_itself(&mut self) {
        self.tell_keeper(0);
        let until_ns = self.instants.last_ns.min(now_ns() + KEEPER_NS);
        while self.lifeline.is_some() && now_ns() < until_ns && matches!(self.keeper.try_wait(), Ok(None)) {
            sleep(LOOK).await;
        }
        // The keeper may be stopped, or gone. Without it, the remaining processes become children of this process.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
        if !cfg!(target_os = "linux") {
            // On other systems orphans become children of init, so this can signal only the group.
            self.group.signal(Signal::KILL);
        }
        // Waits for a process that it may not kill (`sudo`), if that is in the group.
        while !(family::end() && self.group.reap()) {
            sleep(LOOK).await;
        }
    }
}

/// Why the holder stops watching.
enum Watched {
    Ended { end: End, late: bool },
    GuardianGone,
    GuardianLate,
}
