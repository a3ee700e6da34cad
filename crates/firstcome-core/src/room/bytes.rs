//! Writes numbers, texts and bits as bytes, and reads them back without trusting them.
//!
//! Whole numbers take 7 bits to a byte, the lowest first; negative numbers alternate with positive ones. Each number has
//! one encoding, and the reader refuses any other.

use crate::id::{RequestId, UserId};
use crate::time::Steady;
use std::fmt;

const WORDS: usize = 64;
/// With at most this many set bits, or unset ones, a row is written as a list.
const LISTED_MAX: usize = 128;

const NONE: u8 = 0;
const ALL: u8 = 1;
const RAW: u8 = 2;
const THESE: u8 = 3;
const ALL_BUT_THESE: u8 = 4;

/// Why bytes are no image of a room, and no entry of its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ImageError {
    /// Written by another version.
    Version,
    /// The bytes end too early.
    Short,
    /// Bytes are left over behind the end.
    Trailing,
    /// An impossible value; carries its kind.
    Value(&'static str),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("another version"),
            Self::Short => f.write_str("too short"),
            Self::Trailing => f.write_str("too long"),
            Self::Value(what) => write!(f, "an invalid {what}"),
        }
    }
}

impl std::error::Error for ImageError {}

pub(super) fn put_number(out: &mut Vec<u8>, number: impl Into<u64>) {
    let mut rest = number.into();
    while 0x80 <= rest {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

pub(super) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_number(out, ((number << 1) ^ (number >> 63)) as u64);
}

pub(super) fn put_steady(out: &mut Vec<u8>, at: Steady) {
    put_signed(out, at.as_us());
}

pub(super) fn put_bool(out: &mut Vec<u8>, is: bool) {
    out.push(is.into());
}

pub(super) fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    put_bool(out, value.is_some());
    if let Some(value) = value {
        put(out, value);
    }
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Writes a user, or none as an empty text: names are never empty.
pub(super) fn put_user(out: &mut Vec<u8>, user: Option<&str>) {
    put_text(out, user.unwrap_or(""));
}

pub(super) fn put_request(out: &mut Vec<u8>, request: RequestId) {
    out.extend_from_slice(&request.key.to_le_bytes());
    out.extend_from_slice(&request.body.to_le_bytes());
}

/// Writes rising numbers as the distances between them; the first distance counts from 0.
pub(super) fn put_rising(out: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = u32>) {
    put_number(out, numbers.len() as u64);
    let mut last = 0;
    for number in numbers {
        put_number(out, number - last);
        last = number;
    }
}

/// Returns a row in which the first `count` bits are set.
pub(super) fn first_bits(count: u32) -> [u64; WORDS] {
    std::array::from_fn(|word| match count.saturating_sub(word as u32 * 64) {
        rest @ 0..64 => (1 << rest) - 1,
        _ => u64::MAX,
    })
}

fn listed(bits: &[u64; WORDS]) -> Vec<u32> {
    let set = |at: &u32| bits[*at as usize / 64] & (1 << (at % 64)) != 0;
    (0..WORDS as u32 * 64).filter(set).collect()
}

fn count(bits: &[u64; WORDS]) -> usize {
    bits.iter().map(|bits| bits.count_ones() as usize).sum()
}

/// Writes the bits of a row, of which only bits of `within` may be set.
pub(super) fn put_bits(out: &mut Vec<u8>, bits: &[u64; WORDS], within: &[u64; WORDS]) {
    let rest: [u64; WORDS] = std::array::from_fn(|word| within[word] & !bits[word]);
    match (count(bits), count(&rest)) {
        (0, _) => out.push(NONE),
        (_, 0) => out.push(ALL),
        (set, _) if set <= LISTED_MAX => {
            out.push(THESE);
            put_rising(out, listed(bits).into_iter());
        }
        (_, unset) if unset <= LISTED_MAX => {
            out.push(ALL_BUT_THESE);
            put_rising(out, listed(&rest).into_iter());
        }
        _ => {
            out.push(RAW);
            bits.iter().for_each(|bits| out.extend_from_slice(&bits.to_le_bytes()));
        }
    }
}

/// Reads written bytes from the front.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Checks that nothing is left.
    pub(super) const fn end(&self) -> Result<(), ImageError> {
        if self.rest.is_empty() { Ok(()) } else { Err(ImageError::Trailing) }
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], ImageError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(ImageError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ImageError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(ImageError::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, ImageError> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn fixed_u16(&mut self) -> Result<u16, ImageError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn three(&mut self) -> Result<[u8; 3], ImageError> {
        self.array()
    }

    pub(super) fn fixed_u32(&mut self) -> Result<u32, ImageError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn fixed_u64(&mut self) -> Result<u64, ImageError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn fixed_32(&mut self) -> Result<[u8; 32], ImageError> {
        self.array()
    }

    pub(super) fn number(&mut self) -> Result<u64, ImageError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part || (byte == 0 && shift != 0) {
                break;
            }
            number |= part << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(ImageError::Value("number"))
    }

    pub(super) fn number_u32(&mut self) -> Result<u32, ImageError> {
        u32::try_from(self.number()?).map_err(|_| ImageError::Value("number"))
    }

    /// Reads the number of items that follow, each of which takes at least one byte.
    pub(super) fn count(&mut self) -> Result<usize, ImageError> {
        let count = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if self.rest.len() < count { Err(ImageError::Short) } else { Ok(count) }
    }

    pub(super) fn signed(&mut self) -> Result<i64, ImageError> {
        let folded = self.number()?;
        Ok((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }

    pub(super) fn steady(&mut self) -> Result<Steady, ImageError> {
        self.signed().map(Steady::from_us)
    }

    pub(super) fn bool(&mut self) -> Result<bool, ImageError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(ImageError::Value("flag")),
        }
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ImageError>,
    ) -> Result<Option<T>, ImageError> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    pub(super) fn text(&mut self) -> Result<&'a str, ImageError> {
        let count = self.count()?;
        std::str::from_utf8(self.take(count)?).map_err(|_| ImageError::Value("text"))
    }

    pub(super) fn user(&mut self) -> Result<Option<UserId>, ImageError> {
        match self.text()? {
            "" => Ok(None),
            text => UserId::restore(text).map(Some).map_err(|_| ImageError::Value("user")),
        }
    }

    pub(super) fn request(&mut self) -> Result<RequestId, ImageError> {
        let key = self.array().map(u128::from_le_bytes)?;
        Ok(RequestId { key, body: self.fixed_u64()? })
    }

    pub(super) fn rising(&mut self) -> Result<Vec<u32>, ImageError> {
        let count = self.count()?;
        let mut numbers: Vec<u32> = Vec::with_capacity(count);
        for _ in 0..count {
            let step = self.number_u32()?;
            let next = numbers.last().map_or(Some(step), |last| last.checked_add(step).filter(|_| step != 0));
            numbers.push(next.ok_or(ImageError::Value("order"))?);
        }
        Ok(numbers)
    }

    pub(super) fn bits(&mut self, within: &[u64; WORDS]) -> Result<[u64; WORDS], ImageError> {
        let kind = self.byte()?;
        let bits = match kind {
            NONE => [0; WORDS],
            ALL => *within,
            RAW => {
                let mut bits = [0; WORDS];
                for word in &mut bits {
                    *word = self.fixed_u64()?;
                }
                bits
            }
            THESE | ALL_BUT_THESE => {
                let mut bits = [0_u64; WORDS];
                for at in self.rising()? {
                    *bits.get_mut(at as usize / 64).ok_or(ImageError::Value("bits"))? |= 1 << (at % 64);
                }
                let inverted = |word: usize| within[word] & !bits[word];
                if kind == THESE { bits } else { std::array::from_fn(inverted) }
            }
            _ => return Err(ImageError::Value("bits")),
        };
        if bits.iter().zip(within).any(|(bits, within)| bits & !within != 0) {
            return Err(ImageError::Value("bits"));
        }
        Ok(bits)
    }
}
