//! Shows a refusal to an operator.

use super::view::{LoginPage, ProblemPage};
use super::{LOGIN, page, session};
use crate::error::{Code, Problem};
use crate::state::App;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};

/// Shows a problem as a page with the headers of the problem. A failed login shows the form again.
pub(super) async fn shown(app: &App, parts: &Parts, problem: Problem) -> Response {
    let (code, detail) = (problem.code(), problem.says());
    let is_login = parts.uri.path() == LOGIN;
    let is_inside = session(app, parts).await.is_ok_and(|session| session.is_some());
    let mut response = problem.into_response();
    let status = response.status();
    let shown = if is_login && code != Code::FormExpired {
        page(status, &LoginPage { version: env!("CARGO_PKG_VERSION"), problem: Some(login_words(code)) })
    } else {
        page(status, &ProblemPage { version: env!("CARGO_PKG_VERSION"), code, detail, is_inside })
    };
    let (shown, body) = shown.into_parts();
    response.headers_mut().extend(shown.headers);
    response.headers_mut().remove(header::CONTENT_LENGTH);
    // A browser would ask for a password of its own.
    response.headers_mut().remove(header::WWW_AUTHENTICATE);
    *response.body_mut() = body;
    response
}

const fn login_words(code: Code) -> &'static str {
    match code {
        Code::Unauthorized => "This is neither the admin key nor a key to view.",
        Code::RateLimited => "Too many attempts from this address. Wait a minute.",
        _ => code.title(),
    }
}
