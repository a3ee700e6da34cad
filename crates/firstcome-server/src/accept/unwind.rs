//! What becomes of a request whose handler panics.
//!
//! # What it promises
//! - The client is answered 500 `internal_error` with the id of the request, and the log has the same id beside the message
//!   of the panic. Of a flood of panics at one place the log may have one a second: see `crate::panics`. Other requests and
//!   connections go on.
//! - A panic while the store is changed ends the store's writer: see `firstcome_store::embedded`. Writes are refused until a
//!   restart, so that none starts from a half changed state.
//!
//! # What it does not promise
//! - That the call had no effect. A repeat with the same idempotency key has no second one.

use crate::error::{Code, Problem};
use crate::panics;
use crate::request_id::{self, RequestScope};
use crate::state::App;
use axum::http::HeaderValue;
use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

/// What a handler has panicked with.
pub(crate) struct Panic(Box<dyn Any + Send>);

/// Waits for a call, and catches its panic. Takes the call pinned, since it is large. Lines that the call logs belong to the
/// request of this scope.
pub(crate) async fn caught<T>(
    request: &mut RequestScope,
    mut call: Pin<&mut impl Future<Output = T>>,
) -> Result<T, Panic> {
    poll_fn(|cx| {
        // After a panic the call is not polled again. Its locks are free, and what they guard is checked before it is
        // changed.
        request.within(|| match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(Panic(panic))),
        })
    })
    .await
}

impl Panic {
    /// Counts the panic, and logs it unless the hook of the process has. Returns the problem for the client, with the id that its
    /// request has brought or a drawn one.
    pub(crate) fn problem(&self, app: &App, id: Option<&HeaderValue>) -> Problem {
        let id = id.cloned().unwrap_or_else(request_id::draw);
        let request_id = request_id::text(&id);
        if !panics::is_logged() {
            let message = panics::message(&*self.0);
            tracing::error!(request_id, panic = message, "a handler panicked: this is a bug of the service");
        }
        app.metrics.panicked();
        Problem::new(Code::InternalError).with("request_id", request_id).named(id)
    }
}
