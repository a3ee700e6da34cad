//! Locks: who is first in line.

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
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{sleep, timeout_at};

/// Locks of one cluster, held by one lease. Cheap to clone; clones share the lease. See the [module](super).
#[derive(Clone)]
pub struct EtcdLocks {
    shared: Arc<Shared>,
}

struct Shared {
    link: EtcdLink,
    options: EtcdOptions,
    watcher: Watcher,
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
}

/// What became of a wish for a lock.
#[derive(Debug)]
pub enum Taken {
    /// It is ours.
    Held(EtcdHold),
    /// A process has it, and waiting was not wanted.
    Contended {
        /// Who.
        holder: String,
        /// How long that lasts at most unless it is renewed, from its last renewal on.
        lasts: Duration,
        /// How many wait for it.
        waiters: u32,
    },
    /// The wait was over before it was this one's turn.
    TimedOut,
}

/// A lock as everybody may see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdLockView {
    /// Who has it, and by which fence.
    pub holder: Option<(String, Fence)>,
    /// How many wait.
    pub waiters: u32,
}

/// What to write to etcd under a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EtcdWrite {
    /// Writes a value.
    Put {
        /// Where.
        key: Vec<u8>,
        /// What.
        value: Vec<u8>,
    },
    /// Deletes a key, if it is there.
    Delete {
        /// Which.
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
    /// Connects to `etcd://[user:password@]host[:port][,host[:port]…]`, looks whether it will do, and asks for a lease. Call within
    /// a Tokio runtime, which then keeps the lease.
    ///
    /// Refused with [`EtcdError::Broken`] for a wrong address, user or password, for lack of rights, and for a version before 3.4.
    pub async fn open(url: &str, options: EtcdOptions) -> Result<Self, EtcdError> {
        options.check()?;
        let link = EtcdLink::new(url, &options)?;
        link.check_version().await?;
        let session = Session::open(&link, &options).await?;
        let watcher = Watcher::new(link.clone());
        let session = tokio::sync::Mutex::new(Some(session));
        Ok(Self { shared: Arc::new(Shared { link, options, watcher, session }) })
    }

    /// The link, for questions of one's own.
    pub fn link(&self) -> &EtcdLink {
        &self.shared.link
    }

    /// What has been done so far.
    pub fn counts(&self) -> Counts {
        self.shared.link.counts()
    }

    /// Takes a lock, after waiting for at most so long; for no time if that is zero, and then without a place in line. One
    /// round trip if it is free; two more, and a message, if it is waited for.
    ///
    /// A try whose answer is lost is repeated as the same: as long as the wait lasts, or, without one, for the time of an answer. So
    /// is a place that is lost with the lease, at the end of the line.
    ///
    /// Cancel-safe: a future that is dropped gives its place up in the background.
    ///
    /// Fails if etcd cannot be reached for all of that time, or at once if it will not do. Nothing is held then.
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

    /// Shows a lock. One round trip.
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

    /// Ends the lease, and with it every hold and every place of this process. For the end of a program, which would otherwise
    /// leave behind for a lease what is still being given back. One round trip.
    pub async fn close(&self) -> Result<(), EtcdError> {
        let Some(session) = self.shared.session.lock().await.take() else { return Ok(()) };
        // Before others can have what it held.
        session.lose();
        let (link, question) = (&self.shared.link, LeaseRequest { id: session.lease() });
        let told: Result<LeaseRevokeResponse, _> =
            link.call(LEASE_REVOKE, question, Sent::Write, link.answer_timeout()).await;
        match told {
            Ok(_) | Err(EtcdError::LeaseOver) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The lease, or another one if it is lost.
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

/// A process that wants a lock.
struct Wish<'a> {
    locks: &'a EtcdLocks,
    places: Vec<u8>,
    owner: &'a OwnerName,
    mode: Mode,
    until: Instant,
}

impl Wish<'_> {
    /// By one lease.
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

    /// Gets in, or looks again.
    async fn step(&self, claim: &mut Claim) -> Result<Entered, EtcdError> {
        if claim.revision().is_some() { claim.look().await } else { claim.enter(self.mode).await }
    }

    /// Got in after a process, since an answer was lost, though no place was wanted.
    async fn contended(&self) -> Result<Taken, EtcdError> {
        let link = self.locks.link();
        let found: RangeResponse =
            link.call(RANGE, first_place(&self.places), Sent::Read, link.answer_timeout()).await?;
        let (occupied, _) = Occupied::of(&found).ok_or(EtcdError::LeaseOver)?;
        let Occupied { holder, lasts, waiters } = occupied;
        Ok(Taken::Contended { holder, lasts, waiters })
    }

    /// Waits until the place before may be gone. `false` if the time is over first.
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

/// A lock that is held. Dropped, it is given back in the background.
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

    /// The fence: the revision that made the key.
    pub const fn fence(&self) -> Fence {
        self.fence
    }

    /// The key that holds the lock, as long as it was created by the revision that is the fence: what a transaction of one's
    /// own compares.
    pub fn key(&self) -> &[u8] {
        self.claim.key()
    }

    /// The lease on which it rests.
    pub fn lease(&self) -> i64 {
        self.claim.session().lease()
    }

    /// Until when it certainly lasts unless the lease is renewed. In the past once it is lost. No request.
    pub fn deadline(&self) -> Instant {
        let deadline = self.claim.session().deadline();
        if *self.key_gone.borrow() { deadline.min(now()) } else { deadline }
    }

    /// Whether it is lost. No request.
    pub fn is_lost(&self) -> bool {
        self.deadline() <= now()
    }

    /// Resolves when it is lost, at the latest at its deadline; never once it was given back.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let (mut key_gone, lease_lost) = (self.key_gone.subscribe(), self.claim.session().lost());
        async move {
            tokio::select! {
                biased;
                gone = async { key_gone.wait_for(|gone| *gone).await.is_ok() } => if !gone {
                    // Given back.
                    std::future::pending::<()>().await;
                },
                () = lease_lost => {}
            }
        }
    }

    /// Renews the lease, and looks whether the key is still there. Two round trips.
    ///
    /// Fails with [`EtcdError::LeaseOver`] if it is lost.
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

    /// Writes all of this to etcd, or nothing if the lock is not held any more when etcd does it. Returns the revision that did. One
    /// round trip.
    ///
    /// Fails with [`EtcdError::LeaseOver`] if it is lost, and with [`EtcdError::Unknown`] if it may have been written.
    pub async fn write(&self, writes: Vec<EtcdWrite>) -> Result<u64, EtcdError> {
        let success = writes.into_iter().map(|write| Op::from(write).into()).collect();
        let compare = vec![Compare::created(self.key(), self.revision)];
        let told = self.claim.session().link().transact(TxnRequest { compare, success, failure: vec![] }).await?;
        if told.succeeded { Ok(told.revision().unsigned_abs()) } else { self.gone() }
    }

    /// Gives it back. Returns whether it was held until then: `false` also if no process can say. One round trip, repeated until there
    /// is an answer or the lease is over.
    ///
    /// A future that is dropped leaves it to the background.
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
