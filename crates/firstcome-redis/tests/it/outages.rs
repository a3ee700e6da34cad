//! Servers that die, stand still, come back, and throw clients out.

use super::*;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Commands that have gone out to a server that does not answer.
async fn in_flight(link: &Link, count: u64) -> JoinSet<Result<Value, LinkError>> {
    let before = link.counts().requests;
    let mut callers = JoinSet::new();
    for _ in 0..count {
        let link = link.clone();
        callers.spawn(async move { echo(&link, "lost").await });
    }
    wait_for("all to be sent", async || (link.counts().requests == before + count).then_some(())).await;
    callers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_in_flight_at_a_kill_are_unknown() {
    let Some(mut server) = Server::start(&[]).await else { return };
    in_time(async {
        let (link, _inbox) = open(&server, patient()).await;
        echo(&link, "known").await.expect("it answers");
        server.freeze();
        let callers = in_flight(&link, 200).await;
        server.kill();
        for answer in callers.join_all().await {
            assert!(matches!(answer, Err(LinkError::Unknown { .. })), "{answer:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_link_whose_server_is_killed_never_counts_what_was_not_answered() {
    let Some(mut server) = Server::start(&[]).await else { return };
    in_time(async {
        let (link, _inbox) = open(&server, hasty()).await;
        let mut callers = JoinSet::new();
        for _ in 0..50 {
            let link = link.clone();
            callers.spawn(async move {
                let mut last = 0;
                loop {
                    match link.run(&COUNT, &[b"count"], &[]).await {
                        Ok(Value::Int(count)) if last < count => last = count,
                        Err(LinkError::Unknown { .. } | LinkError::Unavailable { .. }) => return last,
                        other => panic!("{other:?} after {last}"),
                    }
                }
            });
        }
        wait_for("some work", async || (link.counts().requests > 2_000).then_some(())).await;
        server.kill();
        callers.join_all().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_server_is_away_callers_are_told_in_time_that_nothing_was_done() {
    let Some(mut server) = Server::start(&[]).await else { return };
    in_time(async {
        let (link, _inbox) = open(&server, hasty()).await;
        server.kill();
        wait_for("the end to be noticed", async || match echo(&link, "away").await {
            Err(LinkError::Unavailable { .. }) => Some(()),
            Err(LinkError::Unknown { .. }) => None,
            other => panic!("{other:?}"),
        })
        .await;
        let requests = link.counts().requests;
        let before = Instant::now();
        let mut callers = JoinSet::new();
        for _ in 0..1_000 {
            let link = link.clone();
            callers.spawn(async move { echo(&link, "away").await });
        }
        for answer in callers.join_all().await {
            assert!(
                matches!(&answer, Err(LinkError::Unavailable { code, .. }) if code == "NOTCONNECTED"),
                "{answer:?}"
            );
        }
        assert!(before.elapsed() < hasty().connect_timeout + Duration::from_secs(5), "{:?}", before.elapsed());
        assert_eq!(link.counts().requests, requests, "none was handed over");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_waits_for_the_server_is_served_when_it_is_back() {
    let Some(mut server) = Server::start(&[]).await else { return };
    in_time(async {
        let (link, _inbox) = open(&server, patient()).await;
        echo(&link, "known").await.expect("it answers");
        server.kill();
        server.restart().await;
        wait_until_it_works(&link).await;
        assert_eq!(link.run(&COUNT, &[b"count"], &[]).await, Ok(Value::Int(1)), "it is empty, the script too is gone");
        assert!(link.counts().reconnects >= 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_was_thrown_out_recovers() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let (link, _inbox) = open(&server, patient()).await;
        for round in 1..=3 {
            server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await;
            wait_for("the link to come back", async || (link.counts().reconnects == round).then_some(())).await;
            assert_eq!(echo(&link, "back").await, Ok(word("back")));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_leaves_the_outcome_unknown_and_works_again_after_it() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let (link, _inbox) = open(&server, hasty()).await;
        link.run(&COUNT, &[b"count"], &[]).await.expect("it runs");
        server.freeze();
        let before = Instant::now();
        let answer = link.run(&COUNT, &[b"count"], &[]).await;
        assert!(matches!(answer, Err(LinkError::Unknown { .. })), "{answer:?}");
        assert!(before.elapsed() < hasty().answer_timeout + Duration::from_secs(5), "{:?}", before.elapsed());
        let answer = link.run(&COUNT, &[b"count"], &[]).await;
        assert!(matches!(answer, Err(LinkError::Unavailable { .. })), "the connection was given up: {answer:?}");
        server.thaw();
        wait_until_it_works(&link).await;
        // What was unknown may have run or not; what was unavailable has not.
        let count = link.run(&COUNT, &[b"count"], &[]).await;
        assert!(matches!(count, Ok(Value::Int(2 | 3))), "{count:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_is_unavailable_until_it_has_loaded() {
    let Some(mut server) = Server::start(&[]).await else { return };
    in_time(async {
        let (link, _inbox) = open(&server, hasty()).await;
        static FILL: Script =
            Script::new("for i = 1, 3000 do redis.call('SET', 'key:' .. i, string.rep('x', 100)) end");
        link.run(&FILL, &[], &[]).await.expect("it runs");
        server.ask(&["SAVE"]).await;
        // A millisecond for each key.
        server.start_again_with(&["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"]);
        let mut loading = false;
        wait_for("the server to load and be ready", async || match echo(&link, "ready").await {
            Ok(_) => Some(()),
            Err(LinkError::Unavailable { code, .. }) => {
                loading |= code == "LOADING";
                None
            }
            Err(LinkError::Unknown { .. }) => None,
            other => panic!("{other:?}"),
        })
        .await;
        assert!(loading, "nobody was told that it loads");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_came_back_as_something_else_is_not_used() {
    let Some(mut server) = Server::start(&[]).await else { return };
    in_time(async {
        let (link, _inbox) = open(&server, hasty()).await;
        server.start_again_with(&["--maxmemory-policy", "allkeys-lru"]);
        let says = wait_for("the look at the server", async || match echo(&link, "other").await {
            Err(LinkError::Unavailable { says, .. }) if says.contains("allkeys-lru") => Some(says),
            Err(_) => None,
            Ok(_) => panic!("a server that forgets was used"),
        })
        .await;
        assert!(says.contains("noeviction"), "{says}");
        server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
        wait_until_it_works(&link).await;
    })
    .await;
}
