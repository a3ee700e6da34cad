//! What was told to be done is stored as it was told, once; what is stored was asked for, once.

use crate::auction::history::{AuctionReply, Command, History, Operation};
use crate::auction::ledger::{Ledger, ListingStory, MemberStory, StoredBid, StoredRecord};
use crate::auction::replay::Replay;
use crate::auction::world::WALL_AHEAD_MS_MAX;
use crate::history::Event;
use firstcome_core::auction::{ListingSettings, Phase, PlacedBid, Rejection, Sale};
use firstcome_core::coupon::Effect;
use firstcome_core::id::{ListingName, MemberName, RequestId};
use firstcome_core::limits::POINTS_KEY_MS;
use firstcome_core::points::{Amount, Balance, Kind};
use firstcome_core::time::Timestamp;
use firstcome_store::{MovePoints, PlaceBid, Purchase, Put, Transfer};
use std::collections::{BTreeMap, BTreeSet};

/// The kind of record of a movement.
pub(super) const fn kind_of(transfer: Transfer) -> Kind {
    match transfer {
        Transfer::Charge => Kind::Charge,
        Transfer::Refund => Kind::Refund,
    }
}

pub(super) fn bid_is_stored(
    operation: &Operation,
    ask: &PlaceBid,
    effect: &Effect<PlacedBid>,
    listing: Option<&ListingStory>,
) -> Result<(), String> {
    let (placed, is_new) = match effect {
        Effect::New(placed) => (placed, true),
        Effect::Again(placed) => (placed, false),
    };
    let bids = listing.map_or(&[][..], |story| &story.bids);
    let number = placed.bid.number;
    let stored = bids.iter().find(|stored| stored.placed.bid.number == number && stored.event < operation.end());
    let Some(stored) = stored.filter(|stored| stored.placed == *placed) else {
        return Err(format!("bid {number} was told, and is not stored so"));
    };
    let asked = (&ask.bidder, ask.price) == (&placed.bid.bidder, placed.bid.price) && ask.request == stored.request;
    if !asked {
        return Err(format!("bid {number} was told, and is of another request"));
    }
    if !is_new {
        return if ask.request.is_some() { Ok(()) } else { Err("told again without a key".into()) };
    }
    if !operation.spans(stored.event) {
        return Err(format!("bid {number} was told as new, and was stored before it was asked for"));
    }
    let at = placed.bid.at;
    if operation.asked_at <= at && at <= operation.ended_at {
        return Ok(());
    }
    Err(format!("bid {number} has the instant {}, at which no request was under way", at.as_us()))
}

pub(super) fn sale_is_stored(
    operation: &Operation,
    ask: &Purchase,
    effect: &Effect<Sale>,
    listing: Option<&ListingStory>,
) -> Result<(), String> {
    let (sale, is_new) = match effect {
        Effect::New(sale) => (sale, true),
        Effect::Again(sale) => (sale, false),
    };
    let rows = listing.map_or(&[][..], |story| &story.rows);
    let stored = rows.iter().find(|row| row.standing.phase == Phase::Sold(sale.clone()));
    let Some(stored) = stored.filter(|row| row.in_force.0 < operation.end()) else {
        return Err("a sale was told, and is not stored".into());
    };
    if ask.buyer != sale.buyer || ask.request != stored.sale_request {
        return Err("a sale was told, and is of another request".into());
    }
    match is_new {
        false if ask.request.is_none() => Err("told again without a key".into()),
        true if !operation.spans(stored.in_force.0) => Err("a sale was told as new, and was stored before".into()),
        true if sale.at < operation.asked_at || operation.ended_at < sale.at => {
            Err(format!("a sale has the instant {}, at which no request was under way", sale.at.as_us()))
        }
        _ => Ok(()),
    }
}

pub(super) fn movement_is_stored(
    operation: &Operation,
    ask: &MovePoints,
    effect: &Effect<Balance>,
    member: Option<&MemberStory>,
) -> Result<(), String> {
    let (balance, is_new) = match effect {
        Effect::New(balance) => (balance, true),
        Effect::Again(balance) => (balance, false),
    };
    let fits = |stored: &&StoredRecord| {
        let in_time = if is_new { operation.spans(stored.event) } else { stored.event < operation.end() };
        in_time && is_of(stored, ask) && stored.record.balance == *balance
    };
    let mut records = member.into_iter().flat_map(|story| &story.records);
    match records.find(fits) {
        None => Err(format!("{balance:?} was told, and no such movement is stored")),
        Some(_) if !is_new && ask.request.is_none() => Err("told again without a key".into()),
        Some(_) => Ok(()),
    }
}

fn is_of(stored: &StoredRecord, ask: &MovePoints) -> bool {
    let asked = (kind_of(ask.transfer), ask.amount, ask.request);
    (stored.record.kind, stored.record.amount, stored.request) == asked
}

/// Settings that were told to be in force were so at some moment of the question, no matter what replaced them at once.
pub(super) fn put_is_in_force(
    operation: &Operation,
    name: &ListingName,
    settings: &ListingSettings,
    replay: &Replay,
) -> Result<(), String> {
    let (from, to) = ((operation.asked, operation.asked_at), (operation.end(), operation.ended_at));
    let stands = replay.during(name, from, to).any(|(listing, _, _)| {
        let starts_at = settings.starts_at.unwrap_or(listing.starts_at);
        listing.settings() == ListingSettings { starts_at: Some(starts_at), ..settings.clone() }
    });
    if stands { Ok(()) } else { Err("settings were told to be in force and are not stored".into()) }
}

/// A seller that is told "created" has created the listing, and one that is told "replaced" has found it there.
pub(super) fn put_is_what_it_was(
    operation: &Operation,
    put: Put,
    listing: Option<&ListingStory>,
) -> Result<(), String> {
    let Some(first) = listing.and_then(|story| story.rows.first()) else { return Err("nothing is stored".into()) };
    let right = match put {
        Put::Created => operation.spans(first.in_force.0),
        Put::Replaced => first.in_force.0 < operation.end(),
    };
    if right { Ok(()) } else { Err(format!("{put:?} was told, and it was not so")) }
}

/// A client asked for everything that is stored and got no other reply, and each request did one thing.
pub(super) fn are_asked_for(history: &History, ledger: &Ledger) -> Result<(), String> {
    keys_have_one_effect(ledger)?;
    keys_are_known(history, ledger)?;
    let bids = ledger.listings.iter().flat_map(|(name, story)| story.bids.iter().map(move |bid| (name, bid)));
    let (mut told, mut created) = (BTreeSet::new(), BTreeSet::new());
    for operation in history.operations() {
        if let (Command::Put(name, _), Some(AuctionReply::Put(Put::Created))) = (&operation.command, operation.told())
            && !created.insert(name)
        {
            return Err(format!("two were told to have created {name}"));
        }
        if let (Command::Bid(name, _), Some(AuctionReply::Placed(Effect::New(placed)))) =
            (&operation.command, operation.told())
            && !told.insert((name, placed.bid.number))
        {
            return Err(format!("{name}: bid {} was told as new twice", placed.bid.number));
        }
    }
    let mut unclear: BTreeMap<_, Vec<(Event, Event)>> = BTreeMap::new();
    for operation in history.operations().iter().filter(|operation| operation.is_unclear()) {
        if let Command::Bid(name, ask) = &operation.command {
            let key = (name, &ask.bidder, ask.price, ask.request.map(|request| (request.key, request.body)));
            unclear.entry(key).or_default().push((operation.asked, operation.end()));
        }
    }
    let mut lonely: BTreeMap<_, Vec<Event>> = BTreeMap::new();
    for (name, StoredBid { event, placed, request }) in
        bids.filter(|(name, bid)| !told.contains(&(*name, bid.placed.bid.number)))
    {
        let key = (name, &placed.bid.bidder, placed.bid.price, request.map(|request| (request.key, request.body)));
        lonely.entry(key).or_default().push(*event);
    }
    for (key, events) in lonely {
        let spans = unclear.remove(&key).unwrap_or_default();
        if !each_was_asked_for(&events, spans) {
            return Err(format!("{}: a bid of {} is stored without a request, or too often", key.0, key.1));
        }
    }
    sales_are_asked_for(history, ledger)?;
    movements_are_asked_for(history, ledger)
}

fn sales_are_asked_for(history: &History, ledger: &Ledger) -> Result<(), String> {
    for (name, story) in &ledger.listings {
        let of_this = history.operations().iter().filter_map(|operation| match &operation.command {
            Command::Purchase(listing, ask) if listing == name => Some((operation, ask)),
            _ => None,
        });
        let news =
            of_this.clone().filter(|(it, _)| matches!(it.told(), Some(AuctionReply::Bought(Effect::New(_))))).count();
        if 1 < news {
            return Err(format!("{name}: its sale was told as new {news} times"));
        }
        let sold = story.rows.iter().find_map(|row| match &row.standing.phase {
            Phase::Sold(sale) => Some((row, sale)),
            _ => None,
        });
        let Some((row, sale)) = sold.filter(|_| news == 0) else { continue };
        let asked = of_this.clone().any(|(operation, ask)| {
            let same = ask.buyer == sale.buyer && ask.request == row.sale_request;
            same && operation.is_unclear() && operation.asked < row.in_force.0 && row.in_force.0 <= operation.end()
        });
        if !asked {
            return Err(format!("{name}: it is sold to {}, who did not ask for it", sale.buyer));
        }
    }
    Ok(())
}

/// Who, which way and how much, under which key.
type RequestedMove<'a> = (&'a MemberName, Kind, Amount, Option<(u128, u64)>);

fn movements_are_asked_for(history: &History, ledger: &Ledger) -> Result<(), String> {
    let digest = |request: Option<RequestId>| request.map(|request| (request.key, request.body));
    let mut told: Vec<(RequestedMove<'_>, Balance, Span)> = Vec::new();
    let mut unclear: Vec<(RequestedMove<'_>, Span)> = Vec::new();
    for operation in history.operations() {
        let Command::Move(member, ask) = &operation.command else { continue };
        let asked = (member, kind_of(ask.transfer), ask.amount, digest(ask.request));
        let span = (operation.asked, operation.end());
        match operation.told() {
            Some(AuctionReply::Moved(Effect::New(balance))) => told.push((asked, *balance, span)),
            None if operation.is_unclear() => unclear.push((asked, span)),
            _ => {}
        }
    }
    // A client that must have been answered first has the first one that may have been meant.
    told.sort_by_key(|(_, _, span)| span.1);
    for (member, story) in &ledger.members {
        let of_client = story.records.iter().filter(|it| matches!(it.record.kind, Kind::Charge | Kind::Refund));
        let mut stored: Vec<(RequestedMove<'_>, &StoredRecord)> =
            of_client.map(|it| ((member, it.record.kind, it.record.amount, digest(it.request)), it)).collect();
        for (asked, balance, span) in told.iter().filter(|(asked, ..)| asked.0 == member) {
            let fits = |(by, it): &(RequestedMove<'_>, &StoredRecord)| {
                by == asked && it.record.balance == *balance && span.0 < it.event && it.event < span.1
            };
            let found = stored.iter().position(fits);
            let found = found.ok_or_else(|| format!("{member}: one movement was told as new to two"))?;
            stored.remove(found);
        }
        while let Some(&(asked, _)) = stored.first() {
            let (same, other): (Vec<_>, Vec<_>) = stored.into_iter().partition(|(by, _)| *by == asked);
            let events: Vec<Event> = same.iter().map(|(_, it)| it.event).collect();
            let spans = unclear.iter().filter(|(by, _)| *by == asked).map(|(_, span)| *span).collect();
            if !each_was_asked_for(&events, spans) {
                return Err(format!("{member}: points moved without a request, or too often"));
            }
            stored = other;
        }
    }
    Ok(())
}

/// From the question to the end.
type Span = (Event, Event);

/// Whether each event, in their order, falls into a span of its own.
fn each_was_asked_for(events: &[Event], mut spans: Vec<Span>) -> bool {
    events.iter().all(|event| {
        let open = spans.iter().enumerate().filter(|(_, (asked, end))| asked < event && event <= end);
        let first_to_end = open.min_by_key(|(_, (_, end))| *end).map(|(at, _)| at);
        first_to_end.map(|at| spans.swap_remove(at)).is_some()
    })
}

fn is_remembered(at: Timestamp, now: Timestamp) -> bool {
    now <= at.plus_ms(POINTS_KEY_MS)
}

fn keys_have_one_effect(ledger: &Ledger) -> Result<(), String> {
    for (name, story) in &ledger.listings {
        let mut keys = BTreeSet::new();
        if !story.bids.iter().filter_map(|bid| bid.request).all(|request| keys.insert(request.key)) {
            return Err(format!("{name}: one key has two bids"));
        }
    }
    let mut keys: BTreeMap<u128, Timestamp> = BTreeMap::new();
    let mut records: Vec<&StoredRecord> = ledger.members.values().flat_map(|story| &story.records).collect();
    records.sort_by_key(|stored| stored.event);
    for stored in records {
        let (Some(request), at) = (stored.request, stored.record.at) else { continue };
        if keys.insert(request.key, at).is_some_and(|first| is_remembered(first, at)) {
            return Err(format!("{}: one key has moved points twice", stored.record.member));
        }
    }
    Ok(())
}

/// A client that repeats a request is told what came of it; a key that was used for something else is refused.
fn keys_are_known(history: &History, ledger: &Ledger) -> Result<(), String> {
    for operation in history.operations() {
        let Some(told) = operation.told() else { continue };
        let (request, first) = match &operation.command {
            Command::Bid(name, ask) => (ask.request, first_bid(ledger, name, ask.request, operation.asked)),
            Command::Purchase(name, ask) => (ask.request, first_sale(ledger, name, ask.request, operation.asked)),
            Command::Move(_, ask) => (ask.request, first_movement(ledger, operation, ask.request)),
            _ => continue,
        };
        let (Some(request), Some(first)) = (request, first) else { continue };
        let again = matches!(
            told,
            AuctionReply::Placed(Effect::Again(_))
                | AuctionReply::Bought(Effect::Again(_))
                | AuctionReply::Moved(Effect::Again(_))
        );
        let right =
            if request.body == first.body { again } else { *told == AuctionReply::Refused(Rejection::KeyReused) };
        if !right {
            return Err(format!("{:?}: its key was used before, and it was told {told:?}", operation.command));
        }
    }
    Ok(())
}

/// The request that first used a key for a bid, if it was in force before an event.
pub(super) fn first_bid(
    ledger: &Ledger,
    name: &ListingName,
    request: Option<RequestId>,
    before: Event,
) -> Option<RequestId> {
    let bids = &ledger.listings.get(name)?.bids;
    let used = bids.iter().filter(|bid| bid.event < before).filter_map(|bid| bid.request);
    used.into_iter().find(|first| Some(first.key) == request.map(|request| request.key))
}

/// The same of a purchase.
pub(super) fn first_sale(
    ledger: &Ledger,
    name: &ListingName,
    request: Option<RequestId>,
    before: Event,
) -> Option<RequestId> {
    let row = ledger.listings.get(name)?.row_before(before)?;
    row.sale_request.filter(|first| Some(first.key) == request.map(|request| request.key))
}

/// The same of a movement, if it was not forgotten while an operation was under way.
fn first_movement(ledger: &Ledger, operation: &Operation, request: Option<RequestId>) -> Option<RequestId> {
    let key = request?.key;
    let records = ledger.members.values().flat_map(|story| &story.records);
    let known = records.filter(|it| it.event < operation.asked && is_remembered(it.record.at, operation.ended_at));
    known.filter_map(|it| it.request).find(|first| first.key == key)
}

/// Whether a key may be refused to a movement: it was used for another one by the end of the question, and not forgotten
/// before it. Keys are kept for as long as both clocks say, and the wall may be ahead of steady time.
pub(super) fn is_reused_movement(ledger: &Ledger, operation: &Operation, request: RequestId) -> bool {
    let records = ledger.members.values().flat_map(|story| &story.records);
    let may_be_kept = |at: Timestamp| operation.asked_at <= at.plus_ms(POINTS_KEY_MS + WALL_AHEAD_MS_MAX);
    let mut known = records.filter(|it| it.event < operation.end() && may_be_kept(it.record.at));
    known.any(|it| it.request.is_some_and(|first| first.key == request.key && first.body != request.body))
}
