//! The suite of purges of heads: what goes, what stays, and what a caller is told who comes too late.

use super::{Bench, Published, coupon, room};
use crate::edge::{Clock, ManualClock};
use crate::purge::{PurgeMode, PurgeRequest, PurgeStore, Purged, Retention};
use crate::receipt::{HeadPage, ReceiptReply, SignedHead};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

const DAY_MS: u64 = 86_400_000;
/// More than a page of any store.
const MANY: u64 = 1_100;

impl<S: Published + PurgeStore> Bench<S> {
    /// Purges heads that are older than a day.
    async fn purge(&self) -> u64 {
        self.purge_kept(Duration::from_secs(86_400)).await
    }

    /// Purges heads that were kept for so long, after a dry run that must count the same. Returns how many went.
    async fn purge_kept(&self, heads: Duration) -> u64 {
        let retention = Retention { heads: Some(heads), ..Retention::FOREVER };
        let request = PurgeRequest::new(retention);
        let counted = PurgeRequest { mode: PurgeMode::Count, ..request };
        let counted = self.store.purge(counted).await.expect("the store answers").expect("the clock is right");
        let purged = self.store.purge(request).await.expect("the store answers").expect("the clock is right");
        assert_eq!(counted, purged, "a dry run counts what goes");
        assert_eq!(purged, Purged { heads: purged.heads, ..Purged::default() }, "nothing else goes");
        purged.heads
    }

    /// How many heads have a next one that is older than a day.
    fn due(&self, heads: &[SignedHead]) -> usize {
        let since_us = self.clock.now().as_us() - 86_400_000_000;
        heads.windows(2).take_while(|pair| pair[1].head.at.as_us() < since_us).count()
    }

    async fn room_page(&self, after: u64) -> HeadPage {
        let page = self.store.room_heads(&room(), after, 9).await;
        page.expect("the store answers").expect("the room is known")
    }

    async fn coupon_page(&self, after: u64) -> HeadPage {
        let page = self.store.coupon_heads(&coupon(), after, 9).await;
        page.expect("the store answers").expect("the coupon is known")
    }
}

/// Tests a store that is empty. `verify` checks every stored invariant.
///
/// # Panics
/// At the first broken promise.
pub async fn head_purges<S, F, Fut>(new_store: F, verify: impl AsyncFn())
where
    S: Published + PurgeStore,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    let bench = Bench::new(&new_store, super::START_US).await;
    bench.put_room().await;
    bench.put_coupon(20).await;
    old_heads_go(&bench, &verify).await;
    the_newest_head_stays(&bench, &verify).await;
    many_heads_go_in_pages(&bench, &verify).await;
}

async fn old_heads_go<S: Published + PurgeStore>(bench: &Bench<S>, verify: &impl AsyncFn()) {
    let mut tickets = Vec::new();
    for user in ["ann", "bob", "cyd"] {
        tickets.push(bench.join().await);
        bench.claim(user).await;
        bench.publish(1_000).await;
    }
    let early = bench.receipt(&tickets[0]).await;
    assert_eq!(bench.purge_kept(Duration::ZERO).await, 0, "heads of today stay with the shortest time too");
    bench.clock.pass_ms(2 * DAY_MS);
    let late = bench.join().await;
    bench.claim("dan").await;
    bench.publish(1_000).await;
    let later = bench.join().await;
    bench.publish(1_000).await;
    let (room_before, coupon_before) = (bench.room_heads().await.heads, bench.coupon_heads().await.heads);
    let (of_room, of_coupon) = (bench.due(&room_before), bench.due(&coupon_before));
    assert_eq!((2 <= of_room, of_coupon), (true, 2), "three heads of each are old, and the last of them stays");
    assert_eq!(bench.purge().await, (of_room + of_coupon) as u64);
    verify().await;
    // The rest is as it was, and says where it begins.
    let (room_page, coupon_page) = (bench.room_heads().await, bench.coupon_heads().await);
    assert_eq!((&room_page.heads[..], &coupon_page.heads[..]), (&room_before[of_room..], &coupon_before[of_coupon..]));
    let removed = of_room as u64;
    for (after, says) in [(0, Some(removed)), (removed - 1, Some(removed)), (removed, None), (removed + 1, None)] {
        assert_eq!(bench.room_page(after).await.removed_to(after), says, "after {after}");
    }
    assert_eq!(bench.coupon_page(1).await.removed_to(1), Some(2));
    // What came within the day has its receipt, with the head before.
    for ticket in [&late, &later] {
        assert!(bench.receipt(ticket).await.by.before.is_some());
    }
    bench.claim_receipt("dan").await;
    for user in ["ann", "bob", "cyd"] {
        assert_eq!(bench.claim_reply(user).await, ReceiptReply::Removed, "{user}");
    }
    // A receipt that was given out carries its heads.
    early.verify().expect("it needs no store");
    assert_eq!(room_page.confirm(&early), Ok(0));
    assert_eq!(bench.purge().await, 0);
}

async fn the_newest_head_stays<S: Published + PurgeStore>(bench: &Bench<S>, verify: &impl AsyncFn()) {
    bench.publish(3 * DAY_MS).await;
    let newest = bench.room_heads().await.heads.pop().expect("a head");
    bench.clock.pass_ms(3 * DAY_MS);
    bench.purge().await;
    assert_eq!(bench.room_heads().await.heads, std::slice::from_ref(&newest));
    let last = bench.coupon_heads().await.heads;
    assert_eq!(last.len(), 1);
    let ticket = bench.join().await;
    bench.claim("eve").await;
    bench.publish(1_000).await;
    let (rooms, coupons) = (bench.room_heads().await, bench.coupon_heads().await);
    assert_eq!((rooms.heads.len(), coupons.heads.len()), (2, 2), "the chains go on");
    assert_eq!((&rooms.heads[0], &coupons.heads[0]), (&newest, &last[0]));
    bench.receipt(&ticket).await;
    bench.claim_receipt("eve").await;
    verify().await;
}

async fn many_heads_go_in_pages<S: Published + PurgeStore>(bench: &Bench<S>, verify: &impl AsyncFn()) {
    bench.join().await;
    // No tick between them: the visitors stay in line without a poll.
    for _ in 0..MANY {
        bench.clock.pass_ms(1_000);
        bench.store.publish_heads().await.expect("the store answers");
    }
    let first = bench.room_page(0).await.heads[0].head.sequence;
    bench.clock.pass_ms(2 * DAY_MS);
    let ticket = bench.join().await;
    bench.publish(1_000).await;
    let went = bench.purge().await;
    assert!(MANY <= went, "only {went} went");
    let page = bench.room_page(0).await;
    let left = page.removed_to(0).expect("the first ones went") + 1;
    // One head of the coupon went, and the head before the newest one of the room stays.
    assert_eq!(left - first, went - 1);
    assert_eq!(page.heads.len(), 2);
    bench.receipt(&ticket).await;
    verify().await;
}
