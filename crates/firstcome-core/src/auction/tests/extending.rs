//! Late bids, and the extensions that they cause.

use super::*;

#[test]
fn a_bid_is_late_from_the_window_on() {
    let rows = [(ENDS - 1_001, 10_000), (ENDS - 1_000, 12_000), (ENDS - 999, 12_000), (ENDS, 12_000)];
    for (now, ends) in rows {
        Play::new(extended()).check(&[(now, Offer("ann", 10), &format!("bid 1 ends {ends} fence 2"))]);
    }
}

#[test]
fn the_end_is_put_off_from_where_it_stands_and_only_so_often() {
    let mut play = Play::new(extended());
    play.check(&[
        (10_000, Offer("ann", 10), "bid 1 ends 12000 fence 2"),
        // Late for the first end, but not for the second one.
        (10_999, Offer("bob", 11), "bid 2 ends 12000 fence 3"),
        (11_000, Offer("ann", 12), "bid 3 ends 14000 fence 4"),
        (14_000, Offer("bob", 13), "bid 4 ends 14000 fence 5"),
        (14_001, Offer("ann", 14), "not_in_progress"),
    ]);
    assert_eq!((play.standing().extensions, play.standing().effective_ends_at), (2, at(14_000)));
}

#[test]
fn a_refused_bid_does_not_put_the_end_off() {
    let mut play = Play::new(extended());
    play.check(&[
        (ENDS, Offer("own", 10), "own_listing"),
        (ENDS, Offer("ann", 9), "bid_too_low 10"),
        (ENDS, Offer("poor", 10), "insufficient_points 0"),
        (ENDS, Buy("ann"), "auction_not_ended 10000"),
        (ENDS - 1_001, Offer("ann", 10), "bid 1 ends 10000 fence 2"),
        (ENDS, Offer("ann", 50), "already_highest_bidder"),
        (ENDS + 1, Offer("bob", 50), "not_in_progress"),
        (ENDS + 1, State, "ended version 2"),
    ]);
}

#[test]
fn everything_follows_the_end_as_it_was_put_off() {
    let mut settings = extended();
    let Terms::Auction(terms) = &mut settings.terms else { unreachable!() };
    terms.settle_within_ms = Some(5);
    let mut play = Play::new(settings);
    play.check(&[
        (ENDS, Offer("ann", 10), "bid 1 ends 12000 fence 2"),
        (ENDS + 1, Tick, "nothing"),
        (ENDS + 1, State, "running version 2"),
        (ENDS + 1, Buy("ann"), "auction_not_ended 12000"),
        // The highest bidder at the first end has not won.
        (12_000, Offer("bob", 11), "bid 2 ends 14000 fence 3"),
        (14_000, Tick, "nothing"),
        (14_000, Buy("bob"), "auction_not_ended 14000"),
        (14_001, Buy("ann"), "not_winner"),
        (14_001, Tick, "closed"),
    ]);
    let mut expired = play.clone();
    play.check(&[(19_000, Buy("bob"), "sold to bob for 11 at 19000")]);
    expired.check(&[(19_001, Buy("bob"), "settlement_expired 19000"), (19_001, Tick, "defaulted")]);
}

#[test]
fn a_later_end_by_the_seller_keeps_what_late_bids_have_won() {
    let later = |ends: i64| {
        let mut settings = extended();
        let Terms::Auction(terms) = &mut settings.terms else { unreachable!() };
        terms.ends_at = at(ends);
        settings
    };
    let mut play = Play::new(extended());
    play.check(&[
        (ENDS, Offer("ann", 10), "bid 1 ends 12000 fence 2"),
        (ENDS, Put(later(11_000)), "changed"),
        (ENDS, Offer("bob", 11), "bid 2 ends 12000 fence 4"),
        (ENDS, Put(later(30_000)), "changed"),
        (29_000, Offer("ann", 12), "bid 3 ends 32000 fence 6"),
        (32_000, Offer("bob", 13), "bid 4 ends 32000 fence 7"),
    ]);
}

#[test]
fn an_end_is_not_put_off_beyond_time() {
    let settings = auction_with(|terms| {
        terms.ends_at = Timestamp::MAX;
        terms.extend = Some(Extend { window_ms: 1, by_ms: 2, max_count: 2 });
        terms.settle_within_ms = Some(1);
    });
    let mut play = Play::new(settings);
    let end = Timestamp::MAX.as_us();
    play.check(&[
        (end, Offer("ann", 10), &format!("bid 1 ends {end} fence 2")),
        (i64::MAX, Tick, "nothing"),
        (i64::MAX, Buy("ann"), &format!("auction_not_ended {end}")),
        (i64::MAX, State, "running version 2"),
    ]);
    assert_eq!(play.listings["lamp"].due_at(), None, "it is never over");
}
