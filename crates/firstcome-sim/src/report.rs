//! What a run did: counts that show that it was not vacuous, and a hash that shows that it was the same run.

use crate::rng::mix;
use std::collections::BTreeMap;

/// Everything that the seeds of a CI run must reach, or their silence would prove nothing.
pub const EXPECTED: &[(&str, &str)] = &[
    ("claim", "accepted"),
    ("claim", "repeated"),
    ("claim", "unknown_coupon"),
    ("claim", "idempotency_key_reused"),
    ("claim", "already_issued"),
    ("claim", "deleted"),
    ("claim", "not_open"),
    ("claim", "expired"),
    ("claim", "sold_out"),
    ("claim", "not done"),
    ("claim", "unknown"),
    ("redeem", "accepted"),
    ("redeem", "repeated"),
    ("redeem", "unknown_coupon"),
    ("redeem", "idempotency_key_reused"),
    ("redeem", "unknown_code"),
    ("redeem", "wrong_user"),
    ("redeem", "already_redeemed"),
    ("redeem", "expired"),
    ("redeem", "not done"),
    ("redeem", "unknown"),
    ("put", "created"),
    ("put", "replaced"),
    ("put", "deleted"),
    ("put", "limit_below_issued"),
    ("put", "room_fixed"),
    ("put", "not done"),
    ("put", "unknown"),
    ("delete", "deleted"),
    ("delete", "unknown_coupon"),
    ("delete", "not done"),
    ("delete", "unknown"),
    ("view", "scheduled"),
    ("view", "open"),
    ("view", "sold_out"),
    ("view", "expired"),
    ("view", "deleted"),
    ("view", "unknown_coupon"),
    ("claim_of", "found"),
    ("claim_of", "none"),
    ("claim_of", "unknown_coupon"),
    ("commit", "clean"),
    ("commit", "failed, nothing stored"),
    ("commit", "outcome unknown, lost"),
    ("commit", "outcome unknown, kept"),
    ("commit", "crash before"),
    ("commit", "crash after"),
    ("fault", "answer lost"),
    ("fault", "caller went away"),
    ("fault", "crash between batches"),
    ("fault", "restart in order"),
    ("fault", "asked a store that failed"),
    ("fault", "answered in the middle of a commit"),
    ("heal", "sold all"),
    ("heal", "served all"),
    ("room put", "created"),
    ("room put", "replaced"),
    ("room put", "not done"),
    ("room put", "unknown"),
    ("close", "done"),
    ("close", "unknown_room"),
    ("close", "not done"),
    ("close", "unknown"),
    ("room", "open"),
    ("room", "paused"),
    ("room", "scheduled"),
    ("room", "closed"),
    ("room", "unknown_room"),
    ("join", "new"),
    ("join", "same request"),
    ("join", "same user"),
    ("join", "unknown_room"),
    ("join", "idempotency_key_reused"),
    ("join", "room_closed"),
    ("join", "room_full"),
    ("join", "not done"),
    ("join", "unknown"),
    ("poll", "waiting"),
    ("poll", "admitted"),
    ("poll", "gone"),
    ("poll", "unknown_room"),
    ("poll", "unknown_ticket"),
    ("poll", "not done"),
    ("poll", "unknown"),
    ("leave", "done"),
    ("leave", "unknown_ticket"),
    ("leave", "not done"),
    ("leave", "unknown"),
    ("release", "done"),
    ("release", "not done"),
    ("release", "unknown"),
    ("check", "valid"),
    ("check", "not valid"),
    ("check", "not done"),
    ("check", "unknown"),
    ("tick", "done"),
    ("tick", "not done"),
    ("tick", "unknown"),
    ("rotate", "done"),
    ("rotate", "not done"),
    ("rotate", "unknown"),
    ("secrets", "done"),
    ("room commit", "clean"),
    ("room commit", "failed, nothing stored"),
    ("room commit", "outcome unknown, lost"),
    ("room commit", "outcome unknown, kept"),
    ("room commit", "crash before"),
    ("room commit", "crash after"),
    ("room fault", "answer lost"),
    ("room fault", "caller went away"),
    ("room fault", "crash between batches"),
    ("room fault", "restart in order"),
    ("room fault", "asked a store that failed"),
    ("room fault", "answered in the middle of a commit"),
    ("room fault", "wall clock set forward"),
    ("room fault", "wall clock set back"),
    ("room heal", "nobody was left"),
    ("room heal", "everybody was admitted"),
    ("lock ask", "try"),
    ("lock ask", "wait"),
    ("acquire", "granted"),
    ("acquire", "queued"),
    ("acquire", "contended"),
    ("acquire", "void"),
    ("give up", "released"),
    ("give up", "withdrawn"),
    ("give up", "not held"),
    ("renew", "renewed"),
    ("renew", "lost"),
    ("beat", "heard"),
    ("beat", "has a grant"),
    ("lock task", "renewed by hand"),
    ("lock task", "gave up a hold"),
    ("lock task", "gave up without a hold"),
    ("lock task", "given up twice"),
    ("lock write", "accepted"),
    ("lock write", "refused"),
    ("lock write", "spoils what has no fence"),
    ("lock told", "granted"),
    ("lock told", "renewed"),
    ("lock told", "contended"),
    ("lock told", "timed out"),
    ("lock told", "unavailable"),
    ("lock told", "unknown"),
    ("lock told", "lost"),
    ("lock told", "released"),
    ("lock told", "not held"),
    ("lock network", "unknown"),
    ("lock network", "unavailable"),
    ("lock network", "slow"),
    ("lock network", "doubled"),
    ("lock network", "push lost"),
    ("lock fault", "killed"),
    ("lock fault", "paused"),
    ("lock fault", "cut"),
    ("lock fault", "inbox cut"),
    ("lock fault", "flushed"),
    ("lock fault", "clock set back"),
    ("lock fault", "clock set forward"),
];

/// What one run, or many together, did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How often something happened: what, and how it ended.
    pub counts: BTreeMap<(&'static str, &'static str), u64>,
    /// Differs as soon as anything in the run differs.
    pub trace_hash: u64,
}

impl Report {
    /// Counts one more, and lets the trace know.
    pub fn count(&mut self, what: &'static str, how: &'static str) {
        *self.counts.entry((what, how)).or_default() += 1;
        for byte in what.bytes().chain(how.bytes()) {
            self.trace(u64::from(byte));
        }
    }

    /// Lets the trace know.
    pub const fn trace(&mut self, word: u64) {
        self.trace_hash = mix(self.trace_hash.rotate_left(5) ^ word);
    }

    /// How often something happened.
    pub fn get(&self, what: &'static str, how: &'static str) -> u64 {
        self.counts.get(&(what, how)).copied().unwrap_or(0)
    }

    /// Adds what another run did.
    pub fn add(&mut self, other: &Self) {
        for (&key, count) in &other.counts {
            *self.counts.entry(key).or_default() += count;
        }
        self.trace(other.trace_hash);
    }

    /// What of [`EXPECTED`] never happened.
    pub fn missing(&self) -> Vec<(&'static str, &'static str)> {
        EXPECTED.iter().copied().filter(|(what, how)| self.get(what, how) == 0).collect()
    }
}
