//! The endpoints of the HTTP API about API keys.

use super::body::{self, PathName};
use super::json::Json;
use super::shape::Problem as ProblemShape;
use super::{NO_STORE, answered, measured, replayed};
use crate::auth::{self, Scope};
use crate::backend::ApiKeys;
use crate::dashboard::calls;
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::rfc3339::format as instant;
use crate::state::App;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use firstcome::StoreError;
use firstcome::core::api_key::{ApiKey, CallerId, KeyBook, KeyCommand, KeyDigest, KeyRejection, KeyScope, KeyState};
use firstcome::core::coupon::Effect;
use firstcome::core::id::KeyName;
use firstcome::core::limits::API_KEY_MS_MAX;
use firstcome::core::time::Timestamp;
use firstcome::edge::draw_secret;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::pin::pin;
use std::sync::Arc;
use utoipa::ToSchema;

/// The shortest life of a key.
const LIFE_MS_MIN: u64 = 1_000;
/// How long a rotated key is still accepted, unless the call says otherwise: an hour.
const OLD_VALID_FOR_MS: u64 = 3_600_000;

/// A key to create
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct ApiKeyBody {
    /// Name of the key
    #[schema(example = "shop")]
    name: String,
    /// What its calls may do: view, service or admin
    #[schema(example = "service")]
    scope: String,
    /// How long it is accepted; for ever without it
    #[schema(minimum = 1_000)]
    valid_for_ms: Option<u64>,
}

/// How to rotate a key
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct RotationBody {
    /// How long the old key is still accepted; an hour without it
    old_valid_for_ms: Option<u64>,
}

/// A key of a caller
#[derive(Serialize, ToSchema)]
pub(crate) struct ApiKeyShown {
    name: String,
    /// view, service or admin
    #[schema(example = "service")]
    scope: &'static str,
    /// active, expired or revoked
    #[schema(example = "active")]
    state: &'static str,
    created_at: String,
    /// From when on it is not accepted; null for never
    expires_at: Option<String>,
    revoked_at: Option<String>,
    /// Until when the key before the last rotation is accepted; null if it is not
    old_key_until: Option<String>,
    /// The key itself, in the answer to the request that made it, and never again
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl ApiKeyShown {
    fn new(key: &ApiKey, book: &KeyBook, now: Timestamp, text: Option<String>) -> Self {
        let is_old =
            |old: &&ApiKey| old.name == key.name && old.number < key.number && old.state(now) == KeyState::Active;
        let old = book.keys().rfind(is_old).filter(|_| key.state(now) == KeyState::Active);
        Self {
            name: key.name.to_string(),
            scope: key.scope.as_str(),
            state: key.state(now).as_str(),
            created_at: instant(key.created_at),
            expires_at: key.expires_at.map(instant),
            revoked_at: key.revoked_at.map(instant),
            old_key_until: old.and_then(|old| old.expires_at).map(instant),
            key: text,
        }
    }
}

/// All keys
#[derive(Serialize, ToSchema)]
pub(crate) struct ApiKeyList {
    items: Vec<ApiKeyShown>,
}

fn key_name(text: &str) -> Result<KeyName, Problem> {
    KeyName::parse(text).map_err(|error| Problem::field(Code::InvalidName, "name", format!("name {error}")))
}

fn refused(rejection: KeyRejection) -> Problem {
    Problem::new(match rejection {
        KeyRejection::UnknownKey => Code::UnknownApiKey,
        KeyRejection::KeyExists => Code::ApiKeyExists,
        KeyRejection::KeyRevoked => Code::ApiKeyRevoked,
        KeyRejection::LastAdminKey => Code::LastAdminKey,
        KeyRejection::TooManyKeys => Code::TooManyApiKeys,
        KeyRejection::IdempotencyKeyReused => Code::IdempotencyKeyReused,
        _ => Code::StoreUnavailable,
    })
}

/// Refuses a service that stores no keys.
fn stored(app: &App) -> Result<&ApiKeys, Problem> {
    match &app.api_keys {
        ApiKeys::Absent => {
            let detail = "This service stores no API keys: set FIRSTCOME_ADMIN_KEY and FIRSTCOME_SERVICE_KEYS, and start it again.";
            Err(Problem::new(Code::NotServed).detail(detail))
        }
        keys => Ok(keys),
    }
}

fn milliseconds(field: &str, given: Option<u64>, min: u64) -> Result<Option<u64>, Problem> {
    match given {
        Some(ms) if !(min..=API_KEY_MS_MAX).contains(&ms) => {
            let says = format!("{field} must be {min} to {API_KEY_MS_MAX}");
            Err(Problem::field(Code::InvalidField, field, says))
        }
        given => Ok(given),
    }
}

fn draw() -> Result<[u8; 32], Problem> {
    draw_secret().map_err(|fault| StoreError::Faulted(Arc::new(fault)).into())
}

/// Shows a key that a command made. The text of a repeat was told with the first answer, and no store has it.
fn made(app: &App, effect: Effect<ApiKey>, text: String) -> Response {
    let text = matches!(effect, Effect::New(_)).then_some(text);
    let replay = replayed(&effect);
    let key = effect.into_inner();
    let mut after = json!({"name": key.name.as_str(), "scope": key.scope.as_str()});
    if let Some(end) = key.expires_at {
        after["expires_at"] = json!(instant(end));
    }
    calls::changed(None, &after);
    let shown = ApiKeyShown::new(&key, &app.api_keys.book(), app.backend.now(), text);
    (StatusCode::CREATED, NO_STORE, replay, Json(shown)).into_response()
}

/// Create a key
///
/// The answer has the key, and no later one does: the store keeps only a digest. The key counts at once. A repeat of the request
/// is answered without the key: if the first answer was lost, rotate the key. A name whose keys are all expired or revoked is
/// free again.
#[utoipa::path(post, path = "/v1/keys", tag = "API keys", security(("admin" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 128 visible ASCII characters")),
    request_body = ApiKeyBody,
    responses(
        (status = 201, description = "The key", body = ApiKeyShown),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name` `invalid_idempotency_key`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`not_served`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`api_key_exists` `too_many_api_keys`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 422, description = "`idempotency_key_reused`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_api_key(State(app): State<Arc<App>>, request: Request) -> Response {
    let call = pin!(async {
        let (parts, body) = request.into_parts();
        let caller = app.caller(&parts.headers)?.require(Scope::Admin)?;
        let keys = stored(&app)?;
        let bytes = body::read(&parts.headers, body, app.config.limits.body).await?;
        let body = body::parse::<ApiKeyBody>(&bytes)?;
        let name = key_name(&body.name)?;
        let wrong = || Problem::field(Code::InvalidField, "scope", "scope must be view, service or admin");
        let scope = KeyScope::parse(&body.scope).ok_or_else(wrong)?;
        let valid_for_ms = milliseconds("valid_for_ms", body.valid_for_ms, LIFE_MS_MIN)?;
        let life = valid_for_ms.unwrap_or_default().to_be_bytes();
        let meaning: [&[u8]; 3] = [name.as_str().as_bytes(), scope.as_str().as_bytes(), &life];
        let request = body::request(&parts.headers, caller, ("keys", "create"), &meaning)?;
        let (text, mut id) = (auth::key_text(scope, &draw()?), [0; 16]);
        id.copy_from_slice(&draw()?[..16]);
        let (digest, caller) = (KeyDigest::of(&text), CallerId(id));
        let command = KeyCommand::Create { name, scope, digest, caller, valid_for_ms, request };
        let effect = answered(&app, pin!(keys.change(command))).await?.map_err(refused)?;
        Ok(made(&app, effect, text))
    });
    measured(&app, Route::PostApiKey, call).await
}

/// List the keys
///
/// The current key of each name, in the order of their creation, those that are over included, and never a key itself. Keys of the environment are not
/// among them.
#[utoipa::path(get, path = "/v1/keys", tag = "API keys", security(("admin" = [])), responses(
    (status = 200, description = "All keys", body = ApiKeyList),
    (status = 401, description = "`unauthorized`", body = ProblemShape),
    (status = 403, description = "`forbidden`", body = ProblemShape),
    (status = 404, description = "`not_served`", body = ProblemShape)
))]
pub(crate) async fn get_api_keys(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.reader(&headers)?.require(Scope::Admin)?;
        let (book, now) = (stored(&app)?.book(), app.backend.now());
        let current =
            book.keys().filter(|key| book.current(key.name.as_str()).is_some_and(|last| last.number == key.number));
        let items = current.map(|key| ApiKeyShown::new(key, &book, now, None)).collect();
        Ok((NO_STORE, Json(ApiKeyList { items })))
    });
    measured(&app, Route::GetApiKeys, call).await
}

/// Revoke a key
///
/// From the answer on the service refuses the key, and the one before its last rotation. Sessions on the dashboard that began
/// with it end. A second time has no effect. The last admin key that is accepted is not revoked.
#[utoipa::path(delete, path = "/v1/keys/{key}", tag = "API keys", security(("admin" = [])),
    params(("key" = String, Path, description = "Name of the key")),
    responses(
        (status = 204, description = "Revoked"),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_api_key` `not_served`", body = ProblemShape),
        (status = 409, description = "`last_admin_key`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn delete_api_key(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.caller(&headers)?.require(Scope::Admin)?;
        let keys = stored(&app)?;
        let name = key_name(&path.map_err(|_| body::undecodable())?.0)?;
        let command = KeyCommand::Revoke { name, others: app.config.keys.admins() };
        answered(&app, pin!(keys.change(command))).await?.map_err(refused)?;
        Ok(StatusCode::NO_CONTENT)
    });
    measured(&app, Route::DeleteApiKey, call).await
}

/// Rotate a key
///
/// The answer has the new key, which counts at once and lives for as long as the old one. The old one counts for the given time
/// more. Both are one caller: idempotency keys and holds of locks stay valid. A key before the old one is refused at once.
#[utoipa::path(post, path = "/v1/keys/{key}/rotate", tag = "API keys", security(("admin" = [])),
    params(("key" = String, Path, description = "Name of the key"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 128 visible ASCII characters")),
    request_body = RotationBody,
    responses(
        (status = 201, description = "The new key", body = ApiKeyShown),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name` `invalid_idempotency_key`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_api_key` `not_served`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`api_key_revoked`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 422, description = "`idempotency_key_reused`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_api_key_rotation(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (parts, body) = request.into_parts();
        let caller = app.caller(&parts.headers)?.require(Scope::Admin)?;
        let keys = stored(&app)?;
        let name = key_name(&path.map_err(|_| body::undecodable())?.0)?;
        let bytes = body::read(&parts.headers, body, app.config.limits.body).await?;
        let given = body::parse::<RotationBody>(&bytes)?.old_valid_for_ms;
        let old_valid_for_ms = milliseconds("old_valid_for_ms", given, 0)?.unwrap_or(OLD_VALID_FOR_MS);
        let meaning = old_valid_for_ms.to_be_bytes();
        let request = body::request(&parts.headers, caller, (name.as_str(), "rotate key"), &[&meaning])?;
        let current = keys.book().current(name.as_str()).map(|key| key.scope);
        let scope = current.ok_or_else(|| refused(KeyRejection::UnknownKey))?;
        let text = auth::key_text(scope, &draw()?);
        let command = KeyCommand::Rotate { name, digest: KeyDigest::of(&text), old_valid_for_ms, request };
        let effect = answered(&app, pin!(keys.change(command))).await?.map_err(refused)?;
        Ok(made(&app, effect, text))
    });
    measured(&app, Route::PostApiKeyRotation, call).await
}
