//! Appends to and reads the log of a room on Redis, which gives one order and one time to all nodes.
//!
//! | key | what |
//! |---|---|
//! | `fc:{rN}:log` | generation, position, time, who writes to SQL, which run of the server it is, and the branch |
//! | `fc:{rN}:entries:G` | the stream of entries; an item holds those of one call, and has the position of the last |
//! | `fc:{rN}:image:G` | the room as of a position; entries up to it are forgotten |
//! | `fc:{rN}:nodes` | who was heard of, and when |
//! | `fc:{rN}:lease` | who makes the log anew |

use super::replica::LogId;
use crate::outbox::bytes_of;
use crate::sequencer::{LEASE_MS, Sequencer, number, parts_of, unreadable};
use firstcome_core::room::replica::Entry;
use firstcome_core::time::{Now, Steady, Timestamp};
use firstcome_redis::{Invocation, LinkError, Script};
use redis::Value;
use std::fmt;

static APPEND: Script = Script::new(concat!(include_str!("../lua/clock.lua"), include_str!("../lua/append.lua")));
static PROBE: Script = Script::new(include_str!("../lua/log_probe.lua"));
static SEIZE: Script = Script::new(include_str!("../lua/seize.lua"));
static UNSEIZE: Script = Script::new(include_str!("../lua/unseize.lua"));
static OPEN: Script = Script::new(include_str!("../lua/log_open.lua"));
static IMAGE: Script = Script::new(include_str!("../lua/log_image.lua"));
static READ: Script = Script::new(include_str!("../lua/log_read.lua"));
static RESUME: Script = Script::new(concat!(include_str!("../lua/clock.lua"), include_str!("../lua/log_resume.lua")));
static LOAD: Script = Script::new(include_str!("../lua/log_load.lua"));

/// Items in one answer.
pub(crate) const ITEMS_MAX: usize = 256;
/// Bytes of one part of an image: what a server takes in at once without holding up others for long.
const PART_BYTES: usize = 512 * 1024;

/// The keys of one room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    pub(crate) room: i64,
}

impl Keys {
    pub(crate) fn key(self, name: &'static str) -> impl fmt::Display {
        fmt::from_fn(move |f| write!(f, "fc:{{r{}}}:{name}", self.room))
    }

    pub(crate) fn of(self, name: &'static str, generation: i64) -> impl fmt::Display {
        fmt::from_fn(move |f| write!(f, "fc:{{r{}}}:{name}:{generation}", self.room))
    }

    /// The room of a message that says that something of it is durable.
    pub(crate) fn of_message(message: &[u8]) -> Option<i64> {
        let text = std::str::from_utf8(message).ok()?;
        text.strip_prefix("room fc:{r")?.strip_suffix("}:log")?.parse().ok()
    }
}

/// Entries of one call, in their order, with the position of the first.
pub(crate) struct Item {
    pub(crate) first: u64,
    pub(crate) now: Now,
    pub(crate) entries: Vec<Entry>,
    pub(crate) bytes: usize,
}

/// Whether time is to do what is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tick {
    No,
    /// If no node has let it for so many microseconds.
    After(u64),
    Now,
}

/// What one call appends.
pub(super) struct Append<'a> {
    /// That which the caller's copy follows.
    pub(super) log: LogId,
    /// The position up to which the caller has applied entries.
    pub(super) seen: u64,
    /// The time, if it is given.
    pub(super) now: Option<Now>,
    /// What the steady clock should show by the caller's own.
    pub(super) expected: Option<Steady>,
    pub(super) tick: Tick,
    /// The position that an entry among these says is durable.
    pub(super) durable: Option<u64>,
    /// Whether this node can write to SQL.
    pub(super) may_write: bool,
    pub(super) entries: &'a [Entry],
}

/// What has happened.
pub(super) struct Appended {
    /// Whether this node is the one to write to SQL.
    pub(super) drains: bool,
    pub(super) now: Now,
    /// How far the log has gone.
    pub(super) position: u64,
    /// `None` if something among them is no item of ours.
    pub(super) items: Option<Vec<Item>>,
}

/// What a log is.
pub(super) struct Probe {
    pub(super) generation: Option<i64>,
    pub(super) position: Option<u64>,
    /// Up to which position it says that the database holds it.
    pub(super) durable: Option<u64>,
    /// The position of the image.
    pub(super) image: Option<u64>,
    /// The server's clock.
    pub(super) clock: Timestamp,
    /// Whether it was written to by this run of this server, and by no other before that has not been noticed.
    pub(super) is_same_run: bool,
}

/// An image, and the branch of the log that it belongs to.
pub(crate) struct Image {
    pub(super) branch: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Some of a log, for the node that only looks.
pub(super) struct Part {
    /// How far the log has gone.
    pub(super) position: u64,
    pub(super) branch: u64,
    /// See [`Probe::is_same_run`].
    pub(super) is_same_run: bool,
    /// At most [`ITEMS_MAX`]; `None` if something among them is no item of ours.
    pub(super) items: Option<Vec<Item>>,
}

/// What goes on in a log of which the end may be lost.
pub(super) struct Resume {
    pub(super) generation: i64,
    /// The log has gone at least so far.
    pub(super) position: u64,
    pub(super) now: Option<Now>,
    pub(super) expected: Option<Steady>,
    pub(super) branch: u64,
    /// See [`Entry::Lost`].
    pub(super) ceiling: u32,
    pub(super) grace_ms: u64,
}

/// An image as a new log begins with.
pub(super) struct Opening<'a> {
    pub(super) generation: i64,
    pub(super) branch: u64,
    pub(super) position: u64,
    pub(super) now: Now,
    /// What the server's clock showed then: what has passed since has passed in the room too.
    pub(super) clock: Timestamp,
    pub(super) image: &'a [u8],
    /// Generations whose keys are thrown away.
    pub(super) before: &'a [i64],
}

fn put(out: &mut Vec<u8>, entry: &Entry) {
    let at = out.len();
    out.extend([0; 4]);
    entry.encode(out);
    let length = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
}

fn read(mut bytes: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (entry, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        entries.push(Entry::decode(entry).ok()?);
        bytes = rest;
    }
    bytes.is_empty().then_some(entries)
}

/// A branch as it stands in the log.
fn branch_of(word: &[u8]) -> Option<u64> {
    u64::from_str_radix(str::from_utf8(word).ok()?, 16).ok()
}

/// An item as the server gives it; `None` if it is none of ours.
pub(crate) fn item(value: Value) -> Option<Item> {
    let Value::Array(parts) = value else { return None };
    let [_, Value::Array(fields)] = <[Value; 2]>::try_from(parts).ok()? else { return None };
    let fields: Vec<Vec<u8>> = fields.into_iter().map(bytes_of).collect::<Option<_>>()?;
    let of = |name: &str| fields.chunks_exact(2).find(|pair| pair[0] == name.as_bytes()).map(|pair| &pair[1]);
    let figure = |name: &str| std::str::from_utf8(of(name)?).ok()?.parse::<i64>().ok();
    let bytes = of("entries")?;
    let now = Now { wall: Timestamp::from_us(figure("wall")?)?, steady: Steady::from_us(figure("steady")?) };
    let first = u64::try_from(figure("first")?).ok()?;
    Some(Item { first, now, entries: read(bytes)?, bytes: bytes.len() })
}

fn add_time(run: &mut Invocation, now: Option<Now>, expected: Option<Steady>) {
    match now {
        Some(now) => run.add(now.wall.as_us()).add(now.steady.as_us()),
        None => run.add("").add(""),
    };
    match expected {
        Some(steady) => run.add(steady.as_us()),
        None => run.add(""),
    };
}

impl Sequencer {
    /// Appends entries, and reads all that came before and after. One round trip. `None` if there is no such log, it is
    /// behind what the caller has seen or of another branch, or the server is another one than that which wrote it.
    pub(super) async fn append(&self, keys: Keys, append: &Append<'_>) -> Result<Option<Appended>, LinkError> {
        let mut run = APPEND.with_keys(3);
        run.add(keys.key("log")).add(keys.of("entries", append.log.generation)).add(keys.key("nodes"));
        run.add(append.log.generation).add(append.seen).add(&self.node);
        add_time(&mut run, append.now, append.expected);
        let mut tick = Vec::new();
        put(&mut tick, &Entry::Tick);
        run.add(LEASE_MS).add(ITEMS_MAX).add_bytes(&tick);
        match append.tick {
            Tick::No => run.add(""),
            Tick::After(us) => run.add(us),
            Tick::Now => run.add("now"),
        };
        match append.durable {
            Some(position) => run.add(position),
            None => run.add(""),
        };
        let mut entries = Vec::new();
        append.entries.iter().for_each(|entry| put(&mut entries, entry));
        // A node that writes to SQL hears of what has a request behind it; the rest can wait until it looks.
        let is_awaited = append.entries.iter().any(|entry| entry.tag().is_some());
        run.add(append.entries.len()).add_bytes(&entries).add(u8::from(is_awaited));
        let mut resumed = Vec::new();
        put(&mut resumed, &Entry::Resumed);
        run.add_bytes(&resumed).add(format_args!("{:016x}", append.log.branch)).add(u8::from(append.may_write));
        let mut parts = parts_of(self.link.invoke(&run).await?).ok_or_else(unreadable)?;
        if parts.len() == 1 {
            return Ok(None);
        }
        let items = parts.pop().and_then(parts_of).ok_or_else(unreadable)?;
        let [_, drains, wall, steady, position] = <[Value; 5]>::try_from(parts).map_err(|_| unreadable())?;
        let now = || {
            let wall = Timestamp::from_us(number(wall)?)?;
            Some(Now { wall, steady: Steady::from_us(number(steady)?) })
        };
        let now = now().ok_or_else(unreadable)?;
        let position = number(position).and_then(|position| u64::try_from(position).ok()).ok_or_else(unreadable)?;
        let items = items.into_iter().map(item).collect();
        Ok(Some(Appended { drains: number(drains) == Some(1), now, position, items }))
    }

    /// Looks what there is. Changes nothing.
    pub(super) async fn probe_log(&self, keys: Keys, generation: i64) -> Result<Probe, LinkError> {
        let mut run = PROBE.with_keys(2);
        let run = run.add(keys.key("log")).add(keys.of("image", generation));
        let parts = parts_of(self.link.invoke(run).await?).ok_or_else(unreadable)?;
        let [generation, position, image, time, is_same_run, durable] =
            <[Value; 6]>::try_from(parts).map_err(|_| unreadable())?;
        let time: Vec<i64> = parts_of(time).ok_or_else(unreadable)?.into_iter().filter_map(number).collect();
        let [seconds, us] = time[..] else { return Err(unreadable()) };
        let count = |value| number(value).and_then(|count| u64::try_from(count).ok());
        Ok(Probe {
            generation: number(generation),
            position: count(position),
            durable: count(durable),
            image: count(image),
            clock: Timestamp::clamped_us(seconds * 1_000_000 + us),
            is_same_run: number(is_same_run) == Some(1),
        })
    }

    /// Takes the lease under which a log is rebuilt; false if another node has it.
    pub(super) async fn seize_log(&self, keys: Keys) -> Result<bool, LinkError> {
        let mut run = SEIZE.with_keys(1);
        let run = run.add(keys.key("lease")).add(&self.node).add(LEASE_MS);
        Ok(number(self.link.invoke(run).await?) == Some(1))
    }

    /// Gives the lease back.
    pub(super) async fn unseize_log(&self, keys: Keys) -> Result<(), LinkError> {
        let mut run = UNSEIZE.with_keys(1);
        self.link.invoke(run.add(keys.key("lease")).add(&self.node)).await.map(drop)
    }

    /// Opens the log of a generation with an image of the room; false if the lease is over.
    pub(super) async fn open_log(&self, keys: Keys, opening: &Opening<'_>) -> Result<bool, LinkError> {
        let Opening { generation, branch, position, now, clock, image, before } = *opening;
        let mut run = OPEN.with_keys(5 + 2 * before.len());
        run.add(keys.key("lease")).add(keys.key("log")).add(keys.of("entries", generation));
        run.add(keys.of("image", generation)).add(keys.key("nodes"));
        for generation in before {
            run.add(keys.of("entries", *generation)).add(keys.of("image", *generation));
        }
        run.add(&self.node).add(generation).add(position).add(now.wall.as_us()).add(now.steady.as_us());
        run.add(format_args!("{branch:016x}")).add(clock.as_us() - now.steady.as_us());
        for part in image.chunks(PART_BYTES) {
            run.add_bytes(part);
        }
        Ok(number(self.link.invoke(&run).await?) == Some(1))
    }

    /// Says in a log that another server, or another run of it, goes on with it. False, and nothing is said, if that was said
    /// already, or it is another log or shorter.
    pub(super) async fn resume_log(&self, keys: Keys, resume: &Resume) -> Result<bool, LinkError> {
        let mut run = RESUME.with_keys(2);
        run.add(keys.key("log")).add(keys.of("entries", resume.generation));
        run.add(resume.generation).add(resume.position);
        add_time(&mut run, resume.now, resume.expected);
        let Resume { branch, ceiling, grace_ms, .. } = *resume;
        let mut lost = Vec::new();
        put(&mut lost, &Entry::Lost { ceiling, grace_ms, branch });
        run.add(format_args!("{branch:016x}")).add_bytes(&lost);
        Ok(number(self.link.invoke(&run).await?) == Some(1))
    }

    /// Keeps an image, and forgets the entries before it. Returns false if it is of another log, or of one that goes on elsewhere.
    pub(super) async fn keep_image(
        &self,
        keys: Keys,
        generation: i64,
        position: u64,
        image: &Image,
    ) -> Result<bool, LinkError> {
        let mut run = IMAGE.with_keys(3);
        run.add(keys.key("log")).add(keys.of("entries", generation)).add(keys.of("image", generation));
        run.add(generation).add(position).add(format_args!("{:016x}", image.branch));
        for part in image.bytes.chunks(PART_BYTES) {
            run.add_bytes(part);
        }
        Ok(number(self.link.invoke(&run).await?) == Some(1))
    }

    /// Entries after a position, and whose log they are of, without taking part in anything. `None` if there is no such log.
    pub(super) async fn read_log(&self, keys: Keys, generation: i64, seen: u64) -> Result<Option<Part>, LinkError> {
        let mut run = READ.with_keys(2);
        run.add(keys.key("log")).add(keys.of("entries", generation)).add(generation).add(seen).add(ITEMS_MAX);
        let parts = parts_of(self.link.invoke(&run).await?).ok_or_else(unreadable)?;
        let Ok([position, branch, is_same_run, items]) = <[Value; 4]>::try_from(parts) else { return Ok(None) };
        let position = number(position).and_then(|position| u64::try_from(position).ok());
        let items = parts_of(items).ok_or_else(unreadable)?.into_iter().map(item).collect();
        let branch = bytes_of(branch).as_deref().and_then(branch_of).unwrap_or_default();
        let is_same_run = number(is_same_run) == Some(1);
        Ok(position.map(|position| Part { position, branch, is_same_run, items }))
    }

    /// The image, and the branch of the log now; empty if there is none.
    pub(crate) async fn load_image(&self, keys: Keys, generation: i64) -> Result<Image, LinkError> {
        let mut run = LOAD.with_keys(2);
        let run = run.add(keys.key("log")).add(keys.of("image", generation)).add(generation);
        let mut parts = parts_of(self.link.invoke(run).await?).ok_or_else(unreadable)?.into_iter().map(bytes_of);
        let branch = parts.next().flatten().as_deref().and_then(branch_of);
        // Without an image the branch does not matter.
        Ok(Image { branch: branch.unwrap_or_default(), bytes: parts.flatten().flatten().collect() })
    }
}
