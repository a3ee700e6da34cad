//! Formats and parses instants as RFC 3339, for its years 0001 to 9999.

use firstcome::core::time::Timestamp;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;
use std::cell::RefCell;

/// The Unix epoch.
const EPOCH: DateTime = jiff::civil::datetime(1970, 1, 1, 0, 0, 0, 0);

thread_local! {
    /// The last formatted second: answers of one moment share it, and formatting it is the slow part.
    static SECOND: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
}

/// Formats an instant in UTC, with up to six digits of the second's fraction.
pub fn format(at: Timestamp) -> String {
    let (second, us) = (at.as_us().div_euclid(1_000_000), at.as_us().rem_euclid(1_000_000));
    let mut text = String::with_capacity("9999-12-31T23:59:59.999999Z".len());
    SECOND.with_borrow_mut(|last| {
        if last.0 != second {
            // Civil time, because jiff's own timestamps end a day before the year 9999 does.
            let civil = EPOCH.checked_add(SignedDuration::from_secs(second));
            *last = (second, civil.map(|at| at.to_string()).unwrap_or_default());
        }
        text.push_str(&last.1);
    });
    if us != 0 {
        let digits = 1_000_000 + us;
        text.push('.');
        text.push_str(digits.to_string()[1..].trim_end_matches('0'));
    }
    text.push('Z');
    text
}

/// Parses an instant with `Z` or a numeric offset. Returns `None` for any text that RFC 3339 does not allow.
pub fn parse(text: &str) -> Option<Timestamp> {
    // jiff accepts more than RFC 3339, such as 20300101T00Z or a time zone's name.
    let byte_at = |at: usize| text.as_bytes().get(at).map(u8::to_ascii_uppercase);
    if [byte_at(4), byte_at(7), byte_at(10), byte_at(13), byte_at(16)] != [b'-', b'-', b'T', b':', b':'].map(Some) {
        return None;
    }
    let pieces = Pieces::parse(text).ok().filter(|pieces| pieces.time_zone_annotation().is_none())?;
    let civil = pieces.date().to_datetime(pieces.time()?);
    let offset_us = i128::from(pieces.to_numeric_offset()?.seconds()) * 1_000_000;
    let us = civil.duration_since(EPOCH).as_micros() - offset_us;
    Timestamp::from_us(i64::try_from(us).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instant_comes_back_from_its_text() {
        for us in [Timestamp::MIN.as_us(), -1, 0, 1, 1_790_000_000_123_456, Timestamp::MAX.as_us()] {
            let at = Timestamp::clamped_us(us);
            assert_eq!(parse(&format(at)), Some(at), "{}", format(at));
        }
        assert_eq!(format(Timestamp::clamped_us(0)), "1970-01-01T00:00:00Z");
        assert_eq!(parse("1970-01-01T01:00:00.000001+01:00"), Timestamp::from_us(1));
    }

    #[test]
    fn what_rfc_3339_does_not_write_is_not_read() {
        for text in
            ["", "2030-01-01", "20300101T000000Z", "2030-01-01T00Z", "2030-01-01T00:00:00", "2030-13-01T00:00:00Z"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
