//! What nothing rests on any more goes, and nothing that was told is contradicted.

mod flat;
mod heads;
mod keys;
mod rows;
mod standing;

use firstcome_cluster::Cluster;
use firstcome_store::purge::{PurgeMode, PurgeRejection, PurgeRequest, PurgeStore, Purged, Retention};
use std::time::Duration;

const DAY_MS: u64 = 86_400_000;

async fn purge(node: &Cluster, retention: &Retention) -> Result<Purged, PurgeRejection> {
    let counted = PurgeRequest { mode: PurgeMode::Count, ..PurgeRequest::new(*retention) };
    let counted = node.purge(counted).await.unwrap_or_else(|error| panic!("{error:?}"));
    let purged = node.purge(PurgeRequest::new(*retention)).await.unwrap_or_else(|error| panic!("{error:?}"));
    match (counted, purged) {
        // Requests of purged coupons are not counted before.
        (Ok(counted), Ok(purged)) => assert_eq!(Purged { requests: purged.requests, ..counted }, purged),
        (counted, purged) => assert_eq!(counted, purged),
    }
    purged
}

#[track_caller]
fn done(outcome: Result<Purged, PurgeRejection>) -> Purged {
    outcome.unwrap_or_else(|rejection| panic!("{rejection:?}"))
}

/// Everything but claims stays for so many days.
fn retention(days: u64) -> Retention {
    let stays = Some(Duration::from_secs(days * 86_400));
    Retention { requests: stays, tickets: stays, claims: None, dead_letters: stays, records: None, heads: None }
}
