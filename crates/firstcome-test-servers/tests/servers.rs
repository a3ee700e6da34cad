//! Each kind of server: it starts, it keeps what it must keep, and it ends.

use firstcome_test_servers::{
    Cluster, Durability, EtcdCluster, GONE_SOON, Kind, Options, SLOTS, Sentinels, Server, ServerError, machine_has,
};
use rustix::process::{Pid, test_kill_process};
use sqlx::{Connection, MySqlConnection, PgConnection};
use std::future::Future;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Stops a test that hangs.
async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), test).await.expect("the test hangs")
}

fn is_there(kind: Kind) -> bool {
    machine_has(&kind.to_string(), Server::is_installed(kind))
}

async fn start(kind: Kind, durability: Durability) -> Server {
    Server::start(kind, &Options::new(durability)).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Writes one thing, or reads it.
async fn say(server: &Server, write: bool) -> Option<i64> {
    let (make, add, look) =
        ("CREATE TABLE thing (n BIGINT)", "INSERT INTO thing VALUES (7)", "SELECT CAST(SUM(n) AS SIGNED) FROM thing");
    match server.kind() {
        Kind::Postgres => {
            let mut connection = PgConnection::connect(server.url()).await.expect("it answers");
            if write {
                for statement in [make, add] {
                    sqlx::query(statement).execute(&mut connection).await.expect("it writes");
                }
            }
            let look = "SELECT SUM(n)::bigint FROM thing";
            sqlx::query_scalar(look).fetch_one(&mut connection).await.expect("it reads")
        }
        Kind::MariaDb => {
            let mut connection = MySqlConnection::connect(server.url()).await.expect("it answers");
            if write {
                for statement in [make, add] {
                    sqlx::query(statement).execute(&mut connection).await.expect("it writes");
                }
            }
            sqlx::query_scalar(look).fetch_one(&mut connection).await.expect("it reads")
        }
        Kind::Redis => {
            let client = redis::Client::open(server.url()).expect("an address");
            let mut connection = client.get_multiplexed_async_connection().await.expect("it answers");
            if write {
                redis::cmd("SET").arg("thing").arg(7).query_async::<()>(&mut connection).await.expect("it writes");
            }
            redis::cmd("GET").arg("thing").query_async(&mut connection).await.expect("it reads")
        }
        Kind::Etcd => {
            // Its door for HTTP takes keys and values as base64: `thing` and `7`.
            if write {
                ask_http(server, "put", r#"{"key":"dGhpbmc=","value":"Nw=="}"#).await;
            }
            let found = ask_http(server, "range", r#"{"key":"dGhpbmc="}"#).await;
            found.contains(r#""value":"Nw==""#).then_some(7)
        }
    }
}

async fn ask_http(server: &Server, what: &str, body: &str) -> String {
    let host = server.url().trim_start_matches("etcd://");
    let mut connection = TcpStream::connect(host).await.expect("it answers");
    let asked = format!("POST /v3/kv/{what} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    connection.write_all(asked.as_bytes()).await.expect("it listens");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.expect("it answers");
    answer
}

fn runs(process: u32) -> bool {
    let id = Pid::from_raw(i32::try_from(process).expect("a process id")).expect("a process id");
    test_kill_process(id).is_ok()
}

async fn keeps_and_ends(kind: Kind) {
    if !is_there(kind) {
        return;
    }
    let mut server = start(kind, Durability::Durable).await;
    let mut other = start(kind, Durability::Quick).await;
    assert_ne!(server.url(), other.url());
    assert_eq!(say(&server, true).await, Some(7));
    let url = server.url().to_owned();
    for _ in 0..2 {
        server.kill();
        assert!(!runs(server.process()));
        server.restart().await.expect("it starts again");
        assert_eq!((server.url(), say(&server, false).await), (url.as_str(), Some(7)));
    }
    other.restart().await.expect("a running one starts again too");
    if matches!(kind, Kind::Redis | Kind::Etcd) {
        server.restart_empty().await.expect("it starts again");
        assert_eq!((server.url(), say(&server, false).await), (url.as_str(), None), "something is left");
    } else {
        server.restart_empty().await.expect("it starts again");
        assert_eq!((server.url(), say(&server, true).await), (url.as_str(), Some(7)), "something is left");
    }
    let ids = [server.process(), other.process()];
    assert!(ids.into_iter().all(runs));
    drop((server, other));
    assert!(!ids.into_iter().any(runs), "a server outlives its value");
}

#[tokio::test]
async fn postgres_keeps_what_it_acknowledged_and_ends_with_its_value() {
    in_time(keeps_and_ends(Kind::Postgres)).await;
}

#[tokio::test]
async fn mariadb_keeps_what_it_acknowledged_and_ends_with_its_value() {
    in_time(keeps_and_ends(Kind::MariaDb)).await;
}

#[tokio::test]
async fn redis_keeps_what_it_acknowledged_and_ends_with_its_value() {
    in_time(keeps_and_ends(Kind::Redis)).await;
}

#[tokio::test]
async fn etcd_keeps_what_it_acknowledged_and_ends_with_its_value() {
    in_time(keeps_and_ends(Kind::Etcd)).await;
}

#[tokio::test]
async fn a_restored_server_has_what_its_copy_has_and_nothing_later() {
    for kind in [Kind::Postgres, Kind::MariaDb, Kind::Redis, Kind::Etcd] {
        if is_there(kind) {
            in_time(async {
                let mut server = start(kind, Durability::Durable).await;
                let (url, before) = (server.url().to_owned(), server.keep_copy().await.expect("a copy"));
                assert!(!runs(server.process()), "{kind}: a server still writes while its files are copied");
                server.restart().await.expect("it starts again");
                assert_eq!(say(&server, true).await, Some(7));
                let after = server.keep_copy().await.expect("a copy");
                server.restore(&before).await.expect("it starts again");
                if matches!(kind, Kind::Redis | Kind::Etcd) {
                    assert_eq!(say(&server, false).await, None, "{kind}: something is left");
                } else {
                    // It fails if the table is there.
                    assert_eq!(say(&server, true).await, Some(7), "{kind}: something is left");
                }
                server.restore(&after).await.expect("a running one too");
                assert_eq!((server.url(), say(&server, false).await), (url.as_str(), Some(7)), "{kind}");
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_server_leaves_nothing_where_it_was() {
    for kind in [Kind::Postgres, Kind::MariaDb, Kind::Redis, Kind::Etcd] {
        if is_there(kind) {
            let parent = tempfile::tempdir().expect("a directory");
            // Root runs PostgreSQL as another process, who must be able to get there.
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(parent.path(), mode).expect("it is ours");
            let entries = || std::fs::read_dir(parent.path()).expect("it is there").count();
            let options = Options::new(Durability::Quick).within(parent.path());
            let server = in_time(Server::start(kind, &options)).await.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(entries(), 1, "{kind} is not where it was wanted");
            drop(server);
            assert_eq!(entries(), 0, "{kind} leaves something");
        }
    }
}

#[tokio::test]
async fn a_server_that_does_not_start_says_why() {
    for (kind, setting, says) in [
        (Kind::Postgres, "no_such_setting=1", "no_such_setting"),
        (Kind::MariaDb, "no-such-setting=1", "no-such-setting"),
        (Kind::Redis, "no-such-setting=1", "no-such-setting"),
        (Kind::Etcd, "no-such-setting=1", "no-such-setting"),
    ] {
        if is_there(kind) {
            let mut options = Options::new(Durability::Quick);
            options.settings.push(setting.to_owned());
            let told = in_time(Server::start(kind, &options)).await.map(drop);
            let Err(ServerError::Start { says: said, .. }) = &told else { panic!("{kind}: {told:?}") };
            assert!(said.contains(says), "{kind}: {said}");
        }
    }
}

/// Looks again and again until it is so, at most for as long as a server may take to start.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let mut look = tokio::time::interval(Duration::from_millis(2));
    let looked = async {
        while !is_so().await {
            look.tick().await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(60), looked).await;
    assert!(told.is_ok(), "timed out waiting for {what}");
}

/// Sends a command, its words parted by spaces, to a server of Redis.
async fn ask<T: redis::FromRedisValue>(server: &Server, command: &str) -> redis::RedisResult<T> {
    let mut words = command.split(' ');
    let mut packed = redis::cmd(words.next().unwrap_or_default());
    packed.arg(words.collect::<Vec<_>>());
    let mut connection = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
    packed.query_async(&mut connection).await
}

#[tokio::test]
async fn sentinels_make_a_replica_the_primary_when_the_primary_is_killed() {
    if !is_there(Kind::Redis) {
        return;
    }
    in_time(async {
        let mut trio = Sentinels::start(&Options::new(Durability::Quick), 1, GONE_SOON).await.expect("they start");
        assert!(trio.url().ends_with("/primary") && trio.url().matches(',').count() == 2, "{}", trio.url());
        assert_eq!(trio.primary().await.expect("they know it"), 0);
        ask::<()>(&trio.servers()[0], "SET thing 7").await.expect("it writes");
        let replica = &trio.servers()[1];
        until("the replica to have it", async || ask(replica, "GET thing").await == Ok(Some(7))).await;
        assert_eq!(trio.kill_primary().await.expect("they know it"), 0);
        assert_eq!(trio.wait_for_another(0).await.expect("they agree"), 1);
        assert_eq!(ask(&trio.servers()[1], "GET thing").await, Ok(7));
        trio.restart(0).await.expect("it starts again");
        let ids: Vec<u32> = trio.servers().iter().chain(trio.sentinels()).map(Server::process).collect();
        assert!(ids.len() == 5 && ids.iter().copied().all(runs));
        drop(trio);
        assert!(!ids.into_iter().any(runs), "a server outlives its value");
    })
    .await;
}

#[tokio::test]
async fn a_cluster_answers_ask_while_a_slot_moves_and_moved_afterwards() {
    if !is_there(Kind::Redis) {
        return;
    }
    in_time(async {
        let mut cluster = Cluster::start(&Options::new(Durability::Durable), 0).await.expect("it starts");
        let slot: u16 = ask(&cluster.nodes()[0], "CLUSTER KEYSLOT thing").await.expect("it counts");
        let source = usize::from(slot) * 3 / usize::from(SLOTS);
        let target = (source + 1) % 3;
        for key in ["{thing}one", "{thing}two"] {
            ask::<()>(&cluster.nodes()[source], &format!("SET {key} 7")).await.expect("it is at home here");
        }
        let code = async |node: &Server, key: &str| {
            let told = ask::<Option<i64>>(node, &format!("GET {key}")).await;
            told.map_err(|error| error.code().unwrap_or_default().to_owned())
        };
        cluster.begin_move(slot, source, target).await.expect("it begins");
        cluster.move_key("{thing}one", source, target).await.expect("it moves");
        assert_eq!(code(&cluster.nodes()[source], "{thing}one").await, Err("ASK".to_owned()));
        assert_eq!(code(&cluster.nodes()[source], "{thing}two").await, Ok(Some(7)));
        cluster.end_move(slot, source, target).await.expect("it ends");
        assert_eq!(code(&cluster.nodes()[source], "{thing}two").await, Err("MOVED".to_owned()));
        assert_eq!(code(&cluster.nodes()[target], "{thing}two").await, Ok(Some(7)));
        cluster.wait_until_served(slot, target).await.expect("all hear of it");
        cluster.kill(target);
        cluster.restart(target).await.expect("it starts again");
        cluster.wait_until_well().await.expect("it is one of them again");
        assert_eq!(code(&cluster.nodes()[target], "{thing}two").await, Ok(Some(7)), "it kept its slots and its files");
        let ids: Vec<u32> = cluster.nodes().iter().map(Server::process).collect();
        drop(cluster);
        assert!(!ids.into_iter().any(runs), "a server outlives its value");
    })
    .await;
}

#[tokio::test]
async fn a_replica_takes_the_slots_of_a_master_that_was_killed() {
    if !is_there(Kind::Redis) {
        return;
    }
    in_time(async {
        let mut cluster = Cluster::start(&Options::new(Durability::Quick), 1).await.expect("it starts");
        assert_eq!(cluster.nodes().len(), 6);
        cluster.wait_until_served(0, 0).await.expect("it is so from the start");
        cluster.kill(0);
        cluster.wait_until_served(0, 3).await.expect("the replica stands in");
        cluster.wait_until_well().await.expect("nothing is missing");
    })
    .await;
}

#[tokio::test]
async fn a_cluster_of_etcd_goes_on_without_its_leader_and_takes_it_back() {
    if !is_there(Kind::Etcd) {
        return;
    }
    in_time(async {
        let mut cluster = EtcdCluster::start(&Options::new(Durability::Quick)).await.expect("it starts");
        assert_eq!((cluster.members().len(), cluster.url().matches(',').count()), (3, 2));
        let first = cluster.leader().await.expect("one leads");
        assert_eq!(say(&cluster.members()[(first + 1) % 3], true).await, Some(7));
        cluster.kill(first);
        let second = cluster.leader().await.expect("another one leads");
        assert_ne!(first, second);
        assert_eq!(say(&cluster.members()[second], false).await, Some(7), "it has what the other one acknowledged");
        cluster.restart(first).await.expect("it starts again");
        assert_eq!(say(&cluster.members()[first], false).await, Some(7));
        let ids: Vec<u32> = cluster.members().iter().map(Server::process).collect();
        drop(cluster);
        assert!(!ids.into_iter().any(runs), "a server outlives its value");
    })
    .await;
}
