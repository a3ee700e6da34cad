//! How the page of a room looks, over HTTP.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use firstcome_store::core::room::appearance::{Appearance, Color, Colors, Logo, Texts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Serialize, Deserialize)]
struct TextsShown {
    title: Option<Box<str>>,
    heading: Option<Box<str>>,
    next: Option<Box<str>>,
    footer: Option<Box<str>>,
}

impl TextsShown {
    fn new(texts: &Texts) -> Self {
        let Texts { title, heading, next, footer } = texts.clone();
        Self { title, heading, next, footer }
    }

    fn texts(self) -> Texts {
        let Self { title, heading, next, footer } = self;
        Texts { title, heading, next, footer }
    }
}

#[derive(Serialize, Deserialize)]
struct ColorsShown {
    accent: String,
    background: String,
    text: String,
}

impl ColorsShown {
    fn new(colors: Colors) -> Self {
        let Colors { accent, background, text } = colors;
        Self { accent: accent.to_string(), background: background.to_string(), text: text.to_string() }
    }

    fn colors(&self) -> Option<Colors> {
        let color = |text: &str| Color::parse(text).ok();
        Some(Colors { accent: color(&self.accent)?, background: color(&self.background)?, text: color(&self.text)? })
    }
}

/// An appearance: the body of a PUT, and what the service shows.
#[derive(Serialize, Deserialize)]
pub(crate) struct AppearanceShown {
    texts: Option<TextsShown>,
    #[serde(default)]
    translations: BTreeMap<Box<str>, TextsShown>,
    colors: Option<ColorsShown>,
    dark_colors: Option<ColorsShown>,
    style: Option<Box<str>>,
    logo: Option<String>,
}

impl AppearanceShown {
    pub(crate) fn new(appearance: &Appearance) -> Self {
        let Appearance { texts, translations, colors, dark_colors, style, logo } = appearance;
        Self {
            texts: Some(TextsShown::new(texts)),
            translations: translations.iter().map(|(tag, texts)| (tag.clone(), TextsShown::new(texts))).collect(),
            colors: colors.map(ColorsShown::new),
            dark_colors: dark_colors.map(ColorsShown::new),
            style: style.clone(),
            logo: logo.as_ref().map(|logo| BASE64_STANDARD.encode(logo.bytes())),
        }
    }

    /// `None` if this version cannot read it.
    pub(crate) fn appearance(self) -> Option<Appearance> {
        let colors = |colors: Option<ColorsShown>| match colors {
            None => Some(None),
            Some(colors) => colors.colors().map(Some),
        };
        let logo = match self.logo {
            None => None,
            Some(text) => Some(Logo::new(&BASE64_STANDARD.decode(text).ok()?).ok()?),
        };
        Some(Appearance {
            texts: self.texts.map(TextsShown::texts).unwrap_or_default(),
            translations: self.translations.into_iter().map(|(tag, texts)| (tag, texts.texts())).collect(),
            colors: colors(self.colors)?,
            dark_colors: colors(self.dark_colors)?,
            style: self.style,
            logo,
        })
    }
}
