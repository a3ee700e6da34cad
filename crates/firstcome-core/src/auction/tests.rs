//! The rules of auctions and purchases as rows: an instant, a command, and the expected answer.
//!
//! Only [`Play::apply`] calls the rules. It writes an answer as its stable code and its values: `bid 2 ends 10000 fence 3`
//! is the second bid, `sold to ann for 12 at 10001` a sale. After every command it checks all invariants of the module, and
//! that a refusal has changed nothing. Instants are in microseconds.

mod bidding;
mod buying;
mod changing;
mod closing;
mod extending;
mod model;
#[cfg(feature = "planted-bugs")]
mod planted;
mod restoring;
mod settings;
mod settling;

use super::*;
use crate::limits::{AMOUNT_MAX, BALANCE_MAX};
use crate::points::Balance;
use std::collections::BTreeMap;

const STARTS: i64 = 1_000;
const ENDS: i64 = 10_000;

#[derive(Clone, Debug)]
enum Step {
    Bid(&'static str, u64),
    Buy(&'static str),
    Put(ListingSettings),
    Advance,
    State,
    Charge(&'static str, u64),
    Refund(&'static str, u64),
    Balance(&'static str),
}

use Step::{Advance as Tick, Bid as Offer, Buy, Charge, Put, Refund, State};

type Row<'a> = (i64, Step, &'a str);

#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct TestWallets(BTreeMap<MemberName, Wallet>);

impl Wallets for TestWallets {
    fn balance(&self, member: &MemberName) -> Balance {
        self.0.get(member).map_or(Balance::default(), |wallet| wallet.balance)
    }

    fn wallet(&mut self, member: &MemberName) -> &mut Wallet {
        self.0.entry(member.clone()).or_insert_with(|| Wallet::empty(member.clone()))
    }
}

/// Listings, the wallets of all members, and every record.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Play {
    listings: BTreeMap<String, Listing>,
    wallets: TestWallets,
    records: Vec<Record>,
}

impl Play {
    /// Makes one listing with these settings, named `lamp`, at the instant 0. ann, bob and cid have 100 points each.
    #[track_caller]
    fn new(settings: ListingSettings) -> Self {
        let mut play = Self { listings: BTreeMap::new(), wallets: TestWallets::default(), records: Vec::new() };
        play.list("lamp", settings);
        for name in ["ann", "bob", "cid"] {
            play.apply("lamp", &Charge(name, 100), 0);
        }
        play
    }

    #[track_caller]
    fn list(&mut self, name: &str, settings: ListingSettings) {
        assert_eq!(settings.check(), Ok(()));
        let listing = Listing::new(ListingName::parse(name).unwrap(), settings, at(0)).unwrap();
        self.listings.insert(name.to_owned(), listing);
    }

    #[track_caller]
    fn check(&mut self, rows: &[Row<'_>]) {
        self.check_of("lamp", rows);
    }

    #[track_caller]
    fn check_of(&mut self, listing: &str, rows: &[Row<'_>]) {
        for (row, (now, step, wanted)) in rows.iter().enumerate() {
            let told = self.apply(listing, step, *now);
            assert_eq!(told, *wanted, "{listing}, row {row}: {step:?} at {now}");
        }
    }

    /// Runs one command, and writes its answer down.
    #[track_caller]
    fn apply(&mut self, listing: &str, step: &Step, now: i64) -> String {
        let before = self.clone();
        let (changes, told) = self.ask(listing, step, at(now));
        if !changes {
            assert_eq!(*self, before, "{step:?} changed something and said {told}");
        }
        assert_sound(self);
        told
    }

    fn ask(&mut self, name: &str, step: &Step, now: Timestamp) -> (bool, String) {
        let listing = self.listings.get_mut(name).expect("the test has listed it");
        let (wallets, records) = (&mut self.wallets, &mut self.records);
        match step {
            Step::Bid(bidder, price) => {
                let available = wallets.balance(&member(bidder)).available();
                let judged = listing.judge_bid(&member(bidder), amount(*price), || available, now);
                let placed = listing.bid(&member(bidder), amount(*price), wallets, now, records);
                assert_eq!(judged.err(), placed.clone().err(), "to judge tells what will happen");
                (placed.is_ok(), placed.map_or_else(|rejection| refused(&rejection), |placed| placed_words(&placed)))
            }
            Step::Buy(buyer) => {
                let sale = listing.purchase(&member(buyer), wallets, now, records);
                (sale.is_ok(), sale.map_or_else(|rejection| refused(&rejection), |sale| sale_words(&sale)))
            }
            Step::Put(settings) => {
                assert_eq!(settings.check(), Ok(()));
                match listing.replace(settings.clone(), now) {
                    Ok(true) => (true, "changed".to_owned()),
                    Ok(false) => (false, "same".to_owned()),
                    Err(rejection) => (false, refused(&rejection)),
                }
            }
            Step::Advance => match listing.advance(wallets, now, records) {
                Advance::Nothing => (false, "nothing".to_owned()),
                Advance::Closed => (true, "closed".to_owned()),
                Advance::Defaulted => (true, "defaulted".to_owned()),
            },
            Step::State => {
                let standing = listing.standing();
                (false, format!("{} version {}", standing.state(now).as_str(), standing.version))
            }
            Step::Charge(name, points) => self.transfer(name, Kind::Charge, *points, now),
            Step::Refund(name, points) => self.transfer(name, Kind::Refund, *points, now),
            Step::Balance(name) => {
                let balance = self.wallets.balance(&member(name));
                (false, format!("{} of {}", balance.available(), balance.total()))
            }
        }
    }

    fn transfer(&mut self, name: &str, kind: Kind, points: u64, now: Timestamp) -> (bool, String) {
        // Judged first, so that a refused movement creates no wallet for an unknown member.
        let judged = self.balance(name).after(kind, amount(points));
        match judged.and_then(|_| self.wallets.wallet(&member(name)).apply(kind, amount(points), None, now)) {
            Ok(record) => {
                self.records.push(record.clone());
                (true, format!("{} of {}", record.balance.available(), record.balance.total()))
            }
            Err(error) => (false, format!("{error:?}")),
        }
    }

    /// Charges until the member has this many points.
    fn fill(&mut self, name: &str, total: u64) {
        loop {
            let missing = total - self.balance(name).total();
            let Some(points) = Amount::new(missing.min(AMOUNT_MAX)) else { break };
            self.transfer(name, Kind::Charge, points.get(), at(0));
        }
    }

    fn standing(&self) -> &ListingStanding {
        self.listings["lamp"].standing()
    }

    fn balance(&self, name: &str) -> Balance {
        self.wallets.balance(&member(name))
    }

    /// Describes the records after the first `from`, in order.
    fn written(&self, from: usize) -> Vec<String> {
        let words = |record: &Record| {
            let about = record.about.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("{} {} {} {about}", record.member, record.kind.as_str(), record.amount.get())
        };
        self.records[from..].iter().map(words).collect()
    }
}

fn placed_words(placed: &PlacedBid) -> String {
    format!("bid {} ends {} fence {}", placed.bid.number, placed.effective_ends_at.as_us(), placed.fence)
}

fn sale_words(sale: &Sale) -> String {
    format!("sold to {} for {} at {}", sale.buyer, sale.price.get(), sale.at.as_us())
}

fn refused(rejection: &Rejection) -> String {
    let code = rejection.code();
    match rejection {
        Rejection::BidTooLow(points) | Rejection::InsufficientPoints(points) => format!("{code} {points}"),
        Rejection::AuctionNotEnded(until) | Rejection::SettlementExpired(until) => format!("{code} {}", until.as_us()),
        Rejection::AlreadySold(sale) => format!("{code} to {} at {}", sale.buyer, sale.at.as_us()),
        _ => code.to_owned(),
    }
}

fn at(unix_us: i64) -> Timestamp {
    Timestamp::clamped_us(unix_us)
}

fn member(text: &str) -> MemberName {
    MemberName::parse(text).unwrap()
}

fn amount(points: u64) -> Amount {
    Amount::new(points).unwrap()
}

/// An auction of own's, from [`STARTS`] to [`ENDS`], for 10 at least.
fn auction() -> ListingSettings {
    ListingSettings { starts_at: Some(at(STARTS)), ..ListingSettings::auction(member("own"), amount(10), at(ENDS)) }
}

fn auction_with(change: impl FnOnce(&mut AuctionTerms)) -> ListingSettings {
    let mut settings = auction();
    let Terms::Auction(terms) = &mut settings.terms else { unreachable!() };
    change(terms);
    settings
}

/// The same auction with 5 ms to settle, so until 15 000.
fn settled_soon() -> ListingSettings {
    auction_with(|terms| terms.settle_within_ms = Some(5))
}

/// The same auction, in which a bid in the last millisecond adds two, twice at most.
fn extended() -> ListingSettings {
    auction_with(|terms| terms.extend = Some(Extend { window_ms: 1, by_ms: 2, max_count: 2 }))
}

/// A listing of own's at a fixed price of 10, from [`STARTS`] on.
fn fixed_price() -> ListingSettings {
    ListingSettings { starts_at: Some(at(STARTS)), ..ListingSettings::fixed_price(member("own"), amount(10)) }
}

/// Checks the invariants of the module and of points.
#[track_caller]
fn assert_sound(play: &Play) {
    let mut held: BTreeMap<&MemberName, u64> = BTreeMap::new();
    for (name, listing) in &play.listings {
        let standing = listing.standing();
        assert_eq!(
            Listing::restore(standing.clone()).as_ref(),
            Ok(listing),
            "{name}: what the rules write they take back"
        );
        if let (Phase::Open | Phase::Ended(_), Some(bid)) = (&standing.phase, &standing.highest) {
            *held.entry(&bid.bidder).or_default() += bid.price.get();
        }
    }
    let mut replayed: BTreeMap<&MemberName, Wallet> = BTreeMap::new();
    let (mut total, mut outside) = (0_i128, 0_i128);
    for record in &play.records {
        let wallet = replayed.entry(&record.member).or_insert_with(|| Wallet::empty(record.member.clone()));
        assert_eq!(wallet.restore(record), Ok(()), "{record:?}");
        match record.kind {
            Kind::Charge => outside += i128::from(record.amount.get()),
            Kind::Refund => outside -= i128::from(record.amount.get()),
            _ => {}
        }
    }
    for (member, wallet) in &play.wallets.0 {
        let empty = Wallet::empty(member.clone());
        assert_eq!(replayed.get(member).unwrap_or(&empty), wallet, "the records of {member} lead to the balance");
        assert_eq!(wallet.balance.held(), held.remove(member).unwrap_or(0), "{member}: held for the highest open bids");
        total += i128::from(wallet.balance.total());
    }
    assert!(held.is_empty(), "bids without a hold: {held:?}");
    assert_eq!(total, outside, "points were made or lost");
    assert_holds_end_once(&play.records);
}

/// Checks that each hold ends once at most, that a capture is paid at once, and that the owner gets what the buyer pays.
#[track_caller]
fn assert_holds_end_once(records: &[Record]) {
    let mut open: BTreeMap<String, (MemberName, Amount)> = BTreeMap::new();
    for (place, record) in records.iter().enumerate() {
        let Some(about) = &record.about else { continue };
        let of = (record.member.clone(), record.amount);
        match record.kind {
            Kind::Hold => assert_eq!(open.insert(about.to_string(), of), None, "{about} is held twice"),
            Kind::Release | Kind::Capture => {
                assert_eq!(open.remove(&about.to_string()), Some(of.clone()), "{about} ended and was not held");
                let next = records.get(place + 1).map(|next| (next.member.clone(), next.amount, next.kind));
                let paid = next == Some((of.0, of.1, Kind::Purchase));
                assert!(record.kind == Kind::Release || paid, "{about} was captured and not paid");
            }
            Kind::Purchase => {
                let sold = records.get(place + 1).expect("a purchase is followed by its sale");
                assert_eq!((sold.kind, sold.amount, &sold.about), (Kind::Sold, record.amount, &record.about));
            }
            _ => {}
        }
    }
}
