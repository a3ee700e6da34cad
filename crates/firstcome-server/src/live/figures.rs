//! The streams of operators: the figures of rooms, once a second.

use super::mailbox::{Last, Mailbox};
use super::{Live, StreamEnd, answer, event};
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
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use utoipa::ToSchema;

/// How often figures are sent.
const TICK: Duration = Duration::from_secs(1);
/// A client that takes nothing for so many ticks is given up: 10 s.
const SLOW_TICKS: u32 = 10;
/// A room whose store does not answer for so long is left out once.
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
    untaken_ticks: u32,
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
            state.arrived.push(Stream { scope, mailbox: Arc::clone(&mailbox), untaken_ticks: 0 });
            !std::mem::replace(&mut state.is_running, true)
        };
        if is_new {
            tokio::spawn(run(Arc::downgrade(app), self.stopping.clone()));
        }
        Ok(answer(mailbox, held))
    }
}

/// Feeds the streams of operators until there is none.
async fn run(app: Weak<App>, mut stopping: watch::Receiver<bool>) {
    let mut streams: Vec<Stream> = Vec::new();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_stopping = tokio::select! {
            biased;
            _ = stopping.wait_for(|&is_stopping| is_stopping) => true,
            _ = ticks.tick() => false,
        };
        let Some(app) = app.upgrade() else { return };
        app.metrics.live.ticks.inc();
        {
            let mut state = app.live.operators.0.lock();
            streams.append(&mut state.arrived);
            streams.retain(|stream| !stream.mailbox.is_abandoned());
            if is_stopping {
                streams.drain(..).for_each(|stream| end(&app, &stream, StreamEnd::Stopping));
            }
            if streams.is_empty() {
                state.is_running = false;
                return;
            }
        }
        feed(&app, &mut streams).await;
    }
}

/// The first rooms by name; none while the store does not answer.
async fn names(app: &App) -> Vec<RoomName> {
    match timeout(PATIENCE, app.rooms.names(None, ROOMS_MAX)).await {
        Ok(Ok(names)) => names.items,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

async fn feed(app: &App, streams: &mut Vec<Stream>) {
    let wants_all = streams.iter().any(|stream| stream.scope == Scope::All);
    let names = if wants_all { names(app).await } else { Vec::new() };
    let mut rooms = BTreeMap::new();
    let named = streams.iter().filter_map(|stream| match &stream.scope {
        Scope::Room(name) => Some(name),
        Scope::All => None,
    });
    for name in names.iter().chain(named) {
        if !rooms.contains_key(name)
            && let Ok(Ok(Ok(summary))) = timeout(PATIENCE, app.rooms.shown(name)).await
        {
            rooms.insert(name.clone(), summary);
        }
    }
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
    let all = wants_all.then(|| shown(names.iter().filter_map(|name| rooms.get_key_value(name)).collect()));
    streams.retain_mut(|stream| {
        stream.untaken_ticks = if stream.mailbox.is_empty() { 0 } else { stream.untaken_ticks + 1 };
        if SLOW_TICKS <= stream.untaken_ticks {
            end(app, stream, StreamEnd::Slow);
            return false;
        }
        let figures = match (&stream.scope, &all) {
            (Scope::Room(name), _) => shown(rooms.get_key_value(name).into_iter().collect()),
            (Scope::All, Some(all)) => all.clone(),
            (Scope::All, None) => return true,
        };
        stream.mailbox.post(figures, Last::No);
        app.metrics.live.events.inc();
        true
    });
}

fn end(app: &App, stream: &Stream, reason: StreamEnd) {
    app.metrics.live.ended(reason);
    if reason == StreamEnd::Slow {
        return stream.mailbox.end();
    }
    app.metrics.live.events.inc();
    let last = format!(r#"{{"reason":"{}"}}"#, reason.as_str());
    stream.mailbox.post(event("end", last.as_bytes()), Last::Yes);
}
