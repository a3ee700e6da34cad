//! A bounded cache of verified passes, in two generations. When the young generation is full, it replaces the old one,
//! whose entries are dropped. A use moves an entry to the young generation.

use super::{Grant, Signer};
use hashbrown::HashTable;
use std::sync::Arc;

/// The passes of one generation. With long names, both generations hold some 10 MB.
pub(super) const GENERATION_MAX: usize = 16_384;

struct Entry {
    digest: [u8; 32],
    signer: Signer,
    grant: Arc<Grant>,
}

/// Both generations, by the digest of the pass.
#[derive(Default)]
pub(super) struct Cache {
    young: HashTable<Entry>,
    old: HashTable<Entry>,
}

/// Hashes by eight bytes of the digest. Only passes that this service signed are stored, so no client can choose
/// buckets.
fn hash(digest: &[u8; 32]) -> u64 {
    let mut head = [0; 8];
    head.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(head)
}

impl Cache {
    /// Looks up a verified pass by its digest.
    pub(super) fn get(&mut self, digest: &[u8; 32]) -> Option<(Signer, Arc<Grant>)> {
        let same = |entry: &Entry| entry.digest == *digest;
        if let Some(entry) = self.young.find(hash(digest), same) {
            return Some((entry.signer, Arc::clone(&entry.grant)));
        }
        let (entry, _) = self.old.find_entry(hash(digest), same).ok()?.remove();
        let known = (entry.signer, Arc::clone(&entry.grant));
        self.push(entry);
        Some(known)
    }

    /// Stores a verified pass, and replaces any entry with the same digest.
    pub(super) fn put(&mut self, digest: [u8; 32], signer: Signer, grant: Arc<Grant>) {
        let same = |entry: &Entry| entry.digest == digest;
        for generation in [&mut self.young, &mut self.old] {
            if let Ok(found) = generation.find_entry(hash(&digest), same) {
                found.remove();
            }
        }
        self.push(Entry { digest, signer, grant });
    }

    fn push(&mut self, entry: Entry) {
        if GENERATION_MAX <= self.young.len() {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert_unique(hash(&entry.digest), entry, |entry| hash(&entry.digest));
    }

    /// The number of stored passes.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}
