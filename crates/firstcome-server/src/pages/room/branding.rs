//! How the page of a room looks: the organiser's texts in the visitor's language, colours, own style and logo. Pure, but
//! for the two calls that serve the style and the logo.
//!
//! # Invariants
//! - Each text on the page can be read in all colours that an organiser may choose: derived colours keep the contrast too.
//! - Style and logo come from an address of the room, so that the page loads nothing from elsewhere.

use super::super::language::{Language, of_tag};
use crate::api::body::{self, PathName};
use crate::api::{appearance, measured};
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::state::App;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use firstcome::core::room::appearance::{Appearance, CONTRAST_MIN, Color, Colors, LogoKind, Texts};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;

/// How much of the background is mixed into softer texts at most, in percent.
const SOFT_PERCENT_MAX: u8 = 40;
/// How much of the text is mixed into lines.
const LINE_PERCENT: u8 = 14;
/// How much of the text is mixed into what lies behind the card of the page.
const GROUND_PERCENT: u8 = 5;
/// A picture runs nothing and loads nothing, also for a visitor who opens it by itself.
const LOGO_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox";

/// What the organiser changed of the page.
pub(in crate::pages) struct Branding {
    pub(in crate::pages) texts: Texts,
    /// What the style is named in its address; none if there is none.
    pub(in crate::pages) style: Option<String>,
    /// See [`Self::style`].
    pub(in crate::pages) logo: Option<String>,
    /// Another one after each change.
    pub(in crate::pages) version: String,
}

fn named(hash: u64) -> String {
    format!("{hash:016x}")
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The texts for a visitor: each in the language of the visitor if there is one, else that for all.
fn texts(appearance: &Appearance, language: &Language) -> Texts {
    let own = appearance.translations.iter().find(|(tag, _)| of_tag(tag).is_some_and(|known| known == language));
    let own = own.map(|(_, texts)| texts.clone()).unwrap_or_default();
    let Texts { title, heading, next, footer } = appearance.texts.clone();
    Texts {
        title: own.title.or(title),
        heading: own.heading.or(heading),
        next: own.next.or(next),
        footer: own.footer.or(footer),
    }
}

impl Branding {
    pub(in crate::pages) fn new(appearance: &Appearance, language: &Language) -> Self {
        let texts = texts(appearance, language);
        let style = sheet(appearance).map(|sheet| named(hash(&sheet)));
        let logo = appearance.logo.as_ref().map(|logo| named(logo.digest()));
        let said = [&texts.title, &texts.heading, &texts.next, &texts.footer];
        let version = named(hash(&(said, &style, &logo)));
        Self { texts, style, logo, version }
    }
}

/// Sets the colours of the page by name, in a rule that comes after those of the page.
fn put_colors(sheet: &mut String, colors: Colors) {
    let Colors { accent, background, text } = colors;
    let is_read = |color: Color, on: &[Color]| on.iter().all(|on| CONTRAST_MIN <= color.contrast(*on));
    let behind = background.mixed(text, GROUND_PERCENT);
    let ground = if is_read(text, &[behind]) && is_read(accent, &[behind]) { behind } else { background };
    let softer = (0..=SOFT_PERCENT_MAX).rev().map(|percent| text.mixed(background, percent));
    let soft = softer.into_iter().find(|soft| is_read(*soft, &[background, ground])).unwrap_or(text);
    let on = if accent.contrast(Color::BLACK) < accent.contrast(Color::WHITE) { Color::WHITE } else { Color::BLACK };
    let line = background.mixed(text, LINE_PERCENT);
    let scheme = if background.luminance() < text.luminance() { "dark" } else { "light" };
    let _ = write!(
        sheet,
        ":root,[data-phase]{{--ink:{text};--soft:{soft};--line:{line};--paper:{background};--ground:{ground};\
         --brand:{accent};--on:{on};color-scheme:{scheme}}}"
    );
}

/// The style sheet of the organiser: colours first, then the own style. `None` if there is nothing in it.
fn sheet(appearance: &Appearance) -> Option<String> {
    let mut sheet = String::new();
    if let Some(colors) = appearance.colors {
        put_colors(&mut sheet, colors);
    }
    if let (Some(Colors { background, .. }), Some(_)) = (appearance.colors, &appearance.logo) {
        // What the logo was made for, and what it lies on in the dark.
        let _ = write!(sheet, ".logo{{background:{background}}}");
    }
    if let Some(colors) = appearance.dark_colors {
        sheet.push_str("@media (prefers-color-scheme:dark){");
        put_colors(&mut sheet, colors);
        sheet.push('}');
    }
    if let Some(style) = &appearance.style {
        sheet.push('\n');
        sheet.push_str(style);
    }
    (!sheet.is_empty()).then_some(sheet)
}

/// Reads how the page of the room looks.
async fn appearance_of(app: &App, path: PathName) -> Result<Arc<Appearance>, Problem> {
    let room = body::room(&path.map_err(|_| body::undecodable())?.0)?;
    appearance::shown(app, &room).await
}

/// An answer that a browser keeps if it asked for it by its name: then it never changes.
fn kept(kind: &'static str, name: &str, query: Option<&str>, bytes: Vec<u8>) -> Response {
    let keep = if query == Some(name) { "public, max-age=86400, immutable" } else { "no-store" };
    let headers: [(HeaderName, HeaderValue); 3] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static(keep)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, bytes).into_response()
}

/// Serves the style sheet of the organiser.
pub(super) async fn get_style(State(app): State<Arc<App>>, path: PathName, RawQuery(query): RawQuery) -> Response {
    let call = pin!(async {
        let appearance = appearance_of(&app, path).await?;
        let sheet = sheet(&appearance).ok_or(Code::NotFound)?;
        let name = named(hash(&sheet));
        Ok(kept("text/css; charset=utf-8", &name, query.as_deref(), sheet.into()))
    });
    measured(&app, Route::GetRoomPage, call).await
}

/// Serves the logo.
pub(super) async fn get_logo(State(app): State<Arc<App>>, path: PathName, RawQuery(query): RawQuery) -> Response {
    let call = pin!(async {
        let appearance = appearance_of(&app, path).await?;
        let logo = appearance.logo.as_ref().ok_or(Code::NotFound)?;
        let name = named(logo.digest());
        let mut response = kept(logo.kind().media_type(), &name, query.as_deref(), logo.bytes().to_vec());
        if logo.kind() == LogoKind::Svg {
            let policy = HeaderValue::from_static(LOGO_POLICY);
            response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
        }
        Ok(response)
    });
    measured(&app, Route::GetRoomPage, call).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn color(text: &str) -> Color {
        Color::parse(text).unwrap()
    }

    fn variable(sheet: &str, name: &str) -> Color {
        let (_, rest) = sheet.split_once(&format!("{name}:")).unwrap();
        color(rest.split([';', '}']).next().unwrap())
    }

    #[test]
    fn each_text_can_be_read_in_all_colors_that_are_accepted() {
        let shades: Vec<Color> =
            ["#000", "#111", "#767676", "#777", "#595959", "#0b6e5f", "#ffdd00", "#eee", "#fff", "#00f"]
                .into_iter()
                .map(color)
                .collect();
        let mut accepted = 0;
        for background in &shades {
            for text in &shades {
                for accent in &shades {
                    let colors = Colors { accent: *accent, background: *background, text: *text };
                    let appearance = Appearance { colors: Some(colors), ..Appearance::default() };
                    if appearance.check().is_err() {
                        continue;
                    }
                    accepted += 1;
                    let sheet = sheet(&appearance).unwrap();
                    let named = |name| variable(&sheet, name);
                    for on in ["--paper", "--ground"] {
                        for of in ["--ink", "--soft", "--brand"] {
                            assert!(CONTRAST_MIN <= named(of).contrast(named(on)), "{of} on {on}: {sheet}");
                        }
                    }
                    assert!(CONTRAST_MIN <= named("--on").contrast(named("--brand")), "{sheet}");
                }
            }
        }
        assert!(50 < accepted, "{accepted}");
    }

    #[test]
    fn each_text_is_in_the_language_of_the_visitor_or_in_that_for_all() {
        let text = |text: &str| Some(text.into());
        let appearance = Appearance {
            texts: Texts { title: text("Concert"), footer: text("Foot"), ..Texts::default() },
            translations: BTreeMap::from([
                ("ko".into(), Texts { title: text("콘서트"), ..Texts::default() }),
                ("zh-TW".into(), Texts { title: text("音樂會"), ..Texts::default() }),
            ]),
            ..Appearance::default()
        };
        let told = |tag| {
            let Texts { title, footer, heading, .. } = texts(&appearance, of_tag(tag).unwrap());
            assert_eq!(heading, None);
            (title.unwrap(), footer.unwrap())
        };
        assert_eq!(told("en"), ("Concert".into(), "Foot".into()));
        assert_eq!(told("ko"), ("콘서트".into(), "Foot".into()));
        assert_eq!((told("zh-Hant").0, told("zh-Hans").0), ("音樂會".into(), "Concert".into()));
    }

    #[test]
    fn a_look_has_another_version_after_each_change() {
        let look = |style: Option<&str>, title: Option<&str>| {
            let texts = Texts { title: title.map(Into::into), ..Texts::default() };
            let appearance = Appearance { style: style.map(Into::into), texts, ..Appearance::default() };
            Branding::new(&appearance, of_tag("en").unwrap())
        };
        let versions = [look(None, None), look(Some("a{}"), None), look(Some("b{}"), None), look(None, Some("a"))];
        let distinct: std::collections::BTreeSet<&str> = versions.iter().map(|look| look.version.as_str()).collect();
        assert_eq!(distinct.len(), versions.len());
        assert_eq!((versions[0].style.is_some(), versions[1].style.is_some()), (false, true));
    }
}
