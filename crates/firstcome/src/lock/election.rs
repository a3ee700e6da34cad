//! Leader election: a lock that is held as long as its holder leads, and whose fence is the term.

use super::{Fence, Guard, LockError, LockRequest};
use crate::fence::FenceToken;
use std::future::Future;
use std::time::Duration;

/// A candidacy, before it is sent. See [`Locks::elect`](super::Locks::elect).
#[derive(Clone, Debug)]
#[must_use = "no process is a candidate before `campaign` or `try_campaign`"]
pub struct Election {
    request: LockRequest,
}

/// The leader. Dropping it gives the lead up in the background; [`Self::resign`] reports whether that succeeded.
#[derive(Debug)]
#[must_use = "the lead is given up when its guard is dropped"]
pub struct Leader {
    guard: Guard,
    term: Fence,
}

impl Election {
    pub(super) const fn new(request: LockRequest) -> Self {
        Self { request: request.fenced() }
    }

    /// Sets how long this process leads after it was last heard of; see [`LockRequest::lease`]. A shorter lease lets
    /// another candidate take over sooner.
    pub fn lease(self, lease: Duration) -> Self {
        Self { request: self.request.lease(lease) }
    }

    /// Sets the candidate's name as other clients see it; see [`LockRequest::owner`].
    pub fn owner(self, owner: &str) -> Self {
        Self { request: self.request.owner(owner) }
    }

    /// Waits until this process leads, for as long as that takes. Candidates lead in the order in which they came, where
    /// the store keeps an order; a candidate that has waited for an hour joins the line again, at its end.
    ///
    /// Costs what [`LockRequest::acquire`] costs. Dropping the future ends the candidacy. Fails as
    /// [`LockRequest::try_acquire`] does, but never with `Contended`.
    pub async fn campaign(self) -> Result<Leader, LockError> {
        loop {
            match self.request.clone().acquire().await {
                Err(LockError::TimedOut { .. }) => {}
                outcome => return Leader::new(outcome?),
            }
        }
    }

    /// Leads if no process does. One request. Fails with [`LockError::Contended`] if one does, and otherwise as
    /// [`LockRequest::try_acquire`].
    pub async fn try_campaign(self) -> Result<Leader, LockError> {
        Leader::new(self.request.try_acquire().await?)
    }
}

impl Leader {
    fn new(guard: Guard) -> Result<Self, LockError> {
        let term = guard.fence()?;
        Ok(Self { guard, term })
    }

    /// The term: above that of every leader of this name before. Write it with everything that the leader decides, and
    /// refuse what a smaller term decided: see [`fence`](crate::fence).
    pub const fn term(&self) -> Fence {
        self.term
    }

    /// Returns what to show to a guarded store: the term with the names of the election and of this leader. Fails as
    /// [`Guard::token`] does.
    pub fn token(&self) -> Result<FenceToken, LockError> {
        self.guard.token()
    }

    /// Whether another process may lead by now. No request.
    pub fn is_over(&self) -> bool {
        self.guard.is_lost()
    }

    /// Resolves when another process may lead by now; before one does, as [`Guard::lost`].
    pub fn over(&self) -> impl Future<Output = ()> + Send + use<> {
        self.guard.lost()
    }

    /// Runs a future until it is done or the term is over: then it is dropped, and the call fails with
    /// [`LockError::Lost`].
    pub async fn run<T>(&self, body: impl Future<Output = T>) -> Result<T, LockError> {
        self.guard.run(body).await
    }

    /// Gives the lead up: the next candidate has it when this returns. Fails as [`Guard::release`] does.
    pub async fn resign(self) -> Result<(), LockError> {
        self.guard.release().await
    }
}
