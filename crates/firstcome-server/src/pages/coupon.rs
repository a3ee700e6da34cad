//! The page of a coupon, in the visitor's language: a drop needs no front end. Before the turn a visitor is sent to the page of
//! the coupon's room, which leads back here.
//!
//! # What it promises
//! - Only a POST of this site claims. It claims for the place of the browser in the room while the slot lasts, or, for a coupon
//!   without a room, for the browser.
//! - The same browser sees its claim again, with serial and code, also after its slot has ended.
//! - It works without scripts, and loads nothing from elsewhere.
//!
//! # What it does not promise
//! - One claim per person where there is no room: a browser that forgets its cookies is another one. The rate of joins per
//!   address applies. So such a coupon has a page only in development mode, or if [`Config::public_coupons`](crate::Config)
//!   names it.

use super::language::{LANGUAGES, Language, of_tag};
use super::room::view::{Phase, View};
use super::room::{self, Branding, LANGUAGE_COOKIE, LANGUAGE_MAX_AGE_S, RoomPage};
use super::{Base, Format, refusal};
use crate::accept::Peer;
use crate::api::body::{self, PathName};
use crate::api::json::Json;
use crate::api::{answered, appearance, coupon as calls, measured};
use crate::cookie::{self, Transport};
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::state::App;
use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use firstcome::core::coupon::{Claim, CouponState, Rejection, Title};
use firstcome::core::id::{CouponName, RoomName, UserId};
use firstcome::core::room::TicketState;
use firstcome::edge::draw_secret;
use firstcome::{Claimed, CouponStore, CouponView, Refused, StoreError, TicketAnswer};
use serde::Deserialize;
use std::pin::pin;
use std::sync::Arc;

/// The cookie that tells browsers apart where a coupon has no room.
const VISITOR_COOKIE: &str = "firstcome_visitor";
/// Bytes of chance in it.
const VISITOR_BYTES: usize = 16;
/// What the name of a user begins with who is a browser.
const VISITOR_USER: &str = "visitor:";
/// How long a browser is the same one.
const VISITOR_MAX_AGE_S: u64 = 365 * 24 * 3_600;

/// What the address of the page may carry. Others are ignored: sites append their own to links.
#[derive(Deserialize, Default)]
struct CouponQuery {
    /// A language to keep.
    lang: Option<String>,
    /// Set when the visitor wants the page to load itself again without scripts.
    auto: Option<String>,
    /// Set after a claim by a browser that did not show its cookie.
    cookies: Option<String>,
}

/// Who claims.
enum Claimant {
    /// The holder of a place in the coupon's room.
    Place(RoomName, Option<TicketAnswer>),
    /// The browser; `None` if it has shown no cookie yet.
    Browser(Option<UserId>),
}

/// One request for the page.
struct Visit<'a> {
    app: &'a App,
    coupon: CouponName,
    view: CouponView,
    parts: &'a Parts,
    query: CouponQuery,
    language: &'static Language,
    base: &'static str,
    transport: Transport,
}

/// The phase of a visitor who has no claim and can get none, with or without a place.
pub(super) const fn over(state: CouponState) -> Option<Phase> {
    match state {
        CouponState::SoldOut => Some(Phase::SoldOut),
        CouponState::Expired | CouponState::Deleted => Some(Phase::Ended),
        CouponState::Open | CouponState::Scheduled => None,
    }
}

/// The phase of those who wait in a room to come to this page, if there is nothing left to wait for. `back` is where the room
/// leads to.
pub(super) async fn over_behind(app: &App, base: &str, room: &RoomName, back: &str) -> Option<Phase> {
    let path = back.strip_prefix(base)?.strip_prefix("/coupons/")?;
    let coupon = CouponName::parse(path.split(['?', '#', '/']).next()?).ok()?;
    let view = answered(app, pin!(app.coupons.shown(&coupon))).await.ok()?.ok()?;
    (view.settings.room.as_ref() == Some(room)).then(|| over(view.state)).flatten()
}

/// The user for whom a place claims.
fn user_of(answer: &TicketAnswer) -> UserId {
    let named = answer.user.as_deref().and_then(|user| UserId::restore(user).ok());
    named.unwrap_or_else(|| UserId::of_pass(answer.number))
}

fn new_visitor() -> Result<String, Problem> {
    let secret = draw_secret().map_err(|fault| StoreError::Faulted(Arc::new(fault)))?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(&secret[..VISITOR_BYTES]))
}

impl<'a> Visit<'a> {
    async fn of(app: &'a App, path: PathName, parts: &'a Parts) -> Result<Self, Problem> {
        let coupon = body::coupon(&path.map_err(|_| body::undecodable())?.0)?;
        let query = Query::<CouponQuery>::try_from_uri(&parts.uri)
            .map_err(|_| Problem::new(Code::InvalidQuery).detail("a parameter stands twice"))?
            .0;
        let view = answered(app, pin!(app.coupons.shown(&coupon))).await?;
        let view = view.map_err(|refusal| calls::refused(app, &coupon, "", &refusal))?;
        let is_public = view.settings.room.is_some() || app.is_dev() || app.config.public_coupons.contains(&coupon);
        if !is_public {
            let detail = "This coupon has no page: give it a room, or name it with --public-coupon.";
            return Err(Problem::new(Code::NotFound).detail(detail));
        }
        let transport = app.transport(parts);
        let language = room::language(parts);
        Ok(Self { app, coupon, view, parts, query, language, base: Base::of(parts), transport })
    }

    /// An address of this page.
    fn address(&self, action: &str) -> String {
        format!("{}/coupons/{}{action}", self.base, self.coupon.as_str())
    }

    /// An address of the page of the room, which leads back here.
    fn room_address(&self, room: &RoomName, action: &str) -> String {
        let back: String = form_urlencoded::byte_serialize(self.address("").as_bytes()).collect();
        format!("{}/rooms/{}{action}?back={back}", self.base, room.as_str())
    }

    async fn claimant(&self) -> Result<Claimant, Problem> {
        let Some(room) = &self.view.settings.room else {
            let visitor = cookie::read(&self.parts.headers, VISITOR_COOKIE);
            // A name that another program made may have any length.
            let is_ours = |visitor: &&str| visitor.len() == VISITOR_BYTES.div_ceil(3) * 4 - 2;
            let user = visitor.filter(is_ours).and_then(|text| UserId::parse(&format!("{VISITOR_USER}{text}")).ok());
            return Ok(Claimant::Browser(user));
        };
        Ok(Claimant::Place(room.clone(), room::kept_place(self.app, room, &self.parts.headers).await?))
    }

    /// The claim that there is already.
    async fn claimed(&self, claimant: &Claimant) -> Result<Option<Claimed>, Problem> {
        let user = match claimant {
            Claimant::Place(_, Some(answer)) => user_of(answer),
            Claimant::Browser(Some(user)) => user.clone(),
            Claimant::Place(_, None) | Claimant::Browser(None) => return Ok(None),
        };
        let found = answered(self.app, pin!(self.app.coupons.claim_of(&self.coupon, user.as_str()))).await?;
        match found {
            Ok(found) => Ok(found.map(|record| record.claimed)),
            // The page says that the coupon has ended.
            Err(Refused { rejection: Rejection::Purged(_), .. }) => Ok(None),
            Err(refusal) => Err(calls::refused(self.app, &self.coupon, user.as_str(), &refusal)),
        }
    }

    /// What the visitor sees, or `None` if the page of the room shows it.
    fn phase(&self, claimant: &Claimant, claimed: Option<&Claimed>) -> Option<Phase> {
        if claimed.is_some() {
            return Some(Phase::Claimed);
        }
        if let Some(phase) = over(self.view.state) {
            return Some(phase);
        }
        match claimant {
            Claimant::Place(_, Some(TicketAnswer { state: TicketState::Admitted { .. }, .. }))
            | Claimant::Browser(_) => {}
            Claimant::Place(..) => return None,
        }
        if self.query.cookies.is_some() && matches!(claimant, Claimant::Browser(None)) {
            return Some(Phase::Cookies);
        }
        Some(if self.view.state == CouponState::Scheduled { Phase::Early } else { Phase::Claim })
    }

    async fn show(&self, format: Format) -> Result<Response, Problem> {
        let claimant = self.claimant().await?;
        let claimed = self.claimed(&claimant).await?;
        let Some(phase) = self.phase(&claimant, claimed.as_ref()) else {
            let Claimant::Place(room, _) = &claimant else { return Err(Code::NotFound.into()) };
            return room::see_other(&self.room_address(room, ""));
        };
        let mut view = View::of_coupon(self.language, phase, &self.view, claimed.as_ref(), self.app.backend.now());
        let mut response = self.rendered(format, &claimant, &mut view).await?;
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::VARY, HeaderValue::from_static("accept, accept-language, cookie"));
        if let (Claimant::Browser(None), Format::Html) = (&claimant, format) {
            // Before the first claim, so that two presses of the button come from one browser.
            let cookie = cookie::write(VISITOR_COOKIE, &new_visitor()?, VISITOR_MAX_AGE_S, self.transport);
            room::set_cookie(&mut response, cookie);
        }
        Ok(response)
    }

    async fn rendered(&self, format: Format, claimant: &Claimant, view: &mut View) -> Result<Response, Problem> {
        let room = match claimant {
            Claimant::Place(room, answer) => {
                view.end_with(phase_slot(view.phase, answer.as_ref()));
                Some(room)
            }
            Claimant::Browser(_) => None,
        };
        let appearance = match room {
            Some(room) => appearance::shown(self.app, room).await?,
            None => Arc::default(),
        };
        let branding = Branding::new(&appearance, self.language);
        view.look.clone_from(&branding.version);
        if format == Format::Json {
            return Ok(Json(&*view).into_response());
        }
        let part = |action: &str| room.map(|room| format!("{}/rooms/{}{action}", self.base, room.as_str()));
        let name = self.view.settings.title.as_ref().map(Title::as_str).or(branding.texts.title.as_deref());
        let page = RoomPage {
            language: self.language,
            languages: &LANGUAGES,
            version: env!("CARGO_PKG_VERSION"),
            base: self.base,
            room: name.unwrap_or(self.coupon.as_str()),
            branding: &branding,
            style: branding.style.as_ref().and_then(|name| part(&format!("/style.css?{name}"))),
            logo: branding.logo.as_ref().and_then(|name| part(&format!("/logo?{name}"))),
            json: serde_json::to_string(&*view).unwrap_or_default(),
            countdown: view.countdown(),
            view: &*view,
            page: self.address(""),
            check: self.address(""),
            events: None,
            auto: self.address("?auto=1"),
            join: room.map(|room| self.room_address(room, "/join")).unwrap_or_default(),
            draw: None,
            claim: Some(self.address("/claim")),
            back: None,
            place: None,
            offer: None,
            work: None,
        };
        let status = match view.phase {
            Phase::SoldOut | Phase::Ended => StatusCode::GONE,
            Phase::Early => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::OK,
        };
        Ok(room::page_response(status, &page, self.query.auto.is_some()))
    }

    async fn claim(&self) -> Result<Response, Problem> {
        let to_page = || room::see_other(&self.address(""));
        if self.app.is_foreign(self.parts) {
            return to_page();
        }
        let claimant = self.claimant().await?;
        let user = match &claimant {
            Claimant::Place(_, Some(answer @ TicketAnswer { state: TicketState::Admitted { .. }, .. })) => {
                user_of(answer)
            }
            Claimant::Place(..) => return to_page(),
            Claimant::Browser(None) => return room::see_other(&self.address("?cookies=1")),
            Claimant::Browser(Some(user)) => {
                if !self.app.is_dev() {
                    let peer = self.parts.extensions.get::<Peer>().map(|peer| peer.0);
                    self.app.may_claim(peer, &self.parts.headers)?;
                }
                user.clone()
            }
        };
        let claim = Claim { user: user.clone(), attributes: None, request: None };
        match answered(self.app, pin!(self.app.coupons.claim(&self.coupon, claim))).await? {
            Ok(_) => to_page(),
            // The page says so.
            Err(refusal) if is_shown(&refusal.rejection) => to_page(),
            Err(refusal) => Err(calls::refused(self.app, &self.coupon, user.as_str(), &refusal)),
        }
    }

    fn chosen(&self) -> Result<Option<Response>, Problem> {
        let Some(language) = self.query.lang.as_deref().and_then(of_tag) else { return Ok(None) };
        let mut response = room::see_other(&self.address(""))?;
        let cookie = cookie::write(LANGUAGE_COOKIE, language.tag, LANGUAGE_MAX_AGE_S, self.transport);
        room::set_cookie(&mut response, cookie);
        Ok(Some(response))
    }
}

/// When the slot of a visitor ends who may still claim.
fn phase_slot(phase: Phase, answer: Option<&TicketAnswer>) -> Option<firstcome::core::time::Timestamp> {
    answer.filter(|_| matches!(phase, Phase::Claim | Phase::Early)).and_then(|answer| answer.until)
}

/// Whether the page itself tells of this refusal.
const fn is_shown(rejection: &Rejection) -> bool {
    matches!(
        rejection,
        Rejection::AlreadyIssued(_)
            | Rejection::SoldOut
            | Rejection::Expired(_)
            | Rejection::Deleted
            | Rejection::NotOpen(_)
    )
}

/// What to do for a visit.
#[derive(Clone, Copy)]
enum Action {
    Show,
    Claim,
}

async fn act(app: &App, path: PathName, parts: &Parts, action: Action) -> Result<Response, Problem> {
    let visit = Visit::of(app, path, parts).await?;
    match action {
        Action::Show => match visit.chosen()? {
            Some(response) => Ok(response),
            None => visit.show(Format::of(&parts.headers)).await,
        },
        Action::Claim => visit.claim().await,
    }
}

/// Answers a visit. A browser reads a refusal as a page.
async fn answer(app: Arc<App>, path: PathName, request: Request, route: Route, action: Action) -> Response {
    let (parts, _) = request.into_parts();
    let call = pin!(async {
        match Box::pin(act(&app, path, &parts, action)).await {
            Err(problem) if Format::of(&parts.headers) == Format::Html => {
                app.metrics.refused(problem.code());
                Ok(refusal(problem, Base::of(&parts)))
            }
            answer => answer,
        }
    });
    measured(&app, route, call).await
}

/// Builds the page and its button.
pub(super) fn router() -> Router<Arc<App>> {
    let page = async |State(app), path: PathName, request: Request| {
        answer(app, path, request, Route::GetCouponPage, Action::Show).await
    };
    let claim = async |State(app), path: PathName, request: Request| {
        answer(app, path, request, Route::PostCouponClaim, Action::Claim).await
    };
    Router::new().route("/coupons/{coupon}", any(page)).route("/coupons/{coupon}/claim", post(claim))
}
