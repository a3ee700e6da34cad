//! A connection for commands, which is reopened whenever it is lost.

use super::acknowledge::Batches;
use super::error::{LinkError, OpenError};
use super::link::Counters;
use super::preflight::{self, Eviction, Run};
use super::route::Endpoint;
use super::socket::{Backoff, Connector, Socket};
use firstcome_store::edge::Stopwatch;
use firstcome_store::outage::{Outage, ServerKind};
use redis::{Cmd, Pipeline, RedisResult, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::time::timeout;

/// A connection to a server that was checked.
pub(crate) struct CommandSocket {
    pub(crate) socket: Socket,
    /// The run of the server at the other end.
    pub(crate) run: Run,
    /// Host and port of that end.
    pub(crate) address: Box<str>,
    /// How many answers came over it.
    answered: AtomicU64,
    /// Commands that replicas must acknowledge.
    pub(crate) batches: Batches,
}

/// How a command is sent to a node of a cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    /// Without a prefix.
    Plain,
    /// After `ASKING`, which allows access to a slot that the node is still importing.
    Asking,
}

impl CommandSocket {
    pub(crate) fn new(socket: Socket, run: Run, connector: &Connector) -> Arc<Self> {
        let (address, answered) = (connector.address().into(), AtomicU64::new(0));
        Arc::new(Self { socket, run, address, answered, batches: Batches::unbounded() })
    }

    pub(crate) fn is_up(&self) -> bool {
        !self.socket.lost().is_declared()
    }

    /// Sends a command once. Nothing waits before the sending, so commands go out in the order of their first polls.
    pub(crate) async fn ask(
        &self,
        command: &Cmd,
        put: Put,
        answer_timeout: Duration,
        counters: &Counters,
    ) -> Result<Value, LinkError> {
        counters.requests.fetch_add(1, Ordering::Relaxed);
        let answered_before = self.answered.load(Ordering::Relaxed);
        // Unconstrained: otherwise a task that has used up its budget would be deferred before it enters the queue of
        // the connection, and other tasks would overtake it.
        let watch = Stopwatch::start();
        let answer = timeout(answer_timeout, unconstrained(self.send(command, put))).await;
        counters.round_trips.record(watch.elapsed());
        match answer {
            Ok(Ok(value)) => {
                self.answered.fetch_add(1, Ordering::Relaxed);
                self.judged(value)
            }
            Ok(Err(error)) => {
                let error = LinkError::from(error);
                // An error that the server returns for one command does not affect the connection.
                if matches!(error, LinkError::Unknown { .. }) {
                    self.socket.lost().declare();
                }
                Err(error)
            }
            Err(_) => {
                // If no command got an answer in all that time, the connection may be half open. Without this it would
                // stay in use until the system gives it up, which takes many minutes.
                if self.answered.load(Ordering::Relaxed) == answered_before {
                    self.socket.lost().declare();
                }
                Err(LinkError::Unknown { says: "no answer in time".to_owned() })
            }
        }
    }

    async fn send(&self, command: &Cmd, put: Put) -> RedisResult<Value> {
        let mut connection = self.socket.connection();
        if put == Put::Plain {
            return connection.send_packed_command(command).await;
        }
        // In one piece, so that no other command comes between.
        let mut both = Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command.clone());
        let answers = connection.send_packed_commands(&both, 1, 1).await?;
        Ok(answers.into_iter().next().unwrap_or(Value::Nil))
    }
}

/// A handle to a connection for commands. A task reopens the connection as long as a handle exists.
#[derive(Clone)]
pub(crate) struct Connection {
    state: watch::Receiver<State>,
}

enum State {
    Up(Arc<CommandSocket>),
    /// There is no connection, for this reason.
    Down(LinkError),
}

impl State {
    fn up(&self) -> Option<Arc<CommandSocket>> {
        match self {
            Self::Up(up) if up.is_up() => Some(Arc::clone(up)),
            _ => None,
        }
    }
}

impl Connection {
    /// Connects, and checks the server. A failure is final.
    pub(crate) async fn open(place: Endpoint, eviction: Eviction, counters: Arc<Counters>) -> Result<Self, OpenError> {
        let (socket, connector) = connect(&place, eviction).await?;
        let (sender, state) = watch::channel(State::Up(socket));
        tokio::spawn(keep_up(place, eviction, sender, counters, Some(connector)));
        Ok(Self { state })
    }

    /// Starts to connect in the background, and keeps trying.
    pub(crate) fn start(place: Endpoint, eviction: Eviction, counters: Arc<Counters>) -> Self {
        let (sender, state) = watch::channel(State::Down(LinkError::not_connected("no connection was made yet")));
        tokio::spawn(keep_up(place, eviction, sender, counters, None));
        Self { state }
    }

    /// Returns the connection, if there is one.
    pub(crate) fn up(&self) -> Option<Arc<CommandSocket>> {
        self.state.borrow().up()
    }

    /// Returns the connection, or waits until there is one.
    pub(crate) async fn wait(&self, connect_timeout: Duration) -> Result<Arc<CommandSocket>, LinkError> {
        if let Some(up) = self.up() {
            return Ok(up);
        }
        let mut state = self.state.clone();
        let up = async { state.wait_for(|state| state.up().is_some()).await.map(|state| state.up()) };
        match timeout(connect_timeout, up).await {
            Ok(Ok(Some(up))) => Ok(up),
            Ok(Err(_)) => Err(LinkError::not_connected("the runtime that kept the link up has ended")),
            Ok(Ok(None)) | Err(_) => Err(self.why_down()),
        }
    }

    /// Returns why there is no connection.
    pub(crate) fn why_down(&self) -> LinkError {
        match &*self.state.borrow() {
            State::Down(why) => why.clone(),
            State::Up(_) => LinkError::not_connected("the connection was lost again"),
        }
    }
}

/// Opens the connection for commands, and checks the server.
async fn connect(place: &Endpoint, eviction: Eviction) -> Result<(Arc<CommandSocket>, Arc<Connector>), OpenError> {
    let connector = place.connector()?;
    let socket = connector.connect(|_, _| ()).await?;
    let run = look(place, &connector, &socket, eviction).await?;
    Ok((CommandSocket::new(socket, run, &connector), connector))
}

/// Checks that a server is fit, and returns its run.
pub(crate) async fn look(
    place: &Endpoint,
    connector: &Connector,
    socket: &Socket,
    eviction: Eviction,
) -> Result<Run, OpenError> {
    match text_of(connector.ask(socket, &redis::cmd("INFO")).await?) {
        Ok(info) => preflight::judge(&info, eviction, place.among(), connector.address()),
        Err(other) => {
            let says = format!("it answers {other:?} to INFO");
            Err(OpenError::NotRedis { address: connector.address().to_owned(), says })
        }
    }
}

/// Returns the text of an answer, or the answer if it is not a text.
pub(crate) fn text_of(answer: Value) -> Result<String, Value> {
    match answer {
        Value::VerbatimString { text, .. } => Ok(text),
        Value::BulkString(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        other => Err(other),
    }
}

/// Reopens the connection whenever it is lost or leads to the wrong server, one attempt at a time, until the last
/// handle is dropped.
async fn keep_up(
    place: Endpoint,
    eviction: Eviction,
    state: watch::Sender<State>,
    counters: Arc<Counters>,
    mut connector: Option<Arc<Connector>>,
) {
    let keep = async {
        let mut backoff = Backoff::new();
        let (mut made_before, was_there) = (connector.is_some(), connector.is_some());
        let outage_of = |connector: &Connector| Outage::of(ServerKind::Redis, connector.address());
        let mut outage = None;
        loop {
            // Taken out of the state, because holding the socket itself would keep it open.
            let lost = match &*state.borrow() {
                State::Up(up) => Some(Arc::clone(up.socket.lost())),
                State::Down(_) => None,
            };
            if let (Some(lost), Some(connector)) = (lost, connector.take()) {
                let lasted = Stopwatch::start();
                let why = tokio::select! {
                    () = lost.wait() => "the connection was lost",
                    () = place.is_left(&connector) => {
                        lost.leave();
                        "another server is the primary now"
                    }
                };
                outage.insert(outage_of(&connector)).begin(&why);
                backoff.lasted(lasted.elapsed());
                state.send_replace(State::Down(LinkError::not_connected("the connection was lost")));
                place.ask_again();
            }
            if made_before {
                backoff.pause().await;
            }
            let next = match connect(&place, eviction).await {
                Ok((socket, through)) => {
                    // A first connection counts as a reconnect here: the server may have replaced a known one.
                    if made_before || !was_there {
                        counters.reconnects.fetch_add(1, Ordering::Relaxed);
                    }
                    if let Some(outage) = outage.take() {
                        outage.over_at(through.address());
                    }
                    connector = Some(through);
                    State::Up(socket)
                }
                Err(error) => {
                    // A server that was never reached is lost as well. Sentinels that name none have no address to tell.
                    outage = outage.or_else(|| Some(outage_of(&*place.connector().ok()?)));
                    if let Some(outage) = &outage {
                        outage.begin(&error);
                    }
                    place.ask_again();
                    State::Down(error.into_unavailable())
                }
            };
            made_before = true;
            state.send_replace(next);
        }
    };
    tokio::select! {
        () = state.closed() => {}
        () = keep => {}
    }
}
