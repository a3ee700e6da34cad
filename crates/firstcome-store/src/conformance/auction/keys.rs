//! Effects, and the replies to repeats with the same key.

use super::*;

pub(super) async fn a_repeated_bid_is_told_the_very_same<S: AuctionStore + 'static>(bench: Bench<S>) {
    bench.charge(&["ann", "bob"], 100).await;
    let extend = firstcome_core::auction::Extend { window_ms: 86_400_000, by_ms: 1_000, max_count: 3 };
    bench.put("lamp", with_terms(bench.auction().await, |terms| terms.extend = Some(extend))).await;
    let first = bench.bid("lamp", "ann", 10, key(u128::MAX, u64::MAX)).await.expect("it is the first");
    let Effect::New(placed) = first else { panic!("{first:?}") };
    let mut records = bench.all_records("ann").await.len();
    for price in [11, 13, 15, 17] {
        let again = bench.bid("lamp", "ann", 10, key(u128::MAX, u64::MAX)).await;
        assert_eq!(again, Ok(Effect::Again(placed.clone())), "as it was told, whatever came since");
        assert_eq!(bench.all_records("ann").await.len(), records, "a repeat moves nothing");
        let bidders = [("bob", price), ("ann", price + 1)];
        for (bidder, price) in bidders {
            let told = bench.bid("lamp", bidder, price, None).await;
            assert!(matches!(told, Ok(Effect::New(_))), "{told:?}");
        }
        // One hold ended, and another began.
        records += 2;
    }
    let told = bench.bid("lamp", "ann", 10, key(u128::MAX, 1)).await;
    assert_eq!(told, Err(Rejection::KeyReused));
    assert_eq!(bench.all_bids("lamp").await.len(), 9);
    audit::audit(&bench, &["lamp"], &["ann", "bob", "own"]).await;
}

pub(super) async fn a_repeated_purchase_is_told_the_very_same<S: AuctionStore + 'static>(bench: Bench<S>) {
    bench.charge(&["ann"], 100).await;
    bench.put("thing", fixed_price()).await;
    bench.put("auction", bench.short_auction(Some(1_000)).await).await;
    bench.check("auction", &[(Step::Bid("ann", 20), "new 1 fence 2")]).await;
    bench.pass_after(bench.standing("auction").await.effective_ends_at).await;
    for name in ["auction", "thing"] {
        let bought = bench.buy(name, "ann", key(7, 70)).await.expect("it can be bought");
        let Effect::New(sale) = bought else { panic!("{bought:?}") };
        assert_eq!(bench.buy(name, "ann", key(7, 70)).await, Ok(Effect::Again(sale.clone())));
        assert_eq!(bench.buy(name, "ann", key(7, 71)).await, Err(Rejection::KeyReused));
        assert_eq!(bench.buy(name, "ann", key(8, 70)).await, Err(Rejection::AlreadySold(sale.clone())));
        assert_eq!(bench.buy(name, "ann", None).await, Err(Rejection::AlreadySold(sale)));
    }
    assert_eq!(balance_words(bench.balance("ann").await), "70 of 70", "each was paid once");
    bench.pass_after(bench.standing("auction").await.settles_until().expect("it has one")).await;
    bench.check("auction", &[(keyed(7, 70, Step::Buy("ann")), "again ann for 20")]).await;
    audit::audit(&bench, &["thing", "auction"], &["ann", "own"]).await;
}

pub(super) async fn a_repeated_movement_is_told_the_very_same<S: AuctionStore + 'static>(bench: Bench<S>) {
    let rows = [
        (keyed(1, 10, Step::Charge("ann", 100)), "new 100 of 100"),
        (keyed(1, 10, Step::Charge("ann", 100)), "again 100 of 100"),
        (keyed(2, 20, Step::Refund("ann", 30)), "new 70 of 70"),
        // The reply is the balance of that time.
        (keyed(1, 10, Step::Charge("ann", 100)), "again 100 of 100"),
        (keyed(2, 20, Step::Refund("ann", 30)), "again 70 of 70"),
        (keyed(1, 11, Step::Charge("ann", 99)), "idempotency_key_reused"),
        (keyed(2, 21, Step::Refund("ann", 31)), "idempotency_key_reused"),
        (Step::Put(bench.auction().await), "created"),
        (Step::Bid("ann", 50), "new 1 fence 2"),
        (keyed(3, 30, Step::Charge("ann", 1)), "new 21 of 71"),
        (Step::Refund("ann", 21), "new 0 of 50"),
        // The refund would be refused now, and was accepted then.
        (keyed(2, 20, Step::Refund("ann", 30)), "again 70 of 70"),
        (keyed(3, 30, Step::Charge("ann", 1)), "again 21 of 71"),
        (Step::Balance("ann"), "0 of 50"),
    ];
    bench.check("points", &rows).await;
    assert_eq!(bench.all_records("ann").await.len(), 5);
}

pub(super) async fn a_key_is_looked_up_before_everything_else<S: AuctionStore + 'static>(bench: Bench<S>) {
    bench.charge(&["ann", "bob"], 100).await;
    bench.put("short", bench.short_auction(None).await).await;
    let rows = [
        (keyed(1, 10, Step::Bid("ann", 10)), "new 1 fence 2"),
        (keyed(2, 20, Step::Bid("bob", 11)), "new 2 fence 3"),
        // Without the key each would be refused for another reason.
        (keyed(1, 11, Step::Bid("own", 12)), "idempotency_key_reused"),
        (keyed(2, 21, Step::Bid("bob", 12)), "idempotency_key_reused"),
        (keyed(1, 11, Step::Bid("poor", 1)), "idempotency_key_reused"),
        (keyed(1, 10, Step::Bid("ann", 10)), "again 1 fence 2"),
        (keyed(2, 20, Step::Bid("bob", 11)), "again 2 fence 3"),
    ];
    bench.check("short", &rows).await;
    bench
        .check(
            "nothing",
            &[
                (keyed(1, 10, Step::Bid("ann", 10)), "unknown_listing"),
                (keyed(1, 11, Step::Bid("ann", 10)), "unknown_listing"),
            ],
        )
        .await;
    bench.pass_after(bench.standing("short").await.effective_ends_at).await;
    let rows = [
        (Step::Bid("ann", 50), "not_in_progress"),
        (keyed(1, 10, Step::Bid("ann", 10)), "again 1 fence 2"),
        (keyed(1, 11, Step::Bid("ann", 50)), "idempotency_key_reused"),
        (keyed(3, 30, Step::Buy("bob")), "new bob for 11"),
        (keyed(3, 31, Step::Buy("ann")), "idempotency_key_reused"),
        (keyed(3, 30, Step::Buy("bob")), "again bob for 11"),
        (keyed(2, 20, Step::Bid("bob", 11)), "again 2 fence 3"),
    ];
    bench.check("short", &rows).await;
    // The same key on another listing is a different key, because its scope includes the listing.
    bench.put("other", bench.auction().await).await;
    bench
        .check(
            "other",
            &[
                (keyed(1, 99, Step::Bid("ann", 10)), "new 1 fence 2"),
                (keyed(1, 99, Step::Bid("ann", 10)), "again 1 fence 2"),
            ],
        )
        .await;
}

pub(super) async fn a_refused_request_leaves_no_key<S: AuctionStore + 'static>(bench: Bench<S>) {
    let rows = [
        (Step::Put(bench.auction().await), "created"),
        (keyed(1, 10, Step::Bid("ann", 10)), "insufficient_points 0"),
        (keyed(2, 20, Step::Refund("ann", 5)), "insufficient_points 0"),
        (Step::Charge("ann", 100), "new 100 of 100"),
        // A refused request leaves no key, so the key may come with another body.
        (keyed(1, 11, Step::Bid("ann", 12)), "new 1 fence 2"),
        (keyed(1, 11, Step::Bid("ann", 12)), "again 1 fence 2"),
        (keyed(1, 10, Step::Bid("ann", 10)), "idempotency_key_reused"),
        (keyed(2, 21, Step::Refund("ann", 6)), "new 82 of 94"),
        (keyed(2, 21, Step::Refund("ann", 6)), "again 82 of 94"),
        (keyed(3, 30, Step::Bid("ann", 50)), "already_highest_bidder"),
        (keyed(3, 31, Step::Bid("bob", 1)), "bid_too_low 13"),
    ];
    bench.check("auction", &rows).await;
    let rows = [
        (Step::Put(fixed_price()), "created"),
        (keyed(4, 40, Step::Buy("poor")), "insufficient_points 0"),
        (keyed(4, 41, Step::Buy("ann")), "new ann for 10"),
        (keyed(4, 40, Step::Buy("poor")), "idempotency_key_reused"),
        (keyed(4, 41, Step::Buy("ann")), "again ann for 10"),
    ];
    bench.check("thing", &rows).await;
}
