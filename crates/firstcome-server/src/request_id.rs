//! The id of a request, by which an operator finds in the log what a client reports.
//!
//! # How a line of the log gets it
//! While a handler is polled, its thread knows the id of the request ([`RequestScope`]). What writes lines asks for it by [`current`].
//! So a request costs two writes of a thread-local variable at each poll. A span of `tracing` would cost an allocation and a look at
//! all filters for each request, and almost no request has a line.
//!
//! # What it promises
//! - A line that is written while a handler runs gets the id of its request. If the request has brought none, one is drawn for the
//!   first line, and the answer has it too.
//! - An answer carries the `X-Request-Id` of its request if that has 1 to 64 of `A-Z a-z 0-9 . _ : @ / + = -`. Other values
//!   are ignored: they would be written to logs.
//! - Each answer with a status of 500 or more has an id, and so has each refusal by the router. The service draws one if the
//!   request brings none.
//!
//! # What it does not promise
//! - That an id is unique, if clients choose it.
//! - The id in lines of tasks and threads that work for many requests, such as the writer of a store, or that go on after the answer.
//! - An id on an answer of the hot endpoints below 500 whose request has none: it would cost an allocation.

use crate::trace::ActiveTrace;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use firstcome::edge::draw_hasher;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The header of a request and of its answer.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The most characters of an id that a client chooses.
const CHARS_MAX: usize = 64;

/// Returns the id that a request brings, if it is one.
pub(crate) fn given(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(REQUEST_ID)?;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:@/+=-".contains(byte);
    ((1..=CHARS_MAX).contains(&id.len()) && id.as_bytes().iter().all(is_plain)).then(|| id.clone())
}

/// Names the request in the headers of its answer, unless they name it already: by the id that it has brought, or else by a
/// drawn one if the answer is an error.
pub(crate) fn name(headers: &mut HeaderMap, id: Option<HeaderValue>, is_error: bool) {
    if let Some(id) = id.or_else(|| (is_error && !headers.contains_key(REQUEST_ID)).then(draw)) {
        headers.entry(REQUEST_ID).or_insert(id);
    }
}

/// Draws an id of 16 hexadecimal digits. Two of one process are the same with probability 2^-64, and no client can guess one.
pub(crate) fn draw() -> HeaderValue {
    static SEED: OnceLock<RandomState> = OnceLock::new();
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let id = SEED.get_or_init(draw_hasher).hash_one(DRAWN.fetch_add(1, Ordering::Relaxed));
    // Hexadecimal digits are always a header value.
    HeaderValue::try_from(format!("{id:016x}")).unwrap_or(HeaderValue::from_static("0"))
}

/// The request that a handler works on.
#[derive(Default)]
pub(crate) struct RequestScope {
    id: Option<HeaderValue>,
    /// What is recorded of it, if it is sampled.
    trace: Option<Box<ActiveTrace>>,
}

thread_local! {
    /// The request whose handler is polled on this thread.
    static CURRENT: Cell<Option<RequestScope>> = const { Cell::new(None) };
}

impl RequestScope {
    /// The scope of a request that has brought this id.
    pub(crate) fn of(id: Option<HeaderValue>) -> Self {
        Self { id, trace: None }
    }

    /// The same, of a request that is traced if there is a trace.
    pub(crate) fn traced(self, trace: Option<Box<ActiveTrace>>) -> Self {
        Self { trace, ..self }
    }

    /// Adds to what is recorded of the request under way on this thread. `None` if nothing is.
    pub(crate) fn with_trace<T>(add: impl FnOnce(&mut ActiveTrace) -> T) -> Option<T> {
        CURRENT.with(|current| {
            let mut request = current.take()?;
            let added = request.trace.as_deref_mut().map(add);
            current.set(Some(request));
            added
        })
    }

    /// Polls the handler of this request. Lines that it writes belong to the request.
    pub(crate) fn within<T>(&mut self, poll: impl FnOnce() -> T) -> T {
        let outer = CURRENT.replace(Some(std::mem::take(self)));
        let polled = poll();
        *self = CURRENT.replace(outer).unwrap_or_default();
        polled
    }

    /// Returns the id that the request has brought, or that was drawn for a line of the log.
    pub(crate) fn into_id(self) -> Option<HeaderValue> {
        self.id
    }

    /// Returns the id, and what was recorded.
    pub(crate) fn into_parts(self) -> (Option<HeaderValue>, Option<Box<ActiveTrace>>) {
        (self.id, self.trace)
    }
}

/// Returns the id of the request whose handler runs on this thread, for a line of the log. Draws one if the request has none;
/// its answer has it then. `None` outside of handlers.
pub fn current() -> Option<String> {
    // Lines are also written while a thread ends, when its variables are gone.
    CURRENT
        .try_with(|current| {
            let mut request = current.take()?;
            let id = text(request.id.get_or_insert_with(draw)).to_owned();
            current.set(Some(request));
            Some(id)
        })
        .ok()?
}

/// The text of an id: [`given`] and [`draw`] return ASCII alone.
pub(crate) fn text(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_that_are_safe_in_a_log_are_taken() {
        let long = "x".repeat(65);
        for (value, is_taken) in [
            ("a", true),
            (&long[1..], true),
            ("Root=1-67891233/abc+d:e@f.g_h", true),
            (&long, false),
            ("", false),
            ("a b", false),
            ("a\tb", false),
            ("a\"b", false),
            ("a;b", false),
        ] {
            let headers = HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_str(value).unwrap())]);
            assert_eq!(given(&headers).is_some(), is_taken, "{value:?}");
        }
        let latin = HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_bytes(b"\xe4").unwrap())]);
        assert!(given(&latin).is_none() && given(&HeaderMap::new()).is_none());
    }

    #[test]
    fn lines_of_a_handler_have_the_id_of_its_request() {
        assert_eq!(current(), None);
        let mut brought = RequestScope::of(Some(HeaderValue::from_static("a-1")));
        let mut without = RequestScope::of(None);
        let drawn = brought.within(|| {
            assert_eq!(current().as_deref(), Some("a-1"));
            let drawn = without.within(|| (current(), current()));
            assert_eq!(current().as_deref(), Some("a-1"), "the outer one is back");
            drawn
        });
        assert_eq!((drawn.0.is_some(), &drawn.0), (true, &drawn.1), "it is drawn once");
        assert_eq!(without.within(current), drawn.0, "also at a later poll");
        assert_eq!(without.into_id().as_ref().map(text), drawn.0.as_deref(), "and the answer has it");
        assert_eq!(RequestScope::default().into_id(), None, "no line, no id");
        assert_eq!(current(), None);
    }

    #[test]
    fn drawn_ids_differ() {
        let ids: std::collections::BTreeSet<String> = (0..1_000).map(|_| text(&draw()).to_owned()).collect();
        assert!(ids.len() == 1_000 && ids.iter().all(|id| id.len() == 16));
    }
}
