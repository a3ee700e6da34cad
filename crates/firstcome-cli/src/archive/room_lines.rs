//! Rooms, their tickets, and the secrets of passes as JSON lines: each room before its tickets.

use super::json_lines::RequestLine;
use super::read_instant;
use super::secrecy::{Secrecy, bytes};
use anyhow::{Context, anyhow};
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use firstcome::TicketKey;
use firstcome::archive::{ArchivedRoom, ArchivedSecret, ArchivedSlot, ArchivedTicket, TicketState};
use firstcome::core::id::{RoomName, UserId};
use firstcome::core::room::appearance::Appearance;
use firstcome::core::room::{
    Admit, Departure, Draw, DrawSeed, Join, Renewal, RenewalKey, RoomOrder, RoomSettings, TicketNumber,
};
use firstcome::core::time::Timestamp;
use firstcome::embedded::journal::PassSecret;
use firstcome_server::rfc3339;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoomLine {
    room: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    admit: Option<AdmitLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_active: Option<u32>,
    max_waiting: u32,
    waiting_ttl_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_poll_ms: Option<u64>,
    active_ttl_ms: u64,
    claim_window_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idle_ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    opens_at: Option<String>,
    /// Whether a draw orders those who join before the opening.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    draws: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    paused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_url: Option<String>,
    /// How the page looks, as stores keep it, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    appearance: Option<String>,
    /// The secret of the tickets: with it they stay valid in another store.
    ticket_key: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    closed: bool,
    first: u32,
    reached: u32,
    drawn: u32,
    admissions: u64,
    /// The draw, if it took place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    draw: Option<DrawLine>,
}

/// A draw that took place: its seed is public.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DrawLine {
    seed: String,
    first: u32,
    entrants: u32,
    drawn_at: String,
}

impl DrawLine {
    fn new(draw: &Draw) -> Self {
        let Draw { seed, first, entrants, drawn_at } = draw;
        Self {
            seed: seed.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect(),
            first: *first,
            entrants: *entrants,
            drawn_at: rfc3339::format(*drawn_at),
        }
    }

    fn read(&self) -> anyhow::Result<Draw> {
        let seed = bytes("seed", &self.seed)?;
        let drawn_at = read_instant(&self.drawn_at)?;
        Ok(Draw { seed: DrawSeed::new(seed), first: self.first, entrants: self.entrants, drawn_at })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdmitLine {
    count: u32,
    every_ms: u64,
}

/// One ticket, or a range of numbers whose tickets are unknown.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TicketLine {
    room: String,
    number: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    joined_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<RequestLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slot: Option<SlotLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    renewal: Option<RenewalLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gone: Option<GoneLine>,
    /// The last number of a range whose tickets are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost_to: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SlotLine {
    admission: u64,
    admitted_at: String,
    taken: bool,
    until: String,
}

/// The last renewal of a ticket: tickets of earlier generations stay void in another store.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RenewalLine {
    generation: u32,
    key: String,
}

impl RenewalLine {
    fn new(renewal: Renewal) -> Self {
        Self { generation: renewal.generation, key: format!("{:032x}", renewal.key.get()) }
    }

    fn read(&self) -> anyhow::Result<Renewal> {
        let key = RenewalKey::new(u128::from_str_radix(&self.key, 16)?);
        Ok(Renewal { generation: self.generation, key })
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GoneLine {
    Left,
    Expired,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PassSecretLine {
    id: u32,
    created_at: String,
    secret: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretLine {
    name: String,
    secret: String,
}

fn room_name(text: &str) -> anyhow::Result<RoomName> {
    RoomName::parse(text).map_err(|error| anyhow!("room {error}"))
}

fn number(text: &str, number: u32) -> anyhow::Result<TicketNumber> {
    TicketNumber::new(number).ok_or_else(|| anyhow!("{text} must be 1 or more"))
}

impl RoomLine {
    pub(super) fn new(room: &ArchivedRoom, secrecy: &Secrecy) -> anyhow::Result<Self> {
        let settings = &room.settings;
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        Ok(Self {
            room: room.name.to_string(),
            admit: settings.admit.map(|Admit { count, every_ms }| AdmitLine { count, every_ms }),
            max_active: settings.max_active,
            max_waiting: settings.max_waiting,
            waiting_ttl_ms: settings.waiting_ttl_ms,
            first_poll_ms: settings.first_poll_ms,
            active_ttl_ms: settings.active_ttl_ms,
            claim_window_ms: settings.claim_window_ms,
            idle_ttl_ms: settings.idle_ttl_ms,
            opens_at: settings.opens_at.map(rfc3339::format),
            draws: settings.order == RoomOrder::Draw,
            paused: settings.paused,
            message: text(&settings.message),
            target_url: text(&settings.target_url),
            appearance: (*room.appearance != Appearance::default()).then(|| STANDARD.encode(room.appearance.encode())),
            ticket_key: secrecy.put("room", room.name.as_str(), room.ticket_key.as_bytes())?,
            closed: room.is_closed,
            first: room.first,
            reached: room.reached,
            drawn: room.drawn,
            admissions: room.admissions,
            draw: room.draw.as_ref().map(DrawLine::new),
        })
    }

    pub(super) fn read(self, secrecy: &Secrecy) -> anyhow::Result<ArchivedRoom> {
        let name = room_name(&self.room)?;
        let ticket_key = secrecy.take("ticket_key", "room", name.as_str(), &self.ticket_key)?;
        let settings = RoomSettings {
            admit: self.admit.map(|AdmitLine { count, every_ms }| Admit { count, every_ms }),
            max_active: self.max_active,
            max_waiting: self.max_waiting,
            waiting_ttl_ms: self.waiting_ttl_ms,
            first_poll_ms: self.first_poll_ms,
            active_ttl_ms: self.active_ttl_ms,
            claim_window_ms: self.claim_window_ms,
            idle_ttl_ms: self.idle_ttl_ms,
            opens_at: self.opens_at.as_deref().map(read_instant).transpose()?,
            order: if self.draws { RoomOrder::Draw } else { RoomOrder::FirstCome },
            paused: self.paused,
            message: self.message.map(Into::into),
            target_url: self.target_url.map(Into::into),
        };
        settings.check().map_err(|(_, says)| anyhow!(says))?;
        let appearance = self.appearance.map(|text| {
            let bytes = STANDARD.decode(text).map_err(|error| anyhow!("appearance: {error}"))?;
            Appearance::decode(&bytes).map_err(|error| anyhow!("appearance: {error}"))
        });
        Ok(ArchivedRoom {
            name,
            settings,
            appearance: Arc::new(appearance.transpose()?.unwrap_or_default()),
            ticket_key: TicketKey::new(ticket_key),
            is_closed: self.closed,
            first: self.first,
            reached: self.reached,
            drawn: self.drawn,
            admissions: self.admissions,
            draw: self.draw.as_ref().map(DrawLine::read).transpose().context("draw")?,
        })
    }
}

impl TicketLine {
    pub(super) fn new(ticket: &ArchivedTicket) -> Self {
        let (room, number) = (ticket.room.to_string(), ticket.number.get());
        let (user, joined_at, request, slot, renewal, gone, lost_to) = Default::default();
        let mut line = Self { room, number, user, joined_at, request, slot, renewal, gone, lost_to };
        match &ticket.state {
            TicketState::Living { join, joined_at, slot, renewal } => {
                line.renewal = renewal.map(RenewalLine::new);
                line.user = join.user.as_ref().map(UserId::to_string);
                line.joined_at = joined_at.map(rfc3339::format);
                line.request = join.request.map(RequestLine::new);
                line.slot = slot.map(|slot| SlotLine {
                    admission: slot.admission,
                    admitted_at: rfc3339::format(slot.admitted_at),
                    taken: slot.is_taken,
                    until: rfc3339::format(slot.until),
                });
            }
            TicketState::Gone(Departure::Left) => line.gone = Some(GoneLine::Left),
            TicketState::Gone(Departure::Expired) => line.gone = Some(GoneLine::Expired),
            TicketState::Lost(last) => line.lost_to = Some(last.get()),
        }
        line
    }

    pub(super) fn read(self) -> anyhow::Result<ArchivedTicket> {
        let (room, at) = (room_name(&self.room)?, number("number", self.number)?);
        let is_placed = self.slot.is_some() || self.renewal.is_some();
        let lives = self.user.is_some() || self.joined_at.is_some() || self.request.is_some() || is_placed;
        let state = match (self.gone, self.lost_to) {
            (None, None) => {
                let user = self.user.as_deref().map(UserId::parse).transpose();
                let request = self.request.map(|line| line.read().context("request")).transpose()?;
                let join = Join { user: user.map_err(|error| anyhow!("user {error}"))?, request };
                let joined_at = self.joined_at.as_deref().map(read_instant).transpose()?;
                let slot = self.slot.as_ref().map(read_slot).transpose()?;
                let renewal = self.renewal.as_ref().map(RenewalLine::read).transpose().context("renewal")?;
                TicketState::Living { join, joined_at, slot, renewal }
            }
            (Some(gone), None) if !lives => TicketState::Gone(match gone {
                GoneLine::Left => Departure::Left,
                GoneLine::Expired => Departure::Expired,
            }),
            (None, Some(last)) if !lives => TicketState::Lost(number("lost_to", last)?),
            _ => return Err(anyhow!("a ticket lives, or is gone, or is lost")),
        };
        Ok(ArchivedTicket { room, number: at, state })
    }
}

fn read_slot(line: &SlotLine) -> anyhow::Result<ArchivedSlot> {
    let (admitted_at, until): (Timestamp, Timestamp) = (read_instant(&line.admitted_at)?, read_instant(&line.until)?);
    Ok(ArchivedSlot { admission: line.admission, admitted_at, is_taken: line.taken, until })
}

impl PassSecretLine {
    pub(super) fn new(secret: &PassSecret, secrecy: &Secrecy) -> anyhow::Result<Self> {
        let created_at = rfc3339::format(secret.created_at);
        let text = secrecy.put("pass", &secret.id.to_string(), &secret.bytes)?;
        Ok(Self { id: secret.id, created_at, secret: text })
    }

    pub(super) fn read(self, secrecy: &Secrecy) -> anyhow::Result<PassSecret> {
        let bytes = secrecy.take("secret", "pass", &self.id.to_string(), &self.secret)?;
        Ok(PassSecret { id: self.id, bytes, created_at: read_instant(&self.created_at)? })
    }
}

impl SecretLine {
    pub(super) fn new(secret: &ArchivedSecret, secrecy: &Secrecy) -> anyhow::Result<Self> {
        Ok(Self { secret: secrecy.put("secret", &secret.name, &secret.bytes)?, name: secret.name.clone() })
    }

    pub(super) fn read(self, secrecy: &Secrecy) -> anyhow::Result<ArchivedSecret> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._:@-".contains(&byte);
        if !(1..=64).contains(&self.name.len()) || !self.name.bytes().all(is_name) {
            return Err(anyhow!("this secret has an unknown name"));
        }
        let bytes = secrecy.take("secret", "secret", &self.name, &self.secret)?;
        Ok(ArchivedSecret { name: self.name, bytes })
    }
}
