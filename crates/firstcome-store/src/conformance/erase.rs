//! The suite of [`EraseStore`]: what an erased person leaves, and who may come again.

use super::{LetPass, all, manual_clock};
use crate::auction::{AuctionStore, MovePoints, PlaceBid, Purchase, Transfer};
use crate::edge::ManualClock;
use crate::erase::EraseStore;
use crate::port::{ClaimRecord, CouponStore, RedeemRequest};
use crate::room::{Joining, RoomStore, TicketAnswer};
use firstcome_core::auction::{AuctionTerms, ListingSettings, Rejection as AuctionRejection, Terms};
use firstcome_core::coupon::{Attributes, Claim, CouponLimit, CouponSettings, Effect, Rejection as CouponRejection};
use firstcome_core::erase::{Erased, Rejection, is_pseudonym};
use firstcome_core::id::{CouponName, ListingName, MemberName, RequestId, RoomName, UserId};
use firstcome_core::points::{Amount, Balance, Wallet};
use firstcome_core::room::{Departure, Join, RoomSettings, TicketState};
use firstcome_core::time::Timestamp;
use std::future::Future;
use std::sync::Arc;

/// What a store must be for [`erasures`].
pub trait ErasesPlaces: CouponStore + RoomStore + EraseStore + 'static {}

impl<S: CouponStore + RoomStore + EraseStore + 'static> ErasesPlaces for S {}

/// What a store must be for [`member_erasures`].
pub trait ErasesMembers: AuctionStore + EraseStore + 'static {}

impl<S: AuctionStore + EraseStore + 'static> ErasesMembers for S {}

fn user(text: &str) -> UserId {
    UserId::parse(text).expect("the suite's names are valid")
}

fn member(text: &str) -> MemberName {
    MemberName::parse(text).expect("the suite's names are valid")
}

fn coupon() -> CouponName {
    CouponName::parse("launch").expect("the suite's names are valid")
}

fn room() -> RoomName {
    RoomName::parse("sale").expect("the suite's names are valid")
}

fn lamp() -> ListingName {
    ListingName::parse("lamp").expect("the suite's names are valid")
}

fn amount(points: u64) -> Amount {
    Amount::new(points).expect("the suite's amounts are valid")
}

fn request(key: u128) -> Option<RequestId> {
    Some(RequestId { key: key << 64 | key, body: 7 })
}

struct Bench<S> {
    store: Arc<S>,
    pass: LetPass,
    now: Timestamp,
}

/// Tests a store: an erased person leaves claims under a pseudonym, no ticket, and no idempotency key; and claims at the same
/// time are before or after.
///
/// `new_store` returns an empty store on the passed clock; it is called once per case.
///
/// # Panics
/// At the first broken promise.
pub async fn erasures<S: ErasesPlaces, F, Fut>(new_store: F)
where
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    claims_keep_a_pseudonym(&Bench::new(&new_store).await).await;
    a_place_leaves_its_line(&Bench::new(&new_store).await).await;
    claims_at_the_same_time_are_before_or_after(&Bench::new(&new_store).await).await;
}

/// Tests a store: an erased member keeps its ledger under a pseudonym, and a member who has something to settle is refused. No
/// time has to pass, so the clock of the store may be that of a server.
///
/// `new_store` returns an empty store; it is called once per case.
///
/// # Panics
/// At the first broken promise.
pub async fn member_erasures<S: ErasesMembers, F, Fut>(new_store: F)
where
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    a_member_keeps_its_ledger_under_a_pseudonym(&Bench::new(&new_store).await).await;
    a_member_with_something_to_settle_is_refused(&Bench::new(&new_store).await).await;
    a_sale_names_no_erased_member(&Bench::new(&new_store).await).await;
    movements_at_the_same_time_are_before_or_after(&Bench::new(&new_store).await).await;
    many_records_are_chained_again(&Bench::new(&new_store).await).await;
}

/// Tests a store on the passed clock: members can be erased once their auctions are over.
///
/// # Panics
/// At the first broken promise.
pub async fn member_erasures_by_the_clock<S: ErasesMembers, F, Fut>(new_store: F)
where
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    let bench = Bench::new(&new_store).await;
    bench.charge("ann", 100, None).await;
    bench.put_auction("eve").await;
    bench.bid("ann", 6).await;
    (bench.pass)(30_000).await;
    bench.store.close_due().await.expect("the store closes auctions");
    assert_eq!(bench.erase("eve").await.map(|erased| erased.listings), Ok(1));
    let erased = bench.erase("ann").await.expect("the hold has ended");
    assert_eq!((erased.members, erased.records, erased.listings), (1, 3, 1));
    bench.assert_unnamed(&["ann", "eve"]).await;
}

/// Tests that a durable store, after it was closed and opened again, holds nothing of an erased person and accepts what it
/// holds.
///
/// `open` opens the same data each time. The suite drops every handle of a store before it opens the next one.
///
/// # Panics
/// At the first broken promise.
pub async fn erasures_reopen<S: ErasesPlaces + AuctionStore, F, Fut>(open: F)
where
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    let bench = Bench::new(&open).await;
    bench.fill_places().await;
    bench.fill_ledger().await;
    let (claims, code) = (bench.claims().await, bench.claims().await[0].claimed.code);
    let erased = bench.erase("ann").await.expect("no auction is open");
    assert_eq!(erased, Erased { claims: 1, tickets: 2, members: 1, records: 4, listings: 0 });
    drop(bench);
    let bench = Bench::new(&open).await;
    assert!(bench.erase("ann").await.expect("nothing is to be settled").is_nothing(), "a second erasure finds nothing");
    let now = bench.claims().await;
    assert!(is_pseudonym(&now[0].user) && now[0].attributes.is_none(), "{now:?}");
    assert_eq!((&now[1..], now[0].claimed.issued), (&claims[1..], claims[0].claimed.issued), "no other claim changes");
    let shown = RedeemRequest { code: code.as_str().to_owned(), user: None, request: None };
    assert_eq!(refused(bench.store.redeem(&coupon(), shown).await), CouponRejection::UnknownCode);
    bench.assert_ledger(95).await;
    assert!(matches!(bench.claim("ann", request(1)).await, Effect::New(3)), "a new person, with the same key");
    assert_eq!(bench.join("ann").await.0, Joining::New);
    assert!(matches!(bench.charge("ann", 5, request(2)).await, Effect::New(_)));
}

#[track_caller]
fn refused<T>(answer: crate::port::Answer<T>) -> CouponRejection {
    match answer.expect("the store answers") {
        Ok(_) => panic!("it is not refused"),
        Err(refused) => refused.rejection,
    }
}

impl<S> Bench<S> {
    async fn new<F, Fut>(new_store: &F) -> Self
    where
        F: Fn(Arc<ManualClock>) -> Fut,
        Fut: Future<Output = S>,
    {
        let (clock, pass) = manual_clock();
        let now = crate::edge::Clock::now(clock.as_ref());
        Self { store: Arc::new(new_store(clock).await), pass, now }
    }
}

impl<S: EraseStore> Bench<S> {
    async fn erase(&self, name: &str) -> Result<Erased, Rejection> {
        self.store.erase(&user(name)).await.expect("the store answers")
    }
}

impl<S: ErasesPlaces> Bench<S> {
    async fn put_coupon(&self, limit: u32) {
        let settings = CouponSettings::with_limit(CouponLimit::new(limit).expect("a limit"));
        self.store.put_coupon(&coupon(), settings).await.expect("the store answers").expect("no rule refuses it");
    }

    async fn put_room(&self, settings: RoomSettings) {
        self.store.put_room(&room(), settings).await.expect("the store answers").expect("no rule refuses it");
    }

    async fn claim(&self, name: &str, request: Option<RequestId>) -> Effect<u32> {
        let claim = Claim { user: user(name), attributes: Attributes::new("{\"phone\":\"1\"}"), request };
        let claimed = self.store.claim(&coupon(), claim).await.expect("the store answers").expect("there is one left");
        claimed.map(|claimed| claimed.issued.serial.get())
    }

    async fn claims(&self) -> Vec<ClaimRecord> {
        let page = self.store.claims(&coupon(), None, 10).await.expect("the store answers");
        page.expect("the coupon is there").items
    }

    async fn join(&self, name: &str) -> (Joining, TicketAnswer) {
        let join = Join { user: Some(user(name)), request: None };
        self.store.join(&room(), join).await.expect("the store answers").expect("the room takes tickets")
    }

    /// Gives ann a claim, a ticket that left and one that waits.
    async fn fill_places(&self) {
        self.put_coupon(9).await;
        self.claim("ann", request(1)).await;
        self.claim("bob", request(11)).await;
        self.put_room(RoomSettings::with_slots(1)).await;
        let (_, place) = self.join("ann").await;
        self.store.leave(&room(), &place.ticket).await.expect("the store answers").expect("the ticket is known");
        self.join("ann").await;
    }
}

impl<S: ErasesMembers> Bench<S> {
    async fn charge(&self, name: &str, points: u64, request: Option<RequestId>) -> Effect<Balance> {
        let movement = MovePoints { transfer: Transfer::Charge, amount: amount(points), request };
        let moved = self.store.move_points(&member(name), movement).await;
        moved.expect("the store answers").expect("no rule refuses it")
    }

    async fn put_auction(&self, owner: &str) {
        let ends_at = self.now.plus_ms(10_000);
        let terms = AuctionTerms { ends_at, min_increment: None, extend: None, settle_within_ms: Some(10_000) };
        let terms = Terms::Auction(terms);
        let settings = ListingSettings { owner: member(owner), price: amount(5), starts_at: None, terms };
        self.store.put_listing(&lamp(), settings).await.expect("the store answers").expect("no rule refuses it");
    }

    async fn bid(&self, name: &str, price: u64) {
        let bid = PlaceBid { bidder: member(name), price: amount(price), request: request(price.into()) };
        self.store.place_bid(&lamp(), bid).await.expect("the store answers").expect("no rule refuses it");
    }

    /// Gives ann points, and a bid that was outbid.
    async fn fill_ledger(&self) {
        self.charge("ann", 100, request(2)).await;
        self.charge("bob", 100, None).await;
        self.put_auction("eve").await;
        self.bid("ann", 6).await;
        self.bid("bob", 7).await;
        let refund = MovePoints { transfer: Transfer::Refund, amount: amount(5), request: None };
        self.store.move_points(&member("ann"), refund).await.expect("the store answers").expect("no rule refuses it");
    }

    /// Checks that the lamp names none of these.
    async fn assert_unnamed(&self, names: &[&str]) {
        let view = self.store.listing(&lamp()).await.expect("the store answers").expect("it is there");
        let shown = format!("{:?}", view.standing);
        assert!(names.iter().all(|name| !shown.contains(&format!("\"{name}\""))), "{shown}");
    }

    /// Checks that the member with a pseudonym has a sound chain of records that leads to this total.
    async fn assert_ledger(&self, total: u64) {
        let names = self.store.member_names(None, 10).await.expect("the store answers").expect("it lists members");
        let pseudonyms: Vec<_> = names.items.iter().filter(|name| is_pseudonym(name.as_str())).collect();
        let [name] = pseudonyms[..] else { panic!("one member has a pseudonym: {names:?}") };
        assert!(!names.items.contains(&member("ann")), "{names:?}");
        let mut wallet = Wallet::empty(name.clone());
        for record in self.store.records(name, None, 100).await.expect("the store answers").items {
            assert_eq!(wallet.restore(&record), Ok(()), "{record:?}");
        }
        assert_eq!(wallet.balance, self.store.balance(name).await.expect("the store answers"));
        assert_eq!(wallet.balance.total(), total);
        let bids = self.store.bids(&lamp(), None, 10).await.expect("the store answers").expect("it is there");
        assert_eq!(bids.items.iter().filter(|bid| bid.bidder == *name).count(), 1, "the bid stays: {bids:?}");
    }
}

async fn claims_keep_a_pseudonym<S: ErasesPlaces>(bench: &Bench<S>) {
    bench.put_coupon(3).await;
    assert_eq!(bench.claim("ann", request(1)).await, Effect::New(1));
    assert_eq!(bench.claim("bob", request(2)).await, Effect::New(2));
    let before = bench.claims().await;
    let shown = RedeemRequest { code: before[0].claimed.code.as_str().to_owned(), user: None, request: request(3) };
    let redeemed = bench.store.redeem(&coupon(), shown.clone()).await.expect("the store answers");
    let redeemed = redeemed.expect("the code is right").into_inner().redeemed;
    assert_eq!(bench.erase("ann").await, Ok(Erased { claims: 1, ..Erased::default() }));
    let after = bench.claims().await;
    assert!(is_pseudonym(&after[0].user), "{after:?}");
    assert_eq!((&after[0].attributes, after[0].redeemed), (&None, redeemed), "{after:?}");
    assert_eq!((after[0].claimed.issued, &after[1]), (before[0].claimed.issued, &before[1]));
    let of_ann = bench.store.claim_of(&coupon(), "ann").await.expect("the store answers").expect("the coupon is there");
    assert_eq!(of_ann, None);
    assert_eq!(refused(bench.store.redeem(&coupon(), shown).await), CouponRejection::UnknownCode, "the code is void");
    let new = RedeemRequest { code: after[0].claimed.code.as_str().to_owned(), user: None, request: None };
    let again = refused(bench.store.redeem(&coupon(), new).await);
    assert!(matches!(again, CouponRejection::AlreadyRedeemed(_)), "it stays spent: {again:?}");
    assert_eq!(bench.claim("ann", request(1)).await, Effect::New(3), "a new person, with the same key");
    assert_eq!(bench.claim("bob", request(2)).await, Effect::Again(2), "the keys of others stay");
    let claim = Claim { user: user("cid"), attributes: None, request: None };
    assert_eq!(refused(bench.store.claim(&coupon(), claim).await), CouponRejection::SoldOut);
    assert_eq!(bench.erase("ann").await, Ok(Erased { claims: 1, ..Erased::default() }), "the new person");
    assert_eq!(bench.erase("ann").await, Ok(Erased::default()), "nothing is left");
    let users: std::collections::BTreeSet<_> = bench.claims().await.into_iter().map(|claim| claim.user).collect();
    assert_eq!(users.len(), 3, "a pseudonym is drawn anew each time: {users:?}");
}

async fn a_place_leaves_its_line<S: ErasesPlaces>(bench: &Bench<S>) {
    bench.put_room(RoomSettings::with_slots(1)).await;
    let (_, ann) = bench.join("ann").await;
    let (_, bob) = bench.join("bob").await;
    assert_eq!(bench.erase("ann").await, Ok(Erased { tickets: 1, ..Erased::default() }));
    let gone = bench.store.poll(&room(), &ann.ticket).await.expect("the store answers").expect("it was given out");
    assert_eq!((gone.state, gone.user.as_deref()), (TicketState::Gone(Departure::Left), None));
    let (joining, again) = bench.join("ann").await;
    assert_eq!((joining, again.number.get()), (Joining::New, 3), "a new person");
    let (joining, same) = bench.join("bob").await;
    assert_eq!((joining, same.number), (Joining::SameUser, bob.number), "no other place changes");
    assert_eq!(bench.erase("ann").await, Ok(Erased { tickets: 1, ..Erased::default() }), "the new person");
}

async fn a_member_keeps_its_ledger_under_a_pseudonym<S: ErasesMembers>(bench: &Bench<S>) {
    bench.fill_ledger().await;
    let erased = bench.erase("ann").await.expect("nothing is to be settled");
    assert_eq!((erased.members, erased.records, erased.listings), (1, 4, 0));
    bench.assert_ledger(95).await;
    assert_eq!(bench.store.balance(&member("ann")).await.expect("the store answers"), Balance::default());
    assert!(bench.store.records(&member("ann"), None, 9).await.expect("the store answers").items.is_empty());
    let charged = bench.charge("ann", 3, request(2)).await;
    assert!(matches!(charged, Effect::New(balance) if balance.total() == 3), "a new person: {charged:?}");
    bench.charge("ann", 100, None).await;
    let bid = PlaceBid { bidder: member("ann"), price: amount(8), request: request(6) };
    let placed = bench.store.place_bid(&lamp(), bid).await.expect("the store answers").expect("no rule refuses it");
    assert!(matches!(placed, Effect::New(_)), "the key of the bid is forgotten too: {placed:?}");
}

async fn a_member_with_something_to_settle_is_refused<S: ErasesMembers>(bench: &Bench<S>) {
    bench.charge("ann", 100, None).await;
    bench.put_auction("eve").await;
    bench.bid("ann", 6).await;
    assert_eq!(bench.erase("ann").await, Err(Rejection::PointsHeld(6)));
    assert_eq!(bench.store.balance(&member("ann")).await.expect("the store answers").held(), 6, "nothing changes");
    assert_eq!(bench.erase("eve").await, Err(Rejection::OwnsAuction(lamp())));
    assert_eq!(bench.erase("bob").await, Ok(Erased::default()), "a stranger");
}

async fn a_sale_names_no_erased_member<S: ErasesMembers>(bench: &Bench<S>) {
    bench.charge("ann", 100, None).await;
    let settings =
        ListingSettings { owner: member("eve"), price: amount(5), starts_at: None, terms: Terms::FixedPrice };
    bench.store.put_listing(&lamp(), settings).await.expect("the store answers").expect("no rule refuses it");
    let purchase = Purchase { buyer: member("ann"), request: request(30) };
    let listing = lamp();
    let buy = || bench.store.purchase(&listing, purchase.clone());
    buy().await.expect("the store answers").expect("ann has the points");
    for name in ["ann", "eve"] {
        let erased = bench.erase(name).await.expect("it is sold");
        assert_eq!((erased.members, erased.listings), (1, 1), "{name}");
    }
    bench.assert_unnamed(&["ann", "eve"]).await;
    let again = buy().await.expect("the store answers");
    assert!(matches!(again, Err(AuctionRejection::AlreadySold(_))), "its key is forgotten: {again:?}");
}

/// Each of many callers charges ann, or puts a listing of hers, while she is erased again and again.
async fn movements_at_the_same_time_are_before_or_after<S: ErasesMembers>(bench: &Bench<S>) {
    const CALLERS: usize = 24;
    let calls = (0..CALLERS).map(|at| {
        let store = Arc::clone(&bench.store);
        async move {
            if at % 3 == 2 {
                store.erase(&user("ann")).await.expect("the store answers").expect("there is nothing to settle");
            } else if at % 3 == 1 {
                let name = ListingName::parse(&format!("lamp-{at}")).expect("the suite's names are valid");
                let terms = Terms::FixedPrice;
                let settings = ListingSettings { owner: member("ann"), price: amount(5), starts_at: None, terms };
                store.put_listing(&name, settings).await.expect("the store answers").expect("no rule refuses it");
            } else {
                let movement = MovePoints { transfer: Transfer::Charge, amount: amount(1), request: None };
                store.move_points(&member("ann"), movement).await.expect("the store answers").expect("it fits");
            }
        }
    });
    all(calls).await;
    bench.erase("ann").await.expect("there is nothing to settle");
    let names = bench.store.member_names(None, 100).await.expect("the store answers").expect("it lists members").items;
    assert!(names.iter().all(|name| is_pseudonym(name.as_str())), "{names:?}");
    let mut total = 0;
    for name in &names {
        total += bench.store.balance(name).await.expect("the store answers").total();
    }
    assert_eq!(total, CALLERS as u64 / 3, "no points are lost");
    for at in (1..CALLERS).step_by(3) {
        let name = ListingName::parse(&format!("lamp-{at}")).expect("the suite's names are valid");
        let view = bench.store.listing(&name).await.expect("the store answers").expect("it is there");
        assert!(is_pseudonym(view.standing.owner.as_str()), "{:?}", view.standing.owner);
    }
}

/// More records than a store changes at once, while others move points and ann comes again.
async fn many_records_are_chained_again<S: ErasesMembers>(bench: &Bench<S>) {
    const RECORDS: u64 = 2_200;
    let charge = |name: &'static str, request| {
        let store = Arc::clone(&bench.store);
        async move {
            let movement = MovePoints { transfer: Transfer::Charge, amount: amount(1), request };
            store.move_points(&member(name), movement).await.expect("the store answers").expect("no rule refuses it");
        }
    };
    all((1..=RECORDS).map(|key| charge("ann", request(key.into())))).await;
    let others = (0..40).map(|at| charge(if at % 2 == 0 { "bob" } else { "ann" }, None));
    let (erased, _) = tokio::join!(bench.erase("ann"), all(others));
    let erased = erased.expect("nothing is to be settled");
    assert_eq!(erased.members, 1);
    let charged = bench.charge("ann", 1, request(RECORDS.into())).await;
    assert!(matches!(charged, Effect::New(_)), "the last key is forgotten too: {charged:?}");
    let names = bench.store.member_names(None, 10).await.expect("the store answers").expect("it lists members").items;
    let name = names.iter().find(|name| is_pseudonym(name.as_str())).expect("the member has a pseudonym");
    let mut wallet = Wallet::empty(name.clone());
    loop {
        let after = Some(wallet.records).filter(|after| 0 < *after);
        let page = bench.store.records(name, after, 500).await.expect("the store answers").items;
        if page.is_empty() {
            break;
        }
        for record in page {
            assert_eq!(wallet.restore(&record), Ok(()), "{record:?}");
        }
    }
    assert_eq!((wallet.records, wallet.balance.total()), (erased.records, erased.records));
    assert!(RECORDS <= erased.records, "{erased:?}");
    let mut total = 0;
    for name in &names {
        total += bench.store.balance(name).await.expect("the store answers").total();
    }
    assert_eq!(total, RECORDS + 41, "no points are lost");
}

/// Each of many callers claims for ann while she is erased again and again.
async fn claims_at_the_same_time_are_before_or_after<S: ErasesPlaces>(bench: &Bench<S>) {
    const CALLERS: usize = 24;
    bench.put_coupon(CALLERS as u32 + 1).await;
    let claims = (0..CALLERS).map(|at| {
        let store = Arc::clone(&bench.store);
        async move {
            if at % 3 == 2 {
                let erased = store.erase(&user("ann")).await.expect("the store answers");
                return erased.expect("there is nothing to settle").claims;
            }
            let claim = Claim { user: user("ann"), attributes: None, request: None };
            store.claim(&coupon(), claim).await.expect("the store answers").map(drop).unwrap_or_default();
            0
        }
    });
    let erased: u64 = all(claims).await.into_iter().sum();
    let records =
        bench.store.claims(&coupon(), None, 100).await.expect("the store answers").expect("it is there").items;
    let named = records.iter().filter(|claim| &*claim.user == "ann").count();
    assert!(named <= 1, "{records:?}");
    assert_eq!(records.len() - named, erased as usize, "each claim is erased once, and counted: {records:?}");
    assert_eq!(bench.erase("ann").await.map(|erased| erased.claims as usize), Ok(named));
}
