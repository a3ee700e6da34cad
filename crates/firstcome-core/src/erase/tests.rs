//! What an erasure changes, and what it leaves.

use super::*;
use crate::auction::{AuctionTerms, Bid, Listing, ListingSettings, Phase, Sale, Terms};
use crate::coupon::{Claim, Coupon, CouponLimit, CouponSettings, Effect, Redeem, Rejection as Refused};
use crate::id::{NameError, RequestId};
use crate::points::{Amount, Chain, Damage, Kind, Record, Wallet};
use std::hash::RandomState;

fn at(us: i64) -> Timestamp {
    Timestamp::from_us(us).unwrap()
}

fn user(text: &str) -> UserId {
    UserId::parse(text).unwrap()
}

fn member(text: &str) -> MemberName {
    MemberName::parse(text).unwrap()
}

fn amount(points: u64) -> Amount {
    Amount::new(points).unwrap()
}

#[test]
fn no_caller_can_give_a_pseudonym_and_stores_can_read_it() {
    let pseudonym = Pseudonym::new(0x1f);
    assert_eq!(pseudonym.as_str(), "_erased:0000000000000000000000000000001f");
    assert_eq!(UserId::parse(pseudonym.as_str()), Err(NameError::BadStart));
    assert_eq!(MemberName::parse(pseudonym.as_str()), Err(NameError::BadStart));
    assert_eq!(UserId::restore(pseudonym.as_str()), Ok(pseudonym.user()));
    assert_eq!(MemberName::restore(pseudonym.as_str()), Ok(pseudonym.member()));
    for text in ["_erased:", "_erased:1f", "_erased:0000000000000000000000000000001F", "_ann"] {
        assert!(!is_pseudonym(text), "{text}");
        assert!(UserId::restore(text).is_err() && MemberName::restore(text).is_err(), "{text}");
    }
    assert!(UserId::parse("erased:1").is_ok(), "a name that callers may have used stays a name");
}

fn claim(user: &str, key: u128) -> Claim {
    Claim { user: self::user(user), attributes: None, request: Some(RequestId { key: key << 64, body: 1 }) }
}

#[test]
fn an_erased_claim_keeps_its_serial_and_its_user_may_claim_again() {
    #[expect(clippy::disallowed_methods, reason = "tests need no secret seed")]
    let hasher = RandomState::new();
    let mut coupon = Coupon::new(CouponSettings::with_limit(CouponLimit::new(4).unwrap()), hasher);
    for (number, name) in [(1, "al"), (2, "ann"), (3, "bob")] {
        coupon.claim(&claim(name, number), at(10)).unwrap();
    }
    let serial = coupon.claim_of("ann").unwrap().serial;
    let redeem = Redeem { serial: Some(serial), user: None, request: Some(RequestId { key: 9 << 64, body: 1 }) };
    let redeemed = coupon.redeem(&redeem, at(11)).unwrap().into_inner();
    let pseudonym = Pseudonym::new(5);
    coupon.erase(serial, &pseudonym);
    let users = [1, 2, 3].map(|it| coupon.claim_at(crate::coupon::Serial::new(it).unwrap()).unwrap().0.to_owned());
    assert_eq!(users, ["al", pseudonym.as_str(), "bob"]);
    assert_eq!(coupon.claim_of("ann"), None);
    assert_eq!(coupon.claim_of("bob").map(|issued| issued.serial.get()), Some(3));
    assert_eq!((coupon.issued(), coupon.redeemed(serial)), (3, Some(redeemed)), "it stays issued and spent");
    let again = coupon.redeem(&redeem, at(12));
    assert_eq!(
        again,
        Err(Refused::AlreadyRedeemed(redeemed)),
        "the key of the redemption is forgotten, and it stays redeemed"
    );
    let next = coupon.claim(&claim("ann", 2), at(13)).unwrap();
    assert!(matches!(next, Effect::New(issued) if issued.serial.get() == 4), "a newcomer: {next:?}");
    let repeat = coupon.claim(&claim("bob", 3), at(14)).unwrap();
    assert!(matches!(repeat, Effect::Again(issued) if issued.serial.get() == 3), "the keys of others stay: {repeat:?}");
    assert_eq!(coupon.claim(&claim("cid", 6), at(15)), Err(Refused::SoldOut), "an erasure makes no room");
}

fn records() -> Vec<Record> {
    let mut wallet = Wallet::empty(member("ann"));
    [(Kind::Charge, 50), (Kind::Hold, 20), (Kind::Release, 20), (Kind::Refund, 5)]
        .map(|(kind, points)| wallet.apply(kind, amount(points), None, at(10)).unwrap())
        .into()
}

#[test]
fn renamed_records_are_a_sound_chain_with_the_same_balances() {
    let before = records();
    let other = Pseudonym::new(5).member();
    let mut chain = Chain::default();
    let mut wallet = Wallet::empty(other.clone());
    for record in &before {
        let renamed = record.clone().renamed(other.clone(), chain);
        chain = renamed.chain;
        assert_eq!(wallet.restore(&renamed), Ok(()));
        assert_ne!(renamed.chain, record.chain, "the chain says nothing of the name before");
        let unchanged = Record { member: record.member.clone(), chain: record.chain, ..renamed };
        assert_eq!(unchanged, *record);
    }
    assert_eq!(wallet.balance.total(), 45);
    let only_the_name = Record { member: other.clone(), ..before[0].clone() };
    assert_eq!(Wallet::empty(other).restore(&only_the_name), Err(Damage::BrokenChain));
}

fn auction(owner: &str) -> Listing {
    let terms = AuctionTerms { ends_at: at(100), min_increment: None, extend: None, settle_within_ms: None };
    let settings =
        ListingSettings { owner: member(owner), price: amount(5), starts_at: None, terms: Terms::Auction(terms) };
    Listing::new(ListingName::parse("lamp").unwrap(), settings, at(10)).unwrap()
}

#[test]
fn a_member_with_unsettled_auctions_is_not_erased() {
    let (ann, none) = (member("ann"), Balance::default());
    let held = Balance::new(9, 4).unwrap();
    let running = auction("ann");
    type Row<'a> = (Balance, &'a [&'a Listing], i64, Result<(), &'a str>);
    let rows: [Row<'_>; 6] = [
        (none, &[], 20, Ok(())),
        (Balance::new(9, 0).unwrap(), &[], 20, Ok(())),
        (held, &[&running], 20, Err("points_held")),
        (none, &[&running], 20, Err("owns_auction")),
        (none, &[&auction("bob")], 20, Ok(())),
        (none, &[&running], 101, Ok(())),
    ];
    for (row, (balance, listings, now, wanted)) in rows.into_iter().enumerate() {
        let judged = judge(&ann, balance, listings.iter().map(|listing| listing.standing()), at(now));
        assert_eq!(judged.as_ref().map_err(Rejection::code).copied(), wanted, "row {row}");
    }
}

#[test]
fn a_renamed_listing_names_the_member_nowhere() {
    let other = Pseudonym::new(5).member();
    let mut standing = auction("eve").standing().clone();
    let bid = Bid { number: 1, bidder: member("ann"), price: amount(7), at: at(50) };
    let sale = Sale { buyer: member("ann"), price: amount(7), at: at(120) };
    (standing.bids, standing.version, standing.last_at) = (1, 3, at(120));
    (standing.highest, standing.phase) = (Some(bid), Phase::Sold(sale));
    let mut listing = Listing::restore(standing.clone()).unwrap();
    assert!(!listing.rename(&member("bob"), &other));
    assert!(listing.rename(&member("ann"), &other));
    assert!(!format!("{listing:?}").contains("ann"), "{listing:?}");
    assert_eq!(listing.standing().version, standing.version);
    assert_eq!(Listing::restore(listing.standing().clone()), Ok(listing.clone()), "it stays sound");
    assert!(listing.rename(&member("eve"), &Pseudonym::new(6).member()), "an owner");
}
