//! `firstcome rewrap`: wraps the secrets in the database of a cluster by a new secret of the deployment.

use crate::deployment_secret::SecretArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{table, wants_table, write_out};
use crate::store_address::SqlAddressArgs;
use crate::transport::TransportArgs;
use anyhow::anyhow;
use clap::Args;
use comfy_table::Cell;
use firstcome::cluster::rewrap;
use firstcome::sql::{DatabaseOptions, Tables};
use serde_json::json;

#[derive(Args)]
pub(crate) struct RewrapArgs {
    #[command(flatten)]
    sql: SqlAddressArgs,
    #[command(flatten)]
    secret: SecretArgs,
    #[command(flatten)]
    transport: TransportArgs,
    /// Print JSON also on a terminal
    #[arg(long)]
    json: bool,
}

/// Wraps all secrets by the secret, and prints how many. Fails if a node still wraps by the fallback.
pub(crate) fn run(args: &RewrapArgs) -> Outcome {
    let sql = args.transport.settled()?.sql(&args.sql.read_required()?)?;
    let secret = args.secret.read()?;
    if !secret.has_fallback() {
        return Err(Failure::Usage(anyhow!(
            "the former secret is missing: give it in FIRSTCOME_SECRET_FALLBACK or with --secret-fallback-file FILE"
        )));
    }
    let mut options = DatabaseOptions::default();
    options.tables = Tables::Require;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(rewrap(&sql, secret, options));
    let done = done.map_err(|error| Failure::Unreachable(error.into()))?;
    if wants_table(args.json) {
        let mut table = table(&[">Secrets", ">Rewrapped", ">Late"]);
        table.add_row([Cell::new(done.secrets), Cell::new(done.rewrapped), Cell::new(done.late)]);
        write_out(format!("{table}\n").as_bytes())?;
    } else {
        let told = json!({"secrets": done.secrets, "rewrapped": done.rewrapped, "late": done.late});
        write_out(format!("{told}\n").as_bytes())?;
    }
    if done.late == 0 {
        return Ok(());
    }
    Err(Failure::Refused(anyhow!(
        "{} secrets were wrapped by the fallback meanwhile: start every node with the new FIRSTCOME_SECRET, and run it again",
        done.late
    )))
}
