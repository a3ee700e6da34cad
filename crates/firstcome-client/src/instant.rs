//! Instants as the service writes them: RFC 3339 in UTC, with at most six digits of the second's fraction.

use firstcome_store::core::time::Timestamp;

const SECOND_US: i64 = 1_000_000;
const DAY_S: i64 = 86_400;
/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// Writes an instant.
pub(crate) fn format(at: Timestamp) -> String {
    let (second, us) = (at.as_us().div_euclid(SECOND_US), at.as_us().rem_euclid(SECOND_US));
    let (days, second) = (second.div_euclid(DAY_S), second.rem_euclid(DAY_S));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if us != 0 {
        text.push_str(format!(".{us:06}").trim_end_matches('0'));
    }
    text.push('Z');
    text
}

/// Reads an instant; `None` for a text that the service never writes.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = match text.strip_suffix('Z')?.split_once('.') {
        Some((whole, fraction)) => (whole, fraction),
        None => (text.strip_suffix('Z')?, ""),
    };
    let marks = whole.len() == 19 && whole.is_ascii() && fraction.len() <= 6;
    if !marks || [4, 7, 10, 13, 16].map(|at| whole.as_bytes()[at]) != *b"--T::" {
        return None;
    }
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<i64>().ok())?;
    let part = |from: usize, to: usize| number(&whole[from..to]);
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
    let days = days(year, month, day);
    if civil(days) != (year, month, day) || 23 < hour || 59 < minute || 59 < second {
        return None;
    }
    let us = if fraction.is_empty() { 0 } else { number(&format!("{fraction:0<6}"))? };
    Timestamp::from_us((((days * 24 + hour) * 60 + minute) * 60 + second) * SECOND_US + us)
}

/// Returns year, month and day of a day since 1970-01-01. Years begin in March, so that the leap day is the last one.
const fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let (era, day_of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// Returns the day since 1970-01-01 of a date.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted = if 2 < month { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    era * ERA_DAYS + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - EPOCH_DAYS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instant_comes_back_from_its_text() {
        let day_us = DAY_S * SECOND_US;
        let steps = (Timestamp::MIN.as_us()..Timestamp::MAX.as_us()).step_by((day_us * 97 + 7_654_321) as usize);
        for us in steps.chain([Timestamp::MIN.as_us(), -1, 0, 1, 1_790_000_000_123_456, Timestamp::MAX.as_us()]) {
            let at = Timestamp::clamped_us(us);
            assert_eq!(parse(&format(at)), Some(at), "{}", format(at));
        }
        assert_eq!(format(Timestamp::clamped_us(0)), "1970-01-01T00:00:00Z");
        assert_eq!(format(Timestamp::clamped_us(951_782_400_500_000)), "2000-02-29T00:00:00.5Z");
        assert_eq!(format(Timestamp::MAX), "9999-12-31T23:59:59.999999Z");
        assert_eq!(format(Timestamp::MIN), "0001-01-01T00:00:00Z");
    }

    #[test]
    fn any_other_text_is_refused() {
        for text in [
            "",
            "Z",
            "2030-01-01",
            "2030-02-29T00:00:00Z",
            "2030-01-01T24:00:00Z",
            "2030-01-01T00:00:00.1234567Z",
            "2030-01-01T00:00:00+01:00",
            "2030-01-01 00:00:00Z",
            "+030-01-01T00:00:00Z",
            "é030-01-01T00:00:0Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
