//! Remembers the claims of one coupon: compact, exact, and without a pause when it grows.
//!
//! A claim costs its user's bytes, 12 bytes beside them, and 9 bytes of index at 7/16 to 7/8 load. Texts lie one behind the
//! other in segments of 4 096 claims, so growth never copies existing texts. The index stores serials with half of their
//! user's hash. A lookup compares with the text itself, so equal hashes confuse no users. Growth does not read the texts
//! again. The index consists of shards that grow one at a time: doubling one table of ten million entries would stop the
//! writer for half a second.

use super::Serial;
use crate::id::{RequestId, UserId};
use crate::index::{NumberIndex, Sharded};
use crate::time::Timestamp;
use std::hash::{BuildHasher, RandomState};

const SEGMENT_CLAIMS: usize = 4_096;

/// 32 bytes: the key is stored in halves, because a `u128` would align the entry to 48 bytes.
struct Entry {
    key: [u64; 2],
    body: u64,
    serial: Serial,
}

/// The idempotency keys of a coupon, with the effect of each request.
pub(super) struct Keys {
    entries: Sharded<Entry>,
}

impl Keys {
    pub(super) const fn new() -> Self {
        Self { entries: Sharded::new() }
    }

    const fn halves(key: u128) -> [u64; 2] {
        [(key >> 64) as u64, key as u64]
    }

    /// Returns the body and the effect of the request with this key.
    pub(super) fn find(&self, key: u128) -> Option<(u64, Serial)> {
        let key = Self::halves(key);
        // The key is a digest already, so its own bits serve as its hash.
        let entry = self.entries.find(key[0], |entry| entry.key == key)?;
        Some((entry.body, entry.serial))
    }

    /// Forgets a key, if it is known.
    pub(super) fn remove(&mut self, key: u128) {
        let key = Self::halves(key);
        self.entries.remove(key[0], |entry| entry.key == key);
    }

    /// Forgets all keys of a claim. Looks at every key: about 10 ms per million.
    pub(super) fn remove_of(&mut self, serial: Serial) {
        self.entries.remove_all(|entry| entry.serial == serial);
    }

    /// Returns the keys of one part, with their effects; `None` behind the last part.
    pub(super) fn part(&self, part: usize) -> Option<impl Iterator<Item = (u128, Serial)>> {
        let key = |entry: &Entry| u128::from(entry.key[0]) << 64 | u128::from(entry.key[1]);
        Some(self.entries.part(part)?.map(move |entry| (key(entry), entry.serial)))
    }

    /// Gives memory back that forgotten keys took.
    pub(super) fn shrink(&mut self) {
        self.entries.shrink(|entry| entry.key[0]);
    }

    /// Remembers a key. Returns false, and changes nothing, if it is known.
    pub(super) fn insert(&mut self, request: RequestId, serial: Serial) -> bool {
        if self.find(request.key).is_some() {
            return false;
        }
        let entry = Entry { key: Self::halves(request.key), body: request.body, serial };
        self.entries.insert(entry.key[0], entry, |entry| entry.key[0]);
        true
    }
}

#[derive(Default)]
struct Segment {
    users: String,
    ends: Vec<u32>,
    issued_at: Vec<Timestamp>,
}

impl Segment {
    fn user(&self, at: usize) -> &str {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.users[start..self.ends[at] as usize]
    }
}

/// Users and instants by serial, and serials by user.
pub(super) struct Book {
    hasher: RandomState,
    segments: Vec<Segment>,
    issued: u32,
    index: NumberIndex,
}

impl Book {
    /// Makes an empty book. `hasher` carries a secret seed, so that a caller cannot choose user names that collide.
    pub(super) const fn new(hasher: RandomState) -> Self {
        Self { hasher, segments: Vec::new(), issued: 0, index: NumberIndex::new() }
    }

    /// Makes a book of claims that are not kept: it knows only how many there were.
    pub(super) const fn of_purged(hasher: RandomState, issued: u32) -> Self {
        Self { hasher, segments: Vec::new(), issued, index: NumberIndex::new() }
    }

    /// Returns a book without claims for the same users.
    pub(super) fn emptied(&self) -> Self {
        Self::of_purged(self.hasher.clone(), self.issued)
    }

    pub(super) const fn issued(&self) -> u32 {
        self.issued
    }

    fn slot(serial: Serial) -> (usize, usize) {
        let index = serial.0 as usize - 1;
        (index / SEGMENT_CLAIMS, index % SEGMENT_CLAIMS)
    }

    /// Returns the user of a serial. The serial must be one of `1..=issued`.
    pub(super) fn user(&self, serial: Serial) -> &str {
        let (segment, at) = Self::slot(serial);
        self.segments[segment].user(at)
    }

    /// Returns the instant of a serial. The serial must be one of `1..=issued`.
    pub(super) fn issued_at(&self, serial: Serial) -> Timestamp {
        let (segment, at) = Self::slot(serial);
        self.segments[segment].issued_at[at]
    }

    pub(super) fn find(&self, user: &str) -> Option<Serial> {
        self.find_tagged(self.tag(user), user)
    }

    /// Finds a user by its name and its tag.
    pub(super) fn find_tagged(&self, tag: u32, user: &str) -> Option<Serial> {
        let is_user = |serial: u32| self.user(Serial(serial)) == user;
        self.index.find(tag, is_user).map(Serial)
    }

    /// Returns half of the hash of a name. A caller that finds and then appends draws it once.
    pub(super) fn tag(&self, user: &str) -> u32 {
        self.hasher.hash_one(user) as u32
    }

    /// Appends the next claim. The caller has made sure that the user is not in the book.
    pub(super) fn append(&mut self, user: &UserId, issued_at: Timestamp) -> Serial {
        let tag = self.tag(user.as_str());
        self.append_tagged(tag, user, issued_at)
    }

    /// Appends as [`Self::append`] does, with the tag of the user.
    pub(super) fn append_tagged(&mut self, tag: u32, user: &UserId, issued_at: Timestamp) -> Serial {
        let serial = Serial(self.issued + 1);
        let (segment, _) = Self::slot(serial);
        if segment == self.segments.len() {
            self.segments.push(Segment::default());
        }
        let page = &mut self.segments[segment];
        page.users.push_str(user.as_str());
        page.ends.push(page.users.len() as u32);
        page.issued_at.push(issued_at);
        self.issued = serial.0;
        self.index.insert(tag, serial.0);
        serial
    }

    /// Gives a claim another user. The caller has made sure that the user is not in the book.
    pub(super) fn rename(&mut self, serial: Serial, user: &UserId) {
        let (before, after) = (self.tag(self.user(serial)), self.tag(user.as_str()));
        self.index.remove(before, serial.0);
        let (segment, at) = Self::slot(serial);
        let page = &mut self.segments[segment];
        let start = if at == 0 { 0 } else { page.ends[at - 1] as usize };
        let end = page.ends[at] as usize;
        page.users.replace_range(start..end, user.as_str());
        let longer = start + user.as_str().len();
        // A segment has at most 4 096 names of 128 bytes.
        page.ends[at..].iter_mut().for_each(|known| *known = (*known as usize + longer - end) as u32);
        self.index.insert(after, serial.0);
    }

    /// Removes the last claim.
    pub(super) fn remove_last(&mut self) {
        let Some(last) = Serial::new(self.issued) else { return };
        let tag = self.tag(self.user(last));
        self.index.remove(tag, last.0);
        let (segment, at) = Self::slot(last);
        let page = &mut self.segments[segment];
        let start = if at == 0 { 0 } else { page.ends[at - 1] as usize };
        page.users.truncate(start);
        page.ends.truncate(at);
        page.issued_at.truncate(at);
        self.issued -= 1;
        if at == 0 {
            self.segments.truncate(segment);
        }
    }
}
