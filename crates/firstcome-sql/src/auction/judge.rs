//! Judges a batch by the rules, on what was read under the locks.

use super::changes::{BidRow, Changes, ListingChange, RecordRow, RequestRow, WalletChange, stored};
use super::dialect::RequestScope;
use super::load::Stored;
use firstcome_core::auction::{Advance, ListingSettings, Phase, PlacedBid, Rejection, Sale, Wallets};
use firstcome_core::coupon::Effect;
use firstcome_core::id::{MemberName, RequestId};
use firstcome_core::limits::POINTS_KEY_MS;
use firstcome_core::points::{Balance, Kind, NoBalance, Record, Wallet};
use firstcome_core::revision::Revision;
use firstcome_core::time::Timestamp;
use firstcome_store::Put;
use firstcome_store::{MovePoints, PlaceBid, Purchase, Transfer};
use std::collections::{BTreeMap, BTreeSet};

/// What a member wants of a listing, or of a member's points.
#[derive(Clone, Debug)]
pub(super) enum Command {
    Put(Revision<ListingSettings>),
    Bid(PlaceBid),
    Purchase(Purchase),
    /// Does what time has made due.
    Advance,
    Move(MovePoints),
}

impl Command {
    /// The idempotency key and what was asked under it.
    pub(super) const fn request(&self) -> Option<RequestId> {
        match self {
            Self::Bid(bid) => bid.request,
            Self::Purchase(purchase) => purchase.request,
            Self::Move(movement) => movement.request,
            Self::Put(_) | Self::Advance => None,
        }
    }
}

/// What came of a command.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Put(Put),
    Bid(Effect<PlacedBid>),
    /// A sale, and whether it closed an auction that no caller had closed yet.
    Sale {
        sale: Effect<Sale>,
        closed: bool,
    },
    Advanced {
        closed: bool,
        defaulted: bool,
    },
    Moved(Effect<Balance>),
}

/// A request that had an effect before.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) body: u64,
    pub(super) at: Timestamp,
    pub(super) effect: KnownEffect,
}

/// The effect that it had.
#[derive(Clone, Debug)]
pub(super) enum KnownEffect {
    Bid(PlacedBid),
    Sale(Sale),
    Moved(Balance),
}

/// The wallets that were locked.
#[derive(Default)]
pub(super) struct LockedWallets {
    wallets: BTreeMap<MemberName, LockedWallet>,
    /// Asked for, and not there: the batch must be done again.
    pub(super) missing: bool,
}

struct LockedWallet {
    id: i64,
    before: u64,
    wallet: Wallet,
}

impl LockedWallets {
    pub(super) fn add(&mut self, id: i64, wallet: Wallet) {
        self.wallets.insert(wallet.member.clone(), LockedWallet { id, before: wallet.records, wallet });
    }

    pub(super) fn has(&self, member: &MemberName) -> bool {
        self.wallets.contains_key(member)
    }

    fn id(&self, member: &MemberName) -> Option<i64> {
        self.wallets.get(member).map(|held| held.id)
    }
}

impl Wallets for LockedWallets {
    fn balance(&self, member: &MemberName) -> Balance {
        self.wallets.get(member).map_or_else(Balance::default, |held| held.wallet.balance)
    }

    fn wallet(&mut self, member: &MemberName) -> &mut Wallet {
        if !self.wallets.contains_key(member) {
            self.missing = true;
            self.add(0, Wallet::empty(member.clone()));
        }
        // It was added above if it was not there.
        let held = self.wallets.entry(member.clone());
        let empty = || LockedWallet { id: 0, before: 0, wallet: Wallet::empty(member.clone()) };
        &mut held.or_insert_with(empty).wallet
    }
}

/// A batch and what it is judged by.
pub(super) struct Bench {
    pub(super) now: Timestamp,
    pub(super) scope: RequestScope,
    pub(super) stored: Option<Stored>,
    pub(super) wallets: LockedWallets,
    pub(super) known: BTreeMap<u128, Known>,
    /// The numbers of owners of whom a put speaks.
    pub(super) owners: BTreeMap<MemberName, i64>,
    pub(super) changes: Changes,
    records: Vec<Record>,
    forgotten: BTreeSet<u128>,
}

impl Bench {
    pub(super) fn new(now: Timestamp, scope: RequestScope) -> Self {
        Self {
            now,
            scope,
            stored: None,
            wallets: LockedWallets::default(),
            known: BTreeMap::new(),
            owners: BTreeMap::new(),
            changes: Changes::default(),
            records: Vec::new(),
            forgotten: BTreeSet::new(),
        }
    }

    /// Judges one command after all before it.
    pub(super) fn judge(&mut self, command: &Command) -> Result<Answer, Rejection> {
        if let Some(request) = command.request()
            && let Some(known) = self.known.get(&request.key)
        {
            let over = matches!(command, Command::Move(_)) && known.at.plus_ms(POINTS_KEY_MS) < self.now;
            if !over {
                return known.again(command, request);
            }
            // Its time is over: the key is as good as new.
            self.known.remove(&request.key);
            self.forgotten.insert(request.key);
        }
        match command {
            Command::Put(revision) => self.put(revision),
            Command::Bid(bid) => self.bid(bid),
            Command::Purchase(purchase) => self.purchase(purchase),
            Command::Advance => self.advance(),
            Command::Move(movement) => self.movement(movement),
        }
    }

    fn put(&mut self, revision: &Revision<ListingSettings>) -> Result<Answer, Rejection> {
        let stored = self.stored.as_mut().ok_or(Rejection::UnknownListing)?;
        if stored.listing.replace(revision.clone(), self.now)? {
            stored.owner = self.owners.get(&revision.settings.owner).copied().unwrap_or_default();
        }
        Ok(Answer::Put(Put::Replaced))
    }

    fn bid(&mut self, bid: &PlaceBid) -> Result<Answer, Rejection> {
        let stored = self.stored.as_mut().ok_or(Rejection::UnknownListing)?;
        let placed = stored.listing.bid(&bid.bidder, bid.price, &mut self.wallets, self.now, &mut self.records)?;
        let member = self.wallets.id(&bid.bidder).unwrap_or_default();
        stored.highest = Some(member);
        let listing = stored.before.id;
        self.changes.bids.push(BidRow { listing, member, placed: placed.clone() });
        self.remember(bid.request, i64::from(placed.bid.number), placed.bid.at, KnownEffect::Bid(placed.clone()));
        Ok(Answer::Bid(Effect::New(placed)))
    }

    fn purchase(&mut self, purchase: &Purchase) -> Result<Answer, Rejection> {
        let stored = self.stored.as_mut().ok_or(Rejection::UnknownListing)?;
        let standing = stored.listing.standing();
        let closed = standing.phase == Phase::Open && standing.auction_terms().is_some();
        let sale = stored.listing.purchase(&purchase.buyer, &mut self.wallets, self.now, &mut self.records)?;
        self.remember(purchase.request, 0, sale.at, KnownEffect::Sale(sale.clone()));
        Ok(Answer::Sale { sale: Effect::New(sale), closed })
    }

    fn advance(&mut self) -> Result<Answer, Rejection> {
        let stored = self.stored.as_mut().ok_or(Rejection::UnknownListing)?;
        let was_open = stored.listing.standing().phase == Phase::Open;
        let advance = stored.listing.advance(&mut self.wallets, self.now, &mut self.records);
        let closed = was_open && advance != Advance::Nothing;
        Ok(Answer::Advanced { closed, defaulted: advance == Advance::Defaulted })
    }

    fn movement(&mut self, movement: &MovePoints) -> Result<Answer, Rejection> {
        let kind = match movement.transfer {
            Transfer::Charge => Kind::Charge,
            Transfer::Refund => Kind::Refund,
        };
        // A batch of movements is of one member.
        let Some(held) = self.wallets.wallets.values_mut().next() else {
            self.wallets.missing = true;
            return Err(Rejection::UnknownListing);
        };
        let available = held.wallet.balance.available();
        let record = held.wallet.apply(kind, movement.amount, None, self.now).map_err(|error| match error {
            NoBalance::TooLarge => Rejection::BalanceTooLarge,
            NoBalance::Insufficient | NoBalance::NotHeld => Rejection::InsufficientPoints(available),
        })?;
        let (number, at, balance) = (stored(record.number), record.at, record.balance);
        self.records.push(record);
        self.remember(movement.request, number, at, KnownEffect::Moved(balance));
        Ok(Answer::Moved(Effect::New(balance)))
    }

    fn remember(&mut self, request: Option<RequestId>, number: i64, at: Timestamp, effect: KnownEffect) {
        let Some(RequestId { key, body }) = request else { return };
        self.known.insert(key, Known { body, at, effect });
        self.changes.requests.push(RequestRow { scope: self.scope, key, body, number, at });
    }

    /// All that the batch changes.
    pub(super) fn finish(mut self) -> Changes {
        let (scope, mut changes) = (self.scope, self.changes);
        // A key whose new request was refused stays forgotten in the tables too: it is over.
        changes.forgotten = self.forgotten.into_iter().map(|key| (scope, key)).collect();
        let listing_id = self.stored.as_ref().map(|stored| stored.before.id);
        for record in self.records {
            let member = self.wallets.id(&record.member).unwrap_or_default();
            let listing = record.about.as_ref().and(listing_id);
            changes.records.push(RecordRow { member, listing, record });
        }
        let changed = std::mem::take(&mut self.wallets.wallets).into_values();
        let changed = changed.filter(|held| held.wallet.records != held.before);
        changes.wallets =
            changed.map(|LockedWallet { id, before, wallet }| WalletChange { id, before, wallet }).collect();
        if let Some(Stored { before, owner, highest, listing }) = self.stored
            && listing.standing().version != before.version
        {
            changes.listing = Some(ListingChange { before: Some(before), listing, owner, highest });
        }
        changes
    }
}

impl Known {
    /// The answer to a repeat.
    fn again(&self, command: &Command, request: RequestId) -> Result<Answer, Rejection> {
        if self.body != request.body {
            return Err(Rejection::KeyReused);
        }
        match (&self.effect, command) {
            (KnownEffect::Bid(placed), Command::Bid(_)) => Ok(Answer::Bid(Effect::Again(placed.clone()))),
            (KnownEffect::Sale(sale), Command::Purchase(_)) => {
                Ok(Answer::Sale { sale: Effect::Again(sale.clone()), closed: false })
            }
            (KnownEffect::Moved(balance), Command::Move(_)) => Ok(Answer::Moved(Effect::Again(*balance))),
            _ => Err(Rejection::KeyReused),
        }
    }
}
