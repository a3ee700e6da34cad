//! The lease of this process, and until when it certainly lasts.

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

/// Between two tries of what got no answer.
pub(crate) const REPEAT: Duration = Duration::from_millis(100);
/// Clocks are read a moment before or after what they are read for.
const GRAIN: Duration = Duration::from_millis(2);

#[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Until when a lease that was asked for at `sent` certainly lasts: one per cent less, as two clocks may disagree by. The
/// server counts from when it does what was asked, which is not before that.
fn deadline_of(sent: Instant, ttl: Duration) -> Instant {
    sent + (ttl - ttl / 100).saturating_sub(GRAIN)
}

/// A lease, kept alive until it is dropped, and everything that this process has with it. Once it is lost it stays so.
pub(crate) struct Session {
    link: EtcdLink,
    runtime: Handle,
    lease: i64,
    ttl: Duration,
    deadline: watch::Sender<Instant>,
    numbers: AtomicU64,
    /// A key that says which of our places may still be made: those that name its last revision.
    barrier: Vec<u8>,
    barrier_revision: AtomicI64,
}

impl Session {
    /// Asks for a lease. Two round trips.
    pub(crate) async fn open(link: &EtcdLink, options: &EtcdOptions) -> Result<Arc<Self>, EtcdError> {
        let sent = now();
        let wanted = LeaseGrantRequest { ttl_s: options.lease.as_secs_f64().ceil() as i64 };
        // A lease that no process hears of ends by itself.
        let granted: LeaseGrantResponse = link.call(LEASE_GRANT, wanted, Sent::Read, link.answer_timeout()).await?;
        if granted.id == 0 || granted.ttl_s <= 0 {
            return Err(EtcdError::broken(format!("it gives no lease: {}", granted.error)));
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

    /// A number that nothing else of this session has.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// That the barrier has not moved since this was asked for.
    pub(crate) fn barrier_is_unchanged(&self) -> Compare {
        Compare::modified(&self.barrier, self.barrier_revision.load(Ordering::Acquire))
    }

    pub(crate) fn barrier_key(&self) -> &[u8] {
        &self.barrier
    }

    /// A process has seen its revision. One that is out of date costs a round trip: nothing gets through with it.
    pub(crate) fn barrier_seen(&self, revision: i64) {
        self.barrier_revision.store(revision, Ordering::Release);
    }

    /// Deletes a key that may have been made, or may yet be made by something that is still on its way: everything that goes through
    /// the barrier names its revision, which is another one after this. One round trip.
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

    /// Resolves at the deadline, or when the lease is known to be over before.
    pub(crate) fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut deadline = self.deadline.subscribe();
        async move {
            loop {
                let until = *deadline.borrow_and_update();
                match timeout_at(until.into(), deadline.changed()).await {
                    Ok(Ok(())) => {}
                    // Dropped with all that it had.
                    Ok(Err(_)) => std::future::pending().await,
                    Err(_) => return,
                }
            }
        }
    }

    /// It is over, no matter what the clock says.
    pub(crate) fn lose(&self) {
        let now = now();
        self.deadline.send_if_modified(|deadline| {
            let lives = now < *deadline;
            *deadline = now.min(*deadline);
            lives
        });
    }

    /// Lets the lease last for all of its time from now on. One round trip.
    pub(crate) async fn renew(&self) -> Result<(), EtcdError> {
        let sent = now();
        // Of two tries one is to come in time.
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
        // What was lost once stays so: its holders have been told.
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

/// Keeps a session alive until it is dropped, or lost.
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
                // Its keys are in the way of others until the server ends it too.
                revoke(session.link.clone(), session.lease, session.ttl).await;
                return;
            }
            // Sooner than in a third: there is perhaps only one more try.
            Err(_) => REPEAT.min(third / 2),
        };
    }
}

/// Ends a lease, which takes its keys along. Tried for as long as it can last without us.
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
