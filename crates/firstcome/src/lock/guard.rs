//! The guard of a lock, and the lease of a hold that was handed out.

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

/// A lock that is held. It belongs to its owner and to no thread: it may move between tasks.
///
/// Dropping the last guard of a hold (see [`Self::reenter`]) releases the lock in the background; [`Self::release`]
/// reports whether that succeeded.
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

/// Whether the hold was released already.
#[derive(PartialEq, Eq)]
enum Over {
    No,
    Yes,
}

/// A hold without a [`Guard`]: any process that knows its request may renew it and release it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The name of the lock.
    pub name: LockName,
    /// The request that has the lock; a secret of its holder.
    pub request: Request,
    /// The holder's name as other clients see it.
    pub owner: OwnerName,
    /// The fencing token.
    pub fence: Fence,
    /// Until when the hold certainly lasts unless it is renewed.
    pub deadline: Instant,
}

impl Lease {
    /// Returns how long the hold certainly lasts from now on unless it is renewed. No request.
    #[expect(clippy::disallowed_methods, reason = "a time left is told in relation to the machine's clock")]
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Returns the token that [`Guard::token`] returned before the hold was handed out. No request.
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

    /// The fencing token: the guarded store must refuse a smaller one than it has seen. [`Self::token`] returns it
    /// together with the name of the hold.
    pub fn fence(&self) -> Fence {
        self.held.fence
    }

    /// Returns what to show to the guarded store: the fence, with the names of the lock and of this hold.
    /// [`fence`](crate::fence) has checks for it. All guards of one hold have the same token. No request; computes a
    /// digest.
    pub fn token(&self) -> FenceToken {
        let GuardState { shared, number, name, owner, fence, .. } = &*self.held;
        FenceToken::of_hold(name, *fence, owner, Request { client: shared.id, number: *number })
    }

    /// Returns until when the lock is certainly held, by this process's clock, unless it is renewed before. Now or
    /// earlier once the lock is lost. No request.
    pub fn deadline(&self) -> Instant {
        self.held.shared.deadline(self.held.number)
    }

    /// Returns how long the lock is certainly held from now on unless it is renewed. No request.
    #[expect(clippy::disallowed_methods, reason = "a time left is told in relation to the machine's clock")]
    pub fn remaining(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    /// Whether the lock is lost: its lease ended, or may have ended. No request.
    pub fn is_lost(&self) -> bool {
        self.held.shared.is_lost(self.held.number)
    }

    /// Resolves when the lock is lost; never otherwise. The future does not keep the lock, and may outlive the guard.
    ///
    /// It resolves at the deadline at the latest. So it resolves before the store can grant the lock to another holder,
    /// as long as this process runs and the store's clock does not jump.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let (shared, number) = (Arc::clone(&self.held.shared), self.held.number);
        poll_fn(move |context| shared.poll_lost(number, context))
    }

    /// Makes another guard of the same hold, with the same fence. The lock is released with the last guard.
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

    /// Sleeps under any executor. Fails if the lock is lost meanwhile.
    pub(super) async fn sleep(&self, time: Duration) -> Result<(), LockError> {
        self.run(self.held.shared.sleep(time)).await
    }

    /// Lets the hold last for `lease` from now on; it never ends earlier than before. If the hold is renewed at all,
    /// later renewals use `lease` too. [`Self::deadline`] counts on no more than `lease`. One request.
    ///
    /// Fails with [`LockError::Lost`] if the hold is over. Fails with [`LockError::Invalid`] outside 100 ms to 24 h.
    pub async fn renew(&self, lease: Duration) -> Result<(), LockError> {
        self.held.shared.renew(self.held.number, lease).await
    }

    /// Hands the hold out: from now on it belongs to the process that has the [`Lease`]. That process renews it with
    /// [`Locks::renew_lease`](super::Locks::renew_lease) and releases it with
    /// [`Locks::release_lease`](super::Locks::release_lease). It may be another process, or this one after a restart.
    /// No other process renews the hold. At most one request.
    ///
    /// Fails with [`LockError::Lost`]; with [`LockError::Invalid`] while another guard of the same hold lives.
    pub async fn hand_out(self) -> Result<Lease, LockError> {
        let Some(held) = Arc::into_inner(self.held) else {
            return Err(LockError::Invalid { field: "guard", wanted: "the only one of its hold" });
        };
        let (request, deadline) = held.shared.hand_out(held.number, held.lease).await?;
        Ok(Lease { name: held.name.clone(), request, owner: held.owner.clone(), fence: held.fence, deadline })
    }

    /// Releases the lock: the next waiter has it when this returns. One request. Nothing happens while another guard of
    /// the same hold lives.
    ///
    /// Fails with [`LockError::Lost`] if the hold was over before: another holder may have overlapped with the section.
    /// Fails with [`LockError::Unknown`] or [`LockError::Unavailable`] if the store did not answer until the lease
    /// ended. Dropping the future releases the lock in the background.
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
