//! Takes, shows and releases locks on etcd.

use super::claim::{Claim, Entered, Left, Mode, Occupied, first_place, places};
use super::error::{EtcdError, Sent};
use super::link::{EtcdLink, LEASE_REVOKE, RANGE};
use super::messages::{
    Compare, DeleteRangeRequest, LeaseRequest, LeaseRevokeResponse, Op, PutRequest, RangeRequest, RangeResponse,
    TxnRequest,
};
use super::session::{REPEAT, Session, now};
use super::watcher::Watcher;
use super::{Counts, EtcdOptions};
use firstcome_core::id::{LockName, OwnerName};
use firstcome_core::lock::Fence;
use firstcome_store::Guarantees;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{sleep, timeout_at};

/// The locks of one cluster, held by one lease. Cheap to clone; clones share the lease. See the [module](super).
#[derive(Clone)]
pub struct EtcdLocks {
    shared: Arc<Shared>,
}

firstcome_core::debug_by_name!(EtcdLocks);

struct Shared {
    link: EtcdLink,
    options: EtcdOptions,
    watcher: Watcher,
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
}

/// The result of a take.
#[derive(Debug)]
pub enum Taken {
    /// The lock is held.
    Held(EtcdHold),
    /// Another request has the lock, and this one did not want to wait.
    Contended {
        /// The holder's name.
        holder: String,
        /// How long the hold lasts at most after its last renewal.
        lasts: Duration,
        /// How many requests wait for it.
        waiters: u32,
    },
    /// The wait ended before the lock was free.
    TimedOut,
}

/// A lock as every client may see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdLockView {
    /// The holder's name and its fence.
    pub holder: Option<(String, Fence)>,
    /// How many requests wait.
    pub waiters: u32,
}

/// A write to etcd under a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EtcdWrite {
    /// Writes a value.
    Put {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Deletes a key, if it is there.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
}

impl From<EtcdWrite> for Op {
    fn from(write: EtcdWrite) -> Self {
        match write {
            EtcdWrite::Put { key, value } => Self::Put(PutRequest { key, value, lease: 0 }),
            EtcdWrite::Delete { key } => Self::Delete(DeleteRangeRequest { key }),
        }
    }
}

impl EtcdLocks {
    /// What the store promises for these locks. No request.
    pub const fn guarantees(&self) -> Guarantees {
        Guarantees::ETCD
    }

    /// Connects to `etcd://[user:password@]host[:port][,host[:port]…]`, checks the server's version, and gets a lease. Call it
    /// within a Tokio runtime, which then keeps the lease alive.
    ///
    /// Fails with [`EtcdError::Broken`] for a wrong address, user or password, for missing rights, and for a version before 3.4.
    pub async fn open(url: &str, options: EtcdOptions) -> Result<Self, EtcdError> {
        options.check()?;
        let link = EtcdLink::new(url, &options)?;
        link.check_version().await?;
        let session = Session::open(&link, &options).await?;
        let watcher = Watcher::new(link.clone());
        let session = tokio::sync::Mutex::new(Some(session));
        Ok(Self { shared: Arc::new(Shared { link, options, watcher, session }) })
    }

    /// Returns the link to etcd, for other requests of the caller.
    pub fn link(&self) -> &EtcdLink {
        &self.shared.link
    }

    /// The lease of this process, as set. etcd may have granted a longer one.
    pub fn lease(&self) -> Duration {
        self.shared.options.lease
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        self.shared.link.counts()
    }

    /// Takes a lock, and waits for it at most this long. With a zero wait it takes no place in line. A free lock costs one round
    /// trip; a wait costs two more, and a message.
    ///
    /// Repeats a try whose answer is lost as the same try: as long as the wait lasts, or, without a wait, for the time of one
    /// answer. After the loss of the lease it joins the line again, at the end.
    ///
    /// Cancel-safe: a dropped future gives its place up in the background.
    ///
    /// Fails if etcd cannot be reached for all of that time, or at once for an error that cannot pass. Then it holds nothing.
    pub async fn take(&self, name: &LockName, owner: &OwnerName, wait: Duration) -> Result<Taken, EtcdError> {
        let options = &self.shared.options;
        let (mode, patience) = match wait {
            Duration::ZERO => (Mode::Try, options.answer_timeout + options.connect_timeout),
            wait => (Mode::Wait, wait),
        };
        let wish = Wish { locks: self, places: places(&options.prefix, name), owner, mode, until: now() + patience };
        loop {
            match wish.attempt().await {
                Err(error) if error.may_pass() || error == EtcdError::LeaseOver => {
                    if wish.until <= now() {
                        let was_in_line = error == EtcdError::LeaseOver && mode == Mode::Wait;
                        return if was_in_line { Ok(Taken::TimedOut) } else { Err(error) };
                    }
                    sleep(REPEAT).await;
                }
                told => return told,
            }
        }
    }

    /// Returns a view of a lock. One round trip.
    pub async fn view(&self, name: &LockName) -> Result<EtcdLockView, EtcdError> {
        let link = &self.shared.link;
        let question = first_place(&places(&self.shared.options.prefix, name));
        let found: RangeResponse = link.call(RANGE, question, Sent::Read, link.answer_timeout()).await?;
        Ok(match Occupied::of(&found) {
            Some((occupied, first)) => EtcdLockView {
                holder: Some((occupied.holder, fence(first.create_revision)?)),
                waiters: occupied.waiters,
            },
            None => EtcdLockView { holder: None, waiters: 0 },
        })
    }

    /// Ends the lease, and with it every hold and every place of this process. Call it at the end of a program: otherwise
    /// releases that are still under way may leave their keys until the lease ends. One round trip.
    pub async fn close(&self) -> Result<(), EtcdError> {
        let Some(session) = self.shared.session.lock().await.take() else { return Ok(()) };
        // Before other processes can get the locks that this one held.
        session.lose();
        let (link, question) = (&self.shared.link, LeaseRequest { id: session.lease() });
        let told: Result<LeaseRevokeResponse, _> =
            link.call(LEASE_REVOKE, question, Sent::Write, link.answer_timeout()).await;
        match told {
            Ok(_) | Err(EtcdError::LeaseOver) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the session, or opens a new one if its lease is lost.
    async fn session(&self) -> Result<Arc<Session>, EtcdError> {
        let mut slot = self.shared.session.lock().await;
        if let Some(session) = slot.as_ref().filter(|session| !session.is_lost()) {
            return Ok(Arc::clone(session));
        }
        *slot = None;
        let session = Session::open(&self.shared.link, &self.shared.options).await?;
        *slot = Some(Arc::clone(&session));
        Ok(session)
    }
}

fn fence(revision: i64) -> Result<Fence, EtcdError> {
    let fence = u64::try_from(revision).ok().and_then(Fence::new);
    fence.ok_or_else(|| EtcdError::broken("its revisions are beyond 2^53"))
}

/// One request for a lock.
struct Wish<'a> {
    locks: &'a EtcdLocks,
    places: Vec<u8>,
    owner: &'a OwnerName,
    mode: Mode,
    until: Instant,
}

impl Wish<'_> {
    /// Tries once, with one lease.
    async fn attempt(&self) -> Result<Taken, EtcdError> {
        let session = timeout_at(self.until.into(), self.locks.session()).await;
        let session = session.unwrap_or_else(|_| Err(EtcdError::late(Sent::Read)))?;
        let mut claim = Claim::new(&session, &self.places, self.owner, session.number());
        loop {
            let entered = timeout_at(self.until.into(), self.step(&mut claim)).await;
            match entered {
                Ok(Ok(Entered::First)) if session.is_lost() => return Err(EtcdError::LeaseOver),
                Ok(Ok(Entered::First)) => return EtcdHold::new(claim).map(Taken::Held),
                Ok(Ok(Entered::Taken(Occupied { holder, lasts, waiters }))) => {
                    return Ok(Taken::Contended { holder, lasts, waiters });
                }
                Ok(Ok(Entered::Gone)) => return Err(EtcdError::LeaseOver),
                Ok(Ok(Entered::Again)) => {}
                Ok(Ok(Entered::After { .. })) if self.mode == Mode::Try => return self.contended().await,
                Ok(Ok(Entered::After { before, at_revision })) => {
                    if !self.wait_for_end(&session, &before, at_revision).await? {
                        return Ok(Taken::TimedOut);
                    }
                }
                Ok(Err(error)) if error.may_pass() && now() < self.until => sleep(REPEAT).await,
                Ok(Err(error)) => return Err(error),
                Err(_) if claim.revision().is_some() => return Ok(Taken::TimedOut),
                Err(_) => return Err(EtcdError::late(Sent::Write)),
            }
        }
    }

    /// Joins the line, or looks again at the places before its own.
    async fn step(&self, claim: &mut Claim) -> Result<Entered, EtcdError> {
        if claim.revision().is_some() { claim.look().await } else { claim.enter(self.mode).await }
    }

    /// Handles a try that joined behind another place though it wanted none: an earlier answer was lost.
    async fn contended(&self) -> Result<Taken, EtcdError> {
        let link = self.locks.link();
        let found: RangeResponse =
            link.call(RANGE, first_place(&self.places), Sent::Read, link.answer_timeout()).await?;
        let (occupied, _) = Occupied::of(&found).ok_or(EtcdError::LeaseOver)?;
        let Occupied { holder, lasts, waiters } = occupied;
        Ok(Taken::Contended { holder, lasts, waiters })
    }

    /// Waits until the place before this one may be gone. Returns false if the time is over first.
    async fn wait_for_end(&self, session: &Session, before: &[u8], at_revision: i64) -> Result<bool, EtcdError> {
        let mut watched = self.locks.shared.watcher.watch(before, at_revision + 1);
        tokio::select! {
            biased;
            () = session.lost() => Err(EtcdError::LeaseOver),
            told = timeout_at(self.until.into(), watched.gone()) => {
                if told.is_ok() {
                    self.locks.link().count_wake();
                }
                Ok(told.is_ok())
            }
        }
    }
}

/// A held lock. Its drop releases it in the background.
pub struct EtcdHold {
    claim: Claim,
    revision: i64,
    fence: Fence,
    /// Whether its key is known to be gone though the lease is not.
    key_gone: watch::Sender<bool>,
}

impl EtcdHold {
    fn new(claim: Claim) -> Result<Self, EtcdError> {
        let revision = claim.revision().ok_or(EtcdError::LeaseOver)?;
        Ok(Self { claim, revision, fence: fence(revision)?, key_gone: watch::Sender::new(false) })
    }

    /// Returns the fence: the revision that created the key.
    pub const fn fence(&self) -> Fence {
        self.fence
    }

    /// Returns the key of the hold. The lock is held as long as the revision that created this key is the fence. The caller's
    /// own transactions can compare it.
    pub fn key(&self) -> &[u8] {
        self.claim.key()
    }

    /// Returns the id of the lease behind the hold.
    pub fn lease(&self) -> i64 {
        self.claim.session().lease()
    }

    /// Returns until when the hold certainly lasts without a renewal of the lease. In the past once it is lost. Sends nothing.
    pub fn deadline(&self) -> Instant {
        let deadline = self.claim.session().deadline();
        if *self.key_gone.borrow() { deadline.min(now()) } else { deadline }
    }

    /// Returns whether the hold is lost. Sends nothing.
    pub fn is_lost(&self) -> bool {
        self.deadline() <= now()
    }

    /// Resolves when the hold is lost, at the latest at its deadline. Never resolves after a release.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let (mut key_gone, lease_lost) = (self.key_gone.subscribe(), self.claim.session().lost());
        async move {
            tokio::select! {
                biased;
                gone = async { key_gone.wait_for(|gone| *gone).await.is_ok() } => if !gone {
                    // The hold was released.
                    std::future::pending::<()>().await;
                },
                () = lease_lost => {}
            }
        }
    }

    /// Renews the lease, and checks that the key still exists. Two round trips.
    ///
    /// Fails with [`EtcdError::LeaseOver`] if the hold is lost.
    pub async fn renew(&self) -> Result<(), EtcdError> {
        if self.is_lost() {
            return Err(EtcdError::LeaseOver);
        }
        self.claim.session().renew().await?;
        let link = self.claim.session().link();
        let question = RangeRequest { key: self.key().to_vec(), keys_only: true, ..RangeRequest::default() };
        let found: RangeResponse = link.call(RANGE, question, Sent::Read, link.answer_timeout()).await?;
        if found.kvs.iter().any(|key| key.create_revision == self.revision) { Ok(()) } else { self.gone() }
    }

    fn gone<T>(&self) -> Result<T, EtcdError> {
        self.key_gone.send_replace(true);
        Err(EtcdError::LeaseOver)
    }

    /// Writes everything to etcd, or nothing if the lock is no longer held at that moment. Returns the revision of the write.
    /// One round trip.
    ///
    /// Fails with [`EtcdError::LeaseOver`] if the hold is lost, and with [`EtcdError::Unknown`] if etcd may have done the write.
    pub async fn write(&self, writes: Vec<EtcdWrite>) -> Result<u64, EtcdError> {
        let success = writes.into_iter().map(|write| Op::from(write).into()).collect();
        let compare = vec![Compare::created(self.key(), self.revision)];
        let told = self.claim.session().link().transact(TxnRequest { compare, success, failure: vec![] }).await?;
        if told.succeeded { Ok(told.revision().unsigned_abs()) } else { self.gone() }
    }

    /// Releases the lock. Returns whether it was held until then; false also if that is unknown. One round trip, repeated until
    /// there is an answer or the lease is over.
    ///
    /// A dropped future continues the release in the background.
    pub async fn release(self) -> Result<bool, EtcdError> {
        let was_lost = self.is_lost();
        Ok(match self.claim.leave().await {
            Ok(Left::Held) => true,
            Ok(Left::Perhaps) => !was_lost,
            Ok(Left::NotHeld) | Err(EtcdError::LeaseOver) => false,
            Err(error) => return Err(error),
        })
    }
}

impl fmt::Debug for EtcdHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdHold({}, fence {})", String::from_utf8_lossy(self.key()), self.fence)
    }
}
