//! JSON answers.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// The initial capacity of an answer's buffer. Most answers fit without a reallocation.
const BYTES_USUAL: usize = 512;

/// A JSON answer that ends with a newline, so that a terminal shows the prompt on a line of its own.
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
