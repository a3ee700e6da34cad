//! The order of all checks, and the effect of each command.

use super::*;
use firstcome_core::limits::{AMOUNT_MAX, BALANCE_MAX};
use firstcome_core::points::Kind;

pub(super) async fn an_unknown_listing_is_refused_everywhere<S: AuctionStore + 'static>(bench: Bench<S>) {
    bench.charge(&["ann"], 100).await;
    let rows = [
        (Step::State, "unknown_listing"),
        (Step::Bid("ann", 10), "unknown_listing"),
        (Step::Bid("poor", 10), "unknown_listing"),
        (Step::Buy("ann"), "unknown_listing"),
        (Step::Balance("ann"), "100 of 100"),
    ];
    bench.check("nothing", &rows).await;
    let bids = answered(bench.store.bids(&listing("nothing"), None, 10).await);
    assert_eq!(bids, Err(Rejection::UnknownListing));
    // A charge creates a member; a question about its balance does not.
    assert_eq!(bench.balance("poor").await, Balance::default());
    assert_eq!(bench.all_records("poor").await, []);
}

pub(super) async fn bids_are_checked_in_the_documented_order<S: AuctionStore + 'static>(bench: Bench<S>) {
    bench.charge(&["ann", "bob", "own"], 100).await;
    let later = ListingSettings { starts_at: Some(bench.after(3_600_000).await), ..bench.auction().await };
    let over = ListingSettings {
        starts_at: Some(Timestamp::MIN),
        ..ListingSettings::auction(member("own"), amount(10), bench.now().await)
    };
    // In each row two neighbouring checks would refuse, and the earlier one must reply.
    let rows = [
        (Step::Put(later), "created"),
        (Step::Bid("own", 1), "own_listing"),
        (Step::Bid("poor", 1), "not_in_progress"),
    ];
    bench.check("later", &rows).await;
    bench.put("over", over).await;
    bench.pass(1).await;
    bench.check("over", &[(Step::Bid("own", 1), "own_listing"), (Step::Bid("poor", 1), "not_in_progress")]).await;
    bench
        .check(
            "fixed",
            &[
                (Step::Put(fixed_price()), "created"),
                (Step::Bid("own", 10), "own_listing"),
                (Step::Bid("ann", 10), "not_in_progress"),
            ],
        )
        .await;
    let rows = [
        (Step::Put(bench.auction().await), "created"),
        (Step::State, "running version 1"),
        (Step::Bid("own", 100), "own_listing"),
        (Step::Bid("poor", 9), "bid_too_low 10"),
        (Step::Bid("poor", 10), "insufficient_points 0"),
        (Step::Bid("ann", 101), "insufficient_points 100"),
        (Step::Bid("ann", 10), "new 1 fence 2"),
        (Step::Bid("ann", 10), "already_highest_bidder"),
        (Step::Bid("ann", 1_000), "already_highest_bidder"),
        (Step::Bid("poor", 10), "bid_too_low 11"),
        (Step::Bid("bob", 10), "bid_too_low 11"),
        (Step::Bid("bob", 11), "new 2 fence 3"),
        (Step::Bid("bob", 12), "already_highest_bidder"),
        (Step::Balance("ann"), "100 of 100"),
        (Step::Balance("bob"), "89 of 100"),
        (Step::State, "running version 3"),
    ];
    bench.check("open", &rows).await;
    let rows = [
        (Step::Put(with_terms(bench.auction().await, |terms| terms.min_increment = Some(amount(7)))), "created"),
        (Step::Bid("ann", 10), "new 1 fence 2"),
        (Step::Bid("bob", 16), "bid_too_low 17"),
        (Step::Bid("bob", 17), "new 2 fence 3"),
    ];
    bench.check("by-seven", &rows).await;
    assert_eq!(balance_words(bench.balance("bob").await), "72 of 100", "two bids of one wallet");
}

pub(super) async fn purchases_are_checked_in_the_documented_order<S: AuctionStore + 'static>(bench: Bench<S>) {
    bench.charge(&["ann", "bob", "own"], 100).await;
    let later = ListingSettings { starts_at: Some(bench.after(3_600_000).await), ..fixed_price() };
    let rows =
        [(Step::Put(later), "created"), (Step::Buy("own"), "own_listing"), (Step::Buy("poor"), "not_in_progress")];
    bench.check("later", &rows).await;
    let rows = [
        (Step::Put(fixed_price()), "created"),
        (Step::Buy("own"), "own_listing"),
        (Step::Buy("poor"), "insufficient_points 0"),
        (Step::Buy("ann"), "new ann for 10"),
        (Step::State, "sold version 2"),
        (Step::Buy("own"), "own_listing"),
        (Step::Buy("ann"), "already_sold ann for 10"),
        (Step::Buy("poor"), "already_sold ann for 10"),
        (Step::Balance("ann"), "90 of 90"),
        (Step::Balance("own"), "110 of 110"),
    ];
    bench.check("thing", &rows).await;
    // Points that back a bid pay for nothing else.
    bench.put("auction", bench.auction().await).await;
    bench.check("auction", &[(Step::Bid("ann", 81), "new 1 fence 2")]).await;
    bench.check("other", &[(Step::Put(fixed_price()), "created"), (Step::Buy("ann"), "insufficient_points 9")]).await;
}

pub(super) async fn points_are_checked_in_the_documented_order<S: AuctionStore + 'static>(bench: Bench<S>) {
    let rows = [
        (Step::Refund("ann", 1), "insufficient_points 0"),
        (Step::Balance("ann"), "0 of 0"),
        (Step::Charge("ann", 100), "new 100 of 100"),
        (Step::Refund("ann", 101), "insufficient_points 100"),
        (Step::Refund("ann", 1), "new 99 of 99"),
        (Step::Put(bench.auction().await), "created"),
        (Step::Bid("ann", 60), "new 1 fence 2"),
        (Step::Refund("ann", 40), "insufficient_points 39"),
        (Step::Refund("ann", 39), "new 0 of 60"),
        (Step::Charge("ann", 5), "new 5 of 65"),
    ];
    bench.check("points", &rows).await;
}

pub(super) async fn settlements_are_checked_in_the_documented_order<S: AuctionStore + 'static>(bench: Bench<S>) {
    bench.charge(&["ann", "bob"], 100).await;
    let open_ms = bench.sizes.open_ms;
    bench.put("slow", bench.short_auction(None).await).await;
    bench.put("quick", bench.short_auction(Some(2 * open_ms)).await).await;
    bench.put("broken", bench.short_auction(Some(1)).await).await;
    bench.put("nobody", bench.short_auction(Some(1)).await).await;
    for name in ["slow", "quick", "broken"] {
        let rows = [
            (Step::Bid("ann", 20), "new 1 fence 2"),
            (Step::Bid("bob", 30), "new 2 fence 3"),
            (Step::Buy("ann"), "auction_not_ended"),
            (Step::Buy("bob"), "auction_not_ended"),
        ];
        bench.check(name, &rows).await;
    }
    let told = bench.buy("slow", "bob", None).await;
    assert_eq!(told, Err(Rejection::AuctionNotEnded(bench.standing("slow").await.effective_ends_at)));
    bench.check("nobody", &[(Step::Buy("bob"), "auction_not_ended"), (Step::Balance("bob"), "10 of 100")]).await;

    bench.pass_after(bench.standing("nobody").await.settles_until().expect("it has one")).await;
    let rows = [
        (Step::State, "ended version 4"),
        (Step::Bid("own", 40), "own_listing"),
        (Step::Bid("bob", 40), "not_in_progress"),
        (Step::Buy("ann"), "not_winner"),
        (Step::Buy("own"), "not_winner"),
        (Step::Buy("bob"), "new bob for 30"),
        (Step::State, "sold version 5"),
        (Step::Buy("bob"), "already_sold bob for 30"),
        (Step::Buy("ann"), "not_winner"),
    ];
    bench.check("slow", &rows).await;
    bench.check("quick", &[(Step::Buy("bob"), "new bob for 30")]).await;
    let rows = [
        (Step::State, "unsold version 5"),
        (Step::Buy("ann"), "not_winner"),
        (Step::Buy("bob"), "settlement_expired"),
        (Step::Bid("ann", 99), "not_in_progress"),
        // Two listings are paid, and the third hold is released.
        (Step::Balance("bob"), "40 of 40"),
        (Step::Balance("own"), "60 of 60"),
    ];
    bench.check("broken", &rows).await;
    bench.check("nobody", &[(Step::State, "unsold version 2"), (Step::Buy("bob"), "not_winner")]).await;
    bench.pass_after(bench.standing("quick").await.settles_until().expect("it has one")).await;
    let rows = [(Step::Buy("bob"), "already_sold bob for 30"), (Step::State, "sold version 5")];
    bench.check("quick", &rows).await;
}

pub(super) async fn a_revision_replaces_only_what_it_names<S: AuctionStore + 'static>(bench: Bench<S>) {
    let lamp = listing("revised");
    let priced = |price| ListingSettings {
        starts_at: Some(Timestamp::MAX),
        ..ListingSettings::fixed_price(member("own"), amount(price))
    };
    let revise = |price, replaces| {
        let (store, lamp) = (Arc::clone(&bench.store), lamp.clone());
        let revision = Revision { settings: priced(price), replaces: Some(priced(replaces)) };
        async move { answered(store.put_listing(&lamp, revision).await) }
    };
    assert_eq!(revise(2, 1).await, Err(Rejection::UnknownListing), "nothing is created");
    assert_eq!(answered(bench.store.put_listing(&lamp, priced(1)).await), Ok(Put::Created));
    assert_eq!(revise(2, 1).await, Ok(Put::Replaced));
    assert_eq!(revise(3, 1).await, Err(Rejection::SettingsChanged));
    let in_force = async || bench.standing("revised").await.settings();
    assert_eq!(in_force().await, priced(2));
    // Of several operators who read the same settings, only one replaces them.
    let at_once: Vec<_> = (10..18).map(|price| tokio::spawn(revise(price, 2))).collect();
    let mut replaced = Vec::new();
    for (price, told) in (10..).zip(at_once) {
        match told.await.expect("no task panics") {
            Ok(Put::Replaced) => replaced.push(priced(price)),
            told => assert_eq!(told, Err(Rejection::SettingsChanged)),
        }
    }
    assert_eq!(replaced, [in_force().await]);
}

pub(super) async fn settings_change_before_the_start_and_the_end_while_it_runs<S: AuctionStore + 'static>(
    bench: Bench<S>,
) {
    bench.charge(&["ann"], 100).await;
    let auction = bench.auction().await;
    let ends_at = auction.auction_terms().expect("it is one").ends_at;
    let later = ListingSettings {
        starts_at: Some(ends_at.plus_ms(1)),
        ..with_terms(auction.clone(), |terms| terms.ends_at = ends_at.plus_ms(2))
    };
    let ended = ListingSettings::auction(member("own"), amount(10), Timestamp::MIN);
    let extended = with_terms(auction.clone(), |terms| terms.ends_at = ends_at.plus_ms(1_000));
    let rows = [
        (Step::Put(ended.clone()), "ends_before_start"),
        (Step::State, "unknown_listing"),
        (Step::Put(later.clone()), "created"),
        (Step::Put(later.clone()), "replaced"),
        (Step::State, "scheduled version 1"),
        (Step::Put(ended.clone()), "ends_before_start"),
        (Step::Put(fixed_price()), "replaced"),
        (Step::State, "running version 2"),
        (Step::Put(fixed_price()), "replaced"),
        (Step::Put(auction.clone()), "listing_running"),
        (Step::Put(ended), "listing_running"),
        (Step::State, "running version 2"),
        (Step::Buy("ann"), "new ann for 10"),
        (Step::Put(auction.clone()), "listing_ended"),
        (Step::Put(fixed_price()), "replaced"),
        (Step::State, "sold version 3"),
    ];
    bench.check("thing", &rows).await;
    let rows = [
        (Step::Put(auction.clone()), "created"),
        (Step::Bid("ann", 10), "new 1 fence 2"),
        (Step::Put(auction.clone()), "replaced"),
        (Step::Put(ListingSettings { price: amount(9), ..extended.clone() }), "listing_running"),
        (Step::Put(ListingSettings { owner: member("ann"), ..extended.clone() }), "listing_running"),
        (Step::Put(fixed_price()), "listing_running"),
        (Step::Put(with_terms(extended.clone(), |terms| terms.settle_within_ms = Some(1))), "listing_running"),
        (Step::Put(with_terms(extended.clone(), |terms| terms.min_increment = Some(amount(1)))), "listing_running"),
        (Step::Put(extended), "replaced"),
        (Step::State, "running version 3"),
        (Step::Put(auction), "listing_running"),
    ];
    bench.check("auction", &rows).await;
    assert_eq!(bench.standing("auction").await.effective_ends_at, ends_at.plus_ms(1_000));
    let over = ListingSettings {
        starts_at: Some(Timestamp::MIN),
        ..ListingSettings::auction(member("own"), amount(1), Timestamp::MIN.plus_ms(1))
    };
    let rows = [
        (Step::Put(over.clone()), "created"),
        (Step::Put(over), "replaced"),
        (Step::Put(fixed_price()), "listing_ended"),
    ];
    bench.check("over", &rows).await;
}

pub(super) async fn a_listing_is_shown_as_it_was_put<S: AuctionStore + 'static>(bench: Bench<S>) {
    let extend = firstcome_core::auction::Extend { window_ms: 60_001, by_ms: 60_002, max_count: 7 };
    let now = bench.now().await;
    let full = with_terms(bench.auction().await, |terms| {
        terms.min_increment = Some(amount(AMOUNT_MAX));
        terms.extend = Some(extend);
        terms.settle_within_ms = Some(60_003);
    });
    let scheduled =
        ListingSettings { starts_at: Some(now.plus_ms(3_600_000)), price: amount(AMOUNT_MAX), ..full.clone() };
    let endless = ListingSettings {
        starts_at: Some(Timestamp::MIN),
        ..with_terms(bench.auction().await, |terms| terms.ends_at = Timestamp::MAX)
    };
    for (name, settings) in [("full", full), ("scheduled", scheduled), ("endless", endless), ("fixed", fixed_price())] {
        let before = bench.now().await;
        bench.put(name, settings.clone()).await;
        let ListingView { standing, now } = bench.view(name).await;
        let starts_at = settings.starts_at.unwrap_or(standing.starts_at);
        assert!(before <= standing.last_at && standing.last_at <= now, "{name} was made between");
        assert!(
            settings.starts_at.is_some() || standing.starts_at == standing.last_at,
            "{name} starts when it was put"
        );
        let told = (standing.name.as_str(), standing.owner, standing.price, standing.starts_at, standing.terms);
        assert_eq!(told, (name, settings.owner, settings.price, starts_at, settings.terms));
        let ends_at = settings.terms;
        let ends_at = if let Terms::Auction(terms) = ends_at { terms.ends_at } else { Timestamp::MAX };
        let told = (standing.effective_ends_at, standing.extensions, standing.bids, standing.highest, standing.version);
        assert_eq!(told, (ends_at, 0, 0, None, 1), "{name}");
    }
    assert_eq!(bench.all_bids("full").await, []);
}

pub(super) async fn bids_and_records_come_in_pages<S: AuctionStore + 'static>(bench: Bench<S>) {
    bench.charge(&["ann", "bob"], 10_000).await;
    bench.put("pages", bench.auction().await).await;
    for number in 1..=120_u64 {
        let bidder = if number % 2 == 1 { "ann" } else { "bob" };
        let told = bench.apply("pages", &Step::Bid(bidder, 9 + number)).await;
        assert_eq!(told, format!("new {number} fence {}", number + 1));
    }
    let bids = bench.all_bids("pages").await;
    let numbers = |bids: &[Bid]| bids.iter().map(|bid| (bid.number, bid.price.get())).collect::<Vec<_>>();
    assert_eq!(numbers(&bids), Vec::from_iter((1..=120).map(|number| (number, u64::from(number) + 9))));
    assert_eq!(bench.standing("pages").await.highest, bids.last().cloned());
    let rows = [
        (None, 3, 1..=3, Some(3)),
        (Some(3), 2, 4..=5, Some(5)),
        (Some(118), 2, 119..=120, None),
        (Some(118), 3, 119..=120, None),
        (Some(119), 1, 120..=120, None),
    ];
    for (after, count, wanted, next) in rows {
        let page = answered(bench.store.bids(&listing("pages"), after, count).await).expect("it exists");
        assert_eq!(numbers(&page.items), Vec::from_iter(wanted.map(|number| (number, u64::from(number) + 9))));
        assert_eq!(page.next, next, "{count} after {after:?}");
    }
    for after in [120, 121, u64::from(u32::MAX), u64::MAX] {
        let page = answered(bench.store.bids(&listing("pages"), Some(after), 5).await).expect("it exists");
        assert_eq!(page, Numbered { items: vec![], next: None, removed_to: 0 }, "after {after}");
    }
    // One charge, sixty holds, and sixty releases of all holds except the highest.
    assert_eq!(bench.all_records("ann").await.len(), 121);
    assert_eq!(bench.all_records("bob").await.len(), 120);
    let page = bench.store.records(&member("ann"), Some(119), 1).await.expect("the store answers");
    assert_eq!((page.items.len(), page.items[0].number, page.next), (1, 120, Some(120)));
    for after in [121, 122, u64::MAX] {
        let page = bench.store.records(&member("ann"), Some(after), 5).await.expect("the store answers");
        assert_eq!(page, Numbered { items: vec![], next: None, removed_to: 0 }, "after {after}");
    }
    audit::audit(&bench, &["pages"], &["ann", "bob", "own"]).await;
}

pub(super) async fn points_move_as_the_rules_say<S: AuctionStore + 'static>(bench: Bench<S>) {
    bench.charge(&["ann", "bob"], 100).await;
    let rows = [
        (Step::Put(bench.short_auction(None).await), "created"),
        (Step::Bid("ann", 10), "new 1 fence 2"),
        (Step::Bid("bob", 15), "new 2 fence 3"),
        (Step::Refund("ann", 1), "new 99 of 99"),
    ];
    bench.check("lamp", &rows).await;
    let ends_at = bench.standing("lamp").await.effective_ends_at;
    bench.pass_after(ends_at).await;
    bench.check("lamp", &[(Step::Buy("bob"), "new bob for 15")]).await;
    bench.check("vase", &[(Step::Put(fixed_price()), "created"), (Step::Buy("ann"), "new ann for 10")]).await;
    let written = |records: Vec<Record>| {
        let words = |record: &Record| {
            let about = record.about.as_ref().map(ToString::to_string).unwrap_or_default();
            let balance = balance_words(record.balance);
            format!("{} {} {} {about} {balance}", record.number, record.kind.as_str(), record.amount.get())
        };
        records.iter().map(words).collect::<Vec<_>>()
    };
    let ann = bench.all_records("ann").await;
    assert!(ann.windows(2).all(|pair| pair[0].at <= pair[1].at));
    let wanted = [
        "1 CHARGE 100  100 of 100",
        "2 HOLD 10 lamp#1 90 of 100",
        "3 RELEASE 10 lamp#1 100 of 100",
        "4 REFUND 1  99 of 99",
        "5 PURCHASE 10 vase 89 of 89",
    ];
    assert_eq!(written(ann), wanted);
    let bob = bench.all_records("bob").await;
    let wanted = [
        "1 CHARGE 100  100 of 100",
        "2 HOLD 15 lamp#2 85 of 100",
        "3 CAPTURE 15 lamp#2 100 of 100",
        "4 PURCHASE 15 lamp 85 of 85",
    ];
    assert_eq!(written(bob.clone()), wanted);
    let own = bench.all_records("own").await;
    assert_eq!(written(own.clone()), ["1 SOLD 15 lamp 15 of 15", "2 SOLD 10 vase 25 of 25"]);
    // One step has one instant, which its records share.
    let sale = match bench.standing("lamp").await.phase {
        firstcome_core::auction::Phase::Sold(sale) => sale,
        other => panic!("{other:?}"),
    };
    assert_eq!([bob[2].at, bob[3].at, own[0].at], [sale.at; 3]);
    let bids = bench.all_bids("lamp").await;
    assert_eq!((bob[1].kind, bob[1].at), (Kind::Hold, bids[1].at));
    audit::audit(&bench, &["lamp", "vase"], &["ann", "bob", "own"]).await;
}

pub(super) async fn the_largest_amounts_fit<S: AuctionStore + 'static>(bench: Bench<S>) {
    let most = AMOUNT_MAX;
    let rows = [
        (Step::Charge("ann", most), "new 1000000000000 of 1000000000000"),
        (Step::Charge("ann", most), "new 2000000000000 of 2000000000000"),
        (Step::Put(ListingSettings { price: amount(most), ..bench.auction().await }), "created"),
        (Step::Bid("ann", most - 1), "bid_too_low 1000000000000"),
        (Step::Bid("ann", most), "new 1 fence 2"),
        (Step::Bid("bob", most), "bid_too_low 1000000000001"),
        (Step::Balance("ann"), "1000000000000 of 2000000000000"),
    ];
    bench.check("dear", &rows).await;
    // It takes almost ten thousand charges to reach the largest balance; each round sends as many as the store takes at
    // once.
    let steps = BALANCE_MAX / AMOUNT_MAX;
    for from in (0..steps).step_by(bench.sizes.tasks) {
        let moved = crate::conformance::all((from..steps.min(from + bench.sizes.tasks as u64)).map(|_| {
            let bench = bench.clone();
            async move { bench.transfer(Transfer::Charge, "own", most, None).await }
        }))
        .await;
        assert!(moved.iter().all(Result::is_ok), "{moved:?}");
    }
    let rest = BALANCE_MAX % AMOUNT_MAX;
    let full = format!("{BALANCE_MAX} of {BALANCE_MAX}");
    let rows = [
        (Step::Charge("own", rest + 1), "balance_too_large"),
        (Step::Charge("own", rest), &format!("new {full}")),
        (Step::Charge("own", 1), "balance_too_large"),
        (Step::Put(ListingSettings { price: amount(1), ..fixed_price() }), "created"),
        // The buyer's lack of points is checked first.
        (Step::Buy("poor"), "insufficient_points 0"),
        (Step::Buy("ann"), "balance_too_large"),
        (Step::State, "running version 1"),
        (Step::Refund("own", 1), &format!("new {0} of {0}", BALANCE_MAX - 1)),
        (Step::Buy("ann"), "new ann for 1"),
        (Step::Balance("own"), &full),
        (Step::Balance("ann"), "999999999999 of 1999999999999"),
    ];
    bench.check("full", &rows).await;
}
