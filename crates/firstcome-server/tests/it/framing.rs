//! Bytes that are not HTTP, or that two readers could take for different requests.

use crate::running::{Running, claim, patient, request};
use crate::service::SERVICE;
use serde_json::json;

async fn running() -> Running {
    let running = Running::start(patient()).await;
    running.service.make("launch", json!({"limit": 9})).await;
    running
}

/// The head of a claim by a service key, without the headers that say how long the body is.
fn claim_head() -> String {
    format!(
        "POST /v1/coupons/launch/claims HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {SERVICE}\r\n\
         content-type: application/json\r\n"
    )
}

#[tokio::test]
async fn what_is_not_http_is_answered_400_or_not_at_all_and_closed() {
    let running = running().await;
    let garbage: [&[u8]; 17] = [
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\nhost: a\r\n\r\n",
        b"GET /healthz HTTP/1.1 x\r\nhost: a\r\n\r\n",
        b"G\xC3\x89T /healthz HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /heal thz HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost : a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: a\r\n folded: b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: a\0b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: a\rb\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nx\r\n\r\n",
        b"* * *\r\n\r\n",
    ];
    for bytes in garbage {
        let mut peer = running.connect().await;
        peer.send(bytes).await;
        let answer = peer.try_answer().await.map(|answer| answer.status);
        assert!([None, Some(400)].contains(&answer), "{answer:?} for {}", String::from_utf8_lossy(bytes));
        assert!(peer.closed().await.is_empty());
    }
    running.is_unharmed().await;
}

#[tokio::test]
async fn a_body_of_two_lengths_is_never_two_requests() {
    let running = running().await;
    let smuggled = claim("smuggled");
    let (body, chunk) = ("{\"user\":\"ann\"}", "e\r\n{\"user\":\"ann\"}\r\n0\r\n\r\n");
    for (lengths, body) in [
        ("content-length: 14\r\ncontent-length: 200\r\n", body),
        ("content-length: 200\r\ncontent-length: 14\r\n", body),
        ("content-length: 14, 200\r\n", body),
        ("content-length: +14\r\n", body),
        ("content-length: -14\r\n", body),
        ("content-length: 0x0e\r\n", body),
        ("content-length: 99999999999999999999\r\n", body),
        ("content-length: \r\n", body),
        ("transfer-encoding: identity\r\n", body),
        ("transfer-encoding: chunked, identity\r\n", chunk),
        ("transfer-encoding: xchunked\r\n", chunk),
        ("transfer-encoding: gzip\r\ncontent-length: 14\r\n", body),
    ] {
        let mut peer = running.connect().await;
        peer.send(format!("{}{lengths}\r\n{body}{smuggled}", claim_head())).await;
        assert_eq!(peer.answer().await.status, 400, "{lengths}");
        assert!(peer.closed().await.is_empty(), "{lengths}");
        assert_eq!(running.service.issued("launch").await, 0, "{lengths}");
    }
    running.is_unharmed().await;
}

#[tokio::test]
async fn chunks_win_over_a_length_and_the_connection_ends_after_them() {
    let running = running().await;
    // A client that stands in front may have taken the length: nothing that follows on this connection must be trusted.
    for (at, lengths) in
        ["content-length: 5\r\ntransfer-encoding: chunked\r\n", "transfer-encoding: chunked\r\ncontent-length: 5\r\n"]
            .iter()
            .enumerate()
    {
        let mut peer = running.connect().await;
        let chunk = format!("f\r\n{{\"user\":\"ann{at}\"}}\r\n0\r\n\r\n");
        peer.send(format!("{}{lengths}\r\n{chunk}{}", claim_head(), claim("smuggled"))).await;
        assert_eq!(peer.answer().await.is(201).text("user"), format!("ann{at}"));
        assert!(peer.closed().await.is_empty());
    }
    assert_eq!(running.service.issued("launch").await, 2);
    running.service.claim_of("launch", "smuggled").await.refused(404, "unknown_claim");
}

#[tokio::test]
async fn chunks_that_are_none_have_no_effect() {
    let running = running().await;
    for chunk in [
        "x\r\n{\"user\":\"ann\"}\r\n0\r\n\r\n",
        "-e\r\n{\"user\":\"ann\"}\r\n0\r\n\r\n",
        "fffffffffffffffff\r\n{\"user\":\"ann\"}\r\n0\r\n\r\n",
        "e\r\n{\"user\":\"ann\"}XX0\r\n\r\n",
        "5\r\n{\"user\":\"ann\"}\r\n0\r\n\r\n",
    ] {
        let mut peer = running.connect().await;
        peer.send(format!("{}transfer-encoding: chunked\r\n\r\n{chunk}", claim_head())).await;
        let status = peer.try_answer().await.map(|answer| answer.status);
        assert!([None, Some(400)].contains(&status), "{status:?} for {chunk}");
        assert!(peer.closed().await.is_empty(), "{chunk}");
    }
    assert_eq!(running.service.issued("launch").await, 0);
    running.is_unharmed().await;
}

#[tokio::test]
async fn a_head_has_at_most_32_kibibytes_and_100_headers() {
    let running = running().await;
    let fits = format!("GET /healthz HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "x".repeat(30 * 1024));
    assert_eq!(running.exchange(fits).await.status, 200);
    let many: String = (0..200).map(|number| format!("x-{number}: 1\r\n")).collect();
    for head in [
        format!("GET /healthz HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "x".repeat(40 * 1024)),
        format!("GET /healthz HTTP/1.1\r\nhost: a\r\n{}\r\n\r\n", "x: 1\r\n".repeat(20_000)),
        format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(40 * 1024)),
        format!("GET /healthz HTTP/1.1\r\nhost: a\r\n{many}\r\n"),
        "x".repeat(400 * 1024),
    ] {
        let mut peer = running.connect().await;
        peer.send(&head).await;
        // A peer that is still sending may meet the end of the connection before the answer.
        let answer = peer.try_answer().await.map(|answer| answer.status);
        let wanted: &[Option<u16>] =
            if head.starts_with("GET") { &[None, Some(431)] } else { &[None, Some(400), Some(431)] };
        assert!(wanted.contains(&answer), "{answer:?} for {}", &head[..60]);
        assert!(peer.closed().await.is_empty());
    }
    let small = format!("GET /healthz HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "x".repeat(33 * 1024));
    assert_eq!(running.exchange(small).await.status, 431);
    running.is_unharmed().await;
}

#[tokio::test]
async fn lines_may_end_in_a_bare_line_feed_and_mean_nothing_else() {
    let running = running().await;
    let mut peer = running.connect().await;
    peer.send("GET /healthz HTTP/1.1\nhost: a\n\n").await;
    let answer = peer.try_answer().await.map(|answer| answer.status);
    assert!([None, Some(200), Some(400)].contains(&answer), "{answer:?}");
    // A header whose value holds a line feed would be a header of the peer's own making.
    let mut peer = running.connect().await;
    peer.send("POST /v1/coupons/launch/claims HTTP/1.1\r\nhost: a\r\nx: y\nauthorization: z\r\n\r\n").await;
    assert_eq!(peer.answer().await.status, 401);
    running.is_unharmed().await;
}

#[tokio::test]
async fn a_target_is_a_path_a_client_that_it_names() {
    let running = running().await;
    for (target, status) in [
        ("http://evil.example/v1/coupons/launch", 200),
        ("http://evil.example/v1/../metrics", 404),
        ("/v1/coupons/launch?x=1", 200),
        ("//v1/coupons/launch", 404),
        ("/v1//coupons/launch", 404),
        ("/v1/coupons/launch/", 404),
        ("/v1/coupons/../coupons/launch", 404),
        ("/v1/coupons/%2e%2e", 400),
        ("*", 404),
    ] {
        let answer = running.exchange(format!("GET {target} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")).await;
        assert_eq!(answer.status, status, "{target}");
    }
    let connect = running.exchange("CONNECT evil.example:443 HTTP/1.1\r\nhost: evil.example:443\r\n\r\n").await;
    assert!([400, 404, 405].contains(&connect.status), "{}", connect.status);
    let upgrade = "GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n";
    assert_eq!(running.exchange(upgrade).await.status, 200);
    let old = running.exchange("GET /healthz HTTP/1.0\r\n\r\n").await;
    assert_eq!(old.status, 200);
    running.is_unharmed().await;
}

#[tokio::test]
async fn requests_on_one_connection_are_answered_in_their_order() {
    let running = running().await;
    let mut peer = running.connect().await;
    let users: Vec<String> = (1..=9).map(|number| format!("user{number}")).collect();
    peer.send(users.iter().map(|user| claim(user)).collect::<String>()).await;
    for (serial, user) in (1..).zip(&users) {
        let claimed = peer.answer().await.is(201).json();
        assert_eq!((&claimed["user"], &claimed["serial"]), (&json!(user), &json!(serial)));
    }
    // A head that comes byte by byte is a head all the same.
    for byte in claim("late").as_bytes() {
        peer.send([*byte]).await;
    }
    peer.answer().await.refused(409, "sold_out");
    let head = "GET /v1/coupons/launch HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    peer.send(head).await;
    assert_eq!(peer.answer().await.status, 200);
    assert!(peer.closed().await.is_empty());
}

#[tokio::test]
async fn a_body_that_is_too_large_is_told_so_to_a_peer_that_sends_it_all() {
    let running = running().await;
    let headers = format!("authorization: Bearer {SERVICE}\r\ncontent-type: application/json\r\n");
    for bytes in [65_537, 200_000, 8_000_000] {
        let body = " ".repeat(bytes);
        let answer = running.exchange(request("POST /v1/coupons/launch/claims", &headers, &body)).await;
        answer.refused(413, "body_too_large");
    }
    let mut peer = running.connect().await;
    let length = "content-length: 99999999999\r\nexpect: 100-continue\r\n\r\n";
    peer.send(format!("{}{length}", claim_head())).await;
    peer.answer().await.refused(413, "body_too_large");
    running.is_unharmed().await;
}
