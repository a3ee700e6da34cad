//! The link: one connection for all commands, made again whenever it is lost.

use super::error::{LinkError, OpenError, READ_ONLY};
use super::inbox::Inbox;
use super::preflight::{self, Eviction};
use super::script::{Invocation, Script};
use super::wire::{Backoff, Door, Wire};
use crate::edge::Stopwatch;
use redis::{Cmd, Value};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::time::timeout;

/// How a link behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkOptions {
    /// How long one attempt to connect may take, and how long a command waits for a connection when there is none.
    pub connect_timeout: Duration,
    /// How long to wait for an answer. After it the outcome is unknown, and the command may still run.
    pub answer_timeout: Duration,
    /// How often the inbox asks whether its connection still works. A dead one is noticed after this and the answer's
    /// time-out at the latest.
    pub ping_interval: Duration,
    /// What to do with a server that throws keys away when its memory is full.
    pub allow_eviction: Eviction,
}

impl Default for LinkOptions {
    /// A second for each time, and no eviction.
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            connect_timeout: second,
            answer_timeout: second,
            ping_interval: second,
            allow_eviction: Eviction::default(),
        }
    }
}

/// What a link has done so far. Figures for benchmarks and metrics: no rule rests on them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Commands handed over, with those that loaded a script, those that had to be given again after it, and the second
    /// copies of what went [beside](Link::invoke_beside) them. Without what keeps the connections: `INFO`, `SUBSCRIBE`, `PING`.
    pub requests: u64,
    /// Messages that came into the inbox.
    pub pushes: u64,
    /// How many times the connection for commands was made again.
    pub reconnects: u64,
    /// How many times the inbox was subscribed again.
    pub resubscriptions: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    requests: AtomicU64,
    pub(crate) pushes: AtomicU64,
    reconnects: AtomicU64,
    pub(crate) resubscriptions: AtomicU64,
}

/// A link to one server. Clones share it; when the last is dropped its connection is closed.
#[derive(Clone)]
pub struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    line: watch::Receiver<Line>,
    beside: watch::Receiver<Option<Arc<CommandWire>>>,
    counters: Arc<Counters>,
    connect_timeout: Duration,
    answer_timeout: Duration,
}

/// Which connection a command takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// That for commands.
    Line,
    /// That of the inbox, or the other one while there is none.
    Beside,
}

/// Without an answer for so long, or for a quarter of the time-out for an answer if that is shorter, what goes beside the
/// commands is also sent along with them: one of the two connections may be dead without a word, and what goes there must
/// not be late. A server that is slower than that gets twice the signs of life at most.
const HEDGE: Duration = Duration::from_millis(250);

/// The state of the connection for commands.
enum Line {
    Up(Arc<CommandWire>),
    /// There is none, and this is why.
    Down(LinkError),
}

pub(crate) struct CommandWire {
    pub(crate) wire: Wire,
    /// Which run of which server is at the other end.
    run_id: Box<str>,
    /// How many answers came over it.
    answered: AtomicU64,
}

impl CommandWire {
    pub(crate) fn new(wire: Wire, run_id: Box<str>) -> Arc<Self> {
        Arc::new(Self { wire, run_id, answered: AtomicU64::new(0) })
    }

    fn is_up(&self) -> bool {
        !self.wire.lost().is_declared()
    }
}

impl Line {
    fn up(&self) -> Option<Arc<CommandWire>> {
        match self {
            Self::Up(up) if up.is_up() => Some(Arc::clone(up)),
            _ => None,
        }
    }
}

impl Link {
    /// Connects, looks at the server, and subscribes the inbox to the channel of this name.
    ///
    /// Takes at most twice the time-outs for connecting and for an answer. Must be called in a tokio runtime with IO and
    /// time, which keeps the connections up. A failure here is final; once open, a link comes back by itself, and looks
    /// at the server again each time.
    pub async fn open(url: &str, inbox: &str, options: LinkOptions) -> Result<(Self, Inbox), OpenError> {
        let door = Arc::new(Door::new(url, options.connect_timeout, options.answer_timeout)?);
        let counters = Arc::new(Counters::default());
        let wire = connect(&door, options.allow_eviction).await?;
        let (inbox, beside) = Inbox::open(Arc::clone(&door), inbox, &options, Arc::clone(&counters)).await?;
        let (state, line) = watch::channel(Line::Up(wire));
        tokio::spawn(keep_up(door, options.allow_eviction, state, Arc::clone(&counters)));
        let LinkOptions { connect_timeout, answer_timeout, .. } = options;
        let shared = Shared { line, beside, counters, connect_timeout, answer_timeout };
        Ok((Self { shared: Arc::new(shared) }, inbox))
    }

    /// [`Self::invoke`] with keys and arguments that are there already.
    pub async fn run(&self, script: &'static Script, keys: &[&[u8]], args: &[&[u8]]) -> Result<Value, LinkError> {
        let mut invocation = script.with_keys(keys.len());
        for part in keys.iter().chain(args) {
            invocation.add_bytes(part);
        }
        self.invoke(&invocation).await
    }

    /// Runs a script. One command; two more if the server does not know the script yet, and a last one if it has forgotten
    /// it again by then.
    ///
    /// Answers within the time-out for an answer, or, if there is no connection, the one for connecting and that one
    /// (up to four times that one if the script must be loaded). Dropping the future leaves the script run or not run.
    pub async fn invoke(&self, invocation: &Invocation) -> Result<Value, LinkError> {
        self.invoke_over(Lane::Line, invocation).await
    }

    /// The same over the connection of the inbox, so that it does not stand behind whatever all the callers have sent; and
    /// over the ordinary one too if that breaks, or there is no answer within 250 ms or a quarter of the time-out for an
    /// answer, whichever is shorter. For scripts that must not be late, and may run twice.
    ///
    /// Takes that much longer than [`Self::invoke`] at most, and twice its commands. Dropping the future leaves the script
    /// run, run twice or not run.
    pub async fn invoke_beside(&self, invocation: &Invocation) -> Result<Value, LinkError> {
        if self.beside().is_none() {
            return self.invoke(invocation).await;
        }
        let mut beside = pin!(self.invoke_over(Lane::Beside, invocation));
        let early = timeout(HEDGE.min(self.shared.answer_timeout / 4), &mut beside).await;
        let mut line = pin!(self.invoke_over(Lane::Line, invocation));
        match early {
            // It broke.
            Ok(Err(error @ LinkError::Unknown { .. })) => {
                return line.await.map_err(|other| LinkError::of_two(error, other));
            }
            Ok(answer) => return answer,
            Err(_) => {}
        }
        tokio::select! {
            answer = &mut beside => match answer {
                Ok(value) => Ok(value),
                Err(error) => line.await.map_err(|other| LinkError::of_two(error, other)),
            },
            answer = &mut line => match answer {
                Ok(value) => Ok(value),
                Err(error) => beside.await.map_err(|other| LinkError::of_two(error, other)),
            },
        }
    }

    /// The connection of the inbox, unless it leads to another server than commands go to. While these have none there is
    /// nothing to compare.
    fn beside(&self) -> Option<Arc<CommandWire>> {
        let beside = self.shared.beside.borrow().clone().filter(|beside| beside.is_up())?;
        let line = self.shared.line.borrow().up();
        line.is_none_or(|line| is_same_run(&line.run_id, &beside.run_id)).then_some(beside)
    }

    async fn invoke_over(&self, lane: Lane, invocation: &Invocation) -> Result<Value, LinkError> {
        let Invocation { script, command } = invocation;
        match self.ask(lane, command).await {
            Err(error) if error.is_no_script() => {}
            answer => return answer,
        }
        match self.ask(lane, &script.loading()).await {
            // Whatever became of loading it: nobody has asked to run it yet.
            Err(LinkError::Unknown { says }) => {
                return Err(LinkError::not_connected(format!("while the script was being loaded: {says}")));
            }
            loaded => loaded?,
        };
        match self.ask(lane, command).await {
            // Sent along it cannot be missed. Not in the first place: a server that is short of room forgets sooner what
            // came that way, and not every user may do that.
            Err(error) if error.is_no_script() => self.ask(lane, &invocation.sent_along()).await,
            answer => answer,
        }
    }

    /// What this link has done so far.
    pub fn counts(&self) -> Counts {
        let Counters { requests, pushes, reconnects, resubscriptions } = &*self.shared.counters;
        Counts {
            requests: requests.load(Ordering::Relaxed),
            pushes: pushes.load(Ordering::Relaxed),
            reconnects: reconnects.load(Ordering::Relaxed),
            resubscriptions: resubscriptions.load(Ordering::Relaxed),
        }
    }

    /// Hands a command over once. Up to there nothing waits while there is a connection, so that commands go out in the
    /// order of the first polls.
    async fn ask(&self, lane: Lane, command: &Cmd) -> Result<Value, LinkError> {
        let beside = match lane {
            Lane::Line => None,
            Lane::Beside => self.beside(),
        };
        let up = beside.or_else(|| self.shared.line.borrow().up());
        let up = match up {
            Some(up) => up,
            None => self.wait_for_connection().await?,
        };
        self.shared.counters.requests.fetch_add(1, Ordering::Relaxed);
        let answered_before = up.answered.load(Ordering::Relaxed);
        let mut connection = up.wire.connection();
        // Unconstrained: a task that has used up its turn would else be put off before it has taken its place in the
        // connection's queue, and others would overtake it.
        let answer = timeout(self.shared.answer_timeout, unconstrained(connection.send_packed_command(command))).await;
        match answer {
            Ok(Ok(value)) => {
                up.answered.fetch_add(1, Ordering::Relaxed);
                let answer = value.extract_error().map_err(LinkError::from);
                // A primary that has become a replica keeps its connections. A new one finds out, and where the name of
                // the server leads by now. Who still waits for an answer over the old one gets it.
                if matches!(&answer, Err(LinkError::Unavailable { code, .. }) if code == READ_ONLY) {
                    up.wire.lost().declare();
                }
                answer
            }
            Ok(Err(error)) => {
                up.wire.lost().declare();
                Err(error.into())
            }
            Err(_) => {
                // If nobody was answered in all that time the connection may be half open: without this it would be
                // used until the system gives it up, which takes many minutes.
                if up.answered.load(Ordering::Relaxed) == answered_before {
                    up.wire.lost().declare();
                }
                Err(LinkError::Unknown { says: "no answer in time".to_owned() })
            }
        }
    }

    async fn wait_for_connection(&self) -> Result<Arc<CommandWire>, LinkError> {
        let mut line = self.shared.line.clone();
        let up = async { line.wait_for(|line| line.up().is_some()).await.map(|line| line.up()) };
        match timeout(self.shared.connect_timeout, up).await {
            Ok(Ok(Some(up))) => Ok(up),
            Ok(Err(_)) => Err(LinkError::not_connected("the runtime that kept the link up has ended")),
            Ok(Ok(None)) | Err(_) => Err(match &*self.shared.line.borrow() {
                Line::Down(why) => why.clone(),
                Line::Up(_) => LinkError::not_connected("the connection was lost again"),
            }),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// Whether two connections lead to the same run of the same server. One that does not name its run could be any.
fn is_same_run(one: &str, other: &str) -> bool {
    !one.is_empty() && one == other
}

/// Makes the connection for commands, and looks at the server.
async fn connect(door: &Door, eviction: Eviction) -> Result<Arc<CommandWire>, OpenError> {
    let wire = door.connect(|_, _| ()).await?;
    let run_id = look(door, &wire, eviction).await?;
    Ok(CommandWire::new(wire, run_id))
}

/// Looks whether a server will do; which run of which one it is.
pub(crate) async fn look(door: &Door, wire: &Wire, eviction: Eviction) -> Result<Box<str>, OpenError> {
    let info: String = match door.ask(wire, &redis::cmd("INFO")).await? {
        Value::VerbatimString { text, .. } => text,
        Value::BulkString(text) => String::from_utf8_lossy(&text).into_owned(),
        other => {
            let says = format!("it answers {other:?} to INFO");
            return Err(OpenError::NotRedis { address: door.address().to_owned(), says });
        }
    };
    preflight::judge(&info, eviction, door.address())
}

/// Makes the connection again whenever it is lost, one attempt at a time, until nobody holds the link.
async fn keep_up(door: Arc<Door>, eviction: Eviction, state: watch::Sender<Line>, counters: Arc<Counters>) {
    let keep = async {
        let mut backoff = Backoff::new();
        loop {
            // Taken out of the state: who holds the connection itself would keep it open.
            let lost = match &*state.borrow() {
                Line::Up(up) => Some(Arc::clone(up.wire.lost())),
                Line::Down(_) => None,
            };
            if let Some(lost) = lost {
                let lasted = Stopwatch::start();
                lost.wait().await;
                backoff.lasted(lasted.elapsed());
                state.send_replace(Line::Down(LinkError::not_connected("the connection was lost")));
            }
            backoff.pause().await;
            let line = match connect(&door, eviction).await {
                Ok(wire) => {
                    counters.reconnects.fetch_add(1, Ordering::Relaxed);
                    Line::Up(wire)
                }
                Err(error) => Line::Down(error.into_unavailable()),
            };
            state.send_replace(line);
        }
    };
    tokio::select! {
        () = state.closed() => {}
        () = keep => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_is_named_is_the_same() {
        assert!(is_same_run("0a1b", "0a1b"));
        for (one, other) in [("0a1b", "2c3d"), ("0a1b", ""), ("", "0a1b"), ("", "")] {
            assert!(!is_same_run(one, other), "{one:?} and {other:?}");
        }
    }
}
