//! Who may touch this record now? Locks that hand over in the order of arrival, with a fence on every grant.
//!
//! Release is the grant: the step that gives a lock up hands it to the oldest living waiter, and tells exactly that one.
//! No process comes back to compete. The idea is Hazelcast's FencedLock, carried to stores that have no timers: every step
//! that meets a hold whose time is over advances the lock, and a process that waits always knows when to take such a step.
//!
//! Names hash into [`BUCKETS`] buckets; the state of one is behind [`LockTable`], one step is one transaction on it. A store
//! runs these rules as they are, or restates them and is compared with them.
//!
//! # Invariants
//! - Within a bucket every number drawn, for a fence or a place in line, is above all drawn before: max(clock in µs, last
//!   + 1). So fences grow strictly, across ends, restarts and a clock that is set back.
//! - At most one hold per lock. A lock that no process has has no line: no process waits for a free lock.
//! - Grants follow the line; only those who count as dead are passed over. A process counts as dead when it has not been
//!   heard of for [`CLAIM_WINDOW_MS`]; its waiters leave the line at their turn, and a thousand of them cost one step.
//! - A process that is given a lock while waiting has it for a claim window, or its lease if that is shorter, until it is heard
//!   of. So a grant to the dead costs one window.
//! - A hold is renewed and given up by the request that it was given to, and by nothing else.
//! - No request has a second effect; one that was given up before it arrived has none at all.
//! - A clock that is set back lengthens a hold by no more than its own lease, from the first step after that.

mod answers;
mod client;
mod cohort;
pub mod quorum;
pub mod spin;
mod table;
#[cfg(test)]
mod tests;

pub use answers::{
    Acquired, ClientId, Copies, Fence, Grant, Head, Hold, LockView, Push, Released, Request, Taken, Wait, Waiter,
    WaiterView,
};
pub use client::{
    Answer, Ask, Call, Client, Failed, LockAnswer, LockReply, RENEWALS_MAX, Renewal, Settings, Step, Watch,
};
pub use cohort::Party;
pub use table::{LockTable, MemoryLockTable, Session};

use crate::id::LockName;
use crate::limits::CLAIM_WINDOW_MS;

/// Into so many parts the names of locks hash. Each has one counter, and one heartbeat per process that waits in it.
pub const BUCKETS: u16 = 256;

/// Numbers stay below this, 2^53: exact in JSON, Lua and JavaScript.
const NUMBER_END: u64 = 1 << 53;

const WINDOW_US: u64 = CLAIM_WINDOW_MS as u64 * 1_000;

/// A sign of life so shortly after another one changes nothing.
const FRESH_US: u64 = WINDOW_US / 4;

/// How long a request stays void that was given up before it arrived: longer than anything is under way.
const VOID_US: u64 = 60_000_000;

/// The bucket of a name: FNV-1a, 64 bits, folded to 8. All stores and all processes must agree on it.
///
/// Source: Fowler, Noll, Vo, draft-eastlake-fnv.
pub fn bucket_of(name: &LockName) -> u8 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in name.as_str().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash.to_le_bytes().into_iter().fold(0, |folded, byte| folded ^ byte)
}

/// Asks for a lock. The hold counts from now on if the lock is free; else the request gets in line, or not, as `wait`
/// says. Asking again with the same request answers where it stands.
///
/// Order: given up before → overdue hold ended → held by this request → free → in line → no wait.
pub fn acquire<S: LockTable>(
    table: &mut S,
    name: &LockName,
    waiter: Waiter,
    wait: Wait,
    now_us: u64,
) -> (Acquired, Option<Push>) {
    let request = waiter.request;
    if table.is_void(request, now_us) {
        return (Acquired::Void, None);
    }
    let LockStanding { hold, push } = advance(table, name, now_us);
    let Some(hold) = hold else {
        assert!(table.first(name).is_none(), "{name}: free, and a waiter is in line");
        let hold = give(table, waiter, Taken::Yes, now_us);
        let grant = hold.grant();
        table.put_hold(name, hold);
        return (Acquired::Granted(grant), push);
    };
    if hold.waiter.request == request {
        return (Acquired::Granted(hold.grant()), push);
    }
    let number = match (table.number_of(name, request), wait) {
        (Some(number), _) => number,
        (None, Wait::No) => {
            let waiters = table.waiters(name);
            let (holder, expires_us) = (hold.waiter.owner, hold.expires_us);
            return (Acquired::Contended { holder, waiters, expires_us }, push);
        }
        (None, Wait::Yes) => push_as(table, name, None, waiter, now_us),
        (None, Wait::Again(number)) => push_as(table, name, Some(number), waiter, now_us),
    };
    let life = touch(table, request.client, now_us);
    let ahead = table.ahead(name, number);
    let seen = seen(table, name, &hold, request.client, now_us);
    (Acquired::Queued { number, ahead, life, seen }, push)
}

/// Gives up a request, whether it holds the lock or waits for it. If it held, the oldest living waiter has the lock when
/// this returns. `copies`: if another copy of the acquire may arrive later, it will be void.
pub fn release<S: LockTable>(
    table: &mut S,
    name: &LockName,
    request: Request,
    copies: Copies,
    now_us: u64,
) -> (Released, Option<Push>) {
    let LockStanding { hold, push } = advance(table, name, now_us);
    let holds = hold.is_some_and(|hold| hold.waiter.request == request || anybody_releases());
    let (released, push) = if holds {
        // If this very request was granted just now, no process needs to hear of it.
        (Released::Released, grant_next(table, name, Before::Held, now_us).push)
    } else if let Some(number) = table.number_of(name, request) {
        let ahead = table.ahead(name, number);
        table.remove(name, number);
        (Released::Withdrawn { ahead }, push)
    } else {
        (Released::NotHeld, push)
    };
    if copies == Copies::Several || released == Released::NotHeld {
        table.put_void(request, now_us + VOID_US, now_us);
    }
    (released, push)
}

/// Renews a hold: it lasts `lease_ms` from now, and no shorter than before. `None` if this request has it no more.
/// Confirms a grant.
pub fn renew<S: LockTable>(
    table: &mut S,
    name: &LockName,
    request: Request,
    lease_ms: u32,
    now_us: u64,
) -> (Option<u64>, Option<Push>) {
    let LockStanding { hold, push } = advance(table, name, now_us);
    let Some(mut hold) = hold.filter(|hold| hold.waiter.request == request || gone_are_renewed()) else {
        return (None, push);
    };
    let lasts_until_us = now_us + u64::from(lease_ms) * 1_000;
    // Never shorter: a copy of an earlier renewal may arrive after a later one whose answer the holder relies on.
    if hold.expires_us <= lasts_until_us {
        hold.expires_us = lasts_until_us;
        hold.waiter.lease_ms = lease_ms;
    }
    hold.taken = Taken::Yes;
    let expires_us = hold.expires_us;
    table.put_hold(name, hold);
    (Some(expires_us), push)
}

/// A process says that it lives, once per bucket in which it waits. Returns its life: if that is another one than it was
/// told before, the store may have forgotten its waiters, and it asks again for each of them.
pub fn heartbeat<S: LockTable>(table: &mut S, client: ClientId, now_us: u64) -> u64 {
    touch(table, client, now_us)
}

/// What a process that waits for a lock learns of it: a grant to one of its requests that it may have missed, and when to
/// look again. Goes with [`heartbeat`], in the same transaction and after it.
pub fn advance_lock<S: LockTable>(
    table: &mut S,
    name: &LockName,
    client: ClientId,
    now_us: u64,
) -> (Option<Grant>, Option<WaiterView>, Option<Push>) {
    let LockStanding { hold, push } = advance(table, name, now_us);
    let Some(hold) = hold else { return (None, None, push) };
    let mine = (hold.waiter.request.client == client).then(|| hold.grant());
    (mine, Some(seen(table, name, &hold, client, now_us)), push)
}

/// Shows a lock; changes nothing.
pub fn view<S: LockTable>(table: &S, name: &LockName, now_us: u64) -> LockView {
    let held = table.hold(name).filter(|hold| !is_over(hold, now_us));
    let held = held.map(|hold| (hold.waiter.owner, hold.fence, hold.expires_us));
    LockView { held, waiters: table.waiters(name) }
}

/// Who has a lock after a step, and whom to tell if that is new.
struct LockStanding {
    hold: Option<Hold>,
    push: Option<Push>,
}

/// Whether anybody had a lock before it is given to the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Held,
    Free,
}

/// Ends a hold whose time is over, and gives the lock to the next one.
fn advance<S: LockTable>(table: &mut S, name: &LockName, now_us: u64) -> LockStanding {
    let Some(mut hold) = table.hold(name) else { return grant_next(table, name, Before::Free, now_us) };
    if is_over(&hold, now_us) {
        if hold.taken == Taken::Open {
            interrupt(table, hold.waiter.request.client, now_us);
        }
        return grant_next(table, name, Before::Held, now_us);
    }
    let longest_us = now_us + u64::from(hold.waiter.lease_ms) * 1_000;
    if longest_us < hold.expires_us {
        // Only a clock that was set back leaves more than the lease.
        hold.expires_us = longest_us;
        table.put_hold(name, hold.clone());
    }
    LockStanding { hold: Some(hold), push: None }
}

const fn is_over(hold: &Hold, now_us: u64) -> bool {
    hold.expires_us <= now_us
}

/// Takes the lock from the holder, and gives it to the oldest living waiter, if there is one.
fn grant_next<S: LockTable>(table: &mut S, name: &LockName, before: Before, now_us: u64) -> LockStanding {
    while let Some((number, waiter)) = table.first(name) {
        table.remove(name, number);
        if is_dead(table, waiter.request.client, now_us) && !dead_are_served() {
            interrupt(table, waiter.request.client, now_us);
            continue;
        }
        let hold = give(table, waiter, Taken::Open, now_us);
        let push = Push { name: name.clone(), grant: hold.grant() };
        table.put_hold(name, hold.clone());
        return LockStanding { hold: Some(hold), push: Some(push) };
    }
    if before == Before::Held {
        table.remove_hold(name);
    }
    LockStanding { hold: None, push: None }
}

/// A new hold, with the next fence.
fn give<S: LockTable>(table: &mut S, waiter: Waiter, taken: Taken, now_us: u64) -> Hold {
    let before = table.last();
    let number = if fence_stands() { before } else { draw(table, now_us) };
    assert!(before < number || fence_stands(), "the fence {number} is not above {before}");
    let lease_us = u64::from(waiter.lease_ms) * 1_000;
    let lasts_us = if taken == Taken::Open { lease_us.min(WINDOW_US) } else { lease_us };
    // A cohort's passes have fences of their own.
    table.set_last(number + u64::from(waiter.passes.max(1)) - 1);
    Hold { waiter, fence: Fence::drawn(number), expires_us: now_us + lasts_us, taken }
}

/// The next number of the bucket.
fn draw<S: LockTable>(table: &mut S, now_us: u64) -> u64 {
    let number = now_us.max(table.last() + 1);
    assert!(number < NUMBER_END, "numbers are used up");
    table.set_last(number);
    number
}

fn push_as<S: LockTable>(table: &mut S, name: &LockName, place: Option<u64>, waiter: Waiter, now_us: u64) -> u64 {
    let number = match place {
        // Drawn before the store forgot it, by a clock that was no later than now. Another process may have the same
        // place if the store forgot everything and its clock was set back.
        Some(number) if number <= table.last().max(now_us) && !table.is_taken(name, number) => {
            // No process may draw it a second time.
            table.set_last(table.last().max(number));
            number
        }
        _ => draw(table, now_us),
    };
    table.push(name, number, waiter);
    number
}

/// Notes that a process lives. Its life goes on if it did not count as dead. Nothing is written if it was heard of just
/// now: a heartbeat comes long before a window is over, and a busy process asks often.
fn touch<S: LockTable>(table: &mut S, client: ClientId, now_us: u64) -> u64 {
    let number = match table.life(client) {
        Some(life) if life.seen_us.abs_diff(now_us) < FRESH_US => return life.number,
        Some(life) if life.seen_us.abs_diff(now_us) <= WINDOW_US => life.number,
        _ => draw(table, now_us),
    };
    table.put_life(client, Session { number, seen_us: now_us });
    number
}

/// A process has lost a place in line, and may not know it: its life is another one from now on, so that it asks again
/// with its next sign of life, even if a clock that is set back brings it to life before.
fn interrupt<S: LockTable>(table: &mut S, client: ClientId, now_us: u64) {
    if let Some(life) = table.life(client) {
        let number = draw(table, now_us);
        table.put_life(client, Session { number, ..life });
    }
}

/// Whether a process has missed a whole window. One that was heard of in the future, by a clock that was set back since,
/// counts as dead too: it comes back with its next heartbeat, at its old place.
fn is_dead<S: LockTable>(table: &S, client: ClientId, now_us: u64) -> bool {
    table.life(client).is_none_or(|life| WINDOW_US < life.seen_us.abs_diff(now_us))
}

fn seen<S: LockTable>(table: &S, name: &LockName, hold: &Hold, client: ClientId, now_us: u64) -> WaiterView {
    let head = match table.first(name) {
        // Who the first living one is would take a search: every process that asks looks after a line with a dead head.
        Some((_, first)) if first.request.client != client && !is_dead(table, first.request.client, now_us) => {
            Head::Others
        }
        _ => Head::Mine,
    };
    WaiterView { expires_us: hold.expires_us, lease_ms: hold.waiter.lease_ms, head }
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

/// Takes one step of a client on the table of its bucket: the one function that a store needs. Returns what must be
/// pushed, and to whom.
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
                let (grant, seen, push) = advance_lock(table, name, *client, now_us);
                pushes.extend(push);
                (grant, seen)
            });
            let looked = looked.collect();
            // One of these looks may have ended a grant that the process never heard of.
            let life = table.life(*client).map_or(life, |life| life.number);
            LockAnswer::Beaten { life, looked }
        }
    };
    (Answer { now_us, said }, pushes)
}
