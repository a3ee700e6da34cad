//! Heads and receipts after a purge: the client answers as the store behind the service does.

use crate::service::{Service, soon};
use firstcome_store::core::coupon::{Claim, CouponLimit, CouponSettings};
use firstcome_store::core::id::{CouponName, RoomName, UserId};
use firstcome_store::core::room::{Join, RoomSettings};
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::ManualClock;
use firstcome_store::purge::{PurgeRequest, PurgeStore, Retention};
use firstcome_store::{CouponStore, Embedded, ReceiptReply, ReceiptStore, RoomStore};
use std::sync::Arc;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);
const DAY_MS: u64 = 86_400_000;

fn room() -> RoomName {
    RoomName::parse("sale").expect("a name")
}

fn coupon() -> CouponName {
    CouponName::parse("launch").expect("a name")
}

/// Joins, claims and publishes in each of three seconds. Returns the tickets.
async fn publish(store: &Embedded, clock: &ManualClock, users: [&str; 3]) -> Vec<String> {
    let mut tickets = Vec::new();
    for user in users {
        let joined = store.join(&room(), Join { user: None, request: None }).await;
        tickets.push(joined.expect("an answer").expect("a place").1.ticket.into());
        let claim = Claim { user: UserId::parse(user).expect("a user"), attributes: None, request: None };
        store.claim(&coupon(), claim).await.expect("an answer").expect("a claim");
        clock.pass_ms(1_000);
        store.tick().await.expect("an answer");
        store.publish_heads().await.expect("an answer");
    }
    tickets
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_a_purge_removed_are_told_as_the_store_tells_them() {
    let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(1_800_000_000_000_000)));
    let service = soon(Service::on_manual(Arc::clone(&clock))).await;
    let (store, client) = (service.store.clone(), service.client());
    store.put_room(&room(), RoomSettings::with_slots(1)).await.expect("an answer").expect("a room");
    let settings = CouponSettings::with_limit(CouponLimit::new(9).expect("a limit"));
    store.put_coupon(&coupon(), settings).await.expect("an answer").expect("a coupon");
    let old = publish(&store, &clock, ["ann", "bob", "cid"]).await;
    clock.pass_ms(2 * DAY_MS);
    store.tick().await.expect("an answer");
    let late = publish(&store, &clock, ["dan", "eve", "fay"]).await;
    let request = PurgeRequest::new(Retention { heads: Some(DAY), ..Retention::FOREVER });
    let purged = store.purge(request).await.expect("an answer").expect("it is purged");
    assert_eq!(purged.heads, 2 + 2, "of the room and of the coupon");

    for after in [0, 1, 2, 4, 99] {
        let told = soon(client.room_heads(&room(), after, 9)).await.expect("an answer").expect("a page");
        let wanted = store.room_heads(&room(), after, 9).await.expect("an answer").expect("a page");
        assert_eq!(told, wanted, "{after}");
        let told = soon(client.coupon_heads(&coupon(), after, 9)).await.expect("an answer").expect("a page");
        let wanted = store.coupon_heads(&coupon(), after, 9).await.expect("an answer").expect("a page");
        assert_eq!(told, wanted, "{after}");
    }
    let gap = soon(client.room_heads(&room(), 1, 9)).await.expect("an answer").expect("a page");
    assert_eq!(gap.removed_to(1), Some(2));

    let of_ticket = async |ticket: &str| soon(client.ticket_receipt(&room(), ticket)).await.expect("an answer");
    assert_eq!(of_ticket(&old[0]).await, Ok(ReceiptReply::Removed));
    assert!(matches!(of_ticket(&late[2]).await, Ok(ReceiptReply::Ready(_))));
    let of_claim = async |user: &str| soon(client.claim_receipt(&coupon(), user)).await.expect("an answer");
    assert_eq!(of_claim("ann").await.expect("a coupon"), ReceiptReply::Removed);
    assert!(matches!(of_claim("fay").await, Ok(ReceiptReply::Ready(_))));
}
