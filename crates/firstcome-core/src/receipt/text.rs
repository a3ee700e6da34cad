//! The texts of heads and statements: lines of a name and a value, of which exactly one order is valid.
//!
//! So a text has one reading, and a value has one text: a digest or a signature over it says all of it.

use super::{Admission, Cover, Digest, Figures, Head, Object, SEQUENCE_MAX, Statement, Subject};
use crate::id::{CouponName, RoomName, UserId};
use crate::time::Timestamp;
use std::fmt;

const HEAD: &str = "firstcome head 1";
const STATEMENT: &str = "firstcome receipt 1";

/// Why a text is not a head or a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextError {
    /// The line, counted from 1 within the text.
    pub line: usize,
    /// What should stand there.
    pub expected: &'static str,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: expected {}", self.line, self.expected)
    }
}

impl std::error::Error for TextError {}

/// Reads a text line by line.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    rest: std::iter::Peekable<std::str::Split<'a, char>>,
    line: usize,
}

impl<'a> Lines<'a> {
    /// Reads from the first line of a text.
    pub fn of(text: &'a str) -> Self {
        Self { rest: text.split('\n').peekable(), line: 0 }
    }

    /// Takes the next line, which must have this name, and returns its value. Leaves another line where it is.
    pub fn value(&mut self, name: &'static str) -> Result<&'a str, TextError> {
        let error = self.expected(name);
        let value = self.rest.peek().and_then(|line| line.strip_prefix(name)?.strip_prefix(' ')).ok_or(error)?;
        self.rest.next();
        self.line += 1;
        Ok(value)
    }

    /// Takes the next line, which must be this one.
    pub fn exact(&mut self, line: &'static str) -> Result<(), TextError> {
        match self.rest.next_if_eq(&line) {
            Some(_) => {
                self.line += 1;
                Ok(())
            }
            None => Err(self.expected(if line.is_empty() { "an empty line" } else { line })),
        }
    }

    /// Returns the error that something else should stand where the next line is.
    pub const fn expected(&self, expected: &'static str) -> TextError {
        TextError { line: self.line + 1, expected }
    }

    /// Returns whether no line is left but the empty one after the last line break.
    pub fn is_at_end(&mut self) -> bool {
        let mut rest = self.rest.clone();
        rest.next().is_none_or(str::is_empty) && rest.next().is_none()
    }

    /// Takes a value and parses it.
    pub fn parsed<T>(&mut self, name: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<T, TextError> {
        let error = self.expected(name);
        parse(self.value(name)?).ok_or(error)
    }

    /// Takes a whole number, which must be written without sign or leading zeros.
    fn number<N: std::str::FromStr + fmt::Display>(&mut self, name: &'static str) -> Result<N, TextError> {
        self.parsed(name, number)
    }

    fn instant(&mut self, name: &'static str) -> Result<Timestamp, TextError> {
        self.parsed(name, |text| number(text).and_then(Timestamp::from_us))
    }

    fn cover(&mut self, name: &'static str) -> Result<Cover, TextError> {
        self.parsed(name, |text| {
            let (sequence, digest) = text.split_once(' ')?;
            Some(Cover { sequence: number(sequence)?, digest: Digest::parse(digest)? })
        })
    }
}

fn number<N: std::str::FromStr + fmt::Display>(text: &str) -> Option<N> {
    text.parse::<N>().ok().filter(|number| number.to_string() == text)
}

/// Reads bytes that are written in hexadecimal digits, in lower case.
pub fn hexadecimal<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

impl Digest {
    /// Reads 64 hexadecimal digits in lower case.
    pub fn parse(text: &str) -> Option<Self> {
        hexadecimal(text).map(Self::new)
    }
}

impl Head {
    /// Writes the head as text. Its digest and its signature are over these bytes.
    pub fn text(&self) -> String {
        let Self { object, sequence, at, figures, previous } = self;
        let figures = match figures {
            Figures::Room { first, given, front } => format!("first {first}\ngiven {given}\nfront {front}"),
            Figures::Coupon { limit, issued } => format!("limit {limit}\nissued {issued}"),
        };
        format!("{HEAD}\n{object}\nsequence {sequence}\nat_us {}\n{figures}\nprevious {previous}\n", at.as_us())
    }

    /// Reads a head from lines, exactly as [`Self::text`] writes it.
    pub fn read(lines: &mut Lines<'_>) -> Result<Self, TextError> {
        lines.exact(HEAD)?;
        let object = match lines.parsed("room", |text| RoomName::parse(text).ok()) {
            Ok(room) => Object::Room(room),
            Err(_) => Object::Coupon(lines.parsed("coupon", |text| CouponName::parse(text).ok())?),
        };
        let sequence =
            lines.parsed("sequence", |text| number(text).filter(|sequence| (1..=SEQUENCE_MAX).contains(sequence)))?;
        let at = lines.instant("at_us")?;
        let figures = match &object {
            Object::Room(_) => Figures::Room {
                first: lines.number("first")?,
                given: lines.number("given")?,
                front: lines.number("front")?,
            },
            Object::Coupon(_) => Figures::Coupon { limit: lines.number("limit")?, issued: lines.number("issued")? },
        };
        let previous = lines.parsed("previous", Digest::parse)?;
        Ok(Self { object, sequence, at, figures, previous })
    }
}

impl Statement {
    /// Writes the statement as text. Its signature is over these bytes.
    pub fn text(&self) -> String {
        let object = self.subject.object();
        let (subject, admission) = match &self.subject {
            Subject::Ticket { number, ticket, admission, .. } => {
                (format!("number {number}\nticket {ticket}"), admission.as_ref())
            }
            Subject::Claim { serial, user, issued_at, .. } => {
                (format!("serial {serial}\nuser {user}\nissued_at_us {}", issued_at.as_us()), None)
            }
        };
        let Cover { sequence, digest } = self.by;
        let admission = admission.map_or_else(String::new, |Admission { turn, at, by }| {
            let at_us = at.as_us();
            format!("turn {turn}\nadmitted_at_us {at_us}\nadmitted_by {} {}\n", by.sequence, by.digest)
        });
        format!("{STATEMENT}\n{object}\n{subject}\nby {sequence} {digest}\n{admission}")
    }

    /// Reads a statement from lines, exactly as [`Self::text`] writes it.
    pub fn read(lines: &mut Lines<'_>) -> Result<Self, TextError> {
        lines.exact(STATEMENT)?;
        if let Ok(room) = lines.parsed("room", |text| RoomName::parse(text).ok()) {
            let (number, ticket) = (lines.number("number")?, lines.parsed("ticket", Digest::parse)?);
            let by = lines.cover("by")?;
            let admission = match lines.number("turn") {
                Ok(turn) => {
                    let (at, by) = (lines.instant("admitted_at_us")?, lines.cover("admitted_by")?);
                    Some(Admission { turn, at, by })
                }
                Err(_) => None,
            };
            return Ok(Self { subject: Subject::Ticket { room, number, ticket, admission }, by });
        }
        let coupon = lines.parsed("coupon", |text| CouponName::parse(text).ok())?;
        let (serial, user) = (lines.number("serial")?, lines.parsed("user", |text| UserId::restore(text).ok())?);
        let issued_at = lines.instant("issued_at_us")?;
        Ok(Self { subject: Subject::Claim { coupon, serial, user, issued_at }, by: lines.cover("by")? })
    }
}
