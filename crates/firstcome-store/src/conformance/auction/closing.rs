//! Auctions close by themselves: these tests send no command that could close one.

use super::*;

pub(super) async fn an_auction_closes_without_a_caller<S: AuctionStore + 'static>(bench: Bench<S>) {
    bench.charge(&["ann"], 100).await;
    let before = bench.store.closings();
    bench.put("won", bench.short_auction(None).await).await;
    bench.put("nobody", bench.short_auction(Some(1)).await).await;
    // It stays open however far the clock moves before the store checks it.
    let later = with_terms(bench.auction().await, |terms| terms.ends_at = Timestamp::MAX);
    bench.put("later", later).await;
    bench.check("won", &[(Step::Bid("ann", 20), "new 1 fence 2")]).await;
    while bench.store.closings().closed < before.closed + 2 {
        (bench.pass)(20).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.store.closings().defaulted, before.defaulted, "a winner has for ever, and nobody owes nothing");
    let phase = |standing: ListingStanding| {
        (format!("{:?}", standing.phase).split('(').next().map(str::to_owned), standing.version)
    };
    assert_eq!(phase(bench.standing("won").await), (Some("Ended".to_owned()), 3));
    assert_eq!(phase(bench.standing("nobody").await), (Some("Unsold".to_owned()), 2));
    assert_eq!(phase(bench.standing("later").await), (Some("Open".to_owned()), 1));
    // Each auction closes once, even when callers ask for it.
    for _ in 0..3 {
        bench.pass(1).await;
    }
    assert_eq!(bench.store.closings().closed, before.closed + 2);
    assert_eq!(phase(bench.standing("won").await), (Some("Ended".to_owned()), 3));
    assert_eq!(balance_words(bench.balance("ann").await), "80 of 100");
}

pub(super) async fn a_default_releases_its_hold_without_a_caller<S: AuctionStore + 'static>(bench: Bench<S>) {
    bench.charge(&["ann", "bob"], 100).await;
    let before = bench.store.closings();
    bench.put("lamp", bench.short_auction(Some(bench.sizes.open_ms)).await).await;
    bench.check("lamp", &[(Step::Bid("bob", 30), "new 1 fence 2"), (Step::Bid("ann", 40), "new 2 fence 3")]).await;
    bench.pass_after(bench.standing("lamp").await.effective_ends_at).await;
    // The counter rises a moment after readers see the closing.
    while bench.store.closings().closed == before.closed {
        (bench.pass)(1).await;
        tokio::task::yield_now().await;
    }
    let ended = bench.store.closings();
    assert_eq!((ended.closed, ended.defaulted), (before.closed + 1, before.defaulted), "closed, and not yet over");
    while bench.balance("ann").await.held() != 0 {
        (bench.pass)(20).await;
        tokio::task::yield_now().await;
    }
    let ListingView { standing, now } = bench.view("lamp").await;
    assert!(standing.settles_until().is_some_and(|until| until < now), "released before its time: {standing:?}");
    while bench.store.closings().defaulted < before.defaulted + 1 {
        (bench.pass)(20).await;
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        bench.pass(1).await;
    }
    let after = bench.store.closings();
    assert_eq!((after.closed, after.defaulted), (before.closed + 1, before.defaulted + 1));
    let rows = [
        (Step::State, "unsold version 5"),
        (Step::Buy("ann"), "settlement_expired"),
        (Step::Balance("ann"), "100 of 100"),
        (Step::Balance("bob"), "100 of 100"),
    ];
    bench.check("lamp", &rows).await;
    audit::audit(&bench, &["lamp"], &["ann", "bob", "own"]).await;
}
