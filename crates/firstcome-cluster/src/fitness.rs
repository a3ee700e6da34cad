//! Repeats, while a node runs, the checks of Redis that [`Cluster::open`](super::Cluster::open) made.
//!
//! An operator may change the settings of a Redis that runs, and no connection ends by that. Every two seconds, and after each
//! reconnect, the node asks every Redis to which it sends commands, and judges:
//!
//! - *It may evict keys.* The sequencers and logs are caches of SQL, which a node rebuilds when they are gone, so claims go on. What
//!   a node acknowledged early would be gone with an outbox, so no claim is told early. The fault `redis` is open.
//! - *It does not sync each write.* The same, and the fault is open only while a coupon has the durability `redis`: to all others
//!   nothing is told before SQL has it.
//!
//! # Invariants
//! - An early answer rests on a check that found every server fit, at most [`FRESH_MAX`] ago and over the connection that is up.

use super::database::early_coupon;
use super::deployment::forgets;
use crate::node::Node;
use firstcome_core::coupon::stream::{Keeps, may_acknowledge_early};
use firstcome_redis::{CHECK_EVERY, Eviction, ServerFacts, evicts};
use firstcome_store::{Fault, FaultKind};
use parking_lot::Mutex;
use std::sync::Weak;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Under which name the fault of an unfit Redis is open.
const OBJECT: &str = "redis";
/// Claims are told early for so long after a check, at most.
const FRESH_MAX: Duration = Duration::from_secs(5);
/// How often a node looks whether a check is due.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What a check found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Verdict {
    /// Why keys may be evicted.
    evicts: Option<String>,
    /// Why a restart may lose what was acknowledged.
    forgets: Option<String>,
}

impl Verdict {
    const fn is_fit(&self) -> bool {
        self.evicts.is_none() && self.forgets.is_none()
    }
}

/// Judges servers by what they say of themselves, and by what was found before.
///
/// After `appendonly yes` a server says at once that it writes its file, and a restart reads that file only when it has been
/// rewritten as a whole. So a server that did not sync is fit again when no rewrite is under way and the last one went well.
fn judge(facts: &[ServerFacts], eviction: Eviction, before: Option<&Verdict>) -> Verdict {
    let was_forgetful = before.is_some_and(|before| before.forgets.is_some());
    let not_yet = |server: &ServerFacts| {
        (was_forgetful && !server.file_is_whole)
            .then(|| format!("the Redis at {} has not finished rewriting its append-only file", server.address))
    };
    let forgets = facts.iter().find_map(|server| forgets(server).or_else(|| not_yet(server)));
    Verdict { evicts: evicts(facts, eviction), forgets }
}

/// Whether Redis keeps what it acknowledges, as far as this node knows.
#[derive(Default)]
pub(super) struct Fitness(Mutex<Option<Checked>>);

struct Checked {
    at: Instant,
    /// How many times the server may have been another one when the check began.
    doubts: u64,
    verdict: Verdict,
}

impl Fitness {
    fn verdict(&self) -> Option<Verdict> {
        self.0.lock().as_ref().map(|checked| checked.verdict.clone())
    }

    fn is_due(&self, doubts: u64) -> bool {
        self.0.lock().as_ref().is_none_or(|checked| checked.doubts != doubts || CHECK_EVERY <= checked.at.elapsed())
    }

    fn keeps(&self, doubts: u64) -> bool {
        let checked = self.0.lock();
        checked.as_ref().is_some_and(|checked| {
            checked.verdict.is_fit() && checked.doubts == doubts && checked.at.elapsed() < FRESH_MAX
        })
    }
}

impl Node {
    /// Whether a claim may be told before SQL has it: Redis keeps what it acknowledges. Does no I/O.
    pub(super) fn redis_keeps(&self) -> bool {
        let is_kept = self.options.allow_forgetful || self.fitness.keeps(self.doubts());
        may_acknowledge_early(if is_kept { Keeps::Everything } else { Keeps::NotAll })
    }

    /// Checks every server once. If one does not answer, the last verdict stays until it is too old.
    pub(super) async fn check_redis(&self) {
        let (doubts, at) = (self.doubts(), Instant::now());
        let Ok(facts) = self.sequencer.link.servers().await else { return };
        let before = self.fitness.verdict();
        let verdict = judge(&facts, self.options.link.allow_eviction, before.as_ref());
        // First of all: from here on no claim is told early.
        *self.fitness.0.lock() = Some(Checked { at, doubts, verdict: verdict.clone() });
        let Some(detail) = self.stops(verdict).await else { return };
        match detail {
            Some(detail) => drop(self.faults.raise(OBJECT, Fault::new(FaultKind::Unfit, detail))),
            None => self.faults.clear_kind(OBJECT, FaultKind::Unfit),
        }
    }

    /// What the verdict stops, if anything; `None` if SQL does not say whether a coupon needs what Redis does not do.
    async fn stops(&self, verdict: Verdict) -> Option<Option<String>> {
        if verdict.evicts.is_some() {
            return Some(verdict.evicts);
        }
        let Some(why) = verdict.forgets.filter(|_| !self.options.allow_forgetful) else { return Some(None) };
        let coupon = early_coupon(&self.database.base).await.ok()?;
        Some(coupon.map(|coupon| {
            format!(
                "coupon {coupon} has the durability redis, and {why}: set appendonly yes and appendfsync always; until then its \
                 claims are told when the database has them"
            )
        }))
    }
}

/// Checks while the node is there.
pub(super) async fn watch(node: Weak<Node>) {
    loop {
        sleep(LOOK_EVERY).await;
        let Some(node) = node.upgrade() else { return };
        if node.fitness.is_due(node.doubts()) {
            node.check_redis().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(aof: u8, rewrites: u8, policy: &str, sync: &str) -> ServerFacts {
        let info = format!(
            "role:master\r\naof_enabled:{aof}\r\naof_rewrite_in_progress:{rewrites}\r\naof_rewrite_scheduled:0\r\n\
             aof_last_bgrewrite_status:ok\r\nmaxmemory_policy:{policy}\r\n"
        );
        ServerFacts::read("one:1".to_owned(), &info, Some(sync), None)
    }

    #[test]
    fn each_setting_that_loses_claims_is_unfit_and_a_rewrite_counts_only_after_one() {
        let forgot = Verdict { forgets: Some("it did not sync".to_owned()), evicts: None };
        let (fit, unfit) = (Some(Verdict::default()), Some(forgot));
        // The server, what was found before, and a word of why it evicts and forgets.
        let rows = [
            (server(1, 0, "noeviction", "always"), None, [None, None]),
            (server(1, 0, "noeviction", "always"), unfit.clone(), [None, None]),
            (server(1, 1, "noeviction", "always"), fit.clone(), [None, None]),
            (server(1, 1, "noeviction", "always"), unfit, [None, Some("rewriting")]),
            (server(0, 0, "noeviction", "always"), fit.clone(), [None, Some("appendonly no")]),
            (server(1, 0, "noeviction", "everysec"), fit.clone(), [None, Some("everysec")]),
            (server(1, 0, "noeviction", "no"), fit.clone(), [None, Some("appendfsync no")]),
            (server(1, 0, "noeviction", "?"), fit.clone(), [None, Some("CONFIG GET")]),
            (server(1, 0, "allkeys-lru", "always"), fit.clone(), [Some("allkeys-lru"), None]),
            (server(0, 0, "volatile-lru", "always"), fit, [Some("volatile-lru"), Some("appendonly no")]),
        ];
        for (row, (server, before, words)) in rows.into_iter().enumerate() {
            // One that is fit beside it changes nothing.
            let facts = [self::server(1, 0, "noeviction", "always"), server];
            let Verdict { evicts, forgets } = judge(&facts, Eviction::Refuse, before.as_ref());
            for (stored, word) in [evicts, forgets].into_iter().zip(words) {
                assert_eq!(stored.is_some(), word.is_some(), "row {row}: {stored:?}");
                assert!(
                    word.is_none_or(|word| stored.as_ref().is_some_and(|stored| stored.contains(word))),
                    "row {row}: {stored:?}"
                );
            }
        }
        let evicting = [server(1, 0, "allkeys-lru", "always")];
        assert!(judge(&evicting, Eviction::Allow, None).is_fit(), "that was allowed");
    }
}
