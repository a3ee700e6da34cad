//! Hash tables that grow without a pause, and an index of numbers that stores no copy of the indexed values.
//!
//! A table consists of shards that grow one at a time: doubling one table of ten million entries would stop the writer for
//! half a second. The index stores each number with half of the hash of its value. A lookup compares with the value
//! itself, so equal hashes confuse nothing. Growth reads only the stored tags, not the values.

use hashbrown::HashTable;

const SHARDS: usize = 256;
/// A part of a table gives memory back once it could hold so many times its entries.
const SHRUNK_AT: usize = 4;

/// A hash table in [`SHARDS`] parts. Allocates nothing before the first entry.
pub(crate) struct Sharded<T> {
    shards: Vec<HashTable<T>>,
}

impl<T> Sharded<T> {
    pub(crate) const fn new() -> Self {
        Self { shards: Vec::new() }
    }

    // `HashTable` uses the low and the top bits of the hash, so the shard comes from the middle.
    fn shard(hash: u64) -> usize {
        (hash >> 32) as usize % SHARDS
    }

    pub(crate) fn find(&self, hash: u64, equals: impl FnMut(&T) -> bool) -> Option<&T> {
        self.shards.get(Self::shard(hash))?.find(hash, equals)
    }

    /// Returns the entries of one part of the table; `None` behind the last part. A walk that goes part by part meets every entry
    /// that is there all the time.
    pub(crate) fn part(&self, part: usize) -> Option<impl Iterator<Item = &T>> {
        self.shards.get(part).map(HashTable::iter)
    }

    /// Gives memory back that entries took which were removed.
    pub(crate) fn shrink(&mut self, hasher: impl Fn(&T) -> u64) {
        for shard in &mut self.shards {
            if SHRUNK_AT * shard.len() < shard.capacity() {
                shard.shrink_to(2 * shard.len(), &hasher);
            }
        }
    }

    /// Adds an entry. The caller knows that it is absent.
    pub(crate) fn insert(&mut self, hash: u64, value: T, hasher: impl Fn(&T) -> u64) {
        if self.shards.is_empty() {
            self.shards.resize_with(SHARDS, HashTable::new);
        }
        self.shards[Self::shard(hash)].insert_unique(hash, value, hasher);
    }

    /// Removes all entries that `is` recognises. Looks at every entry.
    pub(crate) fn remove_all(&mut self, is: impl Fn(&T) -> bool) {
        self.shards.iter_mut().for_each(|shard| shard.retain(|entry| !is(entry)));
    }

    /// Removes the entry that `equals` recognises.
    pub(crate) fn remove(&mut self, hash: u64, equals: impl FnMut(&T) -> bool) {
        if let Some(shard) = self.shards.get_mut(Self::shard(hash))
            && let Ok(entry) = shard.find_entry(hash, equals)
        {
            entry.remove();
        }
    }
}

/// A number in the index, with its tag.
#[derive(Clone, Copy)]
struct IndexSlot {
    tag: u32,
    number: u32,
}

/// Spreads a tag over 64 bits. The result depends on nothing but the tag.
const fn spread(tag: u32) -> u64 {
    (tag as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Numbers by the tags of their values: 9 bytes each at 7/16 to 7/8 load.
pub(crate) struct NumberIndex {
    places: Sharded<IndexSlot>,
}

impl NumberIndex {
    pub(crate) const fn new() -> Self {
        Self { places: Sharded::new() }
    }

    /// Finds the number with this tag that `is` recognises.
    pub(crate) fn find(&self, tag: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let same = |place: &IndexSlot| place.tag == tag && is(place.number);
        self.places.find(spread(tag), same).map(|place| place.number)
    }

    /// Adds a number that is not in the index.
    pub(crate) fn insert(&mut self, tag: u32, number: u32) {
        self.places.insert(spread(tag), IndexSlot { tag, number }, |place| spread(place.tag));
    }

    /// Removes a number; does nothing if it is absent.
    pub(crate) fn remove(&mut self, tag: u32, number: u32) {
        self.places.remove(spread(tag), |place| place.number == number);
    }
}

#[cfg(test)]
impl NumberIndex {
    /// Bytes on the heap.
    pub(crate) fn bytes(&self) -> usize {
        let shards = &self.places.shards;
        shards.capacity() * size_of::<HashTable<IndexSlot>>()
            + shards.iter().map(HashTable::allocation_size).sum::<usize>()
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
    fn places_spread_over_all_shards_and_can_be_taken_out() {
        let mut places = NumberIndex::new();
        for number in 0..25_600_u32 {
            places.insert(number.wrapping_mul(0x85eb_ca6b), number);
        }
        for shard in &places.places.shards {
            assert!((50..200).contains(&shard.len()), "{} of 25 600 places in one of 256 shards", shard.len());
        }
        for number in (0..25_600_u32).step_by(2) {
            places.remove(number.wrapping_mul(0x85eb_ca6b), number);
        }
        for number in 0..25_600_u32 {
            let found = places.find(number.wrapping_mul(0x85eb_ca6b), |known| known == number);
            assert_eq!(found, (number % 2 == 1).then_some(number));
        }
        places.remove(7, 25_601);
    }
}
