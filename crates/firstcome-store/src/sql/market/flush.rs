//! Waits until what was read is durable, on servers that show a commit before it is on disk.
//!
//! A flush makes durable whatever was shown before it began. Those who wait at the same time share one.

use super::shop::Shop;
use super::tongue::Tongue;
use crate::sql::SqlError;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

/// The flushes of a process: one at a time.
#[derive(Default)]
pub(super) struct Flushes {
    /// How many have begun.
    begun: AtomicU64,
    /// The number of the last one that went well. Whoever has it locked may begin another.
    ended: Mutex<u64>,
}

impl<D: Tongue> Shop<D> {
    /// Returns when a flush has ended that began after this call. Nothing, on servers that need none.
    ///
    /// Whoever goes away in the middle leaves it to the next.
    pub(super) async fn flush(&self, until: Instant) -> Result<(), SqlError> {
        if D::FLUSH.is_empty() {
            return Ok(());
        }
        // One that has begun by now may be from before what was read.
        let begun = self.flushes.begun.load(Ordering::SeqCst);
        let ended = timeout_at(until, self.flushes.ended.lock()).await;
        let mut ended = ended.map_err(|_| SqlError::late_in_transaction())?;
        if begun < *ended {
            return Ok(());
        }
        let number = self.flushes.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let mut session = self.session(until).await?;
        session.run(D::FLUSH.to_owned()).await?;
        session.done();
        *ended = number;
        Ok(())
    }
}
