//! What a room corrects of its rate: for visitors who do not come, and for an origin in trouble.

use super::bytes::{ImageError, Reader, put_number, put_option, put_signed, put_steady};
use super::{Memory, Room, RoomState};
use crate::time::{Now, Steady};
use std::collections::{BTreeMap, BTreeSet};

/// The whole rate, in millionths.
const WHOLE_PPM: u32 = 1_000_000;
/// Reports of trouble leave at least this part of the rate.
const SHARE_PPM_MIN: u32 = 250_000;
/// A report of trouble leaves this part of the present rate, in percent.
const LESS_PERCENT: u32 = 70;
/// A good report adds this part of the whole rate.
const MORE_PPM: u32 = 50_000;
/// How long one change of the share counts until the next: an effect takes time to be seen.
const STEP_MS: u64 = 5_000;
/// So long after the last report the rate begins to recover by itself.
const SILENT_MS: u64 = 15_000;
/// What one second leaves of the reduction then, in millionths: half of it after 30 s.
const LEFT_PPM_PER_S: u64 = 977_160;
/// After so many seconds nothing is left.
const RECOVERED_S: u64 = 900;
/// A reduction below this is none.
const GAP_PPM_MIN: u32 = 1_000;

/// How long after the next poll was due a visitor who was admitted counts as missing.
const LATE_MS: u64 = 5_000;
/// The shortest interval between two polls that counts for that.
const POLL_MS_MIN: u64 = 2_400;
/// Missing visitors that the room makes up for later, at least.
const OWED_MIN: u32 = 4;

/// What the operator's site says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OriginReport {
    /// It answers well: the room may admit more again.
    Fine,
    /// It answers too slowly.
    Slow,
    /// Too many of its answers are errors.
    Failing,
}

impl OriginReport {
    /// Returns the report as the HTTP API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Slow => "slow",
            Self::Failing => "failing",
        }
    }

    pub(super) const fn code(self) -> u8 {
        self as u8
    }

    pub(super) const fn of_code(code: u8) -> Result<Self, ImageError> {
        match code {
            0 => Ok(Self::Fine),
            1 => Ok(Self::Slow),
            2 => Ok(Self::Failing),
            _ => Err(ImageError::Value("report")),
        }
    }
}

/// What decides the present rate of a room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RateReason {
    /// An operator closed the room.
    Closed,
    /// An operator paused it.
    Paused,
    /// It is not open yet.
    Scheduled,
    /// After a loss it waits until visitors in front have come back.
    Recovering,
    /// No visitor waits.
    Empty,
    /// All slots are in use.
    SlotsFull,
    /// The origin reported errors.
    OriginErrors,
    /// The origin reported that it is slow.
    OriginSlow,
    /// Visitors wait, and none of them is present.
    Absent,
    /// More than the operator's rate are admitted, in place of visitors who did not come.
    NoShows,
    /// The operator's rate.
    Limit,
    /// Free slots: visitors are admitted at once.
    FreeSlots,
}

impl RateReason {
    /// All reasons.
    pub const ALL: [Self; 12] = [
        Self::Closed,
        Self::Paused,
        Self::Scheduled,
        Self::Recovering,
        Self::Empty,
        Self::SlotsFull,
        Self::OriginErrors,
        Self::OriginSlow,
        Self::Absent,
        Self::NoShows,
        Self::Limit,
        Self::FreeSlots,
    ];

    /// Returns the reason as the HTTP API and the metrics spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Paused => "paused",
            Self::Scheduled => "scheduled",
            Self::Recovering => "recovering",
            Self::Empty => "empty",
            Self::SlotsFull => "slots_full",
            Self::OriginErrors => "origin_errors",
            Self::OriginSlow => "origin_slow",
            Self::Absent => "absent",
            Self::NoShows => "no_shows",
            Self::Limit => "limit",
            Self::FreeSlots => "free_slots",
        }
    }
}

/// Why a room admits as fast as it does, with the number of each factor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RatePace {
    /// What decides.
    pub reason: RateReason,
    /// The operator's rate, in visitors per second.
    pub set_per_s: Option<f64>,
    /// The part of the operator's limit that reports of the origin leave: 0.25 to 1.
    pub origin_share: f64,
    /// Visitors per second who took their slots lately: those who arrive at the origin.
    pub arrivals_per_s: f64,
    /// The part of the visitors admitted lately who did not come. `None` if none was admitted.
    pub no_show_share: Option<f64>,
    /// Visitors per second lately who were admitted in place of others who did not come.
    pub made_up_per_s: f64,
}

/// Visitors who were admitted and have not come yet, and what the room owes for those who did not.
#[derive(Default)]
struct Expected {
    /// When each admission counts as missed.
    due: BTreeMap<u64, Steady>,
    order: BTreeSet<(Steady, u64)>,
    /// Admissions in place of missed ones that are still to be made. Negative: visitors came who had counted as missing.
    owed: i32,
    /// How many admissions may be made up or saved now: each admission by the rate allows one.
    allowed: u32,
}

/// The part of the limit that reports of the origin leave.
#[derive(Clone, Copy)]
struct Share {
    ppm: u32,
    trouble: OriginReport,
    /// When the share was changed by a report last, and when the last report came.
    changed: Option<Steady>,
    reported: Option<Steady>,
    /// Up to when the recovery in silence is counted.
    recovered: Steady,
}

pub(super) struct Steering {
    expected: Expected,
    share: Share,
}

impl Expected {
    fn forget(&mut self, admission: u64) -> bool {
        let due = self.due.remove(&admission);
        due.is_some_and(|due| self.order.remove(&(due, admission)))
    }
}

impl Share {
    const fn new(now: Steady) -> Self {
        Self { ppm: WHOLE_PPM, trouble: OriginReport::Fine, changed: None, reported: None, recovered: now }
    }

    fn report(&mut self, report: OriginReport, now: Steady) {
        self.recover(now);
        self.reported = self.reported.max(Some(now));
        if self.changed.is_some_and(|changed| now.since_us(changed) < STEP_MS * 1_000) {
            return;
        }
        match report {
            OriginReport::Fine if self.ppm == WHOLE_PPM => return,
            OriginReport::Fine => self.ppm = (self.ppm + MORE_PPM).min(WHOLE_PPM),
            OriginReport::Slow | OriginReport::Failing => {
                self.ppm = (self.ppm / 100 * LESS_PERCENT).max(SHARE_PPM_MIN);
                self.trouble = report;
            }
        }
        self.changed = Some(now);
    }

    /// Lets the reduction fade while no report comes.
    fn recover(&mut self, now: Steady) {
        let silent = self.reported.map_or(self.recovered, |reported| reported.plus_ms(SILENT_MS));
        let from = self.recovered.max(silent);
        let seconds = now.since_us(from) / 1_000_000;
        if seconds == 0 {
            return;
        }
        let mut gap = u64::from(WHOLE_PPM - self.ppm);
        for _ in 0..seconds.min(RECOVERED_S) {
            gap = gap * LEFT_PPM_PER_S / 1_000_000;
        }
        self.recovered = from.plus_ms(seconds * 1_000);
        self.ppm = if gap < u64::from(GAP_PPM_MIN) { WHOLE_PPM } else { WHOLE_PPM - gap as u32 };
    }
}

impl Steering {
    pub(super) fn new(now: Steady) -> Self {
        Self { expected: Expected::default(), share: Share::new(now) }
    }

    /// Returns the part of the limit that reports of the origin leave, in millionths.
    pub(super) const fn share_ppm(&self) -> u32 {
        self.share.ppm
    }

    /// Returns the slots that may be used, of so many.
    pub(super) fn slots_of(&self, cap: u32) -> u32 {
        let slots = u64::from(cap) * u64::from(self.share.ppm) / u64::from(WHOLE_PPM);
        (slots as u32).max(1)
    }

    /// Returns how long an admitted visitor may take who was told to poll after so long.
    pub(super) fn patience_ms(polled_ms: u32) -> u64 {
        u64::from(polled_ms).max(POLL_MS_MIN) + LATE_MS
    }

    /// Notes an admission, and when it counts as missed.
    pub(super) fn admitted(&mut self, admission: u64, due: Steady) {
        self.expected.due.insert(admission, due);
        self.expected.order.insert((due, admission));
    }

    /// Notes that the visitor of an admission came.
    pub(super) fn came(&mut self, admission: u64) {
        if !self.expected.forget(admission) {
            self.expected.owed = self.expected.owed.saturating_sub(1);
        }
    }

    /// Notes that the visitor of an admission will not come. Returns whether that is news.
    pub(super) fn missed(&mut self, admission: u64) -> bool {
        let is_news = self.expected.forget(admission);
        self.expected.owed = self.expected.owed.saturating_add(i32::from(is_news));
        is_news
    }

    /// Lets time pass. Returns how many admissions have become missed ones.
    pub(super) fn pass(&mut self, now: Steady) -> u32 {
        self.share.recover(now);
        let mut missed = 0;
        while let Some(&(due, admission)) = self.expected.order.first().filter(|(due, _)| *due <= now) {
            self.expected.order.remove(&(due, admission));
            self.expected.due.remove(&admission);
            missed += 1;
        }
        self.expected.owed = self.expected.owed.saturating_add_unsigned(missed);
        missed
    }

    /// Bounds what is made up for and what is saved, where the rate admits at most `burst` visitors at once. What is not made
    /// up for is not to be saved either when its visitors come late.
    pub(super) fn bound(&mut self, burst: u32) {
        let most = burst.clamp(OWED_MIN, i32::MAX as u32).cast_signed();
        self.expected.owed = self.expected.owed.clamp(-most, most);
        self.expected.allowed = self.expected.allowed.min(burst);
    }

    /// Takes an admission that is saved because a visitor came who had counted as missing.
    pub(super) fn saves(&mut self) -> bool {
        let saves = self.expected.owed < 0 && self.expected.allowed != 0;
        if saves {
            self.expected.owed += 1;
            self.expected.allowed -= 1;
        }
        saves
    }

    /// Notes an admission by the rate, which admits at most `burst` visitors at once.
    pub(super) fn by_rate(&mut self, burst: u32) {
        self.expected.allowed = self.expected.allowed.saturating_add(1).min(burst);
    }

    /// Returns whether an admission may be made in place of one that was missed.
    pub(super) const fn may_make_up(&self) -> bool {
        0 < self.expected.owed && self.expected.allowed != 0
    }

    pub(super) fn make_up(&mut self) {
        assert!(self.may_make_up(), "no more is made up for than was missed");
        self.expected.owed -= 1;
        self.expected.allowed -= 1;
    }

    /// The rate is not what limits: nothing is owed.
    pub(super) const fn settle(&mut self) {
        self.expected.owed = 0;
    }

    /// Forgets all admissions: they are void.
    pub(super) fn clear(&mut self) {
        self.expected = Expected::default();
    }

    pub(super) fn digest(&self) -> [u64; 3] {
        let Expected { due, owed, allowed, .. } = &self.expected;
        [u64::from(self.share.ppm), due.len() as u64, u64::from(owed.cast_unsigned()) << 32 | u64::from(*allowed)]
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let Share { ppm, trouble, changed, reported, recovered } = self.share;
        put_number(out, ppm);
        out.push(trouble.code());
        put_option(out, changed, put_steady);
        put_option(out, reported, put_steady);
        put_steady(out, recovered);
        let Expected { due, owed, allowed, .. } = &self.expected;
        put_signed(out, i64::from(*owed));
        put_number(out, *allowed);
        put_number(out, due.len() as u64);
        for (&admission, &due) in due {
            put_number(out, admission);
            put_steady(out, due);
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, ImageError> {
        let ppm = reader.number_u32()?;
        if !(SHARE_PPM_MIN..=WHOLE_PPM).contains(&ppm) {
            return Err(ImageError::Value("share"));
        }
        let trouble = OriginReport::of_code(reader.byte()?)?;
        let (changed, reported) = (reader.option(Reader::steady)?, reader.option(Reader::steady)?);
        let share = Share { ppm, trouble, changed, reported, recovered: reader.steady()? };
        let owed = i32::try_from(reader.signed()?).map_err(|_| ImageError::Value("owed"))?;
        let mut steering =
            Self { expected: Expected { owed, allowed: reader.number_u32()?, ..Expected::default() }, share };
        for _ in 0..reader.count()? {
            let (admission, due) = (reader.number()?, reader.steady()?);
            if steering.expected.due.last_key_value().is_some_and(|(last, _)| admission <= *last) {
                return Err(ImageError::Value("expected admission"));
            }
            steering.admitted(admission, due);
        }
        Ok(steering)
    }

    /// Returns the share as bytes for [`Memory`]. Empty if it is the whole.
    pub(super) fn remember(&self) -> Vec<u8> {
        if self.share.ppm == WHOLE_PPM {
            return Vec::new();
        }
        let mut bytes = vec![self.share.trouble.code()];
        bytes.extend_from_slice(&self.share.ppm.to_le_bytes());
        bytes
    }

    /// Restores the share. It recovers as if the last report came now.
    pub(super) fn recall(&mut self, bytes: &[u8], now: Steady) {
        let [trouble, ppm @ ..] = bytes else { return };
        let (Ok(trouble), Ok(ppm)) = (OriginReport::of_code(*trouble), ppm.try_into().map(u32::from_le_bytes)) else {
            return;
        };
        if (SHARE_PPM_MIN..=WHOLE_PPM).contains(&ppm) {
            self.share = Share { ppm, trouble, changed: None, reported: Some(now), recovered: now };
        }
    }
}

impl Room {
    /// Takes a report of the origin. Trouble lowers the rate by three tenths, at most every 5 s and down to a quarter. Good reports
    /// raise it by a twentieth of the operator's, at most every 5 s. When reports end, half of the reduction is left after each
    /// 30 s. Without a rate the same part of `max_active` counts. A report that is repeated within 5 s has no effect.
    pub fn report_origin(&mut self, report: OriginReport, now: Now) {
        self.steering.share.report(report, now.steady);
    }

    /// Returns why the room admits as fast as it does.
    pub fn pace(&self, now: Now) -> RatePace {
        let shares = self.meter.shares(now.steady);
        RatePace {
            reason: self.reason(now, shares.made_up_per_s),
            set_per_s: self.settings.admit.map(super::Admit::per_second),
            origin_share: f64::from(self.steering.share_ppm()) / f64::from(WHOLE_PPM),
            arrivals_per_s: shares.arrivals_per_s,
            no_show_share: shares.no_show_share,
            made_up_per_s: shares.made_up_per_s,
        }
    }

    fn reason(&self, now: Now, made_up_per_s: f64) -> RateReason {
        let is_reduced = self.steering.share_ppm() < WHOLE_PPM;
        match self.state(now.wall) {
            RoomState::Closed => RateReason::Closed,
            RoomState::Paused => RateReason::Paused,
            RoomState::Scheduled => RateReason::Scheduled,
            RoomState::Open if self.grace_left_us(now.steady) != 0 => RateReason::Recovering,
            RoomState::Open if self.line.waiting() == 0 => RateReason::Empty,
            RoomState::Open if self.settings.max_active.is_some_and(|cap| cap <= self.slots.count()) => {
                RateReason::SlotsFull
            }
            RoomState::Open if self.line.ahead(self.line.next()) == 0 && self.returned.is_empty() => RateReason::Absent,
            RoomState::Open if is_reduced && self.steering.share.trouble == OriginReport::Failing => {
                RateReason::OriginErrors
            }
            RoomState::Open if is_reduced => RateReason::OriginSlow,
            RoomState::Open if self.settings.admit.is_none() => RateReason::FreeSlots,
            RoomState::Open if 0.0 < made_up_per_s => RateReason::NoShows,
            RoomState::Open => RateReason::Limit,
        }
    }

    /// Returns the part of the memory that is no segment's.
    pub(super) fn remember_share(&self) -> Memory {
        Memory { first_number: 0, bytes: self.steering.remember().into() }
    }
}
