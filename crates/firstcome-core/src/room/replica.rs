//! A replica of a room. All replicas follow the same log.
//!
//! Many processes want something of one room. Each appends what it wants to a log, which another node puts in order
//! and stamps with the time, and applies all entries in that order to its own copy. Nothing else goes in, so the copies
//! are equal wherever they stand at the same position, and each can answer polls by itself ([`Room::peek`]).
//!
//! What must not be lost with the log is written down elsewhere, by one process at a time, which then says in the log
//! how far it has come ([`Entry::Durable`]). Until then nothing is told that rests on it ([`Applied::rests_on`],
//! [`Replica::unsettled`]); but a number without user and key is told at once: the ceiling of numbers is durable
//! before any of them is drawn, and its ticket alone brings its holder back into line ([`Room::readmit`]).
//!
//! # Invariants
//! - Copies of one log are equal at the same position: image, digest, answers, changes. No hash seed shows.
//! - Numbers drawn never pass the ceiling.
//! - Time does not fall from entry to entry, by either clock.
//! - What stands in the log twice, since an append was repeated, has one effect: see [`Entry`].

mod entry;
mod image;
mod record;
mod witness;

use super::image::mixed;
use super::{Change, Hold, Join, Joined, Rejection, Room, RoomState, TicketNumber, TicketView};
use crate::time::{Now, Steady};
pub use entry::Entry;
use hashbrown::HashMap;
pub use record::Record;
use std::collections::VecDeque;
use std::hash::RandomState;
pub use witness::{Lack, Stored, Witness};

/// Joins, settings and closings whose tags are remembered: an append is repeated within seconds. Protects memory.
pub const TAGS_MAX: usize = 65_536;

/// How a join led to its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drawn {
    /// It was drawn.
    New,
    /// The same request had it.
    SameRequest,
    /// The same user had it.
    SameUser,
}

/// What an entry led to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The place of a join, or why there is none.
    Joined(Result<Joined, Rejection>),
    /// The next number is above the ceiling. Nothing was drawn: to be asked again, with the same tag, once the ceiling is
    /// higher.
    NoNumber,
    /// The ticket that was looked at, or that came back. `None` if its number was never drawn, or is unknown.
    Ticket(Option<TicketView>),
    /// What became of giving up a ticket.
    Left(Result<(), Rejection>),
    /// An entry with this tag came before, and this one has no effect. The number that the first one led to, and how, if it
    /// was a join that was not refused.
    Repeated(Option<(TicketNumber, Drawn)>),
    /// The settings have changed since they were read: nothing was done.
    SettingsChanged,
    /// It is done; there is nothing to say.
    Done,
    /// A node that writes down what is durable has another room at that position. One of the two copies is wrong, and
    /// nothing more counts as durable here: to be made anew from an image.
    Diverged,
}

/// What an entry led to, and when that may be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// What it led to.
    pub outcome: Outcome,
    /// No node may be told before all up to this position is durable. 0 if it may be told at once.
    pub rests_on: u64,
}

/// An entry that is not the next one: nothing changed, and the copy needs those in between, or an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The position that comes next.
    pub wanted: u64,
}

/// One copy of a room, and where it stands in the log.
pub struct Replica {
    room: Room,
    position: u64,
    durable: u64,
    ceiling: u32,
    /// The latest instants of all entries.
    now: Now,
    /// A digest of all changes so far.
    story: u64,
    /// The last settings or closing, and the last closing.
    settings_at: u64,
    closed_at: u64,
    tags: Tags,
    /// Positions that are not durable and can be said to be, with their digests: see [`Self::mark_up_to`].
    marks: VecDeque<(u64, u64)>,
    /// What must be made durable, with its position.
    pending: VecDeque<(u64, Record)>,
    /// Tickets in `pending`, with the last position about each.
    unsettled: HashMap<u32, u64, RandomState>,
}

impl Replica {
    /// The first copy of a room, at a position up to which all is durable. `ceiling` is the highest number that may be
    /// drawn, `now` an instant before which no entry is. Copies that begin so must be given the same; who comes later begins
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
            tags: Tags::new(hasher.clone()),
            marks: VecDeque::new(),
            pending: VecDeque::new(),
            unsettled: HashMap::with_hasher(hasher),
        }
    }

    /// The room as of the last entry.
    pub const fn room(&self) -> &Room {
        &self.room
    }

    /// The position of the last entry.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The position up to which all is durable.
    pub const fn durable(&self) -> u64 {
        self.durable
    }

    /// The highest number that may be drawn.
    pub const fn ceiling(&self) -> u32 {
        self.ceiling
    }

    /// The latest instants of all entries.
    pub const fn now(&self) -> Now {
        self.now
    }

    /// A number that all copies share at this position: see [`Room::digest`]. Beside the counts it holds every change so
    /// far, so copies that ever decided differently never agree again.
    pub fn digest(&self) -> u64 {
        let all = [self.room.digest(), self.story, self.position, self.ceiling.into()];
        all.into_iter().fold(0, mixed)
    }

    /// Whether something was decided about this ticket that is not durable yet: who asks has to wait.
    pub fn unsettled(&self, number: TicketNumber) -> bool {
        self.durable < self.decided_at(number)
    }

    /// The position of the last decision about a ticket, if it is not durable; else 0, or some position that is.
    fn decided_at(&self, number: TicketNumber) -> u64 {
        let voided_at = if number.0 < self.room.line.first() { self.closed_at } else { 0 };
        self.unsettled.get(&number.0).map_or(voided_at, |&position| position.max(voided_at))
    }

    /// The last position up to `end` that can be said to be durable, and the digest there. Those are the positions of which
    /// something has to be made durable, and those of [`Entry::Durable`], until that or a later one is durable. All others
    /// are refused: of as many as there are no copy could keep the digests.
    pub fn mark_up_to(&self, end: u64) -> Option<(u64, u64)> {
        let count = self.marks.partition_point(|(position, _)| *position <= end);
        self.marks.get(count.checked_sub(1)?).copied()
    }

    /// What has to be made durable next, with the positions, in order: all that is not, of entries after `after`.
    ///
    /// A node that writes it down must write all of an entry or nothing of it, with position and digest: see
    /// [`Self::mark_up_to`].
    pub fn pending_changes_after(&self, after: u64) -> impl Iterator<Item = (u64, &Record)> {
        let first = self.pending.partition_point(|(position, _)| *position <= after);
        self.pending.range(first..).map(|(position, record)| (*position, record))
    }

    /// How much has to be made durable.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Applies the next entry, and adds to `changes` what became different.
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
        match entry {
            Entry::Join { join, tag } => return self.join(join, *tag, changes),
            Entry::Look { number, .. } => return Outcome::Ticket(self.room.decide(*number, now, changes)),
            Entry::Leave { number, .. } => return Outcome::Left(self.room.leave(*number, now, changes)),
            Entry::Readmit { number, user, .. } => {
                self.room.readmit(*number, user.as_ref(), now, changes);
                return Outcome::Ticket(self.room.decide(*number, now, changes));
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
            Entry::Ceiling(ceiling) => self.ceiling = self.ceiling.max(*ceiling),
            Entry::Lost { ceiling, grace_ms, branch } => {
                self.story = mixed(mixed(self.story, self.position), *branch);
                self.ceiling = self.ceiling.max(*ceiling);
                // What is lost may have drawn up to everything that was durable.
                self.room.lose_end(self.ceiling, now.steady.plus_ms(*grace_ms), now);
            }
            Entry::Put { revision, tag } => {
                // Not remembered: a second one is judged anew, and is not done either while those settings are in force.
                if !revision.may_replace(self.room.settings()) {
                    return Outcome::SettingsChanged;
                }
                self.tags.remember(*tag, None);
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
                // Not remembered: it is asked again.
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
        // A node that joined without user and key is not written down: the ceiling is, and they have their ticket.
        if matches!(change, Change::Joined { join: Join { user: None, request: None }, .. }) {
            return;
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
            (Outcome::Done, Entry::Put { .. } | Entry::Close { .. }) => settings_at,
            (Outcome::NoNumber | Outcome::Diverged, _) => 0,
            (Outcome::Ticket(_) | Outcome::Left(_) | Outcome::Done, _) => {
                entry.number().map_or(0, |number| self.decided_at(number))
            }
        };
        if position <= self.durable { 0 } else { position }
    }

    fn settle(&mut self, position: u64, digest: u64) -> Outcome {
        if position <= self.durable {
            return Outcome::Done;
        }
        // A node that follows this log says so of no other position.
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

/// A change as numbers, for a digest.
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
        Change::Reached(reached) => [6, (*reached).into(), 0, 0],
    }
}

/// The tags of the last entries of which a second one would have a second effect, and the numbers they led to.
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
