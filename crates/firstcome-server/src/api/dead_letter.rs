//! The endpoint that lists outbox entries that no node could read.

use super::body::{self, PageQuery, PathName};
use super::json::Json;
use super::shape::Problem as ProblemShape;
use super::{NO_STORE, answered, coupon, measured};
use crate::auth::Scope;
use crate::metrics::Route;
use crate::rfc3339::format as instant;
use crate::state::App;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use firstcome::cluster::DeadLetter as Letter;
use serde::Serialize;
use std::fmt::Write;
use std::pin::pin;
use std::sync::Arc;
use utoipa::ToSchema;

/// An outbox entry that no node could read
#[derive(Serialize, ToSchema)]
struct DeadLetter {
    /// Its number among the dead letters of the coupon: grows
    position: u64,
    /// When it was put aside
    #[schema(format = DateTime)]
    at: String,
    /// Why no node could read it
    reason: String,
    /// The bytes of the entry, in hexadecimal digits
    entry: String,
}

impl From<Letter> for DeadLetter {
    fn from(letter: Letter) -> Self {
        let mut entry = String::with_capacity(2 * letter.entry.len());
        for byte in &letter.entry {
            // Writing to a string cannot fail.
            let _ = write!(entry, "{byte:02x}");
        }
        Self { position: letter.position, at: instant(letter.at), reason: letter.reason, entry }
    }
}

/// A page of outbox entries that no node could read, oldest first
#[derive(Serialize, ToSchema)]
struct DeadLetterPage {
    items: Vec<DeadLetter>,
    /// Ask again with `after` set to this; absent at the end
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// List outbox entries of a coupon that no node could read
///
/// Only with `--redis --sql`: another program wrote an entry into this coupon's outbox on Redis that no node could
/// read. It used up no place of the coupon. On other services the list is empty.
#[utoipa::path(get, path = "/v1/coupons/{coupon}/dead-letters", tag = "Coupons", security(("admin" = [])),
    params(("coupon" = String, Path, description = "Name of the coupon"),
        ("after" = Option<u64>, Query, description = "Begin after this position"),
        ("limit" = Option<u32>, Query, description = "At most so many: 1 to 1000, 100 without it")),
    responses(
        (status = 200, description = "A page", body = DeadLetterPage),
        (status = 400, description = "`invalid_name` `invalid_query`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_coupon`", body = ProblemShape),
        (status = 503, description = "`store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_dead_letters(
    State(app): State<Arc<App>>,
    path: PathName,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let call = pin!(async {
        app.reader(&headers)?.require(Scope::Admin)?;
        let coupon = body::coupon(&path.map_err(|_| body::undecodable())?.0)?;
        let page = PageQuery::numbers(uri.query().unwrap_or_default())?;
        let found = answered(&app, pin!(app.coupons.dead_letters(&coupon, page.after, page.limit))).await?;
        let found = found.map_err(|refusal| coupon::refused(&app, &coupon, "", &refusal))?;
        let items = found.items.into_iter().map(DeadLetter::from).collect();
        Ok((NO_STORE, Json(DeadLetterPage { items, next: found.next })).into_response())
    });
    measured(&app, Route::GetDeadLetters, call).await
}
