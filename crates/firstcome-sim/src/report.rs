//! What a run did: counts that show that it was not vacuous, and a hash that shows that it was the same run.

use crate::rng::mix;
use std::collections::BTreeMap;

/// Everything that the seeds of a CI run must reach, or their silence would prove nothing.
pub const EXPECTED: &[(&str, &[&str])] = &[
    ("claim", &["accepted", "repeated", "unknown_coupon", "idempotency_key_reused", "already_issued", "deleted"]),
    ("claim", &["not_open", "expired", "sold_out", "not done", "unknown"]),
    ("redeem", &["accepted", "repeated", "unknown_coupon", "idempotency_key_reused", "unknown_code", "wrong_user"]),
    ("redeem", &["already_redeemed", "expired", "not done", "unknown"]),
    ("put", &["created", "replaced", "deleted", "limit_below_issued", "room_fixed", "not done", "unknown"]),
    ("delete", &["deleted", "unknown_coupon", "not done", "unknown"]),
    ("view", &["scheduled", "open", "sold_out", "expired", "deleted", "unknown_coupon"]),
    ("claim_of", &["found", "none", "unknown_coupon"]),
    ("commit", &["clean", "failed, nothing stored", "outcome unknown, lost", "outcome unknown, kept", "crash before"]),
    ("commit", &["crash after"]),
    ("fault", &["answer lost", "caller went away", "crash between batches", "restart in order"]),
    ("fault", &["asked a store that failed", "answered in the middle of a commit"]),
    ("heal", &["sold all", "served all"]),
    ("room put", &["created", "replaced", "not done", "unknown"]),
    ("close", &["done", "unknown_room", "not done", "unknown"]),
    ("room", &["open", "paused", "scheduled", "closed", "unknown_room"]),
    ("join", &["new", "same request", "same user", "unknown_room", "idempotency_key_reused", "room_closed"]),
    ("join", &["room_full", "not done", "unknown"]),
    ("poll", &["waiting", "admitted", "gone", "unknown_room", "unknown_ticket", "not done", "unknown"]),
    ("leave", &["done", "unknown_ticket", "ticket_renewed", "not done", "unknown"]),
    ("renew", &["renewed", "ticket_renewed", "not done", "unknown"]),
    ("release", &["done", "not done", "unknown"]),
    ("check", &["valid", "not valid", "not done", "unknown"]),
    ("tick", &["done", "not done", "unknown"]),
    ("rotate", &["done", "not done", "unknown"]),
    ("secrets", &["done"]),
    ("room commit", &["clean", "failed, nothing stored", "outcome unknown, lost", "outcome unknown, kept"]),
    ("room commit", &["crash before", "crash after"]),
    ("room fault", &["answer lost", "caller went away", "crash between batches", "restart in order"]),
    ("room fault", &["asked a store that failed", "answered in the middle of a commit", "wall clock set forward"]),
    ("room fault", &["wall clock set back"]),
    ("room heal", &["no client was left", "everybody was admitted"]),
    ("lock ask", &["try", "wait"]),
    ("acquire", &["granted", "queued", "contended", "void"]),
    ("give up", &["released", "withdrawn", "not held"]),
    ("renew", &["renewed", "lost"]),
    ("beat", &["heard", "has a grant"]),
    ("lock task", &["renewed by hand", "gave up a hold", "gave up without a hold", "given up twice"]),
    ("lock write", &["accepted", "refused", "spoils what has no fence"]),
    ("lock told", &["granted", "renewed", "contended", "timed out", "unavailable", "unknown", "lost", "released"]),
    ("lock told", &["not held"]),
    ("lock network", &["unknown", "unavailable", "slow", "doubled", "push lost"]),
    ("lock fault", &["killed", "paused", "cut", "inbox cut", "flushed", "clock set back", "clock set forward"]),
    ("listing put", &["created", "replaced", "listing_running", "listing_ended", "ends_before_start", "not done"]),
    ("listing put", &["unknown"]),
    ("listing", &["scheduled", "running", "ended", "sold", "unsold", "unknown_listing"]),
    ("bids", &["a page", "to the end", "unknown_listing"]),
    ("bid", &["accepted", "repeated", "unknown_listing", "idempotency_key_reused", "own_listing", "not_in_progress"]),
    ("bid", &["already_highest_bidder", "bid_too_low", "insufficient_points", "not done", "unknown"]),
    ("purchase", &["accepted", "repeated", "unknown_listing", "idempotency_key_reused", "own_listing"]),
    ("purchase", &["not_in_progress", "auction_not_ended", "not_winner", "already_sold", "settlement_expired"]),
    ("purchase", &["insufficient_points", "not done", "unknown"]),
    ("charge", &["accepted", "repeated", "idempotency_key_reused", "not done", "unknown"]),
    ("refund", &["accepted", "repeated", "idempotency_key_reused", "insufficient_points", "not done", "unknown"]),
    ("balance", &["done"]),
    ("records", &["a page", "to the end"]),
    ("close due", &["done", "not done", "unknown"]),
    ("auctions commit", &["clean", "failed, nothing stored", "outcome unknown, lost", "outcome unknown, kept"]),
    ("auctions commit", &["crash before", "crash in the middle", "crash after"]),
    ("auctions fault", &["answer lost", "caller went away", "crash between batches", "restart in order"]),
    ("auctions fault", &["asked a store that failed", "answered in the middle of a commit"]),
    ("auctions fault", &["asked at an instant that matters", "clock set forward", "a month"]),
    ("auctions heal", &["sold to the winner", "sold at its price", "not settled", "unsold", "still for sale"]),
    ("node claim", &["issued", "placed", "sold out", "database went back", "unknown"]),
    ("node fault", &["a node dies", "redis dies", "redis forgets", "redis goes back", "redis becomes unfit"]),
    ("node fault", &["redis is fit again", "the database dies", "the database goes back", "a server is slow or fast"]),
    ("node fault", &["a backup is made", "the operator accepts the loss"]),
    ("node", &["sequencer rebuilt", "stands still", "loss accepted"]),
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
        let expected = EXPECTED.iter().flat_map(|&(what, hows)| hows.iter().map(move |&how| (what, how)));
        expected.filter(|(what, how)| self.get(what, how) == 0).collect()
    }
}
