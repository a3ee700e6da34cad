//! Lets nodes vote that do not vote yet.

use super::super::OpenError;
use super::{Figures, Shared};
use firstcome_core::lock::quorum::{Joining, Known};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Tells a node that may vote again the counter of the other nodes. Runs once at a time for each node.
pub(super) fn introduce(shared: &Arc<Shared>, newcomer: usize, birth_us: u64) {
    if shared.nodes[newcomer].joining.swap(true, Ordering::AcqRel) {
        return;
    }
    let shared = Arc::clone(shared);
    let runtime = shared.runtime.clone();
    runtime.spawn(async move {
        let mut joining = Joining::of(shared.quorum, newcomer);
        let mut asked = JoinSet::new();
        for node in joining.others().iter() {
            let shared = Arc::clone(&shared);
            asked.spawn(async move { (node, shared.known_on(node).await) });
        }
        while let Some(known) = asked.join_next().await {
            let Ok((node, known)) = known else { continue };
            if let Some(counter) = joining.on_reply(node, known)
                && shared.join_on(newcomer, birth_us, counter).await
            {
                Figures::add(&shared.figures.rejoined);
            }
        }
        shared.nodes[newcomer].joining.store(false, Ordering::Release);
    });
}

/// Lets all nodes of a new set vote. If one of them votes already, the set is not new: then nothing is done.
pub(super) async fn begin(shared: &Arc<Shared>) -> Result<(), OpenError> {
    let away = || OpenError::Quorum { says: "a new set begins when all of them answer, and one does not".to_owned() };
    let mut used = false;
    for node in shared.quorum.all().iter() {
        match timeout(PATIENCE, shared.known_on(node)).await {
            Ok(Known::Counter { joined, .. }) => used |= joined,
            Ok(Known::Silent) | Err(_) => return Err(away()),
        }
    }
    if used {
        return Ok(());
    }
    for node in shared.quorum.all().iter() {
        shared.begin_on(node).await.map_err(|_| away())?;
    }
    Ok(())
}

/// How long a node of a new set may take to answer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
