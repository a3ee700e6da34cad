//! The places of one ticket until its turn: by the service's stream near the front, and by polls everywhere else.
//!
//! # Invariants
//! - A stream takes no slot: only a poll does, so the last place comes from a poll.
//! - What a dropped [`TicketWatch::next`] has read stays in the watch, so no place is lost.

use crate::HttpStore;
use crate::link::EventLines;
use crate::room::{TicketShown, path};
use firstcome_store::core::id::RoomName;
use firstcome_store::core::room::TicketState;
use firstcome_store::edge::draw_pause;
use firstcome_store::{RoomAnswer, RoomStore, TicketAnswer};
use serde::Deserialize;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// How long a stream may say nothing. The service sends a comment every 15 s.
const QUIET_MAX: Duration = Duration::from_secs(40);
/// The pause before the poll after a stream that broke off, and after an error. Up to half of it is added by chance, so
/// that the clients of a service that ended do not return all at once.
const PAUSE: Duration = Duration::from_secs(1);
/// How many polls go by after the service refused a stream, before the watch asks for one again.
const POLLS_AFTER_REFUSAL: u32 = 5;

/// Tells each new place of a ticket until its turn; see [`HttpStore::watch`].
pub struct TicketWatch {
    store: HttpStore,
    room: RoomName,
    ticket: Box<str>,
    step: Step,
    /// What was told last.
    told: Option<TicketState>,
    /// When to poll if there is no stream, as the service said last.
    poll_after: Duration,
    polls_before_stream: u32,
    last_stream: LastStream,
}

/// What the last stream was good for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastStream {
    /// It told a place, or there was none.
    Useful,
    /// It has told no place yet, or ended without one.
    Silent,
}

/// What a watch does next.
enum Step {
    /// At once, if there is no pause.
    Poll(Option<Pin<Box<Sleep>>>),
    Open,
    Listen(Box<EventLines>),
    Done,
}

impl fmt::Debug for TicketWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A ticket is a secret of its holder.
        f.debug_struct("TicketWatch").field("room", &self.room).field("told", &self.told).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct PlaceShown {
    ticket: TicketShown,
}

#[derive(Deserialize)]
struct EndShown {
    poll_after_ms: u64,
}

/// One event of a stream.
enum StreamEvent {
    Place(Box<TicketShown>),
    End(Duration),
    /// An event that this version does not know.
    Other,
}

/// Reads one event; `None` if it is not as the service writes it.
fn read_event(text: &str) -> Option<StreamEvent> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    Some(match (field("event"), field("data")) {
        (Some("place"), Some(data)) => {
            StreamEvent::Place(Box::new(serde_json::from_str::<PlaceShown>(data).ok()?.ticket))
        }
        (Some("end"), Some(data)) => {
            StreamEvent::End(Duration::from_millis(serde_json::from_str::<EndShown>(data).ok()?.poll_after_ms))
        }
        _ => StreamEvent::Other,
    })
}

impl HttpStore {
    /// Watches a ticket: [`TicketWatch::next`] tells each new place until the turn. Sends nothing before.
    ///
    /// Any key may watch. While the ticket is near the front the watch holds one connection of its own, and hears of a
    /// change within about a second; elsewhere it sends one poll each [`TicketAnswer::poll_after_ms`]. A stream lasts a
    /// minute, so a watch sends at least one poll a minute.
    pub fn watch(&self, room: &RoomName, ticket: &str) -> TicketWatch {
        TicketWatch {
            store: self.sharing(),
            room: room.clone(),
            ticket: ticket.into(),
            step: Step::Poll(None),
            told: None,
            poll_after: PAUSE,
            polls_before_stream: 0,
            last_stream: LastStream::Useful,
        }
    }
}

impl TicketWatch {
    /// Waits for the next place that differs from the last one. The first one comes at once. The last one is an
    /// admission, whose slot is taken, or the end of the ticket; after it, and after a refusal, the answer is `None`.
    ///
    /// Refused: `unknown_room`, `unknown_ticket`. After an error the watch goes on at the next call. A stream that is
    /// refused or that breaks off is no error: the watch polls instead.
    ///
    /// Dropping the future loses no place. While no future is awaited the visitor is not present: a poll or a stream
    /// shows that, and a visitor who is silent for too long is passed over.
    pub async fn next(&mut self) -> RoomAnswer<Option<TicketAnswer>> {
        loop {
            match &mut self.step {
                Step::Done => return Ok(Ok(None)),
                Step::Poll(due) => {
                    if let Some(due) = due {
                        due.as_mut().await;
                    }
                    let told = self.store.poll(&self.room, &self.ticket).await;
                    let Ok(Ok(answer)) = told else {
                        self.step = if told.is_ok() { Step::Done } else { soon() };
                        return told.map(|refused| refused.map(Some));
                    };
                    self.plan(&answer);
                    if self.is_news(&answer) {
                        return Ok(Ok(Some(answer)));
                    }
                }
                Step::Open => self.open().await,
                Step::Listen(lines) => {
                    let event = lines.next(QUIET_MAX).await;
                    if let Some(answer) = self.listen(event.as_deref()) {
                        return Ok(Ok(Some(answer)));
                    }
                }
            }
        }
    }

    /// Decides what follows a poll. A stream that told no place was over when the poll says that the visitor still waits:
    /// its node knows less, or more, than that of the poll. The watch then waits as long as between two polls, so that
    /// nodes that differ are not asked without a pause.
    fn plan(&mut self, answer: &TicketAnswer) {
        self.poll_after = Duration::from_millis(answer.poll_after_ms.into());
        let last_stream = std::mem::replace(&mut self.last_stream, LastStream::Useful);
        let may_open = self.polls_before_stream == 0 && last_stream == LastStream::Useful;
        self.step = match answer.state {
            TicketState::Admitted { .. } | TicketState::Gone(_) => Step::Done,
            TicketState::Waiting { .. } if answer.state.is_near() && may_open => Step::Open,
            TicketState::Waiting { .. } | TicketState::InDraw { .. } => after(self.poll_after),
        };
        self.polls_before_stream = self.polls_before_stream.saturating_sub(1);
    }

    async fn open(&mut self) {
        let at = format!("{}/tickets/{}/events", path(&self.room), self.ticket);
        self.step = match self.store.service.listen(at).await {
            Some(lines) => {
                self.last_stream = LastStream::Silent;
                Step::Listen(Box::new(lines))
            }
            None => {
                self.polls_before_stream = POLLS_AFTER_REFUSAL;
                after(self.poll_after)
            }
        };
    }

    /// Takes an event, or the end of the stream, and returns a place that is news.
    fn listen(&mut self, event: Option<&str>) -> Option<TicketAnswer> {
        match event.and_then(read_event) {
            Some(StreamEvent::Place(shown)) => {
                let answer = shown.answer(&self.ticket);
                match answer {
                    Some(_) => self.last_stream = LastStream::Useful,
                    None => self.step = soon(),
                }
                answer.filter(|answer| self.is_news(answer))
            }
            Some(StreamEvent::End(poll_after)) => {
                self.step = after(poll_after);
                None
            }
            Some(StreamEvent::Other) => None,
            None => {
                self.step = soon();
                None
            }
        }
    }

    fn is_news(&mut self, answer: &TicketAnswer) -> bool {
        self.told.replace(answer.state) != Some(answer.state)
    }
}

fn after(pause: Duration) -> Step {
    Step::Poll(Some(Box::pin(sleep(pause))))
}

fn soon() -> Step {
    after(PAUSE + draw_pause(PAUSE / 2))
}
