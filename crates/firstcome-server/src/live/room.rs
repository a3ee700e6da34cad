//! The streams of one room, and the task that feeds them.

use super::mailbox::{Last, Mailbox};
use super::{HEARTBEAT, Live, StreamEnd, Wake, Wakes, answer, event, spread_ms};
use crate::api::json::json_bytes;
use crate::error::Problem;
use crate::rfc3339::format as instant;
use crate::state::App;
use axum::response::Response;
use firstcome::core::id::RoomName;
use firstcome::core::room::{Contact, RoomSettings, RoomState, Sight, TicketId, TicketNumber, TicketState, TicketView};
use firstcome::core::time::{Now, Steady, Timestamp};
use firstcome::{Glance, RoomSummary, TicketAnswer};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::timeout;
use utoipa::ToSchema;

/// How often a room's streams are fed.
const TICK: Duration = Duration::from_millis(500);
/// A place is told at most once in so many ticks. A turn is told at once.
const PLACE_TICKS: u64 = 2;
/// A stream without an event gets a comment after so many ticks: 15 s.
const HEARTBEAT_TICKS: u64 = 30;
/// A room that cannot be looked at for so many ticks sends its clients to polls: 10 s.
const UNSEEN_TICKS: u64 = 20;
/// A stream lasts for about so many ticks, a fifth more or less: a minute. Its client then polls, which shows that it is
/// still there. Without that a client that vanished behind a proxy would stay present as long as the proxy does not notice.
const LIFE_TICKS: u64 = 120;
/// The streams that one ticket may have open: a few tabs.
const STREAMS_PER_TICKET_MAX: u8 = 4;
/// How many tickets are looked at under one lock of the room.
const GLANCES_MAX: usize = 256;
/// An estimate that changed by less than this, or by less than a fifth, is no news. Milliseconds.
const WAIT_NEWS_MS: u64 = 5_000;

/// Writes what a stream tells of a place.
pub(crate) type Tell = Box<dyn Fn(&RoomSummary, &TicketAnswer) -> Vec<u8> + Send>;

/// A visitor who asks for a stream.
pub(crate) struct Visitor {
    pub(crate) room: RoomName,
    pub(crate) ticket: TicketId,
    /// What the visitor was told when the stream began.
    pub(crate) told: TicketAnswer,
    pub(crate) summary: RoomSummary,
    pub(crate) tell: Tell,
}

/// What the event `end` tells
#[derive(Serialize, ToSchema)]
pub(crate) struct End {
    /// turn, poll, renew, stopping or unavailable
    #[schema(example = "turn")]
    reason: &'static str,
    /// When to poll
    poll_after_ms: u64,
    /// Until when the offered slot waits for the poll
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    claim_until: Option<String>,
}

/// The streams of one room, as the task and the connections share them.
pub(super) struct RoomStreams {
    name: RoomName,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Streams that the task has not seen yet.
    arrived: Vec<Stream>,
    /// How many streams each ticket has.
    open: HashMap<TicketNumber, u8>,
}

/// The place of one stream among those of its ticket. Dropping it frees the place.
pub(super) struct Place(Arc<RoomStreams>, TicketNumber);

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if let Some(count) = state.open.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                state.open.remove(&self.1);
            }
        }
    }
}

/// One stream, as the task keeps it.
struct Stream {
    /// The ticket that the visitor showed. Once it is renewed, the stream ends.
    ticket: TicketId,
    mailbox: Arc<Mailbox>,
    tell: Tell,
    told: News,
    /// What the room showed when the stream was opened, until its first tick.
    opened: Option<Box<(RoomState, RoomSettings)>>,
    /// When the visitor's next contact is due.
    contact_tick: u64,
    /// When something was written last.
    wrote_tick: u64,
    /// When the stream ends.
    end_tick: u64,
}

/// What a stream told last.
#[derive(Clone, Copy, PartialEq, Eq)]
struct News {
    position: u32,
    wait_ms: Option<u64>,
    revision: u64,
}

impl News {
    /// Whether a client should hear of `next`.
    fn is_news(self, next: Self) -> bool {
        let wait_moved = match (self.wait_ms, next.wait_ms) {
            (Some(told), Some(wait)) => WAIT_NEWS_MS.max(told / 5) <= told.abs_diff(wait),
            (told, wait) => told != wait,
        };
        self.position != next.position || self.revision != next.revision || wait_moved
    }
}

impl Live {
    /// Opens a stream for a visitor in line. Refused if too many are open, or the service stops.
    pub(crate) fn open(&self, app: &Arc<App>, visitor: Visitor) -> Result<Response, Problem> {
        let Visitor { room, ticket, told, summary, tell } = visitor;
        let number = ticket.number;
        let first = event("place", &tell(&summary, &told));
        let mut rooms = self.rooms.lock();
        let (streams, is_new) = match rooms.get(&room) {
            Some(streams) => (Arc::clone(streams), false),
            None => (Arc::new(RoomStreams { name: room.clone(), state: Mutex::default() }), true),
        };
        let place = streams.place(number).ok_or_else(|| self.refuse())?;
        let held = self.hold(&self.tickets_left, &self.figures.tickets, Some(place))?;
        let mailbox = Arc::new(Mailbox::with(first));
        self.figures.events.inc();
        let (position, wait_ms) = match told.state {
            TicketState::Waiting { position, wait_ms } => (position, wait_ms),
            _ => (0, None),
        };
        streams.state.lock().arrived.push(Stream {
            ticket,
            mailbox: Arc::clone(&mailbox),
            tell,
            told: News { position, wait_ms, revision: 0 },
            opened: Some(Box::new((summary.view.state, summary.settings))),
            contact_tick: ticks_of(told.poll_after_ms),
            wrote_tick: 0,
            end_tick: LIFE_TICKS * (4 * 1_024 + 2 * spread_ms(number.get())) / (5 * 1_024),
        });
        if is_new {
            rooms.insert(room, Arc::clone(&streams));
            tokio::spawn(run(Arc::downgrade(app), streams, Wakes::every(TICK, self.stopping.clone())));
        }
        Ok(answer(mailbox, held))
    }

    /// Forgets a room without streams. Returns false if a stream has just come.
    fn forget(&self, streams: &RoomStreams) -> bool {
        let mut rooms = self.rooms.lock();
        let is_over = streams.state.lock().arrived.is_empty();
        if is_over {
            rooms.remove(&streams.name);
        }
        is_over
    }
}

impl RoomStreams {
    fn place(self: &Arc<Self>, number: TicketNumber) -> Option<Place> {
        let mut state = self.state.lock();
        let count = state.open.entry(number).or_default();
        if *count == STREAMS_PER_TICKET_MAX {
            return None;
        }
        *count += 1;
        Some(Place(Arc::clone(self), number))
    }
}

/// Feeds the streams of a room until it has none.
async fn run(app: Weak<App>, streams: Arc<RoomStreams>, mut wakes: Wakes) {
    let mut feed = Feed::default();
    loop {
        let wake = wakes.next().await;
        let Some(app) = app.upgrade() else { return };
        app.metrics.live.ticks.inc();
        feed.begin(&streams);
        match wake {
            Wake::Stopping => feed.end_all(&app, StreamEnd::Stopping),
            Wake::Tick => feed.tick(&app, &streams.name).await,
        }
        if feed.streams.is_empty() && app.live.forget(&streams) {
            return;
        }
    }
}

/// The streams of a room, in the hands of its task.
#[derive(Default)]
struct Feed {
    tick: u64,
    streams: Vec<Stream>,
    glances: Vec<Glance>,
    sights: Vec<Option<Sight>>,
    /// What the room showed last, to count revisions of it.
    shown: Option<(RoomState, RoomSettings)>,
    revision: u64,
    unseen_ticks: u64,
}

impl Feed {
    /// Takes over the streams that have come, and drops those whose connection is gone.
    fn begin(&mut self, streams: &RoomStreams) {
        self.tick += 1;
        let tick = self.tick;
        for mut stream in streams.state.lock().arrived.drain(..) {
            stream.contact_tick += tick;
            stream.wrote_tick += tick;
            stream.end_tick += tick;
            self.streams.push(stream);
        }
        self.streams.retain(|stream| !stream.mailbox.is_abandoned());
    }

    fn end_all(&mut self, app: &App, reason: StreamEnd) {
        for stream in self.streams.drain(..) {
            end(app, &stream, reason, None);
        }
    }

    /// Looks at all tickets, and tells their visitors what changed.
    async fn tick(&mut self, app: &App, room: &RoomName) {
        if self.streams.is_empty() {
            return;
        }
        let summary = match timeout(TICK, app.rooms.shown(room)).await {
            Ok(Ok(Ok(summary))) => Some(summary),
            // The room is gone: a poll says so.
            Ok(Ok(Err(_))) => return self.end_all(app, StreamEnd::Poll),
            // The store did not answer.
            Ok(Err(_)) | Err(_) => None,
        };
        let seen = match summary {
            Some(summary) => self.glance(app, room).map(|now| (summary, now)),
            None => None,
        };
        let Some((summary, now)) = seen else {
            self.unseen_ticks += 1;
            if UNSEEN_TICKS <= self.unseen_ticks {
                self.end_all(app, StreamEnd::Unavailable);
            }
            return;
        };
        self.unseen_ticks = 0;
        let shows = |shown: &(RoomState, RoomSettings)| shown.0 == summary.view.state && shown.1 == summary.settings;
        if !self.shown.as_ref().is_some_and(shows) {
            self.shown = Some((summary.view.state, summary.settings.clone()));
            self.revision += 1;
        }
        let (tick, revision) = (self.tick, self.revision);
        let mut seen = self.glances.iter().zip(&self.sights);
        self.streams.retain_mut(|stream| {
            if stream.opened.take().is_some_and(|opened| shows(&opened)) {
                stream.told.revision = revision;
            }
            let Some((glance, sight)) = seen.next() else { return true };
            feed(app, stream, (*glance, *sight), &Moment { tick, revision, summary: &summary, now })
        });
    }

    /// Looks at all tickets. `None` if the store cannot tell without waiting.
    fn glance(&mut self, app: &App, room: &RoomName) -> Option<Now> {
        let tick = self.tick;
        self.glances.clear();
        self.glances.extend(self.streams.iter_mut().map(|stream| {
            // A client that takes nothing may be gone.
            let is_due = stream.contact_tick <= tick && stream.mailbox.is_empty();
            Glance { ticket: stream.ticket, contact: if is_due { Contact::Made } else { Contact::None } }
        }));
        self.sights.clear();
        let mut now = None;
        for glances in self.glances.chunks(GLANCES_MAX) {
            now = Some(app.rooms.glance(room, glances, &mut self.sights)?);
        }
        now
    }
}

/// One tick, for all streams of the room.
struct Moment<'a> {
    tick: u64,
    revision: u64,
    summary: &'a RoomSummary,
    now: Now,
}

/// Writes to one stream what its visitor should hear. Returns whether the stream goes on.
fn feed(app: &App, stream: &mut Stream, (glance, sight): (Glance, Option<Sight>), moment: &Moment<'_>) -> bool {
    let Moment { tick, .. } = *moment;
    let (reason, until) = match sight {
        Some(Sight::Offered { until }) => (StreamEnd::Turn, Some(until)),
        Some(Sight::Poll) => (StreamEnd::Poll, None),
        _ if stream.end_tick <= tick => (StreamEnd::Renew, None),
        Some(Sight::Waiting(view)) => {
            if glance.contact == Contact::Made {
                stream.contact_tick = tick + ticks_of(view.poll_after_ms);
            }
            told(app, stream, view, moment);
            return true;
        }
        None => {
            beat(stream, tick);
            return true;
        }
    };
    end(app, stream, reason, until.map(|until: Steady| moment.now.wall_at(until)));
    false
}

/// How many ticks a client waits that polls after so long.
fn ticks_of(poll_after_ms: u32) -> u64 {
    (u64::from(poll_after_ms) / TICK.as_millis() as u64).max(1)
}

/// Tells a place that changed.
fn told(app: &App, stream: &mut Stream, view: TicketView, moment: &Moment<'_>) {
    let &Moment { tick, revision, summary, now } = moment;
    let TicketView { number, state, poll_after_ms } = view;
    let TicketState::Waiting { position, wait_ms } = state else { return };
    let next = News { position, wait_ms, revision };
    let may_write = stream.wrote_tick + PLACE_TICKS <= tick || stream.told.revision != revision;
    if !stream.told.is_news(next) || !may_write {
        return beat(stream, tick);
    }
    // The client has shown the ticket, and no event repeats it.
    let ticket = Box::default();
    let told = TicketAnswer { ticket, number, user: None, state, until: None, poll_after_ms, as_of: now.wall };
    if stream.mailbox.is_empty() {
        stream.wrote_tick = tick;
    }
    stream.mailbox.post(event("place", &(stream.tell)(summary, &told)), Last::No);
    stream.told = next;
    app.metrics.live.events.inc();
}

/// Writes a comment if nothing else was written for a while.
fn beat(stream: &mut Stream, tick: u64) {
    if stream.wrote_tick + HEARTBEAT_TICKS <= tick && stream.mailbox.is_empty() {
        stream.wrote_tick = tick;
        stream.mailbox.post(HEARTBEAT, Last::No);
    }
}

fn end(app: &App, stream: &Stream, reason: StreamEnd, claim_until: Option<Timestamp>) {
    app.metrics.live.ended(reason);
    app.metrics.live.events.inc();
    let poll_after_ms = match reason {
        // All streams of the service end together.
        StreamEnd::Stopping | StreamEnd::Unavailable => 500 + 2 * spread_ms(stream.ticket.number.get()),
        _ => 0,
    };
    let end = End { reason: reason.as_str(), poll_after_ms, claim_until: claim_until.map(instant) };
    stream.mailbox.post(event("end", &json_bytes(&end)), Last::Yes);
}
