//! Names and request ids. A value of these types is valid: its constructor checked it.

use crate::erase::{Pseudonym, is_pseudonym};
use crate::limits::{NAME_BYTES_MAX, ROOM_NUMBER_MAX};
use std::fmt;
use std::sync::Arc;

/// Why a text is not a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NameError {
    /// No character at all.
    Empty,
    /// More than [`NAME_BYTES_MAX`] bytes.
    TooLong,
    /// The first character is not an ASCII letter or digit.
    BadStart,
    /// A character other than `A–Z a–z 0–9 . _ : @ -`.
    BadCharacter,
    /// A user name that begins with `pass:`, a prefix reserved for passes without a user.
    Reserved,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "must not be empty",
            Self::TooLong => "must have at most 128 bytes",
            Self::BadStart => "must begin with a letter or a digit",
            Self::BadCharacter => {
                "may hold only the ASCII characters A-Z a-z 0-9 . _ : @ -; for any other text use an id or a hash"
            }
            Self::Reserved => "must not begin with pass:",
        })
    }
}

impl std::error::Error for NameError {}

/// The prefix of the user names of passes without a user.
const RESERVED: &str = "pass:";

fn check_name(text: &str) -> Result<(), NameError> {
    let Some(&first) = text.as_bytes().first() else { return Err(NameError::Empty) };
    if NAME_BYTES_MAX < text.len() {
        return Err(NameError::TooLong);
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:@-".contains(&byte);
    // Checked before the first letter: a name in another script gets one error for all of its characters.
    if !text.bytes().all(allowed) {
        return Err(NameError::BadCharacter);
    }
    if first.is_ascii_alphanumeric() { Ok(()) } else { Err(NameError::BadStart) }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident($text:ty), $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($text);

        impl $name {
            /// Parses a name: 1 to 128 bytes of `A–Z a–z 0–9 . _ : @ -`, the first one alphanumeric.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                let check: fn(&str) -> Result<(), NameError> = $check;
                check(text)?;
                Ok(Self(text.into()))
            }

            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), &self.0)
            }
        }

        // Equal names hash alike, so callers can look a name up in a map by `&str`.
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// The name of a coupon. The name of a deleted coupon is never used again.
    CouponName(Box<str>),
    check_name
);
name_type!(
    /// The name of a waiting room.
    RoomName(Box<str>),
    check_name
);
name_type!(
    /// The user who claims. The caller chooses this id.
    UserId(Box<str>),
    |text| if text.starts_with(RESERVED) { Err(NameError::Reserved) } else { check_name(text) }
);

// Shared (`Arc`): these names go to the store and back on every step, and every record carries them.
name_type!(
    /// The name of a lock.
    LockName(Arc<str>),
    check_name
);
name_type!(
    /// The holder's name as other clients see it: a host, a process, a person.
    OwnerName(Arc<str>),
    check_name
);

name_type!(
    /// The name of a member: an owner of points, who sells, bids and buys.
    MemberName(Arc<str>),
    check_name
);
name_type!(
    /// The name of a thing that is sold once.
    ListingName(Arc<str>),
    check_name
);

name_type!(
    /// The name of an API key. A rotated key keeps its name.
    KeyName(Box<str>),
    check_name
);

impl UserId {
    /// Makes the user name of a pass that names no user: `pass:{number}`. [`Self::parse`] refuses such names, so no caller
    /// can choose one.
    pub fn of_pass(number: TicketNumber) -> Self {
        Self(format!("{RESERVED}{}", number.get()).into())
    }

    /// Makes the user name of an erased user. [`Self::parse`] refuses such names.
    pub fn of_pseudonym(pseudonym: &Pseudonym) -> Self {
        Self(pseudonym.as_str().into())
    }

    /// Reads a stored user name: an ordinary name, or one that [`Self::of_pass`] or [`Self::of_pseudonym`] made.
    pub fn restore(text: &str) -> Result<Self, NameError> {
        if is_pseudonym(text) {
            return Ok(Self(text.into()));
        }
        let number = text.strip_prefix(RESERVED).and_then(|digits| digits.parse().ok()).and_then(TicketNumber::new);
        match number.map(Self::of_pass) {
            Some(user) if user.as_str() == text => Ok(user),
            _ => Self::parse(text),
        }
    }
}

impl MemberName {
    /// Makes the name of an erased member. [`Self::parse`] refuses such names.
    pub fn of_pseudonym(pseudonym: &Pseudonym) -> Self {
        Self(pseudonym.as_str().into())
    }

    /// Reads a stored name: an ordinary one, or one that [`Self::of_pseudonym`] made.
    pub fn restore(text: &str) -> Result<Self, NameError> {
        if is_pseudonym(text) { Ok(Self(text.into())) } else { Self::parse(text) }
    }
}

/// The identity of a request, by which a store recognises a repeat.
///
/// The server computes both digests when a request arrives. `key` covers the credential, the method, the path and the
/// caller's idempotency key; `body` covers what the request asks for. The same key with another body is the caller's
/// mistake: the store refuses it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId {
    /// Digest of the scope and the caller's key: 128 uniformly distributed bits.
    pub key: u128,
    /// Digest of the body's meaning.
    pub body: u64,
}

/// The number of a ticket: 1 for the first ticket of a room. A room never draws a number twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TicketNumber(pub(crate) u32);

impl TicketNumber {
    /// Makes a ticket number; `None` outside `1..=`[`ROOM_NUMBER_MAX`].
    pub const fn new(number: u32) -> Option<Self> {
        if number == 0 || ROOM_NUMBER_MAX < number { None } else { Some(Self(number)) }
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_at_every_boundary() {
        let longest = "a".repeat(128);
        let too_long = "a".repeat(129);
        let rows = [
            ("a", Ok(())),
            ("0", Ok(())),
            ("A.b_c:d@e-9", Ok(())),
            (&longest, Ok(())),
            ("pass", Ok(())),
            ("", Err(NameError::Empty)),
            (&too_long, Err(NameError::TooLong)),
            ("-a", Err(NameError::BadStart)),
            (".a", Err(NameError::BadStart)),
            ("é", Err(NameError::BadCharacter)),
            ("a b", Err(NameError::BadCharacter)),
            ("a/b", Err(NameError::BadCharacter)),
            ("aé", Err(NameError::BadCharacter)),
            ("a\0", Err(NameError::BadCharacter)),
            ("pass:7", Err(NameError::Reserved)),
        ];
        for (text, wanted) in rows {
            assert_eq!(UserId::parse(text).map(drop), wanted, "{text:?}");
        }
        assert!(CouponName::parse("pass:7").is_ok(), "only users are reserved");
    }

    #[test]
    fn users_of_passes_are_made_and_restored_and_never_asked_for() {
        let number = TicketNumber::new(7).unwrap();
        let user = UserId::of_pass(number);
        assert_eq!(user.as_str(), "pass:7");
        assert_eq!(UserId::restore("pass:7"), Ok(user));
        assert_eq!(UserId::restore("ann").map(|user| user.to_string()), Ok("ann".into()));
        for text in ["pass:", "pass:0", "pass:07", "pass:+7", "pass:x", "pass:4294967295", "pass:4294967296"] {
            assert_eq!(UserId::restore(text), Err(NameError::Reserved), "{text}");
        }
    }

    #[test]
    fn every_character_beside_the_allowed_ones_is_refused() {
        let allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@-";
        for character in (0..=255_u8).map(char::from) {
            let wanted = if allowed.contains(character) { Ok(()) } else { Err(NameError::BadCharacter) };
            assert_eq!(RoomName::parse(&format!("a{character}")).map(drop), wanted, "{character:?}");
        }
    }

    #[test]
    fn a_name_shows_as_it_was_given() {
        let name = CouponName::parse("summer.2030").unwrap();
        assert_eq!(name.as_str(), "summer.2030");
        assert_eq!(name.to_string(), "summer.2030");
        assert_eq!(format!("{name:?}"), "CouponName(\"summer.2030\")");
    }

    #[test]
    fn a_map_of_names_can_be_asked_with_a_text() {
        #[expect(clippy::disallowed_methods, reason = "any seed will do")]
        let mut names = std::collections::HashMap::with_hasher(std::hash::RandomState::new());
        names.insert(UserId::parse("ann").unwrap(), 1);
        assert_eq!(names.get("ann"), Some(&1));
        assert_eq!(names.get("Ann"), None);
    }

    #[test]
    fn every_wrong_name_is_told_what_is_wrong() {
        let rows = [
            (NameError::Empty, "must not be empty"),
            (NameError::TooLong, "must have at most 128 bytes"),
            (NameError::BadStart, "must begin with a letter or a digit"),
            (
                NameError::BadCharacter,
                "may hold only the ASCII characters A-Z a-z 0-9 . _ : @ -; for any other text use an id or a hash",
            ),
            (NameError::Reserved, "must not begin with pass:"),
        ];
        for (error, wanted) in rows {
            assert_eq!(error.to_string(), wanted);
        }
    }
}
