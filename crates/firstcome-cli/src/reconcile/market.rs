//! `firstcome reconcile --sql URL --accept-loss`: members and listings on a database that went back.
//!
//! No place outside of the nodes remembers what they were acknowledged: each names in its log what is gone.

use crate::output::{wants_table, write_out};
use crate::{Failure, Outcome};
use firstcome::sql::{DatabaseOptions, SqlError, Tables, accept_market_loss};
use serde_json::json;

/// Begins a new generation, which the nodes see, and prints it.
pub(super) fn accept(sql: &str, as_json: bool) -> Outcome {
    let mut options = DatabaseOptions::default();
    options.tables = Tables::Require;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let accepted = runtime.block_on(accept_market_loss(sql, options));
    let generation = accepted.map_err(|error| match error {
        SqlError::Broken { .. } => Failure::Refused(error.into()),
        error => Failure::Unreachable(error.into()),
    })?;
    let text = if wants_table(as_json) {
        format!("Members and listings go on with what the database has, as generation {generation}.\n")
    } else {
        format!("{:#}\n", json!({"generation": generation}))
    };
    write_out(text.as_bytes())?;
    Ok(())
}
