//! What there is of a deployment on Redis, held against the database: for [`mod@super::verify`] and [`mod@super::reconcile`]. Nothing
//! is written.
//!
//! # Beside nodes at work
//! Both move while they are looked at, one after the other, so only that is compared which holds in this order:
//! - A sequencer has drawn at least what the database had before, and has heard of no more than the database has after.
//! - A claim that the database shows is known by the sequencer that is asked after it; and a user of the sequencer whose ticket it
//!   knows to be decided has a claim in the database that is asked after it.
//! - A room is compared with its log as of the very position that one state of the database names.
//!
//! What has moved on in between is looked at again, for at most [`PATIENCE`]; then it is [`State::UnderWay`].
//!
//! # Costs
//! Sequencers and users are read some thousands at once, so no call holds up Redis, and no number of claims fills the memory. A room
//! takes what it takes in a node.

mod log;
mod lost;
mod sequencer;
mod users;

use super::outbox::bytes_of;
use super::room::log as room_log;
use super::sequencer::{LEASE_MS, Sequencer, number, unreadable};
use super::{ClusterError, sequencer as sequencers};
use firstcome_redis::{Eviction, Link, LinkError, LinkOptions, Script};
use firstcome_sql::SqlError;
use firstcome_sql::reader::Reader;
use firstcome_sql::snapshot::{PAGE, Reading};
use redis::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep};

pub(super) use log::LogSnapshot;
pub(super) use lost::Lost;
pub(super) use sequencer::{SequencerSnapshot, Users};

static MARK: Script = Script::new("return redis.call('GET', KEYS[1])");
static THERE: Script = Script::new("return redis.call('EXISTS', unpack(KEYS))");
static SWEEP: Script = Script::new(include_str!("lua/sweep.lua"));

/// How long something is looked at again that moves.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// How a sequencer or a log stands to the database. Codes never change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum State {
    /// Both agree.
    Fine,
    /// A node is at it just now.
    UnderWay,
    /// Something waits for the database, and no caller writes it.
    Undrained,
    /// There is none: the next call makes it.
    Missing,
    /// The database lacks what it acknowledged: what was told is gone.
    WentBack,
    /// It is of another generation than the database names.
    OtherGeneration,
    /// The database has more than it has ever had.
    Behind,
    /// Something of it is gone, or is not what the database has written last.
    Torn,
    /// The places that it counts as taken are not those of claims.
    Miscounted,
    /// It judges by other settings than those in the database.
    OtherSettings,
    /// Users with a ticket of whom the database has no claim, and no entry brings one.
    UserNotInSql,
    /// Users, or idempotency keys, with a claim in the database that it does not know.
    UserNotInGate,
    /// Entries that no caller can read. Drained they are dead letters.
    UnreadableEntry,
    /// Entries that no caller could read were put aside. Nothing must be done but to find out who wrote them.
    DeadLetters,
    /// The room that it leads to is not the one in the database.
    Differs,
    /// Keys of generations that are over, or of a coupon that is over.
    OldGeneration,
    /// Keys of a coupon or a room that the database does not know.
    UnknownObject,
}

impl State {
    /// Stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::UnderWay => "under_way",
            Self::Undrained => "undrained",
            Self::Missing => "missing",
            Self::WentBack => "went_back",
            Self::OtherGeneration => "other_generation",
            Self::Behind => "behind",
            Self::Torn => "torn",
            Self::Miscounted => "miscounted",
            Self::OtherSettings => "other_settings",
            Self::UserNotInSql => "user_not_in_sql",
            Self::UserNotInGate => "user_not_in_gate",
            Self::UnreadableEntry => "unreadable_entry",
            Self::DeadLetters => "dead_letters",
            Self::Differs => "differs",
            Self::OldGeneration => "old_generation",
            Self::UnknownObject => "unknown_object",
        }
    }

    /// Whether something must be done about it.
    pub const fn needs_repair(self) -> bool {
        !matches!(self, Self::Fine | Self::UnderWay | Self::DeadLetters)
    }
}

/// What was found of one thing.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) state: State,
    /// Of how many.
    pub(super) count: u64,
    pub(super) says: String,
}

impl Found {
    pub(super) fn new(state: State, says: impl Into<String>) -> Self {
        Self { state, count: 1, says: says.into() }
    }
}

/// What one look has come to.
enum Tried<T> {
    Read(T),
    /// Something has moved meanwhile. What to answer if it always does.
    Moved(Found),
}

/// Both sides of a deployment.
pub(super) struct Inspection {
    pub(super) reading: Reading,
    pub(super) sequencer: Sequencer,
}

/// Connects to Redis for looking, no matter what its settings are. `None` if its keys belong to another deployment.
pub(super) async fn open(redis: &str, deployment: Option<i64>) -> Result<Option<Sequencer>, ClusterError> {
    let name = format!("{:016x}", firstcome_store::edge::draw_id().map_err(ClusterError::Chance)?);
    let mut options = LinkOptions::default();
    options.allow_eviction = Eviction::Allow;
    let (link, _) = Link::open(redis, &sequencers::channel(&name), options).await?;
    let mark = match link.run(&MARK, &[b"fc:deployment"], &[]).await? {
        Value::Nil => None,
        // No deployment has a number below zero: what is not even a number is another caller's.
        told => Some(number(told).unwrap_or(-1)),
    };
    let is_ours = mark.is_none() || mark == deployment;
    Ok(is_ours.then_some(Sequencer { link, node: name }))
}

/// Whether a lease is held, by the server's clock.
fn is_held(until_ms: Option<i64>, now_ms: i64) -> bool {
    // One that ends later than any can is one from before an operator set the clock back.
    until_ms.is_some_and(|until| now_ms < until && until <= now_ms + i64::from(LEASE_MS))
}

fn text_of(value: Value) -> Option<String> {
    String::from_utf8(bytes_of(value)?).ok()
}

/// The names of all coupons or rooms, by their numbers.
pub(super) async fn names(reading: &mut Reading, table: &str) -> Result<BTreeMap<i64, String>, SqlError> {
    let mut names = BTreeMap::new();
    reading
        .numbered(&format!("SELECT id,name FROM {table}"), |id, row| {
            names.insert(id, Reader::at(row, 1).maybe_text()?.unwrap_or_default());
            Ok(())
        })
        .await?;
    Ok(names)
}

impl Inspection {
    /// How the sequencer of a coupon stands; `None` if there is no such coupon.
    pub(super) async fn sequencer(
        &mut self,
        id: i64,
        with_users: sequencer::Users,
    ) -> Result<Option<SequencerSnapshot>, ClusterError> {
        let until = Instant::now() + PATIENCE;
        loop {
            let Some(row) = self.coupon(id).await? else { return Ok(None) };
            match self.try_sequencer(&row, with_users).await? {
                Tried::Read(seen) => return Ok(Some(seen)),
                Tried::Moved(found) if until < Instant::now() => {
                    return Ok(Some(SequencerSnapshot::moving(row, found)));
                }
                Tried::Moved(_) => sleep(PAUSE).await,
            }
        }
    }

    /// How the log of a room stands; `None` if there is no such room.
    pub(super) async fn log(&mut self, id: i64) -> Result<Option<LogSnapshot>, ClusterError> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.reading.begin().await?;
            let tried = self.try_log(id).await?;
            self.reading.end().await?;
            match tried {
                None => return Ok(None),
                Some((seen, Tried::Read(()))) => return Ok(Some(seen)),
                Some((seen, Tried::Moved(found))) if until < Instant::now() => return Ok(Some(seen.moving(found))),
                Some((_, Tried::Moved(_))) => sleep(PAUSE).await,
            }
        }
    }

    /// Keys of coupons and rooms that the database does not know, and those of generations that are over: the sort (`c` or
    /// `r`) and number of each, and how many keys. `None` if the user of Redis may not look.
    pub(super) async fn leftovers(&mut self) -> Result<Option<Vec<Leftover>>, ClusterError> {
        let mut seen: BTreeMap<(u8, i64), BTreeSet<String>> = BTreeMap::new();
        let looked = self
            .sequencer
            .link
            .keys_like("fc:{[cr]*}:*", |key| {
                let Some((object, rest)) = std::str::from_utf8(key).ok().and_then(object_of) else { return };
                let keys = seen.entry(object).or_default();
                if keys.len() < KEYS_MAX {
                    keys.insert(rest.to_owned());
                }
            })
            .await;
        match looked {
            Err(LinkError::Unavailable { code, .. }) if code == "NOPERM" => return Ok(None),
            looked => looked?,
        }
        // Everything that has a key was in the database before.
        let mut leftovers = Vec::new();
        for ((sort, id), keys) in seen {
            let mut leftover = Leftover { sort, id, generation: None, keys: Vec::new() };
            let generation = self.generation(&leftover).await?;
            let is_over = |key: &String| {
                let of = key.rsplit_once(':').and_then(|(_, of)| of.parse::<i64>().ok());
                generation.is_none_or(|generation| of.is_some_and(|of| of < generation))
            };
            leftover.generation = generation;
            leftover.keys = keys.into_iter().filter(is_over).collect();
            if let Some(generation) = generation {
                // What a node throws away just now is none.
                if leftover.keys.is_empty() || self.sequencer.scan_orphans(&leftover, generation, "EXISTS").await? == 0
                {
                    leftover.keys.clear();
                }
            }
            if !leftover.keys.is_empty() {
                leftovers.push(leftover);
            }
        }
        Ok(Some(leftovers))
    }

    /// The generation that the database names now; `None` if it does not know the object.
    pub(super) async fn generation(&mut self, of: &Leftover) -> Result<Option<i64>, SqlError> {
        let rows = self.reading.ask(format!("SELECT generation FROM {} WHERE id={};", of.table(), of.id)).await?;
        rows.first().map(|row| Reader::at(row, 0).integer()).transpose()
    }
}

/// Keys of one object that are kept in mind.
const KEYS_MAX: usize = 1_024;

/// Keys that nothing belongs to.
pub(super) struct Leftover {
    pub(super) sort: u8,
    pub(super) id: i64,
    /// What the database names; `None` if it does not know the object.
    pub(super) generation: Option<i64>,
    /// What follows the tag of each.
    pub(super) keys: Vec<String>,
}

impl Leftover {
    /// The table that has its object.
    pub(super) const fn table(&self) -> &'static str {
        if self.sort == b'c' { "firstcome_coupon" } else { "firstcome_room" }
    }

    /// The beginning that all its keys share.
    pub(super) fn tag(&self) -> String {
        format!("fc:{{{}{}}}", char::from(self.sort), self.id)
    }
}

/// `fc:{c7}:users:1` is of coupon 7, and `users:1`.
fn object_of(key: &str) -> Option<((u8, i64), &str)> {
    let (object, rest) = key.strip_prefix("fc:{")?.split_once("}:")?;
    let (sort, id) = object.split_at_checked(1)?;
    Some(((sort.bytes().next()?, id.parse().ok().filter(|id| 0 < *id)?), rest))
}

impl Sequencer {
    /// How many of these keys are there.
    pub(super) async fn there(&self, leftover: &Leftover) -> Result<i64, LinkError> {
        let mut run = THERE.with_keys(leftover.keys.len());
        let tag = leftover.tag();
        for key in &leftover.keys {
            run.add(format_args!("{tag}:{key}"));
        }
        number(self.link.invoke(&run).await?).ok_or_else(unreadable)
    }

    /// Counts (`EXISTS`) or throws away (`UNLINK`) keys of generations that are over; 0 if this one is not open.
    pub(super) async fn scan_orphans(
        &self,
        leftover: &Leftover,
        generation: i64,
        what: &str,
    ) -> Result<i64, LinkError> {
        let mut run = SWEEP.with_keys(1 + leftover.keys.len());
        let tag = leftover.tag();
        run.add(format_args!("{tag}:{}", if leftover.sort == b'c' { "gate" } else { "log" }));
        for key in &leftover.keys {
            run.add(format_args!("{tag}:{key}"));
        }
        number(self.link.invoke(run.add(generation).add(what)).await?).ok_or_else(unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_object() {
        assert_eq!(object_of("fc:{c7}:users:1"), Some(((b'c', 7), "users:1")));
        assert_eq!(object_of("fc:{r12}:log"), Some(((b'r', 12), "log")));
        for other in ["fc:{c}:gate", "fc:{c-1}:gate", "fc:{c7x}:gate", "fc:deployment", "fc:{c7}", "fc:{}:a"] {
            assert_eq!(object_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_lease_that_ends_too_late_is_none() {
        for (until, held) in
            [(None, false), (Some(10), false), (Some(11), true), (Some(2_010), true), (Some(2_011), false)]
        {
            assert_eq!(is_held(until, 10), held, "{until:?}");
        }
    }
}
