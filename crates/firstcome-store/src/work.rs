//! Proof of work for joins: challenges that a service hands out, and recognizes without keeping them.
//!
//! A client gets a challenge and tries nonces until the SHA-256 of `challenge.nonce` begins with as many zero bits as the
//! service demands. With `n` bits this takes 2^n hashes on average. To check it takes one hash and one MAC.
//!
//! # What it promises
//! - Only this key makes a challenge, and a challenge is good for one room.
//! - A challenge says when it was made. Its reader decides for how long it counts.
//!
//! # What it does not promise
//! - That a solution is shown once: a reader must take the challenge for the name of the request.
//! - That the client itself has solved it. A solution can be bought, as any work can.

use crate::seal::{MAC_BYTES, Seal, chars, room};
use firstcome_core::id::RoomName;
use sha2::{Digest, Sha256};
use std::fmt;

/// The random bytes that make two challenges of one second differ.
pub const CHANCE_BYTES: usize = 10;
const HEAD_BYTES: usize = 4 + CHANCE_BYTES;
const BYTES: usize = HEAD_BYTES + MAC_BYTES;
const DOMAIN: &[u8] = b"firstcome join work 1\0";
/// The number of characters in each challenge. With a full stop and a nonce it fits into one block of SHA-256.
pub const CHALLENGE_CHARS: usize = chars(BYTES);
/// The most digits of a nonce.
pub const NONCE_DIGITS_MAX: usize = 14;

const _: () = assert!(CHALLENGE_CHARS + 1 + NONCE_DIGITS_MAX <= 55);

/// How many zero bits the hash of a solution begins with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WorkBits(u8);

impl WorkBits {
    /// The most that a service may demand: 67 million hashes on average, minutes on a phone.
    pub const MAX: u8 = 26;

    /// Makes a demand; `None` outside `1..=`[`Self::MAX`].
    ///
    /// ```
    /// use firstcome_store::work::WorkBits;
    ///
    /// assert_eq!(WorkBits::new(18).unwrap().hashes(), 262_144);
    /// assert!(WorkBits::new(0).is_none() && WorkBits::new(27).is_none());
    /// ```
    pub const fn new(bits: u8) -> Option<Self> {
        if 1 <= bits && bits <= Self::MAX { Some(Self(bits)) } else { None }
    }

    /// Returns the number of bits.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns how many hashes a solution takes on average.
    pub const fn hashes(self) -> u64 {
        1 << self.0
    }
}

/// The secret that makes challenges. All nodes that accept each other's challenges have the same.
#[derive(Clone)]
pub struct WorkKey {
    seal: Seal,
}

impl fmt::Debug for WorkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkKey(secret)")
    }
}

impl WorkKey {
    /// Makes a key from 32 secret random bytes.
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self { seal: Seal::new(bytes, DOMAIN) }
    }

    /// Makes a challenge for a room. `made_s` is the instant in seconds since 1970, `chance` must be random. Costs one MAC.
    ///
    /// ```
    /// use firstcome_store::core::id::RoomName;
    /// use firstcome_store::work::{WorkBits, WorkKey, is_solved, solve};
    ///
    /// let (key, room) = (WorkKey::new(&[7; 32]), RoomName::parse("sale").unwrap());
    /// let challenge = key.challenge(&room, 1_893_456_000, [1; 10]);
    /// let bits = WorkBits::new(8).unwrap();
    /// let solution = solve(&challenge, bits);
    /// assert!(is_solved(&solution, bits));
    /// assert_eq!(key.made_s(&room, &challenge), Some(1_893_456_000));
    /// ```
    pub fn challenge(&self, room: &RoomName, made_s: u32, chance: [u8; CHANCE_BYTES]) -> String {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&made_s.to_be_bytes());
        head[4..].copy_from_slice(&chance);
        self.seal.seal(&head, &[], room.as_str().as_bytes())
    }

    /// Returns when this key made the challenge; `None` if it made no such challenge for this room. Costs one MAC.
    pub fn made_s(&self, room: &RoomName, challenge: &str) -> Option<u32> {
        if challenge.len() != CHALLENGE_CHARS {
            return None;
        }
        let head = self.seal.open::<HEAD_BYTES, { self::room(BYTES) }>(challenge, room.as_str().as_bytes())?;
        let (made_s, _) = head.split_first_chunk::<4>()?;
        Some(u32::from_be_bytes(*made_s))
    }
}

/// Whether the hash of a text `challenge.nonce` begins with so many zero bits. Says nothing about the challenge. Costs one
/// hash.
pub fn is_solved(solution: &str, bits: WorkBits) -> bool {
    let digest = Sha256::digest(solution.as_bytes());
    let first = digest.iter().take(4).fold(0, |word, byte| word << 8 | u32::from(*byte));
    u32::from(bits.get()) <= first.leading_zeros()
}

/// Finds a solution: the text `challenge.nonce` that a join shows. Takes [`WorkBits::hashes`] hashes on average, on this
/// thread: a program with an asynchronous runtime calls it on a thread of its own.
pub fn solve(challenge: &str, bits: WorkBits) -> String {
    let mut nonce = 0_u64;
    loop {
        let solution = format!("{challenge}.{nonce}");
        if is_solved(&solution, bits) {
            return solution;
        }
        nonce += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> RoomName {
        RoomName::parse(text).unwrap()
    }

    #[test]
    fn a_challenge_is_good_for_its_key_and_its_room() {
        let (key, sale) = (WorkKey::new(&[1; 32]), name("sale"));
        let challenge = key.challenge(&sale, 1_893_456_000, [3; CHANCE_BYTES]);
        assert_eq!(challenge.len(), CHALLENGE_CHARS);
        assert_eq!(key.made_s(&sale, &challenge), Some(1_893_456_000));
        assert_eq!(key.made_s(&name("sales"), &challenge), None);
        assert_eq!(WorkKey::new(&[2; 32]).made_s(&sale, &challenge), None);
        assert_ne!(challenge, key.challenge(&sale, 1_893_456_000, [4; CHANCE_BYTES]));
        for at in 0..challenge.len() {
            let mut wrong = challenge.clone().into_bytes();
            wrong[at] = if wrong[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(key.made_s(&sale, &String::from_utf8(wrong).unwrap()), None, "character {at}");
            assert_eq!(key.made_s(&sale, &challenge[..at]), None, "{at} characters");
        }
        for longer in [format!("{challenge}A"), format!("{challenge}AAAA"), format!("{challenge}=")] {
            assert_eq!(key.made_s(&sale, &longer), None, "{longer}");
        }
    }

    #[test]
    fn a_solution_has_the_bits_that_it_was_made_for() {
        for bits in 1..=12 {
            let bits = WorkBits::new(bits).unwrap();
            let solution = solve("a challenge", bits);
            let hash = Sha256::digest(solution.as_bytes());
            let zeros = hash.iter().take_while(|byte| **byte == 0).count() as u32 * 8;
            let rest = hash.iter().find(|byte| **byte != 0).map_or(0, |byte| byte.leading_zeros());
            assert!(u32::from(bits.get()) <= zeros + rest, "{solution}");
        }
    }

    #[test]
    fn the_bits_of_a_known_hash_are_counted_from_its_beginning() {
        // As `printf zero.107 | sha256sum` prints it: 01… begins with seven zero bits.
        let bits = |bits| WorkBits::new(bits).unwrap();
        assert!(is_solved("zero.107", bits(7)) && !is_solved("zero.107", bits(8)));
        assert!(!is_solved("abc", bits(1)), "ba…");
    }
}
