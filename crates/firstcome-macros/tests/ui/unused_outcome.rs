//! What a caller must not ignore: a guard that is dropped at once, and an outcome that may be unknown.
#![deny(unused_must_use)]

use firstcome::{Locks, Store};

type Done = Result<(), Box<dyn std::error::Error>>;

async fn a_guard_that_is_dropped_at_once(locks: &Locks) -> Done {
    locks.lock("report").acquire().await?;
    Ok(())
}

async fn a_request_that_is_never_sent(locks: &Locks) -> Done {
    locks.lock("report").fenced();
    Ok(())
}

async fn a_release_whose_loss_is_ignored(locks: &Locks) -> Done {
    locks.lock("report").acquire().await?.release().await;
    Ok(())
}

async fn a_claim_whose_outcome_is_ignored(store: &Store) -> Done {
    store.coupon("launch")?.claim("ann")?.send().await;
    Ok(())
}

async fn a_claim_that_is_never_sent(store: &Store) -> Done {
    store.coupon("launch")?.claim("ann")?;
    Ok(())
}

fn main() {}
