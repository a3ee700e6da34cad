//! A store that was closed and opened again: it loses no reply, and does what came due meanwhile.

use super::*;
use crate::conformance::{Rng, all};
use firstcome_core::auction::{Extend, Phase};

impl<S: AuctionStore + 'static> Bench<S> {
    async fn reopen<F, Fut>(self, open: &F) -> Self
    where
        F: Fn() -> Fut,
        Fut: Future<Output = (S, LetPass)>,
    {
        let Self { store, pass, sizes } = self;
        drop((store, pass));
        Self::new(sizes, open().await).await
    }

    /// Returns everything that readers see of these listings and members.
    async fn all_of(&self, listings: &[&str], members: &[&str]) -> Vec<String> {
        let mut seen = Vec::new();
        for name in listings {
            seen.push(format!("{:?}", self.standing(name).await));
            seen.push(format!("{:?}", self.all_bids(name).await));
        }
        for name in members {
            seen.push(format!("{:?} {:?}", self.balance(name).await, self.all_records(name).await));
        }
        seen
    }
}

pub(super) async fn everything_told_is_still_there<S, F, Fut>(sizes: AuctionSizes, open: &F)
where
    S: AuctionStore + 'static,
    F: Fn() -> Fut,
    Fut: Future<Output = (S, LetPass)>,
{
    let bench = Bench::new(sizes, open().await).await;
    let members = ["ann", "bob", "own"];
    let rows = [
        (keyed(1, 10, Step::Charge("ann", 100)), "new 100 of 100"),
        (Step::Charge("bob", 200), "new 200 of 200"),
        (keyed(u128::MAX, u64::MAX, Step::Refund("bob", 100)), "new 100 of 100"),
    ];
    bench.check("points", &rows).await;
    let extend = Extend { window_ms: 86_400_000, by_ms: 1_000, max_count: 3 };
    let terms = |terms: &mut AuctionTerms| {
        terms.extend = Some(extend);
        terms.min_increment = Some(amount(2));
        terms.settle_within_ms = Some(60_000);
    };
    bench.put("open", with_terms(bench.auction().await, terms)).await;
    bench
        .put("later", ListingSettings { starts_at: Some(bench.after(40_000_000).await), ..bench.auction().await })
        .await;
    bench.put("thing", fixed_price()).await;
    bench.put("won", bench.short_auction(None).await).await;
    let first = bench.bid("open", "ann", 10, key(2, 20)).await.expect("it is the first").into_inner();
    bench.check("open", &[(keyed(3, 30, Step::Bid("bob", 12)), "new 2 fence 3")]).await;
    bench.check("won", &[(keyed(4, 40, Step::Bid("ann", 20)), "new 1 fence 2")]).await;
    let ends_at = bench.standing("won").await.effective_ends_at;
    bench.pass_after(ends_at).await;
    bench.check("won", &[(keyed(5, 50, Step::Buy("ann")), "new ann for 20")]).await;
    bench.check("thing", &[(keyed(6, 60, Step::Buy("bob")), "new bob for 10")]).await;
    let listings = ["open", "later", "thing", "won"];
    let before = bench.all_of(&listings, &members).await;

    let bench = bench.reopen(open).await;
    assert_eq!(bench.all_of(&listings, &members).await, before);
    let again = bench.bid("open", "ann", 10, key(2, 20)).await;
    assert_eq!(again, Ok(Effect::Again(first.clone())), "with the end and the fence that it had then");
    let rows = [
        (keyed(1, 10, Step::Charge("ann", 100)), "again 100 of 100"),
        (keyed(u128::MAX, u64::MAX, Step::Refund("bob", 100)), "again 100 of 100"),
        (keyed(1, 11, Step::Charge("ann", 100)), "idempotency_key_reused"),
        (keyed(2, 21, Step::Bid("own", 10)), "idempotency_key_reused"),
        (keyed(3, 30, Step::Bid("bob", 12)), "again 2 fence 3"),
        (Step::Bid("bob", 99), "already_highest_bidder"),
        (Step::Bid("ann", 13), "bid_too_low 14"),
        (Step::Bid("ann", 14), "new 3 fence 4"),
        (Step::State, "running version 4"),
    ];
    bench.check("open", &rows).await;
    let rows = [
        (keyed(4, 40, Step::Bid("ann", 20)), "again 1 fence 2"),
        (keyed(5, 50, Step::Buy("ann")), "again ann for 20"),
        (keyed(5, 51, Step::Buy("ann")), "idempotency_key_reused"),
        (Step::Buy("ann"), "already_sold ann for 20"),
        (Step::State, "sold version 4"),
    ];
    bench.check("won", &rows).await;
    bench
        .check(
            "thing",
            &[(keyed(6, 60, Step::Buy("bob")), "again bob for 10"), (Step::Buy("ann"), "already_sold bob for 10")],
        )
        .await;
    bench.check("later", &[(Step::State, "scheduled version 1"), (Step::Bid("bob", 10), "not_in_progress")]).await;
    let standing = bench.standing("open").await;
    assert_eq!((standing.extensions, standing.bids), (3, 3), "extensions are counted on");
    // Reopen a second time, now with the rows that were written after the first time.
    let before = bench.all_of(&listings, &members).await;
    let bench = bench.reopen(open).await;
    assert_eq!(bench.all_of(&listings, &members).await, before);
    bench
        .check(
            "open",
            &[(Step::Bid("bob", 16), "new 4 fence 5"), (keyed(1, 10, Step::Charge("ann", 100)), "again 100 of 100")],
        )
        .await;
    let ends_at = bench.standing("open").await.effective_ends_at;
    assert_eq!(ends_at, first.effective_ends_at.plus_ms(2_000), "put off three times, and no more");
    audit::audit(&bench, &listings, &members).await;
}

pub(super) async fn a_busy_auction_comes_back_exactly<S, F, Fut>(sizes: AuctionSizes, open: &F)
where
    S: AuctionStore + 'static,
    F: Fn() -> Fut,
    Fut: Future<Output = (S, LetPass)>,
{
    let bench = Bench::new(sizes, open().await).await;
    let people: Vec<String> = (0..sizes.tasks).map(|person| format!("busy{person}")).collect();
    let things: Vec<String> = (0..sizes.listings).map(|number| format!("busy-thing{number}")).collect();
    for name in &people {
        bench.charge(&[name], 500).await;
    }
    for name in &things {
        bench.put(name, ListingSettings { owner: member("seller"), ..bench.auction().await }).await;
    }
    let mut members: Vec<&str> = people.iter().map(String::as_str).collect();
    members.push("seller");
    let listings: Vec<&str> = things.iter().map(String::as_str).collect();
    let mut bench = bench;
    for round in 0..3 {
        all(people.iter().cloned().enumerate().map(|(person, who)| {
            let (bench, things) = (bench.clone(), things.clone());
            async move {
                let mut rng = Rng::of(3 + round, person as u32, 0);
                for _ in 0..bench.sizes.commands / 2 {
                    let name = rng.pick(&things);
                    let price = bench.standing(name).await.minimum() + rng.below(2);
                    drop(bench.bid(name, &who, price, None).await);
                }
            }
        }))
        .await;
        audit::audit(&bench, &listings, &members).await;
        let before = bench.all_of(&listings, &members).await;
        bench = bench.reopen(open).await;
        assert_eq!(bench.all_of(&listings, &members).await, before, "round {round}");
    }
    audit::audit(&bench, &listings, &members).await;
}

pub(super) async fn what_came_due_meanwhile_is_done<S, F, Fut>(sizes: AuctionSizes, open: &F)
where
    S: AuctionStore + 'static,
    F: Fn() -> Fut,
    Fut: Future<Output = (S, LetPass)>,
{
    let bench = Bench::new(sizes, open().await).await;
    bench.charge(&["dan", "eve"], 100).await;
    for (name, settle_within_ms) in [("default", Some(1)), ("ended", None)] {
        // A different owner, because `own` has sold things in the same data before.
        let settings = bench.short_auction(settle_within_ms).await;
        bench.put(name, ListingSettings { owner: member("settler"), ..settings }).await;
    }
    bench.check("default", &[(Step::Bid("dan", 60), "new 1 fence 2")]).await;
    bench.check("ended", &[(Step::Bid("eve", 60), "new 1 fence 2")]).await;
    let bench = bench.reopen(open).await;
    // No command is sent: the store must notice by itself what is due.
    while bench.balance("dan").await.held() != 0 || bench.standing("ended").await.phase == Phase::Open {
        (bench.pass)(20).await;
        tokio::task::yield_now().await;
    }
    let rows = [
        (Step::State, "unsold version 4"),
        (Step::Buy("dan"), "settlement_expired"),
        (Step::Balance("dan"), "100 of 100"),
    ];
    bench.check("default", &rows).await;
    bench.check("ended", &[(Step::State, "ended version 3")]).await;
    let bench = bench.reopen(open).await;
    bench.pass(1).await;
    bench.check("default", &[(Step::State, "unsold version 4")]).await;
    bench
        .check(
            "ended",
            &[(Step::State, "ended version 3"), (Step::Buy("eve"), "new eve for 60"), (Step::State, "sold version 4")],
        )
        .await;
    audit::audit(&bench, &["default", "ended"], &["dan", "eve", "settler"]).await;
}
