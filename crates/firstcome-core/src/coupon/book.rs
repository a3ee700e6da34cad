//! What one coupon remembers of its claims: compact, exact, and without a pause when it grows.
//!
//! A claim costs its user's bytes, 12 bytes beside them, and 9 bytes of index at 7/16 to 7/8 load. Texts lie one
//! behind the other in segments of 4 096 claims, so that growth never copies what is there. The index holds serials
//! with half of their user's hash: a lookup compares with the text itself, so that no hash can confuse two users, and
//! growth need not read the texts again. It is split into shards that grow one at a time: doubling one table of ten
//! million entries would stop the writer for half a second.

use super::Serial;
use crate::id::{RequestId, UserId};
use crate::time::Timestamp;
use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};

const SEGMENT_CLAIMS: usize = 4_096;
const SHARDS: usize = 256;

/// A hash table in [`SHARDS`] parts, without memory until the first entry.
struct Sharded<T> {
    shards: Vec<HashTable<T>>,
}

impl<T> Sharded<T> {
    const fn new() -> Self {
        Self { shards: Vec::new() }
    }

    // The table below uses the low and the top bits of the hash: the shard takes some from the middle.
    fn shard(hash: u64) -> usize {
        (hash >> 32) as usize % SHARDS
    }

    fn find(&self, hash: u64, equals: impl FnMut(&T) -> bool) -> Option<&T> {
        self.shards.get(Self::shard(hash))?.find(hash, equals)
    }

    /// Adds what is known to be absent.
    fn insert(&mut self, hash: u64, value: T, hasher: impl Fn(&T) -> u64) {
        if self.shards.is_empty() {
            self.shards.resize_with(SHARDS, HashTable::new);
        }
        self.shards[Self::shard(hash)].insert_unique(hash, value, hasher);
    }
}

/// 32 bytes: the key is kept in halves, since a `u128` would align the entry to 48.
struct Entry {
    key: [u64; 2],
    body: u64,
    serial: Serial,
}

/// Which request had which effect, for as long as the effect is remembered.
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

    /// The body and the effect of the request that used this key.
    pub(super) fn find(&self, key: u128) -> Option<(u64, Serial)> {
        let key = Self::halves(key);
        // The key is a digest already: its own bits are its hash.
        let entry = self.entries.find(key[0], |entry| entry.key == key)?;
        Some((entry.body, entry.serial))
    }

    /// Remembers a key; false (and no change) if it is known.
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

/// A serial in the index.
#[derive(Clone, Copy)]
struct Place {
    tag: u32,
    serial: Serial,
}

impl Place {
    /// The hash under which a tag is kept: spread over all bits, and made of nothing but the tag.
    const fn hash(tag: u32) -> u64 {
        (tag as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Users and instants by serial, and serials by user.
pub(super) struct Book {
    hasher: RandomState,
    segments: Vec<Segment>,
    issued: u32,
    index: Sharded<Place>,
}

impl Book {
    /// An empty book. `hasher` carries a secret seed, so that nobody can choose users that collide.
    pub(super) const fn new(hasher: RandomState) -> Self {
        Self { hasher, segments: Vec::new(), issued: 0, index: Sharded::new() }
    }

    pub(super) const fn issued(&self) -> u32 {
        self.issued
    }

    fn slot(serial: Serial) -> (usize, usize) {
        let index = serial.0 as usize - 1;
        (index / SEGMENT_CLAIMS, index % SEGMENT_CLAIMS)
    }

    /// The user of a serial. The serial must be one of `1..=issued`.
    pub(super) fn user(&self, serial: Serial) -> &str {
        let (segment, at) = Self::slot(serial);
        self.segments[segment].user(at)
    }

    /// The instant of a serial. The serial must be one of `1..=issued`.
    pub(super) fn issued_at(&self, serial: Serial) -> Timestamp {
        let (segment, at) = Self::slot(serial);
        self.segments[segment].issued_at[at]
    }

    pub(super) fn find(&self, user: &str) -> Option<Serial> {
        let tag = self.tag(user);
        let is_user = |place: &Place| place.tag == tag && self.user(place.serial) == user;
        self.index.find(Place::hash(tag), is_user).map(|place| place.serial)
    }

    fn tag(&self, user: &str) -> u32 {
        self.hasher.hash_one(user) as u32
    }

    /// Writes the next claim. The caller has made sure that the user is not in the book.
    pub(super) fn append(&mut self, user: &UserId, issued_at: Timestamp) -> Serial {
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
        let tag = self.tag(user.as_str());
        self.index.insert(Place::hash(tag), Place { tag, serial }, |place| Place::hash(place.tag));
        serial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_spread_over_all_shards_so_that_none_grows_alone() {
        // Any odd multiplier spreads consecutive numbers over the middle bits.
        let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut table = Sharded::new();
        for number in 0..25_600 {
            table.insert(hash(number), number, |&number| hash(number));
        }
        assert_eq!(table.shards.len(), SHARDS);
        for shard in &table.shards {
            assert!((50..200).contains(&shard.len()), "{} of 25 600 entries in one of 256 shards", shard.len());
        }
        assert!((0..25_600).all(|number| table.find(hash(number), |&known| known == number).is_some()));
    }

    #[test]
    fn users_spread_over_all_shards() {
        #[expect(clippy::disallowed_methods, reason = "any seed must do")]
        let mut book = Book::new(RandomState::new());
        for number in 0..25_600 {
            let user = UserId::parse(&format!("user-{number}")).expect("a name");
            book.append(&user, Timestamp::MIN);
        }
        for shard in &book.index.shards {
            assert!((50..200).contains(&shard.len()), "{} of 25 600 users in one of 256 shards", shard.len());
        }
    }
}
