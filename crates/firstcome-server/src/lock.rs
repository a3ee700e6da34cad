//! Locks for HTTP clients, which hold nothing but a handle.
//!
//! # Invariants
//! - A client that is gone holds nothing. An acquire ends with its connection, and the service releases a grant unless
//!   its answer left for a peer that was still connected ([`Offer`]).
//! - A request that is repeated under its key while it waits joins the wait. The wait goes on as long as one of these
//!   requests is connected.
//! - No client waits beyond the service's stop.

mod ledger;

use crate::backend::Backend;
use crate::metrics::{Ending, LockFigures};
use firstcome::core::id::{LockName, OwnerName, RequestId};
use firstcome::core::time::Timestamp;
use firstcome::edge::Stopwatch;
use firstcome::lock::Request;
use firstcome::{Fence, HandleKey, LockError, LockRequest, Locks, TimedLockView};
use ledger::{Body, End, Found, Kept, Ledger};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::task::AbortHandle;

/// The pause between two attempts to release a grant that no client received.
const AGAIN: Duration = Duration::from_millis(250);

/// Limits on the locks of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockLimits {
    /// The most acquires that wait at once. A further acquire still gets a free lock, and is refused as `overloaded`
    /// otherwise.
    pub waits_max: usize,
    /// The most holds, and the most keys of acquires, that the service remembers. Beyond it the service refuses an
    /// acquire with an `Idempotency-Key` as `overloaded`, and does not count one without. Protects memory: about 400
    /// bytes each.
    pub holds_max: usize,
}

impl Default for LockLimits {
    fn default() -> Self {
        Self { waits_max: 10_000, holds_max: 200_000 }
    }
}

/// A parsed acquire request.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) name: LockName,
    pub(crate) owner: OwnerName,
    pub(crate) wait: Duration,
    pub(crate) lease: Duration,
    /// How many requests may share the lock; `None` for an exclusive hold.
    pub(crate) permits: Option<u32>,
}

/// Why an acquire got no lock.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// Another holder has it. `position` is set after a wait: how many requests were still ahead.
    Contended { holder: String, waiters: u32, ttl: Duration, position: Option<u32> },
    /// Too many requests wait, or the service stops.
    Overloaded,
    /// The key was used with another body before.
    KeyReused,
    /// The store refused or failed.
    Store(LockError),
}

/// The answer to an acquire.
pub(crate) struct Grant {
    pub(crate) owner: OwnerName,
    pub(crate) fence: Fence,
    pub(crate) expires_at: Timestamp,
    pub(crate) handle: String,
    /// Keeps the hold until a client has received the grant. Absent on a repeat, when a client has received it
    /// already.
    pub(crate) offer: Option<Arc<Offer>>,
}

/// A hold that no client has received yet. Dropping it releases the hold.
pub(crate) struct Offer {
    service: Arc<LockService>,
    name: LockName,
    owner: OwnerName,
    request: Request,
    fence: Fence,
    lease: Duration,
    expires_at: Timestamp,
    told: Arc<AtomicBool>,
}

impl Offer {
    /// Keeps the hold, since a client has received the grant.
    pub(crate) fn keep(&self) {
        self.told.store(true, Ordering::Release);
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if self.told.load(Ordering::Acquire) {
            return;
        }
        self.service.ledger.lock().end(self.request, End::TakenBack);
        let (service, name, request, lease) = (Arc::clone(&self.service), self.name.clone(), self.request, self.lease);
        let given_back = async move {
            // Retries: a store that fails for a moment would otherwise keep the lock without a client, for up to a
            // day.
            while let Err(LockError::Unavailable(_) | LockError::Unknown) =
                service.in_time(service.locks.release_lease(name.as_str(), request)).await
            {
                tokio::time::sleep(AGAIN).await;
            }
        };
        // Without a runtime the service has ended, and the lease ends the hold.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(tokio::time::timeout(lease, given_back));
        }
    }
}

type Outcome = Result<Arc<Offer>, Refusal>;

/// An acquire under a key, shared by all requests that sent it. It ends when the last of them goes away.
struct Wait {
    service: Arc<LockService>,
    key: u128,
    number: u64,
    outcome: watch::Receiver<Option<Outcome>>,
    task: AbortHandle,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.task.abort();
        self.service.ledger.lock().give_up(self.key, self.number);
    }
}

/// Counts an acquire once, however it ends.
struct Attempt<'a> {
    figures: &'a LockFigures,
    watch: Stopwatch,
    ending: Ending,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.figures.ended(self.ending, self.watch.elapsed());
    }
}

/// One of the `waits_max` places for waiting acquires.
struct WaitPermit<'a> {
    figures: &'a LockFigures,
    _permit: SemaphorePermit<'a>,
}

impl Drop for WaitPermit<'_> {
    fn drop(&mut self) {
        self.figures.waiting.dec();
    }
}

/// Acquires, renews and releases locks for HTTP clients.
pub(crate) struct LockService {
    me: Weak<LockService>,
    locks: Locks,
    handle_key: HandleKey,
    /// The clock of the service.
    store: Backend,
    figures: LockFigures,
    places: Semaphore,
    /// How long the store may take to answer.
    patience: Duration,
    stopping: watch::Receiver<bool>,
    ledger: Mutex<Ledger>,
}

/// The parts of a [`LockService`].
pub(crate) struct Parts {
    pub(crate) locks: Locks,
    pub(crate) handle_key: HandleKey,
    pub(crate) store: Backend,
    pub(crate) figures: LockFigures,
    pub(crate) limits: LockLimits,
    pub(crate) patience: Duration,
    pub(crate) stopping: watch::Receiver<bool>,
}

impl LockService {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let Parts { locks, handle_key, store, figures, limits, patience, stopping } = parts;
        let ledger = Mutex::new(Ledger::new(figures.clone(), limits.holds_max));
        let places = Semaphore::new(limits.waits_max.min(Semaphore::MAX_PERMITS));
        Arc::new_cyclic(|me| {
            let me = Weak::clone(me);
            Self { me, locks, handle_key, store, figures, places, patience, stopping, ledger }
        })
    }

    fn me(&self) -> Arc<Self> {
        self.me.upgrade().unwrap_or_else(|| unreachable!("the caller has a reference"))
    }

    /// Returns the wall-clock instant `wait` from now.
    fn later(&self, wait: Duration) -> Timestamp {
        let wait_us = i64::try_from(wait.as_micros()).unwrap_or(i64::MAX);
        Timestamp::clamped_us(self.store.now().as_us().saturating_add(wait_us))
    }

    async fn stop(&self) {
        // An error means that the service is gone, which is a stop too.
        let _ = self.stopping.clone().wait_for(|stopping| *stopping).await;
    }

    fn place(&self) -> Option<WaitPermit<'_>> {
        if *self.stopping.borrow() {
            return None;
        }
        let permit = self.places.try_acquire().ok()?;
        self.figures.waiting.inc();
        Some(WaitPermit { figures: &self.figures, _permit: permit })
    }

    /// Acquires a lock. A dropped future leaves neither a waiter nor a hold.
    pub(crate) async fn acquire(&self, wanted: Wanted, id: Option<RequestId>) -> Result<Grant, Refusal> {
        let name = wanted.name.clone();
        let waits = !wanted.wait.is_zero();
        let acquired = async {
            match id {
                Some(id) => self.acquire_once(wanted, id).await,
                None => self.obtain(&wanted, None).await.map(|offer| self.show(&name, &offer)),
            }
        };
        tokio::select! {
            // Biased, so that an acquire that can be answered at once succeeds even while the service stops.
            biased;
            acquired = acquired => acquired,
            () = self.stop(), if waits => Err(Refusal::Overloaded),
        }
    }

    fn show(&self, name: &LockName, offer: &Arc<Offer>) -> Grant {
        Grant {
            owner: offer.owner.clone(),
            fence: offer.fence,
            expires_at: offer.expires_at,
            handle: self.handle_key.handle(name, offer.request, offer.fence),
            offer: Some(Arc::clone(offer)),
        }
    }

    /// Acquires a lock under an idempotency key.
    async fn acquire_once(&self, wanted: Wanted, id: RequestId) -> Result<Grant, Refusal> {
        let name = wanted.name.clone();
        let (wait, mut outcome, _place) = loop {
            // Looks up and begins under one mutex, so that of two concurrent requests one joins the other.
            let (found, begun) = {
                let mut ledger = self.ledger.lock();
                let found = ledger.find(id);
                let begun = matches!(found, Found::Nothing).then(|| self.begin(&mut ledger, &wanted, id));
                (found, begun)
            };
            match (found, begun) {
                (_, Some(wait)) => break (Arc::clone(&wait), wait.outcome.clone(), None),
                (Found::Waiting(_, Body::Other) | Found::Offered(_, Body::Other), _) => return Err(Refusal::KeyReused),
                (Found::Waiting(wait, Body::Same), _) => {
                    let place = self.place().ok_or(Refusal::Overloaded)?;
                    let outcome = wait.outcome.clone();
                    break (wait, outcome, Some(place));
                }
                (Found::Offered(offer, Body::Same), _) => return Ok(self.show(&name, &offer)),
                (Found::Granted(kept, expires_at, body), _) => {
                    if let Some(grant) = self.replay(&wanted, &kept, expires_at).await? {
                        return if body == Body::Same { Ok(grant) } else { Err(Refusal::KeyReused) };
                    }
                    // The hold ended before its lease by another request. This acquire starts anew.
                    self.ledger.lock().end(kept.request, End::Lost);
                }
                (Found::Nothing | Found::Full, None) => return Err(Refusal::Overloaded),
            }
        };
        let told = outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        drop(wait);
        let offer = told.unwrap_or(Err(Refusal::Store(LockError::Unknown)))?;
        Ok(self.show(&name, &offer))
    }

    /// Starts an acquire that all repeats of the request share.
    fn begin(&self, ledger: &mut Ledger, wanted: &Wanted, id: RequestId) -> Arc<Wait> {
        let (service, wanted) = (self.me(), wanted.clone());
        ledger.begin(id, |number| {
            let (sender, outcome) = watch::channel(None);
            let asking = Arc::clone(&service);
            let task = tokio::spawn(async move {
                let obtained = asking.obtain(&wanted, Some((id, number))).await;
                if obtained.is_err() {
                    asking.ledger.lock().give_up(id.key, number);
                }
                // If no client waits any more, the offer is dropped, which releases the hold.
                drop(sender.send(Some(obtained)));
            });
            Arc::new(Wait { service, key: id.key, number, outcome, task: task.abort_handle() })
        })
    }

    /// Answers a repeat with the earlier grant, if the store confirms that the hold goes on.
    async fn replay(&self, wanted: &Wanted, kept: &Kept, expires_at: Timestamp) -> Result<Option<Grant>, Refusal> {
        if wanted.permits.is_some() {
            return self.replay_shared(wanted, kept).await;
        }
        let TimedLockView { view, now_us } = self.view(&wanted.name).await.map_err(Refusal::Store)?;
        let Some((owner, _, ends_us)) = view.held.filter(|(_, fence, _)| *fence == kept.fence) else { return Ok(None) };
        let left = Duration::from_micros(ends_us.saturating_sub(now_us));
        Ok(Some(Grant {
            owner,
            fence: kept.fence,
            // A wall clock that was set back stands still, but the hold ends on time.
            expires_at: expires_at.min(self.later(left)),
            handle: self.handle_key.handle(&wanted.name, kept.request, kept.fence),
            offer: None,
        }))
    }

    /// Answers a repeat of a request that shares the lock. The store shows only the first of these holds, so a renewal asks for
    /// this one.
    async fn replay_shared(&self, wanted: &Wanted, kept: &Kept) -> Result<Option<Grant>, Refusal> {
        match self.renew_hold(&wanted.name, kept.request, wanted.lease).await {
            Ok(expires_at) => Ok(Some(Grant {
                owner: wanted.owner.clone(),
                fence: kept.fence,
                expires_at,
                handle: self.handle_key.handle(&wanted.name, kept.request, kept.fence),
                offer: None,
            })),
            Err(LockError::Lost) => Ok(None),
            Err(error) => Err(Refusal::Store(error)),
        }
    }

    /// Waits for a lock, and turns the grant into an offer that the handle renews and releases.
    async fn obtain(&self, wanted: &Wanted, begun: Option<(RequestId, u64)>) -> Outcome {
        let watch = Stopwatch::start();
        let mut attempt = Attempt { figures: &self.figures, watch, ending: Ending::Abandoned };
        let place = if wanted.wait.is_zero() { None } else { self.place() };
        let wait = if place.is_some() { wanted.wait } else { Duration::ZERO };
        let asked = tokio::time::timeout(wait + self.patience, self.ask(wanted, wait)).await;
        let refusal = match asked.unwrap_or(Err(Refusal::Store(LockError::Unknown))) {
            Ok((request, fence, remaining)) => {
                attempt.ending = Ending::Granted;
                return Ok(self.offer(wanted, (request, fence, remaining), begun));
            }
            Err(Refusal::Contended { .. }) if wait < wanted.wait => Refusal::Overloaded,
            Err(refusal) => refusal,
        };
        attempt.ending = match &refusal {
            Refusal::Contended { .. } if wait.is_zero() => Ending::Contended,
            Refusal::Contended { .. } => Ending::TimedOut,
            Refusal::Overloaded | Refusal::KeyReused => Ending::Overloaded,
            Refusal::Store(_) => Ending::Failed,
        };
        Err(refusal)
    }

    async fn ask(&self, wanted: &Wanted, wait: Duration) -> Result<(Request, Fence, Duration), Refusal> {
        let request = self.locks.lock(wanted.name.as_str()).owner(wanted.owner.as_str()).lease(wanted.lease).fixed();
        let request = wanted.permits.into_iter().fold(request, LockRequest::permits);
        let acquired = match wait {
            Duration::ZERO => request.try_acquire().await.map_err(|error| contended(error, None)),
            _ => match request.clone().wait(wait).acquire().await {
                // Reads the holder and the line in one call. A lock that is free now has no line, so taking it
                // overtakes no waiter.
                Err(LockError::TimedOut { position }) => {
                    request.try_acquire().await.map_err(|error| contended(error, position))
                }
                acquired => acquired.map_err(|error| contended(error, None)),
            },
        };
        // The hold ended before a client could receive it: the outcome is unknown.
        let lease = acquired?.hand_out().await.map_err(|error| match error {
            LockError::Lost => Refusal::Store(LockError::Unknown),
            error => Refusal::Store(error),
        })?;
        Ok((lease.request, lease.fence, lease.remaining()))
    }

    fn offer(
        &self,
        wanted: &Wanted,
        (request, fence, remaining): (Request, Fence, Duration),
        begun: Option<(RequestId, u64)>,
    ) -> Arc<Offer> {
        let Wanted { name, owner, lease, .. } = wanted.clone();
        let (expires_at, told) = (self.later(remaining), Arc::new(AtomicBool::new(false)));
        let offer =
            Offer { service: self.me(), name, owner, request, fence, lease, expires_at, told: Arc::clone(&told) };
        let offer = Arc::new(offer);
        let kept = Kept { request, fence, offer: Arc::downgrade(&offer), told };
        self.ledger.lock().grant(&kept, (lease, expires_at), begun);
        offer
    }

    /// Lets the hold of a handle last `lease` from now on, and never shorter than before.
    pub(crate) async fn renew(
        &self,
        name: &LockName,
        handle: &str,
        lease: Duration,
    ) -> Result<(Fence, Timestamp), LockError> {
        let (request, fence) = self.handle_key.read(name, handle).ok_or(LockError::Lost)?;
        Ok((fence, self.renew_hold(name, request, lease).await?))
    }

    async fn renew_hold(&self, name: &LockName, request: Request, lease: Duration) -> Result<Timestamp, LockError> {
        let renewed = self.in_time(self.locks.renew_lease(name.as_str(), request, lease)).await;
        let renewed = renewed.map(|remaining| self.later(remaining));
        let mut ledger = self.ledger.lock();
        match &renewed {
            Ok(expires_at) => ledger.renew(request, lease, Some(*expires_at)),
            // The renewal may have happened. Forgotten too early, a repeated acquire would wait behind its own hold.
            Err(LockError::Unknown) => ledger.renew(request, lease, None),
            Err(LockError::Lost) => ledger.end(request, End::Lost),
            Err(_) => {}
        }
        renewed
    }

    /// Releases the hold of a handle.
    pub(crate) async fn release(&self, name: &LockName, handle: &str) -> Result<Fence, LockError> {
        let (request, fence) = self.handle_key.read(name, handle).ok_or(LockError::Lost)?;
        let released = self.in_time(self.locks.release_lease(name.as_str(), request)).await;
        let end = match &released {
            Ok(()) => Some(End::Released),
            Err(LockError::Lost) => Some(End::Lost),
            Err(_) => None,
        };
        if let Some(end) = end {
            self.ledger.lock().end(request, end);
        }
        released.map(|()| fence)
    }

    /// Shows a lock.
    pub(crate) async fn view(&self, name: &LockName) -> Result<TimedLockView, LockError> {
        self.in_time(self.locks.view(name.as_str())).await
    }

    /// Removes holds whose lease has ended, before the figures are read.
    pub(crate) fn sweep(&self) {
        self.ledger.lock().sweep();
    }

    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, LockError>>) -> Result<T, LockError> {
        tokio::time::timeout(self.patience, answer).await.unwrap_or(Err(LockError::Unknown))
    }
}

fn contended(error: LockError, position: Option<u32>) -> Refusal {
    match error {
        LockError::Contended { holder, waiters, ttl } => Refusal::Contended { holder, waiters, ttl, position },
        error => Refusal::Store(error),
    }
}
