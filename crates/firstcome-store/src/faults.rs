//! The open faults, by the object that each one stops.
//!
//! A store that finds a problem with one coupon, room or server raises a fault under the name of that object. It clears
//! the fault when the object works again. `/readyz`, the status page and the metrics read the list.
//!
//! # Invariants
//! - An object has at most one open fault. A later fault of the same kind changes nothing.
//! - Each fault is logged once when it opens and once when it ends, however often it is raised.

use crate::error::{Fault, FaultKind};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One open fault.
#[derive(Clone, Debug)]
pub struct OpenFault {
    /// The object that it stops, e.g. `coupon launch`.
    pub object: String,
    /// What happened.
    pub fault: Arc<Fault>,
}

/// The open faults of one store. Cheap to clone: clones share the list.
#[derive(Clone, Default, Debug)]
pub struct Faults(Arc<List>);

#[derive(Default, Debug)]
struct List {
    open: Mutex<BTreeMap<String, Arc<Fault>>>,
    raised: AtomicU64,
}

impl Faults {
    /// Opens a fault of an object, and logs it. If a fault of the same kind is open already, that one stays, and
    /// nothing is logged. Returns the open fault.
    pub fn raise(&self, object: &str, fault: Fault) -> Arc<Fault> {
        let mut open = self.0.open.lock();
        if let Some(known) = open.get(object).filter(|known| known.kind == fault.kind) {
            return Arc::clone(known);
        }
        let fault = Arc::new(fault);
        open.insert(object.to_owned(), Arc::clone(&fault));
        drop(open);
        self.0.raised.fetch_add(1, Ordering::Relaxed);
        tracing::error!(object, code = fault.kind.code(), "{fault}");
        fault
    }

    /// Ends the open fault of an object, if there is one, and logs that.
    pub fn clear(&self, object: &str) {
        if let Some(fault) = self.0.open.lock().remove(object) {
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
        self.0.open.lock().get(object).map(Arc::clone)
    }

    /// Returns all open faults, by object.
    pub fn open(&self) -> Vec<OpenFault> {
        let open = self.0.open.lock();
        open.iter().map(|(object, fault)| OpenFault { object: object.clone(), fault: Arc::clone(fault) }).collect()
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
        let first = faults.raise("coupon a", Fault::new(FaultKind::WentBack, "first"));
        let again = faults.raise("coupon a", Fault::new(FaultKind::WentBack, "second"));
        assert!(Arc::ptr_eq(&first, &again));
        faults.raise("redis", Fault::new(FaultKind::Unfit, "evicts"));
        assert_eq!(faults.raised(), 2);
        assert_eq!(faults.open().iter().map(|open| &*open.object).collect::<Vec<_>>(), ["coupon a", "redis"]);
        faults.clear_kind("redis", FaultKind::WentBack);
        assert!(faults.of("redis").is_some());
        faults.clear("redis");
        faults.clear("coupon a");
        assert!(faults.open().is_empty());
        faults.raise("coupon a", Fault::new(FaultKind::WentBack, "third"));
        assert_eq!(faults.raised(), 3);
    }
}
