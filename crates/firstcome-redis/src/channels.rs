//! Subscribes to channels while tasks wait on them: any number of channels over one connection. The connection is
//! opened at first use, and reopened when it is lost.

use super::error::OpenError;
use super::link::{Counters, LinkOptions};
use super::route::Endpoint;
use super::socket::{Backoff, Connector, Lost, Socket};
use firstcome_store::edge::Stopwatch;
use firstcome_store::key::Notifications;
use parking_lot::Mutex;
use redis::{PushInfo, PushKind, RedisResult, Value};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// How long the connection stays open without listeners.
const IDLE: Duration = Duration::from_secs(30);
/// How long a waiter waits for a message at most, even if the lease lasts longer. The waiter that a message went to may
/// have died.
const PATIENCE_MAX: Duration = Duration::from_secs(30);
/// A server expires keys to the millisecond.
const EXPIRY_GRAIN: Duration = Duration::from_millis(1);
/// The message that wakes one waiter of each client; any other message wakes all.
const TO_ONE: &[u8] = b"0";

/// Whether the subscription to a channel is active.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChannelState {
    /// The server has confirmed the subscription.
    On,
    /// Messages are missed.
    Off,
}

/// How messages are published.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice {
    /// To all clients of a server or a cluster.
    Plain,
    /// To the node of a cluster that has the slot of the channel, and its replicas.
    Sharded,
}

/// A channel, as its listeners see it.
struct Channel {
    /// One message wakes one listener; if none waits at the moment, the next one.
    message: Notify,
    /// Each change may mean that messages were missed.
    hearing: watch::Sender<ChannelState>,
}

struct Entry {
    channel: Arc<Channel>,
    listeners: usize,
    hearing: ChannelState,
}

#[derive(Default)]
struct Shared {
    entries: Mutex<BTreeMap<Box<str>, Entry>>,
    /// Signals that the first listener of a channel came, or the last one went.
    changed: Notify,
}

/// The channels of one client.
pub(crate) struct Channels {
    shared: Arc<Shared>,
    patience: Duration,
    keeper: AbortHandle,
}

impl Channels {
    /// Starts without a connection; it connects when a task listens.
    pub(crate) fn open(place: Endpoint, voice: Voice, options: &LinkOptions, counters: Arc<Counters>) -> Self {
        let shared = Arc::<Shared>::default();
        let (ping_interval, answer_timeout) = (options.ping_interval, options.answer_timeout);
        let keeper = Keeper { place, voice, shared: Arc::clone(&shared), counters, ping_interval, answer_timeout };
        let keeper = tokio::spawn(keeper.keep()).abort_handle();
        Self { shared, patience: options.connect_timeout + options.answer_timeout, keeper }
    }

    /// Listens to a channel. Returns when the server has confirmed the subscription, or after a time-out; a later
    /// confirmation still takes effect. Sends nothing if another task listens to the channel already. Cancel-safe.
    pub(crate) async fn listen(&self, name: String) -> Listener {
        let mut listener = self.enter(name.into());
        let mut hearing = listener.hearing.clone();
        let _ = timeout(self.patience, hearing.wait_for(|hearing| *hearing == ChannelState::On)).await;
        // The listener asks for the lock now, so messages missed before this do not matter.
        listener.hearing.mark_unchanged();
        listener
    }

    fn enter(&self, name: Box<str>) -> Listener {
        let mut entries = self.shared.entries.lock();
        let entry = entries.entry(name.clone()).or_insert_with(|| {
            let channel = Channel { message: Notify::new(), hearing: watch::Sender::new(ChannelState::Off) };
            Entry { channel: Arc::new(channel), listeners: 0, hearing: ChannelState::Off }
        });
        entry.listeners += 1;
        if entry.hearing == ChannelState::Off {
            self.shared.changed.notify_one();
        }
        let (channel, hearing) = (Arc::clone(&entry.channel), entry.channel.hearing.subscribe());
        Listener { shared: Arc::clone(&self.shared), name, channel, hearing }
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Hears when a client that announces its releases releases a lock. Each message wakes one of the listeners of a lock
/// in this client, in the order in which they began to wait. All of them wake when messages may have been missed.
pub struct Listener {
    shared: Arc<Shared>,
    name: Box<str>,
    channel: Arc<Channel>,
    hearing: watch::Receiver<ChannelState>,
}

firstcome_core::debug_by_name!(Listener);

impl Notifications for Listener {
    async fn freed(&mut self) {
        // If the other branch wins, the message goes to the next listener.
        tokio::select! {
            () = self.channel.message.notified() => {}
            _ = self.hearing.changed() => {}
        }
    }

    /// As long as the lock lasts, at most 30 s; the usual pause while the subscription is not active.
    fn patience(&self, usual: Duration, lasts: Duration) -> Duration {
        match *self.hearing.borrow() {
            ChannelState::On => lasts.saturating_add(EXPIRY_GRAIN).min(PATIENCE_MAX),
            ChannelState::Off => usual,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut entries = self.shared.entries.lock();
        if let Some(entry) = entries.get_mut(&self.name) {
            entry.listeners -= 1;
            // The task that has the connection removes the entry, because only it knows which subscriptions are under
            // way.
            if entry.listeners == 0 {
                self.shared.changed.notify_one();
            }
        }
    }
}

impl Shared {
    /// Returns the channels to subscribe to, and the channels to leave. Removes entries without listeners.
    fn changes(&self) -> [Vec<Box<str>>; 2] {
        let mut changes = [Vec::new(), Vec::new()];
        self.entries.lock().retain(|name, entry| {
            match (entry.listeners, entry.hearing) {
                (0, ChannelState::On) => changes[1].push(name.clone()),
                (0, ChannelState::Off) | (_, ChannelState::On) => {}
                (_, ChannelState::Off) => changes[0].push(name.clone()),
            }
            0 < entry.listeners
        });
        changes
    }

    /// Records that the server has confirmed these channels.
    fn hears(&self, names: &[Box<str>]) {
        let mut entries = self.entries.lock();
        for name in names {
            if let Some(entry) = entries.get_mut(name) {
                entry.hearing = ChannelState::On;
                entry.channel.hearing.send_replace(ChannelState::On);
            }
        }
    }

    /// Records that no channel is subscribed any more.
    fn hears_nothing(&self) {
        for entry in self.entries.lock().values_mut() {
            entry.hearing = ChannelState::Off;
            entry.channel.hearing.send_replace(ChannelState::Off);
        }
    }

    /// Handles a notice that a channel is unsubscribed. If this client did not ask for that, the slot of the channel
    /// has moved. The notice does not tell which requests are still under way, so the connection is given up, and all
    /// channels are subscribed again.
    fn left(&self, push: &PushInfo, lost: &Lost) {
        let Some(Value::BulkString(name)) = push.data.first() else { return };
        let Ok(name) = std::str::from_utf8(name) else { return };
        if self.entries.lock().get(name).is_some_and(|entry| entry.hearing == ChannelState::On) {
            lost.declare();
        }
    }

    /// Handles a push of the server. Runs where the connection is read, so it never waits.
    fn on_reply(&self, push: &PushInfo, lost: &Lost, counters: &Counters) {
        match push.kind {
            PushKind::Message | PushKind::SMessage => {}
            PushKind::Disconnection => return lost.declare(),
            PushKind::SUnsubscribe => return self.left(push, lost),
            _ => return,
        }
        counters.pushes.fetch_add(1, Ordering::Relaxed);
        let [Value::BulkString(name), Value::BulkString(message)] = push.data.as_slice() else { return };
        let Ok(name) = std::str::from_utf8(name) else { return };
        if let Some(entry) = self.entries.lock().get(name) {
            if message == TO_ONE {
                entry.channel.message.notify_one();
            } else {
                entry.channel.hearing.send_modify(|_| {});
            }
        }
    }
}

/// The task that owns the connection.
struct Keeper {
    place: Endpoint,
    voice: Voice,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    ping_interval: Duration,
    answer_timeout: Duration,
}

impl Keeper {
    async fn keep(self) {
        let mut backoff = Backoff::new();
        let mut made_before = false;
        loop {
            while self.shared.changes()[0].is_empty() {
                self.shared.changed.notified().await;
            }
            if let Ok((connector, socket)) = self.connect().await {
                if made_before {
                    self.counters.resubscriptions.fetch_add(1, Ordering::Relaxed);
                }
                made_before = true;
                let lasted = Stopwatch::start();
                self.serve(&connector, &socket).await;
                backoff.lasted(lasted.elapsed());
                socket.lost().declare();
            }
            self.shared.hears_nothing();
            self.place.ask_again();
            backoff.pause().await;
        }
    }

    async fn connect(&self) -> Result<(Arc<Connector>, Socket), OpenError> {
        let (shared, counters) = (Arc::clone(&self.shared), Arc::clone(&self.counters));
        let connector = self.place.connector()?;
        let socket = connector.connect(move |push, lost| shared.on_reply(&push, lost, &counters)).await?;
        Ok((connector, socket))
    }

    /// Keeps the subscriptions up to date, until the connection is lost or unused for long.
    async fn serve(&self, connector: &Connector, socket: &Socket) {
        let follow = async {
            let mut idle = Stopwatch::start();
            loop {
                let [wanted, unwanted] = self.shared.changes();
                if !self.follow(socket, &wanted, &unwanted).await {
                    return;
                }
                if !self.shared.entries.lock().is_empty() {
                    idle = Stopwatch::start();
                }
                if timeout(self.ping_interval, self.shared.changed.notified()).await.is_ok() {
                    continue;
                }
                if IDLE < idle.elapsed() {
                    return;
                }
                let mut connection = socket.connection();
                if self.in_time(connection.send_packed_command(&redis::cmd("PING"))).await.is_none() {
                    return;
                }
            }
        };
        tokio::select! {
            () = follow => {}
            () = socket.lost().wait() => {}
            () = self.place.is_left(connector) => {}
        }
    }

    /// Subscribes to wanted channels and leaves unwanted ones. Returns whether the server has confirmed that.
    async fn follow(&self, socket: &Socket, wanted: &[Box<str>], unwanted: &[Box<str>]) -> bool {
        if self.voice == Voice::Sharded {
            return self.follow_shards(socket, wanted, unwanted).await;
        }
        let mut connection = socket.connection();
        // A channel that was left and is wanted again comes in this order too: its entry is new.
        if !unwanted.is_empty() && self.in_time(connection.unsubscribe(names(unwanted))).await.is_none() {
            return false;
        }
        if !wanted.is_empty() {
            if self.in_time(connection.subscribe(names(wanted))).await.is_none() {
                return false;
            }
            self.shared.hears(wanted);
        }
        true
    }

    /// Does the same for sharded channels. A channel may have moved to another node: then the server returns an error,
    /// and a later round tries again. Meanwhile its listeners use the usual pauses.
    async fn follow_shards(&self, socket: &Socket, wanted: &[Box<str>], unwanted: &[Box<str>]) -> bool {
        for (what, names) in [("SUNSUBSCRIBE", unwanted), ("SSUBSCRIBE", wanted)] {
            for name in names {
                let mut connection = socket.connection();
                let mut command = redis::cmd(what);
                command.arg(name.as_ref());
                let Some(answer) = self.in_time(connection.send_packed_command(&command)).await else { return false };
                if what == "SSUBSCRIBE" && answer.extract_error().is_ok() {
                    self.shared.hears(std::slice::from_ref(name));
                }
            }
        }
        true
    }

    async fn in_time<T>(&self, answer: impl Future<Output = RedisResult<T>>) -> Option<T> {
        timeout(self.answer_timeout, answer).await.ok()?.ok()
    }
}

fn names(names: &[Box<str>]) -> Vec<&str> {
    names.iter().map(AsRef::as_ref).collect()
}
