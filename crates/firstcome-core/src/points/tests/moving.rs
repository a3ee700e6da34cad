//! The effects of movements, and why some are impossible.

use super::*;

const MOST: u64 = BALANCE_MAX;

/// Total and held, the kind, the amount, and the expected result.
type Row = ((u64, u64), Kind, u64, Result<(u64, u64), NoBalance>);

#[test]
fn movements_lead_where_they_should_or_nowhere() {
    use Kind::{Capture, Charge, Hold, Purchase, Refund, Release, Sold};
    use NoBalance::{Insufficient, NotHeld, TooLarge};
    let rows: [Row; 38] = [
        ((0, 0), Charge, 1, Ok((1, 0))),
        ((5, 5), Charge, 3, Ok((8, 5))),
        ((MOST - 1, 0), Charge, 1, Ok((MOST, 0))),
        ((MOST, 0), Charge, 1, Err(TooLarge)),
        ((MOST - AMOUNT_MAX, 0), Charge, AMOUNT_MAX, Ok((MOST, 0))),
        ((MOST - AMOUNT_MAX + 1, 0), Charge, AMOUNT_MAX, Err(TooLarge)),
        // Held points count: they still belong to the member.
        ((MOST, MOST), Charge, 1, Err(TooLarge)),
        ((MOST - 1, 7), Sold, 1, Ok((MOST, 7))),
        ((MOST, 7), Sold, 1, Err(TooLarge)),
        ((0, 0), Sold, AMOUNT_MAX, Ok((AMOUNT_MAX, 0))),
        ((0, 0), Refund, 1, Err(Insufficient)),
        ((1, 0), Refund, 1, Ok((0, 0))),
        ((1, 0), Refund, 2, Err(Insufficient)),
        ((9, 4), Refund, 5, Ok((4, 4))),
        ((9, 4), Refund, 6, Err(Insufficient)),
        ((MOST, 0), Refund, AMOUNT_MAX, Ok((MOST - AMOUNT_MAX, 0))),
        ((0, 0), Hold, 1, Err(Insufficient)),
        ((9, 0), Hold, 9, Ok((9, 9))),
        ((9, 0), Hold, 10, Err(Insufficient)),
        // Two bids cannot be backed by the same points.
        ((9, 4), Hold, 5, Ok((9, 9))),
        ((9, 4), Hold, 6, Err(Insufficient)),
        ((MOST, MOST - 1), Hold, 1, Ok((MOST, MOST))),
        ((MOST, MOST), Hold, 1, Err(Insufficient)),
        ((9, 0), Purchase, 9, Ok((0, 0))),
        ((9, 4), Purchase, 5, Ok((4, 4))),
        ((9, 4), Purchase, 6, Err(Insufficient)),
        ((9, 9), Purchase, 1, Err(Insufficient)),
        ((9, 4), Release, 4, Ok((9, 0))),
        ((9, 4), Release, 3, Ok((9, 1))),
        ((9, 4), Release, 5, Err(NotHeld)),
        ((9, 0), Release, 1, Err(NotHeld)),
        ((MOST, MOST), Release, AMOUNT_MAX, Ok((MOST, MOST - AMOUNT_MAX))),
        ((9, 4), Capture, 4, Ok((9, 0))),
        ((9, 4), Capture, 5, Err(NotHeld)),
        ((9, 0), Capture, 1, Err(NotHeld)),
        ((0, 0), Capture, 1, Err(NotHeld)),
        ((0, 0), Purchase, 1, Err(Insufficient)),
        ((MOST, MOST), Refund, 1, Err(Insufficient)),
    ];
    for ((total, held), kind, points, wanted) in rows {
        let before = wallet(total, held);
        let mut after = before.clone();
        let told = after.apply(kind, amount(points), None, at(1));
        let wanted = wanted.map(|(total, held)| balance(total, held));
        assert_eq!(told.map(|record| record.balance), wanted);
        match wanted {
            Ok(wanted) => {
                assert_eq!(after.balance, wanted, "{kind:?} of {points}");
                let (total_delta, available_delta) = kind.deltas(amount(points));
                let total = before.balance.total().checked_add_signed(total_delta);
                let available = before.balance.available().checked_add_signed(available_delta);
                assert_eq!(
                    (total, available),
                    (Some(wanted.total()), Some(wanted.available())),
                    "{kind:?}: its deltas"
                );
            }
            Err(_) => assert_eq!(after, before, "{kind:?} of {points} was refused and changed something"),
        }
    }
}

#[test]
fn a_record_says_everything_about_its_movement() {
    let mut wallet = Wallet::empty(member("ann"));
    let charged = wallet.apply(Kind::Charge, amount(10), None, at(5)).unwrap();
    let held = wallet.apply(Kind::Hold, amount(4), about("lamp", Some(3)), at(6)).unwrap();
    assert_eq!((charged.number, charged.kind, charged.amount, charged.at), (1, Kind::Charge, amount(10), at(5)));
    assert_eq!((charged.balance, charged.about), (balance(10, 0), None));
    assert_eq!((held.number, held.kind, held.amount, held.at), (2, Kind::Hold, amount(4), at(6)));
    assert_eq!((held.balance, held.about, held.member), (balance(10, 4), about("lamp", Some(3)), member("ann")));
    assert_ne!(charged.chain, held.chain);
    assert_eq!((wallet.records, wallet.last_at, wallet.chain), (2, at(6), held.chain));
}

#[test]
fn a_clock_that_goes_back_does_not_take_records_back() {
    let mut wallet = Wallet::empty(member("ann"));
    let instants = [5, 3, 5, 6, i64::MIN / 1_000_000, 7]
        .map(|now| wallet.apply(Kind::Charge, amount(1), None, Timestamp::clamped_us(now)).unwrap().at.as_us());
    assert_eq!(instants, [5, 5, 5, 6, 6, 7]);
}

#[test]
fn no_member_has_anything_before_the_first_charge() {
    let empty = Wallet::empty(member("ann"));
    assert_eq!((empty.balance, empty.records, empty.chain), (Balance::default(), 0, Chain::default()));
    for kind in Kind::ALL {
        let told = empty.clone().apply(kind, amount(1), None, at(0)).is_ok();
        assert_eq!(told, matches!(kind, Kind::Charge | Kind::Sold), "{kind:?}");
    }
}
