//! Histories of auctions written by hand, so that each invariant can be shown what it must reject.

use super::{AuctionEvidence, Evidence, Violation, both};
use crate::auction::history::{AuctionReply, Command, History};
use crate::auction::ledger::Ledger;
use crate::auction::rows::Stored;
use crate::history::Outcome;
use crate::journal::Commit;
use firstcome_core::auction::{
    Bid, Extend, ListingSettings, ListingStanding, Phase, PlacedBid, Rejection, Sale, Terms,
};
use firstcome_core::coupon::Effect;
use firstcome_core::id::{ListingName, MemberName, RequestId};
use firstcome_core::points::{Amount, Balance, Kind, Record, Reference, Wallet};
use firstcome_core::time::Timestamp;
use firstcome_store::embedded::journal::{Change, ListingId, MemberId};
use firstcome_store::{ListingView, MovePoints, Numbered, PlaceBid, Purchase, Put, Transfer};

const LISTING: ListingId = ListingId(1);
const START: Timestamp = Timestamp::clamped_us(1_000_000);

type Check = fn(&AuctionEvidence<'_>, &Ledger) -> Result<(), Violation>;

/// One listing, told step by step. What a method does is asked for, committed and told; what it is called tells which of
/// these are left out.
pub(super) struct Story {
    history: History,
    log: Vec<Commit>,
    standing: ListingStanding,
    wallets: Vec<Wallet>,
    now: Timestamp,
}

pub(super) fn name() -> ListingName {
    ListingName::parse("lamp").unwrap()
}

pub(super) fn member(text: &str) -> MemberName {
    MemberName::parse(text).unwrap()
}

pub(super) fn amount(points: u64) -> Amount {
    Amount::new(points).unwrap()
}

fn settings() -> ListingSettings {
    let mut settings = ListingSettings::auction(member("owner"), amount(10), START.plus_ms(10_000));
    settings.starts_at = Some(START);
    if let Terms::Auction(terms) = &mut settings.terms {
        terms.settle_within_ms = Some(5_000);
    }
    settings
}

impl Story {
    /// An auction of ten seconds from ten points on, whose winner has five seconds to settle.
    pub(super) fn auction() -> Self {
        Self::with(settings())
    }

    /// The same with two extensions by a second each, for bids in the last second.
    pub(super) fn extended() -> Self {
        let mut settings = settings();
        if let Terms::Auction(terms) = &mut settings.terms {
            terms.extend = Some(Extend { window_ms: 1_000, by_ms: 1_000, max_count: 2 });
        }
        Self::with(settings)
    }

    /// A thing for ten points.
    pub(super) fn fixed_price() -> Self {
        Self::with(ListingSettings::fixed_price(member("owner"), amount(10)))
    }

    fn with(settings: ListingSettings) -> Self {
        let listing = firstcome_core::auction::Listing::new(name(), settings.clone(), START);
        let standing = listing.unwrap().standing().clone();
        let history = History::default();
        let mut story = Self { history, log: Vec::new(), standing, wallets: Vec::new(), now: START };
        let asked = story.ask(Command::Put(name(), Box::new(settings)));
        story.row(|_| ());
        story.tell(asked, AuctionReply::Put(Put::Created));
        story
    }

    pub(super) fn pass_ms(&mut self, ms: u64) -> &mut Self {
        self.now = self.now.plus_ms(ms);
        self
    }

    /// The clock shows an earlier instant, as no right one does.
    pub(super) fn fall_back_ms(&mut self, ms: i64) -> &mut Self {
        self.now = Timestamp::clamped_us(self.now.as_us() - ms * 1_000);
        self
    }

    pub(super) const fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) const fn standing(&self) -> &ListingStanding {
        &self.standing
    }

    pub(super) fn ask(&mut self, command: Command) -> usize {
        self.history.ask((), command, both(self.now))
    }

    pub(super) fn end(&mut self, id: usize, outcome: Outcome<AuctionReply>) -> &mut Self {
        self.history.answer(id, outcome, 0, both(self.now));
        self
    }

    pub(super) fn tell(&mut self, id: usize, told: AuctionReply) -> &mut Self {
        self.end(id, Outcome::Answered(told))
    }

    /// Asked and told, and nothing is written.
    pub(super) fn told(&mut self, command: Command, told: AuctionReply) -> &mut Self {
        let id = self.ask(command);
        self.tell(id, told)
    }

    pub(super) fn end_life(&mut self) -> &mut Self {
        self.history.end_life(both(self.now));
        self
    }

    fn commit(&mut self, mut changes: Vec<Change>, sealed: &[&str]) -> &mut Self {
        for who in sealed {
            let (id, wallet) = self.wallet(who);
            changes.push(Change::Member { id, wallet: Box::new(wallet.clone()) });
        }
        let event = self.history.events().next();
        self.log.push(Commit { at: both(self.now), in_force: (event, self.now), is_known: true, changes });
        self
    }

    fn wallet(&mut self, who: &str) -> (MemberId, &mut Wallet) {
        let known = self.wallets.iter().position(|wallet| wallet.member.as_str() == who);
        let at = known.unwrap_or_else(|| {
            self.wallets.push(Wallet::empty(member(who)));
            self.wallets.len() - 1
        });
        (MemberId(at as u32 + 1), &mut self.wallets[at])
    }

    fn movement(&mut self, who: &str, kind: Kind, points: u64, bid: Option<u32>, request: Option<RequestId>) -> Change {
        let is_outside = matches!(kind, Kind::Charge | Kind::Refund);
        let about = (!is_outside).then(|| Reference { listing: name(), bid });
        let (listing, now) = (about.as_ref().map(|_| LISTING), self.now);
        let (id, wallet) = self.wallet(who);
        let record = wallet.apply(kind, amount(points), about, now).unwrap();
        Change::Moved { id, listing, record, request }
    }

    fn listing_row(&self) -> Change {
        Change::Listing { id: LISTING, standing: Box::new(self.standing.clone()), sale_request: None }
    }

    /// Points move between a member and the world outside, and no client is told.
    pub(super) fn transferred(&mut self, who: &str, kind: Kind, points: u64, key: Option<u128>) -> Balance {
        let request = key.map(|key| RequestId { key, body: points });
        let moved = self.movement(who, kind, points, None, request);
        self.commit(vec![moved], &[who]);
        self.wallet(who).1.balance
    }

    pub(super) fn transfer(&mut self, who: &str, transfer: Transfer, points: u64, key: Option<u128>) -> &mut Self {
        let asked = self.ask(transfer_of(who, transfer, points, key));
        let kind = if transfer == Transfer::Charge { Kind::Charge } else { Kind::Refund };
        let balance = self.transferred(who, kind, points, key);
        self.tell(asked, AuctionReply::Moved(Effect::New(balance)))
    }

    pub(super) fn charge(&mut self, who: &str, points: u64) -> &mut Self {
        self.transfer(who, Transfer::Charge, points, None)
    }

    pub(super) fn refund(&mut self, who: &str, points: u64) -> &mut Self {
        self.transfer(who, Transfer::Refund, points, None)
    }

    /// A record about the listing that nothing asks for.
    pub(super) fn moved(&mut self, who: &str, kind: Kind, points: u64) -> &mut Self {
        self.moved_for(who, kind, points, 0)
    }

    pub(super) fn moved_for(&mut self, who: &str, kind: Kind, points: u64, bid: u32) -> &mut Self {
        let moved = self.movement(who, kind, points, (bid != 0).then_some(bid), None);
        self.commit(vec![moved], &[who])
    }

    /// A bid is written and no client is told.
    pub(super) fn placed(&mut self, who: &str, points: u64, request: Option<RequestId>) -> PlacedBid {
        let outbid = self.standing.highest.take();
        let number = self.standing.bids + 1;
        let bid = Bid { number, bidder: member(who), price: amount(points), at: self.now };
        let extend = self.standing.auction_terms().and_then(|terms| terms.extend);
        if let Some(extend) = extend
            && self.standing.effective_ends_at <= self.now.plus_ms(extend.window_ms)
            && self.standing.extensions < extend.max_count
        {
            self.standing.extensions += 1;
            self.standing.effective_ends_at = self.standing.effective_ends_at.plus_ms(extend.by_ms);
        }
        self.standing.bids = number;
        self.standing.highest = Some(bid.clone());
        self.standing.version += 1;
        self.standing.last_at = self.now;
        let effective_ends_at = self.standing.effective_ends_at;
        let placed = PlacedBid { bid, effective_ends_at, fence: self.standing.version };
        let id = self.wallet(who).0;
        let mut changes = vec![Change::Bid { id: LISTING, member: id, placed: placed.clone(), request }];
        changes.push(self.movement(who, Kind::Hold, points, Some(number), None));
        let mut sealed = vec![who];
        if let Some(outbid) = &outbid {
            let (who, points) = (outbid.bidder.as_str(), outbid.price.get());
            changes.push(self.movement(who, Kind::Release, points, Some(outbid.number), None));
            sealed.push(who);
        }
        changes.push(self.listing_row());
        self.commit(changes, &sealed);
        placed
    }

    pub(super) fn bid(&mut self, who: &str, points: u64) -> &mut Self {
        let asked = self.ask(bid_of(who, points, None));
        let placed = self.placed(who, points, None);
        self.tell(asked, AuctionReply::Placed(Effect::New(placed)))
    }

    /// A bid by a client that first charges.
    pub(super) fn outbid(&mut self, who: &str, points: u64, charged: u64) -> &mut Self {
        if charged != 0 {
            self.charge(who, charged);
        }
        self.bid(who, points)
    }

    /// Writes the listing with something changed.
    pub(super) fn row(&mut self, change: impl FnOnce(&mut ListingStanding)) -> &mut Self {
        change(&mut self.standing);
        let row = self.listing_row();
        self.commit(vec![row], &[])
    }

    fn phase(&mut self, phase: Phase) {
        self.standing.phase = phase;
        self.standing.version += 1;
        self.standing.last_at = self.now;
    }

    pub(super) fn ended(&mut self) -> &mut Self {
        let phase = Phase::Ended(self.now);
        self.phase(phase);
        self.row(|_| ())
    }

    pub(super) fn unsold(&mut self) -> &mut Self {
        let phase = Phase::Unsold(self.now);
        self.phase(phase);
        self.row(|_| ())
    }

    /// The winner has not settled: the hold is released.
    pub(super) fn defaulted(&mut self) -> &mut Self {
        let bid = self.standing.highest.clone().unwrap();
        let who = bid.bidder.as_str();
        let released = self.movement(who, Kind::Release, bid.price.get(), Some(bid.number), None);
        let phase = Phase::Unsold(self.now);
        self.phase(phase);
        let row = self.listing_row();
        self.commit(vec![released, row], &[who])
    }

    pub(super) fn sold(&mut self, who: &str) -> &mut Self {
        let price = self.standing.highest.as_ref().unwrap().price.get();
        self.sold_for(who, price)
    }

    pub(super) fn sold_for(&mut self, who: &str, price: u64) -> &mut Self {
        let asked = self.ask(purchase_of(who, None));
        let sale = self.sale(who, price);
        self.tell(asked, AuctionReply::Bought(Effect::New(sale)))
    }

    /// The winner's purchase is written, and no client is told.
    pub(super) fn sold_unasked(&mut self, who: &str) -> &mut Self {
        let price = self.standing.highest.as_ref().unwrap().price.get();
        self.sale(who, price);
        self
    }

    fn sale(&mut self, who: &str, price: u64) -> Sale {
        let sale = Sale { buyer: member(who), price: amount(price), at: self.now };
        let mut changes = Vec::new();
        if price <= self.wallet(who).1.balance.held() {
            let bid = Some(self.standing.bids);
            changes.push(self.movement(who, Kind::Capture, price, bid, None));
        }
        changes.push(self.movement(who, Kind::Purchase, price, None, None));
        changes.push(self.movement("owner", Kind::Sold, price, None, None));
        self.phase(Phase::Sold(sale.clone()));
        let row = self.listing_row();
        changes.push(row);
        self.commit(changes, &[who, "owner"]);
        sale
    }

    pub(super) fn refused(&mut self, command: Command, rejection: Rejection) -> &mut Self {
        self.told(command, AuctionReply::Refused(rejection))
    }

    pub(super) fn viewed(&mut self) -> &mut Self {
        let view = ListingView { standing: self.standing.clone(), now: self.now };
        self.told(Command::View(name()), AuctionReply::View(Box::new(view)))
    }

    pub(super) fn replied_bids(&mut self, items: Vec<Bid>, next: Option<u64>) -> &mut Self {
        self.told(Command::Bids(name(), None, 2), AuctionReply::Bids(Numbered { items, next, removed_to: 0 }))
    }

    pub(super) fn replied_balance(&mut self, who: &str, total: u64, held: u64) -> &mut Self {
        let balance = Balance::new(total, held).unwrap();
        self.told(Command::Balance(member(who)), AuctionReply::Balance(balance))
    }

    fn changes(&mut self, change: impl FnMut(&mut Change)) -> &mut Self {
        self.log.iter_mut().flat_map(|commit| &mut commit.changes).for_each(change);
        self
    }

    /// Changes the records of a commit.
    pub(super) fn edit_record(&mut self, commit: usize, change: impl Fn(&mut Record)) -> &mut Self {
        for found in &mut self.log[commit].changes {
            if let Change::Moved { record, .. } = found {
                change(record);
            }
        }
        self
    }

    pub(super) fn edit_record_of(&mut self, kind: Kind, change: impl Fn(&mut Record)) -> &mut Self {
        self.changes(|found| match found {
            Change::Moved { record, .. } if record.kind == kind => change(record),
            _ => {}
        })
    }

    /// Changes what the last commit says that a member has.
    pub(super) fn edit_member(&mut self, change: impl Fn(&mut Wallet)) -> &mut Self {
        for found in &mut self.log.last_mut().unwrap().changes {
            if let Change::Member { wallet, .. } = found {
                change(wallet);
            }
        }
        self
    }

    pub(super) fn edit_bids(&mut self, change: impl Fn(&mut PlacedBid)) -> &mut Self {
        self.changes(|found| {
            if let Change::Bid { placed, .. } = found {
                change(placed);
            }
        })
    }

    pub(super) fn drop_records(&mut self, kind: Kind) -> &mut Self {
        for commit in &mut self.log {
            commit.changes.retain(|found| !matches!(found, Change::Moved { record, .. } if record.kind == kind));
        }
        self
    }

    pub(super) fn remove_commit(&mut self, at: usize) -> &mut Self {
        self.log.remove(at);
        self
    }

    pub(super) fn repeat_commit(&mut self) -> &mut Self {
        let last = self.log.last().unwrap().clone();
        self.log.push(last);
        self
    }

    /// Leaves only the first changes of the last commit.
    pub(super) fn cut_commit(&mut self, changes: usize) -> &mut Self {
        self.log.last_mut().unwrap().changes.truncate(changes);
        self
    }

    fn judge(&self, check: Check) -> Result<(), Violation> {
        let (history, stored, log) = (&self.history, &Stored::default(), &self.log[..]);
        let evidence = Evidence { seed: 0, history, stored, log, healed_at: None };
        check(&evidence, &Ledger::read(&self.log))
    }

    #[track_caller]
    pub(super) fn assert_found(&self, check: Check, detail: &str) {
        super::assert_found(self.judge(check), detail);
    }

    #[track_caller]
    pub(super) fn assert_clean(&self, check: Check) {
        assert_eq!(self.judge(check), Ok(()));
    }
}

pub(super) fn bid_of(who: &str, points: u64, request: Option<RequestId>) -> Command {
    Command::Bid(name(), PlaceBid { bidder: member(who), price: amount(points), request })
}

pub(super) fn purchase_of(who: &str, request: Option<RequestId>) -> Command {
    Command::Purchase(name(), Purchase { buyer: member(who), request })
}

pub(super) fn transfer_of(who: &str, transfer: Transfer, points: u64, key: Option<u128>) -> Command {
    let request = key.map(|key| RequestId { key, body: points });
    Command::Move(member(who), MovePoints { transfer, amount: amount(points), request })
}
