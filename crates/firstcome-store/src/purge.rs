//! The port for purges: what a store keeps for how long, and what a purge removed.

use crate::error::StoreError;
use firstcome_core::time::Timestamp;
use std::fmt;
use std::future::Future;
use std::ops::AddAssign;
use std::time::Duration;

/// One day.
const DAY: Duration = Duration::from_secs(86_400);

/// The shortest time that idempotency keys may be kept: clients repeat a request within it.
pub const RETAIN_REQUESTS_MIN: Duration = DAY;

/// The shortest time that records of members' points may be kept: the idempotency keys of charges and refunds name them for 30 days.
pub const RETAIN_RECORDS_MIN: Duration = Duration::from_secs(31 * 86_400);

/// The shortest time that published heads may be kept: visitors ask for their receipts within it.
pub const RETAIN_HEADS_MIN: Duration = DAY;

/// How far the clock may be ahead of the last purge before a purge refuses: a year.
pub const CLOCK_AHEAD_MAX: Duration = Duration::from_secs(366 * 86_400);

/// How many rows one page of a purge removes at most. A page is one short transaction: a claim waits for it no longer than for
/// a batch of claims.
pub const PAGE_ROWS_MAX: usize = 1_000;

/// How long a store keeps data that are over. `None` keeps them for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Idempotency keys, from their request on; [`RETAIN_REQUESTS_MIN`] or more. Keys of charges and refunds stay at least 30
    /// days.
    pub requests: Option<Duration>,
    /// Tickets that left or expired, from their end on, and admissions that ended.
    pub tickets: Option<Duration>,
    /// Claims of coupons that are over, from the end of the coupon on: its deletion, or the last instant at which a claim of it
    /// can be made or redeemed.
    pub claims: Option<Duration>,
    /// Claims that a cluster could not store, from when they were set aside.
    pub dead_letters: Option<Duration>,
    /// Records of members' points, from their instant on; [`RETAIN_RECORDS_MIN`] or more.
    pub records: Option<Duration>,
    /// Published heads of rooms and coupons, from the instant of the next one on; [`RETAIN_HEADS_MIN`] or more. The newest one of
    /// each stays.
    pub heads: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            requests: Some(DAY * 30),
            tickets: Some(DAY * 7),
            claims: None,
            dead_letters: Some(DAY * 90),
            records: None,
            heads: None,
        }
    }
}

impl Retention {
    /// Keeps everything for ever.
    pub const FOREVER: Self =
        Self { requests: None, tickets: None, claims: None, dead_letters: None, records: None, heads: None };
}

/// Whether a purge removes data or only counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PurgeMode {
    /// Removes what is over.
    Remove,
    /// Counts what [`Self::Remove`] would remove now, and changes nothing.
    Count,
}

/// Whether a purge compares the clock with what the store has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockCheck {
    /// Refuses with a clock that is obviously wrong.
    Refuse,
    /// Believes the clock: an operator has looked at it.
    Skip,
}

/// What to purge, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PurgeRequest {
    /// What is kept for how long.
    pub retention: Retention,
    /// Whether data are removed.
    pub mode: PurgeMode,
    /// Whether the clock is checked.
    pub clock: ClockCheck,
}

impl PurgeRequest {
    /// A purge that removes data, and checks the clock.
    pub const fn new(retention: Retention) -> Self {
        Self { retention, mode: PurgeMode::Remove, clock: ClockCheck::Refuse }
    }
}

/// How many rows a purge removed, or would remove.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Purged {
    /// Idempotency keys.
    pub requests: u64,
    /// Tickets that left or expired.
    pub tickets: u64,
    /// Admissions that ended.
    pub admissions: u64,
    /// Claims of coupons that are over, with their redemptions.
    pub claims: u64,
    /// Coupons whose last claim went with this purge.
    pub coupons: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Records of members' points.
    pub records: u64,
    /// Published heads.
    pub heads: u64,
}

impl Purged {
    /// Returns each kind, by the name that metrics, the HTTP API and the command line use, with its count.
    pub const fn kinds(&self) -> [(&'static str, u64); 8] {
        [
            ("requests", self.requests),
            ("tickets", self.tickets),
            ("admissions", self.admissions),
            ("claims", self.claims),
            ("coupons", self.coupons),
            ("dead_letters", self.dead_letters),
            ("records", self.records),
            ("heads", self.heads),
        ]
    }

    /// Returns whether nothing was found.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for Purged {
    fn add_assign(&mut self, page: Self) {
        self.requests += page.requests;
        self.tickets += page.tickets;
        self.admissions += page.admissions;
        self.claims += page.claims;
        self.coupons += page.coupons;
        self.dead_letters += page.dead_letters;
        self.records += page.records;
        self.heads += page.heads;
    }
}

/// Why a store did not purge. Nothing was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PurgeRejection {
    /// The clock is earlier than this instant, at which the store recorded something.
    ClockBehind(Timestamp),
    /// The clock is more than [`CLOCK_AHEAD_MAX`] ahead of this instant: the last purge, or without one the last record.
    ClockAhead(Timestamp),
    /// Another purge runs.
    Running,
}

impl PurgeRejection {
    /// Returns the stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::ClockBehind(_) => "clock_behind",
            Self::ClockAhead(_) => "clock_ahead",
            Self::Running => "purge_running",
        }
    }
}

impl fmt::Display for PurgeRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (says, seconds) = match self {
            Self::ClockBehind(at) => {
                ("the clock is earlier than the last record, at Unix time", at.as_us() / 1_000_000)
            }
            Self::ClockAhead(at) => (
                "the clock is more than a year ahead of the last purge or record, at Unix time",
                at.as_us() / 1_000_000,
            ),
            Self::Running => return f.write_str("another purge runs: wait until it has ended"),
        };
        write!(f, "{says} {seconds}: set the clock, or purge with --trust-clock if it is right")
    }
}

impl std::error::Error for PurgeRejection {}

/// Judges whether a purge may trust the clock.
///
/// # Errors
/// [`PurgeRejection::ClockBehind`] and [`PurgeRejection::ClockAhead`].
pub fn check_clock(
    now: Timestamp,
    last_record: Option<Timestamp>,
    last_purge: Option<Timestamp>,
) -> Result<(), PurgeRejection> {
    if let Some(latest) = last_record.max(last_purge)
        && now < latest
    {
        return Err(PurgeRejection::ClockBehind(latest));
    }
    let ahead_us = i64::try_from(CLOCK_AHEAD_MAX.as_micros()).unwrap_or(i64::MAX);
    match last_purge.or(last_record) {
        Some(since) if ahead_us < now.as_us().saturating_sub(since.as_us()) => Err(PurgeRejection::ClockAhead(since)),
        _ => Ok(()),
    }
}

/// Returns the instant before which data are removed that are kept for so long.
pub fn kept_since(now: Timestamp, kept: Duration) -> Timestamp {
    let kept_us = i64::try_from(kept.as_micros()).unwrap_or(i64::MAX);
    Timestamp::clamped_us(now.as_us().saturating_sub(kept_us))
}

/// The outer result says whether the store replied, the inner one what it replied.
pub type PurgeAnswer = Result<Result<Purged, PurgeRejection>, StoreError>;

/// Removes what is over from a store.
///
/// - What is not over stays, also with the shortest retention: living tickets and slots, claims of coupons that can still be claimed
///   or redeemed. Of the records of a member a part stays without a gap: the last one, and all from the first hold on that has not
///   ended. An anchor takes the place of the others. Heads go from the first one on, and the newest one of a chain stays.
/// - In pages of at most [`PAGE_ROWS_MAX`] rows, each one atomic step, with other commands between them.
/// - A purge that a crash cut short has removed whole pages. The next purge removes the rest.
/// - Durable: what the answer counts stays removed after a crash. It counts what this call removed; after an error the pages before
///   it are removed, and not reported.
pub trait PurgeStore: Send + Sync {
    /// Purges now. Returns when all pages are done.
    ///
    /// Refused, in this order, before anything is removed: `purge_running`, `clock_behind`, `clock_ahead`.
    fn purge(&self, request: PurgeRequest) -> impl Future<Output = PurgeAnswer> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(number: i64) -> Timestamp {
        Timestamp::clamped_us(number * 86_400_000_000)
    }

    #[test]
    fn a_clock_that_is_obviously_wrong_is_refused() {
        assert_eq!(check_clock(day(10), None, None), Ok(()));
        assert_eq!(check_clock(day(10), Some(day(10)), Some(day(9))), Ok(()));
        assert_eq!(check_clock(day(10), Some(day(11)), None), Err(PurgeRejection::ClockBehind(day(11))));
        assert_eq!(check_clock(day(10), Some(day(9)), Some(day(11))), Err(PurgeRejection::ClockBehind(day(11))));
        assert_eq!(check_clock(day(376), Some(day(10)), None), Ok(()));
        assert_eq!(check_clock(day(377), Some(day(10)), None), Err(PurgeRejection::ClockAhead(day(10))));
        // A record that a wrong clock made yesterday does not hide that the clock is wrong.
        assert_eq!(check_clock(day(400), Some(day(399)), Some(day(10))), Err(PurgeRejection::ClockAhead(day(10))));
    }

    #[test]
    fn the_end_of_time_is_no_overflow() {
        assert_eq!(kept_since(day(31), DAY * 30), day(1));
        assert_eq!(kept_since(Timestamp::MIN, Duration::MAX), Timestamp::MIN);
    }
}
