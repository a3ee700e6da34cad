//! What programs need that verify passes by their signature: which passes are void before their end.

use super::body::{self, PathName};
use super::json::Json;
use super::room::refused;
use super::room_shape::PassList;
use super::shape::Problem as ProblemShape;
use super::{NO_STORE, answered, measured};
use crate::auth::Scope;
use crate::error::Problem;
use crate::metrics::Route;
use crate::rfc3339::format as instant;
use crate::state::App;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use firstcome::RoomStore;
use sha2::{Digest, Sha256};
use std::pin::pin;
use std::sync::Arc;

/// Says when the items of an answer were true, also where it has no body.
const AS_OF: HeaderName = HeaderName::from_static("x-firstcome-as-of");

/// The passes that are not void
///
/// For services that verify passes by their signature. A slot that its visitor or a back end gives up, or that ends by the idle
/// time-out, is no longer listed, though its pass has not expired. Ask about once a second, and send the `ETag` of the last answer
/// in `If-None-Match`: 304 has no body, and says in `X-Firstcome-As-Of` when the items
/// were true. No contact for the idle time-out. Slots that are offered are listed too, so an
/// admission that is not listed was over at that instant, or came later.
#[utoipa::path(get, path = "/v1/rooms/{room}/passes", tag = "Rooms", security(("service" = [])),
    params(("room" = String, Path, description = "Name of the room"),
        ("If-None-Match" = Option<String>, Header, description = "The `ETag` of the last answer")),
    responses(
        (status = 200, description = "The passes", body = PassList,
            headers(("ETag" = String, description = "Names these items, at every node"),
                ("X-Firstcome-As-Of" = String, description = "When the items were true, also with a 304"))),
        (status = 304, description = "The same passes as in the answer with that `ETag`: `X-Firstcome-As-Of` says when"),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_passes(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.caller(&headers)?.require(Scope::Service)?;
        let room = body::room(&path.map_err(|_| body::undecodable())?.0)?;
        let live = answered(&app, pin!(app.rooms.admissions(&room))).await?.map_err(refused)?;
        let items: Vec<_> = live.admissions.iter().map(|(number, slot)| (number.get(), *slot)).collect();
        let (tag, as_of) = (tag(&items), instant(live.as_of));
        let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == tag);
        let at = HeaderValue::try_from(&as_of).unwrap_or(HeaderValue::from_static(""));
        let names = [(header::ETAG, tag), (AS_OF, at)];
        if is_known {
            return Ok::<_, Problem>((StatusCode::NOT_MODIFIED, NO_STORE, names).into_response());
        }
        Ok((NO_STORE, names, Json(PassList { as_of, items })).into_response())
    });
    measured(&app, Route::GetPasses, call).await
}

/// Names items: the same at every node.
fn tag(items: &[(u32, u64)]) -> HeaderValue {
    let mut digest = Sha256::new();
    for (number, slot) in items {
        digest.update(number.to_be_bytes());
        digest.update(slot.to_be_bytes());
    }
    let digest = digest.finalize();
    let text: String = digest[..12].iter().map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::try_from(format!("\"{text}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}
