//! Each planted bug breaks the promise that it is named after, and nothing while it is not planted.

use super::*;
use crate::planted::{Bug, is, plant};

/// Plays the claims of four users on a coupon for three with this bug planted.
fn told_with(bug: Bug) -> [String; 5] {
    let mut coupon = coupon(limited(3));
    plant(Some(bug));
    let told = ["ann", "bob", "cid", "ann", "dan"].map(|user| apply(&mut coupon, &claim(user), at(1)));
    plant(None);
    told
}

#[test]
fn a_planted_bug_breaks_what_it_says() {
    let rows = [
        (Bug::OversellByOne, ["new 1@1", "new 2@1", "new 3@1", "already_issued 1@1", "new 4@1"]),
        (Bug::OneUserTwice, ["new 1@1", "new 2@1", "new 3@1", "sold_out", "sold_out"]),
        (Bug::GapInSerials, ["new 1@1", "new 3@1", "new 4@1", "already_issued 1@1", "sold_out"]),
        (Bug::AnswerBeforeCommit, ["new 1@1", "new 2@1", "new 3@1", "already_issued 1@1", "sold_out"]),
    ];
    for (bug, wanted) in rows {
        assert_eq!(told_with(bug), wanted, "{bug:?}");
    }
}

#[test]
fn sold_out_told_too_early_rests_on_nothing() {
    let coupon = check(limited(1), &[(1, claim("ann"), "new 1@1")]);
    let sold_out = Err(Rejection::SoldOut);
    assert_eq!(coupon.rests_on(&sold_out), Some(1));
    plant(Some(Bug::SoldOutTooEarly));
    assert_eq!(coupon.rests_on(&sold_out), Some(0));
    plant(None);
    assert_eq!(coupon.rests_on(&sold_out), Some(1));
}

#[test]
fn one_bug_at_most_is_planted_and_every_bug_has_a_name() {
    for (bug, name) in Bug::ALL {
        plant(Some(bug));
        let planted = Bug::ALL.map(|(other, _)| is(other));
        plant(None);
        assert_eq!(planted.iter().filter(|&&planted| planted).count(), 1, "{name}");
        assert!(!is(bug), "{name} is taken out");
        assert!(!name.is_empty());
    }
}
