//! A replica of a room. All replicas follow the same log.
//!
//! Many processes act on one room. Each appends its commands to a log. The log orders the entries and stamps them with the
//! time. Every replica applies all entries in that order to its own copy. Nothing else changes a copy, so replicas at the
//! same position are equal, and each can answer polls by itself ([`Room::peek`]).
//!
//! One node at a time writes what must survive the loss of the log to SQL. It then records in the log how far it has come
//! ([`Entry::Durable`]). Until then no node reports an outcome that rests on it ([`Applied::rests_on`],
//! [`Replica::unsettled`]). One exception: a number without user and key is reported at once. The ceiling of numbers is
//! durable before any of them is drawn, and the ticket alone brings its visitor back into line ([`Room::readmit`]).
//!
//! # Invariants
//! - Copies of one log are equal at the same position: image, digest, answers, changes. Hash seeds have no effect.
//! - Numbers drawn never pass the ceiling.
//! - Time does not fall from entry to entry, by either clock.
//! - An entry that stands in the log twice, because its append was repeated, has one effect: see [`Entry`].

mod entry;
mod image;
mod record;
mod witness;

use super::image::mixed;
use super::{Change, DrawKey, DrawView, Hold, Join, Joined, Rejection, Room, RoomState, TicketNumber, TicketView};
use crate::time::{Now, Steady};
pub use entry::Entry;
use hashbrown::HashMap;
pub use record::Record;
use std::collections::VecDeque;
use std::hash::RandomState;
pub use witness::{Lack, Stored, Witness};

/// Joins, settings and closings whose tags are remembered: nodes repeat an append within seconds. Protects memory.
pub const TAGS_MAX: usize = 65_536;

/// How a join led to its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drawn {
    /// The join drew it.
    New,
    /// The same request had drawn it.
    SameRequest,
    /// The same user had it.
    SameUser,
}

/// The outcome of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The place of a join, or why it has none.
    Joined(Result<Joined, Rejection>),
    /// The next number is above the ceiling, so none was drawn. The node appends the join again, with the same tag, once the
    /// ceiling is higher.
    NoNumber,
    /// The ticket of a look or a readmission. `None` if its number was never drawn, or is unknown.
    Ticket(Option<TicketView>),
    /// The place of a renewed ticket, or why it was not renewed.
    Renewed(Result<TicketView, Rejection>),
    /// The ticket of the entry was renewed before, so the entry had no effect.
    TicketRenewed,
    /// The result of giving up a ticket.
    Left(Result<(), Rejection>),
    /// An entry with this tag came before, so this one has no effect. If it was a join that succeeded: the number of the
    /// first one, and how the join led to it.
    Repeated(Option<(TicketNumber, Drawn)>),
    /// The settings have changed since they were read, so the entry had no effect.
    SettingsChanged,
    /// The room does not take these settings now, so the entry had no effect.
    SettingsRefused(Rejection),
    /// The entry took effect, and has no result.
    Done,
    /// The node that writes to SQL has a different copy at that position, so one of the two is wrong. Nothing more counts as
    /// durable here. Restore this replica from an image.
    Diverged,
}

/// The outcome of an entry, and when a node may report it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// The outcome.
    pub outcome: Outcome,
    /// A node may report the outcome once everything up to this position is durable. 0: at once.
    pub rests_on: u64,
}

/// An entry that is not the next one. It changed nothing: the replica needs the entries in between, or an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The position of the next entry.
    pub wanted: u64,
}

/// One copy of a room, with its position in the log.
pub struct Replica {
    room: Room,
    position: u64,
    durable: u64,
    ceiling: u32,
    /// The latest instants of all entries.
    now: Now,
    /// A digest of all changes so far.
    story: u64,
    /// The positions of the last settings or closing, and of the last closing.
    settings_at: u64,
    closed_at: u64,
    /// The position of the draw. Each place in line rests on it.
    drawn_at: u64,
    tags: Tags,
    /// Positions that are not durable yet and can be marked durable, with their digests: see [`Self::mark_up_to`].
    marks: VecDeque<(u64, u64)>,
    /// The records that must become durable, with their positions.
    pending: VecDeque<(u64, Record)>,
    /// The tickets in `pending`, with the position of the last record about each.
    unsettled: HashMap<u32, u64, RandomState>,
}

crate::debug_by_name!(Replica);

impl Replica {
    /// Makes the first copy of a room, at a position up to which everything is durable. `ceiling` is the highest number that may
    /// be drawn. `now` is an instant before all entries. Copies that begin this way must get the same values; later ones begin
    /// with an image.
    pub fn new(room: Room, position: u64, ceiling: u32, hasher: RandomState, now: Now) -> Self {
        Self {
            ceiling: ceiling.max(room.drawn()),
            room,
            position,
            durable: position,
            now,
            story: 0,
            settings_at: 0,
            closed_at: 0,
            drawn_at: 0,
            tags: Tags::new(hasher.clone()),
            marks: VecDeque::new(),
            pending: VecDeque::new(),
            unsettled: HashMap::with_hasher(hasher),
        }
    }

    /// Gives the room the key of its seeds: see [`Room::with_draw_key`]. All replicas need the same one.
    #[must_use]
    pub fn with_draw_key(self, key: DrawKey) -> Self {
        Self { room: self.room.with_draw_key(key), ..self }
    }

    /// Returns the room after the last entry.
    pub const fn room(&self) -> &Room {
        &self.room
    }

    /// Returns the position of the last entry.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Returns the position up to which everything is durable.
    pub const fn durable(&self) -> u64 {
        self.durable
    }

    /// Returns the highest number that may be drawn.
    pub const fn ceiling(&self) -> u32 {
        self.ceiling
    }

    /// Returns the latest instants of all entries.
    pub const fn now(&self) -> Now {
        self.now
    }

    /// Returns a number that all replicas share at this position: see [`Room::digest`]. Besides the counts it covers every
    /// change so far, so replicas that once decided differently never agree again.
    pub fn digest(&self) -> u64 {
        let all = [self.room.digest(), self.story, self.position, self.ceiling.into()];
        all.into_iter().fold(0, mixed)
    }

    /// Returns whether a decision about this ticket is not durable yet: its visitor has to wait for the answer.
    pub fn unsettled(&self, number: TicketNumber) -> bool {
        self.durable < self.decided_at(number)
    }

    /// Returns the position of the last decision about a ticket if it is not durable; else 0, or some durable position.
    fn decided_at(&self, number: TicketNumber) -> u64 {
        let voided_at = if number.0 < self.room.line.first() { self.closed_at } else { 0 };
        let known_at = voided_at.max(self.drawn_at);
        self.unsettled.get(&number.0).map_or(known_at, |&position| position.max(known_at))
    }

    /// Returns what the room publishes of its draw. The draw shows once it is durable.
    pub fn draw_view(&self) -> Option<DrawView> {
        let view = self.room.draw_view()?;
        Some(DrawView { draw: view.draw.filter(|_| self.drawn_at <= self.durable), ..view })
    }

    /// Returns the last position up to `end` that can be marked durable, and its digest. These are the positions with a pending
    /// record, and the positions of [`Entry::Durable`] entries, until one of them or a later one is durable. [`Entry::Durable`]
    /// is refused for any other position: a replica cannot keep the digests of all positions.
    pub fn mark_up_to(&self, end: u64) -> Option<(u64, u64)> {
        let count = self.marks.partition_point(|(position, _)| *position <= end);
        self.marks.get(count.checked_sub(1)?).copied()
    }

    /// Returns the records that must become durable, with their positions, in order, for entries after `after`.
    ///
    /// A node that writes them must write all records of an entry or none, with position and digest: see
    /// [`Self::mark_up_to`].
    pub fn pending_changes_after(&self, after: u64) -> impl Iterator<Item = (u64, &Record)> {
        let first = self.pending.partition_point(|(position, _)| *position <= after);
        self.pending.range(first..).map(|(position, record)| (*position, record))
    }

    /// Returns how many records must become durable.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Applies the next entry, and adds its changes to `changes`.
    pub fn apply(&mut self, position: u64, now: Now, entry: &Entry, changes: &mut Vec<Change>) -> Result<Applied, Gap> {
        if position != self.position + 1 {
            return Err(Gap { wanted: self.position + 1 });
        }
        self.now = Now { wall: self.now.wall.max(now.wall), steady: self.now.steady.max(now.steady) };
        let before = changes.len();
        self.position = position;
        let outcome = self.run(entry, changes);
        changes[before..].iter().for_each(|change| self.note(change));
        let rests_on = self.rests_on(entry, &outcome);
        let is_pending = self.pending.back().is_some_and(|(last, _)| *last == position);
        if is_pending || matches!(entry, Entry::Durable { .. }) {
            self.marks.push_back((position, self.digest()));
        }
        assert!(self.room.drawn() <= self.ceiling, "no number above the ceiling is drawn");
        Ok(Applied { outcome, rests_on })
    }

    fn run(&mut self, entry: &Entry, changes: &mut Vec<Change>) -> Outcome {
        let now = self.now;
        let tagged = match entry {
            Entry::Join { tag, .. } | Entry::Put { tag, .. } | Entry::Close { tag } => self.tags.find(*tag),
            _ => None,
        };
        if let Some(first) = tagged {
            return Outcome::Repeated(first);
        }
        // The node that appended the entry may not have seen the renewal.
        if entry.shown().is_some_and(|ticket| self.room.judge_ticket(ticket).is_err()) {
            return Outcome::TicketRenewed;
        }
        match entry {
            Entry::Join { join, tag } => return self.join(join, *tag, changes),
            Entry::Poll { ticket, .. } => return Outcome::Ticket(self.room.decide(ticket.number, now, changes)),
            Entry::Leave { ticket, .. } => return Outcome::Left(self.room.leave(ticket.number, now, changes)),
            Entry::Renew { ticket, key, .. } => return Outcome::Renewed(self.room.renew(*ticket, *key, now, changes)),
            Entry::Readmit { ticket, user, .. } => {
                self.room.readmit(ticket.number, user.as_ref(), now, changes);
                return Outcome::Ticket(self.room.decide(ticket.number, now, changes));
            }
            Entry::Durable { position, digest } => return self.settle(*position, *digest),
            Entry::Release { number, admission, .. } => self.room.release(*number, *admission, now, changes),
            Entry::EndOver { number, .. } => self.room.end_over(*number, now, changes),
            Entry::Contacts { numbers } => numbers.iter().for_each(|&number| self.room.contact(number, now)),
            Entry::Alive { segment, bits } => {
                if let Some(first_number) = segment.checked_mul(4_096).and_then(|before| before.checked_add(1)) {
                    self.room.alive(first_number, bits, now);
                }
            }
            Entry::Tick => self.room.tick(now, changes),
            Entry::Resumed => self.room.resumed(now),
            Entry::Report { report, .. } => self.room.report_origin(*report, now),
            Entry::Ceiling(ceiling) => self.ceiling = self.ceiling.max(*ceiling),
            Entry::Lost { ceiling, grace_ms, branch } => {
                self.story = mixed(mixed(self.story, self.position), *branch);
                self.ceiling = self.ceiling.max(*ceiling);
                // The lost entries may have drawn all numbers up to the durable ceiling.
                self.room.lose_end(self.ceiling, now.steady.plus_ms(*grace_ms), now);
            }
            Entry::Put { revision, tag } => {
                // The tag is not remembered: a repeat is judged again, and is refused too while those settings are in force.
                if !revision.may_replace(self.room.settings()) {
                    return Outcome::SettingsChanged;
                }
                // A repeat must not find the last ticket gone, and take effect after a node has reported the refusal.
                self.tags.remember(*tag, None);
                if let Err(rejection) = self.room.judge_settings(&revision.settings, now) {
                    return Outcome::SettingsRefused(rejection);
                }
                self.room.replace_settings(revision.settings.clone(), now);
                self.note_settings(Record::Settings(Box::new(revision.settings.clone())));
            }
            Entry::Close { tag } => {
                self.tags.remember(*tag, None);
                if self.room.state(now.wall) != RoomState::Closed {
                    self.room.close();
                    self.closed_at = self.position;
                    self.note_settings(Record::Closed { first: self.room.line.first() });
                }
            }
        }
        Outcome::Done
    }

    fn join(&mut self, join: &Join, tag: u64, changes: &mut Vec<Change>) -> Outcome {
        let found = match self.room.find(join, self.now, changes) {
            Ok(Some(joined)) => Ok(joined),
            Ok(None) => match self.room.judge_room(self.now) {
                // The tag is not remembered: the node appends the join again.
                Ok(()) if self.ceiling <= self.room.drawn() => return Outcome::NoNumber,
                Ok(()) => Ok(self.room.draw(join, self.now, changes)),
                Err(rejection) => Err(rejection),
            },
            Err(rejection) => Err(rejection),
        };
        self.tags.remember(tag, found.as_ref().ok().map(|joined| (view_of(joined).number, drawn_of(joined))));
        Outcome::Joined(found)
    }

    fn note_settings(&mut self, record: Record) {
        let number = if let Record::Closed { first } = &record { *first } else { 0 };
        self.story = mixed(mixed(self.story, self.position), number.into());
        self.settings_at = self.position;
        self.pending.push_back((self.position, record));
    }

    fn note(&mut self, change: &Change) {
        self.story = told(change).into_iter().fold(self.story, mixed);
        // A join without user and key is not written to SQL: the ceiling is durable, and the visitor has the ticket.
        if matches!(change, Change::Joined { join: Join { user: None, request: None }, .. }) {
            return;
        }
        if matches!(change, Change::Drawn(_)) {
            self.drawn_at = self.position;
        }
        if let Some(number) = change.number() {
            self.unsettled.insert(number.0, self.position);
        }
        self.pending.push_back((self.position, Record::Change(change.clone())));
    }

    fn rests_on(&self, entry: &Entry, outcome: &Outcome) -> u64 {
        let settings_at = self.settings_at;
        let position = match (outcome, entry) {
            (Outcome::Joined(Ok(joined)), _) => self.decided_at(view_of(joined).number).max(settings_at),
            (Outcome::Joined(Err(Rejection::KeyReused(number))), _) => self.decided_at(*number),
            (Outcome::Repeated(Some((number, _))), _) => self.decided_at(*number).max(settings_at),
            (Outcome::Joined(Err(_)) | Outcome::Repeated(None) | Outcome::SettingsChanged, _) => settings_at,
            (Outcome::SettingsRefused(_), _) => settings_at.max(self.drawn_at),
            (Outcome::Done, Entry::Put { .. } | Entry::Close { .. }) => settings_at,
            (Outcome::NoNumber | Outcome::Diverged, _) => 0,
            (
                Outcome::Ticket(_) | Outcome::Left(_) | Outcome::Renewed(_) | Outcome::TicketRenewed | Outcome::Done,
                _,
            ) => entry.number().map_or(0, |number| self.decided_at(number)),
        };
        if position <= self.durable { 0 } else { position }
    }

    fn settle(&mut self, position: u64, digest: u64) -> Outcome {
        if position <= self.durable {
            return Outcome::Done;
        }
        // A node that follows this log marks no other position.
        if self.mark_up_to(position) != Some((position, digest)) {
            return Outcome::Diverged;
        }
        self.durable = position;
        while let Some((_, record)) = self.pending.pop_front_if(|(at, _)| *at <= position) {
            let number = if let Record::Change(change) = &record { change.number() } else { None };
            if let Some(number) = number.filter(|it| self.unsettled.get(&it.0).is_some_and(|at| *at <= position)) {
                self.unsettled.remove(&number.0);
            }
        }
        while self.marks.pop_front_if(|(at, _)| *at <= position).is_some() {}
        Outcome::Done
    }
}

const fn view_of(joined: &Joined) -> &TicketView {
    match joined {
        Joined::New(view) | Joined::SameRequest(view) | Joined::SameUser(view) => view,
    }
}

const fn drawn_of(joined: &Joined) -> Drawn {
    match joined {
        Joined::New(_) => Drawn::New,
        Joined::SameRequest(_) => Drawn::SameRequest,
        Joined::SameUser(_) => Drawn::SameUser,
    }
}

/// Turns a change into numbers for a digest.
fn told(change: &Change) -> [u64; 4] {
    let instant = |at: Steady| at.as_us() as u64;
    match change {
        Change::Joined { number, joined_at, .. } => [1, number.0.into(), joined_at.as_us() as u64, 0],
        Change::Admitted { number, slot } => {
            let (Hold::Offered { until } | Hold::Taken { until }) = slot.hold;
            [2, number.0.into(), slot.admission, instant(until)]
        }
        Change::Taken { number, until } => [3, number.0.into(), instant(*until), 0],
        Change::Lapsed { number } => [4, number.0.into(), 0, 0],
        Change::Gone { number, how } => [5, number.0.into(), *how as u64, 0],
        Change::Renewed { number, renewal } => {
            let key = renewal.key.get();
            [8, number.0.into(), renewal.generation.into(), (key ^ (key >> 64)) as u64]
        }
        Change::Reached(reached) => [6, (*reached).into(), 0, 0],
        Change::Drawn(draw) => [7, draw.first.into(), draw.entrants.into(), draw.drawn_at.as_us() as u64],
    }
}

/// The tags of the last entries whose repeats would have a second effect, and the numbers that they led to.
struct Tags {
    known: HashMap<u64, Option<(TicketNumber, Drawn)>, RandomState>,
    order: VecDeque<u64>,
}

impl Tags {
    fn new(hasher: RandomState) -> Self {
        Self { known: HashMap::with_hasher(hasher), order: VecDeque::new() }
    }

    fn find(&self, tag: u64) -> Option<Option<(TicketNumber, Drawn)>> {
        self.known.get(&tag).copied()
    }

    fn remember(&mut self, tag: u64, number: Option<(TicketNumber, Drawn)>) {
        if self.order.len() == TAGS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.known.insert(tag, number);
        self.order.push_back(tag);
    }
}
