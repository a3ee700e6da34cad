//! The lease of this process, and its deadline.

use super::EtcdOptions;
use super::error::{EtcdError, Sent};
use super::link::{EtcdLink, LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE};
use super::messages::{
    Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseRequest,
    LeaseRevokeResponse, Op, PutRequest, TxnRequest,
};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout, timeout_at};

/// The pause before a failed request is tried again.
pub(crate) const REPEAT: Duration = Duration::from_millis(100);
/// The allowance for the time between reading a clock and the event that the reading stands for.
const GRAIN: Duration = Duration::from_millis(2);

#[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns until when a lease certainly lasts whose request left at `sent`: one per cent less than its length, by which two
/// clocks may disagree. The server counts from when it handles the request, which is later than `sent`.
fn deadline_of(sent: Instant, ttl: Duration) -> Instant {
    sent + (ttl - ttl / 100).saturating_sub(GRAIN)
}

/// A lease, kept alive until the session is dropped, with all places of this process. A lost session stays lost.
pub(crate) struct Session {
    link: EtcdLink,
    runtime: Handle,
    lease: i64,
    ttl: Duration,
    deadline: watch::Sender<Instant>,
    numbers: AtomicU64,
    /// The key of the barrier: only transactions that name its last revision can create places.
    barrier: Vec<u8>,
    barrier_revision: AtomicI64,
}

impl Session {
    /// Gets a lease. Two round trips.
    pub(crate) async fn open(link: &EtcdLink, options: &EtcdOptions) -> Result<Arc<Self>, EtcdError> {
        let sent = now();
        let wanted = LeaseGrantRequest { ttl_s: options.lease.as_secs_f64().ceil() as i64 };
        // `Read`, since a lost answer does no harm: the lease ends by itself.
        let granted: LeaseGrantResponse = link.call(LEASE_GRANT, wanted, Sent::Read, link.answer_timeout()).await?;
        if granted.id == 0 || granted.ttl_s <= 0 {
            return Err(EtcdError::broken(format!("etcd granted no lease: {}", granted.error)));
        }
        let ttl = Duration::from_secs(granted.ttl_s.unsigned_abs());
        let barrier = format!("{}session/{:016x}", options.prefix, granted.id).into_bytes();
        let session = Arc::new(Self {
            link: link.clone(),
            runtime: Handle::current(),
            lease: granted.id,
            ttl,
            deadline: watch::Sender::new(deadline_of(sent, ttl)),
            numbers: AtomicU64::default(),
            barrier,
            barrier_revision: AtomicI64::default(),
        });
        session.move_barrier(&[]).await?;
        session.runtime.spawn(keep_alive(Arc::downgrade(&session), ttl / 3, session.lost()));
        Ok(session)
    }

    pub(crate) const fn link(&self) -> &EtcdLink {
        &self.link
    }

    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(crate) const fn lease(&self) -> i64 {
        self.lease
    }

    pub(crate) const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns a number that is unique in this session.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Makes the condition that the barrier has not moved since this call.
    pub(crate) fn barrier_is_unchanged(&self) -> Compare {
        Compare::modified(&self.barrier, self.barrier_revision.load(Ordering::Acquire))
    }

    pub(crate) fn barrier_key(&self) -> &[u8] {
        &self.barrier
    }

    /// Notes the barrier's revision. An old revision costs a round trip: no transaction succeeds with it.
    pub(crate) fn barrier_seen(&self, revision: i64) {
        self.barrier_revision.store(revision, Ordering::Release);
    }

    /// Deletes a key that exists, or that a delayed transaction could still create. Every such transaction names the barrier's
    /// revision, which changes here. One round trip.
    pub(crate) async fn move_barrier(&self, key: &[u8]) -> Result<(), EtcdError> {
        let put = Op::Put(PutRequest { key: self.barrier.clone(), value: Vec::new(), lease: self.lease });
        let mut success = vec![put.into()];
        if !key.is_empty() {
            success.push(Op::Delete(DeleteRangeRequest { key: key.to_vec() }).into());
        }
        let told = self.link.transact(TxnRequest { compare: vec![], success, failure: vec![] }).await?;
        self.barrier_seen(told.revision());
        Ok(())
    }

    pub(crate) fn deadline(&self) -> Instant {
        *self.deadline.borrow()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.deadline() <= now()
    }

    /// Resolves at the deadline, or earlier if the lease is known to be over.
    pub(crate) fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut deadline = self.deadline.subscribe();
        async move {
            loop {
                let until = *deadline.borrow_and_update();
                match timeout_at(until.into(), deadline.changed()).await {
                    Ok(Ok(())) => {}
                    // The session was dropped, and its places with it.
                    Ok(Err(_)) => std::future::pending().await,
                    Err(_) => return,
                }
            }
        }
    }

    /// Marks the lease as over, no matter what the clock shows.
    pub(crate) fn lose(&self) {
        let now = now();
        self.deadline.send_if_modified(|deadline| {
            let lives = now < *deadline;
            *deadline = now.min(*deadline);
            lives
        });
    }

    /// Renews the lease for its whole length from now on. One round trip.
    pub(crate) async fn renew(&self) -> Result<(), EtcdError> {
        let sent = now();
        // Short enough for a second try before the deadline.
        let limit = self.link.answer_timeout().min(self.ttl / 3);
        let question = LeaseRequest { id: self.lease };
        let told = self.link.call(LEASE_KEEP_ALIVE, question, Sent::Read, limit).await;
        match told {
            Ok(LeaseKeepAliveResponse { ttl_s: 1.. }) => {}
            Ok(_) | Err(EtcdError::LeaseOver) => {
                self.lose();
                return Err(EtcdError::LeaseOver);
            }
            Err(error) => return Err(error),
        }
        let (now, until) = (now(), deadline_of(sent, self.ttl));
        // A lost lease stays lost: its holders have been told.
        let mut lives = true;
        self.deadline.send_if_modified(|deadline| {
            lives = now < *deadline;
            let longer = lives && *deadline < until;
            if longer {
                *deadline = until;
            }
            longer
        });
        if lives { Ok(()) } else { Err(EtcdError::LeaseOver) }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.runtime.spawn(revoke(self.link.clone(), self.lease, self.ttl));
    }
}

/// Keeps a session alive until it is dropped or lost.
async fn keep_alive(session: Weak<Session>, third: Duration, lost: impl Future<Output = ()>) {
    let mut lost = pin!(lost);
    let mut pause = third;
    loop {
        let over = timeout(pause, &mut lost).await.is_ok();
        let Some(session) = session.upgrade() else { return };
        let renewed = if over {
            Err(EtcdError::LeaseOver)
        } else {
            tokio::select! {
                biased;
                () = &mut lost => Err(EtcdError::LeaseOver),
                renewed = session.renew() => renewed,
            }
        };
        pause = match renewed {
            Ok(()) => third,
            Err(EtcdError::LeaseOver) => {
                // The keys block other processes until the server ends the lease too.
                revoke(session.link.clone(), session.lease, session.ttl).await;
                return;
            }
            // Sooner than after a third: there may be time for only one more try.
            Err(_) => REPEAT.min(third / 2),
        };
    }
}

/// Revokes a lease, which deletes its keys. Tries for as long as the lease can last without a renewal.
async fn revoke(link: EtcdLink, lease: i64, ttl: Duration) {
    let until = now() + ttl + ttl / 100 + GRAIN;
    loop {
        let question = LeaseRequest { id: lease };
        let told: Result<LeaseRevokeResponse, _> =
            link.call(LEASE_REVOKE, question, Sent::Write, link.answer_timeout()).await;
        if matches!(told, Ok(_) | Err(EtcdError::LeaseOver)) || until <= now() {
            return;
        }
        sleep(REPEAT).await;
    }
}
