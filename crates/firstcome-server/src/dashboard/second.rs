//! The rule of two persons: one operator requests what is dangerous, another one confirms it.
//!
//! # What it promises
//! - With the setting, a room is closed and a coupon ended on the dashboard only after two sessions with different names of
//!   operators have asked for it: the second one in time, and by the address that the first one was given. Any node takes the
//!   confirmation.
//!
//! # What it does not promise
//! - That two names are two persons: all who have the key choose their own names.
//! - Anything about calls of the API, or in development mode, which has no sessions.

use super::session::{Requested, Session};
use super::view::{Frame, RequestedPage};
use super::{Form, Visit, now_s, page};
use crate::auth::Keys;
use crate::error::{Code, Problem};
use axum::http::StatusCode;
use axum::response::Response;

/// What a request comes as: in an address, and in the form of its confirmation.
pub(super) const FIELD: &str = "request";

impl Visit<'_> {
    /// Within how many seconds a second operator has to confirm, if one has to.
    pub(super) fn second_within_s(&self) -> Option<i64> {
        let within = self.app.config.second_person_within.filter(|_| !matches!(self.app.config.keys, Keys::Dev))?;
        i64::try_from(within.as_secs()).ok()
    }

    /// Reads the request that this session confirms. Refuses one that is over, that is about something else, or that is this
    /// operator's own.
    pub(super) fn requested(&self, text: &str) -> Result<Requested, Problem> {
        let within_s = self.second_within_s().ok_or(Code::FormExpired)?;
        let (keys, wanted) = (self.app.accepted_keys(), self.path.join("/"));
        let requested = Requested::read(&keys, text, &wanted, within_s, now_s(self.app)).ok_or(Code::FormExpired)?;
        if requested.is_by(&self.session) { Err(Code::SecondPersonNeeded.into()) } else { Ok(requested) }
    }

    /// Whether the form has what the rule asks for. Returns the page of a new request if it lacks a first one.
    pub(super) fn second(
        &self,
        form: &Form,
        title: &'static str,
        section: &'static str,
        back: &str,
    ) -> Result<Option<Response>, Problem> {
        let Some(within_s) = self.second_within_s() else { return Ok(None) };
        if let Some(text) = form.get(FIELD) {
            return self.requested(text).map(|_| None);
        }
        if self.session.operator.is_empty() {
            let detail = "This session has no name. Log in again and give yours: a second operator must know who asks.";
            return Err(Problem::new(Code::SecondPersonNeeded).detail(detail));
        }
        let wanted = self.path.join("/");
        let request = Session::request(&self.session, &wanted, now_s(self.app));
        Ok(Some(page(
            StatusCode::ACCEPTED,
            &RequestedPage {
                frame: Frame::of(self, section),
                title,
                name: self.path[1].to_owned(),
                address: format!("{}?{FIELD}={request}", self.parts.uri.path()),
                back: back.to_owned(),
                minutes: within_s.unsigned_abs().div_ceil(60),
            },
        )))
    }
}
