//! How the page of a room looks: texts, colours, a logo, and a style of its own.
//!
//! The rules of a room do not need it, so it is a value beside the room's settings and no part of the room's state.
//!
//! # Invariants
//! Once [`Appearance::check`] has accepted it:
//! - Each pair of colours that a text stands on has the contrast that WCAG 2.2 AA asks for ([`CONTRAST_MIN`]).
//! - Its style loads nothing from another site.
//! - It is bounded: see the limits that begin with `APPEARANCE_`.

mod color;
mod logo;
mod style;

pub use color::{CONTRAST_MIN, Color, ColorError, Colors};
pub use logo::{Logo, LogoError, LogoKind};

use super::bytes::{ImageError, Reader, put_number, put_option, put_text};
use crate::limits::{APPEARANCE_STYLE_BYTES_MAX, APPEARANCE_TEXT_BYTES_MAX, APPEARANCE_TRANSLATIONS_MAX};
use std::collections::BTreeMap;
use std::fmt;

/// The encoding that this version writes.
const VERSION: u8 = 1;
/// The most bytes of the tag of a language.
const TAG_BYTES_MAX: usize = 16;

/// The organiser's own texts. Plain text: the page escapes each.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Texts {
    /// What the visitors wait for. Stands in place of the room's name.
    pub title: Option<Box<str>>,
    /// Stands in place of the heading that a visitor in line reads.
    pub heading: Option<Box<str>>,
    /// What happens next.
    pub next: Option<Box<str>>,
    /// Stands at the foot of the page.
    pub footer: Option<Box<str>>,
}

impl Texts {
    /// Each text with the name of its field, in a fixed order.
    fn fields(&self) -> [(&'static str, Option<&str>); 4] {
        [
            ("title", self.title.as_deref()),
            ("heading", self.heading.as_deref()),
            ("next", self.next.as_deref()),
            ("footer", self.footer.as_deref()),
        ]
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, ImageError> {
        let mut text = || reader.option(|it| it.text().map(Into::into));
        Ok(Self { title: text()?, heading: text()?, next: text()?, footer: text()? })
    }
}

/// How the page of a room looks. The default is the look of every other room.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Appearance {
    /// The texts for visitors whose language has no translation of them.
    pub texts: Texts,
    /// The texts of other languages, by the tag of the language (BCP 47). A text that a language lacks is that of
    /// [`Self::texts`].
    pub translations: BTreeMap<Box<str>, Texts>,
    /// The colours of the page. In the dark too, unless there are [`Self::dark_colors`].
    pub colors: Option<Colors>,
    /// The colours for visitors who prefer a dark page.
    pub dark_colors: Option<Colors>,
    /// A style sheet that comes after that of the page.
    pub style: Option<Box<str>>,
    /// A picture at the head of the page.
    pub logo: Option<Logo>,
}

/// Why an appearance is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AppearanceError {
    /// A field is out of its range.
    Field {
        /// The field, as the HTTP API names it.
        field: &'static str,
        /// What is wrong with it.
        says: String,
    },
    /// A text in the first colour cannot be read on the second one.
    LowContrast {
        /// The field of the colour, as the HTTP API names it.
        field: &'static str,
        /// The contrast in hundredths, rounded down. 450 is needed.
        ratio_hundredths: u32,
    },
}

impl AppearanceError {
    /// The field that is wrong.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Field { field, .. } | Self::LowContrast { field, .. } => field,
        }
    }
}

impl fmt::Display for AppearanceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field { says, .. } => f.write_str(says),
            Self::LowContrast { field, ratio_hundredths } => write!(
                f,
                "{field} has the contrast {}.{:02} to the background; 4.5 or more can be read",
                ratio_hundredths / 100,
                ratio_hundredths % 100
            ),
        }
    }
}

impl std::error::Error for AppearanceError {}

fn wrong(field: &'static str, says: impl Into<String>) -> AppearanceError {
    AppearanceError::Field { field, says: says.into() }
}

/// Whether a text has the form of a tag of a language: letters, then groups of letters or digits.
fn is_tag(tag: &str) -> bool {
    let mut parts = tag.split('-');
    let is_language = |part: &str| (2..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphabetic());
    let is_more = |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    tag.len() <= TAG_BYTES_MAX && parts.next().is_some_and(is_language) && parts.all(is_more)
}

impl Appearance {
    /// Checks the appearance. The error names the first field that is out of range, or the first colour that cannot be
    /// read on the background.
    pub fn check(&self) -> Result<(), AppearanceError> {
        check_texts("texts", &self.texts)?;
        if APPEARANCE_TRANSLATIONS_MAX < self.translations.len() {
            let says = format!("translations must be at most {APPEARANCE_TRANSLATIONS_MAX}");
            return Err(wrong("translations", says));
        }
        for (tag, texts) in &self.translations {
            if !is_tag(tag) {
                return Err(wrong(
                    "translations",
                    "translations must be named by tags of languages, such as ko or pt-BR",
                ));
            }
            check_texts("translations", texts)?;
        }
        for (colors, [accent, text]) in [
            (self.colors, ["colors.accent", "colors.text"]),
            (self.dark_colors, ["dark_colors.accent", "dark_colors.text"]),
        ] {
            let Some(Colors { accent: of_accent, background, text: of_text }) = colors else { continue };
            for (field, color) in [(text, of_text), (accent, of_accent)] {
                let ratio = color.contrast(background);
                if ratio < CONTRAST_MIN {
                    return Err(AppearanceError::LowContrast { field, ratio_hundredths: (ratio * 100.0) as u32 });
                }
            }
        }
        let Some(style) = &self.style else { return Ok(()) };
        if APPEARANCE_STYLE_BYTES_MAX < style.len() {
            let says = format!("style must have at most {APPEARANCE_STYLE_BYTES_MAX} bytes");
            return Err(wrong("style", says));
        }
        style::check(style).map_err(|says| wrong("style", says))
    }

    /// Writes the appearance as bytes, for stores.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        let put_texts = |out: &mut Vec<u8>, texts: &Texts| {
            texts.fields().into_iter().for_each(|(_, text)| put_option(out, text, put_text));
        };
        put_texts(&mut out, &self.texts);
        put_number(&mut out, self.translations.len() as u64);
        for (tag, texts) in &self.translations {
            put_text(&mut out, tag);
            put_texts(&mut out, texts);
        }
        for colors in [self.colors, self.dark_colors] {
            put_option(&mut out, colors, |out, Colors { accent, background, text }| {
                [accent, background, text].iter().for_each(|color| out.extend_from_slice(&color.bytes()));
            });
        }
        put_option(&mut out, self.style.as_deref(), put_text);
        put_option(&mut out, self.logo.as_ref(), |out, logo| {
            put_number(out, logo.bytes().len() as u64);
            out.extend_from_slice(logo.bytes());
        });
        out
    }

    /// Reads what [`Self::encode`] wrote. Accepts nothing that [`Self::check`] refuses.
    ///
    /// # Errors
    /// The bytes are damaged, or another version wrote them.
    pub fn decode(bytes: &[u8]) -> Result<Self, ImageError> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != VERSION {
            return Err(ImageError::Version);
        }
        let texts = Texts::read(&mut reader)?;
        let mut translations = BTreeMap::new();
        for _ in 0..reader.count()? {
            let tag: Box<str> = reader.text()?.into();
            translations.insert(tag, Texts::read(&mut reader)?);
        }
        let mut colors = || {
            reader.option(|it| {
                let mut color = || it.three().map(Color::from_bytes);
                Ok(Colors { accent: color()?, background: color()?, text: color()? })
            })
        };
        let (colors, dark_colors) = (colors()?, colors()?);
        let style = reader.option(|it| it.text().map(Into::into))?;
        let logo = reader.option(|it| {
            let count = it.count()?;
            Logo::new(it.take(count)?).map_err(|_| ImageError::Value("logo"))
        })?;
        reader.end()?;
        let appearance = Self { texts, translations, colors, dark_colors, style, logo };
        appearance.check().map_err(|_| ImageError::Value("appearance"))?;
        Ok(appearance)
    }
}

fn check_texts(field: &'static str, texts: &Texts) -> Result<(), AppearanceError> {
    for (name, text) in texts.fields() {
        let Some(text) = text else { continue };
        if text.trim().is_empty() || APPEARANCE_TEXT_BYTES_MAX < text.len() {
            let says = format!("{field}: {name} must have 1 to {APPEARANCE_TEXT_BYTES_MAX} bytes that can be seen");
            return Err(wrong(field, says));
        }
        if text.chars().any(char::is_control) {
            return Err(wrong(field, format!("{field}: {name} must have no control characters")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn colors(accent: &str, background: &str, text: &str) -> Colors {
        let color = |text| Color::parse(text).unwrap();
        Colors { accent: color(accent), background: color(background), text: color(text) }
    }

    fn whole() -> Appearance {
        let texts = |title: &str| Texts { title: Some(title.into()), footer: Some("©".into()), ..Texts::default() };
        Appearance {
            texts: texts("Spring concert"),
            translations: BTreeMap::from([("ko".into(), texts("봄 콘서트")), ("pt-BR".into(), Texts::default())]),
            colors: Some(colors("#0b6e5f", "#fff", "#16202c")),
            dark_colors: Some(colors("#52c7b1", "#171e26", "#e9eef3")),
            style: Some("main { border-radius: 0 }".into()),
            logo: Some(Logo::new(b"<svg xmlns='http://www.w3.org/2000/svg'/>").unwrap()),
        }
    }

    #[test]
    fn an_appearance_is_read_as_it_was_written() {
        for appearance in [Appearance::default(), whole()] {
            assert_eq!(appearance.check(), Ok(()));
            let bytes = appearance.encode();
            assert_eq!(Appearance::decode(&bytes), Ok(appearance));
            for end in 0..bytes.len() {
                assert!(Appearance::decode(&bytes[..end]).is_err(), "{end} bytes");
            }
            assert_eq!(Appearance::decode(&[bytes.as_slice(), &[0]].concat()), Err(ImageError::Trailing));
        }
        assert_eq!(Appearance::decode(&[2]), Err(ImageError::Version));
        let refused = Appearance { colors: Some(colors("#777", "#777", "#777")), ..Appearance::default() };
        assert_eq!(Appearance::decode(&refused.encode()), Err(ImageError::Value("appearance")));
    }

    #[test]
    fn colors_that_cannot_be_read_are_refused_with_their_ratio() {
        let told = |colors| Appearance { colors: Some(colors), ..Appearance::default() }.check();
        assert_eq!(told(colors("#0b6e5f", "#ffffff", "#16202c")), Ok(()));
        let low = |field, ratio_hundredths| Err(AppearanceError::LowContrast { field, ratio_hundredths });
        assert_eq!(told(colors("#0b6e5f", "#ffffff", "#777777")), low("colors.text", 447));
        assert_eq!(told(colors("#ffdd00", "#ffffff", "#000000")), low("colors.accent", 134));
        let dark = Some(colors("#52c7b1", "#171e26", "#171e26"));
        let error = Appearance { dark_colors: dark, ..Appearance::default() }.check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "dark_colors.text has the contrast 1.00 to the background; 4.5 or more can be read"
        );
    }

    #[test]
    fn fields_out_of_range_are_named() {
        let field = |appearance: Appearance| match appearance.check() {
            Err(AppearanceError::Field { field, .. }) => field,
            told => panic!("{told:?}"),
        };
        let of_text = |text: &str| Appearance {
            texts: Texts { next: Some(text.into()), ..Texts::default() },
            ..Appearance::default()
        };
        let long = "é".repeat(APPEARANCE_TEXT_BYTES_MAX / 2 + 1);
        for text in ["", " ", "a\nb", "a\u{202}\u{7f}", &long] {
            assert_eq!(field(of_text(text)), "texts", "{text:?}");
        }
        let of_tag = |tag: &str| Appearance {
            translations: BTreeMap::from([(tag.into(), Texts::default())]),
            ..Appearance::default()
        };
        for tag in ["", "k", "ko_KR", "한", "ko-", "abcdefghi", "en-aaaa-bbbb-cccc"] {
            assert_eq!(field(of_tag(tag)), "translations", "{tag:?}");
        }
        let languages = (0..=APPEARANCE_TRANSLATIONS_MAX).map(|at| (format!("en-{at}").into(), Texts::default()));
        assert_eq!(field(Appearance { translations: languages.collect(), ..Appearance::default() }), "translations");
        for style in ["@import 'x'", &"a".repeat(APPEARANCE_STYLE_BYTES_MAX + 1)] {
            assert_eq!(field(Appearance { style: Some(style.into()), ..Appearance::default() }), "style");
        }
    }
}
