//! Signed tickets of waiting rooms, which no visitor can forge or guess from a number.
//!
//! A ticket is `number ‖ MAC ‖ user` in base64url without padding. The MAC is the first 128 bits of HMAC-SHA-256 over
//! number and user, under the room's own key. So a ticket of one room never fits another, and no bit of it can change.

use crate::receipt::HeadKey;
use crate::seal::{MAC_BYTES, Seal, room};
use firstcome_core::id::UserId;
use firstcome_core::limits::NAME_BYTES_MAX;
use firstcome_core::room::{DrawKey, TicketNumber};
use std::fmt;

const NUMBER_BYTES: usize = 4;
const ROOM: usize = room(NUMBER_BYTES + MAC_BYTES + NAME_BYTES_MAX);
const DOMAIN: &[u8] = b"firstcome ticket 1\0";
const DRAW_DOMAIN: &[u8] = b"firstcome draw key 1\0";
const HEAD_DOMAIN: &[u8] = b"firstcome head key 1\0";

/// The secret from which a room's tickets are made.
#[derive(Clone)]
pub struct TicketKey {
    bytes: [u8; 32],
    seal: Seal,
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey(secret)")
    }
}

impl TicketKey {
    /// Makes a key from 32 secret random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self { bytes, seal: Seal::new(&bytes, DOMAIN) }
    }

    /// The secret bytes. Store them where only the operator can read them.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// Returns the key of the room's draws. It says nothing of this key.
    pub fn draw_key(&self) -> DrawKey {
        DrawKey::new(Seal::new(&self.bytes, DRAW_DOMAIN).derived())
    }

    /// Returns the key that signs the room's heads. It says nothing of this key.
    pub fn head_key(&self) -> HeadKey {
        HeadKey::new(Seal::new(&self.bytes, HEAD_DOMAIN).derived())
    }

    /// Makes the ticket of a number, and of its user if it has one.
    pub fn ticket(&self, number: TicketNumber, user: Option<&str>) -> String {
        self.seal.seal(&number.get().to_be_bytes(), user.unwrap_or_default().as_bytes(), &[])
    }

    /// Returns the number of a ticket and its user, if it has one; `None` if this key did not make the ticket.
    pub fn open(&self, ticket: &str) -> Option<(TicketNumber, Option<UserId>)> {
        let number = self.number(ticket)?;
        let carried = self.seal.carried::<NUMBER_BYTES>(ticket)?;
        let user = String::from_utf8(carried).ok()?;
        Some((number, if user.is_empty() { None } else { Some(UserId::parse(&user).ok()?) }))
    }

    /// Returns the number of a ticket; `None` if this key did not make it. Takes the same time for every wrong ticket
    /// of its length.
    pub fn number(&self, ticket: &str) -> Option<TicketNumber> {
        let number = self.seal.open::<NUMBER_BYTES, ROOM>(ticket, &[])?;
        TicketNumber::new(u32::from_be_bytes(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::chars;

    const CHARS_MAX: usize = chars(ROOM);

    fn key(seed: u8) -> TicketKey {
        TicketKey::new([seed; 32])
    }

    #[test]
    fn a_ticket_leads_back_to_its_number_and_to_no_other_room() {
        let longest = "u".repeat(NAME_BYTES_MAX);
        for user in [None, Some("ann"), Some(longest.as_str())] {
            for number in [1, 2, 4_096, u32::MAX - 1] {
                let number = TicketNumber::new(number).unwrap();
                let ticket = key(1).ticket(number, user);
                assert!(ticket.len() <= CHARS_MAX);
                assert_eq!(key(1).number(&ticket), Some(number));
                assert_eq!(key(2).number(&ticket), None);
            }
        }
    }

    #[test]
    fn no_changed_ticket_is_one() {
        let ticket = key(1).ticket(TicketNumber::new(7).unwrap(), Some("ann"));
        for at in 0..ticket.len() {
            for other in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/ ." {
                let mut bytes = ticket.clone().into_bytes();
                if bytes[at] == *other {
                    continue;
                }
                bytes[at] = *other;
                let changed = String::from_utf8(bytes).unwrap();
                assert_eq!(key(1).number(&changed), None, "{changed}");
            }
            assert_eq!(key(1).number(&ticket[..at]), None);
        }
        for wrong in [format!("{ticket}A"), format!("{ticket}="), "A".repeat(CHARS_MAX + 1), "é".repeat(10)] {
            assert_eq!(key(1).number(&wrong), None);
        }
    }

    #[test]
    fn a_user_cannot_be_shifted_into_the_number_or_left_out() {
        let number = TicketNumber::new(7).unwrap();
        let with = key(1).ticket(number, Some("ann"));
        let without = key(1).ticket(number, None);
        assert_ne!(with[..27], without[..27], "the user is part of what is signed");
        assert_eq!(format!("{:?}", key(1)), "TicketKey(secret)");
    }
}
