//! What a request demands of its store, checked before anything is sent.

use super::LockError;
use firstcome_store::{Demand, Guarantees};

/// The demands of one request.
#[derive(Clone, Copy, Default)]
pub(super) struct Demands {
    ordered: Option<Demand>,
    fenced: Option<Demand>,
}

impl Demands {
    pub(super) const fn ordered(mut self) -> Self {
        self.ordered = Some(Demand::Ordered);
        self
    }

    pub(super) const fn fenced(mut self) -> Self {
        self.fenced = Some(Demand::Fenced);
        self
    }

    /// Fails with [`LockError::NotGuaranteed`] if the store does not meet every demand.
    pub(super) fn check(self, store: Guarantees) -> Result<(), LockError> {
        let unmet = [self.ordered, self.fenced].into_iter().flatten().find(|demand| !store.meets(*demand));
        unmet.map_or(Ok(()), |demand| Err(LockError::NotGuaranteed { demand }))
    }
}
