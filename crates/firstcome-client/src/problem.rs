//! A refusal as the service writes it: `application/problem+json` with a stable code.

use crate::call::unavailable;
use crate::instant;
use crate::link::Reply;
use firstcome_store::core::time::Timestamp;
use firstcome_store::{FaultKind, StoreError};
use http::header::CONTENT_TYPE;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::time::Duration;

/// The codes of rules whose refusals carry values. Without its values such a refusal is not understood.
const WITH_VALUES: [&str; 12] = [
    "already_issued",
    "already_redeemed",
    "already_sold",
    "auction_not_ended",
    "bid_too_low",
    "expired",
    "idempotency_key_reused",
    "insufficient_points",
    "limit_below_issued",
    "not_open",
    "room_full",
    "settlement_expired",
];
/// When to try again if the service names no time.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The longest time that the service may name. Protects the sums of times.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);

/// A refusal.
#[derive(Debug)]
pub(crate) struct Problem {
    members: Map<String, Value>,
}

impl Problem {
    /// Reads a refusal; `None` if the answer is not one of a service.
    pub(crate) fn read(reply: &Reply) -> Option<Self> {
        let kind = reply.headers.get(CONTENT_TYPE)?.to_str().ok()?;
        if kind.split(';').next()?.trim() != "application/problem+json" {
            return None;
        }
        let Ok(Value::Object(members)) = serde_json::from_slice(&reply.body) else { return None };
        members.get("code")?.as_str()?;
        Some(Self { members })
    }

    /// The stable code.
    pub(crate) fn code(&self) -> &str {
        self.text("code").unwrap_or_default()
    }

    /// Whether a refusal with this code has values.
    pub(crate) fn has_values(&self) -> bool {
        WITH_VALUES.contains(&self.code())
    }

    /// What to do, in words.
    pub(crate) fn detail(&self) -> &str {
        self.text("detail").unwrap_or_default()
    }

    fn text(&self, member: &str) -> Option<&str> {
        self.members.get(member)?.as_str()
    }

    /// A member that is a whole number.
    pub(crate) fn number(&self, member: &str) -> Option<u64> {
        self.members.get(member)?.as_u64()
    }

    /// A member that is an instant.
    pub(crate) fn instant(&self, member: &str) -> Option<Timestamp> {
        instant::parse(self.text(member)?)
    }

    /// A member that is a text.
    pub(crate) fn word(&self, member: &str) -> Option<&str> {
        self.text(member)
    }

    /// A member that is an object of the API.
    pub(crate) fn object<T: DeserializeOwned>(&self, member: &str) -> Option<T> {
        serde_json::from_str(&self.members.get(member)?.to_string()).ok()
    }

    /// The time that the service names for another try.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.number("retry_after_ms").map(|ms| Duration::from_millis(ms).min(RETRY_AFTER_MAX))
    }

    /// Returns the error and the pause of a refusal that may be over at the next try; `None` for a final one.
    pub(crate) fn passing(&self, base: &str) -> Option<(StoreError, Option<Duration>)> {
        let retry_after = self.retry_after().unwrap_or(RETRY_AFTER);
        let error = match self.code() {
            "rate_limited" | "overloaded" => StoreError::busy(retry_after),
            "not_stored_yet" => StoreError::NotStoredYet { retry_after },
            "store_unavailable" => unavailable(FaultKind::Unreachable, format!("{base}: {}", self.detail())),
            // The body did not arrive in time, so nothing was done.
            "request_timeout" => unavailable(FaultKind::Unreachable, format!("{base}: {}", self.detail())),
            "outcome_unknown" | "internal_error" => StoreError::Unknown,
            _ => return None,
        };
        Some((error, Some(retry_after)))
    }
}
