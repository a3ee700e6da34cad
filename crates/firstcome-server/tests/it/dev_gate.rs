//! Development mode: everybody who reaches it is admin, so no client from elsewhere may reach it.

use crate::running::Running;
use crate::service::ADMIN;
use serde_json::json;

const BODY: &str = "content-type: application/json\r\ncontent-length: 11\r\n\r\n{\"limit\":9}";

/// An admin's call without a key, with these headers.
fn put(headers: &str) -> String {
    format!("PUT /v1/coupons/launch HTTP/1.1\r\n{headers}{BODY}")
}

#[tokio::test]
async fn a_call_without_a_key_from_this_machine_acts_as_admin() {
    let running = Running::dev().await;
    let host = running.host();
    let port = host.rsplit(':').next().expect("a port");
    for headers in [
        format!("host: {host}\r\n"),
        format!("host: localhost:{port}\r\n"),
        format!("host: LocalHost:{port}\r\nsec-fetch-site: none\r\n"),
        format!("host: [::1]:{port}\r\n"),
        "host: 127.0.0.2\r\norigin: http://127.0.0.2\r\nsec-fetch-site: same-origin\r\n".to_owned(),
        format!("host: {host}\r\norigin: http://{host}\r\n"),
    ] {
        let status = running.exchange(put(&headers)).await.status;
        assert!([200, 201].contains(&status), "{status} for {headers}");
    }
    assert_eq!(running.service.show("launch").await.json()["limit"], 9);
}

pub(crate) async fn a_call_from_elsewhere_is_refused_and_has_no_effect() {
    let running = Running::dev().await;
    let host = running.host();
    for headers in [
        String::new(),
        "host: \r\n".into(),
        "host: example.org\r\n".into(),
        "host: localhost.example.org\r\n".into(),
        "host: 127.0.0.1.example.org\r\n".into(),
        "host: 192.168.0.1\r\n".into(),
        "host: 0.0.0.0\r\n".into(),
        "host: user@localhost\r\n".into(),
        "host: localhost\u{e9}\r\n".into(),
        format!("host: {host}\r\nhost: example.org\r\n"),
        format!("host: example.org\r\nhost: {host}\r\n"),
        format!("host: {host}\r\norigin: https://example.org\r\n"),
        format!("host: {host}\r\norigin: https://{host}\r\n"),
        format!("host: {host}\r\norigin: http://localhost:1\r\n"),
        format!("host: {host}\r\norigin: null\r\n"),
        format!("host: {host}\r\norigin: \r\n"),
        format!("host: {host}\r\norigin: http://{host}\r\norigin: https://example.org\r\n"),
        format!("host: {host}\r\nsec-fetch-site: cross-site\r\n"),
        format!("host: {host}\r\nsec-fetch-site: same-site\r\n"),
        format!("host: {host}\r\nsec-fetch-site: nonsense\r\n"),
        format!("host: {host}\r\norigin: http://{host}\r\nsec-fetch-site: cross-site\r\n"),
    ] {
        let answer = running.exchange(put(&headers)).await;
        assert_eq!(answer.status, 403, "{headers}");
        answer.refused(403, "foreign_origin");
        for path in ["/", "/healthz", "/v1/coupons/launch", "/metrics"] {
            let get = format!("GET {path} HTTP/1.1\r\n{headers}\r\n");
            running.exchange(get).await.refused(403, "foreign_origin");
        }
    }
    let look = format!("GET /v1/coupons/launch HTTP/1.1\r\nhost: {host}\r\n\r\n");
    running.exchange(look).await.refused(404, "unknown_coupon");
}

#[tokio::test]
async fn a_key_is_unknown_in_development_mode() {
    let running = Running::dev().await;
    let headers = format!("host: 127.0.0.1\r\nauthorization: Bearer {ADMIN}\r\n");
    running.exchange(put(&headers)).await.refused(401, "unauthorized");
}

#[tokio::test]
async fn with_keys_the_host_does_not_matter() {
    let running = Running::start(crate::running::patient()).await;
    running.service.make("launch", json!({"limit": 1})).await;
    let get = "GET /v1/coupons/launch HTTP/1.1\r\nhost: shop.example\r\norigin: https://shop.example\r\n\r\n";
    assert_eq!(running.exchange(get).await.status, 200);
    running.exchange(put("host: shop.example\r\n")).await.refused(401, "unauthorized");
}
