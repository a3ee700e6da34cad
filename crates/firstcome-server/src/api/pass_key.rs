//! The keys that verify passes.

use super::json::Json;
use super::room::refused;
use super::room_shape::{PassKey, PassKeyList};
use super::shape::Problem as ProblemShape;
use super::{answered, measured};
use crate::auth::Scope;
use crate::metrics::Route;
use crate::pass::DOMAIN;
use crate::state::App;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use firstcome::RoomStore;
use firstcome::core::room::Rejection;
use std::pin::pin;
use std::sync::Arc;

fn key_list(app: &App) -> PassKeyList {
    let keys = app.passes().map(|passes| passes.keys().public_keys()).unwrap_or_default();
    let items = keys.into_iter().map(|(kid, public_key)| PassKey { kid: kid.to_string(), public_key }).collect();
    PassKeyList { items, implicit_assertion: DOMAIN }
}

/// The keys that verify passes
///
/// For services that verify passes (PASETO v4.public) without calling firstcome. Such a service does not see that a
/// slot was given up before its end.
#[utoipa::path(get, path = "/v1/pass-keys", tag = "Rooms", responses(
    (status = 200, description = "The keys, the signing one first", body = PassKeyList),
    (status = 401, description = "`unauthorized`: the key is unknown", body = ProblemShape),
    (status = 429, description = "`rate_limited`: this address, without a key", body = ProblemShape)
))]
pub(crate) async fn get_pass_keys(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.reader(&headers)?;
        Ok(Json(key_list(&app)))
    });
    measured(&app, Route::GetPassKeys, call).await
}

/// Sign passes with a new key from now on
///
/// Passes that were signed before stay valid until their slots end.
#[utoipa::path(post, path = "/v1/pass-keys", tag = "Rooms", security(("admin" = [])), responses(
    (status = 201, description = "The keys, the signing one first", body = PassKeyList),
    (status = 401, description = "`unauthorized`", body = ProblemShape),
    (status = 403, description = "`forbidden`", body = ProblemShape),
    (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
))]
pub(crate) async fn post_pass_key(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.caller(&headers)?.require(Scope::Admin)?;
        let rotated = async { app.rooms.rotate_pass_secret().await.map(Ok::<_, Rejection>) };
        answered(&app, pin!(rotated)).await?.map_err(refused)?;
        Ok((StatusCode::CREATED, Json(key_list(&app))))
    });
    measured(&app, Route::PostPassKey, call).await
}
