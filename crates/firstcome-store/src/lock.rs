//! The port for locks.

use crate::error::StoreError;
use firstcome_core::id::{LockName, OwnerName};
use firstcome_core::lock::{Answer, ClientId, Fence, LockView, Push, Request, Step};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// What a store tells a process without being asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockEvent {
    /// It was this process's turn.
    Push(Push),
    /// Pushes may have been missed until now: look.
    MayHaveMissed,
}

/// Takes what the store tells. Called from any thread; must not block, and must not call the store.
pub type LockInbox = Arc<dyn Fn(LockEvent) + Send + Sync>;

/// A lock as everybody may see it, and when, in µs of the store's clock.
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
    /// The request that has it. A release of this request ends this hold and no later one.
    pub request: Request,
    /// The holder, as it names itself.
    pub owner: OwnerName,
    /// The fence of the hold.
    pub fence: Fence,
    /// How long the hold lasts unless it is renewed.
    pub left: Duration,
    /// How many processes are in line.
    pub waiters: u32,
}

/// The port for locks. Every adapter passes `conformance::lock`:
///
/// - Atomic per bucket: answers are those of [`firstcome_core::lock::take`], applied in some order that agrees with real
///   time. The step that releases a lock grants it.
/// - Clock: `now` is the store's own, read in the same step.
/// - Push: a process that is granted a lock while waiting is told through the inbox that its process attached, if the process
///   can be reached. A push may come late, twice or never: the grant stands in the store, and a heartbeat finds it.
/// - Repeatable: a step that is sent again has no second effect. [`StoreError::Unknown`] means that it may have been
///   taken, any other error that it was not.
/// - Cancel-safe: a caller that goes away leaves the step taken or not taken, never half taken.
pub trait LockStore: Send + Sync + 'static {
    /// Takes one step: one round trip.
    fn take(&self, step: Step) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Shows a lock. One round trip.
    fn view(&self, name: &LockName) -> impl Future<Output = Result<TimedLockView, StoreError>> + Send;

    /// From now on this process is told what concerns it, until [`Self::detach`].
    fn attach(&self, client: ClientId, inbox: LockInbox);

    /// The process is told nothing any more.
    fn detach(&self, client: ClientId);
}

impl<S: LockStore> LockStore for Arc<S> {
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
