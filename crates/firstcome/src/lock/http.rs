//! Locks of a service, over HTTP.
//!
//! For programs that do not share a store with the service: they need its address and a service key, and nothing else.
//! The service keeps the lines and the holds. What its own store promises is unknown here, so
//! [`Guarantees::HTTP`](crate::Guarantees::HTTP) says what the weakest one gives. They differ from locks on a store in this:
//!
//! - *A connection for each wait.* A request that waits in line holds one connection until it is answered. The service
//!   gives up its place when the connection closes.
//! - *A renewal after a long wait.* The answer to a wait does not say how long ago the lock was granted. If it took more
//!   than a tenth of the lease, the client renews at once, and counts the lease from there: one more round trip.
//! - *At another node.* A request whose connection breaks is sent again under the same key. At another node of a cluster
//!   it then waits from the end of the line.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use firstcome::Locks;
//! use std::time::Duration;
//!
//! let locks = Locks::http("https://queue.example.org", "the key of the service")?;
//! let guard = locks.lock("auction:7").wait(Duration::from_secs(5)).acquire().await?;
//! println!("ours, with fence {}", guard.fence()?);
//! guard.release().await?;
//! # Ok(()) }
//! ```

use super::kind::{BoxFuture, OtherHold, OtherLocks, share};
use super::{LEASE_DEFAULT, LockError, Terms, lease_ms};
use crate::fence::FenceToken;
use firstcome_client::{Acquire, Acquired, HoldReply, HttpLocks, HttpOptions, LockHandle, OpenHttpError};
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::lock::{ClientId, Fence, LockView, Mode, Request, Watch};
use firstcome_store::edge::draw_id;
use firstcome_store::{Fault, FaultKind, Guarantees, StoreError, TimedLockView};
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout_at};

/// The pause between two tries of a renewal or a release that got no answer.
const REPEAT: Duration = Duration::from_millis(100);
/// How long a dropped request is followed up.
const TAKE_BACK: Duration = Duration::from_secs(2);
/// What is taken off a lease beside one per cent: the service counts in milliseconds.
const GRAIN: Duration = Duration::from_millis(2);

/// Returns until when a lease requested at `sent` certainly lasts: one per cent less, because two clocks may differ so
/// much.
fn deadline_of(sent: Instant, lease: Duration) -> Instant {
    sent + (lease - lease / 100).saturating_sub(GRAIN)
}

#[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
fn now() -> Instant {
    Instant::now()
}

/// The locks of a service, as this process sees them.
pub(super) struct ServiceLocks {
    shared: Arc<Shared>,
    owner: OwnerName,
}

struct Shared {
    wire: HttpLocks,
    client: ClientId,
    runtime: Handle,
    /// How many requests and holds are being given back in the background.
    leaving: watch::Sender<usize>,
    /// The number of the next hold.
    drawn: AtomicU64,
}

impl Shared {
    /// Runs this in the background, and lets [`OtherLocks::quiet`] wait for it.
    fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let shared = Arc::clone(self);
        self.leaving.send_modify(|leaving| *leaving += 1);
        self.runtime.spawn(async move {
            work.await;
            shared.leaving.send_modify(|leaving| *leaving -= 1);
        });
    }
}

impl ServiceLocks {
    pub(super) fn open(url: &str, key: &str, options: HttpOptions) -> Result<Self, OpenHttpError> {
        let wire = HttpLocks::with(url, key, options)?;
        let id = draw_id()?;
        let owner = format!("process-{}-{id:016x}", std::process::id());
        let owner = OwnerName::parse(&owner).map_err(|error| Fault::new(FaultKind::Io, error.to_string()))?;
        let (client, runtime, leaving) = (ClientId(id), Handle::current(), watch::Sender::new(0));
        let drawn = AtomicU64::new(1);
        Ok(Self { shared: Arc::new(Shared { wire, client, runtime, leaving, drawn }), owner })
    }

    async fn get(&self, terms: &Terms) -> Result<Hold, LockError> {
        let (name, owner) = (terms.lock_name()?, terms.owner_or(&self.owner)?);
        let lease_ms = lease_ms(terms.lease.unwrap_or(LEASE_DEFAULT))?;
        let lease = Duration::from_millis(u64::from(lease_ms));
        let acquire = Acquire::new(name.clone(), owner.clone(), terms.wait, lease)?;
        let acquire = terms.permits.into_iter().fold(acquire, Acquire::sharing);
        let mut asked = Unanswered { shared: Arc::clone(&self.shared), acquire: Some(acquire.clone()) };
        let sent = now();
        let acquired = self.shared.wire.acquire(&acquire).await;
        if !matches!(acquired, Err(StoreError::Unknown)) {
            asked.acquire = None;
        }
        let (fence, handle) = match acquired? {
            Acquired::Granted { fence, handle } => (fence, handle),
            Acquired::Contended { holder, waiters, ttl, .. } if terms.wait.is_zero() => {
                return Err(LockError::Contended { holder, waiters, ttl });
            }
            Acquired::Contended { position, .. } => return Err(LockError::TimedOut { position }),
        };
        let core = Core {
            shared: Arc::clone(&self.shared),
            name,
            handle,
            lease_ms: AtomicU32::new(lease_ms),
            deadline: watch::Sender::new(deadline_of(sent, lease)),
        };
        // From here on, dropping this future releases the hold in the background.
        let core = Arc::new(core);
        let number = self.shared.drawn.fetch_add(1, Ordering::Relaxed);
        let mode = terms.permits.map_or(Mode::ALONE, |permits| Mode::Shared { permits });
        let (watchdog, over) = (Mutex::default(), Over::No);
        let hold = Hold { core: Arc::clone(&core), owner, fence, mode, number, watchdog, over };
        if lease / 10 < sent.elapsed() {
            core.renew().await.map_err(|_| LockError::Unknown)?;
        }
        if core.is_lost() {
            // After so long a way the answer proves nothing: the lease may be over.
            return Err(LockError::Unknown);
        }
        if terms.watch == Watch::Renew {
            let watchdog = self.shared.runtime.spawn(async move { core.keep_renewing().await });
            *hold.watchdog.lock() = Some(watchdog.abort_handle());
        }
        Ok(hold)
    }

    async fn view(&self, name: LockName) -> Result<TimedLockView, LockError> {
        let shown = self.shared.wire.show(&name).await?;
        let micros = |ttl: Duration| u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
        let held = shown.held.map(|(owner, fence, ttl)| (owner, fence, micros(ttl)));
        Ok(TimedLockView { view: LockView { held, holders: shown.holders, waiters: shown.waiters }, now_us: 0 })
    }
}

/// A request under way. Dropping it before a certain answer takes back what it may have got.
struct Unanswered {
    shared: Arc<Shared>,
    acquire: Option<Acquire>,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(acquire) = self.acquire.take() {
            let shared = Arc::clone(&self.shared);
            self.shared.spawn(async move { shared.wire.take_back(&acquire, TAKE_BACK).await });
        }
    }
}

/// What renews a hold.
struct Core {
    shared: Arc<Shared>,
    name: LockName,
    handle: LockHandle,
    /// The lease that renewals ask for.
    lease_ms: AtomicU32,
    deadline: watch::Sender<Instant>,
}

impl Core {
    fn lease(&self) -> Duration {
        Duration::from_millis(u64::from(self.lease_ms.load(Ordering::Relaxed)))
    }

    fn deadline(&self) -> Instant {
        *self.deadline.borrow()
    }

    fn is_lost(&self) -> bool {
        self.deadline() <= now()
    }

    async fn renew(&self) -> Result<(), LockError> {
        let (sent, lease) = (now(), self.lease());
        // A renewal without an answer leaves time for others before the lease ends.
        match self.shared.wire.renew(&self.name, &self.handle, lease, lease / 3).await {
            Ok(HoldReply::Yes) => {
                // The service never shortens a hold.
                self.deadline.send_modify(|deadline| *deadline = deadline_of(sent, lease).max(*deadline));
                Ok(())
            }
            Ok(HoldReply::No | HoldReply::Perhaps) => {
                self.deadline.send_replace(sent);
                Err(LockError::Lost)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Renews three times per lease until the hold is lost.
    async fn keep_renewing(&self) {
        let mut pause = self.lease() / 3;
        loop {
            sleep(pause).await;
            pause = match self.renew().await {
                Ok(()) => self.lease() / 3,
                Err(LockError::Lost) => return,
                // Sooner than a third of the lease: perhaps there is time for only one more try.
                Err(_) => REPEAT.min(self.lease() / 6),
            };
        }
    }

    /// Releases the hold, repeatedly until there is an answer or the lease is over.
    async fn give_back(&self) {
        let until = self.deadline() + self.lease() / 50 + REPEAT;
        while let Err(StoreError::Busy { .. } | StoreError::Faulted(_) | StoreError::Unknown) =
            self.shared.wire.release(&self.name, &self.handle, Duration::ZERO).await
        {
            if until <= now() {
                break;
            }
            sleep(REPEAT).await;
        }
    }
}

/// Whether a hold was released already.
#[derive(PartialEq, Eq)]
enum Over {
    No,
    Yes,
}

/// A hold with its guards. Dropping it releases the lock in the background.
struct Hold {
    core: Arc<Core>,
    owner: OwnerName,
    fence: Fence,
    mode: Mode,
    /// Tells it from other holds of this process, which may have the same fence if they share the lock.
    number: u64,
    watchdog: Mutex<Option<AbortHandle>>,
    over: Over,
}

impl Hold {
    fn stop_renewing(&self) {
        if let Some(watchdog) = self.watchdog.lock().take() {
            watchdog.abort();
        }
    }

    async fn release(mut self) -> Result<(), LockError> {
        self.stop_renewing();
        let was_lost = self.core.is_lost();
        // After the lease there is nothing to release. Without an answer, or if this future is dropped, the release goes
        // on in the background.
        let left = self.core.deadline().saturating_duration_since(now());
        let released = self.core.shared.wire.release(&self.core.name, &self.core.handle, left).await?;
        self.over = Over::Yes;
        match released {
            HoldReply::Yes => Ok(()),
            HoldReply::Perhaps if !was_lost => Ok(()),
            HoldReply::No | HoldReply::Perhaps => Err(LockError::Lost),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.stop_renewing();
        if self.over == Over::No {
            let core = Arc::clone(&self.core);
            self.core.shared.spawn(async move { core.give_back().await });
        }
    }
}

impl OtherLocks for ServiceLocks {
    fn guarantees(&self) -> Guarantees {
        Guarantees::HTTP
    }

    fn acquire<'a>(&'a self, terms: &'a Terms) -> BoxFuture<'a, Result<Arc<dyn OtherHold>, LockError>> {
        Box::pin(async move { Ok(Arc::new(self.get(terms).await?) as Arc<dyn OtherHold>) })
    }

    fn view(&self, name: LockName) -> BoxFuture<'_, Result<TimedLockView, LockError>> {
        Box::pin(self.view(name))
    }

    fn can_leave(&self) -> bool {
        true
    }

    fn quiet(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // The wait fails only if the sender is gone, which lives as long as `self.shared`.
            let _ = self.shared.leaving.subscribe().wait_for(|leaving| *leaving == 0).await;
        })
    }
}

impl OtherHold for Hold {
    fn name(&self) -> &str {
        self.core.name.as_str()
    }

    fn fence(&self) -> Option<Fence> {
        Some(self.fence)
    }

    fn token(&self, fence: Fence) -> Result<FenceToken, LockError> {
        let Self { core, owner, number, mode, .. } = self;
        let request = Request { client: core.shared.client, number: *number };
        Ok(FenceToken::of_mode(&core.name, fence, owner, request, *mode))
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.core.deadline())
    }

    fn is_lost(&self) -> bool {
        self.core.is_lost()
    }

    fn lost(&self) -> BoxFuture<'static, ()> {
        let mut deadline = self.core.deadline.subscribe();
        Box::pin(async move {
            loop {
                let until = *deadline.borrow_and_update();
                match timeout_at(until.into(), deadline.changed()).await {
                    Ok(Ok(())) => {}
                    // Released.
                    Ok(Err(_)) => std::future::pending().await,
                    Err(_) => return,
                }
            }
        })
    }

    fn reenter(self: Arc<Self>) -> BoxFuture<'static, Result<Arc<dyn OtherHold>, LockError>> {
        share(self)
    }

    fn renew(&self, lease: Duration) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            let lease_ms = lease_ms(lease)?;
            if self.is_lost() {
                return Err(LockError::Lost);
            }
            self.core.lease_ms.store(lease_ms, Ordering::Relaxed);
            self.core.renew().await
        })
    }

    fn leave(self: Arc<Self>) {
        // Its `Drop` stops the renewals.
        if let Some(mut last) = Arc::into_inner(self) {
            last.over = Over::Yes;
        }
    }

    fn release(self: Arc<Self>) -> BoxFuture<'static, Result<(), LockError>> {
        Box::pin(async move {
            let Some(last) = Arc::into_inner(self) else { return Ok(()) };
            last.release().await
        })
    }
}
