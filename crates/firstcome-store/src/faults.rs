//! The open faults, by the object that each one stops.
//!
//! A store that finds a problem with one coupon, room or server raises a fault under the name of that object. It clears
//! the fault when the object works again. `/readyz`, the status page and the metrics read the list.
//!
//! A fault says how much it stops. A node whose whole store has one should get no requests. A node where one coupon or
//! room has one serves all others.
//!
//! # Invariants
//! - An object has at most one open fault. A later fault of the same kind changes nothing.
//! - Each fault is logged once when it opens and once when it ends, however often it is raised.

use crate::error::{Fault, FaultKind};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much a fault stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultScope {
    /// The store, or a server that all its objects need.
    Store,
    /// One coupon or one room. All others go on.
    Single,
}

/// One open fault.
#[derive(Clone, Debug)]
pub struct OpenFault {
    /// The object that it stops, e.g. `coupon launch`.
    pub object: String,
    /// Whether it stops the store, or this object alone.
    pub scope: FaultScope,
    /// What happened.
    pub fault: Arc<Fault>,
}

/// The open faults of one store. Cheap to clone: clones share the list.
#[derive(Clone, Default, Debug)]
pub struct Faults(Arc<List>);

#[derive(Default, Debug)]
struct List {
    open: Mutex<BTreeMap<String, (FaultScope, Arc<Fault>)>>,
    raised: AtomicU64,
}

impl Faults {
    /// Opens a fault of the store, or of a server that all its objects need, and logs it. If a fault of the same kind is
    /// open already, that one stays, and nothing is logged. Returns the open fault.
    pub fn raise(&self, object: &str, fault: Fault) -> Arc<Fault> {
        self.raise_in(FaultScope::Store, object, fault)
    }

    /// Opens a fault that stops one coupon or room and no other, as [`Self::raise`] does.
    pub fn raise_single(&self, object: &str, fault: Fault) -> Arc<Fault> {
        self.raise_in(FaultScope::Single, object, fault)
    }

    fn raise_in(&self, scope: FaultScope, object: &str, fault: Fault) -> Arc<Fault> {
        let mut open = self.0.open.lock();
        if let Some((_, known)) = open.get(object).filter(|(_, known)| known.kind == fault.kind) {
            return Arc::clone(known);
        }
        let fault = Arc::new(fault);
        open.insert(object.to_owned(), (scope, Arc::clone(&fault)));
        drop(open);
        self.0.raised.fetch_add(1, Ordering::Relaxed);
        tracing::error!(object, code = fault.kind.code(), "{fault}");
        fault
    }

    /// Ends the open fault of an object, if there is one, and logs that.
    pub fn clear(&self, object: &str) {
        if let Some((_, fault)) = self.0.open.lock().remove(object) {
            tracing::info!(object, code = fault.kind.code(), "the fault is over");
        }
    }

    /// Ends the open fault of an object if it is of this kind, and logs that.
    pub fn clear_kind(&self, object: &str, kind: FaultKind) {
        if self.of(object).is_some_and(|fault| fault.kind == kind) {
            self.clear(object);
        }
    }

    /// Returns the open fault of an object.
    pub fn of(&self, object: &str) -> Option<Arc<Fault>> {
        self.0.open.lock().get(object).map(|(_, fault)| Arc::clone(fault))
    }

    /// Returns all open faults, by object.
    pub fn open(&self) -> Vec<OpenFault> {
        let open = self.0.open.lock();
        let shown = |(object, (scope, fault)): (&String, &(FaultScope, Arc<Fault>))| OpenFault {
            object: object.clone(),
            scope: *scope,
            fault: Arc::clone(fault),
        };
        open.iter().map(shown).collect()
    }

    /// Returns how many faults were opened since the store was opened.
    pub fn raised(&self) -> u64 {
        self.0.raised.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_opens_once_and_ends_once() {
        let faults = Faults::default();
        let first = faults.raise_single("coupon a", Fault::new(FaultKind::WentBack, "first"));
        let again = faults.raise_single("coupon a", Fault::new(FaultKind::WentBack, "second"));
        assert!(Arc::ptr_eq(&first, &again));
        faults.raise("redis", Fault::new(FaultKind::Unfit, "evicts"));
        assert_eq!(faults.raised(), 2);
        let open = faults.open();
        let open: Vec<_> = open.iter().map(|open| (&*open.object, open.scope)).collect();
        assert_eq!(open, [("coupon a", FaultScope::Single), ("redis", FaultScope::Store)]);
        faults.clear_kind("redis", FaultKind::WentBack);
        assert!(faults.of("redis").is_some());
        faults.clear("redis");
        faults.clear("coupon a");
        assert!(faults.open().is_empty());
        faults.raise_single("coupon a", Fault::new(FaultKind::WentBack, "third"));
        assert_eq!(faults.raised(), 3);
    }
}
