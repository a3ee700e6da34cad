//! The inbox: a connection that receives messages, and carries requests that must not wait behind other commands.

use super::connection::{self, CommandSocket};
use super::error::OpenError;
use super::link::{Counters, LinkOptions};
use super::preflight::Eviction;
use super::route::Endpoint;
use super::socket::{Backoff, Connector, Lost, Socket};
use firstcome_store::edge::Stopwatch;
use redis::{PushInfo, PushKind, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::watch;
use tokio::time::timeout;

/// The most messages that may wait to be read. An owner that falls further behind loses its connection, so that the
/// queue does not use up the memory of the process. It reads the queued messages, then `Disconnected`, and asks again
/// after `Connected`.
const WAITING_MESSAGES: usize = 65_536;

/// An event of an inbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InboxEvent {
    /// The server has confirmed the subscription, the first or a later one. Messages before this may have been missed.
    /// No message from now until `Disconnected` is missed.
    Connected,
    /// A message.
    Message(Vec<u8>),
    /// The subscription has ended. Messages may be missed from here on, or from a little earlier.
    Disconnected,
}

/// Receives the messages of one channel, and resubscribes by itself.
///
/// It detects a dead connection by a `PING` on the same connection. Unlike TCP probes this also detects a server that
/// stands still, and it needs no settings of the machine.
pub struct Inbox {
    events: Receiver<InboxEvent>,
}

impl Inbox {
    pub(crate) async fn open(
        place: Endpoint,
        channel: &str,
        options: &LinkOptions,
        counters: Arc<Counters>,
    ) -> Result<(Self, watch::Receiver<Option<Arc<CommandSocket>>>), OpenError> {
        let (sender, events) = mpsc::channel(WAITING_MESSAGES);
        let (beside, shown) = watch::channel(None);
        let times = (options.ping_interval, options.answer_timeout);
        let eviction = options.allow_eviction;
        let notifications =
            InboxTask { place, channel: channel.to_owned(), events: sender, beside, eviction, counters, times };
        let first = notifications.subscribe().await?;
        tokio::spawn(notifications.keep_listening(first));
        Ok((Self { events }, shown))
    }

    /// Returns the next event, in the order in which they happened; the first is [`InboxEvent::Connected`]. Waits as
    /// long as it takes. Cancel-safe: a dropped future loses no event.
    pub async fn next(&mut self) -> InboxEvent {
        match self.events.recv().await {
            Some(event) => event,
            // The runtime of the listening task has ended, so no event will ever come.
            None => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("waiting", &self.events.len()).finish_non_exhaustive()
    }
}

/// The task behind an inbox.
struct InboxTask {
    place: Endpoint,
    channel: String,
    events: Sender<InboxEvent>,
    /// The connection, while there is one, for requests beside the commands.
    beside: watch::Sender<Option<Arc<CommandSocket>>>,
    eviction: Eviction,
    counters: Arc<Counters>,
    times: (Duration, Duration),
}

/// A subscription, and whether the owner was told of its beginning.
struct Subscription {
    connector: Arc<Connector>,
    socket: Socket,
    told: Arc<AtomicBool>,
}

impl InboxTask {
    /// Subscribes. The code that reads the connection reports `Connected` at the confirmation, so the event precedes
    /// all messages of the subscription.
    async fn subscribe(&self) -> Result<Subscription, OpenError> {
        let told = Arc::new(AtomicBool::new(false));
        let (tell, events, counters) = (Arc::clone(&told), self.events.clone(), Arc::clone(&self.counters));
        let connector = self.place.connector()?;
        let socket = connector.connect(move |push, lost| on_reply(push, lost, &events, &counters, &tell)).await?;
        self.place.hears(&connector, &socket).await?;
        match connector.ask(&socket, redis::cmd("SUBSCRIBE").arg(&self.channel)).await {
            Ok(_) => Ok(Subscription { connector, socket, told }),
            Err(error) => {
                self.end(Subscription { connector, socket, told }).await;
                Err(error)
            }
        }
    }

    async fn keep_listening(self, first: Subscription) {
        let listen = async {
            let mut backoff = Backoff::new();
            let mut subscription = Some(first);
            loop {
                if let Some(subscription) = subscription.take() {
                    let lasted = Stopwatch::start();
                    self.wait_until_lost(&subscription).await;
                    backoff.lasted(lasted.elapsed());
                    self.end(subscription).await;
                    self.place.ask_again();
                }
                backoff.pause().await;
                if let Ok(again) = self.subscribe().await {
                    self.counters.resubscriptions.fetch_add(1, Ordering::Relaxed);
                    subscription = Some(again);
                }
            }
        };
        tokio::select! {
            () = self.events.closed() => {}
            () = listen => {}
        }
        self.beside.send_replace(None);
    }

    /// Waits until the subscription is lost. Meanwhile it lets requests use the connection as soon as the server is fit
    /// to store data. A server that loads, is a replica, or evicts keys may become fit later; until then the connection
    /// only listens.
    async fn wait_until_lost(&self, Subscription { connector, socket, .. }: &Subscription) {
        let (ping_interval, answer_timeout) = self.times;
        let ping = redis::cmd("PING");
        let beat = async {
            loop {
                if self.place.takes_commands() && self.beside.borrow().is_none() {
                    match connection::look(&self.place, connector, socket, self.eviction).await {
                        Ok(run) => {
                            drop(self.beside.send_replace(Some(CommandSocket::new(socket.clone(), run, connector))));
                        }
                        Err(OpenError::Unreachable { .. }) => return,
                        Err(_) => {}
                    }
                }
                tokio::time::sleep(ping_interval).await;
                let mut connection = socket.connection();
                let answer = timeout(answer_timeout, connection.send_packed_command(&ping)).await;
                if !matches!(answer, Ok(Ok(_))) || self.place.hears(connector, socket).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = socket.lost().wait() => {}
            // Requests may be waiting for answers on it.
            () = self.place.is_left(connector) => socket.lost().leave(),
            () = beat => {}
        }
    }

    /// Ends a subscription, and reports that if its beginning was reported.
    async fn end(&self, subscription: Subscription) {
        let Subscription { socket, told, .. } = subscription;
        // From here on its messages are not passed on, except one that is just being passed.
        socket.lost().declare();
        self.beside.send_replace(None);
        drop(socket);
        if told.load(Ordering::Acquire) {
            // An error means that the owner is gone, and this task will end.
            let _ = self.events.send(InboxEvent::Disconnected).await;
        }
    }
}

/// Handles a message that the server pushes. Runs where the connection is read, so it never waits.
fn on_reply(push: PushInfo, lost: &Lost, events: &Sender<InboxEvent>, counters: &Counters, told: &AtomicBool) {
    if lost.is_declared() {
        return;
    }
    let event = match push.kind {
        PushKind::Subscribe => InboxEvent::Connected,
        PushKind::Message => {
            counters.pushes.fetch_add(1, Ordering::Relaxed);
            match push.data.into_iter().nth(1) {
                Some(Value::BulkString(message)) => InboxEvent::Message(message),
                _ => return,
            }
        }
        PushKind::Disconnection => return lost.declare(),
        _ => return,
    };
    let subscribed = event == InboxEvent::Connected;
    match events.try_send(event) {
        Ok(()) if subscribed => told.store(true, Ordering::Release),
        Ok(()) => {}
        // The queue is full because the owner is far behind. Ending the connection tells the owner that messages were
        // lost.
        Err(_) => lost.declare(),
    }
}
