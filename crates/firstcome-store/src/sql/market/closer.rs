//! Closes auctions by time, without anybody's call. Every process does it; each auction is closed once, since all go
//! through the same transaction, which sees that it is closed.

use super::judge::Command;
use super::lanes::Scope;
use super::load::Reader;
use super::shop::Shop;
use super::tongue::{Tongue, tag};
use crate::edge::draw_pause;
use crate::error::StoreError;
use crate::sql::SqlError;
use firstcome_core::id::ListingName;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The longest time between two looks: an auction that another process has put is closed so late at most.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// The shortest one.
const LOOK_MIN: Duration = Duration::from_millis(5);
/// Auctions closed at once.
const CLOSE_AT_ONCE: usize = 64;

impl<D: Tongue> Shop<D> {
    /// Closes what is due until nothing is, and says when the next one will be, if it is known.
    pub(super) async fn close_due(self: &Arc<Self>) -> Result<Option<Duration>, StoreError> {
        loop {
            let (due, next) = self.due().await?;
            if due.is_empty() {
                return Ok(next);
            }
            let mut closing = JoinSet::new();
            for name in due {
                let shop = Arc::clone(self);
                closing.spawn(async move { shop.command(Scope::Listing(name), Command::Advance).await });
            }
            // All of them, also after an error: one listing that cannot be closed is not to hold up the others.
            let mut first_error = None;
            while let Some(closed) = closing.join_next().await {
                // A refusal: somebody has taken the listing away.
                if let Err(error) = closed.unwrap_or(Err(StoreError::Unknown)) {
                    first_error.get_or_insert(error);
                }
            }
            if let Some(error) = first_error {
                return Err(error);
            }
        }
    }

    /// The listings that are due, and how long it is until the next one.
    async fn due(&self) -> Result<(Vec<ListingName>, Option<Duration>), StoreError> {
        let text = format!(
            "SELECT {},name,due_at,(SELECT {}) FROM firstcome_listing WHERE due_at IS NOT NULL \
             ORDER BY due_at LIMIT {CLOSE_AT_ONCE};",
            tag::LISTING,
            D::CLOCK
        );
        let rows = self.read(text).await?;
        let mut due = Vec::new();
        for row in &rows {
            let mut cells = Reader::at(row, 1);
            let name = cells.maybe_text()?.and_then(|name| ListingName::parse(&name).ok());
            let name = name.ok_or_else(|| SqlError::broken("a listing without a name"))?;
            let (due_at, now) = (cells.integer()?, cells.integer()?);
            if now < due_at {
                let left_us = due_at.abs_diff(now);
                return Ok((due, Some(Duration::from_micros(left_us))));
            }
            due.push(name);
        }
        Ok((due, None))
    }
}

/// Closes what is due, until the market is dropped.
pub(super) async fn keep_closing<D: Tongue>(shop: Weak<Shop<D>>) {
    loop {
        let Some(shop) = shop.upgrade() else { return };
        // An error is told to whoever calls; here it is tried again.
        let next = shop.close_due().await.unwrap_or_default();
        let due = Arc::clone(&shop.due);
        drop(shop);
        let wait = match next {
            Some(next) if next < LOOK_MAX / 2 => next.max(LOOK_MIN),
            // Not all processes at once.
            _ => draw_pause(LOOK_MAX),
        };
        // A new listing may be due earlier.
        let _ = timeout(wait, due.notified()).await;
    }
}
