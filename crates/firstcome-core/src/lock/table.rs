//! The state of one bucket of locks, and its form in memory.

use super::{Hold, Mode, Request, Waiter};
use crate::id::LockName;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;

/// The life of a process in a bucket, and its last heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Session {
    /// A number drawn at the first heartbeat, or at the first one after the process had counted as dead.
    pub number: u64,
    /// The last heartbeat, in µs of the store's clock.
    pub seen_us: u64,
}

/// A waiter's place in the line of its lock: lower comes first.
///
/// It is the number that was drawn on arrival. That of a shared request is lowered by 2^53, which is more than any number:
/// so all shared requests come before all exclusive ones, and each kind keeps the order of arrival. Doubles carry it exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place(i64);

impl Place {
    /// Below it are the places of shared requests.
    const EXCLUSIVE: Self = Self(0);

    /// Returns the place of a request that drew this number.
    pub const fn of(mode: Mode, number: u64) -> Self {
        let number = number.cast_signed();
        Self(if mode.is_shared() { number - super::NUMBER_END.cast_signed() } else { number })
    }

    /// Returns the number that was drawn.
    pub const fn number(self) -> u64 {
        (if self.0 < 0 { self.0 + super::NUMBER_END.cast_signed() } else { self.0 }).cast_unsigned()
    }

    /// Returns whether it is the place of a shared request.
    pub const fn is_shared(self) -> bool {
        self.0 < Self::EXCLUSIVE.0
    }

    /// Returns the number with which stores keep it.
    pub const fn stored(self) -> i64 {
        self.0
    }

    /// Reads the number with which stores keep it; `None` if it is out of range.
    pub const fn from_stored(number: i64) -> Option<Self> {
        if number.unsigned_abs() < super::NUMBER_END { Some(Self(number)) } else { None }
    }
}

/// The state of one bucket, as the rules read and write it. A step of the rules is one transaction on it.
pub trait LockTable {
    /// Returns the highest number drawn.
    fn last(&self) -> u64;
    /// Sets the highest number drawn.
    fn set_last(&mut self, last: u64);
    /// Returns the hold of a lock, also one whose time is over.
    fn hold(&self, name: &LockName) -> Option<Hold>;
    /// Stores the hold of a lock, new or changed.
    fn put_hold(&mut self, name: &LockName, hold: Hold);
    /// Removes the hold: the lock is free.
    fn remove_hold(&mut self, name: &LockName);
    /// Returns the first waiter and its place, the lowest in line.
    fn first(&self, name: &LockName) -> Option<(Place, Waiter)>;
    /// Returns the first exclusive waiter and its place. The rules ask for it only while requests share the lock.
    fn first_exclusive(&self, name: &LockName) -> Option<(Place, Waiter)>;
    /// Returns the place of a request in line.
    fn place_of(&self, name: &LockName, request: Request) -> Option<Place>;
    /// Returns whether a waiter in line has this place.
    fn is_taken(&self, name: &LockName, place: Place) -> bool;
    /// Adds a waiter to the line, at a place that no waiter in it has.
    fn push(&mut self, name: &LockName, place: Place, waiter: Waiter);
    /// Removes a waiter from the line.
    fn remove(&mut self, name: &LockName, place: Place);
    /// Returns how many waiters are in line.
    fn waiters(&self, name: &LockName) -> u32;
    /// Returns how many waiters have a lower place.
    fn ahead(&self, name: &LockName, place: Place) -> u32;
    /// Returns the life of a process; `None` if it never sent a heartbeat, or too long ago to matter.
    fn life(&self, client: super::ClientId) -> Option<Session>;
    /// Stores the life of a process. May forget processes that have been silent for a long time.
    fn put_life(&mut self, client: super::ClientId, life: Session);
    /// Returns whether the store recorded a release of this request before it arrived.
    fn is_void(&self, request: Request, now_us: u64) -> bool;
    /// Records the release of this request, to be remembered until `until_us`.
    fn put_void(&mut self, request: Request, until_us: u64, now_us: u64);
}

/// With more entries than this, the table looks for old processes and void requests.
const OLD_ENTRIES: usize = 64;
/// The silence after which the table forgets a process.
const FORGET_US: u64 = 60_000_000;

/// A bucket in memory. A free lock takes no memory.
pub struct MemoryLockTable<S> {
    last: u64,
    holds: HashMap<LockName, Hold, S>,
    lines: HashMap<LockName, WaitingLine, S>,
    lives: BTreeMap<super::ClientId, Session>,
    voids: BTreeMap<Request, u64>,
    /// The numbers of processes and void requests above which the table looks for old ones.
    lives_max: usize,
    voids_max: usize,
}

crate::debug_by_name!([S] MemoryLockTable<S>);

#[derive(Default)]
struct WaitingLine {
    waiters: BTreeMap<Place, Waiter>,
    places: BTreeMap<Request, Place>,
}

impl<S: BuildHasher + Clone> MemoryLockTable<S> {
    /// Makes an empty bucket. The hasher comes with its random seeds.
    pub fn new(hasher: S) -> Self {
        let (holds, lines) = (HashMap::with_hasher(hasher.clone()), HashMap::with_hasher(hasher));
        let (lives, voids) = (BTreeMap::new(), BTreeMap::new());
        Self { last: 0, holds, lines, lives, voids, lives_max: OLD_ENTRIES, voids_max: OLD_ENTRIES }
    }

    /// Returns how many requests hold a lock, plus how many wait.
    pub fn len(&self) -> usize {
        self.holds.values().map(|hold| 1 + hold.others.len()).sum::<usize>()
            + self.lines.values().map(|line| line.waiters.len()).sum::<usize>()
    }

    /// Returns how many processes and void requests the table remembers.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> (usize, usize) {
        (self.lives.len(), self.voids.len())
    }

    /// Returns whether the table has no hold and no waiter.
    pub fn is_empty(&self) -> bool {
        self.holds.is_empty() && self.lines.is_empty()
    }
}

impl<S: BuildHasher> LockTable for MemoryLockTable<S> {
    fn last(&self) -> u64 {
        self.last
    }

    fn set_last(&mut self, last: u64) {
        self.last = last;
    }

    fn hold(&self, name: &LockName) -> Option<Hold> {
        self.holds.get(name).cloned()
    }

    fn put_hold(&mut self, name: &LockName, hold: Hold) {
        self.holds.insert(name.clone(), hold);
    }

    fn remove_hold(&mut self, name: &LockName) {
        self.holds.remove(name);
    }

    fn first(&self, name: &LockName) -> Option<(Place, Waiter)> {
        if self.lines.is_empty() {
            return None;
        }
        let (place, waiter) = self.lines.get(name)?.waiters.first_key_value()?;
        Some((*place, waiter.clone()))
    }

    fn first_exclusive(&self, name: &LockName) -> Option<(Place, Waiter)> {
        let (place, waiter) = self.lines.get(name)?.waiters.range(Place::EXCLUSIVE..).next()?;
        Some((*place, waiter.clone()))
    }

    fn place_of(&self, name: &LockName, request: Request) -> Option<Place> {
        self.lines.get(name)?.places.get(&request).copied()
    }

    fn is_taken(&self, name: &LockName, place: Place) -> bool {
        self.lines.get(name).is_some_and(|line| line.waiters.contains_key(&place))
    }

    fn push(&mut self, name: &LockName, place: Place, waiter: Waiter) {
        if !self.lines.contains_key(name) {
            self.lines.insert(name.clone(), WaitingLine::default());
        }
        if let Some(line) = self.lines.get_mut(name) {
            line.places.insert(waiter.request, place);
            line.waiters.insert(place, waiter);
        }
    }

    fn remove(&mut self, name: &LockName, place: Place) {
        let Some(line) = self.lines.get_mut(name) else { return };
        if let Some(waiter) = line.waiters.remove(&place) {
            line.places.remove(&waiter.request);
        }
        if line.waiters.is_empty() {
            self.lines.remove(name);
        }
    }

    fn waiters(&self, name: &LockName) -> u32 {
        self.lines.get(name).map_or(0, |line| line.waiters.len() as u32)
    }

    // Linear in the place, except for the last one: a request seldom leaves from the middle of a line.
    fn ahead(&self, name: &LockName, place: Place) -> u32 {
        let Some(line) = self.lines.get(name) else { return 0 };
        match line.waiters.last_key_value() {
            Some((last, _)) if *last <= place => line.waiters.len() as u32 - u32::from(*last == place),
            _ => line.waiters.range(..place).count() as u32,
        }
    }

    fn life(&self, client: super::ClientId) -> Option<Session> {
        self.lives.get(&client).copied()
    }

    fn put_life(&mut self, client: super::ClientId, life: Session) {
        if self.lives_max < self.lives.len() && !self.lives.contains_key(&client) {
            self.lives.retain(|_, other| life.seen_us.abs_diff(other.seen_us) < FORGET_US);
            // The next search comes only after as many entries again, so that each new entry pays for a few.
            self.lives_max = OLD_ENTRIES.max(2 * self.lives.len());
        }
        self.lives.insert(client, life);
    }

    fn is_void(&self, request: Request, now_us: u64) -> bool {
        !self.voids.is_empty() && self.voids.get(&request).is_some_and(|until_us| now_us < *until_us)
    }

    fn put_void(&mut self, request: Request, until_us: u64, now_us: u64) {
        if self.voids_max < self.voids.len() {
            self.voids.retain(|_, until_us| now_us < *until_us);
            self.voids_max = OLD_ENTRIES.max(2 * self.voids.len());
        }
        self.voids.insert(request, until_us);
    }
}
