//! Hand-off codes, which an admitted visitor carries from the page of a room to a site on another host.
//!
//! A code is `number ‖ generation ‖ end ‖ MAC ‖ user` in base64url without padding, under a key that is made from the room's
//! ticket key. The end is in milliseconds of Unix time. The site redeems the code: that renews the ticket of which the code was
//! made, so the place moves from the page to the site.
//!
//! # Invariants
//! - A code is no ticket, and a ticket is no code: each kind has a domain of its own.
//! - All codes of one ticket together are redeemed once, because the first redemption voids the ticket.
//! - A code ends with the slot of its visitor, and after [`HANDOFF_MS`] at the latest.

use crate::room::TicketAnswer;
use crate::seal::{MAC_BYTES, Seal, room};
use crate::ticket::TicketKey;
use firstcome_core::limits::{HANDOFF_MS, NAME_BYTES_MAX};
use firstcome_core::room::{Rejection, TicketId, TicketNumber, TicketState};
use firstcome_core::time::Timestamp;

const DOMAIN: &[u8] = b"firstcome handoff 1\0";
/// Number, generation and end.
const HEAD_BYTES: usize = 4 + 4 + 8;
const ROOM: usize = room(HEAD_BYTES + MAC_BYTES + NAME_BYTES_MAX);

/// A code that moves the place of an admitted visitor to a site, once. See [`RoomStore::hand_off`](crate::RoomStore::hand_off).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Handoff {
    /// The code: a site that has it has the place. Letters of base64url, at most 224.
    pub code: Box<str>,
    /// When it ends, by the wall clock (exclusive).
    pub until: Timestamp,
}

fn seal(key: &TicketKey) -> Seal {
    Seal::new(key.as_bytes(), DOMAIN)
}

/// Makes a code of a ticket that was just polled. Writes nothing. Refused: `not_admitted`.
pub fn hand_off(key: &TicketKey, polled: &TicketAnswer) -> Result<Handoff, Rejection> {
    let (TicketState::Admitted { .. }, Some(slot_until)) = (polled.state, polled.until) else {
        return Err(Rejection::NotAdmitted);
    };
    let (id, user) = key.open(&polled.ticket).ok_or(Rejection::UnknownTicket)?;
    let until_ms = polled.as_of.plus_ms(HANDOFF_MS).min(slot_until).as_us().div_euclid(1_000);
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&id.number.get().to_be_bytes());
    head[4..8].copy_from_slice(&id.generation.to_be_bytes());
    head[8..].copy_from_slice(&until_ms.to_be_bytes());
    let carried = user.as_ref().map_or("", |user| user.as_str()).as_bytes();
    let until = Timestamp::clamped_us(until_ms.saturating_mul(1_000));
    Ok(Handoff { code: seal(key).seal(&head, carried, &[]).into(), until })
}

/// Returns the ticket of which a code was made, for its renewal. Order of checks: the room made the code → its time is not
/// over. Refused with `invalid_handoff`.
pub fn ticket_of(key: &TicketKey, code: &str, now: Timestamp) -> Result<String, Rejection> {
    let seal = seal(key);
    let head = seal.open::<HEAD_BYTES, ROOM>(code, &[]).ok_or(Rejection::InvalidHandoff)?;
    let [n0, n1, n2, n3, g0, g1, g2, g3, end @ ..] = head;
    if i64::from_be_bytes(end).saturating_mul(1_000) <= now.as_us() {
        return Err(Rejection::InvalidHandoff);
    }
    let number = TicketNumber::new(u32::from_be_bytes([n0, n1, n2, n3])).ok_or(Rejection::InvalidHandoff)?;
    let id = TicketId { number, generation: u32::from_be_bytes([g0, g1, g2, g3]) };
    let user = seal.carried::<HEAD_BYTES>(code).and_then(|user| String::from_utf8(user).ok());
    Ok(key.ticket(id, user.as_deref().filter(|user| !user.is_empty())))
}

/// Says of a code what the room says of its ticket.
pub const fn refusal(of_ticket: Rejection) -> Rejection {
    match of_ticket {
        Rejection::TicketRenewed => Rejection::HandoffUsed,
        Rejection::UnknownTicket => Rejection::InvalidHandoff,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstcome_core::room::{Hold, Slot};
    use firstcome_core::time::Steady;

    const NOW: Timestamp = Timestamp::clamped_us(1_800_000_000_000_000);

    fn key(seed: u8) -> TicketKey {
        TicketKey::new([seed; 32])
    }

    fn polled(key: &TicketKey, generation: u32, user: Option<&str>, slot_ms: u64) -> TicketAnswer {
        let id = TicketId { number: TicketNumber::new(7).unwrap(), generation };
        let until = Steady::from_us(0);
        let slot = Slot { admission: 3, admitted_at: NOW, hold: Hold::Taken { until } };
        TicketAnswer {
            ticket: key.ticket(id, user).into(),
            number: id.number,
            user: user.map(Into::into),
            state: TicketState::Admitted { slot, until },
            until: Some(NOW.plus_ms(slot_ms)),
            poll_after_ms: 1_000,
            as_of: NOW,
        }
    }

    #[test]
    fn a_code_leads_back_to_its_ticket_until_its_end() {
        let longest = "u".repeat(NAME_BYTES_MAX);
        for (generation, user) in [(0, None), (0, Some("ann")), (9, Some("ann")), (u32::MAX, Some(longest.as_str()))] {
            let polled = polled(&key(1), generation, user, 3_600_000);
            let handoff = hand_off(&key(1), &polled).unwrap();
            assert_eq!(handoff.until, NOW.plus_ms(HANDOFF_MS));
            assert!(handoff.code.len() <= 224, "{}", handoff.code.len());
            let last = NOW.plus_ms(HANDOFF_MS - 1);
            assert_eq!(ticket_of(&key(1), &handoff.code, last).as_deref(), Ok(&*polled.ticket));
            assert_eq!(ticket_of(&key(1), &handoff.code, handoff.until), Err(Rejection::InvalidHandoff), "it ended");
            assert_eq!(ticket_of(&key(2), &handoff.code, NOW), Err(Rejection::InvalidHandoff), "another room");
            assert_eq!(key(1).id(&handoff.code), None, "a code is no ticket");
            assert_eq!(ticket_of(&key(1), &polled.ticket, NOW), Err(Rejection::InvalidHandoff), "a ticket is no code");
        }
    }

    #[test]
    fn a_code_ends_with_the_slot() {
        let handoff = hand_off(&key(1), &polled(&key(1), 0, None, 5_000)).unwrap();
        assert_eq!(handoff.until, NOW.plus_ms(5_000));
        assert_eq!(ticket_of(&key(1), &handoff.code, NOW.plus_ms(5_000)), Err(Rejection::InvalidHandoff));
    }

    #[test]
    fn no_changed_code_is_one() {
        let code = hand_off(&key(1), &polled(&key(1), 1, Some("ann"), 60_000)).unwrap().code.into_string();
        for at in 0..code.len() {
            let mut bytes = code.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert_eq!(ticket_of(&key(1), &changed, NOW), Err(Rejection::InvalidHandoff), "{changed}");
            assert_eq!(ticket_of(&key(1), &code[..at], NOW), Err(Rejection::InvalidHandoff));
        }
    }

    #[test]
    fn a_site_hears_of_the_code_and_not_of_the_ticket() {
        assert_eq!(refusal(Rejection::UnknownTicket), Rejection::InvalidHandoff, "the place is gone");
        assert_eq!(refusal(Rejection::TicketRenewed), Rejection::HandoffUsed);
        assert_eq!(refusal(Rejection::NotAdmitted), Rejection::NotAdmitted);
    }

    #[test]
    fn only_a_visitor_inside_has_a_code() {
        let waiting = TicketState::Waiting { position: 0, wait_ms: None };
        let outside = TicketAnswer { state: waiting, until: None, ..polled(&key(1), 0, None, 1) };
        assert_eq!(hand_off(&key(1), &outside), Err(Rejection::NotAdmitted));
    }
}
