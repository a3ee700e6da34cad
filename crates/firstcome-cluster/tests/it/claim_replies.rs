//! What callers were told, and whether the database and all later answers agree.

use crate::world::{Foreign, PATIENCE, TestDeployment};
use firstcome_cluster::Cluster;
use firstcome_store::core::coupon::{Attributes, Claim, CouponLimit, CouponSettings, Effect, Rejection};
use firstcome_store::core::id::{CouponName, RequestId, UserId};
use firstcome_store::core::time::Timestamp;
use firstcome_store::{Answer, ClaimReply, Claimed, CouponStore, StoreError};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The coupon of most tests.
pub(crate) const COUPON: &str = "drop";

pub(crate) fn coupon(name: &str) -> CouponName {
    CouponName::parse(name).expect("a name")
}

pub(crate) fn limit(count: u32) -> CouponSettings {
    CouponSettings::with_limit(CouponLimit::new(count).expect("a limit"))
}

/// A claim without a key.
pub(crate) fn by(user: &str) -> Claim {
    Claim { user: UserId::parse(user).expect("a user"), attributes: None, request: None }
}

/// A claim with a key.
pub(crate) fn keyed(user: &str, key: u128, body: u64) -> Claim {
    Claim { request: Some(RequestId { key, body }), attributes: Attributes::new("{}"), ..by(user) }
}

/// Creates the coupon, or changes its limit.
pub(crate) async fn put(node: &Cluster, settings: CouponSettings) {
    node.put_coupon(&coupon(COUPON), settings).await.expect("it answers").expect("it may be");
}

/// One claim.
pub(crate) async fn claim(node: &Cluster, user: &str) -> Answer<Effect<Claimed>> {
    node.claim(&coupon(COUPON), by(user)).await
}

/// One claim, told as early as the coupon allows.
pub(crate) async fn claim_early(node: &Cluster, user: &str) -> Answer<Effect<ClaimReply>> {
    node.claim_early(&coupon(COUPON), by(user)).await
}

/// A claim that is new.
#[track_caller]
pub(crate) fn new(answer: Answer<Effect<Claimed>>) -> Claimed {
    match answer {
        Ok(Ok(Effect::New(claimed))) => claimed,
        other => panic!("{other:?}"),
    }
}

/// Why nothing was issued.
#[track_caller]
pub(crate) fn refusal(answer: Answer<Effect<Claimed>>) -> Rejection {
    match answer {
        Ok(Err(refused)) => refused.rejection,
        other => panic!("{other:?}"),
    }
}

/// What callers were told.
#[derive(Default)]
struct Kept {
    claims: BTreeMap<String, Claimed>,
    new: usize,
    unknown: usize,
}

/// Callers of one coupon, and what they were told.
#[derive(Clone, Default)]
pub(crate) struct ClaimReplies(Arc<Mutex<Kept>>);

impl ClaimReplies {
    /// Claims once, and takes the answer down. Whether it was one.
    pub(crate) async fn once(&self, node: &Cluster, user: &str) -> bool {
        let answer = claim(node, user).await;
        self.note(user, &answer)
    }

    /// Takes an answer down: what a user was told never changes.
    pub(crate) fn note(&self, user: &str, answer: &Answer<Effect<Claimed>>) -> bool {
        let mut kept = self.0.lock();
        let claimed = match answer {
            Ok(Ok(Effect::New(claimed))) => {
                kept.new += 1;
                claimed
            }
            Ok(Ok(Effect::Again(claimed))) => claimed,
            Ok(Err(refused)) => match (&refused.rejection, &refused.claim) {
                (Rejection::AlreadyIssued(_), Some(claimed)) => claimed,
                (Rejection::SoldOut, None) => {
                    assert!(!kept.claims.contains_key(user), "{user} has one");
                    return true;
                }
                _ => panic!("{user}: {refused:?}"),
            },
            Err(StoreError::Unknown) => {
                kept.unknown += 1;
                return false;
            }
            Err(_) => return false,
        };
        let first = kept.claims.entry(user.to_owned()).or_insert_with(|| claimed.clone());
        assert_eq!(first, claimed, "{user} was told two claims");
        true
    }

    /// Claims until there is an answer.
    async fn until_answered(self, node: Cluster, user: String) {
        let until = Instant::now() + PATIENCE;
        while !self.once(&node, &user).await {
            assert!(Instant::now() < until, "{user} has no answer");
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// How many were told a claim.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().claims.len()
    }

    /// How many were told that it is theirs by this very call.
    pub(crate) fn new_count(&self) -> usize {
        self.0.lock().new
    }

    /// How many calls had no known outcome.
    pub(crate) fn unknown(&self) -> usize {
        self.0.lock().unknown
    }

    /// Users who claim at once, over all the nodes, each until there is an answer.
    pub(crate) async fn crowd(&self, nodes: &[Cluster], users: Range<usize>) {
        let mut crowd = JoinSet::new();
        for number in users {
            let (told, node) = (self.clone(), nodes[number % nodes.len()].clone());
            crowd.spawn(told.until_answered(node, format!("user-{number}")));
        }
        while let Some(done) = crowd.join_next().await {
            done.expect("no caller fails");
        }
    }

    /// Whether the database and the nodes agree with all that was told, and so many are issued.
    pub(crate) async fn check(&self, place: &TestDeployment, nodes: &[Cluster], issued: usize) {
        let mut foreign = place.foreign().await;
        check_rows(&mut foreign, COUPON, issued).await;
        let mut after = None;
        let mut rows = BTreeMap::new();
        let mut last = Timestamp::MIN;
        loop {
            let page = nodes[0].claims(&coupon(COUPON), after, 500).await.expect("it answers").expect("it is there");
            for record in page.items {
                assert!(last <= record.claimed.issued.issued_at, "instants never fall along the serials");
                last = record.claimed.issued.issued_at;
                rows.insert(record.user.into_string(), record.claimed);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(rows.len(), issued);
        let told = self.0.lock().claims.clone();
        for (user, claimed) in told {
            assert_eq!(rows.get(&user), Some(&claimed), "{user}");
            for node in nodes.iter().take(if issued < 50 { 3 } else { 0 }) {
                let record = node.claim_of(&coupon(COUPON), &user).await.expect("it answers").expect("it is there");
                assert_eq!(record.map(|record| record.claimed), Some(claimed.clone()), "{user}");
            }
        }
    }
}

/// The rows of a coupon: so many, one for each user, and serials without a gap.
pub(crate) async fn check_rows(foreign: &mut Foreign, name: &str, issued: usize) {
    let issued = i64::try_from(issued).expect("a small number");
    assert_eq!(foreign.issued(name).await, issued, "claims in the database");
    let of = format!("FROM firstcome_claim WHERE coupon=(SELECT id FROM firstcome_coupon WHERE name='{name}')");
    assert_eq!(foreign.number(&format!("SELECT COUNT(DISTINCT name) {of}")).await, issued, "one for each user");
    assert_eq!(foreign.number(&format!("SELECT COALESCE(MAX(serial),0) {of}")).await, issued, "no gap");
    assert_eq!(foreign.number(&format!("SELECT issued FROM firstcome_coupon WHERE name='{name}'")).await, issued);
}
