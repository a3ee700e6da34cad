//! The contract's calls: who may ask, is it well-formed, what did the store say.

pub(crate) mod body;
mod coupon;
mod health;
pub(crate) mod shape;

use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::pages::{self, SecuritySchemes};
use crate::state::App;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderName, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use firstcome::edge::Stopwatch;
use std::sync::Arc;
use std::time::Duration;
use tower_http::cors::{AllowOrigin, CorsLayer};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Where a public call carries its pass.
pub(crate) const PASS_HEADER: HeaderName = HeaderName::from_static("x-firstcome-pass");
/// Where a POST carries its key.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

#[derive(OpenApi)]
#[openapi(
    info(
        title = "firstcome",
        description = "First come, first served, at scale: limited coupons handed out exactly once.\n\nAll bodies are \
            JSON in UTF-8; unknown fields are refused. Times are RFC 3339 in UTC. Every refusal is an RFC 9457 \
            problem with a stable `code`. A POST may carry an `Idempotency-Key`: the same key with the same body has \
            one effect.",
    ),
    components(schemas(shape::Problem)),
    modifiers(&SecuritySchemes)
)]
struct Document;

fn documented(origins: &[axum::http::HeaderValue]) -> (Router<Arc<App>>, utoipa::openapi::OpenApi) {
    let coupons = OpenApiRouter::new()
        .routes(routes!(coupon::put_coupon, coupon::get_coupon, coupon::delete_coupon))
        .routes(routes!(coupon::post_claim, coupon::get_claims));
    // Public rows answer pages of the named origins; nothing else ever says that it may be read from elsewhere.
    let coupons = if origins.is_empty() { coupons } else { coupons.layer(cors(origins)) };
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(coupons)
        .routes(routes!(coupon::get_claim))
        .routes(routes!(coupon::post_redemption))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .split_for_parts()
}

/// The contract as an OpenAPI document: `/openapi.json`.
pub fn openapi_json() -> String {
    let (_, document) = documented(&[]);
    document.to_pretty_json().unwrap_or_default() + "\n"
}

fn cors(origins: &[axum::http::HeaderValue]) -> CorsLayer {
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins.iter().cloned()))
        .allow_methods([Method::GET, Method::POST])
        .allow_headers([header::CONTENT_TYPE, PASS_HEADER, IDEMPOTENCY_KEY])
        .expose_headers([header::RETRY_AFTER])
        .max_age(Duration::from_secs(600))
}

/// All routes of the service.
pub fn router(app: Arc<App>) -> Router {
    let (api, document) = documented(&app.config.allow_origins);
    let pages = pages::router(&document);
    api.merge(pages)
        .fallback(async || Problem::new(Code::NotFound))
        .method_not_allowed_fallback(async || Problem::new(Code::MethodNotAllowed))
        // Bodies are read by `body::read`, which has a limit and a deadline of its own.
        .layer(DefaultBodyLimit::disable())
        .with_state(app)
}

/// The routes of `--admin-listen`: figures and health without a key, for a port that only operators reach.
pub fn admin_router(app: Arc<App>) -> Router {
    Router::new()
        .route("/metrics", get(health::metrics_unguarded))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .fallback(async || Problem::new(Code::NotFound))
        .with_state(app)
}

/// Answers a call and counts it.
pub(crate) async fn measured<T: IntoResponse>(
    app: &App,
    route: Route,
    call: impl Future<Output = Result<T, Problem>>,
) -> Response {
    let watch = Stopwatch::start();
    let response = match call.await {
        Ok(answer) => answer.into_response(),
        Err(problem) => problem.into_response(),
    };
    app.metrics.answered(route, response.status().as_u16(), watch.elapsed());
    response
}
