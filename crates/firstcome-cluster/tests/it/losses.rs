//! Redis is lost, or comes back as another one: nothing that was told is contradicted, and the coupon opens again.

use crate::claim_replies::{self, COUPON, ClaimReplies, claim, coupon, keyed, limit, new, put};
use crate::in_time;
use crate::poison::append;
use crate::proxy::{Point, ProxyFault};
use crate::scripts::{FILL, OPEN};
use crate::world::{Keeper, TestDeployment, World, options, wait_for};
use firstcome_cluster::Cluster;
use firstcome_store::CouponStore;
use firstcome_store::core::coupon::{CouponSettings, Effect, Rejection};
use firstcome_store::core::time::Timestamp;
use firstcome_test_servers::Kind;
use std::time::Duration;

/// How Redis loses what it had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loss {
    /// All of it.
    Flush,
    /// One key.
    Key(&'static str),
    /// All after a certain moment.
    Since,
}

const LOSSES: [Loss; 6] =
    [Loss::Flush, Loss::Key("gate"), Loss::Key("users"), Loss::Key("keys"), Loss::Key("outbox"), Loss::Since];

/// All keys of the coupon as they are in one moment.
pub(crate) struct Snapshot(Vec<(String, Vec<u8>)>);

impl Snapshot {
    pub(crate) async fn of(keeper: &mut Keeper) -> Self {
        let keys: Vec<String> = keeper.ask(&["KEYS", "fc:{c*"]).await;
        let mut dumps = Vec::new();
        for key in keys {
            // The lease may have gone meanwhile.
            if let Some(dump) = keeper.ask::<Option<Vec<u8>>>(&["DUMP", &key]).await {
                dumps.push((key, dump));
            }
        }
        Self(dumps)
    }

    pub(crate) async fn put_back(&self, keeper: &mut Keeper) {
        let keys: Vec<String> = keeper.ask(&["KEYS", "fc:{c*"]).await;
        // In one step, as a server does that comes up.
        let mut script = String::from("for _, key in ipairs(KEYS) do redis.call('DEL', key) end ");
        script.push_str("for at = 1, #ARGV, 2 do redis.call('RESTORE', ARGV[at], 0, ARGV[at + 1], 'REPLACE') end");
        let count = keys.len().to_string();
        let mut command: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), count.as_bytes()];
        command.extend(keys.iter().map(|key| key.as_bytes()));
        for (key, dump) in &self.0 {
            command.extend([key.as_bytes(), dump.as_slice()]);
        }
        let _: Option<i64> = keeper.ask_bytes(&command).await;
    }
}

impl Loss {
    async fn happen(self, keeper: &mut Keeper, before: &Snapshot) {
        match self {
            Self::Flush => drop(keeper.ask::<String>(&["FLUSHDB"]).await),
            Self::Key(sort) => {
                if let Some(key) = keeper.key(sort).await {
                    let _: i64 = keeper.ask(&["DEL", &key]).await;
                }
            }
            Self::Since => before.put_back(keeper).await,
        }
    }
}

pub(crate) fn rebuilt(nodes: &[Cluster]) -> u64 {
    nodes.iter().map(|node| node.counts().rebuilt).sum()
}

/// Claims before, during and after a loss.
async fn survives(place: &TestDeployment, loss: Loss) {
    let nodes = place.nodes(3).await;
    let (mut keeper, told) = (place.keeper().await, ClaimReplies::default());
    put(&nodes[0], limit(60)).await;
    told.crowd(&nodes, 0..20).await;
    let snapshot = Snapshot::of(&mut keeper).await;
    told.crowd(&nodes, 20..30).await;
    let under_way = tokio::spawn({
        let (told, nodes) = (told.clone(), nodes.clone());
        async move { told.crowd(&nodes, 30..50).await }
    });
    wait_for("a claim", async || (30 < told.count()).then_some(())).await;
    loss.happen(&mut keeper, &snapshot).await;
    under_way.await.expect("it ends");
    assert_eq!(told.count(), 50, "{loss:?}: there is a place for everybody until now");
    told.crowd(&nodes, 0..100).await;
    told.check(place, &nodes, 60).await;
    assert_eq!(told.count(), 60, "{loss:?}");
}

async fn survive_all(sql: Kind) {
    let Some(mut world) = World::start(sql).await else { return };
    for loss in LOSSES {
        let place = world.place().await;
        in_time(survives(&place, loss)).await;
    }
    in_time(survives_restart(&mut world)).await;
}

/// Redis is killed with claims under way, and comes back at the same port with what it has on disk. How many sequencers were
/// rebuilt after that.
async fn survives_restart(world: &mut World) -> u64 {
    let place = world.place().await;
    let (nodes, told) = (place.nodes(3).await, ClaimReplies::default());
    put(&nodes[0], limit(60)).await;
    told.crowd(&nodes, 0..30).await;
    let before = rebuilt(&nodes);
    let under_way = tokio::spawn({
        let (told, nodes) = (told.clone(), nodes.clone());
        async move { told.crowd(&nodes, 30..50).await }
    });
    wait_for("a claim", async || (30 < told.count()).then_some(())).await;
    world.restart_redis().await;
    under_way.await.expect("it ends");
    told.crowd(&nodes, 0..100).await;
    told.check(&place, &nodes, 60).await;
    assert_eq!(told.count(), 60);
    rebuilt(&nodes) - before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_contradicted_on_postgres_no_matter_what_redis_loses() {
    survive_all(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_contradicted_on_mariadb_no_matter_what_redis_loses() {
    survive_all(Kind::MariaDb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_has_everything_on_disk_goes_on_where_it_was() {
    let settings = ["appendonly=yes", "appendfsync=always"];
    let Some(mut world) = World::start_with(Kind::Postgres, &settings).await else { return };
    assert_eq!(in_time(survives_restart(&mut world)).await, 0, "nothing was lost, and nothing is rebuilt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_redis_is_noticed_by_the_next_call_and_filled_once() {
    let Some(mut world) = World::start(Kind::Postgres).await else { return };
    assert_eq!(in_time(survives_restart(&mut world)).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_is_noticed_by_the_next_call() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let rows = [(Loss::Flush, 2), (Loss::Key("gate"), 2), (Loss::Key("outbox"), 2), (Loss::Since, 2)];
    // These two only save questions to the database.
    for (loss, sequencer) in rows.into_iter().chain([(Loss::Key("users"), 1), (Loss::Key("keys"), 1)]) {
        let place = world.place().await;
        let (node, mut keeper) = (place.node().await, place.keeper().await);
        put(&node, limit(3)).await;
        let before = Snapshot::of(&mut keeper).await;
        let ann = new(node.claim(&coupon(COUPON), keyed("ann", 7, 1)).await);
        wait_for("a sequencer that knows", async || {
            (keeper.sequencer("position").await.as_deref() == Some("1")).then_some(())
        })
        .await;
        loss.happen(&mut keeper, &before).await;
        // The key is still ann's, also for others; and so is the coupon.
        let again = node.claim(&coupon(COUPON), keyed("ann", 7, 1)).await;
        assert!(matches!(again, Ok(Ok(Effect::Again(claimed))) if claimed == ann), "{loss:?}");
        let reused = claim_replies::refusal(node.claim(&coupon(COUPON), keyed("eve", 7, 2)).await);
        assert_eq!(reused, Rejection::KeyReused(ann.issued.serial), "{loss:?}");
        assert_eq!(claim_replies::refusal(claim(&node, "ann").await), Rejection::AlreadyIssued(ann.issued), "{loss:?}");
        assert_eq!(new(claim(&node, "bob").await).issued.serial.get(), 2, "{loss:?}");
        assert_eq!(new(claim(&node, "cid").await).issued.serial.get(), 3, "{loss:?}");
        assert_eq!(claim_replies::refusal(claim(&node, "dan").await), Rejection::SoldOut, "{loss:?}");
        assert_eq!(node.counts().rebuilt, sequencer, "{loss:?}");
        claim_replies::check_rows(&mut place.foreign().await, COUPON, 3).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequencer_that_has_drawn_other_tickets_is_told_by_its_last_entry() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (nodes, mut keeper) = (place.nodes(2).await, place.keeper().await);
    put(&nodes[0], limit(9)).await;
    for user in ["ann", "bob"] {
        new(claim(&nodes[0], user).await);
    }
    wait_for("a sequencer that knows", async || {
        (keeper.sequencer("position").await.as_deref() == Some("2")).then_some(())
    })
    .await;
    // A replica that had not heard of the second claim drew other tickets, and is ahead by now.
    let outbox = keeper.key("outbox").await.expect("an outbox");
    let _: i64 = keeper.ask(&["DEL", &outbox]).await;
    append(&mut keeper, &outbox, 2, &["eve"]).await;
    append(&mut keeper, &outbox, 3, &["mallory"]).await;
    keeper.set_gate(&["ticket", "3"]).await;
    // One knows the sequencer, the other has never asked it.
    for (node, user) in nodes.iter().zip(["cid", "dan"]) {
        assert!(matches!(in_time(claim(node, user)).await, Ok(Ok(Effect::New(_)))), "{user}");
    }
    assert_eq!(rebuilt(&nodes), 2);
    claim_replies::check_rows(&mut place.foreign().await, COUPON, 4).await;
    let record = nodes[1].claim_of(&coupon(COUPON), "mallory").await;
    assert_eq!(
        record.expect("it answers").expect("it is there"),
        None,
        "what that sequencer has let in does not count"
    );
}

/// A copy of the sequencer as it was before it was rebuilt, with keys of which none is there any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequencer_of_an_earlier_generation_is_not_asked() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (nodes, mut keeper) = (place.nodes(2).await, place.keeper().await);
    put(&nodes[0], limit(3)).await;
    new(claim(&nodes[0], "ann").await);
    let before = Snapshot::of(&mut keeper).await;
    let _: String = keeper.ask(&["FLUSHDB"]).await;
    // Both know the second generation.
    for (node, user) in nodes.iter().zip(["bob", "cid"]) {
        new(claim(node, user).await);
    }
    before.put_back(&mut keeper).await;
    // It has drawn as many as SQL has, and more places.
    keeper.set_gate(&["ticket", "3", "position", "3", "limit", "9"]).await;
    for node in &nodes {
        assert_eq!(claim_replies::refusal(in_time(claim(node, "dan")).await), Rejection::SoldOut);
    }
    assert_eq!(rebuilt(&nodes), 3);
    claim_replies::check_rows(&mut place.foreign().await, COUPON, 3).await;
}

/// A server that was behind takes over: a caller that had a connection looks at what there is before it asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_comes_back_with_old_settings_judges_by_those_in_the_database() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (nodes, mut keeper) = (place.nodes(2).await, place.keeper().await);
    let past = Timestamp::from_us(keeper.now_us().await - 1);
    put(&nodes[0], CouponSettings { expires_at: past, ..limit(3) }).await;
    for node in &nodes {
        assert!(matches!(claim_replies::refusal(claim(node, "ann").await), Rejection::Expired(_)));
    }
    let before = Snapshot::of(&mut keeper).await;
    put(&nodes[0], limit(3)).await;
    before.put_back(&mut keeper).await;
    for sort in ["normal", "pubsub"] {
        let _: i64 = keeper.ask(&["CLIENT", "KILL", "TYPE", sort]).await;
    }
    // It has never heard of the later settings.
    assert_eq!(new(in_time(claim(&nodes[1], "bob")).await).issued.serial.get(), 1);
}

/// A caller that has lost the lease while it made a sequencer anew opens nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_late_with_its_sequencer_does_not_open_it_over_another() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    for script in [FILL, OPEN] {
        let place = world.place().await;
        let (lined, line) = place.by_redis_line().await;
        let mut patient = options();
        patient.link.answer_timeout = Duration::from_secs(6);
        patient.link.ping_interval = Duration::from_secs(6);
        let (slow, node) = (lined.node_with(patient).await, place.node().await);
        let (told, mut keeper) = (ClaimReplies::default(), place.keeper().await);
        put(&node, limit(9)).await;
        told.crowd(std::slice::from_ref(&node), 0..3).await;
        // A caller that writes would find out by itself otherwise.
        wait_for("a sequencer that knows", async || {
            (keeper.sequencer("node").await.as_deref() == Some("")).then_some(())
        })
        .await;
        line.set(&Point::Script(script), 0, ProxyFault::Hold);
        let _: String = keeper.ask(&["FLUSHDB"]).await;
        let late = tokio::spawn({
            let slow = slow.clone();
            async move { claim(&slow, "late").await }
        });
        in_time(line.met(1)).await;
        told.crowd(std::slice::from_ref(&node), 3..5).await;
        let sequencer = keeper.sequencer("generation").await;
        line.pass();
        new(in_time(late).await.expect("it ends"));
        told.crowd(&[slow.clone(), node.clone()], 5..7).await;
        assert_eq!(keeper.sequencer("generation").await, sequencer);
        let nodes = [slow, node];
        assert_eq!(rebuilt(&nodes), 2);
        told.check(&place, &nodes, 8).await;
    }
}
