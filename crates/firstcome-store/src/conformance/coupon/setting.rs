//! What an operator may change, and what readers see.

use super::*;
use firstcome_core::coupon::Title;
use firstcome_core::id::RoomName;
use firstcome_core::revision::Revision;

fn in_room(count: u32, room: &str) -> CouponSettings {
    CouponSettings { room: RoomName::parse(room).ok(), ..limited(count) }
}

pub(super) async fn a_limit_is_raised_and_lowered_to_what_is_issued<S: CouponStore + 'static>(bench: Bench<S>) {
    let rows = [
        (1, put(1), "created"),
        (1, claim("ann"), "new 1@1"),
        (2, claim("bob"), "sold_out"),
        (3, put(3), "replaced"),
        (3, Step::View, "open 1/3"),
        (4, claim("bob"), "new 2@4"),
        (5, put(1), "limit_below_issued 2"),
        (5, Step::View, "open 2/3"),
        (5, put(2), "replaced"),
        (5, Step::View, "sold_out 2/2"),
        (6, claim("cid"), "sold_out"),
        (7, put(100_000_000), "replaced"),
        (8, claim("cid"), "new 3@8"),
        (9, claim("bob"), "already_issued 2@4"),
    ];
    bench.check("limit", &rows).await;
}

pub(super) async fn the_room_is_fixed_by_the_first_claim<S: CouponStore + 'static>(bench: Bench<S>) {
    let rows = [
        (1, put(5), "created"),
        (1, Step::Put(in_room(5, "blue")), "replaced"),
        (1, Step::Put(in_room(5, "red")), "replaced"),
        (2, claim("ann"), "new 1@2"),
        (2, claim("bob"), "new 2@2"),
        (3, Step::Put(in_room(5, "blue")), "room_fixed"),
        (3, put(5), "room_fixed"),
        (3, Step::Put(in_room(1, "blue")), "limit_below_issued 2"),
        (3, Step::Put(in_room(6, "red")), "replaced"),
        (4, Step::Delete, "gone"),
        (4, Step::Put(in_room(1, "blue")), "deleted"),
    ];
    bench.check("room", &rows).await;
}

pub(super) async fn settings_are_replaced_as_a_whole<S: CouponStore + 'static>(bench: Bench<S>) {
    let coupon = name("whole");
    let longest = "é".repeat(128);
    let full = CouponSettings {
        redeem_until: Some(at(300)),
        title: Title::new(&longest),
        room: RoomName::parse("blue").ok(),
        ..window(7, 100, 200)
    };
    assert!(full.title.is_some(), "a title of 256 bytes fits");
    let other = CouponSettings { title: Title::new(""), ..window(8, -5, 200) };
    for settings in [full.clone(), limited(3), other, full] {
        answered(bench.store.put_coupon(&coupon, settings.clone()).await).expect("nothing is issued yet");
        assert_eq!(bench.view(&coupon).await.settings, settings);
    }
    let refused = answered(bench.store.put_coupon(&name("WHOLE"), limited(1)).await);
    assert_eq!(refused, Ok(Put::Created), "names that differ in case are two");
}

pub(super) async fn a_revision_replaces_only_what_it_names<S: CouponStore + 'static>(bench: Bench<S>) {
    let coupon = name("revised");
    let revise = |limit, replaces| {
        let (store, coupon) = (Arc::clone(&bench.store), coupon.clone());
        let revision = Revision { settings: limited(limit), replaces: Some(limited(replaces)) };
        async move { answered(store.put_coupon(&coupon, revision).await).map_err(|refused| refused.rejection) }
    };
    assert_eq!(revise(2, 1).await, Err(Rejection::UnknownCoupon), "nothing is created");
    bench.put(&coupon, 1).await;
    assert_eq!(revise(2, 1).await, Ok(Put::Replaced));
    assert_eq!(revise(3, 1).await, Err(Rejection::SettingsChanged));
    assert_eq!(bench.view(&coupon).await.settings, limited(2));
    // Of several operators who read the same settings, only one replaces them.
    let at_once: Vec<_> = (10..18).map(|limit| tokio::spawn(revise(limit, 2))).collect();
    let mut replaced = Vec::new();
    for (limit, told) in (10..).zip(at_once) {
        match told.await.expect("no task panics") {
            Ok(Put::Replaced) => replaced.push(limited(limit)),
            told => assert_eq!(told, Err(Rejection::SettingsChanged)),
        }
    }
    assert_eq!(replaced, [bench.view(&coupon).await.settings]);
    answered(bench.store.delete_coupon(&coupon).await).expect("it is there");
    assert_eq!(revise(3, 1).await, Err(Rejection::Deleted));
}

pub(super) async fn a_deleted_name_is_never_used_again<S: CouponStore + 'static>(bench: Bench<S>) {
    let rows = [
        (1, put(2), "created"),
        (1, claim("ann"), "new 1@1"),
        (2, Step::Delete, "gone"),
        (3, put(2), "deleted"),
        (3, claim("bob"), "deleted"),
        (3, Step::View, "deleted 1/2"),
        (4, Step::Delete, "gone"),
        (5, put(9), "deleted"),
        (5, claim("ann"), "already_issued 1@1"),
        (5, claim_of("ann"), "1@1 of ann"),
    ];
    bench.check("once", &rows).await;
}

pub(super) async fn the_state_follows_the_clock<S: CouponStore + 'static>(bench: Bench<S>) {
    let rows = [
        (0, Step::Put(window(1, 100, 200)), "created"),
        (99, Step::View, "scheduled 0/1"),
        (100, Step::View, "open 0/1"),
        (100, claim("ann"), "new 1@100"),
        (100, Step::View, "sold_out 1/1"),
        (199, Step::View, "sold_out 1/1"),
        (200, Step::View, "expired 1/1"),
        (200, Step::Put(window(2, 300, 400)), "replaced"),
        (299, Step::View, "scheduled 1/2"),
        (300, Step::View, "open 1/2"),
        (300, Step::Delete, "gone"),
        (300, Step::View, "deleted 1/2"),
    ];
    bench.check("state", &rows).await;
}

pub(super) async fn coupons_do_not_touch_each_other<S: CouponStore + 'static>(bench: Bench<S>) {
    let rows = [
        (1, put(1), "created"),
        (1, keyed("ann", 1, 10), "new 1@1"),
        (1, claim("bob"), "sold_out"),
        (1, Step::Delete, "gone"),
    ];
    bench.check("left", &rows).await;
    // The same key on another coupon is a different key.
    let rows = [
        (2, put(2), "created"),
        (2, keyed("ann", 1, 10), "new 1@2"),
        (2, claim("bob"), "new 2@2"),
        (2, redeem(1), "new 1@2 of ann"),
        (2, Step::View, "sold_out 2/2"),
    ];
    bench.check("right", &rows).await;
    let rows = [(3, redeem(1), "new 1@3 of ann"), (3, claims(None, 9), "1@1 of ann redeemed@3, end")];
    bench.check("left", &rows).await;
}
