//! Voucher codes that need no index and cannot be guessed.
//!
//! A code is `serial ‖ MAC ‖ check character`: 30 + 65 bits in 19 characters of an alphabet without 0, O, 1 and I, and
//! one check character. The check character catches any single mistyped character, and nearly all swaps of neighbours
//! (Luhn's algorithm in base 32). The MAC is HMAC-SHA-256 under the coupon's own key, so a code of one coupon never
//! fits another.
//!
//! # A code names one claim
//! The MAC covers the serial, the instant and the user of the claim. A store that an operator restores from an older
//! copy issues some serials again, to other users or at later instants. Their codes differ from the earlier ones, and
//! the code of a lost claim fits no other claim.
//!
//! Earlier versions made the MAC from the serial alone. A coupon from such a version keeps these codes for the serials
//! that it had issued: those below [`VoucherKey::codes_bound_from`].
//!
//! To redeem, the store reads the serial of the code, looks up the claim, and computes the rest again. One guess
//! succeeds with probability 2^-65.

use crate::receipt::HeadKey;
use crate::seal::Seal;
use firstcome_core::coupon::{Issued, Serial};
use firstcome_core::limits::COUPON_LIMIT_MAX;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

const ALPHABET: &[u8; 32] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ";
const MAC_BITS: u32 = 65;
const PAYLOAD_CHARS: usize = 19;
const CODE_CHARS: usize = PAYLOAD_CHARS + 1;
const GROUP_CHARS: usize = 5;
/// The prefix of the data under the MAC of a bound code. The MAC of an older code covers four bytes, so the two never
/// collide. With this length a user of up to 36 bytes (a UUID) still fits into one block of the digest.
const BOUND_LABEL: [u8; 7] = *b"claim/2";
const HEAD_DOMAIN: &[u8] = b"firstcome head key 1\0";

/// The secret from which a coupon's codes are made, and the first serial whose code is bound to its claim.
#[derive(Clone)]
pub struct VoucherKey {
    bytes: [u8; 32],
    mac: Hmac<Sha256>,
    codes_bound_from: u32,
}

impl fmt::Debug for VoucherKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VoucherKey(secret)")
    }
}

impl PartialEq for VoucherKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.codes_bound_from == other.codes_bound_from
    }
}

/// The code that a holder shows to redeem: twenty characters in four groups.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VoucherCode([u8; CODE_CHARS + CODE_CHARS / GROUP_CHARS - 1]);

impl VoucherCode {
    /// The code as text, e.g. `22229-HXKQ3-9WBRT-5MZCA`.
    pub fn as_str(&self) -> &str {
        // The characters come from ALPHABET and '-'.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Reads a code that a store has made, in exactly the form of [`Self::as_str`]. `None` for any other text.
    ///
    /// For clients of a remote store: only the store can tell whether the code fits a claim.
    pub fn parse(text: &str) -> Option<Self> {
        ShownCode::parse(text)?;
        let bytes: [u8; CODE_CHARS + CODE_CHARS / GROUP_CHARS - 1] = text.as_bytes().try_into().ok()?;
        let is_dash = |at: usize| at % (GROUP_CHARS + 1) == GROUP_CHARS;
        let fits = |(at, byte): (usize, &u8)| if is_dash(at) { *byte == b'-' } else { ALPHABET.contains(byte) };
        bytes.iter().enumerate().all(fits).then_some(Self(bytes))
    }
}

impl fmt::Debug for VoucherCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A well-formed code that a client shows, not yet compared with a claim.
#[derive(Clone, Copy, Debug)]
pub struct ShownCode {
    serial: Serial,
    mac: u128,
}

impl ShownCode {
    /// Reads a code. Accepts lower case, blanks and dashes; `None` for a text that is not a code of any coupon.
    pub fn parse(code: &str) -> Option<Self> {
        let mut digits = [0_u8; CODE_CHARS];
        let mut count = 0;
        for byte in code.bytes().filter(|byte| !matches!(byte, b'-' | b' ')) {
            let digit = ALPHABET.iter().position(|&known| known == byte.to_ascii_uppercase())?;
            *digits.get_mut(count)? = digit as u8;
            count += 1;
        }
        if count != CODE_CHARS || luhn(&digits) != 0 {
            return None;
        }
        let payload = digits[..PAYLOAD_CHARS].iter().fold(0_u128, |bits, &digit| bits << 5 | u128::from(digit));
        let serial = Serial::new(u32::try_from(payload >> MAC_BITS).ok()?)?;
        Some(Self { serial, mac: payload & ((1 << MAC_BITS) - 1) })
    }

    /// The serial of the claim that the code names. [`VoucherKey::fits`] says whether the code is that of the claim.
    pub const fn serial(&self) -> Serial {
        self.serial
    }
}

impl VoucherKey {
    /// Makes the key of a new coupon from 32 secret random bytes. All its codes are bound to their claims.
    pub fn new(bytes: [u8; 32]) -> Self {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mac = Hmac::<Sha256>::new_from_slice(&bytes).expect("HMAC takes keys of any length");
        Self { bytes, mac, codes_bound_from: 1 }
    }

    /// Returns the same key with bound codes from this serial on.
    #[must_use]
    pub fn bound_from(self, serial: u32) -> Self {
        Self { codes_bound_from: serial.max(1), ..self }
    }

    /// Returns the same key without bound codes: for a coupon from before codes were bound, until the number of its
    /// issued codes is known.
    #[must_use]
    pub fn unbound(self) -> Self {
        self.bound_from(COUPON_LIMIT_MAX + 1)
    }

    /// Returns the key that signs the coupon's heads. It says nothing of this key.
    pub fn head_key(&self) -> HeadKey {
        HeadKey::new(Seal::new(&self.bytes, HEAD_DOMAIN).derived())
    }

    /// The secret bytes. Store them where only the operator can read them.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// The first serial whose code is bound to its claim. Codes of lower serials cover the serial alone.
    pub const fn codes_bound_from(&self) -> u32 {
        self.codes_bound_from
    }

    fn mac(&self, issued: Issued, user: &str) -> u128 {
        let mut mac = self.mac.clone();
        let serial = issued.serial.get().to_be_bytes();
        if issued.serial.get() < self.codes_bound_from {
            mac.update(&serial);
        } else {
            let mut head = [0; BOUND_LABEL.len() + 4 + 8];
            let (label, rest) = head.split_at_mut(BOUND_LABEL.len());
            label.copy_from_slice(&BOUND_LABEL);
            rest[..4].copy_from_slice(&serial);
            rest[4..].copy_from_slice(&issued.issued_at.as_us().to_be_bytes());
            mac.update(&head);
            // Last, because it is the only part without a fixed length.
            mac.update(user.as_bytes());
        }
        let digest = mac.finalize().into_bytes();
        let mut head = [0; 16];
        head.copy_from_slice(&digest[..16]);
        u128::from_be_bytes(head) >> (128 - MAC_BITS)
    }

    /// Returns the code of a claim. Allocates nothing.
    pub fn code(&self, issued: Issued, user: &str) -> VoucherCode {
        let payload = u128::from(issued.serial.get()) << MAC_BITS | self.mac(issued, user);
        let mut digits = [0_u8; CODE_CHARS];
        for (at, digit) in digits[..PAYLOAD_CHARS].iter_mut().enumerate() {
            *digit = (payload >> (5 * (PAYLOAD_CHARS - 1 - at)) & 31) as u8;
        }
        digits[PAYLOAD_CHARS] = (32 - luhn(&digits)) % 32;
        let mut text = [b'-'; CODE_CHARS + CODE_CHARS / GROUP_CHARS - 1];
        for (at, &digit) in digits.iter().enumerate() {
            text[at + at / GROUP_CHARS] = ALPHABET[usize::from(digit)];
        }
        VoucherCode(text)
    }

    /// Whether a code is that of this claim. Takes the same time whichever part differs.
    pub fn fits(&self, shown: &ShownCode, issued: Issued, user: &str) -> bool {
        let difference = shown.mac ^ self.mac(issued, user);
        difference == 0 && shown.serial == issued.serial
    }

    /// Whether a text is the code of this claim.
    pub fn is_code_of(&self, code: &str, issued: Issued, user: &str) -> bool {
        ShownCode::parse(code).is_some_and(|shown| self.fits(&shown, issued, user))
    }
}

/// Computes Luhn's sum modulo 32: every second digit from the right counts twice. Zero for a valid code.
fn luhn(digits: &[u8; CODE_CHARS]) -> u8 {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, &digit)| {
            let weighted = u32::from(digit) * (1 + at as u32 % 2);
            weighted / 32 + weighted % 32
        })
        .sum();
    (sum % 32) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstcome_core::time::Timestamp;
    use std::collections::BTreeSet;

    const AT: i64 = 1_790_000_000_123_456;

    fn issued(number: u32, at_us: i64) -> Issued {
        Issued { serial: Serial::new(number).unwrap(), issued_at: Timestamp::from_us(at_us).unwrap() }
    }

    #[test]
    fn a_code_leads_back_to_its_claim_and_to_no_other_key() {
        let key = VoucherKey::new([7; 32]);
        let other = VoucherKey::new([8; 32]);
        for number in [1, 2, 31, 32, 1_000, 99_999_999, 100_000_000] {
            for key in [key.clone(), key.clone().unbound()] {
                let claim = issued(number, AT);
                let code = key.code(claim, "ann");
                assert_eq!(ShownCode::parse(code.as_str()).map(|shown| shown.serial()), Some(claim.serial));
                assert!(key.is_code_of(code.as_str(), claim, "ann"));
                assert!(key.is_code_of(&code.as_str().to_lowercase().replace('-', " "), claim, "ann"));
                assert!(!other.is_code_of(code.as_str(), claim, "ann"));
                assert!(!other.clone().unbound().is_code_of(code.as_str(), claim, "ann"));
                assert_eq!(code.as_str().len(), 23);
            }
        }
    }

    #[test]
    fn a_code_names_one_claim() {
        let key = VoucherKey::new([7; 32]);
        let code = key.code(issued(2, AT), "ann");
        assert!(key.is_code_of(code.as_str(), issued(2, AT), "ann"));
        let shown = ShownCode::parse(code.as_str()).unwrap();
        let moved = ShownCode { serial: issued(3, AT).serial, ..shown };
        assert!(!key.fits(&moved, issued(2, AT), "ann"), "a right MAC beside another serial");
        // A restored store issues the serial again: to another user, to the same user later, or earlier by a clock that
        // was set back.
        let others = [
            (2, AT, "bob"),
            (2, AT + 1, "ann"),
            (2, AT - 1, "ann"),
            (3, AT, "ann"),
            (1, AT, "ann"),
            (2, AT, "an"),
            (2, AT, "annn"),
            (2, AT, ""),
        ];
        let mut codes = BTreeSet::from([code.as_str().to_owned()]);
        for (number, at_us, user) in others {
            let claim = issued(number, at_us);
            assert!(!key.is_code_of(code.as_str(), claim, user), "{number} {at_us} {user}");
            assert!(codes.insert(key.code(claim, user).as_str().to_owned()), "{number} {at_us} {user}");
        }
    }

    #[test]
    fn the_longest_user_counts_to_its_last_byte() {
        let key = VoucherKey::new([9; 32]);
        for length in [36, 37, 44, 45, 109, 128] {
            let (one, two) = ("u".repeat(length - 1) + "1", "u".repeat(length - 1) + "2");
            let code = key.code(issued(1, AT), &one);
            assert!(key.is_code_of(code.as_str(), issued(1, AT), &one), "{length}");
            assert!(!key.is_code_of(code.as_str(), issued(1, AT), &two), "{length}");
        }
    }

    #[test]
    fn codes_that_were_told_before_they_were_bound_stay_valid() {
        // As earlier versions made them.
        const OLD: [(u32, &str); 3] =
            [(1, "22222-3773J-V685X-QGB9J"), (2, "22222-493FD-8LTPG-FD89K"), (3, "22222-5B7PD-RBK7U-R6UJ3")];
        let key = VoucherKey::new([7; 32]).bound_from(3);
        for (number, code) in OLD {
            let (claim, is_old) = (issued(number, AT), number < 3);
            assert_eq!(key.is_code_of(code, claim, "ann"), is_old, "serial {number}");
            assert_eq!(key.code(claim, "ann").as_str() == code, is_old, "serial {number}");
            // The user and the instant are not part of them.
            assert_eq!(key.is_code_of(code, issued(number, AT + 1), "bob"), is_old, "serial {number}");
            assert!(!VoucherKey::new([7; 32]).is_code_of(code, claim, "ann"), "serial {number} of a new coupon");
        }
        // A bound code is never the code of a serial below the first bound one.
        let bound = VoucherKey::new([7; 32]).code(issued(2, AT), "ann");
        assert!(!key.is_code_of(bound.as_str(), issued(2, AT), "ann"));
    }

    #[test]
    fn every_single_wrong_character_is_refused() {
        let key = VoucherKey::new([1; 32]);
        let claim = issued(4_711, AT);
        let code = key.code(claim, "ann");
        for at in 0..code.as_str().len() {
            for &wrong in ALPHABET {
                let mut bytes = code.as_str().as_bytes().to_vec();
                if bytes[at] == b'-' || bytes[at] == wrong {
                    continue;
                }
                bytes[at] = wrong;
                let text = String::from_utf8(bytes).unwrap();
                assert!(!key.is_code_of(&text, claim, "ann"), "{text}");
                let mut digits = [0; CODE_CHARS];
                for (digit, byte) in digits.iter_mut().zip(text.bytes().filter(|&byte| byte != b'-')) {
                    *digit = ALPHABET.iter().position(|&known| known == byte).unwrap() as u8;
                }
                assert_ne!(luhn(&digits), 0, "the check character alone catches {text}");
            }
        }
        assert!(ShownCode::parse("").is_none());
        assert!(ShownCode::parse(&"2".repeat(19)).is_none());
        assert!(ShownCode::parse(&"2".repeat(21)).is_none());
        assert!(ShownCode::parse(&format!("{}0", &code.as_str()[..22])).is_none());
    }

    #[test]
    fn a_right_check_character_makes_no_right_code() {
        let key = VoucherKey::new([1; 32]);
        let claim = issued(1, AT);
        // Well formed, but made with another key.
        let code = VoucherKey::new([2; 32]).code(claim, "ann");
        let shown = ShownCode::parse(code.as_str()).unwrap();
        assert_eq!(shown.serial(), claim.serial);
        assert!(!key.fits(&shown, claim, "ann"));
    }
}
