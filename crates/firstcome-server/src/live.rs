//! Streams of events (`text/event-stream`): to visitors near the front of a line, and to operators.
//!
//! Polls are the base. A stream tells a change at once, and a client that cannot have one loses nothing but time.
//!
//! # What it promises
//! - One task per room feeds all streams of the room. It wakes at a fixed interval, looks at all its tickets together, and
//!   writes to a stream only if something changed for its visitor, or as a heartbeat.
//! - A stream takes no slot and writes nothing. Its last event tells the visitor to poll, which takes the slot.
//! - An open stream is a contact as often as the room asks for polls, so its visitor stays present. A stream whose client is
//!   known to be gone is none.
//! - Bounded: streams in all, streams per ticket, one event per stream, and the life of a stream, so that a client that
//!   vanished behind a proxy does not stay present.
//! - A stop of the service ends all streams.
//!
//! # What it does not promise
//! - That a client has what its connection has taken: a few events wait in the buffers of the connection and the system. The
//!   time-out of writes of the connection ends a client that takes nothing; here only the life of a stream does.
//! - That a client sees each change: of two changes that it has not taken yet it sees the second one.

mod feed;
mod figures;
mod mailbox;
mod room;
mod samples;

use crate::error::{Code, Problem};
use crate::metrics::{LiveFigures, StreamEnd};
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use feed::Streams;
pub(crate) use figures::{Figures, Scope as FiguresScope};
use firstcome::core::id::RoomName;
use firstcome::throttle::Throttle;
use mailbox::{EventBody, Mailbox};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
pub(crate) use room::{End as StreamLast, Tell, Visitor};
use room::{Place, RoomStreams};
use samples::Charts;
pub(crate) use samples::SamplesWanted;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The streams of visitors that a service has open at most, unless an operator says otherwise. At 24 KiB each they take
/// 96 MiB.
pub const STREAMS_MAX: usize = 4_096;
/// The streams of operators that a service has open at most, those of the dashboard included.
pub const OPERATOR_STREAMS_MAX: usize = 64;
/// How long a client that was refused a stream polls before it asks for one again. Milliseconds.
const REFUSED_RETRY_MS: u64 = 10_000;
/// A proxy that collects an answer before it hands it on must not collect this one. nginx reads this header.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// A comment, which clients skip. It tells proxies that the connection is of use.
const HEARTBEAT: Bytes = Bytes::from_static(b":\n\n");

/// Marks an answer whose body goes on, so that its connection does not count as idle.
#[derive(Clone, Copy)]
pub(crate) struct Streaming;

/// All streams of a service.
pub(crate) struct Live {
    rooms: Mutex<HashMap<RoomName, Arc<RoomStreams>>>,
    operators: Streams<FiguresScope>,
    samples: Streams<Charts>,
    tickets_left: Arc<Semaphore>,
    operators_left: Arc<Semaphore>,
    stopping: watch::Receiver<bool>,
    figures: LiveFigures,
    full: Throttle,
}

/// What an open stream holds. Dropping it frees all.
struct StreamPermit {
    open: Gauge,
    _permit: OwnedSemaphorePermit,
    _place: Option<Place>,
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.open.dec();
    }
}

impl Live {
    pub(crate) fn new(streams_max: usize, stopping: watch::Receiver<bool>, figures: LiveFigures) -> Self {
        let permits = |max: usize| Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS)));
        Self {
            rooms: Mutex::default(),
            operators: Streams::default(),
            samples: Streams::default(),
            tickets_left: permits(streams_max),
            operators_left: permits(OPERATOR_STREAMS_MAX),
            stopping,
            figures,
            full: Throttle::default(),
        }
    }

    /// Takes one of the streams that may be open.
    fn hold(&self, left: &Arc<Semaphore>, open: &Gauge, place: Option<Place>) -> Result<StreamPermit, Problem> {
        let permit = Arc::clone(left).try_acquire_owned().ok().filter(|_| !*self.stopping.borrow());
        let Some(permit) = permit else { return Err(self.refuse()) };
        open.inc();
        Ok(StreamPermit { open: open.clone(), _permit: permit, _place: place })
    }

    fn refuse(&self) -> Problem {
        self.figures.refused.inc();
        if let Some(left_out) = self.full.pass() {
            tracing::warn!(left_out, "refusing streams: too many are open, so these clients poll");
        }
        Problem::new(Code::StreamsFull).retry_after_ms(REFUSED_RETRY_MS)
    }
}

/// What woke a task that feeds streams.
enum Wake {
    Tick,
    Stopping,
}

/// Wakes a task that feeds streams, until the service stops.
struct Wakes {
    ticks: Interval,
    stopping: watch::Receiver<bool>,
}

impl Wakes {
    /// Begins with a tick at once.
    fn every(period: Duration, stopping: watch::Receiver<bool>) -> Self {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticks, stopping }
    }

    /// Waits for the next tick. Cancel safe. Once the service stops, or its application is gone, it does not wait.
    async fn next(&mut self) -> Wake {
        tokio::select! {
            biased;
            _ = self.stopping.wait_for(|&is_stopping| is_stopping) => Wake::Stopping,
            _ = self.ticks.tick() => Wake::Tick,
        }
    }
}

/// Builds the answer that sends what comes into a mailbox.
fn answer(mailbox: Arc<Mailbox>, held: StreamPermit) -> Response {
    let mut response = Body::new(EventBody::new(mailbox, held)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    // The connection ends with the stream: no request waits behind it.
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response.extensions_mut().insert(Streaming);
    response
}

/// Writes one event. JSON has no line breaks of its own.
fn event(name: &str, data: &[u8]) -> Bytes {
    let data = data.trim_ascii_end();
    [b"event: ", name.as_bytes(), b"\ndata: ", data, b"\n\n"].concat().into()
}

/// Spreads clients that are told the same at the same time: up to a second, by their ticket.
const fn spread_ms(number: u32) -> u64 {
    (number.wrapping_mul(0x9e37_79b9) >> 22) as u64
}
