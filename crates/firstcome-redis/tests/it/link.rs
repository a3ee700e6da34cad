//! Scripts on a server that is well, and on one that turns them down.

use super::*;
use firstcome_redis::{Fsync, OpenError};
use std::pin::Pin;
use std::task::Poll;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_runs_with_its_keys_and_arguments() {
    let Some(server) = Server::start(&[]).await else { return };
    static BOTH: Script = Script::new("return {KEYS[1], KEYS[2], ARGV[1], #KEYS, #ARGV}");
    in_time(async {
        let (link, _inbox) = open(&server, patient()).await;
        let answer = link.run(&BOTH, &[b"one", b"two"], &[b"\x00\xff"]).await;
        let expected = [word("one"), word("two"), Value::BulkString(vec![0, 255]), Value::Int(2), Value::Int(1)];
        assert_eq!(answer, Ok(Value::Array(expected.to_vec())));
        assert_eq!(link.counts().requests, 3, "asked, loaded, asked again");
        link.run(&BOTH, &[], &[]).await.expect("it is known by now");
        assert_eq!(link.counts().requests, 4);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_the_server_forgot_is_loaded_and_runs_once() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let (link, _inbox) = open(&server, patient()).await;
        for expected in 1..=3 {
            assert_eq!(link.run(&COUNT, &[b"count"], &[]).await, Ok(Value::Int(expected)));
            server.ask(&["SCRIPT", "FLUSH"]).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_with_an_error_is_told_from_a_server_that_is_unavailable() {
    let Some(server) = Server::start(&[]).await else { return };
    static WRONG: Script = Script::new("this is not Lua");
    static OWN: Script = Script::new("return redis.error_reply('FENCED an older number')");
    static BUG: Script = Script::new("redis.call('SET', KEYS[1], 1) return redis.call('LPUSH', KEYS[1], 1)");
    in_time(async {
        let (link, _inbox) = open(&server, patient()).await;
        // Redis 6 puts the error of a command behind an ERR of the script.
        for (script, expected) in [(&WRONG, "ERR"), (&OWN, "FENCED"), (&BUG, "WRONGTYPE")] {
            match link.run(script, &[b"key"], &[]).await {
                Err(LinkError::Refused { code, says }) if code == "ERR" => {
                    assert!(expected == "ERR" || says.contains(expected), "{says}");
                }
                Err(LinkError::Refused { code, .. }) => assert_eq!(code, expected),
                other => panic!("{}: {other:?}", script.source()),
            }
        }
    })
    .await;
}

/// Runs a script that must be turned down without effect.
async fn assert_unavailable(link: &Link, script: &'static Script, expected: &str) {
    match link.run(script, &[b"key"], &[]).await {
        Err(LinkError::Unavailable { code, says }) => assert_eq!(code, expected, "{says}"),
        other => panic!("{expected}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_is_unavailable() {
    let Some(server) = Server::start(&["--maxmemory", "1mb"]).await else { return };
    static FILL: Script = Script::new("for i = 1, 100 do redis.call('RPUSH', KEYS[1], string.rep('x', 65536)) end");
    static GUARDED: Script =
        Script::new("if redis.call('GET', KEYS[2]) then return 1 end return redis.call('SET', KEYS[1], 1)");
    in_time(async {
        let (link, _inbox) = open(&server, patient()).await;
        // The first may still find room: a script that has begun to write goes on.
        let _ = link.run(&FILL, &[b"filling"], &[]).await;
        assert_unavailable(&link, &COUNT, "OOM").await;
        match link.run(&GUARDED, &[b"key", b"other"], &[]).await {
            Err(LinkError::Unavailable { code, .. }) => assert_eq!(code, "OOM"),
            other => panic!("{other:?}"),
        }
        server.ask(&["CONFIG", "SET", "maxmemory", "0"]).await;
        assert_eq!(link.run(&COUNT, &[b"key"], &[]).await, Ok(Value::Int(1)), "none of them had an effect");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_became_a_replica_is_unavailable_until_it_is_one_again() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let (link, _inbox) = open(&server, hasty()).await;
        link.run(&COUNT, &[b"key"], &[]).await.expect("it takes writes");
        let nowhere = server::free_port().to_string();
        server.ask(&["REPLICAOF", "127.0.0.1", &nowhere]).await;
        assert_unavailable(&link, &COUNT, "READONLY").await;
        assert_unavailable(&link, &COUNT, "READONLY").await;
        assert!(
            matches!(echo(&link, "read").await, Err(LinkError::Unavailable { .. })),
            "a connection to a replica is not used, even for what would pass"
        );
        server.ask(&["REPLICAOF", "NO", "ONE"]).await;
        wait_until_it_works(&link).await;
        link.run(&COUNT, &[b"key"], &[]).await.expect("it takes writes again");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_busy_is_unavailable() {
    let Some(server) = Server::start(&["--busy-reply-threshold", "1"]).await else { return };
    static ENDLESS: Script = Script::new("while true do end");
    in_time(async {
        let (link, _inbox) = open(&server, patient()).await;
        // On the same link the next command would stand behind the script, which is what ordered means.
        let (other, _other_inbox) = open(&server, patient()).await;
        echo(&other, "known").await.expect("it answers");
        let endless = tokio::spawn(async move { link.run(&ENDLESS, &[], &[]).await });
        wait_for("the server to be busy", async || match server.try_ask(&["GET", "x"]).await {
            Err(error) if error.code() == Some("BUSY") => Some(()),
            _ => None,
        })
        .await;
        assert_unavailable(&other, &COUNT, "BUSY").await;
        match Link::open(&server.url(), INBOX, patient()).await {
            Err(OpenError::NotReady { code, .. }) => assert_eq!(code, "BUSY"),
            opened => panic!("{opened:?}"),
        }
        server.ask(&["SCRIPT", "KILL"]).await;
        let ended = endless.await.expect("it does not panic");
        assert!(matches!(ended, Err(LinkError::Refused { .. })), "{ended:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_missing_inside_a_script_is_told_from_one_that_is_missing_before_it() {
    let Some(server) = Server::start(&[]).await else { return };
    static HALF: Script = Script::new("redis.call('SET', KEYS[1], 'written') redis.call('DEL', KEYS[1])");
    in_time(async {
        let user =
            ["on", ">secret", "~mine:*", "&*", "+info", "+subscribe", "+ping", "+evalsha", "+script|load", "+set"];
        server.ask(&[&["ACL", "SETUSER", "limited"], &user[..]].concat()).await;
        let opened = Link::open(&server.url_as("limited", "secret"), INBOX, patient()).await;
        let (link, _inbox) = opened.expect("these rights suffice to open a link");
        match link.run(&HALF, &[b"mine:key"], &[]).await {
            Err(LinkError::Refused { code, .. }) => assert!(code == "NOPERM" || code == "ERR", "{code}"),
            other => panic!("it may have written: {other:?}"),
        }
        assert_eq!(server.text(&["GET", "mine:key"]).await, "written");
        match link.run(&HALF, &[b"yours:key"], &[]).await {
            Err(LinkError::Unavailable { code, .. }) => assert_eq!(code, "NOPERM"),
            other => panic!("it never began: {other:?}"),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_callers_share_two_connections() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let (link, _inbox) = open(&server, patient()).await;
        let before = server.figure("total_connections_received").await;
        let mut callers = JoinSet::new();
        for number in 0..10_000 {
            let link = link.clone();
            callers.spawn(async move {
                let number = number.to_string();
                assert_eq!(echo(&link, &number).await, Ok(word(&number)), "answers find their callers");
            });
        }
        callers.join_all().await;
        assert_eq!(server.figure("total_connections_received").await, before + 1, "only the one that asks");
        // The connection that asked before may not have been taken down yet.
        wait_for("two connections beside the one that asks", async || {
            let clients = server.text(&["CLIENT", "LIST"]).await;
            let others = clients.lines().filter(|line| !line.contains("cmd=client")).count();
            (others == 2).then_some(())
        })
        .await;
        assert_eq!(link.counts().reconnects, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_go_out_in_the_order_of_their_first_polls() {
    let Some(server) = Server::start(&[]).await else { return };
    static APPEND: Script = Script::new("return redis.call('RPUSH', KEYS[1], ARGV[1])");
    in_time(async {
        let (link, _inbox) = open(&server, patient()).await;
        link.run(&APPEND, &[b"warm"], &[b"up"]).await.expect("it is loaded");
        let names: Vec<String> = (0..5_000).map(|number| number.to_string()).collect();
        type Running<'a> = Pin<Box<dyn Future<Output = Result<Value, LinkError>> + 'a>>;
        let link = &link;
        let start = |name: &'_ String| -> Running<'static> {
            let (link, name) = (link.clone(), name.clone());
            Box::pin(async move { link.run(&APPEND, &[b"order"], &[name.as_bytes()]).await })
        };
        let mut running: Vec<Running<'_>> = names.iter().map(start).collect();
        let mut waiting = Vec::new();
        std::future::poll_fn(|context| {
            for mut one in running.drain(..) {
                // Some are answered before the poll that sent them is over.
                match one.as_mut().poll(context) {
                    Poll::Ready(answer) => drop(answer.expect("it runs")),
                    Poll::Pending => waiting.push(one),
                }
            }
            Poll::Ready(())
        })
        .await;
        for one in waiting.into_iter().rev() {
            one.await.expect("it runs");
        }
        let order: Vec<String> =
            redis::from_redis_value(server.ask(&["LRANGE", "order", "0", "-1"]).await).expect("a list");
        assert_eq!(order, names);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_caller_disturbs_no_process() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let (link, _inbox) = open(&server, patient()).await;
        echo(&link, "known").await.expect("it answers");
        let before = link.counts().requests;
        server.freeze();
        let mut callers = Vec::new();
        for number in 0..200 {
            let link = link.clone();
            callers.push(tokio::spawn(async move {
                let number = number.to_string();
                (echo(&link, &number).await, Ok(word(&number)))
            }));
        }
        wait_for("all to be sent", async || (link.counts().requests == before + 200).then_some(())).await;
        for caller in callers.iter().step_by(2) {
            caller.abort();
        }
        server.thaw();
        for (number, caller) in callers.into_iter().enumerate() {
            match caller.await {
                Ok((answer, expected)) => assert_eq!(answer, expected),
                Err(error) => assert!(error.is_cancelled() && number % 2 == 0),
            }
        }
        assert_eq!(echo(&link, "after").await, Ok(word("after")));
        assert_eq!(link.counts().reconnects, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_says_what_it_is_as_far_as_we_may_ask() {
    let arguments =
        ["--maxmemory", "64mb", "--appendonly", "yes", "--appendfsync", "always", "--min-replicas-to-write", "0"];
    let Some(server) = Server::start(&arguments).await else { return };
    in_time(async {
        let rights = ["on", ">secret", "~*", "&*", "+@all", "-config"];
        server.ask(&[&["ACL", "SETUSER", "limited"], &rights[..]].concat()).await;
        let (link, _inbox) = open(&server, patient()).await;
        let all = link.servers().await.expect("it answers");
        let [facts] = &all[..] else { panic!("{all:?}") };
        assert_eq!((facts.append_only, facts.fsync, facts.replicas_needed), (true, Some(Fsync::Always), Some(0)));
        assert_eq!((facts.memory_bytes_max, facts.eviction_policy.as_deref()), (Some(64 << 20), Some("noeviction")));
        assert_eq!(Some(&facts.run), link.run_of(b"any key").as_ref());
        let (limited, _inbox) = several::open_at(&server.url_as("limited", "secret"), patient()).await;
        let all = limited.servers().await.expect("it answers");
        let [less] = &all[..] else { panic!("{all:?}") };
        assert_eq!((less.append_only, less.fsync, less.replicas_needed), (true, None, None));
    })
    .await;
}
