//! Amounts, balances and kinds at their limits.

use super::*;

#[test]
fn an_amount_is_one_to_ten_to_the_twelfth() {
    let most = 1_000_000_000_000;
    let rows = [(0, false), (1, true), (2, true), (most - 1, true), (most, true), (most + 1, false), (u64::MAX, false)];
    for (points, valid) in rows {
        assert_eq!(Amount::new(points).map(Amount::get), valid.then_some(points), "{points}");
    }
}

#[test]
fn a_balance_holds_no_more_than_it_has_and_fits_in_every_json_reader() {
    let most = 9_007_199_254_740_991;
    let rows = [
        (0, 0, true),
        (0, 1, false),
        (1, 0, true),
        (1, 1, true),
        (1, 2, false),
        (most, 0, true),
        (most, most, true),
        (most, most + 1, false),
        (most + 1, 0, false),
        (u64::MAX, u64::MAX, false),
    ];
    for (total, held, valid) in rows {
        let balance = Balance::new(total, held);
        let told = balance.map(|balance| (balance.total(), balance.held(), balance.available()));
        assert_eq!(told, valid.then(|| (total, held, total - held)), "{total}, of it {held} held");
    }
    assert_eq!(Balance::default(), balance(0, 0));
}

#[test]
fn kinds_keep_their_words_and_numbers() {
    let rows = [
        ("CHARGE", 1, (7, 7)),
        ("REFUND", 2, (-7, -7)),
        ("HOLD", 3, (0, -7)),
        ("RELEASE", 4, (0, 7)),
        ("CAPTURE", 5, (0, 7)),
        ("PURCHASE", 6, (-7, -7)),
        ("SOLD", 7, (7, 7)),
    ];
    assert_eq!(rows.len(), Kind::ALL.len());
    for (kind, (word, number, deltas)) in Kind::ALL.into_iter().zip(rows) {
        assert_eq!((kind.as_str(), kind.number(), kind.deltas(amount(7))), (word, number, deltas));
        assert_eq!(Kind::from_number(number), Some(kind));
        let largest = kind.deltas(amount(AMOUNT_MAX));
        assert_eq!(largest.0.abs().max(largest.1.abs()), 1_000_000_000_000, "{word} of the largest amount");
    }
    assert_eq!([0, 8, u8::MAX].map(Kind::from_number), [None; 3]);
}

#[test]
fn a_reference_is_written_with_its_bid() {
    let written = [about("lamp", None), about("lamp", Some(7)), about("lamp", Some(u32::MAX))];
    let written = written.map(|about| about.unwrap().to_string());
    assert_eq!(written, ["lamp", "lamp#7", "lamp#4294967295"]);
}

#[test]
fn damage_is_told_in_words_of_its_own() {
    let all = [Damage::Gap, Damage::TimeFell, Damage::WrongBalance, Damage::BrokenChain].map(Damage::as_str);
    let different: std::collections::BTreeSet<&str> = all.into_iter().collect();
    assert_eq!(different.len(), all.len());
}
