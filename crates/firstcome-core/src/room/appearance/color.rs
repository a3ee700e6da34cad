//! Colours, and whether a text in one can be read on another.

use std::fmt;

/// The contrast of text that WCAG 2.2 AA asks for.
pub const CONTRAST_MIN: f64 = 4.5;

/// A colour of sRGB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Color([u8; 3]);

/// Why a text is no colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColorError;

impl fmt::Display for ColorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be a colour such as #0b6e5f or #fff")
    }
}

impl std::error::Error for ColorError {}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([red, green, blue]) = self;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

impl Color {
    /// Black.
    pub const BLACK: Self = Self([0; 3]);
    /// White.
    pub const WHITE: Self = Self([255; 3]);

    /// Reads a colour as CSS writes it in hexadecimal digits: `#rrggbb`, or `#rgb`.
    pub fn parse(text: &str) -> Result<Self, ColorError> {
        let digits = text.strip_prefix('#').ok_or(ColorError)?;
        let mut nibbles = [0; 6];
        let doubled = match digits.len() {
            3 => 2,
            6 => 1,
            _ => return Err(ColorError),
        };
        for (at, nibble) in nibbles.iter_mut().enumerate() {
            let digit = char::from(digits.as_bytes()[at / doubled]).to_digit(16).ok_or(ColorError)?;
            *nibble = digit as u8;
        }
        let [a, b, c, d, e, f] = nibbles;
        Ok(Self([a << 4 | b, c << 4 | d, e << 4 | f]))
    }

    pub(super) const fn bytes(self) -> [u8; 3] {
        self.0
    }

    pub(super) const fn from_bytes(bytes: [u8; 3]) -> Self {
        Self(bytes)
    }

    /// The relative luminance of WCAG: 0 of black to 1 of white.
    pub fn luminance(self) -> f64 {
        let linear = |part: u8| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        let [red, green, blue] = self.0.map(linear);
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    /// The contrast of WCAG between two colours: 1 (the same) to 21 (black and white).
    pub fn contrast(self, other: Self) -> f64 {
        let (one, two) = (self.luminance(), other.luminance());
        (one.max(two) + 0.05) / (one.min(two) + 0.05)
    }

    /// Mixes this colour with `percent` of another one.
    pub fn mixed(self, other: Self, percent: u8) -> Self {
        let percent = u16::from(percent.min(100));
        let part = |at: usize| {
            let sum = u16::from(self.0[at]) * (100 - percent) + u16::from(other.0[at]) * percent;
            (sum / 100) as u8
        };
        Self([part(0), part(1), part(2)])
    }
}

/// The colours of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Colors {
    /// Buttons, links and progress.
    pub accent: Color,
    /// What texts stand on.
    pub background: Color,
    /// Texts.
    pub text: Color,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_color_is_read_from_hexadecimal_digits() {
        assert_eq!(Color::parse("#0B6e5F").unwrap().to_string(), "#0b6e5f");
        assert_eq!(Color::parse("#0af").unwrap().to_string(), "#00aaff");
        for wrong in ["", "#", "fff", "#ff", "#ffff", "#fffffff", "#ggg", "red", "#é1", "#ab é", "#fff;}", "rgb(0,0,0)"]
        {
            assert_eq!(Color::parse(wrong), Err(ColorError), "{wrong:?}");
        }
    }

    #[test]
    fn contrast_is_that_of_wcag() {
        let contrast = |one, two| (Color::parse(one).unwrap().contrast(Color::parse(two).unwrap()) * 100.0).round();
        assert_eq!(contrast("#000", "#fff"), 2100.0);
        assert_eq!(contrast("#fff", "#fff"), 100.0);
        // Known pairs around the limit.
        assert_eq!((contrast("#767676", "#fff"), contrast("#777777", "#fff")), (454.0, 448.0));
        assert_eq!(contrast("#0000ff", "#fff"), contrast("#fff", "#0000ff"));
    }

    #[test]
    fn black_or_white_can_be_read_on_every_color() {
        for red in (0..=255).step_by(5) {
            for green in (0..=255).step_by(5) {
                for blue in (0..=255).step_by(15) {
                    let color = Color([red, green, blue]);
                    let best = color.contrast(Color::BLACK).max(color.contrast(Color::WHITE));
                    assert!(CONTRAST_MIN < best, "{color}");
                }
            }
        }
    }

    #[test]
    fn a_mix_lies_between_its_colors() {
        assert_eq!(Color::WHITE.mixed(Color::BLACK, 50).to_string(), "#7f7f7f");
        assert_eq!(
            (Color::WHITE.mixed(Color::BLACK, 0), Color::WHITE.mixed(Color::BLACK, 200)),
            (Color::WHITE, Color::BLACK)
        );
    }
}
