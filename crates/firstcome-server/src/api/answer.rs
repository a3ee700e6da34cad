//! Answers that are whole in memory.

use super::REPLAYED;
use super::json::json_bytes;
use crate::error::Problem;
use crate::security_headers;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use firstcome::core::coupon::Effect;
use http_body_util::Full;
use serde::Serialize;

/// An answer whose body is in memory. hyper writes its head and its body at once.
pub(crate) type Whole = Response<Full<Bytes>>;

/// Room for the headers of an answer that has no request's map to use.
pub(crate) const HEADERS_USUAL: usize = 6;

/// A JSON answer that no cache may keep.
pub(crate) struct Answer {
    status: StatusCode,
    is_replayed: bool,
    body: Bytes,
}

impl Answer {
    pub(crate) fn new(status: StatusCode, body: &impl Serialize) -> Self {
        Self { status, is_replayed: false, body: json_bytes(body).into() }
    }

    /// Says in the answer whether the effect is that of an earlier copy of the request.
    pub(crate) fn replayed<T>(mut self, effect: &Effect<T>) -> Self {
        self.is_replayed = matches!(effect, Effect::Again(_));
        self
    }

    /// Builds the answer, whose headers go into `headers`. The map is emptied before. A caller passes the map of the
    /// request, which has room for them.
    pub(crate) fn whole(self, headers: HeaderMap) -> Whole {
        let mut response = whole(self.status, headers, self.body, HeaderValue::from_static("application/json"));
        if self.is_replayed {
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        }
        response
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response<Body> {
        self.whole(HeaderMap::with_capacity(HEADERS_USUAL)).map(Body::new)
    }
}

/// Builds an answer of this content type, which no cache may keep. Its headers go into `headers`, which is emptied before.
pub(crate) fn whole(status: StatusCode, mut headers: HeaderMap, body: Bytes, kind: HeaderValue) -> Whole {
    headers.clear();
    headers.insert(header::CONTENT_TYPE, kind);
    security_headers::add(&mut headers);
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Builds the answer to a call or its problem, whose headers go into `headers`. The map is emptied before.
pub(crate) fn settle(outcome: Result<Answer, Problem>, headers: HeaderMap) -> Whole {
    match outcome {
        Ok(answer) => answer.whole(headers),
        Err(problem) => problem.whole(headers),
    }
}
