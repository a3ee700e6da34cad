//! x
use crate::Outcome;
use clap::Subcommand;
#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    /// x
    Coupons,
}
pub(crate) fn run(_c: BenchCommand) -> Outcome {
    Ok(())
}
