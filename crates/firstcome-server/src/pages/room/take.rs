//! Moves a place to another browser: the recovery link, and what the browser that opens it sees.
//!
//! A GET of the link shows a button and changes nothing, since previews and prefetchers open links too. The press of the button
//! renews the ticket: the browser gets the new one, and the link and the browser before it are left with a void one.
//!
//! # What it promises
//! - A link works once. A press that is repeated, after an answer that was lost, finds the same place: the browser keeps a key
//!   for it from the page of the offer on.
//! - A browser that keeps no cookies does not use a link up.
//! - A link of a stranger takes no better place away, and is not used up then.
//! - A link into a room that is closed offers nothing: the page says that it is over.
//!
//! # What it does not promise
//! - That the person who presses the button is the one who joined: the first browser with the link has the place.

use super::{Found, Visit, find, lives, see_other, set_cookie};
use crate::api::body;
use crate::api::renewal::renew;
use crate::cookie;
use crate::error::{Code, Problem};
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use firstcome::core::room::{RenewalKey, TicketState};
use firstcome::edge::draw_secret;
use firstcome::request::request_id;
use firstcome::{StoreError, TicketAnswer};
use qrcode::QrCode;
use qrcode::render::svg;
use std::sync::Arc;

/// The cookie with the key of this browser for the links that it opens.
const TAKE_COOKIE: &str = "firstcome_take";
/// How long a browser that has seen an offer can take it.
const TAKE_MAX_AGE_S: u64 = 24 * 3_600;

/// What the page of an offer needs: the ticket of the link, and the address that takes it.
pub(in crate::pages) struct Offer<'a> {
    pub(super) ticket: &'a str,
    pub(super) take: String,
}

/// The order of two living places: those inside, then those in line by position, then by number.
const fn order(answer: &TicketAnswer) -> (u32, u32) {
    let ahead = match answer.state {
        TicketState::Waiting { position, .. } => position.saturating_add(1),
        TicketState::InDraw { .. } => 1,
        TicketState::Admitted { .. } | TicketState::Gone(_) => 0,
    };
    (ahead, answer.number.get())
}

impl Visit<'_> {
    /// The address that opens a place in another browser.
    pub(super) fn link(&self, ticket: &str) -> String {
        let host = self.app.host(self.parts);
        let scheme = self.transport.scheme();
        format!("{scheme}://{host}{}", self.address("", &[("ticket", ticket)]))
    }

    /// Returns the ticket that the link of this visit offers. Refused if the room never gave it out. Reads nothing but the ticket:
    /// a link that was used is found out by the press of the button.
    pub(super) fn offer(&self) -> Result<Option<&str>, Problem> {
        let Some(ticket) = self.query.ticket.as_deref() else { return Ok(None) };
        match self.app.rooms.ticket_id(&self.room, ticket) {
            Some(_) => Ok(Some(ticket)),
            None => Err(Code::UnknownTicket.into()),
        }
    }

    /// Gives a browser that sees an offer the key for it, unless it has one.
    pub(super) fn remember_offer(&self, response: &mut Response, offer: Option<&str>) -> Result<(), Problem> {
        if offer.is_some() && cookie::read(&self.parts.headers, TAKE_COOKIE).is_none() {
            let secret = draw_secret().map_err(|fault| StoreError::Faulted(Arc::new(fault)))?;
            let key = BASE64_URL_SAFE_NO_PAD.encode(secret);
            set_cookie(response, cookie::write(TAKE_COOKIE, &key, TAKE_MAX_AGE_S, self.transport));
        }
        Ok(())
    }

    /// Moves the place of a link to this browser.
    pub(super) async fn take(&self, form: Body) -> Result<Response, Problem> {
        let fields = body::read_form(&self.parts.headers, form, self.app.config.limits.body).await?;
        let ticket = fields.into_iter().find(|(name, _)| name == "ticket").map(|(_, ticket)| ticket);
        let ticket = ticket.ok_or_else(|| Problem::new(Code::InvalidQuery).detail("the form needs a ticket"))?;
        if self.app.is_foreign(self.parts) {
            return see_other(&self.address("", &[("ticket", &ticket)]));
        }
        let Some(key) = cookie::read(&self.parts.headers, TAKE_COOKIE) else {
            return see_other(&self.address("", &[("joined", "1")]));
        };
        let own = self.place().await?.filter(lives);
        if let Some(own) = own {
            let is_better = match find(self.app, &self.room, &ticket).await? {
                Found::Place(offered) => !lives(&offered) || order(&own) < order(&offered),
                // The page of the own place says more than a refusal.
                Found::Moved => true,
                Found::None => return Err(Code::UnknownTicket.into()),
            };
            if is_better {
                return see_other(&self.address("", &[]));
            }
        }
        let scope: [&[u8]; 3] = [b"take", self.room.as_str().as_bytes(), ticket.as_bytes()];
        let key = RenewalKey::new(request_id(&scope, key, &[]).key);
        match renew(self.app, &self.room, &ticket, key).await {
            Ok(answer) => {
                let mut response = see_other(&self.address("", &[]))?;
                self.keep(&mut response, &answer);
                Ok(response)
            }
            Err(problem) if problem.code() == Code::TicketRenewed => see_other(&self.address("", &[("moved", "1")])),
            Err(problem) => Err(problem),
        }
    }

    /// Draws the recovery link, to be read by the camera of another device.
    pub(super) fn picture(&self) -> Result<Response, Problem> {
        let kept = self.kept().ok_or(Code::NotFound)?;
        let code = QrCode::new(self.link(kept.ticket)).map_err(|_| Problem::new(Code::NotFound))?;
        let drawing = code.render::<svg::Color<'_>>().min_dimensions(190, 190).build();
        Ok(([(header::CONTENT_TYPE, "image/svg+xml"), (header::CACHE_CONTROL, "no-store")], drawing).into_response())
    }
}
