//! `firstcome reconcile`: compares the sequencers, outboxes and logs on Redis with the database, and repairs them.

mod auction;

use crate::deployment_secret::SecretArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{grouped, table, wants_table, write_out};
use crate::store_address::{StoreAddressArgs, StoreAddresses, missing_sql};
use anyhow::anyhow;
use clap::Args;
use comfy_table::{Cell, Color};
use firstcome::cluster::{ClusterOptions, Finding, Object, Reconciled, Repair, accept_loss, reconcile, repair};
use firstcome::sql::Tables;
use serde_json::json;

#[derive(Args)]
pub(crate) struct ReconcileArgs {
    #[command(flatten)]
    servers: StoreAddressArgs,
    /// Repair what is safe, as a node would: store outbox entries, rebuild from the database, remove what is no longer
    /// used
    #[arg(long)]
    fix: bool,
    /// Go on without the data that the database has lost (a restored backup, a replica that was behind). Begins a new
    /// generation of each coupon that stands still for it, and prints what is given up. Also begins one of members and
    /// listings, whose losses are named in the nodes' logs. Without --redis for members and listings alone
    #[arg(long, conflicts_with = "fix")]
    accept_loss: bool,
    #[command(flatten)]
    secret: SecretArgs,
    /// Print JSON also on a terminal
    #[arg(long)]
    json: bool,
}

/// Compares, repairs if asked to, and prints. Fails if a finding still needs a repair.
pub(crate) fn run(args: &ReconcileArgs) -> Outcome {
    let StoreAddresses { redis, sql } = args.servers.read()?;
    let sql = &sql.ok_or_else(missing_sql)?;
    let redis = match &redis {
        Some(redis) => redis,
        None if args.accept_loss => return auction::run(sql, args.json),
        None => return Err(Failure::Usage(anyhow!("Redis is missing: give --redis URL or --redis-file FILE"))),
    };
    let secret = if args.fix || args.accept_loss { Some(args.secret.read()?) } else { None };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let reconciled = match secret {
        Some(secret) => {
            let mut options = ClusterOptions::default();
            options.database.tables = Tables::Require;
            if args.accept_loss {
                runtime.block_on(accept_loss(redis, sql, secret, options))
            } else {
                runtime.block_on(repair(redis, sql, secret, options))
            }
        }
        None => runtime.block_on(reconcile(redis, sql)),
    };
    let reconciled = reconciled.map_err(Failure::of_cluster)?;
    // In the same database. Only the nodes know what members and listings have lost.
    let auctions = if args.accept_loss { Some(auction::accept(sql)?) } else { None };
    let left = reconciled.findings.iter().filter(|finding| finding.needs_repair()).count();
    if wants_table(args.json) {
        print_table(&reconciled, auctions)?;
    } else {
        print_json(&reconciled, left, auctions)?;
    }
    if left == 0 { Ok(()) } else { Err(Failure::Refused(anyhow!("{left} findings need a repair"))) }
}

const fn kind_and_name(object: &Object) -> (&'static str, &str) {
    match object {
        Object::Coupon(name) => ("coupon", name.as_str()),
        Object::Room(name) => ("room", name.as_str()),
        Object::Keys(tag) => ("keys", tag.as_str()),
        _ => ("other", ""),
    }
}

const fn repaired(finding: &Finding) -> (&'static str, Option<&str>) {
    match &finding.repair {
        Repair::Done(what) => ("done", Some(what.as_str())),
        Repair::Advice(what) => ("advice", Some(what.as_str())),
        Repair::Failed(why) => ("failed", Some(why.as_str())),
        _ => ("none", None),
    }
}

fn print_json(reconciled: &Reconciled, left: usize, auctions: Option<i64>) -> Outcome {
    let entry = |finding: &Finding| {
        let (kind, name) = kind_and_name(&finding.object);
        let (repair, what) = repaired(finding);
        json!({
            "kind": kind, "name": name, "state": finding.state.code(), "count": finding.count, "says": finding.says,
            "needs_repair": finding.needs_repair(), "repair": repair, "repair_says": what,
        })
    };
    let findings: Vec<_> = reconciled.findings.iter().map(entry).collect();
    let mut report = json!({"needs_repair": left, "findings": findings, "not_looked": reconciled.not_looked});
    if let Some(generation) = auctions {
        report["market_generation"] = generation.into();
    }
    write_out(format!("{report:#}\n").as_bytes())?;
    Ok(())
}

fn print_table(reconciled: &Reconciled, auctions: Option<i64>) -> Outcome {
    let mut table = table(&["Of", "Name", "State", ">Count", "What", "Repair"]);
    for finding in &reconciled.findings {
        let (kind, name) = kind_and_name(&finding.object);
        let (repair, what) = repaired(finding);
        let colour = match (finding.needs_repair(), finding.state.needs_repair()) {
            (true, _) => Color::Red,
            (false, true) => Color::Yellow,
            (false, false) => Color::Green,
        };
        let state = Cell::new(finding.state.code()).fg(colour);
        let repair = what.map_or_else(String::new, |what| format!("{repair}: {what}"));
        let count = Cell::new(grouped(finding.count));
        table.add_row([Cell::new(kind), Cell::new(name), state, count, Cell::new(&finding.says), Cell::new(repair)]);
    }
    let mut text = format!("{table}\n");
    if let Some(generation) = auctions {
        text.push_str(&format!("\n{}", auction::says(generation)));
    }
    for what in &reconciled.not_looked {
        text.push_str(&format!("\nnot looked at: {what}\n"));
    }
    write_out(text.as_bytes())?;
    Ok(())
}
