//! Notices when an answer is whole: a connection is idle from then on, and not from the beginning of its answer.

use crate::accept::ConnectionSlot;
use axum::body::Body;
use bytes::Bytes;
use http_body_util::Either;
use hyper::body::{Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The body of an answer of the site, or of the gate itself.
pub(super) type AnswerBody = Either<Incoming, Body>;

/// A body that says when it is whole, or when its visitor takes no more of it.
pub(super) struct Whole {
    body: AnswerBody,
    /// `None` if the connection carries no more requests after this answer.
    place: Option<Arc<ConnectionSlot>>,
}

impl Whole {
    pub(super) const fn new(body: AnswerBody, place: Option<Arc<ConnectionSlot>>) -> Self {
        Self { body, place }
    }
}

impl hyper::body::Body for Whole {
    type Data = Bytes;
    type Error = <AnswerBody as hyper::body::Body>::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            place.end_request();
        }
    }
}
