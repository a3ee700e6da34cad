//! The streams of operators: the figures of rooms, once a second.

use super::mailbox::{Last, Mailbox};
use super::{Live, StreamEnd, Wake, Wakes, answer, event};
use crate::api::json::json_bytes;
use crate::api::room_shape::Room;
use crate::error::Problem;
use crate::rfc3339::format as instant;
use crate::state::App;
use axum::response::Response;
use bytes::Bytes;
use firstcome::RoomSummary;
use firstcome::core::id::RoomName;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::timeout;
use utoipa::ToSchema;

/// How often figures are sent.
const TICK: Duration = Duration::from_secs(1);
/// What the store does not tell within this time is left out once.
const PATIENCE: Duration = Duration::from_millis(500);
/// The most rooms that one event shows, the first ones by name.
const ROOMS_MAX: usize = 1_000;

/// What an operator wants to see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// All rooms.
    All,
    /// One room.
    Room(RoomName),
}

/// The streams of operators, as the task and the connections share them.
#[derive(Default)]
pub(super) struct FiguresStreams(Mutex<State>);

#[derive(Default)]
struct State {
    /// Streams that the task has not seen yet.
    arrived: Vec<Stream>,
    is_running: bool,
}

struct Stream {
    scope: Scope,
    mailbox: Arc<Mailbox>,
}

/// The figures of rooms at one moment
#[derive(Serialize, ToSchema)]
pub(crate) struct Figures<'a> {
    #[schema(format = DateTime)]
    as_of: String,
    /// Open streams of visitors at this service
    streams: i64,
    /// The rooms, in order of their names; at most 1000
    rooms: Vec<Room<'a>>,
}

impl Live {
    /// Opens a stream for an operator. Refused if too many are open, or the service stops.
    pub(crate) fn open_figures(&self, app: &Arc<App>, scope: Scope) -> Result<Response, Problem> {
        let held = self.hold(&self.operators_left, &self.figures.operators, None)?;
        // A comment, so that the client learns at once that the stream is there.
        let mailbox = Arc::new(Mailbox::with(super::HEARTBEAT));
        let is_new = {
            let mut state = self.operators.0.lock();
            state.arrived.push(Stream { scope, mailbox: Arc::clone(&mailbox) });
            !std::mem::replace(&mut state.is_running, true)
        };
        if is_new {
            tokio::spawn(run(Arc::downgrade(app), Wakes::every(TICK, self.stopping.clone())));
        }
        Ok(answer(mailbox, held))
    }
}

/// Feeds the streams of operators until there is none.
async fn run(app: Weak<App>, mut wakes: Wakes) {
    let mut streams: Vec<Stream> = Vec::new();
    loop {
        let wake = wakes.next().await;
        let Some(app) = app.upgrade() else { return };
        app.metrics.live.ticks.inc();
        {
            let mut state = app.live.operators.0.lock();
            streams.append(&mut state.arrived);
            streams.retain(|stream| !stream.mailbox.is_abandoned());
            if let Wake::Stopping = wake {
                streams.drain(..).for_each(|stream| end(&app, &stream, StreamEnd::Stopping));
            }
            if streams.is_empty() {
                state.is_running = false;
                return;
            }
        }
        feed(&app, &streams).await;
    }
}

/// What the store told within the time of a tick.
#[derive(Default)]
struct RoomsShown {
    /// The names of the first rooms. `None` if no stream asks for them, or the store did not tell.
    names: Option<Vec<RoomName>>,
    /// Rooms of which the store did not tell are left out.
    rooms: BTreeMap<RoomName, RoomSummary>,
}

impl RoomsShown {
    async fn take(&mut self, app: &App, streams: &[Stream]) {
        // First, since they are few: each stream has one at most.
        for stream in streams {
            if let Scope::Room(name) = &stream.scope {
                self.see(app, name).await;
            }
        }
        if streams.iter().any(|stream| stream.scope == Scope::All)
            && let Ok(names) = app.rooms.names(None, ROOMS_MAX).await
        {
            for name in self.names.insert(names.items).clone() {
                self.see(app, &name).await;
            }
        }
    }

    async fn see(&mut self, app: &App, name: &RoomName) {
        if !self.rooms.contains_key(name)
            && let Ok(Ok(summary)) = app.rooms.shown(name).await
        {
            self.rooms.insert(name.clone(), summary);
        }
    }
}

async fn feed(app: &App, streams: &[Stream]) {
    let mut shown_rooms = RoomsShown::default();
    // All together, so that a store that is away delays neither the next tick nor a stop. What was told until then counts.
    let _ = timeout(PATIENCE, shown_rooms.take(app, streams)).await;
    let RoomsShown { names, rooms } = shown_rooms;
    let shown = |chosen: Vec<(&RoomName, &RoomSummary)>| -> Bytes {
        event(
            "figures",
            &json_bytes(&Figures {
                as_of: instant(app.backend.now()),
                streams: app.metrics.live.tickets.get(),
                rooms: chosen.into_iter().map(|(name, summary)| Room::new(name, summary)).collect(),
            }),
        )
    };
    let all = names.map(|names| shown(names.iter().filter_map(|name| rooms.get_key_value(name)).collect()));
    for stream in streams {
        // A list without the rooms would say that there are none.
        let figures = match &stream.scope {
            Scope::Room(name) => rooms.get_key_value(name).map(|room| shown(vec![room])),
            Scope::All => all.clone(),
        };
        if let Some(figures) = figures {
            stream.mailbox.post(figures, Last::No);
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
