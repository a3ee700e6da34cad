//! Signed tickets of waiting rooms, which no visitor can forge or guess from a number.
//!
//! A ticket is `number ‖ MAC ‖ user` in base64url without padding. The MAC is the first 128 bits of HMAC-SHA-256 over
//! number and user, under the room's own key. So a ticket of one room never fits another, and no bit of it can change.
//!
//! A ticket that came by a renewal is `0 ‖ number ‖ generation ‖ MAC ‖ user`, under a key of its own. No number is 0, so the first
//! bytes tell the two forms apart. Tickets of joins keep the form that they always had.

use crate::receipt::HeadKey;
use crate::seal::{MAC_BYTES, Seal, room};
use firstcome_core::id::UserId;
use firstcome_core::limits::NAME_BYTES_MAX;
use firstcome_core::room::{DrawKey, TicketId, TicketNumber};
use std::fmt;

const NUMBER_BYTES: usize = 4;
/// Zero, number and generation.
const RENEWED_BYTES: usize = 3 * NUMBER_BYTES;
const ROOM: usize = room(NUMBER_BYTES + MAC_BYTES + NAME_BYTES_MAX);
const RENEWED_ROOM: usize = room(RENEWED_BYTES + MAC_BYTES + NAME_BYTES_MAX);
const DOMAIN: &[u8] = b"firstcome ticket 1\0";
const RENEWED_DOMAIN: &[u8] = b"firstcome ticket 2\0";
const DRAW_DOMAIN: &[u8] = b"firstcome draw key 1\0";
const HEAD_DOMAIN: &[u8] = b"firstcome head key 1\0";

/// The secret from which a room's tickets are made.
#[derive(Clone)]
pub struct TicketKey {
    bytes: [u8; 32],
    seal: Seal,
    renewed: Seal,
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey(secret)")
    }
}

impl TicketKey {
    /// Makes a key from 32 secret random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self { bytes, seal: Seal::new(&bytes, DOMAIN), renewed: Seal::new(&bytes, RENEWED_DOMAIN) }
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

    /// Makes a ticket of a place, and of its user if it has one. A ticket names the same user in each generation.
    pub fn ticket(&self, id: TicketId, user: Option<&str>) -> String {
        let user = user.unwrap_or_default().as_bytes();
        let number = id.number.get().to_be_bytes();
        if id.generation == 0 {
            return self.seal.seal(&number, user, &[]);
        }
        let head = [[0; NUMBER_BYTES], number, id.generation.to_be_bytes()].concat();
        self.renewed.seal(&head, user, &[])
    }

    /// Returns what a ticket says, and its user, if it has one; `None` if this key did not make the ticket.
    pub fn open(&self, ticket: &str) -> Option<(TicketId, Option<UserId>)> {
        let id = self.id(ticket)?;
        let carried = if id.generation == 0 {
            self.seal.carried::<NUMBER_BYTES>(ticket)?
        } else {
            self.renewed.carried::<RENEWED_BYTES>(ticket)?
        };
        let user = String::from_utf8(carried).ok()?;
        Some((id, if user.is_empty() { None } else { Some(UserId::parse(&user).ok()?) }))
    }

    /// Returns what a ticket says; `None` if this key did not make it. Takes the same time for every wrong ticket of its length
    /// and form. Says nothing of whether the ticket was renewed: see
    /// [`Room::judge_ticket`](firstcome_core::room::Room::judge_ticket).
    pub fn id(&self, ticket: &str) -> Option<TicketId> {
        if !begins_with_zero(ticket) {
            let number = self.seal.open::<NUMBER_BYTES, ROOM>(ticket, &[])?;
            return TicketNumber::new(u32::from_be_bytes(number)).map(TicketId::first);
        }
        let head = self.renewed.open::<RENEWED_BYTES, RENEWED_ROOM>(ticket, &[])?;
        let (_, rest) = head.split_first_chunk::<NUMBER_BYTES>()?;
        let (number, rest) = rest.split_first_chunk::<NUMBER_BYTES>()?;
        let generation = u32::from_be_bytes(*rest.first_chunk()?);
        let number = TicketNumber::new(u32::from_be_bytes(*number))?;
        Some(TicketId { number, generation }).filter(|id| id.generation != 0)
    }
}

/// Whether the first 32 bits of a base64url text are 0: five letters `A`, and a sixth whose upper two bits are 0.
fn begins_with_zero(ticket: &str) -> bool {
    let text = ticket.as_bytes();
    text.starts_with(b"AAAAA") && matches!(text.get(5), Some(b'A'..=b'P'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::chars;

    const CHARS_MAX: usize = chars(RENEWED_ROOM);

    fn key(seed: u8) -> TicketKey {
        TicketKey::new([seed; 32])
    }

    #[test]
    fn a_ticket_leads_back_to_its_number_and_to_no_other_room() {
        let longest = "u".repeat(NAME_BYTES_MAX);
        for user in [None, Some("ann"), Some(longest.as_str())] {
            for number in [1, 2, 4_096, u32::MAX - 1] {
                let number = TicketNumber::new(number).unwrap();
                for generation in [0, 1, 255, u32::MAX] {
                    let id = TicketId { number, generation };
                    let ticket = key(1).ticket(id, user);
                    assert!(ticket.len() <= CHARS_MAX);
                    let named = user.map(|user| UserId::parse(user).unwrap());
                    assert_eq!(key(1).open(&ticket), Some((id, named)));
                    assert_eq!((key(1).id(&ticket), key(2).id(&ticket)), (Some(id), None));
                }
            }
        }
    }

    #[test]
    fn no_changed_ticket_is_one() {
        for generation in [0, 1] {
            check_changes(&key(1).ticket(TicketId { generation, ..seventh() }, Some("ann")));
        }
    }

    fn seventh() -> TicketId {
        TicketId::first(TicketNumber::new(7).unwrap())
    }

    fn check_changes(ticket: &str) {
        for at in 0..ticket.len() {
            for other in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/ ." {
                let mut bytes = ticket.to_owned().into_bytes();
                if bytes[at] == *other {
                    continue;
                }
                bytes[at] = *other;
                let changed = String::from_utf8(bytes).unwrap();
                assert_eq!(key(1).id(&changed), None, "{changed}");
            }
            assert_eq!(key(1).id(&ticket[..at]), None);
        }
        for wrong in [format!("{ticket}A"), format!("{ticket}="), "A".repeat(CHARS_MAX + 1), "é".repeat(10)] {
            assert_eq!(key(1).id(&wrong), None);
        }
    }

    #[test]
    fn a_user_cannot_be_shifted_into_the_number_or_left_out() {
        let with = key(1).ticket(seventh(), Some("ann"));
        let without = key(1).ticket(seventh(), None);
        assert_ne!(with[..27], without[..27], "the user is part of what is signed");
        assert_eq!(format!("{:?}", key(1)), "TicketKey(secret)");
    }

    #[test]
    fn tickets_of_joins_have_the_bytes_that_they_always_had() {
        assert_eq!(key(1).ticket(seventh(), Some("ann")), "AAAAB8VjqrRnZZvRWmFX0rHoxvlhbm4");
        let renewed = key(1).ticket(TicketId { generation: 1, ..seventh() }, Some("ann"));
        assert!(renewed.starts_with("AAAAAAAAAAcAAAAB"), "{renewed}");
    }
}
