//! Which settings a seller may choose.

use super::*;
use crate::limits::{EXTENSION_MS_MAX, EXTENSIONS_MAX, SETTLE_MS_MAX};

#[test]
fn settings_are_checked_at_every_boundary() {
    let extend =
        |window_ms, by_ms, max_count| auction_with(|terms| terms.extend = Some(Extend { window_ms, by_ms, max_count }));
    let settle = |ms| auction_with(|terms| terms.settle_within_ms = Some(ms));
    let ends = |us| auction_with(|terms| terms.ends_at = at(us));
    let rows = [
        (fixed_price(), None),
        (auction(), None),
        (ends(STARTS), None),
        (ends(STARTS - 1), Some("ends_at")),
        (ListingSettings { starts_at: None, ..ends(i64::MIN) }, None),
        (extend(1, 1, 1), None),
        (extend(EXTENSION_MS_MAX, EXTENSION_MS_MAX, EXTENSIONS_MAX), None),
        (extend(0, 1, 1), Some("extend.window_ms")),
        (extend(EXTENSION_MS_MAX + 1, 1, 1), Some("extend.window_ms")),
        (extend(1, 0, 1), Some("extend.by_ms")),
        (extend(1, EXTENSION_MS_MAX + 1, 1), Some("extend.by_ms")),
        (extend(1, 1, 0), Some("extend.max_count")),
        (extend(1, 1, EXTENSIONS_MAX + 1), Some("extend.max_count")),
        (settle(1), None),
        (settle(SETTLE_MS_MAX), None),
        (settle(0), Some("settle_within_ms")),
        (settle(SETTLE_MS_MAX + 1), Some("settle_within_ms")),
    ];
    for (settings, wanted) in rows {
        let told = settings.check();
        assert_eq!(told.as_ref().err().map(|(field, _)| *field), wanted, "{settings:?}");
        if let Err((field, words)) = told {
            assert!(words.starts_with(field), "{words}");
        }
    }
}

#[test]
fn the_longest_extensions_fit() {
    let most = auction_with(|terms| {
        let (by_ms, max_count) = (EXTENSION_MS_MAX, EXTENSIONS_MAX);
        terms.extend = Some(Extend { window_ms: EXTENSION_MS_MAX, by_ms, max_count });
    });
    let mut play = Play::new(most);
    play.apply("lamp", &Charge("ann", 10_000), 0);
    play.apply("lamp", &Charge("bob", 10_000), 0);
    for number in 0..u64::from(EXTENSIONS_MAX) + 2 {
        let bidder = if number % 2 == 0 { "ann" } else { "bob" };
        let now = play.standing().effective_ends_at;
        let standing = play.ask("lamp", &Offer(bidder, 10 + number), now);
        assert!(standing.0, "{standing:?}");
    }
    assert_sound(&play);
    let day_us = 86_400_000_000;
    assert_eq!(play.standing().effective_ends_at, at(ENDS + 1_000 * day_us), "no later than the count allows");
}

#[test]
fn codes_and_states_are_those_of_the_contract() {
    let sale = Sale { buyer: member("ann"), price: amount(1), at: at(0) };
    let rows = [
        (Rejection::UnknownListing, "unknown_listing"),
        (Rejection::KeyReused, "idempotency_key_reused"),
        (Rejection::OwnListing, "own_listing"),
        (Rejection::NotInProgress, "not_in_progress"),
        (Rejection::AlreadyHighestBidder, "already_highest_bidder"),
        (Rejection::BidTooLow(1), "bid_too_low"),
        (Rejection::InsufficientPoints(1), "insufficient_points"),
        (Rejection::AuctionNotEnded(at(0)), "auction_not_ended"),
        (Rejection::NotWinner, "not_winner"),
        (Rejection::AlreadySold(sale), "already_sold"),
        (Rejection::SettlementExpired(at(0)), "settlement_expired"),
        (Rejection::ListingRunning, "listing_running"),
        (Rejection::ListingEnded, "listing_ended"),
        (Rejection::EndsBeforeStart, "ends_before_start"),
        (Rejection::BalanceTooLarge, "balance_too_large"),
    ];
    for (rejection, code) in rows {
        assert_eq!(rejection.code(), code);
    }
    use ListingState::{Ended, Running, Scheduled, Sold, Unsold};
    let states = [Scheduled, Running, Ended, Sold, Unsold].map(ListingState::as_str);
    assert_eq!(states, ["scheduled", "running", "ended", "sold", "unsold"]);
}
