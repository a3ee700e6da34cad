//! The HTTP API: authorizes and parses each call, and translates the reply of the store.

mod answer;
mod api_key;
pub(crate) mod appearance;
mod auction_shape;
pub(crate) mod body;
pub(crate) mod coupon;
mod dead_letter;
mod document;
mod erase;
pub(crate) mod handoff;
mod health;
pub(crate) mod hot;
pub(crate) mod json;
pub(crate) mod listing;
pub(crate) mod lock;
mod lock_shape;
mod member;
mod pass;
mod pass_key;
mod purge;
pub(crate) mod receipt;
pub(crate) mod renewal;
pub(crate) mod revision;
pub(crate) mod room;
mod room_draw;
pub(crate) mod room_gate;
pub(crate) mod room_shape;
pub(crate) mod shape;
mod steering;
pub(crate) mod stream;

pub(crate) use answer::{HEADERS_USUAL, Whole, whole};

use crate::dashboard;
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::pages::{self, SecuritySchemes};
use crate::security_headers;
use crate::state::App;
use crate::trace::StoreWait;
use crate::work::WORK_HEADER;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, Request, header};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use firstcome::StoreError;
use firstcome::core::coupon::Effect;
use firstcome::edge::Stopwatch;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tower_http::cors::{AllowOrigin, CorsLayer};
use utoipa::OpenApi;

/// The header that carries the pass of a public call.
pub(crate) const PASS_HEADER: HeaderName = HeaderName::from_static("x-firstcome-pass");
/// The header that carries the idempotency key of a POST.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header by which a back end names the content of a POST itself: see [`body::request`].
pub(crate) const IDEMPOTENCY_BODY: HeaderName = HeaderName::from_static("idempotency-body");
/// The header of an answer to a repeat: what it tells happened at an earlier copy of the same request.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Returns the header that says so if an effect is that of an earlier copy of the request.
fn replayed<T>(effect: &Effect<T>) -> AppendHeaders<Option<(HeaderName, &'static str)>> {
    AppendHeaders(matches!(effect, Effect::Again(_)).then_some((REPLAYED, "true")))
}

/// Lists the endpoints once, for the router of the service and for the OpenAPI document. No code of the service calls the
/// document's part: the binary has the finished document instead.
macro_rules! endpoints {
    ($($path:literal: $($method:ident $module:ident::$handler:ident),+;)+) => {
        fn endpoints() -> Router<Arc<App>> {
            Router::new()$(.route($path, MethodRouter::new()$(.$method($module::$handler))+))+
        }

        /// The method and the path of each endpoint.
        const ENDPOINTS: &[(&str, &str)] = &[$($((stringify!($method), $path)),+),+];

        #[derive(OpenApi)]
        #[openapi(
            info(
                title = "firstcome",
                description = "First come, first served, at scale: waiting rooms that admit in order of arrival, limited \
                    coupons handed out exactly once, locks that hand over in order of arrival.\n\nAll bodies are \
                    JSON in UTF-8, except receipts and heads, which are text; unknown fields are refused, and whole numbers are written \
                    without a fraction. Times are RFC 3339 in UTC. Every refusal is an RFC 9457 \
                    problem with a stable `code`. A POST may carry an `Idempotency-Key`: the same key with the same body has \
                    one effect. An answer to a repeat has `Idempotency-Replayed: true`. With a key of the service, `Idempotency-Body` (16 \
                    digits of 0-9 a-f) names what the request means, and is compared instead of the body.\n\nA client that ends its side of a connection (`shutdown`) has left: the service may write no \
                    more answers to it, though its calls have their effect.",
            ),
            paths($($($module::$handler),+),+),
            components(schemas(shape::Problem)),
            modifiers(&SecuritySchemes)
        )]
        struct Document;
    };
}

endpoints! {
    "/v1/coupons/{coupon}": put coupon::put_coupon, patch coupon::patch_coupon, get coupon::get_coupon, delete coupon::delete_coupon;
    "/v1/coupons/{coupon}/claims": post coupon::post_claim, get coupon::get_claims;
    "/v1/coupons/{coupon}/claims/{user}": get coupon::get_claim;
    "/v1/coupons/{coupon}/claims/{user}/receipt": get receipt::get_claim_receipt;
    "/v1/coupons/{coupon}/heads": get receipt::get_coupon_heads;
    "/v1/coupons/{coupon}/dead-letters": get dead_letter::get_dead_letters;
    "/v1/coupons/{coupon}/redemptions": post coupon::post_redemption;
    "/v1/rooms/{room}": put room::put_room, patch room::patch_room, get room::get_room, delete room::delete_room;
    "/v1/rooms/{room}/appearance": put appearance::put_appearance, get appearance::get_appearance, delete appearance::delete_appearance;
    "/v1/rooms/{room}/draw": get room_draw::get_draw;
    "/v1/rooms/{room}/pause": post steering::post_pause;
    "/v1/rooms/{room}/resume": post steering::post_resume;
    "/v1/rooms/{room}/feedback": post steering::post_feedback;
    "/v1/rooms/{room}/tickets": post room::post_ticket;
    "/v1/rooms/{room}/tickets/{ticket}": get room::get_ticket, delete room::delete_ticket;
    "/v1/rooms/{room}/tickets/{ticket}/receipt": get receipt::get_ticket_receipt;
    "/v1/rooms/{room}/heads": get receipt::get_room_heads;
    "/v1/rooms/{room}/tickets/{ticket}/renew": post renewal::post_renewal;
    "/v1/rooms/{room}/tickets/{ticket}/handoff": post handoff::post_handoff;
    "/v1/rooms/{room}/handoffs": post handoff::post_redeemed_handoff;
    "/v1/rooms/{room}/passes": get pass::get_passes;
    "/v1/rooms/{room}/tickets/{ticket}/events": get stream::get_ticket_events;
    "/v1/rooms/{room}/events": get stream::get_room_events;
    "/v1/events": get stream::get_events;
    "/v1/rooms/{room}/passes/verify": post room::post_verify;
    "/v1/rooms/{room}/passes/release": post room::post_release;
    "/v1/rooms/{room}/gate": get room_gate::get_gate;
    "/v1/pass-keys": get pass_key::get_pass_keys, post pass_key::post_pass_key;
    "/v1/pass-keys/{kid}": delete pass_key::delete_pass_key;
    "/v1/keys": get api_key::get_api_keys, post api_key::post_api_key;
    "/v1/keys/{key}": delete api_key::delete_api_key;
    "/v1/keys/{key}/rotate": post api_key::post_api_key_rotation;
    "/v1/erasures": post erase::post_erasure;
    "/v1/purge": post purge::post_purge;
    "/v1/locks/{lock}": get lock::get_lock;
    "/v1/locks/{lock}/acquire": post lock::post_acquire;
    "/v1/locks/{lock}/renew": post lock::post_renew;
    "/v1/locks/{lock}/release": post lock::post_lock_release;
    "/v1/members/{member}": get member::get_member;
    "/v1/members/{member}/points/records": get member::get_records;
    "/v1/members/{member}/points/charge": post member::post_charge;
    "/v1/members/{member}/points/refund": post member::post_refund;
    "/v1/listings/{listing}": put listing::put_listing, patch listing::patch_listing, get listing::get_listing;
    "/v1/listings/{listing}/bids": get listing::get_bids, post listing::post_bid;
    "/v1/listings/{listing}/purchase": post listing::post_purchase;
    "/healthz": get health::healthz;
    "/readyz": get health::readyz;
    "/metrics": get health::metrics;
}

/// Builds the OpenAPI document of the HTTP API from the code. The service shows the copy in `docs/openapi.json`, which
/// a test compares with this: to build the document takes longer than the rest of a start.
pub fn openapi_json() -> String {
    document::complete(Document::openapi()).to_pretty_json().unwrap_or_default() + "\n"
}

/// The endpoints that pages of an allowed origin may call. No other answer carries CORS headers.
const PUBLIC_ROWS: [(Method, &str); 15] = [
    (Method::GET, "/v1/coupons/{coupon}"),
    (Method::POST, "/v1/coupons/{coupon}/claims"),
    (Method::GET, "/v1/rooms/{room}"),
    (Method::GET, "/v1/rooms/{room}/draw"),
    (Method::POST, "/v1/rooms/{room}/tickets"),
    (Method::GET, "/v1/rooms/{room}/tickets/{ticket}"),
    (Method::GET, "/v1/rooms/{room}/tickets/{ticket}/events"),
    (Method::GET, "/v1/rooms/{room}/tickets/{ticket}/receipt"),
    (Method::GET, "/v1/rooms/{room}/heads"),
    (Method::GET, "/v1/coupons/{coupon}/heads"),
    (Method::DELETE, "/v1/rooms/{room}/tickets/{ticket}"),
    (Method::POST, "/v1/rooms/{room}/tickets/{ticket}/renew"),
    (Method::POST, "/v1/rooms/{room}/tickets/{ticket}/handoff"),
    (Method::GET, "/v1/pass-keys"),
    (Method::GET, "/v1/listings/{listing}"),
];

/// Returns the template of the endpoint that serves a request, if there is one.
pub(crate) fn template(method: &Method, path: &str) -> Option<&'static str> {
    let is_of =
        |(known, template): &&(&str, &'static str)| known.eq_ignore_ascii_case(method.as_str()) && fits(template, path);
    ENDPOINTS.iter().find(is_of).map(|(_, template)| *template)
}

/// Whether a path is of a template.
fn fits(template: &str, path: &str) -> bool {
    let segments = template.split('/').map(Some).chain([None]);
    let given = path.split('/').map(Some).chain([None]);
    segments
        .zip(given)
        .all(|(known, given)| known == given || given.is_some() && known.is_some_and(|known| known.starts_with('{')))
}

/// Rejects requests for endpoints that this service does not provide.
async fn served(State(lacks): State<&'static [&'static str]>, request: axum::extract::Request, next: Next) -> Response {
    if lacks.iter().any(|rows| request.uri().path().starts_with(rows)) {
        return Problem::new(Code::NotServed).into_response();
    }
    next.run(request).await
}

fn is_public_row(request: &Parts) -> bool {
    let asked = request.headers.get(header::ACCESS_CONTROL_REQUEST_METHOD);
    let method = match asked {
        Some(method) if request.method == Method::OPTIONS => method.as_bytes(),
        _ => request.method.as_str().as_bytes(),
    };
    let is_of =
        |(known, template): &(Method, &str)| known.as_str().as_bytes() == method && fits(template, request.uri.path());
    PUBLIC_ROWS.iter().any(is_of)
}

fn cors(origins: &[HeaderValue]) -> CorsLayer {
    let origins = origins.to_vec();
    CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(move |origin, request| origins.contains(origin) && is_public_row(request)))
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers([header::CONTENT_TYPE, PASS_HEADER, IDEMPOTENCY_KEY, WORK_HEADER])
        .expose_headers([header::RETRY_AFTER])
        .max_age(Duration::from_secs(600))
}

/// All routes of the service.
pub fn router(app: Arc<App>) -> Router {
    let origins = &app.config.allow_origins;
    let cors = (!origins.is_empty()).then(|| cors(origins));
    let router = endpoints()
        .layer(from_fn_with_state(Arc::clone(&app), dashboard::calls::recorded))
        .merge(pages::router())
        .merge(dashboard::router())
        .fallback(async || Problem::new(Code::NotFound))
        .method_not_allowed_fallback(async || Problem::new(Code::MethodNotAllowed))
        // Bodies are read by `body::read`, which has a limit and a deadline of its own.
        .layer(DefaultBodyLimit::disable());
    let lacks = app.lacks();
    let router = if lacks.is_empty() { router } else { router.layer(from_fn_with_state(lacks, served)) };
    // Layered outside the fallbacks, which would otherwise answer the browser's preflight request.
    let router = match cors {
        Some(cors) => router.layer(cors),
        None => router,
    };
    // Outermost, so that it also completes the answers to preflight requests.
    router.layer(map_response(security_headers::completed)).with_state(app)
}

/// Answers a call of an address that is over its rate. A page of an allowed origin may read the answer, as it may read
/// an ordinary one.
pub(crate) fn limited(app: &App, request: &Parts, problem: Problem) -> Response {
    app.metrics.refused(problem.code());
    let mut response = problem.into_response();
    if let Some(origin) = request.headers.get(header::ORIGIN)
        && app.config.allow_origins.contains(origin)
        && is_public_row(request)
    {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("retry-after"));
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
    }
    response
}

/// Whether a call may wait for longer than [`Limits::answer`](crate::Limits).
pub(crate) fn may_wait<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && request.uri().path().ends_with("/acquire")
}

/// Who may read the figures on the port of operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FiguresFor {
    /// Any client that reaches the port: for a port on loopback.
    AnyClient,
    /// A client with any key of the service, one to view included: for a port that other machines reach.
    Keys,
}

/// The routes of `--admin-listen`: health without a key, and figures for these clients.
pub fn admin_router(app: Arc<App>, figures_for: FiguresFor) -> Router {
    let figures = match figures_for {
        FiguresFor::AnyClient => get(health::metrics_unguarded),
        FiguresFor::Keys => get(health::metrics_of_keys),
    };
    Router::new()
        .route("/metrics", figures)
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .fallback(async || Problem::new(Code::NotFound))
        .method_not_allowed_fallback(async || Problem::new(Code::MethodNotAllowed))
        .layer(map_response(security_headers::completed))
        .with_state(app)
}

/// Waits for the store, at most [`Limits::answer`](crate::Limits). Afterwards the outcome is unknown, and a repeat is
/// safe.
pub(crate) async fn answered<T, R>(
    app: &App,
    answer: Pin<&mut impl Future<Output = Result<Result<T, R>, StoreError>>>,
) -> Result<Result<T, R>, Problem> {
    let _wait = StoreWait::begin();
    match tokio::time::timeout(app.config.limits.answer, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(StoreError::Unknown.into()),
    }
}

const NO_STORE: [(HeaderName, &str); 1] = [(header::CACHE_CONTROL, "no-store")];

/// Answers a call and counts it. Takes the call pinned: passing it by value would copy some two kilobytes each time.
pub(crate) async fn measured<T: IntoResponse>(
    app: &App,
    route: Route,
    call: Pin<&mut impl Future<Output = Result<T, Problem>>>,
) -> Response {
    let watch = Stopwatch::start();
    let response = match call.await {
        Ok(answer) => answer.into_response(),
        Err(problem) => {
            app.metrics.refused(problem.code());
            problem.into_response()
        }
    };
    app.metrics.answered(route, response.status().as_u16(), watch.elapsed());
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_document_describes_each_endpoint_at_the_path_that_serves_it() {
        let document: serde_json::Value = serde_json::from_str(&openapi_json()).unwrap();
        let described: BTreeSet<(&str, &str)> = document["paths"]
            .as_object()
            .into_iter()
            .flatten()
            .flat_map(|(path, methods)| {
                let methods = methods.as_object().into_iter().flatten();
                methods.map(move |(method, _)| (method.as_str(), path.as_str()))
            })
            .collect();
        assert_eq!(described, ENDPOINTS.iter().copied().collect());
    }
}
