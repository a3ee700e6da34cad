//! `firstcome verify`: checks every stored invariant, and counts breaches.

mod audit;
mod draw;
mod receipt;

use crate::deployment_secret::SecretArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{grouped, table, wants_table, write_out};
use crate::settings::{no_store, refuse_file};
use crate::store_address::{StoreAddressArgs, StoreAddresses};
use anyhow::{Context, anyhow};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use comfy_table::{Cell, Color};
use draw::DrawArgs;
use firstcome::Check;
use firstcome::sqlite::{DATABASE_FILE, LOCKS_FILE, verify, verify_locks};
use receipt::ReceiptArgs;
use serde_json::json;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// [`VerifyStoreArgs`] with exactly one store: a directory or a database.
pub(crate) struct VerifyArgs(VerifyStoreArgs);

#[derive(Args)]
struct VerifyStoreArgs {
    /// Directory of the embedded store
    #[arg(long, env = "FIRSTCOME_DATA", value_name = "DIR", default_value = "./firstcome-data")]
    data: PathBuf,
    #[command(flatten)]
    servers: StoreAddressArgs,
    #[command(flatten)]
    secret: SecretArgs,
    /// Instead of a store: the public record of a room's draw, as a file, an http:// or https:// address, or - for the standard input
    #[arg(long, value_name = "FILE|URL")]
    draw: Option<String>,
    /// A number whose place is computed; with --draw
    #[arg(long, value_name = "N", requires = "draw")]
    number: Vec<u32>,
    /// The commitment that was published before the draw, to compare with; with --draw
    #[arg(long, value_name = "HEX", requires = "draw")]
    commitment: Option<String>,
    /// Instead of a store: a receipt, as a file, or - for the standard input
    #[arg(long, value_name = "FILE", conflicts_with = "draw")]
    receipt: Option<String>,
    /// Saved heads to compare with, as the service publishes them; with --receipt
    #[arg(long, value_name = "FILE", requires = "receipt")]
    heads: Vec<String>,
    /// The public key that was saved, to compare with; with --receipt
    #[arg(long, value_name = "HEX", requires = "receipt")]
    key: Option<String>,
    /// Instead of a store: the log of services with --log-format json, as files in their order, or - for the standard input;
    /// checks the record of what operators did
    #[arg(long, value_name = "FILE", conflicts_with_all = ["draw", "receipt"])]
    audit: Vec<String>,
    /// Print JSON also on a terminal
    #[arg(long)]
    json: bool,
}

impl FromArgMatches for VerifyArgs {
    /// Lets the command line win if the environment names both stores: the same environment serves all commands.
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = VerifyStoreArgs::from_arg_matches(matches)?;
        let is_said = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
        match (is_said("data"), is_said("sql") || is_said("sql_file")) {
            (true, true) => {
                let says = "the argument '--sql <URL>' cannot be used with '--data <DIR>'";
                return Err(clap::Error::raw(ErrorKind::ArgumentConflict, says));
            }
            (true, false) => given.servers.forget_environment(),
            _ => {}
        }
        Ok(Self(given))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for VerifyArgs {
    fn augment_args(command: Command) -> Command {
        VerifyStoreArgs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        VerifyStoreArgs::augment_args_for_update(command)
    }
}

/// Runs the checks and prints them. Fails if any invariant is broken.
pub(crate) fn run(VerifyArgs(args): &VerifyArgs) -> Outcome {
    if let Some(source) = &args.draw {
        let commitment = args.commitment.as_deref();
        let trust = &args.servers.transport.trust()?;
        return draw::run(&DrawArgs { source, commitment, numbers: &args.number, trust, json: args.json });
    }
    if let Some(source) = &args.receipt {
        let (heads, key, json) = (args.heads.as_slice(), args.key.as_deref(), args.json);
        return receipt::run(&ReceiptArgs { source, heads, key, json });
    }
    let (checks, not_checked) =
        if args.audit.is_empty() { of_store(args)? } else { (vec![audit::check(&args.audit)?], Vec::new()) };
    let breaches: u64 = checks.iter().map(|check| check.breaches).sum();
    if wants_table(args.json) {
        print_table(&checks, &not_checked)?;
    } else {
        let entry = |check: &Check| {
            json!({
                "invariant": check.invariant, "checked": check.checked,
                "breaches": check.breaches, "examples": check.examples,
            })
        };
        let entries: Vec<_> = checks.iter().map(entry).collect();
        let report = json!({"breaches": breaches, "checks": entries, "not_checked": not_checked});
        write_out(format!("{report:#}\n").as_bytes())?;
    }
    if breaches == 0 { Ok(()) } else { Err(Failure::Refused(anyhow!("{breaches} breaches found"))) }
}

/// Checks the store. Returns the checks, and what could not be checked.
fn of_store(args: &VerifyStoreArgs) -> Result<(Vec<Check>, Vec<String>), Failure> {
    let StoreAddresses { redis, sql } = args.servers.read()?;
    match &sql {
        Some(sql) => of_servers(args, redis.as_deref(), sql),
        None => Ok((of_directory(&args.data)?, Vec::new())),
    }
}

/// Reads a file, or the standard input for `-`.
fn text_of(source: &str) -> Result<String, Failure> {
    if source == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    fs::read_to_string(source).with_context(|| format!("cannot read {source}")).map_err(Failure::Usage)
}

fn of_directory(data: &Path) -> Result<Vec<Check>, Failure> {
    refuse_file(data)?;
    let has = |file| data.join(file).try_exists();
    let (has_data, has_locks) = (has(DATABASE_FILE), has(LOCKS_FILE));
    if let (Ok(false), Ok(false)) = (&has_data, &has_locks) {
        return Err(no_store(data, &[DATABASE_FILE, LOCKS_FILE]));
    }
    let (has_data, has_locks) = (has_data.unwrap_or(true), has_locks.unwrap_or(true));
    let mut checks = Vec::new();
    // A directory may hold locks only.
    if has_data {
        checks.extend(verify(data).map_err(Failure::Store)?);
    }
    if has_locks {
        checks.extend(verify_locks(data).map_err(Failure::Store)?);
    }
    Ok(checks)
}

/// Checks the servers. Returns the checks, and what could not be checked.
fn of_servers(args: &VerifyStoreArgs, redis: Option<&str>, sql: &str) -> Result<(Vec<Check>, Vec<String>), Failure> {
    let secret = args.secret.read_maybe()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let verified = runtime.block_on(firstcome::cluster::verify(sql, redis, secret));
    let verified = verified.map_err(Failure::of_cluster)?;
    Ok((verified.checks, verified.not_checked))
}

fn print_table(checks: &[Check], not_checked: &[String]) -> Outcome {
    let mut table = table(&["Invariant", ">Checked", ">Breaches"]);
    for check in checks {
        let colour = if check.breaches == 0 { Color::Green } else { Color::Red };
        let breaches = Cell::new(grouped(check.breaches)).fg(colour);
        table.add_row([Cell::new(check.invariant), Cell::new(grouped(check.checked)), breaches]);
    }
    let mut text = format!("{table}\n");
    for check in checks.iter().filter(|check| 0 < check.breaches) {
        text.push_str(&format!("\nbroken: {}\n", check.invariant));
        for example in &check.examples {
            text.push_str(&format!("  {example}\n"));
        }
    }
    for what in not_checked {
        text.push_str(&format!("\nnot checked: {what}\n"));
    }
    write_out(text.as_bytes())?;
    Ok(())
}
