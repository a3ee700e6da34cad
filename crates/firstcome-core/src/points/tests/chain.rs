//! The chain of records: stored records are restored, and every later change of one is found.

use super::*;

/// A wallet with nine records of all kinds.
fn life() -> (Wallet, Vec<Record>) {
    let mut wallet = Wallet::empty(member("ann"));
    let rows = [
        (Kind::Charge, 100, None, 10),
        (Kind::Hold, 30, about("lamp", Some(1)), 20),
        (Kind::Release, 30, about("lamp", Some(1)), 30),
        (Kind::Hold, 50, about("lamp", Some(3)), 40),
        (Kind::Capture, 50, about("lamp", Some(3)), 50),
        (Kind::Purchase, 50, about("lamp", None), 50),
        (Kind::Sold, 7, about("vase", None), 60),
        (Kind::Refund, 5, None, 60),
        (Kind::Charge, 1, None, 70),
    ];
    let records = rows.map(|(kind, points, about, now)| wallet.apply(kind, amount(points), about, at(now)).unwrap());
    (wallet, records.into())
}

fn restored(records: &[Record]) -> Result<Wallet, (usize, Damage)> {
    let mut wallet = Wallet::empty(member("ann"));
    for (place, record) in records.iter().enumerate() {
        let before = wallet.clone();
        if let Err(damage) = wallet.restore(record) {
            assert_eq!(wallet, before, "damage leaves no trace");
            return Err((place, damage));
        }
    }
    Ok(wallet)
}

#[test]
fn what_was_written_comes_back() {
    let (wallet, records) = life();
    assert_eq!(restored(&records), Ok(wallet));
    assert_eq!(restored(&[]), Ok(Wallet::empty(member("ann"))));
}

#[test]
fn a_restored_wallet_goes_on_where_it_stood() {
    let (mut wallet, records) = life();
    let mut again = restored(&records).unwrap();
    let next = |wallet: &mut Wallet| wallet.apply(Kind::Charge, amount(9), None, at(1)).unwrap();
    assert_eq!(next(&mut again), next(&mut wallet), "with the same number, instant and chain");
}

/// Another program computed these values from the docs of `Record::chained`. The encoding never changes.
#[test]
fn anybody_can_compute_the_chain() {
    let (_, records) = life();
    let hex = |chain: Chain| chain.to_string();
    assert_eq!(hex(records[0].chain), "6a0a9a643eda5f760637c73f902b55f4bc0aa1902a15c60e1a6b091da2bac56f");
    assert_eq!(hex(records[1].chain), "ca37c56c2601f089bda74789802fbcd0570bdbaf20cc35bdecd2f8937645aa1c");
    assert_eq!(hex(records[8].chain), "8e8ae2e4ea66fce31bac79c3b0880f06b749c9b350f29e5b70637db780e214e7");
}

#[test]
fn every_kind_of_damage_is_named() {
    let (_, records) = life();
    let changed = |place: usize, change: fn(&mut Record)| {
        let mut records = records.clone();
        change(&mut records[place]);
        restored(&records).unwrap_err()
    };
    assert_eq!(changed(2, |it| it.number = 2), (2, Damage::Gap));
    assert_eq!(changed(2, |it| it.number = 4), (2, Damage::Gap));
    assert_eq!(changed(0, |it| it.number = 0), (0, Damage::Gap));
    assert_eq!(changed(2, |it| it.at = at(19)), (2, Damage::TimeFell));
    assert_eq!(changed(2, |it| it.at = at(20)), (2, Damage::BrokenChain));
    assert_eq!(changed(2, |it| it.balance = balance(100, 30)), (2, Damage::WrongBalance));
    assert_eq!(changed(2, |it| it.amount = amount(29)), (2, Damage::WrongBalance));
    assert_eq!(changed(2, |it| it.kind = Kind::Hold), (2, Damage::WrongBalance));
    // Released or captured, the balance is the same, but the chain is not.
    assert_eq!(changed(2, |it| it.kind = Kind::Capture), (2, Damage::BrokenChain));
    assert_eq!(changed(0, |it| it.kind = Kind::Sold), (0, Damage::BrokenChain));
    assert_eq!(changed(5, |it| it.kind = Kind::Refund), (5, Damage::BrokenChain));
    assert_eq!(changed(2, |it| it.member = member("Ann")), (2, Damage::BrokenChain));
    assert_eq!(changed(2, |it| it.about = None), (2, Damage::BrokenChain));
    assert_eq!(changed(2, |it| it.about = about("lamq", Some(1))), (2, Damage::BrokenChain));
    assert_eq!(changed(2, |it| it.about = about("lamp", Some(2))), (2, Damage::BrokenChain));
    assert_eq!(changed(2, |it| it.about = about("lamp", None)), (2, Damage::BrokenChain));
    assert_eq!(changed(5, |it| it.about = about("lamp", Some(0))), (5, Damage::BrokenChain));
    assert_eq!(changed(2, |it| it.chain.0[31] ^= 1), (2, Damage::BrokenChain));
    assert_eq!(changed(8, |it| it.at = at(71)), (8, Damage::BrokenChain), "the last one too");
}

#[test]
fn amount_and_balance_changed_together_are_found() {
    let (_, mut records) = life();
    records[0].amount = amount(200);
    for record in &mut records {
        record.balance = balance(record.balance.total() + 100, record.balance.held());
    }
    assert_eq!(restored(&records), Err((0, Damage::BrokenChain)));
}

#[test]
fn a_chain_made_anew_from_some_record_on_does_not_fit_the_one_that_was_told() {
    let (wallet, records) = life();
    let mut forged = restored(&records[..6]).unwrap();
    for record in &records[6..] {
        // One instant changes, and all later records are written again by the rules.
        let about = record.about.clone();
        forged.apply(record.kind, record.amount, about, record.at.plus_ms(1)).unwrap();
    }
    assert_eq!((forged.balance, forged.records), (wallet.balance, wallet.records));
    assert_ne!(forged.chain, wallet.chain, "so whoever was shown the chain knows");
}

#[test]
fn records_that_were_swapped_or_left_out_are_found() {
    let (wallet, records) = life();
    for place in 0..records.len() {
        let mut without = records.clone();
        without.remove(place);
        if place == records.len() - 1 {
            let shorter = restored(&without).expect("a prefix is a life too");
            assert_ne!((shorter.records, shorter.chain), (wallet.records, wallet.chain), "its end is told apart");
            continue;
        }
        assert_eq!(restored(&without), Err((place, Damage::Gap)), "without the record at {place}");
        // The later records move up by one number.
        for (number, record) in (1..).zip(&mut without) {
            record.number = number;
        }
        assert!(restored(&without).is_err_and(|(found, _)| found == place), "numbered anew without {place}");
    }
    for place in 1..records.len() {
        let mut swapped = records.clone();
        swapped.swap(place - 1, place);
        assert_eq!(restored(&swapped), Err((place - 1, Damage::Gap)), "swapped at {place}");
        (swapped[place - 1].number, swapped[place].number) = (records[place - 1].number, records[place].number);
        assert!(
            restored(&swapped).is_err_and(|(found, _)| found == place - 1),
            "swapped with their numbers at {place}"
        );
    }
    for place in 0..records.len() {
        let mut twice = records.clone();
        twice.insert(place, records[place].clone());
        assert_eq!(restored(&twice), Err((place + 1, Damage::Gap)), "the record at {place} twice");
    }
}

#[test]
fn the_records_of_one_are_not_those_of_another() {
    let (_, records) = life();
    let mut other = Wallet::empty(member("bob"));
    assert_eq!(other.restore(&records[0]), Err(Damage::BrokenChain));
    let relabelled = Record { member: member("bob"), ..records[0].clone() };
    assert_eq!(other.restore(&relabelled), Err(Damage::BrokenChain));
    assert_eq!(other, Wallet::empty(member("bob")));
}
