//! The suite of [`ReceiptStore`]: heads that grow into one chain, and receipts that a client can check.

mod purge;

use super::all;
use crate::edge::ManualClock;
use crate::port::CouponStore;
use crate::receipt::{HEADS_PER_PAGE_MAX, HeadPage, Receipt, ReceiptReply, ReceiptStore};
use crate::room::RoomStore;
use firstcome_core::coupon::{Claim, CouponLimit, CouponSettings};
use firstcome_core::id::{CouponName, RoomName, UserId};
use firstcome_core::receipt::{Digest, Figures, Subject};
use firstcome_core::room::{Join, RoomSettings};
use firstcome_core::time::Timestamp;
pub use purge::head_purges;
use std::future::Future;
use std::sync::Arc;

/// What a store must be for this suite.
pub trait Published: RoomStore + CouponStore + ReceiptStore + 'static {}

impl<S: RoomStore + CouponStore + ReceiptStore + 'static> Published for S {}

struct Bench<S> {
    store: Arc<S>,
    clock: Arc<ManualClock>,
}

const START_US: i64 = 1_800_000_000_000_000;

/// Tests a store: which numbers a head covers, when a receipt names the admission, chains of coupons, refusals, and that nothing
/// published is contradicted.
///
/// `new_store` returns an empty store on the passed clock; it is called once per case.
///
/// # Panics
/// At the first broken promise.
pub async fn receipts<S: Published, F, Fut>(new_store: F)
where
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    a_number_is_covered_by_the_next_head(Bench::new(&new_store, START_US).await).await;
    a_receipt_names_the_admission_once_a_later_head_is_published(Bench::new(&new_store, START_US).await).await;
    claims_are_covered_in_the_order_of_their_serials(Bench::new(&new_store, START_US).await).await;
    a_closed_room_goes_on_with_its_chain(Bench::new(&new_store, START_US).await).await;
    what_is_unknown_is_refused(Bench::new(&new_store, START_US).await).await;
    joins_at_once_have_receipts_that_agree(Bench::new(&new_store, START_US).await).await;
}

/// Tests that a durable store, after it was closed and opened again, goes on with its chains and its keys.
///
/// `open` opens the same data each time. The suite drops every handle of a store before it opens the next one.
///
/// # Panics
/// At the first broken promise.
pub async fn receipts_reopen<S: Published, F, Fut>(open: F)
where
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    let bench = Bench::new(&open, START_US).await;
    bench.put_room().await;
    let tickets = [bench.join().await, bench.join().await];
    bench.put_coupon(10).await;
    bench.claim("ann").await;
    bench.publish(1_000).await;
    let (before, sold) = (bench.room_heads().await, bench.coupon_heads().await);
    let receipt = bench.receipt(&tickets[1]).await;
    drop(bench);
    let bench = Bench::new(&open, START_US + 5_000_000).await;
    assert_eq!(bench.room_heads().await, before);
    assert_eq!(bench.coupon_heads().await, sold);
    assert_eq!(bench.receipt(&tickets[1]).await.by, receipt.by);
    let late = bench.join().await;
    bench.claim("bob").await;
    bench.publish(1_000).await;
    let after = bench.room_heads().await;
    assert_eq!(after.heads[..before.heads.len()], before.heads[..], "a published head stays");
    assert_eq!(after.key, before.key);
    after.verify().expect("one chain across the restart");
    bench.coupon_heads().await.verify().expect("one chain across the restart");
    let late = bench.receipt(&late).await;
    assert!(receipt.by.by.head.sequence < late.by.by.head.sequence);
    let claim = bench.claim_receipt("bob").await;
    assert_eq!(claim.statement.subject.number(), 2);
}

impl<S: Published> Bench<S> {
    async fn new<F, Fut>(open: &F, at_us: i64) -> Self
    where
        F: Fn(Arc<ManualClock>) -> Fut,
        Fut: Future<Output = S>,
    {
        let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(at_us)));
        Self { store: Arc::new(open(Arc::clone(&clock)).await), clock }
    }

    /// Lets this time pass, ticks, and publishes.
    async fn publish(&self, ms: u64) {
        self.clock.pass_ms(ms);
        self.store.tick().await.expect("the store answers");
        self.store.publish_heads().await.expect("the store answers");
    }

    async fn put_room(&self) {
        let put = self.store.put_room(&room(), RoomSettings::with_slots(1)).await;
        put.expect("the store answers").expect("no rule refuses it");
    }

    async fn put_coupon(&self, limit: u32) {
        let settings = CouponSettings::with_limit(CouponLimit::new(limit).expect("a limit"));
        self.store.put_coupon(&coupon(), settings).await.expect("the store answers").expect("no rule refuses it");
    }

    async fn join(&self) -> String {
        let joined = self.store.join(&room(), Join { user: None, request: None }).await;
        let (_, answer) = joined.expect("the store answers").expect("the room takes it");
        answer.ticket.into()
    }

    async fn claim(&self, user: &str) {
        let user = UserId::parse(user).expect("a user");
        let claim = Claim { user, attributes: None, request: None };
        self.store.claim(&coupon(), claim).await.expect("the store answers").expect("there is one left");
    }

    async fn reply(&self, ticket: &str) -> ReceiptReply {
        self.store.ticket_receipt(&room(), ticket).await.expect("the store answers").expect("the ticket is known")
    }

    /// The receipt of a ticket that a head covers.
    async fn receipt(&self, ticket: &str) -> Receipt {
        let ReceiptReply::Ready(receipt) = self.reply(ticket).await else { panic!("no head covers the ticket") };
        let confirmed = self.room_heads().await.confirm(&receipt).expect("one chain");
        assert_eq!(confirmed, receipt.heads().count(), "each head of a receipt is published");
        sound(*receipt)
    }

    async fn claim_reply(&self, user: &str) -> ReceiptReply {
        self.store.claim_receipt(&coupon(), user).await.expect("the store answers").expect("the coupon is known")
    }

    async fn claim_receipt(&self, user: &str) -> Receipt {
        let ReceiptReply::Ready(receipt) = self.claim_reply(user).await else { panic!("no head covers the claim") };
        self.coupon_heads().await.confirm(&receipt).expect("one chain");
        sound(*receipt)
    }

    async fn room_heads(&self) -> HeadPage {
        let page = self.store.room_heads(&room(), 0, HEADS_PER_PAGE_MAX).await;
        let page = page.expect("the store answers").expect("the room is known");
        page.verify().expect("published heads are one chain");
        page
    }

    async fn coupon_heads(&self) -> HeadPage {
        let page = self.store.coupon_heads(&coupon(), 0, HEADS_PER_PAGE_MAX).await;
        let page = page.expect("the store answers").expect("the coupon is known");
        page.verify().expect("published heads are one chain");
        page
    }
}

fn room() -> RoomName {
    RoomName::parse("sale").expect("a name")
}

fn coupon() -> CouponName {
    CouponName::parse("launch").expect("a name")
}

/// Checks a receipt, also after it went through its text.
fn sound(receipt: Receipt) -> Receipt {
    receipt.verify().expect("the store makes receipts that are");
    assert_eq!(Receipt::parse(&receipt.text()).expect("it is one"), receipt);
    receipt
}

fn admitted_at(receipt: &Receipt) -> Option<Timestamp> {
    match &receipt.statement.subject {
        Subject::Ticket { admission, .. } => admission.as_ref().map(|admission| admission.at),
        Subject::Claim { .. } => None,
    }
}

async fn a_number_is_covered_by_the_next_head<S: Published>(bench: Bench<S>) {
    bench.put_room().await;
    bench.publish(1_000).await;
    assert!(bench.room_heads().await.heads.is_empty(), "a room without a number has nothing to say");
    let first = bench.join().await;
    assert_eq!(bench.reply(&first).await, ReceiptReply::Pending);
    bench.publish(1_000).await;
    let receipt = bench.receipt(&first).await;
    assert_eq!((receipt.statement.by.sequence, receipt.by.before.is_none()), (1, true));
    let Subject::Ticket { number, ticket, .. } = receipt.statement.subject else { panic!("it is about a ticket") };
    assert_eq!((number, ticket), (1, Digest::of(&first)));
    let others = [bench.join().await, bench.join().await];
    assert_eq!(bench.reply(&others[0]).await, ReceiptReply::Pending);
    bench.publish(100).await;
    assert_eq!(bench.room_heads().await.heads.len(), 1, "it is too early for the next head");
    bench.publish(900).await;
    for (number, ticket) in (2..).zip(&others) {
        let receipt = bench.receipt(ticket).await;
        assert_eq!((receipt.statement.by.sequence, receipt.statement.subject.number()), (2, number));
    }
    bench.publish(1_000).await;
    let heads = bench.room_heads().await.heads;
    assert_eq!(heads.len(), 3, "a room with visitors publishes each second");
    let page = bench.store.room_heads(&room(), 1, 1).await.expect("the store answers").expect("it is known");
    assert_eq!(page.heads, heads[1..2]);
    assert_eq!(bench.receipt(&first).await.by, receipt.by, "the head that covers a number stays");
}

async fn a_receipt_names_the_admission_once_a_later_head_is_published<S: Published>(bench: Bench<S>) {
    bench.put_room().await;
    let tickets = [bench.join().await, bench.join().await];
    bench.publish(1_000).await;
    bench.store.poll(&room(), &tickets[0]).await.expect("the store answers").expect("it is known");
    let after = bench.clock.as_ref();
    assert_eq!(admitted_at(&bench.receipt(&tickets[1]).await), None, "it waits");
    bench.publish(1_000).await;
    let inside = bench.receipt(&tickets[0]).await;
    let at = admitted_at(&inside).expect("a head after its admission is published");
    assert!(at < crate::edge::Clock::now(after));
    // The second one follows when the first one leaves.
    bench.store.leave(&room(), &tickets[0]).await.expect("the store answers").expect("it is known");
    bench.store.tick().await.expect("the store answers");
    bench.publish(1_000).await;
    bench.publish(1_000).await;
    let next = bench.receipt(&tickets[1]).await;
    assert!(at < admitted_at(&next).expect("it is inside"));
    let mut fronts = bench.room_heads().await.heads.into_iter().map(|signed| match signed.head.figures {
        Figures::Room { front, .. } => front,
        Figures::Coupon { .. } => panic!("it is a room"),
    });
    assert_eq!(fronts.next_back(), Some(3));
}

async fn claims_are_covered_in_the_order_of_their_serials<S: Published>(bench: Bench<S>) {
    bench.put_coupon(3).await;
    bench.publish(1_000).await;
    assert!(bench.coupon_heads().await.heads.is_empty());
    assert_eq!(bench.claim_reply("ann").await, ReceiptReply::Absent);
    bench.claim("ann").await;
    assert_eq!(bench.claim_reply("ann").await, ReceiptReply::Pending);
    bench.publish(1_000).await;
    bench.claim("bob").await;
    bench.publish(1_000).await;
    bench.publish(1_000).await;
    assert_eq!(bench.coupon_heads().await.heads.len(), 2, "without a change there is no head");
    bench.put_coupon(2).await;
    bench.publish(1_000).await;
    let heads = bench.coupon_heads().await.heads;
    assert_eq!(heads.last().expect("heads").head.figures, Figures::Coupon { limit: 2, issued: 2 });
    for (serial, user) in (1..).zip(["ann", "bob"]) {
        let receipt = bench.claim_receipt(user).await;
        assert_eq!((receipt.statement.by.sequence, receipt.statement.subject.number()), (serial.into(), serial));
    }
}

async fn a_closed_room_goes_on_with_its_chain<S: Published>(bench: Bench<S>) {
    bench.put_room().await;
    let void = [bench.join().await, bench.join().await];
    bench.publish(1_000).await;
    let kept = bench.receipt(&void[1]).await;
    bench.store.close_room(&room()).await.expect("the store answers").expect("it is known");
    bench.publish(1_000).await;
    let refused = bench.store.ticket_receipt(&room(), &void[0]).await.expect("the store answers");
    assert_eq!(refused.err().map(|rejection| rejection.code()), Some("unknown_ticket"), "a closed room has no tickets");
    bench.put_room().await;
    let fresh = bench.join().await;
    bench.publish(1_000).await;
    let receipt = bench.receipt(&fresh).await;
    assert_eq!(receipt.statement.subject.number(), 3);
    let Figures::Room { first, .. } = receipt.by.by.head.figures else { panic!("it is a room") };
    assert_eq!(first, 3, "the numbers before are void");
    let heads = bench.room_heads().await;
    heads.confirm(&kept).expect("a receipt of before the closing stays true");
}

async fn what_is_unknown_is_refused<S: Published>(bench: Bench<S>) {
    let code = |rejection: firstcome_core::room::Rejection| rejection.code();
    let no_room = bench.store.room_heads(&room(), 0, 1).await.expect("the store answers");
    assert_eq!(no_room.err().map(code), Some("unknown_room"));
    let no_room = bench.store.ticket_receipt(&room(), "none").await.expect("the store answers");
    assert_eq!(no_room.err().map(code), Some("unknown_room"));
    let no_coupon = bench.store.coupon_heads(&coupon(), 0, 1).await.expect("the store answers");
    assert_eq!(no_coupon.err().map(|refused| refused.rejection.code()), Some("unknown_coupon"));
    let no_coupon = bench.store.claim_receipt(&coupon(), "ann").await.expect("the store answers");
    assert_eq!(no_coupon.err().map(|refused| refused.rejection.code()), Some("unknown_coupon"));
    bench.put_room().await;
    let ticket = bench.join().await;
    let no_ticket = bench.store.ticket_receipt(&room(), &ticket[1..]).await.expect("the store answers");
    assert_eq!(no_ticket.err().map(code), Some("unknown_ticket"));
}

async fn joins_at_once_have_receipts_that_agree<S: Published>(bench: Bench<S>) {
    bench.put_room().await;
    let mut tickets = Vec::new();
    for _ in 0..5 {
        let joins = (0..20).map(|_| {
            let store = Arc::clone(&bench.store);
            async move {
                let joined = store.join(&room(), Join { user: None, request: None }).await;
                joined.expect("the store answers").expect("the room takes it").1.ticket
            }
        });
        tickets.extend(all(joins).await);
        bench.publish(1_000).await;
    }
    let mut numbers = Vec::new();
    for ticket in &tickets {
        numbers.push(bench.receipt(ticket).await.statement.subject.number());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=100).collect::<Vec<u32>>());
}
