//! The request and response bodies of waiting rooms. `/openapi.json` shows the same names and units.

use super::shape::{read_instant, without_nulls};
use super::steering::Pace;
use crate::error::{Code, Problem as Refusal};
use crate::rfc3339::format as instant;
use firstcome::core::id::{RoomName, TicketNumber};
use firstcome::core::room::draw::ALGORITHM;
use firstcome::core::room::{Admit as AdmitRate, Departure, RoomOrder, RoomSettings, TicketState};
use firstcome::core::time::Timestamp;
use firstcome::{RoomSummary, TicketAnswer};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt::{self, Write as _};
use utoipa::ToSchema;

/// How long a slot lasts without any contact, unless the settings say otherwise.
const IDLE_TTL_MS: u64 = 300_000;

/// Visitors per time
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Admit {
    /// How many visitors
    #[schema(minimum = 1, maximum = 1_000_000, example = 100)]
    count: u32,
    /// In which time, in milliseconds
    #[schema(minimum = 100, maximum = 86_400_000, example = 1_000)]
    every_ms: u64,
}

/// Accepts only an object: serde would otherwise take a list of the fields in their order.
struct AdmitVisitor;

impl<'de> Visitor<'de> for AdmitVisitor {
    type Value = Option<Admit>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with count and every_ms")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Admit::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}

fn read_admit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Admit>, D::Error> {
    deserializer.deserialize_any(AdmitVisitor)
}

/// The order of those who join before the opening
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// In the order of arrival
    FirstCome,
    /// In a random order, drawn at the opening
    Draw,
}

/// Settings of a room; `admit`, `max_active` or both
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct RoomBody {
    /// How fast visitors are admitted
    #[serde(default, deserialize_with = "read_admit")]
    admit: Option<Admit>,
    /// The most visitors inside at once
    #[schema(minimum = 1, maximum = 10_000_000)]
    max_active: Option<u32>,
    /// The most visitors in line; 1000000 without it
    #[schema(minimum = 1, maximum = 100_000_000)]
    max_waiting: Option<u32>,
    /// A visitor that is silent for so long loses the place; 3600000 without it
    #[schema(minimum = 100, maximum = 604_800_000)]
    waiting_ttl_ms: Option<u64>,
    /// A visitor that has not polled within this time of the join loses the place; no such time without it. 120000 ends the
    /// places of scripts that only join. A renewal, a stream of events and a repeated join count as a poll
    #[schema(minimum = 100, maximum = 604_800_000, example = 120_000)]
    first_poll_ms: Option<u64>,
    /// How long a slot lasts; 1800000 without it
    #[schema(minimum = 100, maximum = 86_400_000)]
    active_ttl_ms: Option<u64>,
    /// How long an admitted visitor may take until the first poll; 60000 without it
    #[schema(minimum = 100, maximum = 86_400_000)]
    claim_window_ms: Option<u64>,
    /// A slot ends after so long without contact (a poll of the ticket, a check of the pass); 0 for never; without it
    /// 300000, or `active_ttl_ms` if that is shorter
    #[schema(minimum = 0, maximum = 86_400_000)]
    idle_ttl_ms: Option<u64>,
    /// Admissions begin; visitors may join before
    #[schema(format = DateTime)]
    opens_at: Option<String>,
    /// The order of those who join before `opens_at`; first_come without it. A draw needs `opens_at`
    order: Option<Order>,
    /// Admit no visitor for now
    paused: Option<bool>,
    /// A text for the visitors in line
    message: Option<String>,
    /// The page that admitted visitors go to
    target_url: Option<String>,
}

impl RoomBody {
    pub(crate) fn settings(self) -> Result<RoomSettings, Refusal> {
        let defaults = RoomSettings::defaults();
        let active_ttl_ms = self.active_ttl_ms.unwrap_or(defaults.active_ttl_ms);
        let settings = RoomSettings {
            admit: self.admit.map(|admit| AdmitRate { count: admit.count, every_ms: admit.every_ms }),
            max_active: self.max_active,
            max_waiting: self.max_waiting.unwrap_or(defaults.max_waiting),
            waiting_ttl_ms: self.waiting_ttl_ms.unwrap_or(defaults.waiting_ttl_ms),
            first_poll_ms: self.first_poll_ms,
            active_ttl_ms,
            claim_window_ms: self.claim_window_ms.unwrap_or(defaults.claim_window_ms),
            // Otherwise a visitor who vanished would hold a slot to its end.
            idle_ttl_ms: match self.idle_ttl_ms {
                None => Some(IDLE_TTL_MS.min(active_ttl_ms)),
                Some(0) => None,
                chosen => chosen,
            },
            opens_at: read_instant("opens_at", self.opens_at.as_deref())?,
            order: match self.order {
                Some(Order::Draw) => RoomOrder::Draw,
                Some(Order::FirstCome) | None => RoomOrder::FirstCome,
            },
            paused: self.paused.unwrap_or_default(),
            message: self.message.map(Into::into),
            target_url: self.target_url.map(Into::into),
        };
        settings.check().map_err(|(field, says)| Refusal::field(Code::InvalidField, field, says))?;
        Ok(settings)
    }
}

/// A room
#[derive(Serialize, ToSchema)]
pub(crate) struct Room<'a> {
    room: &'a str,
    /// Visitors in line
    waiting: u32,
    /// Slots that are offered or taken
    active: u32,
    /// The highest number that the line has passed
    serving: u32,
    /// Admissions per second lately
    rate: f64,
    /// Why it is not another rate
    #[schema(example = "limit")]
    rate_reason: &'static str,
    /// The same with the number of each factor; shown to an admin key alone
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pace: Option<Pace>,
    /// How long a visitor that joins now is going to wait; null if it cannot be estimated
    eta_ms_at_tail: Option<u64>,
    /// open, paused, scheduled or closed
    #[schema(example = "open")]
    state: &'static str,
    #[schema(format = DateTime)]
    as_of: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    opens_at: Option<String>,
    /// The draw of the places, if the room has one
    #[serde(skip_serializing_if = "Option::is_none")]
    draw: Option<Draw<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_url: Option<&'a str>,
    /// The body of a PUT with these settings; shown to an admin key alone
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RoomBody>)]
    pub(crate) settings: Option<Value>,
}

/// Returns the settings of a room as the body of a PUT.
pub(super) fn room_settings(settings: &RoomSettings) -> Value {
    without_nulls(json!({
        "admit": settings.admit.map(|AdmitRate { count, every_ms }| json!({"count": count, "every_ms": every_ms})),
        "max_active": settings.max_active,
        "max_waiting": settings.max_waiting,
        "waiting_ttl_ms": settings.waiting_ttl_ms,
        "first_poll_ms": settings.first_poll_ms,
        "active_ttl_ms": settings.active_ttl_ms,
        "claim_window_ms": settings.claim_window_ms,
        "idle_ttl_ms": settings.idle_ttl_ms.unwrap_or(0),
        "opens_at": settings.opens_at.map(instant),
        "order": (settings.order == RoomOrder::Draw).then(|| settings.order.as_str()),
        "paused": settings.paused,
        "message": settings.message,
        "target_url": settings.target_url,
    }))
}

impl<'a> Room<'a> {
    pub(crate) fn new(name: &'a RoomName, summary: &'a RoomSummary) -> Self {
        let RoomSummary { settings, view, as_of, .. } = summary;
        Self {
            room: name.as_str(),
            waiting: view.waiting,
            active: view.active,
            serving: view.serving,
            rate: (view.rate * 1_000.0).round() / 1_000.0,
            rate_reason: view.pace.reason.as_str(),
            pace: None,
            eta_ms_at_tail: view.wait_at_tail_ms,
            state: view.state.as_str(),
            as_of: instant(*as_of),
            opens_at: settings.opens_at.map(instant),
            draw: Draw::new(name, summary),
            message: settings.message.as_deref(),
            target_url: settings.target_url.as_deref(),
            settings: None,
        }
    }
}

/// The draw of a room's places, as anyone can check it: with `firstcome verify --draw`, or on the page `/rooms/{room}/draw`
#[derive(Serialize, ToSchema)]
pub(crate) struct Draw<'a> {
    room: &'a str,
    /// How a place follows from seed, `first`, `entrants` and the number of the ticket
    #[schema(example = "firstcome-draw-1")]
    pub(crate) algorithm: &'static str,
    /// SHA-256 of the seed, in hexadecimal: public before the draw
    pub(crate) commitment: String,
    /// When the draw takes place
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub(crate) opens_at: Option<String>,
    /// committed before the draw, drawn after it
    #[schema(example = "committed")]
    state: &'static str,
    /// How many are in the draw, or took part. After the draw, numbers whose visitors left before it count too
    pub(crate) entrants: u32,
    /// After the draw: the first number that took part
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first: Option<u32>,
    /// After the draw: the seed, in hexadecimal; absent if no number took part
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub(crate) drawn_at: Option<String>,
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl<'a> Draw<'a> {
    /// Builds the public record; `None` if the room has no draw.
    pub(crate) fn new(name: &'a RoomName, summary: &RoomSummary) -> Option<Self> {
        let view = summary.draw?;
        // A seed that chose nothing stays secret: a room that opens again may still use it.
        let seed = view.draw.filter(|draw| draw.entrants != 0).map(|draw| hexadecimal(draw.seed.as_bytes()));
        Some(Self {
            room: name.as_str(),
            algorithm: ALGORITHM,
            commitment: hexadecimal(&view.commitment),
            opens_at: summary.settings.opens_at.map(instant),
            state: if view.draw.is_some() { "drawn" } else { "committed" },
            entrants: view.draw.map_or(summary.view.waiting, |draw| draw.entrants),
            first: view.draw.map(|draw| draw.first),
            seed,
            drawn_at: view.draw.map(|draw| instant(draw.drawn_at)),
        })
    }
}

/// A request for a place in line
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct TicketBody<'a> {
    /// The user of the place (needs a service key); without it the place belongs to the bearer of the ticket
    #[serde(borrow)]
    #[schema(value_type = Option<String>, example = "ann")]
    pub(crate) user: Option<Cow<'a, str>>,
}

/// A place in line
#[derive(Serialize, ToSchema)]
pub(crate) struct Ticket<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    room: Option<&'a str>,
    /// The secret of the place: a client that has it may poll and leave
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<&'a str>,
    number: u32,
    /// in_draw, waiting, admitted, expired or left
    #[schema(example = "waiting")]
    state: &'static str,
    /// How many present visitors are ahead; 0 is next; null in a draw that has not taken place
    position: Option<u32>,
    /// How many are in the draw, before it takes place
    #[serde(skip_serializing_if = "Option::is_none")]
    entrants: Option<u32>,
    /// How long the wait is going to take; null if it cannot be estimated
    eta_ms: Option<u64>,
    /// When to poll again
    poll_after_ms: u32,
    /// Whether to open the stream of this ticket instead of the next poll, since the visitor is near the front; absent for no
    #[serde(skip_serializing_if = "is_no")]
    #[schema(value_type = Option<bool>)]
    stream: bool,
    /// The instant of this answer
    #[schema(format = DateTime)]
    as_of: String,
    /// The user of the place, if it has one and lives
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    /// The instant of the admission
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    admitted_at: Option<String>,
    /// The number of the admission in the room: with `number` it names the slot, as the pass does
    #[serde(skip_serializing_if = "Option::is_none")]
    admission: Option<u64>,
    /// When the slot ends without a further contact; the pass ends at the whole second before
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    slot_ends_at: Option<String>,
    /// The pass of the slot, once admitted
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pass_expires_at: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a field by reference")]
const fn is_no(value: &bool) -> bool {
    !*value
}

impl<'a> Ticket<'a> {
    /// Builds the body of a ticket. `pass` and its end are given for an admitted ticket.
    pub(crate) fn new(answer: &'a TicketAnswer, pass: Option<(String, Timestamp)>) -> Self {
        let (state, position, eta_ms, slot) = match answer.state {
            TicketState::InDraw { wait_ms, .. } => ("in_draw", None, wait_ms, None),
            TicketState::Waiting { position, wait_ms } => ("waiting", Some(position), wait_ms, None),
            TicketState::Admitted { slot, .. } => ("admitted", Some(0), Some(0), Some(slot)),
            TicketState::Gone(Departure::Left) => ("left", Some(0), None, None),
            TicketState::Gone(Departure::Expired) => ("expired", Some(0), None, None),
        };
        let entrants = if let TicketState::InDraw { entrants, .. } = answer.state { Some(entrants) } else { None };
        let (pass, pass_expires_at) = pass.map(|(pass, until)| (pass, instant(until))).unzip();
        Self {
            room: None,
            ticket: None,
            number: answer.number.get(),
            state,
            position,
            entrants,
            eta_ms,
            poll_after_ms: answer.poll_after_ms,
            stream: answer.state.is_near(),
            as_of: instant(answer.as_of),
            user: answer.user.as_deref(),
            admitted_at: slot.map(|slot| instant(slot.admitted_at)),
            admission: slot.map(|slot| slot.admission),
            slot_ends_at: slot.and(answer.until).map(instant),
            pass,
            pass_expires_at,
        }
    }

    /// Adds the room and the ticket itself.
    pub(crate) fn with_ticket(self, room: &'a RoomName, ticket: &'a str) -> Self {
        Self { room: Some(room.as_str()), ticket: Some(ticket), ..self }
    }
}

/// A pass to check or to release; or the slot of one, by `number` and `admission`
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct PassBody<'a> {
    /// The pass
    #[serde(default, borrow, deserialize_with = "read_pass")]
    #[schema(value_type = Option<String>)]
    pass: Option<Cow<'a, str>>,
    /// Instead of a pass: the number of its ticket
    #[schema(minimum = 1)]
    number: Option<u32>,
    /// Instead of a pass: the number of its admission
    admission: Option<u64>,
}

/// Reads a pass that is given: null is none.
fn read_pass<'de, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'a, str>>, D::Error> {
    String::deserialize(deserializer).map(|pass| Some(Cow::Owned(pass)))
}

/// What a back end shows of a visit.
pub(crate) enum Shown<'a> {
    /// The pass of the visitor.
    Pass(&'a str),
    /// The slot, from a back end that polled for the visitor.
    Slot(TicketNumber, u64),
}

impl PassBody<'_> {
    pub(crate) fn shown(&self) -> Result<Shown<'_>, Refusal> {
        let wrong = |field, detail: &str| Err(Refusal::field(Code::InvalidField, field, detail));
        match (&self.pass, self.number, self.admission) {
            (Some(pass), None, None) => Ok(Shown::Pass(pass)),
            (None, Some(number), Some(admission)) => match TicketNumber::new(number) {
                Some(number) => Ok(Shown::Slot(number, admission)),
                None => wrong("number", "number must be that of a ticket"),
            },
            (None, Some(_), None) => wrong("admission", "admission must come with number"),
            (None, None, Some(_)) => wrong("number", "number must come with admission"),
            (None, None, None) => wrong("pass", "missing field `pass`"),
            (Some(_), ..) => wrong("pass", "pass must come without number and admission"),
        }
    }
}

/// The verdict on a pass
#[derive(Serialize, ToSchema, Default)]
pub(crate) struct PassVerdict {
    pub(crate) valid: bool,
    /// Why it is invalid: malformed, unknown_key, forged, other_room, expired, or over (its slot was given up or has
    /// ended)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub(crate) expires_at: Option<String>,
}

/// The admissions of a room that have not ended: a pass of any other is void
#[derive(Serialize, ToSchema)]
pub(crate) struct PassList {
    /// When this was true. A pass whose `iat` is later came after it.
    #[schema(format = DateTime)]
    pub(crate) as_of: String,
    /// `[number, slot]` as in the claims of a pass, by number. Slots that are offered stand here too.
    #[schema(example = json!([[1, 1], [2, 3]]))]
    pub(crate) items: Vec<(u32, u64)>,
}

/// A key that verifies passes
#[derive(Serialize, ToSchema)]
pub(crate) struct PassKey {
    /// The key id in the footer of a pass
    pub(crate) kid: String,
    /// PASERK of an Ed25519 public key
    #[schema(example = "k4.public.…")]
    pub(crate) public_key: String,
}

/// The keys that verify passes, the signing one first
#[derive(Serialize, ToSchema)]
pub(crate) struct PassKeyList {
    pub(crate) items: Vec<PassKey>,
    /// The implicit assertion of PASETO v4 that every pass is signed with
    pub(crate) implicit_assertion: &'static str,
}

/// A revoked key, and the keys that verify passes after that
#[derive(Serialize, ToSchema)]
pub(crate) struct PassKeyRevocation {
    /// The key id of the revoked key
    pub(crate) kid: String,
    /// Whether the key was gone before this request: revoked earlier, or forgotten after the end of its last pass
    pub(crate) was_gone: bool,
    /// The keys that verify passes, the signing one first
    pub(crate) items: Vec<PassKey>,
}
