//! Redis beyond one server: a Cluster of three masters, and a primary with its replica under three sentinels.

use crate::claim_replies::{ClaimReplies, limit, put};
use crate::in_time;
use crate::world::{Keeper, PATIENCE, TestDeployment, World, wait_for};
use firstcome_store::conformance;
use firstcome_test_servers::{Cluster, Durability, GONE_SOON, Kind, Options, SLOTS, Sentinels, Server};

/// A place that is empty on all of these servers.
async fn emptied(world: &World, redis: &str, servers: &[Server]) -> TestDeployment {
    for server in servers {
        let mut keeper = Keeper::at(server.url()).await;
        // The tasks of the node before may outlive it for a moment, and make its rooms anew. A node of another database would find
        // them, by the same numbers.
        wait_for("the end of the node before", async || {
            let clients: String = keeper.ask(&["CLIENT", "LIST", "TYPE", "NORMAL"]).await;
            let is_node = |client: &str| !client.contains(" cmd=client") && !client.contains(" name=sentinel-");
            (!clients.lines().any(is_node)).then_some(())
        })
        .await;
        // A replica takes no writes, and is emptied by its primary.
        keeper.try_ask(&["FLUSHALL"]).await;
    }
    TestDeployment { redis: redis.to_owned(), ..world.place().await }
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
    let trio =
        Sentinels::start(&Options::new(Durability::Quick), 1, PATIENCE).await.unwrap_or_else(|error| panic!("{error}"));
    let new_store = async |clock| emptied(&world, &trio.url(), trio.servers()).await.node_by(clock).await;
    in_time(conformance::coupon(new_store)).await;
    in_time(conformance::room(new_store)).await;
}

/// The slot of the only coupon, and which master of a fresh cluster has it.
async fn home(cluster: &Cluster) -> (u16, usize) {
    let slot: u16 = Keeper::at(cluster.nodes()[0].url()).await.ask(&["CLUSTER", "KEYSLOT", "fc:{c1}:gate"]).await;
    let third = (0..3).find(|third| usize::from(slot) < (third + 1) * usize::from(SLOTS) / 3);
    (slot, third.expect("a slot"))
}

/// Claims go on before any key has moved, while they are parted, and afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coupon_moves_from_master_to_master_while_people_claim() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let cluster = Cluster::start(&Options::new(Durability::Quick), 0).await.unwrap_or_else(|error| panic!("{error}"));
    let place = emptied(&world, &cluster.url(), cluster.nodes()).await;
    in_time(async {
        let (nodes, told) = (place.nodes(2).await, ClaimReplies::default());
        put(&nodes[0], limit(150)).await;
        told.crowd(&nodes, 0..20).await;
        let (slot, from) = home(&cluster).await;
        let to = (from + 1) % 3;
        cluster.begin_move(slot, from, to).await.expect("it begins");
        told.crowd(&nodes, 20..40).await;
        assert_eq!((told.new_count(), told.unknown()), (40, 0), "no script finds a key missing");
        let mut keeper = Keeper::at(cluster.nodes()[from].url()).await;
        let keys: Vec<String> = keeper.ask(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"]).await;
        cluster.move_key(&keys[0], from, to).await.expect("it moves");
        let under_way = tokio::spawn({
            let (told, nodes) = (told.clone(), nodes.clone());
            async move { told.crowd(&nodes, 40..100).await }
        });
        let requests = nodes[0].link().counts().requests;
        wait_for("a script to be turned away", async || {
            (requests + 10 < nodes[0].link().counts().requests).then_some(())
        })
        .await;
        cluster.end_move(slot, from, to).await.expect("it ends");
        under_way.await.expect("no caller fails");
        told.crowd(&nodes, 0..200).await;
        told.check(&place, &nodes, 150).await;
        assert_eq!(told.count(), 150);
        assert_eq!(nodes.iter().map(|node| node.counts().rebuilt).sum::<u64>(), 1, "nothing was lost on the way");
    })
    .await;
}

/// The one that takes over may lack what the primary has told last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_is_replaced_while_people_claim_and_what_was_told_stays() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let mut trio = Sentinels::start(&Options::new(Durability::Quick), 1, GONE_SOON)
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    let place = emptied(&world, &trio.url(), trio.servers()).await;
    in_time(async {
        let (nodes, told) = (place.nodes(2).await, ClaimReplies::default());
        put(&nodes[0], limit(300)).await;
        told.crowd(&nodes, 0..20).await;
        let under_way = tokio::spawn({
            let (told, nodes) = (told.clone(), nodes.clone());
            async move { told.crowd(&nodes, 20..280).await }
        });
        wait_for("a claim", async || (20 < told.count()).then_some(())).await;
        let primary = trio.kill_primary().await.expect("they know it");
        assert_ne!(trio.wait_for_another(primary).await.expect("they name another"), primary);
        under_way.await.expect("no caller fails");
        told.crowd(&nodes, 0..400).await;
        told.check(&place, &nodes, 300).await;
        assert_eq!(told.count(), 300);
    })
    .await;
}
