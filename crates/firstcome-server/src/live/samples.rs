//! The streams of the dashboard: the samples that its charts draw, once a second.
//!
//! An event has all samples after the last event that the connection has taken, so a client that takes events slowly
//! misses none. A client may then see a sample twice.

use super::feed::{Feed, Stream, Streams};
use super::{Live, StreamEnd, event};
use crate::api::json::json_bytes;
use crate::dashboard::logout::PATIENCE;
use crate::dashboard::session::Session;
use crate::error::Problem;
use crate::state::App;
use axum::response::Response;
use firstcome::core::id::RoomName;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::time::timeout;

/// What a page of the dashboard draws.
pub(crate) struct SamplesWanted {
    /// The room of the page; `None` for the whole service.
    pub(crate) room: Option<RoomName>,
    /// Samples up to this instant are known. Milliseconds.
    pub(crate) after_ms: i64,
}

/// The charts of one page.
pub(super) struct Charts {
    room: Option<RoomName>,
    session: Session,
    known: Mutex<Known>,
}

/// Which samples a page has. Milliseconds.
struct Known {
    /// The newest sample that its connection has taken.
    taken_ms: i64,
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
        let SamplesWanted { room, after_ms } = wanted;
        let known = Mutex::new(Known { taken_ms: after_ms, posted_ms: after_ms });
        self.open_feed(app, Charts { room, session, known })
    }

    /// Ends the streams of a session that has logged out.
    pub(crate) fn end_session(&self, app: &App, id: &str) {
        self.samples.end(app, StreamEnd::Session, |charts| charts.session.id == id);
    }
}

/// Ends the streams whose session has logged out at another node. A Redis that is away delays the next tick by [`PATIENCE`] at most.
async fn end_logged_out(app: &App, streams: &[Arc<Stream<Charts>>]) {
    let mut sessions: Vec<&Session> = Vec::new();
    for stream in streams {
        if sessions.iter().all(|known| known.id != stream.shows.session.id) {
            sessions.push(&stream.shows.session);
        }
    }
    let asked = async {
        for session in sessions {
            if app.has_logged_out(session).await {
                app.live.end_session(app, &session.id);
            }
        }
    };
    // A session that was not asked about in time is asked about at the next tick.
    let _ = timeout(PATIENCE, asked).await;
}

impl Feed for Charts {
    fn streams(live: &Live) -> &Streams<Self> {
        &live.samples
    }

    /// Ends the streams whose session is over, and writes new samples to the others. On a cluster it asks Redis about each session
    /// once a second.
    async fn feed(app: &App, streams: &[Arc<Stream<Self>>]) {
        end_logged_out(app, streams).await;
        let now_s = app.backend.now().as_us().div_euclid(1_000_000);
        app.live.samples.end(app, StreamEnd::Session, |charts| charts.session.left_s(now_s) == 0);
        for stream in streams {
            let Charts { room, known, .. } = &stream.shows;
            let mut known = known.lock();
            if stream.is_taken() {
                known.taken_ms = known.posted_ms;
            }
            let shown = app.dashboard.samples(app, room.as_ref(), known.taken_ms);
            let newest_ms = shown["at_ms"].as_array().and_then(|instants| instants.last()?.as_i64());
            if let Some(newest_ms) = newest_ms.filter(|&newest_ms| known.posted_ms < newest_ms) {
                known.posted_ms = newest_ms;
                stream.post(app, event("samples", &json_bytes(&shown)));
            }
        }
    }
}
