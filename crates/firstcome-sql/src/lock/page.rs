//! What a batch of steps sees of the tables: read in one round trip, changed in memory by the rules, written in another.
//!
//! The rules ask for one thing after the other, and each question would be a round trip. So what they usually ask for is
//! read ahead. Reads beyond that are noted, and all of it is done again from a page that has it too: the rules
//! are pure, so nothing of the first attempt remains.

use firstcome_core::id::LockName;
use firstcome_core::lock::{ClientId, Hold, LockTable, Place, Request, Session, Waiter};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// How many at the head of a line are read ahead. More are needed only if the first ones are dead.
const HEADS: u32 = 4;

/// What must be read.
#[derive(Clone, Default)]
pub(super) struct Wants {
    pub(super) buckets: BTreeSet<u8>,
    /// Of each lock the hold, and so many at the head of its line.
    pub(super) locks: BTreeMap<LockName, (u8, u32)>,
    /// The places of requests.
    pub(super) places: BTreeSet<(LockName, Request)>,
    /// Who has a place, and how many are before it.
    pub(super) taken: BTreeSet<(LockName, Place)>,
    /// Beside those of the holds and the heads.
    pub(super) lives: BTreeSet<(u8, ClientId)>,
    pub(super) voids: BTreeSet<(u8, Request)>,
}

impl Wants {
    pub(super) fn lock(&mut self, bucket: u8, name: &LockName) {
        self.buckets.insert(bucket);
        self.locks.insert(name.clone(), (bucket, HEADS));
    }

    /// Adds what was missed.
    fn add(&mut self, missed: Missed) {
        match missed {
            Missed::Heads(name) => {
                if let Some((_, heads)) = self.locks.get_mut(&name) {
                    *heads = heads.saturating_mul(8);
                }
            }
            Missed::Place(name, request) => drop(self.places.insert((name, request))),
            Missed::Taken(name, place) => drop(self.taken.insert((name, place))),
            Missed::Life(bucket, client) => drop(self.lives.insert((bucket, client))),
            Missed::Void(bucket, request) => drop(self.voids.insert((bucket, request))),
        }
    }
}

/// What the rules asked for and the page does not have.
#[derive(Clone)]
enum Missed {
    Heads(LockName),
    Place(LockName, Request),
    Taken(LockName, Place),
    Life(u8, ClientId),
    Void(u8, Request),
}

/// A line, as far as it was read, and what has changed since.
#[derive(Clone, Default)]
pub(super) struct WaitingLine {
    /// The first ones.
    pub(super) heads: BTreeMap<Place, Waiter>,
    /// Whether these are all.
    pub(super) is_whole: bool,
    /// How many there are, and the last place.
    pub(super) count: u32,
    pub(super) greatest: Option<Place>,
    /// Places of requests that were looked for.
    pub(super) places: BTreeMap<Request, Option<Place>>,
    /// Of places that were looked for: whether a process has it, and how many are before it.
    pub(super) taken: BTreeMap<Place, (bool, u32)>,
    pub(super) removed: BTreeSet<Place>,
    pub(super) pushed: BTreeMap<Place, Waiter>,
}

/// What is not on the page.
struct Unknown;

impl WaitingLine {
    /// Whether it is known if a process had this place.
    fn knows(&self, place: Place) -> bool {
        self.is_whole || self.heads.last_key_value().is_some_and(|(last, _)| place <= *last)
    }

    /// The first one whose place is of the kind that is wanted.
    fn first(&self, wanted: fn(Place) -> bool) -> Result<Option<(Place, Waiter)>, Unknown> {
        let head = self.heads.iter().find(|(place, _)| wanted(**place) && !self.removed.contains(place));
        let pushed = self.pushed.iter().find(|(place, _)| wanted(**place));
        let first = match (head, pushed) {
            (Some(head), Some(pushed)) => Some(if head.0 < pushed.0 { head } else { pushed }),
            (Some(head), None) => Some(head),
            (None, Some(pushed)) if self.knows(*pushed.0) => Some(pushed),
            (None, None) if self.is_whole || self.greatest.is_none_or(|greatest| !wanted(greatest)) => None,
            (None, _) => return Err(Unknown),
        };
        Ok(first.map(|(place, waiter)| (*place, waiter.clone())))
    }

    fn place_of(&self, request: Request) -> Result<Option<Place>, Unknown> {
        let of = |line: &BTreeMap<Place, Waiter>| {
            line.iter().find(|(_, waiter)| waiter.request == request).map(|(place, _)| *place)
        };
        if let Some(place) = of(&self.pushed) {
            return Ok(Some(place));
        }
        let place = match (of(&self.heads), self.places.get(&request)) {
            (Some(place), _) => Some(place),
            (None, Some(place)) => *place,
            (None, None) if self.is_whole => None,
            (None, None) => return Err(Unknown),
        };
        Ok(place.filter(|place| !self.removed.contains(place)))
    }

    fn is_taken(&self, place: Place) -> Result<bool, Unknown> {
        if self.pushed.contains_key(&place) {
            return Ok(true);
        }
        if self.removed.contains(&place) || self.greatest < Some(place) {
            return Ok(false);
        }
        if self.knows(place) {
            return Ok(self.heads.contains_key(&place));
        }
        self.taken.get(&place).map(|(is_taken, _)| *is_taken).ok_or(Unknown)
    }

    fn ahead(&self, place: Place) -> Result<u32, Unknown> {
        let read = if self.greatest < Some(place) {
            self.count
        } else if self.knows(place) {
            self.heads.range(..place).count() as u32
        } else {
            self.taken.get(&place).map(|(_, ahead)| *ahead).ok_or(Unknown)?
        };
        let (gone, come) = (self.removed.range(..place).count(), self.pushed.range(..place).count());
        Ok((read + come as u32).saturating_sub(gone as u32))
    }

    fn push(&mut self, place: Place, waiter: Waiter) {
        self.pushed.insert(place, waiter);
    }

    fn remove(&mut self, place: Place) {
        if self.pushed.remove(&place).is_none() {
            self.removed.insert(place);
        }
    }

    /// How many are in line now.
    pub(super) fn len(&self) -> u32 {
        (self.count + self.pushed.len() as u32).saturating_sub(self.removed.len() as u32)
    }
}

/// A lock on the page.
#[derive(Clone, Default)]
pub(super) struct Leaf {
    pub(super) hold: Option<Hold>,
    pub(super) line: WaitingLine,
}

/// What was read, and what became of it.
#[derive(Clone, Default)]
pub(super) struct Page {
    pub(super) now_us: u64,
    pub(super) lasts: BTreeMap<u8, u64>,
    pub(super) locks: BTreeMap<LockName, Leaf>,
    pub(super) lives: BTreeMap<(u8, ClientId), Option<Session>>,
    pub(super) voids: BTreeMap<(u8, Request), Option<u64>>,
    missed: RefCell<Vec<Missed>>,
}

impl Page {
    /// Adds to the wants what was missed. `true` if that is anything: then nothing that the rules said holds.
    pub(super) fn has_missed(&mut self, wants: &mut Wants) -> bool {
        let missed = std::mem::take(self.missed.get_mut());
        let any = !missed.is_empty();
        missed.into_iter().for_each(|missed| wants.add(missed));
        any
    }

    fn miss(&self, missed: Missed) {
        self.missed.borrow_mut().push(missed);
    }

    pub(super) fn table(&mut self, bucket: u8) -> PageLockTable<'_> {
        PageLockTable { page: self, bucket }
    }
}

/// One bucket on a page.
pub(super) struct PageLockTable<'a> {
    page: &'a mut Page,
    bucket: u8,
}

impl PageLockTable<'_> {
    /// Reads from a line; anything will do if it is not on the page.
    fn of_line<T: Default>(
        &self,
        name: &LockName,
        read: impl FnOnce(&WaitingLine) -> Result<T, Unknown>,
        missed: impl FnOnce(LockName) -> Missed,
    ) -> T {
        let line = self.page.locks.get(name).map(|leaf| &leaf.line);
        match line.map(read) {
            Some(Ok(value)) => value,
            Some(Err(Unknown)) | None => {
                self.page.miss(missed(name.clone()));
                T::default()
            }
        }
    }
}

impl LockTable for PageLockTable<'_> {
    fn last(&self) -> u64 {
        self.page.lasts.get(&self.bucket).copied().unwrap_or(0)
    }

    fn set_last(&mut self, last: u64) {
        self.page.lasts.insert(self.bucket, last);
    }

    fn hold(&self, name: &LockName) -> Option<Hold> {
        self.page.locks.get(name)?.hold.clone()
    }

    fn put_hold(&mut self, name: &LockName, hold: Hold) {
        self.page.locks.entry(name.clone()).or_default().hold = Some(hold);
    }

    fn remove_hold(&mut self, name: &LockName) {
        self.page.locks.entry(name.clone()).or_default().hold = None;
    }

    fn first(&self, name: &LockName) -> Option<(Place, Waiter)> {
        self.of_line(name, |line| line.first(|_| true), Missed::Heads)
    }

    fn first_exclusive(&self, name: &LockName) -> Option<(Place, Waiter)> {
        self.of_line(name, |line| line.first(|place| !place.is_shared()), Missed::Heads)
    }

    fn place_of(&self, name: &LockName, request: Request) -> Option<Place> {
        self.of_line(name, |line| line.place_of(request), |name| Missed::Place(name, request))
    }

    fn is_taken(&self, name: &LockName, place: Place) -> bool {
        self.of_line(name, |line| line.is_taken(place), |name| Missed::Taken(name, place))
    }

    fn push(&mut self, name: &LockName, place: Place, waiter: Waiter) {
        self.page.locks.entry(name.clone()).or_default().line.push(place, waiter);
    }

    fn remove(&mut self, name: &LockName, place: Place) {
        self.page.locks.entry(name.clone()).or_default().line.remove(place);
    }

    fn waiters(&self, name: &LockName) -> u32 {
        self.page.locks.get(name).map_or(0, |leaf| leaf.line.len())
    }

    fn ahead(&self, name: &LockName, place: Place) -> u32 {
        self.of_line(name, |line| line.ahead(place), |name| Missed::Taken(name, place))
    }

    fn life(&self, client: ClientId) -> Option<Session> {
        match self.page.lives.get(&(self.bucket, client)) {
            Some(life) => *life,
            None => {
                self.page.miss(Missed::Life(self.bucket, client));
                None
            }
        }
    }

    fn put_life(&mut self, client: ClientId, life: Session) {
        self.page.lives.insert((self.bucket, client), Some(life));
    }

    fn is_void(&self, request: Request, now_us: u64) -> bool {
        match self.page.voids.get(&(self.bucket, request)) {
            Some(until_us) => until_us.is_some_and(|until_us| now_us < until_us),
            None => {
                self.page.miss(Missed::Void(self.bucket, request));
                false
            }
        }
    }

    fn put_void(&mut self, request: Request, until_us: u64, _now_us: u64) {
        self.page.voids.insert((self.bucket, request), Some(until_us));
    }
}
