//! Waiting rooms over HTTP.

use crate::HttpStore;
use crate::appearance::AppearanceShown;
use crate::call::{Call, CallReply, unavailable};
use crate::coupon::{no_tag, optional_instant, segment};
use crate::instant;
use crate::problem::Problem;
use firstcome_store::core::id::{RoomName, UserId};
use firstcome_store::core::revision::Revision;
use firstcome_store::core::room::appearance::Appearance;
use firstcome_store::core::room::{
    Admit, Departure, Draw, DrawSeed, DrawView, Hold, Join, OriginReport, RatePace, RateReason, Rejection, RenewalKey,
    RoomOrder, RoomSettings, RoomState, RoomView, Slot, TicketNumber, TicketState,
};
use firstcome_store::core::time::Steady;
use firstcome_store::embedded::journal::{PassSecret, PassSecretRevocation};
use firstcome_store::{
    FaultKind, Handoff, Joining, LiveAdmissions, PassCheck, PlaceStream, Put, RoomAnswer, RoomStore, RoomSummary,
    StoreError, TicketAnswer,
};
use http::StatusCode;
use http::header::{ETAG, IF_MATCH};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The most characters of a text that can be a ticket. The longest names make fewer than half of it.
const TICKET_CHARS_MAX: usize = 512;

#[derive(Serialize, Deserialize)]
struct AdmitShown {
    count: u32,
    every_ms: u64,
}

/// The settings of a room: the body of a PUT, and what the service shows.
#[derive(Serialize, Deserialize)]
struct SettingsShown {
    #[serde(skip_serializing_if = "Option::is_none")]
    admit: Option<AdmitShown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_active: Option<u32>,
    max_waiting: u32,
    waiting_ttl_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_poll_ms: Option<u64>,
    active_ttl_ms: u64,
    claim_window_ms: u64,
    /// Zero for none.
    idle_ttl_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    opens_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<Box<str>>,
    paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_url: Option<Box<str>>,
}

impl SettingsShown {
    fn new(settings: &RoomSettings) -> Self {
        Self {
            admit: settings.admit.map(|Admit { count, every_ms }| AdmitShown { count, every_ms }),
            max_active: settings.max_active,
            max_waiting: settings.max_waiting,
            waiting_ttl_ms: settings.waiting_ttl_ms,
            first_poll_ms: settings.first_poll_ms,
            active_ttl_ms: settings.active_ttl_ms,
            claim_window_ms: settings.claim_window_ms,
            idle_ttl_ms: settings.idle_ttl_ms.unwrap_or(0),
            opens_at: settings.opens_at.map(instant::format),
            order: (settings.order == RoomOrder::Draw).then(|| settings.order.as_str().into()),
            paused: settings.paused,
            message: settings.message.clone(),
            target_url: settings.target_url.clone(),
        }
    }

    fn settings(&self) -> Option<RoomSettings> {
        Some(RoomSettings {
            admit: self.admit.as_ref().map(|admit| Admit { count: admit.count, every_ms: admit.every_ms }),
            max_active: self.max_active,
            max_waiting: self.max_waiting,
            waiting_ttl_ms: self.waiting_ttl_ms,
            first_poll_ms: self.first_poll_ms,
            active_ttl_ms: self.active_ttl_ms,
            claim_window_ms: self.claim_window_ms,
            idle_ttl_ms: (self.idle_ttl_ms != 0).then_some(self.idle_ttl_ms),
            opens_at: optional_instant(self.opens_at.as_deref())?,
            order: match self.order.as_deref() {
                None | Some("first_come") => RoomOrder::FirstCome,
                Some("draw") => RoomOrder::Draw,
                Some(_) => return None,
            },
            paused: self.paused,
            message: self.message.clone(),
            target_url: self.target_url.clone(),
        })
    }
}

/// A room as the service shows it.
#[derive(Deserialize)]
struct RoomShown {
    waiting: u32,
    active: u32,
    serving: u32,
    rate: f64,
    pace: Option<PaceShown>,
    eta_ms_at_tail: Option<u64>,
    state: String,
    as_of: String,
    settings: Option<SettingsShown>,
    draw: Option<DrawShown>,
}

/// The draw of a room as the service shows it.
#[derive(Deserialize)]
struct DrawShown {
    commitment: String,
    first: Option<u32>,
    entrants: u32,
    seed: Option<String>,
    drawn_at: Option<String>,
}

fn bytes_of(hexadecimal: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if hexadecimal.len() != 64 || !hexadecimal.is_ascii() {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&hexadecimal[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

impl DrawShown {
    fn view(&self) -> Option<DrawView> {
        let drawn_at = optional_instant(self.drawn_at.as_deref())?;
        let draw = match (self.first, drawn_at) {
            (Some(first), Some(drawn_at)) => {
                // The service keeps the seed of a draw without entrants to itself.
                let seed = DrawSeed::new(self.seed.as_deref().map_or(Some([0; 32]), bytes_of)?);
                Some(Draw { seed, first, entrants: self.entrants, drawn_at })
            }
            _ => None,
        };
        Some(DrawView { commitment: bytes_of(&self.commitment)?, draw })
    }
}

/// Why a room has its rate, as the service shows it.
#[derive(Deserialize)]
struct PaceShown {
    reason: String,
    set_per_s: Option<f64>,
    origin_share: f64,
    arrivals_per_s: f64,
    no_show_share: Option<f64>,
    made_up_per_s: f64,
}

impl PaceShown {
    fn pace(&self) -> Option<RatePace> {
        Some(RatePace {
            reason: RateReason::ALL.into_iter().find(|reason| reason.as_str() == self.reason)?,
            set_per_s: self.set_per_s,
            origin_share: self.origin_share,
            arrivals_per_s: self.arrivals_per_s,
            no_show_share: self.no_show_share,
            made_up_per_s: self.made_up_per_s,
        })
    }
}

/// The answer to a report of the origin.
#[derive(Deserialize)]
struct FeedbackShown {
    pace: PaceShown,
}

/// A report as the service judges it: of so many requests so many failed, and the latency was this.
#[derive(Serialize)]
struct ReportBody {
    requests: u32,
    errors: u32,
    latency_ms: u32,
    latency_ms_max: u32,
}

impl RoomShown {
    fn summary(&self) -> Option<RoomSummary> {
        let states = [RoomState::Open, RoomState::Paused, RoomState::Scheduled, RoomState::Closed];
        let view = RoomView {
            state: states.into_iter().find(|state| state.as_str() == self.state)?,
            waiting: self.waiting,
            active: self.active,
            serving: self.serving,
            rate: self.rate,
            pace: self.pace.as_ref()?.pace()?,
            wait_at_tail_ms: self.eta_ms_at_tail,
        };
        let draw = match &self.draw {
            Some(shown) => Some(shown.view()?),
            None => None,
        };
        let settings = self.settings.as_ref()?.settings()?;
        Some(RoomSummary { settings, view, draw, as_of: instant::parse(&self.as_of)? })
    }
}

/// A ticket as the service shows it. The secret itself comes with the join only.
#[derive(Deserialize)]
pub(crate) struct TicketShown {
    pub(crate) ticket: Option<Box<str>>,
    number: u32,
    state: String,
    position: Option<u32>,
    entrants: Option<u32>,
    eta_ms: Option<u64>,
    poll_after_ms: u32,
    as_of: String,
    user: Option<Box<str>>,
    admitted_at: Option<String>,
    admission: Option<u64>,
    slot_ends_at: Option<String>,
    /// The pass of an admitted visitor.
    pub(crate) pass: Option<Box<str>>,
}

impl TicketShown {
    pub(crate) fn answer(&self, ticket: &str) -> Option<TicketAnswer> {
        let as_of = instant::parse(&self.as_of)?;
        let until = optional_instant(self.slot_ends_at.as_deref())?;
        let state = match self.state.as_str() {
            "in_draw" => TicketState::InDraw { entrants: self.entrants?, wait_ms: self.eta_ms },
            "waiting" => TicketState::Waiting { position: self.position?, wait_ms: self.eta_ms },
            "admitted" => {
                // The steady clock of the service is not shown: this one begins with the answer.
                let until = Steady::from_us(until?.as_us() - as_of.as_us());
                let admitted_at = instant::parse(self.admitted_at.as_deref()?)?;
                let slot = Slot { admission: self.admission?, admitted_at, hold: Hold::Taken { until } };
                TicketState::Admitted { slot, until }
            }
            "left" => TicketState::Gone(Departure::Left),
            "expired" => TicketState::Gone(Departure::Expired),
            _ => return None,
        };
        Some(TicketAnswer {
            ticket: ticket.into(),
            number: TicketNumber::new(self.number)?,
            user: self.user.clone(),
            state,
            until,
            poll_after_ms: self.poll_after_ms,
            as_of,
        })
    }
}

#[derive(Serialize)]
pub(crate) struct TicketBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<&'a str>,
}

/// A slot, by which a back end shows a pass without the pass.
#[derive(Serialize)]
struct SlotBody {
    number: u32,
    admission: u64,
}

#[derive(Deserialize)]
pub(crate) struct PassesShown {
    items: Vec<(u32, u64)>,
    as_of: String,
}

impl PassesShown {
    pub(crate) fn admissions(self) -> Option<LiveAdmissions> {
        let number = |(number, admission)| Some((TicketNumber::new(number)?, admission));
        let admissions = self.items.into_iter().map(number).collect::<Option<_>>()?;
        Some(LiveAdmissions { admissions, as_of: instant::parse(&self.as_of)? })
    }
}

#[derive(Deserialize)]
struct VerdictShown {
    valid: bool,
    user: Option<Box<str>>,
    expires_at: Option<String>,
}

/// Reads a refusal by a rule; `None` if it is none, or not understood.
fn rejection(problem: &Problem) -> Option<Rejection> {
    Some(match problem.code() {
        "unknown_room" => Rejection::UnknownRoom,
        "unknown_ticket" => Rejection::UnknownTicket,
        "ticket_renewed" => Rejection::TicketRenewed,
        "not_admitted" => Rejection::NotAdmitted,
        "invalid_handoff" => Rejection::InvalidHandoff,
        "handoff_used" => Rejection::HandoffUsed,
        "idempotency_key_reused" => {
            let number = u32::try_from(problem.number("number")?).ok()?;
            Rejection::KeyReused(TicketNumber::new(number)?)
        }
        "settings_changed" => Rejection::SettingsChanged,
        "draw_fixed" => Rejection::DrawFixed,
        "room_closed" => Rejection::Closed,
        "room_full" => Rejection::Full { retry_after_ms: problem.number("retry_after_ms")? },
        _ => return None,
    })
}

/// Hands on a refusal by a rule, and tells any other as an error.
pub(crate) fn refused<T>(told: &CallReply) -> RoomAnswer<T> {
    match told.problem().and_then(|problem| rejection(&problem)) {
        Some(rejection) => Ok(Err(rejection)),
        None => Err(told.refused()),
    }
}

pub(crate) fn path(room: &RoomName) -> String {
    format!("/v1/rooms/{}", segment(room.as_str()))
}

/// Whether a text has the form of a ticket. The service reads no other from a path.
pub(crate) fn may_be_ticket(text: &str) -> bool {
    let base64url = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=TICKET_CHARS_MAX).contains(&text.len()) && text.bytes().all(base64url)
}

impl HttpStore {
    /// Tells whether a room is there; any key may ask.
    async fn has_room(&self, room: &RoomName) -> RoomAnswer<()> {
        let told = self.service.call(&Call::get(path(room))).await?;
        if told.is_yes() { Ok(Ok(())) } else { refused(&told) }
    }

    /// The refusal of a text that cannot be a ticket.
    pub(crate) async fn no_ticket<T>(&self, room: &RoomName) -> RoomAnswer<T> {
        Ok(Err(self.has_room(room).await?.err().unwrap_or(Rejection::UnknownTicket)))
    }

    async fn put_room_settings(&self, call: Call) -> RoomAnswer<Put> {
        let told = self.service.call(&call).await?;
        match told.status() {
            StatusCode::CREATED => Ok(Ok(Put::Created)),
            StatusCode::OK => Ok(Ok(Put::Replaced)),
            _ => refused(&told),
        }
    }

    /// Reads a room with its settings, and the answer that told them.
    async fn summary(&self, room: &RoomName) -> RoomAnswer<(RoomSummary, CallReply)> {
        let told = self.service.call(&Call::get(path(room))).await?;
        if !told.is_yes() {
            return refused(&told);
        }
        let shown = told.read::<RoomShown>()?;
        if shown.settings.is_none() {
            return Err(unavailable(
                FaultKind::Unfit,
                "the service shows the settings of a room to an admin key alone",
            ));
        }
        let summary = shown.summary().ok_or_else(|| told.strange())?;
        Ok(Ok((summary, told)))
    }

    async fn slot(
        &self,
        room: &RoomName,
        action: &str,
        number: TicketNumber,
        admission: u64,
    ) -> Result<CallReply, StoreError> {
        let body = SlotBody { number: number.get(), admission };
        self.service.call(&Call::post(format!("{}/passes/{action}", path(room)), &body)).await
    }
}

/// One method is one request, except: [`RoomStore::put_room`] of a revision (two).
impl RoomStore for HttpStore {
    /// Needs an admin key. A lost answer is [`StoreError::Unknown`] and not repeated, since a second copy could undo what
    /// another operator has put.
    async fn put_room(&self, room: &RoomName, revision: impl Into<Revision<RoomSettings>> + Send) -> RoomAnswer<Put> {
        let Revision { settings, replaces } = revision.into();
        let call = Call::put(path(room), &SettingsShown::new(&settings));
        let Some(replaces) = replaces else { return self.put_room_settings(call).await };
        let (summary, told) = match self.summary(room).await? {
            Ok(seen) => seen,
            Err(rejection) => return Ok(Err(rejection)),
        };
        if summary.settings != replaces {
            return Ok(Err(Rejection::SettingsChanged));
        }
        let tag = told.header(&ETAG).cloned().ok_or_else(no_tag)?;
        self.put_room_settings(call.header(IF_MATCH, tag)).await
    }

    /// Needs an admin key. A lost answer is [`StoreError::Unknown`] and not repeated, since a second copy could close a
    /// room that another operator has opened again.
    async fn close_room(&self, room: &RoomName) -> RoomAnswer<()> {
        let told = self.service.call(&Call::delete_once(path(room))).await?;
        if told.is_yes() { Ok(Ok(())) } else { refused(&told) }
    }

    /// Needs an admin key, since a summary has the settings. The rate is rounded to thousandths.
    async fn room(&self, room: &RoomName) -> RoomAnswer<RoomSummary> {
        Ok(self.summary(room).await?.map(|(summary, _)| summary))
    }

    /// Needs an admin key. A lost answer is [`StoreError::Unknown`] and not repeated, since a second copy could undo what
    /// another operator has put.
    async fn put_appearance(&self, room: &RoomName, appearance: Appearance) -> RoomAnswer<()> {
        let call = Call::put(format!("{}/appearance", path(room)), &AppearanceShown::new(&appearance));
        let told = self.service.call(&call).await?;
        if told.is_yes() { Ok(Ok(())) } else { refused(&told) }
    }

    /// Needs an admin key.
    async fn appearance(&self, room: &RoomName) -> RoomAnswer<Arc<Appearance>> {
        let told = self.service.call(&Call::get(format!("{}/appearance", path(room)))).await?;
        if !told.is_yes() {
            return refused(&told);
        }
        let appearance = told.read::<AppearanceShown>()?.appearance();
        Ok(Ok(Arc::new(appearance.ok_or_else(|| told.strange())?)))
    }

    async fn join(&self, room: &RoomName, join: Join) -> RoomAnswer<(Joining, TicketAnswer)> {
        let Join { user, request } = join;
        let body = TicketBody { user: user.as_ref().map(UserId::as_str) };
        let told = self.service.call(&Call::post_once(format!("{}/tickets", path(room)), &body, request)?).await?;
        let joining = match told.status() {
            StatusCode::CREATED if told.is_replayed() => Joining::SameRequest,
            StatusCode::CREATED => Joining::New,
            StatusCode::OK => Joining::SameUser,
            _ => return refused(&told),
        };
        let shown = told.read::<TicketShown>()?;
        let answer = shown.ticket.as_deref().and_then(|ticket| shown.answer(ticket));
        Ok(Ok((joining, answer.ok_or_else(|| told.strange())?)))
    }

    /// In the answer for an admitted ticket the steady clock begins with the answer: only [`TicketAnswer::until`] is an
    /// instant of the service.
    async fn poll(&self, room: &RoomName, ticket: &str) -> RoomAnswer<TicketAnswer> {
        if !may_be_ticket(ticket) {
            return self.no_ticket(room).await;
        }
        let told = self.service.call(&Call::get(format!("{}/tickets/{ticket}", path(room)))).await?;
        if !told.is_yes() {
            return refused(&told);
        }
        let answer = told.read::<TicketShown>()?.answer(ticket);
        Ok(Ok(answer.ok_or_else(|| told.strange())?))
    }

    /// The service opens a stream for a ticket near the front. It is a connection of its own, and lasts a minute at most.
    async fn place_stream(&self, room: &RoomName, ticket: &str) -> Option<Box<dyn PlaceStream>> {
        if may_be_ticket(ticket) { self.events_of(room, ticket).await } else { None }
    }

    async fn renew(&self, room: &RoomName, ticket: &str, key: RenewalKey) -> RoomAnswer<TicketAnswer> {
        if !may_be_ticket(ticket) {
            return self.no_ticket(room).await;
        }
        let renew = format!("{}/tickets/{ticket}/renew", path(room));
        Ok(self.renewed(renew, &TicketBody { user: None }, key).await?.map(|(answer, _)| answer))
    }

    async fn hand_off(&self, room: &RoomName, ticket: &str) -> RoomAnswer<Handoff> {
        if !may_be_ticket(ticket) {
            return self.no_ticket(room).await;
        }
        self.make_handoff(room, ticket).await
    }

    /// Needs a service key.
    async fn redeem_handoff(&self, room: &RoomName, code: &str, key: RenewalKey) -> RoomAnswer<TicketAnswer> {
        Ok(self.redeem(room, code, key).await?.map(|(answer, _)| answer))
    }

    async fn leave(&self, room: &RoomName, ticket: &str) -> RoomAnswer<()> {
        if !may_be_ticket(ticket) {
            return self.no_ticket(room).await;
        }
        let told = self.service.call(&Call::delete(format!("{}/tickets/{ticket}", path(room)))).await?;
        if told.is_yes() { Ok(Ok(())) } else { refused(&told) }
    }

    async fn release(&self, room: &RoomName, number: TicketNumber, admission: u64) -> RoomAnswer<()> {
        let told = self.slot(room, "release", number, admission).await?;
        if told.is_yes() { Ok(Ok(())) } else { refused(&told) }
    }

    async fn check_pass(&self, room: &RoomName, number: TicketNumber, admission: u64) -> RoomAnswer<Option<PassCheck>> {
        let told = self.slot(room, "verify", number, admission).await?;
        if !told.is_yes() {
            return refused(&told);
        }
        let VerdictShown { valid, user, expires_at } = told.read()?;
        if !valid {
            return Ok(Ok(None));
        }
        let until = expires_at.as_deref().and_then(instant::parse).ok_or_else(|| told.strange())?;
        Ok(Ok(Some(PassCheck { until, user })))
    }

    async fn admissions(&self, room: &RoomName) -> RoomAnswer<LiveAdmissions> {
        let told = self.service.call(&Call::get(format!("{}/passes", path(room)))).await?;
        if !told.is_yes() {
            return refused(&told);
        }
        let admissions = told.read::<PassesShown>()?.admissions();
        Ok(Ok(admissions.ok_or_else(|| told.strange())?))
    }

    /// Needs a service key. Rates and shares are rounded to thousandths.
    async fn report_origin(&self, room: &RoomName, report: OriginReport) -> RoomAnswer<RatePace> {
        let (errors, latency_ms) = match report {
            OriginReport::Fine => (0, 0),
            OriginReport::Slow => (0, 2),
            OriginReport::Failing => (1, 0),
        };
        let body = ReportBody { requests: 1, errors, latency_ms, latency_ms_max: 1 };
        let told = self.service.call(&Call::post(format!("{}/feedback", path(room)), &body)).await?;
        if !told.is_yes() {
            return refused(&told);
        }
        let pace = told.read::<FeedbackShown>()?.pace.pace().ok_or_else(|| told.strange())?;
        Ok(Ok(pace))
    }

    /// Has no effect: the service admits by itself, some twenty times a second. No request.
    async fn tick(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Always empty: the secrets never leave the service, which mints and reads passes itself.
    fn pass_secrets(&self) -> Vec<PassSecret> {
        Vec::new()
    }

    /// Always fails, without a request: a new secret would have to be returned, and secrets never leave the service.
    async fn rotate_pass_secret(&self) -> Result<PassSecret, StoreError> {
        let says = "the service keeps the secrets of passes to itself: rotate them there, with POST /v1/pass-keys";
        Err(unavailable(FaultKind::Unfit, says))
    }

    /// Needs an admin key.
    async fn revoke_pass_secret(&self, id: u32) -> Result<PassSecretRevocation, StoreError> {
        match self.revoke_pass_key(id).await? {
            Ok(revoked) if revoked.was_gone => Ok(PassSecretRevocation::GoneBefore),
            Ok(_) => Ok(PassSecretRevocation::Revoked),
            Err(refusal) if refusal.code == "unknown_pass_key" => Ok(PassSecretRevocation::Unknown),
            Err(refusal) => Err(unavailable(FaultKind::Unfit, refusal.to_string())),
        }
    }
}
