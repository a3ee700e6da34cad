//! A server that says what a test wants: refusals that a healthy service never gives, and answers of other programs.

use crate::service::{ADMIN, hasty, soon};
use firstcome_client::HttpStore;
use firstcome_store::core::coupon::{Claim, CouponState, Effect, Issued, Rejection, Serial};
use firstcome_store::core::id::{CouponName, UserId};
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::Stopwatch;
use firstcome_store::{CouponStore, FaultKind, StoreError, VoucherKey};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Answers each request with the next of these; the last one again and again.
pub(crate) async fn server(answers: Vec<String>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = &answers[counted.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1)];
            tokio::spawn(answer_once(stream, answer.clone()));
        }
    });
    (address, asked)
}

/// Reads one request, answers it, and closes the connection.
async fn answer_once(mut stream: TcpStream, answer: String) {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.map_or(0, |length| length.trim().parse().expect("a number")) <= body.len() {
                break;
            }
        }
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let _ = stream.write_all(answer.as_bytes()).await;
}

pub(crate) fn answer(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

pub(crate) fn problem(status: &str, code: &str, detail: &str, more: &str) -> String {
    let body = format!("{{\"code\":\"{code}\",\"detail\":\"{detail}\"{more}}}");
    answer(status, "application/problem+json", &body)
}

fn issued() -> String {
    let user = "ann";
    let issued_at = Timestamp::from_us(1_893_456_000_000_000).expect("2030-01-01");
    let issued = Issued { serial: Serial::new(1).expect("a serial"), issued_at };
    let code = VoucherKey::new([7; 32]).code(issued, user);
    let body = format!(
        "{{\"coupon\":\"launch\",\"user\":\"{user}\",\"serial\":1,\"code\":\"{}\",\"issued_at\":\"2030-01-01T00:00:00Z\",\
         \"durability\":\"disk\"}}",
        code.as_str()
    );
    answer("201 Created", "application/json", &body)
}

async fn claim(answers: Vec<String>) -> (Result<Effect<()>, StoreError>, usize, Duration) {
    let (address, asked) = server(answers).await;
    let client = HttpStore::with(&format!("http://{address}"), ADMIN, hasty()).expect("it can be made");
    let coupon = CouponName::parse("launch").expect("a name");
    let claim = Claim { user: UserId::parse("ann").expect("a name"), attributes: None, request: None };
    let watch = Stopwatch::start();
    let told = soon(client.claim_early(&coupon, claim)).await;
    let told = told.map(|told| told.expect("no rule refuses").map(drop));
    (told, asked.load(Ordering::SeqCst), watch.elapsed())
}

#[tokio::test]
async fn a_service_that_is_busy_is_asked_again_when_it_says() {
    let busy =
        |ms: u32| problem("503 Service Unavailable", "overloaded", "later", &format!(",\"retry_after_ms\":{ms}"));
    let limited = problem("429 Too Many Requests", "rate_limited", "later", ",\"retry_after_ms\":60");
    let (told, asked, took) = claim(vec![busy(100), limited, issued()]).await;
    assert!(matches!(told, Ok(Effect::New(()))), "{told:?}");
    assert_eq!(asked, 3);
    assert!(Duration::from_millis(160) <= took, "it waited as long as it was told: {took:?}");
    let (told, asked, _) = claim(vec![busy(60_000)]).await;
    let Err(StoreError::Busy { retry_after, .. }) = told else { panic!("{told:?}") };
    assert_eq!((retry_after, asked), (Duration::from_secs(60), 1), "there is no time for another try");
}

#[tokio::test]
async fn refusals_that_end_by_themselves_keep_their_kind() {
    let late = ",\"retry_after_ms\":9000";
    let (told, ..) = claim(vec![problem("503 Service Unavailable", "not_stored_yet", "later", late)]).await;
    assert!(matches!(told, Err(StoreError::NotStoredYet { .. })), "{told:?}");
    let (told, ..) =
        claim(vec![problem("503 Service Unavailable", "store_unavailable", "no space is left", late)]).await;
    let Err(StoreError::Faulted(fault)) = told else { panic!("{told:?}") };
    assert!(fault.detail.contains("no space is left"), "{fault:?}");
    let (told, ..) = claim(vec![problem("503 Service Unavailable", "outcome_unknown", "perhaps", late)]).await;
    assert!(matches!(told, Err(StoreError::Unknown)), "{told:?}");
}

#[tokio::test]
async fn once_a_write_may_have_happened_no_later_refusal_says_that_it_has_not() {
    let unknown = problem("503 Service Unavailable", "outcome_unknown", "perhaps", ",\"retry_after_ms\":10");
    for later in [
        problem("503 Service Unavailable", "overloaded", "later", ",\"retry_after_ms\":9000"),
        problem("503 Service Unavailable", "store_unavailable", "later", ",\"retry_after_ms\":9000"),
        problem("401 Unauthorized", "unauthorized", "another key", ""),
        answer("404 Not Found", "text/html", "no such page"),
    ] {
        let (told, asked, _) = claim(vec![unknown.clone(), later]).await;
        assert!(matches!(told, Err(StoreError::Unknown)), "{told:?}");
        assert_eq!(asked, 2);
    }
}

#[tokio::test]
async fn an_answer_that_is_not_understood_proves_nothing_of_a_write() {
    for strange in [
        answer("200 OK", "text/html", "welcome"),
        answer("201 Created", "application/json", "{}"),
        answer("409 Conflict", "application/json", "{}"),
        answer("502 Bad Gateway", "text/html", "no upstream"),
        problem("409 Conflict", "already_issued", "without its claim", ""),
        "HTTP/1.1 201 Created\r\ncontent-length: 500\r\n\r\n{".to_owned(),
        "SSH-2.0-other\r\n".to_owned(),
    ] {
        let (told, ..) = claim(vec![strange.clone()]).await;
        assert!(matches!(told, Err(StoreError::Unknown)), "{strange}: {told:?}");
        let (address, _) = server(vec![strange.clone()]).await;
        let client = HttpStore::with(&format!("http://{address}"), ADMIN, hasty()).expect("it can be made");
        let told = soon(client.coupon(&CouponName::parse("launch").expect("a name"))).await;
        let Err(StoreError::Faulted(fault)) = told else { panic!("{strange}: {told:?}") };
        assert!(matches!(fault.kind, FaultKind::Unfit | FaultKind::Unreachable), "{fault:?}");
    }
}

#[tokio::test]
async fn a_purged_coupon_is_told_as_the_library_tells_it() {
    let purged_at = Timestamp::from_us(1_893_456_000_000_000).expect("2030-01-01");
    let shown = answer(
        "200 OK",
        "application/json",
        "{\"coupon\":\"launch\",\"limit\":9,\"issued\":3,\"remaining\":6,\"state\":\"expired\",\"purged_at\":\"2030-01-01T00:00:00Z\"}",
    );
    let gone = problem("410 Gone", "purged", "not kept", ",\"purged_at\":\"2030-01-01T00:00:00Z\"");
    let (address, _) = server(vec![shown, gone]).await;
    let client = HttpStore::with(&format!("http://{address}"), ADMIN, hasty()).expect("it can be made");
    let coupon = CouponName::parse("launch").expect("a name");
    let view = soon(client.coupon(&coupon)).await.expect("it answers").expect("it is there");
    assert_eq!((view.issued, view.state, view.purged_at), (3, CouponState::Expired, Some(purged_at)));
    let refused = soon(client.claims(&coupon, None, 9)).await.expect("it answers").expect_err("none is kept");
    assert_eq!(refused.rejection, Rejection::Purged(purged_at));
    let refused = soon(client.claim_of(&coupon, "ann")).await.expect("it answers").expect_err("none is kept");
    assert_eq!(refused.rejection, Rejection::Purged(purged_at));
}
