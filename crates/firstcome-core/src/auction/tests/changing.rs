//! Which changes of a listing are allowed, and when.

use super::*;

fn ending(ends: i64) -> ListingSettings {
    auction_with(|terms| terms.ends_at = at(ends))
}

#[test]
fn before_the_start_everything_may_change() {
    let other = ListingSettings { owner: member("ann"), price: amount(7), ..settled_soon() };
    let mut play = Play::new(auction());
    play.check(&[
        (1, Put(auction()), "same"),
        (1, Put(other.clone()), "changed"),
        (2, Put(other.clone()), "same"),
        (2, Put(fixed_price()), "changed"),
        (2, State, "scheduled version 3"),
        (2, Put(ListingSettings { starts_at: Some(at(2_000)), ..auction() }), "changed"),
        (STARTS, State, "scheduled version 4"),
        (2_000, State, "running version 4"),
    ]);
    let standing = play.standing();
    assert_eq!((standing.starts_at, standing.effective_ends_at, standing.last_at), (at(2_000), at(ENDS), at(2)));
    let mut play = Play::new(auction());
    play.check(&[
        (STARTS - 1, Put(other), "changed"),
        (STARTS, Offer("ann", 10), "own_listing"),
        (STARTS, Offer("own", 10), "insufficient_points 0"),
        (STARTS, Offer("bob", 7), "bid 1 ends 10000 fence 3"),
    ]);
}

#[test]
fn without_a_start_it_starts_now() {
    let now = |ends| ListingSettings::auction(member("own"), amount(10), at(ends));
    let name = || ListingName::parse("lamp").unwrap();
    let rows = [(ENDS - 1, true), (ENDS, true), (ENDS + 1, false)];
    for (put_at, taken) in rows {
        let listing = Listing::new(name(), now(ENDS), at(put_at));
        let starts = listing.map(|listing| listing.standing().starts_at);
        assert_eq!(starts, if taken { Ok(at(put_at)) } else { Err(Rejection::EndsBeforeStart) }, "{put_at}");
    }
    let mut play = Play::new(auction());
    play.check(&[
        (500, Put(now(499)), "ends_before_start"),
        (500, State, "scheduled version 1"),
        (500, Put(now(500)), "changed"),
        (500, State, "running version 2"),
    ]);
}

#[test]
fn while_it_runs_an_auction_gets_a_later_end_and_nothing_else() {
    let changed = |change: fn(&mut ListingSettings)| {
        let mut settings = ending(20_000);
        change(&mut settings);
        settings
    };
    let refused = [
        ending(ENDS - 1),
        changed(|it| it.owner = member("ann")),
        changed(|it| it.price = amount(11)),
        changed(|it| it.starts_at = Some(at(STARTS + 1))),
        changed(|it| it.terms = Terms::FixedPrice),
        fixed_price(),
        auction_with(|terms| (terms.ends_at, terms.min_increment) = (at(20_000), Some(amount(1)))),
        auction_with(|terms| (terms.ends_at, terms.settle_within_ms) = (at(20_000), Some(1))),
        auction_with(|terms| {
            terms.ends_at = at(20_000);
            terms.extend = Some(Extend { window_ms: 1, by_ms: 1, max_count: 1 });
        }),
        auction_with(|terms| terms.settle_within_ms = Some(1)),
    ];
    for now in [STARTS, ENDS] {
        let mut play = Play::new(auction());
        for settings in &refused {
            play.check(&[(now, Put(settings.clone()), "listing_running")]);
        }
        play.check(&[
            (now, Put(auction()), "same"),
            (now, Put(ListingSettings { starts_at: None, ..auction() }), "same"),
            (now, Put(ending(ENDS + 1)), "changed"),
            (now, Put(ListingSettings { starts_at: None, ..ending(20_000) }), "changed"),
            (now, Put(ending(ENDS + 1)), "listing_running"),
            (now, State, "running version 3"),
            (20_000, Offer("ann", 10), "bid 1 ends 20000 fence 4"),
        ]);
    }
}

#[test]
fn a_fixed_price_on_sale_stands() {
    let mut play = Play::new(fixed_price());
    play.check(&[
        (STARTS, Put(fixed_price()), "same"),
        (STARTS, Put(ListingSettings { price: amount(9), ..fixed_price() }), "listing_running"),
        (STARTS, Put(ListingSettings { owner: member("ann"), ..fixed_price() }), "listing_running"),
        (STARTS, Put(auction()), "listing_running"),
        (STARTS, Buy("ann"), "sold to ann for 10 at 1000"),
        (STARTS, Put(ListingSettings { price: amount(9), ..fixed_price() }), "listing_ended"),
        (STARTS, Put(fixed_price()), "same"),
    ]);
}

#[test]
fn after_its_end_nothing_changes_any_more() {
    let over = |play: &mut Play, now: i64, state: &str| {
        play.check(&[
            (now, Put(ending(99_000)), "listing_ended"),
            (now, Put(ListingSettings { price: amount(9), ..settled_soon() }), "listing_ended"),
            (now, Put(settled_soon()), "same"),
            (now, State, state),
        ]);
    };
    let mut play = Play::new(settled_soon());
    over(&mut play, ENDS + 1, "unsold version 1");
    let mut play = Play::new(settled_soon());
    play.check(&[(STARTS, Offer("ann", 10), "bid 1 ends 10000 fence 2")]);
    over(&mut play, ENDS + 1, "ended version 2");
    over(&mut play, 15_001, "unsold version 2");
    play.check(&[(ENDS + 1, Tick, "closed")]);
    over(&mut play, ENDS + 1, "ended version 3");
    play.check(&[(15_001, Tick, "defaulted")]);
    over(&mut play, 15_001, "unsold version 4");
}
