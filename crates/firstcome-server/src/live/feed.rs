//! Streams to operators, which one task of each kind feeds once a second: what figures and samples have in common.

use super::mailbox::{Last, Mailbox};
use super::{Live, StreamEnd, Wake, Wakes, answer, event};
use crate::error::Problem;
use crate::state::App;
use axum::response::Response;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often a task feeds its streams.
const TICK: Duration = Duration::from_secs(1);

/// What a stream shows.
pub(super) trait Feed: Send + Sync + Sized + 'static {
    /// The streams of this kind.
    fn streams(live: &Live) -> &Streams<Self>;

    /// Posts what is new to these streams, which are all of this kind.
    fn feed(app: &App, streams: &[Arc<Stream<Self>>]) -> impl Future<Output = ()> + Send;
}

/// An open stream.
pub(super) struct Stream<F> {
    pub(super) shows: F,
    mailbox: Arc<Mailbox>,
}

impl<F> Stream<F> {
    /// Whether the connection has taken all that was posted.
    pub(super) fn is_taken(&self) -> bool {
        self.mailbox.is_empty()
    }

    /// Posts an event. After the end it has no effect.
    pub(super) fn post(&self, app: &App, event: Bytes) {
        self.mailbox.post(event, Last::No);
        app.metrics.live.events.inc();
    }

    fn end(&self, app: &App, reason: StreamEnd) {
        app.metrics.live.ended(reason);
        app.metrics.live.events.inc();
        let last = format!(r#"{{"reason":"{}"}}"#, reason.as_str());
        self.mailbox.post(event("end", last.as_bytes()), Last::Yes);
    }
}

/// The open streams of one kind, as their task, the connections and logouts share them.
pub(super) struct Streams<F>(Mutex<State<F>>);

struct State<F> {
    open: Vec<Arc<Stream<F>>>,
    /// Whether the task runs.
    is_running: bool,
}

impl<F> Default for Streams<F> {
    fn default() -> Self {
        Self(Mutex::new(State { open: Vec::new(), is_running: false }))
    }
}

impl<F> Streams<F> {
    /// Ends each open stream of which `is_over` is true.
    pub(super) fn end(&self, app: &App, reason: StreamEnd, is_over: impl Fn(&F) -> bool) {
        let mut state = self.0.lock();
        state.open.extract_if(.., |stream| is_over(&stream.shows)).for_each(|stream| stream.end(app, reason));
    }
}

impl Live {
    /// Opens a stream for an operator. Refused if too many are open, or the service stops.
    pub(super) fn open_feed<F: Feed>(&self, app: &Arc<App>, shows: F) -> Result<Response, Problem> {
        let held = self.hold(&self.operators_left, &self.figures.operators, None)?;
        // A comment, so that the client learns at once that the stream is there.
        let mailbox = Arc::new(Mailbox::with(super::HEARTBEAT));
        let is_new = {
            let mut state = F::streams(self).0.lock();
            state.open.push(Arc::new(Stream { shows, mailbox: Arc::clone(&mailbox) }));
            !std::mem::replace(&mut state.is_running, true)
        };
        if is_new {
            tokio::spawn(run::<F>(Arc::downgrade(app), Wakes::every(TICK, self.stopping.clone())));
        }
        Ok(answer(mailbox, held))
    }
}

/// Feeds the streams of one kind until there is none.
async fn run<F: Feed>(app: Weak<App>, mut wakes: Wakes) {
    loop {
        let wake = wakes.next().await;
        let Some(app) = app.upgrade() else { return };
        app.metrics.live.ticks.inc();
        let open = {
            let mut state = F::streams(&app.live).0.lock();
            state.open.retain(|stream| !stream.mailbox.is_abandoned());
            if let Wake::Stopping = wake {
                state.open.drain(..).for_each(|stream| stream.end(&app, StreamEnd::Stopping));
            }
            if state.open.is_empty() {
                state.is_running = false;
                return;
            }
            state.open.clone()
        };
        F::feed(&app, &open).await;
    }
}
