//! Work before anonymous joins: what a join without a key has to show, if the operator demands work.
//!
//! A join shows `challenge.nonce`, whose hash begins with the demanded zero bits, or after a wait the challenge alone. The
//! wait is for visitors without scripts. It is longer than the work takes a slow phone, and few joins of a network pass
//! that way ([`JoinLimits`](crate::JoinLimits)).
//!
//! # What it promises
//! - A challenge counts in its room, on each node with the same key, until five minutes after the end of the wait.
//! - A challenge is the name of its join: all joins that show it are one request, which has one living place at a time.
//! - Nothing is kept: a challenge that is not shown costs no memory.
//!
//! # What it does not promise
//! - That a challenge is used once. When its place has ended, it may be shown for another one until it expires.
//! - To stop a client that pays for the hashes.

use crate::error::{Code, Problem};
use axum::http::{HeaderMap, HeaderName};
use firstcome::core::id::{RequestId, RoomName};
use firstcome::core::time::Timestamp;
use firstcome::edge::draw_secret;
use firstcome::request::request_id;
use firstcome::work::{CHANCE_BYTES, NONCE_DIGITS_MAX, WorkBits, WorkKey, is_solved};

/// The header of a join that carries the work.
pub(crate) const WORK_HEADER: HeaderName = HeaderName::from_static("x-firstcome-work");
/// A challenge counts for so long after the end of its wait.
const LIFE_MS: u64 = 300_000;
/// The shortest wait in place of the work.
const WAIT_MS_MIN: u64 = 5_000;
/// Hashes in a millisecond on a slow phone. The wait is as long as the work takes there.
const SLOW_HASHES_PER_MS: u64 = 50;

/// Why work is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// The join shows none.
    Absent,
    /// The challenge was not made by this service for this room, or the nonce is none.
    Invalid,
    /// The challenge is too old.
    Expired,
    /// The hash begins with too few zero bits.
    Unsolved,
    /// The challenge came alone, before the end of the wait.
    Early { wait_ms: u64 },
}

impl Fault {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Invalid => "invalid",
            Self::Expired => "expired",
            Self::Unsolved => "unsolved",
            Self::Early { .. } => "early",
        }
    }
}

/// How a join has earned its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Earned {
    Work,
    Wait,
}

/// Accepted work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Accepted<'a> {
    challenge: &'a str,
    pub(crate) earned: Earned,
}

impl Accepted<'_> {
    /// Returns the id of the join, which the challenge names. An idempotency key becomes the content of the request: with
    /// another one the same challenge is refused, instead of leading to a second place.
    pub(crate) fn request(&self, room: &RoomName, keyed: Option<RequestId>) -> RequestId {
        let keyed = keyed.map(|id| (id.key.to_be_bytes(), id.body.to_be_bytes()));
        let body = keyed.as_ref().map_or([&[][..]; 2], |(key, body)| [&key[..], &body[..]]);
        request_id(&[b"work", room.as_str().as_bytes()], self.challenge, &body)
    }
}

/// A challenge that a page offers.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    pub(crate) challenge: String,
    /// How long to wait until it counts alone.
    pub(crate) wait_ms: u64,
}

/// The work that a service demands.
pub(crate) struct Work {
    key: WorkKey,
    bits: WorkBits,
}

/// Returns what a join shows as its work.
pub(crate) fn shown(headers: &HeaderMap) -> Option<&str> {
    // A value that is no text is no work either.
    headers.get(WORK_HEADER).map(|value| value.to_str().unwrap_or("?"))
}

const fn milliseconds(instant: Timestamp) -> u64 {
    let ms = instant.as_us().div_euclid(1_000);
    if ms < 0 { 0 } else { ms.cast_unsigned() }
}

impl Work {
    pub(crate) const fn new(key: WorkKey, bits: WorkBits) -> Self {
        Self { key, bits }
    }

    fn wait_ms(&self) -> u64 {
        (self.bits.hashes() / SLOW_HASHES_PER_MS).max(WAIT_MS_MIN)
    }

    /// Makes a challenge. Panics if the operating system gives no random bytes, as a start does.
    fn make(&self, room: &RoomName, now: Timestamp) -> String {
        #[expect(clippy::expect_used, reason = "nothing here is safe without chance")]
        let secret = draw_secret().expect("the operating system gives random bytes");
        let mut chance = [0; CHANCE_BYTES];
        chance.copy_from_slice(&secret[..CHANCE_BYTES]);
        self.key.challenge(room, u32::try_from(milliseconds(now) / 1_000).unwrap_or(u32::MAX), chance)
    }

    /// Returns how long to wait until the challenge counts alone, or why it does not count.
    fn wait_of(&self, room: &RoomName, challenge: &str, now: Timestamp) -> Result<u64, Fault> {
        let made_ms = u64::from(self.key.made_s(room, challenge).ok_or(Fault::Invalid)?) * 1_000;
        let waited_ms = milliseconds(now).saturating_sub(made_ms);
        if self.wait_ms() + LIFE_MS <= waited_ms {
            Err(Fault::Expired)
        } else {
            Ok(self.wait_ms().saturating_sub(waited_ms))
        }
    }

    fn judge<'a>(&self, room: &RoomName, shown: Option<&'a str>, now: Timestamp) -> Result<Accepted<'a>, Fault> {
        let shown = shown.ok_or(Fault::Absent)?;
        let (challenge, nonce) = match shown.split_once('.') {
            Some((challenge, nonce)) => (challenge, Some(nonce)),
            None => (shown, None),
        };
        let wait_ms = self.wait_of(room, challenge, now)?;
        let Some(nonce) = nonce else {
            let accepted = Accepted { challenge, earned: Earned::Wait };
            return if wait_ms == 0 { Ok(accepted) } else { Err(Fault::Early { wait_ms }) };
        };
        if !(1..=NONCE_DIGITS_MAX).contains(&nonce.len()) || !nonce.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Fault::Invalid);
        }
        if is_solved(shown, self.bits) {
            Ok(Accepted { challenge, earned: Earned::Work })
        } else {
            Err(Fault::Unsolved)
        }
    }

    /// Accepts what a join shows, or answers with what to do: the challenge that the join has shown if it still counts, and
    /// else a new one. Costs one MAC and one hash, and a second MAC for a new challenge.
    pub(crate) fn check<'a>(
        &self,
        room: &RoomName,
        shown: Option<&'a str>,
        now: Timestamp,
    ) -> Result<Accepted<'a>, Problem> {
        self.judge(room, shown, now).map_err(|fault| {
            let offer = self.offer(room, shown.filter(|_| matches!(fault, Fault::Early { .. })), now);
            Problem::new(Code::WorkRequired)
                .with("reason", fault.as_str())
                .with("challenge", offer.challenge)
                .with("bits", self.bits.get())
                .with("wait_ms", offer.wait_ms)
        })
    }

    /// Offers a challenge: the given one as long as it counts, so that its wait goes on, and else a new one.
    pub(crate) fn offer(&self, room: &RoomName, given: Option<&str>, now: Timestamp) -> Offer {
        let still = given.and_then(|given| Some((given, self.wait_of(room, given, now).ok()?)));
        match still {
            Some((challenge, wait_ms)) => Offer { challenge: challenge.to_owned(), wait_ms },
            None => Offer { challenge: self.make(room, now), wait_ms: self.wait_ms() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstcome::work::solve;

    const NOW_MS: i64 = 1_893_456_000_000;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_us((NOW_MS + ms) * 1_000).unwrap()
    }

    fn room(name: &str) -> RoomName {
        RoomName::parse(name).unwrap()
    }

    fn work(bits: u8) -> Work {
        Work::new(WorkKey::new(&[7; 32]), WorkBits::new(bits).unwrap())
    }

    #[test]
    fn a_wait_is_as_long_as_the_work_takes_a_slow_phone() {
        for (bits, wait_ms) in [(1, 5_000), (17, 5_000), (18, 5_242), (20, 20_971), (26, 1_342_177)] {
            assert_eq!(work(bits).wait_ms(), wait_ms, "{bits} bits");
        }
    }

    #[test]
    fn work_counts_for_five_minutes_after_the_wait() {
        let (work, room) = (work(8), room("sale"));
        let challenge = work.make(&room, at(0));
        let solution = solve(&challenge, work.bits);
        let earned = |shown: &str, ms| work.judge(&room, Some(shown), at(ms)).map(|accepted| accepted.earned);
        for ms in [0, 4_999, 5_000, 304_999] {
            assert_eq!(earned(&solution, ms), Ok(Earned::Work), "{ms} ms");
        }
        assert_eq!(earned(&solution, 305_000), Err(Fault::Expired));
        assert_eq!(earned(&challenge, 0), Err(Fault::Early { wait_ms: 5_000 }));
        assert_eq!(earned(&challenge, 4_999), Err(Fault::Early { wait_ms: 1 }));
        for ms in [5_000, 304_999] {
            assert_eq!(earned(&challenge, ms), Ok(Earned::Wait), "{ms} ms");
        }
        assert_eq!(earned(&challenge, 305_000), Err(Fault::Expired));
        // A node whose clock is behind counts the challenge as new.
        assert_eq!(earned(&solution, -60_000), Ok(Earned::Work));
        assert_eq!(earned(&challenge, -60_000), Err(Fault::Early { wait_ms: 5_000 }));
    }

    #[test]
    fn what_is_no_solution_of_this_room_is_refused() {
        let (work, sale) = (work(8), room("sale"));
        let challenge = work.make(&sale, at(0));
        let solution = solve(&challenge, work.bits);
        let (_, nonce) = solution.split_once('.').unwrap();
        let unsolved =
            (0..).map(|nonce| format!("{challenge}.{nonce}")).find(|text| !is_solved(text, work.bits)).unwrap();
        let fault = |shown: &str| work.judge(&sale, Some(shown), at(0)).unwrap_err();
        assert_eq!(work.judge(&sale, None, at(0)), Err(Fault::Absent));
        assert_eq!(fault(&unsolved), Fault::Unsolved);
        for wrong in [
            String::new(),
            ".".to_owned(),
            format!("{challenge}."),
            format!("{challenge}.x"),
            format!("{challenge}.-1"),
            format!("{solution} "),
            format!("{solution}x"),
            format!("{solution}.0"),
            format!("{solution}{}", "0".repeat(NONCE_DIGITS_MAX)),
            format!("{challenge}A.{nonce}"),
            format!("{}.{nonce}", &challenge[1..]),
            solve(&WorkKey::new(&[8; 32]).challenge(&sale, (NOW_MS / 1_000) as u32, [1; CHANCE_BYTES]), work.bits),
            solve(&work.make(&room("other"), at(0)), work.bits),
        ] {
            assert_eq!(fault(&wrong), Fault::Invalid, "{wrong:?}");
        }
    }

    #[test]
    fn all_joins_that_show_a_challenge_are_one_request() {
        let (work, room) = (work(4), room("sale"));
        let [one, other] = [work.make(&room, at(0)), work.make(&room, at(0))];
        let solutions = (0..).map(|nonce| format!("{one}.{nonce}")).filter(|text| is_solved(text, work.bits));
        let id = |shown: &str, keyed| work.judge(&room, Some(shown), at(9_000)).unwrap().request(&room, keyed);
        let first = id(&one, None);
        for solution in solutions.take(3) {
            assert_eq!(id(&solution, None), first, "another nonce");
        }
        assert_ne!(id(&other, None).key, first.key);
        let keyed = id(&one, Some(RequestId { key: 1, body: 2 }));
        assert_eq!(keyed.key, first.key, "one place");
        assert_ne!(keyed.body, first.body, "another request, which is refused");
    }

    #[test]
    fn an_offer_keeps_the_challenge_that_still_counts() {
        let (work, room) = (work(8), room("sale"));
        let first = work.offer(&room, None, at(0));
        assert_eq!(first.wait_ms, 5_000);
        let kept = work.offer(&room, Some(&first.challenge), at(3_000));
        assert_eq!(kept, Offer { challenge: first.challenge.clone(), wait_ms: 2_000 });
        assert_eq!(work.offer(&room, Some(&first.challenge), at(60_000)).wait_ms, 0);
        for stale in [(first.challenge.as_str(), 305_000), ("x", 0)] {
            let new = work.offer(&room, Some(stale.0), at(stale.1));
            assert!(new.challenge != first.challenge && new.wait_ms == 5_000, "{stale:?}");
        }
    }
}
