//! Keys that are spread over several servers, and move between them.

use super::several::*;
use super::*;
use firstcome_redis::{OpenError, Role};
use firstcome_test_servers::{Cluster, Durability};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinSet;

/// Counts under two keys.
static COUNT_BOTH: Script = Script::new("redis.call('INCR', KEYS[2]) return redis.call('INCR', KEYS[1])");

/// What is said of an address that does not lead anywhere.
async fn refusal(url: &str) -> OpenError {
    Link::open(url, INBOX, hasty()).await.expect_err("it cannot be used")
}

/// A key, its slot, the master that has it, and the next one.
async fn traveller(cluster: &Cluster) -> (String, u16, usize, usize) {
    let key = key_at(cluster, 0).await;
    let (slot, from) = home(cluster, &key).await;
    (key, slot, from, from + 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_run_where_their_keys_are() {
    let Some(cluster) = cluster(Durability::Quick, 0).await else { return };
    in_time(async {
        // One node is enough to find the others.
        let one = cluster.nodes()[1].url().replace("redis://", "redis+cluster://");
        let (link, _inbox) = open_at(&one, patient()).await;
        assert_eq!(echo(&link, "without a key").await, Ok(word("without a key")));
        let mut runs = Vec::new();
        for master in 0..3 {
            let key = key_at(&cluster, master).await;
            let requests = link.counts().requests;
            let tagged = format!("{{{key}}}:tagged");
            for expected in 1..=3 {
                assert_eq!(count(&link, &key).await, Ok(Value::Int(expected)));
                assert_eq!(count(&link, &tagged).await, Ok(Value::Int(expected)));
            }
            assert!(link.counts().requests <= requests + 8, "six, and two to load the script: none is sent on");
            let there: i64 = ask(&cluster.nodes()[master], &["GET", &tagged]).await;
            assert_eq!(there, 3);
            runs.push(link.run_of(key.as_bytes()).expect("there is a connection").run_id);
        }
        runs.sort_unstable();
        runs.dedup();
        assert_eq!(runs.len(), 3);
        let facts = link.servers().await.expect("they say what they are");
        assert!(facts.len() == 3 && facts.iter().all(|facts| facts.in_cluster && facts.role == Role::Primary));
        assert_eq!(link.counts().reconnects, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_is_followed() {
    let Some(cluster) = cluster(Durability::Quick, 0).await else { return };
    in_time(async {
        let (link, _inbox) = open_at(&cluster.url(), patient()).await;
        let (key, slot, from, to) = traveller(&cluster).await;
        let [old, new] = ["old", "new"].map(|name| format!("{{{key}}}{name}"));
        assert_eq!(count(&link, &old).await, Ok(Value::Int(1)));
        cluster.begin_move(slot, from, to).await.expect("it begins");
        assert_eq!(count(&link, &old).await, Ok(Value::Int(2)), "it is still there");
        assert_eq!(count(&link, &new).await, Ok(Value::Int(1)), "what is new is made where the slot goes");
        let there: Option<i64> = ask(&cluster.nodes()[from], &["EXISTS", &old]).await;
        assert_eq!(there, Some(1));
        cluster.move_key(&old, from, to).await.expect("it moves");
        assert_eq!(count(&link, &old).await, Ok(Value::Int(3)));
        // While the slot is on its way the map stays: each time the first node is asked, and then the second.
        let before = link.counts().requests;
        assert_eq!(count(&link, &old).await, Ok(Value::Int(4)));
        assert_eq!(link.counts().requests, before + 2);
        cluster.end_move(slot, from, to).await.expect("it ends");
        assert_eq!(count(&link, &old).await, Ok(Value::Int(5)));
        wait_for("the new map", async || {
            let before = link.counts().requests;
            count(&link, &new).await.expect("it counts");
            (link.counts().requests == before + 1).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_parted_for_a_moment_are_waited_for() {
    let Some(cluster) = cluster(Durability::Quick, 0).await else { return };
    in_time(async {
        let (link, _inbox) = open_at(&cluster.url(), patient()).await;
        let (key, slot, from, to) = traveller(&cluster).await;
        let [one, other] = ["one", "other"].map(|name| format!("{{{key}}}{name}"));
        let both = async || link.run(&COUNT_BOTH, &[one.as_bytes(), other.as_bytes()], &[]).await;
        assert_eq!(both().await, Ok(Value::Int(1)));
        cluster.begin_move(slot, from, to).await.expect("it begins");
        cluster.move_key(&one, from, to).await.expect("it moves");
        let before = tokio::time::Instant::now();
        match both().await {
            // Redis 6 refers a caller to the other node, which then says `TRYAGAIN`.
            Err(LinkError::Unavailable { code, .. }) => assert!(["TRYAGAIN", "ASK"].contains(&&*code), "{code}"),
            answer => panic!("{answer:?}"),
        }
        assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
        let requests = link.counts().requests;
        let (counted, ()) = tokio::join!(both(), async {
            wait_for("a try", async || (requests < link.counts().requests).then_some(())).await;
            cluster.move_key(&other, from, to).await.expect("it moves");
        });
        assert_eq!(counted, Ok(Value::Int(2)));
        let there: i64 = ask(&cluster.nodes()[from], &["DBSIZE"]).await;
        assert_eq!(there, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_slots_move_every_command_runs_once() {
    let Some(cluster) = cluster(Durability::Quick, 0).await else { return };
    in_time(async {
        let (link, _inbox) = open_at(&cluster.url(), patient()).await;
        let (key, slot, from, to) = traveller(&cluster).await;
        let ended = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        for caller in 0..16 {
            let (link, ended) = (link.clone(), Arc::clone(&ended));
            let key = format!("{{{key}}}{}", caller % 4);
            callers.spawn(async move {
                let mut counted = 0;
                while !ended.load(Ordering::Relaxed) {
                    match count(&link, &key).await {
                        Ok(Value::Int(_)) => counted += 1,
                        // A key may be on its way for as long as a command is tried.
                        Err(LinkError::Unavailable { .. }) => {}
                        other => panic!("{other:?}"),
                    }
                }
                counted
            });
        }
        for round in 0..6 {
            let (from, to) = if round % 2 == 0 { (from, to) } else { (to, from) };
            let before = link.counts().requests;
            let busy = async || (before + 500 < link.counts().requests).then_some(());
            wait_for("some work", busy).await;
            cluster.begin_move(slot, from, to).await.expect("it begins");
            cluster.move_key(&format!("{{{key}}}1"), from, to).await.expect("it moves");
            let before = link.counts().requests;
            wait_for("some work", async || (before + 500 < link.counts().requests).then_some(())).await;
            cluster.end_move(slot, from, to).await.expect("it ends");
        }
        ended.store(true, Ordering::Relaxed);
        let counted: i64 = callers.join_all().await.into_iter().sum();
        let mut there = 0;
        for number in 0..4 {
            there += ask::<i64>(&cluster.nodes()[from], &["GET", &format!("{{{key}}}{number}")]).await;
        }
        assert_eq!(counted, there);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_different_slots_are_refused_before_anything_is_done() {
    let Some(cluster) = cluster(Durability::Quick, 0).await else { return };
    in_time(async {
        let (link, _inbox) = open_at(&cluster.url(), patient()).await;
        let [one, other] = [key_at(&cluster, 0).await, key_at(&cluster, 1).await];
        let before = link.counts().requests;
        match link.run(&COUNT_BOTH, &[one.as_bytes(), other.as_bytes()], &[]).await {
            Err(LinkError::Unavailable { code, .. }) => assert_eq!(code, "CROSSSLOT"),
            answer => panic!("{answer:?}"),
        }
        assert_eq!(link.counts().requests, before + 1, "another try would be turned down too");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_was_killed_is_used_again_when_it_is_back() {
    let Some(mut cluster) = cluster(Durability::Durable, 0).await else { return };
    in_time(async {
        let (link, mut inbox) = open_at(&cluster.url(), hasty()).await;
        let keys = [key_at(&cluster, 0).await, key_at(&cluster, 1).await];
        for key in &keys {
            assert_eq!(count(&link, key).await, Ok(Value::Int(1)));
        }
        let before = link.run_of(keys[0].as_bytes()).expect("there is a connection");
        cluster.kill(0);
        wait_for("the others to say so", async || match count(&link, &keys[1]).await {
            Err(LinkError::Unavailable { code, .. }) => (code == "CLUSTERDOWN").then_some(()),
            _ => None,
        })
        .await;
        match count(&link, &keys[0]).await {
            Err(LinkError::Unavailable { code, .. }) => assert_eq!(code, "NOTCONNECTED"),
            answer => panic!("{answer:?}"),
        }
        assert_eq!(inbox.next().await, InboxEvent::Disconnected, "nobody can speak for the whole");
        cluster.restart(0).await.expect("it starts again");
        let (counted, perhaps) = count_until_done(&link, &keys[0]).await;
        assert!((2..=1 + perhaps).contains(&counted), "{counted} after {perhaps}");
        let after = link.run_of(keys[0].as_bytes()).expect("there is a connection");
        assert_ne!(before.run_id, after.run_id);
        count_until_done(&link, &keys[1]).await;
        assert_eq!(inbox.next().await, InboxEvent::Connected);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_in_flight_when_a_master_is_killed_are_unknown_and_sent_nowhere_else() {
    let Some(mut cluster) = cluster(Durability::Quick, 0).await else { return };
    in_time(async {
        let (link, _inbox) = open_at(&cluster.url(), patient()).await;
        let key = key_at(&cluster, 0).await;
        assert_eq!(count(&link, &key).await, Ok(Value::Int(1)));
        let process = cluster.nodes()[0].process().to_string();
        let frozen = std::process::Command::new("kill").args(["-STOP", &process]).status();
        assert!(frozen.is_ok_and(|status| status.success()), "kill -STOP fails");
        let before = link.counts().requests;
        let mut callers = JoinSet::new();
        for _ in 0..50 {
            let (link, key) = (link.clone(), key.clone());
            callers.spawn(async move { count(&link, &key).await });
        }
        wait_for("all to be sent", async || (link.counts().requests == before + 50).then_some(())).await;
        cluster.kill(0);
        for answer in callers.join_all().await {
            assert!(matches!(answer, Err(LinkError::Unknown { .. })), "{answer:?}");
        }
        assert_eq!(link.counts().requests, before + 50);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_stands_in_for_its_master_is_found() {
    let Some(mut cluster) = cluster(Durability::Quick, 1).await else { return };
    in_time(async {
        let (link, mut inbox) = open_at(&cluster.url(), hasty()).await;
        let key = key_at(&cluster, 0).await;
        assert_eq!(count(&link, &key).await, Ok(Value::Int(1)));
        wait_for_copy(&cluster.nodes()[3]).await;
        let before = link.run_of(key.as_bytes()).expect("there is a connection");
        cluster.kill(0);
        let (counted, perhaps) = count_until_done(&link, &key).await;
        assert!((2..=1 + perhaps).contains(&counted), "{counted} after {perhaps}");
        assert_ne!(link.run_of(key.as_bytes()).expect("there is a connection").run_id, before.run_id);
        let there: i64 = ask(&cluster.nodes()[3], &["GET", &key]).await;
        assert_eq!(there, counted);
        expect_from(&mut inbox, &cluster.nodes()[3], "from the one that stands in").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_reach_the_inbox_whichever_node_they_are_sent_from_and_it_is_at() {
    let Some(cluster) = cluster(Durability::Quick, 0).await else { return };
    in_time(async {
        let (link, mut inbox) = open_at(&cluster.url(), hasty()).await;
        let mut been_at: Vec<usize> = Vec::new();
        for round in 1..=3 {
            let mut listens = Vec::new();
            for (at, node) in cluster.nodes().iter().enumerate() {
                expect_from(&mut inbox, node, &format!("{round} from {at}")).await;
                let (_, heard): (String, u64) = ask(node, &["PUBSUB", "NUMSUB", INBOX]).await;
                listens.extend((0 < heard).then_some(at));
            }
            assert_eq!(listens.len(), 1, "{listens:?}");
            been_at.extend(&listens);
            ask::<i64>(&cluster.nodes()[listens[0]], &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
            wait_for("another connection", async || (link.counts().resubscriptions == round).then_some(())).await;
        }
        been_at.dedup();
        assert_eq!(been_at.len(), 3, "it takes them in turn: {been_at:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inbox_does_not_stay_with_a_node_that_is_cut_off() {
    let Some(cluster) = cluster(Durability::Quick, 0).await else { return };
    in_time(async {
        let (_link, mut inbox) = open_at(&cluster.url(), hasty()).await;
        let mut at = None;
        for (number, node) in cluster.nodes().iter().enumerate() {
            let (_, heard): (String, u64) = ask(node, &["PUBSUB", "NUMSUB", INBOX]).await;
            at = at.or((0 < heard).then_some(number));
        }
        let at = &cluster.nodes()[at.expect("it is somewhere")];
        // It forgets all others and its own slots, and knows no process; its connections stay.
        ask::<()>(at, &["FLUSHALL"]).await;
        ask::<()>(at, &["CLUSTER", "RESET", "HARD"]).await;
        assert_eq!(inbox.next().await, InboxEvent::Disconnected);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_cluster_is_named() {
    let Some(mut cluster) = cluster(Durability::Quick, 0).await else { return };
    in_time(async {
        let url = cluster.url();
        assert_eq!(refusal(cluster.nodes()[0].url()).await, OpenError::Cluster);
        let Some(alone) = Server::start(&[]).await else { return };
        let error = refusal(&alone.url().replace("redis://", "redis+cluster://")).await;
        assert!(matches!(error, OpenError::NotCluster { .. }), "{error:?}");
        let nobody = format!("redis+cluster://:secret@127.0.0.1:{}", server::free_port());
        let error = refusal(&nobody).await;
        assert!(matches!(error, OpenError::Unreachable { .. }) && !error.to_string().contains("secret"), "{error:?}");
        // A policy is that of one node, and each is looked at.
        ask::<()>(&cluster.nodes()[2], &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
        assert_eq!(refusal(&url).await, OpenError::Eviction { policy: "allkeys-lru".to_owned() });
        ask::<()>(&cluster.nodes()[2], &["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
        for node in cluster.nodes() {
            ask::<()>(node, &["CONFIG", "SET", "requirepass", "secret"]).await;
        }
        let error = refusal(&url).await;
        assert!(matches!(&error, OpenError::Denied { code, .. } if code == "NOAUTH"), "{error:?}");
        let (link, _inbox) = open_at(&url.replace("://", "://:secret@"), patient()).await;
        for master in 0..3 {
            let key = format!("key:{master}");
            assert_eq!(count(&link, &key).await, Ok(Value::Int(1)));
        }
        drop(link);
        cluster.kill(0);
        let down = async || match Link::open(&url.replace("://", "://:secret@"), INBOX, hasty()).await {
            Err(OpenError::NotReady { code, .. }) => (code == "CLUSTERDOWN").then_some(()),
            _ => None,
        };
        wait_for("the others to say so", down).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_a_cluster_end_with_their_owners() {
    let Some(cluster) = cluster(Durability::Quick, 0).await else { return };
    in_time(async {
        let (link, inbox) = open_at(&cluster.url(), patient()).await;
        let clients = async || {
            let mut clients = 0;
            for node in cluster.nodes() {
                let list: String = ask(node, &["CLIENT", "LIST", "TYPE", "normal"]).await;
                clients += list.lines().filter(|line| !line.contains("cmd=client")).count();
                let list: String = ask(node, &["CLIENT", "LIST", "TYPE", "pubsub"]).await;
                clients += list.lines().count();
            }
            clients
        };
        wait_for("what asked to go", async || (clients().await == 4).then_some(())).await;
        drop((link, inbox));
        wait_for("all of them to go", async || (clients().await == 0).then_some(())).await;
    })
    .await;
}
