//! First and last instants, to the microsecond.

use super::*;
use crate::edge::Clock;
use firstcome_core::auction::{Extend, Phase};
use firstcome_core::limits::POINTS_KEY_MS;

const START: i64 = 1_800_000_000_000_000;

/// A store and its clock. Rows count microseconds from [`START`].
struct Clocked<S> {
    bench: Bench<S>,
    clock: Arc<ManualClock>,
}

/// The instant in microseconds, the command, and the wanted reply.
type TimedRow<'a> = (i64, Step, &'a str);

fn at(us: i64) -> Timestamp {
    Timestamp::clamped_us(START + us)
}

impl<S: AuctionStore + 'static> Clocked<S> {
    async fn new<F, Fut>(new_store: &F) -> Self
    where
        F: Fn(Arc<ManualClock>) -> Fut,
        Fut: Future<Output = S>,
    {
        let clock = Arc::new(ManualClock::new(at(0)));
        let moved = Arc::clone(&clock);
        let pass: LetPass = Arc::new(move |ms| {
            moved.pass_ms(ms);
            Box::pin(async {})
        });
        let store = new_store(Arc::clone(&clock)).await;
        let bench = Bench::new(AuctionSizes::SMALL, (store, pass)).await;
        bench.charge(&["ann", "bob"], 100).await;
        Self { bench, clock }
    }

    async fn check(&self, name: &str, rows: &[TimedRow<'_>]) {
        for (row, (now, step, wanted)) in rows.iter().enumerate() {
            self.clock.set(at(*now));
            let told = self.bench.apply(name, step).await;
            assert_eq!(told, *wanted, "{name}, row {row}: {step:?} at {now}");
        }
    }

    async fn end(&self, name: &str) -> i64 {
        self.bench.standing(name).await.effective_ends_at.as_us() - START
    }
}

pub(super) async fn run<S, F, Fut>(new_store: &F)
where
    S: AuctionStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    bids_count_from_the_first_to_the_last_instant(Clocked::new(new_store).await).await;
    late_bids_put_the_end_off(Clocked::new(new_store).await).await;
    a_winner_settles_from_the_end_to_the_last_instant(Clocked::new(new_store).await).await;
    each_step_has_the_instant_of_the_clock(Clocked::new(new_store).await).await;
    a_key_of_points_is_remembered_for_thirty_days(Clocked::new(new_store).await).await;
}

fn auction(starts: i64, ends: i64) -> ListingSettings {
    ListingSettings { starts_at: Some(at(starts)), ..ListingSettings::auction(member("own"), amount(10), at(ends)) }
}

async fn bids_count_from_the_first_to_the_last_instant<S: AuctionStore + 'static>(it: Clocked<S>) {
    let rows = [
        (0, Step::Put(auction(1_000, 10_000)), "created"),
        (999, Step::State, "scheduled version 1"),
        (999, Step::Bid("ann", 10), "not_in_progress"),
        (1_000, Step::State, "running version 1"),
        (1_000, Step::Bid("ann", 10), "new 1 fence 2"),
        (10_000, Step::State, "running version 2"),
        (10_000, Step::Bid("bob", 11), "new 2 fence 3"),
        (10_000, Step::Buy("bob"), "auction_not_ended"),
        (10_001, Step::Bid("ann", 12), "not_in_progress"),
        (10_001, Step::Buy("bob"), "new bob for 11"),
    ];
    it.check("lamp", &rows).await;
    let rows = [
        (10_001, Step::Put(ListingSettings { starts_at: Some(at(20_000)), ..fixed_price() }), "created"),
        (19_999, Step::Buy("ann"), "not_in_progress"),
        (20_000, Step::Buy("ann"), "new ann for 10"),
    ];
    it.check("thing", &rows).await;
}

async fn late_bids_put_the_end_off<S: AuctionStore + 'static>(it: Clocked<S>) {
    let extend = Extend { window_ms: 1, by_ms: 2, max_count: 2 };
    let rows = [
        (0, Step::Put(with_terms(auction(0, 10_000), |terms| terms.extend = Some(extend))), "created"),
        (8_999, Step::Bid("ann", 10), "new 1 fence 2"),
    ];
    it.check("lamp", &rows).await;
    assert_eq!(it.end("lamp").await, 10_000);
    // A refused bid does not extend the auction, however late it is.
    it.check(
        "lamp",
        &[
            (9_000, Step::Bid("ann", 50), "already_highest_bidder"),
            (9_000, Step::Bid("poor", 50), "insufficient_points 0"),
        ],
    )
    .await;
    assert_eq!(it.end("lamp").await, 10_000);
    it.check("lamp", &[(9_000, Step::Bid("bob", 11), "new 2 fence 3")]).await;
    assert_eq!(it.end("lamp").await, 12_000);
    it.check("lamp", &[(10_999, Step::Bid("ann", 12), "new 3 fence 4")]).await;
    assert_eq!(it.end("lamp").await, 12_000);
    it.check("lamp", &[(12_000, Step::Bid("bob", 13), "new 4 fence 5")]).await;
    assert_eq!(it.end("lamp").await, 14_000);
    it.check("lamp", &[(14_000, Step::Bid("ann", 14), "new 5 fence 6")]).await;
    assert_eq!(it.end("lamp").await, 14_000, "twice is enough");
    it.check("lamp", &[(14_000, Step::Buy("ann"), "auction_not_ended"), (14_001, Step::Buy("ann"), "new ann for 14")])
        .await;
}

async fn a_winner_settles_from_the_end_to_the_last_instant<S: AuctionStore + 'static>(it: Clocked<S>) {
    for (name, settles) in [("in-time", true), ("too-late", false)] {
        let from = it.clock.now().as_us() - START;
        let settings = with_terms(auction(from, from + 10_000), |terms| terms.settle_within_ms = Some(5));
        let rows = [
            (from, Step::Put(settings), "created"),
            (from, Step::Bid("ann", 20), "new 1 fence 2"),
            (from + 10_000, Step::Buy("ann"), "auction_not_ended"),
            (from + 10_001, Step::Buy("bob"), "not_winner"),
        ];
        it.check(name, &rows).await;
        if settles {
            it.check(name, &[(from + 15_000, Step::Buy("ann"), "new ann for 20")]).await;
            continue;
        }
        it.clock.set(at(from + 15_000));
        it.bench.store.close_due().await.expect("the store answers");
        it.check(
            name,
            &[(from + 15_000, Step::State, "ended version 3"), (from + 15_000, Step::Balance("ann"), "60 of 80")],
        )
        .await;
        it.clock.set(at(from + 15_001));
        it.check(name, &[(from + 15_001, Step::Buy("ann"), "settlement_expired")]).await;
        it.bench.store.close_due().await.expect("the store answers");
        it.check(
            name,
            &[(from + 15_001, Step::State, "unsold version 4"), (from + 15_001, Step::Balance("ann"), "80 of 80")],
        )
        .await;
        it.bench.store.close_due().await.expect("the store answers");
        it.check(name, &[(from + 15_001, Step::State, "unsold version 4")]).await;
    }
    audit::audit(&it.bench, &["in-time", "too-late"], &["ann", "bob", "own"]).await;
}

async fn each_step_has_the_instant_of_the_clock<S: AuctionStore + 'static>(it: Clocked<S>) {
    it.check("lamp", &[(5, Step::Put(auction(0, 100)), "created")]).await;
    assert_eq!(it.bench.standing("lamp").await.last_at, at(5));
    it.clock.set(at(7));
    let placed = it.bench.bid("lamp", "ann", 10, None).await.expect("it is the first").into_inner();
    assert_eq!((placed.bid.at, placed.effective_ends_at), (at(7), at(100)));
    it.clock.set(at(150));
    it.bench.store.close_due().await.expect("the store answers");
    let standing = it.bench.standing("lamp").await;
    assert_eq!((&standing.phase, standing.last_at), (&Phase::Ended(at(150)), at(150)));
    it.clock.set(at(160));
    let sale = it.bench.buy("lamp", "ann", None).await.expect("ann has won").into_inner();
    assert_eq!(sale.at, at(160));
    it.clock.set(at(170));
    it.bench.charge(&["ann"], 1).await;
    let instants: Vec<i64> = it.bench.all_records("ann").await.iter().map(|record| record.at.as_us() - START).collect();
    assert_eq!(instants, [0, 7, 160, 160, 170]);
    assert_eq!(it.bench.view("lamp").await.now, at(170));
}

async fn a_key_of_points_is_remembered_for_thirty_days<S: AuctionStore + 'static>(it: Clocked<S>) {
    let days = POINTS_KEY_MS as i64 * 1_000;
    let rows = [
        (10, keyed(1, 10, Step::Charge("cid", 5)), "new 5 of 5"),
        (20, keyed(2, 20, Step::Refund("cid", 1)), "new 4 of 4"),
        (10 + days, keyed(1, 10, Step::Charge("cid", 5)), "again 5 of 5"),
        (10 + days, keyed(1, 11, Step::Charge("cid", 6)), "idempotency_key_reused"),
        (20 + days, keyed(2, 20, Step::Refund("cid", 1)), "again 4 of 4"),
        (20 + days, Step::Balance("cid"), "4 of 4"),
    ];
    it.check("points", &rows).await;
    // The key of a bid is remembered as long as the bid.
    let end = 20 + days + 1_000;
    let rows = [
        (20 + days, Step::Put(auction(0, end)), "created"),
        (20 + days, keyed(3, 30, Step::Bid("ann", 10)), "new 1 fence 2"),
        (3 * days, keyed(3, 30, Step::Bid("ann", 10)), "again 1 fence 2"),
        (3 * days, keyed(4, 40, Step::Buy("ann")), "new ann for 10"),
        (9 * days, keyed(4, 40, Step::Buy("ann")), "again ann for 10"),
    ];
    it.check("lamp", &rows).await;
}
