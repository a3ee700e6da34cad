//! Locks on Redis or Valkey: one server, the primary that sentinels name, or a cluster.
//!
//! The scripts beside this file restate the rules of the core; the conformance suite compares them with the core. One
//! step is one script on the keys of one bucket, which share a hash tag. An expiry is a value that scripts compare with
//! the server's `TIME`. The time to live of a key only removes what dead processes left behind.
//!
//! | key | content |
//! |---|---|
//! | `fc:{lXX}:n` | the highest number drawn in bucket XX (hexadecimal) |
//! | `fc:{lXX}:c` | when each waiting process last sent a heartbeat |
//! | `fc:{lXX}:h:NAME` | the holder of the lock; absent while it is free |
//! | `fc:{lXX}:o:NAME` | the other holders of a lock that requests share; absent while there are none |
//! | `fc:{lXX}:q:NAME`, `fc:{lXX}:w:NAME` | the waiters, in order; absent while there are none |
//! | `fc:{lXX}:x` | requests that were given up before they arrived; gone after a minute |
//! | `fc:inbox:PROCESS` | the channel of a process |

mod bytes;
mod standing;

use super::fitness::Watch;
use super::{Inbox, InboxEvent, Invocation, Link, LinkOptions, OpenError, Script};
use firstcome_core::id::{LockName, OwnerName};
use firstcome_core::limits::CLAIM_WINDOW_MS;
use firstcome_core::lock::{
    Acquired, Answer, ClientId, Copies, Fence, Grant, Head, LockAnswer, LockView, Push, Released, Renewal, Request,
    Step, Taken, Wait, Waiter, WaiterView, bucket_of,
};
use firstcome_store::StoreError;
use firstcome_store::{Guarantees, LockEvent, LockInbox, LockStore, TimedLockView};
use parking_lot::Mutex;
use redis::Value;
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// How much longer than its lease the key of a hold stays. It must outlast the line of the lock: without this key the
/// scripts assume that there is no line.
const HOLD_MS: u64 = 7_260_000;

macro_rules! script {
    ($($part:literal),*) => {
        Script::new(concat!(include_str!("lua/head.lua"), $(include_str!(concat!("lua/", $part, ".lua"))),*))
    };
}

static ACQUIRE: Script = script!("acquire_free", "names", "acquire_line", "rules", "acquire");
static RELEASE: Script = script!("release_alone", "names", "release_next", "rules", "release");
static RENEW: Script = script!("names", "rules", "renew");
static BEAT: Script = script!("names", "rules", "beat");
static VIEW: Script = script!("names", "rules", "view");
static STANDING: Script = script!("names", "rules", "standing");

/// Locks on Redis or Valkey, as one process sees them. Uses two connections for any number of locks and waiters; in a
/// cluster one, plus one to each master.
///
/// A primary that is replaced may lose grants that it acknowledged: then two processes may hold one lock. Fences follow
/// the server's clock, so the later fence is still the higher one, unless the clock of the new primary is behind by
/// more time than has passed. While a slot of a cluster moves, steps on its locks may end as [`StoreError::Unknown`].
///
/// With [`LinkOptions::replica_ack`] a grant or a renewal is reported when replicas have it. The answer to a step then
/// comes later, or is [`StoreError::Unknown`]. A grant that a push or a heartbeat shows is confirmed first, with one
/// more command. All of these share `WAIT` commands. Renewals then use the connection of the acquires instead of the
/// one beside it.
pub struct RedisLocks {
    link: Link,
    client: ClientId,
    notifications: Mutex<PushTask>,
    withheld: mpsc::Sender<Push>,
    watch: Arc<Watch>,
}

firstcome_core::debug_by_name!(RedisLocks);

/// How many grants may wait for their confirmation. The next heartbeat shows any others again.
const WITHHELD: usize = 4_096;

/// The task that passes pushed grants on to the client.
enum PushTask {
    /// Not started: no client has asked for pushes yet.
    Idle(PushedEvents),
    Running(JoinHandle<()>),
    Closed,
}

impl RedisLocks {
    /// Connects, and checks that the server is fit for locks. `client` must differ from that of every other process.
    pub async fn open(url: &str, client: ClientId, options: LinkOptions) -> Result<Self, OpenError> {
        let (link, inbox) = Link::open(url, &format!("fc:inbox:{:016x}", client.0), options.clone()).await?;
        let watch = Arc::new(Watch::over(&link, &options));
        let (withheld, shown) = mpsc::channel(WITHHELD);
        let heard = PushedEvents { events: inbox, withheld: shown };
        Ok(Self { link, client, notifications: Mutex::new(PushTask::Idle(heard)), withheld, watch })
    }

    /// Takes grants out of the answer to a heartbeat. The client learns at once that the process lives, and learns of a
    /// grant when replicas have it.
    fn withhold(&self, step: &Step, said: &mut LockAnswer) {
        if let (Step::Beat { names, .. }, LockAnswer::Beaten { looked, .. }) = (step, said) {
            for (name, (grants, _)) in names.iter().zip(looked) {
                for grant in grants.drain(..) {
                    // It fails if the queue is full or the listening task has ended. The next heartbeat shows the grant
                    // again.
                    let _ = self.withheld.try_send(Push { name: name.clone(), grant });
                }
            }
        }
    }

    /// The link to the server, for metrics.
    pub const fn link(&self) -> &Link {
        &self.link
    }
}

impl LockStore for RedisLocks {
    fn guarantees(&self) -> Guarantees {
        Guarantees::REDIS
    }

    async fn take(&self, step: Step) -> Result<Answer, StoreError> {
        if matches!(step, Step::Acquire { .. }) {
            self.watch.may_grant()?;
        }
        let run = run_of(&step);
        let needs_replicas = self.link.needs_replicas();
        // The rare ways have a place of their own on the heap: each hand-over moves this future into one.
        let value = match &step {
            Step::Acquire { .. } if needs_replicas => Box::pin(self.link.invoke_acknowledged(&run, is_grant)).await?,
            Step::Acquire { .. } | Step::Release { .. } => self.link.invoke(&run).await?,
            Step::Renew { .. } if needs_replicas => Box::pin(self.link.invoke_acknowledged(&run, is_renewed)).await?,
            Step::Renew { .. } | Step::Beat { .. } => Box::pin(self.link.invoke_beside(&run)).await?,
        };
        // An answer that this process cannot read may belong to a step that was taken.
        let mut answer = answer(&step, value).ok_or(StoreError::Unknown)?;
        if needs_replicas || self.watch.may_grant().is_err() {
            self.withhold(&step, &mut answer.said);
        }
        Ok(answer)
    }

    async fn view(&self, name: &LockName) -> Result<TimedLockView, StoreError> {
        let mut run = VIEW.with_keys(1);
        let value = self.link.invoke(run.add(counter(bucket_of(name))).add(name)).await?;
        view_of(value).ok_or(StoreError::Unknown)
    }

    fn attach(&self, client: ClientId, inbox: LockInbox) {
        assert_eq!(client, self.client, "a link is of one process");
        let mut notifications = self.notifications.lock();
        *notifications = match std::mem::replace(&mut *notifications, PushTask::Closed) {
            PushTask::Idle(heard) => {
                let (link, watch) = (self.link.clone(), Arc::clone(&self.watch));
                PushTask::Running(tokio::spawn(listen(heard, client, inbox, (link, watch))))
            }
            other => other,
        };
    }

    fn detach(&self, _client: ClientId) {
        let notifications = std::mem::replace(&mut *self.notifications.lock(), PushTask::Closed);
        if let PushTask::Running(task) = notifications {
            task.abort();
        }
    }
}

impl Drop for RedisLocks {
    fn drop(&mut self) {
        LockStore::detach(self, self.client);
    }
}

/// Whether the answer to an acquire grants the lock.
fn is_grant(value: &Value) -> bool {
    match value {
        Value::Array(items) => matches!(items.get(1), Some(Value::BulkString(said)) if said == b"G"),
        _ => true,
    }
}

/// Whether the answer to a renew step renewed at least one hold.
fn is_renewed(value: &Value) -> bool {
    match value {
        Value::Array(items) => match items.get(1) {
            Some(Value::Array(ends)) => ends.iter().any(|end| *end != Value::Int(0)),
            _ => true,
        },
        _ => true,
    }
}

/// Confirms a pushed grant with the replicas. The release of another process made the grant, over another connection,
/// and did not wait for replicas; the new holder must do that. A heartbeat shows whether the grant stands. It also
/// writes, so replicas that have the heartbeat have the grant. If the grant cannot be confirmed, the next heartbeat
/// shows it again, and it ends after its claim window.
async fn confirmed(link: Link, push: Push) -> Option<Push> {
    let Push { name, grant } = push;
    let (bucket, client) = (bucket_of(&name), grant.request.client);
    let beat = Step::Beat { bucket, client, names: vec![name.clone()] };
    let value = link.invoke_acknowledged(&run_of(&beat), |_| true).await.ok()?;
    let LockAnswer::Beaten { looked, .. } = answer(&beat, value)?.said else { return None };
    let stands = looked.into_iter().next()?.0.into_iter().find(|stands| stands.request == grant.request)?;
    Some(Push { name, grant: stands })
}

/// The sources of pushed grants.
struct PushedEvents {
    events: Inbox,
    /// Grants from answers that replicas may not have yet.
    withheld: mpsc::Receiver<Push>,
}

/// Passes pushed grants on to the client. Passes on no grant while the server may evict it: the line passes that place
/// over after the claim window.
async fn listen(heard: PushedEvents, client: ClientId, inbox: LockInbox, (link, watch): (Link, Arc<Watch>)) {
    let PushedEvents { mut events, mut withheld } = heard;
    let mut confirming = JoinSet::new();
    loop {
        tokio::select! {
            event = events.next() => match event {
                InboxEvent::Message(_) if watch.may_grant().is_err() => {}
                InboxEvent::Message(message) => match push_of(&message, client) {
                    Some(push) if link.needs_replicas() => drop(confirming.spawn(confirmed(link.clone(), push))),
                    Some(push) => inbox(LockEvent::Push(push)),
                    None => {}
                },
                InboxEvent::Connected => inbox(LockEvent::MayHaveMissed),
                InboxEvent::Disconnected => {}
            },
            Some(push) = withheld.recv() => if watch.may_grant().is_ok() {
                drop(confirming.spawn(confirmed(link.clone(), push)));
            },
            Some(done) = confirming.join_next() => if let Ok(Some(push)) = done {
                inbox(LockEvent::Push(push));
            },
        }
    }
}

fn read(text: &str) -> Option<Request> {
    let (client, number) = text.split_once(':')?;
    Some(Request { client: ClientId(u64::from_str_radix(client, 16).ok()?), number: number.parse().ok()? })
}

/// The counter of a bucket.
fn counter(bucket: u8) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "fc:{{l{bucket:02x}}}:n"))
}

/// The hold of a lock.
fn hold(name: &LockName) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "fc:{{l{:02x}}}:h:{name}", bucket_of(name)))
}

/// The text of a request in keys and messages.
fn written(request: Request) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "{:016x}:{}", request.client.0, request.number))
}

/// Returns the script of a step with its keys and arguments. The script derives the other keys of the bucket.
fn run_of(step: &Step) -> Invocation {
    match step {
        Step::Acquire { name, waiter: Waiter { request, owner, lease_ms, mode }, wait } => {
            let mut run = ACQUIRE.with_keys(2);
            run.add(counter(bucket_of(name))).add(hold(name));
            run.add(format_args!("{} {lease_ms} {} {owner}", written(*request), mode.stored()));
            run.add(u64::from(*lease_ms) + HOLD_MS);
            match wait {
                Wait::No => run.add(0),
                Wait::Yes => run.add(1),
                Wait::Again(place) => run.add(place),
            };
            if 1 < mode.passes() {
                run.add(mode.passes());
            }
            run
        }
        Step::Release { name, request, copies } => {
            let mut run = RELEASE.with_keys(1);
            run.add(hold(name)).add(written(*request));
            if *copies == Copies::Several {
                run.add("again");
            }
            run
        }
        Step::Renew { bucket, renewals } => {
            let mut run = RENEW.with_keys(1);
            run.add(counter(*bucket));
            for Renewal { name, request, lease_ms } in renewals {
                run.add(written(*request)).add(lease_ms).add(name);
            }
            run
        }
        Step::Beat { bucket, client, names } => {
            let mut run = BEAT.with_keys(1);
            run.add(counter(*bucket)).add(format_args!("{:016x}", client.0));
            for name in names {
                run.add(name);
            }
            run
        }
    }
}

/// The items of a script's answer, in order.
struct Items(std::vec::IntoIter<Value>);

impl Items {
    fn of(value: Value) -> Option<Self> {
        match value {
            Value::Array(items) => Some(Self(items.into_iter())),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<u64> {
        match self.0.next()? {
            Value::Int(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn fence(&mut self) -> Option<Fence> {
        Fence::new(self.number()?)
    }

    fn text(&mut self) -> Option<String> {
        match self.0.next()? {
            Value::BulkString(text) => String::from_utf8(text).ok(),
            _ => None,
        }
    }

    fn items(&mut self) -> Option<Self> {
        Self::of(self.0.next()?)
    }

    fn taken(&mut self) -> Option<Taken> {
        Some(if self.number()? == 1 { Taken::Yes } else { Taken::Open })
    }

    fn seen(&mut self) -> Option<WaiterView> {
        let (expires_us, lease_ms) = (self.number()?, self.small()?);
        let head = if self.number()? == 1 { Head::Mine } else { Head::Others };
        Some(WaiterView { expires_us, lease_ms, head })
    }
}

/// Reads an answer that is only a time: the script took its short path, so the step succeeded in its simplest form.
fn short(step: &Step, now_us: u64) -> Option<Answer> {
    let said = match step {
        Step::Acquire { waiter: Waiter { request, lease_ms, .. }, .. } => {
            let expires_us = now_us + u64::from(*lease_ms) * 1_000;
            let (request, fence, taken) = (*request, Fence::new(now_us)?, Taken::Yes);
            LockAnswer::Acquired(Acquired::Granted(Grant { request, fence, expires_us, taken }))
        }
        Step::Release { .. } => LockAnswer::Released(Released::Released),
        Step::Renew { .. } | Step::Beat { .. } => return None,
    };
    Some(Answer { now_us, said })
}

fn answer(step: &Step, value: Value) -> Option<Answer> {
    if let Value::BulkString(now_us) = value {
        return short(step, std::str::from_utf8(&now_us).ok()?.parse().ok()?);
    }
    let mut items = Items::of(value)?;
    let now_us = items.number()?;
    let said = match step {
        Step::Acquire { waiter, .. } => LockAnswer::Acquired(acquired(waiter.request, &mut items)?),
        Step::Release { .. } => {
            let (said, ahead) = (items.text()?, items.small()?);
            LockAnswer::Released(match said.as_str() {
                "R" => Released::Released,
                "W" => Released::Withdrawn { ahead },
                _ => Released::NotHeld,
            })
        }
        Step::Renew { renewals, .. } => {
            let mut ends = items.items()?;
            let end = |_| ends.number().map(|end| (0 < end).then_some(end));
            LockAnswer::Renewed(renewals.iter().map(end).collect::<Option<_>>()?)
        }
        Step::Beat { names, .. } => {
            let life = items.number()?;
            let mut looked = items.items()?;
            let look = |_| looked.items().and_then(waiter_view_of);
            LockAnswer::Beaten { life, looked: names.iter().map(look).collect::<Option<_>>()? }
        }
    };
    Some(Answer { now_us, said })
}

fn acquired(request: Request, items: &mut Items) -> Option<Acquired> {
    Some(match items.text()?.as_str() {
        "G" => {
            let (fence, expires_us, taken) = (items.fence()?, items.number()?, items.taken()?);
            Acquired::Granted(Grant { request, fence, expires_us, taken })
        }
        "Q" => {
            let (number, ahead, life) = (items.number()?, items.small()?, items.number()?);
            Acquired::Queued { number, ahead, life, seen: items.seen()? }
        }
        "C" => {
            let holder = OwnerName::parse(&items.text()?).ok()?;
            Acquired::Contended { holder, waiters: items.small()?, expires_us: items.number()? }
        }
        _ => Acquired::Void,
    })
}

/// Reads what a heartbeat says about one lock: nothing, or the state of the lock and grants.
fn waiter_view_of(mut items: Items) -> Option<(Vec<Grant>, Option<WaiterView>)> {
    if items.0.len() == 0 {
        return Some((Vec::new(), None));
    }
    let seen = items.seen()?;
    let mut grants = Vec::new();
    while 0 < items.0.len() {
        let (request, fence, taken) = (read(&items.text()?)?, items.fence()?, items.taken()?);
        grants.push(Grant { request, fence, expires_us: items.number()?, taken });
    }
    Some((grants, Some(seen)))
}

fn view_of(value: Value) -> Option<TimedLockView> {
    let mut items = Items::of(value)?;
    let (now_us, waiters) = (items.number()?, items.small()?);
    let (held, holders) = match items.text() {
        Some(owner) => (Some((OwnerName::parse(&owner).ok()?, items.fence()?, items.number()?)), items.small()?),
        None => (None, 0),
    };
    Some(TimedLockView { view: LockView { held, holders, waiters }, now_us })
}

/// Reads a push: `NAME REQUEST FENCE FROM_US LEASE_MS`.
fn push_of(message: &[u8], client: ClientId) -> Option<Push> {
    let mut words = std::str::from_utf8(message).ok()?.split(' ');
    let name = LockName::parse(words.next()?).ok()?;
    let request = read(words.next()?).filter(|request| request.client == client)?;
    let fence = Fence::new(words.next()?.parse().ok()?)?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let (from_us, lease_ms) = (number()?, number()?);
    let expires_us = from_us.saturating_add(lease_ms.min(u64::from(CLAIM_WINDOW_MS)) * 1_000);
    Some(Push { name, grant: Grant { request, fence, expires_us, taken: Taken::Open } })
}
