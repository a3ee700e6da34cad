//! The anchor: what a purge may remove, and that a check of the rest finds every later change.

use super::*;

/// Nine records, and a wallet after them.
fn life() -> (Wallet, Vec<Record>) {
    let mut wallet = Wallet::empty(member("ann"));
    let rows = [
        (Kind::Charge, 100, None, 10),
        (Kind::Hold, 30, about("lamp", Some(1)), 20),
        (Kind::Release, 30, about("lamp", Some(1)), 30),
        (Kind::Refund, 5, None, 40),
        (Kind::Hold, 50, about("lamp", Some(3)), 50),
        (Kind::Sold, 7, about("vase", None), 60),
        (Kind::Release, 50, about("lamp", Some(3)), 70),
        (Kind::Charge, 1, None, 80),
        (Kind::Charge, 1, None, 80),
    ];
    let records = rows.map(|(kind, points, about, now)| wallet.apply(kind, amount(points), about, at(now)).unwrap());
    (wallet, records.into())
}

fn never(_: &Reference) -> bool {
    false
}

fn anchor_before(since: i64) -> Option<Anchor> {
    let (wallet, records) = life();
    Anchor::START.advanced(wallet.records, &records, at(since), never)
}

/// Checks the records after an anchor. The error names the first that does not fit.
fn checked(anchor: Anchor, records: &[Record]) -> Result<Wallet, (u64, Damage)> {
    let mut wallet = Wallet::anchored(member("ann"), Some(Arc::new(anchor)));
    for record in records {
        wallet.restore(record).map_err(|damage| (record.number, damage))?;
    }
    Ok(wallet)
}

#[test]
fn old_records_go_and_the_last_one_stays() {
    assert_eq!(anchor_before(10), None, "its instant is the first that stays");
    let anchor = anchor_before(41).unwrap();
    let (number, charged, instant) = (anchor.number, anchor.charged, anchor.at);
    assert_eq!((number, charged, instant, anchor.balance), (4, 95, at(40), balance(95, 0)));
    assert_eq!(anchor.chain, life().1[3].chain);
    assert_eq!(anchor_before(1_000).map(|anchor| (anchor.number, anchor.charged)), Some((8, 96)));
}

#[test]
fn pages_lead_to_the_same_anchor_as_all_at_once() {
    let (wallet, records) = life();
    let mut anchor = Anchor::START;
    while let Some(next) = anchor.advanced(wallet.records, &records[anchor.number as usize..][..2], at(1_000), never) {
        anchor = next;
        if records.len() < anchor.number as usize + 2 {
            break;
        }
    }
    assert_eq!(Some(anchor), anchor_before(1_000));
    assert_eq!(anchor.advanced(wallet.records, &records[..3], at(1_000), never), None, "a page from elsewhere");
}

#[test]
fn a_hold_that_has_not_ended_stays_with_all_after_it() {
    let (wallet, records) = life();
    let is_open = |about: &Reference| about.bid == Some(3);
    let anchor = Anchor::START.advanced(wallet.records, &records, at(1_000), is_open).unwrap();
    assert_eq!(anchor.number, 4);
    assert_eq!(anchor.advanced(wallet.records, &records[4..], at(1_000), is_open), None);
}

#[test]
fn charges_beyond_what_an_anchor_counts_stay() {
    let (wallet, records) = life();
    let full = Anchor { charged: i64::MAX, ..Anchor::START };
    assert_eq!(full.advanced(wallet.records, &records, at(1_000), never), None);
}

#[test]
fn the_rest_leads_from_every_anchor_to_the_wallet() {
    let (wallet, records) = life();
    for since in [11, 21, 31, 41, 51, 61, 71, 1_000] {
        let anchor = anchor_before(since).unwrap();
        let rest = checked(anchor, &records[anchor.number as usize..]).unwrap();
        assert_eq!(rest, Wallet { anchor: Some(Arc::new(anchor)), ..wallet.clone() }, "since {since}");
    }
}

#[test]
fn a_change_of_the_anchor_or_of_a_record_after_it_is_found() {
    let (_, records) = life();
    let anchor = anchor_before(51).unwrap();
    let rest = &records[anchor.number as usize..];
    let anchored = |change: fn(&mut Anchor)| {
        let mut anchor = anchor;
        change(&mut anchor);
        checked(anchor, rest).unwrap_err()
    };
    assert_eq!(anchored(|it| it.number = 4), (6, Damage::Gap));
    assert_eq!(anchored(|it| it.balance = balance(96, 50)), (6, Damage::WrongBalance));
    assert_eq!(anchored(|it| it.balance = balance(95, 49)), (6, Damage::WrongBalance));
    assert_eq!(anchored(|it| it.chain.0[0] ^= 1), (6, Damage::BrokenChain));
    assert_eq!(anchored(|it| it.at = at(61)), (6, Damage::TimeFell));
    let changed = |change: fn(&mut Record)| {
        let mut rest = rest.to_vec();
        change(&mut rest[0]);
        checked(anchor, &rest).unwrap_err()
    };
    assert_eq!(changed(|it| it.amount = amount(8)), (6, Damage::WrongBalance));
    assert_eq!(changed(|it| it.at = at(59)), (6, Damage::BrokenChain));
    assert_eq!(changed(|it| it.about = about("vasf", None)), (6, Damage::BrokenChain));
    assert_eq!(checked(anchor, &rest[1..]), Err((7, Damage::Gap)), "the first one is gone");
    assert_eq!(checked(anchor, &records[4..]), Err((5, Damage::Gap)), "one is left that the anchor stands for");
    assert_eq!(checked(Anchor::START, rest), Err((6, Damage::Gap)), "no anchor");
}

#[test]
fn an_anchor_under_another_name_says_nothing_of_the_name_before() {
    let anchor = anchor_before(41).unwrap();
    let other = member("bob");
    let renamed = anchor.renamed(&other);
    assert_eq!(Anchor { chain: anchor.chain, ..renamed }, anchor, "the rest stays");
    // It is made from what the anchor has and from the new name: two members with the same past have the same value.
    assert_eq!(Anchor { chain: Chain([7; 32]), ..anchor }.renamed(&other), renamed);
    assert_ne!(renamed.chain, anchor.renamed(&member("cid")).chain);
    assert_ne!(renamed.chain, Anchor { number: 5, ..anchor }.renamed(&other).chain);
    assert_ne!(renamed.chain, Anchor { balance: balance(95, 1), ..anchor }.renamed(&other).chain);
    let mut wallet = Wallet::anchored(other.clone(), Some(Arc::new(renamed)));
    let mut chain = renamed.chain;
    for record in life().1.into_iter().skip(4) {
        let record = record.renamed(other.clone(), chain);
        chain = record.chain;
        assert_eq!(wallet.restore(&record), Ok(()));
    }
    assert_eq!(wallet.records, 9);
}
