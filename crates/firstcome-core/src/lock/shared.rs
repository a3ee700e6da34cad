//! Requests that share a lock: the readers of a read/write lock, the permits of a semaphore.
//!
//! A shared hold is a phase. It begins when the lock is granted to the first shared request, and ends when the last one
//! that shares it ends. Phases take turns, as in the phase-fair locks of Brandenburg and Anderson ("Spin-Based Reader-Writer
//! Synchronization for Multiprocessor Real-Time Systems", 2010): after an exclusive hold, all waiting shared requests go
//! first; after a shared phase, the oldest exclusive one.
//!
//! # Invariants
//! - All requests of a phase have the same fence, which is above that of every exclusive hold before, and below that of every
//!   one after. So a guarded store that refuses a lower fence refuses requests of earlier phases, and none of this one.
//! - A request joins only if no more than its `permits` then share the lock.
//! - While an exclusive request of a living process waits, no request joins a phase that has begun. So an exclusive request
//!   waits for one phase per exclusive request before it, and a shared request for one exclusive hold, unless permits are
//!   too few for all who wait.
//! - Of the requests that share a lock, the first one granted is the [`Hold`] itself, and the others follow in order.

use super::{
    ClientId, Ended, Grant, Hold, LockStanding, LockTable, Mode, Place, Push, Request, Sharer, Taken, Waiter,
    dead_are_served, grant_next, interrupt, is_dead, is_over, lasts_us, longest_us,
};
use crate::id::{LockName, OwnerName};
use std::fmt::Write;

/// Whether a phase begins with this step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Begins,
    GoesOn,
}

impl Hold {
    /// The requests that have the lock, with their grants.
    pub(super) fn grants(&self) -> impl Iterator<Item = (&Waiter, Grant)> {
        let of = move |waiter: &Waiter, expires_us, taken| Grant {
            request: waiter.request,
            fence: self.fence,
            expires_us,
            taken,
        };
        let others = self.others.iter();
        let others = others.map(move |other| (&other.waiter, of(&other.waiter, other.expires_us, other.taken)));
        std::iter::once((&self.waiter, self.grant())).chain(others)
    }

    /// Returns whether a request has the lock.
    pub(super) fn is_of(&self, request: Request) -> bool {
        self.waiter.request == request || self.others.iter().any(|other| other.waiter.request == request)
    }

    /// Returns the grant of a request, if it has the lock.
    pub(super) fn grant_to(&self, request: Request) -> Option<Grant> {
        if self.waiter.request == request {
            return Some(self.grant());
        }
        let other = self.others.iter().find(|other| other.waiter.request == request)?;
        Some(Grant { request, fence: self.fence, expires_us: other.expires_us, taken: other.taken })
    }

    /// Returns the grants of a process that it may have missed: those that it has not confirmed, else its first one.
    pub(super) fn grants_of(&self, client: ClientId) -> Vec<Grant> {
        let mine = || self.grants().map(|(_, grant)| grant).filter(|grant| grant.request.client == client);
        let open: Vec<Grant> = mine().filter(|grant| grant.taken == Taken::Open).collect();
        if open.is_empty() { mine().take(1).collect() } else { open }
    }

    /// When the lock may have room for a request, unless holds are renewed: when the first one that shares it ends for a
    /// shared request, and when the last one ends for an exclusive request.
    pub(super) fn free_at_us(&self, mode: Mode) -> u64 {
        let ends = self.others.iter().map(|other| other.expires_us);
        if mode.is_shared() { ends.fold(self.expires_us, u64::min) } else { ends.fold(self.expires_us, u64::max) }
    }

    fn into_sharers(self) -> Vec<Sharer> {
        let first = Sharer { waiter: self.waiter, expires_us: self.expires_us, taken: self.taken };
        std::iter::once(first).chain(self.others).collect()
    }

    /// How many requests share the lock.
    fn len(&self) -> usize {
        1 + self.others.len()
    }

    fn has_room_for(&self, mode: Mode) -> bool {
        matches!(mode, Mode::Shared { permits } if self.len() < permits as usize || too_many_share())
    }
}

/// Returns the waiter that gets the lock when it has room for it.
pub(super) fn next<S: LockTable>(table: &S, name: &LockName) -> Option<(Place, Waiter)> {
    table.first_exclusive(name).or_else(|| table.first(name))
}

/// Returns whether a new request may share the lock at once.
pub(super) fn may_join<S: LockTable>(table: &mut S, name: &LockName, hold: &Hold, mode: Mode, now_us: u64) -> bool {
    hold.waiter.mode.is_shared()
        && hold.has_room_for(mode)
        && !table.first(name).is_some_and(|(place, _)| place.is_shared())
        && !exclusive_waits(table, name, now_us)
}

/// Adds a request to those that share the lock.
pub(super) fn join<S: LockTable>(table: &mut S, name: &LockName, mut hold: Hold, waiter: Waiter, now_us: u64) -> Grant {
    assert!(hold.waiter.mode.is_shared() && waiter.mode.is_shared(), "{name}: an exclusive hold is not shared");
    let (request, taken) = (waiter.request, Taken::Yes);
    let expires_us = now_us + lasts_us(&waiter, taken);
    hold.others.push(Sharer { waiter, expires_us, taken });
    let fence = hold.fence;
    table.put_hold(name, hold);
    Grant { request, fence, expires_us, taken }
}

/// Ends the hold of one of several requests that share the lock.
pub(super) fn leave<S: LockTable>(
    table: &mut S,
    name: &LockName,
    hold: Hold,
    request: Request,
    now_us: u64,
) -> Vec<Push> {
    let fence = hold.fence;
    let mut sharers = hold.into_sharers();
    sharers.retain(|sharer| sharer.waiter.request != request);
    stand(table, name, (fence, sharers), now_us).pushes
}

/// Ends the expired holds of those that share the lock, and admits waiters.
pub(super) fn advance<S: LockTable>(table: &mut S, name: &LockName, mut hold: Hold, now_us: u64) -> LockStanding {
    if hold.grants().any(|(_, grant)| is_over(grant.expires_us, now_us)) {
        let fence = hold.fence;
        let mut sharers = hold.into_sharers();
        for ended in sharers.extract_if(.., |sharer| is_over(sharer.expires_us, now_us)) {
            if ended.taken == Taken::Open {
                interrupt(table, ended.waiter.request.client, now_us);
            }
        }
        return stand(table, name, (fence, sharers), now_us);
    }
    let mut is_changed = shorten(&hold.waiter, &mut hold.expires_us, now_us);
    for other in &mut hold.others {
        is_changed |= shorten(&other.waiter, &mut other.expires_us, now_us);
    }
    let mut pushes = Vec::new();
    admit(table, name, &mut hold, Phase::GoesOn, &mut pushes, now_us);
    if is_changed || !pushes.is_empty() {
        table.put_hold(name, hold.clone());
    }
    LockStanding { hold: Some(hold), pushes }
}

/// Stores who still shares the lock after others ended, and grants what has become free.
fn stand<S: LockTable>(
    table: &mut S,
    name: &LockName,
    (fence, sharers): (super::Fence, Vec<Sharer>),
    now_us: u64,
) -> LockStanding {
    let mut sharers = sharers.into_iter();
    let Some(Sharer { waiter, expires_us, taken }) = sharers.next() else {
        return grant_next(table, name, Ended::Shared, now_us);
    };
    let mut hold = Hold { waiter, fence, expires_us, taken, others: sharers.collect() };
    shorten(&hold.waiter, &mut hold.expires_us, now_us);
    for other in &mut hold.others {
        shorten(&other.waiter, &mut other.expires_us, now_us);
    }
    let mut pushes = Vec::new();
    admit(table, name, &mut hold, Phase::GoesOn, &mut pushes, now_us);
    table.put_hold(name, hold.clone());
    LockStanding { hold: Some(hold), pushes }
}

/// Ends a hold no later than its lease from now. Returns whether that changed it.
fn shorten(waiter: &Waiter, expires_us: &mut u64, now_us: u64) -> bool {
    let longest_us = longest_us(waiter, now_us);
    let is_longer = longest_us < *expires_us;
    *expires_us = longest_us.min(*expires_us);
    is_longer
}

/// Grants the lock to shared waiters, in order, as long as there is room. The caller stores the hold.
pub(super) fn admit<S: LockTable>(
    table: &mut S,
    name: &LockName,
    hold: &mut Hold,
    phase: Phase,
    pushes: &mut Vec<Push>,
    now_us: u64,
) {
    while let Some((place, waiter)) = table.first(name).filter(|(place, _)| place.is_shared()) {
        if !hold.has_room_for(waiter.mode) || phase == Phase::GoesOn && exclusive_waits(table, name, now_us) {
            return;
        }
        table.remove(name, place);
        let Request { client, .. } = waiter.request;
        if is_dead(table, client, now_us) && !dead_are_served() {
            interrupt(table, client, now_us);
            continue;
        }
        let (request, taken) = (waiter.request, Taken::Open);
        let expires_us = now_us + lasts_us(&waiter, taken);
        pushes.push(Push { name: name.clone(), grant: Grant { request, fence: hold.fence, expires_us, taken } });
        hold.others.push(Sharer { waiter, expires_us, taken });
    }
}

/// Returns whether an exclusive request of a living process waits. Those of dead processes leave the line.
fn exclusive_waits<S: LockTable>(table: &mut S, name: &LockName, now_us: u64) -> bool {
    while let Some((place, waiter)) = table.first_exclusive(name) {
        if !is_dead(table, waiter.request.client, now_us) {
            return true;
        }
        table.remove(name, place);
        interrupt(table, waiter.request.client, now_us);
    }
    false
}

/// Writes sharers as stores keep them: a line each. Empty for none.
pub fn sharers_to_text(sharers: &[Sharer]) -> String {
    let mut text = String::new();
    for Sharer { waiter: Waiter { request, owner, lease_ms, mode }, expires_us, taken } in sharers {
        let (client, number, mode, taken) =
            (request.client.0, request.number, mode.stored(), u8::from(*taken == Taken::Yes));
        let line = if text.is_empty() { "" } else { "\n" };
        let _ = write!(text, "{line}{client:016x} {number} {lease_ms} {mode} {owner} {expires_us} {taken}");
    }
    text
}

/// Reads what [`sharers_to_text`] wrote; `None` if the text is damaged.
pub fn sharers_from_text(text: &str) -> Option<Vec<Sharer>> {
    let read = |line: &str| {
        let mut words = line.split(' ');
        let client = ClientId(u64::from_str_radix(words.next()?, 16).ok()?);
        let request = Request { client, number: words.next()?.parse().ok()? };
        let lease_ms = words.next()?.parse().ok()?;
        let mode = Mode::from_stored(words.next()?.parse().ok()?).filter(|mode| mode.is_shared())?;
        let owner = OwnerName::parse(words.next()?).ok()?;
        let expires_us = words.next()?.parse().ok()?;
        let taken = if words.next()? == "1" { Taken::Yes } else { Taken::Open };
        words.next().is_none().then_some(Sharer {
            waiter: Waiter { request, owner, lease_ms, mode },
            expires_us,
            taken,
        })
    };
    text.lines().map(read).collect()
}

#[cfg(feature = "planted-bugs")]
fn too_many_share() -> bool {
    crate::planted::is(crate::planted::Bug::TooManyShare)
}

#[cfg(not(feature = "planted-bugs"))]
const fn too_many_share() -> bool {
    false
}
