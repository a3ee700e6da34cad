//! The streams of the dashboard: the samples that its charts draw, once a second.
//!
//! An event has all samples after the last event that the connection has taken, so a client that takes events slowly
//! misses none. A client may then see a sample twice.

use super::mailbox::{Last, Mailbox};
use super::{Live, StreamEnd, Wake, Wakes, answer, event};
use crate::api::json::json_bytes;
use crate::dashboard::logout::PATIENCE;
use crate::dashboard::session::Session;
use crate::error::Problem;
use crate::state::App;
use axum::response::Response;
use firstcome::core::id::RoomName;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::timeout;

/// How often samples are sent.
const TICK: Duration = Duration::from_secs(1);

/// What a page of the dashboard draws.
pub(crate) struct SamplesWanted {
    /// The room of the page; `None` for the whole service.
    pub(crate) room: Option<RoomName>,
    /// Samples up to this instant are known. Milliseconds.
    pub(crate) after_ms: i64,
}

/// The streams of the dashboard, as the task, the connections and logouts share them.
#[derive(Default)]
pub(super) struct SamplesStreams(Mutex<State>);

#[derive(Default)]
struct State {
    streams: Vec<Stream>,
    is_running: bool,
}

struct Stream {
    wanted: SamplesWanted,
    session: Session,
    mailbox: Arc<Mailbox>,
    /// The newest sample that was posted.
    posted_ms: i64,
}

impl Live {
    /// Opens a stream for a page of the dashboard. Refused if too many are open, if visitors may have none either, or if
    /// the service stops. The stream ends with the session.
    pub(crate) fn open_samples(
        &self,
        app: &Arc<App>,
        wanted: SamplesWanted,
        session: Session,
    ) -> Result<Response, Problem> {
        if app.config.streams_max == 0 {
            return Err(self.refuse());
        }
        let held = self.hold(&self.operators_left, &self.figures.operators, None)?;
        // A comment, so that the browser learns at once that the stream is there.
        let mailbox = Arc::new(Mailbox::with(super::HEARTBEAT));
        let posted_ms = wanted.after_ms;
        let is_new = {
            let mut state = self.samples.0.lock();
            state.streams.push(Stream { wanted, session, mailbox: Arc::clone(&mailbox), posted_ms });
            !std::mem::replace(&mut state.is_running, true)
        };
        if is_new {
            tokio::spawn(run(Arc::downgrade(app), Wakes::every(TICK, self.stopping.clone())));
        }
        Ok(answer(mailbox, held))
    }

    /// Ends the streams of a session that has logged out.
    pub(crate) fn end_session(&self, app: &App, id: &str) {
        let is_over = |stream: &mut Stream| stream.session.id == id;
        self.samples.0.lock().streams.extract_if(.., is_over).for_each(|stream| end(app, &stream, StreamEnd::Session));
    }
}

/// Feeds the streams of the dashboard until there is none.
async fn run(app: Weak<App>, mut wakes: Wakes) {
    loop {
        let wake = wakes.next().await;
        let Some(app) = app.upgrade() else { return };
        app.metrics.live.ticks.inc();
        if let Wake::Tick = wake {
            end_logged_out(&app).await;
        }
        let mut state = app.live.samples.0.lock();
        state.streams.retain(|stream| !stream.mailbox.is_abandoned());
        match wake {
            Wake::Stopping => state.streams.drain(..).for_each(|stream| end(&app, &stream, StreamEnd::Stopping)),
            Wake::Tick => feed(&app, &mut state.streams),
        }
        if state.streams.is_empty() {
            state.is_running = false;
            return;
        }
    }
}

/// Ends the streams whose session has logged out at another node. A Redis that is away delays neither the next tick nor a stop.
async fn end_logged_out(app: &App) {
    let mut sessions: Vec<Session> = Vec::new();
    for stream in &app.live.samples.0.lock().streams {
        if sessions.iter().all(|known| known.id != stream.session.id) {
            sessions.push(stream.session.clone());
        }
    }
    let asked = async {
        for session in &sessions {
            if app.has_logged_out(session).await {
                app.live.end_session(app, &session.id);
            }
        }
    };
    // A session that was not asked about in time is asked about at the next tick.
    let _ = timeout(PATIENCE, asked).await;
}

/// Ends the streams whose session is over, and writes new samples to the others. Does no I/O.
fn feed(app: &App, streams: &mut Vec<Stream>) {
    let now_s = app.backend.now().as_us().div_euclid(1_000_000);
    let is_over = |stream: &mut Stream| stream.session.left_s(now_s) == 0;
    streams.extract_if(.., is_over).for_each(|stream| end(app, &stream, StreamEnd::Session));
    for stream in streams {
        if stream.mailbox.is_empty() {
            stream.wanted.after_ms = stream.posted_ms;
        }
        let shown = app.dashboard.samples(app, stream.wanted.room.as_ref(), stream.wanted.after_ms);
        let newest_ms = shown["at_ms"].as_array().and_then(|instants| instants.last()?.as_i64());
        if let Some(newest_ms) = newest_ms.filter(|&newest_ms| stream.posted_ms < newest_ms) {
            stream.posted_ms = newest_ms;
            stream.mailbox.post(event("samples", &json_bytes(&shown)), Last::No);
            app.metrics.live.events.inc();
        }
    }
}

fn end(app: &App, stream: &Stream, reason: StreamEnd) {
    app.metrics.live.ended(reason);
    app.metrics.live.events.inc();
    let last = format!(r#"{{"reason":"{}"}}"#, reason.as_str());
    stream.mailbox.post(event("end", last.as_bytes()), Last::Yes);
}
