//! The inbox: a connection that listens, and carries what must not stand behind the commands of others.

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

/// Messages that wait to be read. An owner who falls further behind loses the connection instead of the process its
/// memory: it reads what is there, then `Disconnected`, and after `Connected` asks again.
const WAITING_MESSAGES: usize = 65_536;

/// What an inbox has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InboxEvent {
    /// The server has confirmed the subscription, the first or a further one. Messages that were sent before may have been
    /// missed, none that is sent from now on until `Disconnected`.
    Connected,
    /// A message.
    Message(Vec<u8>),
    /// The subscription has ended. Messages may be missed from here on, or from a little earlier.
    Disconnected,
}

/// Receives the messages of one channel, and subscribes again by itself.
///
/// A connection that is dead without a word is noticed by a `PING` that goes the same way as the messages: unlike probes of
/// the system it also finds a server that stands still, and it needs no setting of the machine.
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

    /// The next event, in the order in which they happened; the first is [`InboxEvent::Connected`]. Waits as long as it
    /// takes. A future that is dropped takes no event with it.
    pub async fn next(&mut self) -> InboxEvent {
        match self.events.recv().await {
            Some(event) => event,
            // Only when the runtime that listened has ended: nothing will ever come.
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
    /// The connection, while there is one, for others to use.
    beside: watch::Sender<Option<Arc<CommandSocket>>>,
    eviction: Eviction,
    counters: Arc<Counters>,
    times: (Duration, Duration),
}

/// A subscription, and whether the owner was told of it.
struct Subscription {
    connector: Arc<Connector>,
    socket: Socket,
    told: Arc<AtomicBool>,
}

impl InboxTask {
    /// `Connected` is said by what reads the connection, when the confirmation passes: so it stands before all messages
    /// of its subscription.
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

    /// Meanwhile lets others use the connection, as soon as the server is one on which anything may be kept: one that
    /// loads, follows another or forgets may be well later. Until then it only listens.
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
            // Others may have asked over it.
            () = self.place.is_left(connector) => socket.lost().leave(),
            () = beat => {}
        }
    }

    /// Gives a subscription up, and says so if its beginning was told.
    async fn end(&self, subscription: Subscription) {
        let Subscription { socket, told, .. } = subscription;
        // What it still hears is not passed on, except what is on its way in this moment.
        socket.lost().declare();
        self.beside.send_replace(None);
        drop(socket);
        if told.load(Ordering::Acquire) {
            // An error means that the owner is gone, and the task about to end.
            let _ = self.events.send(InboxEvent::Disconnected).await;
        }
    }
}

/// What comes unasked over a connection. Runs where the connection is read, so it never waits.
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
        // Full: what is lost here was sent while the owner was far behind. It is told by the end of the connection.
        Err(_) => lost.declare(),
    }
}
