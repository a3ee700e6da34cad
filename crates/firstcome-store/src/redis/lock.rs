//! Locks on one Redis or Valkey server.
//!
//! The scripts beside this file restate the rules of the core; the core is their oracle in the conformance suite. One
//! step is one script on the keys of one bucket, which share a hash tag. Expiry is a value that scripts compare with the
//! server's `TIME`; a key's time to live only clears away what the dead left.
//!
//! | key | what |
//! |---|---|
//! | `fc:{lXX}:n` | the highest number drawn in bucket XX (hexadecimal) |
//! | `fc:{lXX}:c` | when each process that waits was heard of |
//! | `fc:{lXX}:h:NAME` | who holds the lock; absent while it is free |
//! | `fc:{lXX}:q:NAME`, `fc:{lXX}:w:NAME` | who waits, in order; absent while nobody does |
//! | `fc:{lXX}:x:REQUEST` | given up before it arrived; gone after a minute |
//! | `fc:inbox:PROCESS` | the channel of a process |

use super::{Inbox, InboxEvent, Link, LinkOptions, OpenError, Script};
use crate::error::StoreError;
use crate::lock::{LockEvent, LockInbox, LockSeen, LockStore};
use firstcome_core::id::{LockName, OwnerName};
use firstcome_core::lock::{
    Acquired, Answer, ClientId, Copies, Fence, Grant, Head, LockView, Push, Released, Request, Said, Seen, Step, Taken,
    Wait, bucket_of,
};
use parking_lot::Mutex;
use redis::Value;
use tokio::task::JoinHandle;

macro_rules! script {
    ($($part:literal),*) => {
        Script::new(concat!(include_str!("lua/head.lua"), $(include_str!(concat!("lua/", $part, ".lua"))),*))
    };
}

static ACQUIRE: Script = script!("acquire_free", "acquire_line", "rules", "acquire");
static RELEASE: Script = script!("release_next", "rules", "release");
static RENEW: Script = script!("last", "rules", "renew");
static BEAT: Script = script!("last", "rules", "beat");
static VIEW: Script = script!("last", "rules", "view");

/// Locks on one Redis or Valkey server, as one process sees them: two connections for any number of locks and waiters.
pub struct RedisLocks {
    link: Link,
    client: ClientId,
    ears: Mutex<Ears>,
}

enum Ears {
    /// Nobody listens yet.
    Idle(Inbox),
    Listening(JoinHandle<()>),
    Closed,
}

impl RedisLocks {
    /// Connects and looks whether the server will do. `client` must be unlike that of any other process.
    pub async fn open(url: &str, client: ClientId, options: LinkOptions) -> Result<Self, OpenError> {
        let (link, inbox) = Link::open(url, &format!("fc:inbox:{:016x}", client.0), options).await?;
        Ok(Self { link, client, ears: Mutex::new(Ears::Idle(inbox)) })
    }

    /// The link to the server, for figures.
    pub const fn link(&self) -> &Link {
        &self.link
    }

    async fn run(&self, script: &'static Script, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Result<Value, StoreError> {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        Ok(self.link.run(script, &keys, &args).await?)
    }
}

impl LockStore for RedisLocks {
    async fn take(&self, step: Step) -> Result<Answer, StoreError> {
        let (script, keys, args) = parts(&step);
        let value = self.run(script, &keys, &args).await?;
        // An answer that cannot be read may still stand for a step that was taken.
        answer(&step, value).ok_or(StoreError::Unknown)
    }

    async fn view(&self, name: &LockName) -> Result<LockSeen, StoreError> {
        let keys = [counter(bucket_of(name)), lives(bucket_of(name)), key('h', name), key('q', name)];
        let value = self.run(&VIEW, &keys, &[]).await?;
        seen_of(value).ok_or(StoreError::Unknown)
    }

    fn attach(&self, client: ClientId, inbox: LockInbox) {
        assert_eq!(client, self.client, "a link is of one process");
        let mut ears = self.ears.lock();
        *ears = match std::mem::replace(&mut *ears, Ears::Closed) {
            Ears::Idle(events) => Ears::Listening(tokio::spawn(listen(events, client, inbox))),
            other => other,
        };
    }

    fn detach(&self, _client: ClientId) {
        let ears = std::mem::replace(&mut *self.ears.lock(), Ears::Closed);
        if let Ears::Listening(task) = ears {
            task.abort();
        }
    }
}

impl Drop for RedisLocks {
    fn drop(&mut self) {
        LockStore::detach(self, self.client);
    }
}

async fn listen(mut events: Inbox, client: ClientId, inbox: LockInbox) {
    loop {
        match events.next().await {
            InboxEvent::Message(message) => {
                if let Some(push) = push_of(&message, client) {
                    inbox(LockEvent::Push(push));
                }
            }
            InboxEvent::Connected => inbox(LockEvent::MayHaveMissed),
            InboxEvent::Disconnected => {}
        }
    }
}

fn counter(bucket: u8) -> Vec<u8> {
    format!("fc:{{l{bucket:02x}}}:n").into_bytes()
}

fn lives(bucket: u8) -> Vec<u8> {
    format!("fc:{{l{bucket:02x}}}:c").into_bytes()
}

fn key(kind: char, name: &LockName) -> Vec<u8> {
    format!("fc:{{l{:02x}}}:{kind}:{name}", bucket_of(name)).into_bytes()
}

fn void(name: &LockName, request: Request) -> Vec<u8> {
    format!("fc:{{l{:02x}}}:x:{}", bucket_of(name), written(request)).into_bytes()
}

fn written(request: Request) -> String {
    format!("{:016x}:{}", request.client.0, request.number)
}

fn read(text: &str) -> Option<Request> {
    let (client, number) = text.split_once(':')?;
    Some(Request { client: ClientId(u64::from_str_radix(client, 16).ok()?), number: number.parse().ok()? })
}

type Parts = (&'static Script, Vec<Vec<u8>>, Vec<Vec<u8>>);

fn of_one(name: &LockName, request: Request) -> Vec<Vec<u8>> {
    let bucket = bucket_of(name);
    vec![counter(bucket), lives(bucket), key('h', name), key('q', name), key('w', name), void(name, request)]
}

fn of_many<'a>(bucket: u8, names: impl Iterator<Item = &'a LockName>) -> Vec<Vec<u8>> {
    let mut keys = vec![counter(bucket), lives(bucket)];
    keys.extend(names.flat_map(|name| [key('h', name), key('q', name), key('w', name)]));
    keys
}

/// The script of a step, its keys and its arguments.
fn parts(step: &Step) -> Parts {
    let text = |text: &str| text.as_bytes().to_vec();
    match step {
        Step::Acquire { name, waiter, wait } => {
            let wait = match wait {
                Wait::No => "0".into(),
                Wait::Yes => "1".into(),
                Wait::Again(place) => place.to_string(),
            };
            let args = vec![
                written(waiter.request).into_bytes(),
                waiter.lease_ms.to_string().into_bytes(),
                waiter.passes.to_string().into_bytes(),
                text(waiter.owner.as_str()),
                wait.into_bytes(),
                text(name.as_str()),
            ];
            (&ACQUIRE, of_one(name, waiter.request), args)
        }
        Step::Release { name, request, copies } => {
            let copies = if *copies == Copies::One { "1" } else { "2" };
            let args = vec![written(*request).into_bytes(), text(copies), text(name.as_str())];
            (&RELEASE, of_one(name, *request), args)
        }
        Step::Renew { bucket, renewals } => {
            let of_each = renewals.iter().flat_map(|renewal| {
                let lease_ms = renewal.lease_ms.to_string().into_bytes();
                [written(renewal.request).into_bytes(), lease_ms, text(renewal.name.as_str())]
            });
            let args = of_each.collect();
            (&RENEW, of_many(*bucket, renewals.iter().map(|renewal| &renewal.name)), args)
        }
        Step::Beat { bucket, client, names } => {
            let mut args = vec![format!("{:016x}", client.0).into_bytes()];
            args.extend(names.iter().map(|name| text(name.as_str())));
            (&BEAT, of_many(*bucket, names.iter()), args)
        }
    }
}

/// A script's answer, item by item.
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

    fn seen(&mut self) -> Option<Seen> {
        let (expires_us, lease_ms) = (self.number()?, self.small()?);
        let head = if self.number()? == 1 { Head::Mine } else { Head::Others };
        Some(Seen { expires_us, lease_ms, head })
    }
}

fn answer(step: &Step, value: Value) -> Option<Answer> {
    let mut items = Items::of(value)?;
    let now_us = items.number()?;
    let said = match step {
        Step::Acquire { waiter, .. } => Said::Acquired(acquired(waiter.request, &mut items)?),
        Step::Release { .. } => {
            let (said, ahead) = (items.text()?, items.small()?);
            Said::Released(match said.as_str() {
                "R" => Released::Released,
                "W" => Released::Withdrawn { ahead },
                _ => Released::NotHeld,
            })
        }
        Step::Renew { renewals, .. } => {
            let mut ends = items.items()?;
            let end = |_| ends.number().map(|end| (0 < end).then_some(end));
            Said::Renewed(renewals.iter().map(end).collect::<Option<_>>()?)
        }
        Step::Beat { names, .. } => {
            let life = items.number()?;
            let mut looked = items.items()?;
            let look = |_| looked.items().and_then(look_of);
            Said::Beaten { life, looked: names.iter().map(look).collect::<Option<_>>()? }
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

/// What a heartbeat says of one lock: nothing, or what it waits for, or that and a grant.
fn look_of(mut items: Items) -> Option<(Option<Grant>, Option<Seen>)> {
    if items.0.len() == 0 {
        return Some((None, None));
    }
    let seen = items.seen()?;
    if items.0.len() == 0 {
        return Some((None, Some(seen)));
    }
    let (request, fence, taken) = (read(&items.text()?)?, items.fence()?, items.taken()?);
    Some((Some(Grant { request, fence, expires_us: seen.expires_us, taken }), Some(seen)))
}

fn seen_of(value: Value) -> Option<LockSeen> {
    let mut items = Items::of(value)?;
    let (now_us, waiters) = (items.number()?, items.small()?);
    let held = match items.text() {
        Some(owner) => Some((OwnerName::parse(&owner).ok()?, items.fence()?, items.number()?)),
        None => None,
    };
    Some(LockSeen { view: LockView { held, waiters }, now_us })
}

/// `NAME REQUEST FENCE EXPIRES_US`.
fn push_of(message: &[u8], client: ClientId) -> Option<Push> {
    let mut words = std::str::from_utf8(message).ok()?.split(' ');
    let name = LockName::parse(words.next()?).ok()?;
    let request = read(words.next()?).filter(|request| request.client == client)?;
    let fence = Fence::new(words.next()?.parse().ok()?)?;
    let expires_us = words.next()?.parse().ok()?;
    Some(Push { name, grant: Grant { request, fence, expires_us, taken: Taken::Open } })
}
