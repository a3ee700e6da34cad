//! Whether the service should get requests, and whether a restart would help it.

use super::App;
use firstcome::core::id::MemberName;
use firstcome::{FaultKind, FaultScope, OpenFault};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// The longest time for the stores to answer a probe: a balancer that asks does not wait much longer.
const PROBE_WITHIN: Duration = Duration::from_secs(1);
/// How long the result of a probe is reused: any client may ask `/readyz`, without a key.
const PROBE_COUNTS: Duration = Duration::from_secs(1);

impl App {
    /// Returns the reason why the service should get no requests, if there is one. A fault of a single coupon or room is
    /// none: all nodes that know the object have it, and without them everything else would be gone too.
    pub(crate) fn unready(&self) -> Option<&'static str> {
        self.node_unready().or_else(|| self.store_fault())
    }

    /// Returns the reason why this node should get no requests though others may, if there is one: it drains, or the
    /// store in this process has a fault. A fault of a server that all nodes share is none. Does no I/O.
    pub(crate) fn node_unready(&self) -> Option<&'static str> {
        if self.leaving.load(Ordering::Relaxed) || *self.draining.borrow() {
            return Some("draining");
        }
        if let Some(fault) = self.backend.fault() {
            return Some(fault.kind.code());
        }
        if self.has_servers() { None } else { self.store_fault() }
    }

    /// Returns the code of an open fault that stops all objects of a store.
    fn store_fault(&self) -> Option<&'static str> {
        let faults = self.faults();
        let of_store = faults.iter().find(|open| open.scope == FaultScope::Store);
        of_store.map(|open| open.fault.kind.code())
    }

    /// Whether the data lie on servers that other nodes share: those of a cluster, or the database of members and
    /// listings alone.
    const fn has_servers(&self) -> bool {
        self.is_auctions_alone || self.backend.as_cluster().is_some()
    }

    /// Returns the fault that only a restart of this process ends: the writer of the embedded store has stopped.
    /// Costs one atomic read while there is no fault.
    pub fn restart_needed(&self) -> Option<FaultKind> {
        self.backend.fault().map(|fault| fault.kind).filter(|kind| *kind == FaultKind::Stopped)
    }

    /// Returns the open faults of the stores.
    pub(crate) fn faults(&self) -> Vec<OpenFault> {
        let [backend, auctions] = [self.backend.faults(), self.auctions.faults()];
        [backend.open(), auctions.open()].concat()
    }

    /// Whether the stores answer. An embedded store always does. Others are probed at most once in [`PROBE_COUNTS`],
    /// with the balance of a member that needs not exist.
    pub(crate) async fn stores_answer(&self) -> bool {
        if !self.has_servers() {
            return true;
        }
        let Ok(nobody) = MemberName::parse("readyz") else { return false };
        // A concurrent caller waits here for the same answer.
        let mut probe = self.probe.lock().await;
        if let Some((at, answers)) = *probe
            && at.elapsed() < PROBE_COUNTS
        {
            return answers;
        }
        let both = async { tokio::join!(self.backend.answers(), self.auctions.balance(&nobody)) };
        let answer = tokio::time::timeout(PROBE_WITHIN, both).await;
        let answers = matches!(answer, Ok((Ok(()), Ok(_))));
        *probe = Some((Instant::now(), answers));
        answers
    }
}
