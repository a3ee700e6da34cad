//! The HTML pages: the card at `/`, the reference at `/docs`, a page per error code, and the pages of rooms and coupons. They
//! load no external asset.

mod coupon;
mod language;
pub(crate) mod receipt;
mod reference;
mod room;

pub(crate) use language::{LANGUAGES, of_tag};

use crate::api::body::PathName;
use crate::error::{Code, Problem};
use crate::state::App;
use askama::Template;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use firstcome::{Durability, FaultScope};
use std::sync::{Arc, LazyLock};
use utoipa::Modify;
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

/// The OpenAPI document, as `api::openapi_json` builds it.
const OPENAPI: &str = include_str!("../../../docs/openapi.json");
/// The page of the document, rendered at its first request: a start does not wait for it.
static REFERENCE: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(reference::render(OPENAPI).unwrap_or_default()));
const STYLE: &str = include_str!("../assets/firstcome.css");
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; \
    frame-ancestors 'none'; base-uri 'none'";

/// Adds the two kinds of key to the document.
pub(crate) struct SecuritySchemes;

impl Modify for SecuritySchemes {
    fn modify(&self, document: &mut OpenApi) {
        let components = document.components.get_or_insert_default();
        for (name, description) in [
            ("service", "A service key: your back end, acting for any user"),
            ("admin", "An admin key: includes service"),
        ] {
            let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(description)).build();
            components.add_security_scheme(name, SecurityScheme::Http(bearer));
        }
    }
}

#[derive(Template)]
#[template(path = "index.html")]
struct Index {
    version: &'static str,
    store: &'static str,
    durability: &'static str,
    is_behind_unknown_proxy: bool,
    development: bool,
    auctions_alone: bool,
    state: &'static str,
    /// Coupons and rooms that stand still, while all others go on.
    standing: usize,
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    code: Code,
}

/// What stands before the paths of this service where a browser sees them. Nothing, unless a gate serves the service
/// within another site.
#[derive(Clone, Copy)]
pub(crate) struct Base(pub(crate) &'static str);

impl Base {
    fn of(parts: &Parts) -> &'static str {
        parts.extensions.get::<Self>().map_or("", |base| base.0)
    }
}

/// Serves a text that pages load.
pub(crate) fn asset(kind: &'static str, text: &'static str) -> MethodRouter<Arc<App>> {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "max-age=3600"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    get(async move || (headers, text))
}

/// What a client wants to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    Html,
    Json,
}

impl Format {
    /// The format that a request names. A browser names HTML; a client that names nothing may be one.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut texts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let has_json = |text: &str| text.contains("application/json") && !text.contains("text/html");
        if texts.any(has_json) { Self::Json } else { Self::Html }
    }
}

#[derive(Template)]
#[template(path = "refusal.html")]
struct RefusalPage<'a> {
    code: Code,
    says: &'a str,
    base: &'a str,
    version: &'static str,
}

/// Shows a problem to a visitor, as a page with the headers of the problem.
pub(crate) fn refusal(problem: Problem, base: &str) -> Response {
    let says = problem.says();
    let page = RefusalPage { code: problem.code(), says: &says, base, version: env!("CARGO_PKG_VERSION") };
    let mut response = problem.into_response();
    let (page, body) = rendered(response.status(), &page).into_parts();
    response.headers_mut().extend(page.headers);
    response.headers_mut().remove(header::CONTENT_LENGTH);
    *response.body_mut() = body;
    response
}

/// Builds a page with the headers that every page gets.
fn html(status: StatusCode, body: impl Into<axum::body::Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

pub(crate) fn rendered(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => html(status, text),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn index(State(app): State<Arc<App>>) -> Response {
    let (store, durability) = match app.durability() {
        _ if app.is_auctions_alone => ("a database", "that of the database"),
        Durability::Database => (
            "Redis and a database, which all nodes share",
            "an answer leaves after the database has committed; claims of a coupon with durability redis, after Redis has synced",
        ),
        Durability::Disk => ("embedded, on disk", "an answer leaves after it is synced"),
        _ => ("embedded, in memory only", "gone with the process"),
    };
    let standing = app.faults().iter().filter(|open| open.scope == FaultScope::Single).count();
    let page = Index {
        version: env!("CARGO_PKG_VERSION"),
        store,
        durability,
        is_behind_unknown_proxy: app.forwarders.is_noted(),
        development: app.is_dev(),
        auctions_alone: app.is_auctions_alone,
        state: app.unready().unwrap_or("ready"),
        standing,
    };
    rendered(StatusCode::OK, &page)
}

async fn error(path: PathName) -> Response {
    let code = path.map(|Path(code)| code).unwrap_or_default();
    match Code::ALL.iter().find(|known| known.as_str() == code) {
        Some(&code) => rendered(StatusCode::OK, &ErrorPage { code }),
        None => Problem::new(Code::NotFound).into_response(),
    }
}

/// Builds the pages.
pub(crate) fn router() -> Router<Arc<App>> {
    let json = async || ([(header::CONTENT_TYPE, "application/json")], OPENAPI);
    let reference = async || html(StatusCode::OK, REFERENCE.clone());
    Router::new()
        .route("/", get(index))
        .route("/docs", get(reference))
        .route("/errors/{code}", get(error))
        .route("/openapi.json", get(json))
        .route("/assets/firstcome.css", asset("text/css", STYLE))
        .merge(room::router())
        .merge(receipt::router())
        .merge(coupon::router())
}
