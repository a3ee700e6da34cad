//! Each kind of server: it starts, it keeps what it must keep, and it ends.

use firstcome_servers::{Durability, Kind, Options, Server, ServerError};
use rustix::process::{Pid, test_kill_process};
use sqlx::{Connection, MySqlConnection, PgConnection};
use std::future::Future;
use std::time::Duration;

/// Stops a test that hangs.
async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), test).await.expect("the test hangs")
}

fn is_there(kind: Kind) -> bool {
    #[expect(clippy::disallowed_methods, reason = "the one place where these tests are set up from outside")]
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let there = Server::is_installed(kind);
    assert!(there || !in_ci, "CI needs {kind}");
    if !there {
        println!("skipped: this machine has no {kind}");
    }
    there
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
    }
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
async fn a_server_leaves_nothing_where_it_was() {
    for kind in [Kind::Postgres, Kind::MariaDb, Kind::Redis] {
        if is_there(kind) {
            let parent = tempfile::tempdir().expect("a directory");
            // Root runs PostgreSQL as somebody else, who must be able to get there.
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
