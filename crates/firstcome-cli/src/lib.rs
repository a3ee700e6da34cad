//! `firstcome`: queues people fairly, hands out exactly N. One binary: service, checks, data in and out, drills.
//!
//! Exit codes: 0 success, 1 a check failed or a request was refused, 2 usage, 3 the store cannot be reached or an address
//! cannot be listened on, 75 a lock was not obtained in time, 76 a lock was lost. `lock` and `once` return the exit code of their command.

mod archive;
mod backup;
mod clocks;
mod cluster;
mod config;
mod deployment_secret;
mod descriptors;
mod doctor;
mod erase;
mod failures;
pub mod gate;
mod health;
mod joins;
mod keys;
mod lock;
mod logs;
mod manual;
mod pass_keys;
mod purge;
mod reconcile;
mod refused_key;
mod restore;
mod rewrap;
pub mod serve;
mod settings;
mod store_address;
mod transport;
mod verify;

#[doc(hidden)]
pub use settings::configuration_markdown;

use anyhow::anyhow;
use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::{Failure, Outcome, end};
// The drill and the benchmarks use these too.
use firstcome_drill::{arguments, drill, failure, file_system, output, plaintext, plan};
use settings::{ChangedSettings, NotParsed};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// First come, first served, at scale: limited coupons handed out exactly once
#[derive(Parser)]
#[command(name = "firstcome", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service
    Serve(Box<serve::ServeArgs>),
    /// Stand before a site: visitors without a pass see the page of a waiting room
    Gate(Box<gate::GateArgs>),
    /// Check every stored invariant again, also beside a running service
    Verify(verify::VerifyArgs),
    /// Make the tables of a database, or bring them to this version
    Migrate(cluster::MigrateArgs),
    /// Compare the Redis of a cluster with its database, and repair what is safe
    Reconcile(reconcile::ReconcileArgs),
    /// Wrap the secrets in the database of a cluster by a new FIRSTCOME_SECRET, beside running nodes
    ///
    /// Takes the new secret as FIRSTCOME_SECRET and the former one as FIRSTCOME_SECRET_FALLBACK. Run it when every node has both
    /// in this way. After it no node needs the former secret.
    Rewrap(rewrap::RewrapArgs),
    /// Check that disk, Redis and database are safe for a service, and a store for locks
    Doctor(doctor::DoctorArgs),
    /// Show the settings in force, or check them without a start
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Ask a running service whether it is ready for requests
    Health(health::HealthArgs),
    /// Write out everything: coupons and claims, waiting rooms, members and listings
    Export(archive::ExportArgs),
    /// Read an export into a store: all of it, or nothing
    Import(archive::ImportArgs),
    /// Back up a directory into one file, also beside a running service
    Backup(backup::BackupArgs),
    /// Make a directory from a backup: all of it, or nothing
    Restore(restore::RestoreArgs),
    /// Compute the admission rate that a back end can serve, and try it in a simulation
    Plan(Box<plan::PlanArgs>),
    /// Play an event against a real service, and audit every answer
    #[command(subcommand)]
    Drill(drill::DrillCommand),
    /// Create, list, rotate and revoke the keys of a running service
    #[command(subcommand)]
    Keys(keys::command::KeysCommand),
    /// List, rotate and revoke the keys that sign passes of a running service
    #[command(subcommand)]
    PassKeys(pass_keys::PassKeysCommand),
    /// Erase a person: a pseudonym takes the place of the name
    Erase(erase::EraseArgs),
    /// Remove what is over and not kept any longer, such as old idempotency keys
    Purge(purge::PurgeArgs),
    /// Run a command under a lock
    Lock(Box<lock::LockArgs>),
    /// Run a command at most once per interval, on one of many machines
    Once(Box<lock::OnceArgs>),
    /// Show who holds locks, or take one away
    #[command(subcommand)]
    Locks(lock::LocksCommand),
    /// Kills the command of a lock when its guardian dies
    #[command(hide = true)]
    LockKeeper(lock::GateArgs),
    /// Ends the command of a lock before the lease can end
    #[command(hide = true)]
    LockGuardian(lock::GateArgs),
    /// Becomes the command of a lock
    #[command(hide = true)]
    LockGate(lock::GateArgs),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man {
        /// Write a page for each command into this directory, and print none
        #[arg(value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
    },
}

/// Runs the program `firstcome` with the arguments of this process, and returns its exit code.
pub fn run() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let cli = match parsed(&arguments) {
        Ok(cli) => cli,
        Err(NotParsed::Arguments(error)) => return refused(&lock::explain(error, &arguments)),
        Err(NotParsed::Settings(problems)) => return end(Err(Failure::Usage(anyhow!(problems.join("\n"))))),
    };
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::Gate(args) => gate::run(*args),
        Command::Verify(args) => verify::run(&args),
        Command::Migrate(args) => cluster::run_migrate(&args),
        Command::Reconcile(args) => reconcile::run(&args),
        Command::Rewrap(args) => rewrap::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Config(command) => config::run(&command),
        Command::Health(args) => health::run(&args),
        Command::Export(args) => archive::export(&args),
        Command::Import(args) => archive::import(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Erase(args) => erase::run(&args),
        Command::Purge(args) => purge::run(&args),
        Command::Keys(command) => keys::command::run(&command),
        Command::PassKeys(command) => pass_keys::run(&command),
        Command::Drill(command) => drill::run(&command),
        Command::Completions { shell } => completions(shell),
        Command::Man { directory } => manual::run(Cli::command(), directory.as_deref()),
        Command::Locks(command) => lock::look(&command),
        Command::Lock(args) => return end(lock::run(*args)),
        Command::Once(args) => return end(lock::run_once(*args)),
        Command::LockKeeper(args) => return end(lock::keep(&args)),
        Command::LockGuardian(args) => return end(lock::guard(&args)),
        Command::LockGate(args) => return end(lock::become_command(&args)),
    };
    end(outcome.map(|()| ExitCode::SUCCESS))
}

/// Ends for arguments that cannot be used, in one line. Help is no error, nor are a call without any command and the version.
fn refused(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        error.exit();
    }
    let is_value = matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue);
    let has_tip = [ContextKind::Suggested, ContextKind::SuggestedArg].iter().any(|kind| error.get(*kind).is_some());
    let more = if is_value || has_tip { "" } else { "; see --help" };
    end(Err(Failure::Usage(anyhow!("{}{more}", settings::one_line(error)))))
}

/// Parses the arguments of this process, with the settings file below them.
fn parsed(arguments: &[OsString]) -> Result<Cli, NotParsed> {
    let mut program = Cli::command();
    let parsed = settings::parse(&program, arguments)?;
    if let Some(warning) = settings::unread_file(&parsed.matches) {
        store_address::warn(&warning);
    }
    store_address::warn_of_drill(&parsed.matches);
    let cli = Cli::from_arg_matches(&parsed.matches);
    let mut cli = cli.map_err(|error| NotParsed::Arguments(error.format(&mut program)))?;
    let changed = match &mut cli.command {
        Command::Serve(args) => Some(&mut args.service.changed),
        Command::Gate(args) => Some(&mut args.service.changed),
        _ => None,
    };
    if let Some(changed) = changed {
        *changed = ChangedSettings::of(&program, &parsed);
    }
    Ok(cli)
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "firstcome", &mut script);
    output::write_out(&script)?;
    Ok(())
}
