//! The endpoint of how the page of a room looks.

use super::body::{self, PathName};
use super::json::Json;
use super::room::refused;
use super::shape::Problem as ProblemShape;
use super::{NO_STORE, answered, measured};
use crate::auth::Scope;
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::pages::{LANGUAGES, of_tag};
use crate::state::App;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use firstcome::RoomStore;
use firstcome::core::id::RoomName;
use firstcome::core::limits::{APPEARANCE_LOGO_BYTES_MAX, APPEARANCE_STYLE_BYTES_MAX, APPEARANCE_TEXT_BYTES_MAX};
use firstcome::core::room::appearance::{Appearance, AppearanceError, Color, Colors, Logo, Texts};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use utoipa::ToSchema;

/// Bytes of a body. The logo comes within it, in base64.
const BODY_BYTES_MAX: usize = 256 * 1024;

const _: () = assert!(APPEARANCE_LOGO_BYTES_MAX / 3 * 4 + 2 * APPEARANCE_STYLE_BYTES_MAX < BODY_BYTES_MAX);
const _: () = assert!(APPEARANCE_TEXT_BYTES_MAX == 512, "the schema below says it");

/// Accepts only an object: serde would otherwise take a list of the fields in their order.
struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for ObjectVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}

fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    deserializer.deserialize_any(ObjectVisitor(PhantomData))
}

/// Texts of the organiser, which the page escapes
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct TextsBody {
    /// What the visitors wait for; stands in place of the name of the room
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 512, example = "Spring concert")]
    title: Option<Box<str>>,
    /// Stands in place of the heading that a visitor in line reads
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 512)]
    heading: Option<Box<str>>,
    /// What happens next
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 512)]
    next: Option<Box<str>>,
    /// The foot of the page
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 512)]
    footer: Option<Box<str>>,
}

impl TextsBody {
    fn texts(self) -> Texts {
        let Self { title, heading, next, footer } = self;
        Texts { title, heading, next, footer }
    }

    fn new(texts: &Texts) -> Option<Self> {
        let Texts { title, heading, next, footer } = texts.clone();
        (*texts != Texts::default()).then_some(Self { title, heading, next, footer })
    }
}

/// Colours of the page, as #rrggbb or #rgb
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct ColorsBody {
    /// Buttons, links and progress; its contrast to the background must be 4.5 or more
    #[schema(example = "#0b6e5f", pattern = "^#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$")]
    accent: String,
    /// What texts stand on
    #[schema(example = "#ffffff", pattern = "^#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$")]
    background: String,
    /// Texts; their contrast to the background must be 4.5 or more
    #[schema(example = "#16202c", pattern = "^#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$")]
    text: String,
}

impl ColorsBody {
    fn colors(&self, field: &str) -> Result<Colors, Problem> {
        let color = |name: &str, text: &str| {
            Color::parse(text).map_err(|error| {
                let field = format!("{field}.{name}");
                let detail = format!("{field} {error}");
                Problem::field(Code::InvalidField, &field, detail)
            })
        };
        Ok(Colors {
            accent: color("accent", &self.accent)?,
            background: color("background", &self.background)?,
            text: color("text", &self.text)?,
        })
    }

    fn new(colors: Colors) -> Self {
        let Colors { accent, background, text } = colors;
        Self { accent: accent.to_string(), background: background.to_string(), text: text.to_string() }
    }
}

/// How the page of a room looks
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct AppearanceBody {
    /// The texts for visitors whose language has no translation of them
    #[serde(default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
    texts: Option<TextsBody>,
    /// Texts of other languages, by the tags of the languages of the page, such as `ko` or `zh-Hant`
    #[serde(default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
    translations: Option<BTreeMap<String, TextsBody>>,
    /// The colours of the page; in the dark too, without `dark_colors`
    #[serde(default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
    colors: Option<ColorsBody>,
    /// The colours for visitors who prefer a dark page
    #[serde(default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
    dark_colors: Option<ColorsBody>,
    /// A style sheet that comes after that of the page; it may load nothing from another site
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 8192)]
    style: Option<String>,
    /// A PNG, JPEG, WebP or SVG picture of at most 64 KiB, in base64
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 87384, content_encoding = "base64")]
    logo: Option<String>,
}

fn wrong(field: &str, detail: impl Into<String>) -> Problem {
    Problem::field(Code::InvalidField, field, detail)
}

fn refused_look(error: AppearanceError) -> Problem {
    match error {
        AppearanceError::LowContrast { field, ratio_hundredths } => {
            let ratio = f64::from(ratio_hundredths) / 100.0;
            let detail = AppearanceError::LowContrast { field, ratio_hundredths }.to_string();
            Problem::field(Code::LowContrast, field, detail).with("ratio", ratio)
        }
        AppearanceError::Field { field, says } => wrong(field, says),
        other => wrong("body", other.to_string()),
    }
}

impl AppearanceBody {
    fn appearance(self) -> Result<Appearance, Problem> {
        let mut translations = BTreeMap::new();
        for (tag, texts) in self.translations.unwrap_or_default() {
            let language = of_tag(&tag).ok_or_else(|| {
                let tags: Vec<&str> = LANGUAGES.iter().map(|language| language.tag).collect();
                wrong("translations", format!("translations must be named by {}", tags.join(", ")))
            })?;
            if translations.insert(language.tag.into(), texts.texts()).is_some() {
                return Err(wrong("translations", format!("translations has {} twice", language.tag)));
            }
        }
        let colors = |field, colors: Option<ColorsBody>| colors.map(|colors| colors.colors(field)).transpose();
        let logo = self.logo.map(|text| {
            let bytes = BASE64_STANDARD.decode(text).map_err(|_| wrong("logo", "logo must be base64"))?;
            Logo::new(&bytes).map_err(|error| wrong("logo", format!("logo {error}")))
        });
        let appearance = Appearance {
            texts: self.texts.map(TextsBody::texts).unwrap_or_default(),
            translations,
            colors: colors("colors", self.colors)?,
            dark_colors: colors("dark_colors", self.dark_colors)?,
            style: self.style.map(Into::into),
            logo: logo.transpose()?,
        };
        appearance.check().map_err(refused_look)?;
        Ok(appearance)
    }

    fn new(appearance: &Appearance) -> Self {
        let Appearance { texts, translations, colors, dark_colors, style, logo } = appearance;
        let translations: BTreeMap<String, TextsBody> =
            translations.iter().filter_map(|(tag, texts)| Some((tag.to_string(), TextsBody::new(texts)?))).collect();
        Self {
            texts: TextsBody::new(texts),
            translations: Some(translations).filter(|translations| !translations.is_empty()),
            colors: colors.map(ColorsBody::new),
            dark_colors: dark_colors.map(ColorsBody::new),
            style: style.as_deref().map(str::to_owned),
            logo: logo.as_ref().map(|logo| BASE64_STANDARD.encode(logo.bytes())),
        }
    }
}

/// Reads an appearance from the JSON body of a PUT. The error says which field is wrong and what it must be.
pub fn appearance_of_json(bytes: &[u8]) -> Result<Appearance, String> {
    let appearance = body::parse::<AppearanceBody>(bytes).and_then(AppearanceBody::appearance);
    appearance.map_err(|problem| problem.says())
}

/// Reads how the page of the room looks to a visitor.
pub(crate) async fn shown(app: &App, room: &RoomName) -> Result<Arc<Appearance>, Problem> {
    answered(app, pin!(app.rooms.shown_appearance(room))).await?.map_err(refused)
}

async fn put(app: &App, room: &RoomName, appearance: Appearance) -> Result<(), Problem> {
    answered(app, pin!(app.rooms.put_appearance(room, appearance))).await?.map_err(refused)
}

/// Set how the page of a room looks
///
/// All of it is replaced; what is omitted has the usual look. Visitors see it within a second, at every node. The last
/// call counts.
#[utoipa::path(put, path = "/v1/rooms/{room}/appearance", tag = "Rooms", security(("admin" = [])),
    params(("room" = String, Path, description = "Name of the room")),
    request_body = AppearanceBody,
    responses(
        (status = 200, description = "Replaced", body = AppearanceBody),
        (status = 400, description = "`invalid_json` `invalid_field` `invalid_name` `low_contrast`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 408, description = "`request_timeout`", body = ProblemShape),
        (status = 413, description = "`body_too_large`: more than 256 KiB", body = ProblemShape),
        (status = 415, description = "`unsupported_media_type`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn put_appearance(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let call = pin!(async {
        let (parts, body) = request.into_parts();
        app.caller(&parts.headers)?.require(Scope::Admin)?;
        let room = body::room(&path.map_err(|_| body::undecodable())?.0)?;
        let bytes = body::read_up_to(BODY_BYTES_MAX, &parts.headers, body, app.config.limits.body).await?;
        let appearance = body::parse::<AppearanceBody>(&bytes)?.appearance()?;
        let shown = AppearanceBody::new(&appearance);
        put(&app, &room, appearance).await?;
        Ok((NO_STORE, Json(shown)))
    });
    measured(&app, Route::PutAppearance, call).await
}

/// Show how the page of a room looks
///
/// As a PUT would set it.
#[utoipa::path(get, path = "/v1/rooms/{room}/appearance", tag = "Rooms", security(("admin" = [])),
    params(("room" = String, Path, description = "Name of the room")),
    responses(
        (status = 200, description = "The look", body = AppearanceBody),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 503, description = "`store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn get_appearance(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.reader(&headers)?.require(Scope::Admin)?;
        let room = body::room(&path.map_err(|_| body::undecodable())?.0)?;
        let appearance = answered(&app, pin!(app.rooms.appearance(&room))).await?.map_err(refused)?;
        Ok((NO_STORE, Json(AppearanceBody::new(&appearance))))
    });
    measured(&app, Route::GetAppearance, call).await
}

/// Give the page of a room its usual look
///
/// A second time has no effect.
#[utoipa::path(delete, path = "/v1/rooms/{room}/appearance", tag = "Rooms", security(("admin" = [])),
    params(("room" = String, Path, description = "Name of the room")),
    responses(
        (status = 204, description = "It has"),
        (status = 400, description = "`invalid_name`", body = ProblemShape),
        (status = 401, description = "`unauthorized`", body = ProblemShape),
        (status = 403, description = "`forbidden`", body = ProblemShape),
        (status = 404, description = "`unknown_room`", body = ProblemShape),
        (status = 503, description = "`overloaded` `store_unavailable` `outcome_unknown`", body = ProblemShape)
    ))]
pub(crate) async fn delete_appearance(State(app): State<Arc<App>>, path: PathName, headers: HeaderMap) -> Response {
    let call = pin!(async {
        app.caller(&headers)?.require(Scope::Admin)?;
        let room = body::room(&path.map_err(|_| body::undecodable())?.0)?;
        put(&app, &room, Appearance::default()).await?;
        Ok(StatusCode::NO_CONTENT)
    });
    measured(&app, Route::DeleteAppearance, call).await
}
