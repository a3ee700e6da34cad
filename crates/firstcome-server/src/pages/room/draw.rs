//! The page on which any browser checks the draw of a room: it computes the places itself.

use super::super::{Format, rendered};
use super::{CONTENT_SECURITY_POLICY, Visit};
use crate::api::json::Json;
use crate::api::room as calls;
use crate::api::room_shape::Draw;
use crate::error::{Code, Problem};
use askama::Template;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

pub(super) const SCRIPT: &str = include_str!("../../../assets/draw.js");

#[derive(Template)]
#[template(path = "draw.html")]
struct DrawPage<'a> {
    version: &'static str,
    base: &'a str,
    room: &'a str,
    page: String,
    json: String,
    draw: &'a Draw<'a>,
    /// The number of the visitor's own ticket, if the browser keeps one.
    number: Option<u32>,
}

impl Visit<'_> {
    /// Shows the public record of the draw. The JSON is the same record.
    pub(super) async fn draw(&self, format: Format) -> Result<Response, Problem> {
        let room = calls::summary(self.app, &self.room).await?;
        let draw = Draw::new(&self.room, &room).ok_or(Code::NoDraw)?;
        let mut response = match format {
            Format::Json => Json(&draw).into_response(),
            Format::Html => {
                let page = DrawPage {
                    version: env!("CARGO_PKG_VERSION"),
                    base: self.base,
                    room: self.room.as_str(),
                    page: format!("{}/rooms/{}", self.base, self.room.as_str()),
                    json: serde_json::to_string(&draw).unwrap_or_default(),
                    draw: &draw,
                    number: self.place().await?.map(|answer| answer.number.get()),
                };
                let mut response = rendered(StatusCode::OK, &page);
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
                response
            }
        };
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::VARY, HeaderValue::from_static("accept, cookie"));
        Ok(response)
    }
}
