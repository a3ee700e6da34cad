//! The suites on Redis beyond one server: a Cluster of three masters, and a primary with its replica under three sentinels.

use crate::in_time;
use crate::world::{Keeper, Place, World};
use firstcome_servers::{Cluster, Durability, Kind, Options, Sentinels, Server};
use firstcome_store::conformance;

/// A place that is empty on all of these servers.
async fn emptied(world: &World, redis: &str, servers: &[Server]) -> Place {
    for server in servers {
        // A replica takes no writes, and is emptied by its primary.
        Keeper::at(server.url()).await.try_ask(&["FLUSHALL"]).await;
    }
    Place { redis: redis.to_owned(), ..world.place().await }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coupons_and_rooms_on_a_cluster_keep_every_promise_of_their_ports() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let cluster = Cluster::start(&Options::new(Durability::Quick), 0).await.unwrap_or_else(|error| panic!("{error}"));
    let new_store = async |clock| emptied(&world, &cluster.url(), cluster.nodes()).await.node_by(clock).await;
    in_time(conformance::coupon(new_store)).await;
    in_time(conformance::room(new_store)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coupons_and_rooms_under_sentinels_keep_every_promise_of_their_ports() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let trio = Sentinels::start(&Options::new(Durability::Quick), 1).await.unwrap_or_else(|error| panic!("{error}"));
    let new_store = async |clock| emptied(&world, &trio.url(), trio.servers()).await.node_by(clock).await;
    in_time(conformance::coupon(new_store)).await;
    in_time(conformance::room(new_store)).await;
}
