//! How a winner pays for an auction.

use super::*;

/// ann has bid 20, bob 30, and bob must settle by 15 000.
fn won() -> Play {
    let mut play = Play::new(settled_soon());
    play.check(&[
        (STARTS, Offer("ann", 20), "bid 1 ends 10000 fence 2"),
        (STARTS, Offer("bob", 30), "bid 2 ends 10000 fence 3"),
    ]);
    play
}

#[test]
fn a_settlement_is_checked_in_the_documented_order() {
    won().check(&[
        (ENDS, Buy("ann"), "auction_not_ended 10000"),
        (ENDS, Buy("own"), "auction_not_ended 10000"),
        (ENDS, Buy("bob"), "auction_not_ended 10000"),
        (STARTS - 1, Buy("bob"), "auction_not_ended 10000"),
        (ENDS + 1, Buy("bob"), "sold to bob for 30 at 10001"),
        (ENDS + 2, Buy("ann"), "not_winner"),
        (ENDS + 2, Buy("own"), "not_winner"),
        (15_001, Buy("bob"), "already_sold to bob at 10001"),
    ]);
    let mut expired = won();
    let full = BALANCE_MAX;
    let own = expired.wallets.wallet(&member("own"));
    own.balance = Balance::new(full, 0).unwrap();
    let (wallets, records) = (&mut expired.wallets, &mut expired.records);
    let listing = expired.listings.get_mut("lamp").unwrap();
    let mut buy = |now| listing.purchase(&member("bob"), wallets, at(now), records);
    assert_eq!(buy(15_000), Err(Rejection::BalanceTooLarge));
    assert_eq!(buy(15_001), Err(Rejection::SettlementExpired(at(15_000))));
}

#[test]
fn the_time_to_settle_includes_its_last_instant() {
    let rows = [
        (ENDS, "auction_not_ended 10000"),
        (ENDS + 1, "sold to bob for 30 at 10001"),
        (14_999, "sold to bob for 30 at 14999"),
        (15_000, "sold to bob for 30 at 15000"),
        (15_001, "settlement_expired 15000"),
    ];
    for (now, wanted) in rows {
        // Whether or not a command has closed it before.
        won().check(&[(now, Buy("bob"), wanted)]);
        let mut closed = won();
        closed.check(&[(ENDS + 1, Tick, "closed")]);
        if ENDS < now {
            closed.check(&[(now, Buy("bob"), wanted)]);
        }
    }
}

#[test]
fn without_a_deadline_the_winner_may_settle_for_ever() {
    let mut play = Play::new(auction());
    play.check(&[
        (STARTS, Offer("ann", 20), "bid 1 ends 10000 fence 2"),
        (i64::MAX, Tick, "closed"),
        (i64::MAX, Tick, "nothing"),
        (i64::MAX, Step::Balance("ann"), "80 of 100"),
        (i64::MAX, Buy("ann"), "sold to ann for 20 at 253402300799999999"),
    ]);
}

#[test]
fn the_hold_becomes_the_payment() {
    for closed_before in [false, true] {
        let mut play = won();
        if closed_before {
            play.check(&[(ENDS + 1, Tick, "closed")]);
        }
        let before = play.records.len();
        play.check(&[
            (ENDS + 2, Buy("bob"), "sold to bob for 30 at 10002"),
            // One version for the close, one for the sale.
            (ENDS + 2, State, "sold version 5"),
            (ENDS + 2, Step::Balance("bob"), "70 of 70"),
            (ENDS + 2, Step::Balance("own"), "30 of 30"),
            (ENDS + 2, Step::Balance("ann"), "100 of 100"),
            (i64::MAX, Tick, "nothing"),
        ]);
        assert_eq!(play.written(before), ["bob CAPTURE 30 lamp#2", "bob PURCHASE 30 lamp", "own SOLD 30 lamp"]);
    }
}

#[test]
fn an_owner_without_room_is_not_paid_and_nothing_is_lost() {
    let full = BALANCE_MAX;
    let mut play = won();
    play.fill("own", full - 29);
    play.check(&[
        (ENDS + 1, Buy("bob"), "balance_too_large"),
        (ENDS + 1, Step::Balance("bob"), "70 of 100"),
        (ENDS + 1, Refund("own", 1), &format!("{0} of {0}", full - 30)),
        (ENDS + 2, Buy("bob"), "sold to bob for 30 at 10002"),
        (ENDS + 2, Step::Balance("own"), &format!("{full} of {full}")),
    ]);
}

#[test]
fn no_member_wins_without_a_bid() {
    let mut play = Play::new(settled_soon());
    play.check(&[
        (ENDS, Buy("ann"), "auction_not_ended 10000"),
        (ENDS + 1, Buy("ann"), "not_winner"),
        (ENDS + 1, Tick, "closed"),
        (ENDS + 1, Buy("ann"), "not_winner"),
        (99_999, Buy("own"), "not_winner"),
    ]);
}
