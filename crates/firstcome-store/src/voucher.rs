//! Voucher codes that need no index and cannot be guessed.
//!
//! A code is `serial ‖ MAC ‖ check character`: 30 + 65 bits in 19 characters of an alphabet without 0, O, 1 and I, and
//! one character that catches any single mistyped character and nearly all swaps of neighbours (Luhn's algorithm in
//! base 32). The MAC is HMAC-SHA-256 under a key of the coupon's own, so a code of one coupon never fits another.
//! Redeeming reads the serial and recomputes the rest: one guess succeeds with a chance of 2^-65.

use firstcome_core::coupon::Serial;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

const ALPHABET: &[u8; 32] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ";
const MAC_BITS: u32 = 65;
const PAYLOAD_CHARS: usize = 19;
const CODE_CHARS: usize = PAYLOAD_CHARS + 1;
const GROUP_CHARS: usize = 5;

/// The secret from which a coupon's codes are made.
#[derive(Clone)]
pub struct VoucherKey {
    bytes: [u8; 32],
    mac: Hmac<Sha256>,
}

impl fmt::Debug for VoucherKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VoucherKey(secret)")
    }
}

impl PartialEq for VoucherKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

/// What a holder shows to redeem: twenty characters in four groups.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VoucherCode([u8; CODE_CHARS + CODE_CHARS / GROUP_CHARS - 1]);

impl VoucherCode {
    /// The code as text, e.g. `22229-HXKQ3-9WBRT-5MZCA`.
    pub fn as_str(&self) -> &str {
        // The characters come from ALPHABET and '-'.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for VoucherCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl VoucherKey {
    /// A key from 32 secret random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mac = Hmac::<Sha256>::new_from_slice(&bytes).expect("HMAC takes keys of any length");
        Self { bytes, mac }
    }

    /// The secret bytes, to be stored where only the operator can read them.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    fn mac(&self, serial: Serial) -> u128 {
        let mut mac = self.mac.clone();
        mac.update(&serial.get().to_be_bytes());
        let digest = mac.finalize().into_bytes();
        let mut head = [0; 16];
        head.copy_from_slice(&digest[..16]);
        u128::from_be_bytes(head) >> (128 - MAC_BITS)
    }

    /// The code of a serial.
    pub fn code(&self, serial: Serial) -> VoucherCode {
        let payload = u128::from(serial.get()) << MAC_BITS | self.mac(serial);
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

    /// The serial of a code, if the code is one of this key. Lower case, blanks and dashes are forgiven.
    pub fn serial(&self, code: &str) -> Option<Serial> {
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
        // Compared in full length whatever differs: the time tells nothing about the right code.
        let difference = (payload ^ self.mac(serial)) & ((1 << MAC_BITS) - 1);
        (difference == 0).then_some(serial)
    }
}

/// Luhn's sum modulo 32: every second digit from the right counts twice. Zero for a whole code.
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

    fn serial(number: u32) -> Serial {
        Serial::new(number).unwrap()
    }

    #[test]
    fn a_code_leads_back_to_its_serial_and_to_no_other_key() {
        let key = VoucherKey::new([7; 32]);
        let other = VoucherKey::new([8; 32]);
        for number in [1, 2, 31, 32, 1_000, 99_999_999, 100_000_000] {
            let code = key.code(serial(number));
            assert_eq!(key.serial(code.as_str()), Some(serial(number)));
            assert_eq!(key.serial(&code.as_str().to_lowercase().replace('-', " ")), Some(serial(number)));
            assert_eq!(other.serial(code.as_str()), None);
            assert_eq!(code.as_str().len(), 23);
        }
    }

    #[test]
    fn every_single_wrong_character_is_refused() {
        let key = VoucherKey::new([1; 32]);
        let code = key.code(serial(4_711));
        for at in 0..code.as_str().len() {
            for &wrong in ALPHABET {
                let mut bytes = code.as_str().as_bytes().to_vec();
                if bytes[at] == b'-' || bytes[at] == wrong {
                    continue;
                }
                bytes[at] = wrong;
                let text = String::from_utf8(bytes).unwrap();
                assert_eq!(key.serial(&text), None, "{text}");
                let mut digits = [0; CODE_CHARS];
                for (digit, byte) in digits.iter_mut().zip(text.bytes().filter(|&byte| byte != b'-')) {
                    *digit = ALPHABET.iter().position(|&known| known == byte).unwrap() as u8;
                }
                assert_ne!(luhn(&digits), 0, "the check character alone catches {text}");
            }
        }
        assert_eq!(key.serial(""), None);
        assert_eq!(key.serial(&"2".repeat(19)), None);
        assert_eq!(key.serial(&"2".repeat(21)), None);
        assert_eq!(key.serial(&format!("{}0", &code.as_str()[..22])), None);
    }
}
