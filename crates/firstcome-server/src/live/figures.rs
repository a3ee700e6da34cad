//! The streams of operators: the figures of rooms, once a second.

use super::feed::{Feed, Stream, Streams};
use super::{Live, event};
use crate::api::json::json_bytes;
use crate::api::room_shape::Room;
use crate::error::Problem;
use crate::rfc3339::format as instant;
use crate::state::App;
use axum::response::Response;
use bytes::Bytes;
use firstcome::RoomSummary;
use firstcome::core::id::RoomName;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use utoipa::ToSchema;

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
        self.open_feed(app, scope)
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
    async fn take(&mut self, app: &App, streams: &[Arc<Stream<Scope>>]) {
        // First, since they are few: each stream has one at most.
        for stream in streams {
            if let Scope::Room(name) = &stream.shows {
                self.see(app, name).await;
            }
        }
        if streams.iter().any(|stream| stream.shows == Scope::All)
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

impl Feed for Scope {
    fn streams(live: &Live) -> &Streams<Self> {
        &live.operators
    }

    async fn feed(app: &App, streams: &[Arc<Stream<Self>>]) {
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
            let figures = match &stream.shows {
                Scope::Room(name) => rooms.get_key_value(name).map(|room| shown(vec![room])),
                Scope::All => all.clone(),
            };
            if let Some(figures) = figures {
                stream.post(app, figures);
            }
        }
    }
}
