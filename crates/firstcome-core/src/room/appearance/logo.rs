//! Pictures, whose kind their own bytes tell.

use crate::limits::APPEARANCE_LOGO_BYTES_MAX;
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;

/// The kind of a picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogoKind {
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// WebP.
    WebP,
    /// SVG.
    Svg,
}

impl LogoKind {
    /// Returns the media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::WebP => "image/webp",
            Self::Svg => "image/svg+xml",
        }
    }

    /// Reads the kind from the first bytes.
    fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            return Some(Self::Png);
        }
        if bytes.starts_with(b"\xff\xd8\xff") {
            return Some(Self::Jpeg);
        }
        if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
            return Some(Self::WebP);
        }
        std::str::from_utf8(bytes).ok().filter(|text| is_svg(text)).map(|_| Self::Svg)
    }
}

/// Whether the first element of a text is `svg`. A document type may stand before it, but none that defines entities:
/// these can grow without bound when they are read.
fn is_svg(text: &str) -> bool {
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    loop {
        let end = if rest.starts_with("<?") {
            "?>"
        } else if rest.starts_with("<!--") {
            "-->"
        } else if rest.starts_with("<!DOCTYPE") {
            ">"
        } else {
            break;
        };
        let Some((before, after)) = rest.split_once(end) else { return false };
        if end == ">" && before.contains('[') {
            return false;
        }
        rest = after.trim_start();
    }
    let follows = rest.strip_prefix("<svg").and_then(|rest| rest.chars().next());
    follows.is_some_and(|next| next.is_whitespace() || matches!(next, '>' | '/'))
}

/// A picture. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Logo {
    kind: LogoKind,
    bytes: Arc<[u8]>,
    digest: u64,
}

impl fmt::Debug for Logo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Logo({:?}, {} bytes)", self.kind, self.bytes.len())
    }
}

/// Why bytes are no logo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LogoError {
    /// There are more of them than [`APPEARANCE_LOGO_BYTES_MAX`].
    TooLarge,
    /// They are of no kind that the page shows.
    UnknownKind,
}

impl fmt::Display for LogoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "must have at most {APPEARANCE_LOGO_BYTES_MAX} bytes"),
            Self::UnknownKind => f.write_str("must be a PNG, JPEG, WebP or SVG picture, by its own bytes"),
        }
    }
}

impl std::error::Error for LogoError {}

impl Logo {
    /// Reads the kind of a picture from its bytes. Does not decode it.
    pub fn new(bytes: &[u8]) -> Result<Self, LogoError> {
        if APPEARANCE_LOGO_BYTES_MAX < bytes.len() {
            return Err(LogoError::TooLarge);
        }
        let kind = LogoKind::of(bytes).ok_or(LogoError::UnknownKind)?;
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(Sha256::digest(bytes));
        Ok(Self { kind, bytes: bytes.into(), digest: u64::from_be_bytes([a, b, c, d, e, f, g, h]) })
    }

    /// Returns the kind.
    pub const fn kind(&self) -> LogoKind {
        self.kind
    }

    /// Returns a digest of the bytes, to name the picture by.
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the bytes, as they came.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_picture_is_that_of_its_bytes() {
        let cases: [(&[u8], _); 17] = [
            (b"\x89PNG\r\n\x1a\n....", Ok(LogoKind::Png)),
            (b"\xff\xd8\xff\xe0", Ok(LogoKind::Jpeg)),
            (b"RIFF\0\0\0\0WEBPVP8 ", Ok(LogoKind::WebP)),
            (b"<svg/>", Ok(LogoKind::Svg)),
            (b"\xef\xbb\xbf<?xml version=\"1.0\"?>\n<!-- a -->\n<!DOCTYPE svg>\n<svg >", Ok(LogoKind::Svg)),
            (b"", Err(LogoError::UnknownKind)),
            (b"GIF89a", Err(LogoError::UnknownKind)),
            (b"RIFF\0\0\0\0WAVE", Err(LogoError::UnknownKind)),
            (b"RIFF", Err(LogoError::UnknownKind)),
            (b"<html><svg/></html>", Err(LogoError::UnknownKind)),
            (b"<svgx>", Err(LogoError::UnknownKind)),
            (b"<svg", Err(LogoError::UnknownKind)),
            (b"<!-- <svg/>", Err(LogoError::UnknownKind)),
            (b"<!DOCTYPE svg [<!ENTITY a 'b'>]><svg/>", Err(LogoError::UnknownKind)),
            (b"<!DOCTYPE svg [<!ENTITY a '><svg '>]><svg>&a;</svg>", Err(LogoError::UnknownKind)),
            (b"<script>alert(1)</script>", Err(LogoError::UnknownKind)),
            (b"<svg>\xff", Err(LogoError::UnknownKind)),
        ];
        for (bytes, kind) in cases {
            assert_eq!(Logo::new(bytes).map(|logo| logo.kind()), kind, "{}", bytes.escape_ascii());
        }
        let mut large = b"\xff\xd8\xff".to_vec();
        large.resize(APPEARANCE_LOGO_BYTES_MAX, 0);
        assert!(Logo::new(&large).is_ok());
        large.push(0);
        assert_eq!(Logo::new(&large), Err(LogoError::TooLarge));
    }
}
