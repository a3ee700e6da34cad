//! Settings of a room.

use crate::limits::{
    ADMIT_COUNT_MAX, ROOM_ACTIVE_MAX, ROOM_PERIOD_MS_MAX, ROOM_PERIOD_MS_MIN, ROOM_TEXT_BYTES_MAX, ROOM_WAITING_MAX,
    WAITING_TTL_MS_MAX,
};
use crate::time::Timestamp;
use std::ops::RangeInclusive;

/// An admission rate: a number of visitors per period, evenly spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admit {
    /// Visitors per period.
    pub count: u32,
    /// The period.
    pub every_ms: u64,
}

impl Admit {
    /// Returns the admissions per second.
    pub fn per_second(self) -> f64 {
        f64::from(self.count) * 1_000.0 / self.every_ms as f64
    }
}

/// The order in which a room serves those who join before its opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RoomOrder {
    /// In the order of arrival.
    #[default]
    FirstCome,
    /// In a random order, drawn at the opening. Those who join later come behind, in the order of arrival.
    Draw,
}

impl RoomOrder {
    /// Returns the order as the HTTP API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FirstCome => "first_come",
            Self::Draw => "draw",
        }
    }
}

/// The settings of a room. Valid once [`RoomSettings::check`] has accepted them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoomSettings {
    /// The admission rate. At least one of this and [`Self::max_active`] is set; with both, the lower limit counts.
    pub admit: Option<Admit>,
    /// Slots at the same time.
    pub max_active: Option<u32>,
    /// Visitors in line at the same time.
    pub max_waiting: u32,
    /// A visitor who is silent for this long loses the place in line.
    pub waiting_ttl_ms: u64,
    /// A visitor who has not polled within this time of the join loses the place in line; `None` for no such time. Any contact
    /// ends it for good: a poll, a renewal, a stream, a repeated join. After a restart, and when the time changes, every
    /// visitor in line who has not polled since has the time afresh, and at least 90 s.
    pub first_poll_ms: Option<u64>,
    /// How long a slot lasts once it is taken.
    pub active_ttl_ms: u64,
    /// How long an offered slot waits for its visitor.
    pub claim_window_ms: u64,
    /// A taken slot ends after this long without any contact.
    pub idle_ttl_ms: Option<u64>,
    /// The room admits no visitor before this instant (by the wall clock); visitors may join before.
    pub opens_at: Option<Timestamp>,
    /// The order of those who join before [`Self::opens_at`]. A draw needs that instant.
    pub order: RoomOrder,
    /// Whether the room admits no visitor for now.
    pub paused: bool,
    /// A message for the visitors in line.
    pub message: Option<Box<str>>,
    /// The address for visitors who are admitted.
    pub target_url: Option<Box<str>>,
}

impl RoomSettings {
    /// Returns the defaults of the HTTP API, with no limit yet.
    pub const fn defaults() -> Self {
        Self {
            admit: None,
            max_active: None,
            max_waiting: 1_000_000,
            waiting_ttl_ms: 3_600_000,
            first_poll_ms: None,
            active_ttl_ms: 1_800_000,
            claim_window_ms: 60_000,
            idle_ttl_ms: None,
            opens_at: None,
            order: RoomOrder::FirstCome,
            paused: false,
            message: None,
            target_url: None,
        }
    }

    /// Returns the defaults with a rate.
    pub fn with_rate(count: u32, every_ms: u64) -> Self {
        Self { admit: Some(Admit { count, every_ms }), ..Self::defaults() }
    }

    /// Returns the defaults with a number of slots.
    pub fn with_slots(max_active: u32) -> Self {
        Self { max_active: Some(max_active), ..Self::defaults() }
    }

    /// Checks the settings. The error names the first field that is out of range, and its range.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let period = ROOM_PERIOD_MS_MIN..=ROOM_PERIOD_MS_MAX;
        if self.admit.is_none() && self.max_active.is_none() {
            return Err(("admit", "admit or max_active must be given".into()));
        }
        if let Some(admit) = self.admit {
            within("admit.count", admit.count.into(), 1..=ADMIT_COUNT_MAX.into())?;
            within("admit.every_ms", admit.every_ms, period.clone())?;
        }
        if let Some(max_active) = self.max_active {
            within("max_active", max_active.into(), 1..=ROOM_ACTIVE_MAX.into())?;
        }
        within("max_waiting", self.max_waiting.into(), 1..=ROOM_WAITING_MAX.into())?;
        within("waiting_ttl_ms", self.waiting_ttl_ms, ROOM_PERIOD_MS_MIN..=WAITING_TTL_MS_MAX)?;
        if let Some(first_poll_ms) = self.first_poll_ms {
            within("first_poll_ms", first_poll_ms, ROOM_PERIOD_MS_MIN..=WAITING_TTL_MS_MAX)?;
        }
        within("active_ttl_ms", self.active_ttl_ms, period.clone())?;
        within("claim_window_ms", self.claim_window_ms, period.clone())?;
        if let Some(idle_ttl_ms) = self.idle_ttl_ms {
            within("idle_ttl_ms", idle_ttl_ms, period)?;
        }
        if self.order == RoomOrder::Draw && self.opens_at.is_none() {
            return Err((
                "opens_at",
                "opens_at must be given with the order draw: it is the instant of the draw".into(),
            ));
        }
        text("message", self.message.as_deref(), |_| true, "must have no control characters")?;
        let link = |text: &str| {
            let rooted = text.starts_with('/') && !text.starts_with("//") && !text.starts_with("/\\");
            (rooted || text.starts_with("https://") || text.starts_with("http://")) && !text.contains([' ', '\\'])
        };
        text("target_url", self.target_url.as_deref(), link, "must be an http(s) address or a path")
    }
}

fn within(field: &'static str, value: u64, range: RangeInclusive<u64>) -> Result<(), (&'static str, String)> {
    if range.contains(&value) {
        return Ok(());
    }
    Err((field, format!("{field} must be {} to {}", range.start(), range.end())))
}

fn text(
    field: &'static str,
    text: Option<&str>,
    allowed: impl Fn(&str) -> bool,
    says: &str,
) -> Result<(), (&'static str, String)> {
    let Some(text) = text else { return Ok(()) };
    if ROOM_TEXT_BYTES_MAX < text.len() {
        return Err((field, format!("{field} must have at most {ROOM_TEXT_BYTES_MAX} bytes")));
    }
    if text.chars().any(char::is_control) || !allowed(text) {
        return Err((field, format!("{field} {says}")));
    }
    Ok(())
}
