//! The stream of the page of a room.

use super::enter::Elsewhere;
use super::view::{Place, View};
use super::{Branding, Visit};
use crate::api::appearance;
use crate::api::json::json_bytes;
use crate::api::stream::visitor;
use crate::error::{Code, Problem};
use crate::live::Tell;
use crate::state::App;
use axum::response::Response;
use std::sync::Arc;

impl Visit<'_> {
    /// Opens the stream of the place that the browser keeps: what a poll of the page would be told, as soon as it changes.
    pub(super) async fn events(&self, app: &Arc<App>) -> Result<Response, Problem> {
        let kept = self.kept().ok_or(Code::NotFound)?;
        let (language, back, first_position) = (self.language, self.query.back.clone(), kept.first_position);
        let branding = Branding::new(&*appearance::shown(self.app, &self.room).await?, self.language);
        let (version, heading) = (branding.version, branding.texts.heading.as_deref().map(str::to_owned));
        let elsewhere = Elsewhere::of(self);
        let tell: Tell = Box::new(move |room, answer| {
            let place = Place::Known { answer, first_position };
            let mut view = View::new(language, room, place, back.as_deref());
            if let Some(elsewhere) = &elsewhere {
                elsewhere.lead(&mut view, room.settings.target_url.as_deref());
            }
            view.look.clone_from(&version);
            view.head(heading.as_deref());
            json_bytes(&view)
        });
        app.live.open(app, visitor(app, &self.room, kept.ticket, tell).await?)
    }
}
