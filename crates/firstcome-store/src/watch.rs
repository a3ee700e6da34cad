//! The places of one ticket until its turn: by a stream of the store near the front, and by polls everywhere else.
//!
//! # Invariants
//! - A stream takes no slot: only a poll does, so the last place comes from a poll.
//! - What a dropped [`TicketWatch::next`] has read stays in the watch, so no place is lost.

use crate::edge::draw_pause;
use crate::room::{RoomAnswer, RoomStore, TicketAnswer};
use firstcome_core::id::RoomName;
use firstcome_core::room::TicketState;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// The pause before the poll after a stream that broke off, and after an error. Up to half of it is added by chance, so
/// that the clients of a service that ended do not return all at once.
const PAUSE: Duration = Duration::from_secs(1);
/// How many polls go by after the store opened no stream, before the watch asks for one again.
const POLLS_AFTER_REFUSAL: u32 = 5;

/// One event of a stream of places.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlaceEvent {
    /// The place now. Not an admission: a stream takes no slot.
    Place(TicketAnswer),
    /// The stream is over. Poll after so long.
    End(Duration),
    /// The stream broke off.
    Lost,
}

/// A stream of the places of one ticket. See [`RoomStore::place_stream`].
pub trait PlaceStream: Send {
    /// Waits for the next event. Cancel-safe: dropping the future loses no event. After [`PlaceEvent::End`] and
    /// [`PlaceEvent::Lost`] it is not called again.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = PlaceEvent> + Send + '_>>;
}

/// Returns each new place of a ticket until its turn, on any store.
pub struct TicketWatch<S> {
    store: Arc<S>,
    room: RoomName,
    ticket: Box<str>,
    step: Step,
    /// The last place that the caller got.
    shown: Option<TicketState>,
    /// When to poll if there is no stream, as the store said last.
    poll_after: Duration,
    polls_before_stream: u32,
    last_stream: LastStream,
}

/// What the last stream was good for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastStream {
    /// It showed a place, or there was none.
    Useful,
    /// It has shown no place yet, or ended without one.
    Silent,
}

/// What a watch does next.
enum Step {
    /// At once, if there is no pause.
    Poll(Option<Pin<Box<Sleep>>>),
    Open,
    Listen(Box<dyn PlaceStream>),
    Done,
}

impl<S> fmt::Debug for TicketWatch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A ticket is a secret of its holder.
        f.debug_struct("TicketWatch").field("room", &self.room).field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl<S: RoomStore> TicketWatch<S> {
    /// Watches a ticket. Asks the store for nothing before [`Self::next`].
    pub fn new(store: Arc<S>, room: RoomName, ticket: &str) -> Self {
        Self {
            store,
            room,
            ticket: ticket.into(),
            step: Step::Poll(None),
            shown: None,
            poll_after: PAUSE,
            polls_before_stream: 0,
            last_stream: LastStream::Useful,
        }
    }

    /// Waits for the next place that differs from the last one. The first one comes at once. The last one is an
    /// admission, whose slot is taken, or the end of the ticket; after it, and after a refusal, the answer is `None`.
    ///
    /// Refused: what [`RoomStore::poll`] refuses. After an error the watch goes on at the next call, a second later. A
    /// stream that is refused or that breaks off is no error: the watch polls instead.
    ///
    /// Costs one poll each [`TicketAnswer::poll_after_ms`]. Near the front, on a store with streams, it costs one stream
    /// and the poll that precedes it.
    ///
    /// Dropping the future loses no place. While no future is awaited the visitor is not present: a poll or a stream
    /// shows that, and a visitor who is silent for too long is passed over. Needs a Tokio runtime with time.
    pub async fn next(&mut self) -> RoomAnswer<Option<TicketAnswer>> {
        loop {
            match &mut self.step {
                Step::Done => return Ok(Ok(None)),
                Step::Poll(due) => {
                    if let Some(due) = due {
                        due.as_mut().await;
                    }
                    let polled = self.store.poll(&self.room, &self.ticket).await;
                    let Ok(Ok(answer)) = polled else {
                        self.step = if polled.is_ok() { Step::Done } else { soon() };
                        return polled.map(|refused| refused.map(Some));
                    };
                    self.plan(&answer);
                    if self.is_news(&answer) {
                        return Ok(Ok(Some(answer)));
                    }
                }
                Step::Open => self.open().await,
                Step::Listen(stream) => {
                    let event = stream.next().await;
                    if let Some(answer) = self.listen(event) {
                        return Ok(Ok(Some(answer)));
                    }
                }
            }
        }
    }

    /// Decides what follows a poll. A stream that showed no place was over when the poll says that the visitor still waits:
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
        self.step = match self.store.place_stream(&self.room, &self.ticket).await {
            Some(stream) => {
                self.last_stream = LastStream::Silent;
                Step::Listen(stream)
            }
            None => {
                self.polls_before_stream = POLLS_AFTER_REFUSAL;
                after(self.poll_after)
            }
        };
    }

    /// Takes an event, and returns a place that is news.
    fn listen(&mut self, event: PlaceEvent) -> Option<TicketAnswer> {
        match event {
            PlaceEvent::Place(answer) => {
                self.last_stream = LastStream::Useful;
                return self.is_news(&answer).then_some(answer);
            }
            PlaceEvent::End(poll_after) => self.step = after(poll_after),
            PlaceEvent::Lost => self.step = soon(),
        }
        None
    }

    fn is_news(&mut self, answer: &TicketAnswer) -> bool {
        self.shown.replace(answer.state) != Some(answer.state)
    }
}

fn after(pause: Duration) -> Step {
    Step::Poll(Some(Box::pin(sleep(pause))))
}

fn soon() -> Step {
    after(PAUSE + draw_pause(PAUSE / 2))
}
