//! The writer's state of auctions, the copies for readers, and the writer's handling of auction commands.
//!
//! Only the writer has the wallets and listings, so a bid takes no lock. Readers use copies ([`published`]). After a
//! commit the writer replaces the copy of each listing and member that the batch has touched, once per batch.

mod erase;
mod job;
mod published;
mod purge;
mod wallets;

use super::Shared;
use super::journal::{Change, Journal, ListingId, MemberId};
use super::writer::{Log, Primitive};
use crate::auction::{Closings, MovePoints, PlaceBid, Purchase, Transfer};
use crate::error::{Fault, FaultKind, StoreError};
use crate::port::Put;
pub(super) use erase::AuctionErasure;
use erase::Renamed;
use firstcome_core::auction::{Advance, Listing, ListingSettings, Phase, PlacedBid, Rejection, Sale, Wallets};
use firstcome_core::coupon::Effect;
use firstcome_core::erase::is_pseudonym;
use firstcome_core::id::{ListingName, MemberName, RequestId};
use firstcome_core::limits::POINTS_KEY_MS;
use firstcome_core::points::{Balance, Kind, NoBalance, Record, Wallet};
use firstcome_core::revision::Revision;
use firstcome_core::time::{Now, Timestamp};
pub(super) use job::Job;
use job::PendingAuctionReply;
use parking_lot::{Mutex, RwLock};
use published::Names;
pub(super) use published::{ListingCell, MemberCell, PublishedAuctions, ShownMember};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wallets::{Before, Member, MemberWallets};

/// How many auctions the writer closes in one turn. When many auctions end at one instant, other commands wait for at
/// most these.
const CLOSINGS_PER_TURN: usize = 256;

/// A member that is loaded from where it was stored.
pub struct StoredMember {
    /// The store's number for it.
    pub id: MemberId,
    /// Its points.
    pub wallet: Wallet,
}

firstcome_core::debug_by_name!(StoredMember);

/// A listing that is loaded from where it was stored.
pub struct StoredListing {
    /// The store's number for it.
    pub id: ListingId,
    /// The state of the rules.
    pub listing: Listing,
    /// Bids whose request carried a key.
    pub keyed_bids: Vec<(RequestId, PlacedBid)>,
    /// The request that bought it, if it carried a key.
    pub sale_request: Option<RequestId>,
}

firstcome_core::debug_by_name!(StoredListing);

/// A charge or a refund whose request carried a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyedMovement {
    /// The member.
    pub member: MemberId,
    /// The request.
    pub request: RequestId,
    /// The balance that it led to.
    pub balance: Balance,
    /// When it happened.
    pub at: Timestamp,
}

/// Members and listings that are loaded from where they were stored.
#[derive(Default)]
pub struct StoredAuctions {
    /// All members.
    pub members: Vec<StoredMember>,
    /// All listings.
    pub listings: Vec<StoredListing>,
    /// Movements whose keys may still be repeated, the oldest first.
    pub keyed_movements: Vec<KeyedMovement>,
}

firstcome_core::debug_by_name!(StoredAuctions);

/// The writer's state of one listing.
struct WriterListing {
    id: ListingId,
    listing: Listing,
    keyed_bids: HashMap<u128, (u64, PlacedBid)>,
    sale_request: Option<RequestId>,
    /// The instant of its entry in `due`.
    due_at: Option<Timestamp>,
    is_touched: bool,
    cell: Option<Arc<ListingCell>>,
}

/// The writer's state of members and listings.
#[derive(Default)]
pub(super) struct AuctionWriter {
    wallets: MemberWallets,
    places: HashMap<ListingName, usize>,
    listings: Vec<WriterListing>,
    touched: Vec<usize>,
    due: BTreeSet<(Timestamp, usize)>,
    movements: HashMap<u128, KeyedMovement>,
    /// Keys of movements, the oldest first.
    movement_keys: VecDeque<u128>,
    records: Vec<Record>,
    /// Members under another name of whom not all records are chained again, the next one first.
    renamed: VecDeque<Renamed>,
    /// Those whose rows are damaged, and why.
    stuck: Vec<(Renamed, StoreError)>,
    /// Auctions closed since the last commit.
    closings: Closings,
    /// How many due auctions were closed since the writer's turn began.
    closed_in_turn: usize,
    pending: Vec<PendingAuctionReply>,
}

/// The rest of one closing call, which a tick begins and further ticks continue. Auctions close in the order in which
/// they became due, each once per call. A listing that is due again right after its closing waits for the next call, so
/// no call runs for ever.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    /// The call closes what was due at this instant.
    until: Timestamp,
    /// The last auction that was closed.
    after: Option<(Timestamp, usize)>,
}

impl AuctionWriter {
    /// Loads stored members and listings, and publishes them to readers.
    pub(super) fn restore(stored: StoredAuctions, auctions: &PublishedAuctions) -> Self {
        let mut writer = Self::default();
        for StoredMember { id, wallet } in stored.members {
            let before = Before::of(&wallet);
            let place = writer.wallets.add(Member { id, wallet, is_touched: true, cell: None });
            writer.wallets.touched.push((place, before));
        }
        let mut erased: HashMap<MemberName, Vec<(ListingId, u32)>> = HashMap::new();
        for StoredListing { id, listing, mut keyed_bids, sale_request } in stored.listings {
            // An erasure that is under way has not ended their keys in the file. No request is answered by them.
            for (_, placed) in keyed_bids.extract_if(.., |(_, placed)| is_pseudonym(placed.bid.bidder.as_str())) {
                erased.entry(placed.bid.bidder).or_default().push((id, placed.bid.number));
            }
            let keyed_bids = keyed_bids.into_iter().map(|(request, placed)| (request.key, (request.body, placed)));
            let place = writer.add(id, listing);
            let listing = &mut writer.listings[place];
            (listing.keyed_bids, listing.sale_request) = (keyed_bids.collect(), sale_request);
            writer.touch(place);
        }
        for movement in stored.keyed_movements {
            writer.remember(movement);
        }
        writer.restore_renamed(erased);
        writer.show_left(auctions);
        writer.show_committed(auctions, Timestamp::MIN);
        writer
    }

    fn add(&mut self, id: ListingId, listing: Listing) -> usize {
        let place = self.listings.len();
        self.places.insert(listing.standing().name.clone(), place);
        let keyed_bids = HashMap::default();
        self.listings.push(WriterListing {
            id,
            listing,
            keyed_bids,
            sale_request: None,
            due_at: None,
            is_touched: false,
            cell: None,
        });
        place
    }

    fn remember(&mut self, movement: KeyedMovement) {
        self.movements.insert(movement.request.key, movement);
        self.movement_keys.push_back(movement.request.key);
    }

    /// Forgets keys that have expired.
    pub(super) fn forget_keys(&mut self, now: Now) {
        let since = keys_kept_since(now);
        while let Some(key) = self.movement_keys.front()
            && self.movements.get(key).is_none_or(|movement| movement.at < since)
        {
            self.movements.remove(key);
            self.movement_keys.pop_front();
        }
        if 4 * self.movements.len() < self.movements.capacity() {
            self.movements.shrink_to_fit();
            self.movement_keys.shrink_to_fit();
        }
    }

    /// Updates when a listing is due.
    fn note_due(&mut self, place: usize, due_at: Option<Timestamp>) {
        let listing = &mut self.listings[place];
        if due_at != listing.due_at {
            if let Some(before) = std::mem::replace(&mut listing.due_at, due_at) {
                self.due.remove(&(before, place));
            }
            self.due.extend(due_at.map(|due_at| (due_at, place)));
        }
    }

    /// Must be called after each change of a listing.
    fn touch(&mut self, place: usize) {
        self.note_due(place, self.listings[place].listing.due_at());
        let listing = &mut self.listings[place];
        if !listing.is_touched {
            listing.is_touched = true;
            self.touched.push(place);
        }
    }

    fn put(
        &mut self,
        name: ListingName,
        revision: Revision<ListingSettings>,
        now: Timestamp,
    ) -> Result<Put, Rejection> {
        let (place, put) = match self.places.get(&name) {
            Some(place) => {
                let place = *place;
                if !self.listings[place].listing.replace(revision, now)? {
                    return Ok(Put::Replaced);
                }
                (place, Put::Replaced)
            }
            None if revision.replaces.is_some() => return Err(Rejection::UnknownListing),
            None => {
                let listing = Listing::new(name, revision.settings, now)?;
                (self.add(ListingId(self.listings.len() as u32 + 1), listing), Put::Created)
            }
        };
        self.touch(place);
        Ok(put)
    }

    fn bid(
        &mut self,
        listing: &ListingName,
        ask: &PlaceBid,
        now: Timestamp,
        changes: &mut Vec<Change>,
    ) -> Result<Effect<PlacedBid>, Rejection> {
        let place = *self.places.get(listing).ok_or(Rejection::UnknownListing)?;
        let listing = &mut self.listings[place];
        let known = ask.request.and_then(|request| Some((request.body, listing.keyed_bids.get(&request.key)?)));
        if let Some((body, (first, placed))) = known {
            return if body == *first { Ok(Effect::Again(placed.clone())) } else { Err(Rejection::KeyReused) };
        }
        let placed = listing.listing.bid(&ask.bidder, ask.price, &mut self.wallets, now, &mut self.records)?;
        if let Some(request) = ask.request {
            listing.keyed_bids.insert(request.key, (request.body, placed.clone()));
        }
        let (id, member) = (listing.id, self.wallets.id(&ask.bidder));
        changes.push(Change::Bid { id, member, placed: placed.clone(), request: ask.request });
        self.write_records(Some(id), None, changes);
        self.touch(place);
        Ok(Effect::New(placed))
    }

    fn purchase(
        &mut self,
        listing: &ListingName,
        ask: &Purchase,
        now: Timestamp,
        changes: &mut Vec<Change>,
    ) -> Result<Effect<Sale>, Rejection> {
        let place = *self.places.get(listing).ok_or(Rejection::UnknownListing)?;
        let listing = &mut self.listings[place];
        if let (Some(request), Some(first)) = (ask.request, listing.sale_request)
            && request.key == first.key
        {
            return match &listing.listing.standing().phase {
                firstcome_core::auction::Phase::Sold(sale) if request.body == first.body => {
                    Ok(Effect::Again(sale.clone()))
                }
                _ => Err(Rejection::KeyReused),
            };
        }
        let was_open = listing.is_open();
        let sale = listing.listing.purchase(&ask.buyer, &mut self.wallets, now, &mut self.records)?;
        listing.sale_request = ask.request;
        let id = listing.id;
        self.closings.closed += u64::from(was_open && listing.listing.standing().auction_terms().is_some());
        self.write_records(Some(id), None, changes);
        self.touch(place);
        Ok(Effect::New(sale))
    }

    fn move_points(
        &mut self,
        member: &MemberName,
        ask: &MovePoints,
        now: Now,
        changes: &mut Vec<Change>,
    ) -> Result<Effect<Balance>, Rejection> {
        self.forget_keys(now);
        if let Some(request) = ask.request
            && let Some(first) = self.movements.get(&request.key)
        {
            let same = first.request.body == request.body;
            return if same { Ok(Effect::Again(first.balance)) } else { Err(Rejection::KeyReused) };
        }
        let kind = match ask.transfer {
            Transfer::Charge => Kind::Charge,
            Transfer::Refund => Kind::Refund,
        };
        // Decide this before a new member is created, because the request may be refused.
        let before = self.wallets.balance(member);
        before.after(kind, ask.amount).map_err(|error| refusal(error, before))?;
        let moved = self.wallets.wallet(member).apply(kind, ask.amount, None, now.wall);
        let record = moved.map_err(|error| refusal(error, before))?;
        let (balance, at) = (record.balance, record.at);
        self.records.push(record);
        self.write_records(None, ask.request, changes);
        if let Some(request) = ask.request {
            let member = self.wallets.id(member);
            self.remember(KeyedMovement { member, request, balance, at });
        }
        Ok(Effect::New(balance))
    }

    /// Closes due auctions, as many as the turn allows. Returns the rest for the next call.
    fn close_due(&mut self, rest: Option<Rest>, now: Timestamp, changes: &mut Vec<Change>) -> Option<Rest> {
        let mut rest = rest.unwrap_or(Rest { until: now, after: None });
        loop {
            let after = rest.after.map_or(Bound::Unbounded, Bound::Excluded);
            let &(due_at, place) = self.due.range((after, Bound::Included((rest.until, usize::MAX)))).next()?;
            if self.closed_in_turn == CLOSINGS_PER_TURN {
                return Some(rest);
            }
            self.closed_in_turn += 1;
            rest.after = Some((due_at, place));
            self.close(place, now, changes);
        }
    }

    fn close(&mut self, place: usize, now: Timestamp, changes: &mut Vec<Change>) {
        let listing = &mut self.listings[place];
        let was_open = listing.is_open();
        let advance = listing.listing.advance(&mut self.wallets, now, &mut self.records);
        let id = listing.id;
        assert!(advance != Advance::Nothing, "due, and nothing to do");
        self.closings.closed += u64::from(was_open);
        self.closings.defaulted += u64::from(advance == Advance::Defaulted);
        self.write_records(Some(id), None, changes);
        self.touch(place);
    }

    /// Begins the writer's next turn.
    pub(super) const fn begin_turn(&mut self) {
        self.closed_in_turn = 0;
    }

    fn write_records(&mut self, listing: Option<ListingId>, request: Option<RequestId>, changes: &mut Vec<Change>) {
        for record in self.records.drain(..) {
            let id = self.wallets.id(&record.member);
            changes.push(Change::Moved { id, listing, record, request });
        }
    }

    /// Whether points have moved since the last commit.
    const fn has_moved_points(&self) -> bool {
        !self.wallets.touched.is_empty()
    }

    /// Adds the new state of everything that was touched, once per listing and member.
    fn add_touched(&self, changes: &mut Vec<Change>) {
        for (place, _) in &self.wallets.touched {
            let Member { id, wallet, .. } = &self.wallets.members[*place];
            changes.push(Change::Member { id: *id, wallet: Box::new(wallet.clone()) });
        }
        for place in &self.touched {
            let WriterListing { id, listing, sale_request, .. } = &self.listings[*place];
            let standing = Box::new(listing.standing().clone());
            changes.push(Change::Listing { id: *id, standing, sale_request: *sale_request });
        }
    }

    /// Restores the state of the last commit, which readers still see, because these changes could not be stored.
    fn restore_committed(&mut self, changes: &[Change]) -> Result<(), Fault> {
        for change in changes.iter().rev() {
            match change {
                Change::Bid { id, request: Some(request), .. } => {
                    let touched = self.touched.iter().find(|place| self.listings[**place].id == *id);
                    touched.map(|place| self.listings[*place].keyed_bids.remove(&request.key));
                }
                Change::Moved { request: Some(request), .. } => {
                    self.movements.remove(&request.key);
                    if self.movement_keys.back() == Some(&request.key) {
                        self.movement_keys.pop_back();
                    }
                }
                _ => {}
            }
        }
        self.wallets.take_back();
        while let Some(place) = self.touched.pop() {
            let listing = &mut self.listings[place];
            listing.is_touched = false;
            let Some(cell) = &listing.cell else {
                self.note_due(place, None);
                // New listings stand at the end, in the order in which they were touched.
                assert_eq!(place + 1, self.listings.len(), "a listing came after a new one");
                self.listings.pop().map(|listing| self.places.remove(&listing.listing.standing().name));
                continue;
            };
            let restored = Listing::restore(cell.standing());
            listing.listing = restored.map_err(|damage| Fault::new(FaultKind::Damaged, damage.as_str()))?;
            if !matches!(listing.listing.standing().phase, Phase::Sold(_)) {
                listing.sale_request = None;
            }
            let due_at = listing.listing.due_at();
            self.note_due(place, due_at);
        }
        self.closings = Closings::default();
        Ok(())
    }

    fn show(&mut self, names: &mut Names) {
        for (place, _) in self.wallets.touched.drain(..) {
            let member = &mut self.wallets.members[place];
            member.is_touched = false;
            let (id, shown) = (member.id, ShownMember::of(&member.wallet));
            match &member.cell {
                Some(cell) => *cell.shown.lock() = shown,
                None => {
                    let cell = Arc::new(MemberCell { id, shown: Mutex::new(shown) });
                    names.members.insert(member.wallet.member.clone(), Arc::clone(&cell));
                    member.cell = Some(cell);
                }
            }
        }
        for place in self.touched.drain(..) {
            let listing = &mut self.listings[place];
            listing.is_touched = false;
            let (id, standing) = (listing.id, listing.listing.standing().clone());
            match &listing.cell {
                Some(cell) => *cell.standing.write() = standing,
                None => {
                    let name = standing.name.clone();
                    let cell = Arc::new(ListingCell { id, standing: RwLock::new(standing) });
                    names.listings.insert(name, Arc::clone(&cell));
                    listing.cell = Some(cell);
                }
            }
        }
    }

    /// Publishes what was committed, all at one instant. Returns whether the next auction is due earlier than it was
    /// before.
    fn show_committed(&mut self, auctions: &PublishedAuctions, now: Timestamp) -> bool {
        if !self.wallets.touched.is_empty() || !self.touched.is_empty() {
            self.show(&mut auctions.names.write());
        }
        auctions.judged_us.fetch_max(now.as_us(), Ordering::SeqCst);
        let Closings { closed, defaulted } = std::mem::take(&mut self.closings);
        auctions.closed.fetch_add(closed, Ordering::Relaxed);
        auctions.defaulted.fetch_add(defaulted, Ordering::Relaxed);
        let next_due_us = self.due.first().map_or(i64::MAX, |(due_at, _)| due_at.as_us());
        next_due_us < auctions.next_due_us.swap(next_due_us, Ordering::SeqCst)
    }
}

impl WriterListing {
    fn is_open(&self) -> bool {
        self.listing.standing().phase == firstcome_core::auction::Phase::Open
    }
}

/// Returns since when keys of movements are remembered: a key is forgotten once both clocks say so. Setting the wall
/// clock forward therefore turns no repeat into a second charge. A wall clock that was set while no process ran is
/// believed, because nothing can contradict it.
pub fn keys_kept_since(now: Now) -> Timestamp {
    // Steady time begins at the wall clock's time, see `Timeline`. It is behind by what the wall clock was set forward
    // since.
    let now_us = now.wall.as_us().min(now.steady.as_us());
    Timestamp::clamped_us(now_us.saturating_sub(POINTS_KEY_MS.cast_signed().saturating_mul(1_000)))
}

const fn refusal(error: NoBalance, before: Balance) -> Rejection {
    match error {
        NoBalance::TooLarge => Rejection::BalanceTooLarge,
        NoBalance::Insufficient | NoBalance::NotHeld => Rejection::InsufficientPoints(before.available()),
    }
}

impl AuctionWriter {
    /// Decides one command.
    pub(super) fn run(&mut self, job: Job, log: &mut Log, now: Now) {
        // The caller dropped its future: skip the command, as if it had never come.
        if job.is_closed() {
            return;
        }
        if let Err(error) = log.check() {
            return job.refuse(error);
        }
        let (changes, both, now) = (&mut log.changes, now, now.wall);
        let pending = match job {
            Job::Bid(listing, ask, reply) => PendingAuctionReply::Bid(reply, self.bid(&listing, &ask, now, changes)),
            Job::Purchase(listing, ask, reply) => {
                PendingAuctionReply::Purchase(reply, self.purchase(&listing, &ask, now, changes))
            }
            Job::Move(member, ask, reply) => {
                PendingAuctionReply::Move(reply, self.move_points(&member, &ask, both, changes))
            }
            Job::Put(listing, revision, reply) => PendingAuctionReply::Put(reply, self.put(listing, *revision, now)),
        };
        self.pending.push(pending);
    }

    /// Closes due auctions, as many as this turn allows. Returns the rest.
    pub(super) fn close_due_now(&mut self, rest: Option<Rest>, log: &mut Log, now: Now) -> Option<Rest> {
        if log.shared.fault().is_some() {
            return None;
        }
        self.close_due(rest, now.wall, &mut log.changes)
    }
}

impl Primitive for AuctionWriter {
    fn needs_clocks(&self) -> bool {
        self.has_moved_points()
    }

    fn seal(&self, changes: &mut Vec<Change>) {
        self.add_touched(changes);
    }

    fn publish(&mut self, shared: &Shared, now: Now) {
        if self.show_committed(shared.auctions(), now.wall) {
            shared.clockwork.wake();
        }
    }

    fn reply(&mut self) {
        self.pending.drain(..).for_each(PendingAuctionReply::send);
    }

    fn refuse(&mut self, error: &StoreError) {
        self.pending.drain(..).for_each(|pending| pending.refuse(error));
    }

    fn take_back(&mut self, changes: &[Change], _journal: &mut dyn Journal, _now: Now) -> Result<(), Fault> {
        #[cfg(feature = "planted-bugs")]
        if firstcome_core::planted::is(firstcome_core::planted::Bug::AuctionNotTakenBack) {
            return Ok(());
        }
        self.restore_committed(changes)
    }
}

impl Shared {
    pub(super) const fn auctions(&self) -> &PublishedAuctions {
        &self.auctions
    }
}
