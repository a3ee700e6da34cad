//! Requests and answers of locks.

use crate::id::{LockName, OwnerName};
use std::fmt;

/// A fencing token: a guarded store refuses a token below the highest that it has seen.
///
/// One integer below 2^53, so that JSON, Lua and JavaScript carry it exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fence(u64);

impl Fence {
    /// Makes a fence from its number; `None` for 0 and from 2^53 on.
    pub const fn new(number: u64) -> Option<Self> {
        if number == 0 || super::NUMBER_END <= number { None } else { Some(Self(number)) }
    }

    /// Makes a fence from a drawn number, which is always in range.
    pub(super) const fn drawn(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the fence of the holder that comes `passes` passes later in the same cohort.
    pub const fn after(self, passes: u32) -> Self {
        Self(self.0 + passes as u64)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of one process, for as long as it runs: 64 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// The identity of one request for a lock. A repeat with the same identity has no second effect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Request {
    /// The process that asks.
    pub client: ClientId,
    /// The number of the request in its process; never used twice.
    pub number: u64,
}

/// A request for a lock, as the line keeps it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Waiter {
    /// The identity of the request.
    pub request: Request,
    /// The holder's name as other clients see it.
    pub owner: OwnerName,
    /// How long a grant lasts without a renewal, within [`crate::limits::LEASE_MS_MIN`] and
    /// [`crate::limits::LEASE_MS_MAX`].
    pub lease_ms: u32,
    /// Whether the hold excludes every other one.
    pub mode: Mode,
}

/// Whether a hold excludes every other hold of its lock, or shares the lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// No other request holds the lock meanwhile.
    Exclusive {
        /// How many holders in a row the process serves with one grant, each with its own fence; at least 1.
        passes: u32,
    },
    /// Other shared requests may hold the lock meanwhile, and no exclusive one.
    Shared {
        /// How many requests may hold the lock together, this one among them, within 1 and
        /// [`crate::limits::PERMITS_MAX`].
        permits: u32,
    },
}

impl Mode {
    /// A hold of one holder that excludes every other.
    pub const ALONE: Self = Self::Exclusive { passes: 1 };

    /// Returns whether other requests may hold the lock meanwhile.
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    /// How many holders in a row one grant serves.
    pub const fn passes(self) -> u32 {
        match self {
            Self::Exclusive { passes: 0 } | Self::Shared { .. } => 1,
            Self::Exclusive { passes } => passes,
        }
    }

    /// Returns the number with which stores keep it: the passes, or the permits with a minus.
    pub const fn stored(self) -> i64 {
        match self {
            Self::Exclusive { passes } => passes as i64,
            Self::Shared { permits } => -(permits as i64),
        }
    }

    /// Reads the number with which stores keep it; `None` if it is out of range.
    pub fn from_stored(number: i64) -> Option<Self> {
        let magnitude = u32::try_from(number.unsigned_abs()).ok()?;
        Some(if number < 0 { Self::Shared { permits: magnitude } } else { Self::Exclusive { passes: magnitude } })
    }
}

/// Whether to wait for a lock that is held.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wait {
    /// Answers at once.
    No,
    /// Joins the end of the line.
    Yes,
    /// Joins the line again after the store forgot the request, at the place of this number.
    Again(u64),
}

/// Whether another copy of the same request may still be on its way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Copies {
    /// No: the request was sent once, and answered.
    One,
    /// Perhaps: the request was sent again, or got no answer.
    Several,
}

/// The hold on a lock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Hold {
    /// The request that has the lock.
    pub waiter: Waiter,
    /// The fence of its first pass.
    pub fence: Fence,
    /// When it ends by itself, in µs of the store's clock.
    pub expires_us: u64,
    /// Whether the holder confirmed the grant. Until then the hold lasts no longer than a claim window.
    pub taken: Taken,
    /// The other requests that share the lock, in the order of their grants; empty in an exclusive hold. All have the
    /// same fence.
    pub others: Vec<Sharer>,
}

/// One more request that shares a lock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sharer {
    /// The request that shares the lock.
    pub waiter: Waiter,
    /// See [`Hold::expires_us`].
    pub expires_us: u64,
    /// See [`Hold::taken`].
    pub taken: Taken,
}

/// Whether the process of a waiter confirmed the grant of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Taken {
    /// Not yet.
    Open,
    /// Yes, or the grant was the answer to the request itself.
    Yes,
}

/// A grant as its holder receives it, in an answer or by a push.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Grant {
    /// The request that got the lock.
    pub request: Request,
    /// The fence of the first pass.
    pub fence: Fence,
    /// When it ends unless it is renewed, in µs of the store's clock.
    pub expires_us: u64,
    /// Whether the holder must confirm the grant before it ends.
    pub taken: Taken,
}

impl Hold {
    /// Returns the grant as its holder receives it; of those who share a lock, the first.
    pub const fn grant(&self) -> Grant {
        Grant { request: self.waiter.request, fence: self.fence, expires_us: self.expires_us, taken: self.taken }
    }
}

/// A grant for a process that does not wait for an answer at this moment: the store must send it by itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Push {
    /// Which lock.
    pub name: LockName,
    /// The grant; the push goes to `grant.request.client`.
    pub grant: Grant,
}

/// A lock as a waiting process sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaiterView {
    /// When the present hold ends by itself, in µs of the store's clock.
    pub expires_us: u64,
    /// The lease of the present hold.
    pub lease_ms: u32,
    /// Whether the first living waiter belongs to this process, which then looks again when the hold ends.
    pub head: Head,
}

/// Which process advances the lock when its hold ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Head {
    /// This process: its waiter is first in line, or the process of the first waiter is dead.
    Mine,
    /// Another process, whose waiter is first in line.
    Others,
}

/// The answer to an [`super::acquire`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Acquired {
    /// The request holds the lock.
    Granted(Grant),
    /// The request is in line.
    Queued {
        /// The place in the order of arrival; see [`Wait::Again`].
        number: u64,
        /// How many waiters are ahead of it.
        ahead: u32,
        /// The life of this process. A new life means that the store may have forgotten the process and its waiters.
        life: u64,
        /// The lock that it waits for.
        seen: WaiterView,
    },
    /// Another request holds the lock, and this one did not want to wait.
    Contended {
        /// The holder's name.
        holder: OwnerName,
        /// How many requests wait.
        waiters: u32,
        /// When the hold ends unless it is renewed, in µs of the store's clock.
        expires_us: u64,
    },
    /// The store recorded the release of this request before the request arrived.
    Void,
}

/// The answer to a [`super::release`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Released {
    /// The request held the lock, and does not any more.
    Released,
    /// The request waited, and does not any more.
    Withdrawn {
        /// How many waiters were ahead of it.
        ahead: u32,
    },
    /// The request neither held the lock nor waited: it was released before, or its hold had ended.
    NotHeld,
}

/// A lock as every client may see it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LockView {
    /// Who has it: owner, fence, and when the hold ends, in µs of the store's clock. Of several who share it, the first.
    pub held: Option<(OwnerName, Fence, u64)>,
    /// How many requests hold it: above 1 only if they share it.
    pub holders: u32,
    /// How many requests are in line. Those of dead processes count until their turn.
    pub waiters: u32,
}
