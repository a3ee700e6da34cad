//! Answers in JSON.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// Most answers fit in so many bytes, and are written without moving them.
const BYTES_USUAL: usize = 512;

/// An answer in JSON, with an end of line: in a terminal, the next answer or the prompt begins on a line of its own.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let mut body = Vec::with_capacity(BYTES_USUAL);
        if serde_json::to_writer(&mut body, &self.0).is_err() {
            // Texts, numbers and maps from texts always have a JSON form.
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        body.push(b'\n');
        let mut response = Response::new(body.into());
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}
