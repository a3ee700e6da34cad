//! The endpoint of the HTTP API that erases a person.

use super::body;
use super::json::Json;
use super::shape::Problem as ProblemShape;
use super::{NO_STORE, answered, measured};
use crate::auth::Scope;
use crate::dashboard::calls;
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::state::App;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use firstcome::StoreError;
use firstcome::core::erase::{Erased, Rejection};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::pin::pin;
use std::sync::Arc;
use utoipa::ToSchema;

/// The bytes of a digest that the record of operators shows.
const DIGEST_BYTES: usize = 16;

/// A person to erase
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct ErasureBody {
    /// The user, who is also the member of this name
    #[schema(example = "ann")]
    user: String,
}

/// How many rows an erasure changed; all are 0 if there was nothing of the person
#[derive(Serialize, ToSchema)]
pub(crate) struct ErasureShown {
    /// Claims, whose user is a pseudonym now
    claims: u64,
    /// Tickets that named the user; those that lived have left
    tickets: u64,
    /// Members, whose name is a pseudonym now: 0 or 1
    members: u64,
    /// Records of the member, whose chain was made again
    records: u64,
    /// Listings that named the member
    listings: u64,
}

impl From<Erased> for ErasureShown {
    fn from(erased: Erased) -> Self {
        let Erased { claims, tickets, members, records, listings } = erased;
        Self { claims, tickets, members, records, listings }
    }
}

/// Returns the digest that stands for a name in the record of operators: a reader who knows the name can find the entry, and the
/// entry does not tell the name.
fn digest(user: &str) -> String {
    let digest = Sha256::digest(user.as_bytes());
    digest[..DIGEST_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn refused(rejection: &Rejection) -> Problem {
    let says = format!("{rejection}.");
    match rejection {
        Rejection::PointsHeld(points) => Problem::new(Code::PointsHeld).detail(says).with("points", *points),
        Rejection::OwnsAuction(listing) => {
            Problem::new(Code::OwnsAuction).detail(says).with("listing", listing.as_str())
        }
        _ => Problem::new(Code::StoreUnavailable),
    }
}

/// Erase a person
///
/// Claims, points, bids and listings of the user keep a pseudonym in place of the name, and attributes go. Codes that the user has
/// are void. A living place leaves its line. The same user may come again, as a new person. A second time finds nothing. The
/// erasure is durable before the answer. After `outcome_unknown`, send it again: it has no second effect.
#[utoipa::path(post, path = "/v1/erasures", tag = "Erasures", security(("admin" = [])),
    request_body = ErasureBody,
    responses(
        (status = 200, description = "The person is erased", body = ErasureShown),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 409, description = "`points_held` `owns_auction`", body = ProblemShape),
        (status = 413, description = "`body_too_large`", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn post_erasure(State(app): State<Arc<App>>, request: Request) -> Response {
    let call = pin!(async {
        let (parts, body) = request.into_parts();
        app.caller(&parts.headers)?.require(Scope::Admin)?;
        let bytes = body::read(&parts.headers, body, app.config.limits.body).await?;
        let user = body::user(&body::parse::<ErasureBody>(&bytes)?.user)?;
        // A task of its own, which goes on when the caller has left.
        let (ours, name) = (Arc::clone(&app), user.clone());
        let erasure = tokio::spawn(async move { ours.erasures.erase(&name).await });
        let erased = async { erasure.await.unwrap_or(Err(StoreError::Unknown)) };
        let erased = answered(&app, pin!(erased)).await?.map_err(|rejection| refused(&rejection))?;
        let shown = ErasureShown::from(erased);
        let mut after = json!({"digest": digest(user.as_str())});
        if let (Some(after), Ok(serde_json::Value::Object(rows))) =
            (after.as_object_mut(), serde_json::to_value(&shown))
        {
            after.extend(rows);
        }
        calls::changed(None, &after);
        Ok((StatusCode::OK, NO_STORE, Json(shown)).into_response())
    });
    measured(&app, Route::PostErasure, call).await
}
