//! `firstcome once`: runs a command at most once per interval, guarded as `firstcome lock` guards it.

use super::holder::{COURTESY, Guarded, Holder, REST, by_signal, with_guardian, withdraw};
use super::place::Absent;
use super::process_gate::GateArgs;
use super::signals::Signals;
use super::{Layout, Plan, failure, owner, owner_of, store};
use crate::arguments::duration;
use crate::failure::Failure;
use crate::output::say;
use crate::settings::UserConfigArgs;
use crate::store_address::LockStoreArgs;
use crate::transport::TransportArgs;
use anyhow::anyhow;
use clap::Args;
use firstcome::core::id::{LockName, OwnerName};
use firstcome::lock::NodeSet;
use firstcome::{LockError, Once, Run};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::timeout;

/// Run a command at most once per interval
///
/// Time is divided into slots of the length --every, counted from 1970 by UTC: slots of 1h begin on the hour, slots of 24h at
/// midnight UTC, slots of 168h on Thursday. Of all machines that start the same job, the first one in a slot runs it; for all
/// others the slot is taken, also when the run is over or was killed. Without --store the machines are one: commands of one
/// user. All of them must name the same NAME, --every and --store.
///
/// If the slot is taken, or the run of an earlier slot still goes on, nothing runs and the exit code is 0, or that of
/// --conflict-exit-code. The reason is said on a terminal and with --conflict-exit-code, so that cron sends no mail.
///
/// The command runs as under "firstcome lock": it finds the fence in FIRSTCOME_FENCE, its exit code is returned (128 + n after
/// signal n), and a guardian process ends it before the lock NAME is lost. That lock keeps the runs of two slots apart. The
/// slot is the lock NAME@0, @1, @2 or @3; "firstcome locks release NAME@2 --force" gives a slot back by hand.
///
/// A store whose locks end with their process cannot keep a slot, and is refused: etcd, a quorum, and the layouts of other
/// libraries.
///
/// Exit codes of its own: 0 the slot is taken, 75 the store answered too late, 76 lost, 3 store unreachable, 2 usage, 127 no
/// such command, 126 not runnable.
#[derive(Args)]
pub(crate) struct OnceArgs {
    /// Name of the job: that of its lock
    name: String,
    /// The interval: 1s to 168h
    #[arg(long, value_name = "DURATION")]
    every: String,
    /// End the command after this long; the next slot cannot begin before, also after a crash
    ///
    /// Without this the command may run as long as it likes, and runs of later slots are skipped meanwhile. After a crash the
    /// next slot can begin when --lease is over.
    #[arg(long, value_name = "DURATION")]
    longest: Option<String>,
    /// How far the clocks of two machines may differ without a second run in a slot [default: --every, at most 1h]
    #[arg(long, value_name = "DURATION")]
    tolerance: Option<String>,
    /// Give the slot back when the command fails, so that it may run again in this slot
    ///
    /// That is after any exit code but 0, after a signal, and when the lock was lost. Without this a failed run waits for the next
    /// slot. A run whose machine dies keeps its slot in any case.
    #[arg(long)]
    retry_failed: bool,
    /// The exit code if the slot is taken, or an earlier run still goes on [default: 0]
    #[arg(long, value_name = "CODE")]
    conflict_exit_code: Option<u8>,
    /// How long a run keeps its lock without a renewal, unless --longest is set
    #[arg(long, env = "FIRSTCOME_LEASE", value_name = "DURATION", value_parser = duration, default_value = "30s")]
    lease: Duration,
    /// End nothing that the command left behind, and keep the lock until all of it has ended
    #[arg(long)]
    wait_children: bool,
    /// The name of this process as other clients see it [default: host and process]
    #[arg(long, env = "FIRSTCOME_OWNER", value_name = "TEXT", value_parser = owner)]
    owner: Option<OwnerName>,
    #[command(flatten)]
    store: LockStoreArgs,
    #[command(flatten)]
    transport: TransportArgs,
    /// Make the directory that --store names if it is not there
    #[arg(long)]
    create: bool,
    #[command(flatten)]
    _settings: UserConfigArgs,
    /// What to run, after --
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

struct OncePlan {
    /// How the command is run.
    hold: Plan,
    every: Duration,
    longest: Option<Duration>,
    tolerance: Option<Duration>,
    retry_failed: bool,
    conflict_exit_code: Option<u8>,
}

fn plan(args: &OnceArgs) -> Result<OncePlan, Failure> {
    let owner = owner_of(args.owner.as_ref())?;
    let span = |text: &String| duration(text).map_err(Failure::Usage);
    let every = span(&args.every)?;
    let longest = args.longest.as_ref().map(span).transpose()?;
    let tolerance = args.tolerance.as_ref().map(span).transpose()?;
    let lease = longest.unwrap_or(args.lease);
    let absent = if args.create { Absent::Create } else { Absent::Refuse };
    let transport = args.transport.settled()?;
    let store = store::chosen(&args.store.read()?, Layout::Native, lease, absent).map_err(Failure::Usage)?;
    LockName::parse(&args.name).map_err(|error| Failure::Usage(anyhow!("the job {error}")))?;
    let hold = Plan {
        name: args.name.as_str().into(),
        owner,
        wait: Duration::ZERO,
        lease,
        min_hold: Duration::ZERO,
        store: transport.locks(store)?,
        set: NodeSet::Known,
        require: Vec::new(),
        permits: None,
    };
    let (retry_failed, conflict_exit_code) = (args.retry_failed, args.conflict_exit_code);
    Ok(OncePlan { hold, every, longest, tolerance, retry_failed, conflict_exit_code })
}

/// Runs a command, if no process has begun to in this slot.
pub(crate) fn run(args: OnceArgs) -> Result<ExitCode, Failure> {
    let plan = plan(&args)?;
    let gate = GateArgs { parent: None, wait_children: args.wait_children, command: args.command };
    with_guardian(&gate, async |guarded| hold(&plan, guarded).await)
}

async fn hold(plan: &OncePlan, guarded: Guarded) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen()?;
    let locks = tokio::select! {
        locks = store::open(&plan.hold) => locks?,
        signal = signals.next_end() => return Ok(by_signal(signal)),
    };
    let once = request(plan, locks.once(&plan.hold.name, plan.every));
    let begun = tokio::select! {
        begun = once.begin() => begun,
        signal = signals.next_end() => {
            withdraw(&locks).await;
            return Ok(by_signal(signal));
        }
    };
    let run = match begun {
        Ok(run) => run,
        Err(error) => {
            // The slot is given back in the background if an earlier run goes on.
            withdraw(&locks).await;
            return not_begun(plan, error);
        }
    };
    let outcome = match Holder::new(&plan.hold, guarded, run.guard()) {
        Ok(holder) => holder.guard_command(&plan.hold, run.guard(), &mut signals).await,
        Err(failure) => Err(failure),
    };
    end(plan, run, &outcome).await?;
    let _ = timeout(REST, locks.quiet()).await;
    outcome.map(ExitCode::from)
}

fn request(plan: &OncePlan, once: Once) -> Once {
    let once = once.owner(plan.hold.owner.as_str()).lease(plan.hold.lease);
    let once = if let Some(longest) = plan.longest { once.longest(longest) } else { once };
    if let Some(tolerance) = plan.tolerance { once.tolerance(tolerance) } else { once }
}

/// Ends the run, and gives its slot back if the command may run again.
async fn end(plan: &OncePlan, run: Run, outcome: &Result<u8, Failure>) -> Result<(), Failure> {
    let gives_back = match outcome {
        Ok(0) => false,
        // The command was not started.
        Err(Failure::Refused(_)) => true,
        Ok(_) | Err(_) => plan.retry_failed,
    };
    let name = &plan.hold.name;
    let ended = async { if gives_back { run.retry().await } else { run.finish().await } };
    match timeout(COURTESY, ended).await {
        Ok(Ok(())) => {}
        // Another process may have begun the run of the next slot while the command was still running.
        Ok(Err(LockError::Lost)) if outcome.is_ok() => return Err(failure(name, LockError::Lost)),
        Ok(Err(LockError::Lost)) => {}
        Ok(Err(error)) => say(&format!("job {name}: not given back, it ends with its lease: {error}")),
        Err(_) => say(&format!("job {name}: not given back, it ends with its lease: no answer")),
    }
    Ok(())
}

/// Tells why no run has begun.
fn not_begun(plan: &OncePlan, error: LockError) -> Result<ExitCode, Failure> {
    let name = &plan.hold.name;
    let why = match error {
        LockError::SlotTaken { .. } => format!("job {name}: this slot is {error}"),
        LockError::Contended { .. } => format!("job {name}: the run of an earlier slot still goes on: {error}"),
        error => return Err(failure(name, error)),
    };
    // Not elsewhere: cron sends a mail for each line, and a taken slot is what is expected of all machines but one.
    if plan.conflict_exit_code.is_some() || std::io::stderr().is_terminal() {
        say(&why);
    }
    Ok(ExitCode::from(plan.conflict_exit_code.unwrap_or(0)))
}
