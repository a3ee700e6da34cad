//! The languages of the pages for visitors. Each has a catalogue of texts in Fluent (`assets/languages/`), which brings
//! the plural rules. A catalogue is parsed when the first visitor reads the language.

use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::{FluentArgs, FluentResource, FluentValue};
use std::sync::OnceLock;

/// The direction of the script, as HTML spells it.
const LEFT_TO_RIGHT: &str = "ltr";
/// See [`LEFT_TO_RIGHT`].
const RIGHT_TO_LEFT: &str = "rtl";

/// A language of the pages.
pub(crate) struct Language {
    /// The tag, as BCP 47 and HTML spell it.
    pub(crate) tag: &'static str,
    /// The name in the language itself.
    pub(crate) name: &'static str,
    pub(crate) direction: &'static str,
    source: &'static str,
    bundle: OnceLock<FluentBundle<FluentResource>>,
}

impl PartialEq for Language {
    fn eq(&self, other: &Self) -> bool {
        self.tag == other.tag
    }
}

macro_rules! languages {
    ($($tag:literal $name:literal $direction:ident),+ $(,)?) => {
        /// All languages. The first one serves a visitor who reads none of them.
        pub(crate) static LANGUAGES: [Language; [$($tag),+].len()] = [$(Language {
            tag: $tag,
            name: $name,
            direction: $direction,
            source: include_str!(concat!("../../assets/languages/", $tag, ".ftl")),
            bundle: OnceLock::new(),
        }),+];
    };
}

languages! {
    "en" "English" LEFT_TO_RIGHT,
    "de" "Deutsch" LEFT_TO_RIGHT,
    "es" "Español" LEFT_TO_RIGHT,
    "fr" "Français" LEFT_TO_RIGHT,
    "id" "Bahasa Indonesia" LEFT_TO_RIGHT,
    "pt" "Português" LEFT_TO_RIGHT,
    "tr" "Türkçe" LEFT_TO_RIGHT,
    "vi" "Tiếng Việt" LEFT_TO_RIGHT,
    "ar" "العربية" RIGHT_TO_LEFT,
    "hi" "हिन्दी" LEFT_TO_RIGHT,
    "th" "ไทย" LEFT_TO_RIGHT,
    "ko" "한국어" LEFT_TO_RIGHT,
    "ja" "日本語" LEFT_TO_RIGHT,
    "zh-Hans" "简体中文" LEFT_TO_RIGHT,
    "zh-Hant" "繁體中文" LEFT_TO_RIGHT,
}

impl Language {
    /// Returns a text. `key` must be a key of the catalogues.
    pub(crate) fn text(&self, key: &str) -> String {
        self.with(key, &[])
    }

    /// Returns a text with numbers in it, in the plural form that fits them.
    pub(crate) fn with(&self, key: &str, numbers: &[(&str, u64)]) -> String {
        self.find(key, numbers).unwrap_or_else(|| key.to_owned())
    }

    /// Writes a whole number as the texts do.
    pub(crate) fn number(&self, number: u64) -> String {
        grouped(number as f64)
    }

    fn find(&self, key: &str, numbers: &[(&str, u64)]) -> Option<String> {
        let bundle = self.bundle();
        let pattern = bundle.get_message(key)?.value()?;
        let mut arguments = FluentArgs::new();
        for &(name, number) in numbers {
            arguments.set(name, number);
        }
        let mut errors = Vec::new();
        let text = bundle.format_pattern(pattern, Some(&arguments), &mut errors).into_owned();
        errors.is_empty().then_some(text)
    }

    fn bundle(&self) -> &FluentBundle<FluentResource> {
        self.bundle.get_or_init(|| {
            let locale = self.tag.parse().ok();
            let mut bundle = FluentBundle::new_concurrent(locale.into_iter().collect());
            // Numbers alone are put into texts, and a number needs no isolation.
            bundle.set_use_isolating(false);
            bundle.set_formatter(Some(|value, _| match value {
                FluentValue::Number(number) => Some(grouped(number.value)),
                _ => None,
            }));
            // With a faulty message the rest of the catalogue is read all the same; a test finds the fault.
            let resource = FluentResource::try_new(self.source.to_owned()).unwrap_or_else(|(resource, _)| resource);
            let _ = bundle.add_resource(resource);
            bundle
        })
    }
}

/// Writes a whole number with its digits in groups, by the space that ISO 80000 has for all languages.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    if digits.len() <= 4 {
        return digits;
    }
    let mut text = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        if 0 < at && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Returns the language of a tag, if the pages have it: `pt-BR` reads `pt`, `zh-TW` reads `zh-Hant`.
pub(crate) fn of_tag(tag: &str) -> Option<&'static Language> {
    let tag = tag.trim().to_ascii_lowercase();
    let mut parts = tag.split(['-', '_']);
    let primary = match parts.next()? {
        "zh" => {
            let is_traditional = parts.any(|part| matches!(part, "hant" | "tw" | "hk" | "mo"));
            if is_traditional { "zh-Hant" } else { "zh-Hans" }
        }
        // An older code of Indonesian.
        "in" => "id",
        primary => primary,
    };
    LANGUAGES.iter().find(|language| language.tag == primary)
}

/// Chooses by `Accept-Language`: the known language of the highest weight, and of those the first.
pub(crate) fn accepted(header: &str) -> &'static Language {
    let mut best: Option<(&'static Language, f32)> = None;
    for part in header.split(',').take(32) {
        let mut fields = part.split(';');
        let Some(language) = fields.next().and_then(of_tag) else { continue };
        let weight =
            fields.find_map(|field| field.trim().strip_prefix("q=")).map_or(Some(1.0), |text| text.parse().ok());
        let Some(weight) = weight.filter(|weight: &f32| 0.0 < *weight && *weight <= 1.0) else { continue };
        if best.is_none_or(|(_, highest)| highest < weight) {
            best = Some((language, weight));
        }
    }
    best.map_or(&LANGUAGES[0], |(language, _)| language)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn keys(language: &Language) -> BTreeSet<&str> {
        let is_key = |line: &&str| line.starts_with(|first: char| first.is_ascii_lowercase());
        language.source.lines().filter(is_key).filter_map(|line| Some(line.split_once(" = ")?.0)).collect()
    }

    #[test]
    fn each_language_has_each_text_in_each_number() {
        let wanted = keys(&LANGUAGES[0]);
        assert!(40 < wanted.len());
        for language in &LANGUAGES {
            assert_eq!(keys(language), wanted, "{}", language.tag);
            for key in &wanted {
                for number in [0, 1, 2, 3, 5, 11, 21, 100, 1_234_567] {
                    let numbers = [("count", number), ("from", number), ("to", number)];
                    let text = language.find(key, &numbers);
                    assert!(text.is_some_and(|text| !text.trim().is_empty()), "{} {key} {number}", language.tag);
                }
            }
        }
    }

    #[test]
    fn plurals_follow_the_rules_of_the_language() {
        let ahead = |tag, count| of_tag(tag).unwrap().with("ahead", &[("count", count)]);
        assert_eq!(ahead("en", 0), "No one is ahead of you");
        assert_eq!(ahead("en", 1), "1 person ahead of you");
        assert_eq!(ahead("en", 12_345), "12\u{202f}345 people ahead of you");
        assert_eq!(ahead("ko", 1), "앞에 1명이 기다립니다");
        let arabic = [1, 2, 3, 11, 100].map(|count| ahead("ar", count));
        assert_eq!(BTreeSet::from(arabic).len(), 5, "Arabic has five forms of these");
    }

    #[test]
    fn a_visitor_reads_the_preferred_language_that_there_is() {
        let chosen = |header| accepted(header).tag;
        assert_eq!(chosen("ko-KR,ko;q=0.9,en;q=0.8"), "ko");
        assert_eq!(chosen("fi, sv;q=0.9, de;q=0.5, fr;q=0.6"), "fr");
        assert_eq!(chosen("zh-TW"), "zh-Hant");
        assert_eq!(chosen("zh"), "zh-Hans");
        assert_eq!(chosen("PT-br"), "pt");
        for unreadable in ["", "fi", "*", "ko;q=0", "ko;q=x", "ko;q=2", ";;,,=", "\u{7f}"] {
            assert_eq!(chosen(unreadable), "en", "{unreadable:?}");
        }
    }
}
