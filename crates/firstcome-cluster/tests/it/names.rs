//! What a deployment has, page by page, in the order of bytes, whatever order a database knows beside.

use crate::world::{World, options};
use crate::{claim_replies, in_time};
use firstcome_cluster::Cluster;
use firstcome_sql::SqlAuctions;
use firstcome_store::core::auction::ListingSettings;
use firstcome_store::core::id::{CouponName, ListingName, MemberName, RoomName};
use firstcome_store::core::points::Amount;
use firstcome_store::core::room::RoomSettings;
use firstcome_store::core::time::Timestamp;
use firstcome_store::{AuctionStore, CouponStore, Names, RoomStore};
use firstcome_test_servers::Kind;
use std::fmt::{Debug, Display};

/// In the order of a dictionary `a` is before `B`, and `a-2` after `a10`.
const NAMES: [&str; 5] = ["B", "a", "a-2", "a10", "b"];

/// Reads all names in pages of two.
async fn check<N: Display + Debug>(page: impl AsyncFn(Option<&N>) -> Names<N>) {
    let (mut told, mut after) = (Vec::new(), None);
    loop {
        let Names { items, next } = page(after.as_ref()).await;
        assert!(items.len() <= 2, "{items:?}");
        told.extend(items.iter().map(|name| name.to_string()));
        match next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(told, NAMES);
}

async fn names_have_pages(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    let node: Cluster = place.node().await;
    let auctions = SqlAuctions::open_with(&place.sql, options().database).await.expect("it opens");
    let ends_at = Timestamp::clamped_us(place.keeper().await.now_us().await + 3_600_000_000);
    for name in NAMES.iter().rev() {
        let coupon = CouponName::parse(name).expect("a name");
        node.put_coupon(&coupon, claim_replies::limit(1)).await.expect("it answers").expect("it is put");
        let room = RoomName::parse(name).expect("a name");
        node.put_room(&room, RoomSettings::with_slots(1)).await.expect("it answers").expect("it is put");
        let (listing, owner) = (ListingName::parse(name).expect("a name"), MemberName::parse(name).expect("a name"));
        let settings = ListingSettings::auction(owner, Amount::new(1).expect("an amount"), ends_at);
        auctions.put_listing(&listing, settings).await.expect("it answers").expect("it is put");
    }
    check(async |after| node.coupon_names(after, 2).await.expect("it answers")).await;
    check(async |after| node.room_names(after, 2).await.expect("it answers")).await;
    let known = "SQL knows its names";
    check(async |after| auctions.listing_names(after, 2).await.expect("it answers").expect(known)).await;
    check(async |after| auctions.member_names(after, 2).await.expect("it answers").expect(known)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_have_pages_in_postgres() {
    in_time(names_have_pages(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_have_pages_in_mariadb() {
    in_time(names_have_pages(Kind::MariaDb)).await;
}
