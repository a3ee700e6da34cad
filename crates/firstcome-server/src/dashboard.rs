//! The dashboard of operators: pages at `/dashboard`, for browsers with and without scripts.
//!
//! # What it promises
//! - Each request but the login needs a session ([`mod@session`]); the role is checked for each request on the server.
//! - A change needs a form of the same session and of this site: no page of another site can send one.
//! - Each change, each login and each export is in the log, with what was before and after ([`audit`]).
//! - The pages load nothing from elsewhere and run no inline script. They work without scripts; charts need them.
//! - Charts hear of each sample by a stream, which ends with the session; a browser without one polls.
//! - A logout ends the session at every node within seconds, copies of its cookie and its streams included ([`mod@logout`]).
//! - Memory is bounded: ten minutes of samples ([`history`]), 500 entries of the audit log, a page of a list.
//!
//! # What it does not promise
//! - Figures of the whole cluster: a node shows what it has counted, and the rooms that it has copies of.

mod action;
mod audit;
pub(crate) mod calls;
mod export;
mod find;
mod history;
mod items;
mod lists;
pub(crate) mod logout;
mod problem;
mod proof;
mod second;
pub(crate) mod session;
mod view;

use crate::accept::Peer;
use crate::address;
use crate::api::body::{self, PathName};
use crate::api::json::Json;
use crate::api::measured;
use crate::auth::{KeyDigest, Keys};
use crate::cookie::{self, Transport};
use crate::error::{Code, Problem};
use crate::failures::Credential;
use crate::live::SamplesWanted;
use crate::metrics::Route;
use crate::pages::{self, Format};
use crate::state::App;
use audit::{AuditEntry, AuditLog};
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use firstcome::core::id::RoomName;
use firstcome::core::time::Timestamp;
use firstcome::edge::draw_secret;
use history::History;
use logout::Logouts;
use serde_json::Value;
use session::{Role, Session, SessionKey};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

const STYLE: &str = include_str!("../assets/dashboard.css");
const SCRIPT: &str = include_str!("../assets/dashboard.js");
/// Draws charts. Licensed under MIT by Leon Sorokin; the text of the licence is in the file.
const CHARTS: &str = include_str!("../assets/uplot/uPlot.iife.min.js");
const CHARTS_STYLE: &str = include_str!("../assets/uplot/uPlot.min.css");
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// The cookie that carries the session.
const SESSION: &str = "firstcome_session";
const PATH: &str = "/dashboard";
const LOGIN: &str = "/dashboard/login";
/// Where the script hears of samples. Below the path of the cookie, which no other path gets.
const STREAM: &str = "/dashboard/stream";
/// The name of a field, or of a parameter, is short.
const PARAMETER_BYTES_MAX: usize = 1_024;

/// What the dashboard keeps in memory.
#[derive(Default)]
pub(crate) struct Dashboard {
    pub(crate) history: History,
    pub(crate) audit: AuditLog,
    pub(crate) logouts: Logouts,
    /// Signs forms in development mode, which has no keys. Drawn at first use.
    secret: OnceLock<[u8; 32]>,
}

impl Dashboard {
    /// Returns the samples of a room, or of the service, after an instant. Samples the room from now on.
    pub(crate) fn samples(&self, app: &App, room: Option<&RoomName>, after_ms: i64) -> Value {
        match room {
            None => self.history.shown(after_ms),
            Some(room) => self.history.shown_room(room, after_ms, app.backend.steady().as_us().unsigned_abs()),
        }
    }
}

/// Whether a script asks for figures: it reads a refusal as JSON, and prolongs no session.
fn is_of_script(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| matches!(rest.trim_matches('/'), "feed" | "stream"))
}

/// A request of an operator who is logged in.
struct Visit<'a> {
    app: &'a App,
    parts: &'a Parts,
    session: Session,
    /// The segments of the path after `/dashboard`.
    path: Vec<&'a str>,
}

/// Returns random bytes, or refuses if the system has none.
fn random() -> Result<[u8; 32], Problem> {
    draw_secret().map_err(|_| Code::StoreUnavailable.into())
}

fn now_s(app: &App) -> i64 {
    app.backend.now().as_us().div_euclid(1_000_000)
}

/// The value of a parameter of the address.
fn parameter(parts: &Parts, name: &str) -> Option<String> {
    let query = parts.uri.query().unwrap_or_default();
    let mut found = form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == name);
    found.next().map(|(_, value)| value.into_owned()).filter(|value| value.len() <= PARAMETER_BYTES_MAX)
}

fn client(app: &App, parts: &Parts) -> Option<IpAddr> {
    let Peer(peer) = parts.extensions.get()?;
    Some(address::client(*peer, &parts.headers, &app.config.proxies))
}

/// Refuses a form of a page of another site.
fn of_this_site(app: &App, parts: &Parts) -> Result<(), Problem> {
    if app.is_foreign(parts) { Err(Code::FormExpired.into()) } else { Ok(()) }
}

/// Sends the browser to another address, with a GET.
fn see_other(address: &str) -> Result<Response, Problem> {
    let location = HeaderValue::try_from(address).map_err(|_| Problem::new(Code::InvalidQuery))?;
    let headers = [(header::LOCATION, location), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}

fn page(status: StatusCode, template: &impl askama::Template) -> Response {
    let mut response = pages::rendered(status, template);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    // With `no-referrer` a browser names no origin in a POST.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::VARY, HeaderValue::from_static("accept, cookie"));
    response
}

fn with_cookie(mut response: Response, value: &str, max_age_s: u64, transport: Transport) -> Response {
    if let Some(cookie) = cookie::write_strict(SESSION, value, max_age_s, transport, PATH) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// The session that a request belongs to. `None` if it has logged out, at this node or at another one.
async fn session(app: &App, parts: &Parts) -> Result<Option<Session>, Problem> {
    if app.is_dev() {
        if app.dashboard.secret.get().is_none() {
            // A concurrent request that sets it has drawn one as good.
            let _ = app.dashboard.secret.set(random()?);
        }
        return Ok(app.dashboard.secret.get().map(Session::development));
    }
    let value = cookie::read(&parts.headers, SESSION);
    match value.and_then(|value| Session::read(&app.accepted_keys(), value, now_s(app))) {
        Some(session) if app.has_logged_out(&session).await => Ok(None),
        session => Ok(session),
    }
}

impl<'a> Visit<'a> {
    fn at(&self) -> Timestamp {
        self.app.backend.now()
    }

    fn parameter(&self, name: &str) -> Option<String> {
        parameter(self.parts, name)
    }

    /// Requires a session that may change something.
    fn operator(&self) -> Result<(), Problem> {
        if self.session.role == Role::Operate { Ok(()) } else { Err(Code::ViewOnly.into()) }
    }

    /// Begins an entry of the audit log.
    fn entry(&self, action: &'static str, object: String) -> AuditEntry {
        let entry = AuditEntry::of(&self.session, self.at(), action, object);
        AuditEntry { address: client(self.app, self.parts), ..entry }
    }

    async fn read(&self, app: &Arc<App>) -> Result<Response, Problem> {
        match self.path[..] {
            [] => self.overview().await,
            ["feed"] => self.feed().await,
            ["stream"] => self.stream(app).await,
            ["rooms"] => self.rooms().await,
            ["rooms", room] => self.room(room).await,
            ["coupons"] => self.coupons().await,
            ["coupons", coupon] => self.coupon(coupon).await,
            ["listings"] => self.listings().await,
            ["listings", listing] => self.listing(listing).await,
            ["members"] => self.members().await,
            ["members", member] => self.member(member).await,
            ["locks"] => self.locks().await,
            ["locks", lock] => self.lock(lock).await,
            ["open"] => self.open(),
            ["find"] => self.find().await,
            ["audit"] => self.audit(),
            ["coupons", coupon, "claims.csv"] => self.export(app, coupon).await,
            ["rooms", room, "receipts", place] => self.place_receipt(room, place).await,
            ["coupons", coupon, "receipts", user] => self.claim_receipt(coupon, user).await,
            ["rooms" | "coupons", _, _] => self.ask().await,
            _ => Err(Code::NotFound.into()),
        }
    }

    async fn write(&self, app: &Arc<App>, form: &Form) -> Result<Response, Problem> {
        let token = form.get("token").unwrap_or_default();
        if !self.session.accepts(&self.path.join("/"), token) {
            return Err(Code::FormExpired.into());
        }
        match self.path[..] {
            ["logout"] => self.log_out(app).await,
            ["rooms" | "coupons", _, _] => self.act(form).await,
            _ => Err(Code::NotFound.into()),
        }
    }

    /// The samples that a page wants. Refused: `unknown_room`.
    async fn samples_wanted(&self) -> Result<SamplesWanted, Problem> {
        let after_ms = self.parameter("after").and_then(|text| text.parse().ok()).unwrap_or(0);
        let room = self.parameter("room").map(|room| body::room(&room)).transpose()?;
        if let Some(room) = &room {
            // Samples are kept of rooms that exist, and of no name that a client has made up.
            crate::api::room::summary(self.app, room).await?;
        }
        Ok(SamplesWanted { room, after_ms })
    }

    /// The samples since the last poll.
    async fn feed(&self) -> Result<Response, Problem> {
        self.app.observe().await;
        let SamplesWanted { room, after_ms } = self.samples_wanted().await?;
        let shown = self.app.dashboard.samples(self.app, room.as_ref(), after_ms);
        Ok(([(header::CACHE_CONTROL, "no-store")], Json(shown)).into_response())
    }

    /// The samples, once a second until the session ends.
    async fn stream(&self, app: &Arc<App>) -> Result<Response, Problem> {
        app.live.open_samples(app, self.samples_wanted().await?, self.session.clone())
    }

    async fn log_out(&self, app: &Arc<App>) -> Result<Response, Problem> {
        self.app.dashboard.audit.add(self.entry("logout", String::new()));
        logout::end(app, &self.session).await;
        Ok(with_cookie(see_other(LOGIN)?, "", 0, self.app.transport(self.parts)))
    }
}

/// The fields of a form.
struct Form(Vec<(String, String)>);

impl Form {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Shows the form of the login. An operator who is logged in goes on to the dashboard.
async fn login_page(app: &App, parts: &Parts) -> Result<Response, Problem> {
    if session(app, parts).await?.is_some() {
        return see_other(PATH);
    }
    Ok(page(StatusCode::OK, &view::LoginPage { version: env!("CARGO_PKG_VERSION"), problem: None }))
}

/// Begins a session for the API key of the form.
fn log_in(app: &App, parts: &Parts, form: &Form) -> Result<Response, Problem> {
    of_this_site(app, parts)?;
    if app.is_dev() {
        return see_other(PATH);
    }
    let (at, address) = (app.backend.now(), client(app, parts));
    // A call within the process has no address.
    if let Some(client) = address {
        app.may_log_in(client)?;
    }
    let key = form.get("key").unwrap_or_default().trim();
    let digest = KeyDigest::of(key);
    let found = app.key_holder(&digest).and_then(|caller| Some((Role::of(caller.scope)?, digest)));
    let Some((role, digest)) = found else {
        let (session, object, change) = (String::new(), String::new(), String::new());
        let answer = Code::Unauthorized.as_str();
        app.dashboard.audit.add_failed_login(AuditEntry {
            at,
            role: "none",
            session,
            address,
            action: "login",
            object,
            change,
            answer,
        });
        if let Some(client) = address {
            app.failed_to_authenticate(client, Credential::Login)?;
        }
        return Err(Code::Unauthorized.into());
    };
    let operator = form.get("operator").unwrap_or_default().trim();
    if !session::is_name(operator) {
        return Err(Problem::field(Code::InvalidField, "operator", "operator must have at most 40 characters"));
    }
    let session = Session::begin(role, operator, SessionKey::of(&digest), &random()?, now_s(app));
    app.dashboard.audit.add(AuditEntry { address, ..AuditEntry::of(&session, at, "login", String::new()) });
    let left_s = session.left_s(now_s(app));
    Ok(with_cookie(see_other(PATH)?, &session.cookie(), left_s, app.transport(parts)))
}

async fn act(app: &Arc<App>, parts: &Parts, path: &str, form: Option<Form>) -> Result<Response, Problem> {
    let path: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    if let Keys::Dev = app.config.keys {
        crate::auth::dev_gate(&parts.headers, app.config.transport())?;
    }
    if path == ["login"] {
        return match &form {
            None => login_page(app, parts).await,
            Some(form) => log_in(app, parts, form),
        };
    }
    let Some(session) = session(app, parts).await? else {
        // A script reads the code; a browser goes to the login.
        return match (&form, Format::of(&parts.headers)) {
            (None, Format::Html) if !is_of_script(parts.uri.path()) => see_other(LOGIN),
            _ => Err(Code::Unauthorized.into()),
        };
    };
    let is_page = form.is_none() && !is_of_script(parts.uri.path());
    let renewed = session.renewed(now_s(app)).filter(|_| is_page && !app.is_dev());
    let visit = Visit { app, parts, session, path };
    let response = match &form {
        None => visit.read(app).await,
        Some(form) => {
            of_this_site(app, parts)?;
            visit.write(app, form).await
        }
    };
    match (response, renewed) {
        (Ok(response), Some(renewed)) => {
            Ok(with_cookie(response, &renewed.cookie(), renewed.left_s(now_s(app)), app.transport(parts)))
        }
        (response, _) => response,
    }
}

/// Answers a request. A browser reads a refusal as a page.
async fn answer(app: Arc<App>, path: Option<PathName>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let route = match (&parts.method, parts.uri.path()) {
        (&Method::POST, _) => Route::PostDashboard,
        (_, STREAM) => Route::GetDashboardStream,
        _ => Route::GetDashboard,
    };
    let call = pin!(async {
        let done = Box::pin(async {
            let path = path.transpose().map_err(|_| body::undecodable())?.map(|Path(path)| path).unwrap_or_default();
            let form = match route {
                Route::PostDashboard => {
                    Some(Form(body::read_form(&parts.headers, body, app.config.limits.body).await?))
                }
                _ => None,
            };
            act(&app, &parts, &path, form).await
        })
        .await;
        match done {
            Err(problem) if Format::of(&parts.headers) == Format::Html && !is_of_script(parts.uri.path()) => {
                app.metrics.refused(problem.code());
                Ok(problem::shown(&app, &parts, problem).await)
            }
            done => done,
        }
    });
    measured(&app, route, call).await
}

/// Builds the dashboard, and what its pages load.
pub(crate) fn router() -> Router<Arc<App>> {
    let first = async |State(app), request: Request| answer(app, None, request).await;
    let other = async |State(app), path: PathName, request: Request| answer(app, Some(path), request).await;
    Router::new()
        .route("/dashboard", get(first))
        .route("/dashboard/{*path}", get(other).post(other))
        .route("/assets/dashboard.css", pages::asset("text/css", STYLE))
        .route("/assets/dashboard.js", pages::asset("text/javascript", SCRIPT))
        .route("/assets/uplot.js", pages::asset("text/javascript", CHARTS))
        .route("/assets/uplot.css", pages::asset("text/css", CHARTS_STYLE))
}
