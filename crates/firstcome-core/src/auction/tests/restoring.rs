//! Restored state is accepted only if it agrees with the rules.

use super::*;

/// ann has bid 20 and bob, late, 30: ends at 12 000, to be settled by 17 000.
fn running() -> ListingStanding {
    let mut settings = extended();
    let Terms::Auction(terms) = &mut settings.terms else { unreachable!() };
    terms.settle_within_ms = Some(5);
    let mut play = Play::new(settings);
    play.check(&[
        (STARTS, Offer("ann", 20), "bid 1 ends 10000 fence 2"),
        (ENDS, Offer("bob", 30), "bid 2 ends 12000 fence 3"),
    ]);
    play.standing().clone()
}

fn sale(buyer: &str, price: u64, now: i64) -> Phase {
    Phase::Sold(Sale { buyer: member(buyer), price: amount(price), at: at(now) })
}

#[track_caller]
fn told(standing: &ListingStanding, change: impl FnOnce(&mut ListingStanding)) -> Option<Damage> {
    let mut changed = standing.clone();
    change(&mut changed);
    match Listing::restore(changed.clone()) {
        Ok(listing) => {
            assert_eq!(*listing.standing(), changed);
            None
        }
        Err(damage) => Some(damage),
    }
}

fn highest(standing: &mut ListingStanding) -> &mut Bid {
    standing.highest.as_mut().expect("there is one")
}

#[test]
fn bids_that_were_not_accepted_are_found() {
    let standing = running();
    assert_eq!(told(&standing, |_| ()), None);
    assert_eq!(told(&standing, |it| it.bids = 1), Some(Damage::Bids));
    assert_eq!(told(&standing, |it| it.bids = 3), Some(Damage::Bids));
    assert_eq!(told(&standing, |it| highest(it).number = 3), Some(Damage::Bids));
    assert_eq!(told(&standing, |it| it.highest = None), Some(Damage::Bids));
    assert_eq!(told(&standing, |it| (it.bids, highest(it).number) = (0, 0)), Some(Damage::Bids));
    assert_eq!(told(&standing, |it| it.version = 2), Some(Damage::Bids), "fences would come again");
    assert_eq!(told(&standing, |it| highest(it).bidder = member("own")), Some(Damage::Bids));
    assert_eq!(told(&standing, |it| highest(it).price = amount(9)), Some(Damage::Bids));
    assert_eq!(told(&standing, |it| highest(it).price = amount(10)), None);
    assert_eq!(told(&standing, |it| highest(it).at = at(STARTS - 1)), Some(Damage::Bids));
    assert_eq!(told(&standing, |it| highest(it).at = at(STARTS)), None);
    assert_eq!(told(&standing, |it| (highest(it).at, it.last_at) = (at(12_001), at(12_001))), Some(Damage::Bids));
    assert_eq!(told(&standing, |it| highest(it).at = at(ENDS + 1)), Some(Damage::Bids), "after the last change");
    let fixed = Play::new(fixed_price()).standing().clone();
    assert_eq!(told(&fixed, |it| (it.bids, it.highest) = (2, standing.highest.clone())), Some(Damage::Bids));
}

#[test]
fn an_end_that_extensions_do_not_lead_to_is_found() {
    let standing = running();
    let ends = |ends: i64, extensions: u32| {
        told(&standing, |it| (it.effective_ends_at, it.extensions) = (at(ends), extensions))
    };
    assert_eq!(ends(12_000, 1), None);
    assert_eq!(ends(10_000, 0), None);
    assert_eq!(ends(9_999, 0), Some(Damage::Bids), "its bid would be too late");
    assert_eq!(ends(10_001, 0), Some(Damage::End));
    assert_eq!(ends(12_001, 1), Some(Damage::End));
    assert_eq!(ends(14_000, 2), None);
    assert_eq!(ends(14_001, 2), Some(Damage::End));
    assert_eq!(ends(12_000, 3), Some(Damage::End));
    let without = Play::new(extended()).standing().clone();
    assert_eq!(
        told(&without, |it| (it.effective_ends_at, it.extensions) = (at(12_000), 1)),
        Some(Damage::End),
        "put off by nobody"
    );
    assert_eq!(told(&without, |it| it.effective_ends_at = at(ENDS - 1)), Some(Damage::End));
    assert_eq!(told(&without, |it| it.starts_at = at(ENDS + 1)), Some(Damage::End));
    let fixed = Play::new(fixed_price()).standing().clone();
    assert_eq!(told(&fixed, |_| ()), None);
    assert_eq!(told(&fixed, |it| it.effective_ends_at = at(ENDS)), Some(Damage::End));
    assert_eq!(told(&fixed, |it| it.extensions = 1), Some(Damage::End));
}

#[test]
fn an_outcome_that_is_not_that_of_the_highest_bid_is_found() {
    let standing = running();
    let rows = [
        (Phase::Ended(at(12_000)), false),
        (Phase::Ended(at(12_001)), true),
        (Phase::Ended(at(17_000)), true),
        (Phase::Ended(at(17_001)), false),
        (Phase::Unsold(at(17_000)), false),
        (Phase::Unsold(at(17_001)), true),
        (sale("bob", 30, 12_000), false),
        (sale("bob", 30, 12_001), true),
        (sale("bob", 30, 17_000), true),
        (sale("bob", 30, 17_001), false),
        (sale("ann", 30, 12_001), false),
        (sale("bob", 29, 12_001), false),
    ];
    for (phase, sound) in rows {
        let wanted = (!sound).then_some(Damage::Outcome);
        let changed_at = |last_at: Timestamp| {
            told(&standing, |it| {
                it.phase = phase.clone();
                it.last_at = last_at;
            })
        };
        assert_eq!(changed_at(at(20_000)), wanted, "{phase:?}");
        assert_eq!(changed_at(at(12_000)), Some(Damage::Outcome), "{phase:?}, later than the last change");
    }
    let nobody = Play::new(auction()).standing().clone();
    for (phase, sound) in [
        (Phase::Ended(at(ENDS + 1)), false),
        (Phase::Unsold(at(ENDS)), false),
        (Phase::Unsold(at(ENDS + 1)), true),
        (sale("bob", 10, ENDS + 1), false),
    ] {
        let wanted = (!sound).then_some(Damage::Outcome);
        let found = told(&nobody, |it| {
            it.phase = phase.clone();
            it.last_at = at(ENDS + 1);
        });
        assert_eq!(found, wanted, "{phase:?}, nobody bid");
    }
    let forever = |phase: Phase| {
        told(&standing, |it| {
            let Terms::Auction(terms) = &mut it.terms else { unreachable!() };
            terms.settle_within_ms = None;
            it.phase = phase;
            it.last_at = Timestamp::MAX;
        })
    };
    assert_eq!(forever(Phase::Unsold(Timestamp::MAX)), Some(Damage::Outcome), "the winner could settle for ever");
    let fixed = Play::new(fixed_price()).standing().clone();
    for (phase, sound) in [
        (Phase::Ended(Timestamp::MAX), false),
        (Phase::Unsold(Timestamp::MAX), false),
        (sale("bob", 10, STARTS - 1), false),
        (sale("bob", 10, STARTS), true),
        (sale("bob", 11, STARTS), false),
        (sale("own", 10, STARTS), false),
    ] {
        let wanted = (!sound).then_some(Damage::Outcome);
        let found = told(&fixed, |it| {
            it.phase = phase.clone();
            it.last_at = Timestamp::MAX;
        });
        assert_eq!(found, wanted, "{phase:?} of a fixed price");
    }
    let found = told(&fixed, |it| {
        it.phase = sale("bob", 10, STARTS + 1);
        it.last_at = at(STARTS);
    });
    assert_eq!(found, Some(Damage::Outcome), "sold later than the last change");
}

#[test]
fn a_restored_auction_goes_on_where_it_stood() {
    let mut settings = extended();
    let Terms::Auction(terms) = &mut settings.terms else { unreachable!() };
    terms.settle_within_ms = Some(5);
    let mut play = Play::new(settings);
    play.check(&[(ENDS, Offer("ann", 20), "bid 1 ends 12000 fence 2")]);
    let again = |play: &mut Play| {
        let restored = Listing::restore(play.standing().clone()).unwrap();
        play.listings.insert("lamp".to_owned(), restored);
    };
    again(&mut play);
    play.check(&[
        (12_000, Offer("ann", 30), "already_highest_bidder"),
        (12_000, Offer("bob", 30), "bid 2 ends 14000 fence 3"),
    ]);
    again(&mut play);
    play.check(&[(14_000, Offer("ann", 31), "bid 3 ends 14000 fence 4"), (14_001, Tick, "closed")]);
    again(&mut play);
    play.check(&[(14_001, Tick, "nothing"), (19_000, Buy("ann"), "sold to ann for 31 at 19000")]);
    again(&mut play);
    play.check(&[(19_000, Buy("ann"), "already_sold to ann at 19000"), (99_999, Tick, "nothing")]);
}

#[test]
fn damage_is_told_in_words_of_its_own() {
    let all = [Damage::Bids, Damage::End, Damage::Outcome].map(Damage::as_str);
    let different: std::collections::BTreeSet<&str> = all.into_iter().collect();
    assert_eq!(different.len(), all.len());
}
