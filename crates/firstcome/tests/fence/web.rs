//! A service that wants a token with every call.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::put;
use axum::{Router, response::IntoResponse};
use firstcome::FenceToken;
use firstcome::fence::{HEADER, StaleFence, accepts};
use http_body_util::BodyExt as _;
use std::sync::{Arc, Mutex};
use tower::ServiceExt as _;

fn app() -> Router {
    let remembered: Arc<Mutex<Option<FenceToken>>> = Arc::default();
    let write = async move |token: FenceToken| {
        let mut remembered = remembered.lock().unwrap();
        if !accepts(remembered.as_ref(), &token) {
            return StaleFence::new(token).into_response();
        }
        *remembered = Some(token);
        StatusCode::NO_CONTENT.into_response()
    };
    Router::new().route("/", put(write))
}

/// Status and body.
async fn call(app: &Router, headers: &[&[u8]]) -> (StatusCode, String) {
    let mut call = Request::put("/");
    for header in headers {
        call = call.header(HEADER, *header);
    }
    let answer = app.clone().oneshot(call.body(Body::empty()).unwrap()).await.unwrap();
    let status = answer.status();
    if !status.is_success() {
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        assert_eq!(answer.headers()["cache-control"], "no-store");
    }
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_call_is_refused_without_a_token_and_with_a_stale_one() {
    let app = app();
    let old = crate::token("auction:7", 5, "ann").to_header();
    let new = crate::token("auction:7", 6, "bob").to_header();
    assert_eq!(call(&app, &[]).await.0, StatusCode::PRECONDITION_REQUIRED);
    assert_eq!(call(&app, &[old.as_bytes()]).await.0, StatusCode::NO_CONTENT);
    assert_eq!(call(&app, &[new.as_bytes()]).await.0, StatusCode::NO_CONTENT);
    let rows: [(&[&[u8]], u16, &str); 5] = [
        (&[], 428, "fence_required"),
        (&[b"garbage \"\\"], 400, "invalid_fence"),
        (&["lock=\"é\", fence=\"7\", owner=\"b\"".as_bytes()], 400, "invalid_fence"),
        (&[new.as_bytes(), new.as_bytes()], 400, "invalid_fence"),
        (&[old.as_bytes()], 409, "stale_fence"),
    ];
    for (headers, status, code) in rows {
        let (answered, body) = call(&app, headers).await;
        assert_eq!(answered, status, "{body}");
        let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(problem["code"], code);
        assert_eq!(problem["status"], status);
        assert_eq!(problem["type"], format!("/errors/{code}"));
        assert!(problem["title"].is_string() && problem["detail"].is_string());
    }
}
