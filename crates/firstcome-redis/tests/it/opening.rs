//! Servers on which nothing should be kept, and what is no server at all.

use super::*;
use firstcome_redis::{Eviction, MINIMUM_VERSION, OpenError};
use std::io::{Read, Write};
use std::net::TcpListener;
use tokio::time::Instant;

/// Opens what must not open, within the times.
async fn refusal(url: &str) -> OpenError {
    let options = hasty();
    let limit = (options.connect_timeout + options.answer_timeout) * 2 + Duration::from_secs(1);
    let before = Instant::now();
    let error = Link::open(url, INBOX, options).await.expect_err("it cannot be used");
    assert!(before.elapsed() < limit, "{error}: {:?}", before.elapsed());
    error
}

/// Says the same to everybody who says something, and then nothing more.
fn parrot(says: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            let mut heard = [0; 1024];
            // Errors mean that the other side has gone.
            let _ = stream.read(&mut heard).and_then(|_| stream.write_all(says.as_bytes()));
            open.push(stream);
        }
    });
    format!("redis://{address}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_is_none_is_named_as_such() {
    for url in ["", "http://localhost", "redis://", "not a url", "rediss://"] {
        let error = refusal(url).await;
        assert!(matches!(error, OpenError::Address { .. }), "{url}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_process_there_is_unreachable() {
    let error = refusal(&format!("redis://user:secret@127.0.0.1:{}", server::free_port())).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error:?}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_never_answers_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let error = refusal(&format!("redis://{}", listener.local_addr().expect("it has an address"))).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_greets_and_then_says_nothing_is_unreachable() {
    let error = refusal(&parrot("%0\r\n+OK\r\n+OK\r\n")).await;
    assert!(matches!(&error, OpenError::Unreachable { says, .. } if says.contains("connected")), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn something_else_is_not_redis() {
    let error = refusal(&parrot("HTTP/1.1 400 Bad Request\r\n\r\n")).await;
    assert!(matches!(error, OpenError::NotRedis { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_knows_no_hello_is_too_old() {
    let unknown = "-ERR unknown command `HELLO`, with args beginning with: `3`\r\n";
    let error = refusal(&parrot(unknown.repeat(3).leak())).await;
    assert!(matches!(error, OpenError::TooOld { minimum, .. } if minimum == MINIMUM_VERSION), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_denied() {
    let Some(server) = Server::start(&["--requirepass", "secret"]).await else { return };
    let error = refusal(&server.url()).await;
    assert!(matches!(&error, OpenError::Denied { code, .. } if code == "NOAUTH"), "{error:?}");
    let error = refusal(&server.url_as("", "guess")).await;
    assert!(matches!(&error, OpenError::Denied { code, .. } if code == "WRONGPASS"), "{error:?}");
    let (link, _inbox) = Link::open(&server.url_as("", "secret"), INBOX, patient()).await.expect("this is the one");
    assert_eq!(echo(&link, "in").await, Ok(word("in")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_missing_is_denied() {
    let Some(server) = Server::start(&[]).await else { return };
    server.ask(&["ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all"]).await;
    let error = refusal(&server.url_as("deaf", "secret")).await;
    assert!(matches!(&error, OpenError::Denied { code, .. } if code == "NOPERM"), "{error:?}");
    server.ask(&["ACL", "SETUSER", "blind", "on", ">secret", "~*", "&*", "+@all", "-info"]).await;
    let error = refusal(&server.url_as("blind", "secret")).await;
    assert!(matches!(&error, OpenError::Denied { code, .. } if code == "NOPERM"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgets_is_refused_unless_allowed() {
    let Some(server) = Server::start(&["--maxmemory-policy", "allkeys-lru"]).await else { return };
    assert_eq!(refusal(&server.url()).await, OpenError::Eviction { policy: "allkeys-lru".to_owned() });
    let mut options = patient();
    options.allow_eviction = Eviction::Allow;
    let (link, _inbox) = open(&server, options).await;
    assert_eq!(echo(&link, "in").await, Ok(word("in")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_refused() {
    let Some(primary) = Server::start(&[]).await else { return };
    let port = primary.port().to_string();
    let Some(replica) = Server::start(&["--replicaof", "127.0.0.1", &port]).await else { return };
    assert_eq!(refusal(&replica.url()).await, OpenError::ReadOnlyReplica);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_refused() {
    let Some(server) = Server::start(&["--cluster-enabled", "yes"]).await else { return };
    assert_eq!(refusal(&server.url()).await, OpenError::Cluster);
}
