//! JSON answers.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// The initial capacity of an answer's buffer. Most answers fit without a reallocation.
const BYTES_USUAL: usize = 512;

/// A JSON answer that ends with a newline, so that a terminal shows the prompt on a line of its own.
pub(crate) struct Json<T>(pub(crate) T);

/// Returns a value as JSON, with the newline that all answers end with.
pub(crate) fn json_bytes(value: &impl Serialize) -> Vec<u8> {
    let mut body = Vec::with_capacity(BYTES_USUAL);
    // Texts, numbers and maps from texts always have a JSON form.
    let _ = serde_json::to_writer(&mut body, value);
    body.push(b'\n');
    body
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let mut response = Response::new(json_bytes(&self.0).into());
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}
