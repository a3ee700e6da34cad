//! Limits per client address, or per any other key, in one table of fixed size.
//!
//! The rule is the generic cell rate algorithm in its form of virtual scheduling (ITU-T I.371, annex A; ATM Forum
//! Traffic Management 4.1, section 4.4.5). Each address has an instant until which its calls are paid for. A call pays
//! for one more interval. It passes unless that would put the address more than a burst ahead of the clock.
//!
//! # What it promises
//! - In any window of `w` minutes an address passes at most `burst + per_minute * w` times. With a burst of two or
//!   more, an address that calls all the time passes exactly so often: instants have fractions of a microsecond, and
//!   nothing is rounded.
//! - A call `retry_after_ms` after a refusal passes, unless the address called in between.
//! - An IPv6 address counts as its /64, since a subscriber is given a /64. An IPv4 address counts alone.
//! - All limits of a service share one table of about 2 MiB, which is allocated once. One call costs one hash and one look
//!   at eight entries.
//! - A flood from many addresses does not free an address that is limited. In a full set the entry that is free the soonest
//!   makes room, and that is one of the flood's as long as fewer than eight entries of the set are limited for longer.
//!
//! # What it does not promise
//! - To stop a client that has more addresses than the table has entries, or a whole /48: a forgotten address starts
//!   anew.
//! - Fairness among people behind one address. They share its limit.
//! - Anything across a restart, or across several servers.
//!
//! A key of another kind, such as a network or a room, counts as an address does. [`Counted`] has the list of what counts.
//!
//! A clock that stands still gives one burst. A clock that jumps back costs an address at most the time of a burst.

use crate::address::network;
use firstcome::core::time::Timestamp;
use parking_lot::Mutex;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

/// The most entries that are remembered at once. An address that joins, calls and fails has one for each.
pub const ENTRIES_MAX: usize = SETS * WAYS;

const SETS: usize = 16_384;
const WAYS: usize = 8;
const MINUTE_US: u32 = 60_000_000;

/// How often one address may call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// Calls per minute in the long run.
    pub per_minute: NonZeroU32,
    /// Calls at once after a period without calls.
    pub burst: NonZeroU32,
}

impl RateLimit {
    /// How often one address may join rooms, unless an operator says otherwise.
    pub const JOINS: Self = Self::per_minute(NonZeroU32::new(120).unwrap());
    /// How often one address may call without a key, unless an operator says otherwise. A visitor polls every few
    /// seconds, and hundreds of visitors may share one address.
    pub const CALLS: Self = Self::per_minute(NonZeroU32::new(6_000).unwrap());

    /// How often one address may fail to authenticate, unless an operator says otherwise. Keys have 128 bits, so no rate of
    /// guesses finds one: the limit bounds the work that guesses cost, and the lines of the log.
    pub const FAILURES: Self = Self::per_minute(NonZeroU32::new(60).unwrap());

    /// How often one address may try to log in to the dashboard.
    pub const LOGINS: Self = Self { per_minute: NonZeroU32::new(10).unwrap(), burst: NonZeroU32::new(10).unwrap() };

    /// Allows so many calls per minute. A quarter of them may come at once, since visitors behind one address may
    /// arrive together.
    pub const fn per_minute(per_minute: NonZeroU32) -> Self {
        let burst = match NonZeroU32::new(per_minute.get() / 4) {
            Some(burst) => burst,
            None => NonZeroU32::MIN,
        };
        Self { per_minute, burst }
    }

    /// Allows a tenth as much, and one call per minute at least.
    pub(crate) fn tenth(self) -> Self {
        Self::per_minute(NonZeroU32::new(self.per_minute.get() / 10).unwrap_or(NonZeroU32::MIN))
    }

    /// Allows so many times as much, in the long run and at once.
    pub const fn times(self, times: NonZeroU32) -> Self {
        Self { per_minute: self.per_minute.saturating_mul(times), burst: self.burst.saturating_mul(times) }
    }
}

/// The address has called too often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limited {
    /// After this time one call passes, if there is none in between. At least 1.
    pub retry_after_ms: u64,
}

/// What a limiter counts. Entries of different kinds stand beside each other in the table, and never count together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Counted {
    /// Calls of an address without a valid key.
    Calls,
    /// Attempts of an address to log in to the dashboard.
    Logins,
    /// Anonymous joins of an address.
    JoinsOfAddress,
    /// Anonymous joins of a network.
    JoinsOfNetwork,
    /// Anonymous joins of a room.
    JoinsOfRoom,
    /// Anonymous joins of all rooms.
    JoinsInTotal,
    /// Joins of a network that wait in place of work.
    JoinsThatWait,
    /// Texts in place of a key that an address has shown to gates.
    TextsAtGates,
    /// Failed authentications of an address.
    FailuresOfAddress,
    /// Failed authentications of a network.
    FailuresOfNetwork,
    /// Failed authentications of all addresses.
    FailuresInTotal,
}

/// The entries of all limits of a service.
pub struct Table {
    sets: Box<[Mutex<Set>]>,
    hasher: RandomState,
}

impl Table {
    /// Allocates an empty table. The seed of the hasher must be secret: a client that knows it can choose addresses that
    /// share a set.
    pub fn new(hasher: RandomState) -> Arc<Self> {
        Arc::new(Self { sets: (0..SETS).map(|_| Mutex::new([Entry::EMPTY; WAYS])).collect(), hasher })
    }
}

/// Whether a key has debt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nothing was counted, or all of it is paid for.
    Free,
    /// Something was counted lately, and one more call passes.
    Indebted,
}

/// Counts the calls of every key of one kind.
pub struct Limiter {
    /// `None` if there is no limit.
    pace: Option<Pace>,
    counted: Counted,
    table: Arc<Table>,
}

impl Limiter {
    /// Creates a limiter in this table; `None` lets every call pass. A table takes one limiter of each kind.
    pub fn new(limit: Option<RateLimit>, counted: Counted, table: &Arc<Table>) -> Self {
        Self { pace: limit.map(Pace::new), counted, table: Arc::clone(table) }
    }

    /// Counts one call of this address, or says when the next call passes. A refused call is not counted.
    pub fn check(&self, address: IpAddr, now: Timestamp) -> Result<(), Limited> {
        self.check_key(&network(address), now)
    }

    /// Counts one call of this key, as [`Self::check`] counts one of an address. A limiter takes keys of one kind alone.
    pub fn check_key(&self, key: &impl Hash, now: Timestamp) -> Result<(), Limited> {
        let Some(pace) = &self.pace else { return Ok(()) };
        let (set, tag) = self.place(key);
        let mut entries = self.table.sets[set].lock();
        let at = match entries.iter().position(|entry| entry.tag == tag) {
            Some(at) => at,
            None => {
                let at = soonest_free(&entries, now);
                entries[at] = Entry { tag, ..Entry::EMPTY };
                at
            }
        };
        pace.call(&mut entries[at], now)
    }

    /// Says how this key stands, or when its next call passes. Counts nothing.
    pub fn peek_key(&self, key: &impl Hash, now: Timestamp) -> Result<Standing, Limited> {
        let Some(pace) = &self.pace else { return Ok(Standing::Free) };
        let (set, tag) = self.place(key);
        let entries = self.table.sets[set].lock();
        let Some(mut entry) = entries.iter().find(|entry| entry.tag == tag).copied() else { return Ok(Standing::Free) };
        drop(entries);
        let standing = if pace.debt(&entry, now) == 0 { Standing::Free } else { Standing::Indebted };
        pace.call(&mut entry, now).map(|()| standing)
    }

    /// Returns the set of a key, and its tag within the set. Two keys of one set share a tag, and so a limit, with
    /// probability 2^-32.
    fn place(&self, key: &impl Hash) -> (usize, u32) {
        let hash = self.table.hasher.hash_one((self.counted, key));
        (hash as usize % SETS, (hash >> 32) as u32)
    }
}

type Set = [Entry; WAYS];

/// The state of one address. An entry without debt equals an unused one, so there is no "free" mark.
#[derive(Clone, Copy)]
struct Entry {
    tag: u32,
    /// The fraction of a microsecond beyond `paid_until_us`, in units of the pace.
    fraction: u32,
    paid_until_us: i64,
}

impl Entry {
    const EMPTY: Self = Self { tag: 0, fraction: 0, paid_until_us: i64::MIN };
}

const _: () = assert!(size_of::<Entry>() == 16 && SETS.is_power_of_two() && SETS <= 1 << 32);

/// Returns the index of the entry whose debt ends first. Entries of different limits are compared by time.
fn soonest_free(entries: &Set, now: Timestamp) -> usize {
    let debts_us = entries.iter().map(|entry| entry.paid_until_us.saturating_sub(now.as_us()).max(0));
    debts_us.enumerate().min_by_key(|&(_, debt_us)| debt_us).map_or(0, |(at, _)| at)
}

/// The limit in units that make the interval between two calls a whole number: a microsecond has `unit_per_us` units.
/// For 7 calls per minute the interval is 60 000 000 sevenths of a microsecond.
struct Pace {
    unit_per_us: i64,
    interval: i64,
    /// How far an address may be ahead of the clock: a burst of intervals.
    ahead_max: i64,
}

impl Pace {
    fn new(limit: RateLimit) -> Self {
        let (per_minute, burst) = (limit.per_minute.get(), limit.burst.get());
        let shared = greatest_common_divisor(per_minute, MINUTE_US);
        let interval = i64::from(MINUTE_US / shared);
        // At most 60 000 000 * 2^32, which fits in an `i64`.
        Self { unit_per_us: i64::from(per_minute / shared), interval, ahead_max: interval * i64::from(burst) }
    }

    /// Returns how far the entry is ahead of the clock, in units: from 0 to a burst.
    fn debt(&self, entry: &Entry, now: Timestamp) -> i64 {
        let ahead_us = entry.paid_until_us.saturating_sub(now.as_us());
        if ahead_us < 0 {
            return 0;
        }
        // More than a burst can only follow a clock that was set back. It counts as a burst, which keeps the product
        // small.
        if self.ahead_max / self.unit_per_us < ahead_us {
            return self.ahead_max;
        }
        (ahead_us * self.unit_per_us + i64::from(entry.fraction)).min(self.ahead_max)
    }

    fn call(&self, entry: &mut Entry, now: Timestamp) -> Result<(), Limited> {
        let debt = self.debt(entry, now);
        let over = debt + self.interval - self.ahead_max;
        let paid = if over <= 0 { debt + self.interval } else { debt };
        // Also written on a refusal: after a backward jump of the clock the debt must begin to fall.
        entry.paid_until_us = now.as_us() + paid / self.unit_per_us;
        entry.fraction = (paid % self.unit_per_us) as u32;
        if over <= 0 {
            return Ok(());
        }
        let wait_us = over.unsigned_abs().div_ceil(self.unit_per_us.unsigned_abs());
        Err(Limited { retry_after_ms: wait_us.div_ceil(1_000) })
    }
}

const fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstcome::edge::draw_hasher;
    use proptest::prelude::*;

    const START_US: i64 = 1_790_000_000_000_003;

    fn limiter(per_minute: u32, burst: u32) -> Limiter {
        let [per_minute, burst] = [per_minute, burst].map(|count| NonZeroU32::new(count).unwrap());
        Limiter::new(Some(RateLimit { per_minute, burst }), Counted::Calls, &Table::new(draw_hasher()))
    }

    /// Returns the instant this long after the start.
    fn at(since_us: i64) -> Timestamp {
        Timestamp::from_us(START_US + since_us).unwrap()
    }

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    fn wait(retry_after_ms: u64) -> Result<(), Limited> {
        Err(Limited { retry_after_ms })
    }

    #[test]
    fn a_burst_passes_at_once_and_then_one_per_interval_to_the_microsecond() {
        let limiter = limiter(120, 3); // one in 500 ms
        let rows = [
            (0, Ok(())),
            (0, Ok(())),
            (0, Ok(())),
            (0, wait(500)),
            (1, wait(500)),
            (1_000, wait(499)),
            (499_000, wait(1)),
            (499_999, wait(1)),
            (500_000, Ok(())),
            (500_000, wait(500)),
            (999_999, wait(1)),
            // Without calls the credit grows to a burst and no further: after 1.5 s three calls pass.
            (2_500_000, Ok(())),
            (2_500_000, Ok(())),
            (2_500_000, Ok(())),
            (2_500_000, wait(500)),
            (3_999_999, Ok(())),
            (3_999_999, Ok(())),
            (3_999_999, wait(1)),
            (4_000_000, Ok(())),
            (90_000_000, Ok(())),
            (90_000_000, Ok(())),
            (90_000_000, Ok(())),
            (90_000_000, wait(500)),
        ];
        for (row, (since_us, expected)) in rows.into_iter().enumerate() {
            assert_eq!(limiter.check(address(1), at(since_us)), expected, "row {row}, at {since_us}");
        }
    }

    #[test]
    fn an_interval_that_is_no_whole_number_is_not_rounded() {
        let limiter = limiter(7, 2); // one in 8 571 428.57… µs
        assert_eq!(limiter.check(address(1), at(0)), Ok(()));
        assert_eq!(limiter.check(address(1), at(0)), Ok(()));
        // Calls come at the first whole microsecond that passes; each call pays from its exact instant.
        for call in 1..=7_000_i64 {
            let due_us = (call * 60_000_000 + 6) / 7;
            assert_eq!(limiter.check(address(1), at(due_us - 1)), wait(1), "call {call}");
            assert_eq!(limiter.check(address(1), at(due_us)), Ok(()), "call {call}");
        }
    }

    #[test]
    fn over_ten_minutes_exactly_the_burst_and_the_rate_pass() {
        for (per_minute, burst) in [(120, 30), (7, 3), (1, 2), (59_999, 1_000)] {
            let limiter = limiter(per_minute, burst);
            let step_us = 997; // The step divides no interval.
            let mut passed = 0;
            for tick in 0..=600_000_000 / step_us {
                passed += (0..).take_while(|_| limiter.check(address(1), at(tick * step_us)).is_ok()).count();
            }
            let last_us = 600_000_000 / step_us * step_us;
            let paid = last_us as usize * per_minute as usize / 60_000_000;
            assert_eq!(passed, burst as usize + paid, "{per_minute} per minute, burst {burst}");
        }
    }

    #[test]
    fn a_clock_that_stands_still_gives_one_burst() {
        let table = Table::new(draw_hasher());
        let limiter = Limiter::new(Some(RateLimit::JOINS), Counted::JoinsOfAddress, &table);
        let passed = (0..1_000_000).filter(|_| limiter.check(address(1), at(0)).is_ok()).count();
        assert_eq!(passed, 30);
    }

    #[test]
    fn a_clock_that_jumps_back_costs_no_more_than_a_burst() {
        let limiter = limiter(60, 2);
        assert_eq!(limiter.check(address(1), at(3_600_000_000)), Ok(()));
        assert_eq!(limiter.check(address(1), at(0)), wait(1_000));
        assert_eq!(limiter.check(address(1), at(999_999)), wait(1));
        assert_eq!(limiter.check(address(1), at(1_000_000)), Ok(()));
        assert_eq!(limiter.check(address(2), Timestamp::MAX), Ok(()));
        assert_eq!(limiter.check(address(2), Timestamp::MIN), wait(1_000));
    }

    #[test]
    fn addresses_are_independent_and_an_ipv6_network_counts_once() {
        let limiter = limiter(60, 1);
        let rows = [
            ("192.0.2.1", Ok(())),
            ("192.0.2.1", wait(1_000)),
            ("::ffff:192.0.2.1", wait(1_000)),
            ("192.0.2.2", Ok(())),
            ("2001:db8:0:1::1", Ok(())),
            ("2001:db8:0:1::1", wait(1_000)),
            ("2001:db8:0:1:ffff:ffff:ffff:ffff", wait(1_000)),
            ("2001:db8:0:2::1", Ok(())),
            ("2001:db8:1:1::1", Ok(())),
            // The network 0:0:c000:201::/64 has the bits of 192.0.2.1, but is another address.
            ("0:0:c000:201::1", Ok(())),
        ];
        for (text, expected) in rows {
            assert_eq!(limiter.check(text.parse().unwrap(), at(0)), expected, "{text}");
        }
    }

    #[test]
    fn a_flood_from_a_million_addresses_frees_no_client_that_is_limited() {
        let limiter = limiter(60, 30);
        let hot = address(u32::MAX);
        for _ in 0..30 {
            assert_eq!(limiter.check(hot, at(0)), Ok(()));
        }
        let hot_checks = (0..1_000_000).filter(|&number| {
            assert_eq!(limiter.check(address(number), at(0)), Ok(()), "{number}");
            limiter.check(hot, at(0)).is_ok()
        });
        assert_eq!(hot_checks.count(), 0);
        // It has the same limit as without the flood, and ends at the same time.
        assert_eq!(limiter.check(hot, at(999_999)), wait(1));
        assert_eq!(limiter.check(hot, at(1_000_000)), Ok(()));
        assert_eq!(limiter.table.sets.len() * WAYS, ENTRIES_MAX);
    }

    #[test]
    fn a_newcomer_begins_anew_also_where_everybody_is_limited() {
        let limiter = limiter(60, 1);
        for number in 0..300_000 {
            assert_eq!(limiter.check(address(number), at(0)), Ok(()), "{number}");
        }
    }

    #[test]
    fn in_a_full_set_the_entry_that_is_free_the_soonest_makes_room() {
        let entry = |tag: u32, since_us| Entry { tag, fraction: 0, paid_until_us: START_US + since_us };
        let mut set: Set = std::array::from_fn(|way| entry(way as u32, 9_000_000 - way as i64));
        assert_eq!(soonest_free(&set, at(0)), 7);
        set[2].paid_until_us = START_US + 1;
        assert_eq!(soonest_free(&set, at(0)), 2);
        set[5] = Entry::EMPTY;
        assert_eq!(soonest_free(&set, at(0)), 5);
        // All are free by then: any entry will do.
        assert_eq!(soonest_free(&set, at(9_000_000)), 0);
    }

    #[test]
    fn without_a_limit_every_call_passes() {
        let limiter = Limiter::new(None, Counted::Calls, &Table::new(draw_hasher()));
        assert!((0..10_000).all(|_| limiter.check(address(1), at(0)).is_ok()));
        assert_eq!(limiter.peek_key(&network(address(1)), at(0)), Ok(Standing::Free));
    }

    #[test]
    fn limiters_of_one_table_count_the_same_address_apart() {
        let table = Table::new(draw_hasher());
        let limit =
            |burst| RateLimit { per_minute: NonZeroU32::new(60).unwrap(), burst: NonZeroU32::new(burst).unwrap() };
        let calls = Limiter::new(Some(limit(1)), Counted::Calls, &table);
        let failures = Limiter::new(Some(limit(2)), Counted::FailuresOfAddress, &table);
        assert_eq!(calls.check(address(1), at(0)), Ok(()));
        assert_eq!(calls.check(address(1), at(0)), wait(1_000));
        assert_eq!(failures.check(address(1), at(0)), Ok(()));
        assert_eq!(failures.check(address(1), at(0)), Ok(()));
        assert_eq!(failures.check(address(1), at(0)), wait(1_000));
    }

    #[test]
    fn a_look_counts_nothing_and_says_what_a_call_would_hear() {
        let limiter = limiter(60, 2);
        let key = network(address(1));
        for _ in 0..3 {
            assert_eq!(limiter.peek_key(&key, at(0)), Ok(Standing::Free));
        }
        assert_eq!(limiter.check(address(1), at(0)), Ok(()));
        for _ in 0..3 {
            assert_eq!(limiter.peek_key(&key, at(0)), Ok(Standing::Indebted));
        }
        assert_eq!(limiter.check(address(1), at(0)), Ok(()));
        for _ in 0..3 {
            assert_eq!(limiter.peek_key(&key, at(0)).map(drop), wait(1_000));
        }
        assert_eq!(limiter.peek_key(&key, at(1_000_000)), Ok(Standing::Indebted));
        assert_eq!(limiter.peek_key(&key, at(2_000_000)), Ok(Standing::Free));
    }

    #[test]
    fn calls_at_once_from_several_threads_pass_no_more_often() {
        let limiter = limiter(60, 1_000);
        let passed = || (0..1_000).filter(|_| limiter.check(address(1), at(0)).is_ok()).count();
        let total: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(passed)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(total, 1_000);
    }

    proptest! {
        #[test]
        fn no_window_holds_more_than_the_limit_and_who_waits_as_told_passes(
            per_minute in 1..200_000_u32,
            burst in 1..50_u32,
            steps in proptest::collection::vec((0..3_000_000_i64, any::<bool>()), 1..200),
        ) {
            let limiter = limiter(per_minute, burst);
            let mut now_us = 0;
            let mut passed_us = Vec::new();
            for (step_us, waits) in steps {
                now_us += step_us;
                match limiter.check(address(1), at(now_us)) {
                    Ok(()) => passed_us.push(now_us),
                    Err(Limited { retry_after_ms }) => {
                        prop_assert!(1 <= retry_after_ms);
                        if waits {
                            now_us += retry_after_ms as i64 * 1_000;
                            prop_assert_eq!(limiter.check(address(1), at(now_us)), Ok(()));
                            passed_us.push(now_us);
                        }
                    }
                }
            }
            for (first, &from_us) in passed_us.iter().enumerate() {
                for (last, &to_us) in passed_us.iter().enumerate().skip(first) {
                    let allowed = i64::from(burst) + (to_us - from_us) * i64::from(per_minute) / 60_000_000;
                    prop_assert!((last - first + 1) as i64 <= allowed, "{} calls in {} us", last - first + 1, to_us - from_us);
                }
            }
        }

        #[test]
        fn no_instant_and_no_limit_overflows(
            per_minute in 1..=u32::MAX,
            burst in 1..=u32::MAX,
            instants in proptest::collection::vec(any::<i64>(), 1..50),
        ) {
            let limiter = limiter(per_minute, burst);
            for us in instants {
                let _ = limiter.check(address(1), Timestamp::clamped_us(us));
            }
        }
    }
}
