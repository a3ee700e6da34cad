//! Reads the rest of a body that a handler did not read.
//!
//! A handler often refuses a request before it has read the body. hyper then closes the connection after the answer
//! without announcing it, and the client's next request on it fails. So the server reads the rest of the body first,
//! if that is cheap. Otherwise the answer carries `connection: close`.

use super::slots::{ConnectionSlot, KeptBody};
use bytes::Bytes;
use firstcome::core::limits::BODY_BYTES_MAX;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;

/// How long an answer waits for the rest of a body.
const READ_WITHIN: Duration = Duration::from_millis(250);

/// Receives a body that a handler dropped before its end. One per connection, which has one request at a time.
#[derive(Clone, Default)]
pub(crate) struct Slot(Arc<Mutex<Option<Incoming>>>);

/// A body on its way to a handler.
pub(crate) struct LentBody {
    /// `None` after its end.
    body: Option<Incoming>,
    /// `None` if its reader keeps it.
    slot: Option<Slot>,
    /// Present if its reader keeps it, until its end.
    kept: Option<KeptBody>,
}

/// Whether the whole body was read, so that the connection can be used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    Read,
    Left,
}

impl Slot {
    pub(crate) fn lend(&self, body: Incoming) -> LentBody {
        LentBody { body: Some(body), slot: Some(self.clone()), kept: None }
    }

    /// Reads the part of the body that the handler has left. Reads nothing if the client sent `Expect: 100-continue`:
    /// such a client need not send the body.
    pub(crate) async fn read_rest(&self, client_waits: bool) -> Rest {
        let body = self.0.lock().take();
        match body {
            None => Rest::Read,
            Some(body) if client_waits || (BODY_BYTES_MAX as u64) < body.size_hint().lower() => Rest::Left,
            Some(body) => timeout(READ_WITHIN, read(body)).await.unwrap_or(Rest::Left),
        }
    }
}

impl LentBody {
    /// Lends it for good: what its reader leaves does not come back, and ends the connection. While the reader takes it, the
    /// connection at this place is not idle, also after the answer.
    pub(crate) fn keep(mut self, place: &Arc<ConnectionSlot>) -> Self {
        self.slot = None;
        self.kept = (!self.is_end_stream()).then(|| place.begin_body());
        self
    }
}

async fn read(mut body: Incoming) -> Rest {
    let mut left = BODY_BYTES_MAX;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Rest::Left };
        match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
            Some(still) => left = still,
            None => return Rest::Left,
        }
    }
    Rest::Read
}

impl Body for LentBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        match polled {
            Poll::Ready(None | Some(Err(_))) => (self.body, self.kept) = (None, None),
            Poll::Ready(Some(Ok(_))) => self.kept.iter().for_each(KeptBody::take),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if let Some(slot) = &self.slot {
            *slot.0.lock() = self.body.take().filter(|body| !body.is_end_stream());
        }
    }
}
