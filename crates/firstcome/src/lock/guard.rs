//! What the holder of a lock has in hands.

use super::driver::Shared;
use super::{Fence, LockError};
use crate::fence::FenceToken;
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::lock::Request;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// A lock that is held. Owned by the holder, never by a thread: it may move between tasks.
///
/// Dropping the last one of [`Self::reenter`]'s gives the lock back in the background; [`Self::release`] says how that
/// went.
pub struct Guard {
    held: Arc<GuardState>,
}

struct GuardState {
    shared: Arc<Shared>,
    number: u64,
    name: LockName,
    owner: OwnerName,
    fence: Fence,
    lease: Duration,
    over: Over,
}

/// Whether there is anything left to give back.
#[derive(PartialEq, Eq)]
enum Over {
    No,
    Yes,
}

/// A hold that belongs to no process's [`Guard`]: a process that knows its request may renew it and give it back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Which lock.
    pub name: LockName,
    /// Whose hold; a secret of its holder.
    pub request: Request,
    /// The holder's name as other clients see it.
    pub owner: OwnerName,
    /// The fencing token.
    pub fence: Fence,
    /// Until when it certainly lasts unless it is renewed.
    pub deadline: Instant,
}

impl Lease {
    /// How long it certainly lasts from now on unless it is renewed. No request.
    #[expect(clippy::disallowed_methods, reason = "a time left is told in relation to the machine's clock")]
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// As [`Guard::token`]: the same one as before it was handed out. No request.
    pub fn token(&self) -> FenceToken {
        FenceToken::of_hold(&self.name, self.fence, &self.owner, self.request)
    }
}

impl Drop for GuardState {
    fn drop(&mut self) {
        if self.over == Over::No {
            self.shared.forget(self.number);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guard({}, fence {})", self.held.name, self.held.fence)
    }
}

impl Guard {
    pub(super) fn new(shared: Arc<Shared>, number: u64, asked: (LockName, OwnerName, Duration), fence: Fence) -> Self {
        let (name, owner, lease) = asked;
        Self { held: Arc::new(GuardState { shared, number, name, owner, fence, lease, over: Over::No }) }
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.held.name.as_str()
    }

    /// The fencing token: the guarded store must refuse a smaller one than it has seen. [`Self::token`] says it together
    /// with whose it is.
    pub fn fence(&self) -> Fence {
        self.held.fence
    }

    /// What the guarded store gets: the fence, with the names of the lock and of this very hold. See
    /// [`fence`](crate::fence) for what checks it. The same for every guard of one hold. No request; a digest.
    pub fn token(&self) -> FenceToken {
        let GuardState { shared, number, name, owner, fence, .. } = &*self.held;
        FenceToken::of_hold(name, *fence, owner, Request { client: shared.id, number: *number })
    }

    /// Until when the lock is certainly held, by this process's clock, unless it is renewed before; now, or before, if it
    /// is lost. No request.
    pub fn deadline(&self) -> Instant {
        self.held.shared.deadline(self.held.number)
    }

    /// How long the lock is certainly held from now on unless it is renewed. No request.
    #[expect(clippy::disallowed_methods, reason = "a time left is told in relation to the machine's clock")]
    pub fn remaining(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    /// Whether the lock is lost: its lease ended, or no process can say that it did not. No request.
    pub fn is_lost(&self) -> bool {
        self.held.shared.is_lost(self.held.number)
    }

    /// Resolves when the lock is lost, and never otherwise. Does not keep the lock: it may outlive the guard.
    ///
    /// It resolves at the latest at the deadline, so before the store can give the lock to anybody else, as long as this
    /// process runs and the store's clock does not jump.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let (shared, number) = (Arc::clone(&self.held.shared), self.held.number);
        poll_fn(move |context| shared.poll_lost(number, context))
    }

    /// The same hold once more: the lock is given back when the last of them is. The fence is the same.
    pub fn reenter(&self) -> Self {
        Self { held: Arc::clone(&self.held) }
    }

    /// Runs a future until it is done or the lock is lost.
    pub async fn run<T>(&self, body: impl Future<Output = T>) -> Result<T, LockError> {
        let (mut body, mut lost) = (pin!(body), pin!(self.lost()));
        poll_fn(|context| match lost.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(LockError::Lost)),
            Poll::Pending => body.as_mut().poll(context).map(Ok),
        })
        .await
    }

    /// Waits under any executor, as long as the lock is held.
    pub(super) async fn sleep(&self, time: Duration) -> Result<(), LockError> {
        self.run(self.held.shared.sleep(time)).await
    }

    /// Lets the hold last `lease` from now on, and never shorter than before, and renews it by that from then on, if it is
    /// renewed at all. [`Self::deadline`] counts on no more than `lease`. One request.
    ///
    /// Fails with [`LockError::Lost`], and [`LockError::Invalid`] outside 100 ms to 24 h.
    pub async fn renew(&self, lease: Duration) -> Result<(), LockError> {
        self.held.shared.renew(self.held.number, lease).await
    }

    /// Takes the hold out of this process's hands: it is a process whose has the [`Lease`], to renew and to give back through
    /// [`Locks::renew_lease`](super::Locks::renew_lease) and [`Locks::release_lease`](super::Locks::release_lease), also in another process and
    /// after a restart. No process renews it otherwise. At most one request.
    ///
    /// Fails with [`LockError::Lost`]; with [`LockError::Invalid`] while another guard of the same hold lives.
    pub async fn hand_out(self) -> Result<Lease, LockError> {
        let Some(held) = Arc::into_inner(self.held) else {
            return Err(LockError::Invalid { field: "guard", wanted: "the only one of its hold" });
        };
        let (request, deadline) = held.shared.hand_out(held.number, held.lease).await?;
        Ok(Lease { name: held.name.clone(), request, owner: held.owner.clone(), fence: held.fence, deadline })
    }

    /// Gives the lock back: a process that is next has it when this returns. One request. If it was re-entered and another guard
    /// lives, nothing happens.
    ///
    /// Fails with [`LockError::Lost`] if it was over before: the section was perhaps not alone to its end. With
    /// [`LockError::Unknown`] or [`LockError::Unavailable`] if the store gave no answer until the lease ended. Dropping the
    /// future gives the lock back in the background.
    pub async fn release(self) -> Result<(), LockError> {
        match Arc::into_inner(self.held) {
            Some(mut held) => match held.shared.release_quickly(held.number) {
                Some(released) => {
                    held.over = Over::Yes;
                    released
                }
                None => held.shared.release(held.number).await,
            },
            None => Ok(()),
        }
    }
}
