//! Instants as text: RFC 3339 over all years that it can write, 0001 to 9999.

use firstcome::core::time::Timestamp;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;

/// The instant from which Unix time counts.
const EPOCH: DateTime = jiff::civil::datetime(1970, 1, 1, 0, 0, 0, 0);

/// An instant in UTC, to the microsecond where it has any.
pub fn format(at: Timestamp) -> String {
    // Civil time, because jiff's own timestamps end a day before the year 9999 does.
    EPOCH.checked_add(SignedDuration::from_micros(at.as_us())).map(|at| format!("{at}Z")).unwrap_or_default()
}

/// An instant from its text, with `Z` or a numeric offset; `None` for anything that RFC 3339 does not write.
pub fn parse(text: &str) -> Option<Timestamp> {
    // jiff reads more than RFC 3339 writes, such as 20300101T00Z or a time zone's name.
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
