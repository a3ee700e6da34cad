//! How claims of a cluster change with its nodes: all on this machine, over one Redis and one PostgreSQL that sync.
//!
//! The callers are the same for every number of nodes, shared among them. So the curve shows what more nodes cost where
//! they share two processors, and not what more machines would bring.

use super::{Curve, CurvesArgs, order};
use crate::coupons::cluster::secret;
use crate::coupons::{Scratch, claim_by, name, put};
use crate::database::{Named, OwnDatabase};
use crate::failure::Failure;
use crate::field::Progress;
use crate::stop::unless_stopped;
use anyhow::anyhow;
use firstcome::CouponStore;
use firstcome::cluster::{Cluster, ClusterOptions};
use firstcome::core::id::CouponName;
use firstcome::edge::Stopwatch;
use firstcome_test_servers::{Durability, Kind, Options, Server};
use std::time::Duration;

const NODES: [u32; 4] = [1, 2, 3, 4];
/// Callers at once, at all nodes together.
const CALLERS: u32 = 512;

const ONE: &str = "one coupon";
const EACH: &str = "one coupon for each node";

/// Measures the curve.
pub(super) fn measure(args: &CurvesArgs, progress: &Progress) -> Result<Vec<Curve>, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(unless_stopped(async { Ok(curve(args, progress).await?) }))
}

async fn curve(args: &CurvesArgs, progress: &Progress) -> anyhow::Result<Vec<Curve>> {
    let scratch = Scratch::new(&args.data, "curves-nodes")?;
    let mut options = Options::new(Durability::Durable).within(&scratch.0);
    // A rewrite of its log blocks all clients for a tenth of a second, at a point by chance.
    options.settings.push("auto-aof-rewrite-percentage=0".to_owned());
    let redis = Server::start(Kind::Redis, &options).await?;
    let database = OwnDatabase::open(&Named::Started(Kind::Postgres), &scratch.0).await?;
    progress.expect(NODES.len() * args.rounds as usize);
    let title = "Durable claims of a cluster, all nodes on this machine";
    let mut curve = Curve::new("nodes", title, "claims per second", "nodes", &[ONE, EACH]);
    for round in 0..args.rounds {
        for count in order(&NODES, round) {
            progress.step(&format!("{count} nodes, round {}", round + 1));
            let mut nodes = Vec::new();
            for _ in 0..count {
                nodes.push(Cluster::open(redis.url(), &database.url, secret()?, ClusterOptions::default()).await?);
            }
            let shared = vec![name(&format!("shared-{round}-{count}"))?];
            curve.add(ONE, count, claimed(&nodes, &shared, args.time).await?);
            let own: anyhow::Result<Vec<_>> =
                (0..count).map(|node| name(&format!("own-{round}-{count}-{node}"))).collect();
            curve.add(EACH, count, claimed(&nodes, &own?, args.time).await?);
        }
    }
    database.end().await?;
    Ok(vec![curve])
}

/// Lets the callers claim for the time. The callers of a node claim the coupon of its turn.
async fn claimed(nodes: &[Cluster], coupons: &[CouponName], time: Duration) -> anyhow::Result<f64> {
    for (coupon, node) in coupons.iter().zip(nodes) {
        put(node, coupon, 100_000_000).await?;
    }
    let watch = Stopwatch::start();
    let callers = (0..CALLERS as usize).map(|caller| {
        let node = caller % nodes.len();
        let (node, coupon) = (nodes[node].clone(), coupons[node % coupons.len()].clone());
        tokio::spawn(async move {
            let mut mine = 0_u64;
            while watch.elapsed() < time {
                let claim = claim_by(&format!("user-{caller:03}-{mine:08}"))?;
                node.claim(&coupon, claim).await?.map_err(|refused| anyhow!("{}", refused.rejection.code()))?;
                mine += 1;
            }
            anyhow::Ok(mine)
        })
    });
    let mut done = 0;
    for caller in callers.collect::<Vec<_>>() {
        done += caller.await??;
    }
    Ok(done as f64 / watch.elapsed().as_secs_f64())
}
