//! The suite of purges of records: what goes, what stays, and what a reader is told.

use crate::auction::{AuctionStore, MovePoints, Numbered, PlaceBid, Transfer};
use crate::erase::EraseStore;
use crate::purge::{PurgeMode, PurgeRequest, PurgeStore, Purged, Retention};
use firstcome_core::auction::{ListingSettings, PlacedBid};
use firstcome_core::coupon::Effect;
use firstcome_core::erase::is_pseudonym;
use firstcome_core::id::{ListingName, MemberName, RequestId, UserId};
use firstcome_core::points::{Amount, Balance, Kind, Record};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);
/// More than two pages of any store.
const MANY: u64 = 2_100;
const BID_KEY: Option<RequestId> = Some(RequestId { key: 8 << 64, body: 2 });

fn member(text: &str) -> MemberName {
    MemberName::parse(text).expect("the suite's names are valid")
}

fn lamp() -> ListingName {
    ListingName::parse("lamp").expect("the suite's names are valid")
}

fn amount(points: u64) -> Amount {
    Amount::new(points).expect("the suite's amounts are valid")
}

fn after_days(days: u32) -> PurgeRequest {
    PurgeRequest::new(Retention { records: Some(DAY * days), ..Retention::FOREVER })
}

struct Bench<'a, S> {
    store: &'a S,
}

impl<S: AuctionStore + PurgeStore> Bench<'_, S> {
    async fn charge(&self, name: &str, points: u64, request: Option<RequestId>) -> Effect<Balance> {
        let movement = MovePoints { transfer: Transfer::Charge, amount: amount(points), request };
        self.store.move_points(&member(name), movement).await.expect("the store answers").expect("no rule refuses it")
    }

    async fn refund(&self, name: &str, points: u64) {
        let movement = MovePoints { transfer: Transfer::Refund, amount: amount(points), request: None };
        self.store.move_points(&member(name), movement).await.expect("the store answers").expect("no rule refuses it");
    }

    async fn bid(&self, name: &str, price: u64) {
        self.keyed_bid(name, price, None).await;
    }

    async fn keyed_bid(&self, name: &str, price: u64, request: Option<RequestId>) -> Effect<PlacedBid> {
        let bid = PlaceBid { bidder: member(name), price: amount(price), request };
        self.store.place_bid(&lamp(), bid).await.expect("the store answers").expect("no rule refuses it")
    }

    async fn records(&self, name: &str, after: Option<u64>) -> Numbered<Record> {
        self.store.records(&member(name), after, 5_000).await.expect("the store answers")
    }

    /// Purges, after a dry run that must count the same. Returns how many records went.
    async fn purge(&self, request: PurgeRequest) -> u64 {
        let counted = PurgeRequest { mode: PurgeMode::Count, ..request };
        let counted = self.store.purge(counted).await.expect("the store answers").expect("the clock is right");
        let purged = self.store.purge(request).await.expect("the store answers").expect("the clock is right");
        assert_eq!(counted, purged, "a dry run counts what goes");
        assert_eq!(purged, Purged { records: purged.records, ..Purged::default() }, "nothing else goes");
        purged.records
    }
}

/// Tests a store that is empty. `age` makes all its records older by so many days, and `verify` checks every stored invariant.
///
/// # Panics
/// At the first broken promise.
pub async fn record_purges<S>(store: &S, age: impl AsyncFn(u32), verify: impl AsyncFn())
where
    S: AuctionStore + PurgeStore + EraseStore,
{
    let bench = Bench { store };
    let now = {
        let settings = ListingSettings::fixed_price(member("own"), amount(1));
        let clock = ListingName::parse("clock").expect("the suite's names are valid");
        store.put_listing(&clock, settings).await.expect("the store answers").expect("no rule refuses it");
        store.listing(&clock).await.expect("the store answers").expect("it is there").now
    };
    let settings = ListingSettings::auction(member("own"), amount(10), now.plus_ms(300 * 86_400_000));
    store.put_listing(&lamp(), settings).await.expect("the store answers").expect("no rule refuses it");
    old_records_go(&bench, &age, &verify).await;
    a_hold_that_has_ended_goes_too(&bench, &age, &verify).await;
    an_erased_member_keeps_an_anchor(&bench, &verify).await;
    many_records_go_in_pages(&bench, &age, &verify).await;
}

async fn old_records_go<S: AuctionStore + PurgeStore>(
    bench: &Bench<'_, S>,
    age: &impl AsyncFn(u32),
    verify: &impl AsyncFn(),
) {
    let key = Some(RequestId { key: 7 << 64, body: 1 });
    bench.charge("ann", 100, key).await;
    bench.keyed_bid("ann", 10, BID_KEY).await;
    bench.charge("bob", 100, None).await;
    bench.bid("bob", 20).await;
    bench.refund("ann", 5).await;
    age(32).await;
    let young = bench.records("ann", None).await;
    assert_eq!((young.items.len(), young.removed_to), (4, 0));
    bench.charge("ann", 7, None).await;
    assert_eq!(bench.purge(after_days(40)).await, 0, "they are too young");
    assert_eq!(bench.purge(after_days(1)).await, 5, "four of ann, and the charge of bob");
    assert_eq!(bench.purge(after_days(1)).await, 0, "the last record of each stays");
    verify().await;
    for after in [None, Some(0), Some(2), Some(4)] {
        let page = bench.records("ann", after).await;
        assert_eq!((page.items.len(), page.items[0].number, page.removed_to), (1, 5, 4), "after {after:?}");
        assert_eq!(page.items[0].balance.total(), 102);
    }
    let bob = bench.records("bob", None).await;
    assert_eq!((bob.items[0].kind, bob.items[0].number, bob.removed_to), (Kind::Hold, 2, 1), "it backs a bid");
    let balance = bench.store.balance(&member("ann")).await.expect("the store answers");
    assert_eq!((balance.total(), balance.held()), (102, 0));
    let again = bench.charge("ann", 100, key).await;
    assert!(matches!(again, Effect::New(balance) if balance.total() == 202), "the key went with its record: {again:?}");
    verify().await;
}

async fn a_hold_that_has_ended_goes_too<S: AuctionStore + PurgeStore>(
    bench: &Bench<'_, S>,
    age: &impl AsyncFn(u32),
    verify: &impl AsyncFn(),
) {
    bench.refund("bob", 1).await;
    bench.refund("bob", 1).await;
    age(20).await;
    assert_eq!(bench.purge(after_days(1)).await, 0, "a time shorter than the shortest one counts as that");
    age(12).await;
    assert_eq!(bench.purge(after_days(31)).await, 1, "one of ann: all of bob's rest on a hold that is open");
    bench.charge("cid", 100, None).await;
    bench.bid("cid", 30).await;
    assert_eq!(bench.purge(after_days(31)).await, 3, "the hold has ended, and its end is new");
    let bob = bench.records("bob", None).await;
    let kinds: Vec<_> = bob.items.iter().map(|record| record.kind).collect();
    assert_eq!((kinds, bob.removed_to), (vec![Kind::Release], 4));
    verify().await;
    bench.bid("bob", 40).await;
    verify().await;
    bench.bid("cid", 50).await;
}

async fn an_erased_member_keeps_an_anchor<S: AuctionStore + PurgeStore + EraseStore>(
    bench: &Bench<'_, S>,
    verify: &impl AsyncFn(),
) {
    let user = UserId::parse("ann").expect("the suite's names are valid");
    let erased = bench.store.erase(&user).await.expect("the store answers").expect("no auction is open");
    assert_eq!((erased.members, erased.records), (1, 1), "the record that was left");
    verify().await;
    let names = bench.store.member_names(None, 10).await.expect("the store answers").expect("it lists members");
    let name = names.items.iter().find(|name| is_pseudonym(name.as_str())).expect("a pseudonym");
    let page = bench.store.records(name, None, 9).await.expect("the store answers");
    assert_eq!((page.items.len(), page.items[0].number, page.removed_to), (1, 6, 5));
    let page = bench.records("ann", None).await;
    assert_eq!((page.items.len(), page.removed_to), (0, 0), "a new person");
    bench.charge("ann", 100, None).await;
    let bid = bench.keyed_bid("ann", 60, BID_KEY).await;
    assert!(matches!(bid, Effect::New(_)), "the key of a bid went, though its record is gone: {bid:?}");
}

async fn many_records_go_in_pages<S: AuctionStore + PurgeStore>(
    bench: &Bench<'_, S>,
    age: &impl AsyncFn(u32),
    verify: &impl AsyncFn(),
) {
    for _ in 0..MANY {
        bench.charge("dan", 1, None).await;
    }
    age(40).await;
    bench.charge("dan", 1, None).await;
    assert_eq!(bench.purge(after_days(31)).await, MANY + 7, "and two of bob, four of cid, one of ann: the last stays");
    let page = bench.records("dan", None).await;
    assert_eq!((page.items.len(), page.removed_to, page.items[0].balance.total()), (1, MANY, MANY + 1));
    verify().await;
}
