//! The sequencer of a coupon: scripts on Redis that decide the order and refuse claims of a sold-out coupon.
//!
//! One step is one script on the keys of one coupon, which share a hash tag.
//!
//! | key | what |
//! |---|---|
//! | `fc:{cN}:sequencer` | generation, tickets drawn and void, position of SQL, settings, who drains |
//! | `fc:{cN}:users:G`, `fc:{cN}:keys:G` | who has a ticket, and which request drew one; 0 if SQL had it before generation G |
//! | `fc:{cN}:outbox:G` | the stream of what SQL is to hold; the entry with SQL's position stays as an anchor |
//! | `fc:{cN}:lease` | who makes the sequencer anew |
//! | `fc:node:NODE` | the channel of a node |
//! | `fc:deployment` | whose keys these are |
//! | `fc:{NODE}:hash`, `fc:{NODE}:stream` | tried once when a node opens, and gone again |
//!
//! A sequencer is never more than SQL knows of: everything that is lost of it is made again from SQL, under the next generation.
//! A coupon that is over has none once nothing waits in its stream: see [`super::purge`].

use super::ClusterError;
use super::database::CouponRow;
use super::outbox::{Entrant, Entry, bytes_of};
use firstcome_core::coupon::CouponSettings;
use firstcome_core::id::RequestId;
use firstcome_core::time::Timestamp;
use firstcome_redis::{Invocation, Link, LinkError, OpenError, Script};
use redis::Value;
use std::fmt;

static CLAIM: Script = Script::new(include_str!("lua/claim.lua"));
static SETTLE: Script = Script::new(include_str!("lua/settle.lua"));
static PROBE: Script = Script::new(include_str!("lua/probe.lua"));
static SEIZE: Script = Script::new(include_str!("lua/seize.lua"));
static UNSEIZE: Script = Script::new(include_str!("lua/unseize.lua"));
static CLEAR: Script = Script::new(include_str!("lua/clear.lua"));
static FILL: Script = Script::new(include_str!("lua/fill.lua"));
static OPEN: Script = Script::new(include_str!("lua/open.lua"));
static ADJUST: Script = Script::new(include_str!("lua/adjust.lua"));
static BELONGS: Script = Script::new(include_str!("lua/belongs.lua"));
static FORGET: Script = Script::new(include_str!("lua/forget.lua"));
static KNOWN: Script = Script::new(include_str!("lua/known.lua"));
static END: Script = Script::new(include_str!("lua/end.lua"));
static UNKEY: Script = Script::new(include_str!("lua/unkey.lua"));
static RIGHTS: Script = Script::new(include_str!("lua/rights.lua"));

/// How long a node drains without being heard of, and how long it may make a sequencer anew without.
pub(super) const LEASE_MS: u32 = 2_000;
/// Entries that are written in one transaction.
pub(super) const ENTRIES_MAX: u32 = 8;
/// Pairs that one call brings in: a script takes some thousand arguments at most.
pub(super) const FILL_PAIRS_MAX: usize = 2_000;

/// The keys of one coupon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub(super) coupon: i64,
}

impl Keys {
    pub(super) fn key(self, name: &'static str) -> impl fmt::Display {
        fmt::from_fn(move |f| write!(f, "fc:{{c{}}}:{name}", self.coupon))
    }

    pub(super) fn of(self, name: &'static str, generation: i64) -> impl fmt::Display {
        fmt::from_fn(move |f| write!(f, "fc:{{c{}}}:{name}:{generation}", self.coupon))
    }
}

/// What the sequencer says to one claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SequencerReply {
    /// This ticket was drawn for it.
    Drawn(u64),
    /// The user has this ticket; 0 for one from before this generation.
    Has(u64),
    /// The same request has this ticket.
    Again(u64),
    /// Another request with the same key has this ticket.
    Reused(u64),
    /// Refused a caller that asks, and until the settings change or time passes.
    Deleted,
    NotOpen(Timestamp),
    Expired(Timestamp),
    /// All tickets were drawn, up to this one.
    SoldOut(u64),
    /// Too many tickets wait for SQL.
    Backlog,
}

/// What a node asks of a sequencer.
pub(super) struct Question<'a> {
    pub(super) generation: i64,
    /// The last ticket that it knows to be in SQL.
    pub(super) position: u64,
    /// The instant by which to judge; that of the server without it.
    pub(super) now: Option<Timestamp>,
    pub(super) backlog_max: u64,
    /// Whether this node may be the one to write to SQL.
    pub(super) may_write: bool,
    pub(super) entrants: &'a [&'a Entrant],
}

/// An answer of the sequencer, if it is the sequencer of the generation that was asked.
pub(super) enum GenerationReply<T> {
    Answer(T),
    /// There is no such sequencer, or it is behind SQL.
    Lost,
}

/// What the sequencer says to several claims.
pub(super) struct Judged {
    /// Whether this node is the one to write to SQL.
    pub(super) drains: bool,
    /// The version of the settings by which it judged.
    pub(super) version: i64,
    /// The instant of the last ticket that was drawn.
    pub(super) last: Timestamp,
    pub(super) words: Vec<SequencerReply>,
}

impl Judged {
    /// The reply to so many claims of a coupon without a sequencer.
    pub(super) fn all_deleted(version: i64, count: usize) -> Self {
        Self { drains: false, version, last: Timestamp::MIN, words: vec![SequencerReply::Deleted; count] }
    }
}

/// What to write next.
pub(super) enum Settled {
    /// These entries, after the anchor, and the last ticket that was drawn.
    Next { anchor: Option<Entry>, entries: Vec<Entry>, ticket: u64 },
    /// Nothing.
    Done,
    /// SQL is further than was said.
    Behind,
    /// Another node drains.
    Other,
    /// Something waits, and this node has given up its turn, or has not taken one, since it cannot write.
    Left,
}

/// What a sequencer is.
pub(super) struct Probe {
    pub(super) generation: Option<i64>,
    pub(super) ticket: Option<u64>,
    pub(super) version: Option<i64>,
    /// What it was told to be in SQL.
    pub(super) position: Option<u64>,
    /// The entry with SQL's position.
    pub(super) anchor: Option<Entry>,
    /// Whether more follows it.
    pub(super) next: Option<Entry>,
    /// Whether what follows it is not even an entry.
    pub(super) is_strange: bool,
}

/// A ticket that SQL did not accept: the sequencer is to forget it, and a caller that has it is let in anew.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stray {
    pub(super) ticket: u64,
    pub(super) user: Box<str>,
    pub(super) request: Option<RequestId>,
}

impl Stray {
    fn add(&self, run: &mut Invocation) {
        run.add(self.ticket).add(&self.user);
        match self.request {
            Some(RequestId { key, body }) => run.add(format_args!("{key:032x}")).add(format_args!("{body:016x}")),
            None => run.add("").add(""),
        };
    }
}

/// What a node tells the sequencer when it has written.
pub(super) struct Report<'a> {
    pub(super) generation: i64,
    pub(super) position: u64,
    pub(super) issued: u32,
    /// Whether it may go on to write.
    pub(super) may_write: bool,
    /// Tickets that SQL did not accept.
    pub(super) forget: &'a [Stray],
    /// Channel and message.
    pub(super) notices: &'a [(String, Vec<u8>)],
}

/// The sequencers of a deployment, as one node reaches them.
pub(super) struct Sequencer {
    pub(super) link: Link,
    /// The name of this node, in hexadecimal digits.
    pub(super) node: String,
}

/// The channel of a node.
pub(super) fn channel(node: &str) -> String {
    format!("fc:node:{node}")
}

impl Sequencer {
    /// Judges claims. One round trip; a repeat with the same tags is answered by the first one's tickets.
    pub(super) async fn claim(
        &self,
        keys: Keys,
        question: &Question<'_>,
    ) -> Result<GenerationReply<Judged>, LinkError> {
        let Question { generation, position, now, backlog_max, may_write, entrants } = *question;
        let mut run = CLAIM.with_keys(4);
        run.add(keys.key("gate")).add(keys.of("users", generation));
        run.add(keys.of("keys", generation)).add(keys.of("outbox", generation));
        run.add(generation).add(position).add(fmt::from_fn(|f| now.map_or(Ok(()), |now| write!(f, "{}", now.as_us()))));
        run.add(&self.node).add(LEASE_MS).add(backlog_max).add(entrants.len()).add(u8::from(may_write));
        let (mut records, mut ends) = (Vec::new(), Vec::with_capacity(4 * entrants.len()));
        for entrant in entrants {
            entrant.write(&mut records);
            ends.extend((records.len() as u32).to_le_bytes());
        }
        run.add_bytes(&records).add_bytes(&ends);
        for entrant in entrants {
            run.add(&entrant.claim.user);
        }
        for (at, entrant) in (1_usize..).zip(entrants) {
            if let Some(RequestId { key, body }) = entrant.claim.request {
                run.add(at).add(format_args!("{key:032x}")).add(format_args!("{body:016x}"));
            }
        }
        let Some(parts) = parts_of(self.link.invoke(&run).await?) else { return Err(unreadable()) };
        let Some([drains, version, last, words]) = told(parts) else { return Ok(GenerationReply::Lost) };
        let read = || {
            let words = bytes_of(words)?;
            let words: Vec<SequencerReply> =
                std::str::from_utf8(&words).ok()?.split(' ').map(word).collect::<Option<_>>()?;
            let judged = Judged {
                drains: number(drains)? == 1,
                version: number(version)?,
                last: Timestamp::from_us(number(last)?)?,
                words,
            };
            (judged.words.len() == entrants.len()).then_some(GenerationReply::Answer(judged))
        };
        read().ok_or_else(unreadable)
    }

    /// Says how far SQL is, and asks what is next. A second time has no effect, but that notices are sent again.
    pub(super) async fn settle(&self, keys: Keys, report: &Report<'_>) -> Result<GenerationReply<Settled>, LinkError> {
        let Report { generation, position, issued, may_write, forget, notices } = *report;
        let mut run = SETTLE.with_keys(4);
        run.add(keys.key("gate")).add(keys.of("users", generation));
        run.add(keys.of("keys", generation)).add(keys.of("outbox", generation));
        run.add(generation)
            .add(&self.node)
            .add(position)
            .add(issued)
            .add(LEASE_MS)
            .add(ENTRIES_MAX + 1)
            .add(forget.len())
            .add(u8::from(may_write));
        for stray in forget {
            stray.add(&mut run);
        }
        for (channel, message) in notices {
            run.add(channel).add_bytes(message);
        }
        let mut parts = parts_of(self.link.invoke(&run).await?).ok_or_else(unreadable)?;
        let rest = if parts.is_empty() { Vec::new() } else { parts.split_off(1) };
        let word = parts.pop().and_then(bytes_of).ok_or_else(unreadable)?;
        Ok(GenerationReply::Answer(match word.as_slice() {
            b"done" => Settled::Done,
            b"behind" => Settled::Behind,
            b"other" => Settled::Other,
            b"left" => Settled::Left,
            b"ok" => {
                let [ticket, Value::Array(entries)] = <[Value; 2]>::try_from(rest).map_err(|_| unreadable())? else {
                    return Err(unreadable());
                };
                let ticket = number(ticket).and_then(|ticket| u64::try_from(ticket).ok()).ok_or_else(unreadable)?;
                // What is no entry of ours leads to a sequencer that is rebuilt, when all before it is written.
                let mut entries: Vec<Entry> = entries.into_iter().map_while(Entry::read).collect();
                let is_anchored = entries.first().is_some_and(|entry| entry.last == position);
                let anchor = if is_anchored { Some(entries.remove(0)) } else { None };
                Settled::Next { anchor, entries, ticket }
            }
            _ => return Ok(GenerationReply::Lost),
        }))
    }

    /// Looks what there is. Changes nothing.
    pub(super) async fn probe(&self, keys: Keys, generation: i64, position: u64) -> Result<Probe, LinkError> {
        let mut run = PROBE.with_keys(2);
        let run = run.add(keys.key("gate")).add(keys.of("outbox", generation)).add(position);
        let parts = parts_of(self.link.invoke(run).await?).ok_or_else(unreadable)?;
        let [generation, ticket, version, heard, anchor, next] =
            <[Value; 6]>::try_from(parts).map_err(|_| unreadable())?;
        let first = |value| match value {
            Value::Array(entries) => entries.into_iter().next().and_then(Entry::read),
            _ => None,
        };
        let follows = matches!(&next, Value::Array(entries) if !entries.is_empty());
        let next = first(next);
        Ok(Probe {
            generation: number(generation),
            ticket: number(ticket).and_then(|ticket| u64::try_from(ticket).ok()),
            version: number(version),
            position: number(heard).and_then(|heard| u64::try_from(heard).ok()),
            anchor: first(anchor),
            is_strange: follows && next.is_none(),
            next,
        })
    }

    /// Takes the lease under which a sequencer is made; false if another node has it.
    pub(super) async fn seize(&self, keys: Keys) -> Result<bool, LinkError> {
        let mut run = SEIZE.with_keys(1);
        let run = run.add(keys.key("lease")).add(&self.node).add(LEASE_MS);
        Ok(number(self.link.invoke(run).await?) == Some(1))
    }

    /// Gives that lease back.
    pub(super) async fn unseize(&self, keys: Keys) -> Result<(), LinkError> {
        let mut run = UNSEIZE.with_keys(1);
        self.link.invoke(run.add(keys.key("lease")).add(&self.node)).await.map(drop)
    }

    /// Throws the sequencer away, and what is left of the generations named; false if the lease is over.
    pub(super) async fn clear(&self, keys: Keys, generations: &[i64]) -> Result<bool, LinkError> {
        let mut run = CLEAR.with_keys(2 + 3 * generations.len());
        run.add(keys.key("lease")).add(keys.key("gate"));
        for generation in generations {
            for name in ["users", "keys", "outbox"] {
                run.add(keys.of(name, *generation));
            }
        }
        Ok(number(self.link.invoke(run.add(&self.node)).await?) == Some(1))
    }

    /// Brings in users whose claims SQL holds; false if the lease is over.
    pub(super) async fn fill_users(&self, keys: Keys, generation: i64, users: &[String]) -> Result<bool, LinkError> {
        let mut run = self.fill(keys, "users", generation);
        users.iter().for_each(|user| {
            run.add(user).add(0);
        });
        Ok(number(self.link.invoke(&run).await?) == Some(1))
    }

    /// Brings in requests whose claims SQL holds; false if the lease is over.
    pub(super) async fn fill_keys(
        &self,
        keys: Keys,
        generation: i64,
        requests: &[(u128, u64)],
    ) -> Result<bool, LinkError> {
        let mut run = self.fill(keys, "keys", generation);
        for (key, body) in requests {
            run.add(format_args!("{key:032x}")).add(format_args!("{body:016x}:0"));
        }
        Ok(number(self.link.invoke(&run).await?) == Some(1))
    }

    fn fill(&self, keys: Keys, what: &'static str, generation: i64) -> Invocation {
        let mut run = FILL.with_keys(2);
        run.add(keys.key("lease")).add(keys.of(what, generation)).add(&self.node).add(LEASE_MS);
        run
    }

    /// Opens the sequencer of a generation that has all that SQL holds; false if the lease is over. By the time of SQL it is `now`,
    /// and the sequencer judges no caller by an earlier one.
    pub(super) async fn open(&self, keys: Keys, row: &CouponRow, now: Timestamp) -> Result<bool, LinkError> {
        let mut run = OPEN.with_keys(5);
        run.add(keys.key("lease")).add(keys.key("gate")).add(keys.of("users", row.generation));
        run.add(keys.of("keys", row.generation)).add(keys.of("outbox", row.generation));
        run.add(&self.node).add(row.generation).add(row.position).add(row.position - u64::from(row.issued));
        add_settings(&mut run, row.version, &row.settings, row.is_over());
        run.add(row.last_at.as_us()).add(row.last_at.max(now).as_us());
        Ok(number(self.link.invoke(&run).await?) == Some(1))
    }

    /// Puts the settings in force that SQL holds; false if the sequencer is of another generation.
    pub(super) async fn adjust(&self, keys: Keys, row: &CouponRow) -> Result<bool, LinkError> {
        let mut run = ADJUST.with_keys(1);
        run.add(keys.key("gate")).add(row.generation);
        add_settings(&mut run, row.version, &row.settings, row.is_over());
        Ok(number(self.link.invoke(&run).await?) == Some(1))
    }

    /// Forgets keys of requests; nothing if the sequencer is of another generation. At most [`FILL_PAIRS_MAX`].
    pub(super) async fn forget_keys(&self, keys: Keys, generation: i64, requests: &[u128]) -> Result<(), LinkError> {
        let mut run = UNKEY.with_keys(2);
        run.add(keys.key("gate")).add(keys.of("keys", generation)).add(generation);
        for key in requests {
            run.add(format_args!("{key:032x}"));
        }
        self.link.invoke(&run).await.map(drop)
    }

    /// Throws away what is left of a coupon that is over, of these generations; false if something waits in its stream. Without a
    /// position no stream goes on from the database, so nothing of it can be written any more.
    pub(super) async fn end(
        &self,
        keys: Keys,
        generations: &[i64],
        generation: i64,
        position: Option<u64>,
    ) -> Result<bool, LinkError> {
        let mut run = END.with_keys(2 + 3 * generations.len());
        run.add(keys.key("gate")).add(keys.key("lease"));
        for generation in generations {
            for name in ["users", "keys", "outbox"] {
                run.add(keys.of(name, *generation));
            }
        }
        run.add(generation).add(fmt::from_fn(|f| position.map_or(Ok(()), |position| write!(f, "{position}"))));
        Ok(number(self.link.invoke(&run).await?) == Some(1))
    }

    /// Forgets a ticket that SQL did not accept.
    pub(super) async fn forget(&self, keys: Keys, generation: i64, stray: &Stray) -> Result<(), LinkError> {
        let mut run = FORGET.with_keys(3);
        run.add(keys.key("gate")).add(keys.of("users", generation)).add(keys.of("keys", generation)).add(generation);
        stray.add(&mut run);
        self.link.invoke(&run).await.map(drop)
    }

    /// The ticket of a user; `None` if there is none, or the sequencer is of another generation.
    pub(super) async fn ticket_of(&self, keys: Keys, generation: i64, user: &str) -> Result<Option<u64>, LinkError> {
        let mut run = KNOWN.with_keys(2);
        let run = run.add(keys.key("gate")).add(keys.of("users", generation)).add(generation).add(user);
        let told = parts_of(self.link.invoke(run).await?).ok_or_else(unreadable)?;
        Ok(told.into_iter().next().and_then(number).and_then(|ticket| u64::try_from(ticket).ok()))
    }

    /// Makes sure that the user may do everything that the scripts do, before anything rests on it.
    pub(super) async fn rights(&self) -> Result<(), ClusterError> {
        let (mut run, node) = (RIGHTS.with_keys(2), &self.node);
        run.add(format_args!("fc:{{{node}}}:hash")).add(format_args!("fc:{{{node}}}:stream")).add(channel(node));
        self.link.invoke(&run).await.map(drop).map_err(denied)
    }

    /// Which deployment the keys belong to: this one from now on, if to none.
    pub(super) async fn belongs(&self, deployment: i64) -> Result<i64, LinkError> {
        let mut run = BELONGS.with_keys(1);
        let value = self.link.invoke(run.add("fc:deployment").add(deployment)).await?;
        number(value).ok_or_else(unreadable)
    }
}

/// What it means at the opening that a script was not run, or not to its end.
pub(super) fn denied(error: LinkError) -> ClusterError {
    match error {
        LinkError::Refused { code, says } => OpenError::Denied { code, says }.into(),
        LinkError::Unavailable { code, says } if code == "NOPERM" => OpenError::Denied { code, says }.into(),
        other => other.into(),
    }
}

fn add_settings(run: &mut Invocation, version: i64, settings: &CouponSettings, is_deleted: bool) {
    let instant = |instant: Option<Timestamp>| {
        fmt::from_fn(move |f| instant.map_or(Ok(()), |instant| write!(f, "{}", instant.as_us())))
    };
    run.add(version).add(settings.limit.get());
    run.add(instant(settings.opens_at)).add(instant(settings.expires_at)).add(u8::from(is_deleted));
}

/// The script ran, and says what no script of ours says: something else is in its place.
pub(super) fn unreadable() -> LinkError {
    LinkError::Unknown { says: "an answer that cannot be read".to_owned() }
}

pub(super) fn parts_of(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(parts) => Some(parts),
        _ => None,
    }
}

/// What follows the word `ok`.
fn told<const N: usize>(mut parts: Vec<Value>) -> Option<[Value; N]> {
    if parts.is_empty() || bytes_of(parts.remove(0))? != b"ok" {
        return None;
    }
    parts.try_into().ok()
}

pub(super) fn number(value: Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(number),
        other => std::str::from_utf8(&bytes_of(other)?).ok()?.parse().ok(),
    }
}

fn word(text: &str) -> Option<SequencerReply> {
    let (kind, rest) = text.split_at_checked(1)?;
    let ticket = || rest.parse::<u64>().ok();
    let instant = || rest.parse().ok().and_then(Timestamp::from_us);
    Some(match kind {
        "n" => SequencerReply::Drawn(ticket()?),
        "a" => SequencerReply::Has(ticket()?),
        "r" => SequencerReply::Again(ticket()?),
        "k" => SequencerReply::Reused(ticket()?),
        "d" => SequencerReply::Deleted,
        "o" => SequencerReply::NotOpen(instant()?),
        "x" => SequencerReply::Expired(instant()?),
        "s" => SequencerReply::SoldOut(ticket()?),
        "b" => SequencerReply::Backlog,
        _ => return None,
    })
}
