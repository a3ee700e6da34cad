//! Settings of a room.

use crate::limits::{
    ADMIT_COUNT_MAX, ROOM_ACTIVE_MAX, ROOM_PERIOD_MS_MAX, ROOM_PERIOD_MS_MIN, ROOM_TEXT_BYTES_MAX, ROOM_WAITING_MAX,
    WAITING_TTL_MS_MAX,
};
use crate::time::Timestamp;
use std::ops::RangeInclusive;

/// A rate: so many people per period, evenly spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admit {
    /// How many.
    pub count: u32,
    /// In which time.
    pub every_ms: u64,
}

impl Admit {
    /// Admissions per second.
    pub fn per_second(self) -> f64 {
        f64::from(self.count) * 1_000.0 / self.every_ms as f64
    }
}

/// What an operator decides about a room. Valid once [`RoomSettings::check`] has said so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoomSettings {
    /// People per time. At least one of this and [`Self::max_active`] is set; with both the smaller counts.
    pub admit: Option<Admit>,
    /// Slots at once.
    pub max_active: Option<u32>,
    /// People in line at once.
    pub max_waiting: u32,
    /// A visitor that is silent for so long loses the place in line.
    pub waiting_ttl_ms: u64,
    /// How long a slot lasts once it is taken.
    pub active_ttl_ms: u64,
    /// How long an admission waits to be taken.
    pub claim_window_ms: u64,
    /// A taken slot without any contact for so long ends.
    pub idle_ttl_ms: Option<u64>,
    /// No visitor is admitted before this instant (by the wall clock); people may join before.
    pub opens_at: Option<Timestamp>,
    /// No visitor is admitted for now.
    pub paused: bool,
    /// For the people in line.
    pub message: Option<Box<str>>,
    /// Where people go once they are admitted.
    pub target_url: Option<Box<str>>,
}

impl RoomSettings {
    /// The defaults of the HTTP API, with no limit yet.
    pub const fn defaults() -> Self {
        Self {
            admit: None,
            max_active: None,
            max_waiting: 1_000_000,
            waiting_ttl_ms: 3_600_000,
            active_ttl_ms: 1_800_000,
            claim_window_ms: 60_000,
            idle_ttl_ms: None,
            opens_at: None,
            paused: false,
            message: None,
            target_url: None,
        }
    }

    /// The defaults with a rate.
    pub fn with_rate(count: u32, every_ms: u64) -> Self {
        Self { admit: Some(Admit { count, every_ms }), ..Self::defaults() }
    }

    /// The defaults with a number of slots.
    pub fn with_slots(max_active: u32) -> Self {
        Self { max_active: Some(max_active), ..Self::defaults() }
    }

    /// Names the first field that is out of range, and what it must be.
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
        within("active_ttl_ms", self.active_ttl_ms, period.clone())?;
        within("claim_window_ms", self.claim_window_ms, period.clone())?;
        if let Some(idle_ttl_ms) = self.idle_ttl_ms {
            within("idle_ttl_ms", idle_ttl_ms, period)?;
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
