//! `firstcome reconcile --sql URL --accept-loss`: members and listings on a database that was restored to an older
//! state.
//!
//! Only the nodes know what they acknowledged: each logs what the database has lost.

use crate::failure::{Failure, Outcome};
use crate::output::{wants_table, write_out};
use firstcome::sql::{DatabaseOptions, SqlError, Tables, accept_auction_loss};
use serde_json::json;

/// Accepts the loss, and prints the new generation.
pub(super) fn run(sql: &str, as_json: bool) -> Outcome {
    let generation = accept(sql)?;
    let text =
        if wants_table(as_json) { says(generation) } else { format!("{:#}\n", json!({"generation": generation})) };
    write_out(text.as_bytes())?;
    Ok(())
}

/// Returns the message about the new generation.
pub(super) fn says(generation: i64) -> String {
    format!("Members and listings go on with what the database has, as generation {generation}.\n")
}

/// Begins a new generation, which the nodes detect.
pub(super) fn accept(sql: &str) -> Result<i64, Failure> {
    let mut options = DatabaseOptions::default();
    options.tables = Tables::Require;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let accepted = runtime.block_on(accept_auction_loss(sql, options));
    accepted.map_err(|error| match error {
        SqlError::Broken { .. } => Failure::Refused(error.into()),
        error => Failure::Unreachable(error.into()),
    })
}
