//! The stream of the places of one ticket, as the service writes it.

use crate::HttpStore;
use crate::link::EventLines;
use crate::room::{TicketShown, path};
use firstcome_store::core::id::RoomName;
use firstcome_store::{PlaceEvent, PlaceStream};
use serde::Deserialize;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// How long a stream may say nothing. The service sends a comment every 15 s.
const QUIET_MAX: Duration = Duration::from_secs(40);

#[derive(Deserialize)]
struct PlaceShown {
    ticket: TicketShown,
}

#[derive(Deserialize)]
struct EndShown {
    poll_after_ms: u64,
}

/// The events about one ticket.
struct TicketEvents {
    lines: EventLines,
    ticket: Box<str>,
}

impl TicketEvents {
    /// Reads one event; `None` if this version does not know it.
    fn read(&self, text: &str) -> Option<PlaceEvent> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let event = match (field("event")?, field("data")?) {
            ("place", data) => serde_json::from_str::<PlaceShown>(data)
                .ok()
                .and_then(|shown| shown.ticket.answer(&self.ticket))
                .map(PlaceEvent::Place),
            ("end", data) => serde_json::from_str::<EndShown>(data)
                .ok()
                .map(|shown| PlaceEvent::End(Duration::from_millis(shown.poll_after_ms))),
            _ => return None,
        };
        Some(event.unwrap_or(PlaceEvent::Lost))
    }
}

impl PlaceStream for TicketEvents {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = PlaceEvent> + Send + '_>> {
        Box::pin(async {
            loop {
                let Some(text) = self.lines.next(QUIET_MAX).await else { return PlaceEvent::Lost };
                if let Some(event) = self.read(&text) {
                    return event;
                }
            }
        })
    }
}

impl HttpStore {
    /// Opens the stream of a ticket.
    pub(crate) async fn events_of(&self, room: &RoomName, ticket: &str) -> Option<Box<dyn PlaceStream>> {
        let lines = self.service.listen(format!("{}/tickets/{ticket}/events", path(room))).await?;
        Some(Box::new(TicketEvents { lines, ticket: ticket.into() }))
    }
}
