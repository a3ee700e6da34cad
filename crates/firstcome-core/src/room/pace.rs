//! How fast a room admits, and how fast its line moves.

use super::Admit;
use super::bytes::{ImageError, Reader, put_number, put_signed, put_steady};
use crate::time::Steady;

/// The most that a room admits at once: its rate over this time.
const SLICE_US: u128 = 250_000;
/// How far back the room measures the line's speed.
const MEASURED_S: usize = 32;
/// How long the configured rate counts as if it had been measured: an estimate for the first seconds.
const ASSUMED_S: f64 = 4.0;
/// The configured rate also counts for as long as it takes to admit so many visitors, if nothing else limits the line: at a
/// slow rate the measured time shows few admissions.
const ASSUMED_PEOPLE: f64 = 4.0;

/// A line has stopped when it stands for so many times the time that one visitor took before.
const STOPPED_GAPS: u128 = 5;
/// A line has stopped only after this time at least, since the meter counts whole seconds.
const STOPPED_S_MIN: i64 = 2;

/// The whole rate, in millionths.
const WHOLE_PPM: u32 = 1_000_000;

/// A token bucket in whole numbers, so that rounding loses and adds nothing. One microsecond earns the count, and one
/// admission costs the period in microseconds (both a millionfold: reports of the origin leave a part of the rate). The bucket holds one slice of the rate, or one admission if
/// that is more. So in any window the room admits at most the rate and one slice. Below four admissions per second this
/// has a price: an admission that falls due between two ticks is late, and the time until its tick is lost. So a slow
/// bucket reports when it is full ([`Bucket::until_full_us`]).
pub(super) struct Bucket {
    admit: Admit,
    share_ppm: u32,
    credit: u128,
    at: Steady,
}

impl Bucket {
    /// Makes an empty bucket: it does not know what was admitted before.
    pub(super) const fn new(admit: Admit, now: Steady) -> Self {
        Self { admit, share_ppm: WHOLE_PPM, credit: 0, at: now }
    }

    fn cost(&self) -> u128 {
        u128::from(self.admit.every_ms) * 1_000 * u128::from(WHOLE_PPM)
    }

    fn earned_per_us(&self) -> u128 {
        let earned = u128::from(self.admit.count) * u128::from(self.share_ppm);
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is(crate::planted::Bug::RateTooHigh) {
            return earned * 11 / 10;
        }
        earned
    }

    /// Earns credit for the time since the last call, at this part of the rate.
    pub(super) fn earn(&mut self, share_ppm: u32, now: Steady) {
        self.share_ppm = share_ppm;
        let holds = self.holds();
        let elapsed_us = u128::from(now.since_us(self.at));
        self.credit = (self.credit + elapsed_us * self.earned_per_us()).min(holds);
        self.at = self.at.max(now);
    }

    /// Returns how many admissions the bucket affords now.
    pub(super) fn affords(&self) -> u32 {
        u32::try_from(self.credit / self.cost()).unwrap_or(u32::MAX)
    }

    /// Returns the microseconds until the bucket affords one admission, if it cannot hold two: credit earned after that is
    /// lost. `None` if it affords one now.
    pub(super) fn until_full_us(&self) -> Option<u64> {
        if self.cost() <= self.credit || 2 * self.cost() <= self.holds() {
            return None;
        }
        let missing = self.cost().saturating_sub(self.credit);
        Some(u64::try_from(missing.div_ceil(self.earned_per_us())).unwrap_or(u64::MAX))
    }

    fn holds(&self) -> u128 {
        self.cost().max(self.earned_per_us() * SLICE_US)
    }

    /// Returns how many admissions the bucket holds at most.
    pub(super) fn burst(&self) -> u32 {
        u32::try_from(self.holds() / self.cost()).unwrap_or(u32::MAX)
    }

    pub(super) fn spend(&mut self) {
        assert!(self.cost() <= self.credit, "no ticket is admitted before the rate allows it");
        self.credit -= self.cost();
    }

    /// Returns the credit, and the instant up to which it was earned.
    pub(super) const fn credit(&self) -> (u128, Steady) {
        (self.credit, self.at)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.credit.to_le_bytes());
        put_steady(out, self.at);
    }

    /// Reads a bucket. `scale` is what the version that wrote it lacked in the unit of credit.
    pub(super) fn read(reader: &mut Reader<'_>, admit: Admit, scale: u32) -> Result<Self, ImageError> {
        let credit = u128::from(reader.fixed_u64()?) | u128::from(reader.fixed_u64()?) << 64;
        let credit = credit.checked_mul(scale.into()).ok_or(ImageError::Value("credit"))?;
        let bucket = Self { admit, share_ppm: WHOLE_PPM, credit, at: reader.steady()? };
        if bucket.holds() < credit { Err(ImageError::Value("credit")) } else { Ok(bucket) }
    }
}

/// The largest counts of one second that an image may have: see [`Meter::read`].
const COUNT_MAX: u32 = 1 << 26;
const BUSY_US_MAX: u64 = 1 << 58;
const SECOND_MAX: u64 = i64::MAX as u64 / 1_000_000 + 1;

#[derive(Clone, Copy, PartialEq, Default)]
struct Second {
    second: i64,
    admitted: u32,
    /// Microseconds in which at least one visitor was left waiting: only these measure the line's speed.
    busy_us: u64,
    moved: u32,
    departed: u32,
    /// Visitors who took their slots, who did not come, and who were admitted in place of those.
    came: u32,
    missed: u32,
    made_up: u32,
}

/// What became of visitors who were admitted lately.
#[derive(Clone, Copy)]
pub(super) struct Shares {
    pub(super) arrivals_per_s: f64,
    pub(super) no_show_share: Option<f64>,
    pub(super) made_up_per_s: f64,
}

impl Second {
    /// Returns whether a line with this speed that then stood for so many seconds has stopped. With random arrivals, one pause
    /// of 150 is as long.
    fn has_stopped(&self, stood_s: i64) -> bool {
        let stood_us = u128::from(stood_s.unsigned_abs()) * 1_000_000;
        STOPPED_S_MIN <= stood_s && STOPPED_GAPS * u128::from(self.busy_us) < stood_us * u128::from(self.moved)
    }
}

/// The last seconds of a room: admissions, how far the line moved, and how many visitors left it from within.
pub(super) struct Meter {
    seconds: [Second; MEASURED_S],
    since: Steady,
}

/// The line's speed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    /// Visitors per second that the front moves past.
    pub(super) moved: f64,
    /// Visitors per second who leave the line at any place.
    pub(super) departed: f64,
}

impl Meter {
    pub(super) fn new(now: Steady) -> Self {
        Self { seconds: [Second::default(); MEASURED_S], since: now }
    }

    fn second(now: Steady) -> i64 {
        now.as_us().div_euclid(1_000_000)
    }

    fn current(&mut self, now: Steady) -> &mut Second {
        let second = Self::second(now);
        let place = &mut self.seconds[second.rem_euclid(MEASURED_S as i64) as usize];
        if place.second != second {
            *place = Second { second, ..Second::default() };
        }
        place
    }

    pub(super) fn admitted(&mut self, now: Steady) {
        self.current(now).admitted += 1;
    }

    /// Notes that the front moved past `count` visitors in this time, and that at least one visitor still waits.
    pub(super) fn moved(&mut self, now: Steady, count: u32, busy_us: u64) {
        let second = self.current(now);
        second.moved += count;
        second.busy_us += busy_us;
    }

    pub(super) fn departed(&mut self, now: Steady) {
        self.current(now).departed += 1;
    }

    pub(super) fn came(&mut self, now: Steady) {
        self.current(now).came += 1;
    }

    pub(super) fn missed(&mut self, now: Steady, count: u32) {
        if count != 0 {
            self.current(now).missed += count;
        }
    }

    pub(super) fn made_up(&mut self, now: Steady) {
        self.current(now).made_up += 1;
    }

    /// Returns what became of visitors who were admitted lately.
    pub(super) fn shares(&self, now: Steady) -> Shares {
        let (measured_s, sum) = self.sum(now);
        let per_s = |count: u32| if measured_s < 0.001 { 0.0 } else { f64::from(count) / measured_s.max(1.0) };
        let seen = sum.came + sum.missed;
        Shares {
            arrivals_per_s: per_s(sum.came),
            no_show_share: if seen == 0 { None } else { Some(f64::from(sum.missed) / f64::from(seen)) },
            made_up_per_s: per_s(sum.made_up),
        }
    }

    /// Starts to measure again: measurements under other conditions do not count.
    pub(super) fn reset(&mut self, now: Steady) {
        *self = Self::new(now);
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_steady(out, self.since);
        let known = |it: &&Second| **it != Second::default();
        put_number(out, self.seconds.iter().filter(known).count() as u64);
        for it in self.seconds.iter().filter(known) {
            put_signed(out, it.second);
            put_number(out, it.admitted);
            put_number(out, it.busy_us);
            put_number(out, it.moved);
            put_number(out, it.departed);
            for count in [it.came, it.missed, it.made_up] {
                put_number(out, count);
            }
        }
    }

    /// Reads a meter. An older version does not count who `came`.
    pub(super) fn read(reader: &mut Reader<'_>, counts_came: bool) -> Result<Self, ImageError> {
        let mut meter = Self::new(reader.steady()?);
        for _ in 0..reader.count()? {
            let mut it = Second {
                second: reader.signed()?,
                admitted: reader.number_u32()?,
                busy_us: reader.number()?,
                moved: reader.number_u32()?,
                departed: reader.number_u32()?,
                ..Second::default()
            };
            if counts_came {
                (it.came, it.missed, it.made_up) = (reader.number_u32()?, reader.number_u32()?, reader.number_u32()?);
            }
            // The sums over all seconds, with later additions, must not overflow.
            let most =
                [it.admitted, it.moved, it.departed, it.came, it.missed, it.made_up].into_iter().fold(0, u32::max);
            if COUNT_MAX < most || BUSY_US_MAX < it.busy_us || SECOND_MAX < it.second.unsigned_abs() {
                return Err(ImageError::Value("meter"));
            }
            meter.seconds[it.second.rem_euclid(MEASURED_S as i64) as usize] = it;
        }
        Ok(meter)
    }

    fn sum(&self, now: Steady) -> (f64, Second) {
        let second = Self::second(now);
        let within = |it: &&Second| it.second <= second && second - it.second < MEASURED_S as i64;
        let sum = self.seconds.iter().filter(within).fold(Second::default(), |sum, it| Second {
            second,
            admitted: sum.admitted + it.admitted,
            busy_us: sum.busy_us + it.busy_us,
            moved: sum.moved + it.moved,
            departed: sum.departed + it.departed,
            came: sum.came + it.came,
            missed: sum.missed + it.missed,
            made_up: sum.made_up + it.made_up,
        });
        let part = now.as_us().rem_euclid(1_000_000) as f64 / 1e6;
        let measured_s = (now.since_us(self.since) as f64 / 1e6).min((MEASURED_S - 1) as f64 + part);
        (measured_s, sum)
    }

    /// Returns the admissions per second in the measured time.
    pub(super) fn rate(&self, now: Steady) -> f64 {
        let (measured_s, sum) = self.sum(now);
        if measured_s < 0.001 { 0.0 } else { f64::from(sum.admitted) / measured_s.max(1.0) }
    }

    /// Returns the line's speed by measurement alone. `None` if there is no measurement, or if the line has stopped. What was
    /// measured before a stop had other conditions, such as free slots, and does not count after it. Allocates nothing.
    pub(super) fn seen(&self, now: Steady) -> Option<Speed> {
        let end = Self::second(now);
        let (mut sum, mut pause_us, mut last) = (Second::default(), 0, end);
        for second in end + 1 - MEASURED_S as i64..=end {
            let it = self.seconds[second.rem_euclid(MEASURED_S as i64) as usize];
            if it.second != second {
                continue;
            }
            pause_us += it.busy_us;
            if it.moved != 0 {
                if sum.has_stopped(second - last) {
                    sum = Second::default();
                }
                sum.moved += it.moved;
                sum.busy_us += std::mem::take(&mut pause_us);
                last = second;
            }
            sum.departed += it.departed;
        }
        if sum.moved == 0 || sum.has_stopped(end - last) {
            return None;
        }
        let total_s = ((sum.busy_us + pause_us) as f64 / 1e6).max(0.001);
        Some(Speed { moved: f64::from(sum.moved) / total_s, departed: f64::from(sum.departed) / total_s })
    }

    /// Returns the line's speed, mixed with the `assumed` one while little was measured. If the rate `rules`, it always keeps
    /// some weight.
    pub(super) fn speed(&self, now: Steady, assumed: f64, rules: bool) -> Speed {
        let (_, sum) = self.sum(now);
        let measured_s = sum.busy_us as f64 / 1e6;
        let assumed_s_min = if rules { ASSUMED_PEOPLE / assumed } else { 0.0 };
        let assumed_s = (ASSUMED_S - measured_s / 4.0).max(assumed_s_min);
        let total_s = (measured_s + assumed_s).max(0.001);
        let moved = (f64::from(sum.moved) + assumed * assumed_s) / total_s;
        Speed { moved, departed: f64::from(sum.departed) / total_s }
    }
}

impl Speed {
    /// The speed of a line whose next visitors are admitted at the next tick.
    pub(super) const AT_ONCE: Self = Self { moved: f64::INFINITY, departed: 0.0 };

    /// Returns the milliseconds until `ahead` visitors are gone; departures come from all `waiting` visitors. `None` if the line
    /// does not move. Departures are proportional to the waiting visitors, so the wait is `ln(1 + λ·ahead ÷ moved) ÷ λ` with
    /// `λ` departures per visitor and second. Without departures it is `ahead ÷ moved`.
    pub(super) fn wait_ms(self, ahead: u32, waiting: u32) -> Option<u64> {
        if ahead == 0 {
            return Some(0);
        }
        let each = if waiting == 0 { 0.0 } else { self.departed / f64::from(waiting) };
        if self.moved <= 0.0 {
            return None;
        }
        let plain_s = f64::from(ahead) / self.moved;
        let wait_s = if each * plain_s < 1e-6 { plain_s } else { ln_1p(each * plain_s) / each };
        Some((wait_s * 1_000.0).ceil() as u64)
    }
}

/// Computes `ln(1 + x)` for `x ≥ 0` with sums, products and quotients only, which are the same on every machine. Replicas of
/// a room must agree on when a visitor polls again. Correct to 12 digits.
fn ln_1p(x: f64) -> f64 {
    // 1 + x is m · 2^e with m in [⅔, 4⁄3).
    let (mut m, mut e) = (1.0 + x, 0.0);
    if 1.0 / 3.0 < x {
        let bits = m.to_bits();
        e = ((bits >> 52) as f64) - 1_023.0;
        m = f64::from_bits(bits & ((1 << 52) - 1) | 1_023 << 52);
        if 4.0 / 3.0 <= m {
            m *= 0.5;
            e += 1.0;
        }
    }
    // ln m = 2 artanh((m − 1) ÷ (m + 1)). For a small x the quotient x ÷ (2 + x) keeps its precision.
    let s = if e == 0.0 && x <= 1.0 / 3.0 { x / (2.0 + x) } else { (m - 1.0) / (m + 1.0) };
    let square = s * s;
    let series = (0..10).rev().fold(0.0, |sum, i| sum * square + 1.0 / f64::from(2 * i + 1));
    e * std::f64::consts::LN_2 + 2.0 * s * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_that_of_the_machine_to_12_digits() {
        let mut x = 1e-9;
        while x < 1e15 {
            let (own, theirs) = (ln_1p(x), x.ln_1p());
            assert!((own - theirs).abs() <= 1e-12 * theirs, "{x}: {own} and {theirs}");
            x *= 1.01;
        }
        assert_eq!(ln_1p(0.0), 0.0);
        assert!(ln_1p(f64::MAX).is_finite());
    }
}
