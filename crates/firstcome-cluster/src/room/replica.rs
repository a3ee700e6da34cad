//! Keeps a node's replica of a room, which follows the log, and the contacts that the log does not know yet.

use super::follow::play;
use super::log::{Item, Keys};
use super::log_batch::ORDERS_MAX;
use crate::database::RoomRow;
use firstcome_core::id::RoomName;
use firstcome_core::room::replica::{Applied, Entry, Outcome, Replica, Witness};
use firstcome_core::room::{Change, Contact, Poll, Sight, TicketId, TicketNumber, TicketState, TicketView};
use firstcome_core::time::{Now, Steady, Timestamp};
use firstcome_store::TicketKey;
use firstcome_store::batcher::Batcher;
use firstcome_store::edge::{Stopwatch, draw_hasher};
use firstcome_store::{Fault, Glance, StoreError};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// Orders that may wait in one node for one room. Protects memory.
const ORDERS_WAITING_MAX: usize = 65_536;
/// A contact is passed on at once if a node that it is of may be admitted within this: those far back are only to be alive.
const NEAR_MS: u64 = 120_000;
/// The same, in people.
const NEAR_PEOPLE: u32 = 256;
/// How many times in the time-out of those who wait it is passed on that they are alive.
const ALIVE_SHARES: u64 = 8;
/// But at least so often: a node that asks as they were told is present three times as long as that at most, and must not be
/// passed over because the log hears of it late. 512 bytes for 4 096 people.
const ALIVE_MS_MAX: u64 = 25_000;
/// How many times in the idle time-out of a slot its contacts are passed on.
const IDLE_SHARES: u64 = 8;

/// After so long without a write that SQL takes, others may try; and after so long this node may again.
const REFUSED_MIN: Duration = Duration::from_secs(1);
/// See [`REFUSED_MIN`].
const REFUSED_MAX: Duration = Duration::from_secs(4);
/// So often a copy is rebuilt from the image before the log is held to be wrong.
const BROKEN_MAX: u32 = 2;

/// Which log, and which branch of it: see [`super::rebuild`]. What an entry led to in one says nothing of another, in which it may
/// be lost, though generation and positions are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LogId {
    pub(super) generation: i64,
    pub(super) branch: u64,
}

/// What an order led to: the log, and what its entry led to there.
pub(super) type LogReply = Option<(LogId, Applied)>;

/// What a node wants of the log.
pub(super) struct Order {
    pub(super) want: Want,
    pub(super) tell: oneshot::Sender<Result<LogReply, StoreError>>,
}

/// What is wanted.
pub(super) enum Want {
    /// To see all that came before.
    See,
    /// The same; and time is to do what is due, a node that has just let it.
    Tick,
    /// To append this.
    Append(Entry),
    /// To say what SQL holds.
    Say(StoredLog),
}

/// What SQL holds of a log.
#[derive(Clone)]
pub(super) struct StoredLog {
    pub(super) log: LogId,
    pub(super) position: u64,
    pub(super) entries: Vec<Entry>,
}

impl Want {
    pub(super) const fn entry(&self) -> Option<&Entry> {
        if let Self::Append(entry) = self { Some(entry) } else { None }
    }
}

/// Who was here, and the log does not know it yet.
#[derive(Default)]
struct Contacts {
    near: BTreeSet<u32>,
    /// By segments of 4 096 numbers.
    far: BTreeMap<u32, Box<[u64; 64]>>,
    far_since: Option<Steady>,
    /// When a contact of a slot was passed on last.
    slots: HashMap<u32, Steady, RandomState>,
}

/// The copy, and how new it is.
pub(super) struct RoomReplica {
    pub(super) log: LogId,
    pub(super) replica: Replica,
    /// Whether the log has answered: an image's time may be long ago.
    is_current: bool,
    /// What the log's clocks showed when it last answered, and the time since then.
    now: Now,
    since: Stopwatch,
    /// When it was asked for that.
    asked_at: Stopwatch,
    contacts: Contacts,
    /// Requests whose entries are on their way.
    pub(super) asked: HashMap<u64, oneshot::Sender<(LogId, Applied)>, RandomState>,
    changes: Vec<Change>,
    /// Bytes of entries since the last image, and of that image.
    pub(super) bytes: usize,
    pub(super) image_bytes: usize,
    /// The last position that an entry said is durable, and the digest there.
    stored: Option<(u64, u64)>,
}

/// How far this copy is, for those who wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Progress {
    pub(super) log: LogId,
    pub(super) durable: u64,
    /// Whether a number may be drawn.
    pub(super) has_number: bool,
    /// Whether the room stands still: see [`super::went_back`].
    pub(super) is_stopped: bool,
}

/// Why items could not be applied.
pub(super) struct Broken;

/// What a poll finds here.
pub(super) enum Found {
    Answer(TicketView),
    /// Something about it is not durable yet.
    Unsettled,
    /// The ticket was renewed, and that is durable.
    Renewed,
    /// To be decided, or no node here knows the number.
    Ask(Ask),
}

/// What must be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    Decide,
    Readmit,
    /// Perhaps it was drawn after what is known here.
    Unknown,
}

/// One room.
pub(crate) struct RoomNode {
    pub(crate) keys: Keys,
    pub(super) name: RoomName,
    pub(super) ticket_key: TicketKey,
    /// What the database is known to have had.
    pub(super) witness: Mutex<Witness>,
    /// The fault that stops the room on this node.
    pub(super) stopped: Mutex<Option<Arc<Fault>>>,
    pub(super) copy: Mutex<Option<RoomReplica>>,
    pub(super) orders: Batcher<Order>,
    pub(super) progress: watch::Sender<Progress>,
    /// Held while the log is looked at or rebuilt.
    pub(super) mending: tokio::sync::Mutex<()>,
    /// What the connection was when the log was last seen to be whole.
    pub(super) trusted: AtomicU64,
    /// A generation whose entries did not fit this copy, and how often.
    pub(super) broken: Mutex<(i64, u32)>,
    pub(super) is_beating: AtomicBool,
    pub(super) is_writing: AtomicBool,
    pub(super) is_drainer: AtomicBool,
    /// Since when SQL takes nothing from this node.
    pub(super) refused_since: Mutex<Option<Stopwatch>>,
    /// The room as it was last seen in SQL; held by the node that writes.
    pub(super) row: tokio::sync::Mutex<RoomRow>,
}

impl RoomReplica {
    pub(super) fn new(log: LogId, replica: Replica, image_bytes: usize) -> Self {
        let contacts = Contacts { slots: HashMap::with_hasher(draw_hasher()), ..Contacts::default() };
        let now = replica.now();
        Self {
            log,
            replica,
            is_current: false,
            now,
            since: Stopwatch::start(),
            asked_at: Stopwatch::start(),
            contacts,
            asked: HashMap::with_hasher(draw_hasher()),
            changes: Vec::new(),
            bytes: 0,
            image_bytes,
            stored: None,
        }
    }

    /// What the log's clocks should show now, unless the time is given.
    pub(super) fn now(&self, given: Option<Now>) -> Now {
        if let Some(now) = given {
            return now;
        }
        let elapsed = if self.is_current { self.since.elapsed() } else { Duration::ZERO };
        let elapsed_us = i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX);
        let wall = Timestamp::clamped_us(self.now.wall.as_us().saturating_add(elapsed_us));
        Now { wall, steady: Steady::from_us(self.now.steady.as_us().saturating_add(elapsed_us)) }
    }

    /// Time since the log was asked for what is here. For ever, while all that is here is an image.
    pub(super) fn age(&self) -> Duration {
        if self.is_current { self.asked_at.elapsed() } else { Duration::MAX }
    }

    /// Whether the log has been asked since this copy was made.
    pub(super) const fn is_read(&self) -> bool {
        self.is_current
    }

    /// What the log's clocks should show, if that is known here and not given: an image says nothing of the time since then.
    pub(super) fn expected(&self, given: Option<Now>) -> Option<Steady> {
        (self.is_current && given.is_none()).then(|| self.now(given).steady)
    }

    /// The log has answered: all that it had when it was asked is here.
    pub(super) fn refresh(&mut self, now: Now, asked_at: Stopwatch) {
        self.now = now;
        self.since = Stopwatch::start();
        self.asked_at = asked_at;
        self.is_current = true;
    }

    /// Whether there is anything that SQL is to hold before anybody is told.
    pub(super) fn is_pending(&self) -> bool {
        self.replica.pending_changes_after(self.replica.durable()).next().is_some()
    }

    /// Applies what came. An error if it does not follow, or the copy turns out to be wrong.
    pub(super) fn apply(&mut self, items: Vec<Item>) -> Result<(), Broken> {
        self.bytes += items.iter().map(|item| item.bytes).sum::<usize>();
        let Self { replica, changes, asked, log, stored, .. } = self;
        play(replica, items, changes, |entry, applied| {
            if let (Entry::Durable { position, digest }, Outcome::Done) = (entry, &applied.outcome) {
                *stored = (*stored).max(Some((*position, *digest)));
            }
            if let Some(tell) = entry.tag().and_then(|tag| asked.remove(&tag)) {
                // A node that has gone does not hear it.
                let _ = tell.send((*log, applied));
            }
        })
    }

    /// What a poll of a ticket is told. Counts as a contact, of which the log hears later.
    pub(super) fn poll(&mut self, ticket: TicketId, now: Now) -> Found {
        let number = ticket.number;
        if self.replica.unsettled(number) {
            return Found::Unsettled;
        }
        if self.replica.room().judge_ticket(ticket).is_err() {
            return Found::Renewed;
        }
        match self.replica.room().peek(number, now) {
            None => Found::Ask(Ask::Unknown),
            Some(Poll::Decide) if self.replica.room().is_unknown(number) => Found::Ask(Ask::Readmit),
            Some(Poll::Decide) => Found::Ask(Ask::Decide),
            Some(Poll::Answer(view)) => {
                self.note(&view, now);
                Found::Answer(view)
            }
        }
    }

    /// What a look at a ticket shows; `None` if that is not known here, or not durable. With [`Contact::Made`] it counts as a
    /// contact, of which the log hears later.
    pub(super) fn sight(&mut self, glance: Glance, now: Now) -> Option<Sight> {
        let Glance { ticket, contact } = glance;
        if self.replica.unsettled(ticket.number) {
            return None;
        }
        // A poll tells that the place moved to another device.
        if self.replica.room().judge_ticket(ticket).is_err() {
            return Some(Sight::Poll);
        }
        let poll = self.replica.room().peek(ticket.number, now)?;
        if let (Poll::Answer(view), Contact::Made) = (&poll, contact) {
            self.note(view, now);
        }
        Some(self.replica.room().sight_of(ticket.number, poll, now))
    }

    /// Keeps a contact until the log is told.
    fn note(&mut self, view: &TicketView, now: Now) {
        let number = view.number.get();
        match view.state {
            TicketState::InDraw { .. } | TicketState::Waiting { .. } => {
                // In a draw each turn may be the first.
                let (position, wait_ms) = match view.state {
                    TicketState::Waiting { position, wait_ms } => (position, wait_ms),
                    TicketState::InDraw { wait_ms, .. } => (u32::MAX, wait_ms),
                    _ => return,
                };
                // A node that was passed over is next. A first poll keeps the place, so it must not come too late.
                let is_first = self.replica.room().awaits_first_poll(view.number);
                if is_first || position < NEAR_PEOPLE || wait_ms.is_some_and(|wait_ms| wait_ms <= NEAR_MS) {
                    self.contacts.near.insert(number);
                } else {
                    let (segment, at) = ((number - 1) / 4_096, (number - 1) % 4_096);
                    let bits = self.contacts.far.entry(segment).or_insert_with(|| Box::new([0; 64]));
                    bits[at as usize / 64] |= 1 << (at % 64);
                    self.contacts.far_since.get_or_insert(now.steady);
                }
            }
            TicketState::Admitted { .. } => self.note_slot(view.number, now),
            TicketState::Gone(_) => {}
        }
    }

    /// Keeps a contact of a node inside, if it matters and is not a repetition.
    pub(super) fn note_slot(&mut self, number: TicketNumber, now: Now) {
        let Some(idle_ttl_ms) = self.replica.room().settings().idle_ttl_ms else { return };
        let share_us = idle_ttl_ms * 1_000 / IDLE_SHARES;
        let known = self.contacts.slots.get(&number.get());
        if known.is_none_or(|last| share_us <= now.steady.since_us(*last) || now.steady < *last) {
            self.contacts.slots.insert(number.get(), now.steady);
            self.contacts.near.insert(number.get());
        }
    }

    /// What the log is to hear of contacts; of those far back now and then, or at once if `all`.
    pub(super) fn contacts(&mut self, now: Now, all: bool) -> Vec<Entry> {
        let mut entries = Vec::new();
        let share_us = (self.replica.room().settings().waiting_ttl_ms / ALIVE_SHARES).min(ALIVE_MS_MAX) * 1_000;
        let far_is_due = self.contacts.far_since.is_some_and(|since| share_us <= now.steady.since_us(since));
        if all {
            for (segment, bits) in std::mem::take(&mut self.contacts.far) {
                let at = (0..4_096_u32).filter(|at| bits[*at as usize / 64] & (1 << (at % 64)) != 0);
                self.contacts.near.extend(at.map(|at| segment * 4_096 + 1 + at));
            }
            self.contacts.far_since = None;
        } else if far_is_due {
            let far = std::mem::take(&mut self.contacts.far);
            entries.extend(far.into_iter().map(|(segment, bits)| Entry::Alive { segment, bits }));
            self.contacts.far_since = None;
        }
        let near = std::mem::take(&mut self.contacts.near);
        if !near.is_empty() {
            entries.push(Entry::contacts(near.into_iter().filter_map(TicketNumber::new).collect()));
        }
        if self.replica.room().is_idle() {
            self.contacts.slots.clear();
        }
        entries
    }

    /// How far it is.
    pub(super) fn progress(&self, is_stopped: bool) -> Progress {
        let replica = &self.replica;
        let has_number = replica.room().drawn() < replica.ceiling();
        Progress { log: self.log, durable: replica.durable(), has_number, is_stopped }
    }

    /// Tells the witness what the log says the database holds.
    pub(super) fn bear_witness(&self, witness: &mut Witness) {
        let durable = self.replica.durable();
        let digest = self.stored.filter(|(position, _)| *position == durable).map(|(_, digest)| digest);
        witness.learn_log(self.log.generation, durable, digest, self.replica.ceiling());
    }
}

impl RoomNode {
    pub(crate) fn new(row: RoomRow) -> Self {
        let none = LogId { generation: 0, branch: 0 };
        let (progress, _) = watch::channel(Progress { log: none, durable: 0, has_number: false, is_stopped: false });
        Self {
            keys: Keys { room: row.id },
            name: row.name.clone(),
            ticket_key: row.ticket_key.clone(),
            witness: Mutex::new(Witness::new(row.stored())),
            stopped: Mutex::default(),
            copy: Mutex::new(None),
            orders: Batcher::new(ORDERS_WAITING_MAX, ORDERS_MAX, 1),
            progress,
            mending: tokio::sync::Mutex::default(),
            trusted: AtomicU64::new(u64::MAX),
            broken: Mutex::default(),
            is_beating: AtomicBool::new(false),
            is_writing: AtomicBool::new(false),
            is_drainer: AtomicBool::new(false),
            refused_since: Mutex::default(),
            row: tokio::sync::Mutex::new(row),
        }
    }

    /// Whether this node may be the one to write to SQL: not while others may reach it and this one cannot.
    pub(super) fn may_write(&self) -> bool {
        self.stopped().is_none()
            && self.refused_since.lock().as_ref().is_none_or(|since| {
                let elapsed = since.elapsed();
                elapsed < REFUSED_MIN || REFUSED_MAX <= elapsed
            })
    }

    /// Notes whether this node has the writer lease, and tells the log of a change.
    pub(super) fn note_lease(&self, has_lease: bool, node: &str, generation: i64) {
        if self.is_drainer.swap(has_lease, Ordering::Relaxed) != has_lease {
            let room = &self.name;
            tracing::debug!(%room, node, generation, has_lease, "the writer lease of the room has changed");
        }
    }

    /// Notes whether SQL took what was to be written, or showed what has to be known for that.
    pub(super) fn note_write(&self, is_written: bool) {
        let mut since = self.refused_since.lock();
        match &*since {
            _ if is_written => *since = None,
            Some(known) if known.elapsed() < REFUSED_MAX => {}
            _ => *since = Some(Stopwatch::start()),
        }
    }

    /// Notes that the entries of a generation do not fit the copy.
    pub(super) fn break_off(&self, generation: i64) {
        let mut broken = self.broken.lock();
        *broken = if broken.0 == generation { (generation, broken.1 + 1) } else { (generation, 1) };
    }

    /// Holds the log of a generation to be wrong: a node that looks next makes it anew.
    pub(crate) fn distrust(&self, generation: i64) {
        *self.broken.lock() = (generation, BROKEN_MAX);
        self.trusted.store(u64::MAX, Ordering::Relaxed);
    }

    /// Notes that the log fits the copy.
    pub(super) fn rebuilt(&self) {
        *self.broken.lock() = (0, 0);
    }

    /// Whether a copy that was rebuilt did not fit either: then the log itself is wrong.
    pub(super) fn distrusts(&self, generation: i64) -> bool {
        let (of, times) = *self.broken.lock();
        of == generation && BROKEN_MAX <= times
    }

    /// Waits until a number may be drawn in a log, another log or branch has begun, or the room stands still.
    pub(super) async fn has_number(&self, log: LogId) {
        let there = |now: &Progress| now.log != log || now.has_number || now.is_stopped;
        // It is there as long as the room is.
        let _ = self.progress.subscribe().wait_for(there).await;
    }

    /// Waits until all up to a position of a log is durable. False if another log or branch has begun: it may lack that, and have
    /// gone past the same position all the same. False too if the room stands still before that.
    pub(super) async fn durable(&self, log: LogId, position: u64) -> bool {
        let mut progress = self.progress.subscribe();
        let there = |now: &Progress| now.log != log || position <= now.durable || now.is_stopped;
        match progress.wait_for(there).await {
            Ok(now) => now.log == log && position <= now.durable,
            Err(_) => false,
        }
    }
}
