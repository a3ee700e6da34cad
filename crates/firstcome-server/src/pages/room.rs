//! The page of a room, in the visitor's language. The same address answers JSON to a client that asks for it.
//!
//! # What it promises
//! - A browser keeps its place in a cookie that no script can read. A reload, a second tab and a restart of the service
//!   show the same place. The recovery link moves the place to another browser, once (`take.rs`).
//! - Only a POST of this site draws a number. A crawler, a preview or another site cannot.
//! - The page loads nothing from elsewhere and runs no inline script. It works without scripts.
//!
//! # What it does not promise
//! - One place per person: a browser without the cookie joins again. The rate of joins per address applies.

mod back;
mod branding;
mod draw;
mod enter;
mod events;
mod take;
pub(super) mod view;
mod work;

use super::coupon::over_behind;
use super::language::{LANGUAGES, Language, accepted, of_tag};
use super::{Base, Format, refusal, rendered};
use crate::address::FORWARDED_URI;
use crate::api::body::{self, PathName};
use crate::api::json::Json;
use crate::api::{appearance, measured, room as calls};
use crate::cookie::{self, Transport};
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::security_headers;
use crate::state::App;
use askama::Template;
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use back::{instead_of, is_of_this_site};
pub(super) use branding::Branding;
use enter::Elsewhere;
use firstcome::TicketAnswer;
use firstcome::core::id::RoomName;
use firstcome::core::room::TicketState;
use form_urlencoded::Serializer;
use serde::Deserialize;
use std::pin::pin;
use std::sync::Arc;
use view::{Phase, Place, View};

const STYLE: &str = include_str!("../../assets/room.css");
const SCRIPT: &str = include_str!("../../assets/room.js");
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
pub(super) const LANGUAGE_COOKIE: &str = "firstcome_language";
/// How long a browser keeps a place. A ticket in line lives no longer.
const PLACE_MAX_AGE_S: u64 = 7 * 24 * 3_600;
pub(super) const LANGUAGE_MAX_AGE_S: u64 = 365 * 24 * 3_600;
/// The shortest time between two loads of a page that updates itself without scripts, and how long it takes where no
/// place says how long. Seconds.
const REFRESH_S_MIN: u32 = 5;

/// What the address of a page may carry. Others are ignored: sites append their own to links.
#[derive(Deserialize, Default)]
struct RoomQuery {
    /// A place that may move to this browser.
    ticket: Option<String>,
    /// Set after a link that was used before.
    moved: Option<String>,
    /// A language to keep.
    lang: Option<String>,
    /// Where the visitor wanted to go.
    back: Option<String>,
    /// Set after a join: the cookie must have come back.
    joined: Option<String>,
    /// Set after a join that the line had no room for.
    full: Option<String>,
    /// Set when the visitor wants the page to load itself again without scripts.
    auto: Option<String>,
    /// The challenge of a join, or what a join shows as its work.
    work: Option<String>,
}

/// The place that a browser keeps.
pub(super) struct Kept<'a> {
    pub(super) ticket: &'a str,
    /// The position that the place began with, for the progress.
    first_position: u32,
}

/// One request for the page.
struct Visit<'a> {
    app: &'a App,
    room: RoomName,
    parts: &'a Parts,
    query: RoomQuery,
    language: &'static Language,
    base: &'static str,
    transport: Transport,
}

#[derive(Template)]
#[template(path = "room.html")]
pub(super) struct RoomPage<'a> {
    pub(super) language: &'static Language,
    pub(super) languages: &'static [Language],
    pub(super) version: &'static str,
    pub(super) base: &'a str,
    pub(super) room: &'a str,
    pub(super) branding: &'a Branding,
    pub(super) style: Option<String>,
    pub(super) logo: Option<String>,
    pub(super) view: &'a View,
    pub(super) json: String,
    pub(super) countdown: Option<String>,
    pub(super) page: String,
    pub(super) check: String,
    /// Where the page listens; absent where it only asks.
    pub(super) events: Option<String>,
    pub(super) auto: String,
    pub(super) join: String,
    /// Where the visitor checks the draw, if the room has one.
    pub(super) draw: Option<String>,
    /// Where the visitor claims, on the page of a coupon.
    pub(super) claim: Option<String>,
    pub(super) back: Option<&'a str>,
    pub(super) place: Option<PlaceLinks>,
    /// The place that a recovery link offers.
    pub(super) offer: Option<take::Offer<'a>>,
    /// What a visitor without scripts does before a join, if joins need work.
    pub(super) work: Option<String>,
}

/// The addresses of a visitor who has a place.
pub(super) struct PlaceLinks {
    /// Opens the place in another browser.
    link: String,
    picture: String,
    leave: String,
    /// Gives a signed proof of the place, as a file.
    pub(super) receipt: String,
}

impl RoomPage<'_> {
    fn text(&self, key: &str) -> String {
        self.language.text(key)
    }

    /// Hides the element in the phases that are not these.
    fn unless(&self, phases: impl AsRef<[&'static str]>) -> &'static str {
        if phases.as_ref().contains(&self.view.phase.name()) { "" } else { " hidden" }
    }

    /// Hides an element without content.
    fn hidden<T>(&self, content: &Option<T>) -> &'static str {
        if content.is_some() { "" } else { " hidden" }
    }

    fn shown<'a>(&self, text: &'a Option<String>) -> &'a str {
        text.as_deref().unwrap_or_default()
    }
}

/// The name of the cookie of a room's place. Names of rooms have two characters that names of cookies cannot have.
fn place_cookie(room: &RoomName) -> String {
    format!("firstcome_ticket_{}", room.as_str().replace(':', "~").replace('@', "!"))
}

/// Whether the ticket still is of use to its visitor.
const fn lives(answer: &TicketAnswer) -> bool {
    !matches!(answer.state, TicketState::Gone(_))
}

/// Sends the browser to another address, with a GET.
pub(super) fn see_other(address: &str) -> Result<Response, Problem> {
    let location = HeaderValue::try_from(address).map_err(|_| Problem::new(Code::InvalidQuery))?;
    let headers = [(header::LOCATION, location), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}

pub(super) fn set_cookie(response: &mut Response, cookie: Option<HeaderValue>) {
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// The language of a visitor: the chosen one, or the first one that the browser names.
pub(super) fn language(parts: &Parts) -> &'static Language {
    let accepts = || parts.headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
    let chosen = cookie::read(&parts.headers, LANGUAGE_COOKIE).and_then(of_tag);
    chosen.unwrap_or_else(|| accepted(accepts().unwrap_or_default()))
}

/// What the browser keeps of its place in a room.
pub(super) fn kept<'a>(room: &RoomName, headers: &'a HeaderMap) -> Option<Kept<'a>> {
    let (ticket, first_position) = cookie::read(headers, &place_cookie(room))?.split_once('~')?;
    Some(Kept { ticket, first_position: first_position.parse().ok()? })
}

/// What the room says of a ticket that a browser keeps.
enum Found {
    Place(TicketAnswer),
    /// The ticket was renewed: the place moved to another browser.
    Moved,
    /// There is no ticket, or the room never gave it out.
    None,
}

impl Found {
    fn place(self) -> Option<TicketAnswer> {
        if let Self::Place(answer) = self { Some(answer) } else { None }
    }
}

/// Looks up a ticket.
async fn find(app: &App, room: &RoomName, ticket: &str) -> Result<Found, Problem> {
    match calls::poll(app, room.as_str(), ticket).await {
        Ok(answer) => Ok(Found::Place(answer)),
        Err(problem) if problem.code() == Code::TicketRenewed => Ok(Found::Moved),
        Err(problem) if problem.code() == Code::UnknownTicket => Ok(Found::None),
        Err(problem) => Err(problem),
    }
}

/// Looks up the place that the browser keeps in a room.
pub(super) async fn kept_place(
    app: &App,
    room: &RoomName,
    headers: &HeaderMap,
) -> Result<Option<TicketAnswer>, Problem> {
    match kept(room, headers) {
        Some(kept) => Ok(find(app, room, kept.ticket).await?.place()),
        None => Ok(None),
    }
}

/// Answers with a page. `is_auto` if the visitor wants it to load itself again.
pub(super) fn page_response(status: StatusCode, page: &RoomPage<'_>, is_auto: bool) -> Response {
    let mut response = rendered(status, page);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    // With `no-referrer` a browser names no origin in a POST, and development mode asks for one.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(header::CONTENT_LANGUAGE, HeaderValue::from_static(page.language.tag));
    if let Some(poll_after_ms) = page.view.poll_after_ms {
        let wait_s = poll_after_ms.div_ceil(1_000).max(REFRESH_S_MIN);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait_s));
        }
        // Only if the visitor asks for it: a page that changes by itself takes a reader's place away.
        if is_auto {
            headers.insert(header::REFRESH, HeaderValue::from(wait_s));
        }
    }
    response
}

impl<'a> Visit<'a> {
    fn of(app: &'a App, path: PathName, parts: &'a Parts) -> Result<Self, Problem> {
        let room = body::room(&path.map_err(|_| body::undecodable())?.0)?;
        let wrong = |detail: &str| Problem::new(Code::InvalidQuery).detail(detail);
        let mut query = Query::<RoomQuery>::try_from_uri(&parts.uri).map_err(|_| wrong("a parameter stands twice"))?.0;
        if query.back.as_deref().is_some_and(|back| !is_of_this_site(back)) {
            return Err(wrong("back must be a path of this site"));
        }
        let base = Base::of(parts);
        query.back = query.back.or_else(|| instead_of(parts, base));
        let (language, transport) = (language(parts), app.transport(parts));
        Ok(Self { app, room, parts, query, language, base, transport })
    }

    /// An address of this page, with what it carries further.
    fn address(&self, action: &str, added: &[(&str, &str)]) -> String {
        let mut query = Serializer::new(String::new());
        query.extend_pairs(added).extend_pairs(self.query.back.iter().map(|back| ("back", back)));
        let query = query.finish();
        let mark = if query.is_empty() { "" } else { "?" };
        self.part(&format!("{action}{mark}{query}"))
    }

    /// The address of a part of the page, without what the page's own address carries.
    fn part(&self, action: &str) -> String {
        format!("{}/rooms/{}{action}", self.base, self.room.as_str())
    }

    fn kept(&self) -> Option<Kept<'a>> {
        kept(&self.room, &self.parts.headers)
    }

    fn keep(&self, response: &mut Response, answer: &TicketAnswer) {
        let first_position = match answer.state {
            TicketState::Waiting { position, .. } => position,
            _ => 0,
        };
        let value = format!("{}~{first_position}", answer.ticket);
        set_cookie(response, cookie::write(&place_cookie(&self.room), &value, PLACE_MAX_AGE_S, self.transport));
    }

    /// Looks up the place that the browser keeps.
    async fn place(&self) -> Result<Option<TicketAnswer>, Problem> {
        kept_place(self.app, &self.room, &self.parts.headers).await
    }

    /// Answers an address that changes what the browser keeps, and then leads to the page itself.
    fn moved(&self) -> Result<Option<Response>, Problem> {
        let Some(language) = self.query.lang.as_deref().and_then(of_tag) else {
            // The browser has the place of this link already.
            let is_own =
                self.query.ticket.as_deref().is_some_and(|it| self.kept().is_some_and(|kept| kept.ticket == it));
            return if is_own { see_other(&self.address("", &[])).map(Some) } else { Ok(None) };
        };
        // An offer stands in each language.
        let offer: Vec<(&str, &str)> = self.query.ticket.iter().map(|ticket| ("ticket", ticket.as_str())).collect();
        let mut response = see_other(&self.address("", &offer))?;
        set_cookie(&mut response, cookie::write(LANGUAGE_COOKIE, language.tag, LANGUAGE_MAX_AGE_S, self.transport));
        Ok(Some(response))
    }

    async fn show(&self, format: Format) -> Result<Response, Problem> {
        // The site has not answered: no program must take the page for its success.
        let is_instead = self.parts.headers.contains_key(FORWARDED_URI);
        if is_instead && format == Format::Json {
            return Err(Code::NoPass.into());
        }
        let room = calls::summary(self.app, &self.room).await?;
        let offer = self.offer()?;
        let kept = self.kept().filter(|_| offer.is_none());
        let found = match &kept {
            Some(kept) => find(self.app, &self.room, kept.ticket).await?,
            None => Found::None,
        };
        let has_moved = matches!(found, Found::Moved) || self.query.moved.is_some();
        let known = kept.zip(found.place());
        let place = match &known {
            Some((kept, answer)) => Place::Known { answer, first_position: kept.first_position },
            None if offer.is_some() => Place::Offered,
            None if has_moved => Place::Moved,
            None if self.query.full.is_some() => Place::Full,
            None if self.query.joined.is_some() => Place::Forgotten,
            None => Place::None,
        };
        let mut view = View::new(self.language, &room, place, self.query.back.as_deref());
        if let Some(elsewhere) = Elsewhere::of(self) {
            elsewhere.lead(&mut view, room.settings.target_url.as_deref());
        }
        if let Some(back) = self.query.back.as_deref().filter(|_| view.phase != Phase::Admitted)
            && let Some(phase) = over_behind(self.app, self.base, &self.room, back).await
        {
            view.end(self.language, phase);
        }
        // A room that is closed, or a coupon that is gone, leaves nothing to take.
        let offer = offer.filter(|_| view.phase == Phase::Offer);
        let appearance = appearance::shown(self.app, &self.room).await?;
        let branding = Branding::new(&appearance, self.language);
        view.look.clone_from(&branding.version);
        view.head(branding.texts.heading.as_deref());
        if view.phase == Phase::Admitted && view.go.is_none() && !self.base.is_empty() {
            // The page stands within the site that the visitor wants.
            view.go = Some("/".into());
        }
        let mut response = match format {
            Format::Json => Json(&view).into_response(),
            Format::Html => self.page(&view, &branding, known.as_ref().map(|(kept, _)| kept.ticket), offer),
        };
        self.remember_offer(&mut response, offer)?;
        if is_instead {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::VARY, HeaderValue::from_static("accept, accept-language, cookie"));
        if let Some((_, answer)) = known
            && let Some((pass, _)) = calls::pass_of(self.app, &self.room, &answer)?
        {
            // The slot ends by itself, and later with each contact. A pass without a slot opens nothing.
            set_cookie(&mut response, cookie::write(cookie::PASS, &pass, PLACE_MAX_AGE_S, self.transport));
        }
        Ok(response)
    }

    fn page(&self, view: &View, branding: &Branding, ticket: Option<&str>, offer: Option<&str>) -> Response {
        let status = match view.phase {
            Phase::Admitted => StatusCode::OK,
            Phase::Over | Phase::SoldOut | Phase::Ended => StatusCode::GONE,
            // A crawler must not take this for the page that it stands before.
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        let work = self.app.work_offer(&self.room, self.query.work.as_deref());
        let challenge = work.as_ref().map(|work| ("work", work.challenge.as_str()));
        let page = RoomPage {
            language: self.language,
            languages: &LANGUAGES,
            version: env!("CARGO_PKG_VERSION"),
            base: self.base,
            room: branding.texts.title.as_deref().unwrap_or(self.room.as_str()),
            branding,
            style: branding.style.as_ref().map(|name| self.part(&format!("/style.css?{name}"))),
            logo: branding.logo.as_ref().map(|name| self.part(&format!("/logo?{name}"))),
            json: serde_json::to_string(view).unwrap_or_default(),
            countdown: view.countdown(),
            view,
            page: self.part(""),
            check: self.address("", &[]),
            events: Some(self.address("/events", &[])),
            auto: self.address("", &[("auto", "1")]),
            join: self.address("/join", challenge.as_slice()),
            draw: view.has_draw.then(|| format!("{}/rooms/{}/draw", self.base, self.room.as_str())),
            claim: None,
            back: self.query.back.as_deref(),
            place: ticket.map(|ticket| PlaceLinks {
                link: self.link(ticket),
                picture: self.address("/place.svg", &[]),
                leave: self.address("/leave", &[]),
                receipt: self.part("/receipt"),
            }),
            offer: offer.map(|ticket| take::Offer { ticket, take: self.address("/take", &[]) }),
            work: work.map(|work| self.language.with("work-wait", &[("count", work.wait_ms.div_ceil(1_000))])),
        };
        let mut response = page_response(status, &page, self.query.auto.is_some());
        if self.query.back.is_some() {
            security_headers::keep_opener(response.headers_mut());
        }
        response
    }

    async fn join(&self) -> Result<Response, Problem> {
        let to_page = || see_other(&self.address("", &[]));
        if self.app.is_foreign(self.parts) {
            // A proxy that rewrites `Host` makes each join look so: the script must not press the button again and again.
            return see_other(&self.address("", &[("asked", "1")]));
        }
        if self.place().await?.is_some_and(|answer| lives(&answer)) {
            return to_page();
        }
        let request = match self.earned()? {
            Ok(request) => request,
            Err(back) => return Ok(back),
        };
        match calls::join_unnamed(self.app, &self.room, request).await {
            Ok(answer) => {
                let mut response = see_other(&self.address("", &[("joined", "1")]))?;
                self.keep(&mut response, &answer);
                Ok(response)
            }
            Err(problem) if problem.code() == Code::RoomFull => see_other(&self.address("", &[("full", "1")])),
            // The page says that it is over.
            Err(problem) if problem.code() == Code::RoomClosed => to_page(),
            Err(problem) => Err(problem),
        }
    }

    async fn leave(&self) -> Result<Response, Problem> {
        if self.app.is_foreign(self.parts) {
            return see_other(&self.address("", &[]));
        }
        if let Some(kept) = self.kept() {
            match calls::leave(self.app, &self.room, kept.ticket).await {
                // The page says that the place moved.
                Err(problem) if problem.code() == Code::TicketRenewed => return see_other(&self.address("", &[])),
                left => left?,
            }
        }
        let mut response = see_other(&self.address("", &[]))?;
        set_cookie(&mut response, cookie::write(cookie::PASS, "", 0, self.transport));
        Ok(response)
    }
}

/// What to do for a visit.
#[derive(Clone, Copy)]
enum Action {
    Show,
    Join,
    Leave,
    Take,
    Enter,
    Picture,
    Draw,
    Events,
}

async fn act(app: &Arc<App>, path: PathName, parts: &Parts, body: Body, action: Action) -> Result<Response, Problem> {
    let visit = Visit::of(app, path, parts)?;
    match action {
        Action::Show => match visit.moved()? {
            Some(response) => Ok(response),
            None => visit.show(Format::of(&parts.headers)).await,
        },
        Action::Join => visit.join().await,
        Action::Leave => visit.leave().await,
        Action::Take => visit.take(body).await,
        Action::Enter => visit.enter().await,
        Action::Picture => visit.picture(),
        Action::Draw => visit.draw(Format::of(&parts.headers)).await,
        Action::Events => visit.events(app).await,
    }
}

/// Answers a visit. A browser reads a refusal as a page.
async fn answer(app: Arc<App>, path: PathName, request: Request, route: Route, action: Action) -> Response {
    let (parts, body) = request.into_parts();
    let call = pin!(async {
        match Box::pin(act(&app, path, &parts, body, action)).await {
            Err(problem) if Format::of(&parts.headers) == Format::Html => {
                app.metrics.refused(problem.code());
                Ok(refusal(problem, Base::of(&parts)))
            }
            answer => answer,
        }
    });
    measured(&app, route, call).await
}

/// Builds the page, its parts, and what it loads.
pub(super) fn router() -> Router<Arc<App>> {
    let page = async |State(app), path: PathName, request: Request| {
        answer(app, path, request, Route::GetRoomPage, Action::Show).await
    };
    let join = async |State(app), path: PathName, request: Request| {
        answer(app, path, request, Route::PostRoomJoin, Action::Join).await
    };
    let leave = async |State(app), path: PathName, request: Request| {
        answer(app, path, request, Route::PostRoomLeave, Action::Leave).await
    };
    let take = async |State(app), path: PathName, request: Request| {
        answer(app, path, request, Route::PostRoomTake, Action::Take).await
    };
    let enter = async |State(app), path: PathName, request: Request| {
        answer(app, path, request, Route::GetRoomPage, Action::Enter).await
    };
    let picture = async |State(app), path: PathName, request: Request| {
        answer(app, path, request, Route::GetRoomPage, Action::Picture).await
    };
    let draw = async |State(app), path: PathName, request: Request| {
        answer(app, path, request, Route::GetDrawPage, Action::Draw).await
    };
    let events = async |State(app), path: PathName, request: Request| {
        answer(app, path, request, Route::GetRoomPageEvents, Action::Events).await
    };
    Router::new()
        // Any method: a proxy shows the page instead of what a visitor without a pass sent.
        .route("/rooms/{room}", any(page))
        .route("/rooms/{room}/join", post(join))
        .route("/rooms/{room}/leave", post(leave))
        .route("/rooms/{room}/take", post(take))
        .route("/rooms/{room}/enter", get(enter))
        .route("/rooms/{room}/place.svg", get(picture))
        .route("/rooms/{room}/style.css", get(branding::get_style))
        .route("/rooms/{room}/logo", get(branding::get_logo))
        .route("/rooms/{room}/draw", get(draw))
        .route("/assets/draw.js", super::asset("text/javascript", draw::SCRIPT))
        .route("/rooms/{room}/events", get(events))
        .route("/assets/room.css", super::asset("text/css", STYLE))
        .route("/assets/room.js", super::asset("text/javascript", SCRIPT))
        .route("/assets/room.work.js", super::asset("text/javascript", work::SCRIPT))
}
