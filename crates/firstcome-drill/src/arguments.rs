//! Parses values of the command line.

use anyhow::anyhow;
use std::time::Duration;

/// Parses a duration: `250ms`, `5s`, `30m`, `1h`. Refuses other units, fractions, and more milliseconds than 64 bits
/// hold.
pub fn duration(text: &str) -> anyhow::Result<Duration> {
    let wrong = || anyhow!("{text:?} is not a duration; write 250ms, 5s, 30m or 1h");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit_ms = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_a_number_and_a_unit() {
        for (text, wanted_ms) in [("250ms", 250), ("5s", 5_000), ("30m", 1_800_000), ("1h", 3_600_000), ("0s", 0)] {
            assert_eq!(duration(text).unwrap(), Duration::from_millis(wanted_ms));
        }
        for text in ["", "5", "s", "-1s", "1.5s", "1d", "1 s", "99999999999999999999s", "18446744073709551615h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
