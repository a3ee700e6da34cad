//! Receipts and pages of heads as text: a line with the key, then paragraphs of a signed text and its signature.

use super::{HeadPage, HeadPublicKey, Receipt, Signature, SignedHead, SignedLink};
use firstcome_core::receipt::{Head, Lines, Statement, Subject, TextError, hexadecimal};
use std::fmt::{self, Write as _};

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for HeadPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

impl fmt::Debug for HeadPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl HeadPublicKey {
    /// Reads 64 hexadecimal digits in lower case.
    pub fn parse(text: &str) -> Option<Self> {
        hexadecimal(text).map(Self)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl SignedHead {
    fn put(&self, out: &mut String) {
        // Writing to a string does not fail.
        let _ = write!(out, "\n{}signature {}\n", self.head.text(), self.signature);
    }

    fn read(lines: &mut Lines<'_>) -> Result<Self, TextError> {
        lines.exact("")?;
        Ok(Self { head: Head::read(lines)?, signature: signature(lines)? })
    }
}

fn key(lines: &mut Lines<'_>) -> Result<HeadPublicKey, TextError> {
    lines.parsed("key", HeadPublicKey::parse)
}

fn signature(lines: &mut Lines<'_>) -> Result<Signature, TextError> {
    lines.parsed("signature", |text| hexadecimal(text).map(Signature))
}

/// Reads a head and the one before it: two heads, or the first of a chain alone.
fn link(lines: &mut Lines<'_>, sequence: u64) -> Result<SignedLink, TextError> {
    let first = SignedHead::read(lines)?;
    if first.head.sequence == sequence {
        return Ok(SignedLink { before: None, by: first });
    }
    Ok(SignedLink { before: Some(first), by: SignedHead::read(lines)? })
}

fn end(mut lines: Lines<'_>) -> Result<(), TextError> {
    if lines.is_at_end() { Ok(()) } else { Err(lines.expected("the end of the text")) }
}

impl Receipt {
    /// Writes the receipt as text.
    pub fn text(&self) -> String {
        let mut text = format!("key {}\n\n{}signature {}\n", self.key, self.statement.text(), self.signature);
        self.heads().for_each(|signed| signed.put(&mut text));
        text
    }

    /// Reads a receipt, exactly as [`Self::text`] writes it. [`Self::verify`] says whether it is one.
    ///
    /// # Errors
    /// The first line that is not as it should be.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let mut lines = Lines::of(text);
        let key = key(&mut lines)?;
        lines.exact("")?;
        let statement = Statement::read(&mut lines)?;
        let signature = signature(&mut lines)?;
        let by = link(&mut lines, statement.by.sequence)?;
        let admitted = match &statement.subject {
            Subject::Ticket { admission: Some(admission), .. } => Some(link(&mut lines, admission.by.sequence)?),
            _ => None,
        };
        end(lines)?;
        Ok(Self { key, statement, signature, by, admitted })
    }
}

impl HeadPage {
    /// Writes the page as text.
    pub fn text(&self) -> String {
        let mut text = format!("key {}\n", self.key);
        self.heads.iter().for_each(|signed| signed.put(&mut text));
        text
    }

    /// Reads a page, exactly as [`Self::text`] writes it, or several pages of one chain, one after another.
    /// [`Self::verify`] says whether the heads are a chain.
    ///
    /// # Errors
    /// The first line that is not as it should be.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let mut lines = Lines::of(text);
        let first = key(&mut lines)?;
        let mut heads = Vec::new();
        while !lines.is_at_end() {
            if let Ok(next) = key(&mut lines) {
                if next != first {
                    return Err(lines.expected("pages of one key"));
                }
                continue;
            }
            heads.push(SignedHead::read(&mut lines)?);
        }
        Ok(Self { key: first, heads })
    }
}
