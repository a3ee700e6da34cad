//! The request and response bodies of locks. `/openapi.json` shows the same names and units.

use super::body;
use crate::error::{Code, Problem as Refusal};
use crate::lock::{Grant, Wanted};
use crate::rfc3339::format as instant;
use firstcome::core::id::LockName;
use firstcome::core::limits::{LEASE_MS_MAX, LEASE_MS_MIN, PERMITS_MAX, WAIT_MS_MAX};
use firstcome::core::time::Timestamp;
use firstcome::{Fence, HandleKey, TimedLockView};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;
use utoipa::ToSchema;

fn within(field: &str, ms: u64, least: u32, most: u32) -> Result<Duration, Refusal> {
    if (u64::from(least)..=u64::from(most)).contains(&ms) {
        return Ok(Duration::from_millis(ms));
    }
    let detail = format!("{field} must be {least} to {most}");
    Err(Refusal::field(Code::InvalidField, field, detail))
}

fn read_lease(ms: u64) -> Result<Duration, Refusal> {
    within("lease_ms", ms, LEASE_MS_MIN, LEASE_MS_MAX)
}

/// Refuses a text that cannot be a handle. A handle that has the right form and is unknown is `lock_lost` instead.
fn check_handle(handle: &str) -> Result<(), Refusal> {
    if HandleKey::has_handle_shape(handle) {
        return Ok(());
    }
    Err(Refusal::field(Code::InvalidField, "handle", "handle must be what acquire returned, whole"))
}

/// A request for a lock
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct AcquireBody<'a> {
    /// The holder's name as other clients see it
    #[serde(borrow)]
    #[schema(value_type = String, example = "worker-7")]
    pub(crate) owner: Cow<'a, str>,
    /// How long to wait in line, in milliseconds; 0 tries once
    #[schema(minimum = 0, maximum = 3_600_000, example = 5_000)]
    pub(crate) wait_ms: u64,
    /// How long the lock is held unless it is renewed, in milliseconds
    #[schema(minimum = 100, maximum = 691_200_000, example = 30_000)]
    pub(crate) lease_ms: u64,
    /// How many requests may hold the lock together, this one among them; without it the hold is exclusive. 1000 for the
    /// readers of a read/write lock, N for a semaphore
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000, example = 3)]
    pub(crate) permits: Option<u32>,
}

impl AcquireBody<'_> {
    pub(crate) fn wanted(&self, name: LockName) -> Result<Wanted, Refusal> {
        let owner = body::owner(&self.owner)?;
        let wait = within("wait_ms", self.wait_ms, 0, WAIT_MS_MAX)?;
        if self.permits.is_some_and(|permits| !(1..=PERMITS_MAX).contains(&permits)) {
            let detail = format!("permits must be 1 to {PERMITS_MAX}");
            return Err(Refusal::field(Code::InvalidField, "permits", detail));
        }
        Ok(Wanted { name, owner, wait, lease: read_lease(self.lease_ms)?, permits: self.permits })
    }
}

/// A lock that the caller holds
#[derive(Serialize, ToSchema)]
pub(crate) struct HeldLock<'a> {
    lock: &'a str,
    owner: &'a str,
    /// Grows with every grant: let the guarded store refuse a smaller one than it has seen
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    fence: u64,
    /// The lock is certainly held until then, and longer if it is renewed
    #[schema(format = DateTime)]
    expires_at: String,
    /// The handle with which a caller may renew and release the lock
    handle: &'a str,
}

impl<'a> HeldLock<'a> {
    pub(crate) fn new(name: &'a LockName, grant: &'a Grant) -> Self {
        Self {
            lock: name.as_str(),
            owner: grant.owner.as_str(),
            fence: grant.fence.get(),
            expires_at: instant(grant.expires_at),
            handle: &grant.handle,
        }
    }
}

/// A request to renew a lock
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct RenewBody<'a> {
    /// The handle that acquire returned
    #[serde(borrow)]
    #[schema(value_type = String)]
    pub(crate) handle: Cow<'a, str>,
    /// The lease, in milliseconds from now
    #[schema(minimum = 100, maximum = 691_200_000, example = 30_000)]
    lease_ms: u64,
}

impl RenewBody<'_> {
    pub(crate) fn lease(&self) -> Result<Duration, Refusal> {
        check_handle(&self.handle)?;
        read_lease(self.lease_ms)
    }
}

/// A lock that was renewed
#[derive(Serialize, ToSchema)]
pub(crate) struct RenewedLock<'a> {
    lock: &'a str,
    fence: u64,
    /// The lock is certainly held until then, and longer if it is renewed
    #[schema(format = DateTime)]
    expires_at: String,
}

impl<'a> RenewedLock<'a> {
    pub(crate) fn new(name: &'a LockName, (fence, expires_at): (Fence, Timestamp)) -> Self {
        Self { lock: name.as_str(), fence: fence.get(), expires_at: instant(expires_at) }
    }
}

/// A request to release a lock
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct ReleaseBody<'a> {
    /// The handle that acquire returned
    #[serde(borrow)]
    #[schema(value_type = String)]
    pub(crate) handle: Cow<'a, str>,
}

impl ReleaseBody<'_> {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        check_handle(&self.handle)
    }
}

/// A lock that was released
#[derive(Serialize, ToSchema)]
pub(crate) struct ReleasedLock<'a> {
    lock: &'a str,
    fence: u64,
}

impl<'a> ReleasedLock<'a> {
    pub(crate) fn new(name: &'a LockName, fence: Fence) -> Self {
        Self { lock: name.as_str(), fence: fence.get() }
    }
}

/// A lock
#[derive(Serialize, ToSchema)]
pub(crate) struct Lock<'a> {
    lock: &'a str,
    held: bool,
    /// The holder's name
    holder: Option<String>,
    fence: Option<u64>,
    /// When the lease ends unless it is renewed, in milliseconds from now
    ttl_ms: Option<u64>,
    /// How many requests hold the lock: more than 1 only if they share it; then the members above are of the first one
    holders: u32,
    /// How many requests are in line
    waiters: u32,
}

impl<'a> Lock<'a> {
    pub(crate) fn new(name: &'a LockName, seen: &TimedLockView) -> Self {
        let held = seen.view.held.as_ref();
        Self {
            lock: name.as_str(),
            held: held.is_some(),
            holder: held.map(|(owner, ..)| owner.to_string()),
            fence: held.map(|(_, fence, _)| fence.get()),
            ttl_ms: held.map(|(.., ends_us)| ends_us.saturating_sub(seen.now_us).div_ceil(1_000)),
            holders: seen.view.holders,
            waiters: seen.view.waiters,
        }
    }
}
