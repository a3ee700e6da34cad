//! `firstcome lock`: runs a command under a lock, and never beyond it.
//!
//! Four processes run, each the child of the one before:
//!
//! - the holder (this process), which holds the lock;
//! - the keeper, which kills the command and all that it started when the guardian dies;
//! - the guardian, which ends the command's process group before the lease can end;
//! - the gate, which becomes the command. The kernel kills it when the guardian dies.
//!
//! All four exist before the holder asks for the lock, so a handover does not wait for the start of a process.
//!
//! | killed at once | what ends the command |
//! |---|---|
//! | the holder, or the holder and the keeper | the guardian, before the lease ends |
//! | the guardian, or the guardian and the holder | the kernel kills the command, and the keeper all that it started, at once |
//! | the guardian and the keeper | the kernel kills the command, and the holder all that it started, at once |
//! | the keeper | nothing: the command goes on |
//! | all three | the kernel kills the command; processes that it started run on |

mod family;
mod group;
mod guardian;
mod hint;
mod holder;
mod inspect;
mod keeper;
mod messages;
mod once;
mod place;
mod process_gate;
mod signals;
mod store;

pub(crate) use guardian::run as guard;
pub(crate) use hint::explain;
pub(crate) use inspect::{LocksCommand, look};
pub(crate) use keeper::run as keep;
pub(crate) use once::{OnceArgs, run as run_once};
pub(crate) use process_gate::{GateArgs, run as become_command};
pub(crate) use store::existing as existing_store;

use crate::arguments::duration;
use crate::failure::Failure;
use crate::settings::UserConfigArgs;
use crate::store_address::LockStoreArgs;
use crate::transport::TransportArgs;
use anyhow::{anyhow, ensure};
use clap::{Args, ValueEnum};
use firstcome::core::id::{LockName, OwnerName};
use firstcome::core::limits::{LEASE_MS_MAX, LEASE_MS_MIN, PERMITS_MAX, WAIT_MS_MAX};
use firstcome::lock::{Layout as Shared, LockAddress, NodeSet};
use firstcome::{Demand, LockError};
use place::Absent;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// The keys of the lock on Redis: those of this library, or those of another one.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Layout {
    /// In the order of arrival, with fences
    Native,
    /// One key, as redis-py, redsync, node-redlock, Spring and others set it: no order, no fence
    SingleKey,
    /// The hash and the channel of Redisson's RLock: no order, no fence
    Redisson,
}

/// A promise that `--require` demands of the store.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Requirement {
    /// Grants in the order of arrival
    Order,
    /// A fence with every grant
    Fence,
}

/// Run a command under a lock
///
/// The command finds the fence in FIRSTCOME_FENCE and the name in FIRSTCOME_LOCK, and its exit code is returned (128 + n
/// after signal n). It runs in a process group of its own, and signals are forwarded to it. The lock is renewed as long as
/// something of the group runs; what the command leaves behind in it is ended after a moment. A guardian process ends the
/// group before the lease can end, also if the store hangs or this process is stopped or killed. If both are killed, the command
/// and all that it has started is killed at once (Linux), unless it runs as another user.
///
/// A process that leaves the group (setsid) may run on when the command has ended; when the lock is lost it is killed
/// too (Linux). With --wait-children nothing that the command left behind is ended, and the lock is kept until all of
/// it has ended.
///
/// With --min-hold the lock is kept for some time after a short command has ended. A signal that ends a process ends this wait
/// too: the lock is given back at once, and the exit code stays that of the command.
///
/// Exit codes of its own: 75 not obtained in time, 76 lost, 3 store unreachable, 2 usage, 127 no such command, 126 not
/// runnable.
#[derive(Args)]
pub(crate) struct LockArgs {
    /// Name of the lock; with the layout of another library its key on Redis
    name: String,
    /// How long to wait in line; 0s to try once
    #[arg(long, env = "FIRSTCOME_WAIT", value_name = "DURATION", value_parser = wait, default_value = "5s")]
    wait: Duration,
    /// How long the holder keeps the lock without a renewal
    #[arg(long, env = "FIRSTCOME_LEASE", value_name = "DURATION", value_parser = lease, default_value = "30s")]
    lease: Duration,
    /// Keep the lock for at least this long after the grant, also when the command ends sooner
    ///
    /// For short jobs that several machines start at the same time by their own clocks: a machine whose clock is behind finds
    /// the lock taken, and does not run the job again. The program waits until then; if it is killed meanwhile, the lock ends
    /// with its lease.
    #[arg(long, env = "FIRSTCOME_MIN_HOLD", value_name = "DURATION", value_parser = min_hold, default_value = "0s")]
    min_hold: Duration,
    /// Keep the lock until all processes that the command left behind have ended
    ///
    /// Without this the lock is given back when the command has ended, and what it left in its process group is ended after a
    /// moment. With this those processes run on, and so does the lock: also for processes in sessions of their own (Linux).
    /// The exit code stays that of the command. Signals are passed on to all of them.
    #[arg(long)]
    wait_children: bool,
    /// The holder's name as other clients see it [default: host and process]
    #[arg(long, env = "FIRSTCOME_OWNER", value_name = "TEXT", value_parser = owner)]
    owner: Option<OwnerName>,
    #[command(flatten)]
    store: LockStoreArgs,
    #[command(flatten)]
    transport: TransportArgs,
    /// Make the directory that --store names if it is not there
    ///
    /// Without this a missing directory is refused: it may be misspelt, and a lock in a new one would exclude no other
    /// process. Its parent must be there in any case.
    #[arg(long)]
    create: bool,
    /// The servers of the quorum were never used: they need not wait before they vote
    ///
    /// Without this, and after each start of a server, that server does not vote for a minute: it may have forgotten
    /// locks.
    #[arg(long)]
    new_set: bool,
    /// How the lock is kept in the store
    #[arg(long, value_enum, default_value_t = Layout::Native)]
    layout: Layout,
    /// What the store must promise; more than once for both
    ///
    /// A store that does not promise it is refused with exit code 2, and the command does not run. So a change of --store or
    /// --layout does not lose a promise without a word.
    #[arg(long, value_enum, value_name = "PROMISE")]
    require: Vec<Requirement>,
    /// Share the lock with other commands that share it, as a reader does; commands without this option are the writers
    ///
    /// Readers and writers take turns: after a writer all waiting readers run, and after these the next writer. A store that
    /// keeps no such locks (a quorum, etcd, layouts of other libraries) is refused with exit code 2.
    #[arg(long, conflicts_with = "permits")]
    shared: bool,
    /// How many commands may run at once with this lock, 1 to 1000; every command should say the same number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(PERMITS_MAX)))]
    permits: Option<u32>,
    #[command(flatten)]
    _settings: UserConfigArgs,
    /// What to run, after --
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

struct Plan {
    name: Box<str>,
    owner: OwnerName,
    wait: Duration,
    lease: Duration,
    min_hold: Duration,
    store: LockAddress,
    set: NodeSet,
    require: Vec<Demand>,
    /// How many may hold the lock together; `None` for one.
    permits: Option<u32>,
}

/// Returns the host and the process id, in the characters that a name may have.
fn default_owner() -> Option<OwnerName> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = host.replace(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-' && letter != '.', "-");
    let host = host.trim_start_matches(['-', '.']);
    let process = std::process::id();
    OwnerName::parse(&format!("{host}:{process}")).or_else(|_| OwnerName::parse(&format!("process-{process}"))).ok()
}

/// Returns the holder's name: the one that was given, or that of this process.
fn owner_of(given: Option<&OwnerName>) -> Result<OwnerName, Failure> {
    let missing = || Failure::Usage(anyhow!("the holder has no name: set --owner"));
    given.cloned().or_else(default_owner).ok_or_else(missing)
}

/// Parses the name of a holder.
fn owner(text: &str) -> anyhow::Result<OwnerName> {
    OwnerName::parse(text).map_err(|error| anyhow!("the owner {error}"))
}

/// Parses how long a caller waits.
fn wait(text: &str) -> anyhow::Result<Duration> {
    let wait = duration(text)?;
    ensure!(wait.as_millis() <= u128::from(WAIT_MS_MAX), "wait must be at most 1h");
    Ok(wait)
}

/// Parses how long a lock is kept without a renewal.
fn lease(text: &str) -> anyhow::Result<Duration> {
    let lease = duration(text)?;
    let allowed = u128::from(LEASE_MS_MIN)..=u128::from(LEASE_MS_MAX);
    ensure!(allowed.contains(&lease.as_millis()), "lease must be 100ms to 192h");
    Ok(lease)
}

/// Parses how long a lock is kept at least.
fn min_hold(text: &str) -> anyhow::Result<Duration> {
    let min_hold = duration(text)?;
    ensure!(min_hold.as_millis() <= u128::from(LEASE_MS_MAX), "min-hold must be at most 192h");
    Ok(min_hold)
}

fn plan(args: &LockArgs) -> Result<Plan, Failure> {
    let usage = |error: anyhow::Error| Failure::Usage(error);
    let owner = owner_of(args.owner.as_ref())?;
    let (wait, lease, min_hold) = (args.wait, args.lease, args.min_hold);
    let absent = if args.create { Absent::Create } else { Absent::Refuse };
    let transport = args.transport.settled()?;
    let store = store::chosen(&args.store.read()?, args.layout, lease, absent).map_err(usage)?;
    // The keys of other libraries have any form.
    if !matches!(store, LockAddress::Redis { layout: Shared::SingleKey | Shared::Redisson, .. }) {
        LockName::parse(&args.name).map_err(|error| usage(anyhow!("the lock {error}")))?;
    }
    let store = transport.locks(store)?;
    let set = if args.new_set { NodeSet::New } else { NodeSet::Known };
    let demand = |wanted: &Requirement| match wanted {
        Requirement::Order => Demand::Ordered,
        Requirement::Fence => Demand::Fenced,
    };
    let require = args.require.iter().map(demand).collect();
    let name = args.name.as_str().into();
    let permits = args.permits.or(args.shared.then_some(PERMITS_MAX));
    Ok(Plan { name, owner, wait, lease, min_hold, store, set, require, permits })
}

/// Translates the error of a lock that was not obtained to an exit code.
fn failure(name: &str, error: LockError) -> Failure {
    match error {
        LockError::Input(_) | LockError::NotGuaranteed { .. } | LockError::Unsupported { .. } => {
            Failure::Usage(error.into())
        }
        LockError::Contended { .. } | LockError::TimedOut { .. } => {
            Failure::NotObtained(anyhow!("lock {name}: {error}"))
        }
        LockError::Lost => Failure::Lost(anyhow!("lock {name}: {error}")),
        LockError::Unavailable(_) => Failure::Unreachable(anyhow!("lock {name}: {error}")),
        _ => Failure::Unreachable(anyhow!("lock {name}: {error}")),
    }
}

/// Runs a command under a lock.
pub(crate) fn run(args: LockArgs) -> Result<ExitCode, Failure> {
    let plan = plan(&args)?;
    holder::run(&plan, &GateArgs { parent: None, wait_children: args.wait_children, command: args.command })
}
