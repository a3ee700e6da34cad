//! `firstcome plan`: computes the admission rate that a back end carries, and checks it in a simulation.

mod admit;
mod assumptions;
mod check;
mod inputs;
mod rates;
mod report;
mod simulation;

#[cfg(test)]
mod tests;

use crate::failure::{Failure, Outcome};
use crate::output::{wants_table, write_out};
use anyhow::anyhow;
pub use inputs::PlanArgs;

/// Computes, checks if asked to, and prints. Fails if the check fails.
pub fn run(args: &PlanArgs) -> Outcome {
    let plan = rates::Plan::new(&args.inputs).map_err(Failure::Usage)?;
    let check = if args.check { Some(check::Check::run(&plan, args.seed).map_err(Failure::Usage)?) } else { None };
    let text = if args.table || wants_table(args.json) {
        report::table_of(&plan, check.as_ref())
    } else {
        format!("{:#}\n", report::json_of(&plan, check.as_ref()))
    };
    write_out(text.as_bytes())?;
    match check.and_then(|check| check.verdict.err()) {
        None => Ok(()),
        Some(reason) => Err(Failure::Refused(anyhow!("the plan does not hold: {reason}"))),
    }
}
