//! The port for locks.

use crate::error::StoreError;
use crate::guarantees::Guarantees;
use firstcome_core::id::{LockName, OwnerName};
use firstcome_core::lock::{Answer, ClientId, Fence, LockView, Push, Request, Step};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// An event that a store pushes to a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockEvent {
    /// A request of this process got its lock.
    Push(Push),
    /// Pushes may have been missed: check with a heartbeat.
    MayHaveMissed,
}

/// Receives the events of a store. Called from any thread. Must not block, and must not call the store.
pub type LockInbox = Arc<dyn Fn(LockEvent) + Send + Sync>;

/// A lock as every client may see it, and when, in µs of the store's clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimedLockView {
    /// The lock.
    pub view: LockView,
    /// The instant.
    pub now_us: u64,
}

/// A lock that is held, as an operator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldLockView {
    /// Its name.
    pub name: LockName,
    /// The request that holds the lock. A release of this request ends this hold and no later one.
    pub request: Request,
    /// The holder, as it names itself.
    pub owner: OwnerName,
    /// The fence of the hold.
    pub fence: Fence,
    /// How long the hold lasts unless it is renewed.
    pub left: Duration,
    /// How many requests hold the lock. Above 1 only if they share it; then the others here are of the first one.
    pub holders: u32,
    /// How many requests are in line.
    pub waiters: u32,
}

/// The port for locks. Every adapter passes `conformance::lock`:
///
/// - Atomic per bucket: replies are those of [`firstcome_core::lock::take`], applied in some order that agrees with
///   real time. The step that releases a lock grants it to the next waiter.
/// - Clock: `now` is the store's own, read in the same step.
/// - Push: the store tells the process of a waiter about its grant through the attached inbox, if it can reach the
///   process. A push may come late, twice or never: the grant stands in the store, and a heartbeat finds it.
/// - Repeatable: sending a step again has no second effect. [`StoreError::Unknown`] means that the step may have been
///   taken, any other error that it was not.
/// - Cancel-safe: a caller that drops its future leaves the step taken or not taken, never half taken.
pub trait LockStore: Send + Sync + 'static {
    /// What this store promises. No request.
    fn guarantees(&self) -> Guarantees;

    /// Takes one step: one round trip.
    fn take(&self, step: Step) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Shows a lock. One round trip.
    fn view(&self, name: &LockName) -> impl Future<Output = Result<TimedLockView, StoreError>> + Send;

    /// Sends the events of this process to the inbox, until [`Self::detach`].
    fn attach(&self, client: ClientId, inbox: LockInbox);

    /// Stops sending events to this process.
    fn detach(&self, client: ClientId);
}

impl<S: LockStore> LockStore for Arc<S> {
    fn guarantees(&self) -> Guarantees {
        (**self).guarantees()
    }

    fn take(&self, step: Step) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        (**self).take(step)
    }

    fn view(&self, name: &LockName) -> impl Future<Output = Result<TimedLockView, StoreError>> + Send {
        (**self).view(name)
    }

    fn attach(&self, client: ClientId, inbox: LockInbox) {
        (**self).attach(client, inbox);
    }

    fn detach(&self, client: ClientId) {
        (**self).detach(client);
    }
}
