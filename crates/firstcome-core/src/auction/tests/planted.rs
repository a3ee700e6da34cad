//! Each planted bug of auctions breaks the promise that it is named after, and nothing while it is not planted.

use super::*;
use crate::planted::{Bug, plant};

/// Returns the answers with the bug, and without it.
fn told(bug: Bug, scene: impl Fn() -> String) -> (String, String) {
    let sound = scene();
    plant(Some(bug));
    let broken = scene();
    plant(None);
    assert_eq!(scene(), sound, "taken out again");
    (sound, broken)
}

fn pair(sound: &str, broken: &str) -> (String, String) {
    (sound.to_owned(), broken.to_owned())
}

/// Plays the steps, on `lamp` unless they name a listing, without checking the invariants.
fn play(settings: ListingSettings, steps: &[(&str, i64, Step)]) -> Play {
    let mut play = Play::new(settings.clone());
    play.list("vase", settings);
    for (name, now, step) in steps {
        play.ask(name, step, at(*now));
    }
    play
}

fn outbid() -> Play {
    let steps =
        [("vase", STARTS, Offer("ann", 50)), ("lamp", STARTS, Offer("ann", 20)), ("lamp", STARTS, Offer("bob", 30))];
    play(auction(), &steps)
}

#[test]
fn a_hold_released_twice_frees_the_points_of_another_bid() {
    let scene = || format!("{} held", outbid().balance("ann").held());
    assert_eq!(told(Bug::ReleasedTwice, scene), pair("50 held", "30 held"));
}

#[test]
fn a_hold_that_is_not_released_stays_held() {
    let scene = || format!("{} held", outbid().balance("ann").held());
    assert_eq!(told(Bug::HoldNotReleased, scene), pair("50 held", "70 held"));
}

#[test]
fn an_auction_closed_twice_releases_twice() {
    let scene = || {
        let steps = [("vase", STARTS, Offer("ann", 50)), ("lamp", STARTS, Offer("ann", 20)), ("lamp", 15_001, Tick)];
        let mut play = play(settled_soon(), &steps);
        let again = play.ask("lamp", &Tick, at(15_002)).1;
        format!("{again}, {} held, version {}", play.balance("ann").held(), play.standing().version)
    };
    let wanted = pair("nothing, 50 held, version 4", "defaulted, 30 held, version 5");
    assert_eq!(told(Bug::ClosedTwice, scene), wanted);
}

#[test]
fn a_refused_bid_puts_the_end_off() {
    let scene = || {
        let play = play(extended(), &[("lamp", ENDS, Offer("poor", 10))]);
        format!("ends {}", play.standing().effective_ends_at.as_us())
    };
    assert_eq!(told(Bug::ExtendedByRefused, scene), pair("ends 10000", "ends 12000"));
}

/// Shows that the checks of the invariants, which every other test runs after every step, see each of the bugs.
#[test]
fn the_invariants_see_every_bug() {
    let mut soon = extended();
    let Terms::Auction(terms) = &mut soon.terms else { unreachable!() };
    terms.settle_within_ms = Some(5);
    let steps = [
        ("later", STARTS, Offer("ann", 50)),
        ("vase", STARTS, Offer("ann", 20)),
        ("lamp", ENDS, Offer("poor", 60)),
        ("lamp", ENDS, Offer("ann", 20)),
        ("lamp", ENDS, Offer("bob", 30)),
        ("vase", 15_001, Tick),
        ("vase", 15_001, Tick),
    ];
    let seen = || {
        let mut play = Play::new(soon.clone());
        play.list("vase", soon.clone());
        play.list("later", auction_with(|terms| terms.ends_at = at(99_000)));
        for (name, now, step) in &steps {
            play.apply(name, step, *now);
        }
    };
    seen();
    let bugs = [Bug::ReleasedTwice, Bug::HoldNotReleased, Bug::ClosedTwice, Bug::ExtendedByRefused];
    for bug in bugs {
        plant(Some(bug));
        let broken = std::panic::catch_unwind(seen);
        plant(None);
        assert!(broken.is_err(), "{bug:?} was not seen");
    }
}
