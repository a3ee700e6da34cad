//! Peers that take their time: each phase of a connection has a deadline, and who meets none is closed.

use crate::in_time;
use crate::running::{Peer, Running, claim, patient, request, soon};
use crate::service::{PATIENCE, SERVICE};
use firstcome::edge::Stopwatch;
use firstcome_server::Limits;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LIMIT: Duration = Duration::from_secs(1);
/// A deadline is looked at twice a second, and a busy machine is late.
const GRACE: Duration = Duration::from_secs(5);

/// The peer is closed after the limit, and not much later.
async fn is_closed_in_time(peer: &mut Peer) {
    let watch = Stopwatch::start();
    assert!(peer.closed().await.is_empty(), "closed without a word");
    let elapsed = watch.elapsed();
    assert!((LIMIT / 2..LIMIT + GRACE).contains(&elapsed), "{elapsed:?}");
}

#[tokio::test]
async fn a_silent_or_idle_connection_is_closed() {
    // A peer that has sent nothing yet has no longer than for a head, and one between two requests has its own time.
    for (limits, sends) in
        [(Limits { head: LIMIT, ..patient() }, None), (Limits { idle: LIMIT, ..patient() }, Some("/healthz"))]
    {
        let running = Running::start(limits).await;
        let mut peer = running.connect().await;
        if let Some(path) = sends {
            peer.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")).await;
            assert_eq!(peer.answer().await.status, 200);
        }
        in_time(is_closed_in_time(&mut peer)).await;
        assert_eq!(running.figure("firstcome_connections_overdue_total").await, 1);
        running.is_unharmed().await;
    }
}

#[tokio::test]
async fn a_head_that_trickles_in_is_not_waited_for() {
    let running = Running::start(Limits { head: LIMIT, ..patient() }).await;
    let (mut stuck, mut second) = (running.connect().await, running.connect().await);
    stuck.send("GET /healthz HTTP/1.1\r\nhost:").await;
    second.send("GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(second.answer().await.status, 200);
    second.send("G").await;
    let trickle = async {
        let peer = running.connect().await;
        let (mut read, mut write) = peer.stream.into_split();
        let watch = Stopwatch::start();
        soon(async {
            // One byte at a time, always before the deadline: it must run from the first byte. Between two bytes it
            // listens whether the connection ends.
            let mut told = Vec::new();
            while write.write_all(b"x").await.is_ok() {
                let end = tokio::time::timeout(Duration::from_millis(100), read.read_to_end(&mut told));
                if end.await.is_ok() {
                    break;
                }
            }
        })
        .await;
        assert!(watch.elapsed() < LIMIT + GRACE, "{:?}", watch.elapsed());
    };
    in_time(async { tokio::join!(is_closed_in_time(&mut stuck), is_closed_in_time(&mut second), trickle) }).await;
    assert_eq!(running.figure("firstcome_connections_overdue_total").await, 3);
    running.is_unharmed().await;
}

#[tokio::test]
async fn a_body_that_trickles_in_is_told_so_and_has_no_effect() {
    let running = Running::start(Limits { body: LIMIT, ..patient() }).await;
    running.service.make("launch", json!({"limit": 9})).await;
    let (mut stuck, mut trickle) = (running.connect().await, running.connect().await);
    let claim = claim("ann");
    let (head, body) = claim.split_at(claim.find("\r\n\r\n").expect("a head") + 4);
    stuck.send(head).await;
    trickle.send(head).await;
    let drip = async {
        for byte in body.as_bytes() {
            trickle.send([*byte]).await;
            // Slow, but no longer than until it is told something.
            if tokio::time::timeout(Duration::from_millis(200), trickle.stream.readable()).await.is_ok() {
                break;
            }
        }
        trickle.answer().await.refused(408, "request_timeout");
        trickle.closed().await
    };
    let stuck = async {
        let watch = Stopwatch::start();
        stuck.answer().await.refused(408, "request_timeout");
        assert!(watch.elapsed() < LIMIT + GRACE);
        stuck.closed().await
    };
    let (dripped, stuck) = in_time(async { tokio::join!(drip, stuck) }).await;
    assert!(dripped.is_empty() && stuck.is_empty(), "the rest of the body is no request");
    assert_eq!(running.service.issued("launch").await, 0);
    running.is_unharmed().await;
}

#[tokio::test]
async fn a_refusal_does_not_wait_for_the_body_that_it_does_not_need() {
    let running = Running::start(patient()).await;
    let mut peer = running.connect().await;
    let head = "PUT /v1/coupons/launch HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
    peer.send(format!("{head}content-length: 1000\r\n\r\n{{")).await;
    peer.answer().await.refused(401, "unauthorized");
    assert!(peer.closed().await.is_empty(), "what else comes is no request");
    running.is_unharmed().await;
}

/// Waits until a figure has a value.
async fn until(running: &Running, name: &str, wanted: u64) {
    let reached = async {
        let mut looks = tokio::time::interval(Duration::from_millis(20));
        while running.figure(name).await != wanted {
            looks.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("{name} does not become {wanted}"));
}

#[tokio::test]
async fn a_peer_that_does_not_read_its_answers_is_closed() {
    let running = Running::start(Limits { write: LIMIT, ..patient() }).await;
    let peer = running.connect().await;
    let (mut read, mut write) = peer.stream.into_split();
    let requests = "GET /docs HTTP/1.1\r\nhost: a\r\n\r\n".repeat(3_000);
    // Asks for far more than all buffers on the way hold, and reads none of it.
    let ask = async { drop(write.write_all(requests.as_bytes()).await) };
    let closed = until(&running, "firstcome_connections_overdue_total", 1);
    in_time(async { tokio::join!(ask, closed) }).await;
    until(&running, "firstcome_connections", 0).await;
    drop(soon(tokio::io::copy(&mut read, &mut tokio::io::sink())).await);
    running.is_unharmed().await;
}

#[tokio::test]
async fn a_peer_that_reads_its_answers_slowly_is_closed_when_the_whole_takes_too_long() {
    // Every read is progress, so the deadline of a single write is never met.
    let running = Running::start(Limits { send: LIMIT, ..patient() }).await;
    let peer = running.connect().await;
    let (mut read, mut write) = peer.stream.into_split();
    let requests = "GET /docs HTTP/1.1\r\nhost: a\r\n\r\n".repeat(3_000);
    let ask = async { drop(write.write_all(requests.as_bytes()).await) };
    let sip = async {
        let mut mouthful = vec![0; 64 * 1024];
        let mut pace = tokio::time::interval(Duration::from_millis(50));
        while matches!(read.read(&mut mouthful).await, Ok(1..)) {
            pace.tick().await;
        }
    };
    let watch = Stopwatch::start();
    in_time(async { tokio::join!(ask, sip) }).await;
    assert!(LIMIT / 2 < watch.elapsed(), "it was closed before its time: {:?}", watch.elapsed());
    assert_eq!(running.figure("firstcome_connections_overdue_total").await, 1);
    running.is_unharmed().await;
}

pub(crate) async fn a_connection_over_the_limit_is_told_so() {
    let running = Running::start(Limits { connections_max: 2, ..patient() }).await;
    let mut peers = [running.connect().await, running.connect().await];
    // In the middle of a request: an idle connection would make room.
    for peer in &mut peers {
        peer.send("GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(peer.answer().await.status, 200);
        peer.send("GET /healthz HTTP/1.1\r\nhost: a\r\n").await;
    }
    for refused in 1..=5 {
        let mut peer = running.connect().await;
        if refused % 2 == 0 {
            // What came and is not read must not cost the answer.
            peer.send("GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await;
        }
        let answer = peer.answer().await.refused(503, "overloaded");
        assert_eq!((answer.header("connection"), answer.header("retry-after")), (Some("close"), Some("1")));
        assert!(peer.closed().await.is_empty());
        assert_eq!(running.figure("firstcome_connections_refused_total").await, refused);
    }
    // A place that becomes free is given again.
    let [mut first, second] = peers;
    drop(second);
    until(&running, "firstcome_connections", 1).await;
    running.is_unharmed().await;
    first.send("\r\n").await;
    assert_eq!(first.answer().await.status, 200);
}

#[tokio::test]
async fn many_peers_that_say_nothing_hold_no_client_up() {
    let running = Running::start(Limits { connections_max: 200, ..patient() }).await;
    running.service.make("launch", json!({"limit": 9})).await;
    let mut silent = Vec::new();
    for number in 0..150 {
        let mut peer = running.connect().await;
        if number % 2 == 0 {
            peer.send("POST /v1/coupons/launch/claims HTTP/1.1\r\ncontent-le").await;
        }
        silent.push(peer);
    }
    running.exchange(claim("ann")).await.is(201);
    running.is_unharmed().await;
    drop(silent);
    until(&running, "firstcome_connections", 0).await;
}

/// After a refusal that came before the body the next request on the connection failed in over half of the runs of a plain client.
#[tokio::test]
async fn a_connection_outlives_a_refusal_that_came_before_the_body() {
    let running = Running::start(patient()).await;
    running.service.make("launch", json!({"limit": 9})).await;
    let json = "content-type: application/json\r\n";
    let key = format!("authorization: Bearer {SERVICE}\r\n");
    let rows = [
        ("POST /v1/coupons/launch/claims", json.to_owned(), 401),
        ("PUT /v1/coupons/launch", format!("{json}{key}"), 403),
        ("POST /v1/nothing", json.to_owned(), 404),
        ("POST /v1/coupons/launch", json.to_owned(), 405),
        ("POST /v1/coupons/launch/claims", format!("{key}content-type: text/plain\r\n"), 415),
        ("POST /v1/coupons/-/claims", format!("{json}{key}"), 400),
    ];
    for (line, headers, status) in rows {
        let whole = request(line, &headers, r#"{"user":"ann"}"#);
        let (head, body) = whole.split_at(whole.find("\r\n\r\n").expect("a head") + 4);
        let mut peer = running.connect().await;
        for _ in 0..3 {
            peer.send(head).await;
            peer.send(body).await;
            let answer = peer.answer().await;
            assert_eq!((answer.status, answer.header("connection")), (status, None), "{line}");
        }
        peer.send("GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(peer.answer().await.status, 200, "{line}");
    }
    // A body that is too large, or that the client holds back, is not read: the answer says that the connection ends.
    for more in
        ["content-length: 70000\r\n", "content-length: 14\r\nexpect: 100-continue\r\n", "content-length: 14\r\n"]
    {
        let mut peer = running.connect().await;
        peer.send(format!("POST /v1/coupons/launch/claims HTTP/1.1\r\nhost: a\r\n{json}{more}\r\n")).await;
        let answer = peer.answer().await;
        assert_eq!((answer.status, answer.header("connection")), (401, Some("close")), "{more}");
        peer.closed().await;
    }
    running.is_unharmed().await;
}

/// A client that sent its request and `shutdown` the connection got no answer, though its claim was issued.
#[tokio::test]
async fn a_client_that_ends_its_side_may_get_no_answer_and_its_key_tells_what_became_of_the_call() {
    let running = Running::start(patient()).await;
    running.service.make("launch", json!({"limit": 20})).await;
    for serial in 1..=20 {
        let key = format!("authorization: Bearer {SERVICE}\r\ncontent-type: application/json\r\n");
        let headers = format!("{key}idempotency-key: order-{serial}\r\n");
        let claim =
            request("POST /v1/coupons/launch/claims", &headers, &json!({"user": format!("u{serial}")}).to_string());
        let mut peer = running.connect().await;
        peer.send(&claim).await;
        peer.stream.shutdown().await.expect("it is open");
        peer.closed().await;
        let told = running.exchange(&claim).await.is(201).json();
        assert_eq!(told["serial"], serial, "one claim each, and none besides");
    }
    running.is_unharmed().await;
}
