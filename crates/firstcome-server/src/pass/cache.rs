//! A bounded memory of passes that were verified, in two generations: when the young one is full it becomes the old
//! one, and the old one before it is forgotten. What is used again moves to the young one.

use super::{Grant, Signer};
use hashbrown::HashTable;
use std::sync::Arc;

/// Passes of one generation. Both together hold some 10 MB when names are long.
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

/// Eight bytes of the digest. Only passes that we signed come in, so no client can choose where they go.
fn hash(digest: &[u8; 32]) -> u64 {
    let mut head = [0; 8];
    head.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(head)
}

impl Cache {
    /// What is known of the pass with this digest.
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

    /// Remembers a pass, instead of what was known of it.
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

    /// How many passes are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}
