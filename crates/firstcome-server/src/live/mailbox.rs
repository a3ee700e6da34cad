//! What a stream has still to send, between the task that writes events and the connection that takes them.

use bytes::Bytes;
use hyper::body::{Body, Frame};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Whether an event is the last one of its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Last {
    No,
    Yes,
}

/// Holds at most one event: a newer one takes the place of one that was not taken, since it says more.
#[derive(Default)]
pub(super) struct Mailbox(Mutex<Mail>);

#[derive(Default)]
struct Mail {
    event: Option<Bytes>,
    is_ended: bool,
    /// Whether the connection is gone.
    is_abandoned: bool,
    reader: Option<Waker>,
}

impl Mailbox {
    /// Makes a mailbox with its first event.
    pub(super) fn with(event: Bytes) -> Self {
        Self(Mutex::new(Mail { event: Some(event), ..Mail::default() }))
    }

    /// Leaves an event for the connection, and wakes it. Events after the last one are dropped.
    pub(super) fn post(&self, event: Bytes, last: Last) {
        let reader = {
            let mut mail = self.0.lock();
            if !mail.is_ended {
                mail.event = Some(event);
                mail.is_ended = last == Last::Yes;
            }
            mail.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Whether the connection has taken all that was posted.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().event.is_none()
    }

    /// Whether the connection is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.0.lock().is_abandoned
    }

    fn take(&self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        let mut mail = self.0.lock();
        match mail.event.take() {
            Some(event) => Poll::Ready(Some(event)),
            None if mail.is_ended => Poll::Ready(None),
            None => {
                mail.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The body of a stream. Dropping it ends the stream, and frees what `held` holds.
pub(super) struct EventBody<T> {
    mailbox: Arc<Mailbox>,
    _held: T,
}

impl<T> EventBody<T> {
    pub(super) const fn new(mailbox: Arc<Mailbox>, held: T) -> Self {
        Self { mailbox, _held: held }
    }
}

impl<T: Unpin> Body for EventBody<T> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.mailbox.take(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

impl<T> Drop for EventBody<T> {
    fn drop(&mut self) {
        self.mailbox.0.lock().is_abandoned = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn taken(body: &mut EventBody<()>) -> Option<Option<Bytes>> {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(body).poll_frame(&mut cx) {
            Poll::Ready(frame) => Some(frame.map(|frame| frame.unwrap().into_data().unwrap())),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_newer_event_replaces_one_that_was_not_taken_and_the_last_one_stays_the_last() {
        let mailbox = Arc::new(Mailbox::with(Bytes::from_static(b"first")));
        let mut body = EventBody::new(Arc::clone(&mailbox), ());
        assert_eq!(taken(&mut body), Some(Some("first".into())));
        assert!(taken(&mut body).is_none() && mailbox.is_empty());
        mailbox.post("second".into(), Last::No);
        mailbox.post("third".into(), Last::No);
        assert!(!mailbox.is_empty());
        assert_eq!(taken(&mut body), Some(Some("third".into())));
        mailbox.post("end".into(), Last::Yes);
        mailbox.post("late".into(), Last::No);
        assert_eq!(taken(&mut body), Some(Some("end".into())));
        assert_eq!(taken(&mut body), Some(None));
        assert!(!mailbox.is_abandoned());
        drop(body);
        assert!(mailbox.is_abandoned());
    }

    #[tokio::test]
    async fn an_event_wakes_the_connection_that_waits_for_it() {
        let mailbox = Arc::new(Mailbox::with("first".into()));
        let mut body = EventBody::new(Arc::clone(&mailbox), ());
        body.frame().await;
        let reading = tokio::spawn(async move { body.frame().await });
        tokio::task::yield_now().await;
        mailbox.post("second".into(), Last::No);
        let frame = reading.await.unwrap().unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "second");
    }
}
