//! Reads times as users write them.

use std::time::Duration;
use syn::LitStr;

/// The units, with their milliseconds.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// An option, and the range of its values.
pub(crate) struct Range {
    pub(crate) option: &'static str,
    pub(crate) min: Duration,
    pub(crate) max: Duration,
    /// The range as the error shows it.
    pub(crate) wanted: &'static str,
}

/// Reads a time and checks its range.
pub(crate) fn parse(literal: &LitStr, range: &Range) -> syn::Result<Duration> {
    let text = literal.value();
    let digits = text.len() - text.trim_start_matches(|character: char| character.is_ascii_digit()).len();
    let (count, unit) = text.split_at(digits);
    let unit_ms = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ms)| ms);
    let Some((count, unit_ms)) = count.parse::<u64>().ok().zip(unit_ms) else {
        let wanted = "write a whole number and a unit, as in \"250ms\", \"5s\", \"30m\", \"1h\"";
        return Err(syn::Error::new(literal.span(), format!("\"{text}\" is not a time: {wanted}")));
    };
    // A time that overflows is out of range too.
    let time = Duration::from_millis(count.saturating_mul(*unit_ms));
    if (range.min..=range.max).contains(&time) {
        Ok(time)
    } else {
        Err(syn::Error::new(literal.span(), format!("{} must be {}, not {text}", range.option, range.wanted)))
    }
}
