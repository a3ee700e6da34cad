//! `firstcome-bench`: measures the same contended work under every strategy, and reports the conditions of the run.

mod auctions;
mod bare;
mod beside;
mod conditions;
mod coupons;
mod curves;
mod field;
mod gate;
mod http;
mod load;
mod locks;
mod passes;
mod plot;
mod redis_set;
mod report;
mod rooms;
mod spread;
mod upkeep;

use clap::{Parser, Subcommand};
use failure::Outcome;
use firstcome_drill::{arguments, database, failure, file_system, output, own_redis, stop};
use std::process::ExitCode;

/// Measures firstcome on this machine, beside other ways to do the same, and says which of them were exact
#[derive(Parser)]
#[command(name = "firstcome-bench", version, propagate_version = true, arg_required_else_help = true)]
struct Program {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Limited coupons: one commit per claim, group commit, memory, a Redis set; in process and over HTTP
    Coupons(coupons::CouponsArgs),
    /// Waiting rooms: polls and joins over HTTP, what a tick and a waiting person cost, how exact admission is
    Rooms(rooms::RoomsArgs),
    /// Locks: one hot lock under every strategy, with several processes; what waiting, holding and dying cost
    Locks(locks::LocksArgs),
    /// The gate of a site, beside nginx as a plain proxy before the same site
    Gate(gate::GateArgs),
    /// Passes that a program verifies by itself: what a check costs after the first one
    Passes(passes::PassesArgs),
    /// Upkeep: how long claims wait beside the erasure of a member, a purge, and a backup, each of many rows
    Upkeep(upkeep::UpkeepArgs),
    /// Auctions: one hot auction on the embedded store and on databases, combined and under every other strategy
    Auctions(auctions::AuctionsArgs),
    /// Peers in one table: locks, coupons, rooms and auctions by every way, in turns, each beside its physical limit
    Field(Box<field::FieldArgs>),
    /// Curves: how rates change with waiters, processes, connections, users, stock and payloads
    Curves(curves::CurvesArgs),
    /// This build beside another one over HTTP, round by round: durable claims, sold out, polls
    #[command(hide = true)]
    Beside(beside::BesideArgs),
    /// Want a lock, as one of several processes; told what to do over standard input
    #[command(hide = true)]
    LockWorker,
    /// Serve one empty route with plain axum: what the HTTP figures are compared with
    #[command(hide = true)]
    EmptyRoute(http::EmptyRouteArgs),
    /// Run the service as `firstcome serve` does: the one under load, which is thereby never of another build
    #[command(hide = true)]
    Serve(Box<firstcome_cli::serve::ServeArgs>),
    /// Run the gate as `firstcome gate` does
    #[command(hide = true)]
    ServeGate(Box<firstcome_cli::gate::GateArgs>),
}

fn main() -> ExitCode {
    failure::end(run(Program::parse().command).map(|()| ExitCode::SUCCESS))
}

fn run(command: BenchCommand) -> Outcome {
    match command {
        BenchCommand::Coupons(args) => coupons::run(&args),
        BenchCommand::Rooms(args) => rooms::run(&args),
        BenchCommand::Locks(args) => locks::run(&args),
        BenchCommand::Gate(args) => gate::run(&args),
        BenchCommand::Passes(args) => passes::run(&args),
        BenchCommand::Upkeep(args) => upkeep::run(&args),
        BenchCommand::Auctions(args) => auctions::run(&args),
        BenchCommand::Field(args) => field::run(&args),
        BenchCommand::Curves(args) => curves::run(&args),
        BenchCommand::Beside(args) => beside::run(&args),
        BenchCommand::LockWorker => locks::run_worker(),
        BenchCommand::EmptyRoute(args) => http::serve_empty_route(&args),
        BenchCommand::Serve(args) => firstcome_cli::serve::run(*args),
        BenchCommand::ServeGate(args) => firstcome_cli::gate::run(*args),
    }
}
