//! The chain of hashes over what operators did, in the log.
//!
//! # Promises
//! - Each entry in the log bears its number in the process, and the hash of itself and of the one before it. An entry that was
//!   changed, moved or left out does not fit the next one.
//!
//! # Not promised
//! - An end that was cut off, or a process that was left out whole, leaves no trace here. Keep the log where the service cannot
//!   write, or note the last hash elsewhere.

use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// The target of these entries in the log.
pub const AUDIT_TARGET: &str = "firstcome::audit";

/// A hash in a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AuditHash([u8; 32]);

impl AuditHash {
    /// Returns the hash of the entry with this number and these texts, after the entry with this hash; the first one comes
    /// after the default. The source of the format: SHA-256 over the earlier hash, the number as eight bytes with the highest
    /// first, and each text with its length in bytes before it, as a number is.
    #[must_use]
    pub fn next(self, number: u64, texts: &[&str]) -> Self {
        let mut hash = Sha256::new().chain_update(self.0).chain_update(number.to_be_bytes());
        for text in texts {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        Self(hash.finalize().into())
    }
}

impl FromStr for AuditHash {
    type Err = NoHash;

    fn from_str(text: &str) -> Result<Self, NoHash> {
        let mut hash = [0; 32];
        let digits = text.as_bytes();
        if digits.len() != 2 * hash.len() {
            return Err(NoHash);
        }
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| NoHash)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| NoHash)?;
        }
        Ok(Self(hash))
    }
}

/// A text that is no hash.
#[derive(Debug)]
pub struct NoHash;

impl fmt::Display for AuditHash {
    /// As 64 hexadecimal digits in lower case.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The fields of an entry that its hash covers, in their order, as they are named in the log.
pub const AUDIT_FIELDS: [&str; 9] =
    ["process", "at", "role", "session", "address", "action", "object", "change", "answer"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_depends_on_every_text_its_place_and_all_before_it() {
        let first = AuditHash::default().next(1, &["a", "b"]);
        let others = [
            AuditHash::default().next(2, &["a", "b"]),
            AuditHash::default().next(1, &["b", "a"]),
            AuditHash::default().next(1, &["ab", ""]),
            AuditHash::default().next(1, &["a", "b", ""]),
            first.next(1, &["a", "b"]),
        ];
        assert!(others.iter().all(|other| *other != first), "{first}");
        assert_eq!(first.to_string().parse::<AuditHash>().ok(), Some(first));
        assert!("ab".parse::<AuditHash>().is_err() && "x".repeat(64).parse::<AuditHash>().is_err());
    }
}
