//! `firstcome config`: shows the settings in force, and checks them without a start.

use crate::failure::{Failure, Outcome};
use crate::output::{table, wants_table, write_out};
use crate::settings::{ConfigArgs, NotParsed, Parsed, Source, one_line, parse, settings};
use crate::{Cli, Command, gate, serve};
use anyhow::anyhow;
use clap::{Args, CommandFactory, FromArgMatches, Subcommand, ValueEnum};
use comfy_table::Cell;
use serde_json::json;
use std::ffi::OsString;

/// A subcommand of `firstcome config`.
#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the settings in force, each with its source; no secret is shown
    Print(PrintArgs),
    /// Check settings file, variables and flags as a start does, and start nothing
    ///
    /// Exit code 0 if all is right. Otherwise 2, and a line for each problem. Values are checked first, each by itself; if these
    /// are right, what they say together and the files that they name. The first wrong value of a flag or a variable is told
    /// alone.
    Check(CheckArgs),
}

/// The command whose settings are meant.
#[derive(Clone, Copy, ValueEnum)]
enum Started {
    /// firstcome serve
    Serve,
    /// firstcome gate
    Gate,
}

#[derive(Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    settings: ConfigArgs,
    /// The command whose settings are meant
    #[arg(long = "for", value_name = "COMMAND", value_enum, default_value_t = Started::Serve)]
    started: Started,
    /// Flags of that command, after --
    #[arg(last = true, value_name = "FLAG")]
    flags: Vec<OsString>,
}

#[derive(Args)]
pub(crate) struct PrintArgs {
    #[command(flatten)]
    of: CheckArgs,
    /// Print JSON also on a terminal
    #[arg(long)]
    json: bool,
}

impl CheckArgs {
    /// Returns the arguments of the start that is meant.
    fn arguments(&self) -> Vec<OsString> {
        let name = match self.started {
            Started::Serve => "serve",
            Started::Gate => "gate",
        };
        let mut arguments = vec![OsString::from("firstcome"), name.into()];
        if let Some(file) = &self.settings.config {
            arguments.extend(["--config".into(), file.into()]);
        }
        arguments.extend(self.flags.iter().cloned());
        arguments
    }
}

/// Runs a subcommand of `firstcome config`.
pub(crate) fn run(command: &ConfigCommand) -> Outcome {
    match command {
        ConfigCommand::Print(args) => print(args),
        ConfigCommand::Check(args) => check(args),
    }
}

fn usage(not_parsed: NotParsed) -> Failure {
    match not_parsed {
        NotParsed::Arguments(error) => Failure::Usage(anyhow!(one_line(&error))),
        NotParsed::Settings(problems) => Failure::Usage(anyhow!(problems.join("\n"))),
    }
}

fn check(args: &CheckArgs) -> Outcome {
    let Parsed { matches, .. } = parse(&Cli::command(), &args.arguments()).map_err(usage)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| usage(NotParsed::Arguments(error)))?;
    match cli.command {
        Command::Serve(args) => serve::check(*args)?,
        Command::Gate(args) => gate::check(*args)?,
        _ => return Err(Failure::Usage(anyhow!("config check knows serve and gate alone"))),
    }
    write_out(b"the settings are right\n")?;
    Ok(())
}

fn print(args: &PrintArgs) -> Outcome {
    // A gate has flags that a start needs, and that settings can be shown without.
    let program = Cli::command().mut_subcommand("gate", |gate| gate.mut_args(|argument| argument.required(false)));
    let parsed = parse(&program, &args.of.arguments()).map_err(usage)?;
    let settings = settings(&program, &parsed);
    if wants_table(args.json) {
        let mut table = table(&["Setting", "Value", "Source"]);
        for setting in &settings {
            let source = match &setting.source {
                Source::Flag(name) | Source::Variable(name) => name,
                Source::File(place) => place,
                Source::Default => "default",
            };
            let value = setting.value.as_deref().unwrap_or("-");
            table.add_row([Cell::new(&setting.name), Cell::new(value), Cell::new(source)]);
        }
        return Ok(write_out(format!("{table}\n").as_bytes())?);
    }
    let entries: Vec<_> = settings
        .iter()
        .map(|setting| {
            let (source, at) = match &setting.source {
                Source::Flag(name) => ("flag", Some(name)),
                Source::Variable(name) => ("variable", Some(name)),
                Source::File(place) => ("file", Some(place)),
                Source::Default => ("default", None),
            };
            json!({
                "name": setting.name, "value": setting.value, "default": setting.default, "source": source, "at": at,
                "variable": setting.variable, "help": setting.help,
            })
        })
        .collect();
    write_out(format!("{:#}\n", json!({"settings": entries})).as_bytes())?;
    Ok(())
}
