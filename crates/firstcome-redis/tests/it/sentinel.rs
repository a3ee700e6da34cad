//! A primary that is replaced.

use super::several::*;
use super::*;
use firstcome_redis::{Fsync, OpenError, Role};
use firstcome_test_servers::{Durability, GONE_SOON, Kind, Options, PRIMARY_NAME, Sentinels, Server as Node};

/// What is said of an address that does not lead anywhere.
async fn refusal(url: &str) -> OpenError {
    let error = Link::open(url, INBOX, hasty()).await.expect_err("it cannot be used");
    assert!(!error.to_string().contains("secret"), "{error}");
    error
}

/// Tells a sentinel that another server is the primary.
async fn tell(trio: &Sentinels, sentinel: usize, primary: &Node) {
    let port = primary.url().rsplit(':').next().expect("a port");
    let sentinel = &trio.sentinels()[sentinel];
    ask::<()>(sentinel, &["SENTINEL", "REMOVE", PRIMARY_NAME]).await;
    ask::<()>(sentinel, &["SENTINEL", "MONITOR", PRIMARY_NAME, "127.0.0.1", port, "2"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_follows_the_primary_when_it_is_replaced() {
    let Some(mut trio) = trio(1, GONE_SOON).await else { return };
    in_time(async {
        let (link, mut inbox) = open_at(&trio.url(), hasty()).await;
        assert_eq!(count(&link, "count").await, Ok(Value::Int(1)));
        wait_for_copy(&trio.servers()[1]).await;
        let before = link.run_of(b"count").expect("there is a connection");
        assert_eq!(trio.kill_primary().await.expect("they know it"), 0);
        assert_eq!(inbox.next().await, InboxEvent::Disconnected);
        let (counted, perhaps) = count_until_done(&link, "count").await;
        assert!((2..=1 + perhaps).contains(&counted), "{counted} after {perhaps}");
        assert_eq!(inbox.next().await, InboxEvent::Connected);
        expect_from(&mut inbox, &trio.servers()[1], "from the new one").await;
        let after = link.run_of(b"count").expect("there is a connection");
        assert!(before.run_id != after.run_id && before.replication_id != after.replication_id, "{before:?} {after:?}");
        let facts = link.servers().await.expect("it says what it is");
        assert_eq!(facts.len(), 1);
        assert_eq!(format!("redis://{}", facts[0].address), trio.servers()[1].url());
        assert_eq!((facts[0].role, facts[0].fsync), (Role::Primary, Some(Fsync::Never)));
        assert_eq!((facts[0].replicas_needed, facts[0].append_only, facts[0].in_cluster), (Some(0), false, false));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_takes_no_more_writes_is_left_for_the_next_one() {
    let Some(trio) = trio(1, GONE_SOON).await else { return };
    in_time(async {
        let (link, _inbox) = open_at(&trio.url(), hasty()).await;
        assert_eq!(count(&link, "count").await, Ok(Value::Int(1)));
        wait_for_copy(&trio.servers()[1]).await;
        ask::<()>(&trio.servers()[0], &["REPLICAOF", "127.0.0.1", &server::free_port().to_string()]).await;
        match count(&link, "count").await {
            Err(LinkError::Unavailable { code, .. }) => assert_eq!(code, "READONLY"),
            other => panic!("{other:?}"),
        }
        let (counted, perhaps) = count_until_done(&link, "count").await;
        assert!((2..=1 + perhaps).contains(&counted), "{counted} after {perhaps}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_on_is_left_when_the_sentinels_name_another() {
    let Some(trio) = trio(0, GONE_SOON).await else { return };
    in_time(async {
        let other = Node::start(Kind::Redis, &Options::new(Durability::Quick)).await.expect("it starts");
        let (link, mut inbox) = open_at(&trio.url(), hasty()).await;
        assert_eq!(count(&link, "count").await, Ok(Value::Int(1)));
        let before = link.run_of(b"count");
        // One of three that is alone with it is not believed, all the same how often it says so.
        tell(&trio, 0, &other).await;
        let before_it_said_so = commands(&trio.sentinels()[0]).await;
        let said_it_often = async || (before_it_said_so + 300 < commands(&trio.sentinels()[0]).await).then_some(());
        wait_for("it to be asked often", said_it_often).await;
        assert_eq!((link.run_of(b"count"), count(&link, "count").await), (before, Ok(Value::Int(2))));
        tell(&trio, 1, &other).await;
        // The old one lives, takes writes and keeps its connections.
        assert_eq!(inbox.next().await, InboxEvent::Disconnected);
        assert_eq!(inbox.next().await, InboxEvent::Connected);
        wait_for("the other one", async || match count(&link, "elsewhere").await {
            Ok(_) => try_ask::<Option<i64>>(other.url(), &["GET", "elsewhere"]).await.expect("it answers"),
            Err(_) => None,
        })
        .await;
        let left: Option<i64> = ask(&trio.servers()[0], &["GET", "count"]).await;
        assert_eq!(left, Some(2));
        expect_from(&mut inbox, &other, "from the other one").await;
    })
    .await;
}

/// How many commands a sentinel has taken: our questions, twenty times a second, and what the others ask it.
async fn commands(sentinel: &Node) -> u64 {
    let stats: String = ask(sentinel, &["INFO", "stats"]).await;
    let figure = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    figure.and_then(|figure| figure.trim().parse().ok()).expect("it counts them")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_are_gone_stop_nothing() {
    let Some(mut trio) = trio(0, GONE_SOON).await else { return };
    in_time(async {
        trio.sentinels_mut()[0].kill();
        let (link, _inbox) = open_at(&trio.url(), hasty()).await;
        assert_eq!(count(&link, "count").await, Ok(Value::Int(1)));
        for sentinel in trio.sentinels_mut() {
            sentinel.kill();
        }
        assert_eq!(count(&link, "count").await, Ok(Value::Int(2)));
        // Also a connection that was lost leads to the server that was named last.
        trio.restart(0).await.expect("it starts again");
        assert!(count_until_done(&link, "count").await.0 < 2, "it is empty");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_sentinels_is_named() {
    let Some(mut trio) = trio(0, GONE_SOON).await else { return };
    in_time(async {
        let url = trio.url();
        let stranger = url.replace("/primary", "/stranger");
        assert_eq!(refusal(&stranger).await, OpenError::UnknownPrimary { name: "stranger".to_owned() });
        let server = trio.servers()[0].url().replace("redis://", "redis+sentinel://user:secret@");
        let error = refusal(&format!("{server}/primary")).await;
        assert!(matches!(error, OpenError::NotSentinel { .. }), "{error:?}");
        assert_eq!(refusal(trio.sentinels()[0].url()).await, OpenError::Sentinel);
        let error = refusal(&url.replace("://", "://nobody:secret@")).await;
        assert!(matches!(error, OpenError::Denied { .. }), "{error:?}");
        for sentinel in trio.sentinels_mut() {
            sentinel.kill();
        }
        let error = refusal(&url).await;
        assert!(matches!(error, OpenError::Unreachable { .. }), "{error:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_servers_have_passwords_of_their_own() {
    let Some(trio) = trio(0, GONE_SOON).await else { return };
    in_time(async {
        ask::<()>(&trio.servers()[0], &["CONFIG", "SET", "requirepass", "inner"]).await;
        for sentinel in trio.sentinels() {
            ask::<()>(sentinel, &["ACL", "SETUSER", "default", "resetpass", ">outer"]).await;
        }
        let url = trio.url().replace("://", "://:inner@");
        let (link, _inbox) = open_at(&format!("{url}?sentinel_password=outer&db=3"), hasty()).await;
        assert_eq!(count(&link, "count").await, Ok(Value::Int(1)));
        let error = refusal(&url).await;
        assert!(matches!(&error, OpenError::Denied { code, .. } if code == "NOAUTH"), "{error:?}");
        let third = format!("{}/3", trio.servers()[0].url().replace("://", "://:inner@"));
        assert_eq!(try_ask::<i64>(&third, &["GET", "count"]).await, Ok(1), "it is in the third database");
    })
    .await;
}
