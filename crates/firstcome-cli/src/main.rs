//! `firstcome`: queues people fairly, hands out exactly N. One binary: service, checks, data in and out, benchmarks.
//!
//! Exit codes: 0 fine, 1 a check failed or something was refused, 2 usage, 3 the store cannot be reached.

mod archive;
mod bench;
mod drill;
mod keys;
mod output;
mod plan;
mod rng;
mod serve;
mod settings;
mod verify;

use clap::{CommandFactory, Parser, Subcommand};
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
    /// Re-check every stored invariant, also beside a running service
    Verify(verify::VerifyArgs),
    /// Write out coupons and claims
    Export(archive::ExportArgs),
    /// Take in coupons and claims: all of them, or nothing
    Import(archive::ImportArgs),
    /// Say what admission rate a back end carries, and try it in a simulation
    Plan(Box<plan::PlanArgs>),
    /// Measure on this machine
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Play an event against a real service, and audit every answer
    #[command(subcommand)]
    Drill(drill::DrillCommand),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

/// Why the program ends with something else than 0.
#[derive(Debug)]
enum Failure {
    /// A check failed, or something was refused: 1.
    Refused(anyhow::Error),
    /// The call makes no sense: 2.
    Usage(anyhow::Error),
    /// The store cannot be reached: 3.
    Store(firstcome::Fault),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        fault_of(&error).map_or_else(|| Self::Refused(error), Self::Store)
    }
}

/// The store's fault, if that is why something did not work.
fn fault_of(error: &anyhow::Error) -> Option<firstcome::Fault> {
    if let Some(firstcome::sqlite::ImportError::Fault(fault)) = error.downcast_ref() {
        return Some(fault.clone());
    }
    if let Some(firstcome::StoreError::Unavailable(fault)) = error.downcast_ref() {
        return Some(fault.as_ref().clone());
    }
    error.downcast_ref().cloned()
}

/// What a command comes to.
type Outcome = Result<(), Failure>;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(args) => serve::run(*args),
        Command::Verify(args) => verify::run(&args),
        Command::Export(args) => archive::export(&args),
        Command::Import(args) => archive::import(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Bench(command) => bench::run(command),
        Command::Drill(command) => drill::run(&command),
        Command::Completions { shell } => completions(shell),
        Command::Man => man(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let (code, message) = match failure {
                Failure::Refused(error) => (1, format!("{error:#}")),
                Failure::Usage(error) => (2, format!("{error:#}")),
                Failure::Store(fault) => (3, fault.to_string()),
            };
            eprintln!("firstcome: {message}");
            ExitCode::from(code)
        }
    }
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "firstcome", &mut script);
    output::write_out(&script)?;
    Ok(())
}

/// One page with every subcommand after the other.
fn man() -> Outcome {
    let mut page = Vec::new();
    let mut command = Cli::command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        clap_mangen::Man::new(sub.clone()).title(format!("firstcome-{}", sub.get_name())).render(&mut page)?;
    }
    output::write_out(&page)?;
    Ok(())
}
