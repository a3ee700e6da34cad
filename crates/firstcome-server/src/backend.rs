//! What the rows of coupons and rooms are served from: the embedded store, or one node of a cluster.

use firstcome::cluster::{Cluster, DeadLetter};
use firstcome::core::coupon::{Claim, CouponSettings, Effect, Serial};
use firstcome::core::id::{CouponName, RoomName};
use firstcome::core::revision::Revision;
use firstcome::core::room::{Join, Rejection, RoomSettings, TicketNumber};
use firstcome::core::time::{Steady, Timestamp};
use firstcome::edge::{Clock, SystemClock};
use firstcome::embedded::journal::PassSecret;
use firstcome::{
    Answer, ClaimRecord, ClaimReply, CouponStore, CouponView, Durability, Embedded, Fault, Faults, Joining, Numbered,
    Page, PassCheck, Put, RedeemRequest, Refused, RoomAnswer, RoomStore, RoomSummary, Shared, StoreError, TicketAnswer,
};
use std::sync::Arc;
use std::time::Duration;

/// The store of a service. Cheap to clone. What each call promises stands at the port of the same name.
#[derive(Clone)]
pub(crate) enum Backend {
    /// In this process.
    Embedded(Embedded),
    /// Over Redis and a database, which other nodes share.
    Fleet(Cluster, Arc<Beside>),
}

/// What a node has beside the deployment.
pub(crate) struct Beside {
    clock: SystemClock,
    /// What a client may ask for without a key.
    coupons: Shared<CouponName, Result<CouponView, Refused>>,
    rooms: Shared<RoomName, Result<RoomSummary, Rejection>>,
}

/// What is shown without a key is at most so old, as the copies of rooms are.
pub(crate) const SHOWN_MAX: Duration = Duration::from_millis(250);
/// Names whose views are kept. Beyond it they are asked for again.
pub(crate) const SHOWN_COUNT_MAX: usize = 16_384;

impl Default for Beside {
    fn default() -> Self {
        let coupons = Shared::new(SHOWN_MAX, SHOWN_COUNT_MAX);
        Self { clock: SystemClock::default(), coupons, rooms: Shared::new(SHOWN_MAX, SHOWN_COUNT_MAX) }
    }
}

/// The same on both.
macro_rules! on {
    ($backend:expr, $store:ident => $what:expr) => {
        match $backend {
            Backend::Embedded($store) => $what,
            Backend::Fleet($store, _) => $what,
        }
    };
}

/// The same of a call that is waited for. That over a cluster is a future of some kilobytes: in a box it does not make those
/// larger, and dearer to move, that wait for the store in this process.
macro_rules! told {
    ($backend:expr, $store:ident => $call:expr) => {
        match $backend {
            Backend::Embedded($store) => $call.await,
            Backend::Fleet($store, _) => Box::pin($call).await,
        }
    };
}

impl Backend {
    /// One node of a cluster, which says the time by this machine's clock. Rules go by the servers' clocks.
    pub(crate) fn cluster(cluster: Cluster) -> Self {
        Self::Fleet(cluster, Arc::default())
    }

    pub(crate) const fn as_embedded(&self) -> Option<&Embedded> {
        match self {
            Self::Embedded(store) => Some(store),
            Self::Fleet(..) => None,
        }
    }

    pub(crate) const fn as_fleet(&self) -> Option<&Cluster> {
        match self {
            Self::Embedded(_) => None,
            Self::Fleet(cluster, _) => Some(cluster),
        }
    }

    /// What time it is, for what is told. Never falls.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Embedded(store) => store.now(),
            Self::Fleet(_, beside) => beside.clock.now(),
        }
    }

    /// The same on a clock that no client can set.
    pub(crate) fn steady(&self) -> Steady {
        match self {
            Self::Embedded(store) => store.steady(),
            Self::Fleet(_, beside) => beside.clock.steady(),
        }
    }

    /// Why it takes no writes, as far as this process knows without asking anybody.
    pub(crate) fn fault(&self) -> Option<Arc<Fault>> {
        self.as_embedded().and_then(Embedded::fault)
    }

    /// The faults that stop a part of it, and are open now.
    pub(crate) fn faults(&self) -> Faults {
        match self {
            Self::Embedded(store) => store.faults(),
            Self::Fleet(cluster, _) => cluster.faults(),
        }
    }

    /// Whether what it rests on answers. That of the embedded store is in this process.
    pub(crate) async fn answers(&self) -> Result<(), StoreError> {
        match self {
            Self::Embedded(_) => Ok(()),
            Self::Fleet(cluster, _) => Box::pin(cluster.answers()).await,
        }
    }

    pub(crate) fn durability(&self) -> Durability {
        on!(self, store => store.durability())
    }

    pub(crate) async fn put_coupon(&self, coupon: &CouponName, revision: Revision<CouponSettings>) -> Answer<Put> {
        let told = told!(self, store => store.put_coupon(coupon, revision));
        self.forget_coupon(coupon);
        told
    }

    pub(crate) async fn delete_coupon(&self, coupon: &CouponName) -> Answer<()> {
        let told = told!(self, store => store.delete_coupon(coupon));
        self.forget_coupon(coupon);
        told
    }

    /// The coupon as it is shown without a key: over a cluster at most [`SHOWN_MAX`] old, and with all that this node has done.
    pub(crate) async fn coupon(&self, coupon: &CouponName) -> Answer<CouponView> {
        match self {
            Self::Embedded(store) => store.coupon(coupon).await,
            Self::Fleet(cluster, beside) => Box::pin(beside.coupons.get(coupon, cluster.coupon(coupon))).await,
        }
    }

    /// The coupon as it is now, for what a claim rests on.
    pub(crate) async fn coupon_now(&self, coupon: &CouponName) -> Answer<CouponView> {
        told!(self, store => store.coupon(coupon))
    }

    fn forget_coupon(&self, coupon: &CouponName) {
        if let Self::Fleet(_, beside) = self {
            beside.coupons.forget(coupon);
        }
    }

    fn forget_room(&self, room: &RoomName) {
        if let Self::Fleet(_, beside) = self {
            beside.rooms.forget(room);
        }
    }

    pub(crate) async fn claim_early(&self, coupon: &CouponName, claim: Claim) -> Answer<Effect<ClaimReply>> {
        let told = told!(self, store => store.claim_early(coupon, claim));
        self.forget_coupon(coupon);
        told
    }

    pub(crate) async fn claim_of(&self, coupon: &CouponName, user: &str) -> Answer<Option<ClaimRecord>> {
        told!(self, store => store.claim_of(coupon, user))
    }

    pub(crate) async fn claims(
        &self,
        coupon: &CouponName,
        after: Option<Serial>,
        count: usize,
    ) -> Answer<Page<ClaimRecord>> {
        told!(self, store => store.claims(coupon, after, count))
    }

    pub(crate) async fn redeem(&self, coupon: &CouponName, redeem: RedeemRequest) -> Answer<Effect<ClaimRecord>> {
        told!(self, store => store.redeem(coupon, redeem))
    }

    /// What no client could read of what was claimed. The embedded store has no such thing.
    pub(crate) async fn dead_letters(
        &self,
        coupon: &CouponName,
        after: Option<u64>,
        count: usize,
    ) -> Answer<Numbered<DeadLetter>> {
        match self {
            Self::Embedded(store) => {
                let known = store.coupon(coupon).await?;
                Ok(known.map(|_| Numbered { items: Vec::new(), next: None }))
            }
            Self::Fleet(cluster, _) => Box::pin(cluster.dead_letters(coupon, after, count)).await,
        }
    }

    pub(crate) async fn put_room(&self, room: &RoomName, revision: Revision<RoomSettings>) -> RoomAnswer<Put> {
        let told = told!(self, store => store.put_room(room, revision));
        self.forget_room(room);
        told
    }

    pub(crate) async fn close_room(&self, room: &RoomName) -> RoomAnswer<()> {
        let told = told!(self, store => store.close_room(room));
        self.forget_room(room);
        told
    }

    /// The room as it is now, for what an operator decides on.
    pub(crate) async fn room_now(&self, room: &RoomName) -> RoomAnswer<RoomSummary> {
        told!(self, store => store.room(room))
    }

    /// The room as it is shown without a key, as [`Self::coupon`] is.
    pub(crate) async fn room(&self, room: &RoomName) -> RoomAnswer<RoomSummary> {
        match self {
            Self::Embedded(store) => store.room(room).await,
            Self::Fleet(cluster, beside) => Box::pin(beside.rooms.get(room, cluster.room(room))).await,
        }
    }

    pub(crate) async fn join(&self, room: &RoomName, join: Join) -> RoomAnswer<(Joining, TicketAnswer)> {
        let told = told!(self, store => store.join(room, join));
        self.forget_room(room);
        told
    }

    pub(crate) async fn poll(&self, room: &RoomName, ticket: &str) -> RoomAnswer<TicketAnswer> {
        told!(self, store => store.poll(room, ticket))
    }

    /// A poll that is answered without waiting for anything, if it can be.
    pub(crate) fn poll_settled(&self, room: &str, ticket: &str) -> Option<Result<TicketAnswer, Rejection>> {
        on!(self, store => store.poll_settled(room, ticket))
    }

    pub(crate) async fn leave(&self, room: &RoomName, ticket: &str) -> RoomAnswer<()> {
        let told = told!(self, store => store.leave(room, ticket));
        self.forget_room(room);
        told
    }

    pub(crate) async fn release(&self, room: &RoomName, number: TicketNumber, admission: u64) -> RoomAnswer<()> {
        let told = told!(self, store => store.release(room, number, admission));
        self.forget_room(room);
        told
    }

    pub(crate) async fn check_pass(
        &self,
        room: &RoomName,
        number: TicketNumber,
        admission: u64,
    ) -> RoomAnswer<Option<PassCheck>> {
        told!(self, store => store.check_pass(room, number, admission))
    }

    pub(crate) fn pass_secrets(&self) -> Vec<PassSecret> {
        on!(self, store => store.pass_secrets())
    }

    pub(crate) fn newest_pass_secret(&self) -> Option<u32> {
        on!(self, store => store.newest_pass_secret())
    }

    /// Looks whether there are other secrets of passes than are known here.
    pub(crate) async fn refresh_pass_secrets(&self) -> Result<(), StoreError> {
        match self {
            // No other client makes any.
            Self::Embedded(_) => Ok(()),
            Self::Fleet(cluster, _) => Box::pin(cluster.refresh_pass_secrets()).await,
        }
    }

    pub(crate) async fn rotate_pass_secret(&self) -> Result<PassSecret, StoreError> {
        told!(self, store => store.rotate_pass_secret())
    }
}
