//! The guard of a lock, and the lease of a hold that was handed out.

use super::driver::Shared;
use super::kind::{BoxFuture, OtherHold};
use super::{Fence, LockError};
use crate::fence::FenceToken;
use firstcome_store::Demand;
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::lock::{Ask, Mode, Request};
#[cfg(any(feature = "etcd", feature = "sql"))]
use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// A lock that is held, over any store. It belongs to its owner and to no thread: it may move between tasks.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::Locks;
///
/// # async fn write(_: &str, _: firstcome::Fence) {}
/// let guard = Locks::memory().lock("report").acquire().await?;
/// // The body is dropped when the lock is lost, and the store refuses what it wrote too late by the fence.
/// guard.run(write("ready", guard.fence()?)).await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// Dropping the last guard of a hold (see [`Self::reenter`]) releases the lock in the background; [`Self::release`]
/// reports whether that succeeded.
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    hold: Hold,
}

enum Hold {
    Ordered(Arc<OrderedHold>),
    Other(Arc<dyn OtherHold>),
}

/// A hold of a store that takes the steps of the core.
struct OrderedHold {
    shared: Arc<Shared>,
    number: u64,
    name: LockName,
    owner: OwnerName,
    fence: Fence,
    lease: Duration,
    mode: Mode,
    over: Over,
}

/// What a guard keeps of its request.
pub(super) struct HoldTerms {
    name: LockName,
    owner: OwnerName,
    lease: Duration,
    mode: Mode,
}

impl HoldTerms {
    pub(super) fn of(ask: &Ask) -> Self {
        let lease = Duration::from_millis(u64::from(ask.lease_ms));
        Self { name: ask.name.clone(), owner: ask.owner.clone(), lease, mode: ask.mode }
    }
}

/// Whether the hold was released already.
#[derive(PartialEq, Eq)]
enum Over {
    No,
    Yes,
}

/// A hold without a [`Guard`]: any process that knows its request may renew it and release it.
#[must_use = "the hold lasts until its lease ends, unless it is released"]
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
    /// Whether other requests may share the lock.
    pub mode: Mode,
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
        FenceToken::of_mode(&self.name, self.fence, &self.owner, self.request, self.mode)
    }
}

impl Drop for OrderedHold {
    fn drop(&mut self) {
        if self.over == Over::No {
            self.shared.forget(self.number);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fence() {
            Ok(fence) => write!(f, "Guard({}, fence {fence})", self.name()),
            Err(_) => write!(f, "Guard({}, without a fence)", self.name()),
        }
    }
}

impl Guard {
    pub(super) fn new(shared: Arc<Shared>, number: u64, asked: HoldTerms, fence: Fence) -> Self {
        let HoldTerms { name, owner, lease, mode } = asked;
        let hold = OrderedHold { shared, number, name, owner, fence, lease, mode, over: Over::No };
        Self { hold: Hold::Ordered(Arc::new(hold)) }
    }

    pub(super) fn of_other(hold: Arc<dyn OtherHold>) -> Self {
        Self { hold: Hold::Other(hold) }
    }

    /// Returns the hold as the type of its store, for extras of one store.
    #[cfg(any(feature = "etcd", feature = "sql"))]
    pub(super) fn as_other<H: OtherHold>(&self) -> Option<&H> {
        match &self.hold {
            Hold::Ordered(_) => None,
            Hold::Other(hold) => (&**hold as &dyn Any).downcast_ref(),
        }
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        match &self.hold {
            Hold::Ordered(hold) => hold.name.as_str(),
            Hold::Other(hold) => hold.name(),
        }
    }

    /// The fencing token: the guarded store must refuse a smaller one than it has seen. [`Self::token`] returns it
    /// together with the name of the hold. No request.
    ///
    /// Fails with [`LockError::NotGuaranteed`] on a store without fences. [`LockRequest::fenced`](super::LockRequest::fenced)
    /// makes the request fail instead, before anything happens.
    pub fn fence(&self) -> Result<Fence, LockError> {
        match &self.hold {
            Hold::Ordered(hold) => Ok(hold.fence),
            Hold::Other(hold) => hold.fence().ok_or(LockError::NotGuaranteed { demand: Demand::Fenced }),
        }
    }

    /// Returns what to show to the guarded store: the fence, with the names of the lock and of this hold.
    /// [`fence`](crate::fence) has checks for it. All guards of one hold have the same token, and so have all holds that
    /// share the lock in one turn. No request; computes a digest.
    ///
    /// Fails as [`Self::fence`] does. Fails with [`LockError::Input`] if the store allows more names than fence checks
    /// do, and this is one of them.
    pub fn token(&self) -> Result<FenceToken, LockError> {
        match &self.hold {
            Hold::Ordered(hold) => {
                let OrderedHold { shared, number, name, owner, fence, mode, .. } = &**hold;
                let request = Request { client: shared.id, number: *number };
                Ok(FenceToken::of_mode(name, *fence, owner, request, *mode))
            }
            Hold::Other(hold) => hold.token(self.fence()?),
        }
    }

    /// Returns until when the lock is certainly held, by this process's clock, unless it is renewed before. Now or
    /// earlier once the lock is lost. `None` for built-in locks of databases: they have no end of their own, and are
    /// never certain. No request.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.hold {
            Hold::Ordered(hold) => Some(hold.shared.deadline(hold.number)),
            Hold::Other(hold) => hold.deadline(),
        }
    }

    /// Returns how long the lock is certainly held from now on unless it is renewed; [`Duration::MAX`] if it has no end
    /// of its own and is not known to be lost. No request.
    #[expect(clippy::disallowed_methods, reason = "a time left is told in relation to the machine's clock")]
    pub fn remaining(&self) -> Duration {
        match self.deadline() {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            None if self.is_lost() => Duration::ZERO,
            None => Duration::MAX,
        }
    }

    /// Whether the lock is lost: its lease ended, or may have ended. For built-in locks of databases the answer says
    /// nothing about the last half second. No request.
    pub fn is_lost(&self) -> bool {
        match &self.hold {
            Hold::Ordered(hold) => hold.shared.is_lost(hold.number),
            Hold::Other(hold) => hold.is_lost(),
        }
    }

    /// Resolves when the lock is lost; never otherwise. The future does not keep the lock, and may outlive the guard.
    ///
    /// It resolves at the deadline at the latest. So it resolves before the store can grant the lock to another holder,
    /// as long as this process runs and the store's clock does not jump. Built-in locks of databases have no deadline:
    /// there it resolves when the loss is known.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        /// What is watched.
        enum Watched {
            Ordered(Arc<Shared>, u64),
            Other(BoxFuture<'static, ()>),
        }
        let mut watched = match &self.hold {
            Hold::Ordered(hold) => Watched::Ordered(Arc::clone(&hold.shared), hold.number),
            Hold::Other(hold) => Watched::Other(hold.lost()),
        };
        poll_fn(move |context| match &mut watched {
            Watched::Ordered(shared, number) => shared.poll_lost(*number, context),
            Watched::Other(lost) => lost.as_mut().poll(context),
        })
    }

    /// Makes another guard of the same hold, with the same fence, for a part of the section that takes the lock again
    /// without knowing that it is held. The lock is released with the last guard, in whichever order the guards end.
    ///
    /// One request in the layout of Redisson, which counts how many times a lock is held; elsewhere none. If the future
    /// is dropped or fails, there are as many guards as before. Fails with [`LockError::Lost`], and in the layout of
    /// Redisson with [`LockError::Unavailable`] or [`LockError::Unknown`].
    pub async fn reenter(&self) -> Result<Self, LockError> {
        match &self.hold {
            Hold::Ordered(hold) if hold.shared.is_lost(hold.number) => Err(LockError::Lost),
            Hold::Ordered(hold) => Ok(Self { hold: Hold::Ordered(Arc::clone(hold)) }),
            Hold::Other(hold) => Arc::clone(hold).reenter().await.map(Self::of_other),
        }
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

    /// Sleeps, under any executor where the lock works under any. Fails if the lock is lost meanwhile.
    pub(super) async fn sleep(&self, time: Duration) -> Result<(), LockError> {
        match &self.hold {
            Hold::Ordered(hold) => self.run(hold.shared.sleep(time)).await,
            Hold::Other(_) => self.run(tokio::time::sleep(time)).await,
        }
    }

    /// Lets the hold last for `lease` from now on; it never ends earlier than before. If the hold is renewed at all,
    /// later renewals use `lease` too. [`Self::deadline`] counts on no more than `lease`. One request; on etcd two, which
    /// also check that the hold still stands there.
    ///
    /// Fails with [`LockError::Lost`] if the hold is over. Fails with [`LockError::Input`] outside 100 ms to 8 days, and
    /// with [`LockError::Unsupported`] where holds have no lease of their own. If the store does not answer, a store that
    /// takes the steps of this library is asked again until the hold is lost. On etcd, over HTTP, on several servers that
    /// vote and in layouts of other libraries the call fails with [`LockError::Unavailable`] or [`LockError::Unknown`]
    /// instead: the deadline stays as before, and the caller may repeat the call.
    ///
    /// A renewal of the background that is under way may end the call first: then the deadline counts on `lease` after the
    /// next answer.
    pub async fn renew(&self, lease: Duration) -> Result<(), LockError> {
        match &self.hold {
            Hold::Ordered(hold) => hold.shared.renew(hold.number, lease).await,
            Hold::Other(hold) => hold.renew(lease).await,
        }
    }

    /// Hands the hold out: from now on it belongs to the process that has the [`Lease`]. That process renews it with
    /// [`Locks::renew_lease`](super::Locks::renew_lease) and releases it with
    /// [`Locks::release_lease`](super::Locks::release_lease). It may be another process, or this one after a restart.
    /// No other process renews the hold. At most one request.
    ///
    /// Fails with [`LockError::Lost`]; with [`LockError::Input`] while another guard of the same hold lives; with
    /// [`LockError::Unsupported`] where the store cannot do it: in layouts of other libraries, on several servers that
    /// vote, on etcd, over HTTP, and for built-in locks of databases. A hold that is not handed out is released.
    pub async fn hand_out(self) -> Result<Lease, LockError> {
        let Hold::Ordered(hold) = self.hold else {
            return Err(LockError::Unsupported { operation: "hand a hold out" });
        };
        let Some(hold) = Arc::into_inner(hold) else {
            return Err(LockError::value("guard", "the only one of its hold"));
        };
        let (request, deadline) = hold.shared.hand_out(hold.number, hold.lease).await?;
        let (name, owner) = (hold.name.clone(), hold.owner.clone());
        Ok(Lease { name, request, owner, fence: hold.fence, mode: hold.mode, deadline })
    }

    /// Ends the guard without a release: the hold ends with its lease, and no process renews it. No request. For holds of
    /// [`LockRequest::fixed`](super::LockRequest::fixed) that did not wait.
    pub(super) fn leave(self) {
        match self.hold {
            Hold::Ordered(hold) => {
                if let Some(mut hold) = Arc::into_inner(hold) {
                    hold.over = Over::Yes;
                    hold.shared.leave(hold.number);
                }
            }
            Hold::Other(hold) => hold.leave(),
        }
    }

    /// Releases the lock: the next waiter has it when this returns. One request, repeated until there is an answer or
    /// the lease is over. Nothing happens while another guard of the same hold lives.
    ///
    /// Fails with [`LockError::Lost`] if the hold was over before: another holder may have overlapped with the section.
    /// Fails with [`LockError::Unknown`] or [`LockError::Unavailable`] if the store did not answer until the lease
    /// ended. Dropping the future releases the lock in the background.
    pub async fn release(self) -> Result<(), LockError> {
        let hold = match self.hold {
            Hold::Ordered(hold) => hold,
            Hold::Other(hold) => return hold.release().await,
        };
        match Arc::into_inner(hold) {
            Some(mut hold) => match hold.shared.release_quickly(hold.number) {
                Some(released) => {
                    hold.over = Over::Yes;
                    released
                }
                None => hold.shared.release(hold.number).await,
            },
            None => Ok(()),
        }
    }
}
