//! Random commands of one caller: the store must reply exactly as the rules of `firstcome-core`.
//!
//! The store may have its own clock. A command that took effect is applied to the rules at the instant in the store's
//! reply. A refused command is applied at the instant that the store showed before it. No command is sent shortly
//! before an instant that decides something.

use super::*;
use crate::conformance::Rng;
use firstcome_core::auction::{Advance, Extend, Listing, ListingState, Phase, Wallets};
use firstcome_core::points::{Kind, NoBalance, Wallet};
use std::collections::BTreeMap;

const COMMANDS: usize = 150;
const MEMBERS: [&str; 5] = ["ann", "bob", "cid", "dan", "eve"];
/// How long before a deciding instant the last command is sent.
const QUIET_US: i64 = 300_000;

#[derive(Default)]
struct OracleWallets(BTreeMap<MemberName, Wallet>);

impl Wallets for OracleWallets {
    fn balance(&self, member: &MemberName) -> Balance {
        self.0.get(member).map_or(Balance::default(), |wallet| wallet.balance)
    }

    fn wallet(&mut self, member: &MemberName) -> &mut Wallet {
        self.0.entry(member.clone()).or_insert_with(|| Wallet::empty(member.clone()))
    }
}

/// The effect of a request with a key.
#[derive(Clone)]
enum Done {
    Bid(PlacedBid),
    Sale(Sale),
    Moved(Balance),
}

/// The rules, with the interface of a store.
#[derive(Default)]
struct Oracle {
    listings: BTreeMap<String, Listing>,
    wallets: OracleWallets,
    records: Vec<Record>,
    keys: BTreeMap<u128, (u64, Done)>,
}

/// One command. Keys are unique to its kind and its target.
#[derive(Clone, Debug)]
enum Ask {
    Put(String, ListingSettings),
    Bid(String, &'static str, u64, Option<RequestId>),
    Buy(String, &'static str, Option<RequestId>),
    Move(Transfer, &'static str, u64, Option<RequestId>),
}

type Answered<T> = Result<Effect<T>, Rejection>;

impl Oracle {
    fn known(&self, request: Option<RequestId>) -> Option<Result<Done, Rejection>> {
        let request = request?;
        let (body, done) = self.keys.get(&request.key)?;
        Some(if *body == request.body { Ok(done.clone()) } else { Err(Rejection::KeyReused) })
    }

    fn remember(&mut self, request: Option<RequestId>, done: Done) {
        self.keys.extend(request.map(|request| (request.key, (request.body, done))));
    }

    fn put(&mut self, name: &str, settings: ListingSettings, now: Timestamp) -> Result<Put, Rejection> {
        if let Some(listing) = self.listings.get_mut(name) {
            return listing.replace(settings, now).map(|_| Put::Replaced);
        }
        let made = Listing::new(listing(name), settings, now)?;
        self.listings.insert(name.to_owned(), made);
        Ok(Put::Created)
    }

    fn bid(
        &mut self,
        name: &str,
        who: &str,
        price: u64,
        request: Option<RequestId>,
        now: Timestamp,
    ) -> Answered<PlacedBid> {
        if !self.listings.contains_key(name) {
            return Err(Rejection::UnknownListing);
        }
        match self.known(request).transpose()? {
            Some(Done::Bid(placed)) => return Ok(Effect::Again(placed)),
            Some(_) => return Err(Rejection::KeyReused),
            None => {}
        }
        let listing = self.listings.get_mut(name).ok_or(Rejection::UnknownListing)?;
        let placed = listing.bid(&member(who), amount(price), &mut self.wallets, now, &mut self.records)?;
        self.remember(request, Done::Bid(placed.clone()));
        Ok(Effect::New(placed))
    }

    fn buy(&mut self, name: &str, who: &str, request: Option<RequestId>, now: Timestamp) -> Answered<Sale> {
        if !self.listings.contains_key(name) {
            return Err(Rejection::UnknownListing);
        }
        match self.known(request).transpose()? {
            Some(Done::Sale(sale)) => return Ok(Effect::Again(sale)),
            Some(_) => return Err(Rejection::KeyReused),
            None => {}
        }
        let listing = self.listings.get_mut(name).ok_or(Rejection::UnknownListing)?;
        let sale = listing.purchase(&member(who), &mut self.wallets, now, &mut self.records)?;
        self.remember(request, Done::Sale(sale.clone()));
        Ok(Effect::New(sale))
    }

    fn transfer(
        &mut self,
        way: Transfer,
        who: &str,
        points: u64,
        request: Option<RequestId>,
        now: Timestamp,
    ) -> Answered<Balance> {
        match self.known(request).transpose()? {
            Some(Done::Moved(balance)) => return Ok(Effect::Again(balance)),
            Some(_) => return Err(Rejection::KeyReused),
            None => {}
        }
        let kind = if way == Transfer::Charge { Kind::Charge } else { Kind::Refund };
        let before = self.wallets.balance(&member(who));
        before.after(kind, amount(points)).map_err(|error| match error {
            NoBalance::TooLarge => Rejection::BalanceTooLarge,
            _ => Rejection::InsufficientPoints(before.available()),
        })?;
        let record = self.wallets.wallet(&member(who)).apply(kind, amount(points), None, now).expect("it was judged");
        self.records.push(record.clone());
        self.remember(request, Done::Moved(record.balance));
        Ok(Effect::New(record.balance))
    }

    /// Applies to the rules what time did to the listing in the store, at the instant when the store did it.
    fn follow(&mut self, name: &str, seen: &ListingStanding) {
        let Some(listing) = self.listings.get_mut(name) else { return };
        let closed_at = match (&listing.standing().phase, &seen.phase) {
            (Phase::Open | Phase::Ended(_), Phase::Unsold(at)) | (Phase::Open, Phase::Ended(at)) => *at,
            _ => return,
        };
        let advance = listing.advance(&mut self.wallets, closed_at, &mut self.records);
        assert!(advance != Advance::Nothing, "{name} was closed before its time: {seen:?}");
    }
}

/// Random auctions beside the rules.
struct Sequence<'a, S> {
    bench: &'a Bench<S>,
    seed: u64,
    rng: Rng,
    names: Vec<String>,
    /// The last settings of each listing.
    settings: BTreeMap<String, ListingSettings>,
    oracle: Oracle,
    history: Vec<String>,
}

impl<S: AuctionStore + 'static> Sequence<'_, S> {
    fn any_request(&mut self, scope: u128) -> Option<RequestId> {
        // Use few keys and two bodies, so that repeats and reuses happen.
        let key = scope << 32 | u128::from(self.seed) << 16 | u128::from(self.rng.below(5));
        self.rng.once_in(3).then(|| RequestId { key, body: self.rng.below(2) })
    }

    fn any_settings(&mut self, now: Timestamp) -> ListingSettings {
        let rng = &mut self.rng;
        let owner = member(MEMBERS[rng.index(MEMBERS.len())]);
        let starts_at = match rng.below(6) {
            0 => Some(now.plus_ms(rng.range(500, 1_500))),
            1 | 2 => Some(Timestamp::clamped_us(now.as_us() - 1_000_000)),
            _ => None,
        };
        let price = amount(rng.range(1, 30));
        if rng.once_in(5) {
            return ListingSettings { starts_at, ..ListingSettings::fixed_price(owner, price) };
        }
        let extend =
            Extend { window_ms: rng.range(1, 3_000), by_ms: rng.range(1, 900), max_count: 1 + rng.below(3) as u32 };
        let terms = AuctionTerms {
            ends_at: now.plus_ms(rng.range(1_500, 4_000)),
            min_increment: rng.once_in(3).then(|| amount(rng.range(1, 6))),
            extend: rng.once_in(2).then_some(extend),
            settle_within_ms: rng.once_in(2).then(|| rng.range(600, 1_500)),
        };
        ListingSettings { owner, price, starts_at, terms: Terms::Auction(terms) }
    }

    fn any_ask(&mut self, now: Timestamp) -> Ask {
        let place = self.rng.index(self.names.len());
        let name = self.names[place].clone();
        let who = *self.rng.pick(&MEMBERS);
        match self.rng.below(30) {
            0..=15 => {
                let minimum = self.oracle.listings.get(&name).map_or(1, |listing| listing.standing().minimum());
                let price = (minimum + self.rng.below(6)).saturating_sub(1).max(1);
                let request = self.any_request(place as u128 * 4 + 1);
                Ask::Bid(name, who, price, request)
            }
            16..=21 => {
                let request = self.any_request(place as u128 * 4 + 2);
                Ask::Buy(name, who, request)
            }
            22 | 23 => {
                let mut settings = match self.settings.get(&name) {
                    Some(settings) if !self.rng.once_in(3) => settings.clone(),
                    _ => self.any_settings(now),
                };
                if let Terms::Auction(terms) = &mut settings.terms
                    && self.rng.once_in(2)
                {
                    terms.ends_at = terms.ends_at.plus_ms(self.rng.range(1, 500));
                }
                Ask::Put(name, settings)
            }
            kind => {
                let (way, scope) = if kind < 28 { (Transfer::Charge, 0) } else { (Transfer::Refund, 1) };
                let who_at = MEMBERS.iter().position(|member| *member == who).unwrap_or(0);
                let request = self.any_request(1_000 + who_at as u128 * 2 + scope);
                Ask::Move(way, who, self.rng.range(1, 40), request)
            }
        }
    }

    /// Asks the store. Then asks the rules, at the instant in the store's reply or at the one that the store showed
    /// before.
    async fn ask(&mut self, ask: &Ask, before: Timestamp) -> (String, String) {
        let bench = self.bench;
        let oracle = &mut self.oracle;
        match ask.clone() {
            Ask::Put(name, settings) => {
                let told = answered(bench.store.put_listing(&listing(&name), settings.clone()).await);
                let now = if told.is_ok() { bench.standing(&name).await.last_at } else { before };
                if told.is_ok() {
                    self.settings.insert(name.clone(), settings.clone());
                }
                (format!("{told:?}"), format!("{:?}", oracle.put(&name, settings, now)))
            }
            Ask::Bid(name, who, price, request) => {
                let told = bench.bid(&name, who, price, request).await;
                let now = if let Ok(Effect::New(placed)) = &told { placed.bid.at } else { before };
                (format!("{told:?}"), format!("{:?}", oracle.bid(&name, who, price, request, now)))
            }
            Ask::Buy(name, who, request) => {
                let told = bench.buy(&name, who, request).await;
                let now = if let Ok(Effect::New(sale)) = &told { sale.at } else { before };
                (format!("{told:?}"), format!("{:?}", oracle.buy(&name, who, request, now)))
            }
            Ask::Move(way, who, points, request) => {
                let told = bench.transfer(way, who, points, request).await;
                let known = oracle.wallets.0.get(&member(who)).map_or(0, |wallet| wallet.records);
                let written = bench.store.records(&member(who), Some(known), 2).await.expect("the store answers");
                assert_eq!(written.items.len(), usize::from(matches!(told, Ok(Effect::New(_)))), "its one record");
                let now = written.items.first().map_or(before, |record| record.at);
                (format!("{told:?}"), format!("{:?}", oracle.transfer(way, who, points, request, now)))
            }
        }
    }

    /// Lets the rules follow what time did, and compares every listing. Returns when time decides next.
    async fn follow(&mut self) -> Option<i64> {
        let mut next = None;
        for name in &self.names {
            let Ok(ListingView { standing, now }) = answered(self.bench.store.listing(&listing(name)).await) else {
                assert!(!self.oracle.listings.contains_key(name), "seed {}: {name} was put", self.seed);
                continue;
            };
            self.oracle.follow(name, &standing);
            let known = self.oracle.listings.get(name).map(Listing::standing);
            assert_eq!(Some(&standing), known, "seed {}: {name} after\n{}", self.seed, self.history.join("\n"));
            let starts = (standing.state(now) == ListingState::Scheduled).then_some(standing.starts_at);
            let due = self.oracle.listings.get(name).and_then(Listing::due_at);
            let instants = starts.into_iter().chain(due).map(Timestamp::as_us);
            next = instants.chain(next).min();
        }
        next
    }

    async fn step(&mut self) {
        if self.rng.once_in(4) {
            self.bench.pass(self.rng.range(1, 120)).await;
        }
        self.bench.store.close_due().await.expect("the store answers");
        while let Some(next_us) = self.follow().await
            && next_us - self.bench.now().await.as_us() < QUIET_US
        {
            self.bench.pass_after(Timestamp::clamped_us(next_us)).await;
        }
        let before = self.bench.now().await;
        let ask = self.any_ask(before);
        if let Ask::Put(_, settings) = &ask
            && settings.check().is_err()
        {
            return;
        }
        let (told, wanted) = self.ask(&ask, before).await;
        let history = self.history.join("\n");
        assert_eq!(told, wanted, "seed {}: {ask:?} at {}, after\n{history}", self.seed, before.as_us());
        self.history.push(format!("{}: {ask:?} -> {told}", before.as_us()));
        self.follow().await;
    }

    /// Checks that every record and every balance is the one of the rules.
    async fn compare(&self) {
        for name in MEMBERS {
            let records = self.bench.all_records(name).await;
            let mine = |record: &&Record| record.member.as_str() == name;
            let wanted: Vec<Record> = self.oracle.records.iter().filter(mine).cloned().collect();
            assert_eq!(records, wanted, "seed {}: {name} after\n{}", self.seed, self.history.join("\n"));
            let balance = self.bench.balance(name).await;
            assert_eq!(balance, self.oracle.wallets.balance(&member(name)), "seed {}: {name}", self.seed);
        }
    }
}

pub(super) async fn random_commands_are_answered_as_by_the_rules<S: AuctionStore + 'static>(bench: Bench<S>) {
    // One store for all sequences: the wallets continue, and each sequence has new listings.
    let mut oracle = Oracle::default();
    for seed in 0..bench.sizes.sequences {
        let names = (0..4).map(|number| format!("sequence{seed}-{number}")).collect();
        let (rng, settings, history) = (Rng::from_seed(seed), BTreeMap::new(), Vec::new());
        let mut sequence = Sequence { bench: &bench, seed, rng, names, settings, oracle, history };
        for number in 0..4 {
            let now = bench.now().await;
            let settings = sequence.any_settings(now);
            let ask = Ask::Put(sequence.names[number].clone(), settings);
            let (told, wanted) = sequence.ask(&ask, now).await;
            assert_eq!(told, wanted, "seed {seed}: {ask:?}");
        }
        for _ in 0..COMMANDS {
            sequence.step().await;
        }
        // Wait for everything that is still due: it would move points during the next sequence.
        while let Some(next_us) = sequence.follow().await {
            bench.pass_after(Timestamp::clamped_us(next_us)).await;
        }
        sequence.compare().await;
        oracle = sequence.oracle;
    }
}
