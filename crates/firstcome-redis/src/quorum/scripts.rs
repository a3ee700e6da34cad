//! The scripts that are sent to a node, and the meaning of their answers.

use super::super::{Invocation, LinkError, Run, Script};
use super::attempt::Attempt;
use super::waiting::{STAY_MS, WAITERS_MAX};
use super::{Shared, nodes::Node};
use firstcome_core::lock::Fence;
use firstcome_core::lock::quorum::{Answer, Ended, Known, Renewed, Written};
use firstcome_store::{Fault, FaultKind};
use redis::Value;
use std::sync::atomic::Ordering;

macro_rules! script {
    ($($part:literal),*) => {
        Script::new(concat!($(include_str!(concat!("../lua/quorum/", $part, ".lua"))),*))
    };
}

static TAKE: Script = script!("node", "take");
static WRITE_BACK: Script = script!("node", "write_back");
static RENEW: Script = script!("node", "renew");
static RELEASE: Script = script!("next", "release");
static LEAVE: Script = script!("next", "leave");
static KNOWN: Script = script!("node", "known");
static JOIN: Script = script!("node", "join");
static BEGIN: Script = script!("node", "begin");

/// The key of a node's state.
const NODE: &str = "fcq:node";

/// The keys of a lock.
pub(super) struct Keys {
    pub(super) lock: Box<str>,
    turn: Box<str>,
    waiters: Box<str>,
}

impl Keys {
    pub(super) fn of(key: &str) -> Self {
        let of = |kind: char| format!("fcq:{kind}:{key}").into();
        Self { lock: of('l'), turn: of('t'), waiters: of('w') }
    }
}

/// The outcome of a message is unknown: it may yet arrive.
pub(super) struct Unclear;

/// The answer of a node to a take.
pub(super) enum Taken {
    Answer(Answer),
    /// Other clients use the node with other settings.
    Unfit(Fault),
}

/// Which waiter a release notifies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tell {
    Next,
    Nobody,
}

fn int(value: &Value) -> Option<i64> {
    if let Value::Int(number) = value { Some(*number) } else { None }
}

fn number(value: &Value) -> Option<u64> {
    int(value).and_then(|number| u64::try_from(number).ok())
}

fn numbers(value: &Value) -> Option<Vec<u64>> {
    // A negative time to live means a key without an expiry, which nothing here creates.
    let each = |value: &Value| int(value).map(|number| u64::try_from(number).unwrap_or(0));
    if let Value::Array(parts) = value { parts.iter().map(each).collect() } else { None }
}

impl Shared {
    fn on_run(&self, script: &'static Script, keys: &[&str], run: &Run) -> Invocation {
        let mut invocation = script.with_keys(keys.len());
        for key in keys {
            invocation.add_bytes(key.as_bytes());
        }
        invocation.add_bytes(run.run_id.as_bytes()).add(self.rejoin_ms);
        invocation
    }

    pub(super) async fn take_on(&self, node: usize, attempt: &Attempt) -> Result<Taken, Unclear> {
        if !self.nodes[node].may_grant() {
            return Ok(Taken::Answer(Answer::Refused));
        }
        let keys = &attempt.keys;
        let hint = self.seen.load(Ordering::Relaxed);
        let make = |run: &Run| {
            let mut take = self.on_run(&TAKE, &[NODE, &keys.lock, &keys.turn, &keys.waiters], run);
            take.add_bytes(attempt.word.as_bytes()).add(attempt.lease_ms).add(hint).add(attempt.passes);
            if let Some(waiting) = &attempt.waiting {
                take.add(&waiting.member).add(waiting.since_us).add(WAITERS_MAX).add(STAY_MS);
            }
            take
        };
        let value = match self.nodes[node].run(make).await {
            Ok(value) => value,
            // Certainly nothing was done.
            Err(LinkError::Unavailable { .. }) => return Ok(Taken::Answer(Answer::Refused)),
            Err(_) => return Err(Unclear),
        };
        let answer = match numbers(&value).as_deref() {
            Some([1, drawn]) => Fence::new(*drawn).map(Answer::Granted),
            Some([0, lasts_ms]) => Some(Answer::Held { lasts_us: lasts_ms * 1_000 }),
            Some([2, birth_us, ripe]) => Some(Answer::Young { birth_us: *birth_us, ripe: *ripe == 1 }),
            Some([3]) => Some(Answer::Refused),
            Some([4, rejoin_ms]) => {
                let says = format!(
                    "other clients use one of these servers with rejoin_after {rejoin_ms} ms, not {} ms",
                    self.rejoin_ms
                );
                return Ok(Taken::Unfit(Fault::new(FaultKind::Unfit, says)));
            }
            _ => None,
        };
        answer.map(Taken::Answer).ok_or(Unclear)
    }

    pub(super) async fn write_back_on(&self, node: usize, attempt: &Attempt, fence: Fence) -> Written {
        let make = |run: &Run| {
            let mut write_back = self.on_run(&WRITE_BACK, &[NODE, &attempt.keys.lock], run);
            write_back.add_bytes(attempt.word.as_bytes()).add(fence);
            write_back
        };
        match self.nodes[node].run(make).await.as_ref().ok().and_then(number) {
            Some(1) => Written::Yes,
            Some(_) => Written::Gone,
            None => Written::Silent,
        }
    }

    pub(super) async fn renew_on(
        &self,
        node: usize,
        attempt: &Attempt,
        lease_ms: u32,
        fence: Fence,
    ) -> Result<Renewed, Unclear> {
        let make = |run: &Run| {
            let mut renew = self.on_run(&RENEW, &[NODE, &attempt.keys.lock], run);
            renew.add_bytes(attempt.word.as_bytes()).add(lease_ms).add(fence);
            renew
        };
        match self.nodes[node].run(make).await {
            // Certainly nothing was done.
            Err(LinkError::Unavailable { .. }) => Ok(Renewed::Silent),
            Err(_) => Err(Unclear),
            Ok(value) => match number(&value) {
                Some(1) => Ok(Renewed::Yes),
                Some(_) => Ok(Renewed::Other),
                None => Err(Unclear),
            },
        }
    }

    pub(super) async fn release_on(&self, node: usize, attempt: &Attempt, tell: Tell) -> Ended {
        let turn_ms = if tell == Tell::Next { self.turn_ms() } else { 0 };
        let make = |_: &Run| {
            let mut release = keyed(&RELEASE, &attempt.keys);
            release.add_bytes(attempt.word.as_bytes()).add(turn_ms).add(attempt.token);
            release
        };
        match self.nodes[node].run(make).await.as_ref().ok().and_then(number) {
            Some(1) => Ended::Released,
            Some(_) => Ended::Absent,
            None => Ended::Silent,
        }
    }

    /// Removes a waiter at a node.
    pub(super) async fn leave_on(&self, node: usize, keys: &Keys, member: &str, token: u64) {
        let make = |_: &Run| {
            let mut leave = keyed(&LEAVE, keys);
            leave.add_bytes(member.as_bytes()).add(self.turn_ms()).add(token);
            leave
        };
        // A node that misses this notifies the waiter once, in vain.
        let _ = self.nodes[node].run(make).await;
    }

    pub(super) async fn known_on(&self, node: usize) -> Known {
        let value = self.nodes[node].run(|run| self.on_run(&KNOWN, &[NODE], run)).await;
        match value.as_ref().ok().and_then(numbers).as_deref() {
            Some([counter, joined]) => Known::Counter { counter: *counter, joined: *joined == 1 },
            _ => Known::Silent,
        }
    }

    /// Lets a node vote with this counter. Returns whether it votes now.
    pub(super) async fn join_on(&self, node: usize, birth_us: u64, counter: u64) -> bool {
        let make = |run: &Run| {
            let mut join = self.on_run(&JOIN, &[NODE], run);
            join.add(birth_us).add(counter);
            join
        };
        self.nodes[node].run(make).await.as_ref().ok().and_then(number) == Some(1)
    }

    pub(super) async fn begin_on(&self, node: usize) -> Result<(), LinkError> {
        self.nodes[node].run(|run| self.on_run(&BEGIN, &[NODE], run)).await.map(drop)
    }

    /// How long a notified waiter has to come: as long as a node has to answer.
    fn turn_ms(&self) -> u64 {
        u64::try_from(self.node_timeout.as_millis()).unwrap_or(u64::MAX).max(1)
    }
}

fn keyed(script: &'static Script, keys: &Keys) -> Invocation {
    let mut invocation = script.with_keys(3);
    for key in [&keys.lock, &keys.turn, &keys.waiters] {
        invocation.add_bytes(key.as_bytes());
    }
    invocation
}

impl Node {
    async fn run(&self, make: impl FnOnce(&Run) -> Invocation) -> Result<Value, LinkError> {
        match self.link() {
            Some(link) => link.invoke_for_run(make).await,
            None => Err(LinkError::not_connected("no connection was made yet")),
        }
    }
}
