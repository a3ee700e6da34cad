//! The Redis of the world: the sequencer of one coupon with its outbox. A script is one step.

use super::sql::{NodeCouponRow, User};
use crate::rng::mix;
use std::collections::BTreeMap;

/// One ticket on its way to the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its number.
    pub ticket: u64,
    /// Of whom.
    pub user: User,
    /// Which call drew it.
    pub tag: u64,
    /// When.
    pub at: u64,
}

impl Entry {
    /// Tells it from every other entry.
    pub const fn digest(&self) -> i64 {
        (mix(self.tag ^ mix(self.ticket)) >> 1) as i64 | 1
    }
}

/// What the sequencer says to a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DrawReply {
    /// This ticket was drawn for it.
    Drawn(u64),
    /// The user has this ticket.
    Has(u64),
    /// All are drawn, up to this one.
    SoldOut(u64),
}

/// The sequencer of the coupon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimSequencer {
    /// Which sequencer.
    pub generation: i64,
    /// The last ticket that was drawn.
    pub ticket: u64,
    /// Tickets that came to nothing.
    void: u64,
    /// How far the database was said to be.
    pub position: u64,
    /// The entry with that position, by its digest.
    pub anchor: i64,
    /// The ticket of each user.
    users: BTreeMap<User, u64>,
    /// What the database does not have yet.
    outbox: Vec<Entry>,
}

impl SimSequencer {
    /// The calls whose tickets wait for the database.
    pub fn tags(&self) -> impl Iterator<Item = u64> {
        self.outbox.iter().map(|entry| entry.tag)
    }
}

/// What a look at the sequencer shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Which sequencer.
    pub generation: i64,
    /// The last ticket.
    pub ticket: u64,
    /// How far the database was said to be.
    pub position: u64,
    /// The digest of the entry with the position that was asked for, if it is there.
    pub anchor: Option<i64>,
    /// Whether the entries follow the position that was asked for.
    pub follows: bool,
}

/// How many steps the lease lasts under which a sequencer is made anew.
const LEASE_STEPS: u64 = 200;

/// The server.
#[derive(Clone, Debug)]
pub struct Redis {
    sequencer: Option<SimSequencer>,
    /// Which node makes the sequencer anew, and until when. A start forgets it.
    lease: Option<(u64, u64)>,
    /// What a start would find.
    disk: Option<SimSequencer>,
    /// Whether it syncs each write before it answers. An operator may switch that off.
    pub is_fit: bool,
}

impl Redis {
    /// An empty server that syncs each write.
    pub const fn new() -> Self {
        Self { sequencer: None, lease: None, disk: None, is_fit: true }
    }

    /// The sequencer, if there is one.
    pub const fn sequencer(&self) -> Option<&SimSequencer> {
        self.sequencer.as_ref()
    }

    fn synced<T>(&mut self, answer: T) -> T {
        if self.is_fit {
            self.disk.clone_from(&self.sequencer);
        }
        answer
    }

    /// Is killed and starts again with what is on its disk.
    pub fn restart(&mut self) {
        (self.sequencer, self.lease) = (self.disk.clone(), None);
    }

    /// Starts again with this state.
    pub fn restore(&mut self, sequencer: Option<SimSequencer>) {
        self.disk.clone_from(&sequencer);
        (self.sequencer, self.lease) = (sequencer, None);
    }

    /// Takes the lease under which one task makes the sequencer anew; false if another one has it.
    pub fn seize(&mut self, who: u64, now: u64) -> bool {
        if self.lease.is_some_and(|(holder, until)| holder != who && now < until) {
            return false;
        }
        self.lease = Some((who, now + LEASE_STEPS));
        true
    }

    /// Gives the lease back.
    pub fn unseize(&mut self, who: u64) {
        self.lease = self.lease.filter(|(holder, _)| *holder != who);
    }

    /// Writes down what it has, from now on before each answer again.
    pub fn rebuild(&mut self) {
        self.is_fit = true;
        self.disk.clone_from(&self.sequencer);
    }

    /// Judges a claim. `None`: this is not the sequencer that the caller knows.
    pub fn claim(&mut self, known: (i64, u64), limit: u32, entry: Entry) -> Option<DrawReply> {
        let sequencer = self
            .sequencer
            .as_mut()
            .filter(|sequencer| sequencer.generation == known.0 && known.1 <= sequencer.ticket)?;
        if let Some(ticket) = sequencer.users.get(&entry.user) {
            return Some(DrawReply::Has(*ticket));
        }
        if u64::from(limit) <= sequencer.ticket - sequencer.void {
            return Some(DrawReply::SoldOut(sequencer.ticket));
        }
        sequencer.ticket += 1;
        sequencer.outbox.push(Entry { ticket: sequencer.ticket, ..entry });
        sequencer.users.insert(entry.user, sequencer.ticket);
        let word = DrawReply::Drawn(sequencer.ticket);
        Some(self.synced(word))
    }

    /// Hears how far the database is, and says what is next. `None`: this is not the sequencer that the caller knows.
    pub fn settle(&mut self, row: NodeCouponRow, count: usize) -> Option<Vec<Entry>> {
        let known =
            |sequencer: &&mut SimSequencer| sequencer.generation == row.generation && row.position <= sequencer.ticket;
        let sequencer = self.sequencer.as_mut().filter(known)?;
        if sequencer.position <= row.position {
            (sequencer.position, sequencer.anchor) = (row.position, row.anchor);
            sequencer.void = row.position - u64::from(row.issued);
            sequencer.outbox.retain(|entry| row.position < entry.ticket);
        }
        let next = sequencer.outbox.iter().filter(|entry| row.position < entry.ticket).take(count).copied().collect();
        Some(self.synced(next))
    }

    /// Forgets a ticket that the database passed over.
    pub fn forget(&mut self, generation: i64, user: User, ticket: u64) {
        let sequencer = self.sequencer.as_mut().filter(|sequencer| sequencer.generation == generation);
        if let Some(sequencer) = sequencer.filter(|sequencer| sequencer.users.get(&user) == Some(&ticket)) {
            sequencer.users.remove(&user);
        }
        self.synced(());
    }

    /// Shows the sequencer.
    pub fn probe(&self, position: u64) -> Option<Probe> {
        let sequencer = self.sequencer.as_ref()?;
        let next = sequencer.outbox.iter().find(|entry| position < entry.ticket);
        let entry = sequencer.outbox.iter().find(|entry| entry.ticket == position).map(Entry::digest);
        let anchor = entry.or_else(|| (sequencer.position == position).then_some(sequencer.anchor));
        let follows = next.map_or(sequencer.ticket == position, |next| next.ticket == position + 1);
        let SimSequencer { generation, ticket, position, .. } = *sequencer;
        Some(Probe { generation, ticket, position, anchor, follows })
    }

    /// Opens the sequencer of a generation that has all that the database holds, if the lease is this one's.
    pub fn open(&mut self, who: u64, row: NodeCouponRow, users: impl Iterator<Item = User>) {
        if self.lease.is_none_or(|(holder, _)| holder != who) {
            return;
        }
        self.lease = None;
        self.sequencer = Some(SimSequencer {
            generation: row.generation,
            ticket: row.position,
            void: row.position - u64::from(row.issued),
            position: row.position,
            anchor: row.anchor,
            users: users.map(|user| (user, 0)).collect(),
            outbox: Vec::new(),
        });
        self.synced(());
    }
}

impl Default for Redis {
    fn default() -> Self {
        Self::new()
    }
}
