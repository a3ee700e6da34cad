//! The draw of a room: gives each visitor who joined before the opening a random place among them.
//!
//! # Commit and reveal
//! A room that is made has a secret seed. It publishes the SHA-256 of the seed ([`DrawSeed::commitment`]) from then on. At
//! the opening one change fixes which numbers take part and reveals the seed ([`Draw`]). From then on anyone can compute each
//! place, and check that the seed is the one of the commitment.
//!
//! # The permutation
//! The places are a keyed pseudo-random permutation of the numbers that take part ([`Permutation`]), so the draw of a million
//! visitors is one write, and a place costs a few table look-ups. The algorithm has the name [`ALGORITHM`]:
//!
//! - FE1, the Feistel network over a rectangle, of Bellare, Ristenpart, Rogaway and Stegers, *Format-Preserving Encryption*
//!   (SAC 2009), with cycle-walking after Black and Rogaway, *Ciphers with Arbitrary Finite Domains* (CT-RSA 2002). Ten
//!   rounds, as FF1 of NIST SP 800-38G has.
//! - The rectangle has `a = ceil(sqrt(n))` columns and `b = ceil(n / a)` rows. An index `x` is `a * right + left`. An odd round
//!   replaces `(left, right)` by `(right, (left + f(round, right)) mod a)`, an even round by the same `mod b`. A result of
//!   `n` or more goes through the rounds again.
//! - `f(round, right)` is the first 8 bytes, big-endian, of HMAC-SHA-256 under the seed over `"firstcome draw 1\0"`, then the
//!   first number and `n` (4 bytes each, big-endian), the round (1 byte, from 1), and `right` (4 bytes, big-endian).

use super::{Change, Rejection, Room, RoomOrder, RoomSettings};
use crate::limits::ROOM_NUMBER_MAX;
use crate::time::{Now, Timestamp};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::fmt;

/// The name of the algorithm in published records.
pub const ALGORITHM: &str = "firstcome-draw-1";

const ROUNDS: usize = 10;
const DOMAIN: &[u8] = b"firstcome draw 1\0";
const SEED_DOMAIN: &[u8] = b"firstcome draw seed 1\0";

/// The SHA-256 of a seed, published before the draw.
pub type Commitment = [u8; 32];

fn mac_of(key: &[u8; 32]) -> Hmac<Sha256> {
    // HMAC pads a key with zeros to the block of its hash.
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    Hmac::<Sha256>::new(&block.into())
}

/// The secret from which the seeds of a room are made. It must not be known to entrants.
#[derive(Clone)]
pub struct DrawKey([u8; 32]);

impl fmt::Debug for DrawKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DrawKey(secret)")
    }
}

impl DrawKey {
    /// Makes a key from 32 secret random bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret bytes.
    pub(super) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the seed of the draw among the numbers from `first` on. A room that was closed goes on with other numbers, so it
    /// has another seed.
    pub fn seed(&self, first: u32) -> DrawSeed {
        let mut mac = mac_of(&self.0);
        mac.update(SEED_DOMAIN);
        mac.update(&first.to_be_bytes());
        DrawSeed(mac.finalize().into_bytes().into())
    }
}

/// The seed of one draw. Secret until the draw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DrawSeed([u8; 32]);

impl DrawSeed {
    /// Makes a seed from its bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the SHA-256 of the seed.
    pub fn commitment(&self) -> Commitment {
        Sha256::digest(self.0).into()
    }
}

/// A draw that took place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draw {
    /// The revealed seed.
    pub seed: DrawSeed,
    /// The first number that took part.
    pub first: u32,
    /// How many numbers took part: those from [`Self::first`] on. Numbers whose visitors left before the draw count.
    pub entrants: u32,
    /// When it took place, by the wall clock.
    pub drawn_at: Timestamp,
}

impl Draw {
    /// Returns the number after the last one that took part.
    pub const fn end(&self) -> u32 {
        self.first.saturating_add(self.entrants)
    }

    /// Returns whether the values are within their ranges.
    pub const fn is_sound(&self) -> bool {
        self.first != 0 && (self.first as u64 + self.entrants as u64) <= ROOM_NUMBER_MAX as u64 + 1
    }

    /// Returns the permutation of the numbers that took part.
    pub fn permutation(&self) -> Permutation {
        Permutation::new(&self.seed, self.first, self.entrants)
    }

    /// Returns the order of service.
    pub fn turns(&self) -> Turns {
        Turns { permutation: self.permutation(), first: self.first }
    }
}

/// The order of service after a draw: which number has which turn. A number that took no part is its own turn.
#[derive(Debug)]
pub struct Turns {
    permutation: Permutation,
    /// The first number that took part, and the first turn.
    first: u32,
}

impl Turns {
    /// Returns the first number that took part.
    pub const fn first(&self) -> u32 {
        self.first
    }

    /// Returns the number after the last one that took part.
    pub const fn end(&self) -> u32 {
        self.first + self.permutation.size()
    }

    /// Returns whether a number took part.
    pub const fn has(&self, number: u32) -> bool {
        self.first <= number && number < self.end()
    }

    /// Returns the turn of a number.
    pub fn turn(&self, number: u32) -> u32 {
        if self.has(number) { self.first + self.permutation.place(number - self.first) } else { number }
    }

    /// Returns the bytes of the tables.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.permutation.bytes()
    }

    /// Returns the number that has a turn.
    pub fn number(&self, turn: u32) -> u32 {
        if self.has(turn) { self.first + self.permutation.index(turn - self.first) } else { turn }
    }
}

/// What a room publishes of its draw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DrawView {
    /// The SHA-256 of the seed.
    pub commitment: Commitment,
    /// The draw, once it took place.
    pub draw: Option<Draw>,
}

/// A keyed pseudo-random permutation of `0..size`: see the [module](self).
///
/// Takes about `20 * sqrt(size)` bytes and `10 * sqrt(size)` HMACs to make. A place takes ten look-ups, seldom twenty.
pub struct Permutation {
    size: u32,
    columns: u32,
    /// The values of odd rounds by row, below `columns`, and of even rounds by column, below the number of rows.
    odd: [Vec<u16>; ROUNDS / 2],
    even: [Vec<u16>; ROUNDS / 2],
    rows: u32,
}

crate::debug_by_name!(Permutation);

impl Permutation {
    /// Makes the permutation of `size` numbers from `first` on.
    pub fn new(seed: &DrawSeed, first: u32, size: u32) -> Self {
        let columns = columns_of(size);
        let rows = size.div_ceil(columns).max(1);
        let mut keyed = mac_of(&seed.0);
        keyed.update(DOMAIN);
        keyed.update(&first.to_be_bytes());
        keyed.update(&size.to_be_bytes());
        let table = |round: usize, inputs: u32, modulus: u32| {
            let value = |right: u32| {
                let mut mac = keyed.clone();
                mac.update(&[round as u8]);
                mac.update(&right.to_be_bytes());
                let bytes: [u8; 32] = mac.finalize().into_bytes().into();
                let head = bytes.first_chunk().map_or(0, |head| u64::from_be_bytes(*head));
                // Both moduli are at most 2^16, so each value fits.
                (head % u64::from(modulus)) as u16
            };
            (0..inputs).map(value).collect()
        };
        Self {
            size,
            columns,
            odd: std::array::from_fn(|pair| table(2 * pair + 1, rows, columns)),
            even: std::array::from_fn(|pair| table(2 * pair + 2, columns, rows)),
            rows,
        }
    }

    /// Returns the size.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Returns the place of an index; both count from 0.
    ///
    /// # Panics
    /// If the index is not below the size.
    pub fn place(&self, index: u32) -> u32 {
        assert!(index < self.size, "an index below the size");
        let mut at = u64::from(index);
        loop {
            at = self.forward(at);
            if at < u64::from(self.size) {
                return at as u32;
            }
        }
    }

    /// Returns the index that has a place: the inverse of [`Self::place`].
    ///
    /// # Panics
    /// If the place is not below the size.
    pub fn index(&self, place: u32) -> u32 {
        assert!(place < self.size, "a place below the size");
        let mut at = u64::from(place);
        loop {
            at = self.backward(at);
            if at < u64::from(self.size) {
                return at as u32;
            }
        }
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.odd.iter().chain(&self.even).map(|table| table.capacity() * 2).sum()
    }

    fn forward(&self, at: u64) -> u64 {
        let (mut left, mut right) = self.split(at);
        for (odd, even) in self.odd.iter().zip(&self.even) {
            (left, right) = (right, sum(left, odd[right as usize], self.columns));
            (left, right) = (right, sum(left, even[right as usize], self.rows));
        }
        self.join(left, right)
    }

    fn backward(&self, at: u64) -> u64 {
        let (mut left, mut right) = self.split(at);
        for (odd, even) in self.odd.iter().zip(&self.even).rev() {
            (left, right) = (difference(right, even[left as usize], self.rows), left);
            (left, right) = (difference(right, odd[left as usize], self.columns), left);
        }
        self.join(left, right)
    }

    fn split(&self, at: u64) -> (u32, u32) {
        let columns = u64::from(self.columns);
        ((at % columns) as u32, (at / columns) as u32)
    }

    fn join(&self, left: u32, right: u32) -> u64 {
        u64::from(self.columns) * u64::from(right) + u64::from(left)
    }
}

/// Returns the square root of the size, rounded up; at least 1.
fn columns_of(size: u32) -> u32 {
    let root = size.isqrt();
    (root + u32::from(u64::from(root) * u64::from(root) < u64::from(size))).max(1)
}

fn sum(left: u32, value: u16, modulus: u32) -> u32 {
    let sum = left + u32::from(value);
    if sum < modulus { sum } else { sum - modulus }
}

fn difference(right: u32, value: u16, modulus: u32) -> u32 {
    let value = u32::from(value);
    if value <= right { right - value } else { right + modulus - value }
}

impl Room {
    /// Gives the room the key of its seeds. Without one, a room whose settings ask for a draw never opens.
    #[must_use]
    pub fn with_draw_key(mut self, key: DrawKey) -> Self {
        self.draw_key = Some(key);
        self
    }

    /// Returns what the room publishes of its draw; `None` if its settings ask for none and none took place.
    pub fn draw_view(&self) -> Option<DrawView> {
        if let Some(draw) = self.draw {
            return Some(DrawView { commitment: draw.seed.commitment(), draw: Some(draw) });
        }
        let key = self.draw_key.as_ref().filter(|_| self.settings.order == RoomOrder::Draw)?;
        Some(DrawView { commitment: key.seed(self.line.first()).commitment(), draw: None })
    }

    /// Returns the draw, once it took place.
    pub const fn past_draw(&self) -> Option<&Draw> {
        self.draw.as_ref()
    }

    /// Returns a number's turn in the order of service: its place after a draw in which it took part, else the number itself.
    pub fn turn(&self, number: u32) -> u32 {
        self.line.turn(number)
    }

    /// Returns whether visitors in line have no place yet, because the draw has not taken place.
    pub(super) fn is_before_draw(&self) -> bool {
        self.settings.order == RoomOrder::Draw && self.draw.is_none() && !self.closed
    }

    /// Returns whether new settings may replace those in force now.
    ///
    /// Refused: another order while a ticket is in line or has a slot, and a further opening with a draw after a draw. Otherwise
    /// an operator, who can know the seed, could look at the outcome and then choose another one. Closing the room ends its
    /// draw.
    pub fn judge_settings(&self, settings: &RoomSettings, now: Now) -> Result<(), Rejection> {
        if self.closed {
            return Ok(());
        }
        let in_force = (self.settings.order, self.settings.opens_at);
        let changes_order = settings.order != self.settings.order && !self.is_idle();
        let opens_later = settings.opens_at.is_some_and(|opens_at| now.wall < opens_at);
        let draws_again = settings.order == RoomOrder::Draw
            && self.draw.is_some()
            && opens_later
            && (settings.order, settings.opens_at) != in_force;
        if changes_order || draws_again { Err(Rejection::DrawFixed) } else { Ok(()) }
    }

    /// Draws the places, if the room has opened and they are not drawn yet. All numbers that were drawn until now take part, so
    /// the caller calls it before it draws another number.
    pub(super) fn draw_if_due(&mut self, now: Now, changes: &mut Vec<Change>) {
        if !self.is_before_draw() || self.settings.opens_at.is_some_and(|opens_at| now.wall < opens_at) {
            return;
        }
        // Without a key the room stays before its draw, and admits no visitor.
        let Some(key) = &self.draw_key else { return };
        // No visitor was admitted since the settings ask for a draw, so all numbers in line are from here on.
        let first = self.line.reached();
        let entrants = self.line.next() - first;
        let draw = Draw { seed: key.seed(self.line.first()), first, entrants, drawn_at: now.wall };
        self.line.draw_lots(&draw);
        self.draw = Some(draw);
        changes.push(Change::Drawn(draw));
    }
}
