//! The suites that every adapter passes, over HTTP.

use crate::service::{Service, soon};
use firstcome_client::HttpStore;
use firstcome_store::conformance::{self, AuctionSizes, LetPass};
use firstcome_store::core::auction::{Bid, ListingSettings, PlacedBid, Sale};
use firstcome_store::core::coupon::{Attributes, Claim, CouponSettings, Effect, Serial};
use firstcome_store::core::id::{CouponName, ListingName, MemberName, RoomName, UserId};
use firstcome_store::core::points::{Balance, Record};
use firstcome_store::core::revision::Revision;
use firstcome_store::core::room::appearance::Appearance;
use firstcome_store::core::room::{Join, OriginReport, RatePace, RenewalKey, RoomSettings, TicketNumber};
use firstcome_store::edge::ManualClock;
use firstcome_store::embedded::journal::{PassSecret, PassSecretRevocation};
use firstcome_store::{
    Answer, AuctionAnswer, AuctionStore, ClaimRecord, Claimed, Closings, CouponStore, CouponView, Durability, Embedded,
    EraseAnswer, EraseStore, Handoff, HeadPage, Joining, ListingView, LiveAdmissions, MovePoints, Numbered, Page,
    PassCheck, PlaceBid, Purchase, Put, ReceiptReply, ReceiptStore, RedeemRequest, RoomAnswer, RoomStore, RoomSummary,
    StoreError, TicketAnswer,
};
use std::sync::Arc;

/// The store over HTTP. What the HTTP API cannot express goes to the store of the service itself: an end before the
/// opening, attributes that are no JSON object, the trigger and the count of what the service does by itself (closings,
/// admissions), and the secrets of passes. All else goes over the socket.
struct Remote {
    http: HttpStore,
    behind: Embedded,
    /// Stops when it is dropped.
    _service: Service,
}

impl Remote {
    async fn new(service: Service) -> Self {
        // The service refuses a coupon whose room is not there.
        for room in ["blue", "red", "room"] {
            let room = RoomName::parse(room).expect("a name");
            let put = service.store.put_room(&room, RoomSettings::with_slots(1)).await;
            put.expect("it answers").expect("it is put");
        }
        Self::over(service)
    }

    fn over(service: Service) -> Self {
        Self { http: service.client(), behind: service.store.clone(), _service: service }
    }
}

fn never_opens(settings: &CouponSettings) -> bool {
    matches!((settings.opens_at, settings.expires_at), (Some(opens_at), Some(expires_at)) if expires_at <= opens_at)
}

fn is_no_object(attributes: Option<&Attributes>) -> bool {
    attributes.is_some_and(|text| !text.as_str().starts_with('{'))
}

impl CouponStore for Remote {
    fn durability(&self) -> Durability {
        self.http.durability()
    }

    async fn put_coupon(
        &self,
        coupon: &CouponName,
        revision: impl Into<Revision<CouponSettings>> + Send,
    ) -> Answer<Put> {
        let revision = revision.into();
        if never_opens(&revision.settings) {
            return self.behind.put_coupon(coupon, revision).await;
        }
        self.http.put_coupon(coupon, revision).await
    }

    async fn delete_coupon(&self, coupon: &CouponName) -> Answer<()> {
        self.http.delete_coupon(coupon).await
    }

    async fn coupon(&self, coupon: &CouponName) -> Answer<CouponView> {
        self.http.coupon(coupon).await
    }

    async fn claim(&self, coupon: &CouponName, claim: Claim) -> Answer<Effect<Claimed>> {
        if is_no_object(claim.attributes.as_ref()) {
            return self.behind.claim(coupon, claim).await;
        }
        self.http.claim(coupon, claim).await
    }

    async fn claim_of(&self, coupon: &CouponName, user: &str) -> Answer<Option<ClaimRecord>> {
        let kept = self.behind.claim_of(coupon, user).await;
        match &kept {
            Ok(Ok(Some(record))) if is_no_object(record.attributes.as_ref()) => kept,
            _ => self.http.claim_of(coupon, user).await,
        }
    }

    async fn claims(&self, coupon: &CouponName, after: Option<Serial>, count: usize) -> Answer<Page<ClaimRecord>> {
        self.http.claims(coupon, after, count).await
    }

    async fn redeem(&self, coupon: &CouponName, redeem: RedeemRequest) -> Answer<Effect<ClaimRecord>> {
        self.http.redeem(coupon, redeem).await
    }
}

impl AuctionStore for Remote {
    async fn put_listing(
        &self,
        listing: &ListingName,
        revision: impl Into<Revision<ListingSettings>> + Send,
    ) -> AuctionAnswer<Put> {
        self.http.put_listing(listing, revision).await
    }

    async fn listing(&self, listing: &ListingName) -> AuctionAnswer<ListingView> {
        self.http.listing(listing).await
    }

    async fn bids(&self, listing: &ListingName, after: Option<u64>, count: usize) -> AuctionAnswer<Numbered<Bid>> {
        self.http.bids(listing, after, count).await
    }

    async fn place_bid(&self, listing: &ListingName, bid: PlaceBid) -> AuctionAnswer<Effect<PlacedBid>> {
        self.http.place_bid(listing, bid).await
    }

    async fn purchase(&self, listing: &ListingName, purchase: Purchase) -> AuctionAnswer<Effect<Sale>> {
        self.http.purchase(listing, purchase).await
    }

    async fn move_points(&self, member: &MemberName, movement: MovePoints) -> AuctionAnswer<Effect<Balance>> {
        self.http.move_points(member, movement).await
    }

    async fn balance(&self, member: &MemberName) -> Result<Balance, StoreError> {
        self.http.balance(member).await
    }

    async fn records(
        &self,
        member: &MemberName,
        after: Option<u64>,
        count: usize,
    ) -> Result<Numbered<Record>, StoreError> {
        self.http.records(member, after, count).await
    }

    async fn close_due(&self) -> Result<(), StoreError> {
        self.http.close_due().await?;
        self.behind.close_due().await
    }

    fn closings(&self) -> Closings {
        assert_eq!(self.http.closings(), Closings::default(), "as it is documented");
        self.behind.closings()
    }
}

impl RoomStore for Remote {
    async fn admissions(&self, room: &RoomName) -> RoomAnswer<LiveAdmissions> {
        self.http.admissions(room).await
    }

    async fn put_room(&self, room: &RoomName, revision: impl Into<Revision<RoomSettings>> + Send) -> RoomAnswer<Put> {
        self.http.put_room(room, revision).await
    }

    async fn close_room(&self, room: &RoomName) -> RoomAnswer<()> {
        self.http.close_room(room).await
    }

    async fn room(&self, room: &RoomName) -> RoomAnswer<RoomSummary> {
        let mut told = self.http.room(room).await;
        if let (Ok(Ok(told)), Ok(Ok(kept))) = (&mut told, self.behind.room(room).await) {
            // The service rounds the rate.
            let (rounded, exact) = (told.view.rate, kept.view.rate);
            assert!((rounded - exact).abs() <= 0.000_501, "{rounded} is not {exact}");
            told.view.rate = exact;
        }
        told
    }

    async fn put_appearance(&self, room: &RoomName, appearance: Appearance) -> RoomAnswer<()> {
        self.http.put_appearance(room, appearance).await
    }

    async fn appearance(&self, room: &RoomName) -> RoomAnswer<Arc<Appearance>> {
        self.http.appearance(room).await
    }

    async fn join(&self, room: &RoomName, join: Join) -> RoomAnswer<(Joining, TicketAnswer)> {
        self.http.join(room, join).await
    }

    async fn poll(&self, room: &RoomName, ticket: &str) -> RoomAnswer<TicketAnswer> {
        self.http.poll(room, ticket).await
    }

    async fn renew(&self, room: &RoomName, ticket: &str, key: RenewalKey) -> RoomAnswer<TicketAnswer> {
        self.http.renew(room, ticket, key).await
    }

    async fn hand_off(&self, room: &RoomName, ticket: &str) -> RoomAnswer<Handoff> {
        self.http.hand_off(room, ticket).await
    }

    async fn redeem_handoff(&self, room: &RoomName, code: &str, key: RenewalKey) -> RoomAnswer<TicketAnswer> {
        self.http.redeem_handoff(room, code, key).await
    }

    async fn leave(&self, room: &RoomName, ticket: &str) -> RoomAnswer<()> {
        self.http.leave(room, ticket).await
    }

    async fn release(&self, room: &RoomName, number: TicketNumber, admission: u64) -> RoomAnswer<()> {
        self.http.release(room, number, admission).await
    }

    async fn check_pass(&self, room: &RoomName, number: TicketNumber, admission: u64) -> RoomAnswer<Option<PassCheck>> {
        self.http.check_pass(room, number, admission).await
    }

    async fn report_origin(&self, room: &RoomName, report: OriginReport) -> RoomAnswer<RatePace> {
        self.http.report_origin(room, report).await
    }

    async fn tick(&self) -> Result<(), StoreError> {
        self.http.tick().await?;
        self.behind.tick().await
    }

    fn pass_secrets(&self) -> Vec<PassSecret> {
        assert_eq!(self.http.pass_secrets(), [], "as it is documented");
        self.behind.pass_secrets()
    }

    async fn rotate_pass_secret(&self) -> Result<PassSecret, StoreError> {
        assert!(self.http.rotate_pass_secret().await.is_err(), "as it is documented");
        self.behind.rotate_pass_secret().await
    }

    async fn revoke_pass_secret(&self, id: u32) -> Result<PassSecretRevocation, StoreError> {
        self.http.revoke_pass_secret(id).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rooms_over_http_keep_every_promise_of_the_port() {
    soon(conformance::room(|clock: Arc<ManualClock>| async move {
        // Without rooms: the suite counts their secrets from the first one.
        Remote::over(Service::on_manual(clock).await)
    }))
    .await;
}

impl ReceiptStore for Remote {
    async fn publish_heads(&self) -> Result<(), StoreError> {
        self.http.publish_heads().await?;
        self.behind.publish_heads().await
    }

    async fn room_heads(&self, room: &RoomName, after: u64, count: usize) -> RoomAnswer<HeadPage> {
        self.http.room_heads(room, after, count).await
    }

    async fn coupon_heads(&self, coupon: &CouponName, after: u64, count: usize) -> Answer<HeadPage> {
        self.http.coupon_heads(coupon, after, count).await
    }

    async fn ticket_receipt(&self, room: &RoomName, ticket: &str) -> RoomAnswer<ReceiptReply> {
        self.http.ticket_receipt(room, ticket).await
    }

    async fn claim_receipt(&self, coupon: &CouponName, user: &str) -> Answer<ReceiptReply> {
        self.http.claim_receipt(coupon, user).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_over_http_keep_every_promise_of_the_port() {
    soon(conformance::receipts(|clock: Arc<ManualClock>| async move { Remote::over(Service::on_manual(clock).await) }))
        .await;
}

impl EraseStore for Remote {
    async fn erase(&self, user: &UserId) -> EraseAnswer {
        self.http.erase(user).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasures_over_http_keep_every_promise_of_the_port() {
    soon(conformance::erasures(|clock: Arc<ManualClock>| async move { Remote::over(Service::on_manual(clock).await) }))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coupons_over_http_keep_every_promise_of_the_port() {
    soon(conformance::coupon(
        |clock: Arc<ManualClock>| async move { Remote::new(Service::on_manual(clock).await).await },
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auctions_and_points_over_http_keep_every_promise_of_the_port() {
    let sizes = AuctionSizes { sequences: 6, ..AuctionSizes::SMALL };
    soon(conformance::auctions(sizes, || async {
        let (clock, pass): (Arc<ManualClock>, LetPass) = conformance::manual_clock();
        (Remote::new(Service::on_manual(clock).await).await, pass)
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auctions_over_http_follow_the_clock_to_the_microsecond() {
    soon(conformance::auction_by_the_clock(|clock: Arc<ManualClock>| async move {
        Remote::new(Service::on_manual(clock).await).await
    }))
    .await;
}
