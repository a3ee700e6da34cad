//! Requests and answers of locks.

use crate::id::{LockName, OwnerName};
use std::fmt;

/// A fencing token: a guarded store refuses a token below the highest that it has seen.
///
/// One integer below 2^53, so that JSON, Lua and JavaScript carry it exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fence(u64);

impl Fence {
    /// A fence from its number; `None` for 0 and from 2^53 on.
    pub const fn new(number: u64) -> Option<Self> {
        if number == 0 || super::NUMBER_END <= number { None } else { Some(Self(number)) }
    }

    /// A number that was drawn, and so is in range.
    pub(super) const fn drawn(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The fence of the pass after `passes` more within the same cohort.
    pub const fn after(self, passes: u32) -> Self {
        Self(self.0 + passes as u64)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One process, as long as it runs: 64 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// One wish for a lock. Everything that is repeated about it has no second effect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Request {
    /// Whose.
    pub client: ClientId,
    /// Which of that process; never used twice.
    pub number: u64,
}

/// Who waits, and what for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Waiter {
    /// Which wish.
    pub request: Request,
    /// As others are told.
    pub owner: OwnerName,
    /// How long the lock is wanted without a sign of life, within [`crate::limits::LEASE_MS_MIN`] and
    /// [`crate::limits::LEASE_MS_MAX`].
    pub lease_ms: u32,
    /// How many holders in a row the process serves with one grant, each with a fence of its own; at least 1.
    pub passes: u32,
}

/// Whether to wait for a lock that is held.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wait {
    /// Answer at once.
    No,
    /// Get in line, at the end.
    Yes,
    /// Get in line again after the store forgot it, at the place that this number was.
    Again(u64),
}

/// Whether another copy of the same request may still be on its way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Copies {
    /// It was sent once, and answered.
    One,
    /// Perhaps: it was sent again, or was not answered.
    Several,
}

/// A lock in a process's hands.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Hold {
    /// Who has it.
    pub waiter: Waiter,
    /// The fence of its first pass.
    pub fence: Fence,
    /// When it ends by itself, in µs of the store's clock.
    pub expires_us: u64,
    /// Whether the holder knows it; until then the hold lasts no longer than a claim window.
    pub taken: Taken,
}

/// Whether a process that was given a lock while waiting has been heard of since.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Taken {
    /// Not yet.
    Open,
    /// Yes, or it was given in the answer to the request itself.
    Yes,
}

/// What the holder of a lock is told, in an answer or by a push.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Grant {
    /// Which wish it fulfils.
    pub request: Request,
    /// The fence of the first pass.
    pub fence: Fence,
    /// When it ends unless it is renewed, in µs of the store's clock.
    pub expires_us: u64,
    /// Whether it must be confirmed before it ends.
    pub taken: Taken,
}

impl Hold {
    /// What its holder is told.
    pub const fn grant(&self) -> Grant {
        Grant { request: self.waiter.request, fence: self.fence, expires_us: self.expires_us, taken: self.taken }
    }
}

/// A grant that a process has to be told who is not asking at this moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Push {
    /// Which lock.
    pub name: LockName,
    /// To `grant.request.client`.
    pub grant: Grant,
}

/// What a process that waits knows of the lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaiterView {
    /// When the present hold ends by itself, in µs of the store's clock.
    pub expires_us: u64,
    /// The lease of the present hold.
    pub lease_ms: u32,
    /// Whether the first in line who lives is of this process: it looks again when the hold ends.
    pub head: Head,
}

/// Who looks after the lock when its hold ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Head {
    /// This process.
    Mine,
    /// Another one.
    Others,
}

/// The answer to an [`super::acquire`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Acquired {
    /// The lock is yours.
    Granted(Grant),
    /// In line.
    Queued {
        /// The place in the order of arrival; see [`Wait::Again`].
        number: u64,
        /// How many are before it.
        ahead: u32,
        /// Changes when the store forgot this process, and so perhaps its waiters.
        life: u64,
        /// What it waits for.
        seen: WaiterView,
    },
    /// Held by another process, and waiting was not wanted.
    Contended {
        /// By whom.
        holder: OwnerName,
        /// How many wait.
        waiters: u32,
        /// When the hold ends unless it is renewed, in µs of the store's clock.
        expires_us: u64,
    },
    /// This request was given up before it arrived.
    Void,
}

/// The answer to a [`super::release`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Released {
    /// It was held, and is not any more.
    Released,
    /// It waited, and does not any more.
    Withdrawn {
        /// How many were before it.
        ahead: u32,
    },
    /// It neither held nor waited: released before, or its hold had ended.
    NotHeld,
}

/// A lock as everybody may see it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LockView {
    /// Who has it: owner, fence, and when the hold ends, in µs of the store's clock.
    pub held: Option<(OwnerName, Fence, u64)>,
    /// How many are in line, the dead included until their turn.
    pub waiters: u32,
}
