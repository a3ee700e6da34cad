//! Locks that pass to waiters in the order of arrival, with a fence on every grant.
//!
//! Release is the grant: the step that releases a lock hands it to the oldest living waiter, and the store notifies exactly
//! that waiter. No waiter has to compete again. The idea is Hazelcast's FencedLock, carried to stores that have no timers:
//! every step that finds an expired hold advances the lock, and a waiting process always knows when to take such a step.
//!
//! Names hash into [`BUCKETS`] buckets. [`LockTable`] holds the state of one bucket, and one step is one transaction on it. A
//! store runs these rules unchanged, or restates them and is compared with them.
//!
//! # Invariants
//! - Within a bucket every number drawn, for a fence or a place in line, is above all drawn before: max(clock in µs, last
//!   + 1). So fences grow strictly, across ends, restarts and a clock that is set back.
//! - At most one exclusive hold per lock, and no shared hold beside it. A free lock has no waiters.
//! - Shared and exclusive holds take turns, which bounds every wait: see [`shared`].
//! - Among requests of one kind grants follow the line; only waiters of dead processes are passed over. A process counts as dead when it has been
//!   silent for [`CLAIM_WINDOW_MS`]. Its waiters leave the line at their turn, and a thousand of them cost one step.
//! - A waiter that gets a lock has it for a claim window, or its lease if that is shorter, until its process confirms. So a
//!   grant to a dead process costs one window.
//! - Only the request that got a hold can renew and release it.
//! - No request has a second effect; a request that was released before it arrived has no effect.
//! - A clock that is set back lengthens a hold by no more than its own lease, from the first step after that.

mod answers;
mod client;
mod cohort;
pub mod quorum;
mod shared;
pub mod spin;
mod table;
#[cfg(test)]
mod tests;

pub use answers::{
    Acquired, ClientId, Copies, Fence, Grant, Head, Hold, LockView, Mode, Push, Released, Request, Sharer, Taken, Wait,
    Waiter, WaiterView,
};
pub use client::{
    Answer, Ask, Call, Client, Failed, LockAnswer, LockReply, RENEWALS_MAX, Renewal, Settings, Step, Watch,
};
pub use cohort::Party;
pub use shared::{sharers_from_text, sharers_to_text};
pub use table::{LockTable, MemoryLockTable, Place, Session};

use crate::id::LockName;
use crate::limits::CLAIM_WINDOW_MS;

/// The number of buckets. Each has one counter, and one heartbeat per process that waits in it.
pub const BUCKETS: u16 = 256;

/// Numbers stay below this, 2^53: exact in JSON, Lua and JavaScript.
const NUMBER_END: u64 = 1 << 53;

const WINDOW_US: u64 = CLAIM_WINDOW_MS as u64 * 1_000;

/// A heartbeat so soon after the last one changes nothing.
const FRESH_US: u64 = WINDOW_US / 4;

/// How long the store remembers the release of a request that had not arrived: longer than any message is under way.
const VOID_US: u64 = 60_000_000;

/// Returns the bucket of a name: FNV-1a, 64 bits, folded to 8. All stores and all processes must agree on it.
///
/// Source: Fowler, Noll, Vo, draft-eastlake-fnv.
pub fn bucket_of(name: &LockName) -> u8 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in name.as_str().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash.to_le_bytes().into_iter().fold(0, |folded, byte| folded ^ byte)
}

/// Asks for a lock. If the lock is free, the hold begins now, and so it does for a shared request that may join those who
/// share the lock; else `wait` says whether the request joins the line. A repeat of the same request reports its state.
///
/// Order: released before it arrived → expired hold ended → held by this request → free → joins a shared hold → in line →
/// no wait.
pub fn acquire<S: LockTable>(
    table: &mut S,
    name: &LockName,
    waiter: Waiter,
    wait: Wait,
    now_us: u64,
) -> (Acquired, Vec<Push>) {
    let request = waiter.request;
    if table.is_void(request, now_us) {
        return (Acquired::Void, Vec::new());
    }
    let LockStanding { hold, pushes } = advance(table, name, now_us);
    let Some(hold) = hold else {
        assert!(table.first(name).is_none(), "{name}: free, and a waiter is in line");
        let hold = give(table, waiter, Taken::Yes, now_us);
        let grant = hold.grant();
        table.put_hold(name, hold);
        return (Acquired::Granted(grant), pushes);
    };
    if let Some(grant) = hold.grant_to(request) {
        return (Acquired::Granted(grant), pushes);
    }
    let place = match (table.place_of(name, request), wait) {
        (Some(place), _) => place,
        (None, wait) => {
            if shared::may_join(table, name, &hold, waiter.mode, now_us) {
                return (Acquired::Granted(shared::join(table, name, hold, waiter, now_us)), pushes);
            }
            match wait {
                Wait::No => {
                    let (waiters, expires_us) = (table.waiters(name), hold.free_at_us(waiter.mode));
                    return (Acquired::Contended { holder: hold.waiter.owner, waiters, expires_us }, pushes);
                }
                Wait::Yes => push_as(table, name, None, waiter, now_us),
                Wait::Again(number) => push_as(table, name, Some(number), waiter, now_us),
            }
        }
    };
    let life = touch(table, request.client, now_us);
    let ahead = table.ahead(name, place);
    let seen = seen(table, name, &hold, request.client, now_us);
    (Acquired::Queued { number: place.number(), ahead, life, seen }, pushes)
}

/// Gives up a request, whether it holds the lock or waits for it. If it held the lock alone, the oldest living waiter has
/// it when this returns. With [`Copies::Several`] the store refuses copies of the acquire that arrive later.
pub fn release<S: LockTable>(
    table: &mut S,
    name: &LockName,
    request: Request,
    copies: Copies,
    now_us: u64,
) -> (Released, Vec<Push>) {
    let LockStanding { hold, mut pushes } = advance(table, name, now_us);
    let is_shared = hold.as_ref().is_some_and(|hold| hold.waiter.mode.is_shared());
    let hold = hold.filter(|hold| hold.is_of(request) || anybody_releases());
    let released = if let Some(hold) = hold {
        // `advance` may have granted the lock to this very request just now. That push is dropped: its process gave up.
        if !pushes.is_empty() {
            pushes.retain(|push| push.grant.request != request);
        }
        pushes.extend(end_of(table, name, hold, request, now_us));
        Released::Released
    } else if let Some(place) = table.place_of(name, request) {
        let ahead = table.ahead(name, place);
        table.remove(name, place);
        // Others may have waited only because this one was before them.
        if is_shared {
            pushes.extend(advance(table, name, now_us).pushes);
        }
        Released::Withdrawn { ahead }
    } else {
        Released::NotHeld
    };
    if copies == Copies::Several || released == Released::NotHeld {
        table.put_void(request, now_us + VOID_US, now_us);
    }
    (released, pushes)
}

/// Ends the hold of one request, and grants the lock to those who are next.
fn end_of<S: LockTable>(table: &mut S, name: &LockName, hold: Hold, request: Request, now_us: u64) -> Vec<Push> {
    if hold.others.is_empty() {
        return grant_next(table, name, Ended::of(&hold), now_us).pushes;
    }
    shared::leave(table, name, hold, request, now_us)
}

/// Renews a hold: it lasts `lease_ms` from now, and no shorter than before. Confirms a grant. Returns when the hold ends, or
/// `None` if this request does not hold the lock any more.
pub fn renew<S: LockTable>(
    table: &mut S,
    name: &LockName,
    request: Request,
    lease_ms: u32,
    now_us: u64,
) -> (Option<u64>, Vec<Push>) {
    let LockStanding { hold, pushes } = advance(table, name, now_us);
    let Some(mut hold) = hold.filter(|hold| hold.is_of(request) || gone_are_renewed()) else {
        return (None, pushes);
    };
    let (waiter, expires_us, taken) = match hold.others.iter_mut().find(|other| other.waiter.request == request) {
        Some(other) => (&mut other.waiter, &mut other.expires_us, &mut other.taken),
        None => (&mut hold.waiter, &mut hold.expires_us, &mut hold.taken),
    };
    let lasts_until_us = now_us + u64::from(lease_ms) * 1_000;
    // Never shorter: a copy of an earlier renewal may arrive after a later one, on whose answer the holder relies.
    if *expires_us <= lasts_until_us {
        *expires_us = lasts_until_us;
        waiter.lease_ms = lease_ms;
    }
    *taken = Taken::Yes;
    let expires_us = *expires_us;
    table.put_hold(name, hold);
    (Some(expires_us), pushes)
}

/// Records that a process lives. A process calls this once per bucket in which it waits. Returns the life of the process:
/// if it changed, the store may have forgotten the process's waiters, and the process asks again for each of them.
pub fn heartbeat<S: LockTable>(table: &mut S, client: ClientId, now_us: u64) -> u64 {
    touch(table, client, now_us)
}

/// Advances a lock for a process that waits for it. Returns grants to its requests that it may have missed, and when to look
/// again. Stores call it after [`heartbeat`], in the same transaction.
pub fn advance_lock<S: LockTable>(
    table: &mut S,
    name: &LockName,
    client: ClientId,
    now_us: u64,
) -> (Vec<Grant>, Option<WaiterView>, Vec<Push>) {
    let LockStanding { hold, pushes } = advance(table, name, now_us);
    let Some(hold) = hold else { return (Vec::new(), None, pushes) };
    let mine = hold.grants_of(client);
    (mine, Some(seen(table, name, &hold, client, now_us)), pushes)
}

/// Returns a view of a lock; changes nothing.
pub fn view<S: LockTable>(table: &S, name: &LockName, now_us: u64) -> LockView {
    let hold = table.hold(name);
    let living = hold.iter().flat_map(Hold::grants).filter(|(_, grant)| !is_over(grant.expires_us, now_us));
    let mut living = living.map(|(waiter, grant)| (waiter.owner.clone(), grant.fence, grant.expires_us));
    let held = living.next();
    let holders = u32::from(held.is_some()) + living.count() as u32;
    LockView { held, holders, waiters: table.waiters(name) }
}

/// The hold on a lock after a step, and the pushes that new grants need.
struct LockStanding {
    hold: Option<Hold>,
    pushes: Vec<Push>,
}

/// What the table had of the lock before the next grant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// No hold.
    Nothing,
    Exclusive,
    Shared,
}

impl Ended {
    const fn of(hold: &Hold) -> Self {
        if hold.waiter.mode.is_shared() { Self::Shared } else { Self::Exclusive }
    }
}

/// Ends an expired hold, and grants the lock to the next waiter.
fn advance<S: LockTable>(table: &mut S, name: &LockName, now_us: u64) -> LockStanding {
    let Some(mut hold) = table.hold(name) else { return grant_next(table, name, Ended::Nothing, now_us) };
    if hold.waiter.mode.is_shared() {
        return shared::advance(table, name, hold, now_us);
    }
    if is_over(hold.expires_us, now_us) {
        if hold.taken == Taken::Open {
            interrupt(table, hold.waiter.request.client, now_us);
        }
        return grant_next(table, name, Ended::Exclusive, now_us);
    }
    let longest_us = longest_us(&hold.waiter, now_us);
    if longest_us < hold.expires_us {
        hold.expires_us = longest_us;
        table.put_hold(name, hold.clone());
    }
    LockStanding { hold: Some(hold), pushes: Vec::new() }
}

const fn is_over(expires_us: u64, now_us: u64) -> bool {
    expires_us <= now_us
}

/// When a hold ends at the latest. Only a clock that was set back leaves more than the lease.
fn longest_us(waiter: &Waiter, now_us: u64) -> u64 {
    now_us + u64::from(waiter.lease_ms) * 1_000
}

/// Ends the present hold, and grants the lock to the oldest living waiter, if there is one: the oldest exclusive one after
/// a shared hold, and the oldest shared one, with all others that may share the lock, after an exclusive hold.
fn grant_next<S: LockTable>(table: &mut S, name: &LockName, ended: Ended, now_us: u64) -> LockStanding {
    let next = |table: &S| match ended {
        Ended::Shared => table.first_exclusive(name).or_else(|| table.first(name)),
        Ended::Exclusive | Ended::Nothing => table.first(name),
    };
    while let Some((place, waiter)) = next(table) {
        table.remove(name, place);
        if is_dead(table, waiter.request.client, now_us) && !dead_are_served() {
            interrupt(table, waiter.request.client, now_us);
            continue;
        }
        let mut hold = give(table, waiter, Taken::Open, now_us);
        let mut pushes = vec![Push { name: name.clone(), grant: hold.grant() }];
        if place.is_shared() {
            shared::admit(table, name, &mut hold, shared::Phase::Begins, &mut pushes, now_us);
        }
        table.put_hold(name, hold.clone());
        return LockStanding { hold: Some(hold), pushes };
    }
    if ended != Ended::Nothing {
        table.remove_hold(name);
    }
    LockStanding { hold: None, pushes: Vec::new() }
}

/// Makes a new hold with the next fence.
fn give<S: LockTable>(table: &mut S, waiter: Waiter, taken: Taken, now_us: u64) -> Hold {
    let before = table.last();
    let number = if fence_stands() { before } else { draw(table, now_us) };
    assert!(before < number || fence_stands(), "the fence {number} is not above {before}");
    // Reserves one fence for each pass of a cohort.
    table.set_last(number + u64::from(waiter.mode.passes()) - 1);
    let expires_us = now_us + lasts_us(&waiter, taken);
    Hold { waiter, fence: Fence::drawn(number), expires_us, taken, others: Vec::new() }
}

/// How long a new grant lasts.
fn lasts_us(waiter: &Waiter, taken: Taken) -> u64 {
    let lease_us = u64::from(waiter.lease_ms) * 1_000;
    if taken == Taken::Open { lease_us.min(WINDOW_US) } else { lease_us }
}

/// Draws the next number of the bucket.
fn draw<S: LockTable>(table: &mut S, now_us: u64) -> u64 {
    let number = now_us.max(table.last() + 1);
    assert!(number < NUMBER_END, "numbers are used up");
    table.set_last(number);
    number
}

fn push_as<S: LockTable>(table: &mut S, name: &LockName, number: Option<u64>, waiter: Waiter, now_us: u64) -> Place {
    let number = match number {
        // The number was drawn before the store forgot the waiter, by a clock that was no later than now. Another waiter
        // may have the same number if the store forgot everything and its clock was set back.
        Some(number) if number <= table.last().max(now_us) && !table.is_taken(name, Place::of(waiter.mode, number)) => {
            // The counter moves up, so that this number is never drawn a second time.
            table.set_last(table.last().max(number));
            number
        }
        _ => draw(table, now_us),
    };
    let place = Place::of(waiter.mode, number);
    table.push(name, place, waiter);
    place
}

/// Records that a process lives. Its life goes on if it did not count as dead. Writes nothing if the last heartbeat is
/// recent: heartbeats come long before a window is over, and a busy process asks often.
fn touch<S: LockTable>(table: &mut S, client: ClientId, now_us: u64) -> u64 {
    let number = match table.life(client) {
        Some(life) if life.seen_us.abs_diff(now_us) < FRESH_US => return life.number,
        Some(life) if life.seen_us.abs_diff(now_us) <= WINDOW_US => life.number,
        _ => draw(table, now_us),
    };
    table.put_life(client, Session { number, seen_us: now_us });
    number
}

/// Notes that a process lost a place in line, and may not know it. The process gets a new life, so that it asks again after
/// its next heartbeat, even if a clock that is set back makes it count as living before.
fn interrupt<S: LockTable>(table: &mut S, client: ClientId, now_us: u64) {
    if let Some(life) = table.life(client) {
        let number = draw(table, now_us);
        table.put_life(client, Session { number, ..life });
    }
}

/// Returns whether a process was silent for more than a window. A process whose last heartbeat lies in the future, because
/// the clock was set back since, counts as dead too: it returns with its next heartbeat, at its old place.
fn is_dead<S: LockTable>(table: &S, client: ClientId, now_us: u64) -> bool {
    table.life(client).is_none_or(|life| WINDOW_US < life.seen_us.abs_diff(now_us))
}

fn seen<S: LockTable>(table: &S, name: &LockName, hold: &Hold, client: ClientId, now_us: u64) -> WaiterView {
    let next = if hold.waiter.mode.is_shared() { shared::next(table, name) } else { table.first(name) };
    let expires_us = next.as_ref().map_or(hold.expires_us, |(_, next)| hold.free_at_us(next.mode));
    let head = match next {
        // Finding the first living waiter would take a search. So every process that asks watches a line with a dead head.
        Some((_, first)) if first.request.client != client && !is_dead(table, first.request.client, now_us) => {
            Head::Others
        }
        _ => Head::Mine,
    };
    WaiterView { expires_us, lease_ms: hold.waiter.lease_ms, head }
}

#[cfg(feature = "planted-bugs")]
fn planted(bug: crate::planted::Bug) -> bool {
    crate::planted::is(bug)
}

macro_rules! planted {
    ($($name:ident $bug:ident)*) => {
        $(
            #[cfg(feature = "planted-bugs")]
            fn $name() -> bool {
                planted(crate::planted::Bug::$bug)
            }

            #[cfg(not(feature = "planted-bugs"))]
            const fn $name() -> bool {
                false
            }
        )*
    };
}

planted! {
    anybody_releases AnybodyReleases
    dead_are_served DeadServed
    fence_stands FenceStands
    gone_are_renewed RenewedAfterRelease
}

/// Takes one step of a client on the table of its bucket. A store needs no other function. Returns the answer and the
/// pushes to send.
pub fn take<S: LockTable>(table: &mut S, step: &Step, now_us: u64) -> (Answer, Vec<Push>) {
    let mut pushes = Vec::new();
    let said = match step {
        Step::Acquire { name, waiter, wait } => {
            let (acquired, push) = acquire(table, name, waiter.clone(), *wait, now_us);
            pushes.extend(push);
            LockAnswer::Acquired(acquired)
        }
        Step::Release { name, request, copies } => {
            let (released, push) = release(table, name, *request, *copies, now_us);
            pushes.extend(push);
            LockAnswer::Released(released)
        }
        Step::Renew { renewals, .. } => LockAnswer::Renewed(
            renewals
                .iter()
                .map(|Renewal { name, request, lease_ms }| {
                    let (expires_us, push) = renew(table, name, *request, *lease_ms, now_us);
                    pushes.extend(push);
                    expires_us
                })
                .collect(),
        ),
        Step::Beat { client, names, .. } => {
            let life = heartbeat(table, *client, now_us);
            let looked = names.iter().map(|name| {
                let (grants, seen, push) = advance_lock(table, name, *client, now_us);
                pushes.extend(push);
                (grants, seen)
            });
            let looked = looked.collect();
            // One of these steps may have ended a grant that this process never confirmed, which changes its life.
            let life = table.life(*client).map_or(life, |life| life.number);
            LockAnswer::Beaten { life, looked }
        }
    };
    (Answer { now_us, said }, pushes)
}
