//! The keys that verify passes.

use super::body::{self, PathName};
use super::json::Json;
use super::room::refused;
use super::room_shape::{PassKey, PassKeyList, PassKeyRevocation};
use super::shape::Problem as ProblemShape;
use super::{answered, measured};
use crate::auth::Scope;
use crate::dashboard::calls;
use crate::error::Code;
use crate::metrics::Route;
use crate::pass::DOMAIN;
use crate::state::App;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use firstcome::RoomStore;
use firstcome::core::room::Rejection;
use firstcome::embedded::journal::PassSecretRevocation;
use serde_json::json;
use std::pin::pin;
use std::sync::Arc;

fn items(app: &App) -> Vec<PassKey> {
    let keys = app.passes().map(|passes| passes.keys().public_keys()).unwrap_or_default();
    keys.into_iter().map(|(kid, public_key)| PassKey { kid: kid.to_string(), public_key }).collect()
}

fn key_list(app: &App) -> PassKeyList {
    PassKeyList { items: items(app), implicit_assertion: DOMAIN }
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

/// Revoke a pass key
///
/// For an emergency: the key has leaked. From the answer on this service refuses all passes that the key signed, also those that
/// have not ended. If it was the signing key, a new key signs from then on. Visitors keep their slots and get a new pass with the
/// next poll. Other nodes of a cluster refuse its passes about a second later. A second time has no effect.
#[utoipa::path(delete, path = "/v1/pass-keys/{kid}", tag = "Rooms", security(("admin" = [])),
    params(("kid" = String, Path, description = "The key id in the footer of its passes")),
    responses(
        (status = 200, description = "The key is revoked, and these keys are accepted", body = PassKeyRevocation),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_pass_key`: there never was such a key", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn delete_pass_key(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.caller(&headers)?.require(Scope::Admin)?;
        let kid = path.map_err(|_| body::undecodable())?.0;
        // A key id is spelt in one way, as in the footer of its passes.
        let id = kid.parse().ok().filter(|id: &u32| id.to_string() == kid);
        let id = id.ok_or(Code::UnknownPassKey)?;
        let revoked = async { app.rooms.revoke_pass_secret(id).await.map(Ok::<_, Rejection>) };
        let was_gone = match answered(&app, pin!(revoked)).await?.map_err(refused)? {
            PassSecretRevocation::Revoked => false,
            PassSecretRevocation::GoneBefore => true,
            PassSecretRevocation::Unknown => return Err(Code::UnknownPassKey.into()),
        };
        let items = items(&app);
        let accepted: Vec<&str> = items.iter().map(|key| key.kid.as_str()).collect();
        calls::changed(None, &json!({"accepted": accepted}));
        Ok(Json(PassKeyRevocation { kid, was_gone, items }))
    });
    measured(&app, Route::DeletePassKey, call).await
}
