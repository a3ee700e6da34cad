//! Kills servers under load, at random moments, and only while requests are under way.

use super::crowd::{Crowd, Players};
use super::record::{Restart, Target};
use super::server::{Server, wait_ready};
use crate::rng::Rng;
use anyhow::{Context, anyhow};
use firstcome_test_servers::Server as StoreServer;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval};

/// A server process, which a blocking thread restarts while the crowd goes on.
pub(crate) type SharedServer = Arc<Mutex<Server>>;
/// A Redis or database of the nodes, restarted in the same way.
pub(crate) type SharedStore = Arc<Mutex<StoreServer>>;

/// The servers that an event is played against.
pub(crate) struct DrillTarget {
    /// The addresses of all nodes, at least one.
    pub(crate) addresses: Rc<[SocketAddr]>,
    /// The nodes, if the drill started them.
    pub(crate) nodes: Vec<SharedServer>,
    /// The shared servers, as far as the drill started them.
    pub(crate) redis: Option<SharedStore>,
    pub(crate) sql: Option<SharedStore>,
    /// Whether the nodes share their data.
    pub(crate) is_shared: bool,
}

impl DrillTarget {
    /// Returns the target for a running service.
    pub(crate) fn at(address: SocketAddr) -> Self {
        let addresses = Rc::new([address]);
        Self { addresses, nodes: Vec::new(), redis: None, sql: None, is_shared: false }
    }

    /// Returns the target for one server that the drill started.
    pub(crate) fn alone(server: Server) -> Self {
        let place = Self::at(server.address);
        Self { nodes: vec![Arc::new(Mutex::new(server))], ..place }
    }

    /// Returns the target for nodes that the drill started, over servers that it may have started too.
    pub(crate) fn of_nodes(nodes: Vec<Server>, redis: Option<StoreServer>, sql: Option<StoreServer>) -> Self {
        let addresses = nodes.iter().map(|node| node.address).collect();
        let nodes = nodes.into_iter().map(|node| Arc::new(Mutex::new(node))).collect();
        let [redis, sql] = [redis, sql].map(|store| store.map(|store| Arc::new(Mutex::new(store))));
        Self { addresses, nodes, redis, sql, is_shared: true }
    }

    /// Returns what can be killed, in the order of the turns.
    fn targets(&self) -> Vec<Target> {
        let all = [
            (Target::Server, !self.nodes.is_empty()),
            (Target::Sql, self.sql.is_some()),
            (Target::Redis, self.redis.is_some()),
        ];
        all.into_iter().filter(|(_, there)| *there).map(|(target, _)| target).collect()
    }

    /// Returns the most memory that one of the nodes uses, in bytes. Skips nodes that are being restarted.
    pub(crate) fn rss(&self) -> u64 {
        let rss = |node: &SharedServer| node.try_lock().ok().and_then(|node| node.rss());
        self.nodes.iter().filter_map(rss).max().unwrap_or(0)
    }
}

/// Draws the instants of the kills, in order, from the busiest part of the event.
pub(crate) fn moments_us(seed: u64, kills: u32, opens_us: u64, ends_us: u64) -> Vec<u64> {
    let mut rng = Rng::from_seed(seed ^ 0x6B69_6C6C);
    let span_us = ends_us.saturating_sub(opens_us) * 45 / 100;
    let mut moments: Vec<u64> = (0..kills).map(|_| opens_us + 500_000 + rng.below(span_us.max(1))).collect();
    moments.sort_unstable();
    moments
}

/// One kill: its target, and which node if it is a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Victim {
    target: Target,
    node: usize,
    /// Whether the data of Redis is lost too.
    loses: bool,
}

/// Chooses the target of each kill: each kind in turn, a random node, and every other time Redis loses its data.
fn victims(seed: u64, kills: usize, targets: &[Target], nodes: usize) -> Vec<Victim> {
    let mut rng = Rng::from_seed(seed ^ 0x7669_6374);
    let mut losing = !seed.is_multiple_of(2);
    let victim = |at: usize| {
        let target = targets[at % targets.len()];
        let loses = target == Target::Redis && losing;
        losing ^= target == Target::Redis;
        Victim { target, node: rng.below(nodes as u64) as usize, loses }
    };
    if targets.is_empty() { Vec::new() } else { (0..kills).map(victim).collect() }
}

/// Kills a store and starts it again, on a thread that may block.
async fn restart_store(store: &SharedStore, loses: bool) -> anyhow::Result<()> {
    let (store, runtime) = (Arc::clone(store), Handle::current());
    let restart = move || {
        let mut store = store.lock().map_err(|_| anyhow!("a thread panicked"))?;
        runtime.block_on(async { if loses { store.restart_empty().await } else { store.restart().await } })?;
        anyhow::Ok(())
    };
    tokio::task::spawn_blocking(restart).await?
}

async fn restart_node(node: &SharedServer) -> anyhow::Result<()> {
    let node = Arc::clone(node);
    let restart = move || {
        let mut node = node.lock().map_err(|_| anyhow!("a thread panicked"))?;
        node.kill();
        node.restart()
    };
    tokio::task::spawn_blocking(restart).await?
}

/// Kills and restarts servers. A kill waits until some request is under way.
pub(crate) async fn kill_at<P: Players>(
    crowd: Rc<Crowd<P>>,
    place: &DrillTarget,
    seed: u64,
    moments_us: Vec<u64>,
) -> anyhow::Result<()> {
    let mut ticks = interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let victims = victims(seed, moments_us.len(), &place.targets(), place.nodes.len());
    for (moment_us, Victim { target, node, loses }) in moments_us.into_iter().zip(victims) {
        let in_flight = || match target {
            Target::Server => crowd.spread.in_flight_at(node),
            Target::Redis | Target::Sql => crowd.spread.in_flight(),
        };
        while crowd.clock.now_us() < moment_us || in_flight() == 0 {
            ticks.tick().await;
        }
        let in_flight = in_flight();
        let killed_us = crowd.clock.now_us();
        crowd.set_whole(false);
        match (target, &place.redis, &place.sql) {
            (Target::Server, ..) => {
                crowd.spread.goes_down(node);
                restart_node(&place.nodes[node]).await.context("after a kill")?;
                wait_ready(place.addresses[node]).await?;
                crowd.spread.comes_up(node);
            }
            (Target::Redis, Some(store), _) | (Target::Sql, _, Some(store)) => {
                restart_store(store, loses).await.context("after a kill")?;
            }
            _ => continue,
        }
        for address in place.addresses.iter() {
            wait_ready(*address).await?;
        }
        crowd.set_whole(true);
        let ready_us = crowd.clock.now_us();
        let forgets = if place.is_shared { loses } else { target == Target::Server };
        crowd.restarted(Restart { target, loses, forgets, killed_us, ready_us, in_flight });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_in_the_thick_of_it() {
        let moments = moments_us(5, 20, 9_000_000, 60_000_000);
        assert!(moments.is_sorted() && moments.len() == 20);
        assert!(moments.iter().all(|moment| (9_500_000..32_500_000).contains(moment)), "{moments:?}");
    }

    #[test]
    fn each_sort_has_its_turn_and_redis_loses_its_data_every_other_time() {
        let all = [Target::Server, Target::Sql, Target::Redis];
        let victims = |seed| victims(seed, 12, &all, 3);
        assert!(victims(1).iter().zip(all.iter().cycle()).all(|(victim, target)| victim.target == *target));
        let losses = |seed| -> Vec<bool> {
            let redis = victims(seed).into_iter().filter(|victim| victim.target == Target::Redis);
            redis.map(|victim| victim.loses).collect()
        };
        assert_eq!((losses(1), losses(2)), (vec![true, false, true, false], vec![false, true, false, true]));
        assert!(victims(1).iter().all(|victim| !victim.loses || victim.target == Target::Redis));
        let nodes: std::collections::BTreeSet<usize> = victims(1).iter().map(|victim| victim.node).collect();
        assert!(1 < nodes.len() && nodes.iter().all(|node| *node < 3), "{nodes:?}");
        assert!(super::victims(1, 4, &[Target::Server], 1).iter().all(|victim| victim.node == 0));
    }
}
