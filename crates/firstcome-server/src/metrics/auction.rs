//! Metrics of bids, purchases and points.

use firstcome::core::auction::Rejection;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// The outcomes of a bid: accepted, or the code of a refusal.
const OUTCOMES: [&str; 8] = [
    "accepted",
    "unknown_listing",
    "idempotency_key_reused",
    "own_listing",
    "not_in_progress",
    "already_highest_bidder",
    "bid_too_low",
    "insufficient_points",
];

/// Why points move between members and the outside, or from one member to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Movement {
    Charge,
    Refund,
    Sale,
}

impl Movement {
    const ALL: [(Self, &'static str); 3] = [(Self::Charge, "charge"), (Self::Refund, "refund"), (Self::Sale, "sale")];
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct MovementLabels {
    kind: &'static str,
}

/// The metric handles, looked up once. Every outcome is registered from the start with a zero. A repeat of a request
/// is not counted again.
pub(crate) struct AuctionFigures {
    bids: [Counter; OUTCOMES.len()],
    moved: [Counter; Movement::ALL.len()],
    purchases: Counter,
}

impl AuctionFigures {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let bids = Family::<OutcomeLabels, Counter>::default();
        registry.register("bids", "Bids that a rule has judged, by what it said", bids.clone());
        let moved = Family::<MovementLabels, Counter>::default();
        registry.register("points_moved", "Points that were charged, refunded, or paid for a thing", moved.clone());
        let purchases = Counter::default();
        registry.register("purchases", "Things that were sold", purchases.clone());
        let moved_by = |(_, kind): (Movement, &'static str)| moved.get_or_create(&MovementLabels { kind }).clone();
        Self {
            bids: OUTCOMES.map(|outcome| bids.get_or_create(&OutcomeLabels { outcome }).clone()),
            moved: Movement::ALL.map(moved_by),
            purchases,
        }
    }

    pub(crate) fn bid_accepted(&self) {
        self.bids[0].inc();
    }

    pub(crate) fn bid_refused(&self, rejection: &Rejection) {
        if let Some(at) = OUTCOMES.iter().position(|outcome| *outcome == rejection.code()) {
            self.bids[at].inc();
        }
    }

    pub(crate) fn moved(&self, movement: Movement, points: u64) {
        self.moved[movement as usize].inc_by(points);
    }

    pub(crate) fn sold(&self, price: u64) {
        self.purchases.inc();
        self.moved(Movement::Sale, price);
    }
}
